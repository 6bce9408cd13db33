//! What Linux says about a running program and about a core, read from `/proc`.

use std::fs;
use std::io;

/// Ticks per second of the times in `/proc`; Linux has shown 100 to user space since 2.6.
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading of a program, all its threads summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Seconds of CPU in user space and in the kernel.
    pub cpu_seconds: f64,
    /// How often a thread gave its core away by itself.
    pub switches_voluntary: u64,
    /// Resident bytes now.
    pub resident_bytes: u64,
}

/// Reads the program `pid`.
///
/// # Errors
/// When it does not run any more.
pub fn read(pid: u32) -> io::Result<Reading> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut switches_voluntary = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end while its siblings are read.
        if let Ok(text) = fs::read_to_string(task?.path().join("status")) {
            switches_voluntary += field(&text, "voluntary_ctxt_switches:").unwrap_or(0);
        }
    }
    Ok(Reading {
        cpu_seconds: cpu_seconds(&stat).ok_or(io::ErrorKind::InvalidData)?,
        switches_voluntary,
        resident_bytes: field(&status, "VmRSS:").unwrap_or(0) * 1024,
    })
}

/// The most bytes that were ever resident.
///
/// # Errors
/// When it does not run any more.
pub fn peak_bytes(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(field(&status, "VmHWM:").unwrap_or(0) * 1024)
}

/// Whether the program has ended: it is gone, or nobody has asked for its outcome yet.
pub fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, None | Some("Z" | "X"))
}

/// Seconds that a core spent in anything but idling and waiting for disks.
///
/// # Errors
/// When the machine has no such core.
pub fn busy_seconds(core: usize) -> io::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    core_busy_seconds(&text, core).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// utime + stime: fields 14 and 15, counted behind the command's closing parenthesis.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn core_busy_seconds(stat: &str, core: usize) -> Option<f64> {
    let name = format!("cpu{core}");
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    let times: Vec<f64> =
        line.split_whitespace().skip(1).map(|time| time.parse().unwrap_or(0.0)).collect();
    // user nice system idle iowait irq softirq steal; guest times are contained in user and nice.
    let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| times.get(*index)).sum();
    Some(busy / TICKS_PER_SECOND)
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_command() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }

    #[test]
    fn idle_and_waiting_do_not_count_as_busy() {
        let stat = "cpu 9 9 9 9\ncpu1 100 10 20 7777 888 3 4 5 6 7\n";
        assert_eq!(core_busy_seconds(stat, 1), Some(1.42));
        assert_eq!(core_busy_seconds(stat, 2), None);
    }

    #[test]
    fn this_program_can_be_read() {
        let reading = read(std::process::id()).unwrap();
        assert!(reading.resident_bytes > 0);
    }
}
