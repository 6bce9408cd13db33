//! From a machine and wishes to a plan: which shard on which CPU, with its memory where.
//!
//! A function of its inputs: it reads nothing and binds nothing.

mod order;
mod rule;
mod selection;

use crate::ids::Ids;
use crate::machine::{Cpu, Machine};
use crate::policy::Policy;
pub use rule::{BUDGET_BYTES_PER_SHARD, Binding, DISK_BYTES_PER_SHARD};
use rule::{Demand, Means};
use serde::{Deserialize, Serialize};

/// What the operator asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Wishes {
    /// Which CPUs.
    pub policy: Policy,
    /// How many shards; none takes one per CPU that the policy leaves, as far as the quota, the memory
    /// and the disk bear them.
    pub shards: Option<usize>,
    /// At most so many, whatever the machine has; 0 for no limit.
    pub shards_max: usize,
    /// Leave all threads to the system's scheduler.
    pub unbound: bool,
    /// Bytes for messages and connections, where that is known.
    pub budget_bytes: Option<u64>,
    /// Bytes of the disk that logs may take, where that is known.
    pub disk_bytes: Option<u64>,
}

/// Where everything shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The policy that was followed.
    pub policy: Policy,
    /// Number of shards, at least 1.
    pub shards: usize,
    /// Why so many.
    pub shards_reason: String,
    /// What the threads of shards are bound to.
    pub binding: Binding,
    /// One place per shard, in the order of the shards; empty when they are bound to nothing.
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
    /// The CPU that it was planned for.
    pub cpu: Cpu,
    /// The CPUs that its thread is bound to: that one alone, or those of its node that may be used.
    pub cpus: Ids,
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
            shards_reason: String::new(),
            binding: Binding::Nothing,
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
    let means = Means {
        cpus: candidates.len(),
        quota: machine.limits.quota,
        is_numa: machine.is_numa(),
        budget_bytes: wishes.budget_bytes,
        disk_bytes: wishes.disk_bytes,
    };
    let demand = Demand {
        shards: wishes.shards,
        shards_max: wishes.shards_max,
        is_placed: wishes.policy != Policy::default(),
        unbound: wishes.unbound,
    };
    let ruling = rule::rule(&means, &demand);
    notes.extend(ruling.note);
    let (count, binding) = (ruling.shards, ruling.binding);
    let bound = binding != Binding::Nothing;
    let ranks = order::Ranks::new(machine, &candidates);
    let chosen = if bound { ranks.choose(wishes.policy.order, count) } else { Vec::new() };
    let taken = chosen.iter().filter(|_| binding == Binding::Cpu);
    let used: Ids = taken.map(|cpu| cpu.id).collect();
    let usable = machine.usable_cpus();
    let rest = usable.without(&used);
    let places = chosen.iter().map(|cpu| place(machine, &ranks, *cpu, binding, &rest)).collect();
    let (housekeeping, housekeeping_reason) =
        housekeeping(machine, &ranks, binding, &usable, &rest);
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
        shards_reason: ruling.reason,
        binding,
        may_spin: ruling.may_spin,
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

fn place(machine: &Machine, ranks: &order::Ranks, cpu: Cpu, binding: Binding, rest: &Ids) -> Place {
    let usable = machine.usable_cpus();
    let memory_node = machine.nearest_memory(cpu.node);
    let mut reason = vec![ranks.describe(machine, cpu)];
    if binding == Binding::Node {
        reason.insert(0, format!("any CPU of node {}", cpu.node));
    }
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
    let near = machine.node(cpu.node).map(|node| node.cpus.and(&usable)).unwrap_or_default();
    let free_near = near.and(rest);
    let file_cpus = match (machine.is_numa(), free_near.is_empty()) {
        (false, _) => usable,
        (true, false) => free_near,
        (true, true) => near.clone(),
    };
    let cpus = match binding {
        Binding::Node => near,
        Binding::Cpu | Binding::Nothing => [cpu.id].into_iter().collect(),
    };
    Place { cpu, cpus, memory_node, file_cpus, reason: reason.join("; ") }
}

/// CPUs without a shard if there are any, or else the least valuable ones.
fn housekeeping(
    machine: &Machine,
    ranks: &order::Ranks,
    binding: Binding,
    usable: &Ids,
    rest: &Ids,
) -> (Ids, String) {
    match binding {
        Binding::Nothing => return (usable.clone(), "nothing is bound".to_owned()),
        Binding::Node => return (usable.clone(), "no shard has a CPU for itself".to_owned()),
        Binding::Cpu => {}
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
