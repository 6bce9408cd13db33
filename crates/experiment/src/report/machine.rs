//! What a report says of the machine and the time.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine, by name and value.
#[must_use]
pub fn facts() -> Vec<(String, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = value(&cpuinfo, "model name", ':').unwrap_or("unknown").to_owned();
    let system = read("/etc/os-release");
    let system = value(&system, "PRETTY_NAME", '=').unwrap_or("unknown system");
    let cpus = lepus_topology::usable_cpus();
    let nodes = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let nodes = nodes
        .filter(|entry| {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .count();
    let memory = lepus_topology::usable_memory().map_or(0, |memory| memory.bytes);
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?");
    vec![
        ("cpu".to_owned(), cpu),
        ("cpus".to_owned(), format!("{} usable, {} NUMA nodes", cpus.count(), nodes.max(1))),
        ("memory".to_owned(), format!("{:.1} GB", memory as f64 / 1e9)),
        (
            "system".to_owned(),
            format!("{system}, Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        ),
        ("load".to_owned(), format!("{load} programs ran or waited on average in the last minute")),
    ]
}

/// The value of a line `NAME: VALUE`.
fn value<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim().trim_matches('"'))
}

/// `2026-11-22 06:41:15 UTC`.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    // A clock that stands before 1970 says nothing better.
    let text = humantime::format_rfc3339_seconds(time.max(UNIX_EPOCH)).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

/// The time as it stands in names of files: `2026-11-22-06-41-15`.
#[must_use]
pub fn file_time(time: SystemTime) -> String {
    utc(time).trim_end_matches(" UTC").replace([' ', ':'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_dates() {
        let text = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(text(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(text(1_795_329_675), "2026-11-22 06:41:15 UTC");
        assert_eq!(file_time(UNIX_EPOCH), "1970-01-01-00-00-00");
    }

    #[test]
    fn this_machine_is_described() {
        let facts = facts();
        assert!(facts.iter().any(|(name, value)| name == "cpus" && !value.starts_with('0')));
        assert_eq!(value("a: b\nmodel name\t: X 5\n", "model name", ':'), Some("X 5"));
    }
}
