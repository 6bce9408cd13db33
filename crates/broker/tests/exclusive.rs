//! Queues that belong to one connection.

use lepus_amqp::Method;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue};

use crate::stage::everywhere;

fn declare(queue: &str) -> queue::Declare<'_> {
    queue::Declare { queue, exclusive: true, ..Default::default() }
}

#[test]
fn an_exclusive_queue_is_locked_to_its_connection() {
    everywhere(|stage| {
        let (owner, other) = stage.pair();
        owner.declare_method(declare("mine"));
        owner.bind("mine", "amq.direct", "k");
        let exchange = "amq.direct";
        let methods: [(Method<'_>, (u16, u16)); 9] = [
            (declare("mine").into(), (50, 10)),
            (queue::Declare { exclusive: false, ..declare("mine") }.into(), (50, 10)),
            (queue::Declare { passive: true, ..declare("mine") }.into(), (50, 10)),
            (queue::Bind { queue: "mine", exchange, ..Default::default() }.into(), (50, 20)),
            (
                queue::Unbind { queue: "mine", exchange, routing_key: "k", ..Default::default() }
                    .into(),
                (50, 50),
            ),
            (basic::Consume { queue: "mine", ..Default::default() }.into(), (60, 20)),
            (basic::Get { queue: "mine", no_ack: true }.into(), (60, 70)),
            (queue::Purge { queue: "mine", no_wait: false }.into(), (50, 30)),
            (queue::Delete { queue: "mine", ..Default::default() }.into(), (50, 40)),
        ];
        for (method, ids) in methods {
            let refused = other.client().channel().refused(method);
            assert_eq!((refused.code, refused.method), (ReplyCode::RESOURCE_LOCKED, ids));
            let start = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' \
                         in vhost '/'";
            assert!(refused.text.starts_with(start), "{}", refused.text);
        }
        // Anybody may publish to it.
        other.publish("amq.direct", "k", "for you");
        other.publish("", "mine", "and for you");
        assert_eq!(owner.passive("mine").messages, 2);
    });
}

#[test]
fn the_owner_does_what_it_likes() {
    everywhere(|stage| {
        let client = stage.far_client();
        let (one, two) = (client.channel(), client.channel());
        one.declare_method(declare("mine"));
        two.declare_method(declare("mine"));
        two.bind("mine", "amq.fanout", "");
        one.publish("amq.fanout", "", "x");
        two.consume("mine", "c");
        assert_eq!(two.bodies(), ["x"]);
        two.recover();
        two.ack(two.delivery().tag);
        two.cancel("c");
        assert!(stage.world.find_queue("/", "mine").is_some());
        one.delete("mine");
        assert_eq!(stage.world.find_queue("/", "mine"), None);
        one.declare("mine");
    });
}

#[test]
fn an_exclusive_queue_goes_before_close_ok_comes() {
    everywhere(|stage| {
        let (owner, other) = stage.pair();
        owner.declare_method(declare("mine"));
        owner.publish("", "mine", "x");
        owner.consume("mine", "c");
        owner.client().close();
        assert_eq!(stage.world.find_queue("/", "mine"), None);
        other.declare("mine");
    });
}

#[test]
fn an_exclusive_queue_goes_when_the_connection_is_lost_or_refused() {
    everywhere(|stage| {
        let owner = stage.far();
        owner.declare_method(declare("lost"));
        owner.client().reset();
        assert_eq!(stage.world.find_queue("/", "lost"), None);
        let owner = stage.far();
        owner.declare_method(declare("hung up"));
        owner.client().hang_up();
        assert_eq!(stage.world.find_queue("/", "hung up"), None);
        let owner = stage.far();
        owner.declare_method(declare("refused"));
        assert!(owner.refused(basic::Recover { requeue: false }).hard);
        assert_eq!(stage.world.find_queue("/", "refused"), None);
    });
}

#[test]
fn it_stays_when_only_its_channel_closes() {
    everywhere(|stage| {
        let client = stage.far_client();
        let channel = client.channel();
        channel.declare_method(declare("mine"));
        channel.close();
        assert_eq!(client.channel().passive("mine").messages, 0);
    });
}

#[test]
fn an_exclusive_queue_counts_as_transient() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare_method(queue::Declare { durable: true, ..declare("mine") });
        alice.declare_method(declare("mine"));
        let vhost = |broker: &lepus_broker::Broker| broker.directory.vhost("/").unwrap();
        let durable = stage
            .world
            .broker(0, |broker| broker.directory.queue(vhost(broker), "mine").unwrap().durable);
        assert!(!durable);
    });
}

#[test]
fn an_exclusive_auto_delete_queue_goes_with_its_last_consumer() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare_method(queue::Declare { auto_delete: true, ..declare("mine") });
        alice.consume("mine", "c");
        alice.cancel("c");
        assert_eq!(stage.world.find_queue("/", "mine"), None);
        alice.declare_method(declare("mine"));
    });
}

#[test]
fn what_was_dead_lettered_from_an_exclusive_queue_stays() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("graves");
        let arguments = lepus_amqp::Table::new()
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "graves")
            .to_bytes();
        far.declare_method(queue::Declare { arguments: arguments.as_ref(), ..declare("mine") });
        far.publish("", "mine", "x");
        let client = far.client();
        far.consume("mine", "c");
        let message = far.delivery();
        client.together(|| {
            far.reject(message.tag, false);
            client.say_close();
        });
        assert_eq!(near.get_no_ack("graves").unwrap().text(), "x");
    });
}
