//! The experiments: what each asks, how it is run, and what it says.

mod feed;
pub(crate) mod figures;
mod jit;
mod penguins;
mod ticker;
mod treadmill;

use crate::call::{self, Call, Plan};
use crate::report::{self, Content};
use crate::session::Session;
use crate::stop::Stop;
use lepus_perf::to_stderr;
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

/// The exit code for words that cannot be meant.
const WRONG_CALL: u8 = 2;

/// One of the experiments.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// What the report asked.
    pub asks: &'static str,
    /// Measures.
    measure: fn(&mut Session<'_>),
    /// Says what was measured.
    describe: fn(&Session<'_>) -> Content,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All of them, in the order of the reports.
pub const EXPERIMENTS: [Experiment; 5] = [
    penguins::EXPERIMENT,
    treadmill::EXPERIMENT,
    ticker::EXPERIMENT,
    jit::EXPERIMENT,
    feed::EXPERIMENT,
];

/// Runs `lepus experiment WORDS`. Standard output gets the report's place and what was seen, standard error the progress.
///
/// 0: there is a report; 1: nothing could be measured or written, or a check found a fault; 2: the words cannot be meant.
#[must_use]
pub fn run(words: &[String]) -> ExitCode {
    let now = report::file_time(SystemTime::now());
    let lepus = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("lepus"));
    match call::read(words, lepus, &now) {
        Ok(Call::Print(text)) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Ok(Call::Run(plan)) => match carry_out(&plan) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(text) => {
                to_stderr(format_args!("lepus experiment {}: {text}", plan.experiment.name));
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
fn carry_out(plan: &Plan) -> Result<bool, String> {
    let stop = Stop::on_signals().map_err(|error| error.to_string())?;
    let start = Instant::now();
    fs::create_dir_all(&plan.site.scratch)
        .map_err(|error| format!("{}: {error}", plan.site.scratch.display()))?;
    let mut session = Session::new(plan, stop);
    (plan.experiment.measure)(&mut session);
    session.record.stopped = session.is_over();
    if report::is_empty(&session.record) {
        if session.record.stopped {
            let _ = fs::remove_dir_all(&plan.site.scratch);
        }
        let fault = session
            .record
            .faults
            .first()
            .map_or("it was ended before the first run", String::as_str);
        return Err(format!("nothing was measured: {fault}"));
    }
    let content = (plan.experiment.describe)(&session);
    report::write(&session, &content, start.elapsed().as_secs_f64())
        .map_err(|error| format!("{}: {error}", plan.output.display()))?;
    // The brokers' data is not part of the report; of runs that failed altogether the logs stay.
    fs::remove_dir_all(&plan.site.scratch)
        .map_err(|error| format!("{}: {error}", plan.site.scratch.display()))?;
    let mut text = content.seen.join("\n");
    text.push_str(&format!("\n{}\n", plan.output.join("report.html").display()));
    say(&text);
    let is_good = session.record.runs.iter().all(|run| run.outcome.gap.is_none());
    if !is_good {
        to_stderr(format_args!(
            "lepus experiment {}: not everything arrived as it was sent",
            plan.experiment.name
        ));
    }
    Ok(is_good)
}

/// Prints to standard output; a reader that went away is no failure.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
