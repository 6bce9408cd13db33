//! Properties of class basic (AMQP 0-9-1, section 2.3.5.2): a word of flags and the fields it names.
//!
//! They travel as the bytes that came. [`PropertiesRef`] picks single fields out of them,
//! [`PropertiesRef::rewrite`] changes some and copies the rest, [`Properties`] owns all.

mod owned;
mod rewrite;

pub use owned::Properties;
pub use rewrite::{Change, Edit};

use crate::error::Malformed;
use crate::table::TableRef;
use crate::wire::Reader;

/// Properties without any field.
pub const EMPTY: [u8; 2] = [0, 0];
/// The delivery mode of messages that survive a restart in durable queues.
pub const PERSISTENT: u8 = 2;

/// A property; the number is its place in the list and, from the top, its bit in the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Property {
    ContentType,
    ContentEncoding,
    Headers,
    DeliveryMode,
    Priority,
    CorrelationId,
    ReplyTo,
    Expiration,
    MessageId,
    Timestamp,
    Type,
    UserId,
    AppId,
    ClusterId,
}

/// Number of properties of class basic.
const COUNT: u32 = 14;
/// Bits of the flags that name no property of class basic, continuation among them.
const UNKNOWN_FLAGS: u16 = 0b11;

impl Property {
    const fn bit(self) -> u16 {
        0x8000 >> self as u8
    }
}

/// Splits the field at `place` off. Short strings, tables: without their length.
#[inline]
fn take_field<'a>(place: u32, reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    match place {
        2 => reader.long(),
        3 | 4 => reader.slice(1),
        9 => reader.slice(8),
        _ => reader.short(),
    }
}

/// Properties in a buffer: what follows the body size in a content header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertiesRef<'a>(pub &'a [u8]);

impl<'a> PropertiesRef<'a> {
    /// Checks that the flags are known, every field is whole, the headers are a well-formed table
    /// and nothing follows. Short strings may hold any bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    #[inline]
    pub fn validate(self) -> Result<(), Malformed> {
        let mut reader = Reader::new(self.0);
        let mut flags = reader.u16()?;
        if flags & UNKNOWN_FLAGS != 0 {
            return Err(Malformed::Flags);
        }
        while flags != 0 {
            let place = flags.leading_zeros();
            let field = take_field(place, &mut reader)?;
            if place == Property::Headers as u32 {
                TableRef::decode(field)?;
            }
            flags &= !(0x8000 >> place);
        }
        if reader.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }

    fn flags(self) -> u16 {
        match self.0 {
            [high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        }
    }

    /// A field's bytes without their length; `None` when it is absent or the bytes are malformed.
    #[inline]
    #[must_use]
    pub fn field(self, property: Property) -> Option<&'a [u8]> {
        let flags = self.flags();
        let bit = property.bit();
        if flags & bit == 0 {
            return None;
        }
        let mut reader = Reader::new(self.0.get(2..)?);
        let mut earlier = flags & !(bit | (bit - 1));
        while earlier != 0 {
            let place = earlier.leading_zeros();
            take_field(place, &mut reader).ok()?;
            earlier &= !(0x8000 >> place);
        }
        take_field(property as u32, &mut reader).ok()
    }

    fn octet(self, property: Property) -> Option<u8> {
        self.field(property)?.first().copied()
    }

    /// Whether the message survives a restart in durable queues (delivery mode 2).
    #[inline]
    #[must_use]
    pub fn is_persistent(self) -> bool {
        self.delivery_mode() == Some(PERSISTENT)
    }

    /// 1 for transient, 2 for persistent messages.
    #[inline]
    #[must_use]
    pub fn delivery_mode(self) -> Option<u8> {
        self.octet(Property::DeliveryMode)
    }

    /// The priority in priority queues.
    #[inline]
    #[must_use]
    pub fn priority(self) -> Option<u8> {
        self.octet(Property::Priority)
    }

    /// The headers.
    #[must_use]
    pub fn headers(self) -> Option<TableRef<'a>> {
        self.field(Property::Headers).map(TableRef::trusted)
    }

    /// Seconds since 1970-01-01 UTC.
    #[must_use]
    pub fn timestamp(self) -> Option<u64> {
        let bytes = self.field(Property::Timestamp)?;
        bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
    }
}

macro_rules! short_getters {
    ($($(#[$doc:meta])* $name:ident $property:ident),* $(,)?) => {
        impl<'a> PropertiesRef<'a> {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(self) -> Option<&'a [u8]> {
                self.field(Property::$property)
            }
        )*}
    };
}

short_getters! {
    /// The MIME type of the body.
    content_type ContentType,
    /// The encoding of the body.
    content_encoding ContentEncoding,
    /// What a reply refers to.
    correlation_id CorrelationId,
    /// Where a reply goes.
    reply_to ReplyTo,
    /// The message's time to live, milliseconds as decimal digits.
    expiration Expiration,
    /// The application's id of the message.
    message_id MessageId,
    /// The application's type of the message.
    message_type Type,
    /// The user who published, checked by the broker.
    user_id UserId,
    /// The application that published.
    app_id AppId,
    /// Kept for old clients.
    cluster_id ClusterId,
}
