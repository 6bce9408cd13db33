//! What the simulator found, each as the shortest story that shows it.

use lepus_amqp::method::queue;
use lepus_sim::World;

#[test]
fn an_unanswered_bind_does_not_silence_the_connection() {
    let world = World::new(2);
    let alice = world.channel(1);
    alice.declare("q");
    alice.send(queue::Bind {
        queue: "q",
        exchange: "amq.fanout",
        no_wait: true,
        ..Default::default()
    });
    assert_eq!(alice.passive("q").messages, 0);
}

#[test]
fn a_connection_that_has_published_elsewhere_stays_so_that_nothing_overtakes() {
    let world = World::new(3);
    let carol = world.channel(1);
    carol.declare("far");
    carol.bind("far", "amq.fanout", "");
    world.channel(0).declare("other");
    let alice = world.channel(2);
    alice.client().together(|| {
        for number in 0..10 {
            alice.publish("amq.fanout", "", number.to_string());
        }
        alice.send(queue::Declare { queue: "other", ..Default::default() });
        for number in 10..20 {
            alice.publish("amq.fanout", "", number.to_string());
        }
    });
    let bob = world.channel(1);
    bob.consume("far", "c");
    assert_eq!(bob.bodies(), (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
}
