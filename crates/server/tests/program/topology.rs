//! `lepus topology` against a running broker: what it says is what the kernel says.

use crate::running::{Program, Scratch, lepus};
use lepus_topology::{Ids, source};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn report(program: &Program) -> Value {
    serde_json::from_str(&program.order(&["topology", "--json"]).unwrap()).unwrap()
}

#[test]
fn each_shard_is_where_the_plan_and_the_kernel_say() {
    let scratch = Scratch::new("topology");
    let program = Program::start(&scratch, &["--placement", "compact"]);
    let report = report(&program);
    let usable = source::running().0.usable_cpus();
    let places = report["plan"]["places"].as_array().unwrap();
    let shards = report["running"]["shards"].as_array().unwrap();
    assert_eq!(places.len(), shards.len());
    assert!(!places.is_empty());
    for (place, shard) in places.iter().zip(shards) {
        let cpu = u32::try_from(place["cpu"].as_u64().unwrap()).unwrap();
        assert!(usable.contains(cpu), "{report:#}");
        let status = format!("/proc/{}/task/{}/status", program.id(), shard["thread"]);
        let status = fs::read_to_string(status).unwrap();
        let allowed: Ids = lepus_topology::kernel::status_field(&status, "Cpus_allowed_list")
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(allowed, [cpu].into_iter().collect::<Ids>(), "{report:#}");
        assert_eq!(shard["allowed"], serde_json::json!([cpu]), "{report:#}");
        assert!(status.contains(&format!("shard-{}", place["shard"])), "{status}");
    }
    assert_eq!(report["running"]["warnings"], serde_json::json!([]), "{report:#}");
    let directory = report["running"]["log"]["directory"].as_str().unwrap();
    assert!(Path::new(directory).starts_with(scratch.path()), "{directory}");
    let (status, _) = program.stop();
    assert!(status.success());
}

#[test]
fn nothing_is_bound_when_it_is_not_wanted_and_no_broker_is_needed_for_a_plan() {
    let scratch = Scratch::new("topology-unbound");
    let program = Program::start(&scratch, &["--pin", "false", "--latency", "--shards", "2"]);
    let report = report(&program);
    assert_eq!(report["plan"]["places"], serde_json::json!([]));
    assert_eq!(report["running"]["shards"].as_array().unwrap().len(), 2);
    let (status, _) = program.stop();
    assert!(status.success());
    let output = lepus(&["topology", "--from", "artemis", "--plan", "nodes=!0"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("plan nodes=!0: 18 shards"), "{text}");
}

#[test]
fn a_placement_that_leaves_no_cpu_stops_the_start_with_those_there_are() {
    let scratch = Scratch::new("topology-none");
    let data = scratch.path().display().to_string();
    let words = ["serve", "--data-dir", &data, "--placement", "cpus=60000"];
    let output = lepus(&words).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("those that may be are"), "{text}");
    let words = ["serve", "--data-dir", &data, "--placement", "nearby"];
    let output = lepus(&words).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("one-per-core"), "{text}");
}
