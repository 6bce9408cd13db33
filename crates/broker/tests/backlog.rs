//! Queues that hold more than memory has room for.

use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Limits, Options, StoreOptions, World};

use crate::restart::{durable, durable_with, persistent, publish_confirmed};

/// More than a window and several pages of the index.
const MANY: u32 = 5_000;

/// A world whose transient messages go to the log at once.
fn spilling() -> World {
    let limits = Limits { spill_bytes: 0, ..Limits::default() };
    World::with(Options { limits, store: Some(StoreOptions::default()), ..Options::default() })
}

/// Everything that is delivered to a consumer that acknowledges in hundreds.
fn take_all(channel: &Channel, queue: &str) -> Vec<u32> {
    channel.qos(100);
    channel.consume(queue, "all");
    let mut found = Vec::new();
    loop {
        let some = channel.deliveries();
        let Some(last) = some.last() else { break };
        found.extend(some.iter().map(|m| m.text().parse::<u32>().expect("a number")));
        channel.ack_up_to(last.tag);
    }
    channel.cancel("all");
    found
}

fn publish_mixed(channel: &Channel, queue: &str, bodies: impl IntoIterator<Item = u32>) {
    channel.client().together(|| {
        for body in bodies {
            let mode = if body % 3 == 0 { None } else { Some(2) };
            let properties = Properties { delivery_mode: mode, ..Properties::default() };
            channel.publish_with("", queue, &properties, body.to_string());
        }
    });
}

#[test]
fn a_long_backlog_comes_in_order_whatever_is_persistent_in_it() {
    for world in [World::on_disk(1), spilling()] {
        let channel = world.channel(0);
        durable(&channel, "q");
        publish_mixed(&channel, "q", 0..MANY);
        assert_eq!(world.queue("q").ready, u64::from(MANY));
        assert_eq!(take_all(&channel, "q"), (0..MANY).collect::<Vec<_>>());
        assert_eq!(world.queue("q").ready_bytes, 0);
    }
}

/// The log of one shard is slower than publishers of another: these are held back as its own are.
#[test]
fn publishers_of_other_shards_wait_for_a_log_that_lags() {
    let mut store = StoreOptions::default();
    // There is room for all of it.
    store.template.segment_bytes = 128 << 20;
    let bytes = 256 << 20;
    let world = World::with(Options {
        shards: 2,
        store: Some(store),
        socket_bytes_max: bytes,
        ..Options::default()
    });
    durable(&world.channel(0), "q");
    world.move_queue("q", 0);
    let waiting = || world.broker(0, |broker| broker.shard.log_bytes);
    let before = waiting();
    let flood: Vec<Channel> = (0..4).map(|_| world.channel(1)).collect();
    let most = world.quietly(|| {
        for channel in &flood {
            channel.client().together(|| {
                for _ in 0..25 {
                    let body = vec![b'x'; 1_000_000];
                    channel.publish_with("", "q", &persistent(), body);
                }
            });
        }
        world.round();
        // The shards go on, and the disk does nothing.
        for _ in 0..2_000 {
            world.turn(1);
            world.turn(0);
        }
        waiting() - before
    });
    assert!(most > 32 << 20, "the log does not lag: {most} bytes");
    assert!(most < 40 << 20, "{most} bytes wait to be written");
    world.settle();
    assert_eq!(world.queue("q").ready, 100);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn what_the_logs_keep_in_memory_of_queues_counts_in_the_budget() {
    const COUNT: usize = 500;
    let world = World::on_disk(1);
    let channel = world.channel(0);
    for queue in 0..COUNT {
        durable(&channel, &queue.to_string());
    }
    world.settle();
    let memory = || world.broker(0, |broker| (broker.shard.log_bytes, broker.shard.memory()));
    let before = memory();
    for queue in 0..COUNT {
        let queue = queue.to_string();
        publish_confirmed(&channel, &queue, [1]);
    }
    world.settle();
    let (index, all) = memory();
    assert!(index > before.0 + 300 * COUNT, "{index} bytes, {} before", before.0);
    assert!(all >= before.1 + index - before.0, "{all} bytes, {} before", before.1);
}

#[test]
fn a_backlog_costs_disk_and_no_memory() {
    let world = spilling();
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.declare("transient");
    let body = [b'x'; 500];
    for queue in ["q", "transient"] {
        channel.client().together(|| {
            for _ in 0..MANY {
                channel.publish_with("", queue, &persistent(), body);
            }
        });
    }
    world.broker(0, |broker| {
        assert!(broker.shard.pool.is_empty());
        let figures = broker.journal.figures();
        assert!(figures.window_entries <= 2 * 1_024, "{figures:?}");
        assert!(figures.memory_bytes < 1 << 20, "{figures:?}");
        assert!(figures.log_bytes > 5_000_000, "{figures:?}");
    });
    for queue in ["q", "transient"] {
        channel.consume_no_ack(queue, queue);
        assert_eq!(channel.deliveries().len(), MANY as usize);
    }
}

#[test]
fn what_comes_back_into_a_backlog_finds_its_place() {
    let world = spilling();
    let channel = world.channel(0);
    durable(&channel, "q");
    publish_mixed(&channel, "q", 0..MANY);
    let other = world.channel(0);
    other.qos(2_000);
    other.consume("q", "c");
    let taken = other.deliveries();
    assert_eq!(taken.len(), 2_000);
    other.cancel("c");
    for message in taken.iter().rev().filter(|message| message.tag % 2 == 0) {
        other.reject(message.tag, true);
    }
    other.close();
    assert_eq!(take_all(&channel, "q"), (0..MANY).collect::<Vec<_>>());
}

/// What was delivered at once when it came, and never waited, comes back to a window. What is published
/// then is fetched from the log, and that only.
#[test]
fn what_was_delivered_at_once_and_comes_back_is_there_once() {
    let world = World::on_disk(1);
    let other = world.channel(0);
    durable(&other, "q");
    other.consume("q", "c");
    let channel = world.channel(0);
    let publish = |bodies: core::ops::Range<u32>| {
        channel.client().together(|| {
            for body in bodies {
                channel.publish_with("", "q", &persistent(), body.to_string());
            }
        });
    };
    publish(0..1_500);
    assert_eq!(other.deliveries().len(), 1_500);
    other.close();
    assert_eq!(world.queue("q").ready, 1_500);
    publish(1_500..1_600);
    assert_eq!(take_all(&channel, "q"), (0..1_600).collect::<Vec<_>>());
}

#[test]
fn each_priority_of_a_backlog_comes_in_its_order() {
    for world in [World::on_disk(1), spilling()] {
        let channel = world.channel(0);
        durable_with(&channel, "q", Table::new().with("x-max-priority", 9));
        channel.client().together(|| {
            for body in 0..MANY {
                let mode = if body % 2 == 0 { None } else { Some(2) };
                let priority = Some((body % 4) as u8);
                let properties =
                    Properties { delivery_mode: mode, priority, ..Properties::default() };
                channel.publish_with("", "q", &properties, body.to_string());
            }
        });
        let mut expected: Vec<u32> = (0..MANY).collect();
        expected.sort_by_key(|body| (3 - body % 4, *body));
        assert_eq!(take_all(&channel, "q"), expected);
    }
}

#[test]
fn a_backlog_above_its_limit_loses_its_oldest() {
    let world = spilling();
    let channel = world.channel(0);
    durable_with(&channel, "q", Table::new().with("x-max-length", 3_000));
    publish_mixed(&channel, "q", 0..MANY);
    assert_eq!(world.queue("q").ready, 3_000);
    assert_eq!(take_all(&channel, "q"), (2_000..MANY).collect::<Vec<_>>());
}

#[test]
fn a_backlog_expires_and_is_dead_lettered_in_order() {
    let world = spilling();
    let channel = world.channel(0);
    durable(&channel, "graves");
    let arguments = Table::new()
        .with("x-message-ttl", 1_000)
        .with("x-dead-letter-exchange", "")
        .with("x-dead-letter-routing-key", "graves");
    durable_with(&channel, "q", arguments);
    publish_mixed(&channel, "q", 0..MANY);
    world.advance(1_001);
    assert_eq!((world.queue("q").ready, world.queue("graves").ready), (0, u64::from(MANY)));
    assert_eq!(take_all(&channel, "graves"), (0..MANY).collect::<Vec<_>>());
}

#[test]
fn a_purged_backlog_gives_its_room_on_the_disk_back() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    let mut most = 0;
    for round in 0..8 {
        publish_confirmed(&channel, "q", 0..MANY);
        assert_eq!(channel.purge("q"), MANY, "round {round}");
        world.advance(20_000);
        let bytes = world.disk(|disk| disk.bytes());
        if round == 1 {
            most = bytes;
        }
        assert!(round < 2 || bytes <= most + 128 * 1024, "{bytes} bytes after round {round}");
    }
}

#[test]
fn a_queue_that_waits_for_the_disk_holds_nobody_else_up() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "cold");
    publish_confirmed(&channel, "cold", 0..MANY);
    world.stop();
    world.start_again(1);
    let channel = world.channel(0);
    durable(&channel, "warm");
    world.hold_disk();
    channel.consume("cold", "cold");
    assert_eq!(channel.deliveries().len(), 0);
    let other = world.channel(0);
    other.consume("warm", "warm");
    other.publish("", "warm", "x");
    assert_eq!(other.bodies(), ["x"]);
    // New messages of the cold queue do not overtake the old ones.
    other.publish("", "cold", "5000");
    channel.qos(0);
    assert_eq!(channel.deliveries().len(), 0);
    world.release_disk();
    let found: Vec<u32> = channel.bodies().iter().map(|body| body.parse().unwrap()).collect();
    assert_eq!(found, (0..=MANY).collect::<Vec<_>>());
}

#[test]
fn many_cold_queues_are_read_at_the_same_time() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    for queue in 0..50 {
        durable(&channel, &format!("q{queue}"));
    }
    channel.client().together(|| {
        for body in 0..2_000 {
            let queue = format!("q{}", body % 50);
            channel.publish_with("", &queue, &persistent(), body.to_string());
        }
    });
    world.advance(1_500);
    world.stop();
    world.start_again(1);
    world.slow_disk(3);
    let channel = world.channel(0);
    for queue in 0..50 {
        channel.consume_no_ack(&format!("q{queue}"), &format!("c{queue}"));
    }
    world.advance(60_000);
    let mut found: Vec<Vec<u32>> = vec![Vec::new(); 50];
    for message in channel.deliveries() {
        let queue: usize = message.key[1..].parse().unwrap();
        found[queue].push(message.text().parse().unwrap());
    }
    for (queue, found) in found.into_iter().enumerate() {
        let expected: Vec<u32> = (0..40).map(|index| index * 50 + queue as u32).collect();
        assert_eq!(found, expected, "q{queue}");
    }
}

#[test]
fn a_message_larger_than_a_segment_survives_and_is_delivered() {
    let world = World::on_disk(2);
    let channel = world.channel(0);
    durable(&channel, "q");
    let body: Vec<u8> = (0..400_000u32).map(|index| (index % 251) as u8).collect();
    channel.confirm_select();
    for _ in 0..3 {
        channel.publish_with("", "q", &persistent(), &body);
    }
    assert_eq!(channel.confirmed().0.len(), 3);
    let near = world.channel(0);
    near.consume("q", "near");

    assert_eq!(near.deliveries().iter().filter(|message| message.body == body).count(), 3);
    world.kill();
    world.start_again(2);
    let (near, far) = (world.channel(0), world.channel(1));
    assert_eq!(near.get("q").map(|message| message.body), Some(body.clone()));
    near.qos(1);
    near.consume("q", "near");
    assert_eq!(near.delivery().body, body);
    far.declare_exclusive("anchor");
    far.consume("q", "far");
    assert_eq!(far.delivery().body, body);
}

#[test]
fn an_old_unacknowledged_message_is_named() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    publish_confirmed(&channel, "q", 0..1);
    assert!(channel.get("q").is_some());
    let id = world.broker(0, |broker| broker.homes.queues().next().map(|(id, _)| id));
    durable(&channel, "busy");
    for _ in 0..5 {
        publish_confirmed(&channel, "busy", 0..MANY);
        channel.purge("busy");
        world.advance(1_000);
    }
    // It is looked for twice a minute.
    world.advance(31_000);
    let now = world.now();
    let oldest = world.broker(0, |broker| broker.view().oldest_delivery(now));
    let oldest = oldest.expect("a delivery");
    assert_eq!(Some(oldest.queue), id);
    assert!(oldest.segments > 1);
    assert!(oldest.age >= Some(std::time::Duration::from_secs(5)));
}

/// A world of which the log has room for little at a time.
fn cramped() -> World {
    let mut store = StoreOptions::default();
    store.template.segment_bytes = 16 << 10;
    store.template.spare_segments = 2;
    store.template.reserve_segments = 2;
    let limits = Limits { spill_bytes: 0, ..Limits::default() };
    World::with(Options { limits, store: Some(store), ..Options::default() })
}

/// Half a segment each: what is transient goes to the log too, and takes no room from what is not.
#[test]
fn large_messages_to_transient_and_durable_queues_are_all_confirmed() {
    let world = cramped();
    let channel = world.channel(0);
    durable(&channel, "kept");
    for queue in ["passing", "also passing", "passing too"] {
        channel.declare(queue);
    }
    for queue in ["kept", "passing", "also passing", "passing too"] {
        channel.bind(queue, "amq.fanout", "");
    }
    channel.confirm_select();
    let body = vec![b'1'; 9_000];
    for _ in 0..50 {
        channel.publish_with("amq.fanout", "", &persistent(), &body);
    }
    world.advance(5_000);
    assert_eq!(channel.confirmed(), ((1..=50).collect::<Vec<_>>(), Vec::new()));
}

/// Messages that fit no two into a segment need a segment each.
#[test]
fn a_commit_of_many_segments_is_answered() {
    let world = cramped();
    let channel = world.channel(0);
    durable(&channel, "kept");
    channel.tx_select();
    for count in [2_usize, 5, 9, 20] {
        for _ in 0..count {
            channel.publish_with("", "kept", &persistent(), vec![b'1'; 9_000]);
        }
        channel.tx_commit();
    }
    assert_eq!(world.queue("kept").ready, 36);
}

#[test]
fn a_purge_of_many_messages_does_not_go_over_very_many_that_are_not_acknowledged() {
    const HELD: u32 = 40_000;
    for priorities in [0, 3] {
        for comes_back in [false, true] {
            let world = World::on_disk(1);
            let channel = world.channel(0);
            let arguments = Table::new().with("x-max-priority", 3);
            let arguments = if priorities > 0 { arguments } else { Table::new() };
            durable_with(&channel, "q", arguments);
            let publish = |bodies: std::ops::Range<u32>| {
                channel.client().together(|| {
                    for body in bodies {
                        let priority = Some(body as u8 % 3);
                        let properties = Properties { priority, ..persistent() };
                        channel.publish_with("", "q", &properties, body.to_string());
                    }
                });
            };
            publish(0..HELD + MANY);
            let holder = world.channel(0);
            holder.qos(HELD as u16);
            holder.consume("q", "c");
            let held = holder.deliveries();
            assert_eq!(held.len(), HELD as usize);
            holder.cancel("c");
            // Between any two of them there is one that is settled, or comes back.
            let mut kept = Vec::new();
            holder.client().together(|| {
                for (number, message) in held.iter().enumerate() {
                    match number % 2 {
                        0 => kept.push(message.text().parse::<u32>().unwrap()),
                        _ if comes_back && number < 800 => holder.nack(message.tag, false, true),
                        _ => holder.ack(message.tag),
                    }
                }
            });
            publish(HELD + MANY..HELD + MANY + 100);
            world.advance(5_000);
            let log_bytes = || world.broker(0, |broker| broker.journal.figures().log_bytes);
            let before = log_bytes();
            let ready = world.queue("q").ready;
            assert!(ready > u64::from(MANY));
            assert_eq!(u64::from(channel.purge("q")), ready);
            world.advance(1);
            let figures = world.queue("q");
            assert_eq!((figures.ready, figures.unacked), (0, kept.len() as u64));
            world.advance(5_000);
            let written = log_bytes() - before;
            // In blocks of 4 KiB.
            assert!(written < 16_384, "{written} bytes: those that are kept are gone over");
            assert_eq!(world.leaks(), [""; 0]);
            // What comes then is served, and what was not acknowledged is there again after a restart.
            publish(0..10);
            assert_eq!(take_all(&channel, "q").len(), 10);
            world.stop();
            world.start_again(1);
            let drained = crate::restart::drain(&world, "q");
            let mut found: Vec<u32> = drained.iter().map(|message| message.0).collect();
            found.sort_unstable();
            kept.sort_unstable();
            assert_eq!(found, kept, "with {priorities} priorities");
        }
    }
}

#[test]
fn a_purge_of_few_messages_leaves_those_that_are_not_acknowledged_yet() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.qos(50);
    channel.consume("q", "c");
    publish_confirmed(&channel, "q", 0..60);
    assert_eq!(channel.deliveries().len(), 50);
    let other = world.channel(0);
    for _ in 0..3 {
        assert_eq!(other.purge("q"), 10);
        publish_confirmed(&other, "q", 60..70);
    }
    assert_eq!(other.purge("q"), 10);
    let figures = world.queue("q");
    assert_eq!((figures.ready, figures.unacked), (0, 50));
    world.stop();
    world.start_again(1);
    let found: Vec<u32> =
        crate::restart::drain(&world, "q").iter().map(|message| message.0).collect();
    assert_eq!(found, (0..50).collect::<Vec<_>>());
}

#[test]
fn spare_memory_of_a_queue_that_was_deleted_is_given_back() {
    let world = World::with(Options { shards: 1, ..Options::default() });
    let channel = world.channel(0);
    channel.declare("q");
    for _ in 0..100 {
        channel.publish("", "q", vec![b'x'; 60_000]);
    }
    let spare = || world.broker(0, |broker| broker.shard.pool.spare());
    assert!(channel.delete("q") == 100 && spare() > 1_000_000, "{}", spare());
    world.advance(30_000);
    assert_eq!(spare(), 0);
}
