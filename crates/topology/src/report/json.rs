//! The report as JSON, for programs.

use super::{Report, Standing};
use crate::ids::Ids;
use crate::machine::{DeviceKind, Machine};
use crate::planner::{Binding, Plan};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The report as one object: `machine`, and where there are any `plan`, `running` and `notes`.
#[must_use]
pub fn json(report: &Report) -> Value {
    let mut out = json!({ "machine": machine_json(&report.machine) });
    if let Some(plan) = &report.plan {
        out["plan"] = plan_json(plan);
    }
    if let Some(standing) = &report.standing {
        out["running"] = running(standing);
    }
    if !report.notes.is_empty() {
        out["notes"] = json!(report.notes);
    }
    out
}

fn list(ids: &Ids) -> Value {
    ids.iter().collect::<Vec<u32>>().into()
}

/// The machine: sizes in bytes, CPUs and nodes as lists of numbers.
#[must_use]
pub fn machine_json(machine: &Machine) -> Value {
    let cpus: Vec<Value> = machine
        .cpus
        .iter()
        .map(|cpu| {
            json!({ "cpu": cpu.id, "core": cpu.core, "package": cpu.package, "node": cpu.node })
        })
        .collect();
    let nodes: Vec<Value> = machine
        .nodes
        .iter()
        .map(|node| {
            json!({
                "node": node.id,
                "cpus": list(&node.cpus),
                "memory_bytes": node.bytes,
                "free_bytes": node.free_bytes,
                "distances": node.distances,
            })
        })
        .collect();
    let caches: Vec<Value> = machine
        .caches
        .iter()
        .map(|cache| {
            json!({ "level": cache.level, "bytes": cache.bytes, "cpus": list(&cache.cpus) })
        })
        .collect();
    json!({
        "name": machine.name,
        "cpus": cpus,
        "offline": list(&machine.offline),
        "nodes": nodes,
        "caches": caches,
        "devices": devices(machine),
        "usable": {
            "cpus": list(&machine.usable_cpus()),
            "nodes": machine.limits.nodes.as_ref().map(list),
            "quota_cpus": machine.limits.quota,
            "memory_bytes": machine.limits.memory_bytes,
        },
    })
}

fn devices(machine: &Machine) -> Vec<Value> {
    let device = |device: &crate::machine::Device| {
        let interrupts: Vec<Value> = device
            .interrupts
            .iter()
            .map(|one| json!({ "number": one.number, "cpus": list(&one.cpus) }))
            .collect();
        json!({
            "kind": match device.kind {
                DeviceKind::Network => "network",
                DeviceKind::Disk => "disk",
                DeviceKind::Other => "other",
            },
            "name": device.name,
            "address": device.address,
            "model": device.model,
            "node": device.node,
            "interrupts": interrupts,
        })
    };
    machine.devices.iter().map(device).collect()
}

/// The plan: every shard with its place and the reason for it.
#[must_use]
pub fn plan_json(plan: &Plan) -> Value {
    let places: Vec<Value> = plan
        .places
        .iter()
        .enumerate()
        .map(|(shard, place)| {
            json!({
                "shard": shard,
                "cpu": place.cpu.id,
                "cpus": list(&place.cpus),
                "core": place.cpu.core,
                "package": place.cpu.package,
                "node": place.cpu.node,
                "memory_node": place.memory_node,
                "file_cpus": list(&place.file_cpus),
                "reason": place.reason,
            })
        })
        .collect();
    json!({
        "policy": plan.policy.to_string(),
        "shards": plan.shards,
        "shards_reason": plan.shards_reason,
        "binding": match plan.binding {
            Binding::Cpu => "cpu",
            Binding::Node => "node",
            Binding::Nothing => "nothing",
        },
        "places": places,
        "listeners": { "cpus": list(&plan.listeners), "reason": plan.listeners_reason },
        "housekeeping": { "cpus": list(&plan.housekeeping), "reason": plan.housekeeping_reason },
        "shared_memory_nodes": list(&plan.shared_memory),
        "notes": plan.notes,
    })
}

fn bytes_by_node(memory: &BTreeMap<u32, u64>) -> Value {
    memory
        .iter()
        .map(|(node, bytes)| (node.to_string(), json!(bytes)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn running(standing: &Standing) -> Value {
    let shards: Vec<Value> = standing
        .shards
        .iter()
        .enumerate()
        .map(|(number, shard)| {
            json!({
                "shard": number,
                "thread": shard.thread,
                "allowed": list(&shard.allowed),
                "last_cpu": shard.last_cpu,
                "migrations": shard.migrations,
                "memory_policy": shard.memory_policy,
                "memory_bytes_by_node": bytes_by_node(&shard.memory),
            })
        })
        .collect();
    json!({
        "shards": shards,
        "memory_bytes_by_node": bytes_by_node(&standing.memory),
        "log": {
            "directory": standing.log_directory,
            "disk": standing.log_disk,
            "node": standing.log_node,
        },
        "warnings": standing.warnings,
    })
}
