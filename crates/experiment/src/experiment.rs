//! The experiments: what each asks, how it is run, and what it says.

mod feed;
pub(crate) mod figures;
mod filters;
mod jit;
mod penguins;
mod ticker;
mod treadmill;

use crate::plan::Plan;
use crate::report::Content;
use crate::session::Session;
use crate::stop::Stop;
use crate::workload::Outcome;
use serde_json::Value;
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
    /// How it is measured.
    pub(crate) work: Work,
}

/// How an experiment is measured.
pub(crate) enum Work {
    /// With brokers that take turns.
    Brokers {
        /// Measures.
        measure: fn(&mut Session<'_>),
        /// Says what was measured.
        describe: fn(&Session<'_>) -> Content,
    },
    /// In this program alone: measures, and says what there is to say beside the figures.
    Alone(Alone),
}

/// Measures without a broker.
///
/// # Errors
/// A text for the user: nothing was measured, or what was measured is wrong.
pub(crate) type Alone = fn(&Plan, &Stop) -> Result<(Content, Value), String>;

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

/// All of them: those of the reports in their order, then our own.
pub const EXPERIMENTS: [Experiment; 6] = [
    penguins::EXPERIMENT,
    treadmill::EXPERIMENT,
    ticker::EXPERIMENT,
    jit::EXPERIMENT,
    feed::EXPERIMENT,
    filters::EXPERIMENT,
];
