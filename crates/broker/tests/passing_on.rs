//! Messages that are passed on to very many queues at once: in slices, so that others are served
//! between them, and in their order.

use lepus_amqp::method::exchange;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, World};

use crate::at_least_once::{declare, surely_to};
use crate::restart::{durable_with, persistent};

const QUEUES: u32 = 2_500;
/// Copies that one shard makes in one turn at most.
const SLICE: u64 = 512;

/// Queues behind an exchange, on all shards by turns.
fn fan(world: &World, exchange: &str) {
    let channels: Vec<Channel> = (0..world.shards()).map(|shard| world.channel(shard)).collect();
    for queue in 0..QUEUES {
        let channel = &channels[queue as usize % channels.len()];
        channel.declare(&format!("g{queue}"));
        channel.bind(&format!("g{queue}"), exchange, "");
    }
}

/// Declares a delayed exchange that leads to `amq.fanout`, and publishes something there that is due
/// after a second.
fn delayed_fan(channel: &Channel, name: &str) {
    let kind = Table::new().with("x-delayed-type", "fanout");
    channel.exchange_with(name, "x-delayed-message", kind);
    channel.bind_exchange("amq.fanout", name, "");
    let headers = Some(Table::new().with("x-delay", 1_000));
    let properties = Properties { headers, ..persistent() };
    channel.publish_with(name, "", &properties, "x");
}

/// Takes the way to `amq.fanout` from some exchanges whose messages wait for their turn: as many as may
/// are on their way there, and hardly one is in all queues yet.
fn unbind_some(world: &World, channel: &Channel) {
    while world.queue("g0").ready < 8 {
        assert!(world.round(), "the first ones go on their way");
    }
    // Others have tried.
    (0..4).for_each(|_| assert!(world.round()));
    assert!(world.queue(&format!("g{}", QUEUES - 1)).ready <= 2);
    for number in 10..18 {
        let source = format!("x{number}");
        channel.send(exchange::Unbind {
            destination: "amq.fanout",
            source: &source,
            ..Default::default()
        });
    }
}

/// Goes on until nothing is left to do; the most copies that all shards made in one turn.
fn most_copies(world: &World) -> u64 {
    let (mut before, mut most) = (world.counters().enqueued_local, 0);
    let mut is_busy = true;
    while is_busy {
        is_busy = world.round();
        let counters = world.counters();
        let copies = counters.enqueued_local;
        most = most.max(copies - core::mem::replace(&mut before, copies));
    }
    most
}

fn expect_in_order(world: &World, bodies: &[&str]) {
    let channel = world.channel(0);
    for queue in (0..QUEUES).step_by(61).chain([QUEUES - 1]) {
        let queue = format!("g{queue}");
        let found = core::iter::from_fn(|| channel.get_no_ack(&queue));
        assert_eq!(found.map(|found| found.text()).collect::<Vec<_>>(), bodies, "in {queue}");
    }
}

#[test]
fn a_dead_letter_goes_to_very_many_queues_in_slices() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        fan(&world, "amq.fanout");
        let channel = world.channel(0);
        durable_with(&channel, "q", Table::new().with("x-dead-letter-exchange", "amq.fanout"));
        for body in ["1", "2", "3"] {
            channel.publish_with("", "q", &persistent(), body);
        }
        channel.consume("q", "c");
        let last = channel.deliveries().pop().expect("messages").tag;
        world.quietly(|| channel.nack(last, true, false));
        let most = most_copies(&world);
        assert!(most <= SLICE * u64::from(shards), "{most} copies in one turn");
        world.advance(1_000);
        expect_in_order(&world, &["1", "2", "3"]);
        // Their queue has let go of them.
        world.stop();
        world.start_again(shards);
        assert_eq!(world.queue("q").ready, 0);
    }
}

#[test]
fn a_transient_dead_letter_does_so_too_and_leaves_nothing_behind() {
    for shards in [1, 2] {
        let world = World::new(shards);
        fan(&world, "amq.fanout");
        let channel = world.channel(0);
        channel.declare_with("q", Table::new().with("x-dead-letter-exchange", "amq.fanout"));
        channel.publish_all("q", ["1", "2"]);
        channel.consume("q", "c");
        let last = channel.deliveries().pop().expect("messages").tag;
        world.quietly(|| channel.nack(last, true, false));
        assert!(most_copies(&world) <= SLICE * u64::from(shards));
        expect_in_order(&world, &["1", "2"]);
        for queue in 0..QUEUES {
            channel.delete(&format!("g{queue}"));
        }
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_delayed_message_goes_to_very_many_queues_in_slices() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        let channel = world.channel(0);
        let kind = Table::new().with("x-delayed-type", "fanout");
        channel.exchange_with("x", "x-delayed-message", kind);
        fan(&world, "x");
        for body in ["1", "2", "3"] {
            let headers = Some(Table::new().with("x-delay", 1_000));
            let properties = Properties { headers, ..persistent() };
            channel.publish_with("x", "", &properties, body);
        }
        world.quietly(|| world.skip(1_000));
        let most = most_copies(&world);
        assert!(most <= SLICE * u64::from(shards), "{most} copies in one turn");
        world.advance(1_000);
        expect_in_order(&world, &["1", "2", "3"]);
    }
}

#[test]
fn a_dead_letter_that_must_arrive_goes_to_very_many_queues_in_slices() {
    let world = World::on_disk(1);
    fan(&world, "amq.fanout");
    let channel = world.channel(0);
    declare(&channel, "q", surely_to("amq.fanout", ""));
    channel.publish_with("", "q", &persistent(), "1");
    let message = channel.get("q").expect("a message");
    world.quietly(|| channel.reject(message.tag, false));
    let most = most_copies(&world);
    // It goes on behind each call of a turn that may leave something.
    assert!(most <= 4 * SLICE, "{most} copies in one turn");
    expect_in_order(&world, &["1"]);
    assert_eq!(world.queue("q").ready, 0);
}

#[test]
fn dead_letters_that_must_arrive_reach_very_many_queues_elsewhere_within_few_turns() {
    let world = World::on_disk(2);
    fan(&world, "amq.fanout");
    let channel = world.channel(0);
    declare(&channel, "q", surely_to("amq.fanout", ""));
    for body in ["1", "2", "3"] {
        channel.publish_with("", "q", &persistent(), body);
    }
    channel.consume("q", "c");
    let last = channel.deliveries().pop().expect("messages").tag;
    world.quietly(|| channel.nack(last, true, false));
    let mut turns = 0;
    while world.round() {
        turns += 1;
    }
    // As many as slices, with the way there and back and the disk: not one for each queue.
    assert!(turns < u64::from(QUEUES) / 10, "{turns} turns");
    expect_in_order(&world, &["1", "2", "3"]);
    assert_eq!(world.queue("q").ready, 0);
}

#[test]
fn a_queue_that_is_deleted_while_its_letters_are_on_their_way_keeps_no_other_waiting() {
    let world = World::on_disk(2);
    fan(&world, "amq.fanout");
    let channel = world.channel(0);
    for number in 0..12 {
        let queue = format!("q{number}");
        declare(&channel, &queue, surely_to("amq.fanout", ""));
        channel.publish_with("", &queue, &persistent(), "lost");
        let message = channel.get(&queue).expect("a message");
        world.quietly(|| channel.reject(message.tag, false));
    }
    (0..3).for_each(|_| {
        world.round();
    });
    for number in 0..12 {
        channel.delete(&format!("q{number}"));
    }
    world.settle();
    for queue in 0..QUEUES {
        channel.purge(&format!("g{queue}"));
    }
    declare(&channel, "q", surely_to("amq.fanout", ""));
    channel.publish_with("", "q", &persistent(), "1");
    let message = channel.get("q").expect("a message");
    channel.reject(message.tag, false);
    world.settle();
    expect_in_order(&world, &["1"]);
}

#[test]
fn delayed_messages_of_many_exchanges_that_go_to_very_many_queues_each_have_their_turn() {
    // More than may be under way at once.
    const EXCHANGES: usize = 12;
    let world = World::on_disk(1);
    let channel = world.channel(0);
    for number in 0..EXCHANGES {
        delayed_fan(&channel, &format!("x{number}"));
    }
    fan(&world, "amq.fanout");
    world.advance(1_000);
    world.settle();
    for queue in [0, QUEUES - 1] {
        assert_eq!(world.queue(&format!("g{queue}")).ready, EXCHANGES as u64);
    }
}

/// So many messages want to go to very many queues at once, more than may; of those that wait for their turn
/// some go nowhere when it comes.
const WIDE: usize = 20;

#[test]
fn a_turn_that_a_delayed_message_does_not_use_any_more_is_the_next_ones() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    (0..WIDE).for_each(|number| delayed_fan(&channel, &format!("x{number}")));
    fan(&world, "amq.fanout");
    world.quietly(|| {
        world.skip(1_000);
        unbind_some(&world, &channel);
    });
    world.settle();
    world.advance(10_000);
    assert_eq!(world.queue("g0").ready, WIDE as u64 - 8);
    assert_eq!(world.broker(0, |broker| broker.homes.delayed_in_memory()), 0);
}

#[test]
fn a_turn_that_a_dead_letter_does_not_use_any_more_is_the_next_ones() {
    let world = World::new(1);
    fan(&world, "amq.fanout");
    let channel = world.channel(0);
    let tags: Vec<u64> = (0..WIDE)
        .map(|number| {
            let (exchange, queue) = (format!("x{number}"), format!("q{number}"));
            channel.exchange(&exchange, "fanout");
            channel.bind_exchange("amq.fanout", &exchange, "");
            let dead = Table::new().with("x-dead-letter-exchange", exchange.as_str());
            channel.declare_with(&queue, dead);
            channel.publish("", &queue, "x");
            channel.get(&queue).expect("a message").tag
        })
        .collect();
    world.quietly(|| {
        tags.into_iter().for_each(|tag| channel.reject(tag, false));
        unbind_some(&world, &channel);
    });
    world.settle();
    assert_eq!(world.queue("g0").ready, WIDE as u64 - 8);
}
