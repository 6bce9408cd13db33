//! Filters: what is printed is read as the same tree, and the engine says of any body what the naive evaluator says.
//!
//! The text of a filter, a zero byte, how the body is to be read, the body.
#![no_main]

#[path = "../../crates/filter/tests/behaviour"]
mod behaviour {
    pub mod oracle;
}

use behaviour::oracle;
use lepus_amqp::PropertiesRef;
use lepus_amqp::properties::EMPTY;
use lepus_base::HashState;
use lepus_filter::{BodyFormat, Filter, FilterSet, Limits, Message, Meta, Scratch, SetLimits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let text = parts.next().unwrap_or_default();
    let Ok(text) = core::str::from_utf8(text) else { return };
    let Ok(filter) = Filter::parse(text, &Limits::default()) else { return };
    // The normal form may be longer than what was written, and so above the limits.
    let wide = Limits { text_bytes_max: 1 << 20, tokens_max: 1 << 20, ..Limits::default() };
    let again = Filter::parse(filter.normal(), &wide).expect("the normal form is a filter");
    assert_eq!(again.tree(), filter.tree(), "{filter}");
    assert_eq!(again.normal(), filter.normal());

    let Some([format, body @ ..]) = parts.next() else { return };
    let format = match format % 4 {
        0 => BodyFormat::Json,
        1 => BodyFormat::Fix,
        2 => BodyFormat::Nvfix,
        _ => BodyFormat::Auto,
    };
    let overflows = |error: serde_json::Error| error.to_string().starts_with("number out of range");
    if serde_json::from_slice::<serde_json::Value>(body).is_err_and(overflows) {
        return;
    }
    let properties = PropertiesRef(&EMPTY);
    let message = Message { properties, body, format, meta: Meta::default() };
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    set.add(&filter, 0).expect("there is room for one");
    let mut found = Vec::new();
    set.matches(&message, &mut Scratch::default(), &mut found);
    let expected = oracle::verdict(filter.tree(), &message) == Some(true);
    assert_eq!(!found.is_empty(), expected, "{filter}");
});
