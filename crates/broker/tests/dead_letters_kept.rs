//! Dead letters of durable queues: never lost between two queues, whatever happens.

use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};

use crate::at_least_once::{declare, surely_to};
use crate::restart::{drain, durable, durable_with, persistent, publish_confirmed};
use crate::stage::on_disk;

fn dead_to(key: &str) -> Table {
    Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", key)
}

fn numbers(world: &World, queue: &str) -> Vec<u32> {
    drain(world, queue).iter().map(|found| found.0).collect()
}

#[test]
fn what_was_rejected_is_in_the_other_queue_after_a_restart() {
    on_disk(|world, end| {
        let far = world.channel(world.shards() - 1);
        durable(&far, "graves");
        let channel = world.channel(0);
        durable_with(&channel, "q", dead_to("graves"));
        publish_confirmed(&channel, "q", 0..300);
        channel.consume("q", "c");
        for message in channel.deliveries() {
            channel.reject(message.tag, false);
        }
        world.advance(1_500);
        end.now(world);
        assert_eq!(numbers(world, "graves"), (0..300).collect::<Vec<_>>());
        assert_eq!(numbers(world, "q"), [0; 0]);
    });
}

#[test]
fn until_the_other_shard_has_it_on_disk_the_source_keeps_it() {
    let world = World::on_disk(2);
    let far = world.channel(1);
    durable(&far, "graves");
    let channel = world.channel(0);
    durable_with(&channel, "q", dead_to("graves"));
    publish_confirmed(&channel, "q", 0..10);
    assert_ne!(world.queue("graves").home, world.queue("q").home);
    channel.consume("q", "c");
    let taken = channel.deliveries();
    let log = lepus_store::disk::LogId(1 + u32::from(world.queue("graves").home));
    world.hold_log(log);
    for message in &taken {
        channel.reject(message.tag, false);
    }
    world.advance(3_000);
    assert_eq!(world.queue("graves").ready, 10);
    world.kill();
    world.start_again(2);
    let mut found = numbers(&world, "q");
    found.extend(numbers(&world, "graves"));
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, (0..10).collect::<Vec<_>>());
}

#[test]
fn once_the_other_shard_has_it_the_source_lets_go() {
    let world = World::on_disk(2);
    let far = world.channel(1);
    durable(&far, "graves");
    let channel = world.channel(0);
    durable_with(&channel, "q", dead_to("graves"));
    publish_confirmed(&channel, "q", 0..10);
    channel.consume("q", "c");
    for message in channel.deliveries() {
        channel.reject(message.tag, false);
    }
    world.advance(3_000);
    world.crash();
    world.start_again(2);
    assert_eq!(numbers(&world, "q"), [0; 0]);
    assert_eq!(numbers(&world, "graves"), (0..10).collect::<Vec<_>>());
}

#[test]
fn what_expires_while_the_broker_is_down_is_dead_lettered_at_the_start() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "graves");
        durable_with(&channel, "q", dead_to("graves").with("x-message-ttl", 1_000));
        publish_confirmed(&channel, "q", 0..50);
        end.now(world);
        world.advance(1_000);
        assert_eq!(world.queue("q").ready, 0);
        assert_eq!(numbers(world, "graves"), (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn a_purge_does_not_lose_what_is_on_its_way() {
    let world = World::on_disk(2);
    let far = world.channel(1);
    durable(&far, "graves");
    let channel = world.channel(0);
    durable_with(&channel, "q", dead_to("graves"));
    publish_confirmed(&channel, "q", 0..10);
    channel.qos(5);
    channel.consume("q", "c");
    let taken = channel.deliveries();
    let log = lepus_store::disk::LogId(1 + u32::from(world.queue("graves").home));
    world.hold_log(log);
    for message in &taken[..2] {
        channel.reject(message.tag, false);
    }
    channel.cancel("c");
    assert!(channel.purge("q") >= 3);
    world.advance(3_000);
    world.kill();
    world.start_again(2);
    let mut found = numbers(&world, "q");
    found.extend(numbers(&world, "graves"));
    assert!(found.contains(&0) && found.contains(&1), "{found:?}");
}

#[test]
fn a_stop_ends_though_messages_expire_after_the_other_shard_has_closed() {
    let world = World::on_disk(2);
    durable(&world.channel(1), "graves");
    let channel = world.channel(0);
    durable_with(&channel, "q", dead_to("graves").with("x-message-ttl", 40));
    assert_ne!(world.queue("graves").home, world.queue("q").home);
    channel.confirm_select();
    // Whoever waits for confirms keeps the log of the source open.
    world.slow_disk(60);
    channel.client().together(|| {
        for body in 0..10_u32 {
            channel.publish_with("", "q", &persistent(), body.to_string());
        }
    });
    world.stop();
    world.slow_disk(0);
    world.start_again(2);
    world.advance(1_000);
    assert_eq!(numbers(&world, "graves"), (0..10).collect::<Vec<_>>());
    assert_eq!(numbers(&world, "q"), [0; 0]);
}

#[test]
fn a_letter_that_comes_too_late_for_a_stop_stays_where_it_was_and_is_marked() {
    // Hardly anything stays in memory.
    let mut store = StoreOptions::default();
    store.template.cache_bytes = 16 << 10;
    store.template.read_ahead_bytes = 4 << 10;
    let world = World::with(Options { shards: 2, store: Some(store), ..Options::default() });
    durable(&world.channel(1), "graves");
    let channel = world.channel(0);
    durable_with(&channel, "q", dead_to("graves"));
    channel.confirm_select();
    let count = 400_u32;
    for body in 0..count {
        channel.publish_with("", "q", &persistent(), format!("{body:01000}"));
    }
    assert_eq!(channel.confirmed().0.len() as u32, count);
    channel.qos(5);
    channel.consume("q", "c");
    let taken = channel.deliveries();
    channel.cancel("c");
    // Everything behind them goes through memory.
    let other = world.channel(0);
    other.consume("q", "other");
    let rest = other.deliveries();
    assert_eq!(rest.len() as u32, count - 5);
    other.ack_up_to(rest[rest.len() - 1].tag);
    world.advance(1_500);
    world.slow_disk(60);
    for message in &taken {
        channel.reject(message.tag, false);
    }
    assert!(world.disk_waiting() > 0, "they are read again");
    world.stop();
    world.slow_disk(0);
    world.start_again(2);
    assert_eq!(numbers(&world, "graves"), [0; 0]);
    let found = drain(&world, "q");
    assert_eq!(found, (0..5).map(|body| (body, true)).collect::<Vec<_>>());
}

/// A queue that sends its dead letters to `graves`, at most once or surely.
fn source(channel: &Channel, name: &str, surely: bool) {
    match surely {
        true => declare(channel, name, surely_to("", "graves")),
        false => durable_with(channel, name, dead_to("graves")),
    }
}

fn reject_all(channel: &Channel, queue: &str) {
    while let Some(message) = channel.get(queue) {
        channel.reject(message.tag, false);
    }
}

/// What is in a queue, by length; the memory that the shard counts is what a walk finds.
fn lengths(world: &World, queue: &str) -> Vec<usize> {
    world.broker(0, |broker| assert_eq!(broker.shard.memory(), broker.view().memory_by_walk()));
    let channel = world.channel(0);
    let found: Vec<_> = core::iter::from_fn(|| channel.get(queue)).collect();
    for message in &found {
        channel.reject(message.tag, true);
    }
    found.iter().map(|message| message.body.len()).collect()
}

/// A world without room for long letters, and one of queue `large` that waits for some, with a short one behind it. The log is so small
/// that nothing is kept for the long one.
fn with_a_large_letter(surely: bool) -> (World, Channel) {
    let world = World::in_segments(1, 19);
    let channel = world.channel(0);
    durable(&channel, "graves");
    source(&channel, "large", surely);
    source(&channel, "little", surely);
    let expiring = dead_to("graves").with("x-message-ttl", 2_000);
    durable_with(&channel, "expiring", expiring);
    channel.confirm_select();
    for (queue, bytes) in [("large", 400_000), ("large", 3), ("little", 1), ("expiring", 2)] {
        channel.publish_with("", queue, &persistent(), vec![b'x'; bytes]);
    }
    world.advance(1_000);
    assert_eq!(channel.confirmed().0.len(), 4);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    reject_all(&channel, "large");
    world.advance(100);
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    (world, channel)
}

#[test]
fn a_letter_that_waits_for_room_keeps_none_waiting_that_needs_less() {
    for surely in [false, true] {
        let (world, channel) = with_a_large_letter(surely);
        reject_all(&channel, "little");
        world.advance(3_000);
        assert_eq!(lengths(&world, "graves"), [3, 1, 2], "surely: {surely}");
        assert!(world.broker(0, |broker| broker.view().waits_for_room()));
        let turns = world.turns(0);
        world.advance(100);
        assert!(world.turns(0) - turns < 10, "{} turns", world.turns(0) - turns);
        world.disk(|disk| disk.bytes_max = u64::MAX);
        world.advance(5_000);
        assert_eq!(lengths(&world, "graves"), [3, 1, 2, 400_000], "surely: {surely}");
        assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
        world.stop();
        world.start_again(1);
        assert_eq!(lengths(&world, "graves"), [3, 1, 2, 400_000], "surely: {surely}");
        assert_eq!(world.queue("large").ready, 0);
    }
}

#[test]
fn letters_that_wait_for_room_are_in_their_queue_after_a_stop_in_order() {
    for surely in [false, true] {
        let (world, channel) = with_a_large_letter(surely);
        reject_all(&channel, "little");
        world.advance(100);
        world.stop();
        world.disk(|disk| disk.bytes_max = u64::MAX);
        world.start_again(1);
        let mut all = lengths(&world, "graves");
        all.extend(lengths(&world, "large"));
        all.extend(lengths(&world, "expiring"));
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 400_000], "surely: {surely}");
    }
}

#[test]
fn letters_that_wait_for_room_go_with_their_queue() {
    let (world, channel) = with_a_large_letter(false);
    channel.delete("large");
    world.advance(100);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    assert_eq!(lengths(&world, "graves"), [3], "which passed the long one");
}

#[test]
fn a_letter_that_has_no_room_beside_itself_stays_and_is_told() {
    let mut store = StoreOptions::default();
    store.template.segments_max = 12;
    let world = World::with(Options { store: Some(store), shards: 1, ..Options::default() });
    let channel = world.channel(0);
    durable(&channel, "graves");
    source(&channel, "q", false);
    channel.confirm_select();
    for bytes in [LARGE, 1] {
        channel.publish_with("", "q", &persistent(), vec![b'x'; bytes]);
    }
    world.advance(1_000);
    assert_eq!(channel.confirmed().0.len(), 2);
    reject_all(&channel, "q");
    world.advance(1_000);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    let told = world.events().iter().filter(|event| event.kind == "dead-letter-too-large").count();
    assert_eq!(told, 1);
    assert_eq!(lengths(&world, "graves"), [1]);
    world.stop();
    world.start_again(1);
    assert_eq!(lengths(&world, "q"), [LARGE]);
}

/// So much that a log of 12 segments holds it once and not twice.
pub const LARGE: usize = 330_000;

/// A world in which a letter of queue `wide` is on its way to 2,000 queues, `w0` and so on, and the log
/// has no room for it in the last of them.
fn with_a_wide_letter() -> (World, Channel) {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "graves");
    channel.exchange("w", "fanout");
    for queue in 0..2_000 {
        let queue = format!("w{queue}");
        durable(&channel, &queue);
        channel.bind(&queue, "w", "");
    }
    durable_with(&channel, "wide", Table::new().with("x-dead-letter-exchange", "w"));
    source(&channel, "little", false);
    channel.confirm_select();
    for (queue, bytes) in [("wide", 200_000), ("wide", 3), ("little", 1), ("little", 2)] {
        channel.publish_with("", queue, &persistent(), vec![b'x'; bytes]);
    }
    world.advance(1_000);
    assert_eq!(channel.confirmed().0.len(), 4);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used + 300_000);
    reject_all(&channel, "wide");
    world.advance(1_000);
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    assert_eq!((world.queue("w0").ready, world.queue("w1999").ready), (1, 0));
    (world, channel)
}

#[test]
fn a_letter_on_its_way_to_very_many_queues_keeps_only_those_of_its_own_queue_waiting() {
    let (world, channel) = with_a_wide_letter();
    reject_all(&channel, "little");
    world.advance(1_000);
    assert_eq!(lengths(&world, "graves"), [1, 2]);
    assert_eq!(world.queue("w1999").ready, 0);
    let turns = world.turns(0);
    world.advance(100);
    assert!(world.turns(0) - turns < 10, "{} turns", world.turns(0) - turns);
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(5_000);
    for queue in ["w0", "w1000", "w1999"] {
        assert_eq!(lengths(&world, queue), [200_000, 3], "in {queue}");
    }
    assert_eq!(world.queue("wide").ready, 0);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    world.stop();
    world.start_again(1);
    assert_eq!(lengths(&world, "w1999"), [200_000, 3]);
}

#[test]
fn a_letter_on_its_way_to_very_many_queues_is_in_all_of_them_though_its_queue_is_gone() {
    let (world, channel) = with_a_wide_letter();
    channel.delete("wide");
    world.advance(100);
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(5_000);
    for queue in ["w0", "w1000", "w1999"] {
        // The one behind it went with its queue.
        assert_eq!(lengths(&world, queue), [200_000], "in {queue}");
    }
    reject_all(&channel, "little");
    world.advance(1_000);
    assert_eq!(lengths(&world, "graves"), [1, 2]);
}

#[test]
fn a_queue_whose_dead_letter_waits_for_room_serves_its_consumers() {
    for surely in [false, true] {
        let world = World::in_segments(1, 19);
        let channel = world.channel(0);
        durable(&channel, "graves");
        source(&channel, "q", surely);
        channel.confirm_select();
        let expiring = Properties { expiration: Some("1000".into()), ..persistent() };
        channel.publish_with("", "q", &expiring, vec![b'x'; 400_000]);
        channel.publish_with("", "q", &expiring, vec![b'x'; 3]);
        channel.publish_with("", "q", &persistent(), vec![b'x'; 2]);
        world.advance(500);
        assert_eq!(channel.confirmed().0.len(), 3);
        let used = world.disk(|disk| disk.bytes());
        world.disk(|disk| disk.bytes_max = used);
        world.advance(1_000);
        assert!(world.broker(0, |broker| broker.view().waits_for_room()));
        let message = channel.get("q").expect("what has not expired");
        assert_eq!(message.body.len(), 2);
        channel.ack(message.tag);
        world.disk(|disk| disk.bytes_max = u64::MAX);
        world.advance(5_000);
        assert_eq!(lengths(&world, "graves"), [3, 400_000], "surely: {surely}");
    }
}

/// A world whose log soon is full.
pub fn with_little_room() -> (World, Channel) {
    let mut store = StoreOptions::default();
    store.template.segments_max = 12;
    let world = World::with(Options { store: Some(store), shards: 1, ..Options::default() });
    let channel = world.channel(0);
    channel.confirm_select();
    (world, channel)
}

/// Calls `publish` until publishers wait because the log is full.
pub fn fill(world: &World, mut publish: impl FnMut()) {
    let is_full = || world.broker(0, |broker| broker.journal.figures().is_low);
    for _ in 0..1_000 {
        if is_full() {
            return;
        }
        publish();
        world.advance(1);
    }
    panic!("the log is never full");
}

#[test]
fn a_log_full_of_what_has_expired_gives_it_to_the_dead_letter_queue() {
    for surely in [false, true] {
        let (world, channel) = with_little_room();
        durable(&channel, "graves");
        let arguments = if surely { surely_to("", "graves") } else { dead_to("graves") };
        durable_with(&channel, "q", arguments.with("x-message-ttl", 60_000));
        fill(&world, || channel.publish_with("", "q", &persistent(), vec![b'x'; 3_000]));
        world.advance(1_000);
        let published = world.queue("q").ready;
        world.advance(120_000);
        assert_eq!(world.queue("graves").ready, published, "surely: {surely}");
    }
}

/// A long one has no room in a log that is full of short ones behind it: they pass it.
#[test]
fn a_long_one_that_waits_for_room_keeps_back_no_shorter_ones_of_its_queue() {
    for surely in [false, true] {
        for bytes in [60_000, 66_000, 130_000, 200_000] {
            let (world, channel) = with_little_room();
            durable(&channel, "graves");
            let arguments = if surely { surely_to("", "graves") } else { dead_to("graves") };
            durable_with(&channel, "q", arguments.with("x-message-ttl", 60_000));
            channel.publish_with("", "q", &persistent(), vec![b'x'; bytes]);
            world.advance(100);
            fill(&world, || channel.publish_with("", "q", &persistent(), vec![b'x'; 3_000]));
            world.advance(1_000);
            let published = world.queue("q").ready;
            let (taker, mut got) = (world.channel(0), 0);
            for _ in 0..40 {
                world.advance(10_000);
                while taker.get_no_ack("graves").is_some() {
                    got += 1;
                }
            }
            assert_eq!(got, published, "surely: {surely}, {bytes} bytes");
        }
    }
}

/// And those that need as much, or more, stay behind it.
#[test]
fn letters_that_need_as_much_room_or_more_keep_their_order() {
    for surely in [false, true] {
        let (world, channel) = with_little_room();
        durable(&channel, "graves");
        let arguments = if surely { surely_to("", "graves") } else { dead_to("graves") };
        durable_with(&channel, "q", arguments.with("x-message-ttl", 60_000));
        let body = |number: usize, bytes: usize| format!("{number:05}{}", "-".repeat(bytes));
        let long = [90_000, 90_000, 100_000];
        for (number, bytes) in long.into_iter().enumerate() {
            channel.publish_with("", "q", &persistent(), body(number, bytes));
            world.advance(100);
        }
        let number = core::cell::Cell::new(long.len());
        fill(&world, || {
            let short = body(number.replace(number.get() + 1), 3_000);
            channel.publish_with("", "q", &persistent(), short);
        });
        world.advance(1_000);
        let published = world.queue("q").ready as usize;
        let (taker, mut found) = (world.channel(0), Vec::new());
        for _ in 0..40 {
            world.advance(10_000);
            while let Some(message) = taker.get_no_ack("graves") {
                let number = String::from_utf8_lossy(&message.body[..5]).parse::<usize>().unwrap();
                found.push(number);
            }
        }
        let (first, second): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|number| *number < long.len());
        assert_eq!(first, [0, 1, 2], "surely: {surely}");
        assert_eq!(second, (long.len()..published).collect::<Vec<_>>(), "surely: {surely}");
    }
}
