//! Filters one by one, compiled, and all together: no broker takes part, the engine is asked in this program.

mod course;
mod log;
mod many;
mod ready;
mod walk;

use super::{Experiment, Work};
use crate::plan::Plan;
use crate::report::{Block, Content};
use crate::stop::Stop;
use lepus_compiled::HAS_COMPILER;
use lepus_perf::filter_load::{Wanted, Workload};
use serde_json::Value;
use std::time::Duration;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "filters",
    title: "filters: one by one, compiled, or all together",
    asks: "Trades as JSON of 250 bytes, of which each matches about one of 1 to 1,000,000 filters over up to 1,000 symbols: nine in ten ask for \
           a symbol, a range of prices and a quantity, or all of them for ranges alone. A broker can walk the tree of each filter, run \
           bytecode for each, compile each to machine code, or look at all filters together: by an index of what they ask to be equal, \
           and by columns of bounds that are compared many at a time. How many messages a second does each way match on one core, \
           and from which message on has a compiler paid for the time that it takes?",
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
/// Different messages.
const MESSAGES: u32 = 2_048;

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

/// One filter that asks for one of ten symbols, and matches one message in twenty.
fn draw_one() -> Workload {
    Workload::draw(&Wanted {
        count: 1,
        anchored: 1.0,
        symbols: 10,
        ranges: 2,
        matches: 0.05,
        messages: MESSAGES,
        seed: 1,
    })
}

/// Those of some numbers of filters that a run of this size has.
fn within(plan: &Plan, counts: &[u32]) -> Vec<u32> {
    let most = (FILTERS_MAX * plan.scale).clamp(1.0, FILTERS_MAX);
    counts.iter().copied().filter(|count| f64::from(*count) <= most).collect()
}

/// The time of one way of so many, in one round.
fn share(plan: &Plan, ways: usize) -> Duration {
    let seconds = plan.seconds.unwrap_or(SECONDS * plan.scale);
    Duration::from_secs_f64(seconds / ways.max(1) as f64)
}

/// Measures; what there is to say, and the figures.
fn run(plan: &Plan, stop: &Stop) -> Result<(Content, Value), String> {
    let mut content = Content::default();
    let points = many::measure(plan, stop)?;
    if points.is_empty() {
        return Err("it was ended before the first measurement".to_owned());
    }
    many::describe(&points, &mut content);
    let mut figures = many::figures(&points);
    if HAS_COMPILER {
        let courses = course::measure(plan, stop)?;
        course::describe(&courses, &mut content);
        figures.extend(course::figures(&courses));
        let rows = log::measure(plan, stop)?;
        log::describe(&rows, &mut content);
        figures.extend(log::figures(&rows));
    }
    let compiler = if HAS_COMPILER {
        "Compiled filters are given the values of a message's fields, which the engine reads for them as for itself: with one filter \
         that names all fields and never matches. Compiled is by Cranelift, for x86-64 as all such machines have it, without jumps \
         within a filter."
    } else {
        "Ways that compile to machine code are in builds with the feature `compiled` alone, and so are the pictures of how long a \
         compiler takes to pay."
    };
    content.blocks.push(Block::Text(format!(
        "Matching alone, without publishing and delivering; what it takes to read a message is in every figure that does not say \
         otherwise. The best round counts. Bytecode shares what filters have in common, such as the reading of a field. Verdicts of \
         all ways were compared before. {compiler}"
    )));
    Ok((content, figures.into()))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A time in a unit that suits it.
fn time(seconds: f64) -> String {
    match seconds {
        0.0..1e-6 => format!("{:.0} ns", seconds * 1e9),
        1e-6..1e-3 => format!("{:.3} µs", seconds * 1e6),
        1e-3..1.0 => format!("{:.3} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::ready::Way;
    use super::*;

    #[test]
    fn a_short_run_has_every_point_and_plots_that_can_be_drawn() {
        let words = ["filters", "--scale", "0.0001", "--rounds", "1", "--seconds", "0.001"];
        let words = crate::call::Words::read(words.map(str::to_owned).to_vec()).unwrap();
        let (experiment, plan) = words.plan("lepus".into(), "now").unwrap().unwrap();
        assert_eq!(experiment.name, "filters");
        let (content, figures) = run(&plan, &Stop::default()).unwrap();
        let figures = figures.as_array().cloned().unwrap_or_default();
        let of = |picture| figures.iter().filter(|figure| figure["picture"] == picture).count();
        // 1, 10 and 100 filters, two mixes.
        assert_eq!(of(1), Way::all().count() * 3 * 2);
        // With a compiler one picture more of one filter from its text on, and one of the log.
        let pictures = if HAS_COMPILER { (4, 4) } else { (2, 2) };
        assert_eq!((content.plots().count(), content.seen.len()), pictures, "{:?}", content.seen);
        assert!(!HAS_COMPILER || (of(2) > 0 && of(3) > 0));
    }

    #[test]
    fn counts_end_at_the_scale() {
        let words = ["filters", "--scale", "0.001"].map(str::to_owned).to_vec();
        let words = crate::call::Words::read(words).unwrap();
        let (_, plan) = words.plan("lepus".into(), "now").unwrap().unwrap();
        assert_eq!(within(&plan, &[1, 10, 1_000, 1_001]), [1, 10, 1_000]);
        let larger = Plan { scale: 100.0, ..plan };
        assert_eq!(within(&larger, &[1_000_000, 10_000_000]), [1_000_000]);
    }

    #[test]
    fn times_have_units() {
        let shown = [2.5e-8, 2.5e-5, 0.25, 25.0].map(time);
        assert_eq!(shown, ["25 ns", "25.000 µs", "250.000 ms", "25.00 s"]);
    }
}
