//! Field tables as they lie in a buffer.

use super::{DEPTH_MAX, Table, TableBytes, Value};
use crate::error::Malformed;
use crate::wire::{Argument, Reader, Writer};
use alloc::string::String;
use alloc::vec::Vec;

/// A field table in a buffer, without its length. Comparing two compares their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRef<'a>(&'a [u8]);

impl<'a> TableRef<'a> {
    /// Checks the bytes that follow a table's length: every field is whole, its type is known, its
    /// name is UTF-8 and nothing is nested deeper than [`DEPTH_MAX`].
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &'a [u8]) -> Result<TableRef<'a>, Malformed> {
        check_table(bytes, 1)?;
        Ok(TableRef(bytes))
    }

    /// Bytes that were checked before, or that may be anything: looking at them is safe, and ends
    /// at the first field that is malformed.
    #[must_use]
    pub fn trusted(bytes: &'a [u8]) -> TableRef<'a> {
        TableRef(bytes)
    }

    /// The wire form without the length.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether the table has no fields.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All fields in their order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> {
        self.places().map(|(_, name, value)| (name, value))
    }

    /// All fields in their order, each with its place for [`TableRef::at`].
    pub fn places(self) -> impl Iterator<Item = (usize, &'a str, ValueRef<'a>)> {
        let mut reader = Reader::new(self.0);
        core::iter::from_fn(move || {
            let place = self.0.len() - reader.rest().len();
            let name = reader.text().ok()?;
            let value = ValueRef::read(&mut reader).ok()?;
            Some((place, name, value))
        })
    }

    /// All fields in their order, none of them read.
    #[must_use]
    pub fn fields(self) -> Fields<'a> {
        Fields { bytes: self.0, at: 0 }
    }

    /// The field at a place that [`TableRef::places`] gave.
    #[must_use]
    pub fn at(self, place: usize) -> Option<(&'a str, ValueRef<'a>)> {
        TableRef(self.0.get(place..)?).iter().next()
    }

    /// Appends the table with its length of four octets in front.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.0.len() as u32).to_be_bytes());
        out.extend_from_slice(self.0);
    }

    /// The first field of that name.
    #[must_use]
    pub fn get(self, name: &str) -> Option<ValueRef<'a>> {
        let mut reader = Reader::new(self.0);
        loop {
            // Names are compared as bytes: what they are was checked, or does not matter.
            let key = reader.short().ok()?;
            let value = ValueRef::read(&mut reader).ok()?;
            if key == name.as_bytes() {
                return Some(value);
            }
        }
    }

    /// A copy of the bytes.
    #[must_use]
    pub fn to_bytes(self) -> TableBytes {
        TableBytes(self.0.into())
    }

    /// A copy that owns its fields.
    #[must_use]
    pub fn to_owned(self) -> Table {
        self.to_table(1)
    }

    fn to_table(self, depth: usize) -> Table {
        let fields =
            self.iter().map(|(name, value)| (String::from(name), value.to_value(depth))).collect();
        Table(fields)
    }
}

/// The fields of a table, one after the other, for those who read few of them.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A field that was not read.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Where its name begins and ends in the table's bytes. It is UTF-8 in a table that was checked.
    pub name: (usize, usize),
    /// Its type's letter, and what follows it.
    value: (u8, &'a [u8]),
}

impl<'a> Field<'a> {
    /// Its value; `None` where that is malformed.
    #[inline(always)]
    #[must_use]
    pub fn value(self) -> Option<ValueRef<'a>> {
        let (letter, bytes) = self.value;
        ValueRef::of(letter, &mut Reader::new(bytes)).ok()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        let length = usize::from(*self.bytes.get(self.at)?);
        let name = (self.at + 1, self.at + 1 + length);
        let letter = *self.bytes.get(name.1)?;
        let rest = self.bytes.get(name.1 + 1..)?;
        let size = match SIZES[usize::from(letter)] {
            UNKNOWN => return None,
            COUNTED => 4 + u32::from_be_bytes(*rest.first_chunk()?) as usize,
            size => usize::from(size),
        };
        let value = (letter, rest.get(..size)?);
        self.at = name.1 + 1 + size;
        Some(Field { name, value })
    }
}

/// Bytes of a value by its type's letter.
const SIZES: [u8; 256] = {
    let mut sizes = [UNKNOWN; 256];
    let known = [
        (b't', 1),
        (b'b', 1),
        (b'B', 1),
        (b's', 2),
        (b'u', 2),
        (b'I', 4),
        (b'i', 4),
        (b'l', 8),
        (b'L', 8),
        (b'f', 4),
        (b'd', 8),
        (b'D', 5),
        (b'S', COUNTED),
        (b'A', COUNTED),
        (b'T', 8),
        (b'F', COUNTED),
        (b'V', 0),
        (b'x', COUNTED),
    ];
    let mut index = 0;
    while index < known.len() {
        sizes[known[index].0 as usize] = known[index].1;
        index += 1;
    }
    sizes
};
/// The letter of no type.
const UNKNOWN: u8 = 0xff;
/// That of a type whose values have their length in front.
const COUNTED: u8 = 0xfe;

impl<'a> Argument<'a> for TableRef<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<TableRef<'a>, Malformed> {
        TableRef::decode(reader.long()?)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.long(self.bytes());
    }
}

/// An array in a buffer, without its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayRef<'a>(&'a [u8]);

impl<'a> ArrayRef<'a> {
    /// Bytes that were an array's before, or that may be anything: looking at them is safe, and ends at the first
    /// value that is malformed.
    #[must_use]
    pub fn trusted(bytes: &'a [u8]) -> ArrayRef<'a> {
        ArrayRef(bytes)
    }

    /// The values as they stand on the wire.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// All values in their order.
    pub fn iter(self) -> impl Iterator<Item = ValueRef<'a>> {
        let mut reader = Reader::new(self.0);
        core::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            ValueRef::read(&mut reader).ok()
        })
    }
}

/// A value of a field table in a buffer; see [`Value`] for the variants.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum ValueRef<'a> {
    Bool(bool),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    F32(f32),
    F64(f64),
    Decimal { scale: u8, value: u32 },
    LongString(&'a [u8]),
    Array(ArrayRef<'a>),
    Timestamp(u64),
    Table(TableRef<'a>),
    Void,
    Binary(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// Reads a letter and its value. What is nested is delimited and not looked at.
    fn read(reader: &mut Reader<'a>) -> Result<ValueRef<'a>, Malformed> {
        let letter = reader.u8()?;
        ValueRef::of(letter, reader)
    }

    /// Reads a value whose letter was read.
    #[inline(always)]
    fn of(letter: u8, reader: &mut Reader<'a>) -> Result<ValueRef<'a>, Malformed> {
        Ok(match letter {
            b't' => ValueRef::Bool(reader.u8()? != 0),
            b'b' => ValueRef::I8(i8::from_be_bytes(reader.array()?)),
            b'B' => ValueRef::U8(reader.u8()?),
            b's' => ValueRef::I16(i16::from_be_bytes(reader.array()?)),
            b'u' => ValueRef::U16(reader.u16()?),
            b'I' => ValueRef::I32(i32::from_be_bytes(reader.array()?)),
            b'i' => ValueRef::U32(reader.u32()?),
            b'l' => ValueRef::I64(i64::from_be_bytes(reader.array()?)),
            b'L' => ValueRef::U64(reader.u64()?),
            b'f' => ValueRef::F32(f32::from_be_bytes(reader.array()?)),
            b'd' => ValueRef::F64(f64::from_be_bytes(reader.array()?)),
            b'D' => ValueRef::Decimal { scale: reader.u8()?, value: reader.u32()? },
            b'S' => ValueRef::LongString(reader.long()?),
            b'A' => ValueRef::Array(ArrayRef(reader.long()?)),
            b'T' => ValueRef::Timestamp(reader.u64()?),
            b'F' => ValueRef::Table(TableRef(reader.long()?)),
            b'V' => ValueRef::Void,
            b'x' => ValueRef::Binary(reader.long()?),
            letter => return Err(Malformed::FieldType(letter)),
        })
    }

    /// The number of an integer of any width; `None` for other types and above the range.
    #[must_use]
    pub fn as_integer(self) -> Option<i64> {
        match self {
            ValueRef::I8(value) => Some(value.into()),
            ValueRef::U8(value) => Some(value.into()),
            ValueRef::I16(value) => Some(value.into()),
            ValueRef::U16(value) => Some(value.into()),
            ValueRef::I32(value) => Some(value.into()),
            ValueRef::U32(value) => Some(value.into()),
            ValueRef::I64(value) => Some(value),
            ValueRef::U64(value) => i64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The text of a long string that is UTF-8.
    #[must_use]
    pub fn as_text(self) -> Option<&'a str> {
        match self {
            ValueRef::LongString(bytes) => core::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A boolean's value.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        match self {
            ValueRef::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A nested table.
    #[must_use]
    pub fn as_table(self) -> Option<TableRef<'a>> {
        match self {
            ValueRef::Table(table) => Some(table),
            _ => None,
        }
    }

    /// A copy that owns what it holds.
    #[must_use]
    pub fn to_owned(self) -> Value {
        self.to_value(1)
    }

    /// Values nested deeper than any checked table can hold become void.
    fn to_value(self, depth: usize) -> Value {
        match self {
            ValueRef::Bool(value) => Value::Bool(value),
            ValueRef::I8(value) => Value::I8(value),
            ValueRef::U8(value) => Value::U8(value),
            ValueRef::I16(value) => Value::I16(value),
            ValueRef::U16(value) => Value::U16(value),
            ValueRef::I32(value) => Value::I32(value),
            ValueRef::U32(value) => Value::U32(value),
            ValueRef::I64(value) => Value::I64(value),
            ValueRef::U64(value) => Value::U64(value),
            ValueRef::F32(value) => Value::F32(value),
            ValueRef::F64(value) => Value::F64(value),
            ValueRef::Decimal { scale, value } => Value::Decimal { scale, value },
            ValueRef::LongString(bytes) => Value::LongString(bytes.into()),
            ValueRef::Timestamp(seconds) => Value::Timestamp(seconds),
            ValueRef::Binary(bytes) => Value::Binary(bytes.into()),
            ValueRef::Array(array) if depth < DEPTH_MAX => {
                Value::Array(array.iter().map(|value| value.to_value(depth + 1)).collect())
            }
            ValueRef::Table(table) if depth < DEPTH_MAX => Value::Table(table.to_table(depth + 1)),
            ValueRef::Void | ValueRef::Array(_) | ValueRef::Table(_) => Value::Void,
        }
    }

    /// Appends the type's letter and the value.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        let mut letter = |letter: u8, bytes: &[u8]| {
            out.push(letter);
            out.extend_from_slice(bytes);
        };
        match self {
            ValueRef::Bool(value) => letter(b't', &[u8::from(value)]),
            ValueRef::I8(value) => letter(b'b', &value.to_be_bytes()),
            ValueRef::U8(value) => letter(b'B', &[value]),
            ValueRef::I16(value) => letter(b's', &value.to_be_bytes()),
            ValueRef::U16(value) => letter(b'u', &value.to_be_bytes()),
            ValueRef::I32(value) => letter(b'I', &value.to_be_bytes()),
            ValueRef::U32(value) => letter(b'i', &value.to_be_bytes()),
            ValueRef::I64(value) => letter(b'l', &value.to_be_bytes()),
            ValueRef::U64(value) => letter(b'L', &value.to_be_bytes()),
            ValueRef::F32(value) => letter(b'f', &value.to_be_bytes()),
            ValueRef::F64(value) => letter(b'd', &value.to_be_bytes()),
            ValueRef::Timestamp(seconds) => letter(b'T', &seconds.to_be_bytes()),
            ValueRef::Void => letter(b'V', &[]),
            ValueRef::Decimal { scale, value } => {
                letter(b'D', &[scale]);
                out.extend_from_slice(&value.to_be_bytes());
            }
            ValueRef::LongString(bytes) => counted(out, b'S', bytes),
            ValueRef::Binary(bytes) => counted(out, b'x', bytes),
            ValueRef::Array(array) => counted(out, b'A', array.0),
            ValueRef::Table(table) => counted(out, b'F', table.0),
        }
    }
}

fn counted(out: &mut Vec<u8>, letter: u8, bytes: &[u8]) {
    out.push(letter);
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn check_table(bytes: &[u8], depth: usize) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        reader.text()?;
        check_value(&mut reader, depth)?;
    }
    Ok(())
}

fn check_value(reader: &mut Reader<'_>, depth: usize) -> Result<(), Malformed> {
    match ValueRef::read(reader)? {
        ValueRef::Array(_) | ValueRef::Table(_) if depth >= DEPTH_MAX => Err(Malformed::Depth),
        ValueRef::Array(array) => {
            let mut values = Reader::new(array.0);
            while !values.is_empty() {
                check_value(&mut values, depth + 1)?;
            }
            Ok(())
        }
        ValueRef::Table(table) => check_table(table.0, depth + 1),
        _ => Ok(()),
    }
}
