//! Binding and unbinding queues.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::queue;
use lepus_amqp::table::Table;

use crate::stage::everywhere;

#[test]
fn binding_what_is_missing_is_not_found() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare("q");
        let bind = |queue, exchange| queue::Bind { queue, exchange, ..Default::default() };
        let refused = alice.client().channel().refused(bind("missing", "amq.direct"));
        assert_eq!(refused.text, "NOT_FOUND - no queue 'missing' in vhost '/'");
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (50, 20)));
        let refused = alice.client().channel().refused(bind("q", "missing"));
        assert_eq!(refused.text, "NOT_FOUND - no exchange 'missing' in vhost '/'");
        // What does not exist is bound to nothing, so there is nothing to refuse.
        for (queue, exchange) in [("missing", "amq.direct"), ("q", "missing"), ("gone", "missing")]
        {
            alice.unbind(queue, exchange, "k");
        }
    });
}

#[test]
fn a_binding_made_twice_is_one_binding() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.bind("q", "amq.direct", "k");
        far.bind("q", "amq.direct", "k");
        far.publish("amq.direct", "k", "x");
        assert_eq!(near.purge("q"), 1);
        far.unbind("q", "amq.direct", "k");
        far.publish("amq.direct", "k", "x");
        assert_eq!(near.purge("q"), 0);
    });
}

#[test]
fn unbinding_what_is_not_bound_is_fine() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare("q");
        alice.unbind("q", "amq.direct", "k");
        alice.bind("q", "amq.direct", "k");
        alice.unbind("q", "amq.direct", "other");
        alice.publish("amq.direct", "k", "x");
        assert_eq!(alice.purge("q"), 1);
        alice.unbind("q", "amq.direct", "k");
        alice.unbind("q", "amq.direct", "k");
    });
}

#[test]
fn arguments_are_part_of_a_bindings_identity() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare("q");
        let arguments = |value: i32| Table::new().with("n", value);
        alice.bind_with("q", "amq.direct", "k", arguments(1));
        alice.bind_with("q", "amq.direct", "k", arguments(2));
        let unbind = |table: Table| {
            let arguments = table.to_bytes();
            alice.call(queue::Unbind {
                queue: "q",
                exchange: "amq.direct",
                routing_key: "k",
                arguments: arguments.as_ref(),
            });
        };
        let is_bound = || {
            alice.publish("amq.direct", "k", "x");
            alice.purge("q") == 1
        };
        unbind(Table::new());
        assert!(is_bound());
        unbind(arguments(1));
        assert!(is_bound());
        unbind(arguments(2));
        assert!(!is_bound());
    });
}

#[test]
fn without_queue_and_key_the_last_queue_is_bound_by_its_name() {
    everywhere(|stage| {
        let alice = stage.far();
        let name = alice.declare_exclusive("").queue;
        alice.bind("", "amq.direct", "");
        alice.publish("amq.direct", &name, "x");
        assert_eq!(alice.purge(""), 1);
        alice.bind("", "amq.direct", "key");
        alice.publish("amq.direct", "key", "x");
        assert_eq!(alice.purge(&name), 1);
        alice.unbind("", "amq.direct", "");
        alice.publish("amq.direct", &name, "x");
        assert_eq!(alice.purge(&name), 0);
    });
}

#[test]
fn with_a_queue_and_no_key_the_key_is_empty() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare("q");
        alice.bind("q", "amq.direct", "");
        alice.publish("amq.direct", "q", "x");
        assert_eq!(alice.purge("q"), 0);
        alice.publish("amq.direct", "", "x");
        assert_eq!(alice.purge("q"), 1);
    });
}

#[test]
fn an_empty_queue_name_needs_a_declared_queue() {
    everywhere(|stage| {
        let alice = stage.far();
        let refused = alice.refused(queue::Bind { exchange: "amq.direct", ..Default::default() });
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (50, 20)));
        assert!(refused.text.contains("no previously declared queue"), "{}", refused.text);
    });
}

#[test]
fn bindings_go_with_their_queue() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.bind("q", "amq.fanout", "");
        near.delete("q");
        near.declare("q");
        far.publish("amq.fanout", "", "x");
        assert_eq!(near.purge("q"), 0);
        let bindings = stage.world.broker(0, |broker| broker.directory.binding_count());
        assert_eq!(bindings, 0);
    });
}

#[test]
fn bindings_go_with_their_exchange() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "fanout");
        near.declare("q");
        near.bind("q", "x", "");
        near.delete_exchange("x");
        near.exchange("x", "fanout");
        far.publish("x", "", "x");
        assert_eq!(near.purge("q"), 0);
    });
}

#[test]
fn every_shard_knows_every_binding() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for index in 0..50 {
            let queue = format!("q{index}");
            (if index % 2 == 0 { &near } else { &far }).declare(&queue);
            far.bind(&queue, "amq.topic", &format!("*.{index}"));
        }
        for index in 0..50 {
            near.publish("amq.topic", &format!("n.{index}"), "near");
            far.publish("amq.topic", &format!("f.{index}"), "far");
            assert_eq!(stage.world.queue(&format!("q{index}")).ready, 2);
        }
    });
}

#[test]
fn arguments_are_limited_in_number_and_length() {
    everywhere(|stage| {
        let client = stage.far_client();
        client.channel().declare("q");
        let many: Table = (0..257).map(|number| (format!("a{number}"), true)).collect();
        let long = Table::new().with("a", "x".repeat(16 * 1024));
        let texts = [
            "cannot bind to exchange 'amq.headers': the binding has 257 arguments, and 256 is the limit",
            "cannot bind to exchange 'amq.headers': its arguments take 16391 bytes, and 16384 is the limit",
        ];
        for (arguments, text) in [many, long].into_iter().zip(texts) {
            let arguments = arguments.to_bytes();
            let refused = client.channel().refused(queue::Bind {
                queue: "q",
                exchange: "amq.headers",
                arguments: arguments.as_ref(),
                ..Default::default()
            });
            assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (50, 20)));
            assert_eq!(refused.text, format!("PRECONDITION_FAILED - {text}"));
        }
        let long = Table::new().with("a", "x".repeat(16 * 1024)).to_bytes();
        let arguments = long.as_ref();
        let refused = client.channel().refused(queue::Declare {
            queue: "r",
            arguments,
            ..Default::default()
        });
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
    });
}
