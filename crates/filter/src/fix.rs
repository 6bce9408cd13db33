//! FIX and NVFIX: `tag=value` after `tag=value`, without a data dictionary.
//!
//! What has no `=` is no field. A value that holds the separator, as FIX's data fields may, ends there.

use crate::message::BodyKind;
use crate::steps::{self, Steps};
use crate::trie::Trie;
use crate::value::{Source, Span, Value};
use alloc::vec::Vec;

/// SOH, which ends a field.
const SOH: u8 = 1;

/// What ends a field: SOH, or `|` in a body of NVFIX that has no SOH.
pub(crate) fn separator(kind: BodyKind, body: &[u8]) -> u8 {
    if kind == BodyKind::Nvfix && !body.contains(&SOH) { b'|' } else { SOH }
}

/// Writes the first value of each wanted tag into its slot; the slots are all missing before.
pub(crate) fn scan(
    body: &[u8],
    separator: u8,
    trie: &Trie,
    slots: &mut [Value],
    steps: &mut Steps,
) {
    if trie.is_empty() {
        return;
    }
    for (start, equals, end) in fields(body, separator) {
        steps.allow(steps::FIELD);
        if let Some(slot) = trie.name(0, body, start, equals).and_then(|node| trie.slot(node))
            && matches!(slots[slot], Value::Missing)
        {
            slots[slot] = untyped(equals + 1, end);
        }
    }
}

/// Appends all values of a tag.
pub(crate) fn all(body: &[u8], separator: u8, tag: &[u8], out: &mut Vec<Value>) {
    let same = fields(body, separator).filter(|(start, equals, _)| &body[*start..*equals] == tag);
    out.extend(same.map(|(_, equals, end)| untyped(equals + 1, end)));
}

fn untyped(start: usize, end: usize) -> Value {
    Span::new(Source::Body, start, end).map_or(Value::Missing, Value::Untyped)
}

/// Each field: where it begins, its `=` and its end.
fn fields(body: &[u8], separator: u8) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = 0;
    core::iter::from_fn(move || {
        while at < body.len() {
            let start = at;
            let length = body[at..].iter().position(|byte| *byte == separator);
            let end = length.map_or(body.len(), |length| start + length);
            at = end + 1;
            if let Some(equals) = body[start..end].iter().position(|byte| *byte == b'=') {
                return Some((start, start + equals, end));
            }
        }
        None
    })
}
