//! Transactions: begun, rolled back, and committed as a whole or in slices.

use crate::channel::Tx;
use crate::channel::settles::Settles;
use crate::channel::unacked::Unacked;
use crate::channel::{At, Pending};
use crate::connection::Connection;
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX, as_queues};
use crate::jobs::Commit;
use crate::jobs::{Job, Plan, Step, Whole};
use crate::journal::Need;
use crate::mail::Mail;
use crate::mail::{COMMIT_NUMBER, Receipt};
use crate::outbox::Outbox;
use crate::publish::Served;
use crate::refusal::Refusal;
use crate::refusal::RefusalKind;
use crate::session::Asked;
use crate::session::{Answer, Capability, Done};
use crate::sessions::SessionSide;
use alloc::boxed::Box;
use alloc::vec::Vec;
use lepus_base::Now;

/// Whether transactions are refused as a whole where one of their messages would not be taken.
fn is_strict(connection: &Connection) -> bool {
    connection.session.understands(Capability::WholeTransactions)
}

impl SessionSide<'_> {
    /// Nothing more of a commit is done.
    pub(crate) fn refuse_commit(
        &mut self,
        now: Now,
        commit: Commit,
        refusal: &Refusal,
        out: &mut Outbox,
    ) {
        let at = commit.at();
        self.undo(commit);
        self.fail_channel(now, at, refusal, Asked::Commit, out);
    }

    /// A channel ends: its commit does not happen unless it has begun. Then the end waits for it.
    pub(crate) fn give_commit_up(&mut self, at: At) {
        if let Some(commit) = self.shard.jobs.take_unbegun(at.channel) {
            self.undo(*commit);
        }
    }

    /// Nothing more of a commit will be done.
    pub(crate) fn undo(&mut self, commit: Commit) {
        let at = commit.at();
        let settles = self.shard.jobs.undo_commit(commit);
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays while its transaction commits")
        };
        channel.pending = None;
        channel.committing = None;
        // The channel ends, with what its transaction was to settle.
        self.give_settles_back(at, settles);
    }

    /// What a transaction was to settle is still to be settled.
    fn give_settles_back(&mut self, at: At, settles: Settles) {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays while its transaction commits")
        };
        let tx = channel.tx.get_or_insert_default();
        let bytes = settles.len() * size_of::<Unacked>();
        (tx.settles, tx.bytes) = (settles, tx.bytes + bytes);
        connection.tx_bytes += bytes;
    }

    /// All that a commit published is reported. What it was to settle is settled now, if that is left, and a strict one
    /// fails of which a queue elsewhere refused something. False if it is over.
    pub(crate) fn commit_settles(&mut self, now: Now, at: At, out: &mut Outbox) -> bool {
        let connection = &mut self.connections[at.slot];
        let is_strict = is_strict(connection);
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays while its transaction commits")
        };
        let receipt = channel.committing.as_ref().map(|all| all.receipt());
        let is_refused = is_strict && receipt == Some(Receipt::Refused);
        let has_more = channel.tx.as_ref().is_some_and(|tx| !tx.settles.is_empty());
        if !is_refused && !has_more {
            return false;
        }
        (channel.committing, channel.pending) = (None, None);
        if is_refused {
            let text = "a queue refused a message of the transaction";
            let refusal = Refusal::new(RefusalKind::PreconditionFailed, text);
            self.fail_channel(now, at, &refusal, Asked::Commit, out);
        } else if let Ok(tx) = self.take_tx(at) {
            self.begin_commit(now, at, tx, out);
        }
        true
    }

    /// All of a commit is done; it is answered when all reports are there.
    pub(crate) fn finish_commit(&mut self, now: Now, at: At, out: &mut Outbox) {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays while its transaction commits")
        };
        if channel.ending.is_some() {
            channel.pending = None;
            return self.go_on(now, at, out);
        }
        self.set_pending(at, Pending::Committed);
        let number = (COMMIT_NUMBER, COMMIT_NUMBER);
        self.publish_reported(at.channel, number, 1, Receipt::Taken);
    }

    /// Begins to commit what a channel's transaction held.
    pub(crate) fn begin_commit(&mut self, now: Now, at: At, tx: Tx, out: &mut Outbox) {
        self.set_pending(at, Pending::Commit);
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that commits is there")
        };
        let committing = channel.committing.insert(Box::default());
        committing.take_number();
        committing.open(COMMIT_NUMBER, 1, Receipt::Taken);
        let size_matters = self.journal.is_on() && tx.is_persistent;
        let is_strict = !tx.publishes.is_empty() && is_strict(&self.connections[at.slot]);
        let commit = self.shard.jobs.begin_commit(at, tx, size_matters, is_strict);
        let commit = Box::new(commit);
        if self.shard.effort.is_used_up() {
            // Others have begun to commit in this turn.
            return self.shard.jobs.push(Job::Commit(commit));
        }
        let mut budget = TARGETS_AT_ONCE_MAX;
        self.work_on_job(now, Job::Commit(commit), &mut budget, out);
        self.shard.effort.spend_on_queues(TARGETS_AT_ONCE_MAX - budget);
    }

    /// One slice of a commit.
    pub(crate) fn step_commit(
        &mut self,
        now: Now,
        mut commit: Box<Commit>,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        if self.homes.has_postponed_from(commit.channel()) {
            // What was published before must not be overtaken.
            return Step::Fans(commit);
        }
        if !commit.is_begun() {
            let plan = self.home().plan(&mut commit, budget);
            let has_turn = commit.take_turn();
            match plan {
                None => return Step::More(Job::Commit(commit)),
                Some(Plan::NeedsRoom(need)) => return Step::NeedsRoom(Job::Commit(commit), need),
                Some(Plan::Refused(refusal)) => {
                    self.refuse_commit(now, *commit, &refusal, out);
                    return Step::Done;
                }
                // Reading goes on with other channels, each of which may commit as much.
                Some(Plan::Whole(whole)) if whole.steps > TARGETS_AT_ONCE_MAX && !has_turn => {
                    return Step::More(Job::Commit(commit));
                }
                Some(Plan::Whole(whole)) => {
                    *budget = budget.saturating_sub(whole.steps);
                    let result = self.publish_whole(now, &mut commit, &whole, out);
                    if let Err(refusal) = result {
                        self.refuse_commit(now, *commit, &refusal, out);
                        return Step::Done;
                    }
                    self.settle_behind(now, &mut commit, &whole, out);
                }
                Some(Plan::Sliced) => commit.let_settles_wait(),
            }
            commit.begin();
        }
        while *budget > 0
            && let Some(held) = commit.next_publish()
        {
            let bytes = held.memory_bytes();
            self.shard.jobs.discount_publish(&mut commit, bytes);
            let before = self.shard.effort.used();
            let (served, queues) = self.publish_held(now, commit.at(), &held, false, out);
            let effort = as_queues(self.shard.effort.used() - before);
            *budget = budget.saturating_sub(1 + queues.max(effort) + bytes / MESSAGE_BYTES);
            match served {
                Served::Now => {}
                Served::Later => return Step::Fans(commit),
                Served::Never(_) | Served::NeverReleased(_) | Served::TooFar(_) => {
                    if let Err(refusal) = served.check(&held.exchange) {
                        self.refuse_commit(now, *commit, &refusal, out);
                    }
                    return Step::Done;
                }
            }
        }
        if !commit.has_publishes()
            && let Some(settles) = commit.take_waiting_settles()
        {
            self.give_settles_back(commit.at(), settles);
        }
        while *budget > 0
            && let Some((unacked, outcome)) = commit.next_settle()
        {
            *budget -= 1;
            self.settle_one(now, commit.at(), &unacked, outcome, out);
        }
        if !commit.is_done() {
            return Step::More(Job::Commit(commit));
        }
        self.finish_commit(now, commit.at(), out);
        Step::Done
    }

    /// Settles what a commit settles whose publishes were made as a whole: with them, in the same batch of the log, or
    /// later.
    fn settle_behind(&mut self, now: Now, commit: &mut Commit, whole: &Whole, out: &mut Outbox) {
        let at = commit.at();
        let channel = self.connections[at.slot].incarnation(at.channel.channel);
        let committing = channel.and_then(|channel| channel.committing.as_ref());
        let receipt = committing.map_or(Receipt::Unlogged, |all| all.receipt());
        let is_taken =
            receipt == Receipt::Taken || (receipt == Receipt::Refused && !commit.is_strict());
        let Some(log) = whole.settled_in.filter(|_| is_taken) else {
            let is_reported_later = whole.parts.iter().any(|&bytes| bytes > 0);
            if is_reported_later || commit.is_strict() {
                commit.let_settles_wait();
            }
            return;
        };
        let mut settled = Vec::new();
        self.journal.begin_held_settles(log);
        while let Some((unacked, outcome)) = commit.next_settle() {
            let Unacked { queue, queue_slot, slot, sequence, .. } = unacked;
            let delivery = (queue, queue_slot, slot, sequence);
            let home = self.home().settle_home(now, delivery, outcome, out);
            settled.push((unacked, outcome, home));
        }
        self.journal.end_held_settles(log);
        // Only now: what is delivered may be settled at once, for which no room is held.
        for (unacked, outcome, home) in settled {
            self.credit_back(now, at, &unacked, outcome, out);
            if let Some(home) = home {
                self.home().dispatch_ready(now, home, out);
            }
        }
    }

    /// Publishes all of a commit so that it is in one batch of each log.
    ///
    /// # Errors
    /// What a publish is refused for which chance sent another way than before, too long a one. It
    /// and those behind it are not published then.
    pub(crate) fn publish_whole(
        &mut self,
        now: Now,
        commit: &mut Commit,
        whole: &Whole,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let bytes = whole.parts[self.shard.id.index()];
        self.journal.hold(Need { logs: whole.logs, bytes });
        // The room in the log, and the batch, are for what has to be there.
        self.shard.is_committing = true;
        let shards = 0..out.mail.shards();
        let before: Vec<usize> = shards.map(|shard| out.mail[shard].items.len()).collect();
        let mut result = Ok(());
        while result.is_ok()
            && let Some(held) = commit.next_publish()
        {
            let (served, _) = self.publish_held(now, commit.at(), &held, true, out);
            assert!(
                matches!(served, Served::Now | Served::TooFar(_)),
                "there was room for all of it"
            );
            self.shard.jobs.discount_publish(commit, held.memory_bytes());
            result = served.check(&held.exchange);
        }
        self.shard.is_committing = false;
        for (shard, (&before, &bytes)) in before.iter().zip(&whole.parts).enumerate() {
            let items = out.mail[shard].items.len() - before;
            if items > 0 && bytes > 0 {
                out.mail[shard].items.insert(before, Mail::Commit { bytes, items });
            }
        }
        result
    }

    pub(crate) fn tx_select(&mut self, at: At, out: &mut Outbox) -> Result<(), Refusal> {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        if channel.confirms.is_some() {
            let text = "cannot switch from confirm to tx mode";
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        channel.tx.get_or_insert_default();
        self.say(at, &Answer::Done(Done::TxSelected), out);
        Ok(())
    }

    pub(crate) fn take_tx(&mut self, at: At) -> Result<Tx, Refusal> {
        let connection = &mut self.connections[at.slot];
        let taken = connection
            .incarnation(at.channel.channel)
            .and_then(|channel| channel.tx.as_mut())
            .map(|tx| core::mem::take(&mut **tx));
        let bytes = taken.as_ref().map_or(0, |tx| tx.bytes);
        connection.tx_bytes = connection.tx_bytes.saturating_sub(bytes);
        taken.ok_or_else(|| {
            let text = "channel is not transactional";
            Refusal::new(RefusalKind::PreconditionFailed, text)
        })
    }

    pub(crate) fn tx_rollback(
        &mut self,
        now: Now,
        at: At,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let tx = self.take_tx(at)?;
        let held = self.shard.jobs.discard_tx(tx);
        self.put_back(now, at, held, out);
        Ok(())
    }

    pub(crate) fn tx_commit(&mut self, now: Now, at: At, out: &mut Outbox) -> Result<(), Refusal> {
        let tx = self.take_tx(at)?;
        self.begin_commit(now, at, tx, out);
        Ok(())
    }
}
