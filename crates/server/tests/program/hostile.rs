//! Clients that break the rules, by mistake or not, over real sockets: each gets what it deserves,
//! the others notice nothing, and nothing is left of it.

use crate::running::{Program, Scratch};
use crate::session::{Seen, Session, connect, tcp};
use lepus_amqp::client::ClientOptions;
use lepus_amqp::frame::{FrameKind, write_frame};
use lepus_amqp::method::{Method, basic, channel, connection, queue};
use lepus_base::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn start(scratch: &Scratch, words: &[&str]) -> Program {
    Program::start(scratch, &[&["--shards", "2"], words].concat())
}

/// Says something and hears the broker out.
fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = tcp(address);
    // The broker may have hung up already.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the broker says nothing"),
        _ => answer,
    }
}

/// Ends a connection without a word, so that whatever is on its way is lost.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn frame(kind: FrameKind, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, kind, channel, payload);
    out
}

fn method<'a>(channel: u16, method: impl Into<Method<'a>>) -> Vec<u8> {
    let mut out = Vec::new();
    method.into().encode_frame(channel, &mut out);
    out
}

fn header(channel: u16, size: u64) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0];
    payload.extend(size.to_be_bytes());
    payload.extend([0, 0]);
    frame(FrameKind::Header, channel, &payload)
}

fn publish(channel: u16, queue: &str) -> Vec<u8> {
    method(channel, basic::Publish { routing_key: queue, ..Default::default() })
}

#[test]
fn strangers_are_sent_away_and_named_in_the_log() {
    let scratch = Scratch::new("strangers");
    let program = start(&scratch, &[]);
    let http = b"GET /api/overview HTTP/1.1\r\nHost: broker:5672\r\n\r\n";
    assert_eq!(say(program.amqp, http), b"");
    let line = program.wait_for_log("event=connection-refused");
    assert!(line.contains("HTTP request on the AMQP port"), "{line}");
    assert!(line.contains("127.0.0.1:"), "{line}");
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 505]].concat();
    assert_eq!(say(program.amqp, &hello), b"");
    let line = program.wait_for_log("event=connection-refused");
    assert!(line.contains("TLS handshake on the plain AMQP port"), "{line}");
    for unknown in [&b"AMQP\x00\x01\x00\x00"[..], b"AMQP\x01\x01\x00\x0a", b"SSH-2.0-x\r\n", b"\0"]
    {
        assert_eq!(say(program.amqp, unknown), b"AMQP\0\0\x09\x01", "{unknown:?}");
        let line = program.wait_for_log("event=connection-refused");
        assert!(line.contains("unknown protocol header"), "{line}");
    }
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn who_takes_too_long_to_log_in_is_dropped() {
    let scratch = Scratch::new("mute");
    let program = start(&scratch, &["--limits-handshake-timeout", "1"]);
    assert_eq!(say(program.amqp, b""), b"");
    let line = program.wait_for_log("event=connection-silent");
    assert!(line.contains("limits.silence_timeout"), "{line}");
    assert_eq!(say(program.amqp, b"AMQP"), b"");
    let line = program.wait_for_log("event=connection-dropped");
    assert!(line.contains("handshake took too long"), "{line}");
    let start = say(program.amqp, b"AMQP\0\0\x09\x01");
    assert!(start.starts_with(&[1, 0, 0]), "{start:?}");
    program.wait_for_log("event=connection-dropped");
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn garbage_of_any_kind_ends_its_own_connection_only() {
    let scratch = Scratch::new("garbage");
    let program = start(&scratch, &["--limits-handshake-timeout", "2"]);
    let mut witness = connect(program.amqp);
    witness.declare("witness");
    let mut rng = Rng::new(7);
    for round in 0..400 {
        let length = rng.below(3000) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        if round % 4 == 0 {
            // Looks like a beginning.
            bytes.splice(0..0, *b"AMQP\0\0\x09\x01\x01\0\0\0\0");
        }
        let mut stream = tcp(program.amqp);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    for _ in 0..200 {
        let mut session = connect(program.amqp);
        let mut bytes = Vec::new();
        for _ in 0..rng.below(20) + 1 {
            let payload: Vec<u8> = (0..rng.below(60)).map(|_| rng.below(256) as u8).collect();
            let kind =
                [FrameKind::Method, FrameKind::Header, FrameKind::Body][rng.below(3) as usize];
            bytes.extend(frame(kind, rng.below(3) as u16, &payload));
        }
        session.send_raw(&bytes);
        let _ = session.try_flush();
        let _ = session.stream().shutdown(std::net::Shutdown::Write);
        while !matches!(session.see(), Seen::End | Seen::Closed(..)) {}
    }
    witness.consume("witness", true);
    witness.publish(1, "witness", b"unharmed");
    witness.flush();
    assert!(matches!(witness.see(), Seen::Message { body, .. } if body == b"unharmed"));
    witness.close();
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn each_broken_rule_has_its_code() {
    let scratch = Scratch::new("rules");
    let program = start(&scratch, &["--limits-body-bytes-max", "1MiB"]);
    let mut wrong_end = method(1, queue::Purge { queue: "q", no_wait: false });
    *wrong_end.last_mut().unwrap() = 0;
    let mut deep = vec![b'F', 0, 0, 0, 0];
    for _ in 0..40 {
        let length = deep.len() as u32;
        let mut outer = vec![b'F'];
        outer.extend((length + 1).to_be_bytes());
        outer.push(0);
        outer.extend(&deep);
        deep = outer;
    }
    // queue.declare with a table that is nested too deep.
    let mut declare = vec![0, 50, 0, 10, 0, 0, 1, b'q', 0];
    declare.extend((deep.len() as u32 + 1).to_be_bytes());
    declare.push(0);
    declare.extend(&deep);
    let long_body = [publish(1, "q"), header(1, 3), frame(FrameKind::Body, 1, b"four")].concat();
    let closing: [(&str, u16, Vec<u8>); 13] = [
        ("a frame of unknown type", 501, b"\x09\0\0\0\0\0\0\xce".to_vec()),
        ("a frame without its end", 501, wrong_end),
        ("a frame above frame_max", 501, b"\x01\0\x01\0\x02\0\x01".to_vec()),
        ("a body longer than announced", 501, long_body),
        (
            "a malformed table",
            502,
            frame(FrameKind::Method, 1, b"\0\x32\0\x0a\0\0\x01q\0\0\0\0\x09"),
        ),
        ("a table nested too deep", 502, frame(FrameKind::Method, 1, &declare)),
        ("a method that is the broker's", 503, method(1, queue::PurgeOk { message_count: 1 })),
        ("a second open of the connection", 503, method(0, connection::Open::default())),
        ("a channel that is open already", 504, method(1, channel::Open::default())),
        ("a channel that is not open", 504, method(9, queue::Purge::default())),
        ("a header without a publish", 505, header(1, 5)),
        ("a method between publish and header", 505, [publish(1, "q"), publish(1, "q")].concat()),
        ("an unknown method", 540, frame(FrameKind::Method, 1, &[0, 60, 0, 99])),
    ];
    for (what, code, bytes) in closing {
        let mut session = connect(program.amqp);
        session.send_raw(&bytes);
        session.flush();
        let seen = session.see();
        assert!(matches!(seen, Seen::Closed(found, _) if found == code), "{what}: {seen:?}");
        let line = program.wait_for_log("event=connection-error");
        assert!(line.contains("127.0.0.1:"), "{what}: {line}");
    }
    let mut session = connect(program.amqp);
    session.send_raw(&[publish(1, "q"), header(1, MIB + 1)].concat());
    session.flush();
    let seen = session.see();
    assert!(matches!(seen, Seen::ChannelClosed(406, _)), "{seen:?}");
    // What comes of the body is dropped, and the connection goes on.
    session.send_raw(&frame(FrameKind::Body, 1, &[0; 100_000]));
    assert_eq!(session.call(2, channel::Open::default()), Seen::Method("channel.open-ok"));
    session.close();
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn channels_end_at_the_limit_and_a_million_of_them_leave_nothing() {
    let scratch = Scratch::new("channels");
    let program = start(&scratch, &[]);
    let mut session = connect(program.amqp);
    for number in 2..=2047 {
        session.send(number, channel::Open::default());
    }
    session.flush();
    for _ in 2..=2047 {
        assert_eq!(session.see(), Seen::Method("channel.open-ok"));
    }
    assert_eq!(program.gauge("rabbitmq_channels"), 2047);
    let seen = session.call(2048, channel::Open::default());
    assert!(matches!(seen, Seen::Closed(530, _)), "{seen:?}");
    program.wait_until("closed", |program| program.gauge("rabbitmq_channels") == 0);

    let session = connect(program.amqp);
    let round =
        [method(2, channel::Open::default()), method(2, channel::Close::default())].concat();
    let answer = [method(2, channel::OpenOk {}), method(2, channel::CloseOk {})].concat();
    let rounds = 5000;
    let (before, _) = program.resident_bytes();
    for _ in 0..200 {
        session.stream().write_all(&round.repeat(rounds)).unwrap();
        let mut answers = vec![0; answer.len() * rounds];
        session.stream().read_exact(&mut answers).unwrap();
        assert!(answers == answer.repeat(rounds));
    }
    assert!(program.gauge("rabbitmq_channels_opened_total") >= 1_000_000);
    assert_eq!(program.gauge("rabbitmq_channels"), 1);
    let (after, _) = program.resident_bytes();
    assert!(after < before + 8 * MIB, "{before} {after}");
    session.close();
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn consumers_end_at_the_limit() {
    let scratch = Scratch::new("consumers");
    let program = start(&scratch, &["--limits-consumers-per-channel-max", "1000"]);
    let mut session = connect(program.amqp);
    session.declare("q");
    for _ in 0..1000 {
        session.send(1, basic::Consume { queue: "q", ..Default::default() });
    }
    session.flush();
    for _ in 0..1000 {
        assert_eq!(session.see(), Seen::Method("basic.consume-ok"));
    }
    assert_eq!(program.gauge("rabbitmq_consumers"), 1000);
    let seen = session.call(1, basic::Consume { queue: "q", ..Default::default() });
    let Seen::Closed(530, text) = seen else { panic!("{seen:?}") };
    assert!(text.contains("limit of 1000 consumers"), "{text}");
    // Many on many channels, which go all at once.
    let mut session = connect(program.amqp);
    for number in 2..=100 {
        session.send(number, channel::Open::default());
        for _ in 0..1000 {
            session
                .send(number, basic::Consume { queue: "q", no_wait: true, ..Default::default() });
        }
    }
    session.flush();
    program.wait_until("all there", |program| program.gauge("rabbitmq_consumers") == 99_000);
    reset(session.into_stream());
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn a_client_that_never_reads_takes_little_memory() {
    let scratch = Scratch::new("unread");
    let program = start(&scratch, &["--limits-unread-bytes-max", "1MiB"]);
    let mut publisher = connect(program.amqp);
    publisher.declare("full");
    let body = vec![b'x'; 100_000];
    for _ in 0..600 {
        publisher.publish(1, "full", &body);
        publisher.flush();
    }
    let passive = queue::Declare { queue: "full", passive: true, ..Default::default() };
    assert_eq!(publisher.call(1, passive), Seen::Method("queue.declare-ok"));
    let (before, _) = program.resident_bytes();
    // Deliveries that nobody reads.
    let mut sleepers = Vec::new();
    for number in 0..10 {
        let mut sleeper = connect(program.amqp);
        sleeper.consume("full", number % 2 == 0);
        sleepers.push(sleeper);
    }
    // Answers that nobody reads: the broker stops to listen, and at last nothing can be said.
    let mut talkers = Vec::new();
    for request in [
        method(1, basic::Get { queue: "full", no_ack: false }),
        method(1, passive),
        [
            method(
                1,
                basic::Publish { routing_key: "none", mandatory: true, ..Default::default() },
            ),
            header(1, 50_000),
            frame(FrameKind::Body, 1, &[0; 50_000]),
        ]
        .concat(),
    ] {
        let talker = connect(program.amqp);
        let batch = request.repeat(200_000 / request.len() + 1);
        let mut stream = talker.into_stream();
        stream.set_write_timeout(Some(Duration::from_millis(1500))).unwrap();
        let mut said = 0;
        loop {
            // What was taken in part goes on where it ended: otherwise a slow broker hears no frames.
            match stream.write(&batch[said % batch.len()..]) {
                Ok(count) => said += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
            assert!(said < 1 << 30, "the broker listens for ever");
        }
        talkers.push(stream);
    }
    let (after, _) = program.resident_bytes();
    assert!(after < before + 40 * MIB, "{} MiB more", (after - before) / MIB);
    program.assert_serves();
    for sleeper in sleepers {
        reset(sleeper.into_stream());
    }
    for talker in talkers {
        reset(talker);
    }
    program.wait_until("all but one gone", |program| program.gauge("rabbitmq_connections") == 1);
    // What they had not settled returns in slices.
    let is_back = |program: &Program| program.gauge("rabbitmq_queue_messages_unacked") == 0;
    program.wait_until("deliveries back", is_back);
    let purge = queue::Purge { queue: "full", no_wait: false };
    assert_eq!(publisher.call(1, purge), Seen::Method("queue.purge-ok"));
    publisher.close();
    program.assert_calm();
    let (end, _) = program.resident_bytes();
    // The log keeps its write buffers and what it read ahead, and the allocator what it has: far less
    // than the 60 MB of messages more that one of them would be who keeps what it does not read.
    assert!(end < 100 * MIB, "{} MiB stay", end / MIB);
}

#[test]
fn a_reset_at_any_byte_of_a_publish_leaves_nothing() {
    let scratch = Scratch::new("resets");
    let program = start(&scratch, &[]);
    let mut owner = connect(program.amqp);
    owner.declare("q");
    let body = frame(FrameKind::Body, 1, b"sixteen bytes...");
    let message = [publish(1, "q"), header(1, 16), body].concat();
    for cut in 0..=message.len() {
        let mut session = connect(program.amqp);
        session.send_raw(&message[..cut]);
        session.flush();
        reset(session.into_stream());
    }
    program.wait_until("all but one gone", |program| program.gauge("rabbitmq_connections") == 1);
    // Only the whole one counts, if the reset did not overtake it.
    assert!(program.gauge("rabbitmq_queue_messages") <= 1);
    owner.close();
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn a_reset_at_any_byte_of_a_delivery_loses_no_message() {
    let scratch = Scratch::new("deliveries");
    let program = start(&scratch, &[]);
    let mut owner = connect(program.amqp);
    owner.declare("q");
    let bodies: Vec<Vec<u8>> = (0..20u8).map(|number| vec![number; 7000]).collect();
    for body in &bodies {
        owner.publish(1, "q", body);
    }
    let passive = queue::Declare { queue: "q", passive: true, ..Default::default() };
    assert_eq!(owner.call(1, passive), Seen::Method("queue.declare-ok"));
    for cut in (0..7200).step_by(61) {
        let mut session = connect(program.amqp);
        session.send(1, basic::Qos { prefetch_count: 3, ..Default::default() });
        session.send(1, basic::Consume { queue: "q", ..Default::default() });
        session.flush();
        let mut bytes = vec![0; cut];
        session.stream().read_exact(&mut bytes).unwrap();
        reset(session.into_stream());
    }
    program.wait_until("all but one gone", |program| program.gauge("rabbitmq_connections") == 1);
    owner.consume("q", true);
    for body in &bodies {
        let Seen::Message { body: found, .. } = owner.see() else { panic!("no message") };
        assert!(found == *body, "{} in place of {}", found[0], body[0]);
    }
    owner.close();
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn a_flood_of_connections_without_a_login_keeps_nobody_out() {
    let scratch = Scratch::new("flood");
    let program = start(&scratch, &["--limits-connections-max", "20"]);
    let mut first = connect(program.amqp);
    first.declare("q");
    let silent: Vec<TcpStream> = (0..300).map(|_| tcp(program.amqp)).collect();
    let line = program.wait_for_log("event=connection-silent");
    assert!(line.contains("limits.waiting_max"), "{line}");
    // These say something, but do not log in.
    let mut crowd: Vec<TcpStream> = (0..300).map(|_| tcp(program.amqp)).collect();
    for stream in &mut crowd {
        // It may have given way already.
        let _ = stream.write_all(b"AMQP\0\0\x09\x01");
    }
    // What comes behind those who log in would push them out, as long as it comes.
    program.wait_until("the crowd let in or out", |program| {
        program.gauge("lepus_connections_gave_way_total") >= 300 - 20
    });
    let mut others: Vec<_> = (0..19).map(|_| connect(program.amqp)).collect();
    first.consume("q", true);
    others[18].publish(1, "q", b"served all the same");
    others[18].flush();
    assert!(matches!(first.see(), Seen::Message { .. }));
    drop((silent, crowd));
    program.wait_until("the crowd gone", |program| program.gauge("rabbitmq_connections") == 20);
    // All have logged in: there is no room.
    assert_eq!(say(program.amqp, b""), b"");
    let line = program.wait_for_log("event=connection-refused");
    assert!(line.contains("limits.connections_max"), "{line}");
    for session in others {
        session.close();
    }
    first.close();
    program.assert_serves();
    program.assert_calm();
}

#[test]
fn half_messages_take_no_memory_once_their_senders_are_gone() {
    let scratch = Scratch::new("halves");
    let program = start(&scratch, &["--memory-budget", "64MiB"]);
    let (before, _) = program.resident_bytes();
    let mut halves = Vec::new();
    for _ in 0..60 {
        let mut session = connect(program.amqp);
        session.send_raw(&[publish(1, "q"), header(1, 100 * MIB)].concat());
        for _ in 0..40 {
            session.send_raw(&frame(FrameKind::Body, 1, &[7; 100_000]));
        }
        // Some are closed, since all together would be more than there is room for.
        let _ = session.try_flush();
        halves.push(session);
    }
    let (_, peak) = program.resident_bytes();
    assert!(peak < before + 400 * MIB, "{} MiB", peak / MIB);
    program.assert_serves();
    drop(halves);
    program.assert_calm();
    let (after, _) = program.resident_bytes();
    assert!(after < before + 40 * MIB, "{} MiB stay", (after - before) / MIB);
}

#[test]
fn a_client_may_be_as_slow_as_it_likes() {
    let scratch = Scratch::new("slow");
    let program = start(&scratch, &[]);
    let mut session = connect(program.amqp);
    session.declare("q");
    session.consume("q", false);
    session.publish(1, "q", b"letter by letter");
    for byte in session.take_output() {
        session.stream().write_all(&[byte]).unwrap();
    }
    assert!(matches!(session.see(), Seen::Message { body, .. } if body == b"letter by letter"));
    session.close();
    program.assert_calm();
}

#[test]
fn a_backlog_larger_than_the_memory_goes_to_the_disk() {
    let scratch = Scratch::new("backlog");
    let program = Program::start(&scratch, &["--shards", "1", "--memory-budget", "64MiB"]);
    let mut publisher = connect(program.amqp);
    publisher.declare("q");
    let count = 1500_u32;
    let mut body = vec![b'x'; 200_000];
    for number in 0..count {
        body[..4].copy_from_slice(&number.to_be_bytes());
        // Not even persistent.
        publisher.publish(1, "q", &body);
        let passive = queue::Declare { queue: "q", passive: true, ..Default::default() };
        let mut seen = publisher.call(1, passive);
        // For a moment, until what is in memory is written.
        while matches!(seen, Seen::Blocked(_) | Seen::Unblocked) {
            seen = publisher.see();
        }
        assert_eq!(seen, Seen::Method("queue.declare-ok"));
    }
    publisher.close();
    let (_, peak) = program.resident_bytes();
    assert!(peak < 160 * MIB, "{} MiB for a backlog of 300 MB", peak / MIB);
    let mut consumer = connect(program.amqp);
    consumer.consume("q", false);
    for number in 0..count {
        let Seen::Message { tag, body } = consumer.see() else { panic!("no message") };
        assert!(body.len() == 200_000 && body[..4] == number.to_be_bytes(), "{number}");
        consumer.send(1, basic::Ack { delivery_tag: tag, multiple: false });
        consumer.flush();
    }
    consumer.close();
    program.assert_calm();
}

#[test]
fn a_large_message_for_many_does_not_take_as_many_times_its_size() {
    let scratch = Scratch::new("large");
    let program = start(&scratch, &[]);
    let mut publisher = connect(program.amqp);
    let mut readers = Vec::new();
    for number in 0..8 {
        let mut reader = connect(program.amqp);
        let queue = format!("large-{number}");
        reader.declare(&queue);
        let bind = queue::Bind { queue: &queue, exchange: "amq.fanout", ..Default::default() };
        assert_eq!(reader.call(1, bind), Seen::Method("queue.bind-ok"));
        reader.consume(&queue, number % 2 == 0);
        readers.push(reader);
    }
    let size = 48 << 20;
    let (before, _) = program.resident_bytes();
    let message = [
        method(1, basic::Publish { exchange: "amq.fanout", ..Default::default() }),
        header(1, size as u64),
    ]
    .concat();
    publisher.send_raw(&message);
    let body: Vec<u8> = (0..size).map(|place| (place >> 12) as u8).collect();
    for piece in body.chunks(131_064) {
        publisher.send_raw(&frame(FrameKind::Body, 1, piece));
    }
    publisher.flush();
    for mut reader in readers {
        let Seen::Message { body: found, .. } = reader.see() else { panic!("no message") };
        assert!(found == body);
        reader.close();
    }
    let (_, peak) = program.resident_bytes();
    let times = (peak - before) as f64 / size as f64;
    assert!(times < 4.5, "{times:.1} times its size");
    publisher.close();
    let mut sweeper = connect(program.amqp);
    for number in 0..8 {
        let queue = format!("large-{number}");
        let delete = queue::Delete { queue: &queue, ..Default::default() };
        assert_eq!(sweeper.call(1, delete), Seen::Method("queue.delete-ok"));
    }
    sweeper.close();
    program.assert_calm();
}

#[test]
fn a_login_that_is_cut_anywhere_leaves_nothing() {
    let scratch = Scratch::new("logins");
    let program = start(&scratch, &[]);
    // What a client says on its way in, all at once.
    let said = [
        b"AMQP\0\0\x09\x01".to_vec(),
        method(
            0,
            connection::StartOk {
                mechanism: "PLAIN",
                response: b"\0guest\0guest",
                locale: "en_US",
                ..Default::default()
            },
        ),
        method(0, connection::TuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 }),
        method(0, connection::Open { virtual_host: "/" }),
        method(1, channel::Open::default()),
    ]
    .concat();
    for cut in 0..=said.len() {
        let mut stream = tcp(program.amqp);
        stream.write_all(&said[..cut]).unwrap();
        reset(stream);
    }
    program.assert_calm();
    let wrong = ClientOptions { password: "wrong".into(), ..ClientOptions::default() };
    for _ in 0..100 {
        let refused = Session::log_in(tcp(program.amqp), wrong.clone()).err();
        assert!(matches!(refused, Some(Seen::Closed(403, _))), "{refused:?}");
    }
    program.assert_serves();
    program.assert_calm();
}
