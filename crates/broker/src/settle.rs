//! How deliveries end: ack, nack, reject, recover, and requeueing of many in slices.

mod row;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::basic;
use lepus_base::{Now, QueueId, ShardId};

use crate::broker::Broker;
use crate::channel::unacked::{NO_CONSUMER, Unacked};
use crate::channel::{AfterRequeue, At, Pending};
use crate::mail::{ChannelRef, Command, Mail};
use crate::outbox::Outbox;
use crate::queue::Outcome;
use crate::refusal::Refusal;

/// Deliveries settled in one go before other work gets its turn.
const SETTLE_AT_ONCE_MAX: usize = 1024;

/// Deliveries of a channel that are settled in slices.
#[derive(Debug)]
pub(crate) struct Requeue {
    at: At,
    list: VecDeque<Unacked>,
    outcome: Outcome,
    /// Queues that rest meanwhile.
    held: Vec<(QueueId, ShardId)>,
}

impl Requeue {
    /// Allocated bytes of its lists, which stay until it is done.
    fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Unacked>()
            + self.held.capacity() * size_of::<(QueueId, ShardId)>()
    }
}

impl Broker {
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
        if let Some(connection) = self.edge.connections.get_mut(at.slot as usize)
            && let Some(channel) = connection.incarnation(at.channel.channel)
            && channel.unacked.take_resized()
        {
            connection.weigh_channel(at.channel.channel);
        }
        settled
    }

    fn settle_tags(
        &mut self,
        now: Now,
        at: At,
        tag: u64,
        multiple: bool,
        outcome: Outcome,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let connection = &mut self.edge.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return Ok(()) };
        let unknown = || {
            let text = format!("unknown delivery tag {tag}");
            Refusal::new(ReplyCode::PRECONDITION_FAILED, text)
        };
        if !multiple {
            let unacked = channel.unacked.take(tag).ok_or_else(unknown)?;
            if let Some(tx) = &mut channel.tx {
                tx.settles.push((unacked, outcome));
                tx.bytes += size_of::<Unacked>();
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
        if outcome == Outcome::Requeue && channel.tx.is_none() {
            let mut list = VecDeque::new();
            while let Some(unacked) = channel.unacked.take_up_to(up_to) {
                list.push_back(unacked);
            }
            self.requeue(now, at, list, AfterRequeue::Silence, out);
            return Ok(());
        }
        let mut settled = 0;
        loop {
            let connection = &mut self.edge.connections[at.slot as usize];
            let Some(channel) = connection.incarnation(at.channel.channel) else { break };
            if settled == SETTLE_AT_ONCE_MAX && channel.tx.is_none() {
                self.settle_rest(at, up_to, outcome);
                break;
            }
            settled += 1;
            let Some(unacked) = channel.unacked.take_up_to(up_to) else { break };
            if let Some(tx) = &mut channel.tx {
                tx.settles.push((unacked, outcome));
                tx.bytes += size_of::<Unacked>();
                connection.tx_bytes += size_of::<Unacked>();
                continue;
            }
            self.settle_one(now, at, &unacked, outcome, out);
        }
        Ok(())
    }

    /// Leaves what is to be settled up to a tag to later cycles; the channel's next methods wait.
    fn settle_rest(&mut self, at: At, up_to: u64, outcome: Outcome) {
        let connection = &mut self.edge.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        let mut list = VecDeque::new();
        while let Some(unacked) = channel.unacked.take_up_to(up_to) {
            list.push_back(unacked);
        }
        if !list.is_empty() {
            self.set_pending(at, Pending::Requeue { waiting: 1, then: AfterRequeue::Silence });
            self.add_requeue(Requeue { at, list, outcome, held: Vec::new() });
        }
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
        if outcome == Outcome::Ack {
            self.edge.counters.acknowledged += 1;
        }
        if unacked.home == self.edge.shard {
            let home = self.settle_home(
                now,
                unacked.queue,
                unacked.queue_slot,
                unacked.slot,
                unacked.sequence,
                outcome,
                out,
            );
            self.credit_back(now, at, unacked, out);
            if let Some(home) = home {
                self.pump(now, home, out);
            }
            return;
        }
        out.mail[unacked.home.index()].items.push(Mail::Settle {
            queue: unacked.queue,
            slot: unacked.slot,
            sequence: unacked.sequence,
            outcome,
        });
        self.credit_back(now, at, unacked, out);
    }

    /// A settled delivery makes room under the channel's limits.
    fn credit_back(&mut self, now: Now, at: At, unacked: &Unacked, out: &mut Outbox) {
        let limit = self.edge.limits.unacked_per_channel_max as usize;
        let Some(connection) = self.edge.connections.get_mut(at.slot as usize) else { return };
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        let was_full = channel.unacked.len() + 1 == limit;
        if let Some(global) = &mut channel.global {
            let is_consumed = unacked.consumer != NO_CONSUMER;
            global.in_flight = global.in_flight.saturating_sub(u32::from(is_consumed));
            // Who found the channel full waits there, too, whatever filled it.
            if (is_consumed || was_full) && !global.waiting.is_empty() {
                self.grant_credit(now, at.slot, at.channel, out);
            }
        } else if was_full && !connection.stalled.is_empty() {
            self.edge.roomy.push(at.slot);
        }
    }

    /// So many deliveries were taken off the channel at once: who found it full may go on.
    fn release_full(&mut self, now: Now, at: At, taken: usize, out: &mut Outbox) {
        let limit = self.edge.limits.unacked_per_channel_max as usize;
        let Some(connection) = self.edge.connections.get_mut(at.slot as usize) else { return };
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        if channel.unacked.len() + taken < limit {
            return;
        }
        if channel.global.as_ref().is_some_and(|global| !global.waiting.is_empty()) {
            self.grant_credit(now, at.slot, at.channel, out);
        } else if !connection.stalled.is_empty() {
            self.edge.roomy.push(at.slot);
        }
    }

    /// Lets consumers that wait for the channel's global prefetch go on.
    pub(crate) fn grant_credit(&mut self, now: Now, slot: u32, to: ChannelRef, out: &mut Outbox) {
        // Each consumer in the list gets at most one turn per call: a fair round.
        let own = self.edge.shard;
        let turns = self
            .edge
            .connection_at(slot, to.connection)
            .and_then(|connection| connection.incarnation(to.channel)?.global.as_ref())
            .map_or(0, |global| global.waiting.len());
        for _ in 0..turns {
            let Some(connection) = self.edge.connection_at(slot, to.connection) else { return };
            let Some(global) = connection.incarnation(to.channel).and_then(|c| c.global.as_mut())
            else {
                return;
            };
            if !global.has_room() {
                return;
            }
            let Some((key, queue, home)) = global.waiting.pop_front() else { return };
            if home == own {
                self.resume_consumer(now, queue, u32::MAX, key, out);
            } else {
                global.granted += 1;
                let mail = Mail::GrantCredit { to: key, queue };
                out.mail[home.index()].items.push(mail);
            }
        }
    }

    /// Puts deliveries back into their queues, in slices when they are many.
    pub(crate) fn requeue(
        &mut self,
        now: Now,
        at: At,
        list: VecDeque<Unacked>,
        then: AfterRequeue,
        out: &mut Outbox,
    ) {
        let own = self.edge.shard;
        let mut held: Vec<(QueueId, ShardId)> = Vec::new();
        for unacked in &list {
            if !held.iter().rev().take(16).any(|(queue, _)| *queue == unacked.queue) {
                held.push((unacked.queue, unacked.home));
            }
        }
        held.sort_unstable();
        held.dedup();
        for &(queue, home) in &held {
            self.hold(now, queue, home, true, out);
        }
        self.release_full(now, at, list.len(), out);
        let mut homes: Vec<ShardId> = held.iter().map(|(_, home)| *home).collect();
        homes.retain(|home| *home != own);
        homes.sort_unstable();
        homes.dedup();
        // One barrier for the requeueing itself and one for each other shard.
        let waiting = 1 + homes.len() as u32;
        self.set_pending(at, Pending::Requeue { waiting, then });
        self.add_requeue(Requeue { at, list, outcome: Outcome::Requeue, held });
        self.work_on_requeues(now, out);
    }

    fn add_requeue(&mut self, job: Requeue) {
        self.edge.job_bytes += job.memory_bytes();
        self.requeues.push_back(job);
    }

    /// One slice of settling. True when more is left.
    pub(crate) fn work_on_requeues(&mut self, now: Now, out: &mut Outbox) -> bool {
        let Some(mut job) = self.requeues.pop_front() else { return false };
        for _ in 0..SETTLE_AT_ONCE_MAX {
            let Some(unacked) = job.list.pop_front() else { break };
            self.settle_one(now, job.at, &unacked, job.outcome, out);
        }
        if !job.list.is_empty() {
            self.requeues.push_back(job);
            return true;
        }
        self.edge.job_bytes -= job.memory_bytes();
        let own = self.edge.shard;
        let mut last: Option<ShardId> = None;
        job.held.sort_unstable_by_key(|&(queue, home)| (home, queue));
        for (place, &(queue, home)) in job.held.iter().enumerate() {
            self.hold(now, queue, home, false, out);
            let ends = job.held.get(place + 1).is_none_or(|&(_, next)| next != home);
            if home != own && ends && last != Some(home) {
                last = Some(home);
                let mail = Mail::Command { from: job.at.channel, queue, command: Command::Barrier };
                out.mail[home.index()].items.push(mail);
            }
        }
        self.passed_barrier(now, job.at.slot, job.at.channel, out);
        !self.requeues.is_empty()
    }

    fn hold(&mut self, now: Now, queue: QueueId, home: ShardId, on: bool, out: &mut Outbox) {
        if home == self.edge.shard {
            self.hold_home(now, queue, on, out);
        } else {
            out.mail[home.index()].items.push(Mail::Hold { queue, on });
        }
    }

    /// Lets a queue of this shard rest or go on.
    pub(crate) fn hold_home(&mut self, now: Now, queue: QueueId, on: bool, out: &mut Outbox) {
        let Some(slot) = self.home_slot(queue, u32::MAX) else { return };
        let state = &mut self.homes[slot as usize].queue;
        if on {
            state.hold();
        } else {
            state.unhold();
            self.pump(now, slot, out);
        }
    }

    pub(crate) fn basic_recover(
        &mut self,
        now: Now,
        at: At,
        requeue: bool,
        answers: bool,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if !requeue {
            return Err(Refusal::new(ReplyCode::NOT_IMPLEMENTED, "requeue=false"));
        }
        let list = self.take_unacked(at);
        if answers {
            // What comes back may be delivered again at once: the answer stands before that.
            self.send_method(at, &basic::RecoverOk {}.into(), out);
        }
        self.requeue(now, at, list, AfterRequeue::Silence, out);
        Ok(())
    }

    /// Takes everything unacknowledged off a channel, what a transaction holds included.
    pub(crate) fn take_unacked(&mut self, at: At) -> VecDeque<Unacked> {
        let mut list = VecDeque::new();
        let Some(connection) = self.edge.connections.get_mut(at.slot as usize) else {
            return list;
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else { return list };
        if channel.ending.is_some()
            && let Some(tx) = channel.tx.take()
        {
            connection.tx_bytes = connection.tx_bytes.saturating_sub(tx.bytes);
            let taken = self.discard_tx(*tx);
            let connection = &mut self.edge.connections[at.slot as usize];
            let Some(channel) = connection.incarnation(at.channel.channel) else { return list };
            channel.unacked.put_back(taken);
        }
        let connection = &mut self.edge.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return list };
        while let Some(unacked) = channel.unacked.take_oldest() {
            list.push_back(unacked);
        }
        connection.weigh_channel(at.channel.channel);
        list
    }
}
