//! Field tables (AMQP 0-9-1, section 4.2.5.5, with RabbitMQ's type letters).
//!
//! [`TableRef`] looks at the bytes as they came, [`Table`] owns what it holds. The letters are
//! `t b B s u I i l L f d D S A T F V x`; `l` is signed, `L` is unsigned.

mod value;
mod view;
mod writer;

pub use value::Value;
pub use view::{ArrayRef, Field, Fields, TableRef, ValueRef};
pub use writer::{FieldWriter, ValueWriter};

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// How deep tables and arrays may be nested; the outermost table counts as the first level.
pub const DEPTH_MAX: usize = 32;

/// An owned field table. It keeps the order of its fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(pub Vec<(String, Value)>);

impl Table {
    /// A table without fields.
    #[must_use]
    pub fn new() -> Table {
        Table::default()
    }

    /// The first field of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Sets a field; one of the same name is replaced where it stands.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// The same table with a field set, for building one in an expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Table {
        self.insert(name, value);
        self
    }

    /// Takes a field out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(index).1)
    }

    /// All fields in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the table has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the table with its length of four octets in front. Names are cut to 255 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        value::write_counted(out, |out| self.encode_fields(out));
    }

    /// The table's wire form, for methods, which borrow their arguments.
    #[must_use]
    pub fn to_bytes(&self) -> TableBytes {
        let mut bytes = Vec::new();
        self.encode_fields(&mut bytes);
        TableBytes(bytes.into_boxed_slice())
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            crate::wire::write_short(out, crate::wire::short_text(name).as_bytes());
            value.encode(out);
        }
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Table {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Table {
        let mut table = Table::new();
        for (name, value) in fields {
            table.insert(name, value);
        }
        table
    }
}

/// A table in its wire form without the length: what a table that is seldom looked at is kept as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableBytes(Box<[u8]>);

impl TableBytes {
    /// The table as an argument of a method.
    #[must_use]
    pub fn as_ref(&self) -> TableRef<'_> {
        TableRef::trusted(&self.0)
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the table has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Malformed;
    use alloc::vec;

    /// A table with every type.
    fn every_type() -> Table {
        Table::new()
            .with("bool", true)
            .with("i8", -8i8)
            .with("u8", 200u8)
            .with("i16", -300i16)
            .with("u16", 60_000u16)
            .with("i32", -70_000i32)
            .with("u32", 4_000_000_000u32)
            .with("i64", i64::MIN)
            .with("u64", u64::MAX)
            .with("f32", 1.5f32)
            .with("f64", -2.25f64)
            .with("decimal", Value::Decimal { scale: 2, value: 314 })
            .with("text", "grün")
            .with("bytes", vec![0u8, 255])
            .with("array", vec![Value::Void, 7i32.into(), vec![Value::Bool(false)].into()])
            .with("timestamp", Value::Timestamp(1_700_000_000))
            .with("table", Table::new().with("inner", Table::new().with("x", 1i32)))
            .with("void", Value::Void)
            .with("binary", Value::Binary(vec![1, 2, 3]))
    }

    /// `levels` tables inside each other.
    fn nested(levels: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 1..levels {
            let mut outer = vec![1, b'n', b'F'];
            outer.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            outer.append(&mut bytes);
            bytes = outer;
        }
        bytes
    }

    #[test]
    fn every_type_survives_a_round_trip() {
        let table = every_type();
        let bytes = table.to_bytes();
        let view = TableRef::decode(bytes.as_ref().bytes()).unwrap();
        assert_eq!(view.to_owned(), table);
        assert_eq!(view.to_owned().to_bytes(), bytes);
        for ((name, value), (other, view)) in table.iter().zip(view.iter()) {
            assert_eq!(name, other);
            assert_eq!(view.as_integer(), value.as_integer(), "{name}");
            assert_eq!(view.as_text(), value.as_text(), "{name}");
            assert_eq!(view.as_bool(), value.as_bool(), "{name}");
        }
    }

    #[test]
    fn fields_that_are_not_read_are_those_that_are() {
        let bytes = every_type().to_bytes();
        let bytes = bytes.as_ref().bytes();
        // Cut anywhere: what is whole is there.
        for end in 0..=bytes.len() {
            let view = TableRef::trusted(&bytes[..end]);
            let read: Vec<(&[u8], ValueRef<'_>)> =
                view.iter().map(|(name, value)| (name.as_bytes(), value)).collect();
            let fields = view.fields().map(|field| {
                let value = field.value().expect("it is whole");
                (&view.bytes()[field.name.0..field.name.1], value)
            });
            assert_eq!(fields.collect::<Vec<_>>(), read, "{end}");
        }
        assert_eq!(TableRef::trusted(b"\x01aZ\x01bV").fields().count(), 0);
    }

    #[test]
    fn types_lie_on_the_wire_as_their_letters_say() {
        let scalar = |value: Value| {
            let mut out = Vec::new();
            value.encode(&mut out);
            out
        };
        let golden: &[(Value, &[u8])] = &[
            (true.into(), b"t\x01"),
            ((-2i8).into(), b"b\xfe"),
            (254u8.into(), b"B\xfe"),
            ((-2i16).into(), b"s\xff\xfe"),
            (0x1234u16.into(), b"u\x12\x34"),
            ((-2i32).into(), b"I\xff\xff\xff\xfe"),
            (0x1234_5678u32.into(), b"i\x12\x34\x56\x78"),
            ((-2i64).into(), b"l\xff\xff\xff\xff\xff\xff\xff\xfe"),
            (1u64.into(), b"L\0\0\0\0\0\0\0\x01"),
            (1.0f32.into(), b"f\x3f\x80\0\0"),
            (1.0f64.into(), b"d\x3f\xf0\0\0\0\0\0\0"),
            (Value::Decimal { scale: 3, value: 5 }, b"D\x03\0\0\0\x05"),
            ("hi".into(), b"S\0\0\0\x02hi"),
            (vec![Value::Void, Value::Bool(false)].into(), b"A\0\0\0\x03Vt\0"),
            (Value::Timestamp(2), b"T\0\0\0\0\0\0\0\x02"),
            (Table::new().with("k", 1u8).into(), b"F\0\0\0\x04\x01kB\x01"),
            (Value::Void, b"V"),
            (Value::Binary(vec![9]), b"x\0\0\0\x01\x09"),
        ];
        for (value, bytes) in golden {
            assert_eq!(scalar(value.clone()), *bytes, "{value:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(TableRef::decode(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(TableRef::decode(&nested(DEPTH_MAX + 1)), Err(Malformed::Depth));
        let mut arrays = vec![1, b'a'];
        for level in (0..DEPTH_MAX).rev() {
            arrays.push(b'A');
            arrays.extend_from_slice(&(level as u32 * 5).to_be_bytes());
        }
        assert_eq!(TableRef::decode(&arrays), Err(Malformed::Depth));
    }

    #[test]
    fn unchecked_bytes_can_be_looked_at() {
        let deep = nested(20_000);
        let mut table = TableRef::trusted(&deep).to_owned();
        let mut levels = 1;
        while let Some(Value::Table(inner)) = table.remove("n") {
            table = inner;
            levels += 1;
        }
        assert_eq!(levels, DEPTH_MAX);
        assert_eq!(TableRef::trusted(b"\x05ab").iter().count(), 0);
    }

    #[test]
    fn a_cut_table_is_refused_at_every_offset_inside_a_field() {
        let bytes = every_type().to_bytes();
        let bytes = bytes.as_ref().bytes();
        let mut boundaries = 0;
        for end in 0..bytes.len() {
            match TableRef::decode(&bytes[..end]) {
                Ok(_) => boundaries += 1,
                Err(error) => assert_eq!(error, Malformed::Short),
            }
        }
        assert_eq!(boundaries, every_type().len());
    }

    #[test]
    fn malformed_tables_are_named() {
        assert_eq!(TableRef::decode(b"\x01kz"), Err(Malformed::FieldType(b'z')));
        assert_eq!(TableRef::decode(b"\x01\xffV"), Err(Malformed::Text));
        assert_eq!(TableRef::decode(b"\x01kA\0\0\0\x01q"), Err(Malformed::FieldType(b'q')));
        assert_eq!(TableRef::decode(b"\x01kF\xff\xff\xff\xff"), Err(Malformed::Short));
    }

    #[test]
    fn fields_are_found_replaced_and_removed() {
        let mut table = Table::new().with("a", 1i32).with("b", "two");
        table.insert("a", 3u64);
        assert_eq!(table.get("a").and_then(Value::as_integer), Some(3));
        assert_eq!(table.len(), 2);
        assert_eq!(table.remove("a"), Some(Value::U64(3)));
        assert_eq!(table.get("a"), None);
        let bytes = table.to_bytes();
        let found = bytes.as_ref().get("b").and_then(ValueRef::as_text);
        assert_eq!(found, Some("two"));
        assert_eq!(bytes.as_ref().get("a"), None);
    }

    #[test]
    fn a_place_leads_back_to_its_field() {
        let bytes = every_type().to_bytes();
        let table = bytes.as_ref();
        for (place, name, value) in table.places() {
            assert_eq!(table.at(place), Some((name, value)));
        }
        assert_eq!(table.places().count(), every_type().len());
        assert_eq!(table.at(bytes.len()), None);
        assert_eq!(table.at(bytes.len() + 1), None);
        let mut counted = Vec::new();
        table.encode(&mut counted);
        let mut expected = Vec::new();
        every_type().encode(&mut expected);
        assert_eq!(counted, expected);
    }

    #[test]
    fn integers_of_any_width_mean_the_same() {
        assert!(Value::I8(5).is_equivalent(&Value::U64(5)));
        assert!(!Value::I8(5).is_equivalent(&Value::U64(6)));
        assert!(!Value::I32(5).is_equivalent(&"5".into()));
        assert!(Value::U64(u64::MAX).is_equivalent(&Value::U64(u64::MAX)));
        assert!(!Value::U64(u64::MAX).is_equivalent(&Value::I64(-1)));
    }
}
