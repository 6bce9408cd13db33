//! The engine of content filters beside another, `a-tree`, without brokers: the same filters, the same messages, one core.

use super::factor;
use crate::affinity::{restrict_thread, spawn_on};
use crate::bench::measure::Load;
use crate::bench::place::Place;
use crate::bench::sheet::Sheet;
use crate::report::{Block, Table};
use crate::statistics::median;
use lepus_amqp::{Properties, PropertiesRef};
use lepus_base::HashState;
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Limits, Match, Message, Meta, Scratch, SetLimits,
};
use lepus_perf::filter_load::{LookAt, Wanted, Workload};
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Different messages.
const MESSAGES: u32 = 2_048;
/// Messages whose verdicts are compared before speed.
const CHECKED: usize = 500;
/// Symbols at most; fewer where each would have fewer filters than this.
const SYMBOLS_MAX: u32 = 1_000;
const SYMBOL_FILTERS: u32 = 4;
/// Steps of merging at once.
const MERGE_STEPS: usize = 1_000_000;
const TITLE: &str =
    "Engines alone: nine in ten ask for a symbol, all for ranges of price and quantity";
const LEGEND: &str = "Matching on one core, with what it takes to read a message: a table of headers as clients send it for the engine of lepus, \
                      an event made of typed values for a-tree. 500 messages' verdicts of both were held against the author's of the load.";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Engines {
    /// The program of `bench/a-tree-peer`.
    pub peer: PathBuf,
    /// Seconds of each measurement.
    pub seconds: u64,
    /// Rounds, in each of which both have their turn.
    pub rounds: usize,
    /// Decides filters and messages.
    pub seed: u64,
}

/// One engine's turn.
#[derive(Clone, Debug, Default, PartialEq)]
struct Turn {
    /// Filters that match each of the first messages, ascending.
    verdicts: Vec<Vec<u32>>,
    /// Filters added a second, their texts read.
    added: f64,
    /// Messages a second.
    searched: f64,
}

/// Turns of both with so many filters.
#[derive(Debug)]
struct Pair {
    filters: u32,
    own: Vec<Turn>,
    /// Empty where it cannot be started.
    other: Vec<Turn>,
}

/// Measures and reports; whether there is anything.
///
/// # Errors
/// When the report cannot be written.
pub fn run(
    plan: &Engines,
    counts: &[u32],
    place: &Place,
    load: &Load,
    sheet: &mut Sheet,
) -> io::Result<bool> {
    let has_peer = plan.peer.exists();
    if !has_peer {
        let why = format!(
            "a-tree is left out: {} is not there; `.ci/install a-tree` builds it.",
            plan.peer.display()
        );
        to_stderr(format_args!("{why}"));
        sheet.see(why);
    }
    let mut pairs: Vec<Pair> = Vec::new();
    for filters in counts {
        let workload = draw(*filters, plan.seed);
        let mut pair = Pair { filters: *filters, own: Vec::new(), other: Vec::new() };
        for round in 1..=plan.rounds {
            if place.stop.is_wanted() {
                break;
            }
            let what = format!("{filters} filters, {round}/{}", plan.rounds);
            let own = own_turn(&workload, plan.seconds, load.core);
            take(own, &workload, &mut pair.own, &format!("engine of lepus, {what}"), sheet);
            if has_peer {
                let other = other_turn(plan, &workload, load);
                take(other, &workload, &mut pair.other, &format!("a-tree, {what}"), sheet);
            }
        }
        if !pair.own.is_empty() || !pair.other.is_empty() {
            pairs.push(pair);
        }
    }
    if pairs.is_empty() {
        return Ok(false);
    }
    let blocks = vec![
        Block::Heading(TITLE.to_owned()),
        Block::Table(table(&pairs)),
        Block::Text(LEGEND.to_owned()),
    ];
    sheet.add(blocks, Some(figures(&pairs)))?;
    Ok(true)
}

/// Keeps a turn whose verdicts are right.
fn take(
    turn: io::Result<Turn>,
    workload: &Workload,
    turns: &mut Vec<Turn>,
    what: &str,
    sheet: &mut Sheet,
) {
    let checked = turn.map_err(|error| error.to_string()).and_then(|turn| {
        compare(&turn, workload)?;
        Ok(turn)
    });
    match checked {
        Ok(turn) => {
            to_stderr(format_args!("{what}: {:.0} messages/s", turn.searched));
            turns.push(turn);
        }
        Err(why) => sheet.fault(format!("{what}: left out: {why}")),
    }
}

/// Holds verdicts against those of the load's author.
fn compare(turn: &Turn, workload: &Workload) -> Result<(), String> {
    let expected = &workload.matching[..workload.matching.len().min(CHECKED)];
    if turn.verdicts.len() != expected.len() {
        return Err(format!(
            "it gave verdicts on {} messages of {}",
            turn.verdicts.len(),
            expected.len()
        ));
    }
    let wrong =
        (0..).zip(turn.verdicts.iter().zip(expected)).find(|(_, (own, expected))| own != expected);
    match wrong {
        None => Ok(()),
        Some((message, (own, expected))) => Err(format!(
            "its verdicts are wrong: message {message} matches {own:?} instead of {expected:?}"
        )),
    }
}

fn draw(filters: u32, seed: u64) -> Workload {
    Workload::draw(&Wanted {
        count: filters,
        anchored: 0.9,
        symbols: (filters / SYMBOL_FILTERS).clamp(1, SYMBOLS_MAX),
        ranges: 2,
        matches: 1.0,
        messages: MESSAGES,
        seed,
    })
}

/// The engine of lepus, on a thread of its own, so that the rest keeps its cores.
fn own_turn(workload: &Workload, seconds: u64, core: usize) -> io::Result<Turn> {
    std::thread::scope(|scope| {
        let turn = scope.spawn(|| {
            restrict_thread(&[core])?;
            own_engine(workload, Duration::from_secs(seconds)).map_err(io::Error::other)
        });
        turn.join().map_err(|_| io::Error::other("the engine failed"))?
    })
}

fn own_engine(workload: &Workload, time: Duration) -> Result<Turn, String> {
    let texts: Vec<String> =
        workload.filters.iter().map(|filter| filter.text(LookAt::Headers)).collect();
    let headers: Vec<Vec<u8>> = workload
        .trades
        .iter()
        .map(|trade| {
            Properties { headers: Some(trade.headers()), ..Properties::default() }.to_bytes()
        })
        .collect();
    let begun = Instant::now();
    let most = texts.len();
    let limits = SetLimits { filters_max: most, unindexed_max: most, ..SetLimits::default() };
    let mut set = FilterSet::new(limits, HashState::new(1));
    for (target, text) in (0_u64..).zip(&texts) {
        let filter = Filter::parse(text, &Limits::default());
        let filter = filter.map_err(|error| format!("`{text}` is refused: {}", error.reply()))?;
        let added = set.add(&filter, target);
        added.map_err(|full| format!("the set has no room: {} {}", full.allowed, full.what))?;
    }
    while set.work(MERGE_STEPS) {}
    let added = most as f64 / begun.elapsed().as_secs_f64();

    let mut scratch = Scratch::default();
    let mut found: Vec<Match> = Vec::new();
    let mut verdicts = Vec::new();
    for headers in headers.iter().take(CHECKED) {
        matches(&mut set, headers, &mut scratch, &mut found);
        verdicts.push(found.iter().map(|found| found.target as u32).collect());
    }
    let searched = rate(time, |nth| {
        matches(&mut set, &headers[nth % headers.len()], &mut scratch, &mut found);
        std::hint::black_box(&found);
    });
    Ok(Turn { verdicts, added, searched })
}

/// Puts the filters that match a message with these headers into `found`, ascending.
fn matches(set: &mut FilterSet, headers: &[u8], scratch: &mut Scratch, found: &mut Vec<Match>) {
    let message = Message {
        properties: PropertiesRef(headers),
        body: &[],
        format: BodyFormat::None,
        meta: Meta::default(),
    };
    found.clear();
    set.matches(&message, u64::MAX, scratch, found);
}

/// How often a second something can be done, over so long.
fn rate(time: Duration, mut act: impl FnMut(usize)) -> f64 {
    let (mut done, mut batch) = (0_usize, 1);
    let begun = Instant::now();
    loop {
        for _ in 0..batch {
            act(done);
            done += 1;
        }
        let passed = begun.elapsed();
        if passed >= time {
            return done as f64 / passed.as_secs_f64();
        }
        // The clock is looked at about a hundred times.
        if passed < time / 100 {
            batch *= 2;
        }
    }
}

/// `a-tree`, a program of its own on the same core.
fn other_turn(plan: &Engines, workload: &Workload, load: &Load) -> io::Result<Turn> {
    let errors = File::options().create(true).append(true).open(&load.errors)?;
    let mut command = Command::new(&plan.peer);
    command.args([plan.seconds.to_string(), CHECKED.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut child = spawn_on(&[load.core], &mut command)?;
    let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    // It reads all of it before it says anything.
    let given = input.write_all(lines(workload).as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    given?;
    if !output.status.success() {
        let log = load.errors.display();
        return Err(io::Error::other(format!("it ended with {}: see {log}", output.status)));
    }
    read(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "it told something else than was asked")
    })
}

/// Filters and messages as that program reads them; it knows the operators in small letters alone.
fn lines(workload: &Workload) -> String {
    let mut out = String::new();
    for filter in &workload.filters {
        let text = filter.text(LookAt::Headers).replace(" AND ", " and ");
        // Writing to a string does not fail.
        let _ = writeln!(out, "filter {text}");
    }
    for trade in &workload.trades {
        let name = lepus_perf::filter_load::symbol_name(trade.symbol);
        let _ = writeln!(out, "message {name} {} {}", trade.price, trade.quantity);
    }
    out
}

/// What it told.
fn read(told: &str) -> Option<Turn> {
    let mut turn = Turn::default();
    let per_second = |fields: &str| {
        let (count, seconds) = fields.split_once(' ')?;
        let rate = count.parse::<f64>().ok()? / seconds.parse::<f64>().ok()?;
        rate.is_finite().then_some(rate)
    };
    for line in told.lines() {
        let (word, fields) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "matches" => {
                let numbers = fields.split_whitespace().map(|number| number.parse().ok());
                turn.verdicts.push(numbers.collect::<Option<Vec<u32>>>()?);
            }
            "added" => turn.added = per_second(fields)?,
            "searched" => turn.searched = per_second(fields)?,
            _ => return None,
        }
    }
    (turn.searched > 0.0).then_some(turn)
}

/// The median of the ratios by round.
fn ratio(own: &[Turn], other: &[Turn], figure: fn(&Turn) -> f64) -> Option<f64> {
    let ratios = other.iter().zip(own).map(|(other, own)| figure(other) / figure(own));
    let ratios: Vec<f64> = ratios.collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

const FIGURES: [fn(&Turn) -> f64; 2] = [|turn| turn.searched, |turn| turn.added];

fn table(pairs: &[Pair]) -> Table {
    let mut table =
        Table::new(["filters", "engine", "messages/s", "× lepus", "filters added/s", "× lepus"]);
    for pair in pairs {
        for (name, turns) in [("lepus", &pair.own), ("a-tree", &pair.other)] {
            if turns.is_empty() {
                continue;
            }
            let mut cells = vec![pair.filters.to_string(), name.to_owned()];
            for figure in FIGURES {
                cells.push(format!("{:.0}", median(turns.iter().map(figure))));
                cells.push(ratio(&pair.own, turns, figure).map_or_else(|| "-".to_owned(), factor));
            }
            table.rows.push(cells);
        }
    }
    table
}

fn figures(pairs: &[Pair]) -> Value {
    let turns = |turns: &[Turn]| -> Value {
        let turn =
            |turn: &Turn| json!({"messages_per_s": turn.searched, "added_per_s": turn.added});
        turns.iter().map(turn).collect()
    };
    let pair = |pair: &Pair| json!({"filters": pair.filters, "lepus": turns(&pair.own), "a-tree": turns(&pair.other)});
    json!({"row": "engines", "title": TITLE, "filters": pairs.iter().map(pair).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_of_lepus_gives_the_verdicts_of_the_load() {
        let workload = draw(300, 3);
        let turn = own_engine(&workload, Duration::ZERO).unwrap();
        assert_eq!(compare(&turn, &workload), Ok(()));
        assert!(turn.verdicts.iter().any(|found| !found.is_empty()));
        let mut wrong = turn.clone();
        wrong.verdicts[7].push(299);
        assert!(compare(&wrong, &workload).unwrap_err().contains("message 7"));
        wrong.verdicts.truncate(7);
        assert!(compare(&wrong, &workload).unwrap_err().contains("7 messages of 500"));
    }

    #[test]
    fn the_other_engine_gets_operators_in_small_letters() {
        let lines = lines(&draw(10, 1));
        let filter = lines.lines().next().unwrap();
        assert!(
            filter.starts_with("filter price > ") && filter.contains(" and qty < "),
            "{filter}"
        );
        assert!(!lines.contains("AND") && lines.contains("filter sym = 'S000"));
        let message: Vec<&str> = lines.lines().last().unwrap().split(' ').collect();
        assert!(matches!(message[..], ["message", name, _, _] if name.starts_with("S0")));
    }

    #[test]
    fn what_the_other_engine_tells_is_read() {
        let turn = read("matches 3 17\nmatches\nadded 100 0.5\nsearched 9000 3\n").unwrap();
        assert_eq!(turn.verdicts, [vec![3, 17], vec![]]);
        assert_eq!((turn.added, turn.searched), (200.0, 3_000.0));
        for wrong in ["", "matches x\nsearched 1 1", "searched 1 0", "something 1", "searched 1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ratios_are_to_the_engine_of_lepus() {
        let turn = |searched| Turn { searched, added: 10.0, ..Turn::default() };
        let pair = Pair { filters: 10, own: vec![turn(1_000.0)], other: vec![turn(20.0)] };
        let table = table(&[pair]);
        assert_eq!(table.rows[0][..4], ["10", "lepus", "1000", "1.00"]);
        assert_eq!(table.rows[1], ["10", "a-tree", "20", "0.0200", "10", "1.00"]);
    }
}
