//! What messages consist of: bodies from files, made up as JSON or of sizes that change with time; properties.

use super::Flags;
use crate::option::{OptionError, Options, wrong};
use crate::pairs;
use crate::schedule::{Cycle, parse_part};
use crate::shape::{BODY_BYTES_MAX, count};
use lepus_amqp::{Properties, Table};
use lepus_base::Rng;

/// Smallest body of the sizes that change with time: all have number and time in the same place.
const VARIABLE_BYTES_MIN: u64 = 12;
/// Smallest JSON body: an object with one short field.
const JSON_BYTES_MIN: u64 = 12;
/// Most bytes that all made-up bodies may take together.
const JSON_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bodies from files or made up as JSON; `None` where bodies are the usual ones.
pub(super) fn read(options: &Options, rng: &mut Rng) -> Result<Option<Vec<Vec<u8>>>, OptionError> {
    if options.has("json-body") {
        if options.has("body") {
            return wrong("bodies come either from files (--body) or are made up (--json-body)");
        }
        return json_bodies(options, rng).map(Some);
    }
    if options.has("body-count") || options.has("body-field-count") {
        return wrong("--body-count and --body-field-count belong to --json-body");
    }
    let mut bodies = Vec::new();
    for path in options.list("body") {
        match std::fs::read(path) {
            Ok(body) if body.len() as u64 <= BODY_BYTES_MAX => bodies.push(body),
            Ok(_) => return wrong(format!("--body: {path} is larger than 512 MiB")),
            Err(error) => return wrong(format!("--body: cannot read {path}: {error}")),
        }
    }
    if bodies.is_empty() && options.has("body") {
        return wrong("--body needs a file");
    }
    Ok((!bodies.is_empty()).then_some(bodies))
}

/// Sizes of bodies that change with time.
pub(super) fn sizes_by_time(options: &Options) -> Result<Option<Cycle<usize>>, OptionError> {
    let mut parts = Vec::new();
    for text in options.list("variable-size") {
        let (size, duration) = parse_part(text).map_err(OptionError)?;
        if !(VARIABLE_BYTES_MIN..=BODY_BYTES_MAX).contains(&size) {
            return wrong(format!(
                "--variable-size needs sizes from {VARIABLE_BYTES_MIN} bytes on"
            ));
        }
        parts.push((size as usize, duration));
    }
    if parts.is_empty() {
        return Ok(None);
    }
    if ["size", "body", "json-body"].iter().any(|other| options.has(other)) {
        return wrong("--variable-size goes without --size, --body and --json-body");
    }
    Ok(Some(Cycle::new(parts)))
}

/// JSON objects of about the size asked for, with names and values from a common stock.
fn json_bodies(options: &Options, rng: &mut Rng) -> Result<Vec<Vec<u8>>, OptionError> {
    let size = count(options, "size", JSON_BYTES_MIN, JSON_BYTES_MIN..=BODY_BYTES_MAX)?;
    let bodies = count(options, "body-count", 100, 1..=1_000_000)?;
    let fields = count(options, "body-field-count", 1_000, 1..=1_000_000)? as usize;
    if bodies.saturating_mul(size) > JSON_BYTES_MAX {
        return wrong("--body-count times --size is more than 1 GiB");
    }
    let stock: Vec<String> = (0..fields).map(|_| field(rng)).collect();
    Ok((0..bodies).map(|_| json_body(size as usize, &stock, rng)).collect())
}

/// `"name":value` with a value of one of JSON's plain kinds.
fn field(rng: &mut Rng) -> String {
    let name = word(rng);
    match rng.below(4) {
        0 => format!("\"{name}\":{}", rng.below(1_000_000)),
        1 => format!("\"{name}\":{}", if rng.below(2) == 0 { "false" } else { "true" }),
        2 => format!("\"{name}\":{}.{}", rng.below(1_000), rng.below(1_000)),
        _ => format!("\"{name}\":\"{}\"", word(rng)),
    }
}

fn word(rng: &mut Rng) -> String {
    let length = 3 + rng.below(10);
    (0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
}

/// An object of exactly `size` bytes: fields from the stock, then one that fills the rest.
fn json_body(size: usize, stock: &[String], rng: &mut Rng) -> Vec<u8> {
    let fill_min = "\"f\":\"\"".len();
    let mut text = "{".to_owned();
    loop {
        let field = &stock[rng.below(stock.len() as u64) as usize];
        // Behind it must fit its comma, the filling field and the closing brace.
        if text.len() + field.len() + 1 + fill_min + 1 > size {
            break;
        }
        text.push_str(field);
        text.push(',');
    }
    let fill = size.saturating_sub(text.len() + fill_min + 1);
    text.push_str("\"f\":\"");
    text.extend((0..fill).map(|_| char::from(b'a' + rng.below(26) as u8)));
    text.push_str("\"}");
    text.into_bytes()
}

/// The properties of every message, encoded.
pub(super) fn properties(options: &Options, flags: Flags) -> Result<Vec<u8>, OptionError> {
    let json = options.has("json-body").then(|| "application/json".to_owned());
    let mut properties = Properties {
        delivery_mode: flags.persistent.then_some(2),
        content_type: options.text("body-content-type").map(str::to_owned).or(json),
        ..Properties::default()
    };
    if options.has("body") || options.has("json-body") {
        properties.headers = Some(Table::new().with("timestamp", 0i64));
    }
    let pairs = options.list("message-properties");
    pairs::set_properties("message-properties", &pairs, &mut properties)?;
    Ok(properties.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_bodies_have_their_size_and_are_objects() {
        let mut rng = Rng::new(3);
        let stock: Vec<String> = (0..50).map(|_| field(&mut rng)).collect();
        for size in [12, 13, 40, 100, 5_000] {
            let body = String::from_utf8(json_body(size, &stock, &mut rng)).unwrap();
            assert_eq!(body.len(), size);
            assert!(body.starts_with("{\"") && body.ends_with("\"}"), "{body}");
            assert!(!body.contains(",,") && body.matches('"').count().is_multiple_of(2), "{body}");
        }
    }
}
