//! Everything that must pass before a change lands, in sections that run one after another.
//!
//! A failing section does not stop the next one: a run reports all that is wrong. Behind the summary
//! come the last lines of every section that failed: who has only the end of a long output can tell
//! what happened. The last line counts the sections.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crate::tee;

/// One section: its name, what it asserts, and the commands that must all succeed.
struct Section {
    name: &'static str,
    asserts: &'static str,
    commands: &'static [&'static [&'static str]],
}

const SECTIONS: [Section; 13] = [
    Section {
        name: "format",
        asserts: "the source is formatted as rustfmt does it",
        commands: &[&["cargo", "fmt", "--all", "--check"]],
    },
    Section {
        name: "lint",
        asserts: "the compiler and clippy have nothing to say",
        commands: &[
            &["cargo", "clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
            // What `lepus` takes of it: a build of the whole workspace has the other half as well.
            &[
                "cargo",
                "clippy",
                "--package",
                "lepus-experiment",
                "--no-default-features",
                "--",
                "-D",
                "warnings",
            ],
        ],
    },
    Section {
        name: "tidy",
        asserts: "the project's own rules hold, for its source and for what it is built from",
        commands: &[&["cargo", "xtask", "tidy"], &["cargo", "xtask", "dependencies"]],
    },
    Section {
        name: "unit",
        asserts: "units and behaviour of the pure core, in virtual time",
        commands: &[&["cargo", "test", "--workspace"]],
    },
    Section {
        name: "build",
        asserts: "the release build",
        commands: &[&["cargo", "build", "--release", "--workspace", "--exclude", "xtask"]],
    },
    Section {
        name: "instructions",
        asserts: "a message costs the core no more instructions than recorded",
        commands: &[&["make", "--no-print-directory", "instructions-core"]],
    },
    Section {
        name: "sim",
        asserts: "1,000 seeds of the simulator, and 1,000 half of which are under strain; most with disks and restarts",
        commands: &[&["make", "--no-print-directory", "sim", "SEEDS=1000"]],
    },
    Section {
        name: "kill",
        asserts: "eight kills under load and six while the disk fails lose nothing, and the test finds forged faults",
        commands: &[
            &["make", "--no-print-directory", "kill-test", "ROUNDS=8", "SHARDS=1,2", "FAILING=0"],
            &[
                "make",
                "--no-print-directory",
                "kill-test",
                "ROUNDS=6",
                "SHARDS=1,2",
                "FAILING=1",
                "FLAGS=--segment-size 1MiB",
            ],
            &["target/release/lepus-kill", "--prove"],
        ],
    },
    Section {
        name: "clients",
        asserts: "real clients against the binary, one and two shards",
        commands: &[&["env", "SHARDS=1 2", "tests/e2e/run"]],
    },
    Section {
        name: "management",
        asserts: "rabbit-hole, a client of the management API, with its own set-up by rabbitmqctl",
        commands: &[&["tests/management/suites"]],
    },
    Section {
        name: "load",
        asserts: "the reference load tester, ten seconds",
        commands: &[&["tests/e2e/perf-test", "10"]],
    },
    Section {
        name: "locality",
        asserts: "messages stay on their shard, a hot queue's connections are spread, order holds",
        commands: &[&["tests/locality/run", "--seconds", "3", "--shards", "2"]],
    },
    Section {
        name: "reports",
        asserts: "six tiny experiments leave reports that a browser shows with all their lines",
        commands: &[
            &[".ci/install", "chromium"],
            &["tests/reports/run", "alone", "--scale", "0.002", "--rounds", "1", "--seconds", "2"],
        ],
    },
];

/// Runs the sections named in `only`, or all of them.
pub fn run(root: &Path, only: &[String]) -> ExitCode {
    let unknown =
        only.iter().find(|name| SECTIONS.iter().all(|section| section.name != name.as_str()));
    if let Some(name) = unknown {
        let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
        eprintln!("no section `{name}`; there are: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    let mut results = Vec::new();
    for section in &SECTIONS {
        if !only.is_empty() && !only.iter().any(|name| name == section.name) {
            continue;
        }
        println!("\n=== {}: {} ===", section.name, section.asserts);
        let start = Instant::now();
        let outcome = section.commands.iter().try_for_each(|command| tee::run(root, command));
        let seconds = start.elapsed().as_secs();
        println!("--- {}: {} in {seconds} s", section.name, verdict(outcome.is_ok()));
        results.push((section.name, outcome, seconds));
    }
    println!("\n=== summary ===");
    for (name, outcome, seconds) in &results {
        println!("{name:12} {:6} {seconds:5} s", verdict(outcome.is_ok()));
    }
    let mut failed = 0;
    for (name, outcome, _) in &results {
        let Err(lines) = outcome else { continue };
        failed += 1;
        println!("\n=== the end of {name} ===\n{}", lines.join("\n"));
    }
    println!("{} passed, {failed} failed", results.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn verdict(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_names_of_their_own() {
        for (at, section) in SECTIONS.iter().enumerate() {
            assert!(!section.commands.is_empty());
            assert!(SECTIONS[..at].iter().all(|other| other.name != section.name));
        }
    }
}
