//! System calls and heap allocations per message, which do not depend on how fast the machine is.

use crate::bench::measure::{self, Load};
use crate::bench::place::Place;
use crate::bench::sheet::{Cover, Sheet};
use crate::bench::workload::{Said, WORKLOADS, Workload};
use crate::guard::watch;
use crate::report::{Block, Table};
use crate::subject::{Kind, Subject};
use crate::terminal::hint;
use lepus_perf::to_stderr;
use serde_json::{Map, Value, json};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The calls that are told apart; all others are only in the sum.
const CALLS: [&str; 8] =
    ["read", "recvfrom", "write", "sendto", "writev", "epoll_wait", "epoll_pwait", "futex"];

/// What to count.
pub struct Plan {
    /// Where the broker is and runs.
    pub place: Place,
    /// The tester's side; its duration holds for the count of calls.
    pub load: Load,
    /// The binary that counts its allocations, if it was built.
    pub counting: PathBuf,
}

const TITLE: &str = "What a message costs, by counts that no other program changes";
const ASKS: &str = "How many system calls and heap allocations does a message take?";
const LEGEND: [&str; 2] = [
    "calls: system calls of the broker for each message that it delivered, start and end of the load included; a dash where \
     the machine does not let them be counted.",
    "allocs: allocations of a build of lepus that counts them, from the difference of a longer and a shorter load, so that \
     starting and connecting are not in it; a dash where there is no such build.",
];

/// Counts and reports, for every load whose tester is there.
///
/// # Errors
/// When nothing could be counted, or the report cannot be written. A load that fails says why and is left out.
pub fn run(plan: &Plan) -> io::Result<()> {
    let size = ("loads of", format!("{} s", plan.load.seconds));
    let cover = Cover { name: "costs", title: TITLE, asks: ASKS, size };
    let mut sheet = Sheet::new(cover, &plan.place)?;
    let mut table = Table::new(["", "calls/m", "allocs/m", "calls by name"]);
    let has_tester = |one: &&Workload| match plan.load.testers.missing(one.tester) {
        Some(reason) => {
            to_stderr(format_args!("{} is left out: {reason}", one.name));
            false
        }
        None => true,
    };
    for workload in WORKLOADS.iter().filter(has_tester) {
        if plan.place.stop.is_wanted() {
            break;
        }
        to_stderr(format_args!("{} …", workload.name));
        match count(workload, plan) {
            Ok((calls, allocations)) => {
                let row = row(workload, &calls, allocations);
                let line = Table { head: table.head.clone(), rows: vec![row.clone()] };
                hint(format_args!("{}", line.text()));
                sheet.see(sentence(workload, &calls, allocations));
                table.rows.push(row);
                sheet.keep(figures(workload, &calls, allocations));
            }
            Err(error) => sheet.fault(format!("{}: left out: {error}", workload.name)),
        }
    }
    let was_measured = !table.rows.is_empty();
    let heading = Block::Heading("System calls and allocations for each message".to_owned());
    sheet.add(vec![heading, Block::Table(table)], None)?;
    sheet.finish(&LEGEND, was_measured)
}

fn count(workload: &Workload, plan: &Plan) -> io::Result<(Calls, Option<f64>)> {
    let subject = plan.place.start(Kind::Lepus)?;
    let calls = count_calls(workload, &subject, &plan.load, &plan.place.site.scratch)?;
    drop(subject);
    Ok((calls, count_allocations(workload, plan)?))
}

fn row(workload: &Workload, calls: &Calls, allocations: Option<f64>) -> Vec<String> {
    let number =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.5}"));
    let is_some = |(_, each): &&(String, f64)| *each > 0.0;
    let names = calls.by_name.iter().filter(is_some);
    let names: Vec<String> = names.map(|(name, each)| format!("{name} {each:.5}")).collect();
    vec![workload.name.to_owned(), number(calls.all), number(allocations), names.join(", ")]
}

fn sentence(workload: &Workload, calls: &Calls, allocations: Option<f64>) -> String {
    let part = |count: Option<f64>, what: &str| count.map(|count| format!("{count:.3} {what}"));
    let parts = [part(calls.all, "system calls"), part(allocations, "allocations")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => format!("{}: nothing could be counted.", workload.name),
        false => format!("{}: {} for each message.", workload.name, parts.join(" and ")),
    }
}

fn figures(workload: &Workload, calls: &Calls, allocations: Option<f64>) -> Value {
    let by_name: Map<String, Value> =
        calls.by_name.iter().map(|(name, each)| (name.clone(), json!(each))).collect();
    json!({
        "workload": workload.name,
        "title": workload.title,
        "system_calls_per_message": calls.all,
        "by_name": by_name,
        "allocations_per_message": allocations,
    })
}

/// System calls of a broker for each message that it delivered; nothing where they are not counted.
#[derive(Default)]
pub struct Calls {
    /// All of them.
    pub all: Option<f64>,
    by_name: Vec<(String, f64)>,
}

/// Runs a load from its start to its end, and counts the calls of the broker meanwhile. The counter's notes
/// lie in `scratch`.
///
/// # Errors
/// When the tester fails, or the counts cannot be read.
pub fn count_calls(
    workload: &Workload,
    subject: &Subject,
    side: &Load,
    scratch: &Path,
) -> io::Result<Calls> {
    let output = scratch.join("calls.txt");
    let counter = start_counter(subject.seen_pid()?, &output)?;
    let messages = load(workload, subject, side, side.seconds);
    // It ends before anything is said of a load that failed.
    let was_counted = counter.map(interrupt).transpose()?.is_some();
    let messages = messages?;
    if !was_counted {
        return Ok(Calls::default());
    }
    let text = fs::read_to_string(output)?;
    Ok(Calls {
        all: counter_value(&text, "raw_syscalls:sys_enter").map(|count| count / messages),
        by_name: CALLS
            .iter()
            .filter_map(|name| {
                let event = format!("syscalls:sys_enter_{name}");
                Some(((*name).to_owned(), counter_value(&text, &event)? / messages))
            })
            .collect(),
    })
}

/// `perf stat` on the broker, where the machine lets it count system calls.
fn start_counter(pid: u32, output: &Path) -> io::Result<Option<Child>> {
    let mut events = vec!["raw_syscalls:sys_enter".to_owned()];
    events.extend(CALLS.iter().map(|name| format!("syscalls:sys_enter_{name}")));
    let mut command = Command::new("perf");
    command.args(["stat", "-x", ",", "-o"]).arg(output);
    command.args(["-e", &events.join(","), "-p", &pid.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn().inspect(watch) {
        Ok(child) => Ok(Some(child)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            to_stderr(format_args!(
                "system calls are not counted: there is no perf (Debian: linux-perf)"
            ));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn interrupt(mut counter: Child) -> io::Result<()> {
    let pid = counter.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status()?;
    counter.wait()?;
    Ok(())
}

/// The count of an event in the lines of `perf stat -x ,`.
fn counter_value(text: &str, event: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.split(',').nth(2) == Some(event))?;
    line.split(',').next()?.parse().ok()
}

/// The difference of a longer and a shorter run, so that starting and connecting do not count.
fn count_allocations(workload: &Workload, plan: &Plan) -> io::Result<Option<f64>> {
    if !plan.counting.exists() {
        return Ok(None);
    }
    let mut place = plan.place.clone();
    place.site.lepus.clone_from(&plan.counting);
    let mut totals = Vec::new();
    for seconds in [2, 6] {
        let subject = place.start(Kind::Lepus)?;
        let messages = load(workload, &subject, &plan.load, seconds)?;
        let printed = subject.stop()?;
        let line = printed.lines().rev().find_map(|line| {
            let counts = line.strip_prefix("allocations=")?;
            let (fresh, grown) = counts.split_once(" reallocations=")?;
            Some(fresh.parse::<f64>().ok()? + grown.parse::<f64>().ok()?)
        });
        let Some(allocations) = line else {
            return Ok(None);
        };
        totals.push((messages, allocations));
    }
    let [(few, before), (many, after)] = totals[..] else {
        return Ok(None);
    };
    // Where the longer load had no more messages the difference says nothing.
    Ok((many > few).then(|| (after - before) / (many - few)))
}

/// Runs the tester to its end and says how many messages the broker delivered: by its own count, or by the
/// tester's where that does not stand.
fn load(workload: &Workload, subject: &Subject, load: &Load, seconds: u64) -> io::Result<f64> {
    let before = subject.counts()?;
    let mut tester = workload.command(subject, seconds, &load.testers)?;
    let mut child = measure::pinned(&mut tester, load)?;
    let (mut said, mut received) = (Said::default(), 0.0);
    let status = measure::listen(&mut child, &load.stop, |line| {
        received += said.hear(line).map_or(0.0, |one| one.received * one.seconds);
        Ok(())
    })?;
    if !status.success() {
        return Err(io::Error::other(format!("the tester ended with {status}")));
    }
    if subject.keeps_counts() {
        received = subject.counts()?.since(before).delivered as f64;
    }
    match received > 0.0 {
        true => Ok(received),
        false => Err(io::Error::other("nothing was delivered")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_is_a_dash_and_what_did_not_happen_is_left_out() {
        let by_name = vec![("read".to_owned(), 0.5), ("futex".to_owned(), 0.0)];
        let calls = Calls { all: Some(0.75), by_name };
        let row = row(&WORKLOADS[0], &calls, None);
        assert_eq!(row[1..], ["0.75000", "-", "read 0.50000"]);
        let text = sentence(&WORKLOADS[0], &calls, None);
        assert!(text.ends_with(": 0.750 system calls for each message."), "{text}");
        let figures = figures(&WORKLOADS[0], &calls, None);
        assert_eq!(figures["system_calls_per_message"], 0.75);
        assert_eq!(figures["allocations_per_message"], Value::Null);
    }

    #[test]
    fn counters_are_read_by_event() {
        let text = "# started\n\n1200,,raw_syscalls:sys_enter,1,100.00,,\n\
                    <not counted>,,syscalls:sys_enter_read,0,0.00,,\n";
        assert_eq!(counter_value(text, "raw_syscalls:sys_enter"), Some(1200.0));
        assert_eq!(counter_value(text, "syscalls:sys_enter_read"), None);
    }
}
