//! What may favour a compiler: one filter over many logged messages, and all filters of a shape as one function.

use super::ready::{Prepared, Ready, Way, conditions, prepare, rate};
use super::{MIXES, draw, draw_one, share, time, within};
use crate::plan::Plan;
use crate::plot::{Bar, BarPlot, Group, Unit};
use crate::report::{Block, Content, Table, plot};
use crate::stop::Stop;
use lepus_compiled::{Condition, Each, Fused};
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::time::Instant;

/// Filters of the groups.
const FILTERS: [u32; 3] = [1, 100, 10_000];
/// Messages that the log is thought to have.
const LOGGED: f64 = 1e7;
/// By so much a compiler has to win for the product to have one.
const WORTHWHILE: f64 = 3.0;

/// Who looks at the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It reads each message.
    Reading(Way),
    /// The fields are read already: a loop over each filter's comparisons.
    Loop,
    /// The fields are read already: compiled.
    Given(Way),
}

const LOOKS: [Look; 7] = [
    Look::Reading(Way::Bytecode),
    Look::Reading(Way::Each),
    Look::Reading(Way::Fused),
    Look::Reading(Way::Together),
    Look::Loop,
    Look::Given(Way::Each),
    Look::Given(Way::Fused),
];

impl Look {
    fn reads(self) -> bool {
        matches!(self, Look::Reading(_))
    }

    fn name(self) -> &'static str {
        match self {
            Look::Reading(way) | Look::Given(way) => way.name(),
            Look::Loop => "loop over comparisons",
        }
    }

    fn is_compiled(self) -> bool {
        matches!(self, Look::Reading(way) | Look::Given(way) if way.is_compiled())
    }
}

/// What one of them came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    filters: u32,
    look: Look,
    build_seconds: f64,
    /// Of the best round.
    messages_per_second: f64,
}

impl Row {
    /// Seconds for the whole log, building among them.
    fn log_seconds(&self) -> f64 {
        self.build_seconds + LOGGED / self.messages_per_second
    }
}

/// Filters that are asked with the values of a message.
enum Given {
    Loop(Vec<Condition>),
    Each(Each),
    Fused(Fused),
}

enum Asked {
    Reading(Ready),
    Given(Given),
}

impl Asked {
    fn new(look: Look, texts: &[String]) -> Result<Asked, String> {
        Ok(match look {
            Look::Reading(way) => Asked::Reading(Ready::new(way, texts)?),
            Look::Loop => Asked::Given(Given::Loop(conditions(texts)?)),
            Look::Given(Way::Fused) => {
                Asked::Given(Given::Fused(Fused::compile(&conditions(texts)?)?))
            }
            Look::Given(_) => Asked::Given(Given::Each(Each::compile(&conditions(texts)?)?)),
        })
    }

    fn matches(&mut self, message: &Prepared, found: &mut Vec<u32>) {
        let given = match self {
            Asked::Reading(ready) => return ready.matches(message, found),
            Asked::Given(given) => given,
        };
        found.clear();
        match given {
            Given::Loop(conditions) => {
                let numbered = (0_u32..).zip(conditions.iter());
                let holding = numbered.filter(|(_, condition)| condition.holds(&message.values));
                found.extend(holding.map(|(number, _)| number));
            }
            Given::Each(each) => each.matches(&message.values, found),
            Given::Fused(fused) => fused.matches(&message.values, found),
        }
    }
}

/// All numbers of filters with all who look at them.
pub(super) fn measure(plan: &Plan, stop: &Stop) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for filters in within(plan, &FILTERS) {
        to_stderr(format_args!("{filters} filters over logged messages"));
        let workload = if filters == 1 { draw_one() } else { draw(MIXES[0], filters) };
        let messages = prepare(&workload)?;
        let mut all = Vec::new();
        let mut found = Vec::new();
        for look in LOOKS {
            let way = match look {
                Look::Reading(way) | Look::Given(way) => way,
                Look::Loop => Way::Each,
            };
            let texts = way.texts(&workload);
            let begun = Instant::now();
            let mut asked = Asked::new(look, &texts)?;
            let build_seconds = begun.elapsed().as_secs_f64();
            for (message, expected) in messages.iter().zip(&workload.matching) {
                asked.matches(message, &mut found);
                found.sort_unstable();
                if found != *expected {
                    let name = look.name();
                    return Err(format!("{name}: {found:?} match instead of {expected:?}"));
                }
            }
            all.push((asked, Row { filters, look, build_seconds, messages_per_second: 0.0 }));
        }
        let time = share(plan, all.len());
        for _ in 0..plan.rounds {
            for (asked, row) in &mut all {
                if stop.is_wanted() {
                    break;
                }
                let rate = rate(&messages, time, |message| {
                    asked.matches(message, &mut found);
                    std::hint::black_box(&found);
                });
                row.messages_per_second = row.messages_per_second.max(rate);
            }
        }
        rows.extend(
            all.into_iter().map(|(_, row)| row).filter(|row| row.messages_per_second > 0.0),
        );
    }
    Ok(rows)
}

/// How many times as fast as whoever interprets the same.
fn gain(row: &Row, rows: &[Row]) -> Option<f64> {
    let interpreter = if row.look.reads() { Look::Reading(Way::Bytecode) } else { Look::Loop };
    let same = |other: &&Row| other.filters == row.filters && other.look == interpreter;
    Some(rows.iter().find(same)?.log_seconds() / row.log_seconds())
}

/// A picture, a table and a sentence.
pub(super) fn describe(rows: &[Row], content: &mut Content) {
    let names = ["compiled, each filter", "compiled, all of a shape", "index and columns"];
    let group = |filters: u32, reads: bool| {
        let bars = names.map(|name| {
            let found = rows.iter().find(|row| {
                row.filters == filters && row.look.reads() == reads && row.look.name() == name
            });
            let gain = gain(found?, rows)?;
            Some(Bar { value: gain, low: gain, high: gain })
        });
        let fields = if reads { "read from JSON" } else { "fields given" };
        Group {
            label: format!(
                "{filters} {}\n{fields}",
                if filters == 1 { "filter" } else { "filters" }
            ),
            bars: bars.to_vec(),
        }
    };
    // Those of index and columns with many filters are of another size than all others.
    let groups = [(1, true), (1, false), (100, true), (100, false)];
    let bar_plot = BarPlot {
        title: "A log of 10,000,000 messages: times as fast as interpreted".to_owned(),
        label: "times as fast, building included".to_owned(),
        unit: Unit::Number,
        names: names.map(str::to_owned).to_vec(),
        groups: groups.map(|(filters, reads)| group(filters, reads)).to_vec(),
    };
    content.blocks.push(Block::Heading("Filters over a log".to_owned()));
    content.blocks.push(plot(bar_plot.render()));
    let mut table = Table::new([
        "filters",
        "fields",
        "way",
        "built in",
        "ns per message",
        "10,000,000 messages",
        "times as fast as interpreted",
    ]);
    for row in rows {
        table.rows.push(vec![
            row.filters.to_string(),
            if row.look.reads() { "read from JSON" } else { "given" }.to_owned(),
            row.look.name().to_owned(),
            time(row.build_seconds),
            format!("{:.1}", 1e9 / row.messages_per_second),
            time(row.log_seconds()),
            gain(row, rows).map_or_else(|| "-".to_owned(), |gain| format!("{gain:.2}")),
        ]);
    }
    content.blocks.push(Block::Table(table));
    content.blocks.push(Block::Text(
        "Interpreted is bytecode of each filter where messages are read (which adds 0 to each number, lest it be looked up), and a loop over each \
         filter's comparisons where the fields are given. Seconds are of the best round's rate, with what it takes to build the filters."
            .to_owned(),
    ));
    content.seen.extend(sentence(rows));
}

fn sentence(rows: &[Row]) -> Option<String> {
    let best = |reads: bool| {
        let compiled = rows
            .iter()
            .filter(|row| row.filters == 1 && row.look.is_compiled() && row.look.reads() == reads);
        compiled.min_by(|one, other| one.log_seconds().total_cmp(&other.log_seconds()))
    };
    let (reading, given) = (best(true)?, best(false)?);
    let (gain_reading, gain_given) = (gain(reading, rows)?, gain(given, rows)?);
    let of = |way| rows.iter().find(|row| row.filters == 1 && row.look == Look::Reading(way));
    let interpreted = of(Way::Bytecode)?;
    let together = of(Way::Together)
        .map_or(String::new(), |row| format!(", index and columns {}", time(row.log_seconds())));
    Some(format!(
        "One filter over a log of 10,000,000 messages: compiled {}, interpreted {}{together}: compiled is {gain_reading:.2} times as fast as interpreted; \
         with fields that are read already {gain_given:.2} times as fast as a loop. {}",
        time(reading.log_seconds()),
        time(interpreted.log_seconds()),
        if gain_reading > WORTHWHILE {
            "That is more than three times: a compiler would be worth its while here."
        } else {
            "A compiler would have to win three times over."
        }
    ))
}

/// All rows for machines.
pub(super) fn figures(rows: &[Row]) -> Vec<Value> {
    let row = |row: &Row| {
        json!({
            "picture": 3,
            "way": row.look.name(),
            "filters": row.filters,
            "reads": row.look.reads(),
            "build_s": row.build_seconds,
            "messages_per_s": row.messages_per_second,
            "log_s": row.log_seconds(),
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_beside_who_interprets_the_same() {
        let row = |look, messages_per_second| Row {
            filters: 1,
            look,
            build_seconds: 0.0,
            messages_per_second,
        };
        let rows = [
            row(Look::Reading(Way::Bytecode), 1e6),
            row(Look::Reading(Way::Each), 2e6),
            row(Look::Loop, 1e7),
            row(Look::Given(Way::Each), 5e6),
        ];
        let gains: Vec<_> = rows.iter().map(|row| gain(row, &rows)).collect();
        assert_eq!(gains, [Some(1.0), Some(2.0), Some(1.0), Some(0.5)]);
        let said = sentence(&rows).unwrap();
        assert!(
            said.contains(
                "2.00 times as fast as interpreted; with fields that are read already 0.50"
            ),
            "{said}"
        );
        assert!(said.ends_with("would have to win three times over."), "{said}");
    }
}
