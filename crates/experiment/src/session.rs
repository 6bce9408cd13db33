//! The course of an experiment: brokers are started, take turns under load, and are ended.

use crate::identity::{Identity, OWN_TESTER, own_tester};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::record::{Record, Run};
use crate::stop::Stop;
use crate::subject::{Placement, Subject};
use crate::workload::{self, Load};
use lepus_perf::to_stderr;

/// An experiment under way.
pub struct Session<'a> {
    /// What was asked for.
    pub plan: &'a Plan,
    /// Whether somebody wants it to end.
    pub stop: Stop,
    /// What it has shown so far.
    pub record: Record,
    /// How far it is.
    pub progress: Progress,
}

impl<'a> Session<'a> {
    /// Begins.
    #[must_use]
    pub fn new(plan: &'a Plan, stop: Stop) -> Session<'a> {
        let record = Record { names: plan.names(), ..Record::default() };
        record.cast.load(OWN_TESTER, || own_tester(&plan.site.lepus));
        Session { plan, stop, record, progress: Progress::start() }
    }

    /// Whether no more runs are to begin.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stop.is_wanted()
    }

    /// Starts a broker, or notes why it cannot be.
    pub fn start(&mut self, number: usize, placement: &Placement, fresh: bool) -> Option<Subject> {
        let choice = &self.plan.choices[number];
        let name = self.record.names[number].clone();
        let started = Subject::start(choice, &name, &self.plan.site, placement, fresh, &self.stop);
        match started {
            Ok(subject) => {
                let identify = || Identity::of(&subject, &name, &self.plan.site.lepus);
                self.record.cast.broker(&name, &subject.settings, identify);
                Some(subject)
            }
            Err(_) if self.stop.is_wanted() => None,
            Err(error) => {
                self.note(format!("{name}, {}: {error}", placement.label()));
                None
            }
        }
    }

    /// Notes what could not be measured.
    pub fn note(&mut self, fault: String) {
        to_stderr(format_args!("left out: {fault}"));
        self.record.faults.push(fault);
    }

    /// Runs one load; whether it went well.
    pub fn load(
        &mut self,
        (number, subject): (usize, &Subject),
        placement: &Placement,
        load: &Load,
        round: usize,
    ) -> bool {
        if self.is_over() {
            return false;
        }
        let name = &self.record.names[number];
        let what = format!("{name}, {}, {}, round {}", load.name, placement.label(), round + 1);
        self.progress.tell(&what);
        let outcome = workload::run(&self.plan.site.lepus, load, subject, placement, &self.stop);
        self.progress.done(load.seconds_expected());
        match outcome {
            Ok(outcome) => {
                for error in &outcome.errors {
                    self.record.faults.push(format!("{what}: {error}"));
                }
                let (load, placement) = (load.name.clone(), placement.label());
                self.record.runs.push(Run { subject: number, placement, load, round, outcome });
                true
            }
            Err(_) if self.stop.is_wanted() => false,
            Err(error) => {
                self.note(format!("{what}: {error}"));
                false
            }
        }
    }

    /// Every broker under every load in turn, round by round: A B A B.
    pub fn take_turns(&mut self, placement: &Placement, loads: &[Load]) {
        let rounds = self.plan.rounds;
        let subjects: Vec<Option<Subject>> = (0..self.plan.choices.len())
            .map(|number| if self.is_over() { None } else { self.start(number, placement, true) })
            .collect();
        for load in loads {
            for round in 0..rounds {
                for (number, subject) in subjects.iter().enumerate() {
                    match subject {
                        Some(subject) => {
                            self.load((number, subject), placement, load, round);
                        }
                        None => self.progress.expect(-load.seconds_expected()),
                    }
                }
            }
        }
    }

    /// Takes turns under the load on one core, on more and on all.
    pub fn sweep(&mut self, load: Load) {
        let (placements, loads) = (self.plan.sweep(), [load]);
        self.expect_turns(placements.len(), &loads);
        for placement in &placements {
            self.take_turns(placement, &loads);
        }
    }

    /// Tells how much [`Session::take_turns`] will have to do.
    pub fn expect_turns(&mut self, placements: usize, loads: &[Load]) {
        let seconds: f64 = loads.iter().map(Load::seconds_expected).sum();
        let turns = placements * self.plan.rounds * self.plan.choices.len();
        self.progress.expect(seconds * turns as f64);
    }
}
