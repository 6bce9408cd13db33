//! `lepus profile` against a broker under load.

use crate::running::{Program, Scratch, lepus};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// A load that lasts until it is dropped.
struct Load(Child);

impl Load {
    fn start(program: &Program) -> Load {
        let uri = format!("amqp://guest:guest@{}", program.amqp);
        let words = ["perf", "throughput", "--uri", &uri, "-x", "1", "-y", "1", "-u", "busy"];
        let mut command = lepus(&words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut load = Load(child.unwrap());
        // Its first figures say that it is under way.
        let mut out = BufReader::new(load.0.stdout.take().unwrap()).lines();
        while !out.next().expect("the load ended").unwrap().contains("msg/s") {}
        std::thread::spawn(move || out.for_each(drop));
        load
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One request at the control socket, without waiting for its answer.
fn ask(scratch: &Scratch, request: &Value) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(scratch.path().join("data/control.sock")).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    BufReader::new(stream)
}

fn answer(mut stream: BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// What a profile of a loaded broker must show and this one does not.
fn missing_in(file: &Path) -> String {
    let json: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let shard = &json["scopes"][1];
    if shard["scope"] != "shard-0" {
        return "the shard".to_owned();
    }
    let samples = shard["samples"].as_u64().unwrap();
    let phases = shard["phases"].as_object().unwrap();
    let sum: u64 = phases.values().filter_map(Value::as_u64).sum();
    assert_eq!(sum, samples, "each sample has a phase: {json:#}");
    let functions = shard["functions"].as_array().unwrap();
    let accumulated = |parts: &[&str]| {
        let with = functions.iter().filter(|one| {
            let name = one["name"].as_str().unwrap();
            parts.iter().all(|part| name.contains(part))
        });
        with.map(|one| one["accumulated"].as_u64().unwrap()).max().unwrap_or(0)
    };
    // What is called in every turn, down to the pure core and into the kernel.
    let wanted = [
        ("20 samples", samples, 20),
        ("the phase handle", phases["handle"].as_u64().unwrap(), 1),
        ("the phase write", phases["write"].as_u64().unwrap(), 1),
        ("the turn of the shard", accumulated(&["lepus_shard::", "turn"]), samples / 2),
        ("the core", accumulated(&["lepus_broker::"]), 1),
        ("the kernel", accumulated(&["[kernel: "]), 1),
    ];
    let missing = wanted.iter().filter(|(_, seen, least)| seen < least).map(|(name, ..)| *name);
    missing.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_profile_shows_the_shard_at_work_and_the_broker_goes_on() {
    let scratch = Scratch::new("profile");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let out = scratch.path().join("report");
    let words = ["profile", "--seconds", "2", "--out", out.to_str().unwrap()];
    let load = Load::start(&program);
    // Where the machine has little time for the broker, two seconds may hold too few samples for all.
    let mut missing = String::new();
    for _ in 0..20 {
        let text = program.order(&words).unwrap();
        assert!(text.contains("shard 0") && text.contains("by own time"), "{text}");
        assert!(text.contains("report in "), "{text}");
        missing = missing_in(&out.join("profile.json"));
        if missing.is_empty() {
            break;
        }
    }
    assert_eq!(missing, "", "in none of twenty profiles");
    drop(load);
    for name in ["flame-sum.svg", "own-sum.svg", "flame-shard-0.svg", "top-shard-0.svg"] {
        let svg = std::fs::read_to_string(out.join(name)).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{name}");
    }
    let svg = std::fs::read_to_string(out.join("flame-shard-0.svg")).unwrap();
    assert!(svg.contains("<title>[handle]: ") && svg.contains("lepus_broker::"), "{svg}");
    let status = program.order(&["status", "--json"]).unwrap();
    assert!(status.contains("process_id"), "{status}");
    let (status, log) = program.stop();
    assert!(status.success(), "{log}");
}

#[test]
fn a_second_profile_at_the_same_time_is_refused() {
    let scratch = Scratch::new("profile-twice");
    let program = Program::start(&scratch, &["--shards", "1"]);
    let long = ask(&scratch, &json!({"order": "profile", "seconds": 3}));
    let ended = std::thread::spawn(move || answer(long));
    let mut refusal = Value::Null;
    while refusal.is_null() && !ended.is_finished() {
        // This one may come first: then the long one is refused.
        refusal = answer(ask(&scratch, &json!({"order": "profile", "seconds": 1})))["error"].take();
    }
    let long = ended.join().unwrap();
    let refusal = if refusal.is_null() { long["error"].clone() } else { refusal };
    assert!(refusal.as_str().unwrap().contains("one at a time"), "{refusal}");
    // Afterwards there is room again, and an idle broker has little to show.
    let out = scratch.path().join("idle");
    let text = program.order(&["profile", "--seconds", "1", "--out", out.to_str().unwrap()]);
    assert!(text.unwrap().contains("Time asleep"));
    let (status, _) = program.stop();
    assert!(status.success());
}

#[test]
fn without_a_broker_it_says_so() {
    let scratch = Scratch::new("profile-none");
    let data = scratch.path().display().to_string();
    let output = lepus(&["profile", "--data-dir", &data]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("no running lepus answers"), "{text}");
}
