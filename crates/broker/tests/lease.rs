//! Queues that expire when nobody uses them.

use lepus_amqp::method::queue;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

fn leased(channel: &Channel, name: &str, millis: i32) {
    channel.declare_with(name, Table::new().with("x-expires", millis));
}

fn exists(world: &World, name: &str) -> bool {
    world.find_queue("/", name).is_some()
}

#[test]
fn an_unused_queue_goes_with_all_its_messages() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        leased(&near, "q", 1_000);
        far.publish_all("q", ["1", "2"]);
        stage.world.advance(999);
        assert!(exists(&stage.world, "q"));
        stage.world.advance(1);
        assert!(!exists(&stage.world, "q"));
    });
}

#[test]
fn the_argument_may_be_an_integer_of_any_width() {
    let world = World::new(1);
    let alice = world.channel(0);
    let values = [
        Value::I8(100),
        Value::U8(100),
        Value::I16(100),
        Value::U16(100),
        Value::I32(100),
        Value::U32(100),
        Value::I64(100),
    ];
    for (index, value) in values.into_iter().enumerate() {
        alice.declare_with(&format!("q{index}"), Table::new().with("x-expires", value));
    }
    world.advance(99);
    assert!((0..7).all(|index| exists(&world, &format!("q{index}"))));
    world.advance(1);
    assert!((0..7).all(|index| !exists(&world, &format!("q{index}"))));
}

#[test]
fn declaring_fetching_and_asking_renew_the_lease() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        leased(&near, "q", 1_000);
        let world = &stage.world;
        for round in 0..6 {
            world.advance(900);
            match round % 3 {
                0 => leased(&far, "q", 1_000),
                1 => drop(far.passive("q")),
                _ => assert_eq!(far.get_no_ack("q"), None),
            }
        }
        world.advance(999);
        assert!(exists(world, "q"));
        world.advance(1);
        assert!(!exists(world, "q"));
    });
}

#[test]
fn publishing_and_purging_do_not_renew_the_lease() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        leased(&near, "q", 1_000);
        stage.world.advance(900);
        far.publish("", "q", "x");
        stage.world.advance(100);
        assert!(!exists(&stage.world, "q"));
    });
}

#[test]
fn a_consumer_holds_the_queue_and_the_lease_starts_when_it_leaves() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        leased(&near, "q", 1_000);
        far.consume("q", "c");
        stage.world.advance(10_000);
        assert!(exists(&stage.world, "q"));
        far.cancel("c");
        stage.world.advance(999);
        assert!(exists(&stage.world, "q"));
        stage.world.advance(1);
        assert!(!exists(&stage.world, "q"));
    });
}

#[test]
fn the_lease_starts_when_the_last_consumers_connection_is_lost() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        leased(&near, "q", 1_000);
        far.consume("q", "c");
        near.publish("", "q", "x");
        stage.world.advance(5_000);
        far.client().reset();
        stage.world.advance(999);
        assert_eq!(stage.world.queue("q").ready, 1);
        stage.world.advance(1);
        assert!(!exists(&stage.world, "q"));
    });
}

#[test]
fn a_message_that_is_held_does_not_hold_the_queue() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        leased(&near, "q", 1_000);
        near.publish("", "q", "x");
        let message = far.get("q").unwrap();
        stage.world.advance(1_000);
        assert!(!exists(&stage.world, "q"));
        far.ack(message.tag);
        assert!(far.is_open());
    });
}

#[test]
fn the_name_is_free_again_and_a_new_queue_has_its_own_lease() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        leased(&near, "q", 1_000);
        stage.world.advance(1_000);
        far.declare_method(queue::Declare { queue: "q", ..Default::default() });
        stage.world.advance(60_000);
        assert!(exists(&stage.world, "q"));
    });
}
