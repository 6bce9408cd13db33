//! Many connections and many bytes at once.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;

use crate::client::{Client, await_closed, finish, start};
use crate::core::*;

/// Sends `count` frames while another thread reads and checks the answers.
fn pump(address: SocketAddr, operation: u8, count: u32) {
    let client = Client::connect(address);
    let mut reader = client.stream.try_clone().unwrap();
    let mut writer = client.stream;
    let reading = thread::spawn(move || {
        let mut bytes = [0; 4];
        for expected in 0..count {
            reader.read_exact(&mut bytes).unwrap();
            assert_eq!(u32::from_be_bytes(bytes), expected);
        }
    });
    let mut batch = Vec::new();
    for number in 0..count {
        batch.extend(frame(operation, &number.to_be_bytes()));
        if batch.len() > 10_000 {
            writer.write_all(&batch).unwrap();
            batch.clear();
        }
    }
    writer.write_all(&batch).unwrap();
    reading.join().unwrap();
}

#[test]
fn order_holds_for_every_connection_on_both_ways() {
    let running = start(2);
    let address = running.addresses()[0];
    let threads: Vec<_> = (0..8)
        .map(|index| {
            let operation = if index % 4 < 2 { ECHO } else { FAR };
            thread::spawn(move || pump(address, operation, 20_000))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    await_closed(&running, 8);
    let metrics: Vec<_> = running.metrics().iter().map(|m| m.snapshot()).collect();
    let bytes: u64 = metrics.iter().map(|m| m.bytes_in).sum();
    assert_eq!(bytes, 8 * 20_000 * 7);
    // One read serves many frames.
    let reads: u64 = metrics.iter().map(|m| m.reads).sum();
    assert!(reads < 8 * 20_000 / 4, "{reads} reads");
    finish(running);
}

#[test]
fn an_idle_server_sleeps() {
    let running = start(2);
    let mut clients = Client::one_per_shard(&running);
    for client in &mut clients {
        assert_eq!(client.ask(FAR, b"warm", 4), b"warm");
    }
    // Both shards come to rest: their counters stay the same over many looks.
    let cycles = || -> Vec<u64> {
        let metrics = running.metrics().iter();
        metrics.map(|m| m.snapshot().cycles).collect()
    };
    let mut seen = cycles();
    let mut quiet = 0;
    while quiet < 1000 {
        thread::yield_now();
        let again = cycles();
        quiet = if again == seen { quiet + 1 } else { 0 };
        seen = again;
    }
    drop(clients);
    finish(running);
}

#[test]
fn a_thousand_connections_share_a_shard() {
    let running = start(2);
    let mut clients: Vec<_> = (0..1000).map(|_| Client::connect(running.addresses()[0])).collect();
    for round in 0..3u8 {
        for client in &mut clients {
            client.send(ECHO, &[round; 100]);
        }
        for client in &mut clients {
            assert_eq!(client.read(100), [round; 100]);
        }
    }
    let connections: u64 = running.metrics().iter().map(|m| m.snapshot().connections).sum();
    assert_eq!(connections, 1000);
    drop(clients);
    await_closed(&running, 1000);
    finish(running);
}
