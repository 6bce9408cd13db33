//! What is there after the broker was stopped or killed.

use crate::check::image;
use crate::running::{Program, Scratch, Signal, lepus};
use crate::session::{Seen, Session, connect};
use lepus_amqp::method::{channel, confirm, queue};
use std::collections::BTreeSet;
use std::net::TcpStream;

/// Opens a session in confirm mode.
fn publisher(program: &Program) -> Session<TcpStream> {
    let mut session = connect(program.amqp);
    let select = confirm::Select::default();
    assert_eq!(session.call(1, select), Seen::Method("confirm.select-ok"));
    session
}

/// Waits until everything up to `count` is confirmed.
fn wait_for_confirms(session: &mut Session<TcpStream>, count: u64) {
    let mut open: BTreeSet<u64> = (1..=count).collect();
    while !open.is_empty() {
        match session.see() {
            Seen::Ack { tag, multiple: true } => open.retain(|number| *number > tag),
            Seen::Ack { tag, multiple: false } => assert!(open.remove(&tag)),
            other => panic!("{other:?}"),
        }
    }
}

/// Publishes `bodies` and waits until all of them are confirmed.
fn publish(program: &Program, queue: &str, bodies: &[String]) {
    let mut session = publisher(program);
    for body in bodies {
        session.publish_persistent(1, queue, body.as_bytes());
    }
    session.flush();
    wait_for_confirms(&mut session, bodies.len() as u64);
    session.close();
}

/// Takes what is in a queue, which must be `bodies` and no more.
fn expect(program: &Program, queue: &str, bodies: &[String]) {
    let mut session = expect_first(program, queue, bodies);
    let close = channel::Close { reply_code: 200, ..Default::default() };
    assert_eq!(session.call(1, close), Seen::Method("channel.close-ok"), "{queue} has more");
    session.close();
}

/// Takes messages from a queue, which must be `bodies`.
fn expect_first(program: &Program, queue: &str, bodies: &[String]) -> Session<TcpStream> {
    let mut session = connect(program.amqp);
    let passive = queue::Declare { queue, passive: true, ..Default::default() };
    assert_eq!(session.call(1, passive), Seen::Method("queue.declare-ok"), "{queue}");
    session.consume(queue, true);
    for body in bodies {
        match session.see() {
            Seen::Message { body: found, .. } => {
                assert_eq!(String::from_utf8_lossy(&found), *body, "in {queue}");
            }
            other => panic!("{other:?} in place of {body} of {queue}"),
        }
    }
    session
}

fn bodies(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{name} {number}")).collect()
}

#[test]
fn what_was_confirmed_is_there_after_a_kill() {
    let scratch = Scratch::new("kill");
    let program = Program::start(&scratch, &["--shards", "2"]);
    let names = ["a", "b", "c", "d"];
    // Connections in service at the same time are on different shards, and so are their queues.
    let mut sessions: Vec<_> = names.iter().map(|_| connect(program.amqp)).collect();
    for (session, name) in sessions.iter_mut().zip(names) {
        session.declare(name);
    }
    drop(sessions);
    for name in names {
        publish(&program, name, &bodies(name, 300));
    }
    program.signal(Signal::KILL);
    program.end();
    let program = Program::start(&scratch, &["--shards", "2"]);
    let line = program.wait_for_log("event=recovered");
    assert!(line.contains("4 queues with 1200 messages found"), "{line}");
    assert!(line.contains("did not end in order"), "{line}");
    for name in names {
        expect(&program, name, &bodies(name, 300));
    }
    let (status, log) = program.stop();
    assert!(status.success(), "{log}");
    // What was taken does not come back.
    let program = Program::start(&scratch, &["--shards", "2"]);
    let line = program.wait_for_log("event=recovered");
    assert!(line.contains("4 queues with 0 messages found"), "{line}");
    assert!(line.contains("the last run ended in order"), "{line}");
}

#[test]
fn an_orderly_stop_keeps_what_was_published_whether_confirmed_or_not() {
    let scratch = Scratch::new("term");
    let program = Program::start(&scratch, &["--shards", "2"]);
    connect(program.amqp).declare("q");
    for number in 0..8 {
        // On either shard, that of the queue or the other.
        let mut session = connect(program.amqp);
        for body in bodies("x", 50) {
            session.publish_persistent(1, "q", body.as_bytes());
        }
        if number % 2 == 0 {
            session.close();
        } else {
            session.flush();
            assert_eq!(
                session.call(1, channel::Close { reply_code: 200, ..Default::default() }),
                Seen::Method("channel.close-ok")
            );
        }
    }
    let (status, log) = program.stop();
    assert!(status.success() && !log.contains("event=not-closed"), "{log}");
    let program = Program::start(&scratch, &["--shards", "2"]);
    let line = program.wait_for_log("event=recovered");
    assert!(line.contains("1 queue with 400 messages found"), "{line}");
    assert!(line.contains("the last run ended in order"), "{line}");
}

#[test]
fn the_number_of_shards_may_change_from_start_to_start() {
    let scratch = Scratch::new("shards");
    let mut names: Vec<String> = Vec::new();
    for (round, shards) in ["1", "2", "3", "1"].into_iter().enumerate() {
        let program = Program::start(&scratch, &["--shards", shards]);
        let fresh: Vec<String> = (0..4).map(|number| format!("q{round}-{number}")).collect();
        let mut sessions: Vec<_> = fresh.iter().map(|_| connect(program.amqp)).collect();
        for (session, name) in sessions.iter_mut().zip(&fresh) {
            session.declare(name);
        }
        drop(sessions);
        names.extend(fresh);
        for name in &names {
            publish(&program, name, &bodies(&format!("{round} {name}"), 20));
        }
        if round % 2 == 0 {
            program.signal(Signal::KILL);
            program.end();
        } else {
            assert!(program.stop().0.success());
        }
    }
    let program = Program::start(&scratch, &["--shards", "2"]);
    for (index, name) in names.iter().enumerate() {
        let rounds = index / 4..4;
        let kept = rounds.flat_map(|round| bodies(&format!("{round} {name}"), 20));
        expect(&program, name, &kept.collect::<Vec<_>>());
    }
    assert!(program.stop().0.success());
}

#[test]
fn a_start_removes_the_logs_of_shards_that_are_gone_once_no_queue_names_them() {
    let scratch = Scratch::new("empty-logs");
    let data = scratch.path().join("data");
    let start = |shards| {
        let words = ["--shards", shards, "--segment-size", "1MiB"];
        Program::start(&scratch, &words)
    };
    let logs = || {
        let names = std::fs::read_dir(&data).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("log-")).collect::<BTreeSet<_>>()
    };
    let numbered = |numbers: &[u32]| {
        numbers.iter().map(|number| format!("log-{number:08}")).collect::<BTreeSet<_>>()
    };
    let program = start("4");
    let names = ["queue-a", "queue-b", "queue-c", "queue-d"];
    let mut sessions: Vec<_> = names.iter().map(|_| connect(program.amqp)).collect();
    for (session, name) in sessions.iter_mut().zip(names) {
        session.declare(name);
    }
    drop(sessions);
    for name in names {
        publish(&program, name, &bodies(&format!("body of {name}"), 5));
    }
    assert!(program.stop().0.success());
    // Each queue is in the log of the shard that its connection was on.
    let in_log = |number: u32| {
        let files = image(&data.join(format!("log-{number:08}")));
        let holds = |name: &&str| {
            let body = format!("body of {name} 4").into_bytes();
            files.values().any(|bytes| bytes.windows(body.len()).any(|part| part == body))
        };
        names.into_iter().find(holds).unwrap()
    };
    let by_log = [1, 2, 3, 4].map(in_log);
    let kept = by_log[2];
    let delete = |program: &Program, queue: &str| {
        let mut session = connect(program.amqp);
        let delete = queue::Delete { queue, ..Default::default() };
        assert_eq!(session.call(1, delete), Seen::Method("queue.delete-ok"), "{queue}");
        session.close();
    };
    let program = start("1");
    for name in names.into_iter().filter(|name| *name != kept) {
        delete(&program, name);
    }
    assert!(program.stop().0.success());
    assert_eq!(logs(), numbered(&[0, 1, 2, 3, 4]), "a log goes at a start");
    let program = start("1");
    assert_eq!(logs(), numbered(&[0, 1, 3]));
    // The queue is named with its log also when nothing is in it.
    expect(&program, kept, &bodies(&format!("body of {kept}"), 5));
    assert!(program.stop().0.success());
    let program = start("1");
    assert_eq!(logs(), numbered(&[0, 1, 3]));
    delete(&program, kept);
    assert!(program.stop().0.success());
    let program = start("1");
    assert_eq!(logs(), numbered(&[0, 1]));
    assert!(program.stop().0.success());
}

/// The next start may have fewer shards, and is a first start again: it reads the definitions file.
#[test]
fn queues_of_a_first_start_that_failed_keep_their_messages_with_fewer_shards() {
    let scratch = Scratch::new("failed-first");
    let names: Vec<String> = (0..12).map(|number| format!("q{number}")).collect();
    let queue = |name: &String| {
        format!(
            r#"{{"name":"{name}","vhost":"/","durable":true,"auto_delete":false,"arguments":{{}}}}"#
        )
    };
    let queues: Vec<String> = names.iter().map(queue).collect();
    let file = scratch.path().join("definitions.json");
    std::fs::write(&file, format!(r#"{{"queues":[{}]}}"#, queues.join(","))).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = lepus(&["serve", "--listen", "127.0.0.1:0", "--shards", "4"])
        .args(["--management-listen", "none", "--metrics-listen"])
        .arg(taken.local_addr().unwrap().to_string())
        .arg("--definitions")
        .arg(&file)
        .arg("--data-dir")
        .arg(scratch.path().join("data"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let left = std::fs::read_dir(scratch.path().join("data")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("log-")).count(), 0);
    let words = ["--shards", "1", "--definitions", file.to_str().unwrap()];
    let program = Program::start(&scratch, &words);
    for name in &names {
        publish(&program, name, &bodies(name, 5));
    }
    assert!(program.stop().0.success());
    let program = Program::start(&scratch, &["--shards", "1"]);
    let line = program.wait_for_log("event=recovered");
    assert!(line.contains("12 queues with 60 messages found"), "{line}");
    for name in &names {
        expect(&program, name, &bodies(name, 5));
    }
}

#[test]
fn a_log_that_cannot_be_used_stops_the_start_and_is_named() {
    let scratch = Scratch::new("in-the-way");
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "none",
        "--management-listen",
        "none",
        "--shards",
        "2",
    ];
    std::fs::write(scratch.path().join("log-00000002"), "").unwrap();
    let output = lepus(&words).arg("--data-dir").arg(scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("log-00000002"), "{complaint}");
    assert!(complaint.contains("see to the disk"), "{complaint}");
}

#[test]
fn a_disk_that_is_nearly_full_blocks_publishers_and_serves_consumers() {
    let scratch = Scratch::new("full");
    let program = Program::start(&scratch, &["--shards", "1"]);
    connect(program.amqp).declare("q");
    publish(&program, "q", &bodies("x", 100));
    assert!(program.stop().0.success());
    let segments = || {
        let files = std::fs::read_dir(scratch.path().join("data/log-00000001")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("segment")).collect::<BTreeSet<_>>()
    };
    let before = segments();
    // More than any disk has.
    let words = ["--shards", "1", "--disk-free-limit", "1024TiB", "--segment-size", "1MiB"];
    let program = Program::start(&scratch, &words);
    assert!(segments().is_subset(&before), "{:?} after {before:?}", segments());
    let mut session = connect(program.amqp);
    session.publish_persistent(1, "q", b"one too many");
    session.flush();
    // A publisher is told at its first message after the alarm, which the first of all may precede.
    let alarm = "rabbitmq_alarms_free_disk_space_watermark";
    program.wait_until("an alarm", |program| program.gauge(alarm) == 1);
    session.publish_persistent(1, "q", b"and another");
    session.flush();
    match session.see() {
        Seen::Blocked(reason) => assert!(reason.contains("disk"), "{reason}"),
        other => panic!("{other:?}"),
    }
    expect_first(&program, "q", &bodies("x", 100));
}
