//! Dead letters that wait for room keep no others waiting when queues are deleted with which they have nothing
//! to do.

use crate::restart::{durable, durable_with, persistent};
use lepus_amqp::method::queue;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};

/// Publishes to a queue until its log has no room for so many bytes.
pub(crate) fn fill_with(world: &World, queue: &str, bytes: usize) {
    loop {
        let channel = world.channel(0);
        channel.confirm_select();
        channel.publish_with("", queue, &persistent(), vec![b'0'; bytes]);
        world.advance(2_000);
        if channel.confirmed().0.is_empty() {
            channel.client().reset();
            return world.advance(1_000);
        }
    }
}

fn dead_to(key: &str) -> Table {
    Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", key)
}

/// As many letters wait for room, each of its own queue, and so many queues have nothing to do with them. The channel
/// with which another letter can be rejected that needs no room, and that letter's tag.
fn waiting_letters(waiting: usize, others: usize) -> (World, Channel, u64) {
    let mut store = StoreOptions::default();
    (store.template.segments_max, store.template.passing_segments) = (60, 0);
    let world = World::with(Options { shards: 1, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    durable(&channel, "full");
    durable(&channel, "q");
    channel.declare("t");
    let letters = world.channel(0);
    for number in 0..waiting {
        let name = format!("l{number}");
        durable_with(&letters, &name, dead_to("q"));
        letters.publish_with("", &name, &persistent(), vec![b'1'; 500]);
    }
    channel.declare_with("fresh", dead_to("t"));
    channel.publish("", "fresh", "1");
    for number in 0..others {
        channel.declare(&format!("d{number}"));
    }
    world.advance(1_000);
    fill_with(&world, "full", 9_000);
    fill_with(&world, "full", 500);
    let tags: Vec<u64> =
        (0..waiting).map(|number| letters.get(&format!("l{number}")).unwrap().tag).collect();
    tags.iter().for_each(|tag| letters.reject(*tag, false));
    let fresh = channel.get("fresh").unwrap().tag;
    world.advance(10_000);
    (world, channel, fresh)
}

/// How many rounds a letter needs that waits for no room, while queues are deleted in each of them.
fn rounds_of_a_letter(waiting: usize, deletions: usize) -> usize {
    let (world, channel, fresh) = waiting_letters(waiting, deletions);
    let mut rounds = 0;
    let deleter = world.channel(0);
    world.quietly(|| {
        for number in 0..deletions {
            let queue = &format!("d{number}");
            deleter.send(queue::Delete { queue, no_wait: true, ..Default::default() });
            if number == 5 {
                channel.reject(fresh, false);
            }
            world.round();
            rounds += usize::from(number >= 5);
            if world.queue("t").ready == 1 {
                break;
            }
        }
    });
    rounds
}

/// The same after one deletion.
fn rounds_of_one_deletion(waiting: usize) -> usize {
    let (world, channel, fresh) = waiting_letters(waiting, 1);
    let deleter = world.channel(0);
    let mut rounds = 0;
    world.quietly(|| {
        deleter.send(queue::Delete { queue: "d0", no_wait: true, ..Default::default() });
        (0..5).for_each(|_| {
            world.round();
        });
        channel.reject(fresh, false);
        while world.queue("t").ready == 0 {
            assert!(world.round());
            rounds += 1;
        }
    });
    rounds
}

#[test]
fn a_single_deletion_keeps_no_letter_waiting_for_long() {
    let few = rounds_of_one_deletion(10);
    let many = rounds_of_one_deletion(1_000);
    assert!(many < 2 * few + 10, "{few} and {many} rounds");
}

#[test]
fn letters_without_room_keep_no_others_waiting_while_queues_are_deleted() {
    assert!(rounds_of_a_letter(10, 200) < 10);
    assert!(rounds_of_a_letter(2_000, 200) < 10);
}
