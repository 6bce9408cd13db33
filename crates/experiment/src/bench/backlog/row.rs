//! The rows of the table.

use super::figures::{Figures, Line};
use super::visit::{Loaded, Visit};
use super::{Plan, floor, many_queues};
use crate::bench::workload::Tester;
use crate::plot::significant;
use crate::statistics::median;
use crate::subject::Kind;
use lepus_amqp::method::queue;
use std::io;
use std::process::Command;

const QUEUE: &str = "backlog";
const GROUP: u64 = 100;
/// Turns of the row in which a broker is measured beside the floor.
const TURNS: usize = 15;
/// Messages of such a turn, at least.
const EACH_MIN: u64 = 200;

/// A word of a title that is a count, and what it is at the scale of a run.
type Count = (&'static str, fn(&Plan) -> u64);

/// One row.
pub struct Row {
    /// The name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Whether it needs the reference tester.
    pub needs_tester: bool,
    /// Whether it is about the machine and no broker.
    is_floor: bool,
    /// Words of the title that are counts, with what they are at the scale of a run.
    counts: &'static [Count],
    /// Measures it, for a broker where there is one.
    pub measure: fn(&Plan, Option<Kind>) -> io::Result<Vec<Line>>,
}

impl Row {
    /// The title with the counts of this run.
    pub fn title_at(&self, plan: &Plan) -> String {
        let word = |word: &str| {
            let (bare, tail) = word.split_at(word.trim_end_matches([',', ':']).len());
            match self.counts.iter().find(|(count, _)| *count == bare) {
                Some((_, count)) => format!("{}{tail}", significant(count(plan) as f64)),
                None => word.to_owned(),
            }
        };
        self.title.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// What it is measured with.
    pub fn subjects(&self, kinds: &[Kind]) -> Vec<Option<Kind>> {
        match self.is_floor {
            true => vec![None],
            false => kinds.iter().copied().map(Some).collect(),
        }
    }
}

const fn row(
    name: &'static str,
    title: &'static str,
    measure: fn(&Plan, Option<Kind>) -> io::Result<Vec<Line>>,
) -> Row {
    Row { name, title, needs_tester: false, is_floor: false, counts: &COUNTS, measure }
}

/// The counts of most rows.
const COUNTS: [Count; 3] = [
    ("10,000,000", |plan| plan.scaled(10_000_000)),
    ("1,000,000", |plan| plan.scaled(1_000_000)),
    ("100,000", |plan| plan.scaled(100_000)),
];

/// All rows, in the order of the table.
pub const ROWS: [Row; 13] = [
    Row {
        is_floor: true,
        ..row("floor", "64 KiB appends, each with fdatasync", |plan, _| floor::measure_append(plan))
    },
    Row {
        needs_tester: true,
        ..row(
            "reference-1k",
            "1,000,000 x 1 KiB persistent, confirm window 500, then drained (reference tester)",
            |plan, kind| fill_and_drain(plan, kind, Tester::Reference, 1_024, 1_000_000, 500),
        )
    },
    Row {
        needs_tester: true,
        ..row(
            "reference-10k",
            "100,000 x 10 KiB persistent, confirm window 500, then drained (reference tester)",
            |plan, kind| fill_and_drain(plan, kind, Tester::Reference, 10_240, 100_000, 500),
        )
    },
    row(
        "own-1k",
        "1,000,000 x 1 KiB persistent, confirm window 500, then drained (lepus perf)",
        |plan, kind| fill_and_drain(plan, kind, Tester::Own, 1_024, 1_000_000, 500),
    ),
    row(
        "own-1k-wide",
        "1,000,000 x 1 KiB persistent, confirm window 5,000, then drained (lepus perf)",
        |plan, kind| fill_and_drain(plan, kind, Tester::Own, 1_024, 1_000_000, 5_000),
    ),
    row(
        "own-10k",
        "100,000 x 10 KiB persistent, confirm window 500, then drained (lepus perf)",
        |plan, kind| fill_and_drain(plan, kind, Tester::Own, 10_240, 100_000, 500),
    ),
    row("window-1", "1 KiB persistent, confirm window 1, beside the null persister", one_by_one),
    row(
        "queues-100",
        "1 KiB persistent, 100 publishers with window 100: to one queue, to 100 queues",
        hundred_queues,
    ),
    row("fanout-10", "1 KiB persistent to 10 durable queues, confirm window 500", fan_out),
    row(
        "interleaved",
        "100 interleaved queues, 1,000,000 x 1 KiB, budget 256 MiB: one drained, then the rest",
        interleaved,
    ),
    row("unacked", "1 of 1,000 stays unacknowledged over 10,000,000 x 1 KiB", unacked),
    row("small", "10,000,000 x 16 B in one queue, confirm window 5,000", small),
    Row {
        counts: &[
            ("10,000,000", |plan| many_queues::counts(plan).1),
            ("100,000", |plan| many_queues::counts(plan).0),
        ],
        ..row(
            "restart",
            "10,000,000 x 16 B in 100,000 durable queues, restarted",
            many_queues::measure,
        )
    },
];

/// A tester's command. Every queue is durable and stays.
pub fn tester(plan: &Plan, tester: Tester, port: u16, words: &[&str]) -> Command {
    let mut command = plan.load.testers.against(tester, port, words);
    command.args(["-f", "persistent", "-ad", "false"]);
    command
}

fn wanted(kind: Option<Kind>) -> io::Result<Kind> {
    kind.ok_or_else(|| io::Error::other("this row needs a broker"))
}

/// What a load with a queue should leave behind, compared with what the broker says.
fn leftover(visit: &Visit, queue: &str, expected: u64) -> io::Result<String> {
    let declare = queue::Declare { queue, passive: true, ..Default::default() };
    let count = visit.peer()?.count(1, declare)?;
    Ok(match count == expected {
        true => String::new(),
        false => format!("COUNT {count}, not {expected}"),
    })
}

/// Sees that a drain will find all its messages; it would wait for the others.
fn expect(visit: &Visit, queue: &str, expected: u64) -> io::Result<()> {
    match leftover(visit, queue, expected)?.as_str() {
        "" => Ok(()),
        text => Err(io::Error::other(format!("after the restart: {text} in {queue}"))),
    }
}

/// Fills and drains twice on the same directory: on new files and, the second time, on what is
/// there already.
fn fill_and_drain(
    plan: &Plan,
    kind: Option<Kind>,
    made_by: Tester,
    size: u64,
    count: u64,
    window: u64,
) -> io::Result<Vec<Line>> {
    let kind = wanted(kind)?;
    let messages = plan.scaled(count);
    let payload = messages * size;
    let (number, size, window) = (messages.to_string(), size.to_string(), window.to_string());
    let mut lines = Vec::new();
    for (fill, drain) in [("fill", "drain"), ("fill again", "drain again")] {
        let visit = Visit::start(plan, kind, &[], lines.is_empty())?;
        let words = ["-x", "1", "-y", "0", "-u", QUEUE, "-s", &size, "-c", &window, "-C", &number];
        let loaded = visit.load(plan, tester(plan, made_by, visit.port(), &words))?;
        let note = leftover(&visit, QUEUE, messages)?;
        let figures = visit.end(&loaded, messages, payload)?;
        lines.push(Line::new(kind.name(), fill, figures).noting(note));

        let visit = Visit::start(plan, kind, &[], false)?;
        expect(&visit, QUEUE, messages)?;
        let words = ["-x", "0", "-y", "1", "-a", "-u", QUEUE, "-D", &number];
        let loaded = visit.load(plan, tester(plan, made_by, visit.port(), &words))?;
        let note = leftover(&visit, QUEUE, 0)?;
        let start_millis = visit.start_millis;
        let figures = visit.end(&loaded, messages, payload)?;
        let line = Line::new(kind.name(), drain, figures).noting(note);
        lines.push(line.with("start ms", start_millis));
    }
    Ok(lines)
}

/// A fill that is measured by itself.
fn fill(
    plan: &Plan,
    kind: Kind,
    phase: &str,
    messages: u64,
    size: u64,
    words: &[&str],
) -> io::Result<(Line, Loaded)> {
    let visit = Visit::start(plan, kind, &[], true)?;
    let size_text = size.to_string();
    let mut all = vec!["-y", "0", "-s", &size_text];
    all.extend(words);
    let loaded = visit.load(plan, tester(plan, Tester::Own, visit.port(), &all))?;
    let empty_mb = visit.resident_empty as f64 / 1e6;
    let figures = visit.end(&loaded, messages, messages * size)?;
    Ok((Line::new(kind.name(), phase, figures).with("empty MB", empty_mb), loaded))
}

/// On files that are written for the first time, for which a file system notes more than on those that were written before,
/// and on the others.
fn one_by_one(plan: &Plan, kind: Option<Kind>) -> io::Result<Vec<Line>> {
    let kind = wanted(kind)?;
    let persister = floor::Persister::start(plan, plan.scaled(20_000).max(EACH_MIN))?;
    let mut lines = one_by_one_in(plan, kind, &persister, false)?;
    lines.extend(one_by_one_in(plan, kind, &persister, true)?);
    Ok(lines)
}

fn one_by_one_in(
    plan: &Plan,
    kind: Kind,
    persister: &floor::Persister,
    again: bool,
) -> io::Result<Vec<Line>> {
    // Many short turns: what else the disk does, and what it may do, changes from second to second.
    let each = (plan.scaled(20_000) / TURNS as u64).max(EACH_MIN);
    let messages = each * TURNS as u64;
    let number = each.to_string();
    let visit = Visit::start(plan, kind, &[], true)?;
    if again {
        write_files(plan, &visit)?;
    }
    let words = ["-x", "1", "-y", "0", "-s", "1024", "-u", QUEUE, "-c", "1", "-C", &number];
    let mut turns = Vec::new();
    let mut floors = Vec::new();
    // The first turn is not counted: files are made in it.
    for turn in 0..=TURNS {
        let floor = persister.ask(plan, each)?;
        let loaded = visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
        if turn > 0 {
            floors.push(floor);
            turns.push(loaded);
        }
    }
    let note = leftover(&visit, QUEUE, messages + each)?;
    let phase = if again { "window 1, files used before" } else { "window 1" };
    let floor = |of: fn(&floor::Echoed) -> f64| median(floors.iter().map(of));
    let figures = Figures { messages, rate: floor(|one| one.rate), ..Figures::default() };
    let floor_line = Line::new("null persister", phase, figures)
        .with("median µs", floor(|one| one.median))
        .with("99th µs", floor(|one| one.last));
    let loaded = Loaded::together(&turns);
    let (typical, last) = loaded.confirms.unwrap_or((f64::NAN, f64::NAN));
    // Each by the floor's of the moment before.
    let pairs = turns.iter().zip(&floors);
    let shares = pairs.filter_map(|(turn, floor)| Some(turn.confirms?.0 / floor.median));
    // Of what was written and read in the whole visit some is the floor's, and what was written to make files.
    let whole = visit.end(&loaded, messages, messages * 1_024)?;
    let figures = Figures { written: 0.0, handed: 0.0, device_written: 0.0, read: 0.0, ..whole };
    let line = Line::new(kind.name(), phase, figures)
        .with("median µs", typical)
        .with("99th µs", last)
        .with("median by the null persister's", median(shares))
        .noting(note);
    Ok(vec![floor_line, line])
}

/// Has the broker write its files and purge what is in them, twice: what it has made ahead is written by then as well.
fn write_files(plan: &Plan, visit: &Visit) -> io::Result<()> {
    let messages = plan.scaled(60_000);
    let number = messages.to_string();
    let words = ["-x", "1", "-y", "0", "-s", "1024", "-u", QUEUE, "-c", "500", "-C", &number];
    for _ in 0..2 {
        visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
        let mut peer = visit.peer()?;
        peer.send(1, queue::Purge { queue: QUEUE, ..Default::default() });
        peer.expect("queue.purge-ok")?;
    }
    Ok(())
}

fn hundred_queues(plan: &Plan, kind: Option<Kind>) -> io::Result<Vec<Line>> {
    let kind = wanted(kind)?;
    let messages = plan.scaled(1_000_000);
    let (group, each) = (GROUP.to_string(), (messages / GROUP).to_string());
    let load = ["-x", &group, "-c", "100", "-C", &each];
    let (one, _) =
        fill(plan, kind, "one queue", messages, 1_024, &[&load[..], &["-u", QUEUE]].concat())?;
    let (many, _) = fill(
        plan,
        kind,
        "100 queues",
        messages,
        1_024,
        &[&load[..], &pattern("1", "100")].concat(),
    )?;
    let rates = [&many, &one].map(|line| line.figures.map_or(0.0, |figures| figures.rate));
    Ok(vec![one, many.with("of one queue", rates[0] / rates[1])])
}

fn pattern<'a>(from: &'a str, to: &'a str) -> [&'a str; 6] {
    ["--queue-pattern", "backlog-%d", "--queue-pattern-from", from, "--queue-pattern-to", to]
}

fn fan_out(plan: &Plan, kind: Option<Kind>) -> io::Result<Vec<Line>> {
    let kind = wanted(kind)?;
    let messages = plan.scaled(200_000);
    let number = messages.to_string();
    let visit = Visit::start(plan, kind, &[], true)?;
    let mut peer = visit.peer()?;
    for number in 0..10 {
        let name = format!("{QUEUE}-{number}");
        let declare = queue::Declare { queue: &name, durable: true, ..Default::default() };
        peer.send(1, declare);
        peer.expect("queue.declare-ok")?;
        let bind = queue::Bind { queue: &name, exchange: "amq.fanout", ..Default::default() };
        peer.send(1, bind);
        peer.expect("queue.bind-ok")?;
    }
    let words = [
        "-x",
        "1",
        "-y",
        "0",
        "-s",
        "1024",
        "-c",
        "500",
        "-C",
        &number,
        "-t",
        "fanout",
        "-e",
        "amq.fanout",
        "-p",
    ];
    let loaded = visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
    let mut note = String::new();
    for number in 0..10 {
        note = format!("{note}{}", leftover(&visit, &format!("{QUEUE}-{number}"), messages)?);
    }
    let figures = visit.end(&loaded, messages, messages * 1_024)?;
    Ok(vec![Line::new(kind.name(), "fill", figures).noting(note)])
}

fn interleaved(plan: &Plan, kind: Option<Kind>) -> io::Result<Vec<Line>> {
    let kind = wanted(kind)?;
    let flags: &[&str] = match kind {
        Kind::Lepus => &["--memory-budget", "256MiB"],
        _ => &[],
    };
    let each = plan.scaled(1_000_000) / GROUP;
    let (messages, number) = (each * GROUP, each.to_string());
    let visit = Visit::start(plan, kind, flags, true)?;
    let words = ["-x", "100", "-y", "0", "-s", "1024", "-c", "20", "-C", &number];
    let words = [&words[..], &pattern("1", "100")].concat();
    let loaded = visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
    let figures = visit.end(&loaded, messages, messages * 1_024)?;
    let mut lines = vec![Line::new(kind.name(), "fill", figures)];

    let visit = Visit::start(plan, kind, flags, false)?;
    expect(&visit, "backlog-1", each)?;
    expect(&visit, "backlog-100", each)?;
    let words = ["-x", "0", "-y", "1", "-a", "-u", "backlog-1", "-D", &number];
    let one = visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
    let words = ["-x", "0", "-y", "99", "-a", "-D", &number];
    let words = [&words[..], &pattern("2", "100")].concat();
    let rest = visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
    let all = Loaded { cpu_seconds: one.cpu_seconds + rest.cpu_seconds, ..rest };
    let note = leftover(&visit, "backlog-100", 0)?;
    let figures = visit.end(&all, messages, messages * 1_024)?;
    let one_read = one.moved.read as f64 / (each * 1_024) as f64;
    let line = Line::new(kind.name(), "drain", figures).noting(note);
    lines.push(line.with("read × of the one", one_read));
    Ok(lines)
}

fn unacked(plan: &Plan, kind: Option<Kind>) -> io::Result<Vec<Line>> {
    let kind = wanted(kind)?;
    let messages = plan.scaled(10_000_000);
    let number = messages.to_string();
    let visit = Visit::start(plan, kind, &[], true)?;
    let words = [
        "-x",
        "1",
        "-y",
        "1",
        "-u",
        QUEUE,
        "-s",
        "1024",
        "-c",
        "5000",
        "-C",
        &number,
        "-D",
        &number,
        "--keep-unacked",
        "1000",
    ];
    let loaded = visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
    let figures = visit.end(&loaded, messages, messages * 1_024)?;
    let line = Line::new(kind.name(), "both ways", figures);
    let (disk_most, disk_end) = loaded.disk;
    let line = line.with("disk MB at most", disk_most as f64 / 1e6);
    let line = line.with("at the end", disk_end as f64 / 1e6);
    Ok(vec![line.with("unacked MB", messages as f64 * 1.024 / 1e6)])
}

fn small(plan: &Plan, kind: Option<Kind>) -> io::Result<Vec<Line>> {
    let kind = wanted(kind)?;
    let messages = plan.scaled(10_000_000);
    let number = messages.to_string();
    let words = ["-x", "1", "-u", QUEUE, "-c", "5000", "-C", &number];
    let (line, loaded) = fill(plan, kind, "fill", messages, 16, &words)?;
    let line = line.with("disk bytes each", loaded.disk.1 as f64 / messages as f64);
    let visit = Visit::start(plan, kind, &[], false)?;
    expect(&visit, QUEUE, messages)?;
    let words = ["-x", "0", "-y", "1", "-a", "-u", QUEUE, "-D", &number];
    let loaded = visit.load(plan, tester(plan, Tester::Own, visit.port(), &words))?;
    let note = leftover(&visit, QUEUE, 0)?;
    let start_millis = visit.start_millis;
    let figures = visit.end(&loaded, messages, messages * 16)?;
    let drain = Line::new(kind.name(), "drain", figures).with("start ms", start_millis);
    Ok(vec![line, drain.noting(note)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    #[test]
    fn rows_have_names_of_their_own() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.name != row.name));
        }
    }
    #[test]
    fn titles_have_the_counts_of_the_run() {
        let scratch = Scratch::new("titles");
        let plan = Plan::for_test(0.01, scratch.path());
        let title = |name: &str| {
            ROWS.iter().find(|row| row.name == name).map(|row| row.title_at(&plan)).unwrap()
        };
        assert!(
            title("own-1k-wide").starts_with("10,000 x 1 KiB persistent, confirm window 5,000,")
        );
        assert_eq!(title("unacked"), "1 of 1,000 stays unacknowledged over 100,000 x 1 KiB");
        assert!(title("restart").starts_with("100,000 x 16 B in 1,000 durable queues"));
        assert!(title("interleaved").starts_with("100 interleaved queues, 10,000 x 1 KiB"));
        let whole = Plan::for_test(1.0, scratch.path());
        assert!(ROWS.iter().all(|row| row.title_at(&whole) == row.title));
    }
}
