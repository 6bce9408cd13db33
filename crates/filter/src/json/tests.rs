//! The scanner against `serde_json`.

use super::*;
use crate::path::Step;
use crate::steps::Steps;
use crate::trie::Trie;
use crate::value::{Source, Value};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use lepus_base::Rng;
use serde_json::Value as Json;

const PATHS: [&[&str]; 12] = [
    &["a"],
    &["b"],
    &["a", "a"],
    &["a", "b"],
    &["b", "a", "a"],
    &["b", "#0"],
    &["b", "#2"],
    &["b", "#0", "a"],
    &["long name"],
    &["long name", "a"],
    &["é\""],
    &["#1", "a"],
];

fn step(text: &str) -> Step {
    match text.strip_prefix('#') {
        Some(index) => Step::Index(index.parse().unwrap()),
        None => Step::Name(text.into()),
    }
}

fn paths() -> Vec<Vec<Step>> {
    PATHS.iter().map(|path| path.iter().map(|text| step(text)).collect()).collect()
}

fn find<'j>(json: &'j Json, path: &[Step]) -> Option<&'j Json> {
    path.iter().try_fold(json, |json, step| match step {
        Step::Name(name) => json.as_object()?.get(&**name),
        Step::Index(index) => json.as_array()?.get(*index as usize),
        Step::Every => None,
    })
}

/// Whether a value is what the oracle found.
fn is_same(value: Value, json: Option<&Json>, text: &[u8], made: &[u8]) -> bool {
    let bytes = |span: crate::value::Span| {
        let whole = if span.source == Source::Made { made } else { text };
        &whole[span.start as usize..(span.start + span.length) as usize]
    };
    match (value, json) {
        (Value::Missing, None) | (Value::Null, Some(Json::Null)) => true,
        (Value::Bool(one), Some(Json::Bool(two))) => one == *two,
        (Value::Text(span), Some(Json::String(two))) => bytes(span) == two.as_bytes(),
        (Value::Number(one), Some(Json::Number(two))) => match one.wide() {
            Some(wide) => two.as_i128() == Some(wide),
            None => !two.is_i64() && !two.is_u64() && two.as_f64() == Some(one.to_float()),
        },
        (Value::Array(span), Some(json @ Json::Array(_)))
        | (Value::Object(span), Some(json @ Json::Object(_))) => {
            serde_json::from_slice::<Json>(bytes(span)).is_ok_and(|inside| inside == *json)
        }
        _ => false,
    }
}

/// Scans a text and compares with the oracle. Whether it is JSON.
fn check(text: &[u8], room: &mut Scan) -> bool {
    let paths = paths();
    let mut trie = Trie::default();
    paths.iter().zip(0..).for_each(|(path, slot)| trie.insert(path, slot));
    let mut steps = Steps::new(u64::MAX);
    let mut slots = Vec::from([Value::Missing; PATHS.len()]);
    let mut made = Vec::new();
    let scanned = scan(text, &trie, &mut slots, &mut made, room, &mut steps);
    let shown = String::from_utf8_lossy(text);
    let json = match serde_json::from_slice::<Json>(text) {
        Ok(json) => json,
        // What overflows is a float here.
        Err(error) if format!("{error}").starts_with("number out of range") => return false,
        Err(error) => {
            assert_eq!(scanned, Err(Invalid), "{shown}: {error}");
            return false;
        }
    };
    assert_eq!(scanned, Ok(()), "{shown}");
    for (path, value) in paths.iter().zip(slots) {
        let expected = find(&json, path);
        assert!(
            is_same(value, expected, text, &made),
            "{shown}: {path:?} is {value:?}, not {expected:?}"
        );
    }
    // Whether it is valid does not depend on what is wanted.
    assert_eq!(
        scan(text, &Trie::default(), &mut [], &mut made, room, &mut steps),
        Ok(()),
        "{shown}"
    );
    true
}

fn document(rng: &mut Rng, depth: u32, out: &mut String) {
    let space = |rng: &mut Rng, out: &mut String| {
        if rng.chance(1, 4) {
            out.push([' ', '\n', '\r', '\t'][rng.below(4) as usize]);
        }
    };
    space(rng, out);
    let keys = ["a", "b", "long name", "é\\\"", "\\u0061", "x", "longer name", ""];
    let scalars = [
        "0",
        "-0",
        "1",
        "-12",
        "1.5",
        "1e3",
        "-0.1E-2",
        "9223372036854775808",
        "18446744073709551616",
        "1E400",
        "true",
        "false",
        "null",
        "\"\"",
        "\"abc\"",
        "\"\\u00e9\\n\\ud83e\\udd55\"",
        "\"Grün und lang genug\"",
        "\"\\\\\\/\\b\"",
        "123456789.123456789012",
        "0.30000000000000004",
    ];
    match rng.below(if depth == 0 { 3 } else { 10 }) {
        0..3 => out.push_str(scalars[rng.below(scalars.len() as u64) as usize]),
        3..5 => {
            out.push('[');
            for index in 0..rng.below(4) {
                if index > 0 {
                    out.push(',');
                }
                document(rng, depth - 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            for index in 0..rng.below(6) {
                if index > 0 {
                    out.push(',');
                }
                space(rng, out);
                out.push_str(&format!("\"{}\"", keys[rng.below(keys.len() as u64) as usize]));
                space(rng, out);
                out.push(':');
                document(rng, depth - 1, out);
            }
            space(rng, out);
            out.push('}');
        }
    }
    space(rng, out);
}

#[test]
fn every_document_is_read_as_the_oracle_reads_it() {
    let mut rng = Rng::new(1);
    let mut room = Scan::default();
    let mut valid = 0;
    for _ in 0..20_000 {
        let mut text = String::new();
        document(&mut rng, 4, &mut text);
        valid += u32::from(check(text.as_bytes(), &mut room));
        // And with some bytes wrong.
        let mut bytes = text.into_bytes();
        for _ in 0..=rng.below(2) {
            let at = rng.below(bytes.len() as u64) as usize;
            let signs = b"{}[]\",:\\0-.eE tu\x01\x80\xc3";
            match rng.below(3) {
                0 if bytes.len() > 1 => drop(bytes.remove(at)),
                1 => bytes.insert(at, signs[rng.below(signs.len() as u64) as usize]),
                _ => bytes[at] = signs[rng.below(signs.len() as u64) as usize],
            }
        }
        check(&bytes, &mut room);
    }
    assert!(valid > 10_000, "{valid}");
}

#[test]
fn nesting_has_a_limit_and_its_cost_is_that_of_the_text() {
    let mut room = Scan::default();
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let mut valid = |text: &str| {
        let mut steps = Steps::new(u64::MAX);
        let trie = Trie::default();
        scan(text.as_bytes(), &trie, &mut [], &mut Vec::new(), &mut room, &mut steps).is_ok()
    };
    assert!(valid(&nested(DEPTH_MAX)));
    assert!(!valid(&nested(DEPTH_MAX + 1)));
    assert!(!valid(&nested(1_000_000)));
    assert!(serde_json::from_str::<Json>(&nested(DEPTH_MAX)).is_ok());
    assert!(serde_json::from_str::<Json>(&nested(DEPTH_MAX + 1)).is_err());
}

#[test]
fn a_name_that_comes_again_takes_all_below_the_first_away() {
    let mut room = Scan::default();
    for text in [
        r#"{"a": {"a": 1, "b": 2}, "a": {"b": 3}}"#,
        r#"{"a": {"a": 1, "b": 2}, "b": [1, 2, 3], "a": 5, "b": {"a": {"a": 1}}, "b": []}"#,
        r#"{"b": {"a": {"a": 1}}, "b": {"a": {}, "a": {"a": 2}, "a": 0}}"#,
        r#"[{"a": 1}, {"a": 2, "a": 3}]"#,
    ] {
        assert!(check(text.as_bytes(), &mut room), "{text}");
    }
}
