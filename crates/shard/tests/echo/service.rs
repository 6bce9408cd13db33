//! What a connection can expect.

use std::io::Write;
use std::time::Duration;

use lepus_base::ShardId;
use lepus_shard::{Notice, Unanswered};

use crate::client::{ANSWER_TIMEOUT, Client, await_closed, config, finish, start, start_with};
use crate::core::*;

#[test]
fn bytes_are_echoed_however_they_are_cut() {
    let running = start(1);
    let mut client = Client::connect(running.addresses()[0]);
    let mut bytes = frame(ECHO, b"hello");
    bytes.extend(frame(ECHO, &[7; 40_000]));
    bytes.extend(frame(ECHO, b"x"));
    for piece in [&bytes[..2], &bytes[2..4], &bytes[4..30_000], &bytes[30_000..]] {
        client.stream.write_all(piece).unwrap();
        // The answer to a question on another connection: the piece before it was handled.
        let mut other = Client::connect(running.addresses()[0]);
        assert_eq!(other.ask(ECHO, b"sync", 4), b"sync");
    }
    assert_eq!(client.read(5), b"hello");
    assert_eq!(client.read(40_000), vec![7; 40_000]);
    assert_eq!(client.read(1), b"x");
    finish(running);
}

#[test]
fn one_byte_at_a_time() {
    let running = start(1);
    let mut client = Client::connect(running.addresses()[0]);
    for byte in frame(ECHO, b"slow") {
        client.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.read(4), b"slow");
    finish(running);
}

#[test]
fn questions_to_another_shard_are_answered_through_rings_of_two() {
    let running = start(2);
    let mut clients = Client::one_per_shard(&running);
    for round in 0..200u32 {
        for client in &mut clients {
            client.send(FAR, &round.to_be_bytes());
        }
        for client in &mut clients {
            assert_eq!(client.read(4), round.to_be_bytes());
        }
    }
    let mail: u64 = running.metrics().iter().map(|m| m.snapshot().mail_in).sum();
    // Letters of one cycle share a batch.
    assert!(mail >= 400, "{mail} batches");
    finish(running);
}

#[test]
fn a_directory_change_is_seen_by_everyone_once_it_is_answered() {
    let running = start(3);
    let mut clients = Client::one_per_shard(&running);
    for round in 0..100u8 {
        let declaring = usize::from(round) % 3;
        assert_eq!(clients[declaring].ask(DECLARE, b"", 1), b"d");
        for client in &mut clients {
            assert_eq!(client.ask(VERSION, b"", 1), [round + 1]);
        }
    }
    finish(running);
}

#[test]
fn a_connection_moves_with_its_bytes() {
    let running = start(2);
    let mut clients = Client::one_per_shard(&running);
    let client = &mut clients[0];
    for round in 0..50u8 {
        let to = (round + 1) % 2;
        // An answer before the move, the move, what follows it in the same segment, and the
        // beginning of a frame whose rest comes later.
        let mut bytes = frame(ECHO, b"before");
        bytes.extend(frame(HAND_OVER, &[to]));
        bytes.extend(frame(WHERE, b""));
        bytes.extend(frame(ECHO, b"after"));
        let last = frame(ECHO, b"last");
        bytes.extend(&last[..4]);
        client.stream.write_all(&bytes).unwrap();
        assert_eq!(client.read(6), b"before");
        assert_eq!(client.read(1), b"h");
        assert_eq!(client.read(1), [to]);
        assert_eq!(client.read(5), b"after");
        client.stream.write_all(&last[4..]).unwrap();
        assert_eq!(client.read(4), b"last");
    }
    let counts: Vec<_> = running.metrics().iter().map(|m| m.snapshot()).collect();
    assert_eq!(counts[0].handed_over + counts[1].handed_over, 50);
    assert_eq!(counts[0].adopted + counts[1].adopted, 50);
    drop(clients);
    await_closed(&running, 2);
    finish(running);
}

#[test]
fn a_paused_connection_is_read_again_from_where_it_stopped() {
    let running = start(1);
    let mut client = Client::connect(running.addresses()[0]);
    let mut bytes = Vec::new();
    for _ in 0..20 {
        bytes.extend(frame(PAUSE, b""));
        bytes.extend(frame(ECHO, b"e"));
    }
    client.stream.write_all(&bytes).unwrap();
    assert_eq!(client.read(40), b"pe".repeat(20));
    finish(running);
}

#[test]
fn the_end_of_a_stream_is_seen_after_a_pause_and_what_came_before_it() {
    let running = start(1);
    let mut client = Client::connect(running.addresses()[0]);
    let mut bytes = frame(PAUSE, b"");
    bytes.extend(frame(ECHO, b"heard"));
    client.stream.write_all(&bytes).unwrap();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end(), b"pheard");
    await_closed(&running, 1);
    finish(running);
}

#[test]
fn a_closed_connection_gets_its_last_bytes_even_if_it_talks_on() {
    let running = start(1);
    for _ in 0..20 {
        let mut client = Client::connect(running.addresses()[0]);
        let mut bytes = frame(CLOSE, b"farewell");
        // Unread input at the close would turn it into a reset that eats the farewell.
        bytes.extend(vec![0; 100_000]);
        client.stream.write_all(&bytes).unwrap();
        assert_eq!(client.read_to_end(), b"farewell");
    }
    await_closed(&running, 20);
    finish(running);
}

#[test]
fn a_reader_that_sleeps_blocks_nobody_and_gets_everything() {
    let running = start(1);
    let mut slow = Client::connect(running.addresses()[0]);
    slow.send(BULK, &20_000u16.to_be_bytes());
    let mut quick = Client::connect(running.addresses()[0]);
    for _ in 0..100 {
        assert_eq!(quick.ask(ECHO, b"quick", 5), b"quick");
    }
    assert_eq!(slow.read(20_000 * 1024), vec![b'b'; 20_000 * 1024]);
    assert_eq!(slow.ask(ECHO, b"awake", 5), b"awake");
    finish(running);
}

#[test]
fn a_close_waits_for_a_slow_reader() {
    let running = start(1);
    let mut client = Client::connect(running.addresses()[0]);
    client.send(BULK, &20_000u16.to_be_bytes());
    client.send(CLOSE, b"end");
    let mut quick = Client::connect(running.addresses()[0]);
    assert_eq!(quick.ask(ECHO, b"quick", 5), b"quick");
    let bytes = client.read_to_end();
    assert_eq!(bytes.len(), 20_000 * 1024 + 3);
    assert!(bytes.ends_with(b"bend"));
    finish(running);
}

#[test]
fn resets_leave_no_trace() {
    let running = start(2);
    for round in 0..60u64 {
        let mut client = Client::connect(running.addresses()[0]);
        // Answers that nobody reads make the system answer the close with a reset.
        for _ in 0..50 {
            client.send(ECHO, &[1; 1000]);
        }
        client.read(1);
        drop(client);
        if round % 10 == 0 {
            await_closed(&running, round + 1);
        }
    }
    await_closed(&running, 60);
    finish(running);
}

#[test]
fn connections_are_spread_and_the_limit_holds() {
    let (mut config, log) = config(2);
    config.connections_max = 6;
    let running = start_with(config);
    let mut clients: Vec<_> = (0..6).map(|_| Client::connect(running.addresses()[0])).collect();
    let mut places: Vec<u8> =
        clients.iter_mut().map(|client| client.ask(WHERE, b"", 1)[0]).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 0, 0, 1, 1, 1]);
    let mut refused = Client::connect(running.addresses()[0]);
    assert_eq!(refused.read_to_end(), b"");
    assert!(
        log.iter()
            .any(|notice| matches!(notice, Notice::ConnectionRefused { connections_max: 6, .. }))
    );
    clients.pop();
    await_closed(&running, 1);
    let mut taken = Client::connect(running.addresses()[0]);
    assert_eq!(taken.ask(ECHO, b"in", 2), b"in");
    finish(running);
}

#[test]
fn commands_and_questions_reach_their_shard() {
    let running = start(2);
    let commands = running.commands();
    let versions = commands.wait_all(&EchoQuery::Version, ANSWER_TIMEOUT).unwrap();
    let of = |shard| EchoAnswer::Version(ShardId(shard), 0);
    assert_eq!(versions, [of(0), of(1)]);
    // The answer comes later, from another shard.
    let answer = commands.wait(ShardId(1), EchoQuery::Far, ANSWER_TIMEOUT).unwrap();
    assert_eq!(answer, EchoAnswer::Text("answer of 0 to 1".to_owned()));
    let places = commands.locate(ShardId(1)).unwrap().recv().unwrap();
    assert!(places.iter().all(|address| *address != 0));
    let version = |shard| commands.wait(shard, EchoQuery::Version, ANSWER_TIMEOUT);
    assert_eq!(version(ShardId(2)), Err(Unanswered::Stopped(ShardId(2))));
    finish(running);
    assert_eq!(version(ShardId(0)), Err(Unanswered::Stopped(ShardId(0))));
}

#[test]
fn events_reach_the_log() {
    let (config, log) = config(1);
    let running = start_with(config);
    let mut client = Client::connect(running.addresses()[0]);
    client.send(ECHO, b"x");
    let wanted = format!("accepted {}", client.stream.local_addr().unwrap());
    assert!(
        log.iter().any(|notice| matches!(notice, Notice::Core { event, .. } if event == wanted))
    );
    finish(running);
}

#[test]
fn the_peer_is_described() {
    let running = start(1);
    let mut client = Client::connect(running.addresses()[0]);
    assert_eq!(client.ask(PEER, b"", 13), b"true|false|||");
    finish(running);
}

fn is_open(stream: &std::net::TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn silent_connections_give_way_and_the_oldest_first() {
    let (mut config, _log) = config(1);
    config.admission.waiting_max = 16;
    config.admission.silence_timeout = Duration::from_secs(600);
    config.admission.handshake_timeout = Duration::from_secs(600);
    let running = start_with(config);
    let address = running.addresses()[0];
    let mut silent: Vec<_> = (0..40).map(|_| Client::connect(address)).collect();
    // Behind it all of them have been accepted.
    assert_eq!(Client::connect(address).ask(ECHO, b"speaks", 6), b"speaks");
    let counted = running.entrance().snapshot();
    // Whether the one that spoke was seen before it did.
    let was_silent = u64::from(counted.silent == 15);
    assert_eq!((counted.silent + was_silent, counted.gave_way), (16, 24 + was_silent));
    assert_eq!(counted.expired, 0);
    for gone in &mut silent[..24] {
        assert_eq!(gone.read_to_end(), b"");
    }
    assert!(silent[25..].iter().all(|client| is_open(&client.stream)));
    let first = running.metrics()[0].snapshot();
    assert_eq!(first.accepted, 1, "none of them came to a shard");
    finish(running);
}
