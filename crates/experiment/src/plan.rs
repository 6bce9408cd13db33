//! How an experiment is to run: its size, the brokers and their places.

use crate::subject::{Choice, Placement, Site};
use std::path::PathBuf;

/// What was asked for, apart from which experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The size, 1 for the report's own.
    pub scale: f64,
    /// How often each broker has its turn.
    pub rounds: usize,
    /// The length of each load that is limited by time, where the caller sets it.
    pub seconds: Option<f64>,
    /// One broker or two.
    pub choices: Vec<Choice>,
    /// The directory of the report.
    pub output: PathBuf,
    /// Where programs and data are.
    pub site: Site,
    /// The CPUs that may be used.
    pub cpus: Vec<usize>,
    /// The command as it was given, without passwords.
    pub command: String,
}

impl Plan {
    /// The brokers' names in figures, all different.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let names: Vec<String> = self.choices.iter().map(Choice::name).collect();
        match names.as_slice() {
            [first, second] if first == second => {
                vec![format!("{first} A"), format!("{second} B")]
            }
            _ => names,
        }
    }

    /// Broker and load on CPUs of their own, as far as there are enough.
    #[must_use]
    pub fn apart(&self) -> Placement {
        if self.starts_any() { Placement::halves(&self.cpus) } else { self.as_it_runs() }
    }

    /// The broker on 1, 2, 4 … CPUs and on all of them. One that runs already stays where it is.
    #[must_use]
    pub fn sweep(&self) -> Vec<Placement> {
        if !self.starts_any() {
            return vec![self.as_it_runs()];
        }
        let doubled = std::iter::successors(Some(1), |count| Some(count * 2));
        let mut counts: Vec<usize> = doubled.take_while(|count| *count < self.cpus.len()).collect();
        counts.push(self.cpus.len().max(1));
        counts.into_iter().map(|count| Placement::first(&self.cpus, count)).collect()
    }

    fn starts_any(&self) -> bool {
        self.choices.iter().any(Choice::is_ours)
    }

    fn as_it_runs(&self) -> Placement {
        Placement { name: "where it runs".to_owned(), broker: Vec::new(), load: self.cpus.clone() }
    }

    /// How long a load of `report_seconds` in the report runs here: at least 3 seconds.
    #[must_use]
    pub fn seconds(&self, report_seconds: f64) -> f64 {
        self.seconds.unwrap_or((report_seconds * self.scale).clamp(3.0, report_seconds.max(3.0)))
    }

    /// How many of `report_count` there are here.
    #[must_use]
    pub fn count(&self, report_count: u64, least: u64) -> u64 {
        ((report_count as f64 * self.scale).round() as u64).max(least)
    }
}
