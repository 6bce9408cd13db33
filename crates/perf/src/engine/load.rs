//! The load of a run: when it ends, and what is awaited then.

use super::{Engine, Phase};
use crate::link::{Link, Role};
use crate::plan::Stage;
use lepus_base::Instant;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

const IDLE: &str = "Consumers idle";

impl Engine {
    /// Runs the load and waits for what is under way.
    pub(super) fn carry(&mut self) -> Result<(), String> {
        let now = self.scene.clock.now();
        if self.begun.is_none() {
            self.begin_counting(now);
        }
        self.phase = Phase::Running;
        self.scene.producing = true;
        self.received_at = now;
        self.unfinished = self.links.len();
        for at in 0..self.links.len() {
            if self.links[at].stage != Stage::Setup {
                self.links[at].begin(now, &mut self.scene);
            }
            self.enqueue(at);
        }
        loop {
            if let Err(error) = self.turn() {
                self.stopped = "Connection lost".to_owned();
                self.received_at = self.scene.clock.now();
                return Err(error);
            }
            let now = self.scene.clock.now();
            self.report(now);
            match self.phase {
                Phase::Draining => {
                    if self.is_drained(now) {
                        return Ok(());
                    }
                }
                Phase::Setting(_) | Phase::Running | Phase::Closing => {
                    if let Some(reason) = self.reason_to_stop(now) {
                        self.stopped = reason.to_owned();
                        self.scene.producing = false;
                        if reason != IDLE {
                            self.received_at = now;
                        }
                        if self.scene.check.is_none() {
                            return Ok(());
                        }
                        self.begin_draining();
                    }
                }
            }
        }
    }

    fn reason_to_stop(&self, now: Instant) -> Option<&'static str> {
        let run = &self.plan.run;
        let begun = self.begun.unwrap_or(now);
        if self.interrupted.load(Ordering::Relaxed) {
            return Some("Interrupted");
        }
        if run.time_max.is_some_and(|time| now.since(begun) >= time) {
            return Some("Reached time limit");
        }
        if self.limited && self.unfinished == 0 {
            return Some("Reached message limit");
        }
        if run.idle_max.is_some_and(|idle| now.since(self.received_at) >= idle) {
            return Some(IDLE);
        }
        None
    }

    /// Tells the check what was sent, so that it knows what to wait for.
    fn begin_draining(&mut self) {
        self.phase = Phase::Draining;
        for at in 0..self.links.len() {
            self.links[at].end();
            self.enqueue(at);
        }
        let mut sent = HashMap::new();
        for role in self.links.iter().flat_map(Link::roles) {
            match role {
                Role::Producer(producer) => sent.insert(producer.number(), producer.sent()),
                Role::Roundtrip(roundtrip) => sent.insert(roundtrip.number(), roundtrip.sent()),
                Role::Idle | Role::Consumer(_) => None,
            };
        }
        if let Some(check) = &mut self.scene.check {
            for (queue, producer) in &self.plan.expected {
                if let Some(sent) = sent.get(producer) {
                    check.expect(*queue, *producer, *sent);
                }
            }
        }
        self.received = self.scene.statistics.total().received;
    }

    fn is_drained(&mut self, now: Instant) -> bool {
        // Looking at all streams is not free: it waits for a pause, or for the tick.
        let received = self.scene.statistics.total().received;
        if received != self.received {
            self.received = received;
            self.received_at = now;
            if now < self.next_tick && !self.queue.is_empty() {
                return false;
            }
        }
        let Some(check) = &mut self.scene.check else {
            return true;
        };
        check.is_complete() || now.since(self.received_at) > self.plan.run.shutdown_timeout
    }
}
