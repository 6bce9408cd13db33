//! The rules where models of filters disagree, each as a table of verdicts.

use crate::oracle::{self, Truth};
use crate::sample::{Sample, check};
use lepus_amqp::{Properties, Table, Value};
use lepus_filter::BodyFormat;

const T: Truth = Some(true);
const F: Truth = Some(false);
const U: Truth = None;

#[test]
fn and_or_and_not_have_three_values() {
    let of = |truth: Truth| match truth {
        T => "TRUE",
        F => "FALSE",
        U => "absent",
    };
    for left in [T, F, U] {
        for right in [T, F, U] {
            let and = if left == F || right == F {
                F
            } else if left == T && right == T {
                T
            } else {
                U
            };
            let or = if left == T || right == T {
                T
            } else if left == F && right == F {
                F
            } else {
                U
            };
            let (one, two) = (of(left), of(right));
            check(
                &Sample::body(""),
                &[
                    (&format!("{one} AND {two}"), and),
                    (&format!("{one} OR {two}"), or),
                    (&format!("NOT ({one} AND {two})"), oracle::not(and)),
                    (&format!("NOT ({one} OR {two})"), oracle::not(or)),
                    (&format!("NOT {one}"), oracle::not(left)),
                ],
            );
        }
    }
}

#[test]
fn null_is_missing_json_null_and_void_and_only_is_missing_tells_absence() {
    let mut sample = Sample::headers(Table::new().with("void", Value::Void).with("empty", ""));
    sample.body = br#"{"null": null, "empty": "", "zero": 0}"#.to_vec();
    check(
        &sample,
        &[
            ("b.null IS NULL AND b.none IS NULL AND void IS NULL AND none IS NULL", T),
            ("b.none IS MISSING AND none IS MISSING AND b.null.x IS MISSING", T),
            ("b.null IS MISSING OR void IS MISSING", F),
            ("EXISTS(b.null) AND EXISTS(void) AND NOT EXISTS(b.none) AND NOT EXISTS(p.type)", T),
            ("p.type IS NULL AND p.type IS NOT MISSING", T),
            ("b.empty = '' AND empty = '' AND b.empty IS NOT NULL", T),
            ("b.none = b.none", U),
            ("b.null <> 1", U),
            ("NULL = NULL", U),
            ("b.none + 1 = 1", U),
            ("b.none LIKE '%'", U),
            ("b.none NOT LIKE '%'", U),
            ("b.none IN (1, 2)", U),
            ("b.zero IN (1, NULL)", U),
            ("b.zero IN (0, NULL)", T),
            ("b.zero NOT IN (1, NULL)", U),
            ("b.zero NOT IN (0, NULL)", F),
            ("b.zero BETWEEN NULL AND 1", U),
            ("b.zero BETWEEN NULL AND -1", F),
            ("LOWER(b.none) = ''", U),
            ("COALESCE(b.none, b.null, 'x') = 'x'", T),
            ("b.none IS TRUE", F),
            ("b.none IS NOT TRUE", T),
        ],
    );
}

#[test]
fn values_of_unlike_types_compare_false_with_every_operator() {
    let sample = Sample::body(r#"{"n": 5, "s": "5", "t": true, "a": [5], "o": {}}"#);
    check(
        &sample,
        &[
            ("b.n = '5'", F),
            ("b.n <> '5'", F),
            ("b.n < '6'", F),
            ("NOT (b.n < '6')", T),
            ("b.n >= '6'", F),
            ("b.s = 5", F),
            ("b.t = 'true'", F),
            ("b.t = 1", F),
            ("b.t > FALSE", F),
            ("b.t <> FALSE", T),
            ("b.a = 5", F),
            ("b.a <> 5", F),
            ("b.a = b.a", F),
            ("b.o <> b.o", F),
            ("b.n IN ('5', 5)", T),
            ("b.n NOT IN ('6', 7)", T),
            ("b.n NOT IN ('6', b.n + 2)", T),
            ("b.n NOT IN ('6', 5)", F),
            ("b.n NOT IN ('6', '7')", F),
            ("NOT (b.n IN ('6', '7'))", T),
            ("b.s NOT IN (5, b.n, TRUE)", F),
            ("b.s NOT IN (5, b.n, 'x')", T),
            ("b.t NOT IN (5, FALSE)", T),
            ("b.n NOT IN ('6', 7, NULL)", U),
            ("b.n NOT IN (5, b.none)", F),
            ("b.n NOT IN ('6', b.none)", U),
            ("b.a NOT IN (5, 6)", F),
            ("b.n NOT BETWEEN '1' AND '2'", F),
            ("b.n NOT LIKE '5'", F),
            ("b.a LIKE '%'", F),
            ("b.n AND TRUE", U),
            ("b.n OR TRUE", T),
            ("NUM(b.s) = b.n AND STR(b.n) = b.s", T),
            ("NUM('x') = 1", U),
            ("b.s + 1 = 6", U),
            ("+b.s = 5", U),
        ],
    );
}

#[test]
fn integers_and_floats_are_exact() {
    let table = Table::new()
        .with("big", u64::MAX)
        .with("odd", 9_007_199_254_740_993_i64)
        .with("nan", f64::NAN)
        .with("infinite", f64::INFINITY)
        .with("decimal", Value::Decimal { scale: 2, value: 250 })
        .with("tenth", 0.1_f32);
    let mut sample = Sample::headers(table);
    sample.body = br#"{"odd": 9007199254740993, "huge": 18446744073709551616}"#.to_vec();
    check(
        &sample,
        &[
            ("odd = 9007199254740992.0", F),
            ("odd > 9007199254740992.0 AND b.odd = odd", T),
            ("big = 18446744073709551615", T),
            ("big < 18446744073709551616.0", T),
            ("b.huge = 18446744073709551616.0", T),
            ("nan = nan", F),
            ("nan <> nan", T),
            ("nan < 1", F),
            ("NOT nan < 1", T),
            ("nan BETWEEN 0 AND 1", F),
            ("nan NOT BETWEEN 0 AND 1", F),
            ("nan IN (1)", F),
            ("infinite > 1e308", T),
            ("decimal = 2.5", T),
            ("tenth = 0.1", F),
            ("big + 1 = 0", U),
            ("-big < 0", U),
            ("1 / 0 = 1", U),
            ("1.5 % 2 = 1", U),
            ("1e308 * 10 > 0", U),
            ("7 / 2 = 3.5 AND 6 / 2 = 3 AND -7 % 5 = -2", T),
            (
                "ROUND(-2.5) = -3 AND FLOOR(-2.5) = -3 AND ABS(-9223372036854775808) = 9223372036854775808",
                T,
            ),
        ],
    );
}

#[test]
fn strings_are_bytes_and_functions_count_code_points() {
    let sample = Sample::body(r#"{"s": "Grün🥕\u0041", "long s": "ſ", "tag": "a/b"}"#);
    check(
        &sample,
        &[
            ("b.s = 'Grün🥕A'", T),
            ("b.s > 'Grz'", T),
            ("LENGTH(b.s) = 6", T),
            ("b.s LIKE 'Gr_n__'", T),
            ("b.s LIKE 'gr%'", F),
            ("b.s ILIKE 'GRÜN%a'", T),
            ("b.[long s] ILIKE 'S'", T),
            ("UPPER(b.s) = 'GRÜN🥕A' AND LOWER(b.s) = 'grün🥕a'", T),
            ("UPPER('ß') = 'SS'", T),
            ("LEFT(b.s, 3) = 'Grü' AND RIGHT(b.s, 2) = '🥕A' AND RIGHT(b.s, 99) = b.s", T),
            (
                "SUBSTRING(b.s, 4) = 'n🥕A' AND SUBSTRING(b.s, 4, 1) = 'n' AND SUBSTRING(b.s, -1, 3) = 'G'",
                T,
            ),
            ("LEFT(b.s, -1) = ''", U),
            ("LEFT(b.s, 1.0) = 'G'", U),
            ("STARTS_WITH(b.s, 'Gr') AND ENDS_WITH(b.s, 'A') AND CONTAINS(b.s, 'ün')", T),
            ("CONTAINS(b.s, 5)", U),
            ("b.tag REGEXP '^[a-z]/' AND b.tag NOT REGEXP 'c'", T),
            ("STR(1.5) = '1.5' AND STR(2.0) = '2.0' AND STR(TRUE) = 'true' AND STR(-3) = '-3'", T),
            ("NUM('1e3') = 1000 AND NUM(' 1') = 1", U),
        ],
    );
}

#[test]
fn any_and_all_look_at_elements() {
    let body = r#"{"tags": ["a", "b", 5], "none": [], "one": "a", "null": null,
        "items": [{"id": 1, "in": [1, 2]}, {"id": 2}, {"in": []}], "pairs": [[1, 2], [3]]}"#;
    let mut sample = Sample::body(body);
    sample.properties = Properties {
        headers: Some(Table::new().with("arr", vec![Value::from(1), Value::from("x")])),
        ..Properties::default()
    }
    .to_bytes();
    check(
        &sample,
        &[
            ("ANY(b.tags) = 'b'", T),
            ("ANY(b.tags) = 'c'", F),
            ("ALL(b.tags) <> 'c'", F),
            ("ANY(b.tags) LIKE 'a%'", T),
            ("ANY(b.tags) IN (5, 6)", T),
            ("ANY(b.tags) NOT IN ('a', 'b')", F),
            ("ANY(b.tags) BETWEEN 1 AND 9", T),
            ("ANY(b.none) = 'a'", F),
            ("ALL(b.none) = 'a'", T),
            ("ANY(b.missing) = 'a'", U),
            ("ALL(b.null) = 'a'", U),
            ("ANY(b.one) = 'a'", T),
            ("ANY(b.items[*].id) = 2", T),
            ("ANY(b.items[*].id) = 3", U),
            ("ALL(b.items[*].id) > 0", U),
            ("ALL(b.items[*].id) > 1", F),
            ("ANY(b.items[*].in[*]) = 2", T),
            ("ANY(b.items[*].in) = 2", U),
            ("ANY(b.pairs) = 1", F),
            ("ANY(b.pairs[*][*]) = 3", T),
            ("b.items[1].id = 2 AND b.items[9].id IS MISSING AND b.tags[2] = 5", T),
            ("SIZE(b.tags) = 3 AND SIZE(b.none) = 0 AND SIZE(b.items[0]) = 2 AND SIZE(arr) = 2", T),
            ("SIZE(b.one) = 1", U),
            ("ANY(arr) = 'x' AND a.arr[0] = 1", T),
        ],
    );
}

#[test]
fn bodies_are_read_by_type_or_first_bytes_and_otherwise_missing() {
    let json = |content_type: &str, encoding: &str, body: &str| {
        let properties = Properties {
            content_type: Some(content_type.into()),
            content_encoding: Some(encoding.into()),
            ..Properties::default()
        };
        Sample::new(&properties, body)
    };
    check(&json("application/json", "utf-8", r#" {"x": 1, "x": 2} "#), &[("b.x = 2", T)]);
    check(
        &json("application/cloudevents+json", "", r#"{"x": {"y": 1}, "x": {}}"#),
        &[("b.x.y IS MISSING", T)],
    );
    for (content_type, encoding, body) in [
        ("application/json", "gzip", r#"{"x": 1}"#),
        ("text/plain", "", r#"{"x": 1}"#),
        ("", "", r#"{"x": 1"#),
        ("", "", r#"{"x": 1}}"#),
        ("", "", r#"{"x": 01}"#),
        ("", "", "{\"x\": 1, \"y\": \"\u{1}\"}"),
        ("", "", r#"{"x": 1, "y": "\ud800"}"#),
    ] {
        check(&json(content_type, encoding, body), &[("b.x IS MISSING", T), ("b.x = 1", U)]);
    }
}

#[test]
fn fix_is_text_that_compares_as_what_it_stands_against() {
    let mut sample = Sample::body(
        "8=FIX.4.4\x0135=D\x0155=IBM\x0144=101.50\x01448=A\x01448=B\x01junk\x0110=128\x01",
    );
    check(
        &sample,
        &[
            ("b.55 = 'IBM' AND b.[55] LIKE 'I%'", T),
            ("b.44 > 100 AND b.44 = 101.5 AND b.44 = '101.50'", T),
            ("b.44 + 1 = 102.5", T),
            ("b.55 > 5", F),
            ("b.44 > b.10", F),
            ("b.55 > b.44", T),
            ("b.448 = 'A'", T),
            ("ANY(b.448) = 'B' AND ANY(b.448) <> 'B'", T),
            ("ANY(b.999) = 'B'", U),
            ("b.999 IS MISSING AND b.55.x IS MISSING", T),
            ("b.44 = TRUE", F),
        ],
    );
    sample.body = b"Symbol=IBM|Price=5|".to_vec();
    sample.format = BodyFormat::Nvfix;
    check(&sample, &[("b.Symbol = 'IBM' AND b.Price < 6", T)]);
    sample.format = BodyFormat::None;
    check(&sample, &[("b.Symbol IS MISSING", T)]);
}

#[test]
fn properties_have_their_defaults() {
    let none = Sample::body("xyz");
    check(
        &none,
        &[
            ("h.priority = 4 AND h.durable = FALSE AND h.ttl IS NULL", T),
            ("JMSDeliveryMode = 'NON_PERSISTENT' AND JMSTimestamp IS NULL", T),
            ("m.size = 3 AND m.exchange IS NULL AND NOW() IS NULL", T),
        ],
    );
    let properties = Properties {
        delivery_mode: Some(2),
        priority: Some(9),
        expiration: Some("1000".into()),
        timestamp: Some(5),
        message_type: Some("t".into()),
        ..Properties::default()
    };
    let mut all = Sample::new(&properties, "");
    all.time = Some(7000);
    all.routing_key = Some(b"a.b".to_vec());
    check(
        &all,
        &[
            ("JMSPriority = 9 AND h.durable AND h.ttl = 1000 AND p.expiration = '1000'", T),
            (
                "JMSDeliveryMode = 'PERSISTENT' AND JMSTimestamp = 5000 AND p.timestamp = 5 AND JMSType = 't'",
                T,
            ),
            ("m.routing_key LIKE 'a.%' AND NOW() > DATE('1970-01-01T00:00:06.999Z')", T),
        ],
    );
}
