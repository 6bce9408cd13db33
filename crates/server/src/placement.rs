//! Where the configuration puts shards on a machine.

use crate::config::Config;
use crate::{figures, shard_logs};
use lepus_topology::{Machine, Wishes};
use std::path::Path;

/// Most shards, whatever the machine has.
pub(crate) const SHARDS_MAX: usize = 256;

/// Where the configuration puts shards on a machine, with what was asked of the planner. Logs may take
/// `disk_bytes` of the disk, where that is known.
///
/// # Errors
/// When the placement leaves no CPU, in words.
pub(crate) fn place(
    config: &Config,
    machine: &Machine,
    disk_bytes: Option<u64>,
) -> Result<(Wishes, lepus_topology::Plan), String> {
    let of_nodes = machine.nodes.iter().map(|node| node.bytes).sum::<u64>();
    let memory = machine.limits.memory_bytes.or((of_nodes > 0).then_some(of_nodes));
    let failed = |error| format!("placement {}: {error}", config.placement);
    let wishes = Wishes {
        policy: config.placement.parse().map_err(failed)?,
        shards: config.shards.map(|shards| usize::try_from(shards).unwrap_or(SHARDS_MAX)),
        shards_max: SHARDS_MAX,
        unbound: !config.pin,
        budget_bytes: memory.map(|memory| figures::memory_budget_of(config, memory)),
        disk_bytes,
    };
    let plan = lepus_topology::plan(machine, &wishes).map_err(failed)?;
    Ok((wishes, plan))
}

/// Bytes that logs may take: what is free on the data directory's disk above the limit, with what
/// they have already, and not more than the configuration allows. None where the system does not tell.
pub(crate) fn disk_bytes(config: &Config) -> Option<u64> {
    let directory = config.data_dir();
    // What is missing yet will be on the disk of what it is made in.
    let existing = directory.ancestors().find(|path| path.is_dir());
    let here = Path::new(".");
    let disk = rustix::fs::statvfs(existing.filter(|path| *path != Path::new("")).unwrap_or(here));
    let disk = disk.ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let room = free.saturating_add(shard_logs::disk_bytes(&directory));
    let room = room.saturating_sub(config.store_disk_free_limit);
    Some(match config.store_bytes_max {
        0 => room,
        max => room.min(max),
    })
}
