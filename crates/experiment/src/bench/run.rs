//! The run of `make bench`: every load against every broker, in turn, several times.

use crate::bench::costs;
use crate::bench::measure::{self, Figures, Load};
use crate::bench::place::{Place, choose};
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::table::{self, Row};
use crate::bench::workload::{WORKLOADS, Workload};
use crate::subject::{Kind, Subject};
use crate::terminal::hint;
use lepus_perf::to_stderr;
use serde_json::{Map, Value, json};
use std::io;

const TITLE: &str =
    "Messages on their way, beside other brokers and the floor that any broker stands on";
const ASKS: &str =
    "What does a message cost: rate, CPU, switches, system calls, memory and latency?";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds; in each of them every broker has its turn.
    pub rounds: usize,
    /// Loads by name; all when empty.
    pub workloads: Vec<String>,
    /// Brokers by name; all when empty.
    pub brokers: Vec<String>,
    /// Where the brokers are and run.
    pub place: Place,
    /// The tester's side.
    pub load: Load,
}

/// Measures, prints the table and writes the copy.
///
/// # Errors
/// When a broker or a tester fails, with what it said.
pub fn run(plan: &Plan) -> io::Result<()> {
    let known = Kind::ALL.into_iter().filter(|kind| kind.counts()).collect::<Vec<_>>();
    let (brokers, left_out) =
        choose(&known, &plan.brokers, &plan.place.site).map_err(io::Error::other)?;
    let workloads = chosen_workloads(plan)?;
    let size = format!("{} rounds of {} s", plan.rounds, plan.load.seconds);
    let cover = Cover { name: "run", title: TITLE, asks: ASKS, size: ("medians of", size) };
    let mut sheet = Sheet::new(cover, &plan.place)?;
    left_out.into_iter().for_each(|sentence| sheet.see(sentence));
    let mut rows = Vec::new();
    for workload in workloads {
        if plan.place.stop.is_wanted() {
            break;
        }
        let mut runs: Vec<(Kind, Vec<Figures>)> = brokers
            .iter()
            .filter(|kind| workload.fits(**kind))
            .map(|kind| (*kind, Vec::new()))
            .collect();
        // RabbitMQ takes seconds to start, so it stays for all rounds; idle it needs next to nothing.
        let rabbitmq = match brokers.contains(&Kind::RabbitMq) {
            true => plan.place.start(Kind::RabbitMq).map(Some),
            false => Ok(None),
        };
        if plan.place.stop.is_wanted() {
            break;
        }
        // A broker that does not start is no reason to lose what the others show.
        let rabbitmq = rabbitmq.unwrap_or_else(|error| {
            runs.retain(|(kind, _)| *kind != Kind::RabbitMq);
            let (load, broker) = (workload.name, Kind::RabbitMq.name());
            sheet.fault(format!("{load} {broker}: left out: {error}"));
            None
        });
        for round in 1..=plan.rounds {
            for (kind, figures) in &mut runs {
                if plan.place.stop.is_wanted() {
                    break;
                }
                hint(format_args!("{} {} {round}/{} … ", workload.name, kind.name(), plan.rounds));
                match measure_patiently(workload, *kind, rabbitmq.as_ref(), plan) {
                    Ok(one) => {
                        to_stderr(format_args!("{:.0} msg/s, {:.3} µs", one.rate, one.cpu_micros));
                        figures.push(one);
                    }
                    // One run that failed is no reason to lose the others.
                    Err(error) => sheet.fault(format!(
                        "{} {} {round}/{}: left out: {error}",
                        workload.name,
                        kind.name(),
                        plan.rounds
                    )),
                }
            }
        }
        runs.retain(|(_, figures)| !figures.is_empty());
        add_counts(workload, &mut runs, rabbitmq.as_ref(), plan);
        let row = Row { workload, runs };
        row.sentences().into_iter().for_each(|sentence| sheet.see(sentence));
        sheet.add(row.details(), Some(figures(&row)))?;
        rows.push(row);
    }
    sheet.add(table::summary(&rows), None)?;
    let was_measured = rows.iter().any(|row| !row.runs.is_empty());
    sheet.finish(&table::LEGEND, was_measured)
}

/// Adds what is counted in runs of their own, unless somebody wants the whole to end: system calls, and whether all counts of
/// messages agree.
fn add_counts(
    workload: &'static Workload,
    runs: &mut [(Kind, Vec<Figures>)],
    rabbitmq: Option<&Subject>,
    plan: &Plan,
) {
    if plan.place.stop.is_wanted() {
        return;
    }
    for (kind, figures) in runs.iter_mut().filter(|(kind, _)| *kind != Kind::NullRelay) {
        let calls = with_subject(*kind, rabbitmq, plan, |subject| {
            costs::count_calls(workload, subject, &plan.load, &plan.place.site.scratch)
        });
        match calls {
            Ok(calls) => figures.iter_mut().for_each(|one| one.calls = calls.all),
            Err(error) => {
                to_stderr(format_args!(
                    "{} {}: calls not counted: {error}",
                    workload.name,
                    kind.name()
                ));
            }
        }
    }
    for (kind, figures) in runs {
        let counted = with_subject(*kind, rabbitmq, plan, |subject| {
            measure::check_counts(workload, subject, &plan.load)
        });
        let found = counted.unwrap_or_else(|error| {
            to_stderr(format_args!(
                "{} {}: counts not compared: {error}",
                workload.name,
                kind.name()
            ));
            None
        });
        for figures in figures {
            figures.disagreement = figures.disagreement.or(found);
        }
    }
}

/// Measures once, and once more for a longer time if the tester was not under way soon enough.
fn measure_patiently(
    workload: &'static Workload,
    kind: Kind,
    rabbitmq: Option<&Subject>,
    plan: &Plan,
) -> io::Result<Figures> {
    let measure = |load: &Load| {
        with_subject(kind, rabbitmq, plan, |subject| {
            measure::run(workload, subject, plan.place.core, load)
        })
    };
    measure(&plan.load).or_else(|error| {
        plan.place.goes_on()?;
        let seconds = plan.load.seconds * 3;
        hint(format_args!("{error}; again for {seconds} s … "));
        measure(&Load { seconds, ..plan.load.clone() })
    })
}

/// Calls `act` with a broker of this kind that was just started; RabbitMQ is the one that runs.
fn with_subject<T>(
    kind: Kind,
    rabbitmq: Option<&Subject>,
    plan: &Plan,
    act: impl FnOnce(&Subject) -> io::Result<T>,
) -> io::Result<T> {
    match (kind, rabbitmq) {
        (Kind::RabbitMq, Some(_)) if plan.place.stop.is_wanted() => {
            Err(io::Error::other("no load is begun any more"))
        }
        (Kind::RabbitMq, Some(subject)) => act(subject),
        _ => act(&plan.place.start(kind)?),
    }
}

fn chosen_workloads(plan: &Plan) -> io::Result<Vec<&'static Workload>> {
    for name in &plan.workloads {
        if WORKLOADS.iter().all(|workload| workload.name != name) {
            let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
            let names = names.join(", ");
            return Err(io::Error::other(format!("no load `{name}`; there are: {names}")));
        }
    }
    let mut workloads = Vec::new();
    for workload in &WORKLOADS {
        if !plan.workloads.is_empty() && !plan.workloads.iter().any(|name| name == workload.name) {
            continue;
        }
        if let Some(reason) = plan.load.testers.missing(workload.tester) {
            to_stderr(format_args!("{} is left out: {reason}", workload.name));
            continue;
        }
        workloads.push(workload);
    }
    Ok(workloads)
}

fn figures(row: &Row) -> Value {
    let of_broker = |(kind, runs): &(Kind, Vec<Figures>)| {
        let all: Vec<Value> = runs.iter().map(Figures::json).collect();
        (kind.name().to_owned(), json!({"median": Figures::median(runs).json(), "runs": all}))
    };
    let brokers: Map<String, Value> = row.runs.iter().map(of_broker).collect();
    json!({"workload": row.workload.name, "title": row.workload.title, "brokers": brokers})
}
