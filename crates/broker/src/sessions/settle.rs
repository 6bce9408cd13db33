//! How deliveries end: ack, nack, reject, recover, and requeueing of many in slices; and how the end that a
//! transaction meant for them does not come.

use crate::channel::settles::{Falling, Settles};
use crate::channel::unacked::Unacked;
use crate::channel::{AfterRequeue, At, Pending};
use crate::mail::{Command, Mail};
use crate::outbox::Outbox;
use crate::queue::Outcome;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Answer, Capability, Done};
use crate::sessions::SessionSide;
use crate::settle::{Rests, Settling, What};
use alloc::boxed::Box;
use alloc::format;
use lepus_base::{Now, QueueId, ShardId};

/// Deliveries settled in one go before other work gets its turn.
pub(crate) const SETTLE_AT_ONCE_MAX: usize = 1024;

impl SessionSide<'_> {
    /// `basic.ack`, `basic.nack`, `basic.reject`.
    pub(crate) fn settle(
        &mut self,
        now: Now,
        at: At,
        tag: u64,
        multiple: bool,
        outcome: Outcome,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let settled = self.settle_tags(now, at, tag, multiple, outcome, out);
        if let Some(connection) = self.connections.get_mut(at.slot)
            && let Some(channel) = connection.incarnation(at.channel.channel)
            && channel.unacked.take_resized()
        {
            connection.account_channel(at.channel.channel);
        }
        settled
    }

    pub(crate) fn settle_tags(
        &mut self,
        now: Now,
        at: At,
        tag: u64,
        multiple: bool,
        outcome: Outcome,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that settles is there")
        };
        let unknown = || {
            let text = format!("unknown delivery tag {tag}");
            Refusal::new(RefusalKind::PreconditionFailed, text)
        };
        if !multiple {
            let unacked = channel.unacked.take(tag).ok_or_else(unknown)?;
            if let Some(tx) = &mut channel.tx {
                tx.settle(unacked, outcome);
                connection.tx_bytes += size_of::<Unacked>();
                return Ok(());
            }
            self.settle_one(now, at, &unacked, outcome, out);
            return Ok(());
        }
        let up_to = if tag == 0 {
            channel.last_tag
        } else if !channel.unacked.contains(tag) {
            return Err(unknown());
        } else {
            tag
        };
        let what = match outcome {
            _ if channel.tx.is_some() => What::Hold(outcome),
            Outcome::Requeue => What::Requeue(Rests::default()),
            _ => What::Settle(outcome),
        };
        let job = Settling::new(at, up_to, what);
        self.begin_settling(now, job, AfterRequeue::Silence, &mut { SETTLE_AT_ONCE_MAX }, out);
        Ok(())
    }

    /// Begins to settle: few at once, the rest in later cycles. The channel's next methods wait.
    pub(crate) fn begin_settling(
        &mut self,
        now: Now,
        mut job: Settling,
        then: AfterRequeue,
        budget: &mut usize,
        out: &mut Outbox,
    ) {
        // What comes back is said to be there by a barrier at least, or by an answer.
        let is_awaited = job.is_awaited();
        if is_awaited {
            self.set_pending(job.at(), Pending::Requeue { waiting: 1, then });
        }
        // Others are to have their turns, however many channels begin in this one.
        if self.shard.effort.is_used_up() {
            *budget = 0;
        }
        if self.settle_slice(now, &mut job, budget, out) {
            if is_awaited {
                self.passed_barrier(now, job.at().slot, job.at().channel, out);
            }
            return;
        }
        if !is_awaited {
            self.set_pending(job.at(), Pending::Requeue { waiting: 1, then });
        }
        self.sessions.settlings.push_back(job);
    }

    /// Slices of settling, of one channel after the other.
    pub(crate) fn work_on_settlings(&mut self, now: Now, out: &mut Outbox) {
        let mut budget = SETTLE_AT_ONCE_MAX;
        for _ in 0..self.sessions.settlings.len() {
            if budget == 0 {
                break;
            }
            let Some(mut job) = self.sessions.settlings.pop_front() else { break };
            if self.settle_slice(now, &mut job, &mut budget, out) {
                self.passed_barrier(now, job.at().slot, job.at().channel, out);
            } else {
                self.sessions.settlings.push_back(job);
            }
        }
    }

    /// A slice of settling. Whether all is settled.
    pub(crate) fn settle_slice(
        &mut self,
        now: Now,
        job: &mut Settling,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> bool {
        let mut is_done = false;
        let before = *budget;
        let at = job.at();
        if let What::PutBack(left) = job.what() {
            is_done = self.put_back_slice(at, left, budget);
        }
        while *budget > 0 && !is_done {
            *budget -= 1;
            is_done = match self.take_next(job) {
                Some(unacked) => {
                    self.settle_next(now, job, &unacked, out);
                    false
                }
                None => self.end_hold(now, job, out),
            };
        }
        self.shard.effort.spend_on_queues(before - *budget);
        job.account_memory(is_done, &mut self.shard.job_bytes);
        if let Some(connection) = self.connections.connection_at(at.slot, at.channel.connection)
            && let Some(channel) = connection.incarnation(at.channel.channel)
            && channel.unacked.take_resized()
        {
            connection.account_channel(at.channel.channel);
            self.connections.recount(self.shard, at.slot);
        }
        is_done
    }

    /// A slice of what is unacknowledged again. Whether all is.
    pub(crate) fn put_back_slice(
        &mut self,
        at: At,
        left: &mut Falling,
        budget: &mut usize,
    ) -> bool {
        let Some(connection) = self.connections.connection_at(at.slot, at.channel.connection)
        else {
            return race!("the connection closed before its transaction was rolled back", true);
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed before its transaction was rolled back", true);
        };
        left.put_back(&mut channel.unacked, budget)
    }

    /// The delivery that is to be settled next.
    #[inline]
    pub(crate) fn take_next(&mut self, job: &mut Settling) -> Option<Unacked> {
        if let Some(unacked) = job.next_held() {
            return Some(unacked);
        }
        let at = job.at();
        let connection = self.connections.connection_at(at.slot, at.channel.connection)?;
        let channel = connection.incarnation(at.channel.channel)?;
        channel.unacked.take_up_to(job.up_to())
    }

    pub(crate) fn settle_next(
        &mut self,
        now: Now,
        job: &mut Settling,
        unacked: &Unacked,
        out: &mut Outbox,
    ) {
        let at = job.at();
        match job.what() {
            What::Settle(outcome) => self.settle_one(now, at, unacked, *outcome, out),
            What::Hold(outcome) => {
                let connection = &mut self.connections[at.slot];
                let channel = connection.incarnation(at.channel.channel);
                let Some(tx) = channel.and_then(|channel| channel.tx.as_mut()) else {
                    invariant!("a transaction stays while it takes what it is to settle")
                };
                tx.settle(*unacked, *outcome);
                connection.tx_bytes += size_of::<Unacked>();
            }
            What::Requeue(holds) => {
                let (home, queue) = (unacked.home, unacked.queue);
                // No newer message of the queue is delivered before the last one is back.
                if holds.meet(home, queue) {
                    if home != self.shard.id && holds.is_new_home(home) {
                        self.await_barrier(at);
                    }
                    self.hold(now, queue, home, true, out);
                }
                // What a client of whole transactions gives back it was going to pass on: no attempt failed.
                let connection = &self.connections[at.slot];
                let outcome = match connection.session.understands(Capability::WholeTransactions) {
                    true => Outcome::Return,
                    false => Outcome::Requeue,
                };
                self.settle_one(now, at, unacked, outcome, out);
            }
            What::PutBack(_) => invariant!("what is put back is not settled"),
        }
    }

    /// One more shard is to say that all is back.
    pub(crate) fn await_barrier(&mut self, at: At) {
        let connection = &mut self.connections[at.slot];
        let channel = connection.incarnation(at.channel.channel);
        let pending = channel.and_then(|channel| channel.pending.as_deref_mut());
        let Some(Pending::Requeue { waiting, .. }) = pending else {
            invariant!("a channel waits until all that it requeues is back");
        };
        *waiting += 1;
    }

    /// All is back: lets the next of the queues go on that rested. Whether none is left.
    pub(crate) fn end_hold(&mut self, now: Now, job: &mut Settling, out: &mut Outbox) -> bool {
        let from = job.at().channel;
        let What::Requeue(holds) = job.what() else { return true };
        let Some((home, queue, is_last)) = holds.next() else { return true };
        self.hold(now, queue, home, false, out);
        if is_last && home != self.shard.id {
            let mail = Mail::Command { from, queue, command: Command::Barrier };
            out.mail[home.index()].items.push(mail);
        }
        false
    }

    /// Settles one delivery at its queue and gives credit back.
    pub(crate) fn settle_one(
        &mut self,
        now: Now,
        at: At,
        unacked: &Unacked,
        outcome: Outcome,
        out: &mut Outbox,
    ) {
        let Unacked { queue, queue_slot, slot, sequence, home, .. } = *unacked;
        if home != self.shard.id {
            let mail = Mail::Settle { queue, slot, sequence, outcome };
            out.mail[home.index()].items.push(mail);
            return self.credit_back(now, at, unacked, outcome, out);
        }
        let delivery = (queue, queue_slot, slot, sequence);
        let home = self.home().settle_home(now, delivery, outcome, out);
        // Others that wait for credit come before the queue that made room for it delivers again.
        self.credit_back(now, at, unacked, outcome, out);
        if let Some(home) = home {
            self.home().dispatch_ready(now, home, out);
        }
    }

    /// Puts all that a channel has back into its queues, in slices when it is much, that of a
    /// transaction first, if it was given up with the channel.
    pub(crate) fn requeue(
        &mut self,
        now: Now,
        at: At,
        held: Settles,
        then: AfterRequeue,
        budget: &mut usize,
        out: &mut Outbox,
    ) {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays until all that it has is back")
        };
        let up_to = channel.last_tag;
        let job = Settling::new(at, up_to, What::Requeue(Rests::default())).behind(held);
        self.begin_settling(now, job, then, budget, out);
    }

    /// What a transaction was to settle is unacknowledged again, in slices when it is much:
    /// `tx.rollback-ok` follows.
    pub(crate) fn put_back(&mut self, now: Now, at: At, held: Settles, out: &mut Outbox) {
        if held.is_empty() {
            return self.say(at, &Answer::Done(Done::RolledBack), out);
        }
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        channel.unacked.reserve(held.len());
        let job = Settling::new(at, 0, What::PutBack(Box::new(Falling::new(held))));
        self.begin_settling(now, job, AfterRequeue::RolledBack, &mut { SETTLE_AT_ONCE_MAX }, out);
    }

    pub(crate) fn hold(
        &mut self,
        now: Now,
        queue: QueueId,
        home: ShardId,
        on: bool,
        out: &mut Outbox,
    ) {
        if home == self.shard.id {
            self.home().hold_home(now, queue, on, out);
        } else {
            out.mail[home.index()].items.push(Mail::Hold { queue, on });
        }
    }

    pub(crate) fn recover(
        &mut self,
        now: Now,
        at: At,
        requeue: bool,
        answers: bool,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if !requeue {
            return Err(Refusal::new(RefusalKind::NotImplemented, "requeue=false"));
        }
        if answers {
            // What comes back may be delivered again at once: the answer stands before that.
            self.say(at, &Answer::Done(Done::Recovered), out);
        }
        let (held, budget) = (Settles::default(), &mut { SETTLE_AT_ONCE_MAX });
        self.requeue(now, at, held, AfterRequeue::Silence, budget, out);
        Ok(())
    }

    /// The last that an ending channel leaves: all that it has unacknowledged, what its transaction
    /// was to settle included.
    pub(crate) fn requeue_all(&mut self, now: Now, at: At, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            invariant!("a connection stays until its channel's deliveries are back")
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays until all that it has is back")
        };
        let mut held = Settles::default();
        if let Some(tx) = channel.tx.take() {
            connection.tx_bytes = connection.tx_bytes.saturating_sub(tx.bytes);
            held = self.shard.jobs.discard_tx(*tx);
        }
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel stays until all that it has is back")
        };
        if channel.unacked.is_empty() && held.is_empty() {
            return self.finish_end(now, at, out);
        }
        self.with_end_steps(|side, steps| {
            side.requeue(now, at, held, AfterRequeue::End, steps, out);
        });
    }
}
