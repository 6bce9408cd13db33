//! What filters and messages cost that were made to be dear: nanoseconds for each step that is counted, by operator; the
//! dearest of many pairs of a filter and a body; and what reading the dearest filters takes that are accepted.

use lepus_amqp::{Properties, PropertiesRef, Table, Value};
use lepus_base::{HashState, Rng};
use lepus_filter::{BodyFormat, Filter, FilterSet, Limits, Message, Meta, Scratch, SetLimits};
use std::time::Instant;

/// Steps that a message may take, as routing has them by default.
const STEPS_MAX: u64 = 62_500;
/// Pairs that are told of.
const DEAREST: usize = 12;
/// Rounds of which the best counts.
const ROUNDS: usize = 7;

struct Sample {
    properties: Vec<u8>,
    body: Vec<u8>,
    format: BodyFormat,
}

impl Sample {
    fn json(body: String) -> Sample {
        Sample {
            properties: Properties::default().to_bytes(),
            body: body.into_bytes(),
            format: BodyFormat::Json,
        }
    }

    fn fix(body: String) -> Sample {
        Sample { format: BodyFormat::Fix, ..Sample::json(body) }
    }

    fn headers(headers: Table) -> Sample {
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        Sample { properties: properties.to_bytes(), ..Sample::json(String::new()) }
    }

    fn message(&self) -> Message<'_> {
        Message {
            properties: PropertiesRef(&self.properties),
            body: &self.body,
            format: self.format,
            meta: Meta::default(),
        }
    }
}

fn text(unit: &str, bytes: usize) -> Sample {
    Sample::json(format!("{{\"s\":\"{}\"}}", unit.repeat(bytes / unit.len())))
}

fn list(unit: &str, bytes: usize) -> Sample {
    let count = bytes / (unit.len() + 1);
    Sample::json(format!("{{\"s\":[{}]}}", vec![unit; count].join(",")))
}

fn set_of(texts: &[String]) -> FilterSet {
    let limits = SetLimits { paths_max: 100_000, bytes_max: 1 << 30, ..SetLimits::default() };
    let mut set = FilterSet::new(limits, HashState::new(1));
    for text in texts {
        let filter = Filter::parse(text, &Limits::default());
        let filter = filter.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        set.add(&filter, 0).expect("there is room");
    }
    while set.work(1_000_000) {}
    set
}

/// Nanoseconds and steps of a message.
fn time(
    set: &FilterSet,
    sample: &Sample,
    steps_max: u64,
    scratch: &mut Scratch,
) -> (f64, u64, bool) {
    let mut out = Vec::new();
    let begin = Instant::now();
    let report = set.matches(&sample.message(), steps_max, scratch, &mut out);
    (begin.elapsed().as_nanos() as f64, report.steps, report.has_run_out())
}

/// A long number that lies near the middle of two floats.
const NEAR: &str =
    "9007199254740993.00000000000000000000000000000000000000000000000000000000000000000000001e-290";

/// Each operator with what is dear for it: so many filters of the kind, each another, and a message.
fn rows() -> Vec<(&'static str, Vec<String>, Sample)> {
    let many = |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect();
    let one = |text: &str| vec![text.to_owned()];
    let kib = 1 << 10;
    let names: Vec<String> = (0..60).map(|index| format!("b.namename{index}x = 1")).collect();
    let keys: Vec<String> =
        (0..8_000).map(|index| format!("\"namename{}x\":1", index % 60)).collect();
    let same: Vec<String> = (0..20_000).map(|_| "\"a\":{\"b\":1}".to_owned()).collect();
    let members: Vec<String> = (0..10_000).map(|index| format!("\"k{index}\":0")).collect();
    let mut voids = Table::new();
    (0..20_000).for_each(|index| voids.insert(format!("v{index}").as_str(), Value::Void));
    let array = Value::Array(vec![Value::Void; 30_000]);
    let near_body = format!("{{\"s\":{NEAR}}}");
    let near_fix = format!("8=FIX\u{1}44={NEAR}\u{1}");
    let rows: Vec<(&'static str, Vec<String>, Sample)> = vec![
        (
            "reading: brackets",
            one("b.x = 1"),
            Sample::json(format!("{}{}", "[".repeat(120), "]".repeat(120))),
        ),
        ("reading: empty objects", one("b.x = 1"), list("{}", 64 * kib)),
        ("reading: numbers", one("b.x = 1"), list("1", 64 * kib)),
        ("reading: strings", one("b.x = 1"), list("\"\"", 64 * kib)),
        ("reading: spaces", one("b.x = 1"), Sample::json(format!("{}1", " ".repeat(64 * kib)))),
        ("reading: same name", one("b.a.b = 1"), Sample::json(format!("{{{}}}", same.join(",")))),
        ("reading: like names", names.clone(), Sample::json(format!("{{{}}}", keys.join(",")))),
        ("reading: escapes", one("b.s = 'x'"), text("\\u0041", 64 * kib)),
        (
            "reading: near number",
            many(1, &|_| "b.s = 1".to_owned()),
            Sample::json(near_body.clone()),
        ),
        ("reading: FIX", one("b.55 = 'x'"), Sample::fix("=\u{1}".repeat(32 * kib))),
        ("reading: FIX, no =", one("b.55 = 'x'"), Sample::fix("\u{1}".repeat(64 * kib))),
        ("reading: headers", one("zz = 1"), Sample::headers(voids.clone())),
        (
            "= long strings",
            many(500, &|index| format!("b.s <> '{}{index}'", "a".repeat(15_000))),
            text("a", 16 * kib),
        ),
        (
            "< long strings",
            many(500, &|index| format!("b.s + 0 = 1 OR b.s < '{}{index}'", "a".repeat(15_000))),
            text("a", 16 * kib),
        ),
        (
            "= numbers",
            many(5000, &|index| format!("b.s + 0 = {index}.5")),
            Sample::json("{\"s\":1}".to_owned()),
        ),
        (
            "< FIX against number",
            many(500, &|index| format!("b.44 + 0 = 1 OR b.44 < {index}")),
            Sample::fix(near_fix.clone()),
        ),
        (
            "range of FIX",
            many(500, &|index| format!("b.44 < {index} AND b.{index} > 1")),
            Sample::fix(near_fix.clone()),
        ),
        (
            "LOWER, UPPER",
            many(3, &|index| format!("UPPER(b.s) = '{index}' OR LOWER(b.s) = '{index}'")),
            text("ŉß", 60 * kib),
        ),
        ("LENGTH", one("LENGTH(b.s) = 1"), text("é", 256 * kib)),
        (
            "LEFT",
            many(50, &|index| format!("LEFT(b.s, {}) = 'x'", 9_000 + index)),
            text("🥕", 64 * kib),
        ),
        ("RIGHT", many(20, &|index| format!("RIGHT(b.s, {index}) = 'x'")), text("é", 64 * kib)),
        (
            "SUBSTRING",
            many(20, &|index| format!("SUBSTRING(b.s, {}, 3) = 'x'", 20_000 + index)),
            text("é", 64 * kib),
        ),
        (
            "CONTAINS",
            many(50, &|index| format!("CONTAINS(b.s, '{}b{index}')", "a".repeat(1000))),
            text("a", 64 * kib),
        ),
        (
            "CONTAINS, long part",
            many(20, &|index| format!("CONTAINS(b.s, '{}b{index}')", "ab".repeat(7000))),
            text("ab", 16 * kib),
        ),
        ("CONTAINS itself", one("CONTAINS(b.s, b.s)"), text("ab", 64 * kib)),
        (
            "STARTS_WITH",
            many(500, &|index| format!("STARTS_WITH(b.s, '{}{index}')", "a".repeat(15_000))),
            text("a", 16 * kib),
        ),
        ("NUM", many(500, &|index| format!("NUM(b.s) + {index} = 0")), text(NEAR, NEAR.len())),
        ("NUM, long", many(20, &|index| format!("NUM(b.s) + {index} = 0")), text("1", 64 * kib)),
        (
            "STR",
            many(500, &|index| format!("STR(b.s + {index}.5) = 'x'")),
            Sample::json("{\"s\":1.23e-290}".to_owned()),
        ),
        (
            "SIZE of an object",
            many(3, &|index| format!("SIZE(b.s) = {index}")),
            Sample::json(format!("{{\"s\":{{{}}}}}", members.join(","))),
        ),
        (
            "SIZE of an array",
            many(3, &|index| format!("SIZE(b.s) + {index} = 0")),
            list("1", 64 * kib),
        ),
        (
            "SIZE in headers",
            one("SIZE(s) = 1"),
            Sample::headers(Table::new().with("s", array.clone())),
        ),
        (
            "LIKE",
            many(50, &|index| format!("b.s LIKE '%{}b{index}%'", "a".repeat(100))),
            text("a", 32 * kib),
        ),
        (
            "LIKE, many parts",
            many(20, &|index| format!("b.s LIKE '{}{index}'", "%ab".repeat(500))),
            text("ab", 8 * kib),
        ),
        (
            "LIKE _",
            many(5, &|index| format!("b.s LIKE '%{}b{index}%'", "_".repeat(60))),
            text("a", 2 * kib),
        ),
        (
            "LIKE _ at the end",
            many(50, &|index| format!("b.s LIKE '%_b{index}'")),
            text("é", 16 * kib),
        ),
        (
            "ILIKE",
            many(5, &|index| format!("b.s ILIKE '%{}b{index}%'", "é".repeat(60))),
            text("É", 2 * kib),
        ),
        (
            "REGEXP, many states",
            many(3, &|index| format!("b.s REGEXP '(a?){{300}}b{index}'")),
            text("a", 150),
        ),
        (
            "REGEXP, word classes",
            many(3, &|index| format!("b.s REGEXP '(\\w+ ?){{3}}b{index}$'")),
            text("éé ", 500),
        ),
        (
            "REGEXP, case",
            many(3, &|index| format!("b.s REGEXP '(?i)(é|ß|k)+[^k]{{20}}b{index}$'")),
            text("ÉK", 300),
        ),
        (
            "REGEXP, boundaries",
            many(3, &|index| format!("b.s REGEXP '(\\b|\\B)+(\\bé|\\Bé)+\\b\\B\\b{index}$'")),
            text("é", 300),
        ),
        (
            "REGEXP, alternatives",
            many(3, &|index| {
                format!(
                    "b.s REGEXP '({}){index}'",
                    (0..150).map(|number| format!("a{number:03}")).collect::<Vec<_>>().join("|")
                )
            }),
            text("a", 400),
        ),
        (
            "IN, numbers",
            many(500, &|index| {
                format!(
                    "b.s + {index} IN ({})",
                    (0..200).map(|number| (number * 7).to_string()).collect::<Vec<_>>().join(",")
                )
            }),
            Sample::json("{\"s\":1}".to_owned()),
        ),
        (
            "IN, long strings",
            many(20, &|index| {
                format!(
                    "b.s IN ({})",
                    (0..12)
                        .map(|number| format!("'{}{index}{number}'", "a".repeat(1000)))
                        .collect::<Vec<_>>()
                        .join(",")
                )
            }),
            text("a", 2 * kib),
        ),
        (
            "IN of fields",
            many(20, &|index| {
                format!(
                    "b.s IN (b.x, {})",
                    (0..300)
                        .map(|number| format!("'{}{index}{number}'", "a".repeat(40)))
                        .collect::<Vec<_>>()
                        .join(",")
                )
            }),
            text("a", kib),
        ),
        ("ANY", many(5, &|index| format!("ANY(b.s) = {}", index + 2)), list("1", 64 * kib)),
        ("ANY of near numbers", one("ANY(b.s) = 2"), list(NEAR, 8 * kib)),
        ("ANY of escapes", one("ANY(b.s) = 2"), list("\"\\u0041\"", 64 * kib)),
        (
            "ANY, with a way",
            one("ANY(b.s[*].a.b.c) = 2"),
            list("{\"a\":{\"b\":{\"c\":1}}}", 64 * kib),
        ),
        ("ANY, nested", one("ANY(b.s[*][*]) = 2"), list("[1,1]", 64 * kib)),
        (
            "ANY, wide objects",
            one("ANY(b.s[*].z) = 2"),
            list("{\"a\":1,\"b\":1,\"c\":1}", 64 * kib),
        ),
        ("ANY of FIX", one("ANY(b.1) = '2'"), Sample::fix("1=\u{1}".repeat(16 * kib))),
        ("ANY in headers", one("ANY(s) = 2"), Sample::headers(Table::new().with("s", array))),
        (
            "OR of fields",
            many(20, &|index| format!("{} OR b.x{index}", vec!["b.s"; 60].join(" OR "))),
            Sample::json("{\"s\":null}".to_owned()),
        ),
        (
            "NOT NOT",
            many(500, &|index| format!("{}b.s{}", "NOT ".repeat(60), index % 10)),
            Sample::json("{\"s1\":true}".to_owned()),
        ),
        (
            "look-ups",
            many(5000, &|index| format!("b.n{} = {index}", index % 900)),
            Sample::json(format!(
                "{{{}}}",
                (0..900).map(|index| format!("\"n{index}\":1")).collect::<Vec<_>>().join(",")
            )),
        ),
        (
            "columns",
            many(5000, &|index| format!("b.s < {} AND b.t > {index}", index + 3)),
            Sample::json("{\"s\":1,\"t\":1}".to_owned()),
        ),
        (
            "columns that all hold",
            many(5000, &|index| format!("b.s >= 0 AND b.t <= {index}")),
            Sample::json("{\"s\":1,\"t\":0}".to_owned()),
        ),
    ];
    rows
}

/// Prints what a step of each operator takes.
pub fn steps() {
    println!("{:26} {:>10} {:>12} {:>8}", "operator", "steps", "ns", "ns/step");
    let (mut worst, mut scratch) = (0.0_f64, Scratch::default());
    for (name, texts, sample) in rows() {
        let set = set_of(&texts);
        let mut best = (f64::INFINITY, 0, false);
        for _ in 0..ROUNDS {
            let found = time(&set, &sample, u64::MAX, &mut scratch);
            if found.0 < best.0 {
                best = found;
            }
        }
        let each = best.0 / best.1 as f64;
        worst = worst.max(each);
        println!(
            "{name:26} {:>10} {:>12.0} {each:>8.1}{}",
            best.1,
            best.0,
            if each > 30.0 { " !" } else { "" }
        );
    }
    println!("the dearest: {worst:.1} ns/step");
}

/// Asks so many pairs of one dear filter and a dear message of up to 64 KiB, and tells of the dearest.
pub fn pairs(count: usize) {
    let mut rng = Rng::new(3);
    let mut scratch = Scratch::default();
    let (mut asked, mut over, mut run_out) = (0, 0, 0);
    let mut dearest: Vec<(f64, String, usize, u64)> = Vec::new();
    let units = ["a", "ab", "é", "🥕", "A", "1", " ", "\\u0041", "É", "_", "aé", "ŉ"];
    let elements = [
        "1",
        "{}",
        "[1,1]",
        "\"\"",
        NEAR,
        "{\"a\":1}",
        "null",
        "\"\\u00e9\"",
        "{\"a\":{\"a\":[1]}}",
    ];
    let sizes = [10, 100, 1_000, 5_000, 20_000, 64_000];
    while asked < count {
        let filters: Vec<(String, FilterSet)> = (0..32)
            .filter_map(|_| {
                let text = condition(&mut rng, 3);
                Filter::parse(&text, &Limits::default()).ok()?;
                let set = set_of(std::slice::from_ref(&text));
                Some((text, set))
            })
            .collect();
        let pick =
            |rng: &mut Rng, list: &[&'static str]| list[rng.below(list.len() as u64) as usize];
        let samples: Vec<Sample> = (0..8)
            .map(|_| {
                let size = sizes[rng.below(sizes.len() as u64) as usize];
                match rng.below(4) {
                    0 | 1 => text(pick(&mut rng, &units), size),
                    2 => list(pick(&mut rng, &elements), size),
                    _ => Sample::fix(format!("s={}\u{1}", pick(&mut rng, &units)).repeat(size / 5)),
                }
            })
            .collect();
        for (text, set) in &filters {
            for sample in &samples {
                let (mut nanos, steps, has_run_out) = time(set, sample, STEPS_MAX, &mut scratch);
                asked += 1;
                run_out += usize::from(has_run_out);
                if nanos > 0.6e6 {
                    // Another program may have been in between.
                    for _ in 0..ROUNDS {
                        nanos = nanos.min(time(set, sample, STEPS_MAX, &mut scratch).0);
                    }
                }
                over += usize::from(nanos > 1e6);
                if dearest.len() < DEAREST || dearest.iter().any(|known| known.0 < nanos) {
                    dearest.push((nanos, text.clone(), sample.body.len(), steps));
                    dearest.sort_by(|one, two| two.0.total_cmp(&one.0));
                    dearest.truncate(DEAREST);
                }
            }
        }
    }
    println!(
        "{asked} pairs, {run_out} of them ran out of {STEPS_MAX} steps, {over} took more than 1 ms"
    );
    for (nanos, text, bytes, steps) in dearest {
        println!(
            "{:.0} us, {steps} steps of {:.1} ns, with a body of {bytes} B: {text}",
            nanos / 1e3,
            nanos / steps as f64
        );
    }
}

/// A filter that looks at much.
fn condition(rng: &mut Rng, depth: u32) -> String {
    if depth > 0 && rng.chance(1, 2) {
        let (one, two) = (condition(rng, depth - 1), condition(rng, depth - 1));
        return match rng.below(3) {
            0 => format!("({one} OR {two})"),
            1 => format!("({one} AND {two})"),
            _ => format!("NOT ({one})"),
        };
    }
    let value = value(rng, 2);
    let number = rng.below(70_000);
    let long = ["a", "ab", "é", "A"][rng.below(4) as usize].repeat(rng.below(60) as usize + 1);
    match rng.below(12) {
        0 => format!("{value} = '{long}'"),
        1 => format!("{value} < {number}"),
        2 => format!("{value} LIKE '%{long}_{long}%'"),
        3 => format!("{value} ILIKE '%{long}%{long}%'"),
        4 => format!("{value} REGEXP '({long}?){{{}}}b'", 1 + rng.below(200) / long.len() as u64),
        5 => format!("{value} REGEXP '(?i)(\\w+[^{long}]*)*\\b{long}$'"),
        6 => format!("ANY(b.s[*].a) = {number}"),
        7 => format!("ALL(b.s) LIKE '%{long}%'"),
        8 => format!("ANY(b.s[*][*]) IN ({number}, '{long}', {value})"),
        9 => format!("{value} BETWEEN {number} AND '{long}'"),
        10 => format!("CONTAINS({value}, '{long}b')"),
        _ => format!("SIZE(b.s) > {number}"),
    }
}

fn value(rng: &mut Rng, depth: u32) -> String {
    if depth == 0 {
        return "b.s".to_owned();
    }
    let (inner, number) = (value(rng, depth - 1), rng.below(70_000));
    match rng.below(10) {
        0 => format!("UPPER({inner})"),
        1 => format!("LOWER({inner})"),
        2 => format!("LEFT({inner}, {number})"),
        3 => format!("RIGHT({inner}, {number})"),
        4 => format!("SUBSTRING({inner}, {number}, {number})"),
        5 => format!("NUM({inner})"),
        6 => format!("STR({inner})"),
        7 => format!("LENGTH({inner})"),
        8 => format!("COALESCE(NUM({inner}), {inner})"),
        _ => inner,
    }
}

/// Reads, adds and removes filters that are as dear to read as they may be.
pub fn accepted() {
    let words = |count: usize, unit: &str| unit.repeat(count);
    let regexp = |pattern: &str| {
        let one = |number: usize| format!("b.x REGEXP '{pattern}{number}'");
        (0..4).map(one).collect::<Vec<_>>()
    };
    let mut rows: Vec<(&str, Vec<String>)> = vec![
        ("(?i)[\\w]{0}, as many as there may be", regexp(&words(4, "(?i)[\\w]{0}"))),
        ("\\w, as many as there may be", regexp(&words(4, "\\w"))),
        ("\\w{7}", regexp("\\w{7}")),
        ("[^\\W\\d], as many as there may be", regexp(&words(4, "[^\\W\\d]"))),
        (
            "ranges",
            regexp(&format!(
                "(?i)[{}]",
                (0..45)
                    .map(|index| format!(
                        "{}-{}",
                        char::from_u32(0x100 + 30 * index).expect("a character"),
                        char::from_u32(0x100 + 30 * index + 20).expect("a character")
                    ))
                    .collect::<String>()
            )),
        ),
        (
            "characters in brackets",
            regexp(&format!(
                "(?i)[{}]",
                (0..300)
                    .rev()
                    .filter_map(|index| char::from_u32(0x100 + 3 * index))
                    .collect::<String>()
            )),
        ),
        ("nested brackets", regexp(&format!("(?i){}{}", "[é".repeat(28), "]".repeat(28)))),
        ("(a?){800}", regexp("(a?){800}")),
        ("[ -~é]{150}", regexp("[ -~é]{150}")),
        (
            "alternatives",
            regexp(&(0..160).map(|number| format!("a{number:03}")).collect::<Vec<_>>().join("|")),
        ),
        ("((((a?){9}){9}){9})", regexp("(((a?){9}){9}){9}")),
        ("a{1000000}{0}", regexp("(a{500}{0}){0}")),
    ];
    let values: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    rows.push(("IN of 3,000", vec![format!("b.x IN ({})", values.join(","))]));
    let ins: Vec<String> =
        (0..8).map(|field| format!("b.f{field} IN ({})", values[..64].join(","))).collect();
    rows.push(("OR of eight INs of 64", vec![ins.join(" OR ")]));
    let and = |list: Vec<String>| vec![list.join(" AND ")];
    rows.push((
        "INs of 64, an AND",
        and((0..50).map(|index| format!("b.f IN ({},{index})", values[..64].join(","))).collect()),
    ));
    rows.push((
        "650 comparisons",
        and((0..650).map(|index| format!("b.f{} <> {index}", index % 60)).collect()),
    ));
    rows.push((
        "64 fields of 60 steps",
        and((0..60).map(|index| format!("b.f{index}{} = {index}", ".x".repeat(60))).collect()),
    ));
    rows.push((
        "NOT of a long text",
        vec![format!("{}b.x = '{}'", "NOT ".repeat(62), "a".repeat(16_000))],
    ));
    rows.push(("LIKE of a long text", vec![format!("b.x LIKE '%{}'", "a_".repeat(8_000))]));
    rows.push(("sums", vec![format!("b.x{} = 1", " + (b.x * 2)".repeat(400))]));
    println!(
        "{:42} {:>9} {:>10} {:>10} {:>9}",
        "filter", "parse us", "add us", "remove us", "bytes"
    );
    let mut worst = 0.0_f64;
    for (name, parts) in rows {
        // As many of its parts as are accepted.
        let Some((text, _)) = (1..=parts.len()).rev().find_map(|count| {
            let text = parts[..count].join(" OR ");
            Filter::parse(&text, &Limits::default()).ok().map(|filter| (text, filter))
        }) else {
            let refused = Filter::parse(&parts[0], &Limits::default()).err();
            println!(
                "{name:42} refused: {}",
                refused.map(|error| error.reply()).unwrap_or_default()
            );
            continue;
        };
        let (mut parse, mut add, mut remove, mut bytes) =
            (f64::INFINITY, f64::INFINITY, f64::INFINITY, 0);
        for _ in 0..ROUNDS {
            let micros = |begin: Instant| begin.elapsed().as_nanos() as f64 / 1e3;
            let begin = Instant::now();
            let filter = Filter::parse(&text, &Limits::default()).expect("it was read before");
            parse = parse.min(micros(begin));
            let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
            let begin = Instant::now();
            let subscription = set.add(&filter, 0).expect("there is room");
            add = add.min(micros(begin));
            bytes = set.bytes();
            let begin = Instant::now();
            set.remove(subscription);
            remove = remove.min(micros(begin));
        }
        worst = worst.max(parse + add);
        println!("{name:42} {parse:>9.0} {add:>10.0} {remove:>10.0} {bytes:>9}");
    }
    println!("the dearest: {:.1} ms to parse and add", worst / 1e3);
}
