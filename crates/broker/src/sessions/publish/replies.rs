//! Direct replies: what is published to the address of a channel that consumes replies.
//!
//! Those with several addresses on other shards visit one after the other, so that the last of them
//! knows whether anybody got the message.

use alloc::vec::Vec;

use lepus_base::{ConnectionId, Now, ShardId};

use crate::channel::At;
use crate::connections::connection_name;
use crate::mail::{ChannelRef, Mail, Receipt, report};
use crate::message::{MessageView, packed};
use crate::outbox::Outbox;
use crate::publish::Checked;
use crate::publish::view_of;
use crate::reply_to::{address, is_reply_address};
use crate::routing_keys::RoutingKeys;
use crate::session::Publish;
use crate::sessions::SessionSide;
use crate::shard::Shard;

/// Bytes of an address behind a message in a batch of mail.
pub(crate) const ADDRESS_BYTES: usize = 18;

/// The addresses among the keys of one message.
#[derive(Debug, Default)]
pub(crate) struct Addressed {
    /// Whether a channel of this shard got it.
    pub is_answered: bool,
    /// Channels of other shards.
    far: Vec<ChannelRef>,
}

impl Addressed {
    /// Whether the message is on its way to other shards, which say whether anybody got it.
    pub(crate) fn is_asked(&self) -> bool {
        !self.is_answered && !self.far.is_empty()
    }
}

/// The rest of the way of a direct reply.
pub(crate) struct Way<'a> {
    /// Where it goes.
    to: &'a [ChannelRef],
    /// The publisher's channel.
    from: ChannelRef,
    number: Option<u64>,
    mandatory: bool,
}

/// Mails a direct reply to the shard of the first address, with the others behind it.
pub(crate) fn send_reply(way: &Way<'_>, view: &MessageView<'_>, out: &mut Outbox) {
    let Some((&to, rest)) = way.to.split_first() else {
        invariant!("a direct reply has an address")
    };
    let batch = &mut out.mail[to.shard.index()];
    let message = view.append_packed(&mut batch.bytes);
    for to in rest {
        batch.bytes.extend_from_slice(&to.shard.0.to_le_bytes());
        batch.bytes.extend_from_slice(&to.connection.0.to_le_bytes());
        batch.bytes.extend_from_slice(&to.channel.to_le_bytes());
    }
    batch.items.push(Mail::DeliverReply {
        to,
        message,
        further: rest.len() as u32,
        from: way.from,
        number: way.number,
        mandatory: way.mandatory,
    });
}

pub(crate) fn read_address(bytes: &[u8; ADDRESS_BYTES]) -> ChannelRef {
    let number = |range: core::ops::Range<usize>| {
        bytes[range].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    ChannelRef {
        shard: ShardId(number(0..2) as u16),
        connection: ConnectionId(number(2..10)),
        channel: number(10..18),
    }
}

impl SessionSide<'_> {
    /// Publishes a message to one address.
    pub(crate) fn publish_reply(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        checked: &Checked<'_>,
        out: &mut Outbox,
    ) {
        let view = view_of(publish, &checked.properties);
        match address(&self.shard.settings.secret, publish.routing_key) {
            Some(to) if to.shard == self.shard.id => {
                if !self.deliver_reply(to, &view, out) {
                    self.unroutable(at, publish, &checked.properties, out);
                }
            }
            Some(to) if to.shard.index() < out.mail.shards() => {
                return self.ask_for_listeners(at, publish, &view, &[to], out);
            }
            _ => self.unroutable(at, publish, &checked.properties, out),
        }
        self.account(at);
    }

    /// Sends a message with several keys to the reply consumers of this shard among them.
    pub(crate) fn copy_to_replies(
        &mut self,
        publish: &Publish<'_>,
        checked: &Checked<'_>,
        keys: RoutingKeys<'_>,
        out: &mut Outbox,
    ) -> Addressed {
        let mut addresses: Vec<&str> = keys.iter().filter(|key| is_reply_address(key)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let view = view_of(publish, &checked.properties);
        let mut found = Addressed::default();
        for key in addresses {
            match address(&self.shard.settings.secret, key) {
                Some(to) if to.shard == self.shard.id => {
                    found.is_answered |= self.deliver_reply(to, &view, out);
                }
                Some(to) if to.shard.index() < out.mail.shards() => found.far.push(to),
                _ => {}
            }
        }
        found.far.sort_by_key(|to| to.shard);
        found
    }

    /// Sends a message with several keys to the reply consumers of other shards. `is_reached` says
    /// that somebody has it already; if not, they tell whether anybody got it.
    pub(crate) fn copy_to_far_replies(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        checked: &Checked<'_>,
        found: &Addressed,
        is_reached: bool,
        out: &mut Outbox,
    ) {
        let view = view_of(publish, &checked.properties);
        if found.far.is_empty() {
            return;
        }
        if !is_reached {
            return self.ask_for_listeners(at, publish, &view, &found.far, out);
        }
        let way = Way { to: &found.far, from: at.channel, number: None, mandatory: false };
        self.touch_replies(at, way.to);
        send_reply(&way, &view, out);
    }

    /// Sends a message to reply consumers of other shards that nobody else gets.
    pub(crate) fn ask_for_listeners(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        view: &MessageView<'_>,
        to: &[ChannelRef],
        out: &mut Outbox,
    ) {
        let number = self.next_number(at);
        let way = Way { to, from: at.channel, number, mandatory: publish.mandatory };
        self.touch_replies(at, to);
        send_reply(&way, view, out);
        self.open_number(at, number, 1, Receipt::Taken);
    }

    pub(crate) fn touch_replies(&mut self, at: At, to: &[ChannelRef]) {
        for to in to {
            self.connections[at.slot].note_shard(to.shard);
        }
        self.pin_to_shard(at);
    }

    /// A direct reply for a channel of this shard: delivered, sent on to others, or returned to its
    /// publisher.
    pub(crate) fn reply_mailed(&mut self, mail: &Mail, bytes: &[u8], out: &mut Outbox) {
        let Mail::DeliverReply { to, message, further, from, number, mandatory } = mail else {
            invariant!("only a direct reply is taken for one")
        };
        let view = packed(bytes, message.clone());
        let behind = bytes.get(message.end as usize..).unwrap_or_default();
        let further = behind.as_chunks().0.iter().take(*further as usize).map(read_address);
        let further: Vec<ChannelRef> = further.collect();
        let mut is_delivered = self.deliver_reply(*to, &view, out);
        for (place, to) in further.iter().enumerate() {
            if to.shard != self.shard.id {
                let mandatory = *mandatory && !is_delivered;
                let to = &further[place..];
                return send_reply(
                    &Way { to, from: *from, number: *number, mandatory },
                    &view,
                    out,
                );
            }
            is_delivered |= self.deliver_reply(*to, &view, out);
        }
        let batch = &mut out.mail[from.shard.index()];
        if !is_delivered && *mandatory {
            // Ahead of the report: a return precedes its confirm.
            let message = view.append_packed(&mut batch.bytes);
            batch.items.push(Mail::ReturnReply { to: *from, message });
        }
        if let Some(number) = *number {
            report(&mut batch.items, *from, (number, number), 1, Receipt::Taken);
        }
    }

    /// A mandatory direct reply comes back from another shard.
    pub(crate) fn return_reply(
        &mut self,
        to: ChannelRef,
        view: &MessageView<'_>,
        out: &mut Outbox,
    ) {
        let Some(at) = self.find_channel(to) else {
            return race!("the publisher closed its channel before its reply came back");
        };
        let (Ok(exchange), Ok(routing_key)) =
            (core::str::from_utf8(view.exchange), core::str::from_utf8(view.routing_key))
        else {
            invariant!("the names of a message are text")
        };
        let publish = Publish {
            exchange,
            routing_key,
            mandatory: true,
            immediate: false,
            properties: view.properties,
            body: view.body,
            packed: None,
        };
        self.unroutable(at, &publish, view.properties, out);
    }

    /// It is time to tell how many direct replies nobody read.
    pub(crate) fn tell_unread_replies(&mut self, now: Now, out: &mut Outbox) {
        self.sessions.unread_replies.tell_more(now, &mut self.shard.timers, out);
    }

    /// A direct reply to the connection in this slot is dropped.
    pub(crate) fn drop_unread_reply(&mut self, slot: u32, out: &mut Outbox) {
        if self.sessions.unread_replies.is_told_later() {
            return;
        }
        let Some(connection) = self.connections.get(slot) else { return };
        let name = connection_name(connection);
        let Shard { now, timers, .. } = &mut *self.shard;
        self.sessions.unread_replies.tell_one(&name, *now, timers, out);
    }
}
