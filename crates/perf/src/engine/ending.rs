//! What a run tells: a line for each interval, the summary; and its last act, closing.

use super::{Engine, Outcome, Phase};
use crate::clock::cpu_seconds;
use crate::link::{Link, LinkState};
use crate::report::{Summary, csv_row, interval_line};
use lepus_base::Instant;
use std::io::{self, Write};

impl Engine {
    pub(super) fn report(&mut self, now: Instant) {
        if now < self.next_report {
            return;
        }
        let interval = self.scene.statistics.turn(now);
        // Reports keep to multiples of the interval, whatever one of them takes.
        while self.next_report <= now {
            self.next_report = self.next_report + self.plan.run.interval;
        }
        let line = interval_line(&self.plan.id, self.plan.shown, &interval);
        print(&line);
        if let Some(csv) = &mut self.csv {
            let row = csv_row(&self.plan.id, self.plan.shown, &interval);
            let _ = writeln!(csv, "{row}");
            let _ = csv.flush();
        }
        self.intervals.push(interval);
    }

    /// Prints and writes the summary of what was counted until `ended`.
    pub(super) fn finish(&mut self, ended: Instant) -> Result<Outcome, String> {
        let cpu_seconds = cpu_seconds() - self.cpu_begun;
        let seconds = self.scene.statistics.seconds(ended);
        // The last, incomplete interval counts for the totals only.
        let last = self.scene.statistics.turn(ended);
        if self.intervals.is_empty() {
            self.intervals.push(last);
        }
        if let Some(check) = &mut self.scene.check {
            check.finish();
        }
        let check = self.scene.check.as_ref();
        let summary = Summary {
            id: &self.plan.id,
            shape: self.plan.shape,
            shown: self.plan.shown,
            seconds,
            counters: self.scene.statistics.total(),
            consumer_latency: self.scene.statistics.consumer_latency.total(),
            confirm_latency: self.scene.statistics.confirm_latency.total(),
            cpu_seconds,
            body_bytes: self.plan.layout.size,
            check,
            stopped: &self.stopped,
            intervals: &self.intervals,
        };
        print(summary.text().trim_end());
        if let Some(path) = &self.plan.run.json {
            std::fs::write(path, summary.json())
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        Ok(match check {
            Some(check) if !check.faults().is_none() => Outcome::Faulty,
            _ => Outcome::Good,
        })
    }

    /// Closes all connections; what goes wrong now no longer matters.
    pub(super) fn close(&mut self) {
        self.scene.producing = false;
        self.timers.clear();
        self.phase = Phase::Closing;
        let until = self.scene.clock.now() + self.plan.run.shutdown_timeout;
        for at in 0..self.links.len() {
            self.links[at].close();
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

/// Prints a line; a reader that has gone is no reason to stop measuring.
fn print(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
