//! System calls and heap allocations per message, which do not depend on how fast the machine is.

use crate::measure::Load;
use crate::subject::{Kind, Place, Subject};
use crate::workload::{Tester, WORKLOADS, Workload};
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
    fs::create_dir_all(&plan.place.scratch)?;
    println!("{:14} {:>12} {:>11}  calls by name", "", "calls/m", "allocs/m");
    let has_reference = plan.load.jars.exists();
    for workload in WORKLOADS.iter().filter(|one| has_reference || one.tester == Tester::Own) {
        let calls = count_calls(workload, plan)?;
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

#[derive(Default)]
struct Calls {
    all: Option<f64>,
    by_name: Vec<(String, f64)>,
}

fn count_calls(workload: &Workload, plan: &Plan) -> io::Result<Calls> {
    let subject = Subject::start(Kind::Lepus, &plan.place)?;
    let output = plan.place.scratch.join("calls.txt");
    let counter = start_counter(subject.pid(), &output)?;
    let messages = load(workload, &subject, plan, plan.load.seconds)?;
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
    let place = Place { lepus: plan.counting.clone(), ..plan.place.clone() };
    let mut totals = Vec::new();
    for seconds in [2, 6] {
        let subject = Subject::start(Kind::Lepus, &place)?;
        let messages = load(workload, &subject, plan, seconds)?;
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

/// Runs the tester to its end and says how many messages the broker delivered.
fn load(workload: &Workload, subject: &Subject, plan: &Plan, seconds: u64) -> io::Result<f64> {
    let load = &plan.load;
    let before = subject.counts()?;
    let tester = workload.command(subject.port(), seconds, &load.lepus, &load.jars);
    let status = Command::new("taskset")
        .args(["-c", &load.core.to_string()])
        .arg(tester.get_program())
        .args(tester.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("the tester ended with {status}")));
    }
    Ok(subject.counts()?.since(before).delivered.max(1) as f64)
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
