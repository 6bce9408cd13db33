//! Field tables written straight in their wire form.

use alloc::vec::Vec;

use super::ValueRef;
use super::value::write_counted;
use crate::wire::{short_text, write_short};

/// Appends the fields of a table to bytes, without the table's length.
#[derive(Debug)]
pub struct FieldWriter<'a>(&'a mut Vec<u8>);

impl<'a> FieldWriter<'a> {
    /// One that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> FieldWriter<'a> {
        FieldWriter(out)
    }

    /// A field with this value. The name is cut to 255 bytes; that no other field has it is the caller's concern.
    pub fn field(&mut self, name: &str, value: ValueRef<'_>) {
        self.name(name);
        value.encode(self.0);
    }

    /// A field with this text.
    pub fn text(&mut self, name: &str, text: &str) {
        self.field(name, ValueRef::LongString(text.as_bytes()));
    }

    /// A field with an array of what `write` writes.
    pub fn array(&mut self, name: &str, write: impl FnOnce(&mut ValueWriter<'_>)) {
        self.name(name);
        self.0.push(b'A');
        write_counted(self.0, |out| write(&mut ValueWriter(out)));
    }

    fn name(&mut self, name: &str) {
        write_short(self.0, short_text(name).as_bytes());
    }
}

/// Appends the values of an array to bytes.
#[derive(Debug)]
pub struct ValueWriter<'a>(&'a mut Vec<u8>);

impl ValueWriter<'_> {
    /// One value.
    pub fn value(&mut self, value: ValueRef<'_>) {
        value.encode(self.0);
    }

    /// A table with the fields that `write` writes.
    pub fn table(&mut self, write: impl FnOnce(&mut FieldWriter<'_>)) {
        self.0.push(b'F');
        write_counted(self.0, |out| write(&mut FieldWriter(out)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Table, TableRef, Value};
    use super::*;
    use alloc::vec;

    #[test]
    fn what_is_written_is_what_a_table_encodes() {
        let inner = Table::new().with("count", 7_i64).with("queue", "q");
        let table = Table::new()
            .with("name", "value")
            .with("list", vec![Value::Table(inner), Value::from("text"), Value::from(true)]);
        let mut bytes = Vec::new();
        let mut fields = FieldWriter::new(&mut bytes);
        fields.text("name", "value");
        fields.array("list", |list| {
            list.table(|entry| {
                entry.field("count", ValueRef::I64(7));
                entry.text("queue", "q");
            });
            list.value(ValueRef::LongString(b"text"));
            list.value(ValueRef::Bool(true));
        });
        assert_eq!(TableRef::decode(&bytes).map(TableRef::to_owned), Ok(table.clone()));
        assert_eq!(table.to_bytes().as_ref().bytes(), bytes);
    }
}
