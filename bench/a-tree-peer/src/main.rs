//! The engine `a-tree` as lepus-bench measures it beside the engine of lepus: filters and messages come from standard input, which
//! filters match and how long it took go to standard output.
//!
//! `a-tree-peer SECONDS CHECKED`: lines `filter TEXT` and `message SYMBOL HUNDREDTHS QUANTITY`; then for each of the first
//! CHECKED messages `matches NUMBER …`, ascending, and at the end `added FILTERS SECONDS` and `searched MESSAGES SECONDS`.
#![forbid(unsafe_code)]

use a_tree::{ATree, AttributeDefinition, Event};
use std::error::Error;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A message: symbol, hundredths of the price, quantity.
type Trade<'a> = (&'a str, i64, i64);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("a-tree-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, checked] = words.as_slice() else {
        return Err("SECONDS CHECKED are needed, and nothing else".into());
    };
    let (time, checked) = (Duration::try_from_secs_f64(seconds.parse()?)?, checked.parse()?);
    let mut input = String::new();
    io::stdin().read_to_string(&mut input)?;
    let (filters, trades) = read(&input)?;

    let begun = Instant::now();
    let mut tree = ATree::new(&[
        AttributeDefinition::string("sym"),
        AttributeDefinition::float("price"),
        AttributeDefinition::integer("qty"),
    ])
    .map_err(told)?;
    for (number, text) in (0_u32..).zip(&filters) {
        tree.insert(&number, text).map_err(told)?;
    }
    let added = begun.elapsed();

    let mut out = io::stdout().lock();
    for trade in trades.iter().take(checked) {
        let event = event(&tree, *trade)?;
        let mut found: Vec<u32> =
            tree.search(&event).map_err(told)?.matches().iter().map(|number| **number).collect();
        found.sort_unstable();
        write!(out, "matches")?;
        for number in found {
            write!(out, " {number}")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "added {} {}", filters.len(), added.as_secs_f64())?;
    let (messages, passed) = search(&tree, &trades, time)?;
    writeln!(out, "searched {messages} {}", passed.as_secs_f64())?;
    Ok(())
}

fn read(input: &str) -> Outcome<(Vec<&str>, Vec<Trade<'_>>)> {
    let (mut filters, mut trades) = (Vec::new(), Vec::new());
    for line in input.lines() {
        match line.split_once(' ') {
            Some(("filter", text)) => filters.push(text),
            Some(("message", fields)) => {
                let fields: Vec<&str> = fields.split(' ').collect();
                let [symbol, price, quantity] = fields[..] else {
                    return Err(format!("a message has three fields: {line}").into());
                };
                trades.push((symbol, price.parse()?, quantity.parse()?));
            }
            _ => return Err(format!("no filter and no message: {line}").into()),
        }
    }
    if trades.is_empty() {
        return Err("there are no messages".into());
    }
    Ok((filters, trades))
}

/// What reading a message is for this engine.
fn event(tree: &ATree<u32>, (symbol, price, quantity): Trade<'_>) -> Outcome<Event> {
    let mut event = tree.make_event();
    event.with_string("sym", symbol).map_err(told)?;
    event.with_float("price", price, 2).map_err(told)?;
    event.with_integer("qty", quantity).map_err(told)?;
    Ok(event.build().map_err(told)?)
}

/// Messages in turn for so long; how many there were, and the time that passed.
fn search(tree: &ATree<u32>, trades: &[Trade<'_>], time: Duration) -> Outcome<(usize, Duration)> {
    let (mut messages, mut batch) = (0, 1);
    let begun = Instant::now();
    loop {
        for _ in 0..batch {
            let event = event(tree, trades[messages % trades.len()])?;
            black_box(tree.search(&event).map_err(told)?.matches());
            messages += 1;
        }
        let passed = begun.elapsed();
        if passed >= time {
            return Ok((messages, passed));
        }
        // The clock is looked at about a hundred times.
        if passed < time / 100 {
            batch *= 2;
        }
    }
}

/// Its errors borrow from what they are about.
fn told(error: impl Error) -> String {
    error.to_string()
}
