//! Changing some properties and copying the others as they came.

use super::{COUNT, PropertiesRef, take_field};
use crate::error::Malformed;
use crate::table::TableRef;
use crate::wire::{Reader, write_short};
use alloc::vec::Vec;

/// What happens to one property.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Change<T> {
    /// It stays as it came, or absent.
    #[default]
    Keep,
    /// It goes.
    Remove,
    /// It gets this value, whether it was there or not.
    Set(T),
}

/// The changes that the broker makes to a message's properties.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Edit<'a> {
    /// The headers.
    pub headers: Change<TableRef<'a>>,
    /// The delivery mode.
    pub delivery_mode: Change<u8>,
    /// The priority.
    pub priority: Change<u8>,
    /// Where a reply goes; cut to 255 bytes.
    pub reply_to: Change<&'a [u8]>,
    /// The time to live; cut to 255 bytes.
    pub expiration: Change<&'a [u8]>,
    /// The time of publishing in seconds since 1970-01-01 UTC.
    pub timestamp: Change<u64>,
}

/// Decides about one property: whether it was handled by `write`.
enum Written {
    No,
    Absent,
    Yes,
}

impl Edit<'_> {
    /// The flags of the properties that it concerns.
    fn places(&self) -> u16 {
        fn flag<T>(change: &Change<T>, place: u32) -> u16 {
            if matches!(change, Change::Keep) { 0 } else { 0x8000 >> place }
        }
        flag(&self.headers, 2)
            | flag(&self.delivery_mode, 3)
            | flag(&self.priority, 4)
            | flag(&self.reply_to, 6)
            | flag(&self.expiration, 7)
            | flag(&self.timestamp, 9)
    }

    fn write(&self, place: u32, out: &mut Vec<u8>) -> Written {
        fn apply<T>(change: &Change<T>, write: impl FnOnce(&T)) -> Written {
            match change {
                Change::Keep => Written::No,
                Change::Remove => Written::Absent,
                Change::Set(value) => {
                    write(value);
                    Written::Yes
                }
            }
        }
        match place {
            2 => apply(&self.headers, |table| table.encode(out)),
            3 => apply(&self.delivery_mode, |octet| out.push(*octet)),
            4 => apply(&self.priority, |octet| out.push(*octet)),
            6 => apply(&self.reply_to, |bytes| write_short(out, bytes)),
            7 => apply(&self.expiration, |bytes| write_short(out, bytes)),
            9 => apply(&self.timestamp, |seconds| {
                out.extend_from_slice(&seconds.to_be_bytes());
            }),
            _ => Written::No,
        }
    }
}

impl PropertiesRef<'_> {
    /// The properties with `edit` applied; what it keeps is copied byte by byte.
    ///
    /// # Errors
    /// When the bytes are not well-formed properties.
    pub fn rewrite(self, edit: &Edit<'_>) -> Result<Vec<u8>, Malformed> {
        let headers = match edit.headers {
            Change::Set(headers) => headers.bytes().len(),
            _ => 0,
        };
        let mut out = Vec::with_capacity(self.0.len() + headers + 64);
        self.rewrite_into(edit, &mut out)?;
        Ok(out)
    }

    /// Appends the properties with `edit` applied to `out`.
    ///
    /// # Errors
    /// When the bytes are not well-formed properties; `out` then ends with a part of them.
    pub fn rewrite_into(self, edit: &Edit<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut reader = Reader::new(self.0);
        let flags = reader.u16()?;
        let start = out.len();
        out.extend_from_slice(&[0, 0]);
        let mut written = 0u16;
        let known = u16::MAX << (16 - COUNT);
        let mut places = (flags | edit.places()) & known;
        while places != 0 {
            let place = places.leading_zeros();
            let bit = 0x8000 >> place;
            places &= !bit;
            let before = reader.rest();
            if flags & bit != 0 {
                take_field(place, &mut reader)?;
            }
            let raw = &before[..before.len() - reader.rest().len()];
            match edit.write(place, out) {
                Written::Yes => written |= bit,
                Written::Absent => {}
                Written::No => {
                    out.extend_from_slice(raw);
                    written |= flags & bit;
                }
            }
        }
        out[start..start + 2].copy_from_slice(&written.to_be_bytes());
        Ok(())
    }
}
