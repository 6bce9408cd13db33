//! Dead letters and delayed messages that go to very many queues and have no room in one of the last of them:
//! they keep none waiting that has.

use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};

use crate::at_least_once::surely_to;
use crate::delayed_kept::{after, declare_delayed};
use crate::deletions_and_letters::fill_with;
use crate::restart::{durable, durable_exchange, durable_with, persistent};
use crate::room::durable_of;

/// More than go to very many queues at once.
const SENDERS: usize = 12;
/// Transient queues of both exchanges, more than get a message at once.
const QUEUES: usize = 600;
/// When a delayed message for `f` is due, in milliseconds; one for `g` is after twice as long.
const DUE_MILLIS: u64 = 3_600_000;

/// What sends messages to an exchange.
#[derive(Clone, Copy, Debug)]
enum Sender {
    AtMostOnce,
    AtLeastOnce,
    Delayed,
}

impl Sender {
    /// Declares what sends to an exchange, with a message that is not sent yet.
    fn declare(self, channel: &Channel, name: &str, exchange: &str) {
        let letters = match self {
            Sender::AtMostOnce => Table::new().with("x-dead-letter-exchange", exchange),
            Sender::AtLeastOnce => surely_to(exchange, ""),
            Sender::Delayed => {
                declare_delayed(channel, name, "fanout");
                channel.bind_exchange(exchange, name, "");
                let millis = if exchange == "f" { DUE_MILLIS } else { 2 * DUE_MILLIS };
                return channel.publish_with(name, "", &after(millis), vec![b'1'; 1_000]);
            }
        };
        durable_with(channel, name, letters);
        channel.publish_with("", name, &persistent(), vec![b'1'; 1_000]);
    }

    /// Declares some, all on the first shard.
    fn declare_some(self, world: &World, channel: &Channel, prefix: &str, to: &str) -> Vec<String> {
        let names = (0..).map(|number| format!("{prefix}{number}"));
        let is_first = |name: &String| {
            self.declare(channel, name, to);
            world.find_queue("/", name).is_none_or(|queue| queue.home == 0)
        };
        names.filter(is_first).take(if to == "f" { SENDERS } else { 1 }).collect()
    }

    fn send(self, world: &World, channel: &Channel, names: &[String]) {
        if matches!(self, Sender::Delayed) {
            return world.advance(DUE_MILLIS);
        }
        for name in names {
            let letter = channel.get(name).expect("a message");
            channel.reject(letter.tag, false);
        }
        world.advance(60_000);
    }
}

/// Two exchanges, `f` and `g`, that lead to the same transient queues; `f` leads also to durable ones of the last
/// shard, whose log is full then. Messages of many senders go to `f`, and then one goes to `g`.
fn one_goes_past_those_without_room(sender: Sender, shards: u16, durable_queues: usize) {
    let mut store = StoreOptions::default();
    (store.template.segments_max, store.template.passing_segments) = (14, 0);
    let world = World::with(Options { shards, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    let full = durable_of(&world, &channel, "full", shards - 1);
    ["f", "g"].iter().for_each(|exchange| durable_exchange(&channel, exchange, "fanout"));
    for number in 0..QUEUES {
        let queue = format!("t{number}");
        channel.declare(&queue);
        ["f", "g"].iter().for_each(|exchange| channel.bind(&queue, exchange, ""));
    }
    channel.declare("mark");
    channel.bind("mark", "g", "");
    let of_last: Vec<String> = (0..durable_queues)
        .map(|number| durable_of(&world, &channel, &format!("last{number}-"), shards - 1))
        .collect();
    of_last.iter().for_each(|queue| channel.bind(queue, "f", ""));
    let last = of_last.last().expect("some");
    let to_full = sender.declare_some(&world, &channel, "many", "f");
    let other = sender.declare_some(&world, &channel, "other", "g");
    world.advance(1_000);
    [9_000, 1_000, 100].iter().for_each(|bytes| fill_with(&world, &full, *bytes));
    sender.send(&world, &channel, &to_full);
    assert_eq!(world.queue(last).ready, 0, "{sender:?} with {shards} shards");
    sender.send(&world, &channel, &other);
    assert_eq!(world.queue("mark").ready, 1, "{sender:?} with {shards} shards");
    if durable_queues > 1 {
        // The log has no room for all.
        return;
    }
    channel.purge(&full);
    world.advance(120_000);
    let all = SENDERS as u64;
    assert_eq!(world.queue(last).ready, all, "{sender:?} with {shards} shards");
    assert_eq!(world.queue("t599").ready, all + 1);
}

#[test]
fn one_that_has_room_goes_past_dead_letters_that_have_none() {
    [1, 2]
        .iter()
        .for_each(|shards| one_goes_past_those_without_room(Sender::AtMostOnce, *shards, 1));
}

#[test]
fn one_that_has_room_goes_past_dead_letters_that_must_arrive_and_have_none() {
    [1, 2]
        .iter()
        .for_each(|shards| one_goes_past_those_without_room(Sender::AtLeastOnce, *shards, 1));
}

/// More of them than may be asked at once.
#[test]
fn one_that_has_room_goes_past_letters_that_wait_for_reports_of_very_many_queues() {
    one_goes_past_those_without_room(Sender::AtLeastOnce, 2, 700);
}

#[test]
fn one_that_has_room_goes_past_delayed_messages_that_have_none() {
    [1, 2].iter().for_each(|shards| one_goes_past_those_without_room(Sender::Delayed, *shards, 1));
}

/// What waits for room is no more than the message, however many queues are to get it.
#[test]
fn delayed_messages_for_very_many_queues_wait_in_little_memory() {
    const EXCHANGES: usize = 4;
    let mut store = StoreOptions::default();
    store.template.segments_max = 14;
    let world = World::with(Options { shards: 1, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    durable(&channel, "full");
    durable_exchange(&channel, "f", "fanout");
    for number in 0..4_000 {
        let queue = format!("t{number}");
        durable(&channel, &queue);
        channel.bind(&queue, "f", "");
    }
    (0..EXCHANGES).for_each(|number| Sender::Delayed.declare(&channel, &format!("d{number}"), "f"));
    fill_with(&world, "full", 9_000);
    fill_with(&world, "full", 1_000);
    let memory = || world.broker(0, |broker| broker.shard.memory());
    let before = memory();
    world.advance(DUE_MILLIS);
    assert_eq!(world.queue("t0").ready, 0);
    let each = memory().saturating_sub(before) / EXCHANGES;
    assert!(each < 512 * 50, "{each} bytes for each");
}
