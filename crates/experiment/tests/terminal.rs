//! What `lepus-bench` does where nobody reads what it says.
#![forbid(unsafe_code)]

use lepus_probe::Scratch;
use std::fs::{self, OpenOptions};
use std::process::{Command, ExitStatus};

/// Runs it with both outputs on a device that takes nothing.
fn run(words: &[&str]) -> ExitStatus {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lepus-bench"));
    command.args(words).stdout(full()).stderr(full()).status().unwrap()
}

#[test]
fn what_cannot_be_told_is_no_failure() {
    for words in [&["list"][..], &["--help"], &["backlog", "list"], &["curves", "list"]] {
        assert!(run(words).success(), "{words:?}");
    }
    assert_eq!(run(&["rum"]).code(), Some(1));
    assert_eq!(run(&["large", "--mib", "99999999999"]).code(), Some(1));
}

#[test]
fn a_report_is_written_where_nobody_reads_the_tables() {
    let scratch = Scratch::new("untold");
    let results = scratch.path().display().to_string();
    // There is no broker: a report without figures is one as well.
    let words = ["run", "--lepus=/no/such/lepus", "--brokers=lepus", "--workloads=stream-16"];
    assert_eq!(run(&[&words[..], &["--results", &results]].concat()).code(), Some(1));
    let reports = fs::read_dir(scratch.path()).unwrap();
    assert!(reports.flatten().any(|entry| entry.path().join("report.html").exists()));
}
