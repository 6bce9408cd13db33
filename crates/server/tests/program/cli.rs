//! The binary's command line, without a running broker.

use crate::running::{ended, lepus};
use lepus_probe::Scratch;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn output(words: &[&str]) -> Output {
    lepus(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_teaches_by_example() {
    for words in [&[][..], &["--help"], &["-h"], &["help"]] {
        let output = output(words);
        assert!(output.status.success());
        let help = text(&output.stdout);
        assert!(help.contains("lepus serve  "), "{help}");
        assert!(help.contains("lepus user add shop"), "{help}");
    }
    let serve = text(&output(&["serve", "--help"]).stdout);
    assert!(serve.contains("LEPUS_SHARDS=2 lepus serve"), "{serve}");
    assert!(serve.contains("--limits-body-bytes-max <VALUE>"), "{serve}");
    assert_eq!(serve, text(&output(&["help", "serve"]).stdout));
    let user = text(&output(&["user", "add", "--help"]).stdout);
    assert!(user.contains("Usage: lepus user add [OPTIONS] <name>"), "{user}");
    assert!(user.contains("Example: lepus user add shop"), "{user}");
    let perf = text(&output(&["help", "perf"]).stdout);
    assert_eq!(perf, text(&output(&["perf", "--help"]).stdout));
    let experiment = text(&output(&["help", "experiment"]).stdout);
    assert_eq!(experiment, text(&output(&["experiment"]).stdout));
    assert!(experiment.contains("five field reports"), "{experiment}");
}

#[test]
fn the_version_is_one_line() {
    for word in ["--version", "-V", "version"] {
        let version = text(&output(&[word]).stdout);
        assert_eq!(version, format!("lepus {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn a_wrong_call_ends_with_2_and_a_hint() {
    for (words, hint) in [
        (&["srve"][..], "a similar subcommand exists: 'serve'"),
        (&["serve", "--shrads", "2"], "a similar argument exists: '--shards'"),
        (&["user", "lst"], "a similar subcommand exists: 'list'"),
        (&["user"], "set-password"),
        (&["vhost", "add"], "Example: lepus vhost add orders"),
        (&["status", "--config", "/does/not/exist"], "cannot read /does/not/exist"),
        (&["completions", "bsh"], "a similar value exists: 'bash'"),
        (&["man", "srve"], "there is no command `srve`"),
        (&["topology", "--plan", "zebra"], "flag --plan: \"zebra\" is not accepted"),
        (&["serv"], "tip: a similar subcommand exists: 'serve'\n"),
    ] {
        let output = output(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let complaint = text(&output.stderr);
        assert!(complaint.contains(hint), "{complaint}");
        assert!(output.stdout.is_empty());
    }
}

/// Bash reads the script, and completes with it.
#[test]
fn shells_and_man_read_what_is_written_for_them() {
    let directory = Scratch::new("man");
    let script = directory.path().join("completions");
    std::fs::write(&script, output(&["completions", "bash"]).stdout).unwrap();
    for (words, last, found) in [
        ("user set-p", "set-p user", "set-password\n"),
        ("perf churn --work", "--work churn", "--workers\n"),
        ("serve --log-level ''", "'' --log-level", "error warning info debug\n"),
        ("serve --store-sync a", "a --store-sync", "always\n"),
        ("man versi", "versi man", "version\n"),
    ] {
        let asks = format!(
            "source {}; COMP_WORDS=(lepus {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _lepus lepus {last}; echo ${{COMPREPLY[@]}}",
            script.display()
        );
        let bash = Command::new("bash").args(["-c", &asks]).output().unwrap();
        assert_eq!(text(&bash.stdout), found, "{}", text(&bash.stderr));
    }
    let man = text(&output(&["man", "user", "add"]).stdout);
    assert!(man.contains(".TH lepus-user-add 1"), "{man}");
    let all = ["man", "--all", directory.path().to_str().unwrap()];
    assert!(output(&all).status.success());
    assert_eq!(std::fs::read_to_string(directory.path().join("lepus-user-add.1")).unwrap(), man);
    assert_eq!(output(&["man", "--all", "/does/not/exist"]).status.code(), Some(1));
}

#[test]
fn a_complaint_that_nothing_takes_changes_no_exit_code() {
    for (words, code) in [
        (&["srve"][..], 2),
        (&["serve", "--shrads", "2"], 2),
        (&["user", "list", "--data-dir", "/does/not/exist"], 1),
        (&["store", "check", "/does/not/exist"], 1),
        (&["perf", "trouhgput"], 2),
        (&["tune", "--shrads"], 2),
        (&["experiment", "fede"], 2),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = lepus(words).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{words:?}: {status}");
    }
}

#[test]
fn what_cannot_be_printed_is_a_failure_and_a_reader_that_went_is_none() {
    for (words, code) in [
        (&["--help"][..], 1),
        (&["version"], 1),
        (&["config"], 1),
        (&["perf", "--help"], 1),
        (&["perf", "throughput", "--help"], 1),
        (&["perf", "--version"], 1),
        (&["ctl", "help"], 70),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = ended_with(lepus(words).stdout(full).stderr(Stdio::piped()));
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(text(&output.stderr).contains("cannot write to standard output"), "{words:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ended_with(lepus(words).stdout(writer).stderr(Stdio::piped()));
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    }
}

fn ended_with(command: &mut Command) -> Output {
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn every_wrong_setting_is_named_at_once() {
    let file = std::env::temp_dir().join(format!("lepus-cli-{}.toml", std::process::id()));
    std::fs::write(&file, "shards = 0\n\n[limits]\nframemax = 1\n").unwrap();
    let output = lepus(&["serve", "--config", file.to_str().unwrap(), "--log-level", "loud"])
        .env("LEPUS_ECONOMY", "perhaps")
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(2));
    let complaint = text(&output.stderr);
    let lines: Vec<&str> = complaint.lines().collect();
    assert_eq!(lines.len(), 4, "{complaint}");
    assert!(lines[0].contains(".toml:1: shards: \"0\""), "{complaint}");
    assert!(
        lines[1].contains(".toml:4: unknown key limits.framemax; did you mean limits.frame_max?"),
        "{complaint}"
    );
    assert!(lines[2].contains("environment variable LEPUS_ECONOMY: \"perhaps\""), "{complaint}");
    assert!(lines[3].contains("flag --log-level: \"loud\""), "{complaint}");
}

#[test]
fn a_missing_file_names_who_named_it() {
    let missing = "/nowhere/lepus.toml";
    let by_flag = output(&["config", "--config", missing]);
    assert!(text(&by_flag.stderr).contains("flag --config: cannot read /nowhere/lepus.toml"));
    let by_variable = lepus(&["config"]).env("LEPUS_CONFIG", missing).output().unwrap();
    assert_eq!(by_variable.status.code(), Some(2));
    assert!(text(&by_variable.stderr).contains("environment variable LEPUS_CONFIG"));
}

#[test]
fn flags_win_over_the_environment() {
    let output = lepus(&["config", "--shards", "4"])
        .env("LEPUS_SHARDS", "3")
        .env("LEPUS_LIMITS_CHANNEL_MAX", "9")
        .env("LEPUS_DEFAULT_PASSWORD", "hidden")
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(shown.contains("\nshards = 4\n"), "{shown}");
    assert!(shown.contains("\nchannel_max = 9\n"), "{shown}");
    assert!(!shown.contains("hidden"), "{shown}");
}

#[test]
fn a_password_is_hashed_with_a_new_salt() {
    let hash = |password: &str| {
        let mut child =
            lepus(&["hash-password"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
        text(&child.wait_with_output().unwrap().stdout).trim().to_owned()
    };
    let (first, second) = (hash("secret\n"), hash("secret\n"));
    assert_ne!(first, second);
    for text in [first, second] {
        use lepus_broker::directory::{HashingAlgorithm, PasswordHash};
        let hash = PasswordHash::from_base64(HashingAlgorithm::Sha256, &text).unwrap();
        assert!(hash.matches(b"secret"));
        assert!(!hash.matches(b"secret\n"));
    }
    assert_eq!(output(&["hash-password"]).status.code(), Some(1));
}

#[test]
fn a_password_without_an_end_is_refused() {
    let mut command = lepus(&["hash-password"]);
    let output = ended(command.stdin(std::fs::File::open("/dev/zero").unwrap()));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "lepus: the password is longer than 65536 bytes\n");
}

#[test]
fn an_order_without_a_broker_says_where_it_looked() {
    let output = output(&["status", "--data-dir", "/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("/nowhere/control.sock"), "{complaint}");
    assert!(complaint.contains("lepus serve"), "{complaint}");
}
