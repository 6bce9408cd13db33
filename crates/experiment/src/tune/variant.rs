//! Which settings are tried on a machine: pure functions from a machine and wishes to variants.

use lepus_topology::{Binding, Ids, Machine, Policy, Wishes, plan};
use std::cmp::Reverse;

/// The most shards that `lepus serve` takes.
const SHARDS_MAX: usize = 256;
/// Up to here every number of cores is tried; beyond it, two in each doubling.
const EVERY_COUNT_TO: usize = 8;
/// One CPU in so many is the load's.
const LOAD_SHARE: usize = 4;
/// So many CPUs have to be left for the broker; with fewer, broker and load share.
const LEFT_MIN: usize = 3;

/// What is to be tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Numbers of cores.
    pub cores: Cores,
    /// Whether sets of memory nodes are left out.
    pub without_nodes: bool,
    /// Further placements, with their number of shards; none for one per CPU.
    pub further: Vec<(Policy, Option<usize>)>,
    /// CPUs for the load; none for a quarter of the machine's.
    pub testers: Option<usize>,
}

/// Which numbers of cores are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// All up to 8, then 12, 16, 24, 32 and so on, one for each core without its sibling threads, and all CPUs.
    #[default]
    Usual,
    /// Every number there is.
    Every,
    /// These, and all CPUs; those that the machine does not have are passed over.
    These(Vec<usize>),
}

/// One setting that is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What it is called: all different.
    pub name: String,
    /// The setting `shards`.
    pub shards: usize,
    /// The setting `placement`.
    pub placement: Policy,
    /// Whether it is what `lepus` does by itself.
    pub is_default: bool,
    /// Whether it belongs to the curve over cores.
    pub is_of_curve: bool,
    /// The CPUs of its shards, or as many as they are; all that may be used where they are more.
    pub cpus: Ids,
    /// The CPUs that the broker may use; empty for all.
    pub broker: Vec<usize>,
    /// The CPUs of the load: as many for every variant, one load tester for each.
    pub load: Vec<usize>,
    /// Whether the load has no CPUs of its own, so that the figure is lower than the broker alone would reach.
    pub is_shared: bool,
}

impl Variant {
    /// The settings as flags of `lepus serve`.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let (shards, placement) = (self.shards.to_string(), self.placement.to_string());
        vec!["--shards".to_owned(), shards, "--placement".to_owned(), placement]
    }
}

/// The variants of a sweep on a machine: what `lepus` does by itself first, then by number of cores, then the sets of
/// nodes (each node, all but the network card's), then what else was wished. Those that mean the same CPUs are one.
///
/// # Errors
/// In words, when a placement that was wished leaves no CPU.
pub fn variants(machine: &Machine, sweep: &Sweep) -> Result<Vec<Variant>, String> {
    let usual = Policy::default();
    let testers = testers(machine, sweep);
    let apart = leave_out(machine, testers);
    let (machine, load) = match &apart {
        Some((rest, load)) => (rest, Some(load.clone())),
        None => (machine, None),
    };
    let all = place(machine, &usual, None)?;
    let mut found = Found { machine, testers, load, variants: Vec::new() };
    found.add("auto", &usual, None)?;
    for count in counts(machine, &sweep.cores, all.shards) {
        let shards = if count == 1 { "1 shard".to_owned() } else { format!("{count} shards") };
        found.add(&shards, &usual, Some(count))?;
    }
    if !sweep.without_nodes {
        for policy in node_sets(machine) {
            let policy: Policy = policy.parse()?;
            // A node whose CPUs are kept from this program is none that could be chosen.
            if plan(machine, &wishes(&policy, None)).is_ok() {
                found.add(&policy.to_string(), &policy, None)?;
            }
        }
    }
    for (policy, shards) in &sweep.further {
        let name = match shards {
            Some(shards) => format!("{policy}:{shards}"),
            None => policy.to_string(),
        };
        found.add(&name, policy, *shards)?;
    }
    Ok(found.variants)
}

struct Found<'a> {
    machine: &'a Machine,
    testers: usize,
    /// The load's CPUs where they are nobody else's: the machine is without them then.
    load: Option<Vec<usize>>,
    variants: Vec<Variant>,
}

impl Found<'_> {
    fn add(&mut self, name: &str, policy: &Policy, shards: Option<usize>) -> Result<(), String> {
        let placed = place(self.machine, policy, shards)?;
        let is_of_curve = *policy == Policy::default();
        let same = |known: &&mut Variant| {
            known.shards == placed.shards && known.cpus == placed.cpus && placed.is_bound
        };
        if let Some(known) = self.variants.iter_mut().find(same) {
            // All CPUs are the last point of the curve, whatever they are called.
            known.is_of_curve |= is_of_curve;
            if !known.name.split(" = ").any(|known| known == name) {
                known.name = format!("{} = {name}", known.name);
            }
            return Ok(());
        }
        let (load, is_shared, broker) = match &self.load {
            Some(load) => {
                let usable = self.machine.usable_cpus();
                (load.clone(), false, usable.iter().map(|cpu| cpu as usize).collect())
            }
            None => {
                let (load, is_shared) = load_cpus(self.machine, &placed.cpus, self.testers);
                (load, is_shared, Vec::new())
            }
        };
        self.variants.push(Variant {
            name: name.to_owned(),
            shards: placed.shards,
            placement: policy.clone(),
            is_default: self.variants.is_empty(),
            is_of_curve,
            cpus: placed.cpus,
            broker,
            load,
            is_shared,
        });
        Ok(())
    }
}

struct Placed {
    shards: usize,
    cpus: Ids,
    is_bound: bool,
}

fn wishes(policy: &Policy, shards: Option<usize>) -> Wishes {
    Wishes { policy: policy.clone(), shards, shards_max: SHARDS_MAX, ..Wishes::default() }
}

fn place(machine: &Machine, policy: &Policy, shards: Option<usize>) -> Result<Placed, String> {
    let usable = machine.usable_cpus();
    let shards = plan(machine, &wishes(policy, shards))?.shards;
    // Shards that are bound to no CPU find those that they would be bound to: the load is kept away
    // from them.
    let cpus = policy.cpus.clone().or_else(|| Some(usable.clone()));
    let plan = plan(machine, &wishes(&Policy { cpus, ..policy.clone() }, Some(shards)))?;
    let is_bound = plan.binding == Binding::Cpu;
    let cpus = match is_bound {
        true => plan.places.iter().map(|place| place.cpu.id).collect(),
        false => usable,
    };
    Ok(Placed { shards, cpus, is_bound })
}

fn counts(machine: &Machine, cores: &Cores, all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = match cores {
        Cores::Every => (1..=all).collect(),
        Cores::These(wished) => wished.iter().copied().chain([all]).collect(),
        Cores::Usual => {
            let doubled = std::iter::successors(Some(EVERY_COUNT_TO), |count| Some(count * 2));
            let large = doubled.take_while(|count| *count < all).flat_map(|n| [n, n + n / 2]);
            (1..=EVERY_COUNT_TO).chain(large).chain([machine.cores(), all]).collect()
        }
    };
    counts.retain(|count| (1..=all).contains(count));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Each node, and all but those with a network card; nothing where there is one node.
fn node_sets(machine: &Machine) -> Vec<String> {
    let with_cpus = machine.nodes.iter().filter(|node| !node.cpus.is_empty());
    let nodes: Ids = with_cpus.map(|node| node.id).collect();
    if nodes.len() < 2 {
        return Vec::new();
    }
    let mut sets: Vec<String> = nodes.iter().map(|node| format!("nodes={node}")).collect();
    let cards: Ids = machine.cards().map(|(_, node)| node).collect();
    if !cards.is_empty() && !nodes.without(&cards).is_empty() {
        sets.push(format!("nodes=!{cards}"));
    }
    sets
}

fn testers(machine: &Machine, sweep: &Sweep) -> usize {
    let usable = machine.usable_cpus().len();
    sweep.testers.unwrap_or(usable / LOAD_SHARE).clamp(1, usable.max(1))
}

/// The machine without the load's CPUs, and these: whole cores from its end. None where too few would be left to compare
/// anything.
fn leave_out(machine: &Machine, count: usize) -> Option<(Machine, Vec<usize>)> {
    let usable = machine.usable_cpus();
    if usable.len() < LEFT_MIN + count {
        return None;
    }
    let mut load = Ids::new();
    let mut cpus: Vec<_> = machine.cpus.iter().filter(|cpu| usable.contains(cpu.id)).collect();
    cpus.sort_by_key(|cpu| Reverse(cpu.id));
    for cpu in cpus {
        let siblings = machine.siblings(*cpu).and(&usable);
        for id in [cpu.id].into_iter().chain(siblings.iter()) {
            if load.len() < count && !load.contains(id) {
                load = load.iter().chain([id]).collect();
            }
        }
    }
    let mut rest = machine.clone();
    rest.limits.cpus = Some(usable.without(&load));
    let load = load.iter().map(|cpu| cpu as usize).collect();
    Some((rest, load))
}

/// `count` CPUs for the load: those without a shard first, on cores without one before sibling threads of one; and
/// whether there were too few of them.
fn load_cpus(machine: &Machine, shards: &Ids, count: usize) -> (Vec<usize>, bool) {
    let usable = machine.usable_cpus();
    let mut cpus: Vec<_> = machine.cpus.iter().filter(|cpu| usable.contains(cpu.id)).collect();
    cpus.sort_by_key(|cpu| {
        let is_core_taken = !machine.siblings(**cpu).and(shards).is_empty();
        (shards.contains(cpu.id), is_core_taken, Reverse(cpu.id))
    });
    cpus.truncate(count);
    let is_shared = cpus.iter().any(|cpu| shards.contains(cpu.id));
    let mut ids: Vec<usize> = cpus.iter().map(|cpu| cpu.id as usize).collect();
    ids.sort_unstable();
    (ids, is_shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_topology::{description, source};

    fn example(name: &str) -> Machine {
        let text = source::EXAMPLES.iter().find(|example| example.0 == name).unwrap().1;
        description::read(text).unwrap()
    }

    fn names(machine: &Machine, sweep: &Sweep) -> Vec<String> {
        variants(machine, sweep).unwrap().into_iter().map(|variant| variant.name).collect()
    }

    #[test]
    fn artemis_gets_its_cores_each_node_and_all_but_the_cards() {
        let machine = example("artemis");
        let found = variants(&machine, &Sweep::default()).unwrap();
        let names: Vec<&str> = found.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "auto = 18 shards",
                "1 shard",
                "2 shards",
                "3 shards",
                "4 shards",
                "5 shards",
                // The six CPUs near the card are those of its node.
                "6 shards = nodes=0",
                "7 shards",
                "8 shards",
                "12 shards",
                "16 shards",
                "nodes=1",
                "nodes=2",
                "nodes=3",
                "nodes=!0",
            ]
        );
        let best_of_2011 = found.last().unwrap();
        assert_eq!((best_of_2011.shards, best_of_2011.cpus.len()), (12, 12));
        assert!(best_of_2011.cpus.and(&machine.node(0).unwrap().cpus).is_empty());
        assert_eq!(best_of_2011.flags(), ["--shards", "12", "--placement", "nodes=!0"]);
        // The load has the same six CPUs in every setting, and no setting has any of them.
        for variant in &found {
            assert_eq!(
                (variant.load.as_slice(), variant.is_shared),
                (&[18, 19, 20, 21, 22, 23][..], false)
            );
            assert_eq!(variant.broker, (0..18).collect::<Vec<usize>>());
            assert!(variant.cpus.iter().all(|cpu| cpu < 18), "{}", variant.name);
        }
        assert!(found[0].is_default);
        assert!(found.iter().skip(1).all(|variant| !variant.is_default));
    }

    #[test]
    fn leviathan_tells_no_card_and_its_cores_come_before_their_siblings() {
        let found = variants(&example("leviathan"), &Sweep::default()).unwrap();
        let names: Vec<&str> = found.iter().map(|variant| variant.name.as_str()).collect();
        let expected = [
            "auto = 18 shards",
            "1 shard",
            "2 shards",
            "3 shards",
            "4 shards",
            "5 shards",
            "6 shards",
            "7 shards",
            "8 shards",
            "12 shards",
            "16 shards",
            "nodes=0",
            "nodes=1",
        ];
        assert_eq!(names, expected);
        let twelve = found.iter().find(|variant| variant.name == "12 shards").unwrap();
        // Three cores with their siblings are the load's.
        assert_eq!(twelve.load, [9, 10, 11, 21, 22, 23]);
        assert!((0..9).all(|core| twelve.cpus.contains(core)), "{}", twelve.cpus);
        let node = found.iter().find(|variant| variant.name == "nodes=1").unwrap();
        assert_eq!((node.shards, node.is_shared), (8, false));
        assert_eq!(found.iter().filter(|variant| variant.is_of_curve).count(), 11);
    }

    #[test]
    fn a_small_machine_shares_its_cpus_with_the_load() {
        let machine = source::from_file("pack:1 core:2 pu:1").unwrap();
        let found = variants(&machine, &Sweep::default()).unwrap();
        assert_eq!(names(&machine, &Sweep::default()), ["auto = 2 shards", "1 shard"]);
        assert_eq!((found[0].load.as_slice(), found[0].is_shared), (&[1][..], true));
        assert_eq!((found[1].load.as_slice(), found[1].is_shared), (&[1][..], false));
        let one = source::from_file("pack:1 core:1 pu:1").unwrap();
        assert_eq!(names(&one, &Sweep::default()), ["auto = 1 shard"]);
    }

    #[test]
    fn wishes_are_followed_as_far_as_the_machine_goes() {
        let machine = example("artemis");
        let sweep = Sweep {
            cores: Cores::These(vec![2, 99]),
            without_nodes: true,
            further: vec![
                ("spread".parse().unwrap(), Some(8)),
                ("nodes=!0,1".parse().unwrap(), None),
                ("auto".parse().unwrap(), Some(30)),
            ],
            testers: Some(2),
        };
        let found = variants(&machine, &sweep).unwrap();
        let names: Vec<&str> = found.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names, ["auto = 22 shards", "2 shards", "spread:8", "nodes=!0,1", "auto:30"]);
        assert!(found.iter().all(|variant| variant.load.len() == 2));
        // More shards than CPUs are not bound.
        assert_eq!((found[4].shards, found[4].cpus.len(), found[4].is_shared), (30, 22, false));
        let wrong = Sweep { further: vec![("cpus=77".parse().unwrap(), None)], ..sweep };
        assert!(variants(&machine, &wrong).unwrap_err().contains("0-21"));
        let every = Sweep { cores: Cores::Every, without_nodes: true, ..Sweep::default() };
        assert_eq!(variants(&machine, &every).unwrap().len(), 18);
    }

    #[test]
    fn what_a_control_group_does_not_grant_is_not_tried() {
        let mut machine = example("leviathan");
        machine.limits.quota = Some(3.0);
        machine.limits.cpus = Some("0-5".parse().unwrap());
        let sweep = Sweep { without_nodes: true, ..Sweep::default() };
        assert_eq!(names(&machine, &sweep), ["auto = 3 shards", "1 shard", "2 shards"]);
    }
}
