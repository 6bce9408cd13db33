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

    /// The word of flags; 0 where it is cut off.
    #[inline]
    #[must_use]
    pub fn flags(self) -> u16 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn all() -> Properties {
        let text = |text: &str| Some(String::from(text));
        Properties {
            content_type: text("text/plain"),
            content_encoding: text("gzip"),
            headers: Some(Table::new().with("x", 1i32).with("y", "z")),
            delivery_mode: Some(2),
            priority: Some(9),
            correlation_id: text("c"),
            reply_to: text("r"),
            expiration: text("1000"),
            message_id: text("m"),
            timestamp: Some(1_700_000_000),
            message_type: text("t"),
            user_id: text("guest"),
            app_id: text("a"),
            cluster_id: text(""),
        }
    }

    /// All subsets of the fields would be many; these are all with one field, and all without one.
    fn variants() -> Vec<Properties> {
        fn keep(full: &Properties, keeps: impl Fn(u32) -> bool) -> Properties {
            let mut some = full.clone();
            let mut place = 0;
            macro_rules! drop_unless_kept {
                ($($field:ident),*) => {$(
                    if !keeps(place) {
                        some.$field = None;
                    }
                    place += 1;
                )*};
            }
            drop_unless_kept!(
                content_type,
                content_encoding,
                headers,
                delivery_mode,
                priority,
                correlation_id,
                reply_to,
                expiration,
                message_id,
                timestamp,
                message_type,
                user_id,
                app_id,
                cluster_id
            );
            assert_eq!(place, COUNT);
            some
        }
        let full = all();
        let mut variants = Vec::from([full.clone(), Properties::default()]);
        for place in 0..COUNT {
            variants.push(keep(&full, |other| other == place));
            variants.push(keep(&full, |other| other != place));
        }
        variants
    }

    #[test]
    fn golden_bytes() {
        let properties = Properties {
            content_type: Some("a/b".into()),
            delivery_mode: Some(2),
            timestamp: Some(1),
            cluster_id: Some("c".into()),
            ..Properties::default()
        };
        let bytes = b"\x90\x44\x03a/b\x02\0\0\0\0\0\0\0\x01\x01c";
        assert_eq!(properties.to_bytes(), bytes);
        assert_eq!(Properties::decode(bytes), Ok(properties));
        assert_eq!(Properties::default().to_bytes(), EMPTY);
    }

    #[test]
    fn every_field_survives_a_round_trip_alone_and_together() {
        for properties in variants() {
            let bytes = properties.to_bytes();
            assert_eq!(Properties::decode(&bytes), Ok(properties.clone()));
            let view = PropertiesRef(&bytes);
            assert_eq!(view.is_persistent(), properties.delivery_mode == Some(2));
            let expiration = properties.expiration.as_deref().map(str::as_bytes);
            assert_eq!(view.expiration(), expiration);
        }
    }

    #[test]
    fn cut_properties_are_refused_and_read_without_harm() {
        let bytes = all().to_bytes();
        for end in 0..bytes.len() {
            let view = PropertiesRef(&bytes[..end]);
            assert_eq!(view.validate(), Err(Malformed::Short), "{end}");
            let _ = view.cluster_id();
            view.headers().map(|headers| headers.to_owned());
            assert!(view.rewrite(&Edit::default()).is_err());
        }
    }

    #[test]
    fn unknown_flags_and_trailing_bytes_are_refused() {
        assert_eq!(PropertiesRef(&[0, 1]).validate(), Err(Malformed::Flags));
        assert_eq!(PropertiesRef(&[0, 2]).validate(), Err(Malformed::Flags));
        assert_eq!(PropertiesRef(&[0, 0, 0]).validate(), Err(Malformed::Trailing));
        let headers = b"\x20\0\0\0\0\x03\x01kz";
        assert_eq!(PropertiesRef(headers).validate(), Err(Malformed::FieldType(b'z')));
    }

    #[test]
    fn short_strings_may_hold_any_bytes() {
        let bytes = b"\x04\0\x02\xff\xfe";
        assert_eq!(PropertiesRef(bytes).validate(), Ok(()));
        assert_eq!(PropertiesRef(bytes).correlation_id(), Some(&b"\xff\xfe"[..]));
    }

    #[test]
    fn an_empty_edit_changes_no_byte() {
        for properties in variants() {
            let bytes = properties.to_bytes();
            let rewritten = PropertiesRef(&bytes).rewrite(&Edit::default());
            assert_eq!(rewritten, Ok(bytes));
        }
    }

    #[test]
    fn an_edit_changes_what_it_names_and_nothing_else() {
        let table = Table::new().with("death", 3i64);
        let bytes = table.to_bytes();
        let edit = Edit {
            headers: Change::Set(bytes.as_ref()),
            delivery_mode: Change::Set(1),
            priority: Change::Remove,
            reply_to: Change::Set(b"token"),
            expiration: Change::Remove,
            timestamp: Change::Set(5),
        };
        for before in variants() {
            let expected = Properties {
                headers: Some(table.clone()),
                delivery_mode: Some(1),
                priority: None,
                reply_to: Some("token".into()),
                expiration: None,
                timestamp: Some(5),
                ..before.clone()
            };
            let bytes = PropertiesRef(&before.to_bytes()).rewrite(&edit).unwrap();
            assert_eq!(Properties::decode(&bytes), Ok(expected));
        }
    }
}
