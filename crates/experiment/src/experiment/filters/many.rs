//! Messages a second by the number of filters.

use super::ready::{Ready, Way, prepare, rate};
use super::{MIXES, Mix, capital, draw, share, time, within};
use crate::plan::Plan;
use crate::plot::{Axis, LinePlot, Look, Series, Unit};
use crate::report::{Block, Content, Table, plot};
use crate::stop::Stop;
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::time::Instant;

/// Numbers of filters, at scale 1.
const FILTERS: [u32; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// The most filters that are compiled: the time for that grows with them, and the answer is plain by then.
const COMPILED_MAX: u32 = 100_000;

/// What one way came to with so many filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    mix: usize,
    way: Way,
    filters: u32,
    /// From the texts of all filters to the first message.
    build_seconds: f64,
    /// Of the best round.
    messages_per_second: f64,
    /// Filters that match a message.
    matches: f64,
    /// Bytes for each filter that matching looks at; of index and columns alone.
    bytes: Option<usize>,
}

/// All mixes with all numbers of filters.
pub(super) fn measure(plan: &Plan, stop: &Stop) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for (number, mix) in MIXES.iter().enumerate() {
        for filters in within(plan, &FILTERS) {
            if stop.is_wanted() {
                break;
            }
            to_stderr(format_args!("{filters} filters, {}", mix.name));
            points.extend(measure_one(plan, stop, number, filters)?);
        }
    }
    Ok(points)
}

/// All ways with so many filters, in turn; their verdicts come first.
fn measure_one(plan: &Plan, stop: &Stop, mix: usize, filters: u32) -> Result<Vec<Point>, String> {
    let workload = draw(MIXES[mix], filters);
    let messages = prepare(&workload)?;
    let ways = Way::all().filter(|way| !way.is_compiled() || filters <= COMPILED_MAX);
    let matches = workload.matches_mean();
    let mut ready = Vec::new();
    for way in ways {
        let texts = way.texts(&workload);
        let begun = Instant::now();
        let mut one = Ready::new(way, &texts)?;
        let build_seconds = begun.elapsed().as_secs_f64();
        one.compare(way, &workload, &messages)?;
        let bytes = one.bytes(way, filters);
        let messages_per_second = 0.0;
        let point = Point { mix, way, filters, build_seconds, messages_per_second, matches, bytes };
        ready.push((one, point));
    }
    let time = share(plan, ready.len());
    let mut found = Vec::new();
    for _ in 0..plan.rounds {
        for (one, point) in &mut ready {
            if stop.is_wanted() {
                break;
            }
            let rate = rate(&messages, time, |message| {
                one.matches(message, &mut found);
                std::hint::black_box(&found);
            });
            point.messages_per_second = point.messages_per_second.max(rate);
        }
    }
    // Who stopped before the first round was over has no figures.
    let points = ready.into_iter().map(|(_, point)| point);
    Ok(points.filter(|point| point.messages_per_second > 0.0).collect())
}

/// A picture, a table and a sentence for each mix.
pub(super) fn describe(points: &[Point], content: &mut Content) {
    for (number, mix) in MIXES.iter().enumerate() {
        let of_mix: Vec<&Point> = points.iter().filter(|point| point.mix == number).collect();
        content.seen.extend(sentence(*mix, &of_mix));
        let series = Way::all().map(|way| Series {
            name: way.name().to_owned(),
            look: Look::nth(way as usize),
            points: of_mix
                .iter()
                .filter(|point| point.way == way)
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
        content.blocks.push(Block::Table(table(&of_mix)));
    }
}

/// By how much the engine is ahead with the most filters, and from how many filters on it is.
fn sentence(mix: Mix, points: &[&Point]) -> Option<String> {
    let rate = |way: Way, filters: u32| {
        let point = points.iter().find(|point| point.way == way && point.filters == filters)?;
        Some(point.messages_per_second)
    };
    let together: Vec<u32> = points
        .iter()
        .filter(|point| point.way == Way::Together)
        .map(|point| point.filters)
        .collect();
    let most = *together.last()?;
    // From the first count on with which, and with all larger ones, it is the fastest.
    let slower = |filters: u32| {
        let own = rate(Way::Together, filters);
        let others = Way::all().filter(|way| *way != Way::Together);
        others.filter_map(|way| rate(way, filters)).any(|other| own.is_none_or(|own| other >= own))
    };
    let from = match together.iter().rposition(|filters| slower(*filters)) {
        None => "with any number of filters".to_owned(),
        Some(at) => match together.get(at + 1) {
            Some(filters) => format!("from {filters} filters on"),
            None => "with none of these numbers of filters".to_owned(),
        },
    };
    let others = Way::all().filter(|way| *way != Way::Together);
    let others: Vec<String> = others
        .filter_map(|way| rate(way, most).map(|rate| format!("{} {rate:.0}", way.name())))
        .collect();
    // Compiled ways end earlier.
    let compared = most.min(COMPILED_MAX);
    let compiled: Vec<String> = Way::all()
        .filter(|way| way.is_compiled() && most > compared)
        .filter_map(|way| rate(way, compared).map(|rate| format!("{} {rate:.0}", way.name())))
        .collect();
    let compiled = match compiled.is_empty() {
        true => String::new(),
        false => format!(
            "; with {compared}, the most that are compiled, {} and index and columns {:.0}",
            compiled.join(", "),
            rate(Way::Together, compared)?
        ),
    };
    Some(format!(
        "{}: with {most} filters index and columns match {:.0} messages a second, {}{compiled}; index and columns are the fastest {from}.",
        capital(mix.name),
        rate(Way::Together, most)?,
        others.join(", "),
    ))
}

fn table(points: &[&Point]) -> Table {
    let mut table = Table::new([
        "filters",
        "match a message",
        "way",
        "built in",
        "messages per second",
        "ns per message",
        "ns per filter and message",
        "bytes per filter",
    ]);
    for point in points {
        let nanos = 1e9 / point.messages_per_second;
        table.rows.push(vec![
            point.filters.to_string(),
            format!("{:.2}", point.matches),
            point.way.name().to_owned(),
            time(point.build_seconds),
            format!("{:.0}", point.messages_per_second),
            format!("{nanos:.0}"),
            format!("{:.3}", nanos / f64::from(point.filters)),
            point.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        ]);
    }
    table
}

/// All points for machines.
pub(super) fn figures(points: &[Point]) -> Vec<Value> {
    let point = |point: &Point| {
        json!({
            "picture": 1,
            "anchored": MIXES[point.mix].anchored,
            "way": point.way.name(),
            "filters": point.filters,
            "matches_per_message": point.matches,
            "build_s": point.build_seconds,
            "messages_per_s": point.messages_per_second,
            "bytes_per_filter": point.bytes,
        })
    };
    points.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rates: &[[f64; 3]]) -> String {
        let ways = [Way::Tree, Way::Bytecode, Way::Together];
        let mut points = Vec::new();
        let mut filters = 1;
        for rates in rates {
            for (way, messages_per_second) in ways.into_iter().zip(*rates) {
                let (mix, build_seconds, matches, bytes) = (0, 0.0, 1.0, None);
                points.push(Point {
                    mix,
                    way,
                    filters,
                    build_seconds,
                    messages_per_second,
                    matches,
                    bytes,
                });
            }
            filters *= 10;
        }
        let mut content = Content::default();
        describe(&points, &mut content);
        assert_eq!(content.seen.len(), 1);
        content.seen.remove(0)
    }

    #[test]
    fn the_sentence_says_from_where_on_the_engine_is_ahead() {
        assert_eq!(
            seen(&[[9.0, 8.0, 7.0], [5.0, 6.0, 7.0], [1.0, 2.0, 50.0]]),
            "Nine in ten ask for a symbol: with 100 filters index and columns match 50 messages a second, tree of each filter 1, \
             bytecode of each filter 2; index and columns are the fastest from 10 filters on."
        );
        let all = seen(&[[1.0, 2.0, 3.0]]);
        assert!(all.contains("fastest with any number of filters"), "{all}");
        let none = seen(&[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]);
        assert!(none.contains("fastest with none of these"), "{none}");
    }
}
