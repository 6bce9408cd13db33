//! From a machine and wishes to a plan: which shard on which CPU, with its memory where.
//!
//! A function of its inputs: it reads nothing and binds nothing.

mod order;
mod selection;

use crate::ids::Ids;
use crate::machine::{Cpu, Machine};
use crate::policy::Policy;

/// What the operator asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Which CPUs.
    pub policy: Policy,
    /// How many shards; none takes one per CPU that the policy leaves, within the quota.
    pub shards: Option<usize>,
    /// At most so many, whatever the machine has; 0 for no limit.
    pub shards_max: usize,
    /// Leave all threads to the system's scheduler.
    pub unbound: bool,
}

/// Where everything shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The policy that was followed.
    pub policy: Policy,
    /// Number of shards, at least 1.
    pub shards: usize,
    /// One place per shard, in the order of the shards; empty when they are not bound to CPUs.
    pub places: Vec<Place>,
    /// Whether every shard has a CPU's time, so that it may look around before it sleeps.
    pub may_spin: bool,
    /// Whether memory lies on several nodes, so that its place matters.
    pub is_numa: bool,
    /// CPUs of the threads that serve nobody at once: metrics, control, log lines. All usable CPUs
    /// where their place does not matter.
    pub housekeeping: Ids,
    /// CPUs of the threads that accept connections.
    pub listeners: Ids,
    /// Nodes among which memory of all shards is spread; empty where that does not matter.
    pub shared_memory: Ids,
    /// What the operator should know.
    pub notes: Vec<String>,
    /// Why housekeeping is where it is.
    pub housekeeping_reason: String,
    /// Why the listeners are where they are.
    pub listeners_reason: String,
}

/// One shard's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The CPU.
    pub cpu: Cpu,
    /// The node of its memory: the nearest with memory; none if no node tells any.
    pub memory_node: Option<u32>,
    /// CPUs for the threads that write and read its files.
    pub file_cpus: Ids,
    /// Why it is there, in words.
    pub reason: String,
}

impl Plan {
    /// `shards` shards that the system's scheduler may put anywhere.
    #[must_use]
    pub fn anywhere(shards: usize, may_spin: bool) -> Plan {
        Plan {
            policy: Policy::default(),
            shards,
            may_spin,
            places: Vec::new(),
            is_numa: false,
            housekeeping: Ids::new(),
            listeners: Ids::new(),
            shared_memory: Ids::new(),
            notes: Vec::new(),
            housekeeping_reason: String::new(),
            listeners_reason: String::new(),
        }
    }

    /// Whether threads are bound because memory lies on several nodes.
    #[must_use]
    pub fn binds_memory(&self) -> bool {
        self.is_numa && !self.places.is_empty()
    }
}

/// Plans a broker on `machine`.
///
/// # Errors
/// In words, when the policy leaves no CPU that may be used.
pub fn plan(machine: &Machine, wishes: &Wishes) -> Result<Plan, String> {
    let mut notes = Vec::new();
    tell_limits(machine, &mut notes);
    let candidates = selection::candidates(machine, &wishes.policy, &mut notes)?;
    let granted = within_quota(machine, candidates.len());
    if wishes.shards.is_none() && granted < candidates.len() {
        notes.push(format!(
            "a control group grants the time of {granted} CPUs: {granted} shards, not {}",
            candidates.len()
        ));
    }
    let mut count = wishes.shards.unwrap_or(granted).max(1);
    if wishes.shards_max > 0 && count > wishes.shards_max {
        notes.push(format!("at most {} shards are supported", wishes.shards_max));
        count = wishes.shards_max;
    }
    let bound = !wishes.unbound && count <= granted;
    if !bound && !wishes.unbound {
        notes.push(format!(
            "{count} shards, but {granted} CPUs for them: they are not bound to CPUs and do not spin"
        ));
    }
    let ranks = order::Ranks::new(machine, &candidates);
    let chosen = if bound { ranks.choose(wishes.policy.order, count) } else { Vec::new() };
    let used: Ids = chosen.iter().map(|cpu| cpu.id).collect();
    let usable = machine.usable_cpus();
    let rest = usable.without(&used);
    let places = chosen.iter().map(|cpu| place(machine, &ranks, *cpu, &usable, &rest)).collect();
    let (housekeeping, housekeeping_reason) = housekeeping(machine, &ranks, bound, &usable, &rest);
    let (listeners, listeners_reason) = listeners(machine, bound, &usable);
    let shared_memory = if bound && machine.is_numa() {
        let nodes = chosen.iter().filter_map(|cpu| machine.nearest_memory(cpu.node));
        nodes.collect()
    } else {
        Ids::new()
    };
    Ok(Plan {
        policy: wishes.policy.clone(),
        shards: count,
        may_spin: count <= granted,
        places,
        is_numa: machine.is_numa(),
        housekeeping,
        listeners,
        shared_memory,
        notes,
        housekeeping_reason,
        listeners_reason,
    })
}

/// What keeps CPUs away from the program.
fn tell_limits(machine: &Machine, notes: &mut Vec<String>) {
    if !machine.offline.is_empty() {
        notes.push(format!("CPUs {} are switched off", machine.offline));
    }
    let kept = machine.cpu_ids().without(&machine.usable_cpus());
    if !kept.is_empty() {
        notes.push(format!("CPUs {kept} are kept from this program by its affinity or cpuset"));
    }
    let nodes = machine.nodes.iter().map(|node| node.id);
    let kept: Ids = match &machine.limits.nodes {
        Some(allowed) => nodes.filter(|node| !allowed.contains(*node)).collect(),
        None => Ids::new(),
    };
    if !kept.is_empty() {
        notes.push(format!("the memory of nodes {kept} is kept from this program by its cpuset"));
    }
}

/// How many of `count` CPUs the quota pays for, at least 1.
fn within_quota(machine: &Machine, count: usize) -> usize {
    match machine.limits.quota {
        // A float beyond the range saturates.
        Some(quota) => count.min((quota.ceil() as usize).max(1)),
        None => count,
    }
}

fn place(machine: &Machine, ranks: &order::Ranks, cpu: Cpu, usable: &Ids, rest: &Ids) -> Place {
    let memory_node = machine.nearest_memory(cpu.node);
    let mut reason = vec![ranks.describe(machine, cpu)];
    if machine.is_numa() {
        reason.push(match memory_node {
            Some(node) if node == cpu.node => "its memory on the same node".to_owned(),
            Some(node) => format!(
                "node {} has no memory to use, the nearest is node {node} at distance {}",
                cpu.node,
                machine.distance(cpu.node, node)
            ),
            None => "no node tells its memory".to_owned(),
        });
    }
    let near = machine.node(cpu.node).map(|node| node.cpus.and(usable)).unwrap_or_default();
    let free_near = near.and(rest);
    let file_cpus = match (machine.is_numa(), free_near.is_empty()) {
        (false, _) => usable.clone(),
        (true, false) => free_near,
        (true, true) => near,
    };
    Place { cpu, memory_node, file_cpus, reason: reason.join("; ") }
}

/// CPUs without a shard if there are any, or else the least valuable ones.
fn housekeeping(
    machine: &Machine,
    ranks: &order::Ranks,
    bound: bool,
    usable: &Ids,
    rest: &Ids,
) -> (Ids, String) {
    if !bound {
        return (usable.clone(), "nothing is bound".to_owned());
    }
    if !rest.is_empty() {
        return (rest.clone(), "the CPUs without a shard".to_owned());
    }
    if !machine.is_numa() && machine.cores() == machine.cpus.len() {
        return (usable.clone(), "every CPU has a shard and none is worth less".to_owned());
    }
    let (cpus, why) = ranks.least_valuable(machine, usable);
    (cpus, format!("every CPU has a shard; {why}"))
}

/// The CPUs of the network card's node.
fn listeners(machine: &Machine, bound: bool, usable: &Ids) -> (Ids, String) {
    if !bound || !machine.is_numa() {
        return (usable.clone(), "its place does not matter here".to_owned());
    }
    let mut cards: Vec<(String, u32, Ids)> = machine
        .cards()
        .filter_map(|(card, node)| {
            let near = machine.node(node)?.cpus.and(usable);
            Some((order::card_name(card), node, near))
        })
        .collect();
    cards.retain(|(_, _, near)| !near.is_empty());
    let Some((name, node, near)) = cards.into_iter().next() else {
        return (usable.clone(), "no network card tells a node with usable CPUs".to_owned());
    };
    (near, format!("node {node} holds the network card {name}"))
}
