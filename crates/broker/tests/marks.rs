//! The mark `redelivered` after a restart: in order, exactly what was delivered has it.

use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::World;

use crate::restart::{drain, durable, durable_with, persistent, publish_confirmed};
use crate::stage::{Ending, on_disk};

/// Takes everything that is ready; the numbers of those with the mark, and of those without.
fn marked(world: &World, queue: &str) -> (Vec<u32>, Vec<u32>) {
    let (with, without): (Vec<_>, Vec<_>) = drain(world, queue).into_iter().partition(|m| m.1);
    let numbers = |found: Vec<(u32, bool)>| found.into_iter().map(|m| m.0).collect();
    (numbers(with), numbers(without))
}

/// Stops the process in order and starts another one with so many shards.
fn restart(world: &World, shards: u16) {
    world.stop();
    world.start_again(shards);
}

#[test]
fn after_a_stop_in_order_exactly_what_was_delivered_is_marked() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "q");
        publish_confirmed(&channel, "q", 0..20);
        channel.qos(6);
        channel.consume("q", "c");
        let taken = channel.deliveries();
        channel.ack(taken[1].tag);
        channel.reject(taken[3].tag, true);
        let last = world.channel(0).get("q").expect("a message").text();
        assert_eq!(last, "7", "0 to 6 but 1 are with the consumer, 3 has come back to it");
        world.advance(1_500);
        end.now(world);
        let (with, without) = marked(world, "q");
        if end == Ending::Stop {
            assert_eq!((with, without), (vec![0, 2, 3, 4, 5, 6, 7], (8..20).collect()));
        } else {
            assert_eq!((with.len(), without.len()), (19, 0), "nobody knows");
        }
    });
}

#[test]
fn marks_outlive_any_number_of_stops_and_of_shards() {
    on_disk(|world, end| {
        let (channel, other) = (world.channel(0), world.channel(world.shards() - 1));
        let queues = ["p", "q"];
        for (queue, channel) in queues.iter().zip([&channel, &other]) {
            durable(channel, queue);
            publish_confirmed(channel, queue, 0..10);
            for _ in 0..3 {
                channel.get(queue).expect("a message");
            }
        }
        for shards in [1, 3, 2] {
            restart(world, shards);
        }
        // Nobody took anything since; then one more is taken.
        let channel = world.channel(0);
        for queue in queues {
            for expected in 0..4 {
                let found = channel.get(queue).expect("a message");
                assert_eq!(found.redelivered, expected < 3, "{expected} of {queue}");
            }
        }
        restart(world, 2);
        publish_confirmed(&world.channel(0), "q", 10..12);
        end.now(world);
        let is_exact = end == Ending::Stop;
        let all = |next: u32| (if is_exact { 4..next } else { 0..0 }).collect::<Vec<u32>>();
        assert_eq!(marked(world, "p").1, all(10));
        assert_eq!(marked(world, "q").1, all(12));
    });
}

#[test]
fn what_a_crash_left_marked_stays_marked_over_a_stop_in_order() {
    let world = World::on_disk(2);
    let channel = world.channel(0);
    for queue in ["used", "idle"] {
        durable(&channel, queue);
        publish_confirmed(&channel, queue, 0..5);
    }
    world.kill();
    world.start_again(2);
    publish_confirmed(&world.channel(0), "used", 5..7);
    restart(&world, 2);
    restart(&world, 2);
    assert_eq!(marked(&world, "idle"), ((0..5).collect(), vec![]));
    assert_eq!(marked(&world, "used"), ((0..5).collect(), vec![5, 6]));
}

#[test]
fn a_long_backlog_is_marked_where_it_was_delivered_and_nowhere_else() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    publish_confirmed(&channel, "q", 0..5_000);
    let (first, second) = (world.channel(0), world.channel(0));
    first.qos(1_500);
    first.consume("q", "a");
    assert_eq!(first.deliveries().len(), 1_500);
    second.qos(500);
    second.consume("q", "b");
    let taken = second.deliveries();
    // Every third one of the second consumer's is done with.
    for message in taken.iter().step_by(3) {
        second.ack(message.tag);
    }
    first.cancel("a");
    second.cancel("b");
    first.close();
    restart(&world, 1);
    let (with, without) = marked(&world, "q");
    let done = |body: &u32| (1_500..2_000).contains(body) && (body - 1_500).is_multiple_of(3);
    let taken = 2_000 + 167;
    let mut expected: Vec<u32> = (0..taken).filter(|body| !done(body)).collect();
    assert_eq!(without.first().copied(), expected.last().map(|last| last + 1));
    expected.sort_unstable();
    assert_eq!(with, expected);
    assert_eq!(with.len() + without.len(), 5_000 - 167);
}

#[test]
fn each_priority_has_its_marks() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable_with(&channel, "q", Table::new().with("x-max-priority", 5));
    channel.confirm_select();
    for body in 0..9_u32 {
        let priority = Some([0, 5, 2][body as usize % 3]);
        let properties = Properties { priority, ..persistent() };
        channel.publish_with("", "q", &properties, body.to_string());
    }
    assert_eq!(channel.confirmed().0.len(), 9);
    for _ in 0..4 {
        channel.get("q").expect("a message");
    }
    restart(&world, 1);
    assert_eq!(marked(&world, "q"), (vec![1, 4, 7, 2], vec![5, 8, 0, 3, 6]));
}

#[test]
fn a_dead_letter_is_new_where_it_went() {
    let world = World::on_disk(2);
    let channel = world.channel(0);
    durable(&world.channel(1), "graves");
    let arguments =
        Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", "graves");
    durable_with(&channel, "q", arguments);
    publish_confirmed(&channel, "q", 0..6);
    for rejected in [true, false, true, false] {
        let message = channel.get("q").expect("a message");
        if rejected {
            channel.reject(message.tag, false);
        }
    }
    world.advance(100);
    let seen = world.channel(0).get("graves").expect("a letter");
    assert!(!seen.redelivered);
    restart(&world, 2);
    assert_eq!(marked(&world, "graves"), (vec![0], vec![2]));
    assert_eq!(marked(&world, "q"), (vec![1, 3], vec![4, 5]));
}
