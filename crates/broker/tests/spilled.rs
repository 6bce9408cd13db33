//! Persistent messages for transient queues go to the log while there is little memory. Those that wait for room there
//! need none any more when there is memory again.

use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};

use crate::adopted_logs::fill;
use crate::restart::{durable, durable_with, persistent};

/// More than a log has room for that is called full.
const BYTES: usize = 131_000;

/// A world that puts what comes into transient queues into the log from so many bytes in memory on, and a queue
/// `heap` with as much. `prepare` comes before the log is full.
fn without_memory(spill_bytes: usize, prepare: impl FnOnce(&Channel)) -> (World, Channel) {
    let mut store = StoreOptions::default();
    store.template.segments_max = 14;
    let mut options = Options { shards: 1, store: Some(store), ..Options::default() };
    options.limits.spill_bytes = spill_bytes;
    let world = World::with(options);
    let channel = world.channel(0);
    durable(&channel, "full");
    for queue in ["t", "heap"] {
        channel.declare(queue);
    }
    prepare(&channel);
    (0..spill_bytes / 10_000 + 1).for_each(|_| channel.publish("", "heap", vec![b'2'; 10_000]));
    world.advance(1_000);
    fill(&world, "full");
    (world, channel)
}

fn waits(world: &World) -> bool {
    world.broker(0, |broker| broker.waits_for_room())
}

#[test]
fn dead_letters_for_a_transient_queue_need_no_room_when_there_is_memory_again() {
    let dead =
        Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", "t");
    let (world, channel) = without_memory(300_000, |channel| {
        durable_with(channel, "letters", dead);
        channel.publish_with("", "letters", &persistent(), vec![b'1'; BYTES]);
    });
    let letter = channel.get("letters").expect("a message");
    channel.reject(letter.tag, false);
    world.advance(1_000);
    assert!(waits(&world));
    channel.purge("heap");
    world.advance(1_000);
    assert!(!waits(&world));
    assert_eq!(world.queue("t").ready, 1);
}

#[test]
fn a_publish_to_a_transient_queue_needs_no_room_when_there_is_memory_again() {
    let (world, channel) = without_memory(600_000, |_| ());
    let publisher = world.channel(0);
    publisher.confirm_select();
    publisher.publish_with("", "t", &persistent(), vec![b'1'; BYTES]);
    world.advance(1_000);
    assert!(waits(&world));
    channel.purge("heap");
    world.advance(1_000);
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    assert!(!waits(&world));
}
