//! Which CPUs a policy leaves.

use crate::ids::Ids;
use crate::machine::{Cpu, Machine};
use crate::policy::{Nodes, Policy};

/// The CPUs that may get a shard, ascending; never empty.
pub(super) fn candidates(
    machine: &Machine,
    policy: &Policy,
    notes: &mut Vec<String>,
) -> Result<Vec<Cpu>, String> {
    let usable = machine.usable_cpus();
    let mut ids = usable.clone();
    if let Some(wanted) = &policy.cpus {
        for cpu in wanted.without(&usable).iter() {
            notes.push(format!("CPU {cpu} gets no shard: {}", why_not(machine, cpu)));
        }
        ids = wanted.and(&usable);
        if ids.is_empty() {
            return Err(format!(
                "none of the CPUs {wanted} may be used; those that may be are {usable}"
            ));
        }
    }
    if let Some(nodes) = &policy.nodes {
        ids = on_nodes(machine, nodes, &ids, notes)?;
    }
    let mut cpus: Vec<Cpu> = ids.iter().filter_map(|id| machine.cpu(id)).collect();
    if policy.one_per_core {
        let mut cores = Ids::new();
        cpus.retain(|cpu| {
            let is_first = !cores.contains(cpu.core);
            cores.insert(cpu.core);
            is_first
        });
    }
    Ok(cpus)
}

fn why_not(machine: &Machine, cpu: u32) -> &'static str {
    if machine.offline.contains(cpu) {
        "it is switched off"
    } else if machine.cpu(cpu).is_some() {
        "this program's affinity or cpuset keeps it away"
    } else {
        "the machine has none of this number"
    }
}

fn on_nodes(
    machine: &Machine,
    nodes: &Nodes,
    ids: &Ids,
    notes: &mut Vec<String>,
) -> Result<Ids, String> {
    let known: Ids = machine.nodes.iter().map(|node| node.id).collect();
    let (named, wanted) = match nodes {
        Nodes::Only(list) => (list, list.and(&known)),
        Nodes::AllBut(list) => (list, known.without(list)),
    };
    let missing = named.without(&known);
    if !missing.is_empty() {
        notes.push(format!("the machine has no node {missing}; its nodes are {known}"));
    }
    let on = |cpu: &u32| machine.cpu(*cpu).is_some_and(|cpu| wanted.contains(cpu.node));
    let left: Ids = ids.iter().filter(on).collect();
    if !left.is_empty() {
        return Ok(left);
    }
    if !machine.is_numa() && matches!(nodes, Nodes::AllBut(_)) {
        notes.push("the machine has one node: leaving it out would leave nothing".to_owned());
        return Ok(ids.clone());
    }
    let with_cpus = machine.nodes.iter().filter(|node| !node.cpus.and(ids).is_empty());
    let with_cpus: Ids = with_cpus.map(|node| node.id).collect();
    Err(format!("the chosen nodes have no CPU to use; nodes that have some are {with_cpus}"))
}
