//! What locality is worth on the machines of experiment E1: counts per message from drives through the core, times the
//! costs of memory accesses that were published for such machines. The method and its limits: docs/numa-model.md.

use crate::bench::callgrind::{self, Count};
use crate::bench::core_drive;
use crate::bench::place::Place;
use crate::bench::sheet::{Cover, Sheet};
use crate::report::{Block, Table};
use lepus_perf::to_stderr;
use lepus_topology::{Machine, source};
use serde_json::{Value, json};
use std::io;

/// An access to memory on the node of the CPU, in nanoseconds (E3).
const LOCAL_NS: f64 = 100.0;
/// One to another node's, at least and at most (E3).
const REMOTE_NS: [f64; 2] = [150.0, 300.0];
/// Bytes that move between caches at once.
const LINE_BYTES: f64 = 64.0;
/// Lines of a ring that a batch of mail moves: the sender's and the receiver's position.
const RING_LINES: f64 = 2.0;
/// Each line of mail moves twice: to the receiver that reads it, and back to the sender that writes it anew.
const MOVES: f64 = 2.0;
/// Messages of the shorter of two runs.
const MESSAGES: u64 = 9_000;
/// The machines.
const MACHINES: [&str; 2] = ["leviathan", "artemis"];

/// How a broker goes about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// What it is, in words.
    pub name: &'static str,
    /// Counts per message.
    pub count: Count,
    /// Whether each shard's memory is on its node.
    pub is_placed: bool,
}

impl Case {
    /// Cache lines that a message moves between two cores.
    #[must_use]
    pub fn contended(&self) -> f64 {
        let mail = (self.count.mail_bytes / LINE_BYTES).max(self.count.batches);
        (mail + self.count.batches * RING_LINES) * MOVES
    }

    /// Nanoseconds that a message waits for memory, where nothing overlaps, on `nodes` nodes that are all as far from
    /// each other, with so many for a remote access.
    #[must_use]
    pub fn nanos(&self, nodes: usize, remote_ns: f64) -> f64 {
        let elsewhere = (nodes.max(1) - 1) as f64 / nodes.max(1) as f64;
        let anywhere = LOCAL_NS * (1.0 - elsewhere) + remote_ns * elsewhere;
        let own = if self.is_placed { LOCAL_NS } else { anywhere };
        // The other shard is on any of the nodes.
        self.count.misses * own + self.contended() * anywhere
    }
}

const TITLE: &str = "What locality is worth, by counts";
const ASKS: &str = "On the machines of experiment E1: how long would a message wait for memory, by how it goes about its cores?";
const LEGEND: [&str; 2] = [
    "accesses: what one CPU's share of the last cache does not hold; lines sent: cache lines that move between two cores, for \
     each message. Both are counted in the core without sockets, by callgrind.",
    "ns: accesses and lines by what they cost in experiment E3, from 150 to 300 ns for a remote one, where nothing overlaps. \
     Good for comparing rows, not for rates: docs/numa-model.md.",
];

/// Counts, and reports a table for each machine.
///
/// # Errors
/// When the report cannot be written, or nothing could be counted.
pub fn run(place: &Place) -> io::Result<()> {
    let size = ("messages", format!("{MESSAGES} and twice as many"));
    let cover = Cover { name: "numa-model", title: TITLE, asks: ASKS, size };
    let mut sheet = Sheet::new(cover, place)?;
    place.cast.load("drive", || "lepus-bench drive: the core without sockets".to_owned());
    let mut was_measured = false;
    for name in MACHINES.into_iter().take_while(|_| !place.stop.is_wanted()) {
        to_stderr(format_args!("{name} …"));
        match count_on(name, place) {
            Ok((machine, cache, cases)) => {
                was_measured = true;
                let nodes = machine.nodes.len();
                let heading = format!(
                    "{name}: {nodes} nodes, {} CPUs, {} KiB of cache for each shard",
                    machine.cpus.len(),
                    cache >> 10
                );
                let mut blocks = vec![Block::Heading(heading), Block::Table(table(&cases, nodes))];
                blocks.extend(fewer(&cases, nodes).map(Block::Text));
                sheet.add(blocks, Some(figures(name, cache, &cases, nodes)))?;
            }
            Err(error) => sheet.fault(format!("{name}: left out: {error}")),
        }
    }
    sheet.finish(&LEGEND, was_measured)
}

/// What is counted with the caches of a machine.
fn count_on(name: &str, place: &Place) -> io::Result<(Machine, u64, [Case; 4])> {
    let machine = source::from_file(name).map_err(io::Error::other)?;
    let cache = share_of_cache(&machine);
    // Two shards on one simulated core have the caches of two.
    let count = |drive: &str| {
        place.goes_on()?;
        let shards = core_drive::find(drive).map_or(1, |drive| u64::from(drive.shards));
        let words = ["--cache-sim=yes".to_owned(), format!("--LL={},16,64", cache * shards)];
        let count = callgrind::count(drive, MESSAGES, place.ground.path(), &words);
        // What a signal to all of them cut short says nothing that a reader needs.
        place.goes_on().and(count)
    };
    let cases = cases(count("e1-local")?, count("e1-all")?, count("e1-crossed")?);
    Ok((machine, cache, cases))
}

/// The cases that are compared, the first one being how `lepus` does it.
#[must_use]
pub fn cases(local: Count, all: Count, crossed: Count) -> [Case; 4] {
    // Any core meets any queue, and its messages go from core to core: what both add to a message.
    let astray = Count {
        instructions: crossed.instructions + all.instructions - local.instructions,
        misses: crossed.misses + all.misses - local.misses,
        ..crossed
    };
    [
        Case { name: "stays on a shard, memory placed", count: local, is_placed: true },
        Case { name: "stays on a shard, memory anywhere", count: local, is_placed: false },
        Case { name: "crosses twice, memory placed", count: crossed, is_placed: true },
        Case { name: "crosses twice, any core, any memory", count: astray, is_placed: false },
    ]
}

/// The bytes of the last cache that fall to each CPU, down to a power of two.
#[must_use]
pub fn share_of_cache(machine: &Machine) -> u64 {
    let last = machine.caches.iter().max_by_key(|cache| cache.level);
    let share = last.map_or(1 << 20, |cache| cache.bytes / cache.cpus.len().max(1) as u64);
    1 << share.max(1 << 16).ilog2()
}

fn table(cases: &[Case], nodes: usize) -> Table {
    let mut table = Table::new([
        "a message",
        "instructions",
        "accesses",
        "mails",
        "lines sent",
        "waits for memory, ns",
        "by the first",
    ]);
    for case in cases {
        let [low, high] = REMOTE_NS.map(|remote| case.nanos(nodes, remote));
        let first = REMOTE_NS.map(|remote| cases[0].nanos(nodes, remote));
        table.rows.push(vec![
            case.name.to_owned(),
            format!("{:.0}", case.count.instructions),
            format!("{:.2}", case.count.misses),
            format!("{:.2}", case.count.mails),
            format!("{:.2}", case.contended()),
            format!("{low:.0} to {high:.0}"),
            format!("{:+.0} to {:+.0}", low - first[0], high - first[1]),
        ]);
    }
    table
}

/// What the last case would wait on fewer nodes, in sentences.
fn fewer(cases: &[Case], nodes: usize) -> impl Iterator<Item = String> {
    let last = cases[cases.len() - 1];
    (2..nodes).map(move |fewer| {
        let [low, high] = REMOTE_NS.map(|remote| last.nanos(fewer, remote));
        format!("The last one on {fewer} of the nodes: {low:.0} to {high:.0} ns.")
    })
}

fn figures(machine: &str, cache: u64, cases: &[Case], nodes: usize) -> Value {
    let case = |case: &Case| {
        let [low, high] = REMOTE_NS.map(|remote| case.nanos(nodes, remote));
        json!({
            "case": case.name,
            "instructions": case.count.instructions,
            "accesses": case.count.misses,
            "mails": case.count.mails,
            "lines_sent": case.contended(),
            "waits_nanos": [low, high],
        })
    };
    json!({
        "machine": machine,
        "nodes": nodes,
        "cache_bytes": cache,
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_counts_give_known_costs() {
        let count =
            Count { misses: 2.0, mails: 2.0, batches: 0.5, mail_bytes: 192.0, ..Count::default() };
        let placed = Case { name: "", count, is_placed: true };
        // 3 lines of mail and 1 of the ring, twice each.
        assert_eq!(placed.contended(), 8.0);
        // On one node everything is local.
        assert_eq!(placed.nanos(1, 300.0), 1000.0);
        // On four, three of four lines come from afar: 2 · 100 + 8 · (25 + 225).
        assert_eq!(placed.nanos(4, 300.0), 2200.0);
        let anywhere = Case { is_placed: false, ..placed };
        assert_eq!(anywhere.nanos(4, 300.0), 2500.0);
        assert!(anywhere.nanos(2, 300.0) < anywhere.nanos(3, 300.0));
        let local = Case { count: Count { misses: 2.0, ..Count::default() }, ..placed };
        assert_eq!((local.contended(), local.nanos(4, 150.0)), (0.0, 200.0));
    }

    #[test]
    fn cases_add_up_and_caches_are_shared() {
        let of = |instructions, misses| Count { instructions, misses, ..Count::default() };
        let cases = cases(of(100.0, 1.0), of(110.0, 5.0), of(300.0, 2.0));
        assert_eq!((cases[3].count.instructions, cases[3].count.misses), (310.0, 6.0));
        assert_eq!(table(&cases, 4).rows.len(), 4);
        let fewer: Vec<String> = fewer(&cases, 4).collect();
        assert!(fewer[0].contains("on 2 of the nodes") && fewer[1].contains("on 3"), "{fewer:?}");
        let share = |name| share_of_cache(&source::from_file(name).unwrap());
        assert_eq!((share("leviathan"), share("artemis")), (1 << 20, 1 << 19));
    }
}
