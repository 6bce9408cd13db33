//! Carbon copies: headers that add routing keys.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, Limits, Options, World};

use crate::stage::everywhere;

fn keys(names: &[&str]) -> Value {
    Value::Array(names.iter().map(|&name| Value::from(name)).collect())
}

fn with(headers: Table) -> Properties {
    Properties { headers: Some(headers), ..Properties::default() }
}

fn counts(channel: &Channel, queues: &[&str]) -> Vec<u32> {
    queues.iter().map(|queue| channel.purge(queue)).collect()
}

#[test]
fn cc_and_bcc_add_routes() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let queues = ["q1", "q2", "q3", "q4"];
        for queue in queues {
            near.declare(queue);
        }
        let headers = Table::new().with("CC", keys(&["q2", "missing"])).with("BCC", keys(&["q3"]));
        far.publish_with("", "q1", &with(headers), "x");
        assert_eq!(counts(&near, &queues), [1, 1, 1, 0]);
        // They may be the only ones.
        far.publish_with("", "missing", &with(Table::new().with("CC", keys(&["q4"]))), "x");
        assert_eq!(counts(&near, &queues), [0, 0, 0, 1]);
    });
}

#[test]
fn bcc_is_not_seen_and_cc_is() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        let headers = Table::new()
            .with("before", 1)
            .with("CC", keys(&["q2"]))
            .with("BCC", keys(&["q2", "secret"]))
            .with("after", 2);
        let properties =
            Properties { content_type: Some("text/plain".into()), ..with(headers.clone()) };
        far.publish_with("", "q1", &properties, "x");
        let mut expected = headers;
        expected.remove("BCC");
        for queue in ["q1", "q2"] {
            let message = near.get_no_ack(queue).unwrap();
            assert_eq!(message.properties.headers.as_ref(), Some(&expected));
            assert_eq!(message.properties.content_type.as_deref(), Some("text/plain"));
            assert_eq!(message.key, "q1");
        }
    });
}

#[test]
fn a_queue_gets_one_copy() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        let headers =
            Table::new().with("CC", keys(&["q1", "q2", "q2"])).with("BCC", keys(&["q1", "q2"]));
        far.publish_with("", "q1", &with(headers), "x");
        assert_eq!(counts(&near, &["q1", "q2"]), [1, 1]);
    });
}

#[test]
fn only_arrays_of_strings_are_taken() {
    everywhere(|stage| {
        let client = stage.far_client();
        client.channel().declare("q");
        for name in ["CC", "BCC"] {
            for value in [Value::from("q"), Value::from(1), Value::Array(vec![Value::from(1)])] {
                let channel = client.channel();
                channel.publish_with("", "q", &with(Table::new().with(name, value)), "x");
                let refused = channel.expect_refused();
                assert_eq!(
                    (refused.code, refused.method),
                    (ReplyCode::PRECONDITION_FAILED, (60, 40))
                );
                assert!(refused.text.contains(name), "{}", refused.text);
            }
        }
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn copies_go_through_every_type_of_exchange_and_chains() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("outer", "direct");
        near.exchange("inner", "topic");
        near.bind_exchange("inner", "outer", "by.copy");
        near.declare("q1");
        near.declare("q2");
        near.bind("q1", "outer", "by.key");
        near.bind("q2", "inner", "*.copy");
        let headers = Table::new().with("CC", keys(&["by.copy"]));
        far.publish_with("outer", "by.key", &with(headers.clone()), "x");
        assert_eq!(counts(&near, &["q1", "q2"]), [1, 1]);
        // A fanout exchange has no use for keys; one copy is still one copy.
        near.bind("q1", "amq.fanout", "");
        far.publish_with("amq.fanout", "", &with(headers), "x");
        assert_eq!(counts(&near, &["q1", "q2"]), [1, 0]);
    });
}

#[test]
fn an_empty_list_is_fine() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let headers = Table::new().with("CC", keys(&[])).with("BCC", keys(&[]));
        far.publish_with("", "q", &with(headers), "x");
        assert_eq!(near.purge("q"), 1);
    });
}

#[test]
fn copies_work_in_transactions() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q1");
        near.declare("q2");
        near.declare("q3");
        far.tx_select();
        let headers = Table::new().with("CC", keys(&["q2"])).with("BCC", keys(&["q3"]));
        far.publish_with("", "q1", &with(headers), "x");
        far.tx_commit();
        assert_eq!(counts(&near, &["q1", "q2", "q3"]), [1, 1, 1]);
    });
}

#[test]
fn an_alternate_exchange_gets_what_goes_nowhere_by_any_key() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange_with("x", "direct", Table::new().with("alternate-exchange", "rest"));
        near.exchange("rest", "fanout");
        near.declare("q");
        near.declare("lost");
        near.bind("q", "x", "known");
        near.bind("lost", "rest", "");
        let copy_to = |key: &str| with(Table::new().with("CC", keys(&[key])));
        far.publish_with("x", "known", &copy_to("unknown"), "x");
        assert_eq!(counts(&near, &["q", "lost"]), [1, 0]);
        far.publish_with("x", "unknown", &copy_to("known"), "x");
        assert_eq!(counts(&near, &["q", "lost"]), [1, 0]);
        far.publish_with("x", "unknown", &copy_to("unknown"), "x");
        assert_eq!(counts(&near, &["q", "lost"]), [0, 1]);
    });
}

#[test]
fn every_exchange_on_the_way_sees_all_keys() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("outer", "direct");
        near.exchange("inner", "topic");
        near.bind_exchange("inner", "outer", "one");
        near.declare("q");
        near.bind("q", "inner", "two");
        let headers = Table::new().with("CC", keys(&["one"])).with("BCC", keys(&["two"]));
        far.publish_with("outer", "", &with(headers), "x");
        assert_eq!(counts(&near, &["q"]), [1]);
    });
}

#[test]
fn exchanges_that_choose_one_queue_choose_one_for_all_keys() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let queues = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"];
        for queue in queues {
            near.declare(queue);
        }
        for (kind, key) in [
            ("x-consistent-hash", "1"),
            ("x-modulus-hash", ""),
            ("x-random", ""),
            ("x-local-random", ""),
        ] {
            near.exchange(kind, kind);
            for queue in queues {
                near.bind(queue, kind, key);
            }
            let headers = Table::new().with("CC", keys(&["a", "b"])).with("BCC", keys(&["c", "d"]));
            for number in 0..20 {
                far.publish_with(kind, &format!("k{number}"), &with(headers.clone()), "x");
            }
            let copies = counts(&near, &queues);
            assert_eq!(copies.iter().sum::<u32>(), 20, "{kind}: {copies:?}");
        }
    });
}

#[test]
fn delayed_messages_and_dead_letters_are_routed_once_with_all_keys() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let rest = || Table::new().with("alternate-exchange", "rest");
        near.exchange_with("later", "x-delayed-message", rest().with("x-delayed-type", "direct"));
        near.exchange_with("graves", "direct", rest());
        near.exchange("rest", "fanout");
        near.declare("q");
        near.declare("lost");
        near.bind("q", "later", "known");
        near.bind("q", "graves", "known");
        near.bind("lost", "rest", "");
        let headers = Table::new().with("CC", keys(&["known"]));
        far.publish_with("later", "unknown", &with(headers.clone().with("x-delay", 5)), "x");
        stage.world.advance(10);
        assert_eq!(counts(&near, &["q", "lost"]), [1, 0]);

        near.declare_with("source", Table::new().with("x-dead-letter-exchange", "graves"));
        far.publish_with("", "source", &with(headers), "x");
        let message = near.get("source").unwrap();
        near.reject(message.tag, false);
        assert_eq!(counts(&near, &["q", "lost"]), [1, 0]);
    });
}

#[test]
fn no_exchange_looks_at_hidden_keys() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.declare("rest");
        near.exchange_with("h", "headers", Table::new().with("alternate-exchange", "amq.fanout"));
        near.bind("rest", "amq.fanout", "");
        near.bind_with("q", "h", "", Table::new().with("BCC", Value::Void));
        far.publish_with("h", "", &with(Table::new().with("BCC", keys(&["secret"]))), "x");
        assert_eq!(counts(&near, &["q", "rest"]), [0, 1]);
    });
}

#[test]
fn a_message_that_comes_back_shows_no_hidden_keys() {
    everywhere(|stage| {
        let far = stage.far();
        let headers = Table::new().with("BCC", keys(&["secret"])).with("CC", keys(&["seen"]));
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        far.publish_raw("", "nowhere", true, &properties.to_bytes(), b"x");
        let returned = far.returns();
        let expected = Table::new().with("CC", keys(&["seen"]));
        assert_eq!(returned[0].properties.headers.as_ref(), Some(&expected));
    });
}

#[test]
fn more_keys_than_allowed_are_refused_and_equal_ones_count_once() {
    let limits = Limits { copy_keys_max: 3, ..Limits::default() };
    let world = World::with(Options { limits, ..Options::default() });
    let channel = world.channel(0);
    channel.declare("q");
    let names = ["q", "a", "q", "b", "q", "a"];
    let allowed = Table::new().with("CC", keys(&names)).with("BCC", keys(&names));
    channel.publish_with("", "q", &with(allowed), "x");
    assert_eq!(channel.purge("q"), 1);
    let refused = Table::new().with("CC", keys(&names)).with("BCC", keys(&["c"]));
    channel.publish_with("", "q", &with(refused), "x");
    let refused = channel.expect_refused();
    assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
    assert_eq!(world.queue("q").ready, 0);
}

#[test]
fn a_second_header_of_that_name_adds_no_keys() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("graves", "direct");
        near.declare_with("source", Table::new().with("x-dead-letter-exchange", "graves"));
        for (queue, key) in [("first", "one"), ("second", "two")] {
            near.declare(queue);
            near.bind(queue, "graves", key);
        }
        for (hidden, expected) in [(keys(&["one"]), [1, 0]), (keys(&[]), [0, 0])] {
            let mut headers = Table::new().with("BCC", hidden);
            headers.0.push(("BCC".into(), keys(&["two"])));
            headers.0.push(("BCC".into(), keys(&["two"])));
            far.publish_with("", "source", &with(headers), "x");
            let message = near.get("source").unwrap();
            assert_eq!(message.header("BCC"), None);
            near.reject(message.tag, false);
            assert_eq!(counts(&near, &["first", "second"]), expected);
        }
    });
}
