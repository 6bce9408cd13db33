//! Where a running broker is, from its own memory of the plan and the kernel's figures.

use crate::figures::Figures;
use lepus_shard::MetricsSnapshot;
use lepus_topology::report::{Report, ShardStanding, Standing};
use lepus_topology::{Machine, Place, Wishes, description, kernel};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory on other nodes than planned that is worth a warning: more than this share, …
const SHARE_MIN: f64 = 0.95;
/// … once there is as much at all.
const BYTES_MIN: u64 = 1 << 20;

/// What the order `topology` is answered from.
#[derive(Debug)]
pub struct Standpoint {
    machine: Machine,
    plan: lepus_topology::Plan,
    wishes: Wishes,
    figures: Arc<Figures>,
    log_directory: PathBuf,
}

/// The order that [`Standpoint::answer`] answers and [`read`] understands.
#[must_use]
pub fn request() -> Value {
    json!({ "order": "topology" })
}

impl Standpoint {
    /// The standpoint of the broker that was started on this machine by the plan that follows from
    /// these wishes.
    #[must_use]
    pub fn new(
        machine: Machine,
        wishes: Wishes,
        plan: lepus_topology::Plan,
        figures: Arc<Figures>,
        log_directory: &Path,
    ) -> Standpoint {
        Standpoint { machine, plan, wishes, figures, log_directory: log_directory.to_owned() }
    }

    /// The machine, what was wished for, and what the kernel says now.
    ///
    /// # Errors
    /// When a shard does not answer.
    pub fn answer(&self) -> Result<Value, String> {
        // Asked on the shards' threads: what is allocated there lies in their memory.
        let addresses = self.figures.locate_all()?;
        let mappings = kernel::mappings();
        let mut warnings = Vec::new();
        let mut shards = Vec::new();
        for (number, (addresses, metrics)) in addresses.iter().zip(self.figures.turns()).enumerate()
        {
            let shard = shard(&metrics, &mappings, addresses);
            if let Some(place) = self.plan.places.get(number) {
                warnings.extend(differences(number, place, self.plan.is_numa, &shard));
            }
            shards.push(shard);
        }
        let (log_disk, log_node) = disk_of(&self.log_directory);
        let mut machine = self.machine.clone();
        for node in &mut machine.nodes {
            node.free_bytes = lepus_topology::source::free_bytes(node.id);
        }
        let standing = Standing {
            shards,
            log_directory: self.log_directory.display().to_string(),
            log_disk,
            log_node,
            memory: kernel::anonymous_pages(&mappings).bytes,
            warnings,
        };
        let answer = Answer {
            machine: description::write(&machine),
            wishes: self.wishes.clone(),
            running: standing,
        };
        serde_json::to_value(answer).map_err(|error| error.to_string())
    }
}

/// What travels from the broker to whoever asks.
#[derive(Debug, Deserialize, Serialize)]
struct Answer {
    machine: String,
    #[serde(flatten)]
    wishes: Wishes,
    running: Standing,
}

fn shard(metrics: &MetricsSnapshot, mappings: &[kernel::Mapping], own: &[u64]) -> ShardStanding {
    let id = u32::try_from(metrics.thread).unwrap_or(0);
    let thread = kernel::thread(id).unwrap_or_default();
    ShardStanding {
        thread: id,
        allowed: thread.allowed,
        last_cpu: thread.last_cpu,
        migrations: thread.migrations,
        memory_policy: kernel::thread_memory_policy(id).unwrap_or_default(),
        memory: kernel::pages_at(mappings, own).bytes,
    }
}

/// Where the kernel does otherwise than planned, in words.
fn differences(number: usize, place: &Place, is_numa: bool, shard: &ShardStanding) -> Vec<String> {
    let mut found = Vec::new();
    let wanted = &place.cpus;
    if !shard.allowed.is_empty() && shard.allowed != *wanted {
        found.push(format!(
            "shard {number} is planned on CPU {wanted}, the kernel lets it run on CPUs {}",
            shard.allowed
        ));
    }
    let total: u64 = shard.memory.values().sum();
    if let Some(node) = place.memory_node.filter(|_| is_numa)
        && total >= BYTES_MIN
    {
        let share = *shard.memory.get(&node).unwrap_or(&0) as f64 / total as f64;
        if share < SHARE_MIN {
            found.push(format!(
                "shard {number} has its memory planned on node {node}, where {:.1} % of it is",
                100.0 * share
            ));
        }
    }
    found
}

/// The disk below a directory and its node, as far as the kernel tells.
fn disk_of(directory: &Path) -> (String, Option<u32>) {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = std::fs::metadata(directory) else { return (String::new(), None) };
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let link = format!("/sys/dev/block/{major}:{minor}");
    let Ok(device) = std::fs::canonicalize(link) else { return (String::new(), None) };
    let name = device.file_name().map(|name| name.to_string_lossy().into_owned());
    let node = device.ancestors().find_map(|above| {
        let text = std::fs::read_to_string(above.join("numa_node")).ok()?;
        text.trim().parse::<u32>().ok()
    });
    (name.unwrap_or_default(), node)
}

/// The report behind an answer of [`Standpoint::answer`]. The plan is made again: it follows from
/// machine and wishes.
///
/// # Errors
/// When the answer is not of this version's form.
pub fn read(answer: &Value) -> Result<Report, String> {
    let answer: Answer = serde_path_to_error::deserialize(answer)
        .map_err(|error| format!("the broker's answer: {error}; is it another version?"))?;
    let machine = description::read(&answer.machine)?;
    let plan = lepus_topology::plan(&machine, &answer.wishes)?;
    let (plan, standing) = (Some(plan), Some(answer.running));
    Ok(Report { machine, plan, standing, ..Report::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_planned_is_told() {
        let machine = lepus_topology::source::from_file("artemis").unwrap();
        let plan = lepus_topology::plan(&machine, &Wishes::default()).unwrap();
        let place = &plan.places[7];
        let mut shard = ShardStanding {
            allowed: "14".parse().unwrap(),
            memory: [(1, 99 << 20), (0, 1 << 20)].into_iter().collect(),
            ..ShardStanding::default()
        };
        assert_eq!(differences(7, place, true, &shard), Vec::<String>::new());
        shard.allowed = "14,16".parse().unwrap();
        shard.memory.insert(0, 11 << 20);
        let found = differences(7, place, true, &shard);
        assert!(found[0].contains("lets it run on CPUs 14,16"), "{found:?}");
        assert!(found[1].contains("node 1, where 90.0 %"), "{found:?}");
    }

    #[test]
    fn the_disk_below_a_directory_may_be_unknown() {
        assert_eq!(disk_of(Path::new("/proc")), (String::new(), None));
        assert_eq!(disk_of(Path::new("/no-such-place")), (String::new(), None));
    }
}
