//! What holds on every machine under every policy.

use crate::machines;
use lepus_topology::{Ids, Machine, Plan, Wishes, description, plan};

const POLICIES: [&str; 10] = [
    "auto",
    "compact",
    "spread",
    "one-per-core",
    "spread+one-per-core",
    "nodes=!0",
    "nodes=0",
    "nodes=1+compact",
    "cpus=0-3",
    "cpus=1,3,5+one-per-core",
];

/// Every plan that can be made, with what it was made from.
fn plans(mut look: impl FnMut(&str, &Machine, &Wishes, &Plan)) {
    let mut made = 0;
    for (name, machine) in machines::all() {
        for policy in POLICIES {
            for shards in [None, Some(1), Some(2), Some(3), Some(1000)] {
                let wishes = Wishes {
                    policy: policy.parse().unwrap(),
                    shards,
                    shards_max: 256,
                    ..Wishes::default()
                };
                match plan(&machine, &wishes) {
                    Ok(plan) => {
                        made += 1;
                        look(&format!("{name}, {policy}, {shards:?}"), &machine, &wishes, &plan);
                    }
                    Err(error) => assert!(error.contains("are "), "{name}, {policy}: {error}"),
                }
            }
        }
    }
    assert!(made > 500, "{made} plans");
}

#[test]
fn no_cpu_has_two_shards_and_only_allowed_cpus_have_any() {
    plans(|about, machine, _, plan| {
        let used: Ids = plan.places.iter().map(|place| place.cpu.id).collect();
        assert_eq!(used.len(), plan.places.len(), "{about}");
        assert!(used.is_within(&machine.usable_cpus()), "{about}");
        assert!(plan.places.is_empty() || plan.places.len() == plan.shards, "{about}");
        for ids in [&plan.housekeeping, &plan.listeners] {
            assert!(!ids.is_empty() && ids.is_within(&machine.usable_cpus()), "{about}: {ids}");
        }
    });
}

#[test]
fn memory_is_on_the_nearest_node_that_has_any() {
    plans(|about, machine, _, plan| {
        for place in &plan.places {
            let Some(chosen) = place.memory_node else { continue };
            assert!(machine.has_usable_memory(chosen), "{about}");
            let distance = machine.distance(place.cpu.node, chosen);
            for node in machine.nodes.iter().filter(|node| machine.has_usable_memory(node.id)) {
                assert!(distance <= machine.distance(place.cpu.node, node.id), "{about}");
            }
        }
    });
}

#[test]
fn files_are_served_near_their_shard() {
    plans(|about, machine, _, plan| {
        for place in &plan.places {
            assert!(!place.file_cpus.is_empty(), "{about}");
            assert!(place.file_cpus.is_within(&machine.usable_cpus()), "{about}");
            if machine.is_numa() {
                let near = &machine.node(place.cpu.node).unwrap().cpus;
                assert!(place.file_cpus.is_within(near), "{about}");
            }
        }
    });
}

#[test]
fn one_per_core_takes_no_siblings_and_nodes_are_kept_to() {
    plans(|about, machine, wishes, plan| {
        if wishes.policy.one_per_core {
            let cores: Ids = plan.places.iter().map(|place| place.cpu.core).collect();
            assert_eq!(cores.len(), plan.places.len(), "{about}");
        }
        if about.contains("nodes=!0") && machine.is_numa() {
            assert!(plan.places.iter().all(|place| place.cpu.node != 0), "{about}");
        }
        if about.contains("nodes=1") {
            assert!(plan.places.iter().all(|place| place.cpu.node == 1), "{about}");
        }
    });
}

#[test]
fn siblings_come_after_cores_where_all_would_do() {
    for (name, machine) in machines::all() {
        for shards in 1..=machine.cores() {
            let wishes = Wishes { shards: Some(shards), ..Wishes::default() };
            let plan = plan(&machine, &wishes).unwrap();
            let cores: Ids = plan.places.iter().map(|place| place.cpu.core).collect();
            assert_eq!(cores.len(), plan.places.len(), "{name}, {shards} shards");
        }
    }
}

#[test]
fn a_machine_is_written_down_and_read_again() {
    for (name, machine) in machines::all() {
        let text = description::write(&machine);
        let mut again =
            description::read(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        // Cores are counted in another order.
        assert_eq!(again.cores(), machine.cores(), "{name}");
        for (cpu, was) in again.cpus.iter_mut().zip(&machine.cpus) {
            cpu.core = was.core;
        }
        assert_eq!(again, machine, "{name}");
    }
}
