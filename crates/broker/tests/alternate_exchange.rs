//! Where messages go that an exchange sends nowhere.

use lepus_amqp::method::exchange;
use lepus_amqp::table::Table;
use lepus_sim::Channel;

use crate::stage::everywhere;

fn with_alternate(channel: &Channel, name: &str, kind: &str, alternate: &str) {
    channel.exchange_with(name, kind, Table::new().with("alternate-exchange", alternate));
}

#[test]
fn only_what_is_routed_nowhere_goes_to_the_alternate() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_alternate(&near, "x", "direct", "rest");
        near.exchange("rest", "fanout");
        near.declare("q");
        near.declare("lost");
        near.bind("q", "x", "known");
        near.bind("lost", "rest", "");
        far.publish("x", "known", "1");
        far.publish("x", "unknown", "2");
        assert_eq!(near.get_no_ack("q").unwrap().text(), "1");
        let message = near.get_no_ack("lost").unwrap();
        assert_eq!((message.text().as_str(), message.exchange.as_str()), ("2", "x"));
        assert_eq!(message.key, "unknown");
        assert_eq!((near.purge("q"), near.purge("lost")), (0, 0));
    });
}

#[test]
fn alternates_form_chains_and_a_return_comes_only_when_all_fail() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_alternate(&near, "a", "direct", "b");
        with_alternate(&near, "b", "direct", "c");
        near.exchange("c", "direct");
        near.declare("q");
        near.bind("q", "c", "deep");
        far.publish_mandatory("a", "deep", "1");
        assert_eq!(far.returns().len(), 0);
        assert_eq!(near.purge("q"), 1);
        far.publish_mandatory("a", "nowhere", "2");
        let returned = far.returns();
        assert_eq!(returned.len(), 1);
        assert_eq!((returned[0].exchange.as_str(), returned[0].key.as_str()), ("a", "nowhere"));
    });
}

#[test]
fn a_cycle_of_alternates_ends() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_alternate(&near, "a", "direct", "b");
        with_alternate(&near, "b", "direct", "a");
        with_alternate(&near, "own", "direct", "own");
        far.publish_mandatory("a", "k", "1");
        far.publish_mandatory("own", "k", "2");
        assert_eq!(far.returns().len(), 2);
        near.declare("q");
        near.bind("q", "a", "k");
        far.publish("b", "k", "3");
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn a_missing_alternate_drops_the_message() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_alternate(&near, "x", "fanout", "missing");
        far.confirm_select();
        far.publish("x", "k", "1");
        far.publish_mandatory("x", "k", "2");
        assert_eq!(far.confirmed().0, [1, 2]);
        assert_eq!(far.returns().len(), 1);
        near.exchange("missing", "fanout");
        near.declare("q");
        near.bind("q", "missing", "");
        far.publish("x", "k", "3");
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn the_default_exchange_may_be_the_alternate() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_alternate(&near, "x", "direct", "");
        near.declare("q");
        far.publish("x", "q", "by name");
        assert_eq!(near.get_no_ack("q").unwrap().text(), "by name");
    });
}

#[test]
fn an_internal_exchange_may_be_the_alternate() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        with_alternate(&near, "x", "direct", "inner");
        near.exchange_method(exchange::Declare {
            exchange: "inner",
            r#type: "fanout",
            internal: true,
            ..Default::default()
        });
        near.declare("q");
        near.bind("q", "inner", "");
        far.publish("x", "k", "1");
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn an_exchange_bound_to_that_routes_nowhere_uses_its_own_alternate() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("outer", "fanout");
        with_alternate(&near, "inner", "direct", "rest");
        near.exchange("rest", "fanout");
        near.bind_exchange("inner", "outer", "");
        near.declare("q");
        near.bind("q", "rest", "");
        far.publish("outer", "k", "1");
        assert_eq!(near.purge("q"), 1);
    });
}
