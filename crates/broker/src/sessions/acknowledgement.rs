//! How channels are looked at whose deliveries may have waited too long, and closed.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::Now;

use crate::channel::At;
use crate::channel::unacked::Unacked;
use crate::connections::connection_name;
use crate::mail::ChannelRef;
use crate::outbox::{Outbox, Severity};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::Asked;
use crate::sessions::SessionSide;

/// Channels looked at in one go before other work gets its turn, those of the last connection not
/// counted; a connection counts as one more.
pub(crate) const LOOKED_AT_ONCE: usize = 1024;

impl SessionSide<'_> {
    /// One slice of looking at all channels.
    pub(crate) fn work_on_looks(&mut self, now: Now, out: &mut Outbox) {
        let Some(mut next) = self.sessions.looks.next() else { return };
        let mut looked_at = 0;
        while looked_at < LOOKED_AT_ONCE && next < self.connections.capacity() {
            looked_at += 1 + self.look_at_deliveries(now, next as u32, out);
            next += 1;
        }
        let is_over = next >= self.connections.capacity();
        self.sessions.looks.end_slice((!is_over).then_some(next));
        if is_over && !self.connections.is_empty() {
            self.sessions.looks.arm(now, &mut self.shard.timers);
        }
    }

    /// Looks at the channels of one connection: how many.
    pub(crate) fn look_at_deliveries(&mut self, now: Now, slot: u32, out: &mut Outbox) -> usize {
        let Some(connection) = self.connections.get_mut(slot) else { return 0 };
        if connection.end.is_some() {
            return 0;
        }
        let (id, vhost) = (connection.id, connection.vhost);
        let shard = self.shard.id;
        let keys: Vec<u64> = connection.open_channels().map(|channel| channel.key).collect();
        let count = keys.len();
        for key in keys {
            let Some(connection) = self.connections.connection_at(slot, id) else {
                race!("the connection closed over a delivery that took too long");
                break;
            };
            let Some(channel) = connection.incarnation(key) else {
                race!("the channel closed over a delivery that took too long");
                continue;
            };
            let oldest = channel.unacked.oldest().copied();
            let tag = oldest.map(|oldest| oldest.tag);
            let waited = channel.ages.look(now.instant, tag, channel.last_tag);
            // What is asked is answered first: behind the close nobody waits for that answer. The next
            // look finds the channel again.
            let is_asking = channel.pending.is_some() || channel.committing.is_some();
            let may_end = channel.ending.is_none() && !is_asking;
            let Some(oldest) = oldest.filter(|_| may_end) else { continue };
            let channel = ChannelRef { shard, connection: id, channel: channel.key };
            let timeout = self.consumer_timeout(&oldest);
            if timeout > Duration::ZERO && waited >= timeout {
                let at = At { slot, channel, vhost };
                self.delivery_timed_out(now, at, &oldest, timeout, out);
            }
        }
        count
    }

    /// How long this delivery may wait; zero for ever.
    pub(crate) fn consumer_timeout(&self, delivery: &Unacked) -> Duration {
        let queue = self.directory.queue_by_id(self.directory.id_now(delivery.queue));
        let own = queue.and_then(|info| self.directory.settings_of(info).consumer_timeout);
        own.unwrap_or(self.shard.limits.consumer_timeout)
    }

    pub(crate) fn delivery_timed_out(
        &mut self,
        now: Now,
        at: At,
        delivery: &Unacked,
        timeout: Duration,
        out: &mut Outbox,
    ) {
        let millis = timeout.as_millis();
        let number = at.channel.number();
        let queue = self.directory.describe_queue(self.directory.id_now(delivery.queue));
        let connection = &mut self.connections[at.slot];
        let consumer = connection
            .incarnation(at.channel.channel)
            .and_then(|channel| channel.subscription(delivery.consumer))
            .map_or_else(|| "basic.get".into(), |found| format!("consumer '{}'", found.tag));
        let text = format!(
            "{}: channel {number} is closed: {consumer} on {queue} did not acknowledge delivery {} \
             within {millis} ms",
            connection_name(connection),
            delivery.tag
        );
        out.log(Severity::Warning, "consumer-timeout", text);
        let text = format!(
            "delivery acknowledgement on channel {number} timed out. Timeout value used: {millis} \
             ms. This timeout value can be configured, see consumers doc guide to learn more"
        );
        let refusal = Refusal::new(RefusalKind::PreconditionFailed, text);
        self.fail_channel(now, at, &refusal, Asked::Nothing, out);
    }

    /// It is time to look at deliveries that wait for their acknowledgement.
    pub(crate) fn begin_looks(&mut self) {
        self.sessions.looks.begin();
    }
}
