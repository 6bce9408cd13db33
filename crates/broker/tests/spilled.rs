//! Persistent messages for transient queues go to the log while there is little memory. Those that wait for room there
//! need none any more when there is memory again.

use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};

use crate::adopted_logs::fill;
use crate::at_least_once::surely_to;
use crate::deletions_and_letters::fill_with;
use crate::restart::{durable, durable_exchange, durable_with, persistent};
use crate::room::durable_of;

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
    world.broker(0, |broker| broker.view().waits_for_room())
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

/// Also those that wait only because one does that came before, for room that will not be there.
#[test]
fn dead_letters_behind_another_one_need_no_room_when_there_is_memory_again() {
    for surely in [false, true] {
        let (world, channel) = without_memory(300_000, |channel| {
            durable_exchange(channel, "d", "direct");
            durable(channel, "graves");
            channel.bind("graves", "d", "first");
            channel.bind("t", "d", "second");
            let mut arguments = if surely { surely_to("d", "") } else { Table::new() };
            arguments.insert("x-dead-letter-exchange", "d");
            // Each keeps its own key.
            arguments.remove("x-dead-letter-routing-key");
            durable_with(channel, "letters", arguments);
            durable_exchange(channel, "f", "fanout");
            channel.bind("letters", "f", "");
            for key in ["first", "second"] {
                channel.publish_with("f", key, &persistent(), vec![b'1'; BYTES]);
            }
        });
        for _ in 0..2 {
            let letter = channel.get("letters").expect("a message");
            channel.reject(letter.tag, false);
        }
        world.advance(1_000);
        assert!(waits(&world));
        channel.purge("heap");
        world.advance(1_000);
        assert!(waits(&world));
        let ready = ["graves", "t"].map(|queue| world.queue(queue).ready);
        assert_eq!(ready, [0, 1], "surely: {surely}");
    }
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

/// A queue of the first shard that `declare` makes.
fn first_shard(world: &World, prefix: &str, declare: impl Fn(&str)) -> String {
    let names = (0..).map(|number| format!("{prefix}{number}"));
    let is_there = |name: &String| {
        declare(name);
        world.queue(name).home == 0
    };
    names.into_iter().find(is_there).expect("queues go to all shards in turn")
}

/// While a letter for very many queues waits for the report of another shard it is in no line: also then memory may
/// come for the queue for which it has no room.
#[test]
fn a_letter_that_waits_for_a_report_needs_no_room_when_there_is_memory_again() {
    let mut store = StoreOptions::default();
    (store.template.segments_max, store.template.passing_segments) = (24, 0);
    let mut options = Options { shards: 2, store: Some(store), ..Options::default() };
    options.limits.spill_bytes = 4_000_000;
    let world = World::with(options);
    let channel = world.channel(0);
    let full = durable_of(&world, &channel, "full", 1);
    let filler = durable_of(&world, &channel, "filler", 0);
    durable_exchange(&channel, "f", "fanout");
    for shard in [1, 0] {
        channel.bind(&durable_of(&world, &channel, "durable", shard), "f", "");
    }
    let declare = |name: &str| {
        channel.declare(name);
    };
    let transient: Vec<String> =
        (0..600).map(|number| first_shard(&world, &format!("t{number}-"), declare)).collect();
    transient.iter().for_each(|queue| channel.bind(queue, "f", ""));
    let heap = first_shard(&world, "heap", declare);
    let wide = first_shard(&world, "wide", |name| durable_with(&channel, name, surely_to("f", "")));
    channel.publish_with("", &wide, &persistent(), vec![b'1'; 200_000]);
    (0..450).for_each(|_| channel.publish("", &heap, vec![b'2'; 10_000]));
    world.advance(1_000);
    [9_000, 1_000, 100].iter().for_each(|bytes| fill_with(&world, &full, *bytes));
    let letter = channel.get(&wide).expect("a message");
    let filling = world.channel(0);
    for _ in 0..22 {
        filling.publish_with("", &filler, &persistent(), vec![b'f'; 30_000]);
        world.advance(100);
    }
    channel.reject(letter.tag, false);
    world.advance(120_000);
    let ready = || transient.iter().map(|queue| world.queue(queue).ready).sum::<u64>();
    assert!(ready() < 600, "some have no room");
    channel.purge(&full);
    world.advance(60_000);
    channel.purge(&heap);
    // Each copy takes memory of its own.
    for _ in 0..10 {
        world.advance(10_000);
        for queue in &transient {
            channel.purge(queue);
        }
    }
    assert!(!waits(&world));
}

/// Its messages go to the log only if there is room: a queue that nobody reads is no reason to hold up all publishers.
#[test]
fn a_transient_queue_that_grows_asks_for_no_room_in_a_full_log() {
    /// More than such a queue has in memory where there is room, and less than it has in any case.
    const MESSAGES: u64 = 800;
    for is_full in [false, true] {
        let mut store = StoreOptions::default();
        if is_full {
            store.template.segments_max = 20;
        }
        let world = World::with(Options { shards: 1, store: Some(store), ..Options::default() });
        let channel = world.channel(0);
        channel.declare("t");
        let held = |world: &World| world.broker(0, |broker| broker.shard.memory());
        let before = held(&world);
        (0..MESSAGES).for_each(|_| channel.publish("", "t", vec![b'2'; 10_000]));
        world.advance(1_000);
        assert_eq!(world.queue("t").ready, MESSAGES);
        let taken = held(&world) - before;
        assert_eq!(taken > 6_000_000, is_full, "{taken} bytes");
        for _ in 0..MESSAGES {
            assert_eq!(channel.get("t").expect("a message").body.len(), 10_000);
        }
    }
}
