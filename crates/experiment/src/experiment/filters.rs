//! Filters one by one against filters all together: no broker takes part, the engine is asked in this program.

mod walk;

use super::{Experiment, Work};
use crate::plan::Plan;
use crate::plot::{Axis, LinePlot, Look, Series, Unit};
use crate::report::{Block, Content, Table, plot};
use crate::stop::Stop;
use lepus_amqp::PropertiesRef;
use lepus_amqp::properties::EMPTY;
use lepus_base::HashState;
use lepus_filter::tree::Expr;
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Limits, Match, Message, Meta, Scratch, SetLimits,
};
use lepus_perf::filter_load::{self, LookAt, Wanted, Workload};
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "filters",
    title: "filters: one by one, or all together",
    asks: "Trades as JSON of 250 bytes, of which each matches about one of 1 to 1,000,000 filters over up to 1,000 symbols: nine in ten ask for \
           a symbol, a range of prices and a quantity, or all of them for ranges alone. A broker can walk the tree of each filter, run \
           bytecode for each, or look at all filters together: by an index of what they ask to be equal, and by columns of \
           bounds that are compared many at a time. How many messages a second does each way match on one core?",
    is_checked: false,
    work: Work::Alone(run),
};

/// The most filters at scale 1.
const FILTERS_MAX: f64 = 1e6;
/// Seconds that the ways share in each round with each number of filters, at scale 1.
const SECONDS: f64 = 3.0;
/// Symbols at most; fewer where each would have fewer filters than this.
const SYMBOLS_MAX: u32 = 1_000;
const SYMBOL_FILTERS: u32 = 4;
/// Bytes of a message.
const BODY_BYTES: usize = 250;
/// Different messages.
const MESSAGES: u32 = 2_048;
/// Messages whose verdicts are compared before anything is measured.
const COMPARED: usize = 64;
/// Steps of merging at once.
const MERGE_STEPS: usize = 1_000_000;

/// Which filters there are.
#[derive(Clone, Copy, Debug)]
struct Mix {
    name: &'static str,
    anchored: f64,
}

const MIXES: [Mix; 2] = [
    Mix { name: "nine in ten ask for a symbol", anchored: 0.9 },
    Mix { name: "ranges alone", anchored: 0.0 },
];

/// A way to find the filters that match a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The syntax tree of each filter is walked; the body is read by a general JSON parser.
    Tree,
    /// Each filter is bytecode of the engine, written so that nothing of it can be looked up; the body is read by the engine.
    Bytecode,
    /// The engine with its index and columns.
    Together,
}

const WAYS: [Way; 3] = [Way::Tree, Way::Bytecode, Way::Together];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Tree => "tree of each filter",
            Way::Bytecode => "bytecode of each filter",
            Way::Together => "index and columns",
        }
    }
}

/// What one way came to with so many filters.
#[derive(Clone, Copy, Debug)]
struct Point {
    mix: usize,
    way: Way,
    filters: u32,
    /// Of the best round.
    messages_per_second: f64,
    /// Filters that match a message.
    matches: f64,
    /// Bytes for each filter that matching looks at; of index and columns alone.
    bytes: Option<usize>,
}

/// Filters ready to be matched.
enum Ready {
    Trees(Vec<Expr>),
    Set(Box<FilterSet>, Box<Scratch>, Vec<Match>),
}

impl Ready {
    fn new(way: Way, workload: &Workload) -> Result<Ready, String> {
        let read = |text: &str| {
            let parsed = Filter::parse(text, &Limits::default());
            parsed.map_err(|error| format!("`{text}` is refused: {error}"))
        };
        let text = |filter: &filter_load::Filter| match way {
            Way::Tree | Way::Together => filter.text(LookAt::Body),
            Way::Bytecode => unindexed(filter),
        };
        let texts = workload.filters.iter().map(text);
        if way == Way::Tree {
            let trees = texts.map(|text| Ok(read(&text)?.tree().clone()));
            return Ok(Ready::Trees(trees.collect::<Result<_, String>>()?));
        }
        let most = workload.filters.len();
        let limits = SetLimits { filters_max: most, unindexed_max: most, ..SetLimits::default() };
        let mut set = FilterSet::new(limits, HashState::new(1));
        for (target, text) in texts.enumerate() {
            let added = set.add(&read(&text)?, target as u64);
            added.map_err(|full| format!("the set has no room: {} {}", full.allowed, full.what))?;
        }
        while set.work(MERGE_STEPS) {}
        Ok(Ready::Set(Box::new(set), Box::default(), Vec::new()))
    }

    /// Puts the numbers of the filters that match into `found`, ascending.
    fn matches(&mut self, body: &[u8], found: &mut Vec<u32>) {
        found.clear();
        match self {
            Ready::Trees(trees) => {
                let body: Value = serde_json::from_slice(body).unwrap_or_default();
                let numbered = (0u32..).zip(trees.iter());
                let holding = numbered.filter(|(_, tree)| walk::holds(tree, &body) == Some(true));
                found.extend(holding.map(|(number, _)| number));
            }
            Ready::Set(set, scratch, out) => {
                let message = Message {
                    properties: PropertiesRef(&EMPTY),
                    body,
                    format: BodyFormat::Json,
                    meta: Meta::default(),
                };
                out.clear();
                set.matches(&message, u64::MAX, scratch, out);
                found.extend(out.iter().map(|found| found.target as u32));
            }
        }
    }

    fn bytes(&self, way: Way, filters: u32) -> Option<usize> {
        match self {
            Ready::Set(set, _, _) if way == Way::Together => {
                Some(set.bytes_hot() / filters.max(1) as usize)
            }
            _ => None,
        }
    }
}

/// The same filter in a form that the engine can neither look up nor put into columns.
fn unindexed(filter: &filter_load::Filter) -> String {
    let text = filter.text(LookAt::Body);
    text.replace("b.sym", "STR(b.sym)")
        .replace("b.price", "b.price + 0")
        .replace("b.qty", "b.qty + 0")
}

/// How many filters there are, one after the other.
fn counts(scale: f64) -> Vec<u32> {
    let most = (FILTERS_MAX * scale).clamp(1.0, FILTERS_MAX);
    let powers = std::iter::successors(Some(1_u32), |count| count.checked_mul(10));
    powers.take_while(|count| f64::from(*count) <= most).collect()
}

fn draw(mix: Mix, filters: u32) -> Workload {
    Workload::draw(&Wanted {
        count: filters,
        anchored: mix.anchored,
        // With fewer filters for each symbol not even all of them would match often enough.
        symbols: (filters / SYMBOL_FILTERS).clamp(1, SYMBOLS_MAX),
        ranges: 2,
        matches: 1.0,
        messages: MESSAGES,
        seed: 1,
    })
}

/// Measures; what there is to say, and the figures.
fn run(plan: &Plan, stop: &Stop) -> Result<(Content, Value), String> {
    let mut points = Vec::new();
    for (number, mix) in MIXES.iter().enumerate() {
        for filters in counts(plan.scale) {
            if stop.is_wanted() {
                break;
            }
            to_stderr(format_args!("{filters} filters, {}", mix.name));
            points.extend(measure(plan, stop, number, filters)?);
        }
    }
    if points.is_empty() {
        return Err("it was ended before the first measurement".to_owned());
    }
    Ok((describe(&points), figures(&points)))
}

/// All ways with so many filters, in turn; their verdicts come first.
fn measure(plan: &Plan, stop: &Stop, mix: usize, filters: u32) -> Result<Vec<Point>, String> {
    let workload = draw(MIXES[mix], filters);
    let bodies: Option<Vec<Vec<u8>>> =
        (0..).zip(&workload.trades).map(|(number, trade)| trade.json(number, BODY_BYTES)).collect();
    let bodies = bodies.ok_or("a trade does not fit its message")?;
    let mut ready = Vec::new();
    for way in WAYS {
        let mut one = Ready::new(way, &workload)?;
        compare(way, &mut one, &workload, &bodies)?;
        ready.push((way, one, 0.0_f64));
    }
    let seconds = plan.seconds.unwrap_or(SECONDS * plan.scale) / WAYS.len() as f64;
    let time = Duration::from_secs_f64(seconds);
    for _ in 0..plan.rounds {
        for (_, one, best) in &mut ready {
            if stop.is_wanted() {
                break;
            }
            *best = best.max(rate(one, &bodies, time));
        }
    }
    let matches = workload.matches_mean();
    let point = |(way, one, messages_per_second): &(Way, Ready, f64)| Point {
        mix,
        way: *way,
        filters,
        messages_per_second: *messages_per_second,
        matches,
        bytes: one.bytes(*way, filters),
    };
    // Who stopped before the first round was over has no figures.
    Ok(ready.iter().map(point).filter(|point| point.messages_per_second > 0.0).collect())
}

/// Compares verdicts with those of the load's author.
fn compare(
    way: Way,
    ready: &mut Ready,
    workload: &Workload,
    bodies: &[Vec<u8>],
) -> Result<(), String> {
    let mut found = Vec::new();
    for (body, expected) in bodies.iter().zip(&workload.matching).take(COMPARED) {
        ready.matches(body, &mut found);
        if found != *expected {
            return Err(format!(
                "{}: the filters {found:?} match {} instead of {expected:?}",
                way.name(),
                String::from_utf8_lossy(body)
            ));
        }
    }
    Ok(())
}

/// Messages a second, over so long.
fn rate(ready: &mut Ready, bodies: &[Vec<u8>], time: Duration) -> f64 {
    let (mut found, mut messages, mut batch) = (Vec::new(), 0_usize, 1);
    let begun = Instant::now();
    loop {
        for _ in 0..batch {
            ready.matches(&bodies[messages % bodies.len()], &mut found);
            std::hint::black_box(&found);
            messages += 1;
        }
        let passed = begun.elapsed();
        if passed >= time {
            return messages as f64 / passed.as_secs_f64();
        }
        // The clock is looked at about a hundred times.
        if passed < time / 100 {
            batch *= 2;
        }
    }
}

fn describe(points: &[Point]) -> Content {
    let mut content = Content::default();
    for (number, mix) in MIXES.iter().enumerate() {
        let of =
            |way: Way| points.iter().filter(move |point| point.mix == number && point.way == way);
        content.seen.extend(sentence(*mix, &WAYS.map(|way| of(way).collect::<Vec<_>>())));
        let series = WAYS.iter().enumerate().map(|(nth, way)| Series {
            name: way.name().to_owned(),
            look: Look::nth(nth),
            points: of(*way)
                .map(|point| (f64::from(point.filters), point.messages_per_second))
                .collect(),
        });
        let line_plot = LinePlot {
            title: format!("Messages matched a second on one core: {}", mix.name),
            x: Axis::new("filters", Unit::Number).log(),
            y: Axis::new("messages per second", Unit::Number).log(),
            series: series.collect(),
        };
        content.blocks.push(Block::Heading(capital(mix.name)));
        content.blocks.push(plot(line_plot.render()));
        content.blocks.push(Block::Table(table(number, points)));
    }
    content.blocks.push(Block::Text(
        "Matching alone, without publishing and delivering; what it takes to read a message is in every figure. The best round \
         counts. Bytecode shares what filters have in common, such as the reading of a field. Verdicts of all ways were \
         compared before. Compilation to machine code is not among the ways yet."
            .to_owned(),
    ));
    content
}

/// By how much the engine is ahead with the most filters, and from how many filters on it is.
fn sentence(mix: Mix, [trees, bytecode, together]: &[Vec<&Point>; 3]) -> Option<String> {
    let most = together.last()?;
    let other = |points: &[&Point], filters: u32| {
        let point = points.iter().find(|point| point.filters == filters)?;
        Some(point.messages_per_second)
    };
    let [tree, code] = [trees, bytecode].map(|points| other(points, most.filters));
    let best = |filters: u32| other(trees, filters).max_by_rate(other(bytecode, filters));
    // From the first count on with which, and with all larger ones, it is the fastest.
    let slower =
        |point: &&&Point| best(point.filters).is_some_and(|best| best >= point.messages_per_second);
    let last_slower = together.iter().rposition(|point| slower(&point));
    let from = match last_slower {
        None => "with any number of filters".to_owned(),
        Some(at) => match together.get(at + 1) {
            Some(point) => format!("from {} filters on", point.filters),
            None => "with none of these numbers of filters".to_owned(),
        },
    };
    Some(format!(
        "{}: with {} filters index and columns match {:.0} messages a second, bytecode of each filter {:.0}, its tree {:.0}; index and \
         columns are the fastest {from}.",
        capital(mix.name),
        most.filters,
        most.messages_per_second,
        code?,
        tree?,
    ))
}

/// The larger of two rates that may be missing.
trait MaxByRate {
    fn max_by_rate(self, other: Self) -> Self;
}

impl MaxByRate for Option<f64> {
    fn max_by_rate(self, other: Option<f64>) -> Option<f64> {
        match (self, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        }
    }
}

fn table(mix: usize, points: &[Point]) -> Table {
    let mut table = Table::new([
        "filters",
        "match a message",
        "way",
        "messages per second",
        "ns per message",
        "ns per filter and message",
        "bytes per filter",
    ]);
    for point in points.iter().filter(|point| point.mix == mix) {
        let nanos = 1e9 / point.messages_per_second;
        table.rows.push(vec![
            point.filters.to_string(),
            format!("{:.2}", point.matches),
            point.way.name().to_owned(),
            format!("{:.0}", point.messages_per_second),
            format!("{nanos:.0}"),
            format!("{:.3}", nanos / f64::from(point.filters)),
            point.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        ]);
    }
    table
}

fn figures(points: &[Point]) -> Value {
    let point = |point: &Point| {
        json!({
            "anchored": MIXES[point.mix].anchored,
            "way": point.way.name(),
            "filters": point.filters,
            "matches_per_message": point.matches,
            "messages_per_s": point.messages_per_second,
            "bytes_per_filter": point.bytes,
        })
    };
    points.iter().map(point).collect()
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_give_the_verdicts_of_the_load_s_author() {
        for mix in MIXES {
            for filters in [1, 15, 400] {
                let workload = draw(mix, filters);
                let bodies: Vec<Vec<u8>> = (0..)
                    .zip(&workload.trades)
                    .map(|(number, trade)| trade.json(number, BODY_BYTES).unwrap())
                    .collect();
                for way in WAYS {
                    let mut ready = Ready::new(way, &workload).unwrap();
                    compare(way, &mut ready, &workload, &bodies).unwrap();
                }
                let mut wrong = workload.clone();
                wrong.matching[3].push(filters);
                let mut ready = Ready::new(Way::Together, &workload).unwrap();
                let error = compare(Way::Together, &mut ready, &wrong, &bodies).unwrap_err();
                assert!(error.contains("instead of"), "{error}");
            }
        }
    }

    #[test]
    fn what_must_be_evaluated_one_by_one_is_not_looked_up() {
        // As many steps more as there are filters more, where all of them are asked.
        let steps = |way: Way, filters: u32| {
            let workload = draw(MIXES[0], filters);
            let body = workload.trades[0].json(0, BODY_BYTES).unwrap();
            match Ready::new(way, &workload).unwrap() {
                Ready::Set(set, mut scratch, mut out) => {
                    let message = Message {
                        properties: PropertiesRef(&EMPTY),
                        body: &body,
                        format: BodyFormat::Json,
                        meta: Meta::default(),
                    };
                    set.matches(&message, u64::MAX, &mut scratch, &mut out).steps
                }
                Ready::Trees(_) => 0,
            }
        };
        assert!(steps(Way::Bytecode, 4_000) > steps(Way::Bytecode, 1_000) + 3_000);
        assert!(steps(Way::Together, 4_000) < steps(Way::Together, 1_000) + 3_000);
    }

    #[test]
    fn counts_are_powers_of_ten_up_to_the_scale() {
        assert_eq!(counts(0.001), [1, 10, 100, 1_000]);
        assert_eq!(counts(0.2).last(), Some(&100_000));
        assert_eq!(counts(1.0).last(), Some(&1_000_000));
        assert_eq!(counts(100.0).last(), Some(&1_000_000));
    }

    fn points(rates: &[[f64; 3]]) -> Vec<Point> {
        let mut points = Vec::new();
        let mut filters = 1;
        for rates in rates {
            for (way, messages_per_second) in WAYS.into_iter().zip(*rates) {
                let point =
                    Point { mix: 0, way, filters, messages_per_second, matches: 1.0, bytes: None };
                points.push(point);
            }
            filters *= 10;
        }
        points
    }

    #[test]
    fn the_sentence_says_from_where_on_the_engine_is_ahead() {
        let content = describe(&points(&[[9.0, 8.0, 7.0], [5.0, 6.0, 7.0], [1.0, 2.0, 50.0]]));
        assert_eq!(content.seen.len(), 1);
        assert_eq!(
            content.seen[0],
            "Nine in ten ask for a symbol: with 100 filters index and columns match 50 messages a second, bytecode of each filter 2, \
             its tree 1; index and columns are the fastest from 10 filters on."
        );
        let all = &describe(&points(&[[1.0, 2.0, 3.0]])).seen[0];
        assert!(all.contains("fastest with any number of filters"), "{all}");
        let none = &describe(&points(&[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).seen[0];
        assert!(none.contains("fastest with none of these"), "{none}");
    }

    #[test]
    fn a_short_run_has_every_point_and_plots_that_can_be_drawn() {
        let words = ["filters", "--scale", "0.0001", "--rounds", "1", "--seconds", "0.001"];
        let words = crate::call::Words::read(words.map(str::to_owned).to_vec()).unwrap();
        let (experiment, plan) = words.plan("lepus".into(), "now").unwrap().unwrap();
        assert_eq!(experiment.name, "filters");
        let (content, figures) = run(&plan, &Stop::default()).unwrap();
        // 1, 10 and 100 filters, three ways, two mixes.
        assert_eq!(figures.as_array().map(Vec::len), Some(18));
        assert_eq!((content.seen.len(), content.plots().count()), (2, 2));
    }
}
