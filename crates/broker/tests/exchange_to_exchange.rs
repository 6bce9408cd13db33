//! Bindings between exchanges.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::exchange;
use lepus_sim::World;

use crate::stage::everywhere;

fn exists(world: &World, name: &str) -> bool {
    world.broker(0, |broker| {
        let vhost = broker.directory.vhost("/").unwrap();
        broker.directory.exchange(vhost, name).is_some()
    })
}

#[test]
fn exchanges_of_any_types_form_a_chain() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("first", "topic");
        near.exchange("second", "direct");
        near.exchange("third", "fanout");
        near.bind_exchange("second", "first", "#.news");
        near.bind_exchange("third", "second", "daily.news");
        near.declare("q");
        near.bind("q", "third", "");
        far.publish("first", "daily.news", "read all about it");
        far.publish("first", "weekly.news", "not for them");
        let message = near.get_no_ack("q").unwrap();
        assert_eq!(message.text(), "read all about it");
        assert_eq!((message.exchange.as_str(), message.key.as_str()), ("first", "daily.news"));
        assert_eq!(near.get_no_ack("q"), None);
    });
}

#[test]
fn a_loop_of_exchanges_delivers_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for name in ["a", "b", "c"] {
            near.exchange(name, "fanout");
            near.declare(&format!("q{name}"));
            near.bind(&format!("q{name}"), name, "");
        }
        near.bind_exchange("b", "a", "");
        near.bind_exchange("c", "b", "");
        near.bind_exchange("a", "c", "");
        near.bind_exchange("a", "a", "");
        far.publish("b", "", "round");
        for name in ["a", "b", "c"] {
            assert_eq!(near.purge(&format!("q{name}")), 1);
        }
    });
}

#[test]
fn a_queue_reached_on_two_ways_gets_the_message_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for name in ["top", "left", "right"] {
            near.exchange(name, "fanout");
        }
        near.declare("q");
        for side in ["left", "right"] {
            near.bind_exchange(side, "top", "");
            near.bind("q", side, "");
        }
        near.bind("q", "top", "");
        far.publish("top", "", "x");
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn unbinding_nothing_is_fine_and_what_is_missing_cannot_be_bound() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.exchange("x", "fanout");
        alice.exchange("y", "fanout");
        alice.unbind_exchange("x", "y", "k");
        alice.bind_exchange("x", "y", "k");
        alice.bind_exchange("x", "y", "k");
        alice.unbind_exchange("x", "y", "k");
        alice.unbind_exchange("x", "y", "k");
        for (destination, source) in [("x", "missing"), ("missing", "x")] {
            let bind = exchange::Bind { destination, source, ..Default::default() };
            let refused = alice.client().channel().refused(bind);
            assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (40, 30)));
            assert_eq!(refused.text, "NOT_FOUND - no exchange 'missing' in vhost '/'");
            alice.unbind_exchange(destination, source, "");
        }
    });
}

#[test]
fn a_binding_that_went_with_its_exchanges_may_be_taken_back() {
    everywhere(|stage| {
        let alice = stage.far();
        for exchange in ["source", "destination"] {
            alice.exchange_method(exchange::Declare {
                exchange,
                r#type: "direct",
                auto_delete: true,
                ..Default::default()
            });
        }
        alice.declare("q");
        alice.bind("q", "destination", "k");
        alice.bind_exchange("destination", "source", "k");
        alice.unbind("q", "destination", "k");
        assert!(!exists(&stage.world, "destination") && !exists(&stage.world, "source"));
        alice.unbind_exchange("destination", "source", "k");
        assert!(alice.is_open());
    });
}

#[test]
fn auto_delete_exchanges_take_each_other_along() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for exchange in ["a", "b", "c"] {
            near.exchange_method(exchange::Declare {
                exchange,
                r#type: "fanout",
                auto_delete: true,
                ..Default::default()
            });
        }
        near.declare("q");
        near.bind_exchange("b", "a", "");
        near.bind_exchange("c", "b", "");
        near.bind("q", "c", "");
        far.publish("a", "", "x");
        assert_eq!(near.purge("q"), 1);
        far.delete("q");
        for name in ["a", "b", "c"] {
            assert!(!exists(&stage.world, name), "{name}");
        }
    });
}

#[test]
fn an_auto_delete_exchange_stays_when_only_bindings_to_it_go() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.exchange("source", "fanout");
        alice.exchange_method(exchange::Declare {
            exchange: "auto",
            r#type: "fanout",
            auto_delete: true,
            ..Default::default()
        });
        alice.bind_exchange("auto", "source", "");
        alice.unbind_exchange("auto", "source", "");
        assert!(exists(&stage.world, "auto"));
    });
}
