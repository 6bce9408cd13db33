//! The directory's changes: shard 0 orders them, every shard applies them.

use alloc::sync::Arc;

use lepus_base::{Now, QueueId};

use crate::broker::Broker;
use crate::definitions::{Aftermath, Decided, Decision, stopped};
use crate::directory::{Applied, Change, Request};
use crate::mail::{Mail, Origin};
use crate::outbox::{Outbox, Severity};
use crate::query::Answer;
use crate::refusal::{Refusal, RefusalKind};

/// Why no queue goes to another shard any more.
pub(crate) fn stays() -> Refusal {
    Refusal::new(RefusalKind::Forced, "the broker stops")
}

impl Broker {
    /// An operator or a start-up file asks for a change. The answer comes in `out.answers` under
    /// `question`, on shard 0, which is where this must be called.
    pub fn request(&mut self, now: Now, question: u64, request: &Request, out: &mut Outbox) {
        self.sequence(now, Origin::Control(question), request.clone(), out);
        self.settle_down(now, out);
    }

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
            return self.answer(now, origin, Err(stays()), out);
        }
        self.definitions.wait(origin, request);
        self.advance(now, out);
    }

    /// The broker stops: queues whose move is not decided yet stay, and what waits for them goes on.
    pub(crate) fn let_queues_stay(&mut self, now: Now, out: &mut Outbox) {
        for origin in self.definitions.take_moves() {
            self.answer(now, origin, Err(stays()), out);
        }
    }

    /// Carries out what has become durable, and decides what waits.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        // What follows from a change may ask for another: that one waits for its turn.
        if !self.definitions.begin() {
            return;
        }
        if self.finish_batch(now, out) {
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

    /// Carries out what waited for the log, if the log has it or never will. Whether it did.
    pub(crate) fn finish_batch(&mut self, now: Now, out: &mut Outbox) -> bool {
        let Some((batch, is_synced)) = self.definitions.take_batch() else { return false };
        let is_over = !batch.is_empty();
        for Decided { origin, mut decision, is_logged } in batch {
            if let Decision::Change(change) = &decision {
                self.directory.release(change);
            }
            if is_logged && !is_synced {
                if let Origin::Migration { shard, queue } = origin {
                    self.home().tell_undecided(shard, queue, out);
                }
                decision = Decision::Answer(Err(stopped()));
            }
            self.carry_out(now, origin, decision, out);
        }
        is_over
    }

    pub(crate) fn carry_out(
        &mut self,
        now: Now,
        origin: Origin,
        decision: Decision,
        out: &mut Outbox,
    ) {
        let result = match decision {
            Decision::Answer(result) => result,
            Decision::Change(change) => {
                let id = change.queue_id();
                let aftermath = self.apply(now, &change, out);
                if let Change::UserPut { name, .. } = &change
                    && let Some(text) = self.directory.accounts().open_door(name)
                {
                    out.log(Severity::Warning, "open-door", text);
                }
                if self.shard.settings.shards > 1 {
                    out.changes.push(Arc::new(change));
                }
                if aftermath.goes_in_slices || !aftermath.exchanges_left.is_empty() {
                    // Answered when that is over.
                    return self.definitions.defer(origin, aftermath);
                }
                if matches!(origin, Origin::Home { .. }) {
                    return;
                }
                Ok(id)
            }
        };
        self.answer(now, origin, result, out);
    }

    /// Some of what was deleted goes. That it was deleted is in the log, so that a start completes it;
    /// the slices are not.
    pub(crate) fn work_on_deletions(&mut self, now: Now, out: &mut Outbox) {
        // What follows from a change may ask for another: that one waits for its turn.
        if !self.definitions.has_slices() || !self.definitions.begin() {
            return;
        }
        self.clear_some(now, out);
        self.definitions.end();
        self.advance(now, out);
    }

    /// As much as one slice may cost goes, on every shard: a part of what was deleted first, or all of
    /// several things that had little. Nothing while decisions wait for the log, which hold for the
    /// directory as it is.
    pub(crate) fn clear_some(&mut self, now: Now, out: &mut Outbox) {
        let mut budget = self.directory.slice_looks();
        while budget > 0
            && let Some(number) = self.definitions.next_slice()
        {
            let (change, before) = (Change::Cleared, self.directory.clearing());
            let aftermath = self.apply(now, &change, out);
            if self.shard.settings.shards > 1 {
                out.changes.push(Arc::new(change));
            }
            budget = budget.saturating_sub(aftermath.looks.max(1));
            let is_over = self.directory.clearing() < before;
            self.definitions.sliced(number, aftermath.exchanges_left, is_over);
            if is_over {
                self.deleted_in_part(now, number, out);
            }
        }
    }

    /// Whether somebody waits for a deletion that is not over.
    #[must_use]
    pub fn has_deletions(&self) -> bool {
        !self.homes.leaving.is_empty() || self.definitions.has_deletions()
    }

    /// One of the things that a deletion waits for is over.
    pub(crate) fn deleted_in_part(&mut self, now: Now, number: u64, out: &mut Outbox) {
        if let Some(origin) = self.definitions.one_less(number) {
            self.answer(now, origin, Ok(None), out);
        }
    }

    pub(crate) fn answer(
        &mut self,
        now: Now,
        origin: Origin,
        result: Result<Option<QueueId>, Refusal>,
        out: &mut Outbox,
    ) {
        let shard = match origin {
            Origin::Channel(channel) => channel.shard,
            Origin::Ending { shard, .. } | Origin::Migration { shard, .. } => shard,
            Origin::Start => return,
            // What could not be deleted stays: whoever deleted the rest cannot help it.
            Origin::Deletion(number) => return self.deleted_in_part(now, number, out),
            Origin::Home { shard, .. } => shard,
            Origin::Control(question) => {
                out.answers.push((question, Answer::Changed(result.map(|_| ()))));
                return;
            }
        };
        out.send(self.shard.id, shard, Mail::Answer { origin, result });
    }

    /// Applies a change of the directory to this shard.
    pub(crate) fn apply(&mut self, now: Now, change: &Change, out: &mut Outbox) -> Aftermath {
        // What died before the change is routed as it was then, or a queue that goes with the
        // consumer that rejected a message would take its dead-letter exchange along.
        for _ in 0..8 {
            if !self.home().route_dead_letters(now, out) {
                break;
            }
        }
        let applied = self.directory.apply(change);
        if let Change::UserLimited { name, .. } = change {
            self.connections.user_channels.note(name);
        }
        for id in applied.queues_created {
            if let Some(place) = self.directory.queue_place_by_id(id) {
                self.home().make_home(now, place as usize, out);
            }
        }
        for info in applied.queues_deleted {
            self.home().home_deleted(now, &info, applied.goes_in_slices, out);
            self.rest_over(now, info.id, out);
        }
        for id in applied.holdings_dropped {
            self.home().drop_holding(id);
        }
        if let Some((info, id)) = applied.queue_moved {
            self.queue_moved(now, &info, id, out);
        }
        if let Some(vhost) = applied.vhost_deleted {
            self.session().close_connections(
                now,
                |connection| connection.vhost == vhost,
                "vhost is deleted",
                out,
            );
        }
        if let Some(user) = applied.user_deleted {
            self.session().close_connections(
                now,
                |connection| *connection.user == *user,
                "user is deleted",
                out,
            );
        }
        let Applied { goes_in_slices, looks, exchanges_left, .. } = applied;
        Aftermath { goes_in_slices, looks, exchanges_left }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use lepus_base::ShardId;

    use super::*;
    use crate::directory::Directory;
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
        broker.request(NOW, 1, &put("of its own"), &mut out);
        assert!(out.events.is_empty());
        broker.request(NOW, 2, &put(password), &mut out);
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
