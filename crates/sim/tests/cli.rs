//! The command line of `lepus-sim`.

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

fn sim(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lepus-sim"));
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
        (&["--seeds", "x"][..], "invalid value 'x' for '--seeds <N>'"),
        (&["--seeds=0"], "invalid value '0' for '--seeds <N>'"),
        (&["--sed", "3"], "a similar argument exists: '--seed'"),
        (&["--replay", "f", "--trace"], "cannot be used with"),
        (&["now"], "unexpected argument 'now'"),
    ] {
        let (code, _, complaint) = ended(&mut sim(words));
        assert_eq!(code, Some(2), "{words:?}");
        assert!(complaint.contains(text), "{complaint}");
    }
    let (code, _, complaint) = ended(&mut sim(&["--replay", "/does/not/exist"]));
    assert_eq!(code, Some(1));
    assert!(complaint.starts_with("lepus-sim: /does/not/exist: "), "{complaint}");
}

#[test]
fn output_that_nobody_takes_is_not_the_fault_of_a_seed() {
    let (code, out, _) = ended(&mut sim(&["--seed=1"]));
    assert_eq!(code, Some(0));
    assert!(out.starts_with("1 seeds held"), "{out}");
    for words in [&["--help"][..], &["--seed", "1"], &["--seed", "1", "--trace"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, _, complaint) = ended(sim(words).stdout(full));
        assert_eq!(code, Some(1));
        assert!(complaint.starts_with("lepus-sim: cannot write to standard output"), "{complaint}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, _, complaint) = ended(sim(words).stdout(writer));
        assert_eq!((code, complaint.as_str()), (Some(0), ""));
    }
}
