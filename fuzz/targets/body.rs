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
use std::sync::LazyLock;

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
const ASKED: [&str; 5] = ["_ IS MISSING", "_ IS NULL", "_ IS TRUE", "_ >= 0", "SIZE(_) > 1"];

/// Filters that are asked together.
struct Asked {
    filters: Vec<Filter>,
    set: FilterSet,
}

impl Asked {
    fn of(filters: Vec<Filter>) -> Asked {
        let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
        for (number, filter) in filters.iter().enumerate() {
            set.add(filter, number as u64).expect("there is room");
        }
        Asked { filters, set }
    }

    /// Compares what they say with what the oracle says of each; whether all match.
    fn check(&self, message: &Message<'_>) -> bool {
        let mut found = Vec::new();
        self.set.matches(message, u64::MAX, &mut Scratch::default(), &mut found);
        let mut matched = vec![false; self.filters.len()];
        found.iter().for_each(|found| matched[found.target as usize] = true);
        for (filter, matched) in self.filters.iter().zip(&matched) {
            let expected = oracle::verdict(filter.tree(), message) == Some(true);
            assert_eq!(*matched, expected, "{filter}");
        }
        matched.iter().all(|matched| *matched)
    }
}

/// What is asked of every body.
static ALWAYS: LazyLock<Asked> = LazyLock::new(|| {
    let of = |field| ASKED.iter().map(move |asked: &&str| asked.replace('_', field));
    let texts = FIELDS.iter().flat_map(|(field, _)| of(field));
    Asked::of(texts.map(|text| filter(&text).expect("it is a filter")).collect())
});

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
    let message = Message::new(&EMPTY, body, BodyFormat::Json, Meta::default());
    ALWAYS.check(&message);
    let Ok(read) = read else { return };
    let exact = FIELDS.iter().filter_map(|(field, pointer)| exactly(field, read.pointer(pointer)?));
    assert!(Asked::of(exact.collect()).check(&message), "the oracle reads something else");
});
