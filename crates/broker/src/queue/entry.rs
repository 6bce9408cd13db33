//! A message's place in a queue, and the words for what happens to it.

use lepus_base::{Body, Instant, Position};

use crate::message::MessageView;

/// One message in one queue. Owns one reference to its body, therefore neither `Copy` nor `Clone`.
#[derive(Debug)]
pub struct Entry {
    /// Order in the queue; never changes, also not by a requeue.
    pub seq: u64,
    /// When it expires; [`Instant::NEVER`] without TTL. A requeue keeps it.
    pub deadline: Instant,
    /// Where the message lies in the shard's log.
    pub position: Position,
    /// The packed message.
    pub body: Body,
    /// Size of the payload in bytes.
    pub bytes: u32,
    /// How often it came back; the header `x-delivery-count` of quorum queues.
    pub delivery_count: u32,
    /// Priority, capped to the queue's highest.
    pub priority: u8,
    /// Whether it must survive a restart.
    pub persistent: bool,
    /// Whether it was delivered before.
    pub redelivered: bool,
}

const _: () = assert!(size_of::<Entry>() <= 40);

/// The slot of a delivery that is settled by being sent.
pub const NO_SLOT: u32 = u32::MAX;

/// What a channel has to remember of a delivery to settle it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Place among the queue's unacked; [`NO_SLOT`] where nothing is to be acknowledged.
    pub slot: u32,
    /// The entry's sequence number, which guards the slot.
    pub seq: u64,
    /// The `redelivered` bit.
    pub redelivered: bool,
    /// How often it came back before; 0 where the queue does not tell.
    pub delivery_count: u32,
}

/// Where the bytes of a delivery are.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// In the pool; [`MessageView::unpack`] takes it apart.
    Stored(Body),
    /// Still in the publisher's input.
    Incoming(&'a MessageView<'a>),
}

/// Why a message leaves a queue for its dead-letter exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Rejected without requeue.
    Rejected,
    /// Its time to live ended.
    Expired,
    /// The queue was full.
    MaxLength,
    /// It came back too often.
    DeliveryLimit,
}

impl Reason {
    /// The word in the `x-death` header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::MaxLength => "maxlen",
            Reason::DeliveryLimit => "delivery_limit",
        }
    }
}

/// What a consumer says about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done with it.
    Ack,
    /// Drop or dead-letter it.
    Reject,
    /// Put it back to its place.
    Requeue,
}

/// What a queue says about a message that is offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Enqueued {
    /// Taken: delivered, kept, or dropped by a rule that counts as taken.
    Accepted,
    /// Refused by `x-overflow`; the publisher gets a nack.
    Rejected,
}

/// A message taken by `basic.get`.
#[derive(Debug)]
#[must_use]
pub struct Got {
    /// What the channel remembers.
    pub delivery: Delivery,
    /// The packed message.
    pub body: Body,
    /// Ready messages that are left, for `get-ok`.
    pub remaining: u64,
    /// With `no_ack` the entry itself: whoever encodes the answer discards it afterwards.
    pub taken: Option<Entry>,
}

/// The answer to `basic.get`.
#[derive(Debug)]
#[must_use]
pub enum Get {
    /// The head of the queue.
    Message(Got),
    /// Nothing is ready.
    Empty,
    /// The answer is not known yet: ask again in a later slice.
    Again,
}
