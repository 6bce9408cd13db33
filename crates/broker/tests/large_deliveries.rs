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
