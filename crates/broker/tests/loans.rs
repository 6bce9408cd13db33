//! One memory budget for all shards, lent to those that need it.

use lepus_broker::Query;
use lepus_broker::query::Setting;
use lepus_sim::{Channel, Limits, Options, World};

/// The part of the budget of each shard.
const SHARE_BYTES: usize = 8 << 20;
const SHARDS: u16 = 4;
const MESSAGE_BYTES: usize = 50_000;

fn world() -> World {
    let limits = Limits { memory_bytes: SHARE_BYTES, ..Limits::default() };
    World::with(Options { shards: SHARDS, limits, ..Options::default() })
}

/// A client with a queue of its own on this shard.
fn with_queue(world: &World, shard: u16, queue: &str) -> Channel {
    let channel = world.channel(shard);
    channel.declare(queue);
    assert_eq!(world.queue(queue).home, shard);
    channel
}

/// Publishes until the client is told to stop; how many bytes went.
fn fill(channel: &Channel, queue: &str) -> usize {
    for count in 1..10_000 {
        channel.publish("", queue, vec![b'x'; MESSAGE_BYTES]);
        if channel.client().blocked().is_some() {
            return count * MESSAGE_BYTES;
        }
    }
    panic!("nobody stops the publisher");
}

/// Nobody holds more than was lent, all of it together is the budget, and this much is lent to each.
fn loans(world: &World) -> Vec<usize> {
    assert_eq!(world.leaks(), [""; 0]);
    (0..SHARDS).map(|shard| world.broker(shard, |broker| broker.shard.loan.bytes)).collect()
}

#[test]
fn one_queue_may_use_nearly_the_whole_budget() {
    let world = world();
    let hot = with_queue(&world, 1, "hot");
    let all = SHARE_BYTES * usize::from(SHARDS);
    let used = fill(&hot, "hot");
    assert!(used > all * 4 / 5, "{used} of {all}");
    assert!(used < all, "{used} of {all}");
    assert!(hot.client().blocked().unwrap().contains("memory"));
}

#[test]
fn what_a_queue_does_not_use_any_more_others_may() {
    let world = world();
    let (first, second) = (with_queue(&world, 1, "first"), with_queue(&world, 2, "second"));
    let used = fill(&first, "first");
    first.purge("first");
    world.advance(1_000);
    assert_eq!(first.client().blocked(), None);
    assert!(fill(&second, "second") + 4 * MESSAGE_BYTES > used);
    second.purge("second");
    world.advance(1_000);
    for lent in loans(&world) {
        assert!(lent <= SHARE_BYTES / 2, "{lent} bytes are kept without use");
    }
}

#[test]
fn a_shard_keeps_a_part_while_another_uses_all_the_rest() {
    let world = world();
    let (hot, other) = (with_queue(&world, 1, "hot"), with_queue(&world, 0, "other"));
    fill(&hot, "hot");
    for _ in 0..10 {
        other.publish("", "other", vec![b'x'; MESSAGE_BYTES]);
        assert_eq!(other.client().blocked(), None);
    }
    for lent in loans(&world) {
        assert!(lent >= SHARE_BYTES / 8, "{lent}");
    }
}

#[test]
fn who_waits_for_memory_gets_what_another_gives_back() {
    let world = world();
    let (hot, other) = (with_queue(&world, 1, "hot"), with_queue(&world, 0, "other"));
    fill(&hot, "hot");
    fill(&other, "other");
    hot.purge("hot");
    world.settle();
    assert_eq!(other.client().blocked(), None);
    assert!(fill(&other, "other") > SHARE_BYTES);
}

#[test]
fn publishers_that_wait_for_a_loan_are_not_told_of_an_alarm() {
    let world = world();
    let far = world.channel(3);
    let hot = with_queue(&world, 1, "hot");
    // Much in one go: the answer to the first question is not there before the last of it.
    far.client().together(|| {
        for _ in 0..200 {
            hot.publish("", "hot", vec![b'x'; MESSAGE_BYTES]);
        }
    });
    world.settle();
    assert_eq!(hot.client().blocked(), None);
    assert_eq!(world.queue("hot").ready, 200);
}

/// An operator changes the budget: shares of so many bytes.
fn set_shares(world: &World, bytes: usize) {
    for shard in 0..SHARDS {
        world.ask(shard, Query::Set(Setting::MemoryShare(bytes)));
    }
}

#[test]
fn a_smaller_budget_stops_publishers_at_once_and_a_larger_one_lets_them_go_on() {
    let world = world();
    let hot = with_queue(&world, 1, "hot");
    for _ in 0..100 {
        hot.publish("", "hot", vec![b'x'; MESSAGE_BYTES]);
    }
    assert_eq!(hot.client().blocked(), None);
    set_shares(&world, SHARE_BYTES / 100);
    hot.publish("", "hot", "one more");
    assert!(hot.client().blocked().unwrap().contains("memory"));
    set_shares(&world, SHARE_BYTES);
    world.advance(1_000);
    assert_eq!(hot.client().blocked(), None);
    // With none at all nobody publishes, also on shards that have next to nothing.
    set_shares(&world, 0);
    let other = with_queue(&world, 2, "other");
    other.publish("", "other", "x");
    assert!(other.client().blocked().unwrap().contains("memory"));
    set_shares(&world, 2 * SHARE_BYTES);
    world.advance(1_000);
    assert_eq!(other.client().blocked(), None);
    other.purge("other");
    hot.purge("hot");
    let used = fill(&hot, "hot");
    let all = SHARE_BYTES * usize::from(SHARDS);
    assert!(used > all * 8 / 5 && used < 2 * all, "{used} of {}", 2 * all);
    hot.purge("hot");
    set_shares(&world, SHARE_BYTES);
    world.advance(1_000);
    for lent in loans(&world) {
        assert!(lent <= SHARE_BYTES / 2, "{lent} bytes are kept without use");
    }
}
