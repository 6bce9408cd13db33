//! The simulated disk: what waits, what is kept, what is lost.

use lepus_amqp::method::queue;
use lepus_sim::{Channel, World};

fn declare(channel: &Channel, name: &str) {
    channel.declare_method(queue::Declare { queue: name, durable: true, ..Default::default() });
}

/// Ends the process in each way and starts another one.
fn after_each_end(check: impl Fn(&World, &dyn Fn())) {
    let ends: [fn(&World); 3] = [World::stop, World::kill, World::crash];
    for shards in [1, 2, 3] {
        for end in ends {
            let world = World::on_disk(2);
            check(&world, &|| {
                end(&world);
                world.start_again(shards);
            });
        }
    }
}

#[test]
fn a_durable_queue_is_there_after_each_end_and_a_transient_one_is_not() {
    after_each_end(|world, end| {
        let alice = world.channel(1);
        declare(&alice, "durable");
        alice.declare("transient");
        end();
        assert!(alice.client().is_ended());
        assert!(world.find_queue("/", "durable").is_some());
        assert_eq!(world.find_queue("/", "transient"), None);
    });
}

#[test]
fn the_wall_clock_goes_on_when_a_process_starts_again() {
    let world = World::on_disk(1);
    world.advance(5000);
    let before = world.now();
    world.crash();
    world.start_again(1);
    assert!(world.now().wall_millis > before.wall_millis);
    assert!(world.now().instant < before.instant);
}
