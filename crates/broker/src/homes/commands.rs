//! What a queue is asked by channels near and far; its deliveries and its timer.

use crate::delivery::QueuePort;
use crate::home::Home;
use crate::homes::HomeSide;
use crate::mail::{ChannelRef, Command, Mail, Reply};
use crate::message::MessageView;
use crate::migration::ParkedItem;
use crate::outbox::Outbox;
use crate::queue::{Get, Got, NO_SLOT, NoSink, Outcome, Queue, command};
use crate::refusal::{Refusal, RefusalKind};
use crate::working::WORK_BUDGET;
use alloc::format;
use lepus_base::{Instant, Now, QueueId};

/// Deliveries made in one go before other work gets its turn.
pub(crate) const DISPATCH_BUDGET: usize = 256;
/// The same of a queue whose filters have a share of the shard's time already.
const LISTED_BUDGET: usize = 64;

impl HomeSide<'_> {
    /// The log that has, or is to have, what a queue of this shard gets; `None` if the queue is gone.
    pub(crate) fn log_of(&self, queue: QueueId) -> Option<u16> {
        match self.homes.slot_of(queue, u32::MAX) {
            Some(slot) => Some(self.homes.queues[slot as usize].log),
            // One that is yet to come gets its messages in the shard's own log.
            None => self.directory.queue_by_id(queue).map(|_| 0),
        }
    }

    /// Runs `work` on a queue together with the rest of the shard.
    pub(crate) fn with_queue<R>(
        &mut self,
        now: Now,
        slot: u32,
        out: &mut Outbox,
        work: impl FnOnce(&mut Queue, &mut QueuePort<'_>) -> R,
    ) -> R {
        let (queue, mut sink) = self.queue_and_sink(now, slot, out);
        work(queue, &mut sink)
    }

    /// A queue and the rest of the shard as it sees it.
    pub(crate) fn queue_and_sink<'a>(
        &'a mut self,
        now: Now,
        slot: u32,
        out: &'a mut Outbox,
    ) -> (&'a mut Queue, QueuePort<'a>) {
        let home = &mut self.homes.queues[slot as usize];
        home.note(slot, self.shard);
        let sink = QueuePort {
            shard: self.shard,
            connections: self.connections,
            remote: &mut self.homes.remote,
            dead_letters: &mut self.homes.dead_letters,
            out,
            now,
            queue: home.id,
            queue_slot: slot,
            journal: self.journal,
            log: home.log,
        };
        (&mut home.queue, sink)
    }

    /// After a queue changed: delivers what can be delivered and arms its timer.
    pub(crate) fn dispatch_ready(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(home) = self.homes.queues.get_mut(slot as usize) else {
            return race!("the queue left before it delivered");
        };
        home.note(slot, self.shard);
        if home.awaits_deletion() {
            return;
        }
        let wants = home.queue.wants_dispatch();
        let has_filters = wants && home.queue.has_filters();
        // Filters may take long for few bytes: once a turn has had its share, they go on by the work that is listed.
        let must_wait = has_filters && self.shard.effort.is_used_up();
        let mut more = must_wait;
        if wants && !must_wait {
            let mut sink = QueuePort {
                shard: self.shard,
                connections: self.connections,
                remote: &mut self.homes.remote,
                dead_letters: &mut self.homes.dead_letters,
                out,
                now,
                queue: home.id,
                queue_slot: slot,
                journal: self.journal,
                log: home.log,
            };
            let before = home.queue.ready_bytes();
            // Filters that go through a backlog get on by the work that is listed, too.
            let budget =
                if has_filters && home.is_listed() { LISTED_BUDGET } else { DISPATCH_BUDGET };
            let dispatched = home.queue.apply(now, command::Dispatch { budget }, &mut sink);
            more = dispatched.more;
            let sent = before.saturating_sub(home.queue.ready_bytes());
            let effort = &mut self.shard.effort;
            effort.spend_on_bytes(usize::try_from(sent).unwrap_or(usize::MAX));
            if has_filters {
                // The last message may have taken more than was left.
                effort.spend_on_looks(dispatched.used.max(self.shard.selecting.take_looks()));
            }
        }
        if !home.is_listed() && (more || home.queue.has_work(now)) {
            home.list(slot, &mut self.homes.working);
        }
        home.arm(slot, &mut self.shard.timers);
    }

    /// Puts a queue on the list of those with work left.
    pub(crate) fn list_work(&mut self, slot: u32) {
        let home = &mut self.homes.queues[slot as usize];
        home.list(slot, &mut self.homes.working);
    }

    /// One slice of the work that queues have left.
    pub(crate) fn work_on_queues(&mut self, now: Now, out: &mut Outbox) {
        if let Some((slot, id)) = self.homes.working.next()
            && self.homes.queues.get(slot as usize).is_some_and(|home| home.id == id)
        {
            self.homes.queues[slot as usize].unlist();
            if !self.homes.queues[slot as usize].awaits_deletion() {
                let home = &mut self.homes.queues[slot as usize];
                let looks = match home.queue.has_filters() {
                    true => {
                        let is_serving = self.shard.effort.has_served();
                        self.homes.working.looks(now.instant, is_serving, &mut home.filters_owe)
                    }
                    false => WORK_BUDGET,
                };
                let more = self.with_queue(now, slot, out, |queue, sink| {
                    queue.apply(now, command::Work { budget: WORK_BUDGET, looks }, sink)
                });
                let home = &mut self.homes.queues[slot as usize];
                let used = self.shard.selecting.take_looks();
                home.filters_owe.looked(looks, used);
                if !home.queue.is_over_limit() {
                    self.homes.policies.trimmed(id);
                }
                if more {
                    home.list(slot, &mut self.homes.working);
                } else {
                    self.dispatch_ready(now, slot, out);
                }
            }
        }
        if let Some((mut queue, counted)) = self.homes.working.next_deleted() {
            let mut sink = QueuePort {
                shard: self.shard,
                connections: self.connections,
                remote: &mut self.homes.remote,
                dead_letters: &mut self.homes.dead_letters,
                out,
                now,
                queue: QueueId::default(),
                queue_slot: u32::MAX,
                journal: self.journal,
                log: u16::MAX,
            };
            let released = command::Work { budget: WORK_BUDGET, looks: 0 };
            if queue.apply(now, released, &mut sink) {
                self.homes.working.delete(queue, counted);
            } else {
                self.shard.queue_bytes -= counted;
            }
        }
    }

    /// A queue's timer, armed for `at`, has fired. If it is for nothing it is not armed again: there
    /// would be one more with each deadline that comes before the last.
    pub(crate) fn queue_timeout(
        &mut self,
        now: Now,
        at: Instant,
        (slot, id): (u32, QueueId),
        out: &mut Outbox,
    ) {
        let is_it = |home: &&mut Home| home.id == id && home.is_armed_for(at);
        let Some(home) = self.homes.queues.get_mut(slot as usize).filter(is_it) else {
            return race!("the timer is of a queue that left, or of an earlier deadline");
        };
        home.disarm();
        if self.homes.migrations.leaves(id) {
            // Its time comes again where it will be.
            return;
        }
        let home = &mut self.homes.queues[slot as usize];
        if !home.awaits_deletion() {
            let was_refused = home.end_pause();
            let is_due = was_refused && home.queue.auto_delete_due();
            if is_due || home.queue.is_lease_over(now) {
                self.delete_home(slot, None, out);
                return;
            }
        }
        home.list(slot, &mut self.homes.working);
        home.arm_later(now, slot, &mut self.shard.timers);
    }

    /// A question from a channel to a queue whose home is here. The home whose queue is to deliver what it may, once
    /// the answer is given.
    pub(crate) fn command(
        &mut self,
        now: Now,
        from: ChannelRef,
        queue: QueueId,
        command: Command,
        out: &mut Outbox,
    ) -> Option<u32> {
        if let Command::Barrier = command {
            self.shard.reply(from, queue, Reply::Passed, out);
            return None;
        }
        let Some(slot) = self.homes.slot_of(queue, u32::MAX) else {
            return self.forward_command(now, from, queue, command, out);
        };
        if self.homes.queues[slot as usize].awaits_deletion() {
            if let Command::Cancel(key, handle) = command {
                // Until the directory has decided it could be sent messages, and send them back.
                return self.cancel(now, from, slot, key, handle, out);
            }
            self.homes.queues[slot as usize].await_end(from);
            return None;
        }
        match command {
            Command::Count => {
                let queue_state = &mut self.homes.queues[slot as usize].queue;
                queue_state.apply(now, command::Touch {}, &mut NoSink);
                let reply = Reply::Counted {
                    ready: queue_state.ready(),
                    consumers: queue_state.consumer_count(),
                };
                self.shard.reply(from, queue, reply, out);
                None
            }
            Command::Subscribe { consumer, governed } => {
                self.subscribe(now, from, slot, *consumer, governed, out)
            }
            Command::Cancel(key, handle) => self.cancel(now, from, slot, key, handle, out),
            Command::Get { no_ack } => {
                self.get(now, from, slot, no_ack, out);
                Some(slot)
            }
            Command::Purge => {
                let count = self.with_queue(now, slot, out, |queue, sink| {
                    queue.apply(now, command::Purge {}, sink)
                });
                self.shard.reply(from, queue, Reply::Purged(count), out);
                Some(slot)
            }
            Command::Delete { if_unused, if_empty } => {
                let state = &self.homes.queues[slot as usize].queue;
                let refusal = if if_unused && !state.is_unused() {
                    Some("in use")
                } else if if_empty && state.ready() > 0 {
                    Some("not empty")
                } else {
                    None
                };
                if let Some(why) = refusal {
                    let text = format!("{} {why}", self.directory.describe_queue(queue));
                    let refusal = Refusal::new(RefusalKind::PreconditionFailed, text);
                    self.shard.reply(from, queue, Reply::Refused(refusal), out);
                    return None;
                }
                let ready = state.ready();
                self.delete_home(slot, Some((from, Reply::Deleted(ready))), out);
                None
            }
            Command::Barrier => None,
        }
    }

    /// A question to a queue that is not here: it moved, or it is gone.
    pub(crate) fn forward_command(
        &mut self,
        now: Now,
        from: ChannelRef,
        old: QueueId,
        command: Command,
        out: &mut Outbox,
    ) -> Option<u32> {
        let queue = self.directory.id_now(old);
        let home = self.directory.queue_by_id(queue).map(|info| info.home);
        match home {
            Some(home) if home != self.shard.id => {
                let mail = Mail::Command { from, queue, command };
                out.mail[home.index()].items.push(mail);
            }
            // It came back, or is about to.
            Some(_) if self.homes.migrations.parked_mail(queue).is_some() => {
                self.park_mail(queue, ParkedItem::Mail(Mail::Command { from, queue, command }));
            }
            Some(_) if queue != old => return self.command(now, from, queue, command, out),
            _ => self.shard.reply(from, old, Reply::Gone, out),
        }
        None
    }

    pub(crate) fn get(
        &mut self,
        now: Now,
        from: ChannelRef,
        slot: u32,
        no_ack: bool,
        out: &mut Outbox,
    ) {
        let id = self.homes.queues[slot as usize].id;
        if self.homes.queues[slot as usize].queue.is_held() {
            self.shard.backpressure.try_next_turn(from, id, Command::Get { no_ack });
            return;
        }
        let head = self.with_queue(now, slot, out, |queue, sink| {
            queue.apply(now, command::TakeHead { no_ack }, sink)
        });
        match head {
            Get::Empty => self.shard.reply(from, id, Reply::GotNothing, out),
            Get::Again if self.homes.queues[slot as usize].queue.is_waiting() => {
                self.shard.backpressure.wait_for_disk(from, id, Command::Get { no_ack });
            }
            Get::Again => {
                self.shard.backpressure.try_next_turn(from, id, Command::Get { no_ack });
            }
            Get::Message(got) => self.reply_got(now, from, slot, got, out),
        }
    }

    pub(crate) fn reply_got(
        &mut self,
        now: Now,
        to: ChannelRef,
        slot: u32,
        got: Got,
        out: &mut Outbox,
    ) {
        let (queue, log) =
            (self.homes.queues[slot as usize].id, self.homes.queues[slot as usize].log);
        // A copy: what the log has in memory may go with the next operation.
        let position = got.place.position();
        let found = position.and_then(|at| self.journal.log(log)?.found(at));
        let copied = found.map(|view| view.pack(&mut self.shard.pool));
        let mut pool = core::mem::take(&mut self.shard.pool);
        let Some(body) = got.place.body().or(copied) else {
            invariant!("a message that is fetched was found before")
        };
        let view = MessageView::unpack(pool.get(body));
        if to.shard == self.shard.id {
            let home = self.shard.id;
            let stored = Some((body, &pool));
            if self.connections.got(
                self.shard,
                to,
                (queue, slot, home),
                (got.delivery, got.remaining),
                &view,
                stored,
                out,
            ) {
                pool.retain(body);
            }
        } else {
            let batch = &mut out.mail[to.shard.index()];
            let message = view.append_packed(&mut batch.bytes);
            batch.items.push(Mail::Reply {
                to,
                queue,
                reply: Reply::Got {
                    slot: got.delivery.slot,
                    sequence: got.delivery.seq,
                    redelivered: got.delivery.redelivered,
                    delivery_count: got.delivery.delivery_count,
                    remaining: got.remaining,
                    message,
                },
            });
        }
        if let Some(body) = copied {
            pool.release(body);
        }
        self.shard.pool = pool;
        if let Some(entry) = got.taken {
            self.with_queue(now, slot, out, |queue, sink| {
                queue.apply(now, command::Release { entry }, sink);
            });
        }
        if to.shard == self.shard.id {
            self.shard.reply(to, queue, Reply::Fetched, out);
        }
    }

    /// A channel settled a delivery of a queue whose home is here.
    pub(crate) fn settle_home(
        &mut self,
        now: Now,
        (queue, hint, slot, sequence): (QueueId, u32, u32, u64),
        outcome: Outcome,
        out: &mut Outbox,
    ) -> Option<u32> {
        // A queue that is gone has nothing left to settle; the channel's credit returns anyway.
        let home = self.slot_for(queue, hint)?;
        if slot != NO_SLOT {
            self.with_queue(now, home, out, |queue, sink| {
                queue.apply(now, command::Settle { slot, seq: sequence, outcome }, sink)
            });
        }
        Some(home)
    }

    /// Lets a queue of this shard rest or go on.
    pub(crate) fn hold_home(&mut self, now: Now, queue: QueueId, on: bool, out: &mut Outbox) {
        let Some(slot) = self.slot_for(queue, u32::MAX) else { return };
        let state = &mut self.homes.queues[slot as usize].queue;
        if on {
            state.apply(now, command::Hold {}, &mut NoSink);
        } else {
            state.apply(now, command::Unhold {}, &mut NoSink);
            self.dispatch_ready(now, slot, out);
        }
    }

    /// A channel ends, and with it its question, if that waits here: it is answered.
    pub(crate) fn question_given_up(&mut self, from: ChannelRef, out: &mut Outbox) {
        let Some(queue) = self.homes.postponed.give_up(from) else {
            return race!("the question was answered before it was given up");
        };
        let refusal = Refusal::new(RefusalKind::ChannelError, "the channel ends");
        self.shard.reply(from, queue, Reply::Refused(refusal), out);
    }
}
