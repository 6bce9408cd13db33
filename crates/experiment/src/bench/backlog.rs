//! Experiment E2: backlogs on disk. Each row fills queues, stops the broker, drops the page cache,
//! starts it again and drains them, and says what that cost in time, CPU, memory and bytes.

mod endurance;
mod figures;
mod floor;
mod many_queues;
mod row;
mod visit;

pub use endurance::run as endure;
pub use endurance::{Plan as EndurancePlan, Words as EnduranceWords};
pub use floor::{append, echo, null_persister};
pub use many_queues::seed;

use crate::bench::measure::Load;
use crate::bench::place::{Place, choose};
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::words::{List, SECONDS_MAX, from_one};
use crate::call::{SCALE_MAX, number};
use crate::disk;
use crate::subject::Kind;
use crate::terminal::say_line;
use clap::Args;
use figures::{Line, render};
use lepus_perf::to_stderr;
use row::ROWS;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

const TITLE: &str = "Backlogs on disk, filled, restarted and drained";
const ASKS: &str = "What does a backlog cost: time, CPU, memory, bytes written and read?";

/// What the command line says.
#[derive(Clone, Debug, Args)]
pub struct Words {
    /// Rows; all when left out
    #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
    rows: List,
    /// Brokers; lepus, rabbitmq and lavinmq when left out
    #[arg(long, value_name = "NAME,…", default_value = "", hide_default_value = true)]
    brokers: List,
    /// By how much counts of messages and queues are multiplied
    #[arg(long, default_value_t = 1.0, value_parser = |text: &str| number(text, SCALE_MAX), allow_negative_numbers = true)]
    scale: f64,
    /// Seconds that one load may take
    #[arg(long, default_value_t = 900, value_parser = from_one::<u64>(SECONDS_MAX))]
    patience: u64,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rows by name; all when empty.
    pub rows: Vec<String>,
    /// Brokers by name; lepus, RabbitMQ and LavinMQ when empty.
    pub brokers: Vec<String>,
    /// By how much counts of messages and queues are multiplied.
    pub scale: f64,
    /// How long one load may take.
    pub patience: Duration,
    /// Where the brokers are and run.
    pub place: Place,
    /// The tester's side.
    pub load: Load,
}

impl Plan {
    /// What the command line says, to be measured there.
    ///
    /// # Errors
    /// When it names nothing.
    pub fn new(words: Words, (place, load): (Place, Load)) -> Result<Plan, String> {
        let plan = Plan {
            rows: words.rows.0,
            brokers: words.brokers.0,
            scale: words.scale,
            patience: Duration::from_secs(words.patience),
            place,
            load,
        };
        for name in &plan.rows {
            if ROWS.iter().all(|row| row.name != name) {
                let names = ROWS.map(|row| row.name).join(", ");
                return Err(format!("no row `{name}`; there are: {names}"));
            }
        }
        Ok(plan)
    }

    /// Where what the last tester printed is copied to.
    pub fn tester_output(&self) -> PathBuf {
        self.place.ground.path().join("tester-output.log")
    }

    /// A count at the scale of this run.
    pub fn scaled(&self, count: u64) -> u64 {
        // Groups of a hundred queues and of a thousand messages come out even.
        let scaled = (count as f64 * self.scale / 1_000.0).round() as u64 * 1_000;
        scaled.max(1_000)
    }
}

/// The names and titles of all rows.
pub fn list() {
    for row in &ROWS {
        say_line(format_args!("{:14} {}", row.name, row.title));
    }
}

/// Measures row by row, prints the tables and writes the report.
///
/// # Errors
/// When results cannot be written. A row that fails says why in its place.
pub fn run(plan: &Plan) -> io::Result<()> {
    let kinds = [Kind::Lepus, Kind::RabbitMq, Kind::LavinMq];
    let (kinds, left_out) =
        choose(&kinds, &plan.brokers, &plan.place.site).map_err(io::Error::other)?;
    let dropping = disk::drop_page_cache(&plan.place.site.scratch)?;
    let size = ("scale", plan.scale.to_string());
    let mut sheet =
        Sheet::new(Cover { name: "backlog", title: TITLE, asks: ASKS, size }, &plan.place)?;
    let dropped = format!("Scale {}; the page cache is dropped by {dropping}.", plan.scale);
    say_line(format_args!("{dropped}"));
    sheet.see(dropped);
    left_out.into_iter().for_each(|sentence| sheet.see(sentence));
    let mut was_measured = false;
    for row in ROWS.iter().take_while(|_| !plan.place.stop.is_wanted()) {
        if !plan.rows.is_empty() && !plan.rows.iter().any(|name| name == row.name) {
            continue;
        }
        let mut lines = Vec::new();
        if row.needs_tester && !plan.load.testers.jars.exists() {
            lines.push(Line::absent(
                "-",
                format!("no reference tester in {}", plan.load.testers.jars.display()),
            ));
        } else {
            for kind in row.subjects(&kinds) {
                if plan.place.stop.is_wanted() {
                    break;
                }
                to_stderr(format_args!("{} {} …", row.name, kind.map_or("floor", Kind::name)));
                match (row.measure)(plan, kind) {
                    Ok(found) => {
                        was_measured |= !found.is_empty();
                        lines.extend(found);
                    }
                    Err(error) => {
                        let name = kind.map_or("floor", Kind::name);
                        sheet.fault(format!("{} {name}: {error}", row.name));
                        lines.push(Line::absent(name, error.to_string()));
                    }
                }
            }
        }
        let title = row.title_at(plan);
        let figures: Vec<Value> = lines.iter().map(Line::json).collect();
        let figures = json!({"row": row.name, "title": title, "lines": figures});
        sheet.add(render(row.name, &title, &lines), Some(figures))?;
    }
    sheet.finish(&figures::LEGEND, was_measured)
}

#[cfg(test)]
impl Plan {
    /// A plan of that scale, whose place has no brokers.
    pub fn for_test(scale: f64, results: &std::path::Path) -> Plan {
        let place = Place::for_test(results);
        let testers = crate::bench::workload::Testers {
            lepus: PathBuf::new(),
            jars: PathBuf::new(),
            lavinmqperf: None,
            cast: place.cast.clone(),
        };
        let (errors, stop) = (PathBuf::new(), place.stop.clone());
        let load = Load { testers, core: 0, seconds: 6, errors, stop };
        let (rows, brokers) = (Vec::new(), Vec::new());
        Plan { rows, brokers, scale, patience: Duration::from_secs(1), place, load }
    }
}
