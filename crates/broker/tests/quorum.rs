//! Quorum queues: durable queues with a delivery count.

use lepus_amqp::Method;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue};
use lepus_amqp::table::{Table, Value};
use lepus_broker::directory::Request;
use lepus_broker::queue::QueueKind;
use lepus_broker::vhost::VhostMetadata;
use lepus_sim::{Channel, Refused, World};

use crate::stage::everywhere;

fn declare_with(channel: &Channel, name: &str, arguments: Table) {
    let arguments = arguments.with("x-queue-type", "quorum").to_bytes();
    channel.declare_method(queue::Declare {
        queue: name,
        durable: true,
        arguments: arguments.as_ref(),
        ..Default::default()
    });
}

fn declare(channel: &Channel, name: &str) {
    declare_with(channel, name, Table::new());
}

fn refused<'a>(channel: &Channel, method: impl Into<Method<'a>>) -> Refused {
    channel.client().channel().refused(method)
}

#[test]
fn a_quorum_queue_is_durable_shared_and_permanent() {
    everywhere(|stage| {
        let far = stage.far();
        let arguments = Table::new().with("x-queue-type", "quorum").to_bytes();
        let good = queue::Declare {
            queue: "q",
            durable: true,
            arguments: arguments.as_ref(),
            ..Default::default()
        };
        for (method, word) in [
            (queue::Declare { durable: false, ..good }, "non-durable"),
            (queue::Declare { exclusive: true, ..good }, "exclusive"),
            (queue::Declare { auto_delete: true, ..good }, "auto-delete"),
        ] {
            let refused = refused(&far, method);
            assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
            assert!(refused.text.contains(word), "{}", refused.text);
        }
        far.declare_method(good);
        far.declare_method(good);
    });
}

#[test]
fn the_type_must_agree() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q");
        let durable = queue::Declare { queue: "q", durable: true, ..Default::default() };
        let classic = Table::new().with("x-queue-type", "classic").to_bytes();
        let refusal = refused(&far, queue::Declare { arguments: classic.as_ref(), ..durable });
        assert_eq!(refusal.code, ReplyCode::PRECONDITION_FAILED);
        assert!(refusal.text.contains("'x-queue-type'"), "{}", refusal.text);
    });
}

#[test]
fn a_delivery_tells_how_often_it_came_back() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q");
        near.publish("", "q", "x");
        far.consume("q", "c");
        let message = far.delivery();
        assert_eq!(message.header("x-delivery-count"), None);
        far.reject(message.tag, true);
        for count in 1..5i64 {
            let message = far.delivery();
            assert_eq!(message.header("x-delivery-count").and_then(Value::as_integer), Some(count));
            far.reject(message.tag, true);
        }
        far.cancel("c");
        far.client().reset();
        let message = near.get("q").unwrap();
        let count = message.header("x-delivery-count").and_then(Value::as_integer);
        assert!(count >= Some(5), "{count:?}");
    });
}

#[test]
fn the_delivery_limit_drops_or_dead_letters() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare_with(&near, "drops", Table::new().with("x-delivery-limit", 2));
        near.declare("graves");
        let dead = Table::new()
            .with("x-delivery-limit", 2)
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "graves");
        declare_with(&near, "buries", dead);
        for queue in ["drops", "buries"] {
            near.publish("", queue, queue);
            for _ in 0..3 {
                let message = far.get(queue).expect("not yet at the limit");
                far.nack(message.tag, false, true);
            }
            assert_eq!(far.get(queue), None);
        }
        let message = near.get_no_ack("graves").unwrap();
        let death = message.header("x-death").and_then(Value::as_array).unwrap()[0].clone();
        let reason = death.as_table().and_then(|death| death.get("reason")).cloned();
        assert_eq!(reason, Some(Value::from("delivery_limit")));
    });
}

#[test]
fn there_is_no_delivery_limit_unless_asked_for() {
    let world = World::new(1);
    let alice = world.channel(0);
    declare(&alice, "q");
    declare_with(&alice, "off", Table::new().with("x-delivery-limit", -1));
    for queue in ["q", "off"] {
        alice.publish("", queue, "x");
        for _ in 0..50 {
            let message = alice.get(queue).unwrap();
            alice.reject(message.tag, true);
        }
        assert_eq!(world.queue(queue).ready, 1);
    }
}

#[test]
fn the_prefetch_of_a_whole_channel_is_not_implemented() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q");
        far.qos_global(5);
        let refusal = far.refused(basic::Consume { queue: "q", ..Default::default() });
        assert_eq!((refusal.code, refusal.hard), (ReplyCode::NOT_IMPLEMENTED, true));
        assert_eq!(
            refusal.text,
            "NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos"
        );
    });
}

#[test]
fn deletion_on_conditions_is_not_implemented() {
    everywhere(|stage| {
        let near = stage.near();
        declare(&near, "q");
        let delete = queue::Delete { queue: "q", ..Default::default() };
        for method in [
            queue::Delete { if_unused: true, ..delete },
            queue::Delete { if_empty: true, ..delete },
        ] {
            let refusal = stage.far().refused(method);
            assert_eq!((refusal.code, refusal.hard), (ReplyCode::NOT_IMPLEMENTED, true));
        }
        near.delete("q");
    });
}

#[test]
fn with_a_single_active_consumer_nobody_fetches() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare_with(&near, "q", Table::new().with("x-single-active-consumer", true));
        near.publish("", "q", "x");
        let refusal = refused(&far, basic::Get { queue: "q", no_ack: true });
        assert_eq!((refusal.code, refusal.method), (ReplyCode::RESOURCE_LOCKED, (60, 70)));
        far.consume("q", "c");
        assert_eq!(far.bodies(), ["x"]);
    });
}

#[test]
fn priorities_are_refused() {
    let world = World::new(1);
    let alice = world.channel(0);
    let arguments =
        Table::new().with("x-queue-type", "quorum").with("x-max-priority", 5).to_bytes();
    let refusal = alice.refused(queue::Declare {
        queue: "q",
        durable: true,
        arguments: arguments.as_ref(),
        ..Default::default()
    });
    assert_eq!(refusal.code, ReplyCode::PRECONDITION_FAILED);
}

#[test]
fn a_default_queue_type_of_the_vhost_is_taken_and_redeclared_without_naming_it() {
    let world = World::new(1);
    let metadata =
        VhostMetadata { default_queue_type: Some(QueueKind::Quorum), ..VhostMetadata::default() };
    world.request(Request::CreateVhost { name: "v".into(), metadata }).unwrap();
    world.permit("guest", "v", ".*", ".*", ".*");
    let alice = world.connect_with(0, World::login("guest", "guest", "v")).channel();
    let durable = queue::Declare { queue: "q", durable: true, ..Default::default() };
    alice.declare_method(durable);
    alice.declare_method(durable);
    declare(&alice, "q");
    let classic = Table::new().with("x-queue-type", "classic").to_bytes();
    let refusal = refused(&alice, queue::Declare { arguments: classic.as_ref(), ..durable });
    assert_eq!(refusal.code, ReplyCode::PRECONDITION_FAILED);
    // What a quorum queue cannot be stays classic.
    alice.declare_exclusive("mine");
    alice.declare("transient");
}
