//! Publishers wait while memory is short.

use lepus_amqp::client::ClientOptions;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::queue;
use lepus_amqp::server::ServerOptions;
use lepus_amqp::table::Table;
use lepus_broker::Query;
use lepus_broker::query::{AlarmSource, Shortage};
use lepus_sim::{Channel, Limits, Options, StoreOptions, World};

use crate::stage::{Stage, everywhere_with};
use crate::wire;

const MEMORY_BYTES: usize = 8 * 1024 * 1024;

fn small() -> Options {
    let limits = Limits { memory_bytes: MEMORY_BYTES, ..Limits::default() };
    Options { limits, ..Options::default() }
}

/// Publishes to `queue` until the client is told to stop; how many messages went.
fn fill(channel: &Channel, queue: &str) -> u32 {
    let body = vec![b'x'; 140_000];
    for count in 1..1_000 {
        channel.publish("", queue, &body);
        if channel.client().blocked().is_some() {
            return count;
        }
    }
    panic!("nobody stops the publisher");
}

/// All of a queue's messages, taken by a client of its own.
fn drain(stage: &Stage, queue: &str) -> u32 {
    let channel = stage.near();
    channel.consume_no_ack(queue, "drain");
    let count = channel.deliveries().len() as u32;
    channel.client().close();
    count
}

#[test]
fn a_publisher_is_told_when_memory_is_short_and_when_there_is_room_again() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let count = fill(&far, "q");
        assert!(far.client().blocked().unwrap().contains("memory"));
        assert!(near.client().blocked().is_none(), "it has not published");
        assert_eq!(drain(stage, "q"), count);
        assert_eq!(far.client().blocked(), None);
        far.publish("", "q", "x");
        assert_eq!(near.purge("q"), 1);
    });
}

/// An operator raises an alarm, or ends it.
fn order(stage: &Stage, shortage: Shortage, is_on: bool) {
    for shard in 0..stage.world.shards() {
        let source = AlarmSource::Operator;
        stage.world.ask(shard, Query::Alarm { shortage, is_on, source });
    }
}

/// Who measures and who orders take each other's alarm away as little as a shard that has room does.
#[test]
fn an_alarm_lasts_until_all_who_raised_it_have_ended_it() {
    everywhere_with(&small(), |stage| {
        let measure = |is_on| {
            for shard in 0..stage.world.shards() {
                let (shortage, source) = (Shortage::Disk, AlarmSource::Measure);
                stage.world.ask(shard, Query::Alarm { shortage, is_on, source });
            }
        };
        let order = |is_on| order(stage, Shortage::Disk, is_on);
        let client = stage.far();
        client.declare("q");
        let mut sent = 0;
        for is_measured_first in [true, false] {
            measure(true);
            order(true);
            client.publish("", "q", "x");
            assert!(client.client().blocked().unwrap().contains("disk"));
            if is_measured_first {
                measure(false)
            } else {
                order(false)
            }
            assert!(client.client().blocked().is_some());
            assert_eq!(stage.world.queue("q").ready, sent);
            if is_measured_first {
                order(false)
            } else {
                measure(false)
            }
            assert_eq!(client.client().blocked(), None);
            sent += 1;
            assert_eq!(stage.world.queue("q").ready, sent);
        }
    });
}

/// A shortage is noticed after the publish that brings it about; an operator's order is there before the next one.
#[test]
fn an_alarm_that_an_operator_raises_holds_back_what_comes_next() {
    everywhere_with(&small(), |stage| {
        let order = |shortage, is_on| order(stage, shortage, is_on);
        let (near, far) = stage.pair();
        near.declare("q");
        for _ in 0..3 {
            far.publish("", "q", "before");
        }
        order(Shortage::Memory, true);
        far.publish("", "q", "of one that has published");
        near.publish("", "q", "of one that has not");
        assert!(far.client().blocked().unwrap().contains("memory"));
        assert!(near.client().blocked().is_some());
        let late = stage.far();
        late.publish("", "q", "of one that came later");
        order(Shortage::Disk, true);
        order(Shortage::Memory, false);
        assert_eq!(stage.world.queue("q").ready, 3);
        order(Shortage::Disk, false);
        assert_eq!(stage.world.queue("q").ready, 6);
        assert_eq!(far.client().blocked(), None);
    });
}

/// A message of several frames is put together as they come, and cannot be given back once it is whole.
#[test]
fn an_alarm_that_an_operator_raises_holds_back_messages_of_many_frames_too() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let part = [b'x'; 100_000];
        let message = |channel: &Channel| {
            let mut bytes = wire::publish(channel.number(), "q");
            bytes.extend(wire::header(channel.number(), 60, 0, 3 * part.len() as u64));
            for _ in 0..3 {
                bytes.extend(wire::body(channel.number(), &part));
            }
            bytes
        };
        // Of these, that much is there when the alarm comes, from within the method to within the last frame.
        let sizes = [5, 40, 60, 200, 100_100, 300_050].map(|size| {
            let begun = stage.far();
            let bytes = message(&begun);
            begun.client().send_bytes(&bytes[..size]);
            (begun, bytes, size)
        });
        order(stage, Shortage::Memory, true);
        for (begun, bytes, size) in &sizes {
            begun.client().send_bytes(&bytes[*size..]);
            assert!(begun.client().blocked().is_some(), "{size} bytes were there");
        }
        for channel in [&near, &far] {
            channel.client().send_bytes(&message(channel));
            channel.publish("", "q", "behind it");
            assert!(channel.client().blocked().is_some());
        }
        assert_eq!(stage.world.queue("q").ready, 0);
        order(stage, Shortage::Memory, false);
        assert_eq!(stage.world.queue("q").ready, 6 + 4);
        for channel in sizes.iter().map(|(begun, ..)| begun).chain([&near, &far]) {
            assert!(channel.is_open() && channel.client().blocked().is_none());
        }
    });
}

/// What is left of a message that was refused is no message.
#[test]
fn an_alarm_holds_back_nobody_whose_message_is_passed_over() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.publish("", "q", "before");
        let size = ServerOptions::default().body_bytes_max + 1;
        let mut bytes = wire::publish(far.number(), "q");
        bytes.extend(wire::header(far.number(), 60, 0, size));
        far.client().send_bytes(&bytes);
        far.expect_refused();
        order(stage, Shortage::Memory, true);
        for _ in 0..3 {
            far.client().send_bytes(&wire::body(far.number(), b"a part"));
        }
        let other = far.client().channel();
        assert_eq!(other.get_no_ack("q").map(|message| message.text()), Some("before".into()));
        assert_eq!(far.client().blocked(), None);
    });
}

#[test]
fn what_is_published_while_blocked_waits_and_comes_later() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let count = fill(&far, "q");
        far.publish("", "q", "a");
        far.publish("", "q", "b");
        assert_eq!(stage.world.queue("q").ready, u64::from(count));
        assert_eq!(drain(stage, "q"), count + 2);
        assert!(far.is_open());
    });
}

#[test]
fn consumers_go_on_while_publishers_are_blocked() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let count = fill(&far, "q");
        near.qos(10);
        near.consume("q", "c");
        let mut taken = near.deliveries();
        while (taken.len() as u32) < count {
            near.ack_up_to(taken.last().unwrap().tag);
            let more = near.deliveries();
            assert!(!more.is_empty());
            taken.extend(more);
        }
        near.ack_up_to(0);
        assert_eq!(far.client().blocked(), None);
    });
}

#[test]
fn a_blocked_client_may_still_consume_acknowledge_and_declare() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let count = fill(&far, "q");
        far.declare("another");
        far.qos(1);
        far.consume("q", "c");
        for _ in 0..count {
            let message = far.delivery();
            far.ack(message.tag);
        }
        assert_eq!(far.client().blocked(), None);
    });
}

#[test]
fn close_works_while_blocked() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let count = fill(&far, "q");
        far.client().close();
        let other = stage.far();
        let raced = fill(&other, "q");
        other.close();
        other.client().close();
        assert_eq!(drain(stage, "q"), count + raced);
    });
}

#[test]
fn a_blocked_client_that_is_lost_leaves_nothing_behind() {
    everywhere_with(&small(), |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        fill(&far, "q");
        far.publish("", "q", "never taken");
        far.client().reset();
        near.purge("q");
        let next = stage.far();
        next.publish("", "q", "x");
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn a_client_that_cannot_hear_of_it_is_stopped_all_the_same() {
    let world = World::with(Options { shards: 2, ..small() });
    let near = world.channel(0);
    near.declare("q");
    for shard in 0..2 {
        let options =
            ClientOptions { properties: Table::new(), heartbeat: 0, ..Default::default() };
        let far = world.connect_with(shard, options).channel();
        let body = vec![b'x'; 140_000];
        for _ in 0..200 {
            far.publish("", "q", &body);
        }
        let ready = world.queue("q").ready;
        assert!(ready * 100_000 < 2 * MEMORY_BYTES as u64, "{ready} messages");
        assert_eq!(far.client().blocked(), None);
        near.consume_no_ack("q", "c");
        assert_eq!(near.deliveries().len(), 200);
        near.cancel("c");
    }
}

#[test]
fn heartbeats_do_not_matter_while_a_publisher_is_not_read() {
    let world = World::with(small());
    let near = world.channel(0);
    near.declare("q");
    let options = ClientOptions { heartbeat: 2, ..ClientOptions::default() };
    let far = world.connect_with(0, options).channel();
    fill(&far, "q");
    far.publish("", "q", "waits");
    world.advance(60_000);
    assert!(far.client().is_open());
    near.purge("q");
    world.settle();
    world.advance(10_000);
    assert!(far.client().is_open());
    assert_eq!(near.purge("q"), 1);
}

#[test]
fn a_blocked_client_stays_where_it_is_told_of_room() {
    let world = World::with(Options { shards: 2, ..small() });
    world.channel(0).declare("elsewhere");
    let far = world.channel(1);
    far.declare("q");
    fill(&far, "q");
    far.passive("elsewhere");
    assert!(far.client().blocked().is_some());
    world.channel(1).purge("q");
    world.settle();
    assert_eq!(far.client().blocked(), None);
    far.publish("", "q", "x");
    assert_eq!(world.queue("q").ready, 1);
}

/// Lets messages pass while one of `b"task"` in each round stays.
fn pass_around_tasks(stage: &Stage, rounds: u32) {
    let (near, far) = stage.pair();
    near.declare("slow");
    near.declare("busy");
    let body = vec![b'x'; 4096];
    for round in 0..rounds {
        for number in 0..64 {
            if number == 32 {
                far.publish("", "slow", "task");
            }
            far.publish("", "busy", &body);
        }
        assert_eq!(far.client().blocked(), None, "round {round}");
        assert_eq!(near.purge("busy"), 64, "round {round}");
    }
}

#[test]
fn a_few_long_deliveries_do_not_keep_memory_from_everybody() {
    everywhere_with(&small(), |stage| {
        let near = stage.near();
        near.declare("slow");
        near.consume("slow", "worker");
        pass_around_tasks(stage, 64);
        let tasks = near.deliveries();
        assert_eq!(tasks.len(), 64);
        assert!(tasks.iter().all(|task| task.body == b"task"));
        let used = stage.world.broker(0, |broker| broker.shard.memory());
        assert!(used < MEMORY_BYTES / 2, "{used} bytes");
        near.ack_up_to(0);
    });
}

#[test]
fn a_few_messages_that_wait_do_not_keep_memory_from_everybody() {
    everywhere_with(&small(), |stage| {
        pass_around_tasks(stage, 64);
        let used = stage.world.broker(0, |broker| broker.shard.memory());
        assert!(used < MEMORY_BYTES / 2, "{used} bytes");
        assert_eq!(drain(stage, "slow"), 64);
    });
}

/// The log's lines about alarms since the last look.
fn alarms(world: &World) -> Vec<String> {
    let events = world.events().into_iter().filter(|event| event.kind.contains("alarm"));
    events.map(|event| format!("{}: {}", event.kind, event.text)).collect()
}

#[test]
fn the_log_says_when_memory_is_short_and_when_it_has_room_again() {
    let world = World::with(small());
    let publisher = world.channel(0);
    publisher.declare("q");
    fill(&publisher, "q");
    let begin = alarms(&world);
    assert_eq!(begin.len(), 1, "{begin:?}");
    assert!(begin[0].starts_with("memory-alarm: memory is short: "), "{begin:?}");
    assert!(begin[0].contains("of the shard's 8.0 MiB are used"), "{begin:?}");
    assert!(begin[0].contains("raise memory.budget"), "{begin:?}");
    world.advance(12_000);
    assert_eq!(alarms(&world), [""; 0], "nothing has changed");
    world.channel(0).purge("q");
    let end = alarms(&world);
    assert_eq!(end.len(), 1, "{end:?}");
    assert!(end[0].starts_with("memory-alarm-over: memory has room after 12 s: "), "{end:?}");
}

#[test]
fn alarms_that_come_and_go_do_not_flood_the_log() {
    let world = World::with(small());
    let publisher = world.channel(0);
    publisher.declare("q");
    let mut lines = Vec::new();
    for _ in 0..15 {
        fill(&publisher, "q");
        world.channel(0).purge("q");
        world.advance(1_000);
        lines.extend(alarms(&world));
    }
    assert!((2..=4).contains(&lines.len()), "{lines:?}");
    // What is true in the end is told.
    world.advance(10_000);
    lines.extend(alarms(&world));
    assert!(lines.last().unwrap().starts_with("memory-alarm-over: "), "{lines:?}");
}

#[test]
fn what_waits_for_acknowledgement_counts_and_only_publishers_wait_for_it() {
    const DELIVERIES: usize = 15_000;
    // Bodies are on the disk: only what queue and channel know of the deliveries is in memory.
    let limits = Limits { memory_bytes: 5 << 18, spill_bytes: 0, ..Limits::default() };
    let store = Some(StoreOptions::default());
    let world = World::with(Options { limits, store, ..Options::default() });
    let (near, far) = (world.channel(0), world.channel(0));
    near.declare("q");
    near.declare("other");
    far.publish("", "other", "x");
    far.client().together(|| {
        for _ in 0..DELIVERIES {
            far.publish("", "q", "x");
        }
    });
    world.settle();
    assert_eq!(far.client().blocked(), None);
    near.consume("q", "c");
    assert_eq!(near.deliveries().len(), DELIVERIES, "a consumer is never held back by it");
    far.publish("", "q", "x");
    assert!(far.client().blocked().unwrap().contains("memory"));
    assert_eq!(near.get_no_ack("other").unwrap().body, b"x");
    near.ack_up_to(0);
    world.settle();
    assert_eq!(far.client().blocked(), None);
    far.publish("", "other", "y");
    assert_eq!(near.get_no_ack("other").unwrap().body, b"y");
}

#[test]
fn the_alarm_ends_when_everything_is_acknowledged_whatever_the_budget() {
    // From the smallest budget on the most shards, by way of those of about one chunk of bodies, to
    // such that hold all chunks that are kept.
    for kibibytes in [64, 256, 300, 512, 1024, 2048, 4096, 4700, 5120] {
        let limits = Limits { memory_bytes: kibibytes << 10, ..Limits::default() };
        let world = World::with(Options { limits, ..Options::default() });
        let (near, far) = (world.channel(0), world.channel(0));
        near.declare("q");
        near.consume("q", "c");
        let mut published = 0;
        while far.client().blocked().is_none() {
            far.publish("", "q", [b'x'; 1024]);
            published += 1;
            assert!(published < 10_000, "{kibibytes} KiB: nobody stops the publisher");
        }
        near.ack_up_to(0);
        world.advance(12_000);
        assert_eq!(far.client().blocked(), None, "{kibibytes} KiB");
        far.publish("", "q", "y");
        world.settle();
        near.ack_up_to(0);
        world.advance(12_000);
        assert_eq!(far.client().blocked(), None, "{kibibytes} KiB");
        assert_eq!(near.deliveries().len(), published + 1, "{kibibytes} KiB");
        let used = world.broker(0, |broker| broker.shard.pool.used());
        assert!(used <= kibibytes << 10, "{kibibytes} KiB: {used}");
    }
}

/// Publishes of 100,000 bytes in a transaction, at most so many; how many were taken.
fn hold(channel: &Channel, count: u32) -> u32 {
    for number in 0..count {
        channel.publish("", "q", vec![b'x'; 100_000]);
        if !channel.is_open() || channel.client().blocked().is_some() {
            return number;
        }
    }
    count
}

#[test]
fn transactions_do_not_take_more_than_the_memory() {
    let world = World::with(small());
    let (near, other, filler) = (world.channel(0), world.channel(0), world.channel(0));
    near.declare("q");
    other.tx_select();
    assert_eq!(hold(&other, 1), 1);
    let client = world.connect(0);
    let channels: Vec<Channel> = (0..3).map(|_| client.channel()).collect();
    for channel in &channels {
        channel.tx_select();
    }
    // Each of them may hold so much alone.
    let held: Vec<u32> = channels.iter().map(|channel| hold(channel, 30)).collect();
    assert_eq!(held[..2], [30, 30]);
    assert!((20..26).contains(&held[2]), "{held:?}");
    // What waited for itself to end would wait for ever.
    let refused = channels[2].expect_refused();
    assert!(refused.text.contains("memory is short"), "{}", refused.text);
    let memory = world.broker(0, |broker| broker.shard.memory());
    assert!(memory < MEMORY_BYTES, "{memory}");
    // A small one is held back while memory is short, as every publish is.
    let count = fill(&filler, "q");
    hold(&other, 1);
    assert!(other.client().blocked().is_some());
    near.purge("q");
    world.advance(1_000);
    assert_eq!(other.client().blocked(), None);
    other.publish("", "q", "x");
    other.tx_commit();
    channels[0].tx_commit();
    assert!(count > 10);
    assert_eq!(world.queue("q").ready, 3 + 30);
}

#[test]
fn while_memory_is_short_no_binding_with_a_filter_comes() {
    everywhere_with(&small(), |stage| {
        let (near, _) = stage.pair();
        near.declare("q");
        let arguments = || Table::new().with("x-filter", "p.type = 'a'");
        near.bind_with("q", "amq.topic", "before", arguments());
        order(stage, Shortage::Memory, true);
        near.bind("q", "amq.topic", "plain");
        let encoded = arguments().to_bytes();
        let bind = queue::Bind {
            queue: "q",
            exchange: "amq.topic",
            routing_key: "k",
            arguments: encoded.as_ref(),
            ..queue::Bind::default()
        };
        let refused = near.refused(bind);
        assert_eq!((refused.code, refused.hard), (ReplyCode::PRECONDITION_FAILED, false));
        assert!(refused.text.contains("memory is short"), "{}", refused.text);
        order(stage, Shortage::Memory, false);
        stage.near().bind_with("q", "amq.topic", "k", arguments());
    });
}
