//! Logs of shards that are gone: they are there as long as somebody needs them, and keep nobody waiting
//! who has nothing to do with them.

use lepus_sim::{Channel, Options, StoreOptions, World};
use lepus_store::disk::LogId;

use crate::restart::{durable, persistent};
use crate::room::durable_of;

/// Two shards become one: `own` is a queue of the first, `other` of the one that is gone.
fn one_of_two(store: StoreOptions) -> (World, String, String) {
    let world = World::with(Options { shards: 2, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let own = durable_of(&world, &channel, "own", 0);
    let other = durable_of(&world, &channel, "other", 1);
    world.stop();
    world.start_again(1);
    (world, own, other)
}

fn confirms(world: &World, queue: &str, length: usize) -> (Channel, usize) {
    let channel = world.channel(0);
    channel.confirm_select();
    channel.publish_with("", queue, &persistent(), vec![b'0'; length]);
    world.advance(2_000);
    let confirmed = channel.confirmed().0.len();
    (channel, confirmed)
}

#[test]
fn a_log_that_is_full_keeps_only_those_waiting_whose_messages_go_there() {
    let mut store = StoreOptions::default();
    store.template.segments_max = 10;
    let (world, own, other) = one_of_two(store);
    let filler = world.channel(0);
    filler.client().together(|| {
        for _ in 0..100 {
            filler.publish_with("", &other, &persistent(), vec![b'0'; 9_000]);
        }
    });
    world.advance(1_000);
    assert!(world.queue(&other).ready < 100, "its log is full");
    // One that fits into what is left of the segment would be taken.
    let (waiting, confirmed) = confirms(&world, &other, 60_000);
    assert_eq!(confirmed, 0);
    for round in 1..=3 {
        assert_eq!(confirms(&world, &own, 9_000).1, 1, "{round}");
    }
    let channel = world.channel(0);
    channel.purge(&other);
    world.advance(10_000);
    assert_eq!(waiting.confirmed().0.len(), 1);
}

#[test]
fn a_log_in_which_nothing_is_and_that_no_queue_names_is_not_needed() {
    let (world, own, other) = one_of_two(StoreOptions::default());
    let empty = |world: &World| world.broker(0, |broker| broker.empty_logs());
    assert_eq!(empty(&world), [], "a queue names it");
    let channel = world.channel(0);
    channel.publish_with("", &other, &persistent(), "1");
    channel.delete(&other);
    durable(&channel, "new");
    world.stop();
    world.start_again(1);
    assert_eq!(empty(&world), [LogId(2)]);
    assert!(world.find_queue("/", &own).is_some());
}
