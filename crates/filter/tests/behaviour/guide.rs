//! The examples of `docs/filters.md`: each filter in it is read, and has the verdict or the error that it says.

use crate::sample::Sample;
use lepus_amqp::{Properties, Table, Value};
use lepus_filter::{Filter, Limits};

const GUIDE: &str = include_str!("../../../../docs/filters.md");

/// The message of the guide.
fn sample() -> Sample {
    let (_, behind) = GUIDE.split_once("```json\n").expect("a message");
    let (body, _) = behind.split_once("```").expect("its end");
    let headers = Table::new()
        .with("country", "UK")
        .with("weight", 5)
        .with("urgent", true)
        .with("tags", vec![Value::from("a"), Value::from("b")])
        .with("note", Value::Void);
    let properties =
        Properties { headers: Some(headers), priority: Some(7), ..Properties::default() };
    Sample {
        exchange: Some(b"shop".to_vec()),
        routing_key: Some(b"orders.eu".to_vec()),
        time: Some(1_700_000_000_000),
        ..Sample::new(&properties, body)
    }
}

/// Rows of tables as (what is written as code, what is said about it).
fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    GUIDE.lines().filter_map(|line| {
        let (code, said) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((code, said))
    })
}

#[test]
fn every_filter_has_the_verdict_that_is_said() {
    let sample = sample();
    let mut counts = (0, 0);
    for (filter, said) in rows() {
        match said {
            "matches" => {
                assert!(sample.matches(filter), "{filter}");
                counts.0 += 1;
            }
            "does not match" => {
                assert!(!sample.matches(filter), "{filter}");
                counts.1 += 1;
            }
            _ => {}
        }
    }
    assert!(counts.0 >= 20 && counts.1 >= 8, "{counts:?}");
}

#[test]
fn every_error_is_the_one_that_is_said() {
    let mut count = 0;
    for (filter, said) in rows().filter(|(_, said)| said.starts_with("at character")) {
        let error = Filter::parse(filter, &Limits::default()).expect_err(filter);
        assert_eq!(error.reply(), said);
        count += 1;
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn every_condition_and_field_is_read() {
    let condition = |text: &str| Filter::parse(text, &Limits::default());
    let mut count = 0;
    for line in
        GUIDE.lines().filter(|line| line.starts_with("| `") && !line.contains("at character"))
    {
        // The first column, each piece of code in it.
        let first = line.trim_start_matches('|').split(" | ").next().unwrap_or("");
        for code in first.split('`').skip(1).step_by(2) {
            let is_sign = ["=", "<>", "!=", "<", "<=", ">", ">="].contains(&code);
            let is_part = code.starts_with("IS ") || code.starts_with("ILIKE");
            // Names that go on with the section of the one before.
            let is_name = !code.contains(['.', ' ', '(', '[']);
            if !is_sign && !is_part && !is_name {
                assert!(condition(code).is_ok(), "{code}: {:?}", condition(code));
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count}");
}
