//! Prefetch limits of channels, and consumers that go on when there is room again.

use crate::channel::GlobalPrefetch;
use crate::channel::Subscription;
use crate::channel::unacked::{NO_CONSUMER, Unacked};
use crate::channel::{At, WaitsFor};
use crate::mail::ChannelRef;
use crate::mail::Mail;
use crate::mail::consumer_key;
use crate::outbox::Outbox;
use crate::queue::{ConsumerKey, Outcome};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Answer, Done};
use crate::sessions::SessionSide;
use alloc::boxed::Box;
use alloc::format;
use lepus_base::{Now, QueueId};

/// What telling a consumer's home of a limit takes, in steps.
pub(crate) const GOVERN_STEPS: u32 = 16;

impl SessionSide<'_> {
    /// A settled delivery is counted, and makes room under the channel's limits.
    pub(crate) fn credit_back(
        &mut self,
        now: Now,
        at: At,
        unacked: &Unacked,
        outcome: Outcome,
        out: &mut Outbox,
    ) {
        let limit = self.shard.limits.unacked_per_channel_max as usize;
        let acknowledged = u64::from(outcome == Outcome::Ack);
        self.shard.counters.acknowledged += acknowledged;
        let Some(connection) = self.connections.get_mut(at.slot) else {
            return race!("the connection closed before its delivery was settled");
        };
        connection.unsummed.counts().acknowledged += acknowledged;
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed before its delivery was settled");
        };
        channel.counts.acknowledged += acknowledged;
        let was_full = channel.unacked.len() + 1 == limit;
        if let Some(global) = &mut channel.global {
            let is_consumed = unacked.consumer != NO_CONSUMER;
            global.in_flight = global.in_flight.saturating_sub(u32::from(is_consumed));
            // Who found the channel full waits there, too, whatever filled it.
            if (is_consumed || was_full) && channel.waiting(WaitsFor::Credit) > 0 {
                self.grant_credit(now, at.slot, at.channel, out);
            }
        } else if was_full && !connection.stalled.is_empty() {
            self.connections.follow_ups().resume(at.slot);
        }
    }

    /// Lets consumers that wait for the channel's global prefetch go on.
    pub(crate) fn grant_credit(&mut self, now: Now, slot: u32, to: ChannelRef, out: &mut Outbox) {
        // Each consumer that waits gets at most one turn per call: a fair round.
        let own = self.shard.id;
        let turns = self
            .connections
            .connection_at(slot, to.connection)
            .and_then(|connection| connection.incarnation(to.channel))
            .map_or(0, |channel| channel.waiting(WaitsFor::Credit));
        for _ in 0..turns {
            let Some(connection) = self.connections.connection_at(slot, to.connection) else {
                return race!("the connection closed over a delivery");
            };
            let Some(channel) = connection.incarnation(to.channel) else {
                return race!("the channel closed over a delivery");
            };
            let Some(global) = channel.global.as_mut().filter(|global| global.has_room()) else {
                return;
            };
            let Some(all) = &mut channel.subscriptions else { return };
            let Some(number) = all.next_waiting(WaitsFor::Credit) else { return };
            let Subscription { queue, queue_slot, home, .. } = all.by_number[number as usize];
            let key = consumer_key(to, to.channel, number);
            if home == own {
                self.resume_here(now, queue, queue_slot, key, out);
            } else if global.limit == 0 {
                // Nothing governs it any more.
                all.ungoverned.insert(number);
                let mail = Mail::Govern { consumer: key, queue, on: false };
                out.mail[home.index()].items.push(mail);
            } else {
                global.granted += 1;
                let mail = Mail::GrantCredit { to: key, queue };
                out.mail[home.index()].items.push(mail);
            }
        }
    }

    /// Lets consumers go on that wait for room on a connection or on their channels, until there is
    /// none left on the connection: it says when there is again.
    pub(crate) fn resume_stalled(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let window = self.shard.limits.send_window_bytes;
        let shard = self.shard.id;
        let Some(connection) = self.connections.get_mut(slot) else {
            return race!("the connection closed before its consumers could go on");
        };
        let id = connection.id;
        let mut stalled = core::mem::take(&mut connection.stalled).into_iter();
        while let Some(channel) = stalled.next() {
            let to = ChannelRef { shard, connection: id, channel };
            let Some(connection) = self.connections.connection_at(slot, id) else {
                return race!("the connection closed over a delivery");
            };
            for _ in 0..connection.unlist(channel) {
                let Some(connection) = self.connections.connection_at(slot, id) else {
                    return race!("the connection closed over a delivery");
                };
                if connection.send.len() >= window {
                    connection.list(channel);
                    return connection.stalled.extend(stalled);
                }
                let all =
                    connection.incarnation(channel).and_then(|one| one.subscriptions.as_mut());
                let Some(all) = all else {
                    race!("the channel closed over a delivery");
                    break;
                };
                let Some(number) = all.next_waiting(WaitsFor::Room) else { break };
                let Subscription { queue, queue_slot, .. } = all.by_number[number as usize];
                let key = consumer_key(to, channel, number);
                self.resume_here(now, queue, queue_slot, key, out);
            }
        }
    }

    /// A consumer of this shard waited for room and may go on.
    pub(crate) fn resume_here(
        &mut self,
        now: Now,
        queue: QueueId,
        hint: u32,
        key: ConsumerKey,
        out: &mut Outbox,
    ) {
        let Some((_, connection)) = self.connections.connection(key.connection, u32::MAX) else {
            return race!("the connection closed before its consumer could go on");
        };
        let Some(handle) = connection.subscription(key).and_then(|found| found.handle) else {
            return race!("the consumer's queue has yet to say its name there");
        };
        self.home().resume_consumer(now, (queue, hint), handle, out);
    }

    /// Limits what is unacknowledged: `(bytes, messages, whether for the whole channel)`, 0 for no limit.
    pub(crate) fn prefetch(
        &mut self,
        now: Now,
        at: At,
        (bytes, limit, is_shared): (u32, u32, bool),
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if bytes != 0 {
            let text = format!("prefetch_size!=0 ({bytes})");
            return Err(Refusal::new(RefusalKind::NotImplemented, text));
        }
        let own = self.shard.id;
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        if is_shared {
            if channel.global.is_none() && limit > 0 {
                let in_flight = channel.unacked.consumed() as u32;
                channel.global = Some(Box::new(GlobalPrefetch { in_flight, ..Default::default() }));
            }
            if let Some(global) = &mut channel.global {
                global.limit = limit;
            }
            // Those that the limit governs hear that it is lifted when they ask for credit.
            if limit > 0
                && let Some(subscriptions) = &mut channel.subscriptions
            {
                let key = channel.key;
                for number in core::mem::take(&mut subscriptions.ungoverned) {
                    let subscription = &subscriptions.by_number[number as usize];
                    self.shard.effort.spend(GOVERN_STEPS);
                    if subscription.home == own {
                        // Its channel came to the queue.
                        continue;
                    }
                    let consumer = consumer_key(at.channel, key, number);
                    let mail = Mail::Govern { consumer, queue: subscription.queue, on: true };
                    out.mail[subscription.home.index()].items.push(mail);
                }
            }
            self.grant_credit(now, at.slot, at.channel, out);
            self.wait_for_mail(at.slot, out);
        } else {
            channel.prefetch = limit;
        }
        self.say(at, &Answer::Done(Done::PrefetchSet), out);
        Ok(())
    }

    /// Connections that have room again: their consumers go on.
    pub(crate) fn resume_with_room(&mut self, now: Now, out: &mut Outbox) {
        for slot in self.connections.follow_ups().take_resumable() {
            self.resume_stalled(now, slot, out);
        }
    }
}
