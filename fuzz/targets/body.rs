//! Bodies in JSON: whatever the bytes are, what the scanner takes out of them is what `serde_json` reads.
//!
//! The bytes are a body. Filters that ask for the same few fields in different ways are set at it together, and for each
//! text and number among these fields one that asks for exactly that.
#![no_main]

#[path = "../../crates/filter/tests/behaviour"]
mod behaviour {
    pub mod oracle;
}

use behaviour::oracle;
use lepus_amqp::properties::EMPTY;
use lepus_base::HashState;
use lepus_filter::{BodyFormat, Filter, FilterSet, Limits, Message, Meta, Scratch, SetLimits};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The fields, as filters and as the oracle call them.
const FIELDS: [(&str, &str); 10] = [
    ("b.a", "/a"),
    ("b.b", "/b"),
    ("b.a.a", "/a/a"),
    ("b.a.b", "/a/b"),
    ("b.b[0]", "/b/0"),
    ("b.b[2]", "/b/2"),
    ("b.b[0].a", "/b/0/a"),
    ("b.[long name]", "/long name"),
    ("b['é\"']", "/é\""),
    ("b.a.a.a.b", "/a/a/a/b"),
];

/// What is asked of each.
const ASKED: [&str; 9] = [
    "_ IS MISSING",
    "_ IS NULL",
    "_ IS TRUE",
    "_ IS FALSE",
    "_ >= 0",
    "_ < 1.5",
    "_ >= 'a'",
    "LENGTH(_) > 1",
    "SIZE(_) > 1",
];

fn filter(text: &str) -> Option<Filter> {
    Filter::parse(text, &Limits::default()).ok()
}

/// One that asks for exactly this value.
fn exactly(field: &str, value: &Value) -> Option<Filter> {
    match value {
        Value::String(text) => filter(&format!("{field} = '{}'", text.replace('\'', "''"))),
        Value::Number(number) => filter(&format!("{field} = {number}")),
        _ => None,
    }
}

fuzz_target!(|body: &[u8]| {
    let read = serde_json::from_slice::<Value>(body);
    if let Err(error) = &read
        && error.to_string().starts_with("number out of range")
    {
        return;
    }
    let asked = |field| ASKED.iter().map(move |asked| asked.replace('_', field));
    let texts = FIELDS.iter().flat_map(|(field, _)| asked(field));
    let mut filters: Vec<Filter> =
        texts.map(|text| filter(&text).expect("it is a filter")).collect();
    let common = filters.len();
    for (field, pointer) in FIELDS {
        let value = read.as_ref().ok().and_then(|read| read.pointer(pointer));
        filters.extend(value.and_then(|value| exactly(field, value)));
    }
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    for (number, filter) in filters.iter().enumerate() {
        set.add(filter, number as u64).expect("there is room");
    }
    let message = Message::new(&EMPTY, body, BodyFormat::Json, Meta::default());
    let mut found = Vec::new();
    set.matches(&message, u64::MAX, &mut Scratch::default(), &mut found);
    let mut matched = vec![false; filters.len()];
    found.iter().for_each(|found| matched[found.target as usize] = true);
    for (number, filter) in filters.iter().enumerate() {
        let expected = oracle::verdict(filter.tree(), &message) == Some(true);
        assert_eq!(matched[number], expected, "{filter}");
        assert!(number < common || expected, "{filter}: the oracle reads something else");
    }
});
