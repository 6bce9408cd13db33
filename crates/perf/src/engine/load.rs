//! The load of a run: when it ends, and what is awaited then.

use super::{Engine, Phase};
use crate::link::{Link, Role};
use crate::plan::Stage;
use lepus_base::Instant;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// What was due for less than this at the end of the load was not late yet.
const LATE_MIN_NANOS: u64 = 1_000_000;

const IDLE: &str = "Consumers idle";

impl Engine {
    /// Runs the load and waits for what is under way.
    pub(super) fn carry(&mut self) -> Result<(), String> {
        let now = self.scene.clock.now();
        if self.begun.is_none() {
            self.begin_counting(now);
        }
        let warm_up = self.plan.run.warm_up;
        self.warm_until = (!warm_up.is_zero()).then(|| now + warm_up);
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
            if self.warm_until.is_some_and(|until| now >= until) {
                self.warm_until = None;
                self.scene.statistics.restart(now);
                self.begin_counting(now);
            }
            self.report(now);
            match self.phase {
                Phase::Draining => {
                    if self.is_drained(now) {
                        self.count_missing(now);
                        return Ok(());
                    }
                }
                Phase::Setting(_) | Phase::Running | Phase::Closing => {
                    if let Some(reason) = self.reason_to_stop(now) {
                        self.stopped = reason.to_owned();
                        self.scene.producing = false;
                        self.broker_ended = self.read_broker();
                        if reason != IDLE {
                            self.received_at = now;
                        }
                        let is_over = self.interrupted.load(Ordering::Relaxed)
                            || self.plan.run.drain.is_zero();
                        if self.scene.check.is_none() && is_over {
                            return Ok(());
                        }
                        self.end_load(now);
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
        if self.warm_until.is_some() {
            return None;
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
        if let Some(check) = &mut self.scene.check {
            let run = &self.plan.run;
            return check.is_complete() || now.since(self.received_at) > run.shutdown_timeout;
        }
        let ended = self.load.map_or(now, |(ended, _, _)| ended);
        now.since(ended) > self.plan.run.drain || !self.is_awaiting()
    }

    /// Whether a message or confirm is known to be under way.
    fn is_awaiting(&self) -> bool {
        let awaits = |role: &Role| match role {
            Role::Producer(producer) => !producer.is_settled(),
            Role::Roundtrip(roundtrip) => roundtrip.under_way().next().is_some(),
            Role::Idle | Role::Consumer(_) => false,
        };
        self.scene.outstanding.total().is_some_and(|left| left > 0)
            || self.links.iter().flat_map(Link::roles).any(awaits)
    }

    /// The load is over: its rates are of what was counted until now, what comes later counts for itself.
    fn end_load(&mut self, now: Instant) {
        if self.scene.check.is_some() {
            return;
        }
        self.tell_last("interval", self.received_at);
        let seconds = self.scene.statistics.seconds(self.received_at);
        self.load = Some((now, seconds, self.scene.statistics.total()));
    }

    /// What never came, was never confirmed or never even sent counts with its age: it took longer than
    /// that.
    fn count_missing(&mut self, now: Instant) {
        let ended = self.load.map_or(now, |(ended, _, _)| ended);
        let clock = self.scene.clock;
        let age = |stamp: u64| clock.stamp(now).saturating_sub(stamp);
        let missing = &mut self.missing;
        missing.outstanding = self.scene.outstanding.total();
        let statistics = &mut self.scene.statistics;
        let latency = &mut statistics.consumer_latency;
        self.scene.outstanding.each(|stamp, count| latency.record_many(age(stamp), count));
        for role in self.links.iter().flat_map(Link::roles) {
            match role {
                Role::Producer(producer) => {
                    missing.unconfirmed += producer.unconfirmed();
                    let latency = &mut statistics.confirm_latency;
                    producer.each_unconfirmed(|stamp| latency.record(age(stamp)));
                    let outstanding = &self.scene.outstanding;
                    let has_confirms = producer.has_confirms();
                    let due_by = Instant(ended.0.saturating_sub(LATE_MIN_NANOS));
                    producer.each_unsent(due_by, |number, due| {
                        missing.unsent += 1;
                        let age = age(clock.stamp(due));
                        let copies = outstanding.copies(producer.number(), number);
                        statistics.consumer_latency.record_many(age, copies);
                        if has_confirms {
                            statistics.confirm_latency.record(age);
                        }
                    });
                }
                Role::Roundtrip(roundtrip) => {
                    let mut count = 0;
                    for stamp in roundtrip.under_way() {
                        statistics.consumer_latency.record(age(stamp));
                        count += 1;
                    }
                    *missing.outstanding.get_or_insert(0) += count;
                }
                Role::Idle | Role::Consumer(_) => {}
            }
        }
    }
}
