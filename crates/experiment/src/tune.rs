//! `lepus tune`: the best setting by experiment, where theory is not enough.
//!
//! [`variant`] says what is tried on a machine, [`course`] runs it in rounds, [`crate::statistics`] says how sure a difference
//! is, [`judge`] what is given up and what recommended, [`settings_file`] writes that down. All but the course and the
//! files are pure.

mod call;
mod course;
pub mod judge;
mod report;
pub mod settings_file;
pub mod variant;

use crate::ground::Output;
use crate::report::{Report, about, file_time};
use crate::stop::Stop;
use crate::terminal::say;
use call::Plan;
pub use call::Words;
use course::Course;
use lepus_perf::to_stderr;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};
use variant::Variant;

/// The exit code for words that cannot be meant.
const WRONG_CALL: u8 = 2;

const TITLE: &str = "tune: with how many shards, and where, is lepus best here?";
const ASKS: &str = "Each setting had its turn in every round, on a broker started for it. A report of 2010 found a server \
                    fastest on one core, one of 2011 a broker faster on three of four memory nodes than on all. Which \
                    setting is best on this machine for this load, and how sure is that?";

/// Runs `lepus tune`. Standard output gets the table, the recommendation and the report's place, standard error the
/// progress.
///
/// 0: there is a report, and the file is written where that was asked for; 1: nothing could be measured, the report or the
/// file could not be written, or it was ended before the file could be; 2: the words cannot be meant.
#[must_use]
pub fn run(words: Words) -> ExitCode {
    let now = file_time(SystemTime::now());
    let lepus = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("lepus"));
    let wrong = |text: &str| {
        to_stderr(format_args!("lepus tune: {text}"));
        ExitCode::from(WRONG_CALL)
    };
    let plan = match words.plan(lepus, &now) {
        Ok(plan) => plan,
        Err(text) => return wrong(&text),
    };
    let variants = match variant::variants(&plan.machine, &plan.sweep) {
        Ok(variants) => variants,
        Err(text) => return wrong(&text),
    };
    if plan.only_plans {
        say(&report::plan_text(&plan, &variants));
        return ExitCode::SUCCESS;
    }
    match carry_out(&plan, &variants) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            to_stderr(format_args!("lepus tune: {text}"));
            ExitCode::FAILURE
        }
    }
}

fn carry_out(plan: &Plan, variants: &[Variant]) -> Result<(), String> {
    // What cannot be written in the end is told before the minutes of measuring.
    if let Some(file) = &plan.write {
        settings_file::check(file)?;
    }
    let stop = Stop::on_signals().map_err(|error| error.to_string())?;
    let start = Instant::now();
    let output = Output::prepare(&plan.output, &plan.site.scratch)?;
    to_stderr(report::plan_text(plan, variants).trim_end());
    let course = Course::run(plan, variants, &stop);
    if course.record.runs.is_empty() {
        if course.record.stopped {
            output.ground.done();
        }
        let fault = course.record.faults.first();
        let fault = fault.map_or("it was ended before the first run was over", String::as_str);
        return Err(format!("nothing was measured: {fault}"));
    }
    let advice = report::advice(&course);
    let content = report::content(&course, advice);
    let size = format!(
        "{} rounds of {} s, `lepus perf {}`",
        plan.rounds,
        plan.seconds,
        plan.load.join(" ")
    );
    let cast = &course.record.cast;
    let about = about(
        &plan.command,
        start.elapsed().as_secs_f64(),
        ("load", size),
        &cast.loads_text(),
        &cast.lines(),
    );
    let result = report::result(&course, advice);
    let page = Report {
        title: TITLE,
        asks: ASKS,
        who: &cast.page(),
        content: &content,
        about: &about,
        faults: &course.record.faults,
        stopped: course.record.stopped,
        result,
    };
    page.write(&plan.output).map_err(|error| format!("{}: {error}", plan.output.display()))?;
    output.ground.done();
    drop(output);
    let place = plan.output.join("report.html");
    say(&format!("{}{}\n{}\n", report::table(&course), content.seen.join("\n"), place.display()));
    let Some(file) = &plan.write else { return Ok(()) };
    if course.record.stopped {
        return Err(format!("ended early: {} is as it was", file.display()));
    }
    let Some(advice) = advice else { return Ok(()) };
    let choice = &variants[advice.choice];
    let shards = (!choice.is_default).then_some(choice.shards);
    settings_file::write(file, shards, &choice.placement.to_string())?;
    say(&format!("written to {}\n", file.display()));
    Ok(())
}
