//! Content filters beside those of other brokers, and the engine beside another: the same filters, the same messages, and
//! verdicts before speed.

mod artemis;
mod engines;
mod heard;

use crate::bench::measure::{self, Load};
use crate::bench::place::{Place, choose};
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::{List, ROUNDS_MAX, from_one};
use crate::bench::workload::Tester;
use crate::call::{absolute, number};
use crate::plot::{Axis, LinePlot, Look, Series, Unit};
use crate::report::{Block, Table, plot};
use crate::statistics::median;
use crate::subject::{Kind, Subject};
use clap::Args;
use engines::Engines;
use heard::{Figures, Heard};
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;

/// The most filters.
const FILTERS_MAX: u64 = 1_000_000;
/// The part of a rate that has to go through a broker so that it keeps up.
const KEPT_UP: f64 = 0.9;
/// How long the tester waits for what is under way at the end, in seconds.
const DRAIN: &str = "120";

/// What is asked for.
#[derive(Clone, Debug, Args)]
pub struct Words {
    /// How often each broker has its turn
    #[arg(long, default_value_t = 3, value_parser = from_one::<usize>(ROUNDS_MAX))]
    rounds: usize,
    /// Numbers of filters
    #[arg(long, value_name = "N,…", default_value = "100,1000,10000")]
    counts: List,
    /// What is measured, of bindings, equality, consumers and engines; all when left out
    #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
    rows: List,
    /// Brokers; those that are installed when left out
    #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
    brokers: List,
    /// Messages a second with filters at consumers: no broker tells a publisher there that it lags behind
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = from_one::<u64>(10_000_000))]
    consumer_rate: u64,
    /// So long before each measurement there is load and nothing counts, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = warm_up)]
    warm_up: f64,
    /// Decides filters and messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A build of lepus that makes the load; the one that is measured when left out
    #[arg(long, value_name = "FILE")]
    tester: Option<PathBuf>,
    /// The program of bench/a-tree-peer
    #[arg(long, value_name = "FILE", default_value = "build/a-tree-peer")]
    a_tree: PathBuf,
}

fn warm_up(text: &str) -> Result<f64, String> {
    number(text, 3_600.0)
}

/// A broker and how it is told what to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contender {
    kind: Kind,
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// JMS selectors as arguments.
    Filter,
    /// Bindings of a headers exchange.
    HeadersExchange,
    /// Selectors of queues or consumers in the protocol of Artemis, by a load of its own.
    Artemis,
}

impl Contender {
    const fn filter(kind: Kind) -> Contender {
        Contender { kind, by: By::Filter }
    }

    const fn headers(kind: Kind) -> Contender {
        Contender { kind, by: By::HeadersExchange }
    }

    const fn artemis() -> Contender {
        Contender { kind: Kind::Artemis, by: By::Artemis }
    }

    fn name(self) -> String {
        match self.by {
            By::Filter | By::Artemis => self.kind.name().to_owned(),
            By::HeadersExchange => format!("{}, headers exchange", self.kind.name()),
        }
    }
}

/// One question, and who answers it; all others are held against the first.
#[derive(Debug)]
struct Row {
    name: &'static str,
    title: &'static str,
    /// Words for `lepus perf filters` beside how filters are written.
    words: &'static [&'static str],
    /// Whether the load has the rate for consumers.
    is_paced: bool,
    contenders: &'static [Contender],
}

const ROWS: [Row; 3] = [
    Row {
        name: "bindings",
        title: "Filters at bindings: nine in ten ask for a symbol, all for ranges of price and quantity",
        words: &["--at", "binding"],
        is_paced: false,
        contenders: &[
            Contender::filter(Kind::Lepus),
            Contender::filter(Kind::Qpid),
            Contender::artemis(),
        ],
    },
    Row {
        name: "equality",
        title: "Equality at bindings: each asks for one symbol",
        words: &["--at", "binding", "--ranges", "0"],
        is_paced: false,
        contenders: &[
            Contender::filter(Kind::Lepus),
            Contender::filter(Kind::Qpid),
            Contender::headers(Kind::Lepus),
            Contender::headers(Kind::RabbitMq),
            Contender::headers(Kind::LavinMq),
            Contender::headers(Kind::Qpid),
        ],
    },
    Row {
        name: "consumers",
        title: "Filters at consumers, 63 on a queue: as at bindings",
        words: &["--at", "consumer"],
        is_paced: true,
        contenders: &[
            Contender::filter(Kind::Lepus),
            Contender::filter(Kind::Qpid),
            Contender::artemis(),
        ],
    },
];
/// Further one, which has no brokers.
const ENGINES: &str = "engines";
/// Who can take part.
const KINDS: [Kind; 5] = [Kind::Lepus, Kind::Qpid, Kind::Artemis, Kind::RabbitMq, Kind::LavinMq];

const TITLE: &str = "Content filters, beside those of other brokers";
const ASKS: &str = "Thousands of filters of which each message matches about one: at what rate do brokers decide, what does a message cost them, \
                    how fast are filters set? All see the same filters and the same messages, by headers, and whoever decides wrongly is not \
                    measured.";
const LEGEND: [&str; 4] = [
    "Medians of the rounds; brokers take turns. × lepus: the median of each round's ratio to the first line with as many filters. \
     µs CPU: of the broker's process on its core, by message that was published. The tester works out which filter matches which message; \
     what comes is held against that, 500 messages one by one before the load and all of it by number.",
    "At bindings 1,000 messages at most wait for their confirms, so that a broker sets the rate. At consumers the rate is set, and CPU is \
     what there is to compare.",
    "A headers exchange compares headers for equality and knows no ranges.",
    "Artemis speaks another protocol: its load is a program of bench/artemis-peer with its own client, on the core of the other tester, with \
     the same filters and messages, and as many verdicts checked. Each filter is that of a queue of its own there, or of a consumer.",
];

/// The question with its size.
#[derive(Debug)]
pub struct Plan {
    words: Words,
    counts: Vec<u32>,
    place: Place,
    load: Load,
    engines: Engines,
}

impl Plan {
    /// Reads the words.
    ///
    /// # Errors
    /// When a number or a name is none.
    pub fn new(words: Words, (place, mut load): (Place, Load)) -> Result<Plan, String> {
        let counts = counts(&words.counts)?;
        let known = || ROWS.iter().map(|row| row.name).chain([ENGINES]);
        if let Some(name) = words.rows.0.iter().find(|name| known().all(|known| known != *name)) {
            return Err(format!(
                "no row `{name}`; there are: {}",
                known().collect::<Vec<_>>().join(", ")
            ));
        }
        if let Some(tester) = words.tester.clone() {
            load.testers.lepus = absolute(tester)?;
        }
        let engines = Engines {
            peer: absolute(words.a_tree.clone())?,
            seconds: load.seconds,
            rounds: words.rounds,
            seed: words.seed,
        };
        let most = counts.iter().max().copied().unwrap_or(0).to_string();
        let limits = ["--limits-exchange-filters-max", &most, "--limits-vhost-filters-max", &most];
        let place = place.with_flags(limits);
        Ok(Plan { words, counts, place, load, engines })
    }

    fn has_row(&self, name: &str) -> bool {
        self.words.rows.0.is_empty() || self.words.rows.0.iter().any(|asked| asked == name)
    }

    /// The words for `lepus perf` after those that are the same for everybody.
    fn tester_words(&self, row: &Row, by: By, filters: u32, pid: u32) -> Vec<String> {
        let mut words: Vec<&str> = vec!["filters"];
        words.extend(row.words.iter().filter(|word| by == By::Filter || !is_of_ranges(row, word)));
        match by {
            By::Filter | By::Artemis => {
                words.extend(["--argument", "x-filter-jms-selector", "--look-at", "headers"]);
            }
            By::HeadersExchange => words.push("--headers-exchange"),
        }
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        if row.is_paced {
            words.extend(["--rate".to_owned(), self.words.consumer_rate.to_string()]);
        }
        for (name, value) in [
            ("--count", filters.to_string()),
            ("--seed", self.words.seed.to_string()),
            ("--time", self.load.seconds.to_string()),
            ("--warm-up", self.words.warm_up.to_string()),
            ("--drain", DRAIN.to_owned()),
            ("--pid", pid.to_string()),
            ("--output", "jsonl".to_owned()),
        ] {
            words.extend([name.to_owned(), value]);
        }
        words
    }
}

/// Whether a word says that there are no ranges, which a headers exchange needs not be told.
fn is_of_ranges(row: &Row, word: &str) -> bool {
    row.words.windows(2).any(|pair| pair[0] == "--ranges" && pair.contains(&word))
}

fn counts(list: &List) -> Result<Vec<u32>, String> {
    let count = |text: &String| {
        let count = text.parse::<u32>().ok();
        count.filter(|count| (1..=FILTERS_MAX).contains(&u64::from(*count))).ok_or_else(|| {
            format!("--counts: a whole number from 1 to {FILTERS_MAX} is needed, not `{text}`")
        })
    };
    let mut counts = list.0.iter().map(count).collect::<Result<Vec<_>, _>>()?;
    counts.sort_unstable();
    counts.dedup();
    if counts.is_empty() { Err("--counts: there is no number".to_owned()) } else { Ok(counts) }
}

/// Measures, prints the tables and leaves the report.
///
/// # Errors
/// When nothing could be measured, or the report cannot be written.
pub fn run(plan: &Plan) -> io::Result<()> {
    let size = format!(
        "{} rounds of {} s with {} filters",
        plan.words.rounds,
        plan.load.seconds,
        plan.counts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    );
    let cover = Cover { name: "filters", title: TITLE, asks: ASKS, size: ("medians of", size) };
    let chosen = choose(&KINDS, &plan.words.brokers.0, &plan.place.site);
    let (kinds, left_out) = chosen.map_err(io::Error::other)?;
    let mut sheet = Sheet::new(cover, &plan.place)?;
    left_out.into_iter().for_each(|sentence| sheet.see(sentence));
    let mut was_measured = false;
    if plan.has_row(ENGINES) {
        was_measured |=
            engines::run(&plan.engines, &plan.counts, &plan.place, &plan.load, &mut sheet)?;
    }
    let rows: Vec<&Row> = ROWS.iter().filter(|row| plan.has_row(row.name)).collect();
    let takes_part = |kind: &Kind| {
        rows.iter().any(|row| row.contenders.iter().any(|contender| contender.kind == *kind))
    };
    // Brokers stay for all of it: a virtual machine that has run for a while is faster, and idle ones need next to nothing.
    let mut subjects: Vec<(Kind, Subject)> = Vec::new();
    for kind in kinds.into_iter().filter(takes_part) {
        if plan.place.stop.is_wanted() {
            break;
        }
        match plan.place.start(kind) {
            Ok(subject) => subjects.push((kind, subject)),
            Err(error) => sheet.fault(format!("{}: left out: {error}", kind.name())),
        }
    }
    for row in rows {
        let measured = measure_row(plan, row, &subjects, &mut sheet);
        if !measured.lines.is_empty() {
            was_measured = true;
            measured.sentences().into_iter().for_each(|sentence| sheet.see(sentence));
            sheet.add(measured.blocks(), Some(measured.json()))?;
        }
    }
    sheet.finish(&LEGEND, was_measured)
}

/// Everybody's turns at one question.
fn measure_row(
    plan: &Plan,
    row: &'static Row,
    subjects: &[(Kind, Subject)],
    sheet: &mut Sheet,
) -> Measured {
    let mut measured = Measured { row, lines: Vec::new() };
    for filters in &plan.counts {
        let subject = |contender: &Contender| {
            subjects.iter().find(|(kind, _)| *kind == contender.kind).map(|(_, subject)| subject)
        };
        let line = |contender: &Contender| {
            let rounds = vec![None; plan.words.rounds];
            subject(contender)
                .map(|subject| (Line { contender: *contender, filters: *filters, rounds }, subject))
        };
        let mut lines: Vec<(Line, &Subject)> = row.contenders.iter().filter_map(line).collect();
        for round in 0..plan.words.rounds {
            for (line, subject) in &mut lines {
                if plan.place.stop.is_wanted() {
                    break;
                }
                let name = line.contender.name();
                let what = format!(
                    "{} {name}, {filters} filters, {}/{}",
                    row.name,
                    round + 1,
                    plan.words.rounds
                );
                match measure_once(plan, row, line.contender, *filters, subject) {
                    Ok(figures) => {
                        to_stderr(format_args!(
                            "{what}: {:.0} msg/s, {:.2} µs, {:.0} filters set a second",
                            figures.sent, figures.cpu_micros, figures.set
                        ));
                        line.rounds[round] = Some(figures);
                    }
                    // One run that failed is no reason to lose the others.
                    Err(error) => sheet.fault(format!("{what}: left out: {error}")),
                }
            }
        }
        let has_figures = |line: &Line| line.rounds.iter().any(Option::is_some);
        measured.lines.extend(lines.into_iter().map(|(line, _)| line).filter(has_figures));
    }
    measured
}

fn measure_once(
    plan: &Plan,
    row: &Row,
    contender: Contender,
    filters: u32,
    subject: &Subject,
) -> io::Result<Figures> {
    let mut tester = match contender.by {
        By::Artemis => artemis::load(plan, row, filters, subject)?,
        By::Filter | By::HeadersExchange => {
            let words = plan.tester_words(row, contender.by, filters, subject.seen_pid()?);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            plan.load.testers.against(Tester::Own, subject.port(), &words)
        }
    };
    let mut heard = Heard::default();
    let mut child = measure::pinned(&mut tester, &plan.load)?;
    let status = measure::listen(&mut child, &plan.load.stop, |line| {
        heard.hear(line);
        Ok(())
    })?;
    let figures = heard.figures(status.success()).and_then(|figures| {
        if row.is_paced {
            keeps_up(&figures, plan.words.consumer_rate as f64)?;
        }
        Ok(figures)
    });
    figures.map_err(|why| {
        let log = plan.load.errors.display();
        io::Error::other(format!("{why} (the tester ended with {status}; its words: {log})"))
    })
}

/// Whether so many messages a second went in and came out again: what still waits at the end has not cost all it will.
///
/// # Errors
/// When it did not, with the rates.
fn keeps_up(figures: &Figures, rate: f64) -> Result<(), String> {
    match figures.sent.min(figures.received) >= rate * KEPT_UP {
        true => Ok(()),
        false => Err(format!(
            "it does not keep up with {rate:.0} messages a second: {:.0} went in, {:.0} came out; give less with --consumer-rate",
            figures.sent, figures.received
        )),
    }
}

/// What one contender came to with so many filters.
#[derive(Clone, Debug)]
struct Line {
    contender: Contender,
    filters: u32,
    /// None of a round that failed.
    rounds: Vec<Option<Figures>>,
}

impl Line {
    fn median(&self, figure: fn(&Figures) -> f64) -> f64 {
        median(self.rounds.iter().flatten().map(figure))
    }

    /// The median of the ratios to `other` by round, where both have one.
    fn ratio(&self, other: &Line, figure: fn(&Figures) -> f64) -> Option<f64> {
        let both = self.rounds.iter().zip(&other.rounds).filter_map(|(own, other)| {
            let (own, other) = (figure(own.as_ref()?), figure(other.as_ref()?));
            (other > 0.0).then_some(own / other)
        });
        let ratios: Vec<f64> = both.collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }
}

/// A question with all its answers.
#[derive(Debug)]
struct Measured {
    row: &'static Row,
    lines: Vec<Line>,
}

/// Figures that have ratios: name, digits, and where it stands.
type Column = (&'static str, usize, fn(&Figures) -> f64);

const COLUMNS: [Column; 3] = [
    ("msg/s in", 0, |figures| figures.sent),
    ("µs CPU/message", 2, |figures| figures.cpu_micros),
    ("filters set/s", 0, |figures| figures.set),
];

impl Measured {
    /// What `line` is held against.
    fn reference(&self, line: &Line) -> Option<&Line> {
        let first = self.row.contenders[0];
        self.lines.iter().find(|other| other.contender == first && other.filters == line.filters)
    }

    fn ratio(&self, line: &Line, figure: fn(&Figures) -> f64) -> Option<f64> {
        self.reference(line).and_then(|reference| line.ratio(reference, figure))
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "filters",
            "broker",
            "msg/s in",
            "× lepus",
            "µs CPU/message",
            "× lepus",
            "filters set/s",
            "× lepus",
            "deliveries checked",
        ]);
        for line in &self.lines {
            let mut cells = vec![line.filters.to_string(), line.contender.name()];
            for (_, digits, figure) in COLUMNS {
                cells.push(format!("{:.digits$}", line.median(figure)));
                cells.push(self.ratio(line, figure).map_or_else(|| "-".to_owned(), factor));
            }
            let checked: u64 = line.rounds.iter().flatten().map(|figures| figures.checked).sum();
            cells.push(checked.to_string());
            table.rows.push(cells);
        }
        table
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks =
            vec![Block::Heading(self.row.title.to_owned()), Block::Table(self.table())];
        let series = |(nth, contender): (usize, &Contender)| Series {
            name: contender.name(),
            look: Look::nth(nth),
            points: self
                .lines
                .iter()
                .filter(|line| line.contender == *contender)
                .map(|line| (f64::from(line.filters), line.median(|figures| figures.cpu_micros)))
                .filter(|(_, micros)| *micros > 0.0)
                .collect(),
        };
        let series = self.row.contenders.iter().enumerate().map(series);
        let lines = LinePlot {
            title: self.row.title.to_owned(),
            x: Axis::new("filters", Unit::Number).log(),
            y: Axis::new("CPU for each message", Unit::Micros).log(),
            series: series.filter(|series| series.points.len() > 1).collect(),
        };
        if !lines.series.is_empty() {
            blocks.push(plot(lines.render()));
        }
        blocks
    }

    /// What the others need with the most filters.
    fn sentences(&self) -> Vec<String> {
        let most = self.lines.iter().map(|line| line.filters).max();
        let of_most = self.lines.iter().filter(|line| Some(line.filters) == most);
        let others = of_most.filter(|line| line.contender != self.row.contenders[0]);
        let sentence = |line: &Line| {
            let ratio = self.ratio(line, |figures| figures.cpu_micros)?;
            let (name, filters) = (line.contender.name(), line.filters);
            Some(format!(
                "{}, {filters} filters: {name} needs {} × the CPU of lepus with filters for a message.",
                self.row.name,
                factor(ratio)
            ))
        };
        others.filter_map(sentence).collect()
    }

    fn json(&self) -> Value {
        let line = |line: &Line| {
            let mut figures = json!({
                "broker": line.contender.kind.name(),
                "by": match line.contender.by {
                    By::Filter => "x-filter-jms-selector",
                    By::HeadersExchange => "headers-exchange",
                    By::Artemis => "selectors of its own protocol",
                },
                "filters": line.filters,
                "rounds": line.rounds.iter().map(|round| round.as_ref().map(Figures::json)).collect::<Vec<_>>(),
            });
            for (name, _, figure) in COLUMNS {
                figures[format!("{name}, to lepus")] = json!(self.ratio(line, figure));
            }
            figures
        };
        let lines: Vec<Value> = self.lines.iter().map(line).collect();
        json!({"row": self.row.name, "title": self.row.title, "lines": lines})
    }
}

/// A ratio with as many digits as say something.
fn factor(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 100.0 => format!("{ratio:.0}"),
        _ if ratio >= 10.0 => format!("{ratio:.1}"),
        _ if ratio >= 0.1 => format!("{ratio:.2}"),
        _ => format!("{ratio:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::text;

    fn figures(cpu_micros: f64, sent: f64) -> Option<Figures> {
        Some(Figures { cpu_micros, sent, set: 10.0, checked: 500, ..Figures::default() })
    }

    fn line(contender: Contender, filters: u32, rounds: Vec<Option<Figures>>) -> Line {
        Line { contender, filters, rounds }
    }

    fn measured() -> Measured {
        let [lepus, qpid] = [Kind::Lepus, Kind::Qpid].map(Contender::filter);
        Measured {
            row: &ROWS[0],
            lines: vec![
                line(lepus, 100, vec![figures(2.0, 900.0), figures(4.0, 900.0), None]),
                line(
                    qpid,
                    100,
                    vec![figures(6.0, 300.0), figures(8.0, 450.0), figures(900.0, 1.0)],
                ),
                line(lepus, 1_000, vec![figures(2.0, 900.0)]),
                line(qpid, 1_000, vec![figures(600.0, 9.0)]),
            ],
        }
    }

    #[test]
    fn ratios_are_of_rounds_in_which_both_were_measured() {
        let measured = measured();
        // 3 and 2 in the first two rounds, nothing in the third.
        let ratio = measured.ratio(&measured.lines[1], |figures| figures.cpu_micros);
        assert_eq!(ratio, Some(2.5));
        assert_eq!(measured.ratio(&measured.lines[3], |figures| figures.cpu_micros), Some(300.0));
        let alone = Measured { row: &ROWS[0], lines: measured.lines[3..].to_vec() };
        assert_eq!(alone.ratio(&alone.lines[0], |figures| figures.sent), None);
        assert_eq!(alone.table().rows[0][3], "-");
    }

    #[test]
    fn the_report_has_a_table_a_plot_and_the_ratio_with_the_most_filters() {
        let measured = measured();
        let blocks = measured.blocks();
        let table = text(&blocks);
        assert!(table.contains("qpid") && table.contains("2.50"), "{table}");
        assert!(matches!(&blocks[2], Block::Plot(svg) if svg.contains("qpid")));
        assert_eq!(
            measured.sentences(),
            [
                "bindings, 1000 filters: qpid needs 300 × the CPU of lepus with filters for a message."
            ]
        );
        let json = measured.json();
        assert_eq!(json["lines"][1]["µs CPU/message, to lepus"], 2.5);
        assert_eq!(json["lines"][0]["rounds"][2], Value::Null);
        assert_eq!(json["lines"][1]["by"], "x-filter-jms-selector");
    }

    #[test]
    fn who_lags_behind_has_no_figures() {
        let of = |sent, received| Figures { sent, received, ..Figures::default() };
        assert_eq!(keeps_up(&of(1_010.0, 950.0), 1_000.0), Ok(()));
        assert!(keeps_up(&of(1_000.0, 500.0), 1_000.0).unwrap_err().contains("500 came out"));
        assert!(keeps_up(&of(700.0, 700.0), 1_000.0).unwrap_err().contains("--consumer-rate"));
    }

    #[test]
    fn numbers_of_filters_are_read_in_order_and_once() {
        let read = |text: &str| counts(&text.parse::<List>().unwrap());
        assert_eq!(read("1000,100,1000"), Ok(vec![100, 1_000]));
        for wrong in ["0", "1000001", "x", ""] {
            assert!(read(wrong).unwrap_err().contains("--counts"), "{wrong}");
        }
    }

    #[test]
    fn a_headers_exchange_is_not_told_that_there_are_no_ranges() {
        let row = &ROWS[1];
        let words = row.words.iter().filter(|word| !is_of_ranges(row, word));
        assert_eq!(words.copied().collect::<Vec<_>>(), ["--at", "binding"]);
        assert!(ROWS[0].words.iter().all(|word| !is_of_ranges(&ROWS[0], word)));
    }

    #[test]
    fn everybody_is_held_against_filters_of_lepus() {
        for row in &ROWS {
            assert_eq!(row.contenders[0], Contender::filter(Kind::Lepus), "{}", row.name);
            assert!(row.contenders.iter().all(|contender| KINDS.contains(&contender.kind)));
        }
    }

    #[test]
    fn ratios_have_digits_that_say_something() {
        for (ratio, text) in [(123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.0123, "0.0123")]
        {
            assert_eq!(factor(ratio), text);
        }
    }
}
