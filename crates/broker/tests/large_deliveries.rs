//! What many clients get at once, and each of them much of it, is written in portions of a turn: others are served
//! between them.

use lepus_amqp::method::{basic, tx};
use lepus_sim::{Channel, Options, World};

/// What a turn writes at most to those with little to send, and as much to others; what is one write more of each; and
/// the answers of others.
const TURN_BYTES_MAX: u64 = 2 * (1 << 20) + 2 * (512 << 10) + 4096;

/// A world whose sockets take much; so many consumers, each of a queue of its own behind `amq.fanout`.
fn fan(consumers: usize) -> (World, Vec<Channel>) {
    let world = World::with(Options { shards: 1, socket_bytes_max: 4 << 20, ..Options::default() });
    let all: Vec<Channel> = (0..consumers).map(|_| world.channel(0)).collect();
    for (number, channel) in all.iter().enumerate() {
        let queue = format!("q{number}");
        channel.declare(&queue);
        channel.bind(&queue, "amq.fanout", "");
        channel.consume_no_ack(&queue, "c");
    }
    (world, all)
}

/// Rounds until nothing is left to do: the most that was written in one, and in which of them `is_done`.
fn most_in_a_turn(world: &World, mut is_done: impl FnMut() -> bool) -> (u64, Option<usize>) {
    let (mut before, mut most, mut done) = (world.bytes_out(0), 0, None);
    for round in 1.. {
        let is_busy = world.round();
        let now = world.bytes_out(0);
        most = most.max(now - core::mem::replace(&mut before, now));
        if done.is_none() && is_done() {
            done = Some(round);
        }
        if !is_busy {
            break;
        }
    }
    (most, done)
}

#[test]
fn a_fan_out_of_large_bodies_is_written_in_portions_and_others_are_answered_meanwhile() {
    for bytes in [20_000, 40_000, 200_000, 1_000_000] {
        let (world, consumers) = fan(100);
        let (publisher, other) = (world.channel(0), world.channel(0));
        other.declare("other");
        let (most, answered) = world.quietly(|| {
            publisher.publish("amq.fanout", "", vec![b'x'; bytes]);
            other.send(basic::Get { queue: "other", no_ack: true });
            most_in_a_turn(&world, || other.answer().is_some())
        });
        assert!(most <= TURN_BYTES_MAX, "{most} bytes in one turn, bodies of {bytes}");
        assert!(answered.is_some_and(|round| round < 20), "{answered:?}, bodies of {bytes}");
        for consumer in &consumers {
            let got = consumer.deliveries();
            assert_eq!(got.iter().map(|one| one.body.len()).collect::<Vec<_>>(), [bytes]);
        }
        assert_eq!(world.leaks(), [""; 0]);
    }
}

/// A client that asks for large messages and does not read what it gets is not read itself.
#[test]
fn who_gets_large_messages_and_does_not_read_gets_few() {
    let world = World::new(1);
    let (channel, reader) = (world.channel(0), world.channel(0));
    channel.declare("q");
    for _ in 0..150 {
        channel.publish("", "q", vec![b'x'; 300_000]);
    }
    reader.client().stop_reading();
    world.quietly(|| {
        for _ in 0..150 {
            reader.send(basic::Get { queue: "q", no_ack: true });
        }
    });
    world.settle();
    // 16 MiB may wait for it.
    let left = world.queue("q").ready;
    assert!((80..110).contains(&left), "{left} are left");
    reader.client().read_again();
    world.settle();
    assert_eq!(world.queue("q").ready, 0);
}

/// Bytes that all connections of a world's first shard are counted with.
fn connection_bytes(world: &World) -> usize {
    world.broker(0, |broker| broker.shard.connection_bytes)
}

/// Each of many buffers holds a small part of a large message, whether its client reads or not, and what comes behind
/// the message does not make it larger.
#[test]
fn a_large_message_takes_little_memory_for_each_that_gets_it() {
    let (world, consumers) = fan(100);
    let publisher = world.channel(0);
    let before = connection_bytes(&world);
    let of_each = || connection_bytes(&world).saturating_sub(before) / consumers.len();
    publisher.publish("amq.fanout", "", vec![b'x'; 250_000]);
    assert!(of_each() < 2_000, "{} bytes of each that has read it", of_each());
    consumers.iter().for_each(|consumer| consumer.client().stop_reading());
    // Sockets take 4 MiB.
    for _ in 0..20 {
        publisher.publish("amq.fanout", "", vec![b'x'; 250_000]);
    }
    for size in [10, 250_000, 10, 10] {
        publisher.publish("amq.fanout", "", vec![b'x'; size]);
        assert!(of_each() < 210_000, "{} bytes of each that does not read", of_each());
    }
    consumers.iter().for_each(|consumer| consumer.client().read_again());
    world.settle();
    assert!(consumers.iter().all(|consumer| consumer.deliveries().len() == 25));
}

#[test]
fn buffers_of_those_who_do_not_read_are_counted_as_they_grow() {
    let world = World::new(1);
    let consumers: Vec<Channel> = (0..50).map(|_| world.channel(0)).collect();
    for (number, channel) in consumers.iter().enumerate() {
        let queue = format!("q{number}");
        channel.declare(&queue);
        channel.bind(&queue, "amq.fanout", "");
        channel.consume_no_ack(&queue, "c");
        channel.client().stop_reading();
    }
    let publisher = world.channel(0);
    for _ in 0..150 {
        publisher.publish("amq.fanout", "", [b'x'; 2_000]);
    }
    let (counted, real) =
        world.broker(0, |broker| (broker.shard.memory(), broker.view().memory_by_walk()));
    assert!(real > 50 * 200_000, "{real} bytes");
    assert!(counted.abs_diff(real) < real / 100, "{counted} counted of {real}");
}

/// Small writes cost what a call of the system costs.
#[test]
fn so_many_connections_are_written_in_a_turn() {
    let (world, consumers) = fan(1_500);
    let publisher = world.channel(0);
    for (number, consumer) in consumers.iter().enumerate() {
        consumer.bind(&format!("q{number}"), "amq.direct", &(number % 4).to_string());
    }
    publisher.tx_select();
    for key in 0..4 {
        publisher.publish("amq.direct", &key.to_string(), "small");
    }
    let before = world.bytes_out(0);
    let (most, _) = world.quietly(|| {
        publisher.send(tx::Commit {});
        most_in_a_turn(&world, || false)
    });
    let each = (world.bytes_out(0) - before) / consumers.len() as u64;
    assert!(most <= 520 * each, "{} of {} in one turn", most / each, consumers.len());
}

#[test]
fn of_many_connections_that_are_lost_at_once_a_few_end_in_a_turn() {
    let world = World::new(1);
    let all: Vec<Channel> = (0..500).map(|_| world.channel(0)).collect();
    let count = || world.broker(0, |broker| broker.connections.len());
    let mut most = 0;
    world.quietly(|| {
        all.iter().for_each(|channel| channel.client().reset());
        loop {
            let before = count();
            let is_busy = world.round();
            most = most.max(before - count());
            if !is_busy {
                break;
            }
        }
    });
    assert_eq!(count(), 0);
    assert!(most <= 64, "{most} in one turn");
}

#[test]
fn of_many_commits_that_come_at_once_a_few_are_made_in_a_turn() {
    let world = World::new(1);
    let work = world.channel(0);
    work.declare("work");
    work.publish_all("work", (0..20_000).map(|index| index.to_string()));
    let client = work.client();
    let all: Vec<Channel> = (0..100).map(|_| client.channel()).collect();
    for channel in &all {
        channel.tx_select();
        client.together(|| {
            for _ in 0..200 {
                channel.send(basic::Get { queue: "work", no_ack: false });
            }
        });
        world.settle();
        channel.ack_up_to(200);
    }
    assert_eq!(world.queue("work").unacked, 20_000);
    let unacked = || world.queue("work").unacked;
    let (mut before, mut most) = (unacked(), 0);
    world.quietly(|| {
        client.together(|| all.iter().for_each(|channel| channel.send(tx::Commit {})));
        for _ in 0..2_000 {
            world.round();
            let now = unacked();
            most = most.max(core::mem::replace(&mut before, now) - now);
        }
    });
    assert_eq!(before, 0);
    // Of two shares of a turn, and one commit more.
    assert!(most <= 2 * 4_096 + 512, "{most} in one turn");
}
