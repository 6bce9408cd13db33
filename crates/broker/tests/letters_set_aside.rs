//! Dead letters and delayed messages that were set aside while their queue moved, and wait for room where it
//! is then: those behind them of the same queue or exchange do not overtake them, and they wait for no
//! more than others do.

use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};
use lepus_store::disk::LogId;

use crate::adopted_logs::fill;
use crate::at_least_once::{declare, surely_to};
use crate::delayed_kept::{after, declare_delayed};
use crate::restart::{durable_with, persistent};
use crate::room::durable_of;

/// So many messages, each of so many bytes, find room while each is looked at by itself, and not all of
/// them.
const COUNT: usize = 20;
const BYTES: usize = 9_000;

fn tied(world: &World, shard: u16) -> Channel {
    let channel = world.channel(shard);
    channel.declare_exclusive("");
    channel
}

/// Declares queues until one of them is at home on this shard: its name.
fn declare_at(world: &World, shard: u16, declare: impl Fn(&str)) -> String {
    let names = (0..20).map(|number| format!("letters{number}"));
    let mut new = names.filter(|name| world.find_queue("/", name).is_none());
    let is_there = |name: &String| {
        declare(name);
        world.queue(name).home == shard
    };
    new.find(is_there).expect("queues go to all shards in turn")
}

/// Two shards, a queue `moving` of the first one, and what `prepare` makes of them before the disk is nearly
/// full.
fn world_with<T>(prepare: impl FnOnce(&World, &str) -> T) -> (World, [String; 2], T) {
    let mut store = StoreOptions::default();
    store.template.segment_bytes = 16 << 10;
    let world = World::with(Options { shards: 2, store: Some(store), ..Options::default() });
    let channel = tied(&world, 1);
    let moving = durable_of(&world, &channel, "moving", 0);
    let begun = durable_of(&world, &channel, "begun", 0);
    let prepared = prepare(&world, &moving);
    world.advance(1_000);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    (world, [begun, moving], prepared)
}

/// Sends the queue to shard 1 and does something while it is on its way.
fn meanwhile(world: &World, begun: &str, moving: &str, talk: impl FnOnce()) {
    // It leaves when the log is synced.
    world.hold_log(LogId(1));
    let publisher = world.channel(0);
    publisher.publish_with("", begun, &persistent(), "x");
    world.quietly(|| {
        world.move_queue(moving, 1);
        world.round();
        talk();
        // They are read first, one after the other.
        (0..2 * COUNT).for_each(|_| {
            world.round();
        });
        assert_eq!(world.queue(moving).home, 0, "it is on its way");
    });
    world.release_disk();
    world.advance(1_000);
    assert_eq!(world.queue(moving).home, 1);
}

fn make_room(world: &World) {
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(60_000);
}

/// The long ones are in the queue, and the short one behind them.
fn expect_in_order(world: &World, queue: &str) {
    let channel = world.channel(0);
    let found = core::iter::from_fn(|| channel.get_no_ack(queue)).map(|found| found.body.len());
    assert_eq!(found.collect::<Vec<_>>(), [vec![BYTES; COUNT], vec![1]].concat());
}

/// Puts messages into a new queue of shard 1 whose dead letters go to `dead`, and takes them. The channel and their
/// tags.
fn take_letters(world: &World, dead: &str, surely: bool, sizes: &[usize]) -> (Channel, Vec<u64>) {
    let channel = tied(world, 1);
    let letters = declare_at(world, 1, |name| match surely {
        true => declare(&channel, name, surely_to("", dead)),
        false => {
            let to_dead = Table::new()
                .with("x-dead-letter-exchange", "")
                .with("x-dead-letter-routing-key", dead);
            durable_with(&channel, name, to_dead);
        }
    });
    for &bytes in sizes {
        channel.publish_with("", &letters, &persistent(), vec![b'1'; bytes]);
    }
    let taken = core::iter::from_fn(|| channel.get(&letters));
    let tags = taken.map(|message| message.tag).collect();
    (channel, tags)
}

#[test]
fn a_later_dead_letter_of_the_same_queue_does_not_overtake_it() {
    for surely in [false, true] {
        let sizes = [vec![BYTES; COUNT], vec![1]].concat();
        let (world, [begun, moving], (channel, tags)) =
            world_with(|world, moving| take_letters(world, moving, surely, &sizes));
        meanwhile(&world, &begun, &moving, || {
            tags[..COUNT].iter().for_each(|tag| channel.reject(*tag, false));
        });
        let came = world.queue(&moving).ready;
        assert!((1..COUNT as u64).contains(&came), "{came} find room");
        channel.reject(tags[COUNT], false);
        world.advance(1_000);
        assert_eq!(world.queue(&moving).ready, came, "surely: {surely}");
        make_room(&world);
        expect_in_order(&world, &moving);
    }
}

#[test]
fn a_dead_letter_may_use_the_room_that_is_kept_for_it() {
    for surely in [false, true] {
        let world = World::in_segments(2, 14);
        let channel = tied(&world, 1);
        let moving = durable_of(&world, &channel, "moving", 0);
        let begun = durable_of(&world, &channel, "begun", 0);
        let filled = durable_of(&world, &channel, "filled", 1);
        let (letters, tags) = take_letters(&world, &moving, surely, &[30_000]);
        let fillers: Vec<Channel> = (0..100).map(|_| world.channel(1)).collect();
        world.advance(1_000);
        meanwhile(&world, &begun, &moving, || {
            letters.reject(tags[0], false);
            (0..4).for_each(|_| {
                world.round();
            });
            for filler in &fillers {
                filler.publish_with("", &filled, &persistent(), vec![b'1'; BYTES]);
                world.round();
            }
        });
        assert!(world.queue(&filled).ready < 100, "there is no room for others");
        assert_eq!(world.queue(&moving).ready, 1, "surely: {surely}");
    }
}

#[test]
fn a_dead_letter_without_room_on_another_shard_keeps_only_those_of_its_own_queue_waiting() {
    for surely in [false, true] {
        let world = World::in_segments(2, 14);
        let channel = tied(&world, 1);
        let dead = durable_of(&world, &channel, "dead", 0);
        let (large, of_large) = take_letters(&world, &dead, surely, &[60_000, 2]);
        let (little, of_little) = take_letters(&world, &dead, surely, &[1]);
        let filled = durable_of(&world, &channel, "filled", 0);
        fill(&world, &filled);
        of_large.iter().for_each(|tag| large.reject(*tag, false));
        world.advance(1_000);
        assert_eq!(world.queue(&dead).ready, 0);
        of_little.iter().for_each(|tag| little.reject(*tag, false));
        world.advance(1_000);
        assert_eq!(world.queue(&dead).ready, 1, "surely: {surely}");
        channel.purge(&filled);
        world.advance(10_000);
        let found = core::iter::from_fn(|| channel.get_no_ack(&dead)).map(|found| found.body.len());
        assert_eq!(found.collect::<Vec<_>>(), [1, 60_000, 2], "surely: {surely}");
    }
}

#[test]
fn a_later_delayed_message_of_the_same_exchange_does_not_overtake_it() {
    let (world, [begun, moving], start) = world_with(|world, moving| {
        let channel = tied(world, 1);
        declare_delayed(&channel, "x", "fanout");
        channel.bind(moving, "x", "");
        for _ in 0..COUNT {
            channel.publish_with("x", "", &after(10_000), vec![b'1'; BYTES]);
        }
        channel.publish_with("x", "", &after(20_000), "1");
        world.now().wall_millis
    });
    // The first are due while the queue is on its way.
    world.advance(start + 9_980 - world.now().wall_millis);
    meanwhile(&world, &begun, &moving, || world.skip(30));
    let came = world.queue(&moving).ready;
    assert!((1..COUNT as u64).contains(&came), "{came} find room");
    world.advance(15_000);
    assert_eq!(world.queue(&moving).ready, came);
    make_room(&world);
    expect_in_order(&world, &moving);
}
