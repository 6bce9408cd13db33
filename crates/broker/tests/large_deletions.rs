//! What has very many bindings is gone at once for everybody when it is deleted; the bindings go in
//! slices, so that others are served between them, and whoever deleted it is answered after the last.

use std::sync::mpsc::TryRecvError;

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{exchange, queue};
use lepus_amqp::table::Table;
use lepus_broker::Answer;
use lepus_broker::directory::Request;
use lepus_sim::{Channel, Limits, Options, StoreOptions, World};

/// Bindings that go in one step here.
const SLICE: usize = 8;
const MANY: usize = 200;

fn options(shards: u16) -> Options {
    let limits = Limits { bindings_at_once: SLICE, ..Limits::default() };
    Options { shards, limits, ..Options::default() }
}

fn world(shards: u16) -> World {
    World::with(options(shards))
}

fn on_disk(shards: u16) -> World {
    World::with(Options { store: Some(StoreOptions::default()), ..options(shards) })
}

fn bind_often(channel: &Channel, queue: &str, exchange: &str) {
    for number in 0..MANY {
        channel.bind(queue, exchange, &format!("key.{number}"));
    }
}

fn bindings(world: &World, shard: u16) -> usize {
    world.broker(shard, |broker| broker.directory.binding_count())
}

fn turns(world: &World, count: usize) {
    for _ in 0..count {
        world.round();
    }
}

fn auto_delete(exchange: &str, durable: bool) -> exchange::Declare<'_> {
    exchange::Declare {
        exchange,
        r#type: "topic",
        auto_delete: true,
        durable,
        ..Default::default()
    }
}

/// Lets turns pass until `channel` is answered with `name`. Each takes few bindings away on every shard,
/// and in each somebody else is served. How many.
fn served_until(world: &World, channel: &Channel, name: &str, other: &Channel) -> usize {
    let (mut turns, mut served) = (0, 0);
    let mut before: Vec<usize> = (0..world.shards()).map(|shard| bindings(world, shard)).collect();
    loop {
        let queue = format!("other {turns}");
        world.quietly(|| other.send(queue::Declare { queue: &queue, ..Default::default() }));
        world.round();
        turns += 1;
        served += usize::from(other.answer().is_some());
        for shard in 0..world.shards() {
            let now = bindings(world, shard);
            let before = core::mem::replace(&mut before[usize::from(shard)], now);
            assert!(before <= now + 2 * SLICE, "{before} bindings, then {now}");
        }
        if let Some(answer) = world.quietly(|| channel.answer()) {
            assert_eq!(answer.name(), name);
            assert!(served + 4 >= turns, "{turns} turns, {served} served");
            return turns;
        }
        assert!(turns < 1_000, "no answer");
    }
}

#[test]
fn a_queue_with_many_bindings_goes_in_slices_and_others_are_served_between_them() {
    for shards in 1..=3 {
        let world = world(shards);
        let (one, other) = (world.channel(shards - 1), world.channel(0));
        one.declare("q");
        one.declare("stays");
        bind_often(&one, "q", "amq.topic");
        one.bind("stays", "amq.topic", "#");
        world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
        let turns = served_until(&world, &one, "queue.delete-ok", &other);
        assert!(turns >= MANY / SLICE, "{turns} turns");
        world.settle();
        for shard in 0..shards {
            assert_eq!(bindings(&world, shard), 1);
        }
        assert_eq!(world.leaks(), [""; 0]);
    }
}

/// Otherwise a shard that applies slices as fast as another makes them would do nothing else.
#[test]
fn slices_wait_for_shards_that_have_several_to_apply() {
    /// Slices that a shard may have to apply.
    const AHEAD: usize = 4;
    let world = world(3);
    let (one, other) = (world.channel(0), world.channel(0));
    one.declare("q");
    bind_often(&one, "q", "amq.topic");
    world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
    for turn in 0..3 {
        // Only shard 0 gets on, and serves its clients.
        (0..50).for_each(|_| world.round_without(&[1, 2]));
        let left = bindings(&world, 0);
        let ahead = bindings(&world, 1).max(bindings(&world, 2)) - left;
        assert!(ahead > SLICE && ahead <= AHEAD * SLICE, "{ahead} bindings ahead");
        let asks = exchange::Declare { exchange: "amq.topic", passive: true, ..Default::default() };
        world.quietly(|| other.send(asks));
        (0..3).for_each(|_| world.round_without(&[1, 2]));
        let answer = world.quietly(|| other.answer());
        assert_eq!(answer.map(|answer| answer.name()), Some("exchange.declare-ok"));
        // One of the two others is not enough.
        (0..50).for_each(|_| world.round_without(&[1 + turn % 2]));
        assert_eq!(bindings(&world, 0), left);
        assert_eq!(bindings(&world, 2 - turn % 2), left);
        (0..2).for_each(|_| world.round_without(&[0]));
    }
    world.settle();
    one.expect("queue.delete-ok");
    assert!((0..3).all(|shard| bindings(&world, shard) == 0));
    assert_eq!(world.leaks(), [""; 0]);
}

/// Each binding that goes is some microseconds, which everybody else waits.
#[test]
fn few_bindings_go_in_a_turn_unless_somebody_wants_more() {
    const FEW: usize = 64;
    const ALL: usize = 3_000;
    let world = World::new(1);
    let (one, other) = (world.channel(0), world.channel(0));
    one.exchange("x", "topic");
    let bind = || {
        one.declare("q");
        (0..ALL).for_each(|number| one.bind("q", "x", &format!("key.{number}.*")));
    };
    let goes = |answer: &str| {
        let (mut turns, mut before) = (0, bindings(&world, 0));
        while bindings(&world, 0) > 0 {
            world.quietly(|| other.publish("", "nobody", "nobody's"));
            world.round();
            let now = bindings(&world, 0);
            assert!(before <= now + FEW, "{before} bindings, then {now}");
            (turns, before) = (turns + 1, now);
        }
        assert!(turns >= ALL / FEW, "{turns} turns");
        one.expect(answer);
    };
    bind();
    world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
    goes("queue.delete-ok");
    bind();
    world.quietly(|| one.send(exchange::Delete { exchange: "x", ..Default::default() }));
    goes("exchange.delete-ok");
}

#[test]
fn a_queue_is_gone_for_everybody_before_its_bindings_are() {
    for shards in 1..=2 {
        let world = world(shards);
        let (one, other) = (world.channel(shards - 1), world.channel(0));
        one.declare("q");
        bind_often(&one, "q", "amq.topic");
        one.bind("q", "amq.fanout", "");
        one.consume("q", "c");
        let full = bindings(&world, 0);
        world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
        while bindings(&world, 0) == full {
            world.round();
        }
        world.quietly(|| {
            for (exchange, key) in [("amq.topic", "key.7"), ("amq.fanout", ""), ("", "q")] {
                other.publish_mandatory(exchange, key, "nobody's");
            }
        });
        turns(&world, 4);
        assert!(bindings(&world, 0) > 0, "it is still under way");
        assert!(world.quietly(|| one.answer()).is_none());
        assert_eq!(world.quietly(|| other.returns()).len(), 3);
        // Another one of the name has nothing of it.
        world.quietly(|| other.send(queue::Declare { queue: "q", ..Default::default() }));
        turns(&world, 4);
        assert_eq!(
            world.quietly(|| other.answer()).map(|answer| answer.name()),
            Some("queue.declare-ok")
        );
        assert!(bindings(&world, 0) > 0, "it is still under way");
        world.settle();
        one.expect("queue.delete-ok");
        assert_eq!(one.cancelled(), ["c"]);
        other.publish("amq.topic", "key.7", "nobody's");
        assert_eq!(other.passive("q").messages, 0);
        assert_eq!(bindings(&world, 0), 0);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn an_exchange_with_many_bindings_goes_in_slices() {
    for shards in 1..=2 {
        let world = world(shards);
        let (one, other) = (world.channel(shards - 1), world.channel(0));
        one.declare("q");
        one.exchange("x", "direct");
        bind_often(&one, "q", "x");
        for number in 0..MANY {
            one.bind_exchange("x", "amq.direct", &format!("key.{number}"));
        }
        one.publish("amq.direct", "key.7", "first");
        world.quietly(|| one.send(exchange::Delete { exchange: "x", ..Default::default() }));
        let turns = served_until(&world, &one, "exchange.delete-ok", &other);
        assert!(turns >= 2 * MANY / SLICE, "{turns} turns");
        one.publish_mandatory("amq.direct", "key.7", "second");
        assert_eq!(one.returns().len(), 1);
        assert_eq!((one.purge("q"), bindings(&world, 0)), (1, 0));
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn exchanges_that_delete_themselves_are_gone_before_the_answer() {
    for world in [world(1), world(2), on_disk(1), on_disk(2)] {
        let (one, other) = (world.channel(world.shards() - 1), world.channel(0));
        one.declare_method(queue::Declare { queue: "q", durable: true, ..Default::default() });
        // The first goes by the queue, the second, which is large itself, by the first, and the
        // third by that.
        for (exchange, is_durable) in [("first", true), ("second", true), ("third", false)] {
            one.exchange_method(auto_delete(exchange, is_durable));
        }
        bind_often(&one, "q", "first");
        one.bind_exchange("first", "second", "");
        for number in 0..MANY {
            one.bind_exchange("second", "third", &format!("{number}"));
        }
        world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
        served_until(&world, &one, "queue.delete-ok", &other);
        for name in ["first", "second", "third"] {
            let gone = world.channel(0).refused(exchange::Declare {
                exchange: name,
                passive: true,
                ..Default::default()
            });
            assert_eq!(gone.code, ReplyCode::NOT_FOUND);
        }
        assert_eq!(bindings(&world, 0), 0);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn unbinding_what_many_bindings_lead_to_is_answered_when_it_has_deleted_itself() {
    let world = world(2);
    let (one, other) = (world.channel(1), world.channel(0));
    one.declare("q");
    one.exchange_method(auto_delete("x", false));
    one.bind("q", "x", "k");
    for number in 0..MANY {
        one.bind_exchange("x", "amq.direct", &format!("{number}"));
    }
    let unbind =
        queue::Unbind { queue: "q", exchange: "x", routing_key: "k", ..Default::default() };
    world.quietly(|| one.send(unbind));
    served_until(&world, &one, "queue.unbind-ok", &other);
    world.settle();
    assert_eq!(bindings(&world, 0), 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn all_queues_of_an_owner_that_leaves_share_a_slice() {
    const QUEUES: usize = 40;
    for shards in 1..=2 {
        let world = world(shards);
        let (owner, other) = (world.channel(shards - 1), world.channel(0));
        for number in 0..QUEUES {
            let queue = format!("q{number}");
            owner.declare_exclusive(&queue);
            for key in 0..2 * SLICE {
                owner.bind(&queue, "amq.topic", &format!("key.{key}"));
            }
        }
        world.quietly(|| owner.client().say_close());
        let (mut turns, mut before) = (0, bindings(&world, 0));
        while bindings(&world, 0) > 0 {
            world.quietly(|| other.publish("amq.topic", "key.1", "nobody's"));
            world.round();
            turns += 1;
            let now = bindings(&world, 0);
            assert!(before <= now + 2 * SLICE, "{before} bindings, then {now}");
            before = now;
        }
        assert!(turns >= QUEUES, "{turns} turns");
        world.settle();
        assert!(owner.client().is_ended());
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn very_many_small_queues_of_an_owner_that_leaves_take_several_turns() {
    const QUEUES: usize = 1_000;
    /// Queues and bindings that go in one turn at most.
    const EFFORT: usize = 2_048 + SLICE;
    for shards in 1..=2 {
        let world = world(shards);
        let owner = world.channel(0);
        for number in 0..QUEUES {
            let queue = format!("q{number}");
            owner.declare_exclusive(&queue);
            for key in 0..4 {
                owner.bind(&queue, "amq.topic", &format!("key.{key}"));
            }
        }
        let objects = |shard| {
            let queues = world.broker(shard, |broker| broker.directory.object_count());
            queues + bindings(&world, shard)
        };
        let mut before: Vec<usize> = (0..shards).map(objects).collect();
        world.quietly(|| owner.client().say_close());
        while bindings(&world, shards - 1) > 0 {
            world.round();
            for shard in 0..shards {
                let now = objects(shard);
                let before = core::mem::replace(&mut before[usize::from(shard)], now);
                assert!(before <= now + EFFORT, "{before} objects, then {now}");
            }
        }
        world.settle();
        assert!(owner.client().is_ended());
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_queue_that_goes_by_itself_takes_its_bindings_in_slices() {
    for shards in 1..=2 {
        let world = world(shards);
        let (one, other) = (world.channel(shards - 1), world.channel(0));
        one.declare_with("expires", Table::new().with("x-expires", 1_000i32));
        bind_often(&one, "expires", "amq.topic");
        one.declare_method(queue::Declare {
            queue: "left",
            auto_delete: true,
            ..Default::default()
        });
        bind_often(&one, "left", "amq.topic");
        one.consume("left", "c");
        let cancel = lepus_amqp::method::basic::Cancel { consumer_tag: "c", no_wait: false };
        world.quietly(|| one.send(cancel));
        let turns = served_until(&world, &one, "basic.cancel-ok", &other);
        assert!(turns >= MANY / SLICE, "{turns} turns");
        assert_eq!(bindings(&world, 0), MANY);
        world.skip(2_000);
        let mut before = MANY;
        while before > 0 {
            world.round();
            let now = bindings(&world, 0);
            assert!(before <= now + 2 * SLICE, "{before} bindings, then {now}");
            before = now;
        }
        world.settle();
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_start_completes_a_deletion_with_all_that_follows() {
    type End = fn(&World);
    let ends: [End; 3] = [World::stop, World::kill, World::crash];
    for end in ends {
        let world = on_disk(2);
        let one = world.channel(1);
        one.declare_method(queue::Declare { queue: "q", durable: true, ..Default::default() });
        one.exchange_method(auto_delete("x", true));
        one.exchange_method(auto_delete("before", true));
        bind_often(&one, "q", "x");
        one.bind_exchange("x", "before", "");
        let full = bindings(&world, 0);
        world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
        while bindings(&world, 0) == full {
            world.round();
        }
        assert!(world.quietly(|| one.answer()).is_none());
        assert!(bindings(&world, 0) > 0);
        end(&world);
        world.start_again(2);
        for shard in 0..2 {
            assert_eq!(bindings(&world, shard), 0);
        }
        let names = world.broker(0, |broker| {
            let own = broker.directory.exchanges(None).filter(|info| !info.is_predeclared());
            own.map(|info| info.name.to_string()).collect::<Vec<_>>()
        });
        assert_eq!(names, [""; 0]);
        world.channel(0).declare("q");
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn durable_changes_that_keep_coming_do_not_keep_a_deletion_from_its_end() {
    let world = on_disk(1);
    let (one, other) = (world.channel(0), world.channel(0));
    one.declare("q");
    bind_often(&one, "q", "amq.topic");
    world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
    let mut number = 0;
    while world.quietly(|| one.answer()).is_none() {
        let queue = &format!("d{number}");
        world.quietly(|| other.send(queue::Declare { queue, durable: true, ..Default::default() }));
        world.round();
        drop(world.quietly(|| other.answer()));
        number += 1;
        assert!(number < 2_000, "{} bindings are left", bindings(&world, 0));
    }
    world.settle();
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_virtual_host_that_is_deleted_meanwhile_takes_the_rest_along() {
    let world = world(2);
    world.add_vhost("v");
    world.permit("guest", "v", ".*", ".*", ".*");
    let one = world.connect_with(1, World::login("guest", "guest", "v")).channel();
    one.declare("q");
    one.exchange_method(auto_delete("x", false));
    bind_often(&one, "q", "x");
    world.quietly(|| one.send(queue::Delete { queue: "q", ..Default::default() }));
    turns(&world, 4);
    assert!(bindings(&world, 0) > 0);
    let answer = world.begin(Request::DeleteVhost { name: "v".into() });
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    world.settle();
    assert_eq!(answer.try_recv(), Ok(Answer::Changed(Ok(()))));
    assert_eq!(bindings(&world, 1), 0);
    assert_eq!(world.leaks(), [""; 0]);
}
