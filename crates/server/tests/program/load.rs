//! `lepus perf` as a program, where the broker does not go along.

use crate::running::{Program, Scratch, Signal, lepus};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn what_a_broker_holds_up_to_the_end_of_the_run_is_in_the_latencies() {
    let scratch = Scratch::new("perf-stall");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let uri = format!("amqp://guest:guest@{}/%2f", program.amqp);
    let mut command = lepus(&["perf", "throughput", "--uri", &uri, "-r", "1000", "-a", "-u", "q"]);
    command.args(["-z", "3", "-i", "0.1", "--drain", "1", "-st", "1", "--output", "jsonl"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    // From here on nothing moves any more.
    program.signal(Signal::STOP);
    let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    program.signal(Signal::CONT);
    assert!(child.wait().unwrap().success());
    let summary = rest.last().unwrap();
    assert_eq!(summary["kind"], "summary", "{first}");
    let count = |name: &str| summary[name].as_u64().unwrap();
    let missing = count("outstanding") + count("unsent");
    assert!(missing > 0, "{summary}");
    // Every message that was due is in them, once.
    let latency = &summary["consumer_latency_us"];
    assert_eq!(latency["count"].as_u64().unwrap(), count("received") + missing, "{summary}");
    // Whatever never came was waited for during the drain, at least.
    let share = missing as f64 / latency["count"].as_f64().unwrap();
    for (point, quantile) in
        [("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)]
    {
        if quantile > 1.0 - share + 0.01 {
            assert!(latency[point].as_f64().unwrap() >= 0.99e6, "{point}: {summary}");
        }
    }
}

#[test]
fn what_comes_late_is_waited_for_and_nothing_is_outstanding() {
    let scratch = Scratch::new("perf-drain");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let uri = format!("amqp://guest:guest@{}/%2f", program.amqp);
    let words = ["perf", "throughput", "--uri", &uri, "-r", "2000", "-u", "q", "-c", "100"];
    let mut command = lepus(&words);
    command.args(["-z", "1", "--drain", "60", "--output", "jsonl"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(summary["sent"], summary["received"], "{summary}");
    assert_eq!((&summary["outstanding"], &summary["unconfirmed"]), (&0.into(), &0.into()));
}

#[test]
fn filters_give_the_verdicts_that_the_load_tester_works_out() {
    let scratch = Scratch::new("perf-filters");
    let limit = ["--limits-exchange-filters-max", "400"];
    let program = Program::start(&scratch, &["--shards", "2", limit[0], limit[1]]);
    let uri = format!("amqp://guest:guest@{}/%2f", program.amqp);
    let pid = program.id().to_string();
    let run = |more: &str| {
        let words = ["perf", "filters", "--uri", &uri, "--pid", &pid, "-C", "2000"];
        let mut command = lepus(&words);
        command.args(["--queues", "7", "--output", "jsonl"]).args(more.split_whitespace());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), errors, lines)
    };
    for more in [
        "--count 400",
        "--count 300 --anchored 0 --matches 3 --type topic",
        "--count 200 --argument x-filter-jms-selector",
        "--count 200 --headers-exchange --durable",
        // All of them match everything, which leaves nothing for the consumers without a filter.
        "--at consumer --count 60 --anchored 0 --matches 60",
    ] {
        let (good, errors, lines): (bool, String, Vec<Value>) = run(more);
        assert!(good, "{more}: {errors}");
        let of = |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap();
        assert!(of("checked")["good"].as_u64().unwrap() > 0, "{more}: {lines:?}");
        let last = of("filters");
        assert_eq!((&last["outstanding"], &last["unexpected"]), (&0.into(), &0.into()), "{more}");
        let [foreseen, came] = ["deliveries_per_message", "delivered_per_published"]
            .map(|name| last[name].as_f64().unwrap());
        // The load ends in the middle of a round of the 2,048 messages.
        assert!((came / foreseen - 1.0).abs() < 0.1, "{more}: {last}");
        assert!(last["broker_cpu_us_per_message"].as_f64().is_some(), "{more}: {last}");
    }
    let (good, errors, lines) = run("--count 401");
    assert!(!good && lines.is_empty(), "{lines:?}");
    assert!(errors.contains("400 of its bindings have a filter"), "{errors}");
}
