//! Values of owned field tables.

use super::Table;
use alloc::string::String;
use alloc::vec::Vec;

/// A value of a field table. The letter of its type on the wire stands behind each variant.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`
    I64(i64),
    /// `L`
    U64(u64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: `value` divided by ten to the power of `scale`.
    Decimal {
        /// Number of decimal digits behind the point.
        scale: u8,
        /// The digits.
        value: u32,
    },
    /// `S`: bytes, mostly UTF-8 text.
    LongString(Vec<u8>),
    /// `A`
    Array(Vec<Value>),
    /// `T`: seconds since 1970-01-01 UTC.
    Timestamp(u64),
    /// `F`
    Table(Table),
    /// `V`
    Void,
    /// `x`
    Binary(Vec<u8>),
}

impl Value {
    /// The number of an integer of any width; `None` for other types and above the range.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        self.view_scalar().as_integer()
    }

    /// The text of a long string that is UTF-8.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::LongString(bytes) => core::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A boolean's value.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// An array's values.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(values) => Some(values),
            _ => None,
        }
    }

    /// A nested table.
    #[must_use]
    pub fn as_table(&self) -> Option<&Table> {
        match self {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Whether two values mean the same: integers of any width are compared by number.
    #[must_use]
    pub fn is_equivalent(&self, other: &Value) -> bool {
        match (self.as_integer(), other.as_integer()) {
            (Some(one), Some(two)) => one == two,
            _ => self == other,
        }
    }

    /// RabbitMQ's name of the type, as its error texts use it: `longstr`, `signedint`, `bool`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Bool(_) => "bool",
            Value::I8(_) => "byte",
            Value::U8(_) => "unsignedbyte",
            Value::I16(_) => "short",
            Value::U16(_) => "unsignedshort",
            Value::I32(_) => "signedint",
            Value::U32(_) => "unsignedint",
            Value::I64(_) => "long",
            Value::U64(_) => "unsignedlong",
            Value::F32(_) => "float",
            Value::F64(_) => "double",
            Value::Decimal { .. } => "decimal",
            Value::LongString(_) => "longstr",
            Value::Array(_) => "array",
            Value::Timestamp(_) => "timestamp",
            Value::Table(_) => "table",
            Value::Void => "void",
            Value::Binary(_) => "binary",
        }
    }

    /// The value as a view; arrays and tables, which have no wire form here, appear as void.
    fn view_scalar(&self) -> super::ValueRef<'_> {
        use super::ValueRef as View;
        match self {
            Value::Bool(value) => View::Bool(*value),
            Value::I8(value) => View::I8(*value),
            Value::U8(value) => View::U8(*value),
            Value::I16(value) => View::I16(*value),
            Value::U16(value) => View::U16(*value),
            Value::I32(value) => View::I32(*value),
            Value::U32(value) => View::U32(*value),
            Value::I64(value) => View::I64(*value),
            Value::U64(value) => View::U64(*value),
            Value::F32(value) => View::F32(*value),
            Value::F64(value) => View::F64(*value),
            Value::Decimal { scale, value } => View::Decimal { scale: *scale, value: *value },
            Value::LongString(bytes) => View::LongString(bytes),
            Value::Timestamp(seconds) => View::Timestamp(*seconds),
            Value::Binary(bytes) => View::Binary(bytes),
            Value::Void | Value::Array(_) | Value::Table(_) => View::Void,
        }
    }

    /// Appends the type's letter and the value.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::Array(values) => {
                out.push(b'A');
                write_counted(out, |out| {
                    for value in values {
                        value.encode(out);
                    }
                });
            }
            Value::Table(table) => {
                out.push(b'F');
                table.encode(out);
            }
            scalar => scalar.view_scalar().encode(out),
        }
    }
}

/// Appends what `write` appends with its length of four octets in front.
pub(super) fn write_counted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

macro_rules! values_from {
    ($($ty:ty => $variant:ident),* $(,)?) => {$(
        impl From<$ty> for Value {
            fn from(value: $ty) -> Value {
                Value::$variant(value)
            }
        }
    )*};
}

values_from! {
    bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64,
    u64 => U64, f32 => F32, f64 => F64, Vec<u8> => LongString, Vec<Value> => Array, Table => Table,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::LongString(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::LongString(text.into_bytes())
    }
}
