//! The time until the n-th message is matched, counted from the texts of the filters: compiling is in it.

use super::ready::{Prepared, Ready, Way, prepare};
use super::{MIXES, draw, draw_one, share, time, within};
use crate::plan::Plan;
use crate::plot::{Axis, LinePlot, Look, Series, Unit};
use crate::report::{Block, Content, Table, plot};
use crate::stop::Stop;
use lepus_perf::filter_load::Workload;
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Filters of the two pictures.
const FILTERS: [u32; 2] = [1, 1_000];
/// Marks that are measured however long that takes: 1, 2, 5, 10.
const MARKS_MIN: usize = 4;
/// The most messages.
const MESSAGES_MAX: u64 = 10_000_000;

/// How far one way has come with so many filters.
#[derive(Clone, Debug)]
pub(super) struct Course {
    filters: u32,
    way: Way,
    /// Messages and the seconds until so many are matched: of each the least of all rounds.
    times: Vec<(u64, f64)>,
}

/// Both numbers of filters, with all ways.
pub(super) fn measure(plan: &Plan, stop: &Stop) -> Result<Vec<Course>, String> {
    let mut courses = Vec::new();
    for filters in within(plan, &FILTERS) {
        to_stderr(format_args!("{filters} filters, from their texts to the last message"));
        let workload = if filters == 1 { draw_one() } else { draw(MIXES[0], filters) };
        let messages = prepare(&workload)?;
        let time = share(plan, Way::all().count());
        let mut of_filters: Vec<Course> =
            Way::all().map(|way| Course { filters, way, times: Vec::new() }).collect();
        for _ in 0..plan.rounds {
            for course in &mut of_filters {
                if stop.is_wanted() {
                    break;
                }
                let times = one(course.way, &workload, &messages, time)?;
                course.take(times);
            }
        }
        // Who stopped before the first round was over has no figures.
        courses.extend(of_filters.into_iter().filter(|course| !course.times.is_empty()));
    }
    Ok(courses)
}

impl Course {
    /// The least of the times until now and these; of two rounds the shorter one says how far it goes.
    fn take(&mut self, times: Vec<(u64, f64)>) {
        if self.times.is_empty() {
            self.times = times;
            return;
        }
        self.times.truncate(times.len());
        for (known, (_, seconds)) in self.times.iter_mut().zip(times) {
            known.1 = known.1.min(seconds);
        }
    }

    /// Seconds for one more message, after many.
    fn slope(&self) -> Option<f64> {
        let [.., before, last] = self.times[..] else { return None };
        Some((last.1 - before.1) / (last.0 - before.0) as f64)
    }
}

/// 1, 2, 5, 10, 20 …
fn marks() -> impl Iterator<Item = u64> {
    let powers = std::iter::successors(Some(1_u64), |power| power.checked_mul(10));
    powers.flat_map(|power| [1, 2, 5].map(|times| power * times)).take_while(|n| *n <= MESSAGES_MAX)
}

/// Builds the filters and matches messages until the time is over: when which of them was done.
fn one(
    way: Way,
    workload: &Workload,
    messages: &[Prepared],
    time: Duration,
) -> Result<Vec<(u64, f64)>, String> {
    let texts = way.texts(workload);
    let (mut times, mut found, mut done) = (Vec::new(), Vec::new(), 0_u64);
    let mut in_turn = messages.iter().cycle();
    let begun = Instant::now();
    let mut ready = Ready::new(way, &texts)?;
    for mark in marks() {
        for message in in_turn.by_ref().take((mark - done) as usize) {
            ready.matches(message, &mut found);
            std::hint::black_box(&found);
        }
        done = mark;
        let passed = begun.elapsed();
        times.push((mark, passed.as_secs_f64()));
        if passed >= time && times.len() >= MARKS_MIN {
            break;
        }
    }
    Ok(times)
}

/// From which message on `later` is done sooner than `first`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crossing {
    /// From the first message on.
    Always,
    /// It was measured, between the two marks before and at which it has crossed.
    Seen(u64),
    /// Of times and slopes it follows that it would be so after about so many.
    Expected(f64),
    /// It falls behind ever more.
    Never,
}

fn crossing(first: &Course, later: &Course) -> Option<Crossing> {
    let pairs: Vec<_> = first.times.iter().zip(&later.times).collect();
    // Of the last marks on that it is ahead at all of.
    let behind = pairs.iter().rposition(|(first, later)| later.1 > first.1);
    let Some(behind) = behind else { return Some(Crossing::Always) };
    if let Some(((messages, _), _)) = pairs.get(behind + 1) {
        return Some(Crossing::Seen(*messages));
    }
    let gained = first.slope()? - later.slope()?;
    if gained <= 0.0 {
        return Some(Crossing::Never);
    }
    let (first, later) = pairs.last()?;
    Some(Crossing::Expected(first.0 as f64 + (later.1 - first.1) / gained))
}

impl Crossing {
    fn text(self) -> String {
        match self {
            Crossing::Always => "ahead from the first message on".to_owned(),
            Crossing::Seen(messages) => format!("ahead once {messages} messages are matched"),
            Crossing::Expected(messages) => {
                format!(
                    "still behind at the last message measured, and at this pace ahead after about {messages:.0}"
                )
            }
            Crossing::Never => "never ahead: each message takes it longer as well".to_owned(),
        }
    }
}

/// A picture, a table and a sentence for each number of filters.
pub(super) fn describe(courses: &[Course], content: &mut Content) {
    for filters in FILTERS {
        let of: Vec<&Course> = courses.iter().filter(|course| course.filters == filters).collect();
        let Some(bytecode) = of.iter().find(|course| course.way == Way::Bytecode) else { continue };
        let title = format!(
            "Time until so many messages are matched, with {filters} {}",
            if filters == 1 { "filter" } else { "filters" }
        );
        let line_plot = LinePlot {
            title: title.clone(),
            x: Axis::new("messages", Unit::Number).log(),
            y: Axis::new("time from the filters' texts on", Unit::Micros).log(),
            series: of
                .iter()
                .map(|course| Series {
                    name: course.way.name().to_owned(),
                    look: Look::nth(course.way as usize),
                    points: course.times.iter().map(|(n, s)| (*n as f64, s * 1e6)).collect(),
                })
                .collect(),
        };
        content.blocks.push(Block::Heading(title));
        content.blocks.push(plot(line_plot.render()));
        let together = of.iter().find(|course| course.way == Way::Together);
        let mut table = Table::new([
            "way",
            "first message after",
            "then each",
            "beside bytecode of each filter",
            "beside index and columns",
            "measured up to",
        ]);
        let mut parts = Vec::new();
        for course in &of {
            let first = course.times.first().map_or(0.0, |(_, seconds)| *seconds);
            let beside = |other: Option<&&Course>| {
                let crossing = other.and_then(|other| match other.way == course.way {
                    true => None,
                    false => crossing(other, course),
                });
                crossing.map_or_else(|| "-".to_owned(), Crossing::text)
            };
            let (to_bytecode, to_together) = (beside(Some(bytecode)), beside(together));
            if course.way.is_compiled() {
                parts.push(format!(
                    "{}: first message after {}, beside bytecode {to_bytecode}, beside index and columns {to_together}",
                    course.way.name(),
                    time(first)
                ));
            }
            table.rows.push(vec![
                course.way.name().to_owned(),
                time(first),
                course.slope().map_or_else(|| "-".to_owned(), time),
                to_bytecode,
                to_together,
                course.times.last().map_or(0, |(messages, _)| *messages).to_string(),
            ]);
        }
        let first = |course: &Course| time(course.times.first().map_or(0.0, |first| first.1));
        content.seen.push(format!(
            "{filters} {} from text, where bytecode has its first message after {}, index and columns after {}: {}.",
            if filters == 1 { "filter" } else { "filters" },
            first(bytecode),
            together.map_or_else(|| "-".to_owned(), |course| first(course)),
            parts.join("; "),
        ));
        content.blocks.push(Block::Table(table));
    }
}

/// All times for machines.
pub(super) fn figures(courses: &[Course]) -> Vec<Value> {
    let course = |course: &Course| {
        json!({
            "picture": 2,
            "way": course.way.name(),
            "filters": course.filters,
            "messages_and_seconds": course.times,
        })
    };
    courses.iter().map(course).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(times: &[(u64, f64)]) -> Course {
        Course { filters: 1, way: Way::Bytecode, times: times.to_vec() }
    }

    #[test]
    fn marks_are_ones_twos_and_fives() {
        let all: Vec<u64> = marks().collect();
        assert_eq!(all[..5], [1, 2, 5, 10, 20]);
        assert_eq!(all.last(), Some(&MESSAGES_MAX));
    }

    #[test]
    fn lines_cross_where_the_later_one_stays_ahead() {
        let first = course(&[(1, 1.0), (10, 10.0), (100, 100.0)]);
        for (times, expected) in [
            (&[(1, 0.5), (10, 9.0), (100, 90.0)][..], Crossing::Always),
            (&[(1, 5.0), (10, 9.0), (100, 90.0)], Crossing::Seen(10)),
            // Ahead for a moment only.
            (&[(1, 0.5), (10, 11.0), (100, 90.0)], Crossing::Seen(100)),
            (&[(1, 200.0), (10, 204.5), (100, 249.5)], Crossing::Expected(399.0)),
            (&[(1, 2.0), (10, 20.0), (100, 200.0)], Crossing::Never),
        ] {
            assert_eq!(crossing(&first, &course(times)), Some(expected), "{times:?}");
        }
        assert_eq!(crossing(&course(&[(1, 1.0)]), &course(&[(1, 2.0)])), None);
    }

    #[test]
    fn the_least_of_each_mark_counts_and_the_shortest_round() {
        let mut known = course(&[(1, 2.0), (10, 3.0), (100, 4.0)]);
        known.take(vec![(1, 1.0), (10, 5.0)]);
        assert_eq!(known.times, [(1, 1.0), (10, 3.0)]);
    }
}
