//! The report as text.

use super::{Report, Standing, by_node, count, device_name, show_bytes};
use crate::machine::{DeviceKind, Machine};
use crate::planner::{Binding, Plan};

/// The report as lines for a terminal.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    machine(&report.machine, &mut out);
    if let Some(plan) = &report.plan {
        self::plan(plan, report.explain, &mut out);
    }
    if let Some(standing) = &report.standing {
        self::standing(standing, &mut out);
    }
    for note in &report.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    out
}

fn machine(machine: &Machine, out: &mut String) {
    let memory: u64 = machine.nodes.iter().map(|node| node.bytes).sum();
    let name = if machine.name.is_empty() { "this machine" } else { &machine.name };
    out.push_str(&format!(
        "{name}: {}, {}, {}, {}, {}\n",
        count(machine.packages().len(), "package"),
        count(machine.cores(), "core"),
        count(machine.cpus.len(), "CPU"),
        count(machine.nodes.len(), "memory node"),
        show_bytes(memory)
    ));
    let mut rows = vec![columns(&["node", "package", "CPUs", "memory", "free", "distances"])];
    for node in &machine.nodes {
        let cpus = node.cpus.iter().filter_map(|cpu| machine.cpu(cpu));
        let packages: crate::Ids = cpus.map(|cpu| cpu.package).collect();
        let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        rows.push(vec![
            node.id.to_string(),
            or_dash(packages.to_string()),
            or_dash(node.cpus.to_string()),
            show_bytes(node.bytes),
            node.free_bytes.map_or("-".to_owned(), show_bytes),
            or_dash(distances.join(" ")),
        ]);
    }
    table(&rows, out);
    let siblings: Vec<String> = sibling_groups(machine);
    if !siblings.is_empty() {
        out.push_str(&format!("sibling threads: {}\n", siblings.join("  ")));
    }
    for line in caches(machine) {
        out.push_str(&line);
    }
    devices(machine, out);
    out.push_str(&format!("may be used: CPUs {}", machine.usable_cpus()));
    if let Some(nodes) = &machine.limits.nodes {
        out.push_str(&format!(", memory of nodes {nodes}"));
    }
    if let Some(quota) = machine.limits.quota {
        out.push_str(&format!(", the time of {quota} CPUs"));
    }
    if let Some(bytes) = machine.limits.memory_bytes {
        out.push_str(&format!(", {} of memory", show_bytes(bytes)));
    }
    out.push('\n');
    if !machine.offline.is_empty() {
        out.push_str(&format!("switched off: CPUs {}\n", machine.offline));
    }
}

/// Cores with more than one CPU, as lists.
fn sibling_groups(machine: &Machine) -> Vec<String> {
    let firsts = machine.cpus.iter().filter_map(|cpu| {
        let siblings = machine.siblings(*cpu);
        (siblings.len() > 1 && siblings.first() == Some(cpu.id)).then(|| siblings.to_string())
    });
    firsts.collect()
}

fn caches(machine: &Machine) -> Vec<String> {
    let mut kinds: Vec<(u32, u64, usize)> =
        machine.caches.iter().map(|c| (c.level, c.bytes, c.cpus.len())).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let line = |(level, bytes, cpus): &(u32, u64, usize)| {
        let same = machine.caches.iter();
        let same = same.filter(|c| (c.level, c.bytes, c.cpus.len()) == (*level, *bytes, *cpus));
        let number = same.count();
        let size = show_bytes(*bytes);
        format!("cache: L{level}, {number} × {size}, each for {}\n", count(*cpus, "CPU"))
    };
    kinds.iter().map(line).collect()
}

fn devices(machine: &Machine, out: &mut String) {
    for device in &machine.devices {
        let kind = match device.kind {
            DeviceKind::Network => "network card",
            DeviceKind::Disk => "disk",
            DeviceKind::Other => "device",
        };
        let mut parts = vec![format!("{kind}: {}", device_name(device))];
        if !device.name.is_empty() && !device.address.is_empty() {
            parts.push(format!("PCI {}", device.address));
        }
        if !device.model.is_empty() {
            parts.push(device.model.clone());
        }
        parts.push(match device.node {
            Some(node) => format!("node {node}"),
            None => "node not known".to_owned(),
        });
        if let (Some(first), Some(last)) = (device.interrupts.first(), device.interrupts.last()) {
            let cpus: crate::Ids =
                device.interrupts.iter().flat_map(|one| one.cpus.iter()).collect();
            let numbers = if first == last {
                format!("interrupt {}", first.number)
            } else {
                format!(
                    "{} interrupts {} to {}",
                    device.interrupts.len(),
                    first.number,
                    last.number
                )
            };
            parts.push(format!("{numbers} on CPUs {cpus}"));
        }
        out.push_str(&format!("{}\n", parts.join(", ")));
    }
}

fn plan(plan: &Plan, explain: bool, out: &mut String) {
    let why = |reason: &str| if explain { format!(" ({reason})") } else { String::new() };
    let shards = count(plan.shards, "shard");
    out.push_str(&format!("\nplan {}: {shards}{}\n", plan.policy, why(&plan.shards_reason)));
    let mut rows =
        vec![columns(&["shard", "CPU", "core", "package", "node", "memory", "files on"])];
    for (shard, place) in plan.places.iter().enumerate() {
        rows.push(vec![
            shard.to_string(),
            place.cpus.to_string(),
            if plan.binding == Binding::Cpu {
                place.cpu.core.to_string()
            } else {
                "any".to_owned()
            },
            place.cpu.package.to_string(),
            place.cpu.node.to_string(),
            match place.memory_node {
                Some(node) if plan.is_numa => format!("node {node}"),
                _ => "anywhere".to_owned(),
            },
            format!("CPUs {}", place.file_cpus),
        ]);
        if explain && let Some(row) = rows.last_mut() {
            row.push(place.reason.clone());
        }
    }
    if explain {
        rows[0].push("why".to_owned());
    }
    if !plan.places.is_empty() {
        table(&rows, out);
    }
    out.push_str(&format!(
        "listeners on CPUs {}{}\nhousekeeping on CPUs {}{}\n",
        plan.listeners,
        why(&plan.listeners_reason),
        plan.housekeeping,
        why(&plan.housekeeping_reason)
    ));
    if !plan.shared_memory.is_empty() {
        out.push_str(&format!("shared memory spread over nodes {}\n", plan.shared_memory));
    }
    for note in &plan.notes {
        out.push_str(&format!("note: {note}\n"));
    }
}

fn standing(standing: &Standing, out: &mut String) {
    out.push_str("\nrunning, as the kernel tells\n");
    let mut rows =
        vec![columns(&["shard", "thread", "may run on", "last on", "moves", "policy", "memory"])];
    for (number, shard) in standing.shards.iter().enumerate() {
        rows.push(vec![
            number.to_string(),
            shard.thread.to_string(),
            format!("CPUs {}", shard.allowed),
            shard.last_cpu.map_or("-".to_owned(), |cpu| format!("CPU {cpu}")),
            shard.migrations.map_or("-".to_owned(), |moves| moves.to_string()),
            or_dash(shard.memory_policy.clone()),
            by_node(&shard.memory),
        ]);
    }
    table(&rows, out);
    out.push_str(&format!("memory of all: {}\n", by_node(&standing.memory)));
    let disk = match (standing.log_disk.as_str(), standing.log_node) {
        ("", _) => "the disk is not known".to_owned(),
        (disk, None) => format!("disk {disk}, node not known"),
        (disk, Some(node)) => format!("disk {disk} on node {node}"),
    };
    out.push_str(&format!("log: {}, {disk}\n", standing.log_directory));
    for warning in &standing.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Rows with aligned columns.
fn table(rows: &[Vec<String>], out: &mut String) {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        out.push_str(&format!("  {}\n", line.join("  ").trim_end()));
    }
}
