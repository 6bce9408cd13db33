//! Tables: what is well-formed can be walked, owned and encoded again.
#![no_main]

use lepus_amqp::table::{ArrayRef, ValueRef};
use lepus_amqp::{Table, TableRef};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(table) = TableRef::decode(bytes) else {
        return;
    };
    walk(table);
    let encoded = encode(&table.to_owned());
    let again = TableRef::decode(&encoded[4..]).expect("an encoded table is well-formed");
    assert_eq!(encode(&again.to_owned()), encoded);
});

fn encode(table: &Table) -> Vec<u8> {
    let mut out = Vec::new();
    table.encode(&mut out);
    out
}

fn walk(table: TableRef<'_>) {
    for (name, value) in table.iter() {
        assert!(table.get(name).is_some());
        look(value);
    }
}

fn walk_array(array: ArrayRef<'_>) {
    array.iter().for_each(look);
}

fn look(value: ValueRef<'_>) {
    let _ = (value.as_integer(), value.as_text(), value.as_bool());
    match value {
        ValueRef::Table(table) => walk(table),
        ValueRef::Array(array) => walk_array(array),
        _ => {}
    }
}
