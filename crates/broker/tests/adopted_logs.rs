//! Logs of shards that are gone: they are there as long as somebody needs them, and keep nobody waiting
//! who has nothing to do with them.

use lepus_amqp::method::tx;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};
use lepus_store::disk::LogId;

use crate::at_least_once::{declare, surely_to};
use crate::delayed_kept::{after, declare_both};
use crate::restart::{durable, durable_exchange, durable_with, persistent};
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

/// Publishes to a queue until its log has no room; nobody waits there then.
pub(crate) fn fill(world: &World, queue: &str) {
    for _ in 0..200 {
        let (channel, confirmed) = confirms(world, queue, 9_000);
        if confirmed == 0 {
            channel.client().reset();
            return world.advance(1_000);
        }
    }
    panic!("the log takes everything");
}

/// As [`one_of_two`], with the log of the shard that is gone full.
fn other_full() -> (World, String) {
    let mut store = StoreOptions::default();
    store.template.segments_max = 11;
    let (world, own, other) = one_of_two(store);
    fill(&world, &other);
    (world, own)
}

/// Very many queues, bound to two fanout exchanges `f` and `g`. A few of them are durable, in the shard's
/// own log.
fn bind_many(channel: &Channel) {
    for number in 0..600 {
        let queue = format!("q{number}");
        if number % 100 == 0 {
            durable(channel, &queue);
        } else {
            channel.declare(&queue);
        }
        channel.bind(&queue, "f", "");
        channel.bind(&queue, "g", "");
    }
}

/// Has one message of so many bytes become a dead letter that must arrive at all queues of an exchange.
fn dead_letter_surely(channel: &Channel, queue: &str, exchange: &str, bytes: usize) {
    declare(channel, queue, surely_to(exchange, ""));
    channel.publish_with("", queue, &persistent(), vec![b'1'; bytes]);
    let letter = channel.get(queue).expect("a message");
    channel.reject(letter.tag, false);
}

/// What is in the queue goes, and so the room in its log comes back.
fn empty(world: &World, queue: &str) {
    world.channel(0).purge(queue);
    world.advance(10_000);
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
    let files = |world: &World| {
        world.disk(|disk| disk.files().filter(|(file, _)| file.log() == LogId(2)).count())
    };
    world.stop();
    world.start_again(1);
    assert!(files(&world) > 0, "a queue names it");
    let channel = world.channel(0);
    channel.publish_with("", &other, &persistent(), "1");
    channel.delete(&other);
    durable(&channel, "new");
    world.stop();
    world.start_again(1);
    assert_eq!(files(&world), 0);
    assert!(world.find_queue("/", &own).is_some());
}

#[test]
fn a_log_of_which_a_segment_is_kept_for_damage_is_needed() {
    let (world, _, other) = one_of_two(StoreOptions::default());
    let empty = |world: &World| world.broker(0, |broker| broker.view().empty_logs());
    let channel = world.channel(0);
    for number in 0..4 {
        channel.publish_with("", &other, &persistent(), format!("number {number}, and more"));
        world.advance(1_000);
    }
    world.kill();
    let wanted = b"number 1, and more";
    world.disk(|disk| {
        let files: Vec<_> = disk.files().map(|(file, _)| file).collect();
        let place = files.into_iter().find_map(|file| {
            let mut windows = disk.data(file)?.windows(wanted.len());
            Some((file, windows.position(|window| window == wanted)?))
        });
        let (file, at) = place.expect("the message is on the disk");
        disk.flip(file, at, 3);
    });
    world.start_again(1);
    assert_eq!(world.queue(&other).ready, 3);
    world.channel(0).delete(&other);
    world.stop();
    // The start before has told of the damage, this one meets none.
    world.start_again(1);
    assert_eq!(empty(&world), []);
    let kept: usize = world.broker(0, |broker| broker.journal.figures().damaged_segments);
    assert_eq!(kept, 1);
}

#[test]
fn a_publish_that_waits_for_room_goes_on_when_its_own_log_has_some() {
    let (world, own) = other_full();
    fill(&world, &own);
    let (waiting, confirmed) = confirms(&world, &own, 60_000);
    assert_eq!(confirmed, 0);
    empty(&world, &own);
    assert_eq!(waiting.confirmed().0.len(), 1);
}

#[test]
fn a_commit_waits_for_room_in_the_logs_of_its_queues_alone() {
    let (world, own) = other_full();
    let commit = || {
        let channel = world.channel(0);
        channel.tx_select();
        channel.publish_with("", &own, &persistent(), vec![b'1'; 60_000]);
        channel.send(tx::Commit {});
        world.advance(2_000);
        let is_answered = channel.answer().is_some();
        (channel, is_answered)
    };
    assert!(commit().1, "there is room in its log");
    fill(&world, &own);
    let (waiting, is_answered) = commit();
    assert!(!is_answered);
    empty(&world, &own);
    waiting.expect("tx.commit-ok");
}

#[test]
fn so_does_a_commit_from_another_shard() {
    let mut store = StoreOptions::default();
    store.template.segments_max = 11;
    let world = World::with(Options { shards: 3, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let own = durable_of(&world, &channel, "own", 0);
    let other = durable_of(&world, &channel, "other", 2);
    world.stop();
    world.start_again(2);
    assert_eq!(world.queue(&other).home, 0);
    fill(&world, &other);
    let commit = || {
        let channel = world.channel(1);
        channel.declare_exclusive("");
        channel.tx_select();
        channel.publish_with("", &own, &persistent(), vec![b'1'; 60_000]);
        channel.send(tx::Commit {});
        world.advance(2_000);
        channel
    };
    commit().expect("tx.commit-ok");
    fill(&world, &own);
    let waiting = commit();
    assert_eq!(waiting.answer(), None);
    empty(&world, &own);
    waiting.expect("tx.commit-ok");
}

#[test]
fn a_dead_letter_that_waits_for_room_goes_on_when_the_log_that_it_goes_to_has_some() {
    let (world, own) = other_full();
    let channel = world.channel(0);
    let dead =
        Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", "q");
    durable_with(&channel, "letters", dead);
    durable(&channel, "q");
    // More than what is kept for letters.
    channel.publish_with("", "letters", &persistent(), vec![b'1'; 131_000]);
    world.advance(1_000);
    fill(&world, &own);
    let letter = channel.get("letters").expect("a message");
    channel.reject(letter.tag, false);
    world.advance(10_000);
    assert_eq!(world.queue("q").ready, 0);
    empty(&world, &own);
    assert_eq!(world.queue("q").ready, 1);
}

#[test]
fn what_a_delayed_exchange_takes_and_lets_go_waits_for_no_log_to_which_it_does_not_go() {
    let (world, own) = other_full();
    let channel = world.channel(0);
    declare_both(&channel);
    let delay = |channel: &Channel, bytes| {
        channel.publish_with("x", "", &after(600_000), vec![b'1'; bytes]);
    };
    channel.confirm_select();
    delay(&channel, 131_000);
    world.advance(1_000);
    assert_eq!(channel.confirmed().0, [1]);
    fill(&world, &own);
    let waiting = world.channel(0);
    waiting.confirm_select();
    delay(&waiting, 60_000);
    world.advance(600_000);
    assert_eq!((world.queue("q").ready, waiting.confirmed().0.len()), (0, 0));
    empty(&world, &own);
    // Both are due.
    assert_eq!((world.queue("q").ready, waiting.confirmed().0.len()), (2, 1));
}

/// Many dead letters that must arrive go to very many queues, one of which lies in a log without room: as
/// `first` says, that is the first or the last of them. The world, that queue, and how many they are.
fn wide_letters_without_room(first: bool) -> (World, String, u64) {
    // More than may be on their way to very many queues at once.
    const LETTERS: u64 = 10;
    let mut store = StoreOptions::default();
    store.template.segments_max = 12;
    let (world, _, other) = one_of_two(store);
    fill(&world, &other);
    while confirms(&world, &other, 1_000).1 > 0 {}
    let channel = world.channel(0);
    for exchange in ["f", "g"] {
        durable_exchange(&channel, exchange, "fanout");
    }
    for is_now in [first, !first] {
        match is_now {
            true => channel.bind(&other, "f", ""),
            false => bind_many(&channel),
        }
    }
    let before = world.queue(&other).ready;
    for letter in 0..LETTERS {
        dead_letter_surely(&channel, &format!("wide{letter}"), "f", 1_000);
    }
    world.advance(2_000);
    assert_eq!(world.queue(&other).ready, before, "its log is full");
    (world, other, LETTERS)
}

#[test]
fn dead_letters_that_must_arrive_and_have_no_room_keep_those_for_other_logs_from_no_turn() {
    for first in [true, false] {
        let (world, other, letters) = wide_letters_without_room(first);
        let arrived = world.queue("q599").ready;
        let channel = world.channel(0);
        dead_letter_surely(&channel, "own wide", "g", 1);
        world.advance(2_000);
        assert_eq!(world.queue("q599").ready, arrived + 1, "first: {first}");
        empty(&world, &other);
        // The two publishes that found no room while the log was filled come, too.
        assert_eq!(world.queue(&other).ready, letters + 2, "first: {first}");
        assert_eq!(world.queue("q0").ready, letters + 1);
    }
}

#[test]
fn a_dead_letter_whose_queue_moves_waits_for_no_room_in_the_log_that_it_left() {
    let mut store = StoreOptions::default();
    store.template.segments_max = 11;
    let world = World::with(Options { shards: 3, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let [other, moving] = ["other", "moving"].map(|name| durable_of(&world, &channel, name, 2));
    world.stop();
    world.start_again(2);
    fill(&world, &other);
    let channel = world.channel(0);
    channel.declare_exclusive("");
    let dead = Table::new()
        .with("x-dead-letter-exchange", "")
        .with("x-dead-letter-routing-key", moving.as_str());
    let mut names = (0..10).map(|number| format!("letters{number}"));
    let letters = &names.find(|name| {
        durable_with(&channel, name, dead.clone());
        world.queue(name).home == 0
    });
    let letters = letters.as_deref().expect("queues go to all shards in turn");
    channel.publish_with("", letters, &persistent(), vec![b'1'; 60_000]);
    world.advance(1_000);
    let letter = channel.get(letters).expect("a message");
    channel.reject(letter.tag, false);
    world.advance(1_000);
    assert_eq!(world.queue(&moving).ready, 0);
    world.move_queue(&moving, 1);
    world.advance(10_000);
    assert_eq!((world.queue(&moving).home, world.queue(&moving).ready), (1, 1));
}

#[test]
fn a_publish_that_waits_for_a_log_does_not_pass_what_its_channel_published_before() {
    const LARGE: usize = 20_000;
    const LITTLE: usize = 1_500;
    let mut store = StoreOptions::default();
    // Others may use what is left of a segment in a full log.
    (store.template.segments_max, store.template.passing_segments) = (11, 0);
    let world = World::with(Options { shards: 3, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let own = durable_of(&world, &channel, "own", 0);
    let [moving, begun] = ["moving", "begun"].map(|name| durable_of(&world, &channel, name, 1));
    let near = durable_of(&world, &channel, "near", 2);
    durable_exchange(&channel, "f", "fanout");
    [&moving, &near].into_iter().for_each(|queue| channel.bind(queue, "f", ""));
    world.stop();
    world.start_again(2);
    fill(&world, &near);
    while confirms(&world, &near, LITTLE).1 > 0 {}
    let fillers: Vec<Channel> = (0..100).map(|_| world.channel(0)).collect();
    let publisher = world.channel(0);
    publisher.declare_exclusive("");
    publisher.confirm_select();
    // The queue leaves when its log is synced.
    world.hold_log(LogId(2));
    world.channel(1).publish_with("", &begun, &persistent(), "x");
    world.quietly(|| {
        world.move_queue(&moving, 0);
        world.round();
        publisher.publish_with("", &moving, &persistent(), vec![b'1'; LARGE]);
        publisher.publish_with("f", "", &persistent(), vec![b'2'; LITTLE]);
        for filler in &fillers {
            filler.publish_with("", &own, &persistent(), vec![b'0'; 9_000]);
            world.round();
        }
        assert_eq!(world.queue(&moving).home, 1, "it is on its way");
    });
    world.release_disk();
    world.advance(1_000);
    assert_eq!((world.queue(&moving).home, world.queue(&moving).ready), (0, 0));
    // The second one has room in that log now, and would have some in the own one.
    empty(&world, &near);
    empty(&world, &own);
    let found = core::iter::from_fn(|| publisher.get_no_ack(&moving)).map(|found| found.body.len());
    assert_eq!(found.collect::<Vec<_>>(), [LARGE, LITTLE]);
    assert_eq!(publisher.confirmed(), (vec![1, 2], vec![]));
}

/// The first shard drives two logs, its own without room, and a queue comes to it. A client commits something
/// for that queue so many rounds after it has begun to leave.
fn commit_while_a_queue_arrives(rounds: usize) {
    let mut store = StoreOptions::default();
    store.template.segments_max = 11;
    let world = World::with(Options { shards: 3, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let own = durable_of(&world, &channel, "own", 0);
    let moving = durable_of(&world, &channel, "moving", 1);
    let _other = durable_of(&world, &channel, "other", 2);
    world.stop();
    world.start_again(2);
    let client = world.channel(0);
    client.declare_exclusive("");
    client.tx_select();
    client.publish_with("", &moving, &persistent(), vec![b'1'; 60_000]);
    fill(&world, &own);
    world.quietly(|| {
        world.move_queue(&moving, 0);
        (0..rounds).for_each(|_| {
            world.round();
        });
        client.send(tx::Commit {});
    });
    world.advance(2_000);
    assert_eq!(world.queue(&moving).home, 0);
    let early = client.answer().is_some();
    assert_eq!((early, world.queue(&moving).ready), (false, 0), "after {rounds} rounds");
    empty(&world, &own);
    client.expect("tx.commit-ok");
    assert_eq!(world.queue(&moving).ready, 1, "after {rounds} rounds");
}

#[test]
fn a_commit_for_a_queue_that_arrives_waits_for_room_in_the_log_that_it_comes_to() {
    // In one of them it is known where the queue is to be, and it is not there yet.
    (0..16).for_each(commit_while_a_queue_arrives);
}

/// As before, with a publisher on a third shard. It publishes much for the queue, which does not find room
/// as a whole, and so many rounds later something for very many queues, that one among them.
fn publish_to_very_many_while_a_queue_arrives(rounds: usize) {
    const COUNT: usize = 12;
    const LARGE: usize = 9_000;
    const LITTLE: usize = 1_500;
    let mut store = StoreOptions::default();
    (store.template.segments_max, store.template.passing_segments) = (11, 0);
    let world = World::with(Options { shards: 4, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    channel.declare_exclusive("");
    let own = durable_of(&world, &channel, "own", 0);
    let [moving, begun] = ["moving", "begun"].map(|name| durable_of(&world, &channel, name, 2));
    let near = durable_of(&world, &channel, "near", 3);
    world.stop();
    world.start_again(3);
    let channel = world.channel(0);
    channel.declare_exclusive("");
    channel.bind(&near, "amq.fanout", "");
    for number in 0..511 {
        let queue = format!("q{number}");
        channel.declare_exclusive(&queue);
        channel.bind(&queue, "amq.fanout", "");
    }
    // It is in the second slice, alone.
    channel.bind(&moving, "amq.fanout", "");
    fill(&world, &near);
    while confirms(&world, &near, LITTLE).1 > 0 {}
    let fillers: Vec<Channel> = (0..48).map(|_| world.channel(0)).collect();
    let publisher = world.channel(1);
    publisher.declare_exclusive("");
    publisher.confirm_select();
    for filler in &fillers {
        filler.publish_with("", &own, &persistent(), vec![b'0'; 9_000]);
    }
    world.channel(2).publish_with("", &begun, &persistent(), "x");
    world.quietly(|| {
        world.move_queue(&moving, 0);
        world.round();
        for _ in 0..COUNT {
            publisher.publish_with("", &moving, &persistent(), vec![b'1'; LARGE]);
        }
        (0..rounds).for_each(|_| {
            world.round();
        });
        publisher.publish_with("amq.fanout", "", &persistent(), vec![b'2'; LITTLE]);
        world.round();
        // The shard that the queue leaves hears last of that.
        [0, 1, 1, 0, 0].into_iter().for_each(|shard| world.turn(shard));
    });
    world.advance(1_000);
    empty(&world, &near);
    empty(&world, &own);
    let found = core::iter::from_fn(|| channel.get_no_ack(&moving)).map(|found| found.body.len());
    assert_eq!(
        found.collect::<Vec<_>>(),
        [vec![LARGE; COUNT], vec![LITTLE]].concat(),
        "after {rounds} rounds"
    );
}

#[test]
fn a_publish_to_very_many_queues_of_another_shard_does_not_pass_what_waits_there_of_its_channel() {
    (0..16).for_each(publish_to_very_many_while_a_queue_arrives);
}

/// A log keeps empty segments that it will use again soon only as long as the others of its shard need no
/// room.
#[test]
fn empty_segments_of_a_busy_log_are_room_for_the_others() {
    let mut store = StoreOptions::default();
    let segment_bytes = u64::from(store.template.segment_bytes);
    store.template.bytes_max = 60 * segment_bytes;
    (store.template.free_segments_max, store.template.checkpoint_log_bytes) =
        (100, 24 * segment_bytes);
    let (world, own, other) = one_of_two(store);
    let busy = |rounds| {
        for _ in 0..rounds {
            let (channel, confirmed) = confirms(&world, &own, 9_000);
            assert_eq!(confirmed, 1);
            channel.purge(&own);
            channel.client().reset();
        }
    };
    busy(400);
    let mut held = 0;
    loop {
        let (channel, confirmed) = confirms(&world, &other, 60_000);
        channel.client().reset();
        if confirmed == 0 {
            break;
        }
        held += 1;
        busy(1);
    }
    assert!(held >= 48, "{held}");
}
