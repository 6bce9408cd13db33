//! The command line of `lepus-kill`.

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

fn kill(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lepus-kill"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.spawn().unwrap().wait_with_output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_wrong_call_ends_with_2_and_says_why() {
    for (words, text) in [
        (&["--rounds", "0"][..], "invalid value '0' for '--rounds <N>': 0 is not in 1.."),
        (&["--shards=0"], "invalid value '0' for '--shards <N,...>': 0 is not in 1..=256"),
        (&["--shards", "2,x"], "invalid value 'x' for '--shards <N,...>'"),
        (&["--port", "0"], "'--port <N>'"),
        (&["--round", "3"], "a similar argument exists: '--rounds'"),
    ] {
        let (code, _, complaint) = ended(&mut kill(words));
        assert_eq!(code, Some(2), "{words:?}");
        assert!(complaint.contains(text), "{complaint}");
    }
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    let (code, help, _) = ended(&mut kill(&["--help"]));
    assert_eq!(code, Some(0));
    for word in ["--prove", "--keep-going", "torn commits", "[default: 200]", "Example: lepus-kill"]
    {
        assert!(help.contains(word), "{word}: {help}");
    }
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (code, _, complaint) = ended(kill(&["--help"]).stdout(full));
    assert_eq!(code, Some(1));
    assert!(complaint.starts_with("lepus-kill: cannot write to standard output"), "{complaint}");
}

#[test]
fn a_program_that_is_missing_or_ends_is_told_once() {
    let directory = lepus_probe::Scratch::new("kill");
    let place = directory.path().to_str().unwrap();
    let (code, out, complaint) = ended(&mut kill(&[
        "--directory",
        place,
        "--port",
        "1",
        "--lepus",
        "/does/not/exist",
        "--shards",
        "2,1",
    ]));
    assert_eq!(code, Some(1));
    assert!(
        out.contains("--shards 2") && out.contains("in turn from start to start: 2, 1"),
        "{out}"
    );
    assert!(complaint.contains("there is no program \"/does/not/exist\""), "{complaint}");
    let (code, _, complaint) =
        ended(&mut kill(&["--directory", place, "--port", "1", "--broker", "false"]));
    assert_eq!(code, Some(1));
    assert!(complaint.contains("the broker ended while it started: exit status: 1"), "{complaint}");
    assert_eq!(complaint.matches("broker.log").count(), 1, "{complaint}");
}
