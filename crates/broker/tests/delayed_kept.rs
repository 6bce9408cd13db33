//! Persistent messages that a delayed exchange holds back: on the disk as in a queue.

use lepus_amqp::method::{exchange, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};
use lepus_store::disk::LogId;

use crate::dead_letters_kept::{LARGE, fill, with_little_room};
use crate::restart::{drain, durable, persistent};
use crate::stage::{Ending, on_disk};

/// Declares a durable delayed exchange.
pub(crate) fn declare_delayed(channel: &Channel, name: &str, kind: &str) {
    let arguments = Table::new().with("x-delayed-type", kind).to_bytes();
    channel.exchange_method(exchange::Declare {
        exchange: name,
        r#type: "x-delayed-message",
        durable: true,
        arguments: arguments.as_ref(),
        ..Default::default()
    });
}

/// A durable queue `q` that gets all of a delayed exchange `x`.
pub(crate) fn declare_both(channel: &Channel) {
    declare_delayed(channel, "x", "fanout");
    durable(channel, "q");
    channel.bind("q", "x", "");
}

/// A persistent message that is held back so long.
pub(crate) fn after(millis: u64) -> Properties {
    let headers = Some(Table::new().with("x-delay", Value::I64(millis as i64)));
    Properties { headers, ..persistent() }
}

/// Publishes numbers that are due after as many milliseconds each, and waits for their confirms.
fn publish_later(channel: &Channel, bodies: impl IntoIterator<Item = (u32, u64)>) {
    channel.confirm_select();
    let mut count = 0;
    channel.client().together(|| {
        for (body, millis) in bodies {
            channel.publish_with("x", "", &after(millis), body.to_string());
            count += 1;
        }
    });
    let (acked, nacked) = channel.confirmed();
    assert_eq!((acked.len(), nacked.len()), (count, 0));
}

fn numbers(world: &World, queue: &str) -> Vec<u32> {
    drain(world, queue).iter().map(|found| found.0).collect()
}

#[test]
fn it_is_confirmed_when_the_disk_has_it_and_not_before() {
    on_disk(|world, _| {
        let channel = world.channel(world.shards() - 1);
        declare_both(&channel);
        channel.confirm_select();
        world.hold_disk();
        channel.publish_with("x", "", &after(60_000), "1");
        world.advance(5_000);
        assert_eq!(channel.confirms(), []);
        world.release_disk();
        assert_eq!(channel.confirmed().0, [1]);
    });
}

#[test]
fn it_comes_at_its_moment_whatever_ended_the_run_before() {
    on_disk(|world, end| {
        let channel = world.channel(world.shards() - 1);
        declare_both(&channel);
        let start = world.now().wall_millis;
        let until = |millis| world.advance(start + millis - world.now().wall_millis);
        publish_later(&channel, (0..100).map(|body| (body, 10_000 - u64::from(body) * 50)));
        until(2_000);
        end.now(world);
        until(5_040);
        assert_eq!(world.queue("q").ready, 0, "the last is due five seconds after it came");
        until(5_090);
        assert_eq!(world.queue("q").ready, 1);
        until(10_050);
        assert_eq!(numbers(world, "q"), (0..100).rev().collect::<Vec<_>>());
        // What nobody waits for is on the disk after a moment.
        world.advance(1_500);
        end.now(world);
        world.advance(20_000);
        assert_eq!(world.queue("q").ready, 0, "none comes twice");
    });
}

#[test]
fn what_became_due_meanwhile_comes_at_once() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        let channel = world.channel(0);
        declare_both(&channel);
        publish_later(&channel, [(3, 3_000), (1, 1_000), (9, 90_000), (2, 2_000)]);
        world.skip(30_000);
        world.kill();
        world.start_again(shards);
        assert_eq!(numbers(&world, "q"), [1, 2, 3]);
        world.advance(61_000);
        assert_eq!(numbers(&world, "q"), [9]);
    }
}

#[test]
fn it_goes_by_all_its_keys_and_keeps_its_properties() {
    on_disk(|world, end| {
        let channel = world.channel(world.shards() - 1);
        declare_delayed(&channel, "x", "direct");
        for name in ["key", "seen", "hidden"] {
            durable(&channel, name);
            channel.bind(name, "x", name);
        }
        let headers = Table::new()
            .with("x-delay", 5_000)
            .with("CC", vec![Value::from("seen")])
            .with("BCC", vec![Value::from("hidden")]);
        let properties = Properties {
            headers: Some(headers),
            priority: Some(3),
            message_id: Some("id".into()),
            ..persistent()
        };
        channel.confirm_select();
        channel.publish_with("x", "key", &properties, "1");
        assert_eq!(channel.confirmed().0, [1]);
        end.now(world);
        world.advance(5_000);
        let channel = world.channel(0);
        for name in ["key", "seen", "hidden"] {
            let message = channel.get_no_ack(name).expect("a message");
            assert_eq!((message.exchange.as_str(), message.key.as_str()), ("x", "key"));
            assert_eq!(message.properties.message_id.as_deref(), Some("id"));
            let headers = message.properties.headers.expect("headers");
            assert!(headers.get("CC").is_some() && headers.get("BCC").is_none());
        }
    });
}

#[test]
fn a_run_with_fewer_or_more_shards_has_them_all() {
    for (before, after) in [(2, 1), (3, 2), (1, 3), (3, 1)] {
        let world = World::on_disk(before);
        let channel = world.channel(0);
        declare_both(&channel);
        for shard in 0..before {
            let bodies = (0..20).map(|body| (100 * u32::from(shard) + body, 5_000));
            publish_later(&world.channel(shard), bodies);
        }
        world.stop();
        world.start_again(after);
        // And what comes now is held back beside them.
        let last = world.channel(after - 1);
        publish_later(&last, [(999, 9_000)]);
        world.crash();
        world.start_again(after);
        world.advance(9_000);
        let mut found = numbers(&world, "q");
        found.sort_unstable();
        let mut expected: Vec<u32> = (0..u32::from(before))
            .flat_map(|shard| (0..20).map(move |n| 100 * shard + n))
            .collect();
        expected.push(999);
        assert_eq!(found, expected, "{before} shards, then {after}");
    }
}

#[test]
fn a_deleted_exchange_takes_them_along_for_ever() {
    on_disk(|world, end| {
        let channel = world.channel(world.shards() - 1);
        declare_both(&channel);
        publish_later(&channel, (0..700).map(|body| (body, 5_000)));
        channel.delete_exchange("x");
        assert_eq!(world.leaks(), [""; 0]);
        // The next of that name has nothing to do with it.
        declare_delayed(&channel, "x", "fanout");
        channel.bind("q", "x", "");
        publish_later(&channel, [(1_000, 5_000)]);
        end.now(world);
        world.advance(5_000);
        assert_eq!(numbers(world, "q"), [1_000]);
    });
}

#[test]
fn once_released_it_is_where_it_went_and_nowhere_else() {
    on_disk(|world, end| {
        // The queues are on both shards, and the messages are held back on the last.
        let first = world.channel(0);
        declare_delayed(&first, "x", "fanout");
        durable(&first, "near");
        let channel = world.channel(world.shards() - 1);
        durable(&channel, "far");
        first.bind("near", "x", "");
        first.bind("far", "x", "");
        publish_later(&channel, (0..300).map(|body| (body, 1_000)));
        world.advance(3_000);
        assert_eq!(world.queue("near").ready, 300);
        end.now(world);
        world.advance(10_000);
        for name in ["near", "far"] {
            assert_eq!(numbers(world, name), (0..300).collect::<Vec<_>>());
        }
    });
}

#[test]
fn until_another_shard_has_it_on_disk_it_is_kept() {
    let world = World::on_disk(2);
    let far = world.channel(0);
    declare_both(&far);
    let home = world.queue("q").home;
    let channel = world.channel(1 - home);
    publish_later(&channel, (0..10).map(|body| (body, 1_000)));
    world.hold_log(LogId(1 + u32::from(home)));
    world.advance(4_000);
    assert_eq!(world.queue("q").ready, 10);
    world.kill();
    world.start_again(2);
    world.advance(1_000);
    let mut found = numbers(&world, "q");
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_commit_is_answered_when_the_disk_has_what_is_held_back() {
    for end in [Ending::Kill, Ending::Crash] {
        let world = World::on_disk(1);
        let channel = world.channel(0);
        declare_both(&channel);
        channel.tx_select();
        channel.publish_with("x", "", &after(1_000), "1");
        channel.publish_with("", "q", &persistent(), "2");
        world.hold_disk();
        channel.send(tx::Commit {});
        world.advance(100);
        assert!(channel.answer().is_none());
        world.release_disk();
        channel.expect("tx.commit-ok");
        end.now(&world);
        assert_eq!(numbers(&world, "q"), [2]);
        world.advance(1_000);
        assert_eq!(numbers(&world, "q"), [1]);
    }
}

#[test]
fn many_are_held_back_on_disk_and_not_in_memory() {
    on_disk(|world, end| {
        let channel = world.channel(world.shards() - 1);
        declare_both(&channel);
        for round in 0..10 {
            publish_later(&channel, (0..1_000).map(|n| (round * 1_000 + n, 20_000)));
        }
        let bodies = |shard| world.broker(shard, |broker| broker.shard.pool.len());
        assert_eq!((0..world.shards()).map(bodies).sum::<usize>(), 0);
        end.now(world);
        assert_eq!((0..world.shards()).map(bodies).sum::<usize>(), 0);
        world.advance(20_000);
        let found = numbers(world, "q");
        assert_eq!(found, (0..10_000).collect::<Vec<_>>());
    });
}

#[test]
fn what_a_transient_exchange_holds_back_or_is_not_persistent_ends_with_the_run() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    declare_both(&channel);
    channel.exchange_with("y", "x-delayed-message", Table::new().with("x-delayed-type", "fanout"));
    channel.bind("q", "y", "");
    channel.confirm_select();
    channel.publish_with("y", "", &after(1_000), "1");
    let transient = Properties { delivery_mode: Some(1), ..after(1_000) };
    channel.publish_with("x", "", &transient, "2");
    assert_eq!(channel.confirmed().0, [1, 2]);
    world.stop();
    world.start_again(1);
    world.advance(5_000);
    assert_eq!(world.queue("q").ready, 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn one_that_is_due_waits_for_room_on_the_disk_without_looking_for_it() {
    // So few segments that nothing is kept for the long one.
    let world = World::in_segments(1, 9);
    let channel = world.channel(0);
    declare_both(&channel);
    let body = vec![b'1'; 100_000];
    channel.confirm_select();
    channel.publish_with("x", "", &after(10_000), &body);
    assert_eq!(channel.confirmed().0, [1]);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    durable(&channel, "other");
    for _ in 0..10_000 {
        channel.publish_with("", "other", &persistent(), vec![b'1'; 4_000]);
        if channel.client().blocked().is_some() {
            break;
        }
    }
    world.advance(20_000);
    assert_eq!(world.queue("q").ready, 0, "there is no room for it");
    let turns = world.turns(0);
    world.advance(20_000);
    let spent = world.turns(0) - turns;
    assert!(spent < 100, "{spent} turns while nothing can be done");
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(10_000);
    assert_eq!(world.queue("q").ready, 1);
}

/// A world without room for the first message of exchange `large`, which is due before one of `x`. The log
/// is so small that nothing is kept for it.
fn with_a_large_one() -> (World, Channel) {
    let world = World::in_segments(1, 19);
    let channel = world.channel(0);
    declare_both(&channel);
    declare_delayed(&channel, "large", "fanout");
    channel.bind("q", "large", "");
    channel.confirm_select();
    channel.publish_with("large", "", &after(10_000), vec![b'1'; 400_000]);
    channel.publish_with("large", "", &after(10_500), "22");
    channel.publish_with("x", "", &after(11_000), "1");
    assert_eq!(channel.confirmed().0.len(), 3);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    // Others use the room that it was to leave.
    let other = world.channel(0);
    durable(&other, "other");
    for _ in 0..10_000 {
        other.publish_with("", "other", &persistent(), vec![b'1'; 4_000]);
        if other.client().blocked().is_some() {
            break;
        }
    }
    world.advance(20_000);
    (world, channel)
}

#[test]
fn one_that_waits_for_room_keeps_back_none_that_need_less() {
    let (world, channel) = with_a_large_one();
    assert_eq!(world.queue("q").ready, 2, "there is room for the short ones");
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    let turns = world.turns(0);
    world.advance(20_000);
    assert!(world.turns(0) - turns < 100, "{} turns", world.turns(0) - turns);
    channel.publish_with("large", "", &after(1), "333");
    world.channel(0).purge("other");
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(10_000);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    let bodies = core::iter::from_fn(|| channel.get("q")).map(|message| message.body.len());
    assert_eq!(bodies.collect::<Vec<_>>(), [2, 1, 3, 400_000]);
}

#[test]
fn one_that_waits_for_room_goes_with_its_exchange() {
    let (world, channel) = with_a_large_one();
    channel.delete_exchange("large");
    world.advance(1_000);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    assert_eq!(world.broker(0, |broker| broker.view().holdings().delayed), 0);
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(10_000);
    assert_eq!(world.queue("q").ready, 2, "the short ones");
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn one_that_has_no_room_beside_itself_stays_and_is_told() {
    let world = World::in_segments(1, 12);
    let channel = world.channel(0);
    declare_delayed(&channel, "x", "fanout");
    durable(&channel, "q");
    channel.confirm_select();
    channel.publish_with("x", "", &after(1_000), vec![b'1'; LARGE]);
    channel.publish_with("x", "", &after(1_000), "1");
    // Nobody knew before that it needs room in a queue.
    channel.bind("q", "x", "");
    world.advance(5_000);
    assert_eq!(channel.confirmed().0.len(), 2);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    assert_eq!(channel.get_no_ack("q").map(|message| message.body.len()), Some(1));
    let told: Vec<_> =
        world.events().into_iter().filter(|event| event.kind == "delayed-too-large").collect();
    assert_eq!(told.len(), 1);
    for part in ["exchange 'x' in vhost '/'", "store.bytes_max"] {
        assert!(told[0].text.contains(part), "{}", told[0].text);
    }
    world.stop();
    world.start_again(1);
    world.advance(1_000);
    let told = world.events().iter().filter(|event| event.kind == "delayed-too-large").count();
    assert_eq!(told, 1, "the next run has it again");
}

#[test]
fn those_for_very_many_queues_find_the_room_that_they_need() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    declare_delayed(&channel, "x", "fanout");
    for queue in 0..2_000 {
        let queue = format!("q{queue}");
        durable(&channel, &queue);
        channel.bind(&queue, "x", "");
    }
    publish_later(&channel, (0..60).map(|body| (body, 10_000)));
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    world.advance(60_000);
    assert!(world.queue("q0").ready < 60, "the disk is full");
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(60_000);
    for queue in 0..2_000 {
        assert_eq!(world.queue(&format!("q{queue}")).ready, 60, "in q{queue}");
    }
}

#[test]
fn one_on_its_way_to_very_many_queues_keeps_back_only_those_of_its_own_exchange() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    declare_both(&channel);
    declare_delayed(&channel, "wide", "fanout");
    for queue in 0..2_000 {
        let queue = format!("w{queue}");
        durable(&channel, &queue);
        channel.bind(&queue, "wide", "");
    }
    channel.confirm_select();
    channel.publish_with("wide", "", &after(10_000), vec![b'1'; 200_000]);
    channel.publish_with("wide", "", &after(10_500), "22");
    channel.publish_with("x", "", &after(11_000), "1");
    assert_eq!(channel.confirmed().0.len(), 3);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used + 300_000);
    world.advance(20_000);
    assert_eq!((world.queue("w0").ready, world.queue("w1999").ready), (1, 0));
    assert_eq!(world.queue("q").ready, 1, "there is room for that of the other exchange");
    let turns = world.turns(0);
    world.advance(20_000);
    assert!(world.turns(0) - turns < 100, "{} turns", world.turns(0) - turns);
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(10_000);
    for queue in ["w0", "w1000", "w1999"] {
        let bodies = core::iter::from_fn(|| channel.get(queue)).map(|message| message.body.len());
        assert_eq!(bodies.collect::<Vec<_>>(), [200_000, 2], "in {queue}");
    }
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
}

#[test]
fn what_is_damaged_while_it_is_held_back_is_reported_and_does_not_come() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    declare_both(&channel);
    channel.confirm_select();
    for body in ["first", "damaged", "last"] {
        channel.publish_with("x", "", &after(60_000), format!("{body}{}", "-".repeat(100)));
    }
    assert_eq!(channel.confirmed().0.len(), 3);
    world.kill();
    world.disk(|disk| {
        let files: Vec<_> = disk.files().map(|(file, _)| file).collect();
        for file in files {
            let data = disk.data(file).unwrap_or_default();
            if let Some(at) = data.windows(8).position(|bytes| bytes == b"damaged-") {
                disk.flip(file, at + 50, 3);
            }
        }
    });
    world.start_again(1);
    world.advance(61_000);
    let channel = world.channel(0);
    channel.consume("q", "c");
    let bodies = channel.bodies();
    assert!(bodies.iter().all(|body| body.ends_with(&"-".repeat(100))), "{bodies:?}");
    assert!(bodies.len() == 2, "{bodies:?}");
    assert!(world.events().iter().any(|event| event.kind == "log-damaged"));
}

#[test]
fn a_log_full_of_what_is_due_gives_it_to_its_queues() {
    let (world, channel) = with_little_room();
    declare_both(&channel);
    fill(&world, || channel.publish_with("x", "", &after(60_000), vec![b'x'; 3_000]));
    world.advance(1_000);
    let published = channel.confirmed().0.len() as u64;
    world.advance(120_000);
    assert_eq!(world.queue("q").ready, published);
}

/// Two long ones that are held back in a small log would wait for each other's room for ever.
#[test]
fn a_long_one_waits_with_its_publisher_until_it_will_have_room_to_be_passed_on() {
    let (world, channel) = with_little_room();
    declare_both(&channel);
    // A third of the log, with where it begins and ends.
    let long = || vec![b'x'; 3 * (64 << 10)];
    channel.publish_with("x", "", &after(5_000), long());
    channel.publish_with("x", "", &after(5_000), long());
    world.advance(4_000);
    assert_eq!(channel.confirmed(), (vec![1], vec![]), "the first is held back");
    world.advance(20_000);
    assert_eq!(world.queue("q").ready, 1);
    // The one in the queue is as long as the one that waits.
    let taker = world.channel(0);
    assert!(taker.get_no_ack("q").is_some());
    world.advance(60_000);
    assert_eq!(channel.confirmed(), (vec![2], vec![]));
    assert_eq!(world.queue("q").ready, 1);
}

/// At the end of a run nobody waits: what would take the room of the first one is not taken.
#[test]
fn a_long_one_that_waits_when_the_logs_close_takes_no_room_from_the_first() {
    let (world, channel) = with_little_room();
    declare_both(&channel);
    let long = || vec![b'x'; 3 * (64 << 10)];
    channel.publish_with("x", "", &after(500_000), long());
    channel.publish_with("x", "", &after(500_000), long());
    world.advance(4_000);
    assert_eq!(channel.confirmed(), (vec![1], vec![]));
    world.stop();
    world.start_again(1);
    world.advance(600_000);
    assert_eq!(world.queue("q").ready, 1);
}
