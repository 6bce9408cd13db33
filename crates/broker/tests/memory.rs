//! What the broker says that it uses, against what is really allocated.
#![forbid(unsafe_code)]

use std::alloc::System;

use lepus_amqp::method::{basic, channel, queue, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Limits, Options, World};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are allocated in the process now.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Counted and really allocated bytes.
#[derive(Clone, Copy)]
struct Bytes {
    counted: usize,
    allocated: usize,
}

/// A world with one shard, whose clients keep nothing that grows with what is looked at.
struct Scales {
    world: World,
    channel: Channel,
}

impl Scales {
    fn new() -> Scales {
        let world = World::new(1);
        let channel = world.channel(0);
        Scales { world, channel }
    }

    fn look(&self) -> Bytes {
        let counted = self.world.broker(0, |broker| {
            assert_eq!(broker.shard.memory(), broker.view().memory_by_walk());
            broker.shard.memory()
        });
        Bytes { counted, allocated: allocated() }
    }

    /// Weighs `count` objects that `make` makes.
    fn weigh(&self, what: &str, count: usize, make: impl FnOnce(&Channel)) {
        let before = self.look();
        make(&self.channel);
        self.world.settle();
        // What is due within a second is done.
        self.world.advance(1_000);
        let after = self.look();
        let counted = after.counted - before.counted;
        let really = after.allocated - before.allocated;
        println!("{what}: {} bytes each, {} counted", really / count, counted / count);
        assert!(counted * 10 >= really * 7, "{what}: {counted} bytes counted of {really}");
        assert!(counted * 10 <= really * 12, "{what}: {counted} bytes counted for {really}");
    }
}

/// Declares queues `prefix0` and so on.
fn declare(channel: &Channel, prefix: &str, count: usize) {
    for number in 0..count {
        channel.declare(&format!("{prefix}{number}"));
    }
}

#[test]
fn what_peers_make_grow_is_counted() {
    queues();
    bindings();
    consumers();
    messages();
    queues_that_were_busy();
    transactions();
    transactions_that_nobody_commits();
    one_dead_letter();
    consumers_that_come_and_go_while_they_wait();
    gaps_in_the_index_of_a_log();
}

fn queues() {
    let scales = Scales::new();
    scales.weigh("queue", 14_000, |channel| declare(channel, "queue-of-somebody-", 14_000));
    let arguments = Table::new().with("x-expires", 1_000_000_i32);
    scales.weigh("queue that expires", 14_000, |channel| {
        for number in 0..14_000 {
            channel.declare_with(&format!("passing-{number}"), arguments.clone());
        }
    });
}

fn bindings() {
    for (kind, key) in [("direct", "key-"), ("topic", "some.key."), ("fanout", "")] {
        let scales = Scales::new();
        scales.channel.exchange("e", kind);
        declare(&scales.channel, "q", 100);
        scales.weigh(&format!("{kind} binding"), 28_000, |channel| {
            for number in 0..28_000 {
                channel.bind(&format!("q{}", number % 100), "e", &format!("{key}{number}"));
            }
        });
    }
}

fn consumers() {
    let scales = Scales::new();
    scales.channel.declare("q");
    scales.weigh("consumer", 14_000, |channel| {
        for number in 0..14_000 {
            channel.consume("q", &format!("consumer-{number}"));
        }
    });
}

fn messages() {
    let scales = Scales::new();
    scales.channel.declare("q");
    scales.weigh("ready message of 10 bytes", 57_000, |channel| {
        for _ in 0..57_000 {
            channel.publish("", "q", b"0123456789");
        }
    });
    let deliver = |channel: &Channel| {
        channel.consume("q", "c");
        assert_eq!(channel.deliveries().len(), 57_000);
    };
    // The client's lists are as long as they will be.
    deliver(&scales.channel);
    scales.channel.cancel("c");
    scales.channel.nack(0, true, true);
    scales.world.advance(60_000);
    scales.weigh("the same unacknowledged, more", 57_000, deliver);
    let before = scales.look();
    scales.channel.ack_up_to(0);
    scales.world.settle();
    let after = scales.look();
    assert!(before.counted - after.counted >= 57_000 * 100);
    assert!(after.counted < 2 << 20, "{} bytes are counted for nothing", after.counted);
}

/// A queue that was used and is idle for a while gives its tables back; one in which something lies keeps that.
fn queues_that_were_busy() {
    const QUEUES: usize = 1_000;
    let scales = Scales::new();
    let channel = &scales.channel;
    declare(channel, "busy", QUEUES);
    channel.declare("backlog");
    for _ in 0..10_000 {
        channel.publish("", "backlog", "x");
    }
    let before = scales.look();
    for number in 0..QUEUES {
        let queue = format!("busy{number}");
        channel.publish_all(&queue, (0..200).map(|_| "x"));
        channel.consume(&queue, "c");
        assert_eq!(channel.deliveries().len(), 200);
        channel.ack_up_to(0);
        channel.cancel("c");
    }
    let busy = scales.look();
    assert!(busy.counted - before.counted > QUEUES * 20_000, "the tables are small at once");
    scales.world.advance(9_000);
    let waiting = scales.look();
    assert!(waiting.counted - before.counted > QUEUES * 20_000, "the tables go at once");
    scales.world.advance(15_000);
    let idle = scales.look();
    let counted = idle.counted - before.counted;
    println!("idle queue: {} bytes counted", counted / QUEUES);
    assert!(counted < QUEUES * 1_000, "{counted} bytes");
    let given = busy.allocated - idle.allocated;
    assert!(given > QUEUES * 20_000, "only {given} bytes are given back");
    assert_eq!(scales.world.queue("backlog").ready, 10_000);
}

fn transactions() {
    let scales = Scales::new();
    scales.channel.declare("q");
    scales.channel.tx_select();
    scales.weigh("held publish of 100 bytes", 14_000, |channel| {
        for _ in 0..14_000 {
            channel.publish("", "q", [b'x'; 100]);
        }
    });
}

/// Their publishes are freed in slices, and counted as long as they are there.
fn transactions_that_nobody_commits() {
    type Way = fn(&Channel);
    let ways: [(&str, Way); 3] = [
        ("rollback", |channel| channel.send(tx::Rollback {})),
        ("close", |channel| channel.send(channel::Close::default())),
        ("a lost connection", |channel| channel.client().reset()),
    ];
    for (name, give_up) in ways {
        let world = World::new(1);
        let channel = world.channel(0);
        channel.tx_select();
        channel.client().together(|| {
            for _ in 0..30_000 {
                channel.publish("", "q", [b'x'; 100]);
            }
        });
        let counted = || world.broker(0, |broker| broker.shard.memory());
        let full = counted();
        world.quietly(|| give_up(&channel));
        let (mut freed, mut most) = (ALLOCATOR.stats().deallocations, 0);
        let mut is_owed = false;
        while world.round() {
            let now = ALLOCATOR.stats().deallocations;
            most = most.max(now - core::mem::replace(&mut freed, now));
            let is_left = world.broker(0, |broker| broker.view().owes());
            if is_left && !is_owed {
                assert!(counted() > full * 3 / 4, "{name}: {} of {full} bytes", counted());
            }
            is_owed |= is_left;
        }
        assert!(is_owed, "{name}: nothing was left to do");
        assert!(most < 12_000, "{name}: {most} pieces of memory freed in one turn");
        assert!(counted() < full / 10, "{name}: {} of {full} bytes", counted());
        assert_eq!(world.leaks(), Vec::<String>::new());
    }
}

/// A dead letter's headers are read once, whatever the number of its queues.
fn one_dead_letter() {
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..400 {
        let queue = format!("q{queue}");
        channel.declare(&queue);
        channel.bind(&queue, "amq.fanout", "");
    }
    let arguments =
        Table::new().with("x-dead-letter-exchange", "amq.fanout").with("x-message-ttl", 10);
    channel.declare_with("dying", arguments);
    let headers = (0..1_000).fold(Table::new(), |all, name| all.with(format!("h{name}"), true));
    let properties = Properties { headers: Some(headers), ..Properties::default() };
    channel.publish_with("", "dying", &properties, "x");
    let before = ALLOCATOR.stats().allocations;
    world.advance(20);
    let allocations = ALLOCATOR.stats().allocations - before;
    assert_eq!(world.queue("q399").ready, 1);
    assert!(allocations < 50_000, "{allocations} allocations");
}

/// A consumer that has to wait for something leaves nothing behind when it goes: with any number of
/// them the shards' memory is what it was.
fn consumers_that_come_and_go_while_they_wait() {
    type Way = fn(&Channel);
    let ways: [(&str, Way); 3] = [
        ("for credit of their channel", |channel| {
            channel.qos_global(1);
            channel.consume("q", "first");
        }),
        ("for a client that reads", |channel| {
            channel.client().stop_reading();
            channel.send(basic::Consume {
                queue: "q",
                consumer_tag: "first",
                no_wait: true,
                ..Default::default()
            });
        }),
        ("on a full channel", |channel| {
            let _ = core::iter::from_fn(|| channel.get("q")).take(500).count();
            channel.consume("q", "first");
        }),
    ];
    for (shards, apart) in [(1, 0), (2, 1)] {
        for (name, begin) in ways {
            let limits = Limits { unacked_per_channel_max: 500, ..Default::default() };
            let world = World::with(Options { limits, shards, ..Default::default() });
            let near = world.channel(0);
            near.declare("q");
            near.publish_all("q", (0..2_000).map(|_| [b'x'; 1_000]));
            let channel = world.connect(apart).channel();
            let _ = channel.client().channel_number(9).declare_exclusive("");
            begin(&channel);
            let come_and_go = |rounds: u32| {
                for _ in 0..rounds {
                    channel.client().together(|| {
                        let (queue, consumer_tag) = ("q", "c");
                        let no_wait = true;
                        let consume =
                            basic::Consume { queue, consumer_tag, no_wait, ..Default::default() };
                        channel.send(consume);
                        channel.send(basic::Cancel { consumer_tag, no_wait });
                    });
                }
            };
            come_and_go(100);
            let before = allocated();
            come_and_go(4_000);
            let kept = allocated().saturating_sub(before);
            println!("consumers that waited {name} keep {kept} bytes with {shards} shards");
            assert!(kept < 64 << 10, "{name}: {kept} bytes are kept with {shards} shards");
            assert_eq!(
                world.broker(0, |broker| broker.shard.memory() - broker.view().memory_by_walk()),
                0
            );
        }
    }
}

/// What is settled out of order takes memory of the log alone: neither queue nor bodies are there.
fn gaps_in_the_index_of_a_log() {
    const COUNT: u64 = 20_000;
    let world = World::on_disk(1);
    let channel = world.channel(0);
    channel.declare_method(queue::Declare { queue: "q", durable: true, ..Default::default() });
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    channel.client().together(|| {
        for _ in 0..COUNT {
            channel.publish_with("", "q", &persistent, "x");
        }
    });
    channel.consume("q", "c");
    world.advance(10_000);
    let deliveries = channel.deliveries();
    assert_eq!(deliveries.len() as u64, COUNT);
    let is_odd = |place: &usize| place % 2 == 1;
    channel.client().together(|| {
        for delivery in (0..deliveries.len()).filter(is_odd).map(|place| &deliveries[place]) {
            channel.ack(delivery.tag);
        }
    });
    channel.client().reset();
    world.advance(10_000);
    world.stop();
    world.start_again(1);
    // The log looks at what it has of the queue.
    let channel = world.channel(0);
    channel.qos(1);
    channel.consume("q", "c");
    world.advance(10_000);
    let queue = world.queue("q");
    assert_eq!(queue.ready + queue.unacked, COUNT / 2);
    let (counted, walked) =
        world.broker(0, |broker| (broker.shard.memory(), broker.view().memory_by_walk()));
    println!("{COUNT} messages on the disk, every other one settled: {counted} bytes counted");
    assert!(counted as u64 > COUNT / 2 * 16, "{counted} bytes for {} gaps", COUNT / 2);
    assert_eq!(counted, walked);
}
