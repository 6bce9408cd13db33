//! Filters: what is printed is read as the same tree, and the engine says of any message what the naive evaluator says.
//!
//! The text of a filter, a zero byte, how the body is to be read; with its highest bit, the length of the properties as two
//! bytes, and these; the body.
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

/// The message behind the text of a filter, if it is one that a broker takes and the evaluator can read.
fn message(bytes: &[u8]) -> Option<Message<'_>> {
    let (first, rest) = bytes.split_first()?;
    let format = match first % 4 {
        0 => BodyFormat::Json,
        1 => BodyFormat::Fix,
        2 => BodyFormat::Nvfix,
        _ => BodyFormat::Auto,
    };
    let (properties, body) = match first & 0x80 {
        0 => (&EMPTY[..], rest),
        _ => {
            let (length, rest) = rest.split_first_chunk()?;
            rest.split_at_checked(u16::from_be_bytes(*length).into())?
        }
    };
    PropertiesRef(properties).validate().ok()?;
    let overflows = |error: serde_json::Error| error.to_string().starts_with("number out of range");
    let is_overflow = serde_json::from_slice::<serde_json::Value>(body).is_err_and(overflows);
    (!is_overflow).then(|| Message::new(properties, body, format, Meta::default()))
}

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

    let Some(message) = parts.next().and_then(message) else { return };
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    set.add(&filter, 0).expect("there is room for one");
    assert!(set.len_of(lepus_filter::Way::LookedUp) >= filter.is_looked_up().into(), "{filter}");
    let mut found = Vec::new();
    set.matches(&message, u64::MAX, &mut Scratch::default(), &mut found);
    let expected = oracle::verdict(filter.tree(), &message) == Some(true);
    assert_eq!(!found.is_empty(), expected, "{filter}");
});
