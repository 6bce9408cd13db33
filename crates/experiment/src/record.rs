//! What the runs of an experiment have shown, and figures over them.

use crate::cast::Cast;
use crate::plot::{Bar, Unit};
use crate::statistics::spread;
use crate::workload::Outcome;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The broker, from 0.
    pub subject: usize,
    /// Who ran where.
    pub placement: String,
    /// The load's name.
    pub load: String,
    /// The round, from 0; runs of one round are neighbours in time.
    pub round: usize,
    /// What came of it.
    pub outcome: Outcome,
}

/// Where a broker of ours spent its CPU time under a load, as `lepus profile` saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profiled {
    /// The broker's name in figures.
    pub name: String,
    /// The load.
    pub load: String,
    /// The flame graph.
    pub svg: String,
    /// Shares of the shards' phases in percent, the greatest first.
    pub phases: Vec<(String, f64)>,
    /// The functions with the most own time: name, own and accumulated time in percent.
    pub functions: Vec<(String, f64, f64)>,
    /// What it does not show.
    pub not_seen: Vec<String>,
}

impl Profiled {
    /// For the machine-readable result; the flame graph is a file beside it.
    #[must_use]
    pub fn json(&self) -> Value {
        let function = |(name, own, accumulated): &(String, f64, f64)| json!({"name": name, "own_percent": own, "accumulated_percent": accumulated});
        json!({
            "broker": self.name,
            "load": self.load,
            "phases_percent": self.phases.iter().cloned().collect::<BTreeMap<_, _>>(),
            "functions": self.functions.iter().map(function).collect::<Vec<_>>(),
            "not_seen": self.not_seen,
        })
    }
}

/// All runs so far.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The brokers' names in figures.
    pub names: Vec<String>,
    /// Who took part.
    pub cast: Cast,
    /// The runs in their order.
    pub runs: Vec<Run>,
    /// Where brokers of ours spent their CPU time.
    pub profiles: Vec<Profiled>,
    /// What could not be measured, and why.
    pub faults: Vec<String>,
    /// Whether it was ended early.
    pub stopped: bool,
}

impl Record {
    /// The runs of one broker, load and placement.
    pub fn runs_of<'a>(
        &'a self,
        subject: usize,
        placement: &'a str,
        load: &'a str,
    ) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| {
            run.subject == subject && run.placement == placement && run.load == load
        })
    }

    /// A figure's median and range over the rounds that went well.
    #[must_use]
    pub fn spread(
        &self,
        subject: usize,
        placement: &str,
        load: &str,
        figure: impl Fn(&Outcome) -> Option<f64>,
    ) -> Option<Bar> {
        let runs = self.runs_of(subject, placement, load);
        let good = runs.filter(|run| run.outcome.is_good());
        spread(good.filter_map(|run| figure(&run.outcome)).collect())
    }

    /// The first broker's figure by the second's, round by round: median and range of these ratios, where both went well.
    #[must_use]
    pub fn ratio(
        &self,
        placement: &str,
        load: &str,
        figure: impl Fn(&Outcome) -> Option<f64>,
    ) -> Option<Bar> {
        let ratios = self.runs_of(0, placement, load).filter_map(|run| {
            let other = self.runs_of(1, placement, load).find(|other| other.round == run.round)?;
            if !run.outcome.is_good() || !other.outcome.is_good() {
                return None;
            }
            let ratio = figure(&run.outcome)? / figure(&other.outcome)?;
            ratio.is_finite().then_some(ratio)
        });
        spread(ratios.collect())
    }

    /// Placements and loads in the order of their first runs.
    #[must_use]
    pub fn cases(&self) -> Vec<(String, String)> {
        let mut cases: Vec<(String, String)> = Vec::new();
        for run in &self.runs {
            let case = (run.placement.clone(), run.load.clone());
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        cases
    }

    /// The record for the machine-readable result.
    #[must_use]
    pub fn json(&self) -> Value {
        let run = |run: &Run| {
            json!({
                "broker": self.names.get(run.subject),
                "placement": run.placement,
                "load": run.load,
                "round": run.round + 1,
                "outcome": run.outcome.json(),
            })
        };
        json!({
            "brokers": self.names,
            "runs": self.runs.iter().map(run).collect::<Vec<_>>(),
            "profiles": self.profiles.iter().map(Profiled::json).collect::<Vec<_>>(),
        })
    }
}

/// Median and range as a cell of a table.
#[must_use]
pub fn cell(figure: Option<Bar>, unit: Unit) -> String {
    match figure {
        None => "–".to_owned(),
        Some(bar) if bar.low == bar.high => unit.text(bar.value),
        Some(bar) => {
            format!("{} ({} to {})", unit.text(bar.value), unit.text(bar.low), unit.text(bar.high))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Interval;

    fn record() -> Record {
        let run = |subject, round, received| {
            let total = Interval { seconds: 2.0, received, ..Interval::default() };
            let outcome = Outcome { total, ..Outcome::default() };
            Run { subject, placement: "p".to_owned(), load: "l".to_owned(), round, outcome }
        };
        let names = vec!["a".to_owned(), "b".to_owned()];
        let runs = vec![
            run(0, 0, 200.0),
            run(1, 0, 100.0),
            run(0, 1, 400.0),
            run(1, 1, 100.0),
            run(0, 2, 999.0),
        ];
        Record { names, runs, ..Record::default() }
    }

    #[test]
    fn ratios_are_of_neighbours_in_time() {
        let ratio = record().ratio("p", "l", |outcome| Some(outcome.rate())).unwrap();
        // The third round has no partner.
        assert_eq!((ratio.value, ratio.low, ratio.high), (3.0, 2.0, 4.0));
        assert_eq!(record().ratio("p", "other", |outcome| Some(outcome.rate())), None);
    }

    #[test]
    fn runs_that_failed_are_in_no_figure() {
        let mut record = record();
        for run in &mut record.runs {
            run.outcome.errors.push("reset".to_owned());
        }
        assert_eq!(record.spread(0, "p", "l", |outcome| Some(outcome.rate())), None);
        assert_eq!(record.ratio("p", "l", |outcome| Some(outcome.rate())), None);
    }

    #[test]
    fn figures_are_medians_with_their_range() {
        let rate = record().spread(0, "p", "l", |outcome| Some(outcome.rate()));
        assert_eq!(cell(rate, Unit::Number), "200 (100.0 to 500)".replace("100.0", "100"));
        assert_eq!(cell(None, Unit::Number), "–");
        assert_eq!(spread(vec![1.0, f64::NAN, 2.0]).unwrap().value, 1.5);
        assert_eq!(record().cases(), [("p".to_owned(), "l".to_owned())]);
    }
}
