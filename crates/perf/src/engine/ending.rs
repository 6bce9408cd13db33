//! What a run tells: a line for each interval, the summary; and its last act, closing.

use super::{Engine, Outcome, Phase};
use crate::clock::cpu_seconds;
use crate::link::{Link, LinkState};
use crate::report::data::Format;
use crate::report::{Summary, csv_row};
use crate::statistics::Counters;
use crate::to_stderr;
use lepus_base::Instant;
use std::io::Write;
use std::sync::atomic::Ordering;

impl Engine {
    pub(super) fn report(&mut self, now: Instant) {
        if now < self.next_report || self.warm_until.is_some() {
            return;
        }
        let interval = self.scene.statistics.turn(now);
        // Reports keep to multiples of the interval, whatever one of them takes.
        while self.next_report <= now {
            self.next_report = self.next_report + self.plan.run.interval;
        }
        if !self.plan.quiet {
            let (id, shape) = (&self.plan.id, self.plan.shape);
            self.plan.run.format.print_interval(id, shape, self.plan.shown, &interval);
        }
        if let Some(csv) = &mut self.csv {
            let row = csv_row(&self.plan.id, self.plan.shown, &interval);
            let _ = writeln!(csv, "{row}");
            let _ = csv.flush();
        }
        self.intervals.push(interval);
    }

    /// Ends the last, incomplete interval. People are spared it; programs get it, so that what is counted sums
    /// up to the summary.
    pub(super) fn tell_last(&mut self, kind: &'static str, ended: Instant) {
        let last = self.scene.statistics.turn(ended);
        let format = self.plan.run.format;
        if !self.plan.quiet && format != Format::Text && last.counters != Counters::default() {
            format.print_last(kind, self.plan.shape, self.plan.shown, &last);
        }
        if self.intervals.is_empty() {
            self.intervals.push(last);
        }
    }

    /// Prints and writes the summary of what was counted until `ended`.
    pub(super) fn finish(&mut self, ended: Instant) -> Result<Outcome, String> {
        let cpu_seconds = cpu_seconds() - self.cpu_begun;
        match self.load {
            None => self.tell_last("interval", ended),
            // What came after the end of the load.
            Some(_) => self.tell_last("drain", ended),
        }
        let (seconds, in_load) = match self.load {
            Some((_, seconds, counters)) => (seconds, counters),
            None => (self.scene.statistics.seconds(ended), self.scene.statistics.total()),
        };
        let format = self.plan.run.format;
        if let Some(check) = &mut self.scene.check {
            check.finish();
            if !check.faults().is_none() {
                let first = check.first().unwrap_or("unknown");
                self.errors.push(format!("{}; first: {first}", check.faults().in_words()));
            }
        }
        let check = self.scene.check.as_ref();
        let summary = Summary {
            id: &self.plan.id,
            shape: self.plan.shape,
            phase: &self.plan.phase,
            shown: self.plan.shown,
            seconds,
            counters: self.scene.statistics.total(),
            in_load,
            missing: self.missing,
            consumer_latency: self.scene.statistics.consumer_latency.total(),
            confirm_latency: self.scene.statistics.confirm_latency.total(),
            curves: [
                self.scene.statistics.consumer_latency.curve(),
                self.scene.statistics.confirm_latency.curve(),
            ],
            buckets: [
                self.scene.statistics.consumer_latency.buckets(),
                self.scene.statistics.confirm_latency.buckets(),
            ],
            cpu_seconds,
            ceiling: self.plan.ceiling,
            body_bytes: self.plan.layout.size,
            check,
            stopped: &self.stopped,
            errors: &self.errors,
            intervals: &self.intervals,
        };
        if self.plan.quiet {
            return Ok(Outcome::Good);
        }
        format.print_summary(&summary);
        if let Some(path) = &self.plan.run.json {
            std::fs::write(path, summary.json())
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        match check {
            Some(check) if !check.faults().is_none() => {
                to_stderr(format_args!(
                    "lepus perf {}: {}",
                    self.plan.shape,
                    check.faults().in_words()
                ));
                Ok(Outcome::Faulty)
            }
            _ if self.interrupted.load(Ordering::Relaxed) => Ok(Outcome::Interrupted),
            _ => Ok(Outcome::Good),
        }
    }

    /// Closes all connections; what goes wrong now no longer matters.
    pub(super) fn close(&mut self) {
        self.scene.producing = false;
        self.timers.clear();
        self.phase = Phase::Closing;
        let until = self.scene.clock.now() + self.plan.run.shutdown_timeout;
        for at in 0..self.links.len() {
            self.links[at].close(self.scene.clock.now());
            self.enqueue(at);
        }
        let open = |link: &Link| link.state() != LinkState::Closed;
        while self.links.iter().any(open) && self.scene.clock.now() < until {
            if self.turn().is_err() {
                return;
            }
        }
    }
}
