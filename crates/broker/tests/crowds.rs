//! What is done at once with very many deliveries, consumers or channels goes in slices: others are
//! served between them.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, channel, confirm, queue, tx};
use lepus_sim::{Channel, Client, World};

/// What one turn may do of such things at most.
const TURN_MAX: usize = 4_096;
/// Far more than that.
const MANY: usize = 10_000;

/// Goes on until nothing is left to do; by how much `figure` fell at most in one turn.
fn largest_fall(world: &World, figure: impl Fn() -> usize) -> usize {
    let (mut before, mut most) = (figure(), 0);
    let mut is_busy = true;
    while is_busy {
        is_busy = world.round();
        let now = figure();
        most = most.max(before.saturating_sub(now));
        before = now;
    }
    most
}

/// Deliveries that channels of a world have and nothing settles yet, those of transactions included.
fn unacked(world: &World) -> usize {
    let of = |shard| {
        world.broker(shard, |broker| {
            let all = broker.connections.iter().flat_map(|(_, one)| one.open_channels());
            all.map(|channel| channel.unacked.len()).sum::<usize>()
        })
    };
    (0..world.shards()).map(of).sum()
}

/// A channel that has very many deliveries and gets no more.
fn laden(world: &World, shard: u16) -> Channel {
    let publisher = world.channel(0);
    publisher.declare("q");
    publisher.publish_all("q", (0..MANY).map(|_| ""));
    let holder = world.connect(shard).channel();
    let _ = holder.client().channel_number(9).declare_exclusive("");
    holder.consume("q", "c");
    assert_eq!(holder.deliveries().len(), MANY);
    holder.cancel("c");
    holder
}

#[test]
fn very_many_deliveries_leave_their_channel_in_slices() {
    type Way = fn(&Channel);
    let ways: [(&str, Way, usize); 8] = [
        ("ack", |channel| channel.ack_up_to(0), 0),
        ("nack", |channel| channel.nack(0, true, false), 0),
        ("nack that requeues", |channel| channel.nack(0, true, true), MANY),
        ("recover", |channel| channel.send(basic::Recover { requeue: true }), MANY),
        ("channel.close", |channel| channel.send(channel::Close::default()), MANY),
        ("connection.close", |channel| channel.client().say_close(), MANY),
        ("a lost connection", |channel| channel.client().reset(), MANY),
        (
            "transaction",
            |channel| {
                channel.send(tx::Select {});
                channel.ack_up_to(0);
                channel.send(tx::Commit {});
            },
            0,
        ),
    ];
    for shards in [1, 2] {
        for (name, settle, left) in ways {
            let world = World::new(shards);
            let channel = laden(&world, shards - 1);
            world.quietly(|| settle(&channel));
            let most = largest_fall(&world, || unacked(&world));
            assert!(most <= TURN_MAX, "{name}: {most} deliveries in one turn, {shards} shards");
            assert_eq!((unacked(&world), world.queue("q").unacked), (0, 0), "{name}");
            assert_eq!(world.queue("q").ready, left as u64, "{name}");
            assert_eq!(world.leaks(), [""; 0], "{name}");
        }
    }
}

#[test]
fn a_channel_that_ends_gives_very_many_deliveries_of_a_transaction_back_in_slices() {
    for shards in [1, 2] {
        let world = World::new(shards);
        let channel = laden(&world, shards - 1);
        channel.tx_select();
        channel.ack_up_to(5_000);
        world.quietly(|| channel.send(channel::Close::default()));
        let ready = || world.queue("q").ready as usize;
        let most = largest_fall(&world, || MANY - ready());
        assert!(most <= TURN_MAX, "{most} deliveries in one turn");
        assert_eq!(ready(), MANY);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

/// Something that is done on a channel, and what it is called.
type Named = (&'static str, fn(&Channel));

/// Ways to have very many deliveries of a laden channel acknowledged in its transaction.
const HOLDS: [Named; 3] = [
    ("together", |channel| channel.ack_up_to(0)),
    ("the newest first", |channel| {
        channel.client().together(|| (1..=MANY as u64).rev().for_each(|tag| ack(channel, tag)));
    }),
    // The places of the even are swept out before the odd come.
    ("the even first", |channel| {
        channel.client().together(|| {
            (2..=MANY as u64).step_by(2).for_each(|tag| ack(channel, tag));
            (1..=MANY as u64 / 2).step_by(2).for_each(|tag| ack(channel, tag));
        });
    }),
];

fn ack(channel: &Channel, delivery_tag: u64) {
    channel.send(basic::Ack { delivery_tag, multiple: false });
}

#[test]
fn very_many_acknowledgements_of_a_transaction_are_taken_back_in_slices() {
    for shards in [1, 2] {
        for (name, hold) in HOLDS {
            let world = World::new(shards);
            let channel = laden(&world, shards - 1);
            channel.tx_select();
            hold(&channel);
            let held = MANY - unacked(&world);
            assert!(held > TURN_MAX, "{name}: {held}");
            world.quietly(|| {
                channel.send(tx::Rollback {});
                // All of them are unacknowledged for what comes behind it.
                [1, 2, 3, MANY as u64].into_iter().for_each(|tag| ack(&channel, tag));
                channel.send(tx::Commit {});
                channel.send(basic::Ack { delivery_tag: MANY as u64 - 1, multiple: true });
                channel.publish("", "q", "");
                channel.send(tx::Rollback {});
            });
            let missing = || MANY.abs_diff(unacked(&world));
            let most = largest_fall(&world, missing);
            assert!(most <= TURN_MAX, "{name}: {most} deliveries in one turn, {shards} shards");
            channel.expect("tx.rollback-ok");
            channel.expect("tx.commit-ok");
            channel.expect("tx.rollback-ok");
            assert_eq!(unacked(&world), MANY - 4, "{name}");
            let queue = world.queue("q");
            assert_eq!((queue.unacked, queue.ready), (MANY as u64 - 4, 0), "{name}");
            channel.ack_up_to(0);
            channel.tx_commit();
            assert_eq!((unacked(&world), world.queue("q").unacked), (0, 0), "{name}");
            assert_eq!(world.leaks(), [""; 0], "{name}");
        }
    }
}

#[test]
fn a_channel_that_ends_while_very_many_acknowledgements_are_taken_back_leaves_nothing() {
    let ends: [Named; 5] = [
        ("channel.close", |channel| channel.send(channel::Close::default())),
        ("connection.close", |channel| channel.client().say_close()),
        ("a lost connection", |channel| channel.client().reset()),
        ("a refusal", |channel| ack(channel, 1_000_000)),
        ("an operator", |channel| channel.client().expel()),
    ];
    for shards in [1, 2] {
        for (name, end) in ends {
            for (_, hold) in HOLDS {
                let world = World::new(shards);
                let channel = laden(&world, shards - 1);
                channel.tx_select();
                hold(&channel);
                let before = unacked(&world);
                world.quietly(|| channel.send(tx::Rollback {}));
                while unacked(&world) == before {
                    assert!(world.round(), "{name}: nothing comes back");
                }
                assert!(unacked(&world) < MANY, "{name}: not in the middle");
                world.quietly(|| end(&channel));
                let ready = || world.queue("q").ready as usize;
                let most = largest_fall(&world, || MANY - ready());
                assert!(most <= TURN_MAX, "{name}: {most} deliveries in one turn");
                assert_eq!((ready(), world.queue("q").unacked), (MANY, 0), "{name}");
                world.advance(60_000);
                assert_eq!(world.leaks(), [""; 0], "{name}");
            }
        }
    }
}

#[test]
fn queues_rest_and_go_on_in_slices_while_deliveries_of_very_many_come_back() {
    const QUEUES: usize = 6_000;
    for shards in [1, 2] {
        let world = World::new(shards);
        let channel = world.channel(0);
        let _ = channel.client().channel_number(9).declare_exclusive("");
        channel.client().together(|| {
            for queue in 0..QUEUES {
                let queue = format!("q{queue}");
                channel.send(queue::Declare { queue: &queue, no_wait: true, ..Default::default() });
                channel.publish("", &queue, "x");
                channel.send(basic::Get { queue: &queue, no_ack: false });
            }
        });
        assert_eq!(unacked(&world), QUEUES);
        let resting = || {
            let of = |shard| {
                world.broker(shard, |broker| {
                    broker.homes.queues().filter(|(_, queue)| queue.is_held()).count()
                })
            };
            (0..world.shards()).map(of).sum::<usize>()
        };
        world.quietly(|| channel.nack(0, true, true));
        let (mut before, mut most) = (0, 0);
        let mut is_busy = true;
        while is_busy {
            is_busy = world.round();
            let now = resting();
            most = most.max(now.abs_diff(before));
            before = now;
        }
        assert!(most <= TURN_MAX, "{most} queues in one turn, {shards} shards");
        assert_eq!(before, 0);
        let of = |shard| {
            world.broker(shard, |broker| broker.homes.queues().map(|(_, q)| q.ready()).sum::<u64>())
        };
        assert_eq!((0..shards).map(of).sum::<u64>(), QUEUES as u64);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

/// Consumers of the queues of all shards.
fn consumers(world: &World) -> usize {
    let of = |shard| {
        world.broker(shard, |broker| {
            broker.homes.queues().map(|(_, queue)| queue.consumer_count() as usize).sum::<usize>()
        })
    };
    (0..world.shards()).map(of).sum()
}

/// Consumers as the channels of all shards know them.
fn subscriptions(world: &World) -> usize {
    let of = |shard| {
        world.broker(shard, |broker| {
            let all = broker.connections.iter().flat_map(|(_, one)| one.open_channels());
            let known = all.filter_map(|channel| channel.subscriptions.as_ref());
            known.map(|all| all.by_number.len()).sum::<usize>()
        })
    };
    (0..world.shards()).map(of).sum()
}

/// Channels of all shards.
fn channels(world: &World) -> usize {
    let of = |shard| {
        world.broker(shard, |broker| {
            let all = broker.connections.iter();
            all.map(|(_, one)| one.open_channels().count()).sum::<usize>()
        })
    };
    (0..world.shards()).map(of).sum()
}

fn consume<'a>(queue: &'a str, consumer_tag: &'a str) -> basic::Consume<'a> {
    basic::Consume { queue, consumer_tag, no_wait: true, ..Default::default() }
}

/// A channel with very many consumers of queue `q`, whose home is shard 0.
fn crowded(world: &World, shard: u16) -> Channel {
    let near = world.channel(0);
    near.declare("q");
    let channel = world.connect(shard).channel();
    let _ = channel.client().channel_number(9).declare_exclusive("");
    channel.client().together(|| {
        for number in 0..MANY {
            channel.send(consume("q", &format!("c{number}")));
        }
    });
    assert_eq!(world.queue("q").consumers as usize, MANY);
    channel
}

#[test]
fn the_consumers_of_a_queue_that_is_deleted_hear_of_it_in_slices() {
    for shards in [1, 2] {
        let world = World::new(shards);
        let channel = crowded(&world, shards - 1);
        let other = world.channel(0);
        let counted = world.broker(0, |broker| broker.shard.memory());
        world.quietly(|| other.send(queue::Delete { queue: "q", ..Default::default() }));
        assert_eq!(subscriptions(&world), MANY);
        let most = largest_fall(&world, || subscriptions(&world));
        assert!(most <= TURN_MAX, "{most} consumers in one turn, {shards} shards");
        other.expect("queue.delete-ok");
        assert_eq!(channel.cancelled().len(), MANY);
        assert!(world.broker(0, |broker| broker.homes.remote().consumers.is_empty()));
        assert!(world.broker(0, |broker| broker.shard.memory()) < counted);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_channel_with_very_many_consumers_ends_in_slices() {
    type Way = fn(&Channel);
    let ways: [(&str, Way); 4] = [
        ("channel.close", |channel| channel.send(channel::Close::default())),
        ("connection.close", |channel| channel.client().say_close()),
        ("a lost connection", |channel| channel.client().reset()),
        ("a refusal", |channel| {
            channel.send(basic::Ack { delivery_tag: 99, multiple: false });
        }),
    ];
    for shards in [1, 2] {
        for (name, end) in ways {
            let world = World::new(shards);
            let channel = crowded(&world, shards - 1);
            world.quietly(|| end(&channel));
            let most = largest_fall(&world, || consumers(&world));
            assert!(most <= TURN_MAX, "{name}: {most} consumers in one turn, {shards} shards");
            assert_eq!(consumers(&world), 0, "{name}");
            if name == "channel.close" {
                channel.expect("channel.close-ok");
            }
            assert_eq!(world.leaks(), [""; 0], "{name}");
        }
    }
}

#[test]
fn connections_with_very_many_channels_end_in_slices() {
    type Way = fn(&Client);
    let ways: [(&str, Way); 4] = [
        ("connection.close", |client| client.say_close()),
        ("a lost connection", |client| client.reset()),
        ("a refusal", |client| client.send(0, basic::Qos::default())),
        ("an operator", |client| client.expel()),
    ];
    for (name, end) in ways {
        let world = World::new(2);
        let clients: Vec<Client> = (0..5).map(|_| world.connect(1)).collect();
        for client in &clients {
            client.together(|| {
                for number in 1..=2_000 {
                    client.send(number, channel::Open {});
                }
            });
        }
        assert_eq!(channels(&world), 10_000);
        world.quietly(|| clients.iter().for_each(end));
        let most = largest_fall(&world, || channels(&world));
        assert!(most <= TURN_MAX, "{name}: {most} channels in one turn");
        assert_eq!(channels(&world), 0, "{name}");
        world.advance(60_000);
        assert_eq!(world.leaks(), [""; 0], "{name}");
    }
}

#[test]
fn very_many_exclusive_queues_go_in_slices_with_their_connection() {
    for shards in [1, 2] {
        let world = World::new(shards);
        let channel = world.channel(shards - 1);
        channel.client().together(|| {
            for number in 0..MANY {
                let queue = &format!("q{number}");
                channel.send(queue::Declare {
                    queue,
                    exclusive: true,
                    no_wait: true,
                    ..Default::default()
                });
            }
        });
        let queues = || {
            let of = |shard| world.broker(shard, |broker| broker.view().holdings().queues);
            (0..world.shards()).map(of).sum::<u64>() as usize
        };
        assert_eq!(queues(), MANY);
        world.quietly(|| channel.client().say_close());
        let most = largest_fall(&world, queues);
        assert!(most <= TURN_MAX, "{most} queues in one turn, {shards} shards");
        assert_eq!(queues(), 0);
        let closed = channel.client().closed().expect("an answer");
        assert_eq!(closed.code, ReplyCode::REPLY_SUCCESS);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn what_a_deleted_queue_leaves_is_free_at_once_for_one_of_the_same_name() {
    for shards in [1, 2] {
        let world = World::new(shards);
        let channel = crowded(&world, shards - 1);
        let last = format!("c{}", MANY - 1);
        // No answer is awaited in between: the last consumers have not heard of the end of theirs.
        channel.client().together(|| {
            channel.send(queue::Delete { queue: "q", ..Default::default() });
            channel.send(queue::Declare { queue: "q", ..Default::default() });
            channel.send(consume("q", &last));
            channel.publish("", "q", "x");
        });
        assert!(channel.is_open());
        channel.expect("queue.delete-ok");
        channel.expect("queue.declare-ok");
        assert_eq!(world.queue("q").consumers, 1);
        assert_eq!(channel.delivery().consumer, last);
        let mut cancelled = channel.cancelled();
        cancelled.sort();
        cancelled.dedup();
        assert_eq!(cancelled.len(), MANY);
        channel.publish("", "q", "y");
        assert_eq!(channel.bodies(), ["y"]);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn consumers_of_a_deleted_queue_do_not_count_against_the_limit_of_their_channel() {
    let limits = lepus_sim::Limits { consumers_per_channel_max: MANY as u32, ..Default::default() };
    for shards in [1, 2] {
        let options = lepus_sim::Options { limits: limits.clone(), shards, ..Default::default() };
        let world = World::with(options);
        let channel = crowded(&world, shards - 1);
        channel.client().together(|| {
            channel.send(queue::Delete { queue: "q", ..Default::default() });
            channel.send(queue::Declare { queue: "q", ..Default::default() });
            for number in 0..4_000 {
                channel.send(consume("q", &format!("new{number}")));
            }
        });
        assert!(channel.is_open());
        assert_eq!(world.queue("q").consumers, 4_000);
        assert_eq!(channel.cancelled().len(), MANY);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_connection_that_ends_gets_nothing_more_on_any_of_its_channels() {
    type Way = fn(&Client);
    let ways: [(&str, Way); 2] = [
        ("close", |client| client.say_close()),
        ("refusal", |client| {
            client.send(0, basic::Qos::default());
        }),
    ];
    for shards in [1, 2] {
        for (name, end) in ways {
            let world = World::new(shards);
            let near = world.channel(0);
            near.declare("q");
            // They have so many channels that all of them end later.
            let others: Vec<Client> = (0..5).map(|_| world.connect(shards - 1)).collect();
            for other in &others {
                other.together(|| {
                    (1..=2_000).for_each(|number| other.send(number, channel::Open {}))
                });
            }
            let client = world.connect(shards - 1);
            let _ = client.channel_number(2_001).declare_exclusive("");
            let all: Vec<Channel> = (1..=2_000).map(|number| client.unopened(number)).collect();
            client.together(|| {
                for channel in &all {
                    channel.send(channel::Open {});
                    channel.send(confirm::Select { no_wait: false });
                }
                // The last of them is the last whose turn it is to end.
                all[1_999].send(basic::Consume {
                    queue: "q",
                    consumer_tag: "c",
                    ..Default::default()
                });
            });
            world.quietly(|| {
                others.iter().for_each(end);
                end(&client);
                world.round();
                near.publish_all("q", ["1", "2", "3"]);
            });
            world.settle();
            assert!(!client.is_open(), "{name}");
            assert_eq!(all[1_999].bodies(), [""; 0], "{name} with {shards} shards");
            let flags: Vec<bool> = core::iter::from_fn(|| near.get_no_ack("q"))
                .map(|message| message.redelivered)
                .collect();
            assert_eq!(flags.len(), 3, "{name}");
            // On their way from another shard they are delivered.
            assert!(shards == 2 || flags == [false; 3], "{name}");
            world.advance(60_000);
            assert_eq!(world.leaks(), [""; 0]);
        }
    }
}

/// The broker closes a channel, which takes it several turns, and the connection ends before the client says that it
/// heard: the channel is one of those that the connection has to clean up, once.
#[test]
fn a_channel_that_the_broker_closed_counts_once_when_its_connection_ends() {
    for shards in [1, 2] {
        for rounds in [0, 1, 2, 4] {
            let world = World::new(shards);
            let client = world.connect(shards - 1);
            let _ = client.channel_number(2_047).declare_exclusive("");
            client.together(|| {
                (1..=2_045).for_each(|number| client.send(number, channel::Open {}));
            });
            let last = client.channel_number(2_046);
            last.declare("q");
            client.together(|| {
                for number in 0..2_000 {
                    let consumer_tag = format!("c{number}");
                    let consumer_tag = consumer_tag.as_str();
                    last.send(basic::Consume { queue: "q", consumer_tag, ..Default::default() });
                }
            });
            assert_eq!(consumers(&world), 2_000);
            let missing = queue::Declare { queue: "missing", passive: true, ..Default::default() };
            world.quietly(|| last.send(missing));
            for _ in 0..rounds {
                world.round();
            }
            world.quietly(|| client.reset());
            let _ = largest_fall(&world, || channels(&world));
            world.advance(1_000);
            assert_eq!(
                (channels(&world), consumers(&world)),
                (0, 0),
                "{shards} shards, {rounds} rounds"
            );
            let left = world.broker(shards - 1, |broker| broker.connections.len());
            assert_eq!((left, world.leaks()), (0, vec![]), "{shards} shards, {rounds} rounds");
        }
    }
}
