//! From `basic.publish` to the queues: checks, routing, enqueueing, returns, confirms.

pub(crate) mod check;
pub(crate) mod replies;

use crate::channel::At;
use crate::mail::{COMMIT_NUMBER, ChannelRef, Receipt, Shortage};
use crate::outbox::Outbox;
use crate::properties::for_client;
use crate::session::{Delivered, Publish, Source};
use crate::sessions::SessionSide;
use crate::sessions::mark_dirty;

impl SessionSide<'_> {
    /// Keeps a connection on this shard: what it publishes from another one could overtake what
    /// is on its way from here.
    pub(crate) fn tie(&mut self, at: At) {
        let own = self.shard.id;
        self.sessions.connections[at.slot as usize].touch(own);
    }

    pub(crate) fn unroutable(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        properties: &[u8],
        out: &mut Outbox,
    ) {
        if !publish.mandatory {
            self.shard.counters.unroutable_dropped += 1;
            return;
        }
        self.shard.counters.unroutable_returned += 1;
        let shown = for_client(properties, 0);
        let connection = &mut self.sessions.connections[at.slot as usize];
        let delivered = Delivered {
            source: Source::Unroutable,
            exchange: publish.exchange.as_bytes(),
            routing_key: publish.routing_key.as_bytes(),
            properties: shown.as_deref().unwrap_or(properties),
            body: publish.body,
        };
        let bytes = &mut connection.send.bytes;
        connection.session.deliver(at.channel.number(), &delivered, bytes);
        mark_dirty(connection, at.slot, out);
    }

    /// Takes the next publish number of a channel that confirms; a commit has one for all.
    pub(crate) fn next_number(&mut self, at: At) -> Option<u64> {
        let connection = &mut self.sessions.connections[at.slot as usize];
        let channel = connection.incarnation(at.channel.channel)?;
        if channel.committing.is_some() {
            return Some(COMMIT_NUMBER);
        }
        Some(channel.confirms.as_mut()?.take_number())
    }

    /// A publish that needs a number and waits for nobody.
    pub(crate) fn account(&mut self, at: At) {
        let number = self.next_number(at);
        self.open_number(at, number, 0, Receipt::Taken);
    }

    pub(crate) fn open_number(
        &mut self,
        at: At,
        number: Option<u64>,
        missing: u32,
        receipt: Receipt,
    ) {
        let Some(number) = number else { return };
        let slot = at.slot;
        let connection = &mut self.sessions.connections[slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return };
        if let Some(committing) = &mut channel.committing {
            committing.expect(number, missing);
            committing.report(number, number, 0, receipt);
            return;
        }
        let Some(confirms) = &mut channel.confirms else { return };
        self.shard.counters.received_confirm += 1;
        confirms.open(number, missing, receipt);
        if !confirms.listed {
            confirms.listed = true;
            self.sessions.follow_ups.confirm(slot, channel.key);
        }
    }

    /// What a shard is short of to which a connection has published.
    pub(crate) fn feeds_short_shard(&self, slot: u32) -> Option<Shortage> {
        let touched = &self.sessions.connections.get(slot as usize)?.touched;
        self.shard.backpressure.shortage_among(touched)
    }

    /// Queues on other shards, the last slice of a fan-out, or a log report publishes.
    pub(crate) fn publish_reported(
        &mut self,
        to: ChannelRef,
        (first, last): (u64, u64),
        queues: u32,
        receipt: Receipt,
    ) {
        let Some((slot, connection)) = self.sessions.connection(to.connection, u32::MAX) else {
            return;
        };
        let Some(channel) = connection.incarnation(to.channel) else { return };
        if let Some(committing) = &mut channel.committing {
            committing.report(first, last, queues, receipt);
        } else if let Some(confirms) = &mut channel.confirms {
            confirms.report(first, last, queues, receipt);
            if confirms.listed {
                return;
            }
            confirms.listed = true;
        } else {
            return;
        }
        let key = channel.key;
        self.sessions.follow_ups.confirm(slot, key);
    }
}
