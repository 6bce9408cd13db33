//! The way out of a queue while publishes come into it in a row.
//!
//! What goes to the queue's only consumer, on this shard, is noted, and sent when the row ends: so its connection and
//! channel are looked up once for all of it, and the head of a delivery is put together once. Meanwhile nothing else
//! happens to that connection. So what it may take is known from the first look at it: a lease, which ends with the
//! row and never has to be called back.

use alloc::vec::Vec;

use lepus_base::Pool;
use lepus_store::LaneSlot;

use super::QueuePort;
use crate::channel::unacked::Unacked;
use crate::connections::mark_dirty;
use crate::journal::Backlog;
use crate::message::{Layout, Wire};
use crate::queue::{
    Consumer, ConsumerKey, Content, Delivery, Entry, Reason, Selected, SelectorBits, Selectors,
    Sent, Sink,
};
use crate::session::amqp::{Amqp, OVERHEAD_BYTES};

/// Deliveries that are noted at most before they are sent.
const NOTED_MAX: usize = 256;
/// Bytes of a delivery beside its consumer tag, its message's names and the frames of the content: the method's frame
/// with its ids, the tag's length, the delivery tag and whether it is redelivered.
const HEAD_BYTES: usize = OVERHEAD_BYTES + 4 + 1 + 8 + 1;

/// A delivery that is yet to be sent: its place in the queue, if it is to be acknowledged, and in what was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    slot: u32,
    sequence: u64,
    /// Where its content's frames begin.
    at: u32,
    /// How long they are.
    bytes: u32,
    /// Of these, bytes of the header's frame.
    header_bytes: u32,
}

/// What a consumer may take before its connection is looked at again.
#[derive(Debug)]
struct Lease {
    consumer: ConsumerKey,
    connection_slot: u32,
    /// Deliveries are settled by being sent.
    no_ack: bool,
    /// Bytes until the send buffer's window is full, or so much is unread that a publisher on the same connection is not
    /// read any further. There is room for a delivery as long as it is above 0; at 0 what is noted is sent.
    room: usize,
    /// Deliveries that may be added to those that are unacknowledged.
    deliveries: usize,
    /// The longest body that fits one frame of the connection, in bytes.
    body_bytes_max: usize,
}

impl Lease {
    fn has_room(&self) -> bool {
        self.room > 0 && self.deliveries > 0
    }
}

/// The publish that the queue is offered.
#[derive(Clone, Copy, Debug, Default)]
struct Current<'b> {
    names: &'b [u8],
    at: usize,
    bytes: usize,
    header_bytes: usize,
}

/// The rest of a shard, as a queue sees it into which publishes come in a row.
pub(crate) struct RowSink<'a, 'b> {
    /// The same without a row.
    pub sink: QueuePort<'a>,
    /// What was received.
    input: &'b [u8],
    current: Current<'b>,
    /// Whether the queue has one consumer: only then is anything noted.
    is_sole: bool,
    lease: Option<Lease>,
    /// For the lease's consumer.
    noted: &'b mut Vec<Noted>,
}

impl<'a, 'b> RowSink<'a, 'b> {
    /// For publishes that lie in `input`, into a queue that has `consumers`. `noted` is an empty list.
    pub fn new(
        sink: QueuePort<'a>,
        consumers: u32,
        input: &'b [u8],
        noted: &'b mut Vec<Noted>,
    ) -> RowSink<'a, 'b> {
        assert!(noted.is_empty(), "what a row notes is sent with the row");
        let current = Current::default();
        RowSink { sink, input, current, is_sole: consumers == 1, lease: None, noted }
    }

    /// The queue is offered a publish next, which ends before `end` of the input.
    #[inline]
    pub fn begin(&mut self, wire: &Wire<'b>, end: usize) {
        let bytes = wire.frames.len();
        let header_bytes = wire.header_bytes;
        self.current = Current { names: wire.names, at: end - bytes, bytes, header_bytes };
    }

    /// Sends what is noted.
    #[inline]
    pub fn flush(&mut self) {
        if !self.noted.is_empty() {
            self.send_noted();
        }
    }

    #[inline(never)]
    fn send_noted(&mut self) {
        let lease = self.lease.as_ref().expect("what is noted is for the lease's consumer");
        let QueuePort { shard, connections, out, queue, queue_slot, .. } = &mut self.sink;
        let (key, count) = (lease.consumer, self.noted.len() as u64);
        let connection = connections.get_mut(lease.connection_slot);
        let connection = connection.filter(|connection| connection.id == key.connection);
        let connection = connection.expect("a connection stays while a row comes");
        let number = key.channel as u16;
        let channel = connection.channels.get_mut(number);
        let channel = channel.filter(|channel| channel.key == key.channel);
        let channel = channel.expect("a channel stays while a row comes");
        let first_tag = channel.last_tag + 1;
        channel.last_tag += count;
        shard.counters.delivered_local += count;
        let mut is_resized = false;
        if lease.no_ack {
            shard.counters.delivered_auto_ack += count;
            channel.counts.delivered_auto_ack += count;
            connection.unsummed.counts().delivered_auto_ack += count;
        } else {
            shard.counters.delivered_manual_ack += count;
            channel.counts.delivered_manual_ack += count;
            connection.unsummed.counts().delivered_manual_ack += count;
            for (tag, noted) in (first_tag..).zip(&*self.noted) {
                channel.unacked.push(Unacked {
                    tag,
                    queue: *queue,
                    queue_slot: *queue_slot,
                    home: shard.id,
                    consumer: key.consumer,
                    slot: noted.slot,
                    sequence: noted.sequence,
                });
            }
            is_resized = channel.unacked.take_resized();
        }
        let subscription = channel.subscription(key.consumer);
        let tag = &*subscription.expect("a queue's consumer is known to its channel").tag;
        let (input, names) = (self.input, self.current.names);
        let wires = self.noted.iter().map(|noted| Wire {
            names,
            frames: &input[noted.at as usize..][..noted.bytes as usize],
            header_bytes: noted.header_bytes as usize,
        });
        Amqp::deliver_all_frames(number, tag, first_tag, wires, &mut connection.send.bytes);
        if is_resized {
            connection.account_channel(key.channel);
        }
        mark_dirty(connection, lease.connection_slot, out);
        self.noted.clear();
    }

    /// What a consumer of this shard that may take a delivery may take besides; `None` where each delivery changes
    /// what others may take.
    fn lease_for(&self, consumer: &Consumer) -> Option<Lease> {
        let shard = &*self.sink.shard;
        if !self.is_sole || consumer.shard != shard.id {
            return None;
        }
        let connection = self.sink.connections.get(consumer.connection_slot)?;
        let channel = connection.channel(consumer.key.channel as u16)?;
        if channel.global.is_some() {
            return None;
        }
        let body_bytes_max = connection.session.whole_body_bytes_max()?;
        let limits = &shard.limits;
        let unacked_max = limits.unacked_per_channel_max as usize;
        Some(Lease {
            consumer: consumer.key,
            connection_slot: consumer.connection_slot,
            no_ack: consumer.no_ack,
            room: limits
                .send_window_bytes
                .saturating_sub(connection.send.len())
                .min(limits.unread_bytes_max.saturating_sub(connection.send.backlog())),
            deliveries: match consumer.no_ack {
                true => usize::MAX,
                false => unacked_max.saturating_sub(channel.unacked.len()),
            },
            body_bytes_max,
        })
    }
}

impl Sink for RowSink<'_, '_> {
    type Log<'l>
        = Backlog<'l>
    where
        Self: 'l;

    fn pool(&mut self) -> &mut Pool {
        self.sink.pool()
    }

    #[inline]
    fn may_deliver(&mut self, consumer: &Consumer, bytes: usize) -> bool {
        if let Some(lease) = &self.lease
            && lease.consumer == consumer.key
            && lease.has_room()
        {
            return true;
        }
        self.flush();
        self.lease = None;
        if !self.sink.may_deliver(consumer, bytes) {
            return false;
        }
        self.lease = self.lease_for(consumer);
        true
    }

    fn select(&mut self, selectors: &Selectors, asked: SelectorBits, entry: &Entry) -> Selected {
        self.sink.select(selectors, asked, entry)
    }

    #[inline]
    fn deliver(&mut self, consumer: &Consumer, delivery: Delivery, content: Content<'_>) -> Sent {
        if let Some(lease) = &mut self.lease
            && let Content::Incoming(view) = content
            && matches!(view.layout, Layout::Wire(_))
            && view.body.len() <= lease.body_bytes_max
        {
            assert!(lease.consumer == consumer.key, "a lease is for one consumer");
            let Current { names, at, bytes, header_bytes } = self.current;
            let head_bytes = HEAD_BYTES + consumer.tag.len() + names.len();
            lease.room = lease.room.saturating_sub(head_bytes + bytes);
            lease.deliveries -= 1;
            self.noted.push(Noted {
                slot: delivery.slot,
                sequence: delivery.seq,
                at: at as u32,
                bytes: bytes as u32,
                header_bytes: header_bytes as u32,
            });
            if lease.room == 0 || self.noted.len() == NOTED_MAX {
                self.flush();
            }
            return Sent::Done;
        }
        self.flush();
        self.lease = None;
        self.sink.deliver(consumer, delivery, content)
    }

    fn may_dead_letter(&mut self) -> bool {
        self.sink.may_dead_letter()
    }

    fn waits_for_letters(&mut self) -> bool {
        self.sink.waits_for_letters()
    }

    fn dead_letter(&mut self, entry: Entry, lane: Option<LaneSlot>, reason: Reason) {
        self.sink.dead_letter(entry, lane, reason);
    }

    #[inline]
    fn discard(&mut self, entry: Entry) {
        self.sink.discard(entry);
    }

    #[inline]
    fn backlog(&mut self) -> Option<Backlog<'_>> {
        self.sink.backlog()
    }

    #[inline]
    fn spills(&self, taken_bytes: u64) -> bool {
        self.sink.spills(taken_bytes)
    }

    fn letters(&self) -> Vec<(LaneSlot, u64)> {
        self.sink.letters()
    }
}
