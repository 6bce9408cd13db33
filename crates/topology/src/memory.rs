//! The memory that this process may fill.

use std::fs;

use crate::cgroup;

/// A memory limit and who sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The limit.
    pub bytes: u64,
    /// Who sets it.
    pub source: MemorySource,
}

/// Who limits the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// A control group.
    ControlGroup,
    /// The machine's size.
    Machine,
}

/// The tightest limit of the control groups above this process, or the machine's size; `None` where
/// the system tells neither.
#[must_use]
pub fn usable_memory() -> Option<Memory> {
    tighter(control_group_limit(), machine_bytes())
}

/// The tightest limit of the control groups, if it is one on this machine.
pub(crate) fn control_group_bytes() -> Option<u64> {
    let memory = usable_memory()?;
    (memory.source == MemorySource::ControlGroup).then_some(memory.bytes)
}

/// The machine's memory.
pub(crate) fn machine_bytes() -> Option<u64> {
    fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_meminfo_total(&text))
}

fn control_group_limit() -> Option<u64> {
    let unified = cgroup::along_path("", |directory| {
        parse_limit(&fs::read_to_string(directory.join("memory.max")).ok()?)
    });
    let divided = cgroup::along_path("memory", |directory| {
        parse_limit(&fs::read_to_string(directory.join("memory.limit_in_bytes")).ok()?)
    });
    unified.into_iter().chain(divided).min()
}

/// Version 1 writes "no limit" as a number near 2^63, which the machine's size undercuts.
fn tighter(group: Option<u64>, machine: Option<u64>) -> Option<Memory> {
    let group = group.map(|bytes| Memory { bytes, source: MemorySource::ControlGroup });
    let machine = machine.map(|bytes| Memory { bytes, source: MemorySource::Machine });
    [machine, group].into_iter().flatten().min_by_key(|memory| memory.bytes)
}

/// `max` or a number of bytes.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn parse_meminfo_total(text: &str) -> Option<u64> {
    bytes_behind(text, "MemTotal:")
}

/// `MemFree` of a node's `meminfo`, whose lines begin with `Node 0`; in bytes.
pub(crate) fn node_free_bytes(text: &str) -> Option<u64> {
    bytes_behind(text, "MemFree:")
}

fn bytes_behind(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| Some(line.split_once(key)?.1))?;
    let mut fields = line.split_whitespace();
    let amount: u64 = fields.next()?.parse().ok()?;
    match fields.next() {
        Some("kB") => amount.checked_mul(1024),
        None => Some(amount),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_size_is_read_in_its_unit() {
        let text = "MemFree:  10 kB\nMemTotal:        8028456 kB\nX: 1\n";
        assert_eq!(parse_meminfo_total(text), Some(8_028_456 * 1024));
        assert_eq!(parse_meminfo_total("MemTotal: 5\n"), Some(5));
        let node = "Node 1 MemTotal:  8 kB\nNode 1 MemFree:    4 kB\n";
        assert_eq!(node_free_bytes(node), Some(4096));
        assert_eq!(parse_meminfo_total("MemTotal: 5 GB\n"), None);
        assert_eq!(parse_meminfo_total("MemTotal:\n"), None);
        assert_eq!(parse_meminfo_total("MemTotal: 99999999999999999 kB"), None);
    }

    #[test]
    fn the_tighter_limit_counts() {
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("1073741824\n"), Some(1 << 30));
        let unlimited = parse_limit("9223372036854771712\n");
        let machine = tighter(unlimited, Some(1 << 33)).unwrap();
        assert_eq!(machine.source, MemorySource::Machine);
        let group = tighter(Some(1 << 30), Some(1 << 33)).unwrap();
        assert_eq!((group.bytes, group.source), (1 << 30, MemorySource::ControlGroup));
        assert_eq!(tighter(None, None), None);
    }
}
