//! Four plans word by word. `LEPUS_GOLDEN=write` writes them anew.

use crate::machines;
use lepus_topology::report::{Report, text};
use lepus_topology::{Machine, Wishes, plan};
use std::path::Path;

fn compare(name: &str, machine: Machine, policy: &str, shards: Option<usize>) {
    let wishes = Wishes { policy: policy.parse().unwrap(), shards, ..Wishes::default() };
    let plan = Some(plan(&machine, &wishes).unwrap());
    let report = Report { machine, plan, explain: true, ..Report::default() };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planner/golden").join(name);
    let written = text(&report);
    if std::env::var_os("LEPUS_GOLDEN").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, golden, "{}", path.display());
}

#[test]
fn artemis_with_all_its_cpus() {
    compare("artemis-auto.txt", machines::named("artemis"), "auto", None);
}

#[test]
fn leviathan_with_a_shard_per_core() {
    compare("leviathan-one-per-core.txt", machines::named("leviathan"), "one-per-core", None);
}

#[test]
fn a_node_without_memory() {
    compare("node-without-memory.txt", machines::node_without_memory(), "spread", Some(3));
}

#[test]
fn artemis_in_a_container() {
    compare("artemis-cpuset.txt", machines::cpuset(), "nodes=!0", Some(6));
}
