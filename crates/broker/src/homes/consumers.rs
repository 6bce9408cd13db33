//! Consumers of queues whose home is here: they come, wait, go on and leave, those on other shards with windows and
//! credit.

use crate::homes::HomeSide;
use crate::mail::{Attachment, Mail};
use crate::mail::{ChannelRef, Reply};
use crate::outbox::{Outbox, Severity};
use crate::queue::{Consumer, ConsumerHandle, ConsumerKey, NoSink, SubscribeError, command};
use crate::refusal::{Refusal, RefusalKind};
use crate::remote::RemoteConsumer;
use alloc::format;
use lepus_base::QueueId;
use lepus_base::{ConnectionId, Now, ShardId};

impl HomeSide<'_> {
    /// A connection of another shard wants to come here: its consumers get nothing more.
    pub(crate) fn detach_consumers(
        &mut self,
        from: ShardId,
        connection: ConnectionId,
        number: u64,
        out: &mut Outbox,
    ) {
        if !self.homes.remote.detached.contains(&connection) {
            self.homes.remote.detached.push(connection);
        }
        out.mail[from.index()].items.push(Mail::ConsumersDetached { number });
    }

    /// A connection of another shard stays there: its consumers get messages again.
    pub(crate) fn attach_again(
        &mut self,
        now: Now,
        connection: ConnectionId,
        consumers: &[Attachment],
        out: &mut Outbox,
    ) {
        self.homes.remote.detached.retain(|detached| *detached != connection);
        for consumer in consumers {
            self.resume_remote(now, consumer.queue, consumer.key, out);
        }
    }

    pub(crate) fn subscribe(
        &mut self,
        now: Now,
        from: ChannelRef,
        slot: u32,
        consumer: Consumer,
        governed: bool,
        out: &mut Outbox,
    ) -> Option<u32> {
        let home = &mut self.homes.queues[slot as usize];
        let id = home.id;
        home.queue.apply(now, command::Touch {}, &mut NoSink);
        let (key, shard) = (consumer.key, consumer.shard);
        let effort = consumer.filter.as_ref().map_or(0, |filter| filter.filter.effort());
        self.shard.effort.spend_on_filter(effort);
        let is_filtered = consumer.filter.is_some();
        match home.queue.apply(now, command::Subscribe { consumer }, &mut NoSink) {
            Ok(handle) => {
                if is_filtered {
                    self.homes.watch_selectors(now, slot, &mut self.shard.timers);
                }
                if shard != self.shard.id {
                    if let Some(before) = self.homes.remote.consumers.get(&key) {
                        // One of its name has yet to be told that its queue is gone.
                        self.forget_remote(key, before.queue, out);
                    }
                    let remote = RemoteConsumer {
                        queue: id,
                        handle,
                        shard,
                        governed,
                        credit: 0,
                        wanted: false,
                        place: None,
                    };
                    self.homes.remote.consumers.insert(key, remote);
                }
                self.shard.reply(from, id, Reply::Subscribed { handle, slot }, out);
                Some(slot)
            }
            Err(error) => {
                let queue = self.directory.describe_queue(id);
                let refusal = match error {
                    SubscribeError::InExclusiveUse => Refusal::new(
                        RefusalKind::AccessRefused,
                        format!("{queue} in exclusive use"),
                    ),
                    SubscribeError::Filter(why) => Refusal::new(
                        RefusalKind::PreconditionFailed,
                        format!("{queue} takes no further filter: {why}"),
                    ),
                };
                self.shard.reply(from, id, Reply::Refused(refusal), out);
                None
            }
        }
    }

    /// Looks for filters of consumers that cost much, and tells the log of them.
    pub(crate) fn look_at_selectors(&mut self, now: Now, out: &mut Outbox) {
        for costly in self.homes.look_at_selectors(now, &mut self.shard.timers) {
            let text = format!(
                "a filter of a consumer of {} was asked about {} messages within {} s, of which its consumers got {}: \
                 a queue of their own, bound with that filter, would spare this",
                self.directory.describe_queue(costly.queue),
                costly.evaluations,
                costly.seconds,
                costly.deliveries
            );
            out.log(Severity::Warning, "filter-costs-much", text);
        }
    }

    pub(crate) fn cancel(
        &mut self,
        now: Now,
        from: ChannelRef,
        slot: u32,
        key: ConsumerKey,
        handle: ConsumerHandle,
        out: &mut Outbox,
    ) -> Option<u32> {
        let id = self.homes.queues[slot as usize].id;
        self.forget_remote(key, id, out);
        let home = &mut self.homes.queues[slot as usize];
        home.queue.apply(now, command::Cancel { handle }, &mut NoSink);
        home.note(slot, self.shard);
        if home.queue.auto_delete_due() && !home.awaits_deletion() {
            self.delete_home(slot, Some((from, Reply::Cancelled)), out);
            return None;
        }
        self.shard.reply(from, id, Reply::Cancelled, out);
        Some(slot)
    }

    /// The same of one on another shard.
    pub(crate) fn resume_remote(
        &mut self,
        now: Now,
        queue: QueueId,
        key: ConsumerKey,
        out: &mut Outbox,
    ) {
        let Some(handle) = self.homes.remote.consumers.get(&key).map(|remote| remote.handle) else {
            return race!("the consumer was cancelled before it could go on");
        };
        self.resume_consumer(now, (queue, u32::MAX), handle, out);
    }

    pub(crate) fn resume_consumer(
        &mut self,
        now: Now,
        (queue, hint): (QueueId, u32),
        handle: ConsumerHandle,
        out: &mut Outbox,
    ) {
        let Some(slot) = self.homes.slot_of(queue, hint) else {
            return race!("the queue left before its consumer could go on");
        };
        let queue = &mut self.homes.queues[slot as usize].queue;
        queue.apply(now, command::Resume { handle }, &mut NoSink);
        self.dispatch_ready(now, slot, out);
    }

    /// A consumer on another shard has left its queue, or the queue is gone.
    pub(crate) fn forget_remote(&mut self, key: ConsumerKey, queue: QueueId, out: &mut Outbox) {
        // The name may be that of another queue's consumer by now.
        if self.homes.remote.consumers.get(&key).is_some_and(|remote| remote.queue == queue) {
            self.return_unused_credit(key, out);
            self.homes.remote.end_wait(&mut self.shard.backpressure, key);
            self.homes.remote.consumers.remove(&key);
        }
    }

    /// Gives back grants that a consumer on another shard did not use.
    pub(crate) fn return_unused_credit(&mut self, key: ConsumerKey, out: &mut Outbox) {
        if let Some(remote) = self.homes.remote.consumers.get_mut(&key)
            && remote.credit > 0
        {
            let credit = core::mem::take(&mut remote.credit);
            let shard = remote.shard;
            for _ in 0..credit {
                out.mail[shard.index()].items.push(Mail::ReturnCredit { to: key });
            }
        }
    }

    /// Credit for one delivery under a channel's global prefetch has come.
    pub(crate) fn credit_granted(
        &mut self,
        now: Now,
        key: ConsumerKey,
        queue: QueueId,
        from: lepus_base::ShardId,
        out: &mut Outbox,
    ) {
        let give_back = Mail::ReturnCredit { to: key };
        let Some(remote) = self.homes.remote.consumers.get_mut(&key) else {
            out.mail[from.index()].items.push(give_back);
            return;
        };
        remote.wanted = false;
        remote.credit += 1;
        self.resume_remote(now, queue, key, out);
        // Credit that finds nothing to deliver would starve the channel's other consumers.
        if let Some(remote) = self.homes.remote.consumers.get_mut(&key)
            && remote.credit > 0
        {
            remote.credit -= 1;
            out.mail[from.index()].items.push(give_back);
        }
    }

    /// A connection of another shard has come to this one.
    pub(crate) fn connection_came(&mut self, id: ConnectionId) {
        self.homes.remote.detached.retain(|detached| *detached != id);
    }

    /// A consumer has come here with its connection, which is in `slot` now. Where its queue is; `None` if that is gone.
    pub(crate) fn relocate_consumer(
        &mut self,
        now: Now,
        queue: QueueId,
        (key, handle): (ConsumerKey, ConsumerHandle),
        slot: u32,
    ) -> Option<u32> {
        let home = self.homes.slot_of(queue, u32::MAX)?;
        let relocate = command::Relocate { handle, shard: self.shard.id, slot };
        if !self.homes.queues[home as usize].queue.apply(now, relocate, &mut NoSink) {
            return None;
        }
        self.homes.remote.end_wait(&mut self.shard.backpressure, key);
        self.homes.remote.consumers.remove(&key);
        Some(home)
    }

    pub(crate) fn window_returned(
        &mut self,
        now: Now,
        id: ConnectionId,
        bytes: u64,
        out: &mut Outbox,
    ) {
        let Some(window) = self.homes.remote.windows.get_mut(&id) else {
            return race!("nothing was sent to the connection from here since it came");
        };
        window.room += bytes as i64;
        // Whoever finds none left waits for the next time.
        while self.homes.remote.windows.get(&id).is_some_and(|window| window.room > 0)
            && let Some((queue, key)) =
                self.homes.remote.take_first_behind(&mut self.shard.backpressure, id)
        {
            self.resume_remote(now, queue, key, out);
        }
    }

    /// A channel's global prefetch limit starts or ceases to govern a consumer of another shard.
    pub(crate) fn govern(
        &mut self,
        now: Now,
        consumer: ConsumerKey,
        queue: QueueId,
        on: bool,
        out: &mut Outbox,
    ) {
        let Some(remote) = self.homes.remote.consumers.get_mut(&consumer) else {
            return race!("the consumer was cancelled before a limit of its channel changed");
        };
        remote.governed = on;
        remote.wanted = false;
        self.resume_remote(now, queue, consumer, out);
    }
}
