//! System calls and heap allocations per message, which do not depend on how fast the machine is.

use crate::bench::measure::{self, Load};
use crate::bench::place::Place;
use crate::bench::workload::{Said, WORKLOADS, Workload};
use crate::subject::{Kind, Subject};
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

/// Counts and prints, for every load whose tester is there.
///
/// # Errors
/// When the broker or the tester fails.
pub fn run(plan: &Plan) -> io::Result<()> {
    fs::create_dir_all(&plan.place.site.scratch)?;
    println!("{:14} {:>12} {:>11}  calls by name", "", "calls/m", "allocs/m");
    let has_tester = |one: &&Workload| plan.load.testers.missing(one.tester).is_none();
    for workload in WORKLOADS.iter().filter(has_tester) {
        let subject = plan.place.start(Kind::Lepus)?;
        let calls = count_calls(workload, &subject, &plan.load, &plan.place.site.scratch)?;
        drop(subject);
        let allocations = count_allocations(workload, plan)?;
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.5}"));
        let names: Vec<String> = calls
            .by_name
            .iter()
            .filter(|(_, each)| *each > 0.0)
            .map(|(name, each)| format!("{name} {each:.5}"))
            .collect();
        println!(
            "{:14} {:>12} {:>11}  {}",
            workload.name,
            number(calls.all),
            number(allocations),
            names.join(", ")
        );
    }
    Ok(())
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
    let messages = load(workload, subject, side, side.seconds)?;
    let Some(counter) = counter else {
        return Ok(Calls::default());
    };
    interrupt(counter)?;
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
    match command.spawn() {
        Ok(child) => Ok(Some(child)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("system calls are not counted: there is no perf (Debian: linux-perf)");
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
    Ok(Some((after - before) / (many - few)))
}

/// Runs the tester to its end and says how many messages the broker delivered: by its own count, or by the
/// tester's where that does not stand.
fn load(workload: &Workload, subject: &Subject, load: &Load, seconds: u64) -> io::Result<f64> {
    let before = subject.counts()?;
    let mut tester = workload.command(subject.port(), seconds, &load.testers);
    let output = measure::pinned(&mut tester, load)?.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("the tester ended with {}", output.status)));
    }
    if subject.keeps_counts() {
        return Ok(subject.counts()?.since(before).delivered.max(1) as f64);
    }
    let mut said = Said::default();
    let text = String::from_utf8_lossy(&output.stdout);
    let intervals = text.lines().filter_map(|line| said.hear(line));
    Ok(intervals.map(|one| one.received * one.seconds).sum::<f64>().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_event() {
        let text = "# started\n\n1200,,raw_syscalls:sys_enter,1,100.00,,\n\
                    <not counted>,,syscalls:sys_enter_read,0,0.00,,\n";
        assert_eq!(counter_value(text, "raw_syscalls:sys_enter"), Some(1200.0));
        assert_eq!(counter_value(text, "syscalls:sys_enter_read"), None);
    }
}
