//! `lepus tune` as a program: a tiny sweep on this machine.

use crate::running::{Scratch, Signal, lepus};
use lepus_probe::procfs;
use rustix::process::{Pid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const FILE: &str =
    "# the shop's broker\nshards = 7   # tried by hand\n\n[log]\nlevel = \"error\"\n";

/// A sweep that takes seconds.
fn tune(scratch: &Scratch, words: &[&str]) -> Command {
    let mut command =
        lepus(&["tune", "--load", "loop --connections 2 --channels 3", "--seconds", "1"]);
    command.args(["--warm-up", "0"]);
    command.args(["--testers", "1", "--node-sets", "none"]).args(words);
    command.arg("--output").arg(scratch.path().join("report"));
    command.arg("--write").arg(scratch.path().join("lepus.toml"));
    command
}

/// Programs that were started in a directory and are still there.
fn left_in(directory: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_there = |process: &std::path::PathBuf| {
        fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory))
    };
    let found = processes.map(|entry| entry.path()).filter(is_there);
    found.map(|process| process.display().to_string()).collect()
}

#[test]
fn a_sweep_leaves_a_report_and_a_recommendation_in_the_file() {
    let scratch = Scratch::new("tune");
    fs::write(scratch.path().join("lepus.toml"), FILE).unwrap();
    let output = tune(&scratch, &["--cores", "1,2", "--rounds", "2"]).output().unwrap();
    let (said, progress) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}\n{progress}");
    assert!(said.contains("Recommended: shards = ") && said.contains("1 shard"), "{said}");
    assert!(progress.contains("round 2 of 2") && progress.contains(" left)"), "{progress}");
    let report = scratch.path().join("report");
    let result = fs::read(report.join("result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
    let settings = result["settings"].as_array().unwrap();
    assert!(!settings.is_empty() && settings[0]["shares_cpus_with_load"].is_boolean());
    for setting in settings {
        let rate = &setting["messages_per_second"];
        // Once in each round, and for those that seem best in each fresh one.
        assert!(rate["count"] == 2 || rate["count"] == 4, "{setting}");
        assert!(rate["low"].as_f64() <= rate["mean"].as_f64(), "{setting}");
    }
    let page = fs::read_to_string(report.join("report.html")).unwrap();
    assert!(page.contains("Throughput by number of cores") && page.contains("slowest 5 %"));
    assert!(report.join("plot-2.svg").exists());
    // Nothing but the report is left, and nobody.
    assert!(fs::read_dir(&report).unwrap().all(|entry| entry.unwrap().path().is_file()));
    assert_eq!(left_in(scratch.path()), Vec::<String>::new());
    let file = fs::read_to_string(scratch.path().join("lepus.toml")).unwrap();
    let recommended = match &result["recommended"]["shards"] {
        serde_json::Value::String(text) => format!("\"{text}\""),
        number => number.to_string(),
    };
    assert!(file.contains(&format!("shards = {recommended}   # tried by hand")), "{file}");
    assert!(
        file.starts_with("# the shop's broker\n") && file.ends_with("[log]\nlevel = \"error\"\n")
    );
    let checked = lepus(&["config", "--config"]).arg(scratch.path().join("lepus.toml")).output();
    assert!(checked.unwrap().status.success());
}

#[test]
fn an_interrupted_sweep_ends_its_programs_and_leaves_the_file_as_it_was() {
    interrupt(Signal::INT);
}

#[test]
fn a_sweep_whose_terminal_goes_away_ends_its_programs() {
    // Under `nohup` it goes on.
    if !procfs::ignores(std::process::id(), Signal::HUP.as_raw()) {
        interrupt(Signal::HUP);
    }
}

fn interrupt(signal: Signal) {
    let scratch = Scratch::new("tune-interrupted");
    fs::write(scratch.path().join("lepus.toml"), FILE).unwrap();
    let mut command = tune(&scratch, &["--cores", "1", "--rounds", "1000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    // One round is over then.
    let begun = progress.by_ref().map(Result::unwrap).find(|line| line.contains("round 2 of 1000"));
    assert!(begun.is_some());
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
    let rest: Vec<String> = progress.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("is as it was")), "{rest:?}");
    let page = fs::read_to_string(scratch.path().join("report/report.html")).unwrap();
    assert!(page.contains("Ended early"));
    assert_eq!(left_in(scratch.path()), Vec::<String>::new());
    assert_eq!(fs::read_to_string(scratch.path().join("lepus.toml")).unwrap(), FILE);
}

#[test]
fn a_file_that_cannot_be_understood_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new("tune-refused");
    fs::write(scratch.path().join("lepus.toml"), "shards = 2\nlisten = = 3\n").unwrap();
    let output = tune(&scratch, &[]).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint.contains("lepus.toml:2:10: not valid TOML"), "{complaint}");
    assert!(!scratch.path().join("report").exists());
}

#[test]
fn a_plan_for_another_machine_is_printed() {
    let output = lepus(&["tune", "--plan", "--from", "artemis"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("nodes=!0") && text.contains("1,3,5,7,9,11-17"), "{text}");
    let output = lepus(&["tune", "--rounds", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
