//! What routing costs: a turn ends when it has had its share, and a message whose way is too long is
//! refused as a whole.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, Limits, Options, StoreOptions, World};

use crate::at_least_once::{declare, surely_to};
use crate::restart::persistent;

/// Bindings of one queue, all of which fit.
const BINDINGS: u32 = 3_000;
/// Steps that a turn has for such messages, and what its last one adds.
const PER_TURN: u64 = (1 << 18) / BINDINGS as u64 + 1;

/// A queue that is bound very often to an exchange, whatever its type.
fn bind_often(channel: &Channel, queue: &str, exchange: &str) {
    channel.declare(queue);
    channel.client().together(|| {
        for number in 0..BINDINGS {
            let arguments = Table::new().with("x-match", "any").with("a", 1).with("number", number);
            channel.send(queue::Bind {
                queue,
                exchange,
                routing_key: "#",
                no_wait: true,
                arguments: arguments.to_bytes().as_ref(),
            });
        }
    });
}

/// Goes on until nothing is left to do; the most that was counted in one turn of all shards.
fn most(world: &World, count: impl Fn(&World) -> u64) -> u64 {
    let (mut before, mut most) = (count(world), 0);
    let mut is_busy = true;
    while is_busy {
        is_busy = world.round();
        let now = count(world);
        most = most.max(now - core::mem::replace(&mut before, now));
    }
    most
}

fn routed(world: &World) -> u64 {
    world.counters().routed
}

/// Publishes that all go another way, in one piece.
fn publish_many(channel: &Channel, exchange: &str, count: u32) {
    let headers = Some(Table::new().with("a", 1));
    let properties = Properties { headers, ..Properties::default() };
    channel.client().together(|| {
        for number in 0..count {
            let key = format!("k{number}");
            channel.publish_with(exchange, &key, &properties, format!("{number}"));
        }
    });
}

fn expect_all(channel: &Channel, queue: &str, count: u32) {
    for number in 0..count {
        let found = channel.get_no_ack(queue).map(|message| message.text());
        assert_eq!(found, Some(format!("{number}")));
    }
    assert_eq!(channel.get_no_ack(queue), None);
}

#[test]
fn a_turn_takes_no_more_publishes_than_are_work_for_it() {
    for exchange in ["amq.fanout", "amq.topic", "amq.headers"] {
        let world = World::new(1);
        let channel = world.channel(0);
        bind_often(&channel, "q", exchange);
        let other = world.channel(0);
        world.quietly(|| publish_many(&channel, exchange, 1_000));
        world.quietly(|| other.send(queue::Declare { queue: "other", ..Default::default() }));
        let mut turns = 0;
        while other.answer().is_none() {
            world.round();
            turns += 1;
        }
        assert!(turns <= 3, "another client waited {turns} turns");
        let most = most(&world, routed);
        assert!(most <= PER_TURN, "{most} messages in one turn");
        expect_all(&channel, "q", 1_000);
    }
}

#[test]
fn a_turn_takes_no_more_methods_than_are_work_for_it() {
    let world = World::new(1);
    let channel = world.channel(0);
    channel.declare("q");
    let answers = 6_000;
    world.quietly(|| {
        channel.client().together(|| {
            for _ in 0..answers {
                channel.send(queue::Declare { queue: "q", passive: true, ..Default::default() });
            }
        });
    });
    let before = world.counters().queues_declared;
    let most = most(&world, |world| world.counters().queues_declared);
    assert!(most <= 2_048, "{most} methods in one turn");
    assert_eq!(world.counters().queues_declared - before, answers);
}

#[test]
fn what_was_parked_behind_a_question_has_a_share_of_its_own() {
    let world = World::new(2);
    let (near, far) = (world.channel(0), world.channel(1));
    near.declare_exclusive("");
    far.declare("asked");
    bind_often(&far, "q", "amq.fanout");
    world.quietly(|| {
        near.client().together(|| {
            near.send(basic::Get { queue: "asked", no_ack: true });
            for number in 0..400 {
                near.publish("amq.fanout", &format!("k{number}"), format!("{number}"));
            }
        });
    });
    let most = most(&world, routed);
    // Behind the answer, and at the end of the turn.
    assert!(most <= 3 * PER_TURN, "{most} messages in one turn");
    expect_all(&far, "q", 400);
}

#[test]
fn a_commit_is_served_in_slices_of_routing() {
    for store in [None, Some(StoreOptions::default())] {
        let world = World::with(Options { store, ..Options::default() });
        let channel = world.channel(0);
        bind_often(&channel, "q", "amq.fanout");
        let other = world.channel(0);
        other.tx_select();
        publish_many(&other, "amq.fanout", 300);
        world.quietly(|| other.send(tx::Commit {}));
        let most = most(&world, routed);
        assert!(most <= PER_TURN, "{most} messages in one turn");
        other.expect("tx.commit-ok");
        expect_all(&channel, "q", 300);
    }
}

#[test]
fn expired_messages_go_through_many_bindings_a_turns_share_at_a_time() {
    let world = World::new(1);
    let channel = world.channel(0);
    bind_often(&channel, "q", "amq.fanout");
    let arguments =
        Table::new().with("x-dead-letter-exchange", "amq.fanout").with("x-message-ttl", 100);
    channel.declare_with("source", arguments);
    channel.publish_all("source", (0..1_000).map(|number| format!("{number}")));
    world.skip(100);
    let most = most(&world, |world| world.queue("q").ready);
    assert!(most <= 3 * PER_TURN, "{most} messages in one turn");
    assert_eq!(world.queue("q").ready, 1_000);
}

/// A world in which a message may pass a few dozen exchanges.
fn short_ways(store: Option<StoreOptions>) -> World {
    let limits = Limits { routing_steps_max: 2_000, ..Limits::default() };
    World::with(Options { limits, store, ..Options::default() })
}

/// A chain of exchanges, each of which leads to a queue, too.
fn chain(channel: &Channel, length: usize) {
    for place in 0..length {
        channel.exchange(&format!("e{place}"), "fanout");
        channel.bind("q", &format!("e{place}"), "");
        if place > 0 {
            channel.bind_exchange(&format!("e{place}"), &format!("e{}", place - 1), "");
        }
    }
}

#[test]
fn a_message_whose_way_is_too_long_is_refused_as_a_whole() {
    let world = short_ways(None);
    let channel = world.channel(0);
    channel.declare("q");
    chain(&channel, 200);
    let publisher = world.channel(0);
    publisher.confirm_select();
    publisher.publish("e180", "", "near enough");
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    publisher.publish("e0", "", "too far");
    let refused = publisher.expect_refused();
    assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (60, 40)));
    assert!(refused.text.contains("exchange 'e0' takes more than 2000 steps"), "{}", refused.text);
    assert_eq!(publisher.confirmed(), (vec![], vec![]));
    assert_eq!(channel.purge("q"), 1);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn very_many_headers_or_keys_make_a_way_too_long_as_well() {
    let world = short_ways(None);
    let channel = world.channel(0);
    channel.declare("q");
    channel.bind_with("q", "amq.headers", "", Table::new().with("h0", 0));
    channel.bind("q", "amq.topic", "#");
    let headers = |count| (0..count).map(|number| (format!("h{number}"), Value::from(number)));
    let with = |headers: Table| Properties { headers: Some(headers), ..Properties::default() };
    channel.publish_with("amq.headers", "", &with(headers(20).collect()), "x");
    assert_eq!(channel.purge("q"), 1);
    channel.publish_with("amq.headers", "", &with(headers(100).collect()), "x");
    assert_eq!(channel.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
    assert_eq!(world.queue("q").ready, 0);
    let channel = world.channel(0);
    let keys: Vec<Value> = (0..200).map(|number| Value::from(format!("k{number}"))).collect();
    channel.publish_with("amq.direct", "", &with(Table::new().with("CC", keys)), "x");
    assert_eq!(channel.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
}

#[test]
fn a_transaction_with_a_message_whose_way_is_too_long_is_refused() {
    for (store, published) in [(Some(StoreOptions::default()), 0), (None, 1)] {
        let world = short_ways(store);
        let channel = world.channel(0);
        declare(&channel, "q", Table::new());
        chain(&channel, 200);
        let publisher = world.channel(0);
        publisher.tx_select();
        publisher.publish_with("", "q", &persistent(), "1");
        publisher.publish_with("e0", "", &persistent(), "too far");
        publisher.publish_with("", "q", &persistent(), "3");
        let refused = publisher.refused(tx::Commit {});
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (90, 20)));
        // What goes to a disk is looked at before anything is published.
        assert_eq!(channel.purge("q"), published);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_dead_letter_whose_way_is_too_long_is_dropped_and_told_unless_it_must_arrive() {
    let world = short_ways(Some(StoreOptions::default()));
    let channel = world.channel(0);
    channel.declare("q");
    chain(&channel, 200);
    channel.declare_with("source", Table::new().with("x-dead-letter-exchange", "e0"));
    declare(&channel, "sure", surely_to("e0", ""));
    for source in ["source", "sure"] {
        channel.publish_with("", source, &persistent(), "x");
        let message = channel.get(source).expect("a message");
        channel.reject(message.tag, false);
    }
    world.advance(1_000);
    assert_eq!(world.queue("q").ready, 0);
    let told = world.events().iter().filter(|event| event.kind == "routing-too-long").count();
    assert_eq!(told, 1);
    // The way becomes shorter.
    channel.unbind_exchange("e20", "e19", "");
    world.advance(60_000);
    let bodies: Vec<String> =
        core::iter::from_fn(|| channel.get_no_ack("q")).map(|message| message.text()).collect();
    assert_eq!(bodies, ["x"]);
}

#[test]
fn a_delayed_message_whose_way_is_too_long_is_refused_when_it_is_published() {
    let world = short_ways(None);
    let channel = world.channel(0);
    channel.declare("q");
    chain(&channel, 200);
    let kind = Table::new().with("x-delayed-type", "fanout");
    channel.exchange_with("later", "x-delayed-message", kind);
    channel.bind_exchange("e0", "later", "");
    let headers = Some(Table::new().with("x-delay", 1_000));
    let delayed = Properties { headers, ..Properties::default() };
    channel.publish_with("later", "", &delayed, "x");
    assert_eq!(channel.expect_refused().code, ReplyCode::PRECONDITION_FAILED);
    let channel = world.channel(0);
    channel.unbind_exchange("e20", "e19", "");
    channel.publish_with("later", "", &delayed, "x");
    world.advance(2_000);
    assert_eq!(channel.purge("q"), 1);
}

#[test]
fn a_turn_ends_by_the_copies_that_its_publishes_make() {
    const QUEUES: u64 = 400;
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..QUEUES {
        channel.declare(&format!("q{queue}"));
        channel.bind(&format!("q{queue}"), "amq.fanout", "");
    }
    world.quietly(|| publish_many(&channel, "amq.fanout", 500));
    let copies = most(&world, |world| world.counters().enqueued_local);
    assert!(copies <= (1 << 18) / 64 + QUEUES, "{copies} copies in one turn");
    assert_eq!(world.queue("q0").ready, 500);
}

#[test]
fn a_turn_ends_by_what_all_channels_settle_together() {
    const CHANNELS: usize = 100;
    let world = World::new(1);
    let client = world.connect(0);
    let channels: Vec<Channel> = (0..CHANNELS).map(|_| client.channel()).collect();
    channels[0].declare("q");
    channels[0].publish_all("q", (0..CHANNELS * 200).map(|number| number.to_string()));
    let tags: Vec<u64> = channels
        .iter()
        .map(|channel| {
            channel.qos(200);
            channel.consume("q", "c");
            channel.deliveries().pop().expect("messages").tag
        })
        .collect();
    world.quietly(|| {
        client.together(|| {
            channels.iter().zip(&tags).for_each(|(channel, &tag)| channel.ack_up_to(tag));
        });
    });
    let settled = most(&world, |world| world.counters().acknowledged);
    assert!(settled <= (1 << 18) / 64 + 2 * 1024, "{settled} settled in one turn");
    assert_eq!(world.queue("q").unacked, 0);
}
