//! What one operation costs a broker as a function of how much there is: queues, bindings, messages, bytes.
//!
//! For each curve, size and round the brokers take turns, each started anew. The broker's CPU is read while it
//! rests, then the operations run, then it is read again once it rests: what it does later counts, too.

mod load;
mod rows;

use crate::bench::measure;
use crate::bench::place::{Place, choose};
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::{List, ROUNDS_MAX, from_one};
use crate::cast::OWN_CLIENT;
use crate::plot::{Axis, LinePlot, Look, Series, Unit};
use crate::report::{Block, Table, plot};
use crate::statistics::median;
use crate::subject::Kind;
use crate::terminal::{hint, say_line};
use clap::Args;
use lepus_perf::to_stderr;
use load::Load;
use rows::{CURVES, Curve};
use serde_json::{Value, json};
use std::io;

/// Who is compared, in this order.
const KINDS: [Kind; 4] = [Kind::Lepus, Kind::LavinMq, Kind::RabbitMq, Kind::NullBroker];

/// What the command line says.
#[derive(Clone, Debug, Args)]
pub struct Words {
    /// Curves; all when left out
    #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
    curves: List,
    /// Brokers; lepus, rabbitmq, lavinmq and null-broker when left out
    #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
    brokers: List,
    /// The largest size
    #[arg(long, default_value_t = 100_000)]
    largest: u64,
    /// How often each broker has its turn
    #[arg(long, default_value_t = 3, value_parser = from_one::<usize>(ROUNDS_MAX))]
    rounds: usize,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Curves by name; all when empty.
    curves: Vec<String>,
    /// Brokers by name; all that are there when empty.
    brokers: Vec<String>,
    /// Larger sizes are left out, but of curves that are whole or nothing.
    largest: u64,
    /// Rounds; medians are shown.
    rounds: usize,
    place: Place,
    load_core: usize,
}

/// What one broker's operation took at one size, the median of the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    /// Microseconds of the broker's CPU for each operation.
    micros: f64,
    /// Megabytes by which the broker's resident memory has grown meanwhile, at its end.
    grown_mb: f64,
}

/// The costs at one size: one for each broker that could do it.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    size: u64,
    costs: Vec<(Kind, Cost)>,
}

impl Plan {
    /// What the command line says, to be measured there.
    ///
    /// # Errors
    /// When it names nothing.
    pub fn new(words: Words, (place, load): (Place, measure::Load)) -> Result<Plan, String> {
        let plan = Plan {
            curves: words.curves.0,
            brokers: words.brokers.0,
            largest: words.largest,
            rounds: words.rounds,
            place,
            load_core: load.core,
        };
        for name in &plan.curves {
            if CURVES.iter().all(|curve| curve.name != name) {
                let names = CURVES.map(|curve| curve.name).join(", ");
                return Err(format!("no curve `{name}`; there are: {names}"));
            }
        }
        Ok(plan)
    }
}

/// The names and titles of all curves.
pub fn list() {
    for curve in &CURVES {
        say_line(format_args!("{:16} {}", curve.name, curve.title));
    }
}

/// Measures curve by curve, prints the tables, draws the plots and writes the figures.
///
/// # Errors
/// When results cannot be written. A broker that fails at a size says why and is left out there.
pub fn run(plan: &Plan) -> io::Result<()> {
    let (kinds, left_out) =
        choose(&KINDS, &plan.brokers, &plan.place.site).map_err(io::Error::other)?;
    let is_asked = |curve: &&Curve| {
        plan.curves.is_empty() || plan.curves.iter().any(|name| name == curve.name)
    };
    let size = format!("{} rounds", plan.rounds);
    let cover = Cover { name: "curves", title: TITLE, asks: ASKS, size: ("medians of", size) };
    let mut sheet = Sheet::new(cover, &plan.place)?;
    left_out.into_iter().for_each(|sentence| sheet.see(sentence));
    plan.place.cast.load("curves", || OWN_CLIENT.to_owned());
    let (mut losing, mut compared, mut measured) = (Vec::new(), 0, 0);
    let goes_on = || !plan.place.stop.is_wanted();
    for curve in CURVES.iter().filter(is_asked).take_while(|_| goes_on()) {
        let mut points = Vec::new();
        let can = |kind: &Kind| curve.has_floor || *kind != Kind::NullBroker;
        let kinds: Vec<Kind> = kinds.iter().copied().filter(can).collect();
        let is_asked = |size: &u64| goes_on() && (curve.is_whole || *size <= plan.largest);
        for size in curve.sizes.iter().copied().filter(is_asked) {
            points.push(Point { size, costs: measure(plan, curve, size, &kinds, &mut sheet) });
        }
        measured += points.iter().filter(|point| !point.costs.is_empty()).count();
        compared += points.iter().filter(|point| point.share_of_best().is_some()).count();
        let lost = points.iter().filter(|point| point.is_lost());
        losing.extend(lost.map(|point| (curve, point.size)));
        let blocks = vec![
            Block::Heading(format!("{}: {}", curve.name, curve.title)),
            Block::Table(table(curve, &points, &kinds)),
            draw(curve, &points, &kinds),
        ];
        sheet.add(blocks, Some(figures(curve, &points)))?;
    }
    if compared == 0 {
        sheet.see("Nothing is compared: no point has more than one broker.".to_owned());
    } else if losing.is_empty() {
        let seen =
            format!("At none of {compared} points that were compared is another broker cheaper.");
        sheet.see(seen);
    }
    for (curve, size) in losing {
        let lost = format!("Another broker is cheaper: {} at {size} {}.", curve.name, curve.unit);
        say_line(format_args!("{lost}"));
        sheet.see(lost);
    }
    sheet.finish(&[LEGEND], measured > 0)
}

const TITLE: &str = "What an operation costs by how much there is";
const ASKS: &str = "How does the CPU of an operation grow with the number of queues, bindings, messages and bytes?";
const LEGEND: &str = "\
µs: the broker's user and system time from rest to rest for each operation, median of the rounds, without that of threads
that ended meanwhile; MB: by how much its resident memory had grown at the end; of best: lepus' µs by those of the
cheapest other broker, which the null broker is not: it keeps nothing and checks nothing, and shows what the protocol and
the system cost by themselves; of null: lepus' µs by its.";

fn measure(
    plan: &Plan,
    curve: &Curve,
    size: u64,
    kinds: &[Kind],
    sheet: &mut Sheet,
) -> Vec<(Kind, Cost)> {
    let mut runs: Vec<(Kind, Vec<Cost>)> = kinds.iter().map(|kind| (*kind, Vec::new())).collect();
    for round in 1..=plan.rounds {
        for (kind, costs) in &mut runs {
            if plan.place.stop.is_wanted() {
                break;
            }
            hint(format_args!("{} {size} {} {round}/{} … ", curve.name, kind.name(), plan.rounds));
            match Load::on(*kind, &plan.place, plan.load_core, |load| (curve.run)(load, size)) {
                Ok(cost) => {
                    to_stderr(format_args!("{:.3} µs, {:.1} MB", cost.micros, cost.grown_mb));
                    costs.push(cost);
                }
                Err(error) => sheet.fault(format!(
                    "{} {size} {} {round}/{}: left out: {error}",
                    curve.name,
                    kind.name(),
                    plan.rounds
                )),
            }
        }
    }
    runs.retain(|(_, costs)| !costs.is_empty());
    runs.into_iter().map(|(kind, costs)| (kind, Cost::median(&costs))).collect()
}

impl Cost {
    fn median(costs: &[Cost]) -> Cost {
        Cost {
            micros: median(costs.iter().map(|cost| cost.micros)),
            grown_mb: median(costs.iter().map(|cost| cost.grown_mb)),
        }
    }
}

impl Point {
    fn of(&self, kind: Kind) -> Option<Cost> {
        self.costs.iter().find(|(known, _)| *known == kind).map(|(_, cost)| *cost)
    }

    /// lepus' microseconds by those of the cheapest other broker.
    fn share_of_best(&self) -> Option<f64> {
        let is_other = |kind: Kind| !matches!(kind, Kind::Lepus | Kind::NullBroker);
        let others = self.costs.iter().filter(|(kind, _)| is_other(*kind));
        self.share_of(others.map(|(_, cost)| cost.micros).reduce(f64::min)?)
    }

    /// lepus' microseconds by those of the null broker.
    fn share_of_null(&self) -> Option<f64> {
        self.share_of(self.of(Kind::NullBroker)?.micros)
    }

    fn share_of(&self, micros: f64) -> Option<f64> {
        let own = self.of(Kind::Lepus)?.micros;
        (micros > 0.0).then(|| own / micros)
    }

    fn is_lost(&self) -> bool {
        self.share_of_best().is_some_and(|share| share > 1.0)
    }
}

fn table(curve: &Curve, points: &[Point], kinds: &[Kind]) -> Table {
    let mut table = Table::default();
    table.head.push(curve.unit.to_owned());
    table
        .head
        .extend(kinds.iter().flat_map(|kind| [format!("{} µs", kind.name()), "MB".to_owned()]));
    table.head.push("of best".to_owned());
    if curve.has_floor {
        table.head.push("of null".to_owned());
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for point in points {
        let mut row = vec![point.size.to_string()];
        for cost in kinds.iter().map(|kind| point.of(*kind)) {
            row.push(or_dash(cost.map(|cost| format!("{:.3}", cost.micros))));
            row.push(or_dash(cost.map(|cost| format!("{:.1}", cost.grown_mb))));
        }
        let share = |share: Option<f64>| or_dash(share.map(|share| format!("{share:.2}")));
        row.push(share(point.share_of_best()));
        if curve.has_floor {
            row.push(share(point.share_of_null()));
        }
        table.rows.push(row);
    }
    table
}

/// The curves of all brokers as a plot.
fn draw(curve: &Curve, points: &[Point], kinds: &[Kind]) -> Block {
    let line = |(at, kind): (usize, &Kind)| {
        let costs = points.iter().filter_map(|point| Some((point.size, point.of(*kind)?)));
        let drawable = costs.filter(|(_, cost)| cost.micros > 0.0);
        Series {
            name: kind.name().to_owned(),
            look: Look::nth(at),
            points: drawable.map(|(size, cost)| (size as f64, cost.micros)).collect(),
        }
    };
    let lines = LinePlot {
        title: curve.title.to_owned(),
        x: Axis::new(curve.unit, Unit::Number).log(),
        y: Axis::new("CPU for each operation", Unit::Micros).log(),
        series: kinds.iter().enumerate().map(line).collect(),
    };
    plot(lines.render())
}

fn figures(curve: &Curve, points: &[Point]) -> Value {
    let point = |point: &Point| {
        let mut figures = json!({"size": point.size});
        for (kind, cost) in &point.costs {
            figures[kind.name()] = json!({
                "cpu_micros_per_operation": cost.micros,
                "resident_growth_mb": cost.grown_mb,
            });
        }
        figures
    };
    let points: Vec<Value> = points.iter().map(point).collect();
    json!({"curve": curve.name, "title": curve.title, "unit": curve.unit, "points": points})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(size: u64, micros: &[(Kind, f64)]) -> Point {
        let cost = |micros| Cost { micros, grown_mb: 1.0 };
        Point { size, costs: micros.iter().map(|(kind, micros)| (*kind, cost(*micros))).collect() }
    }

    #[test]
    fn a_point_is_lost_where_the_cheapest_other_broker_is_cheaper() {
        let costs = [(Kind::Lepus, 2.0), (Kind::LavinMq, 1.0), (Kind::RabbitMq, 8.0)];
        assert_eq!(point(1, &costs).share_of_best(), Some(2.0));
        assert!(point(1, &costs).is_lost());
        assert!(!point(1, &[(Kind::Lepus, 2.0), (Kind::RabbitMq, 8.0)]).is_lost());
        assert_eq!(point(1, &[(Kind::Lepus, 2.0)]).share_of_best(), None);
        assert!(!point(1, &[(Kind::RabbitMq, 8.0)]).is_lost());
        // The null broker is a floor, and no other broker.
        let costs = [(Kind::Lepus, 2.0), (Kind::LavinMq, 4.0), (Kind::NullBroker, 1.0)];
        let point = point(1, &costs);
        assert_eq!((point.share_of_best(), point.share_of_null()), (Some(0.5), Some(2.0)));
    }

    #[test]
    fn brokers_that_could_not_do_it_have_a_dash() {
        let points = [point(10, &[(Kind::Lepus, 0.5), (Kind::LavinMq, 1.0)])];
        let table = table(&CURVES[0], &points, &KINDS[..3]);
        assert_eq!(table.rows[0], ["10", "0.500", "1.0", "1.000", "1.0", "-", "-", "0.50"]);
        let plot = draw(&CURVES[0], &points, &KINDS);
        assert!(matches!(plot, Block::Plot(svg) if svg.contains("lavinmq")));
    }

    #[test]
    fn medians_are_of_each_figure_by_itself() {
        let costs = [(1.0, 9.0), (2.0, 8.0), (3.0, 7.0)]
            .map(|(micros, grown_mb)| Cost { micros, grown_mb });
        assert_eq!(Cost::median(&costs), Cost { micros: 2.0, grown_mb: 8.0 });
    }

    #[test]
    fn names_are_unlike_and_sizes_grow() {
        for (at, curve) in CURVES.iter().enumerate() {
            assert!(CURVES[..at].iter().all(|other| other.name != curve.name), "{}", curve.name);
            assert!(curve.sizes.is_sorted_by(|one, next| one < next), "{}", curve.name);
        }
    }
}
