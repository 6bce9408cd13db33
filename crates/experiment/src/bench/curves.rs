//! What one operation costs a broker as a function of how much there is: queues, bindings, messages, bytes.
//!
//! For each curve, size and round the brokers take turns, each started anew. The broker's CPU is read while it
//! rests, then the operations run, then it is read again once it rests: what it does later counts, too.

mod load;
mod rows;

use crate::bench::arguments::Arguments;
use crate::bench::json::Json;
use crate::bench::measure::median;
use crate::bench::place::{Place, choose};
use crate::bench::run::machine;
use crate::plot::{Axis, LinePlot, Look, Series, Unit};
use crate::subject::Kind;
use load::Load;
use rows::{CURVES, Curve};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Who is compared, in this order.
const KINDS: [Kind; 3] = [Kind::Lepus, Kind::LavinMq, Kind::RabbitMq];

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
    results: PathBuf,
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
    /// Takes what the command line says.
    ///
    /// # Errors
    /// When a value is not of its kind, or names nothing.
    pub fn read(
        arguments: &mut Arguments,
        place: Place,
        load_core: usize,
        results: PathBuf,
    ) -> Result<Plan, String> {
        let plan = Plan {
            curves: arguments.take_list("curves")?,
            brokers: arguments.take_list("brokers")?,
            largest: arguments.take("largest", 100_000)?,
            rounds: arguments.take("rounds", 3)?,
            place,
            load_core,
            results,
        };
        for name in &plan.curves {
            if CURVES.iter().all(|curve| curve.name != name) {
                let names = CURVES.map(|curve| curve.name).join(", ");
                return Err(format!("no curve `{name}`; there are: {names}"));
            }
        }
        if plan.rounds == 0 {
            return Err("--rounds cannot be 0: nothing would be measured".to_owned());
        }
        Ok(plan)
    }
}

/// The names and titles of all curves.
pub fn list() {
    for curve in &CURVES {
        println!("{:16} {}", curve.name, curve.title);
    }
}

/// Measures curve by curve, prints the tables, draws the plots and writes the figures.
///
/// # Errors
/// When results cannot be written. A broker that fails at a size says why and is left out there.
pub fn run(plan: &Plan) -> io::Result<()> {
    fs::create_dir_all(&plan.results)?;
    let kinds = choose(&KINDS, &plan.brokers, &plan.place.site).map_err(io::Error::other)?;
    let is_asked = |curve: &&Curve| {
        plan.curves.is_empty() || plan.curves.iter().any(|name| name == curve.name)
    };
    let mut measured = Vec::new();
    let mut losing = Vec::new();
    for curve in CURVES.iter().filter(is_asked) {
        let mut points = Vec::new();
        let is_asked = |size: &u64| curve.is_whole || *size <= plan.largest;
        for size in curve.sizes.iter().copied().filter(is_asked) {
            points.push(Point { size, costs: measure(plan, curve, size, &kinds) });
        }
        println!("{}", table(curve, &points, &kinds));
        losing
            .extend(points.iter().filter(|point| point.is_lost()).map(|point| (curve, point.size)));
        if let Some(plot) = draw(curve, &points, &kinds) {
            fs::write(plan.results.join(format!("curves-{}.svg", curve.name)), plot)?;
        }
        measured.push((curve, points));
        write_copy(plan, &measured)?;
    }
    println!("{LEGEND}");
    for (curve, size) in losing {
        println!("another broker is cheaper: {} at {size} {}", curve.name, curve.unit);
    }
    println!("{}", plan.results.join("curves-latest.json").display());
    Ok(())
}

const LEGEND: &str = "\
µs: the broker's user and system time from rest to rest for each operation, median of the rounds; MB: by how much its \
resident memory\nhad grown at the end; of best: lepus' µs by those of the cheapest other broker.";

fn measure(plan: &Plan, curve: &Curve, size: u64, kinds: &[Kind]) -> Vec<(Kind, Cost)> {
    let mut runs: Vec<(Kind, Vec<Cost>)> = kinds.iter().map(|kind| (*kind, Vec::new())).collect();
    for round in 1..=plan.rounds {
        for (kind, costs) in &mut runs {
            eprint!("{} {size} {} {round}/{} … ", curve.name, kind.name(), plan.rounds);
            match Load::on(*kind, &plan.place, plan.load_core, |load| (curve.run)(load, size)) {
                Ok(cost) => {
                    eprintln!("{:.3} µs, {:.1} MB", cost.micros, cost.grown_mb);
                    costs.push(cost);
                }
                Err(error) => eprintln!("left out: {error}"),
            }
        }
    }
    runs.retain(|(_, costs)| !costs.is_empty());
    runs.into_iter().map(|(kind, costs)| (kind, Cost::median(&costs))).collect()
}

impl Cost {
    fn median(costs: &[Cost]) -> Cost {
        Cost {
            micros: median(costs.iter().map(|cost| cost.micros).collect()),
            grown_mb: median(costs.iter().map(|cost| cost.grown_mb).collect()),
        }
    }
}

impl Point {
    fn of(&self, kind: Kind) -> Option<Cost> {
        self.costs.iter().find(|(known, _)| *known == kind).map(|(_, cost)| *cost)
    }

    /// lepus' microseconds by those of the cheapest other broker.
    fn share_of_best(&self) -> Option<f64> {
        let others = self.costs.iter().filter(|(kind, _)| *kind != Kind::Lepus);
        let best = others.map(|(_, cost)| cost.micros).reduce(f64::min)?;
        let own = self.of(Kind::Lepus)?.micros;
        (best > 0.0).then(|| own / best)
    }

    fn is_lost(&self) -> bool {
        self.share_of_best().is_some_and(|share| share > 1.0)
    }
}

fn table(curve: &Curve, points: &[Point], kinds: &[Kind]) -> String {
    let mut out = format!("{}: {}\n{:>12}", curve.name, curve.title, curve.unit);
    for kind in kinds {
        let _ = write!(out, " {:>12} {:>8}", format!("{} µs", kind.name()), "MB");
    }
    let _ = writeln!(out, " {:>8}", "of best");
    for point in points {
        let _ = write!(out, "{:>12}", point.size);
        for kind in kinds {
            match point.of(*kind) {
                Some(cost) => {
                    let _ = write!(out, " {:>12.3} {:>8.1}", cost.micros, cost.grown_mb);
                }
                None => {
                    let _ = write!(out, " {:>12} {:>8}", "-", "-");
                }
            }
        }
        let share = point.share_of_best().map_or("-".to_owned(), |share| format!("{share:.2}"));
        let _ = writeln!(out, " {share:>8}");
    }
    out
}

/// The curves of all brokers as a plot; none where nothing can be drawn.
fn draw(curve: &Curve, points: &[Point], kinds: &[Kind]) -> Option<String> {
    let line = |(at, kind): (usize, &Kind)| {
        let costs = points.iter().filter_map(|point| Some((point.size, point.of(*kind)?)));
        let drawable = costs.filter(|(_, cost)| cost.micros > 0.0);
        Series {
            name: kind.name().to_owned(),
            look: Look::nth(at),
            points: drawable.map(|(size, cost)| (size as f64, cost.micros)).collect(),
        }
    };
    let plot = LinePlot {
        title: curve.title.to_owned(),
        x: Axis::new(curve.unit, Unit::Number).log(),
        y: Axis::new("CPU for each operation", Unit::Micros).log(),
        series: kinds.iter().enumerate().map(line).collect(),
    };
    plot.render().ok()
}

fn write_copy(plan: &Plan, measured: &[(&Curve, Vec<Point>)]) -> io::Result<()> {
    let costs = |point: &Point| {
        let each = point.costs.iter().map(|(kind, cost)| {
            let cost = Json::object([
                ("cpu_micros_per_operation", Json::Number(cost.micros)),
                ("resident_growth_mb", Json::Number(cost.grown_mb)),
            ]);
            (kind.name().to_owned(), cost)
        });
        let size = ("size".to_owned(), Json::Number(point.size as f64));
        Json::Object([size].into_iter().chain(each).collect())
    };
    let curves = measured.iter().map(|(curve, points)| {
        Json::object([
            ("curve", Json::text(curve.name)),
            ("title", Json::text(curve.title)),
            ("unit", Json::text(curve.unit)),
            ("points", Json::List(points.iter().map(costs).collect())),
        ])
    });
    let document = Json::object([
        ("machine", machine()),
        ("rounds", Json::Number(plan.rounds as f64)),
        ("curves", Json::List(curves.collect())),
    ]);
    fs::write(plan.results.join("curves-latest.json"), document.render())
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
    }

    #[test]
    fn brokers_that_could_not_do_it_have_a_dash() {
        let points = [point(10, &[(Kind::Lepus, 0.5), (Kind::LavinMq, 1.0)])];
        let text = table(&CURVES[0], &points, &KINDS);
        let words: Vec<_> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(words, ["10", "0.500", "1.0", "1.000", "1.0", "-", "-", "0.50"]);
        assert!(draw(&CURVES[0], &points, &KINDS).unwrap().contains("lavinmq"));
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
