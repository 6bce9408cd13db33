//! The machine, a plan for it and a running broker on it, as text, JSON and a picture.

mod json;
mod picture;
mod text;

pub use json::{json, machine_json, plan_json};
pub use picture::svg;
pub use text::text;

use crate::ids::Ids;
use crate::machine::Machine;
use crate::planner::Plan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a report is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// A plan for it.
    pub plan: Option<Plan>,
    /// The broker that runs on it.
    pub standing: Option<Standing>,
    /// What else the operator should know.
    pub notes: Vec<String>,
    /// Whether every shard's reason is printed.
    pub explain: bool,
}

/// Where a running broker is, by the kernel's own figures.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Standing {
    /// Its shards, in their order.
    pub shards: Vec<ShardStanding>,
    /// The directory of its logs.
    pub log_directory: String,
    /// The disk below that directory, `/dev/` left out; empty if not known.
    pub log_disk: String,
    /// The node that the disk is attached to.
    pub log_node: Option<u32>,
    /// All memory of the broker alone, bytes by node.
    pub memory: BTreeMap<u32, u64>,
    /// Where the kernel did otherwise than planned.
    pub warnings: Vec<String>,
}

/// One shard of a running broker.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ShardStanding {
    /// The kernel's number of its thread.
    pub thread: u32,
    /// The CPUs that its thread may run on.
    pub allowed: Ids,
    /// The CPU it ran on last.
    pub last_cpu: Option<u32>,
    /// How often it was moved to another CPU since it was bound.
    pub migrations: Option<u64>,
    /// The policy of its memory, as the kernel writes it.
    pub memory_policy: String,
    /// Bytes by node of the mappings that its own memory lies in.
    pub memory: BTreeMap<u32, u64>,
}

/// A size for people: `12 MiB`, `1.4 GiB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >= 1 << shift) else {
        return format!("{bytes} B");
    };
    let amount = bytes as f64 / (1_u64 << shift) as f64;
    if amount >= 100.0 || amount.fract() < 0.05 {
        format!("{amount:.0} {unit}")
    } else {
        format!("{amount:.1} {unit}")
    }
}

/// `1 node`, `2 nodes`.
fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A device as it is named to people.
fn device_name(device: &crate::machine::Device) -> &str {
    if device.name.is_empty() { &device.address } else { &device.name }
}

/// Bytes by node: `node 0 12 MiB (97.1 %)`, the largest first.
fn by_node(memory: &BTreeMap<u32, u64>) -> String {
    let total: u64 = memory.values().sum();
    if total == 0 {
        return "the kernel does not tell".to_owned();
    }
    let mut parts: Vec<(u32, u64)> = memory.iter().map(|(node, bytes)| (*node, *bytes)).collect();
    parts.sort_by_key(|(node, bytes)| (std::cmp::Reverse(*bytes), *node));
    let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(node, bytes)| {
        let share = 100.0 * bytes as f64 / total as f64;
        format!("node {node} {} ({share:.1} %)", show_bytes(bytes))
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_for_people() {
        assert_eq!(show_bytes(512), "512 B");
        assert_eq!(show_bytes(12 << 20), "12 MiB");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
        assert_eq!(show_bytes(u64::MAX), "16777216 TiB");
        let memory = [(0, 1 << 20), (1, 3 << 20)].into_iter().collect();
        assert_eq!(by_node(&memory), "node 1 3 MiB (75.0 %), node 0 1 MiB (25.0 %)");
        assert_eq!(by_node(&BTreeMap::new()), "the kernel does not tell");
    }
}
