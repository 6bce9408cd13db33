//! What a CPU is worth, and in which order they are taken.

use crate::ids::Ids;
use crate::machine::{Cpu, Device, Machine};
use crate::policy::Order;
use std::collections::BTreeMap;

/// The candidates with what their worth follows from.
pub(super) struct Ranks {
    cpus: Vec<Ranked>,
    /// Nodes, those near the network card first.
    nodes: Vec<u32>,
    /// The distance of each node to the nearest card's node, if any card tells its node.
    card_distances: Option<BTreeMap<u32, u32>>,
}

#[derive(Clone, Copy)]
struct Ranked {
    cpu: Cpu,
    /// 0 for the first usable thread of its core, 1 for the second, …
    sibling: usize,
}

impl Ranks {
    pub(super) fn new(machine: &Machine, candidates: &[Cpu]) -> Ranks {
        let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
        let mut rank = |cpu: &Cpu| {
            let sibling = seen.entry(cpu.core).or_default();
            *sibling += 1;
            Ranked { cpu: *cpu, sibling: *sibling - 1 }
        };
        let cpus = candidates.iter().map(&mut rank).collect();
        let card_nodes: Ids = machine.cards().map(|(_, node)| node).collect();
        let to_card = |node: u32| card_nodes.iter().map(|card| machine.distance(node, card)).min();
        let mut nodes: Vec<u32> = machine.nodes.iter().map(|node| node.id).collect();
        nodes.sort_by_key(|node| (to_card(*node), *node));
        let card_distances = (!card_nodes.is_empty())
            .then(|| nodes.iter().filter_map(|node| Some((*node, to_card(*node)?))).collect());
        Ranks { cpus, nodes, card_distances }
    }

    fn node_rank(&self, node: u32) -> usize {
        self.nodes.iter().position(|known| *known == node).unwrap_or(usize::MAX)
    }

    /// `count` CPUs, in the order of the shards.
    pub(super) fn choose(&self, order: Order, count: usize) -> Vec<Cpu> {
        let mut cpus = self.cpus.clone();
        let node = |ranked: &Ranked| self.node_rank(ranked.cpu.node);
        cpus.sort_by_key(|ranked| (ranked.sibling, node(ranked), ranked.cpu.id));
        match order {
            Order::Auto => {}
            Order::Compact => {
                cpus.sort_by_key(|ranked| (node(ranked), ranked.cpu.core, ranked.cpu.id));
            }
            Order::Spread => {
                // The n-th of each node in turn; within a node cores come before siblings.
                let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
                let turn = |ranked: &Ranked| {
                    let turn = taken.entry(ranked.cpu.node).or_default();
                    *turn += 1;
                    *turn
                };
                let turns: Vec<usize> = cpus.iter().map(turn).collect();
                let mut indexes: Vec<usize> = (0..cpus.len()).collect();
                indexes.sort_by_key(|index| (turns[*index], node(&cpus[*index])));
                cpus = indexes.iter().map(|index| cpus[*index]).collect();
            }
        }
        cpus.truncate(count);
        if order == Order::Auto {
            // Neighbours in number are neighbours in place; the first shard, which orders the
            // directory's changes, is near the card.
            cpus.sort_by_key(|ranked| (node(ranked), ranked.cpu.id));
        }
        cpus.iter().map(|ranked| ranked.cpu).collect()
    }

    /// Why a CPU was taken, in words.
    pub(super) fn describe(&self, machine: &Machine, cpu: Cpu) -> String {
        let siblings = machine.siblings(cpu);
        let sibling = self.cpus.iter().find(|ranked| ranked.cpu == cpu);
        let sibling = sibling.map_or(0, |ranked| ranked.sibling);
        let mut words = match (siblings.len(), sibling) {
            (1, _) => "a core of its own".to_owned(),
            (_, 0) => format!("first thread of the core with CPUs {siblings}"),
            (_, _) => format!("sibling thread of the core with CPUs {siblings}"),
        };
        if !machine.is_numa() {
            return words;
        }
        if let Some(distances) = &self.card_distances
            && let Some(distance) = distances.get(&cpu.node)
        {
            let cards = machine.cards().filter(|(_, node)| *node == cpu.node);
            let names: Vec<String> = cards.map(|(card, _)| card_name(card)).collect();
            words.push_str(&if names.is_empty() {
                format!("; the network card at distance {distance}")
            } else {
                format!("; its node holds the network card {}", names.join(", "))
            });
        }
        words
    }

    /// The CPUs whose loss costs least: sibling threads far from the card, or where there are no
    /// siblings the node farthest from it; and why.
    pub(super) fn least_valuable(&self, machine: &Machine, usable: &Ids) -> (Ids, String) {
        let farthest = self.nodes.iter().rev().find(|node| {
            machine.node(**node).is_some_and(|node| !node.cpus.and(usable).is_empty())
        });
        let far = farthest.and_then(|node| machine.node(*node));
        let near_by = far.map(|node| node.cpus.and(usable)).unwrap_or_default();
        let siblings: Ids = self
            .cpus
            .iter()
            .filter(|ranked| ranked.sibling > 0 && near_by.contains(ranked.cpu.id))
            .map(|ranked| ranked.cpu.id)
            .collect();
        let place = match (&self.card_distances, far) {
            (_, _) if !machine.is_numa() => String::new(),
            (Some(_), Some(node)) => format!(" of node {}, far from the network card", node.id),
            (_, Some(node)) => format!(" of node {}, the last one", node.id),
            (_, None) => String::new(),
        };
        if siblings.is_empty() {
            (near_by, format!("shared with the CPUs{place}"))
        } else {
            (siblings, format!("shared with sibling threads{place}"))
        }
    }
}

/// A card as it is named to people.
pub(super) fn card_name(card: &Device) -> String {
    if card.name.is_empty() { card.address.clone() } else { card.name.clone() }
}
