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
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

/// The time as it stands in names of files: `2026-11-22-06-41-15`.
#[must_use]
pub fn file_time(time: SystemTime) -> String {
    let text = utc(time);
    let digits = |c: char| if c.is_ascii_digit() { c } else { '-' };
    text.trim_end_matches(" UTC").chars().map(digits).collect()
}

/// Year, month and day of a number of days since 1970.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
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
