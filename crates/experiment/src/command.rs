//! `lepus experiment`: reads its words, runs the experiment and writes the report.

use crate::call::Words;
use crate::experiment::{Alone, Experiment, Work};
use crate::ground::Output;
use crate::plan::Plan;
use crate::report::{Block, Content, Report, Table, about, file_time};
use crate::session::Session;
use crate::stop::Stop;
use crate::terminal::say;
use lepus_perf::to_stderr;
use serde_json::json;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

/// The exit code for words that cannot be meant.
const WRONG_CALL: u8 = 2;

/// Runs `lepus experiment`. Standard output gets the report's place and what was seen, standard error the progress.
///
/// 0: there is a report, or the help was asked for; 1: nothing could be measured or written, or a check found a fault; 2: the
/// words cannot be meant.
#[must_use]
pub fn run(words: Words) -> ExitCode {
    let now = file_time(SystemTime::now());
    let lepus = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("lepus"));
    match words.plan(lepus, &now) {
        Ok(None) => {
            say(&Words::command().render_long_help().to_string());
            ExitCode::SUCCESS
        }
        Ok(Some((experiment, plan))) => match begin(experiment, &plan) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(text) => {
                to_stderr(format_args!("lepus experiment {}: {text}", experiment.name));
                ExitCode::FAILURE
            }
        },
        Err(text) => {
            to_stderr(format_args!("lepus experiment: {text}"));
            ExitCode::from(WRONG_CALL)
        }
    }
}

/// Measures and writes the report; whether no check found a fault.
fn begin(experiment: &Experiment, plan: &Plan) -> Result<bool, String> {
    let stop = Stop::on_signals().map_err(|error| error.to_string())?;
    match experiment.work {
        Work::Brokers { measure, describe } => carry_out(experiment, plan, stop, measure, describe),
        Work::Alone(measure) => carry_out_alone(experiment, plan, &stop, measure).map(|()| true),
    }
}

/// An experiment without brokers.
fn carry_out_alone(
    experiment: &Experiment,
    plan: &Plan,
    stop: &Stop,
    measure: Alone,
) -> Result<(), String> {
    let start = Instant::now();
    let output = Output::prepare(&plan.output, &plan.site.scratch)?;
    let measured = measure(plan, stop);
    output.ground.done();
    let (content, figures) = measured?;
    let seconds = start.elapsed().as_secs_f64();
    let size = ("scale", format!("{}, {} rounds", plan.scale, plan.rounds));
    let about = about(&plan.command, seconds, size, "this program", &[]);
    let (scale, rounds) = (plan.scale, plan.rounds);
    let result = json!({ "experiment": experiment.name, "scale": scale, "rounds": rounds, "record": { "runs": figures } });
    let mut who = Table::new(["what", "version", "where"]);
    let row =
        ["the library of lepus", env!("CARGO_PKG_VERSION"), "in this program, without a broker"];
    who.rows.push(row.map(str::to_owned).to_vec());
    let report = Report {
        title: experiment.title,
        asks: experiment.asks,
        who: &[Block::Heading("Who took part".to_owned()), Block::Table(who)],
        content: &content,
        about: &about,
        faults: &[],
        stopped: stop.is_wanted(),
        result,
    };
    let written = report.write(&plan.output);
    written.map_err(|error| format!("{}: {error}", plan.output.display()))?;
    drop(output);
    tell(&content, plan);
    Ok(())
}

/// Prints what was seen and where the report is.
fn tell(content: &Content, plan: &Plan) {
    let mut text = content.seen.join("\n");
    text.push_str(&format!("\n{}\n", plan.output.join("report.html").display()));
    say(&text);
}

/// An experiment with brokers.
fn carry_out(
    experiment: &Experiment,
    plan: &Plan,
    stop: Stop,
    measure: fn(&mut Session<'_>),
    describe: fn(&Session<'_>) -> Content,
) -> Result<bool, String> {
    let start = Instant::now();
    let output = Output::prepare(&plan.output, &plan.site.scratch)?;
    let mut session = Session::new(plan, stop);
    measure(&mut session);
    session.record.stopped = session.is_over();
    if session.record.runs.is_empty() {
        if session.record.stopped {
            output.ground.done();
        }
        let fault = session
            .record
            .faults
            .first()
            .map_or("it was ended before the first run", String::as_str);
        return Err(format!("nothing was measured: {fault}"));
    }
    let content = describe(&session);
    write_report(experiment, &session, &content, start.elapsed().as_secs_f64())
        .map_err(|error| format!("{}: {error}", plan.output.display()))?;
    // The brokers' data is not part of the report; of runs that failed altogether the logs stay.
    output.ground.done();
    drop(output);
    tell(&content, plan);
    let is_good = session.record.runs.iter().all(|run| experiment.holds(&run.outcome));
    if !is_good {
        to_stderr(format_args!(
            "lepus experiment {}: not everything went as it has to",
            experiment.name
        ));
    }
    Ok(is_good)
}

/// Writes the report of an experiment that took so many seconds.
fn write_report(
    experiment: &Experiment,
    session: &Session<'_>,
    content: &Content,
    seconds: f64,
) -> io::Result<()> {
    let (plan, record) = (session.plan, &session.record);
    let scale = format!("{} of the report's, {} rounds", plan.scale, plan.rounds);
    let cast = &record.cast;
    let size = ("scale", scale);
    let about = about(&plan.command, seconds, size, &cast.loads_text(), &cast.lines());
    let result = json!({
        "experiment": experiment.name,
        "scale": plan.scale,
        "rounds": plan.rounds,
        "brokers": cast.json(),
        "load": cast.loads(),
        "record": record.json(),
    });
    let (title, asks) = (experiment.title, experiment.asks);
    let (faults, stopped) = (&record.faults[..], record.stopped);
    let (who, about) = (&cast.page()[..], &about[..]);
    let report = Report { title, asks, who, content, about, faults, stopped, result };
    report.write(&plan.output)
}
