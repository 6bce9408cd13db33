//! What signals do to the running program.

use crate::client::log_in;
use crate::running::{Program, Scratch, Signal, lepus};
use lepus_broker::Broker;
use lepus_broker::directory::{HashingAlgorithm, PasswordHash};
use rustix::fs::OFlags;
use rustix::process::{Pid, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

fn write_certificate(directory: &Path) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let (certificate_path, key_path) = (directory.join("c.pem"), directory.join("k.pem"));
    std::fs::write(&certificate_path, certificate.pem()).unwrap();
    std::fs::write(&key_path, key.serialize_pem()).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    (text(&certificate_path), text(&key_path))
}

#[test]
fn a_hang_up_reads_the_certificate_again() {
    let scratch = Scratch::new("tls");
    let (certificate, key) = write_certificate(scratch.path());
    let words =
        ["--tls-listen", "127.0.0.1:0", "--tls-certificate", &certificate, "--tls-key", &key];
    let program = Program::start(&scratch, &words);
    assert!(program.banner.contains("amqps    127.0.0.1:"), "{}", program.banner);
    write_certificate(scratch.path());
    program.signal(Signal::HUP);
    program.wait_for_log("event=tls-reloaded");
    std::fs::write(&certificate, "broken").unwrap();
    program.signal(Signal::HUP);
    let line = program.wait_for_log("event=tls-reload-failed");
    assert!(line.contains("c.pem"), "{line}");
    assert!(program.stop().0.success());
}

#[test]
fn a_certificate_of_no_use_stops_the_start_and_names_the_file() {
    let scratch = Scratch::new("tls-broken");
    let other = Scratch::new("tls-other");
    let (certificate, key) = write_certificate(scratch.path());
    let (_, foreign) = write_certificate(other.path());
    let file = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = file("broken.pem", "broken");
    let pem = |name: &str| format!("-----BEGIN {name}-----\nAAAA\n-----END {name}-----\n");
    let garbage = file("garbage.pem", &pem("CERTIFICATE"));
    let no_key = file("no-key.pem", &pem("PRIVATE KEY"));
    let missing = "/does/not/exist.pem".to_owned();
    for (certificate, key, expected) in [
        (&certificate, &broken, format!("TLS: {broken} has no key in PEM")),
        (&broken, &key, format!("TLS: {broken} has no certificate in PEM")),
        (&missing, &key, format!("TLS: the certificate in {missing} cannot be read: No such file")),
        (&certificate, &missing, format!("TLS: the key in {missing} cannot be read: No such file")),
        (
            &certificate,
            &foreign,
            format!("TLS: the key in {foreign} is not that of the certificate in {certificate}"),
        ),
        (&garbage, &key, format!("TLS: the certificate in {garbage} is not in the form of X.509")),
        (&certificate, &no_key, format!("TLS: the key in {no_key} cannot be used: ")),
    ] {
        let mut command = lepus(&["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "none"]);
        command.args(["--management-listen", "none", "--management-tls-listen", "none"]);
        command.args(["--tls-listen", "127.0.0.1:0", "--tls-certificate", certificate]);
        command.args(["--tls-key", key, "--data-dir"]).arg(scratch.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.contains(&expected), "{complaint}");
        assert!(!complaint.contains("peer"), "{complaint}");
    }
}

#[test]
fn a_stop_waits_for_clients_but_not_for_ever() {
    let scratch = Scratch::new("stop");
    let program = Program::start(&scratch, &["--stop-timeout", "1"]);
    // It never answers the broker's connection.close.
    let client = log_in(program.amqp, "guest", "guest", "/").unwrap();
    let (status, log) = program.stop();
    assert!(status.success(), "{log}");
    assert!(log.contains("event=stopped connections_cut=1 "), "{log}");
    drop(client);
}

#[test]
fn a_second_request_to_stop_ends_at_once() {
    let scratch = Scratch::new("stop-twice");
    let program = Program::start(&scratch, &["--stop-timeout", "1h"]);
    // It never answers the broker's connection.close.
    let client = log_in(program.amqp, "guest", "guest", "/").unwrap();
    program.signal(Signal::TERM);
    program.wait_for_log("event=stopping");
    program.signal(Signal::INT);
    let (status, log) = program.end();
    assert_eq!(status.code(), Some(130), "{log}");
    assert!(log.contains("told to stop twice"), "{log}");
    drop(client);
}

/// A pipe that takes nothing more; it does as long as the reading end lives.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 512]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn a_standard_error_that_nobody_reads_does_not_hold_up_the_end() {
    let scratch = Scratch::new("stop-unread");
    let (_reader, writer) = full_pipe();
    let program = Program::start_with(&scratch, &["--stop-timeout", "1h"], writer);
    // It never answers the broker's connection.close.
    let client = log_in(program.amqp, "guest", "guest", "/").unwrap();
    program.signal(Signal::TERM);
    // The stop has begun once nobody is heard any more.
    while std::net::TcpStream::connect(program.amqp).is_ok() {
        std::thread::yield_now();
    }
    program.signal(Signal::INT);
    assert_eq!(program.end().0.code(), Some(130));
    drop(client);
}

#[test]
fn a_standard_output_that_nobody_reads_holds_up_neither_start_nor_stop() {
    let scratch = Scratch::new("start-unread");
    let (_reader, writer) = full_pipe();
    let mut command = lepus(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "none",
        "--management-listen",
        "none",
        "--management-tls-listen",
        "none",
    ]);
    command.arg("--data-dir").arg(scratch.path().join("data"));
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // Were it held up, it would be ended here.
    let pid = rustix::process::Pid::from_child(&child);
    let (started, is_late) = std::sync::mpsc::channel();
    let guard = std::thread::spawn(move || {
        if is_late.recv_timeout(std::time::Duration::from_secs(30)).is_err() {
            rustix::process::kill_process(pid, Signal::KILL).unwrap();
        }
    });
    assert!(lines.any(|line| line.contains("event=started")), "it does not get as far");
    started.send(()).unwrap();
    guard.join().unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(lines.any(|line| line.contains("event=stopped")));
    assert!(child.wait().unwrap().success());
}

/// Set where the program of this test is the child that panics.
const PANICS: &str = "LEPUS_TEST_PANICS";

#[test]
fn a_thread_that_panics_ends_the_program_though_nobody_reads_its_standard_error() {
    if std::env::var_os(PANICS).is_some() {
        return panic_on_a_shard();
    }
    let (_reader, writer) = full_pipe();
    let name =
        "signals::a_thread_that_panics_ends_the_program_though_nobody_reads_its_standard_error";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(PANICS, "1");
    let status = child.stdout(Stdio::null()).stderr(writer).status().unwrap();
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()));
}

fn panic_on_a_shard() {
    lepus_server::last_words::take_panics();
    let config = lepus_server::config::Config::preset();
    let plan = lepus_server::serve::Plan::new(&config).unwrap();
    let room = lepus_server::serve::Room::new(&config, None, plan.shards);
    let (notices, _log) = lepus_shard::notices(|_| false);
    let mut config = plan.runtime(&config, lepus_shard::Clock::start(), notices, room);
    config.listeners.clear();
    config.storage = None;
    let started = lepus_shard::Runtime::start(config, |shard, _| -> Result<Broker, String> {
        panic!("shard {shard} does not go on")
    });
    unreachable!("the panic has ended the program: {}", started.is_ok());
}

#[test]
fn a_hang_up_says_what_it_did_and_does_not_hold_up_a_stop() {
    let scratch = Scratch::new("reload");
    let program = Program::start(&scratch, &[]);
    program.signal(Signal::HUP);
    program.wait_for_log("event=nothing-to-reload");
    assert!(program.stop().0.success());
    let (certificate, key) = write_certificate(scratch.path());
    let words =
        ["--tls-listen", "127.0.0.1:0", "--tls-certificate", &certificate, "--tls-key", &key];
    let program = Program::start(&scratch, &words);
    // Reading it waits for a writer that never comes.
    std::fs::remove_file(&key).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &key, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    program.signal(Signal::HUP);
    program.wait_for_log("event=tls-reload ");
    let (status, log) = program.stop();
    assert!(status.success(), "{log}");
    assert!(log.contains("event=stopped"), "{log}");
}

#[test]
fn the_log_can_be_json() {
    let scratch = Scratch::new("json");
    // Fewer connections than any limit of files allows: otherwise the start says so.
    let few = ["--limits-connections-max", "100", "--limits-waiting-max", "100"];
    let json = ["--log-format", "json", "--economy"];
    let program = Program::start(&scratch, &[&json[..], &few].concat());
    let (status, log) = program.stop();
    assert!(status.success());
    let events: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["shards", "started", "stopping", "stopped"]);
}

/// Both ends of a new terminal.
fn terminal() -> (OwnedFd, File) {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits() as i32);
    (near, options.open(name.to_str().unwrap()).unwrap())
}

fn is_shown(terminal: &File) -> bool {
    tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO)
}

/// Waits until a password is asked for.
fn asked(stderr: &mut impl Read) {
    let mut text = Vec::new();
    while !text.ends_with(b"password: ") {
        let mut letter = [0];
        assert_eq!(stderr.read(&mut letter).unwrap(), 1, "{}", String::from_utf8_lossy(&text));
        text.push(letter[0]);
    }
}

#[test]
fn who_ends_it_at_the_password_gets_a_terminal_that_shows_what_is_typed() {
    let (near, terminal) = terminal();
    for words in [&["hash-password"][..], &["user", "add", "shop"]] {
        for signal in [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP] {
            let mut command = lepus(words);
            command.stdin(terminal.try_clone().unwrap()).stderr(Stdio::piped());
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            asked(&mut child.stderr.take().unwrap());
            assert!(!is_shown(&terminal));
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
            assert!(is_shown(&terminal), "{words:?} {signal:?}");
        }
    }
    drop(near);
}

#[test]
fn a_stop_at_the_password_shows_what_is_typed_until_it_goes_on() {
    let (near, terminal) = terminal();
    let mut command = lepus(&["hash-password"]);
    command.stdin(terminal.try_clone().unwrap()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    asked(&mut stderr);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TSTP).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    assert!(is_shown(&terminal));
    kill_process(pid, Signal::CONT).unwrap();
    asked(&mut stderr);
    assert!(!is_shown(&terminal));
    rustix::io::write(&near, b"secret\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(is_shown(&terminal));
    let hash = String::from_utf8(output.stdout).unwrap();
    let hash = PasswordHash::from_base64(HashingAlgorithm::Sha256, hash.trim()).unwrap();
    assert!(hash.matches(b"secret"));
}
