//! What is done at once with very many deliveries, consumers or channels goes in slices: others are
//! served between them.

use lepus_amqp::method::{basic, channel, tx};
use lepus_sim::{Channel, World};

/// What one turn may do of such things at most.
const TURN_MAX: usize = 4_096;
/// Far more than that.
const MANY: usize = 20_000;

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
            let all = broker.edge.connections.iter().flat_map(|(_, one)| one.open_channels());
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
        channel.ack_up_to(10_000);
        world.quietly(|| channel.send(channel::Close::default()));
        let ready = || world.queue("q").ready as usize;
        let most = largest_fall(&world, || MANY - ready());
        assert!(most <= TURN_MAX, "{most} deliveries in one turn");
        assert_eq!(ready(), MANY);
        assert_eq!(world.leaks(), [""; 0]);
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
                channel.send(lepus_amqp::method::queue::Declare {
                    queue: &queue,
                    no_wait: true,
                    ..Default::default()
                });
                channel.publish("", &queue, "x");
                channel.send(basic::Get { queue: &queue, no_ack: false });
            }
        });
        assert_eq!(unacked(&world), QUEUES);
        let resting = || {
            let of = |shard| {
                world.broker(shard, |broker| {
                    broker.queues().filter(|(_, queue)| queue.is_held()).count()
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
            world.broker(shard, |broker| broker.queues().map(|(_, q)| q.ready()).sum::<u64>())
        };
        assert_eq!((0..shards).map(of).sum::<u64>(), QUEUES as u64);
        assert_eq!(world.leaks(), [""; 0]);
    }
}
