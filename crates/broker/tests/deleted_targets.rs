//! What waits for room in a log goes on when the queue is deleted that it was to come into: it needs no
//! room there any more.

use lepus_amqp::method::{queue, tx};
use lepus_amqp::table::Table;
use lepus_broker::directory::Request;
use lepus_sim::{Channel, Options, StoreOptions, World};
use lepus_store::disk::LogId;

use crate::adopted_logs;
use crate::at_least_once::{declare, surely_to};
use crate::delayed_kept::{after, declare_both};
use crate::deletions_and_letters::fill_with;
use crate::restart::{durable, durable_exchange, durable_with, persistent};
use crate::room::durable_of;

/// More than what is left of a segment in a log that is full, or kept for what is passed on.
const LARGE: usize = 131_000;

/// A world of so many shards, and a channel on the first, which has a queue `full` that is to fill its
/// log, and `q`, for which something is to wait for room. `prepare` declares more.
fn world_with(shards: u16, prepare: impl FnOnce(&Channel)) -> (World, Channel) {
    let world = World::in_segments(shards, 14);
    let channel = world.channel(0);
    channel.declare_exclusive("");
    durable(&channel, "full");
    declare_both(&channel);
    prepare(&channel);
    assert_eq!((world.queue("full").home, world.queue("q").home), (0, 0));
    (world, channel)
}

/// Fills the log of `full` and leaves nothing that waits for room there.
fn fill(world: &World) {
    for _ in 0..200 {
        let channel = world.channel(0);
        channel.tx_select();
        // A client is not read any more once it has published to a full log.
        channel.client().together(|| {
            channel.publish_with("", "full", &persistent(), vec![b'0'; 9_000]);
            channel.send(tx::Commit {});
        });
        world.advance(1_000);
        if channel.answer().is_none() {
            channel.client().reset();
            return world.advance(1_000);
        }
    }
    panic!("the log takes everything");
}

fn waits(world: &World) -> bool {
    world.advance(2_000);
    world.broker(0, |broker| broker.view().waits_for_room())
}

/// Something waits until `q` is deleted, and `full` is as full as before.
fn expect_to_go_on(world: &World, channel: &Channel) {
    assert!(waits(world));
    let full = world.queue("full").ready;
    channel.delete("q");
    assert!(!waits(world), "for a queue that is deleted");
    assert_eq!(world.queue("full").ready, full);
}

#[test]
fn a_publish_is_confirmed() {
    for publishers_shard in [0, 1] {
        let (world, channel) = world_with(2, |_| {});
        fill(&world);
        let publisher = world.channel(publishers_shard);
        publisher.declare_exclusive("");
        publisher.confirm_select();
        publisher.publish_with("", "q", &persistent(), vec![b'1'; LARGE]);
        expect_to_go_on(&world, &channel);
        assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    }
}

#[test]
fn a_commit_is_answered_wherever_it_comes_from() {
    for clients_shard in [0, 1] {
        let (world, channel) = world_with(2, |_| {});
        let client = world.channel(clients_shard);
        client.declare_exclusive("");
        client.tx_select();
        for _ in 0..2 {
            client.publish_with("", "q", &persistent(), vec![b'1'; 30_000]);
        }
        fill(&world);
        client.send(tx::Commit {});
        expect_to_go_on(&world, &channel);
        client.expect("tx.commit-ok");
    }
}

#[test]
fn dead_letters_leave_their_queue() {
    let (world, channel) = world_with(1, |channel| {
        let to_q =
            Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", "q");
        durable_with(channel, "letters", to_q);
        channel.publish_with("", "letters", &persistent(), vec![b'1'; LARGE]);
        channel.publish_with("", "letters", &persistent(), "behind");
    });
    fill(&world);
    for _ in 0..2 {
        let letter = channel.get("letters").expect("a message");
        channel.reject(letter.tag, false);
    }
    expect_to_go_on(&world, &channel);
    world.stop();
    world.start_again(1);
    assert_eq!(world.queue("letters").ready, 0);
}

#[test]
fn dead_letters_for_another_shard_leave_their_queue_too() {
    let (world, channel) = world_with(2, |_| {});
    // While room is short, a letter for another shard waits for it as if it were to stay.
    let far = durable_of(&world, &channel, "far", 1);
    let to_far = Table::new()
        .with("x-dead-letter-exchange", "")
        .with("x-dead-letter-routing-key", far.as_str());
    let mut names = (0..10).map(|number| format!("letters{number}"));
    let letters = names.find(|name| {
        durable_with(&channel, name, to_far.clone());
        world.queue(name).home == 0
    });
    let letters = &letters.expect("queues go to all shards in turn");
    channel.publish_with("", letters, &persistent(), vec![b'1'; LARGE]);
    fill(&world);
    let letter = channel.get(letters).expect("a message");
    channel.reject(letter.tag, false);
    assert!(waits(&world));
    channel.delete(&far);
    assert!(!waits(&world), "for a queue that is deleted");
}

#[test]
fn dead_letters_that_must_arrive_go_to_whom_is_left() {
    let (world, channel) = world_with(1, |channel| {
        channel.declare("transient");
        channel.bind("transient", "x", "");
        declare(channel, "letters", surely_to("x", ""));
        channel.publish_with("", "letters", &persistent(), vec![b'1'; LARGE]);
    });
    fill(&world);
    let letter = channel.get("letters").expect("a message");
    channel.reject(letter.tag, false);
    assert_eq!(world.queue("transient").ready, 0);
    expect_to_go_on(&world, &channel);
    world.advance(60_000);
    assert_eq!((world.queue("transient").ready, world.queue("letters").ready), (1, 0));
}

#[test]
fn what_a_delayed_exchange_lets_go_is_settled() {
    let (world, channel) = world_with(1, |channel| {
        channel.publish_with("x", "", &after(600_000), vec![b'1'; LARGE]);
    });
    fill(&world);
    world.advance(600_000);
    expect_to_go_on(&world, &channel);
    channel.declare("q");
    channel.bind("q", "x", "");
    world.stop();
    world.start_again(1);
    assert!(!waits(&world), "it does not come again");
}

#[test]
fn nothing_waits_for_the_queues_of_a_vhost_that_is_deleted() {
    let (world, _channel) = world_with(1, |_| {});
    world.add_vhost("v");
    world.permit("guest", "v", ".*", ".*", ".*");
    let there = world.connect_with(0, World::login("guest", "guest", "v")).channel();
    there.declare_method(queue::Declare { queue: "q", durable: true, ..Default::default() });
    fill(&world);
    there.publish_with("", "q", &persistent(), vec![b'1'; LARGE]);
    assert!(waits(&world));
    world.request(Request::DeleteVhost { name: "v".into() }).expect("it goes");
    assert!(!waits(&world));
}

#[test]
fn a_publish_to_a_delayed_exchange_that_is_deleted_is_held_nowhere() {
    let (world, channel) = world_with(1, |_| {});
    fill(&world);
    let publisher = world.channel(0);
    publisher.confirm_select();
    publisher.publish_with("x", "", &after(600_000), vec![b'1'; LARGE]);
    assert!(waits(&world));
    channel.delete_exchange("x");
    assert!(!waits(&world));
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    assert_eq!(world.broker(0, |broker| broker.homes.delayed_in_memory()), 0);
}

/// A wide letter that must arrive finds no room in one queue while the report of another is missing. The
/// queue without room is deleted before that report comes.
#[test]
fn a_wide_letter_whose_queue_is_deleted_while_a_report_is_missing_waits_for_no_room() {
    let mut store = StoreOptions::default();
    store.template.segments_max = 12;
    let world = World::with(Options { shards: 2, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let own = durable_of(&world, &channel, "own", 0);
    let other = durable_of(&world, &channel, "other", 1);
    let gone = durable_of(&world, &channel, "gone", 1);
    world.stop();
    world.start_again(1);
    adopted_logs::fill(&world, &other);
    fill_with(&world, &other, 1_000);
    let channel = world.channel(0);
    durable_exchange(&channel, "f", "fanout");
    // Asked first, and it reports when its log is synced.
    channel.bind(&own, "f", "");
    channel.bind(&gone, "f", "");
    for number in 0..600 {
        let queue = format!("t{number}");
        channel.declare(&queue);
        channel.bind(&queue, "f", "");
    }
    declare(&channel, "letters", surely_to("f", ""));
    channel.publish_with("", "letters", &persistent(), vec![b'1'; 1_000]);
    world.advance(1_000);
    let letter = channel.get("letters").expect("a message");
    let before = world.queue(&other).ready;
    world.hold_log(LogId(1));
    channel.reject(letter.tag, false);
    world.advance(1_000);
    assert_eq!(world.queue(&own).ready, 1, "it was asked first");
    assert_eq!(world.queue("t599").ready, 0);
    channel.delete(&gone);
    world.release_disk();
    world.advance(60_000);
    assert_eq!(world.queue(&other).ready, before, "its log is as full as before");
    assert_eq!(world.queue("t599").ready, 1, "it waits for room for a queue that is deleted");
}

/// A transient queue whose home is that shard.
fn transient_of(world: &World, channel: &Channel, prefix: &str, shard: u16) -> String {
    let names = (0..).map(|number| format!("{prefix}{number}"));
    let is_there = |name: &String| {
        channel.declare(name);
        world.queue(name).home == shard
    };
    names.into_iter().find(is_there).expect("queues go to all shards in turn")
}

#[test]
fn what_a_delayed_exchange_lets_go_to_a_far_transient_queue_is_settled() {
    for durably in [true, false] {
        let (world, channel) = world_with(2, |_| {});
        let far = if durably {
            durable_of(&world, &channel, "far", 1)
        } else {
            transient_of(&world, &channel, "far", 1)
        };
        channel.bind(&far, "x", "");
        channel.delete("q");
        channel.publish_with("x", "", &after(600_000), vec![b'1'; LARGE]);
        fill(&world);
        world.advance(600_000);
        assert!(waits(&world), "{durably} first");
        channel.delete(&far);
        world.advance(60_000);
        assert!(!waits(&world), "durable {durably}: for a queue that is deleted");
    }
}

/// While room is short, what is passed on to another shard waits for it as if it were to stay. A transient queue
/// that has come here needs none, also for what was looked at while it was on its way.
#[test]
fn what_goes_to_a_transient_queue_needs_no_room_when_that_has_come_to_its_shard() {
    for is_delayed in [true, false] {
        let (world, channel) = world_with(2, |_| {});
        let far = transient_of(&world, &channel, "far", 1);
        // What is in memory is looked at at once.
        if is_delayed {
            let fanout = Table::new().with("x-delayed-type", "fanout");
            channel.exchange_with("y", "x-delayed-message", fanout);
            channel.bind(&far, "y", "");
            channel.publish_with("y", "", &after(600_000), vec![b'1'; LARGE]);
        } else {
            let to_far = Table::new()
                .with("x-dead-letter-exchange", "")
                .with("x-dead-letter-routing-key", far.as_str())
                .with("x-message-ttl", 600_000);
            let mut names = (0..20).map(|number| format!("letters{number}"));
            let letters = names.find(|name| {
                channel.declare_with(name, to_far.clone());
                world.queue(name).home == 0
            });
            let letters = letters.expect("queues go to all shards in turn");
            channel.publish_with("", &letters, &persistent(), vec![b'1'; LARGE]);
        }
        fill(&world);
        world.advance(600_000);
        assert!(waits(&world));
        world.move_queue(&far, 0);
        assert!(!waits(&world), "delayed: {is_delayed}");
        assert_eq!((world.queue(&far).home, world.queue(&far).ready), (0, 1));
    }
}

#[test]
fn a_dead_letter_for_a_queue_of_another_shard_that_moved_and_is_deleted_waits_for_no_room() {
    for (shards, to) in [(2, None), (3, Some(2)), (2, Some(0))] {
        let (world, channel) = world_with(shards, |_| {});
        let far = durable_of(&world, &channel, "far", 1);
        let to_far = Table::new()
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", far.as_str());
        let mut names = (0..20).map(|number| format!("letters{number}"));
        let letters = names.find(|name| {
            durable_with(&channel, name, to_far.clone());
            world.queue(name).home == 0
        });
        let letters = &letters.expect("queues go to all shards in turn");
        channel.publish_with("", letters, &persistent(), vec![b'1'; LARGE]);
        fill(&world);
        let letter = channel.get(letters).expect("a message");
        channel.reject(letter.tag, false);
        assert!(waits(&world));
        if let Some(to) = to {
            world.move_queue(&far, to);
            world.advance(1_000);
        }
        channel.delete(&far);
        world.advance(60_000);
        assert!(!waits(&world), "{to:?}: for a queue that is deleted");
    }
}
