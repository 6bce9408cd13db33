//! The experiments: what each asks, how it is run, and what it says.

mod feed;
pub(crate) mod figures;
mod jit;
mod penguins;
mod ticker;
mod treadmill;

use crate::report::Content;
use crate::session::Session;
use crate::workload::Outcome;
use std::fmt;

/// One of the experiments.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// What the report asked.
    pub asks: &'static str,
    /// Whether each message that is sent has to come to one consumer.
    pub(crate) is_checked: bool,
    /// Measures.
    pub(crate) measure: fn(&mut Session<'_>),
    /// Says what was measured.
    pub(crate) describe: fn(&Session<'_>) -> Content,
}

impl Experiment {
    /// Whether a run went as it has to.
    pub(crate) fn holds(&self, outcome: &Outcome) -> bool {
        outcome.is_good() && (!self.is_checked || outcome.arrived() >= outcome.total.sent)
    }
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
