//! Settings that an operator changes while the broker runs, by RabbitMQ's command line tools.

use crate::management::{User, started};
use crate::running::{Program, ended, lepus};
use crate::session::{Seen, connect};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// What a tool printed, and with which code it ended.
fn ctl(program: &Program, words: &[&str]) -> (String, i32) {
    let mut command = lepus(&["ctl"]);
    let output = ended(command.args(words).env("LEPUS_DATA_DIR", &program.data_dir));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout) + &text(&output.stderr), output.status.code().unwrap())
}

/// The same of a tool that succeeds.
fn done(program: &Program, words: &[&str]) -> String {
    let (text, code) = ctl(program, words);
    assert_eq!(code, 0, "{words:?}: {text}");
    text.trim().to_owned()
}

fn eval(program: &Program, text: &str) -> String {
    done(program, &["eval", text])
}

fn status(program: &Program) -> Value {
    let text = done(program, &["status", "--formatter", "json"]);
    serde_json::from_str(&text).unwrap()
}

/// Waits until the health check of alarms says this.
fn wait_for_alarms(guest: &User, resources: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = guest.send("GET", "/health/checks/alarms", "", "");
        let alarms = answer.body["alarms"].as_array().cloned().unwrap_or_default();
        let found: Vec<&str> = alarms.iter().filter_map(|one| one["resource"].as_str()).collect();
        if found == resources {
            assert_eq!(answer.status, if resources.is_empty() { 200 } else { 503 });
            return;
        }
        assert!(Instant::now() < deadline, "{}", answer.body);
        std::thread::yield_now();
    }
}

#[test]
fn a_lower_watermark_holds_publishers_back_until_it_is_raised() {
    let (scratch, program) = started("set-watermark");
    let guest = User::guest(&program);
    let before = status(&program);
    assert_eq!(before["vm_memory_high_watermark_setting"], json!({"relative": 0.5}));
    let mut session = connect(program.amqp);
    session.declare("q");
    session.publish(1, "q", b"before");
    done(&program, &["set_vm_memory_high_watermark", "0"]);
    wait_for_alarms(&guest, &["memory"]);
    session.publish(1, "q", b"while it is short");
    session.flush();
    let seen = session.see();
    assert!(matches!(&seen, Seen::Blocked(why) if why.contains("memory")), "{seen:?}");
    let now = status(&program);
    assert_eq!(now["vm_memory_high_watermark_setting"], json!({"relative": 0.0}));
    assert_eq!(now["alarms"][0]["resource"], "memory");
    assert_eq!(now["vm_memory_high_watermark_limit"], 0);
    // Any part but none is as much as a broker can work with.
    done(&program, &["set_vm_memory_high_watermark", "0.000000001"]);
    assert_eq!(status(&program)["vm_memory_high_watermark_limit"], 16 << 20);
    done(&program, &["set_vm_memory_high_watermark", "0"]);
    done(&program, &["set_vm_memory_high_watermark", "absolute", "200MB"]);
    wait_for_alarms(&guest, &[]);
    assert_eq!(session.see(), Seen::Unblocked);
    let now = status(&program);
    assert_eq!(now["vm_memory_high_watermark_setting"], json!({"absolute": 200_000_000}));
    assert_eq!(now["vm_memory_high_watermark_limit"], 200_000_000);
    for words in [
        &["set_vm_memory_high_watermark", "1.1"][..],
        &["set_vm_memory_high_watermark", "-0.1"],
        &["set_vm_memory_high_watermark", "much"],
        &["set_vm_memory_high_watermark", "absolute", "much"],
    ] {
        assert_ne!(ctl(&program, words).1, 0, "{words:?}");
    }
    // The paths are for the control socket, and what was changed there is taken down.
    let path = "/lepus/ctl/settings/channel_max";
    assert_eq!(guest.code("PUT", path, &json!({"value": 9})).0, 401);
    let rows = guest.get("/lepus/audit");
    let told = rows.as_array().unwrap().iter().filter(|row| row["face"] == "ctl");
    let told: Vec<&str> = told.map(|row| row["what"].as_str().unwrap()).collect();
    let change = "PUT /api/lepus/ctl/settings/vm_memory_high_watermark";
    // What is repeated within a second is one entry with a count.
    assert!(!told.is_empty() && told.iter().all(|what| *what == change), "{told:?}");
    // It is forgotten with the broker.
    assert!(program.stop().0.success());
    let program = Program::start(&scratch, &["--shards", "2"]);
    let limit = |status: &Value| status["vm_memory_high_watermark_limit"].as_u64();
    assert_eq!(limit(&status(&program)), limit(&before));
}

#[test]
fn a_higher_limit_of_free_disk_holds_publishers_back_until_it_is_lowered() {
    let (_scratch, program) = started("set-disk-limit");
    let guest = User::guest(&program);
    done(&program, &["set_disk_free_limit", "9000TB"]);
    wait_for_alarms(&guest, &["disk"]);
    program.wait_for_log("event=disk-limit ");
    // An operator's alarm is another one.
    let alarm = |word: &str| {
        let what = "{resource_limit,disk,node()}";
        let what = if word == "set" { format!("{{{what},[]}}") } else { what.to_owned() };
        eval(&program, &format!("rabbit_alarm:{word}_alarm({what})."));
    };
    alarm("set");
    alarm("clear");
    wait_for_alarms(&guest, &["disk"]);
    alarm("set");
    done(&program, &["set_disk_free_limit", "1"]);
    program.wait_for_log("event=disk-limit-over ");
    wait_for_alarms(&guest, &["disk"]);
    alarm("clear");
    wait_for_alarms(&guest, &[]);
    done(&program, &["set_disk_free_limit", "9000TB"]);
    wait_for_alarms(&guest, &["disk"]);
    assert_eq!(status(&program)["disk_free_limit"], 9_000_000_000_000_000_u64);
    assert_eq!(guest.get("/nodes")[0]["disk_free_limit"], 9_000_000_000_000_000_u64);
    // A queue with messages on disk needs a segment, which it gets only where there is room.
    guest.put("/queues/%2F/q", json!({"durable": true}));
    done(&program, &["set_disk_free_limit", "mem_relative", "0.000001"]);
    wait_for_alarms(&guest, &[]);
    let publish = json!({
        "routing_key": "q", "properties": {"delivery_mode": 2}, "payload": "x",
        "payload_encoding": "string",
    });
    let path = "/exchanges/%2F/amq.default/publish";
    // The log tries again a moment later.
    let deadline = Instant::now() + Duration::from_secs(60);
    while guest.code("POST", path, &publish).0 != 200 {
        assert!(Instant::now() < deadline, "no room is found for a message");
    }
    assert_ne!(ctl(&program, &["set_disk_free_limit", "little"]).1, 0);
}

#[test]
fn what_eval_sets_holds_for_connections_that_come_then() {
    let (_scratch, program) = started("set-env");
    let guest = User::guest(&program);
    let _old = connect(program.amqp);
    assert_eq!(eval(&program, "application:get_env(rabbit, channel_max)."), "{ok,2047}");
    assert_eq!(eval(&program, "application:set_env(rabbit, channel_max, 5)."), "ok");
    assert_eq!(eval(&program, "application:get_env(rabbit, channel_max)."), "{ok,5}");
    let _new = connect(program.amqp);
    let listed = done(&program, &["-q", "-s", "list_connections", "channel_max"]);
    let mut found: Vec<&str> = listed.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["2047", "5"]);
    let settings = guest.get("/config/effective").to_string();
    assert!(settings.contains("channel_max"), "{settings}");
    assert_ne!(ctl(&program, &["eval", "application:set_env(rabbit, channel_max, 65536)."]).1, 0);
    // Who may come from this machine only, as it is told apart over HTTP.
    let from_elsewhere =
        || guest.send("GET", "/whoami", "X-Forwarded-For: 192.0.2.1\r\n", "").status;
    let get = "application:get_env(rabbit, loopback_users).";
    assert_eq!(eval(&program, get), "{ok,[<<\"guest\">>]}");
    assert_eq!(from_elsewhere(), 401);
    assert_eq!(eval(&program, "application:set_env(rabbit, loopback_users, [])."), "ok");
    assert_eq!((eval(&program, get).as_str(), from_elsewhere()), ("{ok,[]}", 200));
    let names = "application:set_env(rabbit, loopback_users, [<<\"guest\">>, <<\"a b\">>]).";
    assert_eq!(eval(&program, names), "ok");
    let set = "{ok,[<<\"guest\">>,<<\"a b\">>]}";
    assert_eq!((eval(&program, get).as_str(), from_elsewhere()), (set, 401));
}

#[test]
fn the_end_of_the_log_is_shown_at_the_level_that_is_set() {
    let (_scratch, program) = started("set-log");
    let told = |words: &[&str]| {
        let mut all = vec!["rabbitmq-diagnostics", "-q", "log_tail"];
        all.extend(words);
        done(&program, &all)
    };
    let last = told(&["-N", "2"]);
    assert_eq!(last.lines().count(), 2, "{last}");
    let whole = told(&[]);
    assert!(whole.contains("event=started"), "{whole}");
    assert!(last.lines().all(|line| whole.contains(line)), "{last} in {whole}");
    // Looks are told at the level of debugging alone.
    assert!(!told(&["-N", "10000"]).contains("level=debug"));
    done(&program, &["set_log_level", "debug"]);
    done(&program, &["status"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !told(&["-N", "10000"]).contains("level=debug") {
        assert!(Instant::now() < deadline, "{}", told(&[]));
    }
    // Each look at the log is a line of that level, which the next look sees.
    let stream = ["rabbitmq-diagnostics", "-q", "log_tail_stream", "-d", "1"];
    while !done(&program, &stream).contains("level=debug") {
        assert!(Instant::now() < deadline, "nothing is streamed");
    }
    done(&program, &["set_log_level", "error"]);
    assert_ne!(ctl(&program, &["set_log_level", "loud"]).1, 0);
}

#[test]
fn a_listener_that_does_not_open_again_is_named() {
    let (_scratch, program) = started("set-listeners");
    for (close, open) in [("suspend_listeners", "resume_listeners"), ("stop_app", "start_app")] {
        done(&program, &[close]);
        // The port was chosen by the system, which has it back.
        let other = TcpListener::bind(program.amqp).unwrap();
        let (text, code) = ctl(&program, &[open]);
        assert_eq!(code, 69, "{open}: {text}");
        let address = program.amqp.to_string();
        assert!(text.contains(&address) && text.contains("ss -ltnp"), "{open}: {text}");
        drop(other);
        done(&program, &[open]);
        connect(program.amqp).close();
    }
}
