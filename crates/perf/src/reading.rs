//! What Linux tells about a running process.

use std::fs;

/// Ticks a second of the times in `/proc`; Linux has shown 100 to programs since 2.6.
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    /// CPU time so far, of all its threads, in the process and in the kernel.
    pub cpu_seconds: f64,
    /// Resident memory now.
    pub resident_bytes: u64,
}

/// Reads process `pid` of this host.
///
/// # Errors
/// A text for the user: no such process, or a system without `/proc`.
pub(crate) fn read(pid: u32) -> Result<Reading, String> {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/{pid}/{name}"))
            .map_err(|error| format!("cannot read process {pid} (--pid): {error}"))
    };
    let (stat, status) = (read("stat")?, read("status")?);
    match (cpu_seconds(&stat), resident_bytes(&status)) {
        (Some(cpu_seconds), Some(resident_bytes)) => Ok(Reading { cpu_seconds, resident_bytes }),
        _ => Err(format!("process {pid} (--pid) has ended")),
    }
}

/// utime and stime: fields 14 and 15, counted behind the closing parenthesis of the command's name.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_any_command_name() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("nonsense"), None);
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_process_0_is_none() {
        assert!(read(std::process::id()).unwrap().resident_bytes > 0);
        assert!(read(0).unwrap_err().contains("--pid"));
    }
}
