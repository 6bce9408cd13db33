//! Situations that are hard on the mesh and on fairness: tiny rings, dead letters in circles,
//! long work beside short work. Fairness is counted in duty cycles, never in time.

use lepus_amqp::method::{basic, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, World};

/// Many messages: enough that handling them all takes hundreds of slices.
const MANY: usize = 200_000;
/// Duty cycles that a round trip may take beside long work.
const CYCLES_MAX: usize = 8;

fn tight(shards: u16) -> World {
    let mut options = Options { shards, ring_capacity: 2, ..Options::default() };
    options.limits.mail_batch_bytes_max = 2000;
    options.limits.send_window_bytes = 2000;
    World::with(options)
}

#[test]
fn all_shards_publish_to_all_others_through_rings_of_two() {
    const SHARDS: u16 = 4;
    let world = tight(SHARDS);
    for home in 0..SHARDS {
        world.channel(home).declare(&format!("q{home}"));
    }
    let publishers: Vec<Channel> = (0..SHARDS).map(|shard| world.channel(shard)).collect();
    let consumers: Vec<Channel> = (0..SHARDS).map(|shard| world.channel(shard)).collect();
    for (shard, consumer) in consumers.iter().enumerate() {
        // A queue of its own ties the connection to its shard; all other queues are far.
        consumer.declare_exclusive("");
        for home in (0..SHARDS).filter(|&home| usize::from(home) != shard) {
            consumer.consume_no_ack(&format!("q{home}"), &format!("from {home}"));
        }
    }
    world.quietly(|| {
        for publisher in &publishers {
            publisher.send(lepus_amqp::method::confirm::Select { no_wait: true });
            publisher.publish("amq.fanout", "", "stay");
            for number in 0..500 {
                for home in 0..SHARDS {
                    publisher.publish("", &format!("q{home}"), format!("{number}").repeat(20));
                }
            }
        }
    });
    world.settle();
    for publisher in &publishers {
        let (acked, nacked) = publisher.confirmed();
        assert_eq!((acked.len(), nacked.len()), (1 + 500 * usize::from(SHARDS), 0));
    }
    let received: usize = consumers.iter().map(|consumer| consumer.deliveries().len()).sum();
    assert_eq!(received, 500 * usize::from(SHARDS) * usize::from(SHARDS));
}

fn circle(world: &World, arguments: impl Fn() -> Table) -> Vec<Channel> {
    (0..3)
        .map(|shard: u16| {
            let channel = world.channel(shard);
            let next = format!("q{}", (shard + 1) % 3);
            let arguments = arguments()
                .with("x-dead-letter-exchange", "")
                .with("x-dead-letter-routing-key", next.as_str());
            channel.declare_with(&format!("q{shard}"), arguments);
            channel
        })
        .collect()
}

#[test]
fn messages_that_overflow_in_a_circle_of_shards_come_to_rest() {
    let world = tight(3);
    let channels = circle(&world, || Table::new().with("x-max-length", 2));
    world.quietly(|| {
        for (home, channel) in channels.iter().enumerate() {
            for number in 0..2000 {
                channel.publish("", &format!("q{home}"), number.to_string());
            }
        }
    });
    world.settle();
    for home in 0..3 {
        assert_eq!(world.queue(&format!("q{home}")).ready, 2);
    }
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn messages_that_expire_in_a_circle_of_shards_end() {
    let world = tight(3);
    let channels = circle(&world, || Table::new().with("x-message-ttl", 1));
    for (home, channel) in channels.iter().enumerate() {
        channel.publish_all(&format!("q{home}"), (0..2000).map(|number| number.to_string()));
    }
    world.advance(10);
    for home in 0..3 {
        assert_eq!(world.queue(&format!("q{home}")).ready, 0);
    }
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn rejected_messages_go_round_as_long_as_they_are_rejected() {
    let world = tight(3);
    let channels = circle(&world, Table::new);
    channels[0].publish_all("q0", (0..300).map(|number| number.to_string()));
    for (home, channel) in channels.iter().enumerate() {
        channel.consume(&format!("q{home}"), "c");
    }
    for _ in 0..4 {
        for channel in &channels {
            let messages = channel.deliveries();
            channel.client().together(|| {
                for message in &messages {
                    channel.reject(message.tag, false);
                }
            });
        }
    }
    let held: usize = channels.iter().map(|channel| channel.deliveries().len()).sum();
    assert_eq!(held, 300);
}

/// A connection that publishes to its own queue and consumes from it.
fn echo(world: &World, shard: u16) -> Channel {
    let channel = world.channel(shard);
    channel.declare("echo");
    channel.consume_no_ack("echo", "c");
    channel
}

/// Cycles until a round trip is done. After each cycle `look` is asked.
fn cycles_of_echo(world: &World, channel: &Channel, mut look: impl FnMut()) -> usize {
    world.quietly(|| channel.publish("", "echo", "?"));
    for cycle in 1..1000 {
        world.round();
        look();
        if !channel.deliveries().is_empty() {
            return cycle;
        }
    }
    panic!("no echo");
}

fn messages(world: &World) -> u64 {
    (0..1).map(|shard| world.broker(shard, |broker| broker.shard.pool.len() as u64)).sum()
}

/// Says something long, then asks for round trips until it is done: each must be quick, and no
/// cycle may get rid of more than a slice.
fn goes_on_beside(world: &World, say: impl FnOnce()) {
    const SLICE_MAX: u64 = 6000;
    let channel = echo(world, 0);
    let before = messages(world);
    world.quietly(say);
    let mut last = before;
    let mut slowest = 0;
    let mut rounds = 0;
    while rounds < 5 || messages(world) + 100 > before {
        let cycles = cycles_of_echo(world, &channel, || {
            let left = messages(world);
            assert!(last.saturating_sub(left) <= SLICE_MAX, "{last} to {left} in one cycle");
            last = left;
        });
        slowest = slowest.max(cycles);
        rounds += 1;
        if rounds > 50 {
            break;
        }
    }
    assert!(slowest <= CYCLES_MAX, "a round trip took {slowest} cycles");
    world.settle();
}

fn fill(world: &World, name: &str, arguments: Table) -> Channel {
    let channel = world.channel(0);
    channel.declare_with(name, arguments);
    for _ in 0..MANY / 10_000 {
        channel.publish_all(name, (0..10_000).map(|_| b"x"));
    }
    assert_eq!(world.queue(name).ready, MANY as u64);
    channel
}

#[test]
fn a_purge_of_many_lets_others_go_on() {
    let world = World::new(1);
    let alice = fill(&world, "full", Table::new());
    goes_on_beside(&world, || alice.send(queue::Purge { queue: "full", no_wait: false }));
    assert_eq!(world.queue("full").ready, 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_deletion_of_many_lets_others_go_on() {
    let world = World::new(1);
    let alice = fill(&world, "full", Table::new());
    goes_on_beside(&world, || alice.send(queue::Delete { queue: "full", ..Default::default() }));
    assert_eq!(world.find_queue("/", "full"), None);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn an_expiry_of_many_lets_others_go_on() {
    let world = World::new(1);
    let _alice = fill(&world, "full", Table::new().with("x-message-ttl", 1000));
    goes_on_beside(&world, || world.skip(2000));
    assert_eq!(world.queue("full").ready, 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn an_expiry_of_many_into_another_queue_lets_others_go_on() {
    let world = World::new(1);
    let arguments = Table::new()
        .with("x-message-ttl", 1000)
        .with("x-dead-letter-exchange", "")
        .with("x-dead-letter-routing-key", "dead");
    let alice = fill(&world, "full", arguments);
    alice.declare("dead");
    goes_on_beside(&world, || world.skip(2000));
    assert_eq!((world.queue("full").ready, world.queue("dead").ready), (0, MANY as u64));
}

#[test]
fn a_connection_that_held_many_lets_others_go_on_when_it_ends() {
    let world = World::new(1);
    let _owner = fill(&world, "full", Table::new());
    let alice = world.channel(0);
    alice.consume("full", "c");
    assert_eq!(alice.deliveries().len(), MANY);
    goes_on_beside(&world, || alice.client().hang_up());
    assert_eq!(world.queue("full").ready, MANY as u64);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn many_given_back_at_once_let_others_go_on_and_keep_their_order() {
    let world = World::new(1);
    let _owner = fill(&world, "full", Table::new());
    let alice = world.channel(0);
    alice.consume("full", "c");
    let last = alice.deliveries().last().map_or(0, |message| message.tag);
    alice.cancel("c");
    goes_on_beside(&world, || {
        alice.send(basic::Nack { delivery_tag: last, multiple: true, requeue: true });
    });
    assert_eq!(world.queue("full").ready, MANY as u64);
}

#[test]
fn an_acknowledgement_of_many_lets_others_go_on() {
    let world = World::new(1);
    let _owner = fill(&world, "full", Table::new());
    let alice = world.channel(0);
    alice.consume("full", "c");
    assert_eq!(alice.deliveries().len(), MANY);
    goes_on_beside(&world, || alice.send(basic::Ack { delivery_tag: 0, multiple: true }));
    assert_eq!(world.queue("full").unacked, 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_message_for_ten_thousand_queues_lets_others_go_on() {
    let world = World::new(2);
    let alice = world.channel(0);
    alice.client().together(|| {
        for number in 0..10_000 {
            let name = format!("q{number}");
            alice.send(queue::Declare { queue: &name, ..Default::default() });
            let bind = queue::Bind {
                queue: &name,
                exchange: "amq.fanout",
                no_wait: true,
                ..Default::default()
            };
            alice.send(bind);
        }
    });
    for _ in 0..10_000 {
        alice.expect("queue.declare-ok");
    }
    alice.confirm_select();
    goes_on_beside(&world, || {
        alice.publish_with("amq.fanout", "", &Properties::default(), "for all");
    });
    assert_eq!(alice.confirmed(), (vec![1], vec![]));
    for number in [0, 5000, 9999] {
        assert_eq!(world.queue(&format!("q{number}")).ready, 1);
    }
}
