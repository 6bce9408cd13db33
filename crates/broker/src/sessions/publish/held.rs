//! Publishes that a transaction holds until its commit.

use crate::channel::{At, HeldPublish};
use crate::outbox::Outbox;
use crate::publish::{Checked, Served};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::Publish;
use crate::sessions::SessionSide;
use alloc::format;
use lepus_base::Now;

/// The part of the memory that a connection's transactions may hold while it is short.
pub(crate) const TX_PART: usize = 16;

impl SessionSide<'_> {
    /// Keeps a publish for the commit. While memory is short its client is held back as others are,
    /// unless its transactions are a good part of what takes it: nobody else could give that back.
    pub(crate) fn hold_publish(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        checked: Checked<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let limit = self.shard.limits.tx_bytes_max;
        let memory_max = self.shard.loan.limit;
        let is_short = self.shard.memory() > memory_max && self.shard.loan.is_all();
        let connection = &mut self.connections[at.slot];
        let held_bytes = connection.tx_bytes;
        let Some(tx) = connection.incarnation(at.channel.channel).and_then(|c| c.tx.as_mut())
        else {
            invariant!("a channel that publishes in a transaction has one")
        };
        let persistent = checked.persistent;
        let held = checked.hold(publish);
        let bytes = held.memory_bytes();
        if tx.bytes + bytes > limit {
            let text = format!("transaction holds more than {limit} bytes; commit more often");
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        if is_short && held_bytes > memory_max / TX_PART {
            let text = format!(
                "transactions of this connection hold {held_bytes} bytes and memory is short; commit more often"
            );
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        tx.publish(held, persistent);
        connection.tx_bytes += bytes;
        self.apply_backpressure(at.slot, out);
        Ok(())
    }

    /// Publishes what a transaction held; with `has_room` in one go, since the logs have room for
    /// it. How far it is, and how many queues get it.
    pub(crate) fn publish_held(
        &mut self,
        now: Now,
        at: At,
        held: &HeldPublish,
        has_room: bool,
        out: &mut Outbox,
    ) -> (Served, usize) {
        let publish = Publish {
            exchange: &held.exchange,
            routing_key: &held.routing_key,
            mandatory: held.mandatory,
            immediate: false,
            properties: &held.properties,
            body: &held.body,
            packed: None,
        };
        self.route_and_publish(now, at, &publish, Checked::held(held, has_room), out)
    }
}
