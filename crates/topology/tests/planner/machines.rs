//! The machines that plans are made for.

use lepus_topology::{Machine, description, source};

/// A machine of E1 or in hwloc's synthetic form.
pub fn named(name: &str) -> Machine {
    source::from_file(name).unwrap()
}

fn described(text: &str) -> Machine {
    description::read(text).unwrap()
}

pub fn one_node() -> Machine {
    named("pack:1 core:4 pu:1")
}

pub fn two_times_64_with_siblings() -> Machine {
    named("pack:2 [numa(memory=256GB)] core:64 pu:2")
}

pub fn four_nodes() -> Machine {
    named("numa:4 core:4 pu:1")
}

/// Eight nodes on a ring of links: the farther, the more distant; the card on node 5.
pub fn eight_nodes() -> Machine {
    let mut text =
        String::from("name = \"eight\"\n[[device]]\nkind=\"network\"\nname=\"eth0\"\nnode=5\n");
    for node in 0..8_i32 {
        let distances: Vec<i32> = (0..8)
            .map(|other| {
                let way = (node - other).abs();
                10 + 6 * way.min(8 - way)
            })
            .collect();
        text.push_str(&format!(
            "[[cores]]\nnode={node}\ncpus=[\"{}\",\"{}\"]\n[[node]]\nid={node}\nmemory=\"8GiB\"\ndistances={distances:?}\n",
            2 * node,
            2 * node + 1
        ));
    }
    described(&text)
}

/// Two CPUs on node 0, six on node 1, less memory where there are more CPUs.
pub fn asymmetric() -> Machine {
    described(
        "[[cores]]\nnode=0\ncpus=[\"0\",\"1\"]\n[[cores]]\npackage=1\nnode=1\ncpus=[\"2\",\"3\",\"4\",\"5\",\"6\",\"7\"]\n\
         [[node]]\nid=0\nmemory=\"64GiB\"\ndistances=[10,21]\n[[node]]\nid=1\nmemory=\"4GiB\"\ndistances=[21,10]\n",
    )
}

/// Node 1 has CPUs and no memory; node 2 is nearer to it than node 0.
pub fn node_without_memory() -> Machine {
    described(
        "[[cores]]\nnode=0\ncpus=[\"0\",\"1\"]\n[[cores]]\nnode=1\ncpus=[\"2\",\"3\"]\n[[cores]]\nnode=2\ncpus=[\"4\",\"5\"]\n\
         [[node]]\nid=0\nmemory=\"4GiB\"\ndistances=[10,30,20]\n[[node]]\nid=1\nmemory=0\ndistances=[30,10,20]\n\
         [[node]]\nid=2\nmemory=\"4GiB\"\ndistances=[20,20,10]\n",
    )
}

/// Node 2 is memory alone, as on a card for memory.
pub fn memory_only_node() -> Machine {
    described(
        "[[cores]]\nnode=0\ncpus=[\"0,2\"]\n[[cores]]\npackage=1\nnode=1\ncpus=[\"1,3\"]\n\
         [[node]]\nid=0\nmemory=\"4GiB\"\ndistances=[10,21,14]\n[[node]]\nid=1\nmemory=\"4GiB\"\ndistances=[21,10,24]\n\
         [[node]]\nid=2\nmemory=\"64GiB\"\ndistances=[14,24,10]\n",
    )
}

/// Artemis in a container that may use eight of its CPUs and the memory of two nodes.
pub fn cpuset() -> Machine {
    let mut machine = named("artemis");
    machine.limits.cpus = Some("1,3,5,7,12,14,16,18".parse().unwrap());
    machine.limits.nodes = Some("1,2".parse().unwrap());
    machine
}

/// One package cut into clusters, each a node of its own.
pub fn clusters() -> Machine {
    named("pack:2 numa:4 core:4 pu:2")
}

/// A container with a quota, on one node.
pub fn quota() -> Machine {
    let mut machine = named("core:8 pu:2");
    machine.limits.quota = Some(2.5);
    machine
}

/// CPUs that were switched off while the machine runs.
pub fn unplugged() -> Machine {
    described(
        "offline=\"2,5\"\n[[cores]]\nnode=0\ncpus=[\"0,4\",\"1\",\"6\",\"3,7\"]\n[[node]]\nid=0\nmemory=\"1GiB\"\n",
    )
}

/// Every machine with its name.
pub fn all() -> Vec<(&'static str, Machine)> {
    vec![
        ("leviathan", named("leviathan")),
        ("artemis", named("artemis")),
        ("one node", one_node()),
        ("2 x 64 with siblings", two_times_64_with_siblings()),
        ("four nodes", four_nodes()),
        ("eight nodes", eight_nodes()),
        ("asymmetric", asymmetric()),
        ("node without memory", node_without_memory()),
        ("memory-only node", memory_only_node()),
        ("cpuset", cpuset()),
        ("clusters", clusters()),
        ("quota", quota()),
        ("unplugged", unplugged()),
        ("this machine", source::running().0),
    ]
}
