//! How commands of a queue, and what its shard answered, are written down.
//!
//! Fields stand one behind the other, integers little-endian, lists and texts behind their length. A record is read by
//! the program that wrote it: the form has no version.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{Debug, Write};
use core::time::Duration;

use lepus_base::{ConnectionId, HashState, Instant, Now, Position, ShardId};
use lepus_filter::{BodyFormat, Filter, Limits};
use lepus_store::{AppendError, Fetch, LaneSlot};

use crate::entry::{Delivery, Entry, Outcome, Place, Reason, Sent, Ticket};
use crate::log::Found;
use crate::message::MessageView;
use crate::queue::{Consumer, ConsumerFilter, ConsumerHandle, ConsumerKey, Selected};
use crate::settings::{Overflow, QueueKind, QueueSettings};

/// What can be written down.
pub(crate) trait Encode {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
}

/// What can be read again.
pub(crate) trait Decode: Sized {
    /// Takes the value off the front; `None` where it is not one.
    fn take(input: &mut &[u8]) -> Option<Self>;
}

impl<T: Encode + ?Sized> Encode for &T {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
}

/// Integers.
macro_rules! integers {
    ($($type:ty),*) => {
        $(
            impl Encode for $type {
                fn put(&self, out: &mut Vec<u8>) {
                    out.extend_from_slice(&self.to_le_bytes());
                }
            }

            impl Decode for $type {
                fn take(input: &mut &[u8]) -> Option<$type> {
                    let (bytes, rest) = input.split_first_chunk()?;
                    *input = rest;
                    Some(<$type>::from_le_bytes(*bytes))
                }
            }
        )*
    };
}

integers!(u8, u16, u32, u64, i32);

/// Sizes and counts, which have 64 bits in a record.
impl Encode for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }
}

impl Decode for usize {
    fn take(input: &mut &[u8]) -> Option<usize> {
        usize::try_from(u64::take(input)?).ok()
    }
}

/// Values one behind the other.
macro_rules! tuples {
    ($(($($name:ident)*))*) => {
        $(
            impl<$($name: Encode),*> Encode for ($($name,)*) {
                #[allow(non_snake_case)]
                fn put(&self, out: &mut Vec<u8>) {
                    let ($($name,)*) = self;
                    $($name.put(out);)*
                    let _ = out;
                }
            }

            impl<$($name: Decode),*> Decode for ($($name,)*) {
                fn take(input: &mut &[u8]) -> Option<Self> {
                    let _ = &input;
                    Some(($($name::take(input)?,)*))
                }
            }
        )*
    };
}

tuples!(() (A B) (A B C) (A B C D));

/// Structures, by their fields.
macro_rules! structures {
    ($($type:ident { $($field:ident),* })*) => {
        $(
            impl Encode for $type {
                fn put(&self, out: &mut Vec<u8>) {
                    let $type { $($field),* } = self;
                    $($field.put(out);)*
                }
            }

            impl Decode for $type {
                fn take(input: &mut &[u8]) -> Option<$type> {
                    Some($type { $($field: Decode::take(input)?),* })
                }
            }
        )*
    };
}

structures! {
    Now { instant, wall_millis }
    ConsumerKey { connection, channel, consumer }
    ConsumerHandle { slot, generation }
    Ticket { seq, deadline, priority }
    Delivery { slot, seq, redelivered, delivery_count }
    Entry { seq, deadline, place, bytes, delivery_count, priority, redelivered }
    Consumer {
        key, shard, connection_slot, channel_number, tag, no_ack, exclusive, passing, priority, filter,
        prefetch, in_flight
    }
    QueueSettings {
        message_ttl, expires, max_length, max_length_bytes, overflow, dead_letter_exchange, at_least_once,
        dead_letter_routing_key, max_priority, single_active_consumer, delivery_limit, consumer_timeout, unmatched_after, kind
    }
}

/// Numbers with a type of their own.
macro_rules! wrappers {
    ($($type:ident),*) => {
        $(
            impl Encode for $type {
                fn put(&self, out: &mut Vec<u8>) {
                    self.0.put(out);
                }
            }

            impl Decode for $type {
                fn take(input: &mut &[u8]) -> Option<$type> {
                    Some($type(Decode::take(input)?))
                }
            }
        )*
    };
}

wrappers!(ConnectionId, Instant, Position, ShardId, LaneSlot);

/// One of several words, as its place in the list.
macro_rules! choices {
    ($($type:ty { $($choice:path),* })*) => {
        $(
            impl Encode for $type {
                fn put(&self, out: &mut Vec<u8>) {
                    let all = [$($choice),*];
                    let place = all.iter().position(|one| one == self).expect("the list has all");
                    out.push(place as u8);
                }
            }

            impl Decode for $type {
                fn take(input: &mut &[u8]) -> Option<$type> {
                    [$($choice),*].get(usize::from(u8::take(input)?)).copied()
                }
            }
        )*
    };
}

choices! {
    bool { NO, YES }
    Outcome { Outcome::Ack, Outcome::Reject, Outcome::Requeue, Outcome::Return }
    Sent { Sent::Done, Sent::Pending, Sent::Lost }
    Found { Found::Ready, Found::Pending, Found::Lost }
    Fetch { Fetch::Done, Fetch::Pending }
    Reason { Reason::Rejected, Reason::Expired, Reason::MaxLength, Reason::DeliveryLimit, Reason::Unmatched }
    Overflow { Overflow::DropHead, Overflow::RejectPublish, Overflow::RejectPublishDlx }
    BodyFormat { BodyFormat::Auto, BodyFormat::Json, BodyFormat::Fix, BodyFormat::Nvfix, BodyFormat::None }
    QueueKind { QueueKind::Classic, QueueKind::Quorum }
    AppendError { AppendError::Full, AppendError::TooLarge, AppendError::Stopped }
}

const NO: bool = false;
const YES: bool = true;

/// Whole seconds and nanoseconds.
impl Encode for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        (self.as_secs(), self.subsec_nanos()).put(out);
    }
}

impl Decode for Duration {
    fn take(input: &mut &[u8]) -> Option<Duration> {
        let (seconds, nanos): (u64, u32) = Decode::take(input)?;
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }
}

impl<T: Encode> Encode for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn take(input: &mut &[u8]) -> Option<Option<T>> {
        Some(if bool::take(input)? { Some(T::take(input)?) } else { None })
    }
}

impl<T: Encode, E: Encode> Encode for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }
}

impl<T: Decode, E: Decode> Decode for Result<T, E> {
    fn take(input: &mut &[u8]) -> Option<Result<T, E>> {
        Some(if bool::take(input)? { Ok(T::take(input)?) } else { Err(E::take(input)?) })
    }
}

impl<T: Encode> Encode for [T] {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|value| value.put(out));
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self[..].put(out);
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn take(input: &mut &[u8]) -> Option<Vec<T>> {
        // No room before: a length that is a lie costs nothing.
        let count = usize::take(input)?;
        (0..count).map(|_| T::take(input)).collect()
    }
}

impl Encode for Box<[u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        self[..].put(out);
    }
}

impl Decode for Box<[u8]> {
    fn take(input: &mut &[u8]) -> Option<Box<[u8]>> {
        let count = usize::take(input)?;
        let (bytes, rest) = input.split_at_checked(count)?;
        *input = rest;
        Some(bytes.into())
    }
}

impl Encode for str {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }
}

impl Encode for Box<str> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }
}

impl Decode for Box<str> {
    fn take(input: &mut &[u8]) -> Option<Box<str>> {
        let bytes = Box::<[u8]>::take(input)?;
        core::str::from_utf8(&bytes).ok().map(Box::from)
    }
}

/// Without what its values are hashed with, which changes nothing that a queue does.
impl Encode for Arc<ConsumerFilter> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.text(), self.format).put(out);
    }
}

impl Decode for Arc<ConsumerFilter> {
    fn take(input: &mut &[u8]) -> Option<Arc<ConsumerFilter>> {
        let (text, format): (Box<str>, _) = Decode::take(input)?;
        let filter = Filter::parse(&text, &Limits::default()).ok()?;
        Some(Arc::new(ConsumerFilter { filter, format, hash: HashState::default() }))
    }
}

impl Encode for Selected {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Selected::Matches { selectors, steps, dear } => Ok(((*selectors, *dear), *steps)),
            other => Err(*other == Selected::Lost),
        }
        .put(out);
    }
}

impl Decode for Selected {
    fn take(input: &mut &[u8]) -> Option<Selected> {
        Some(match <Result<((u64, u64), u64), bool>>::take(input)? {
            Ok(((selectors, dear), steps)) => Selected::Matches { selectors, steps, dear },
            Err(true) => Selected::Lost,
            Err(false) => Selected::Pending,
        })
    }
}

/// A place in the pool means nothing elsewhere: it is written without its number, and cannot be read.
impl Encode for Place {
    fn put(&self, out: &mut Vec<u8>) {
        self.position().map(|position| (position, self.is_spilled())).put(out);
    }
}

impl Decode for Place {
    fn take(input: &mut &[u8]) -> Option<Place> {
        let (position, spilled) = <Option<(Position, bool)> as Decode>::take(input)??;
        Some(Place::logged(position, spilled))
    }
}

/// A number for a long value, by which it is compared: FNV-1a over 64 bits.
#[derive(Debug)]
pub(crate) struct Digest(pub(crate) u64);

impl Digest {
    /// Of nothing.
    const EMPTY: Digest = Digest(0xcbf2_9ce4_8422_2325);

    /// Of how a value is shown, its parts one to a line.
    pub(crate) fn of(value: &dyn Debug) -> Digest {
        let mut digest = Digest::EMPTY;
        // A digest takes every text.
        let _ = write!(digest, "{value:#?}");
        digest
    }

    /// Of the parts of a message.
    pub(crate) fn of_message(view: &MessageView<'_>) -> Digest {
        let mut digest = Digest::EMPTY;
        for part in [view.exchange, view.routing_key, view.properties, view.body] {
            digest.add(&(part.len() as u64).to_le_bytes());
            digest.add(part);
        }
        digest
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}
