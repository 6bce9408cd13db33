//! The directory's changes: shard 0 orders them, every shard applies them.

use alloc::format;
use alloc::vec::Vec;

use lepus_base::{Now, ShardId};

use crate::broker::Broker;
use crate::definitions::{Aftermath, Decided, Decision};
use crate::directory::{Applied, Capacity, Change, Request};
use crate::mail::{Origin, ToldFilterCost};
use crate::outbox::{Outbox, Severity};
use crate::query::Answer;
use crate::refusal::{Refusal, RefusalKind};

/// Why no queue goes to another shard any more.
pub(crate) fn stays() -> Refusal {
    Refusal::new(RefusalKind::Forced, "the broker stops")
}

impl Broker {
    /// Shard 0 orders the directory's changes: decides, makes durable, applies, tells the others,
    /// answers.
    pub(crate) fn sequence(
        &mut self,
        now: Now,
        origin: Origin,
        request: Request,
        out: &mut Outbox,
    ) {
        if self.shard.stopping && matches!(request, Request::MoveQueue { .. }) {
            return self.definitions.answer(self.shard.id, origin, Err(stays()), out);
        }
        self.definitions.wait(origin, request);
        self.advance(now, out);
    }

    /// The same with many requests, which are answered together.
    pub(crate) fn sequence_all(
        &mut self,
        now: Now,
        question: u64,
        requests: Vec<Request>,
        out: &mut Outbox,
    ) {
        if requests.is_empty() {
            return out.answers.push((question, Answer::ChangedAll(Vec::new())));
        }
        self.definitions.wait_for_all(question, requests);
        self.advance(now, out);
    }

    /// A shard says what the filters of an exchange's bindings take of a message there.
    pub(crate) fn note_filter_cost(
        &mut self,
        now: Now,
        from: ShardId,
        told: ToldFilterCost,
        out: &mut Outbox,
    ) {
        let ToldFilterCost { vhost, exchange, cost } = told;
        self.directory.note_filter_cost(vhost, &exchange, from, cost);
        let figures = self.directory.filter_figures(vhost, &exchange);
        let refusing = figures.filter(|figures| figures.refuses);
        let Some(steps) = refusing.and_then(|figures| figures.told_steps) else { return };
        if self.shard.effort.must_tell_filters(now) {
            let text = format!(
                "the filters of bindings of exchange '{exchange}' in vhost '{}' take some {} µs of a message: further ones \
                 that cannot be looked up are refused; 'lepus list filters' shows the dearest",
                self.directory.vhost_name(vhost),
                steps.div_ceil(Capacity::FILTER_STEPS_PER_MICRO)
            );
            out.log(Severity::Warning, "filters-cost-much", text);
        }
    }

    /// Carries out what has become durable, and decides what waits.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        // What follows from a change may ask for another: that one waits for its turn.
        if !self.definitions.begin() {
            return;
        }
        let batch = self.definitions.take_batch(&mut self.directory, self.shard.id, out);
        let has_batch = !batch.is_empty();
        for (origin, decision) in batch {
            self.carry_out(now, origin, decision, out);
        }
        if has_batch {
            // However many requests there are, what was deleted goes.
            self.clear_some(now, out);
        }
        while let Some(decided) = self.definitions.decide_next(now, &mut self.directory) {
            if let Some(Decided { origin, decision, .. }) = decided {
                self.carry_out(now, origin, decision, out);
            }
        }
        self.definitions.put_off();
        self.definitions.end();
    }

    fn carry_out(&mut self, now: Now, origin: Origin, decision: Decision, out: &mut Outbox) {
        let own = self.shard.id;
        match decision {
            Decision::Answer(result) => self.definitions.answer(own, origin, result, out),
            Decision::Change(change) => {
                let aftermath = self.apply(now, &change, out);
                if let Change::UserPut { name, .. } = &change
                    && let Some(text) = self.directory.accounts().open_door(name)
                {
                    out.log(Severity::Warning, "open-door", text);
                }
                self.definitions.applied(own, origin, change, aftermath, out);
            }
        }
    }

    /// As much as one slice may cost goes, on every shard: a part of what was deleted first, or all of
    /// several things that had little. Nothing while decisions wait for the log, which hold for the
    /// directory as it is, and nothing while another shard has several slices to apply: one that applies them as fast as
    /// they are made does nothing else.
    fn clear_some(&mut self, now: Now, out: &mut Outbox) {
        if !self.definitions.has_slices() {
            return;
        }
        let mut budget = self.directory.slice_looks();
        while budget > 0
            && let Some(number) = self.definitions.next_slice()
        {
            let before = self.directory.clearing();
            let aftermath = self.apply(now, &Change::Cleared, out);
            self.definitions.tell(Change::Cleared, out);
            budget = budget.saturating_sub(aftermath.looks.max(1));
            let is_over = self.directory.clearing() < before;
            let exchanges_left = aftermath.exchanges_left;
            self.definitions.sliced(self.shard.id, number, exchanges_left, is_over, out);
        }
    }

    /// Slices of what was deleted, what was put off, and a slice of a snapshot. That something was deleted is in the
    /// log, so that a start completes it; the slices are not.
    pub(crate) fn work_on_definitions(&mut self, now: Now, out: &mut Outbox) {
        // What follows from a change may ask for another: that one waits for its turn.
        if self.definitions.has_slices() && self.definitions.begin() {
            self.clear_some(now, out);
            self.definitions.end();
            self.advance(now, out);
        }
        if self.definitions.take_put_off() {
            self.advance(now, out);
        }
        if self.definitions.record_slice(now, &self.directory) {
            self.advance(now, out);
        }
    }

    /// The end of a cycle.
    pub(crate) fn flush_definitions(&mut self, now: Now, out: &mut Outbox) {
        if self.definitions.has_log() {
            self.advance(now, out);
        }
        self.definitions.flush(now, out);
    }

    /// Applies a change of the directory to this shard.
    pub(crate) fn apply(&mut self, now: Now, change: &Change, out: &mut Outbox) -> Aftermath {
        self.home().route_before_change(now, out);
        let applied = self.directory.apply(change);
        self.shard.tracing.follow(change, &applied, &self.directory);
        self.home().follow_change(now, &applied, out);
        for info in &applied.queues_deleted {
            let parked = self.homes.take_parked_mail(info.id);
            self.send_parked_mail(now, parked, info.id, out);
        }
        if let Some((info, id)) = &applied.queue_moved {
            self.session().redirect_consumers(info, *id, out);
            let parked = self.home().queue_moved(now, info, *id, out);
            self.send_parked_mail(now, parked, *id, out);
        }
        self.session().follow_change(now, change, &applied, out);
        let Applied { goes_in_slices, looks, exchanges_left, .. } = applied;
        Aftermath { goes_in_slices, looks, exchanges_left }
    }
}

#[cfg(test)]
mod tests {
    use lepus_base::ShardId;

    use super::*;
    use crate::directory::Directory;
    use crate::query::Query;
    use crate::settings::{Limits, Settings};
    use crate::user::{HashingAlgorithm, PasswordHash};

    const NOW: Now = Now { instant: lepus_base::Instant(1), wall_millis: 1 };

    /// Kinds of the lines that the log gets when a user gets this password.
    fn told(is_reachable: bool, name: &str, password: &str) -> Vec<&'static str> {
        let mut out = Outbox::new(1);
        let mut broker = Broker::new(Settings {
            shard: ShardId(0),
            shards: 1,
            nodes: Vec::new(),
            hash: lepus_base::HashState::new(1),
            node: "rabbit@localhost".into(),
            secret: [3; 32],
            server: Default::default(),
            limits: Limits::default(),
            store: None,
        });
        broker.preset(NOW, &Directory::preset("guest", b"guest", [7; 4], "/"), &mut out);
        broker.directory.accounts_mut().set_reachable(is_reachable);
        let put = |password: &str| Request::PutUser {
            name: name.into(),
            password: PasswordHash::new(HashingAlgorithm::Sha256, password.as_bytes(), [1; 4]),
            tags: Vec::new(),
        };
        broker.query(NOW, 1, Query::Change(put("of its own")), &mut out);
        assert!(out.events.is_empty());
        broker.query(NOW, 2, Query::Change(put(password)), &mut out);
        out.events.iter().map(|event| event.kind).collect()
    }

    #[test]
    fn a_password_that_everybody_knows_is_told_when_it_is_given() {
        for password in ["ann", "guest", "password"] {
            assert_eq!(told(true, "ann", password), ["open-door"]);
            assert_eq!(told(false, "ann", password), [""; 0]);
        }
        assert_eq!(told(true, "ann", "another"), [""; 0]);
        // It may log in from this machine only.
        assert_eq!(told(true, "guest", "guest"), [""; 0]);
    }
}
