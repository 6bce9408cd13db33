//! Shards that keep what they are sent: files, the orderly end, and the start after it.

mod core;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::core::{COUNT, Closed, FAR, LATE, OWED, StoreAnswer, StoreCore, StoreQuery};
use lepus_base::ShardId;
use lepus_probe::Scratch;
use lepus_shard::{
    Admission, Clock, Config, FreeLimit, IdlePreset, Listener, Running, Runtime, StartError,
    Storage, Transport,
};

/// Longer than a shard ever takes to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

fn try_start(directory: &Path, shards: u16) -> Result<Running<StoreCore>, StartError> {
    let (notices, _log) = lepus_shard::notices(|_| false);
    let clock = Clock::start();
    let config = Config {
        plan: lepus_topology::Plan::anywhere(
            usize::from(shards),
            usize::from(shards) <= lepus_topology::usable_cpus().count(),
        ),
        idle: IdlePreset::Adaptive,
        ring_capacity: 2,
        connections_max: usize::MAX,
        admission: Admission {
            waiting_max: 10_000,
            silence_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(10),
        },
        listeners: vec![Listener {
            address: "127.0.0.1:0".parse().unwrap(),
            transport: Transport::Plain,
            backlog: 1024,
        }],
        tls: None,
        storage: Some(Storage {
            directory: directory.to_owned(),
            free_limit: FreeLimit::default(),
            open_files_max: usize::MAX,
        }),
        stop_timeout: Duration::from_secs(30),
        notices,
        clock,
    };
    let directory = directory.to_owned();
    let closed = Closed::default();
    Runtime::start(config, move |shard, out| {
        StoreCore::open(&directory, shard, shards, clock.now(), closed.clone(), out)
    })
}

fn start(directory: &Path, shards: u16) -> Running<StoreCore> {
    try_start(directory, shards).unwrap()
}

fn connect(running: &Running<StoreCore>) -> TcpStream {
    let stream = TcpStream::connect(running.addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// What a shard keeps.
fn kept(running: &Running<StoreCore>, shard: u16) -> Vec<u8> {
    loop {
        match running.commands().wait(ShardId(shard), StoreQuery::Kept, ANSWER_TIMEOUT).unwrap() {
            StoreAnswer::Kept(Some(kept)) => return kept,
            StoreAnswer::Kept(None) => {}
            other => panic!("{other:?}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn what_was_confirmed_is_there_after_an_orderly_end() {
    let scratch = Scratch::new("shard");
    let running = start(scratch.path(), 1);
    let mut client = connect(&running);
    let text: Vec<u8> = (0..50_000).map(|number| b'a' + (number % 26) as u8).collect();
    for part in text.chunks(1000) {
        client.write_all(part).unwrap();
        assert_eq!(read(&mut client, part.len()), part);
    }
    drop(client);
    running.stop();
    let report = running.join();
    assert_eq!((report.cut, report.unclosed), (0, 0));

    let running = start(scratch.path(), 1);
    let answer = running.commands().wait(ShardId(0), StoreQuery::WasClean, ANSWER_TIMEOUT).unwrap();
    assert_eq!(answer, StoreAnswer::WasClean(true));
    assert!(kept(&running, 0) == text);
    running.stop();
    assert_eq!(running.join().unclosed, 0);
}

#[test]
fn mail_under_way_at_the_end_is_kept() {
    let scratch = Scratch::new("shard");
    let running = start(scratch.path(), 3);
    let mut clients: Vec<TcpStream> = (0..6).map(|_| connect(&running)).collect();
    for client in &mut clients {
        client.write_all(&[FAR; 1000]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    }
    // Everything was received once the other side has ended, too.
    for client in &mut clients {
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    }
    running.stop();
    assert_eq!(running.join().unclosed, 0);
    let running = start(scratch.path(), 3);
    let count: usize = (0..3).map(|shard| kept(&running, shard).len()).sum();
    assert_eq!(count, 6000);
    running.stop();
    running.join();
}

#[test]
fn no_shard_closes_while_another_one_owes_it_something() {
    let scratch = Scratch::new("shard");
    let running = start(scratch.path(), 3);
    let mut client = connect(&running);
    client.write_all(&[OWED; 5]).unwrap();
    assert_eq!(read(&mut client, 5), [OWED; 5]);
    drop(client);
    running.stop();
    assert_eq!(running.join().unclosed, 0);
    let running = start(scratch.path(), 3);
    let count: usize = (0..3).map(|shard| kept(&running, shard).len()).sum();
    assert_eq!(count, 5);
    running.stop();
    running.join();
}

#[test]
fn a_shard_that_has_closed_answers_until_the_others_have_too() {
    let scratch = Scratch::new("shard");
    let running = start(scratch.path(), 2);
    let mut client = connect(&running);
    client.write_all(&[LATE]).unwrap();
    assert_eq!(read(&mut client, 1), [LATE]);
    drop(client);
    running.stop();
    assert_eq!(running.join().unclosed, 0);
}

#[test]
fn a_core_that_cannot_be_made_stops_the_start_and_says_why() {
    let scratch = Scratch::new("shard");
    // In the way of the directory of shard 1's log.
    std::fs::write(scratch.path().join("log-00000002"), "").unwrap();
    match try_start(scratch.path(), 3) {
        Err(error @ StartError::Core { shard: ShardId(1), .. }) => {
            let text = error.to_string();
            assert!(text.contains("shard 1: ") && text.contains("log-00000002"), "{text}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
    // The others ended in order.
    std::fs::remove_file(scratch.path().join("log-00000002")).unwrap();
    let running = start(scratch.path(), 3);
    let clean = running.commands().wait_all(&StoreQuery::WasClean, ANSWER_TIMEOUT).unwrap();
    let was_clean = &StoreAnswer::WasClean(true);
    assert_eq!((&clean[0], &clean[2]), (was_clean, was_clean));
    running.stop();
    running.join();
}

#[test]
fn a_count_is_answered_while_the_disk_works() {
    let scratch = Scratch::new("shard");
    let running = start(scratch.path(), 1);
    let mut client = connect(&running);
    client.write_all(&[b'x', COUNT]).unwrap();
    let mut answers = read(&mut client, 2);
    answers.sort_unstable();
    assert_eq!(answers, [1, b'x']);
    drop(client);
    running.stop();
    running.join();
}
