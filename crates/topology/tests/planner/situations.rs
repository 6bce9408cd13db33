//! Single machines and what a plan does there, in sentences.

use crate::machines;
use lepus_probe::Scratch;
use lepus_topology::{Binding, Ids, Machine, Plan, Wishes, description, plan, source};

fn made(machine: &Machine, policy: &str, shards: Option<usize>) -> Plan {
    let wishes =
        Wishes { policy: policy.parse().unwrap(), shards, shards_max: 256, ..Wishes::default() };
    plan(machine, &wishes).unwrap()
}

fn cpus(plan: &Plan) -> Vec<u32> {
    plan.places.iter().map(|place| place.cpu.id).collect()
}

fn ids(text: &str) -> Ids {
    text.parse().unwrap()
}

#[test]
fn one_node_gets_a_shard_per_cpu_in_their_order_and_nothing_else_is_bound() {
    let plan = made(&machines::one_node(), "auto", None);
    assert_eq!(cpus(&plan), [0, 1, 2, 3]);
    assert_eq!(plan.housekeeping, ids("0-3"));
    assert_eq!(plan.listeners, ids("0-3"));
    assert!(plan.shared_memory.is_empty() && !plan.is_numa);
    assert!(plan.places.iter().all(|place| place.file_cpus == ids("0-3")));
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
}

#[test]
fn artemis_without_the_cards_node_is_one_policy() {
    let plan = made(&machines::named("artemis"), "nodes=!0", None);
    assert_eq!(plan.shards, 18);
    assert_eq!(plan.housekeeping, ids("0,2,4,6,8,10"), "the card's node is free for the rest");
    assert_eq!(plan.listeners, ids("0,2,4,6,8,10"));
    assert_eq!(plan.shared_memory, ids("1-3"));
}

#[test]
fn the_first_shards_are_near_the_card() {
    let plan = made(&machines::eight_nodes(), "auto", Some(4));
    assert_eq!(cpus(&plan), [10, 11, 8, 9], "node 5 holds the card, node 4 is a step away");
    assert_eq!(plan.listeners, ids("10,11"));
}

#[test]
fn spread_takes_nodes_in_turn_and_compact_fills_them() {
    let machine = machines::named("leviathan");
    assert_eq!(cpus(&made(&machine, "spread", Some(4))), [0, 1, 2, 3]);
    assert_eq!(cpus(&made(&machine, "compact", Some(4))), [0, 12, 2, 14]);
    assert_eq!(cpus(&made(&machine, "auto", Some(8))), [0, 2, 4, 6, 8, 10, 1, 3]);
    assert_eq!(cpus(&made(&machine, "compact+one-per-core", Some(4))), [0, 2, 4, 6]);
}

#[test]
fn when_all_cpus_have_shards_housekeeping_sits_on_siblings_far_from_the_card() {
    let mut machine = machines::named("leviathan");
    machine.devices = machines::named("artemis").devices;
    let plan = made(&machine, "auto", None);
    assert_eq!(plan.shards, 24);
    assert_eq!(plan.housekeeping, ids("13,15,17,19,21,23"));
    assert_eq!(plan.listeners, ids("0,2,4,6,8,10,12,14,16,18,20,22"));
    let artemis = made(&machines::named("artemis"), "auto", None);
    assert_eq!(artemis.housekeeping, ids("1,3,5,7,9,11"), "no siblings: the last node");
}

#[test]
fn a_cpuset_is_kept_to_and_told() {
    let plan = made(&machines::cpuset(), "auto", None);
    assert_eq!(plan.shards, 8);
    let note = plan.notes.iter().find(|note| note.contains("kept from this program")).unwrap();
    assert!(note.contains("0,2,4,6,8-11,13"), "{note}");
    let foreign = plan.places.iter().find(|place| place.cpu.node == 3).unwrap();
    assert_eq!(foreign.memory_node, Some(1), "node 3's memory may not be used");
    assert_eq!(plan.listeners, machines::cpuset().usable_cpus(), "the card's node has no CPU left");
}

#[test]
fn cpus_that_were_switched_off_get_nothing_and_are_told() {
    let plan = made(&machines::unplugged(), "cpus=0,2,3,9", None);
    assert_eq!(cpus(&plan), [0, 3]);
    let notes = plan.notes.join("\n");
    assert!(notes.contains("CPU 2 gets no shard: it is switched off"), "{notes}");
    assert!(notes.contains("CPU 9 gets no shard: the machine has none"), "{notes}");
    let wishes = Wishes { policy: "cpus=2,5".parse().unwrap(), ..Wishes::default() };
    let error = plan_error(&machines::unplugged(), &wishes);
    assert!(error.contains("those that may be are 0,1,3,4,6,7"), "{error}");
}

fn plan_error(machine: &Machine, wishes: &Wishes) -> String {
    plan(machine, wishes).unwrap_err()
}

#[test]
fn a_quota_gives_fewer_shards_and_more_than_cpus_are_not_bound() {
    let plan = made(&machines::quota(), "auto", None);
    assert_eq!((plan.shards, plan.binding, cpus(&plan)), (3, Binding::Nothing, vec![]));
    assert!(!plan.may_spin);
    let plan = made(&machines::quota(), "compact", None);
    assert_eq!((plan.shards, cpus(&plan)), (3, vec![0, 1, 2]));
    let plan = made(&machines::quota(), "auto", None);
    assert!(plan.shards_reason.contains("the CPUs would bear 16"), "{}", plan.shards_reason);
    assert!(plan.notes[0].contains("no CPU set apart"), "{:?}", plan.notes);
    let plan = made(&machines::one_node(), "auto", Some(9));
    assert!(plan.places.is_empty() && plan.shards == 9);
    assert!(plan.notes[0].contains("not bound"), "{:?}", plan.notes);
    assert_eq!(made(&machines::two_times_64_with_siblings(), "auto", None).shards, 256);
}

#[test]
fn few_shards_without_a_placement_share_the_cpus_of_a_node() {
    let plan = made(&machines::eight_nodes(), "auto", Some(3));
    assert_eq!(plan.binding, Binding::Node);
    let bound: Vec<&Ids> = plan.places.iter().map(|place| &place.cpus).collect();
    assert_eq!(bound, [&ids("10,11"), &ids("10,11"), &ids("8,9")]);
    assert_eq!(plan.places[2].memory_node, Some(4));
    assert_eq!(plan.housekeeping, ids("0-15"), "no CPU is taken");
    let plan = made(&machines::one_node(), "auto", Some(1));
    assert_eq!((plan.binding, plan.places.len()), (Binding::Nothing, 0));
    let plan = made(&machines::one_node(), "compact", Some(1));
    assert_eq!((plan.binding, cpus(&plan)), (Binding::Cpu, vec![0]));
}

#[test]
fn memory_and_disk_bound_what_auto_takes() {
    let machine = machines::two_times_64_with_siblings();
    let wishes = Wishes { budget_bytes: Some(256 << 20), ..Wishes::default() };
    let poor = plan(&machine, &wishes).unwrap();
    assert_eq!(poor.shards, 4);
    assert!(poor.shards_reason.contains("memory budget of 256 MiB"), "{}", poor.shards_reason);
    let wishes = Wishes { disk_bytes: Some(2 << 30), ..Wishes::default() };
    assert_eq!(plan(&machine, &wishes).unwrap().shards, 8);
}

#[test]
fn leaving_out_the_only_node_leaves_it_in_and_says_so() {
    let plan = made(&machines::one_node(), "nodes=!0", None);
    assert_eq!(plan.shards, 4);
    assert!(plan.notes[0].contains("one node"), "{:?}", plan.notes);
    let wishes = Wishes { policy: "nodes=7".parse().unwrap(), ..Wishes::default() };
    assert!(plan_error(&machines::four_nodes(), &wishes).contains("nodes that have some are 0-3"));
}

#[test]
fn a_node_without_memory_takes_the_nearest() {
    let plan = made(&machines::node_without_memory(), "nodes=1", None);
    assert_eq!(plan.places[0].memory_node, Some(2));
    assert!(plan.places[0].reason.contains("the nearest is node 2 at distance 20"));
    let plan = made(&machines::memory_only_node(), "auto", None);
    assert_eq!(plan.shards, 4);
    assert!(plan.places.iter().all(|place| place.memory_node == Some(place.cpu.node)));
}

#[test]
fn what_is_no_machine_is_told_why() {
    for (text, word) in [
        ("", "at least one CPU"),
        ("[[cores]]\ncpus=[\"0\",\"0\"]\n", "twice"),
        ("[[cores]]\nnode=3\ncpus=[\"0\"]\n[[node]]\nid=0\n", "missing"),
        ("[[cores]]\ncpus=[\"0-99999\"]\n", "65535"),
        ("[[cores]]\ncpus=\"0\"\n", "list"),
        ("[[cores]]\ncpus=[\"0-65535\"]\n", "more than"),
        ("cores=1\n", "list"),
        ("[[cores]]\ncpu=[\"0\"]\n", "not known"),
        ("[[cores]]\ncpus=[\"0\"]\n[[node]]\nid=0\ndistances=[1,2]\n", "distances"),
        ("[[cores]]\ncpus=[\"0\"]\n[[device]]\nnode=4\n", "missing"),
        ("[[cores]]\ncpus=[\"0\"]\n[limits]\ncpus=\"4\"\n", "may be used"),
        ("[[cores]]\ncpus=[\"0\"]\n[limits]\nquota=-1.0\n", "above 0"),
        ("[[node]]\nid=0\nmemory=\"many\"\n", "size"),
        ("= =", "TOML"),
    ] {
        let error = description::read(text).unwrap_err();
        assert!(error.contains(word), "{text:?}: {error}");
    }
    for name in
        ["numa:x", "core:0 pu:1", ":", "numa:4 :", "no-such-file", "pu:1 core:2", "numa:2\0"]
    {
        assert!(source::from_file(name).is_err(), "{name:?}");
    }
}

#[test]
fn saved_machines_are_read_and_damaged_ones_refused() {
    let scratch = Scratch::new("topology");
    let directory = scratch.path().to_owned();
    let path = directory.join("saved.xml");
    let name = path.display().to_string();
    let xml = include_str!("saved.xml");
    std::fs::write(&path, xml).unwrap();
    let machine = source::from_file(&name).unwrap();
    assert_eq!((machine.cpus.len(), machine.nodes.len(), machine.cores()), (8, 2, 8));
    assert_eq!(machine.node(1).unwrap().cpus, ids("4-7"));
    assert_eq!(machine.distance(0, 1), 21);
    let card = machine.devices.iter().find(|device| device.name == "eth0").unwrap();
    assert_eq!((card.node, card.address.as_str()), (Some(1), "0000:81:00.0"));
    for damaged in [&xml[..xml.len() / 2], "<topology></topology>", "<a/>", "<topology", "< >"] {
        std::fs::write(&path, damaged).unwrap();
        assert!(source::from_file(&name).is_err(), "{damaged}");
    }
}
