//! A message's place in a queue, and the words for what happens to it.

use core::fmt;

use lepus_base::{Body, Instant, Position};
use lepus_store::LaneSlot;

use crate::message::MessageView;

/// Where the bytes of a message are: in the shard's pool, or in its log, never in both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place(u64);

/// A place in the pool is shown without its number: the same queue may have its bodies elsewhere.
impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position() {
            None => out.write_str("Pooled"),
            Some(position) if self.is_spilled() => write!(out, "Spilled({})", position.0),
            Some(position) => write!(out, "Logged({})", position.0),
        }
    }
}

/// Set for a body in the pool, whose number is in the lower half.
const POOLED: u64 = 1 << 63;
/// Set for a message that is logged only to spare memory.
const SPILLED: u64 = 1 << 62;

impl Place {
    /// In the pool.
    #[must_use]
    pub const fn pooled(body: Body) -> Place {
        Place(POOLED | body.to_bits() as u64)
    }

    /// In the log. `spilled` says that it is there only to spare memory: no restart finds it.
    #[must_use]
    pub const fn logged(position: Position, spilled: bool) -> Place {
        Place(position.0 | if spilled { SPILLED } else { 0 })
    }

    /// The body in the pool, of which the holder of the place has one reference.
    #[must_use]
    pub const fn body(self) -> Option<Body> {
        if self.0 & POOLED == 0 { None } else { Some(Body::from_bits(self.0 as u32)) }
    }

    /// The position in the log.
    #[must_use]
    pub const fn position(self) -> Option<Position> {
        if self.0 & POOLED == 0 { Some(Position(self.0 & !SPILLED)) } else { None }
    }

    /// Whether it is in the log only to spare memory.
    #[must_use]
    pub const fn is_spilled(self) -> bool {
        self.0 & (POOLED | SPILLED) == SPILLED
    }
}

/// One message in one queue. Owns one reference to its body if that is in the pool, therefore
/// neither `Copy` nor `Clone`.
#[derive(Debug)]
pub struct Entry {
    /// Order in the queue; never changes, also not by a requeue.
    pub seq: u64,
    /// When it expires; [`Instant::NEVER`] without TTL. A requeue keeps it.
    pub deadline: Instant,
    /// Where the packed message is.
    pub place: Place,
    /// Size of the payload in bytes.
    pub bytes: u32,
    /// How often it came back; the header `x-delivery-count` of quorum queues.
    pub delivery_count: u32,
    /// Priority, capped to the queue's highest.
    pub priority: u8,
    /// Whether it was delivered before.
    pub redelivered: bool,
}

const _: () = assert!(size_of::<Entry>() <= 40);

/// What a queue gives a new message before it is logged.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// Order in the queue.
    pub seq: u64,
    /// When it expires.
    pub deadline: Instant,
    /// Priority, capped to the queue's highest.
    pub priority: u8,
}

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
    /// In the log, with a payload of so many bytes.
    Logged(Position, u32),
    /// Still in the publisher's input.
    Incoming(&'a MessageView<'a>),
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It is on its way.
    Done,
    /// The message is being read; [`crate::command::Wake`] says when to try again.
    Pending,
    /// The message cannot be read any more.
    Lost,
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
    /// It matched no consumer's filter for too long.
    Unmatched,
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
            Reason::Unmatched => "unmatched",
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
    /// Put it back to its place: an attempt at it failed, which counts against `x-delivery-limit`.
    Requeue,
    /// The same, of a delivery that nobody tried anything with: it does not count.
    Return,
}

impl Outcome {
    /// Whether the message is in its queue again then.
    pub(crate) fn comes_back(self) -> bool {
        matches!(self, Outcome::Requeue | Outcome::Return)
    }
}

/// What came of [`Dispatch`](crate::command::Dispatch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// Whether there is more to deliver.
    pub more: bool,
    /// How much of its budget it took.
    pub used: usize,
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

/// What a queue says about a message that is to be logged before it is taken.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum Admission {
    /// It is to be logged under this number in this lane, and then put there.
    Wanted(Ticket, LaneSlot),
    /// A consumer that acknowledges nothing has it already.
    Delivered,
    /// Refused by `x-overflow`; the publisher gets a nack.
    Rejected,
}

/// A message taken by `basic.get`.
#[derive(Debug)]
#[must_use]
pub struct Got {
    /// What the channel remembers.
    pub delivery: Delivery,
    /// Where the packed message is.
    pub place: Place,
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
