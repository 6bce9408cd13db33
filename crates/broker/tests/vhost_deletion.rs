//! A virtual host that is deleted is gone at once for everybody; what was in it goes in slices, so that
//! others are served between them, and whoever wished it is answered when all is gone.

use std::sync::mpsc::TryRecvError;

use lepus_amqp::method::queue;
use lepus_broker::Answer;
use lepus_broker::directory::{Request, VhostRef};
use lepus_sim::{Channel, World};

use crate::restart::persistent;

const QUEUES: u32 = 1_500;
/// Queues, exchanges and bindings that go in one turn at most.
const SLICE: usize = 64;

/// A virtual host with durable queues on all shards, each bound twice, with messages in some.
fn furnish(world: &World) {
    world.add_vhost("v");
    world.permit("guest", "v", ".*", ".*", ".*");
    let login = || World::login("guest", "guest", "v");
    let shards = 0..world.shards();
    let channels: Vec<Channel> =
        shards.map(|shard| world.connect_with(shard, login()).channel()).collect();
    for number in 0..QUEUES {
        let channel = &channels[number as usize % channels.len()];
        let queue = &format!("q{number}");
        channel.declare_method(queue::Declare { queue, durable: true, ..Default::default() });
        channel.bind(queue, "amq.direct", queue);
        channel.bind(queue, "amq.topic", "#");
        if number % 100 == 0 {
            channel.publish_with("", queue, &persistent(), "message");
        }
    }
}

/// Bindings, queues and exchanges that a shard knows of.
fn objects(world: &World, shard: u16) -> usize {
    world.broker(shard, |broker| broker.directory.object_count() + broker.directory.binding_count())
}

fn delete() -> Request {
    Request::DeleteVhost { name: "v".into() }
}

#[test]
fn a_large_virtual_host_goes_in_slices_and_others_are_served_between_them() {
    for shards in 1..=2 {
        let world = World::new(shards);
        let empty = objects(&world, 0);
        furnish(&world);
        let other = world.channel(0);
        let answer = world.begin(delete());
        let (mut turns, mut served) = (0, 0);
        let mut before: Vec<usize> = (0..shards).map(|shard| objects(&world, shard)).collect();
        while answer.try_recv() == Err(TryRecvError::Empty) {
            let name = format!("other {turns}");
            world.quietly(|| {
                other.send(queue::Declare { queue: &name, ..Default::default() });
            });
            world.round();
            turns += 1;
            served += usize::from(other.answer().is_some());
            for shard in 0..shards {
                let now = objects(&world, shard);
                let before = core::mem::replace(&mut before[usize::from(shard)], now);
                assert!(before <= now + SLICE, "{before} objects, then {now}");
            }
        }
        // A queue and its two bindings cost as much as three queues.
        let slices = QUEUES as usize * 3 / SLICE;
        assert!(turns >= slices && served + 3 >= turns, "{turns} turns, {served} served");
        world.settle();
        for shard in 0..shards {
            assert_eq!(objects(&world, shard), empty + turns);
        }
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn it_is_gone_for_everybody_before_its_contents_are() {
    let world = World::new(2);
    furnish(&world);
    let answer = world.begin(delete());
    world.round();
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    assert!(objects(&world, 1) > QUEUES as usize);
    assert!(
        !world.quietly(|| world.connect_with(1, World::login("guest", "guest", "v"))).is_open()
    );
    // Another of the same name has nothing of it.
    let create = Request::CreateVhost { name: "v".into(), metadata: Default::default() };
    let created = world.begin(create);
    world.round();
    assert_eq!(created.try_recv(), Ok(Answer::Changed(Ok(()))));
    assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
    world.broker(0, |broker| {
        let vhost = broker.directory.vhost("v").expect("it was created");
        assert_eq!(broker.directory.queues(Some(vhost)).len(), 0);
    });
    world.settle();
    assert_eq!(answer.try_recv(), Ok(Answer::Changed(Ok(()))));
    world.permit("guest", "v", ".*", ".*", ".*");
    let channel = world.connect_with(1, World::login("guest", "guest", "v")).channel();
    channel.declare("q0");
    assert_eq!(channel.passive("q0").messages, 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_start_completes_a_deletion_that_was_interrupted() {
    type End = fn(&World);
    let ends: [End; 3] = [World::stop, World::kill, World::crash];
    for end in ends {
        let world = World::on_disk(2);
        furnish(&world);
        let full = objects(&world, 0);
        let answer = world.begin(delete());
        while objects(&world, 0) == full {
            world.round();
        }
        assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
        end(&world);
        world.start_again(2);
        assert!(objects(&world, 0) < 20);
        let limits = Default::default();
        let gone = world.request(Request::SetVhostLimits { vhost: VhostRef::from("v"), limits });
        assert_eq!(gone.unwrap_err().reply(), "vhost 'v' not found");
        // Its messages belong to nobody, and are not kept for anybody.
        let events = world.events();
        assert!(events.iter().all(|event| event.kind != "orphaned-messages"), "{events:?}");
        assert_eq!(world.leaks(), [""; 0]);
    }
}
