//! What matching costs: nanoseconds and instructions per message, by the number of filters.
//!
//! `measure` prints the table of rates; `measure instructions FILE [few | record]` counts by callgrind, for
//! which valgrind must be there, and compares with the ceilings in the file, or records them.
//! `measure million` prints those of a million filters alone, `measure churn` how fast filters come and go and what matching
//! keeps beside them. `measure steps`, `measure pairs N` and `measure accepted` are about what was made to be dear.
//! Filters are `sym = 'S' AND b.price > P AND b.qty < Q` over 1,000 symbols; of anchored ones nine in ten have the
//! symbol, of unanchored ones none. About one of them matches a message. Bodies have many short fields, those of `texts` few
//! long ones. Rates depend on what else the machine does.

mod churn;
mod hostile;

use lepus_amqp::{Properties, PropertiesRef, Table};
use lepus_base::{HashState, Rng};
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Limits, Message, Meta, Scratch, SetLimits, Subscription,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

/// Symbols that messages and filters have.
const SYMBOLS: u64 = 1000;
/// Prices and quantities lie below.
const VALUES: u64 = 1_000_000;
/// Parts of equal width of which the prices of messages come, and the quantities.
const STRATA: u64 = 32;
/// Rounds of which the best counts.
const ROUNDS: usize = 5;

/// Which filters a set has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Nine in ten have an equality.
    Anchored,
    /// All have one.
    Equalities,
    /// All have ranges only.
    Unanchored,
    /// Anchored, and everything is in the headers.
    Headers,
    /// Each compares what is computed of fields.
    Evaluated,
    /// Each has to be evaluated.
    Conditions,
    /// All have ranges of one field in which every message lies somewhere.
    Inside,
    /// The body is read for one filter that never matches.
    Extraction,
    /// The same of bodies most of which is long texts.
    Texts,
}

const KINDS: [(&str, Kind); 9] = [
    ("anchored", Kind::Anchored),
    ("equalities", Kind::Equalities),
    ("unanchored", Kind::Unanchored),
    ("headers", Kind::Headers),
    ("evaluated", Kind::Evaluated),
    ("conditions", Kind::Conditions),
    ("inside", Kind::Inside),
    ("extraction", Kind::Extraction),
    ("texts", Kind::Texts),
];

struct Load {
    set: FilterSet,
    texts: Vec<String>,
    /// In the order in which they were made.
    subscriptions: VecDeque<Subscription>,
    messages: Vec<(Vec<u8>, String)>,
    /// CPU time that it took to read and file them, all tidying done.
    built: Duration,
}

fn text(kind: Kind, index: usize, count: usize, rng: &mut Rng) -> String {
    let is_anchored = match kind {
        Kind::Unanchored | Kind::Evaluated | Kind::Conditions | Kind::Inside => false,
        Kind::Anchored | Kind::Headers => !index.is_multiple_of(10),
        Kind::Equalities | Kind::Extraction | Kind::Texts => true,
    };
    // So that about one matches: each of `rivals` with a chance of one in them.
    let rivals = match (kind, is_anchored) {
        (Kind::Equalities, _) => count as f64 / SYMBOLS as f64,
        (Kind::Anchored | Kind::Headers, true) => 1.8 * count as f64 / SYMBOLS as f64,
        (Kind::Anchored | Kind::Headers, false) => 0.2 * count as f64,
        _ => count as f64,
    };
    let spread = (2.0 / rivals.max(1.0).sqrt()).min(1.0) * VALUES as f64;
    let mut part = || rng.below(spread as u64);
    let (price, qty) = (VALUES - part(), part());
    let body = if kind == Kind::Headers { "" } else { "b." };
    match kind {
        Kind::Extraction | Kind::Texts => {
            "b.sym = 'none' AND b.price > 0 AND b.qty > 0 AND b.side = 'x' AND b.venue = 'x' AND b.id = 1".to_owned()
        }
        Kind::Evaluated => format!("b.price + 0 > {price} AND b.qty - 0 < {qty}"),
        Kind::Conditions => {
            format!("NOT (b.price <= {price} OR b.qty >= {qty} OR b.id IS NULL)")
        }
        Kind::Inside => {
            let price = rng.below(VALUES);
            let end = price + 2 * VALUES / count.max(2) as u64;
            format!("b.price > {price}.5 AND b.price < {end}")
        }
        _ if is_anchored => {
            let symbol = rng.below(SYMBOLS);
            format!("sym = 'SYM{symbol}' AND {body}price > {price}.5 AND {body}qty < {qty}")
        }
        _ => format!("{body}price > {price}.5 AND {body}qty < {qty}"),
    }
}

/// What the texts of documents are made of: mostly letters, with an escape and a letter of two bytes now and then.
const WORDS: [&str; 8] =
    ["order", "of", "goods", "that", "Zoë", "said", "are \\\"urgent\\\"", "\\nfor"];
/// Bytes of such a text.
const TEXT_BYTES: usize = 250;

/// A text of so many bytes at most, as it stands in quotes.
fn prose(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::new();
    loop {
        let word = WORDS[rng.below(WORDS.len() as u64) as usize];
        if text.len() + 1 + word.len() > bytes {
            return text;
        }
        text.push(' ');
        text.push_str(word);
    }
}

/// A document of about so many bytes.
fn document(
    kind: Kind,
    rng: &mut Rng,
    (symbol, price, qty): (u64, u64, u64),
    bytes: usize,
) -> String {
    let id = rng.below(1_000_000);
    let mut body = format!(
        "{{\"id\":{id},\"sym\":\"SYM{symbol}\",\"side\":\"buy\",\"price\":{price}.25,\"qty\":{qty},\"venue\":\"XNYS\""
    );
    let mut number = 0;
    while body.len() + 20 < bytes {
        number += 1;
        if kind == Kind::Texts {
            let left = bytes - body.len() - 16;
            body.push_str(&format!(",\"text{number}\":\"{}\"", prose(rng, left.min(TEXT_BYTES))));
            continue;
        }
        match number % 3 {
            0 => body.push_str(&format!(",\"f{number}\":\"v{}\"", rng.below(10_000))),
            1 => body.push_str(&format!(",\"field{number}\":{}", rng.below(100_000))),
            _ => body.push_str(&format!(",\"n{number}\":{{\"a\":true}}")),
        }
    }
    body.push('}');
    body
}

fn load(kind: Kind, count: usize, bytes: usize) -> Load {
    let mut rng = Rng::new(7);
    let limits = SetLimits {
        filters_max: 10_000_000,
        unindexed_max: 10_000_000,
        bytes_max: usize::MAX,
        ..SetLimits::default()
    };
    let mut set = FilterSet::new(limits, HashState::new(1));
    let texts: Vec<String> = (0..count).map(|index| text(kind, index, count, &mut rng)).collect();
    let mut subscriptions = VecDeque::with_capacity(count);
    let begin = cpu_time();
    for (target, text) in texts.iter().enumerate() {
        let filter = Filter::parse(text, &Limits::default()).expect("a filter");
        subscriptions.push_back(set.add(&filter, target as u64).expect("there is room"));
    }
    while set.work(1_000_000) {}
    let built = cpu_time().saturating_sub(begin);
    let messages = (0..STRATA * STRATA)
        .map(|number| {
            // Those that match ranges alone lie in one corner, and match many: each part of the plane has its share
            // of messages, or chance would decide how many match.
            let mut of_stratum = |stratum| (stratum * VALUES + rng.below(VALUES)) / STRATA;
            let (price, qty) = (of_stratum(number % STRATA), of_stratum(number / STRATA));
            let symbol = rng.below(SYMBOLS);
            let mut headers = Table::new().with("sym", format!("SYM{symbol}"));
            if kind == Kind::Headers {
                headers.insert("price", price as f64 + 0.25);
                headers.insert("qty", qty as i64);
            }
            let properties = Properties { headers: Some(headers), ..Properties::default() };
            (properties.to_bytes(), document(kind, &mut rng, (symbol, price, qty), bytes))
        })
        .collect();
    Load { set, texts, subscriptions, messages, built }
}

/// Matches a message. Returns the matches and the steps that were counted.
fn drive_one(load: &Load, index: usize, scratch: &mut Scratch) -> (usize, u64) {
    drive(load, index..index + 1, scratch)
}

/// Matches some messages. Returns the matches and the steps that were counted.
fn drive(load: &Load, messages: Range<usize>, scratch: &mut Scratch) -> (usize, u64) {
    let mut out = Vec::new();
    let (mut found, mut steps) = (0, 0);
    for index in messages {
        let (properties, body) = &load.messages[index % load.messages.len()];
        let message = Message {
            properties: PropertiesRef(properties),
            body: body.as_bytes(),
            format: BodyFormat::Json,
            meta: Meta::default(),
        };
        out.clear();
        steps += load.set.matches(&message, u64::MAX, scratch, &mut out).steps;
        found += out.len();
    }
    (found, steps)
}

fn rates() {
    let rows = [
        (Kind::Extraction, 1, 231),
        (Kind::Extraction, 1, 869),
        (Kind::Extraction, 1, 3976),
        (Kind::Texts, 1, 869),
        (Kind::Texts, 1, 3976),
        (Kind::Headers, 1, 231),
        (Kind::Anchored, 1, 231),
        (Kind::Anchored, 1000, 231),
        (Kind::Unanchored, 1000, 231),
        (Kind::Headers, 10_000, 231),
        (Kind::Anchored, 10_000, 231),
        (Kind::Equalities, 10_000, 231),
        (Kind::Unanchored, 10_000, 231),
        (Kind::Evaluated, 1000, 231),
        (Kind::Conditions, 1000, 231),
        (Kind::Inside, 10_000, 231),
        (Kind::Anchored, 100_000, 231),
        (Kind::Equalities, 100_000, 231),
        (Kind::Unanchored, 100_000, 231),
    ];
    rates_of(&rows);
    million();
}

/// A million filters. Of `unanchored` ones most messages lie outside, of `inside` none do.
fn million() {
    let kinds = [Kind::Anchored, Kind::Unanchored, Kind::Inside];
    rates_of(&kinds.map(|kind| (kind, 1_000_000, 231)));
}

/// CPU time that this thread has had, as of some milliseconds ago: what else the machine does is not in it.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("Linux tells the CPU time of threads"))
}

fn rates_of(rows: &[(Kind, usize, usize)]) {
    println!(
        "{:12} {:>9} {:>6} {:>10} {:>11} {:>8} {:>9} {:>5} {:>6} {:>8}",
        "filters",
        "count",
        "body",
        "ns/message",
        "messages/s",
        "matches",
        "ns/step",
        "hot B",
        "all B",
        "built ms"
    );
    for &(kind, count, bytes) in rows {
        let load = load(kind, count, bytes);
        let mut scratch = Scratch::default();
        let messages = (200_000 / (1 + count / 2000)).max(200);
        let mut best = f64::INFINITY;
        let (mut found, mut steps) = (0, 0);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            (found, steps) = drive(&load, 0..messages, &mut scratch);
            best = best.min(begin.elapsed().as_nanos() as f64 / messages as f64);
        }
        println!(
            "{:12} {count:>9} {:>6} {best:>10.0} {:>11.0} {:>8.2} {:>9.1} {:>5} {:>6} {:>8.1}",
            name(kind),
            load.messages[0].1.len(),
            1e9 / best,
            found as f64 / messages as f64,
            best * messages as f64 / steps as f64,
            load.set.bytes_hot() / count,
            load.set.bytes() / count,
            load.built.as_secs_f64() * 1e3,
        );
    }
}

fn name(kind: Kind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

/// Instructions of a run of this program.
fn count(words: &[String]) -> u64 {
    let out = std::env::temp_dir().join(format!("lepus-filter-callgrind.{}", std::process::id()));
    let ran = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("this program"))
        .args(words)
        .output()
        .expect("valgrind");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let profile = std::fs::read_to_string(&out).expect("a profile");
    let _ = std::fs::remove_file(out);
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals:"));
    totals.and_then(|totals| totals.trim().parse().ok()).expect("totals")
}

/// What a new ceiling allows above the count that it is made from.
const MARGIN: f64 = 1.05;

/// The most filters of a set that is built quickly.
const FEW_MAX: usize = 1000;

/// Counts instructions, with sets of up to so many filters, and compares with the ceilings in `file`; with `record` it writes
/// them instead. Whether no ceiling was passed.
fn instructions(file: &str, filters_max: usize, record: bool) -> bool {
    let rows = [
        ("extraction", 1, 231),
        ("extraction", 1, 869),
        ("extraction", 1, 3976),
        ("texts", 1, 869),
        ("texts", 1, 3976),
        ("headers", 1, 231),
        ("headers", 10_000, 231),
        ("anchored", 1, 231),
        ("equalities", 10_000, 231),
        ("anchored", 10_000, 231),
        ("unanchored", 10_000, 231),
        ("equalities", 100_000, 231),
        ("anchored", 100_000, 231),
        ("evaluated", 1000, 231),
        ("conditions", 1000, 231),
        ("conditions", 10_000, 231),
        ("inside", 10_000, 231),
    ];
    let mut counts: Vec<(String, f64)> = Vec::new();
    for (kind, filters, bytes) in rows.into_iter().filter(|row| row.1 <= filters_max) {
        let run = |messages: usize| {
            let words = ["drive", kind].map(str::to_owned);
            let numbers = [filters, bytes, messages].map(|number| number.to_string());
            count(&[&words[..], &numbers[..]].concat())
        };
        let messages = match filters {
            _ if filters <= FEW_MAX => 4096,
            ..100_000 => 1024,
            // To read and add so many takes billions, and 200,000 more in some runs: these are to make no difference.
            _ => 16 * 1024,
        };
        let each = (run(2 * messages) - run(messages)) as f64 / messages as f64;
        counts.push((format!("{kind}-{filters}-{bytes}"), each));
    }
    let change = |word: &str| {
        let run = |changes: usize| count(&[word.to_owned(), changes.to_string()]);
        (run(8000) - run(4000)) as f64 / 4000.0
    };
    let [texts, parse, add, both] = ["texts", "parse", "add", "add-remove"].map(change);
    counts.extend(
        [("parse", parse - texts), ("add", add - texts), ("remove", both - add)]
            .map(|(name, each)| (name.to_owned(), each)),
    );
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let ceiling = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|line| line.parse::<f64>().ok())
    };
    let (mut kept, mut ceilings) = (true, String::new());
    for (name, each) in &counts {
        let verdict = match ceiling(name) {
            Some(ceiling) if *each <= ceiling => format!("ceiling {ceiling}"),
            Some(ceiling) => {
                kept = false;
                format!("ABOVE the ceiling of {ceiling}")
            }
            None => "no ceiling".to_owned(),
        };
        println!("{name:22} {each:>8.0} instructions, {verdict}");
        ceilings.push_str(&format!("{name} {}\n", (each * MARGIN).ceil()));
    }
    if record {
        let comments = text.lines().filter(|line| line.starts_with('#'));
        let comments: String = comments.map(|line| format!("{line}\n")).collect();
        std::fs::write(file, comments + &ceilings)
            .expect("the file of the ceilings can be written");
    }
    kept || record
}

/// Writes the texts of so many filters; parses, adds, or adds and removes them as well.
fn change(word: &str, changes: usize) {
    let mut set = FilterSet::new(SetLimits::default(), HashState::new(1));
    let mut rng = Rng::new(9);
    let mut subscriptions = Vec::new();
    for index in 0..changes {
        let text = text(Kind::Anchored, index, 10_000, &mut rng);
        if word == "texts" {
            std::hint::black_box(text);
            continue;
        }
        let filter = Filter::parse(&text, &Limits::default());
        let filter = filter.expect("a filter");
        if word != "parse" {
            subscriptions.push(set.add(&filter, 0).expect("there is room"));
        }
    }
    if word == "add-remove" {
        for subscription in subscriptions {
            set.remove(subscription);
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<usize>().expect("a number");
    match words[..] {
        [] => {
            rates();
            churn::alone();
            churn::dear();
            churn::beside();
        }
        ["million"] => million(),
        ["dear"] => churn::dear(),
        ["churn"] => {
            churn::alone();
            churn::dear();
            churn::beside();
        }
        ["instructions", file] => {
            assert!(instructions(file, usize::MAX, false), "a ceiling was passed");
        }
        ["instructions", file, "few"] => {
            assert!(instructions(file, FEW_MAX, false), "a ceiling was passed");
        }
        ["instructions", file, "record"] => assert!(instructions(file, usize::MAX, true)),
        ["steps"] => hostile::steps(),
        ["pairs", count] => hostile::pairs(number(count)),
        ["accepted"] => hostile::accepted(),
        ["drive", kind, filters, bytes, messages] => {
            let kind = KINDS.iter().find(|(name, _)| *name == kind).expect("a kind").1;
            let load = load(kind, number(filters), number(bytes));
            println!("{:?}", drive(&load, 0..number(messages), &mut Scratch::default()));
            println!("{} filters", load.texts.len());
        }
        [word @ ("texts" | "parse" | "add" | "add-remove"), changes] => {
            change(word, number(changes))
        }
        _ => eprintln!(
            "measure [million | churn | instructions FILE [few | record] | steps | pairs N | accepted]"
        ),
    }
}
