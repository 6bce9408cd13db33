//! However many publishes wait for room in a log, and to however many queues: a turn does little for them, all of
//! them go on when there is room, and those of one channel in their order.

use lepus_amqp::method::{basic, queue, tx};
use lepus_sim::{Channel, Options, StoreOptions, World};

use crate::deletions_and_letters::fill_with;
use crate::restart::{durable_exchange, persistent};
use crate::room::durable_of;

/// Queues that a shard may look at, or put a message into, in one turn for those that wait: 512 each of the two times
/// that it ends a cycle, and the two messages that made the log full and wait as well.
const TARGETS_IN_TURN_MAX: u64 = 2 * 512 + 2;
/// More than is left in a log that is full.
const LARGE: usize = 1_000;

/// Two shards, the first of them with a full log; so many publishers on this shard, each of which has one
/// message that waits there for this many queues behind the exchange `f`; and the names of the queues, that with
/// which the log is full last.
fn waiting(
    publishers_shard: u16,
    publishers: usize,
    queues: usize,
) -> (World, Vec<Channel>, Vec<String>) {
    let mut store = StoreOptions::default();
    store.template.segments_max = 60;
    let world = World::with(Options { shards: 2, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    channel.declare_exclusive("");
    durable_exchange(&channel, "f", "fanout");
    let mut names: Vec<String> =
        (0..queues).map(|number| durable_of(&world, &channel, &format!("q{number}-"), 0)).collect();
    names.iter().for_each(|name| channel.bind(name, "f", ""));
    let full = durable_of(&world, &channel, "full", 0);
    let all: Vec<Channel> = (0..publishers)
        .map(|_| {
            let publisher = world.channel(publishers_shard);
            // Its connection stays there.
            publisher.declare_exclusive("");
            publisher
        })
        .collect();
    world.advance(1_000);
    fill_with(&world, &full, 9_000);
    fill_with(&world, &full, 500);
    names.push(full);
    world.quietly(|| {
        for publisher in &all {
            publisher.publish_with("f", "", &persistent(), vec![b'1'; LARGE]);
        }
    });
    world.advance(10_000);
    assert_eq!(world.queue(&names[0]).ready, 0);
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    (world, all, names)
}

fn looked_at(world: &World) -> u64 {
    world.broker(0, |broker| broker.shard.looked_for_room())
}

/// Messages in the queues of the first shard, without those in this one.
fn arrived(world: &World, full: &str) -> u64 {
    let all: u64 =
        world.broker(0, |broker| broker.homes.queues().map(|(_, queue)| queue.ready()).sum());
    all - world.queue(full).ready
}

/// Rounds until nothing is left to do: the most that was counted in one, and how much it was in all.
fn most_and_all(world: &World, count: impl Fn(&World) -> u64) -> (u64, u64) {
    let begin = count(world);
    let (mut before, mut most, mut is_busy) = (begin, 0, true);
    while is_busy {
        is_busy = world.round();
        let now = count(world);
        most = most.max(now - core::mem::replace(&mut before, now));
    }
    (most, before - begin)
}

fn delete(channel: &Channel, queue: &str) {
    channel.send(queue::Delete { queue, no_wait: true, ..Default::default() });
}

#[test]
fn a_turn_does_little_for_publishes_that_wait_for_room() {
    for (publishers_shard, publishers, queues) in [(1, 60, 200), (0, 60, 200), (1, 600, 2)] {
        let (world, _all, names) = waiting(publishers_shard, publishers, queues);
        let other = world.channel(0);
        let transient = other.declare_exclusive("").queue;
        let elsewhere = world.channel(1);
        let far = elsewhere.declare_exclusive("").queue;
        let unrelated = durable_of(&world, &other, "other", 0);
        let (full, copies) = (&names[queues], (publishers * queues) as u64);
        world.quietly(|| {
            // What has nothing to do with it.
            most_and_all(&world, looked_at);
            other.send(basic::Qos { prefetch_count: 1, ..Default::default() });
            assert_eq!(most_and_all(&world, looked_at), (0, 0));
            for (channel, queue) in [(&other, &transient), (&elsewhere, &far)] {
                delete(channel, queue);
                assert_eq!(most_and_all(&world, looked_at), (0, 0));
            }
            // What may have: each is looked at again, and a few in each turn.
            for queue in [&unrelated, &names[0]] {
                delete(&other, queue);
                let (most, all) = most_and_all(&world, looked_at);
                assert!(most <= TARGETS_IN_TURN_MAX, "{most} in a turn, {publishers} to {queues}");
                // One that gets a part of what a turn may do is looked at for a part of its queues.
                assert!(all >= copies / 2, "{all} of {copies}");
            }
            // There is room: they come in, a few in each turn, and with nothing else that happens.
            other.send(queue::Purge { queue: full, no_wait: true });
            let (mut most, expected) = (0, (queues as u64 - 1) * publishers as u64);
            for _ in 0..2_000 {
                most = most.max(most_and_all(&world, |world| arrived(world, full)).0);
                if arrived(&world, full) == expected {
                    break;
                }
                world.skip(10);
            }
            assert_eq!(arrived(&world, full), expected);
            assert!(most <= TARGETS_IN_TURN_MAX, "{most} come in a turn, {publishers} to {queues}");
        });
        assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    }
}

#[test]
fn who_waits_for_room_is_looked_at_in_the_end_while_queues_are_deleted_all_the_time() {
    let (world, _all, names) = waiting(1, 40, 200);
    let other = world.channel(0);
    let victims: Vec<String> =
        (0..100).map(|number| durable_of(&world, &other, &format!("v{number}-"), 0)).collect();
    // One that has room as soon as somebody looks at it: its queue is gone.
    let only = durable_of(&world, &other, "only", 0);
    let last = world.channel(1);
    last.declare_exclusive("");
    last.confirm_select();
    last.publish_with("", &only, &persistent(), vec![b'2'; LARGE + 2]);
    world.advance(1_000);
    assert_eq!(last.confirmed(), (vec![], vec![]));
    let mut rounds = 0;
    world.quietly(|| {
        delete(&other, &only);
        for victim in &victims {
            delete(&other, victim);
            world.round();
            rounds += 1;
            if last.confirmed().0 == [1] {
                return;
            }
        }
        panic!("it waits in vain");
    });
    // All that wait have a look in so many turns.
    assert!(rounds <= 40 * 200 / 512 + 10, "{rounds} rounds");
    assert_eq!(arrived(&world, &names[200]), 0);
}

#[test]
fn what_one_channel_sent_comes_in_its_order_and_a_few_in_each_turn() {
    let world = World::on_disk(2);
    let channel = world.channel(0);
    channel.declare_exclusive("");
    durable_exchange(&channel, "f", "fanout");
    let names: Vec<String> =
        (0..300).map(|number| durable_of(&world, &channel, &format!("q{number}-"), 0)).collect();
    names.iter().for_each(|name| channel.bind(name, "f", ""));
    let all: Vec<Channel> = (0..20)
        .map(|_| {
            let publisher = world.channel(1);
            publisher.declare_exclusive("");
            publisher
        })
        .collect();
    world.advance(1_000);
    let most = world.quietly(|| {
        for (number, publisher) in all.iter().enumerate() {
            publisher.client().together(|| {
                for next in b'0'..=b'9' {
                    // Some to all queues, and some that wait for room to be made.
                    let bytes = if next == b'0' { 300_000 } else { 10 };
                    let (exchange, key) = if next % 2 == 0 { ("", &*names[0]) } else { ("f", "") };
                    let body = [vec![next], number.to_string().into_bytes(), vec![b'.'; bytes]];
                    publisher.publish_with(exchange, key, &persistent(), body.concat());
                }
            });
        }
        let mut most = 0;
        for _ in 0..500 {
            // What came by mail and had room at once is not counted.
            most = most.max(most_and_all(&world, |world| arrived(world, &names[0])).0);
            world.skip(1);
        }
        most
    });
    assert!(most > 0 && most <= TARGETS_IN_TURN_MAX, "{most} in a turn");
    let mut seen = vec![Vec::new(); all.len()];
    while let Some(message) = channel.get_no_ack(&names[0]) {
        let text = String::from_utf8_lossy(&message.body);
        let number = text[1..].split('.').next().expect("it has a beginning");
        seen[number.parse::<usize>().expect("a publisher")].push(message.body[0]);
    }
    for of in &seen {
        assert_eq!(String::from_utf8_lossy(of), "0123456789");
    }
}

/// They are copied into the log.
#[test]
fn a_turn_takes_few_large_ones_that_waited_for_room() {
    for publishers_shard in [0, 1] {
        let mut store = StoreOptions::default();
        (store.template.segments_max, store.template.segment_bytes) = (14, 4 << 20);
        let world = World::with(Options { shards: 2, store: Some(store), ..Options::default() });
        let channel = world.channel(0);
        channel.declare_exclusive("");
        let [full, q] = ["full", "q"].map(|name| durable_of(&world, &channel, name, 0));
        let all: Vec<Channel> = (0..60).map(|_| world.channel(publishers_shard)).collect();
        all.iter().for_each(|publisher| drop(publisher.declare_exclusive("")));
        world.advance(1_000);
        [1_000_000, 100_000, 10_000].iter().for_each(|bytes| fill_with(&world, &full, *bytes));
        world.quietly(|| {
            for publisher in &all {
                publisher.publish_with("", &q, &persistent(), vec![b'1'; 500_000]);
            }
        });
        world.advance(10_000);
        assert_eq!(world.queue(&q).ready, 0);
        let mut most = 0;
        world.quietly(|| {
            channel.send(queue::Purge { queue: &full, no_wait: true });
            for _ in 0..200 {
                most = most.max(most_and_all(&world, |world| world.queue(&q).ready).0);
                world.skip(10);
            }
        });
        assert_eq!(world.queue(&q).ready, 60);
        // 512 times 8 KiB each of the two times that a cycle ends, and what begins within that.
        assert!(most <= 18, "{most} in a turn");
    }
}

#[test]
fn a_turn_takes_few_large_ones_of_a_commit() {
    let mut store = StoreOptions::default();
    store.template.segment_bytes = 4 << 20;
    let world = World::with(Options { store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let q = durable_of(&world, &channel, "q", 0);
    channel.tx_select();
    for _ in 0..60 {
        channel.publish_with("", &q, &persistent(), vec![b'1'; 500_000]);
    }
    let mut most = 0;
    world.quietly(|| {
        channel.send(tx::Commit {});
        for _ in 0..200 {
            most = most.max(most_and_all(&world, |world| world.queue(&q).ready).0);
            world.skip(10);
        }
    });
    assert_eq!(world.queue(&q).ready, 60);
    assert!(most <= 18, "{most} in a turn");
}
