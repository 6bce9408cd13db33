//! Whether `lepus perf` and the reference tester measure the same: the same load by both on the same broker in turn.

use crate::bench::measure::{Load, listen, pinned};
use crate::bench::place::Place;
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::workload::{SINGLE, Said, Tester, Workload};
use crate::report::{Block, Table};
use crate::statistics::median;
use crate::subject::{Kind, Subject};
use lepus_perf::to_stderr;
use serde_json::{Value, json};
use std::io;

const TITLE: &str = "Whether lepus perf and the reference tester measure the same";
const ASKS: &str = "Are rate and median latency of the two within a tenth of each other, on the same broker in turn?";
const LEGEND: [&str; 2] = [
    "ref.: the reference tester; null: the same on the broker that does next to nothing; own: lepus perf; ratio: own by \
     reference. µs: the median latency of consumers.",
    "agree: within a tenth; APART: not. its own: the reference shows itself there, not the broker, and is not compared.",
];

/// How far the two may be apart, as a share of the reference's figure.
const APART_MAX: f64 = 0.10;
/// Intervals at the start that do not count: the reference's runtime is still compiling itself.
const WARM_UP: u64 = 4;

/// A load that both make.
struct Both {
    name: &'static str,
    title: &'static str,
    reference: &'static [&'static str],
    own: &'static [&'static str],
    /// Whether its rate is given, not found.
    is_offered: bool,
}

/// E4's single queue at a rate that neither tester nor broker feels.
const STEADY: [&str; 14] = with(SINGLE, ["-r", "2000"]);
/// The same; the reference counts latencies from sending.
const STEADY_OWN: [&str; 16] = with(STEADY, ["--latency-from", "send"]);

const LOADS: [Both; 2] = [
    Both {
        name: "steady",
        title: "E4 single queue at 2000 msg/s",
        reference: &STEADY,
        own: &STEADY_OWN,
        is_offered: true,
    },
    Both {
        name: "e4-single",
        title: "E4 single queue as fast as it goes",
        reference: &SINGLE,
        own: &SINGLE,
        is_offered: false,
    },
];

const fn with<const N: usize, const M: usize>(
    words: [&'static str; N],
    more: [&'static str; 2],
) -> [&'static str; M] {
    let mut all = [""; M];
    let mut at = 0;
    while at < N {
        all[at] = words[at];
        at += 1;
    }
    all[N] = more[0];
    all[N + 1] = more[1];
    all
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Turns of each tester with each load.
    pub rounds: usize,
    /// The broker by name.
    pub broker: String,
    /// Where brokers are and run.
    pub place: Place,
    /// The testers' side.
    pub load: Load,
}

/// Received messages a second and median latency in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    rate: f64,
    latency: f64,
}

/// Compares and reports; whether both figures of all loads are within a tenth of each other where the
/// reference is not itself the limit. That is shown by the null broker, which does next to nothing: a
/// rate that the reference does not exceed there is its own, and so is a latency of which more than
/// half is there already.
///
/// # Errors
/// When the broker or a tester fails.
pub fn run(plan: &Plan) -> io::Result<bool> {
    let kind = Kind::find_for_amqp(&plan.broker);
    let kind = kind.ok_or_else(|| io::Error::other(format!("no broker {}", plan.broker)))?;
    let size = format!("{} rounds of {} s", plan.rounds, plan.load.seconds);
    let cover = Cover { name: "agree", title: TITLE, asks: ASKS, size: ("medians of", size) };
    let mut sheet = Sheet::new(cover, &plan.place)?;
    let subject = plan.place.start(kind)?;
    let mut table = Table::new([
        "",
        "ref. msg/s",
        "null",
        "own",
        "ratio",
        "ref. µs",
        "null",
        "own",
        "ratio",
        "rate",
        "latency",
    ]);
    let mut agree = true;
    for both in &LOADS {
        match compare(both, plan, &subject) {
            Ok(compared) => {
                agree &= compared.fits();
                sheet.see(compared.sentence(both));
                sheet.keep(compared.json(both));
                table.rows.push(compared.row(both));
            }
            Err(error) => {
                agree = false;
                sheet.fault(format!("{}: left out: {error}", both.name));
            }
        }
    }
    let was_measured = !table.rows.is_empty();
    let heading = Block::Heading(format!("The testers on {}", kind.name()));
    sheet.add(vec![heading, Block::Table(table)], None)?;
    sheet.finish(&LEGEND, was_measured)?;
    Ok(agree)
}

/// What both testers found under a load, and the reference on the null broker.
#[derive(Clone, Copy, Debug)]
struct Compared {
    reference: Figures,
    own: Figures,
    floor: Figures,
    /// Whether the reference itself limits its rate, and its latency.
    limits: (bool, bool),
}

fn compare(both: &Both, plan: &Plan, subject: &Subject) -> io::Result<Compared> {
    to_stderr(format_args!("{}: the reference on the null broker", both.name));
    let null = plan.place.start(Kind::NullBroker)?;
    let floor = measure(both, Tester::Reference, &null, &plan.load)?;
    drop(null);
    let (mut reference, mut own) = (Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        to_stderr(format_args!("{}: {}, {round}/{}", both.name, both.title, plan.rounds));
        reference.push(measure(both, Tester::Reference, subject, &plan.load)?);
        own.push(measure(both, Tester::Own, subject, &plan.load)?);
    }
    let (reference, own) = (middle(&reference), middle(&own));
    let limits = reference.limited_by(&floor, both.is_offered);
    Ok(Compared { reference, own, floor, limits })
}

impl Compared {
    /// Our figures by the reference's: of the rate, and of the latency.
    fn ratios(&self) -> (f64, f64) {
        let (own, reference) = (self.own, self.reference);
        (ratio(own.rate, reference.rate), ratio(own.latency, reference.latency))
    }

    fn fits(&self) -> bool {
        let (rate, latency) = self.ratios();
        (self.limits.0 || is_near(rate)) && (self.limits.1 || is_near(latency))
    }

    /// What is to be said of the rate, and of the latency.
    fn verdicts(&self) -> (&'static str, &'static str) {
        let verdict = |ratio: f64, is_limit: bool| match (is_limit, is_near(ratio)) {
            (true, _) => "its own",
            (false, true) => "agree",
            (false, false) => "APART",
        };
        let (rate, latency) = self.ratios();
        (verdict(rate, self.limits.0), verdict(latency, self.limits.1))
    }

    fn row(&self, both: &Both) -> Vec<String> {
        let ((rate, latency), verdicts) = (self.ratios(), self.verdicts());
        let whole = |value: f64| format!("{value:.0}");
        let share = |value: f64| format!("{value:.3}");
        vec![
            both.name.to_owned(),
            whole(self.reference.rate),
            whole(self.floor.rate),
            whole(self.own.rate),
            share(rate),
            whole(self.reference.latency),
            whole(self.floor.latency),
            whole(self.own.latency),
            share(latency),
            verdicts.0.to_owned(),
            verdicts.1.to_owned(),
        ]
    }

    fn sentence(&self, both: &Both) -> String {
        let ((rate, latency), verdicts) = (self.ratios(), self.verdicts());
        format!(
            "{}: lepus perf tells {rate:.3} of the reference's rate ({}) and {latency:.3} of its latency ({}).",
            both.title, verdicts.0, verdicts.1
        )
    }

    fn json(&self, both: &Both) -> Value {
        let figures = |figures: Figures| json!({"messages_per_second": figures.rate, "latency_median_micros": figures.latency});
        let ((rate, latency), verdicts) = (self.ratios(), self.verdicts());
        json!({
            "workload": both.name,
            "title": both.title,
            "reference": figures(self.reference),
            "own": figures(self.own),
            "reference_on_null_broker": figures(self.floor),
            "rate_ratio": rate.is_finite().then_some(rate),
            "latency_ratio": latency.is_finite().then_some(latency),
            "rate": verdicts.0,
            "latency": verdicts.1,
        })
    }
}

impl Figures {
    /// Whether the reference itself limits its rate, and its latency: what it has on the null broker. A
    /// null broker that is slower than a real one says that the machine changed meanwhile, nothing else.
    fn limited_by(&self, floor: &Figures, is_offered: bool) -> (bool, bool) {
        let is_between = |value: f64, low: f64, high: f64| (low..=high).contains(&value);
        let rate = floor.rate / self.rate;
        let latency = floor.latency / self.latency;
        let is_rate = !is_offered && is_between(rate, 1.0 - APART_MAX, 1.0 + 2.0 * APART_MAX);
        (is_rate, is_rate || is_between(latency, 0.5, 1.0 + APART_MAX))
    }
}

fn measure(both: &Both, tester: Tester, subject: &Subject, load: &Load) -> io::Result<Figures> {
    let workload = Workload {
        name: both.name,
        title: both.title,
        tester,
        words: if tester == Tester::Own { both.own } else { both.reference },
        stream: None,
        acknowledges: true,
        counted: None,
    };
    let mut command = workload.command(subject, load.seconds, &load.testers)?;
    let mut child = pinned(&mut command, load)?;
    let (mut said, mut intervals) = (Said::default(), Vec::new());
    let status = listen(&mut child, &load.stop, |line| {
        if let Some(interval) = said.hear(line)
            && interval.number > WARM_UP
            && let Some(latency) = median_latency(line)
        {
            intervals.push(Figures { rate: interval.received, latency });
        }
        Ok(())
    })?;
    if intervals.len() < 2 {
        let log = load.errors.display();
        return Err(io::Error::other(format!(
            "the tester told too little, with {status}: see {log}"
        )));
    }
    // The last line may tell of a time in which the tester was stopping already.
    intervals.pop();
    Ok(middle(&intervals))
}

/// The median of each figure.
fn middle(figures: &[Figures]) -> Figures {
    Figures {
        rate: median(figures.iter().map(|figures| figures.rate)),
        latency: median(figures.iter().map(|figures| figures.latency)),
    }
}

fn ratio(own: f64, reference: f64) -> f64 {
    if reference > 0.0 { own / reference } else { f64::INFINITY }
}

fn is_near(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= APART_MAX
}

/// The consumers' median latency of one interval in microseconds.
fn median_latency(line: &str) -> Option<f64> {
    const LABEL: &str = "consumer latency: ";
    let at = line.find(LABEL)? + LABEL.len();
    line[at..].split('/').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_a_line_is_found() {
        let line = "id: x, time 2.0 s, received: 9 msg/s, min/median/75th/95th/99th consumer latency: 4/5/6/7/8 µs, confirm latency: 1/2/3/4/5 µs";
        assert_eq!(median_latency(line), Some(5.0));
        assert_eq!(median_latency("id: x, time 2.0 s"), None);
    }

    #[test]
    fn what_the_reference_has_on_the_null_broker_is_its_own() {
        let seen = Figures { rate: 30_000.0, latency: 2_900.0 };
        let floor = |rate, latency| Figures { rate, latency };
        assert_eq!(seen.limited_by(&floor(60_000.0, 1_400.0), false), (false, false));
        assert_eq!(seen.limited_by(&floor(60_000.0, 1_500.0), false), (false, true));
        assert_eq!(seen.limited_by(&floor(10_000.0, 9_000.0), false), (false, false));
        assert_eq!(seen.limited_by(&floor(35_000.0, 100.0), false), (true, true));
        assert_eq!(seen.limited_by(&floor(30_000.0, 100.0), true), (false, false));
    }

    #[test]
    fn what_the_reference_itself_limits_fits_however_far_it_is_apart() {
        let figures = |rate, latency| Figures { rate, latency };
        let (reference, own) = (figures(100.0, 50.0), figures(105.0, 80.0));
        let compared = |limits| Compared { reference, own, floor: reference, limits };
        assert!(!compared((false, false)).fits() && compared((false, true)).fits());
        let row = compared((false, false)).row(&LOADS[0]);
        assert_eq!(row[4..], ["1.050", "50", "50", "80", "1.600", "agree", "APART"]);
        assert_eq!(compared((false, true)).json(&LOADS[0])["latency"], "its own");
    }

    #[test]
    fn near_is_within_a_tenth() {
        assert!(is_near(ratio(91.0, 100.0)) && is_near(ratio(109.0, 100.0)));
        assert!(!is_near(ratio(89.0, 100.0)) && !is_near(ratio(1.0, 0.0)));
    }
}
