//! Field tables (AMQP 0-9-1, section 4.2.5.5, with RabbitMQ's type letters).
//!
//! [`TableRef`] looks at the bytes as they came, [`Table`] owns what it holds. The letters are
//! `t b B s u I i l L f d D S A T F V x`; `l` is signed, `L` is unsigned.

mod value;
mod view;

pub use value::Value;
pub use view::{ArrayRef, TableRef, ValueRef};

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
        TableBytes(bytes)
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

/// A table in its wire form without the length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableBytes(Vec<u8>);

impl TableBytes {
    /// The table as an argument of a method.
    #[must_use]
    pub fn as_ref(&self) -> TableRef<'_> {
        TableRef::trusted(&self.0)
    }
}
