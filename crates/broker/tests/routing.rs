//! How each type of exchange routes.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{exchange, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

/// Which of the queues have a message, all of them emptied.
fn reached(channel: &Channel, queues: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for queue in queues {
        let count = channel.purge(queue);
        assert!(count <= 1, "{queue} has the message {count} times");
        if count == 1 {
            found.push((*queue).to_owned());
        }
    }
    found
}

#[test]
fn a_direct_exchange_compares_the_whole_key() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "direct");
        for (queue, key) in [("q1", "a"), ("q2", "a"), ("q3", "a.b"), ("q4", "")] {
            near.declare(queue);
            near.bind(queue, "x", key);
        }
        let queues = ["q1", "q2", "q3", "q4"];
        for (key, expected) in
            [("a", &["q1", "q2"][..]), ("a.b", &["q3"]), ("", &["q4"]), ("A", &[]), ("a.", &[])]
        {
            far.publish("x", key, "x");
            assert_eq!(reached(&near, &queues), expected, "{key}");
        }
    });
}

#[test]
fn a_fanout_exchange_ignores_the_key() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "fanout");
        for queue in ["q1", "q2"] {
            near.declare(queue);
            near.bind(queue, "x", "some key");
        }
        far.publish("x", "another", "x");
        assert_eq!(reached(&near, &["q1", "q2"]), ["q1", "q2"]);
    });
}

#[test]
fn a_message_reaches_a_queue_once_however_many_bindings_fit() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "topic");
        near.declare("q");
        for key in ["#", "a.*", "*.b", "a.b"] {
            near.bind("q", "x", key);
        }
        far.publish("x", "a.b", "x");
        assert_eq!(reached(&near, &["q"]), ["q"]);
    });
}

#[test]
fn a_topic_exchange_knows_words_stars_and_hashes() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "topic");
        let patterns = ["a.b", "*.b", "a.#", "#", "#.b", "*", "a.*.c", "", "*.#.b", "a..b"];
        for pattern in patterns {
            near.declare(&format!("[{pattern}]"));
            near.bind(&format!("[{pattern}]"), "x", pattern);
        }
        let queues: Vec<String> = patterns.iter().map(|pattern| format!("[{pattern}]")).collect();
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        for (key, expected) in [
            ("a.b", &["[a.b]", "[*.b]", "[a.#]", "[#]", "[#.b]", "[*.#.b]"][..]),
            ("b", &["[#]", "[#.b]", "[*]"]),
            ("a", &["[a.#]", "[#]", "[*]"]),
            ("", &["[#]", "[]"]),
            ("a.x.c", &["[a.#]", "[#]", "[a.*.c]"]),
            ("a..b", &["[a.#]", "[#]", "[#.b]", "[*.#.b]", "[a..b]"]),
            ("x.y.z.b", &["[#]", "[#.b]", "[*.#.b]"]),
            ("*.b", &["[*.b]", "[#]", "[#.b]", "[*.#.b]"]),
        ] {
            far.publish("x", key, "x");
            let mut found = reached(&near, &queues);
            let mut expected: Vec<String> = expected.iter().map(|&name| name.into()).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "key '{key}'");
        }
    });
}

#[test]
fn a_topic_pattern_no_longer_counts_after_its_unbind() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.bind("q", "amq.topic", "a.#");
    alice.bind("q", "amq.topic", "a.*");
    alice.unbind("q", "amq.topic", "a.#");
    alice.publish("amq.topic", "a.b.c", "x");
    assert_eq!(world.queue("q").ready, 0);
    alice.publish("amq.topic", "a.b", "x");
    assert_eq!(world.queue("q").ready, 1);
}

fn with_headers(headers: Table) -> Properties {
    Properties { headers: Some(headers), ..Properties::default() }
}

#[test]
fn a_headers_exchange_compares_all_or_any_header() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let both = || Table::new().with("type", "report").with("year", 2026);
        for (queue, arguments) in [
            ("default", both()),
            ("all", both().with("x-match", "all")),
            ("any", both().with("x-match", "any")),
            ("everything", Table::new()),
        ] {
            near.declare(queue);
            near.bind_with(queue, "amq.headers", "", arguments);
        }
        let queues = ["default", "all", "any", "everything"];
        let report = || Table::new().with("type", "report");
        for (headers, expected) in [
            (both(), &queues[..]),
            (both().with("more", true), &queues),
            (report(), &["any", "everything"]),
            (report().with("year", 2025), &["any", "everything"]),
            (Table::new().with("type", "letter"), &["everything"]),
            (Table::new().with("type", 1), &["everything"]),
        ] {
            far.publish_with("amq.headers", "", &with_headers(headers.clone()), "x");
            assert_eq!(reached(&near, &queues), expected, "{headers:?}");
        }
        far.publish("amq.headers", "", "no headers at all");
        assert_eq!(reached(&near, &queues), ["everything"]);
    });
}

#[test]
fn a_void_value_matches_any_value_of_the_header() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.bind_with("q", "amq.match", "", Table::new().with("there", Value::Void));
    for (headers, count) in [
        (Table::new().with("there", 1), 1),
        (Table::new().with("there", "text"), 1),
        (Table::new().with("there", Value::Void), 1),
        (Table::new().with("elsewhere", 1), 0),
    ] {
        alice.publish_with("amq.match", "", &with_headers(headers), "x");
        assert_eq!(alice.purge("q"), count);
    }
}

#[test]
fn text_and_bytes_are_alike_in_headers_and_a_moment_is_its_milliseconds() {
    let world = World::new(1);
    let alice = world.channel(0);
    for (queue, value) in [
        ("text", Value::from("v")),
        ("bytes", Value::Binary(b"v".to_vec())),
        ("number", Value::I64(5_000)),
        ("moment", Value::Timestamp(5)),
    ] {
        alice.declare(queue);
        alice.bind_with(queue, "amq.match", "", Table::new().with("a", value));
    }
    let queues = ["text", "bytes", "number", "moment"];
    for (value, expected) in [
        (Value::from("v"), &["text", "bytes"][..]),
        (Value::Binary(b"v".to_vec()), &["text", "bytes"]),
        (Value::Timestamp(5), &["number", "moment"]),
        (Value::U32(5_000), &["number", "moment"]),
        (Value::I32(5), &[]),
    ] {
        alice.publish_with("amq.match", "", &with_headers(Table::new().with("a", value)), "x");
        assert_eq!(reached(&alice, &queues), expected);
    }
}

#[test]
fn headers_are_compared_by_value() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.bind_with("q", "amq.match", "", Table::new().with("n", Value::I32(1)));
    for (value, count) in [
        (Value::I32(1), 1),
        (Value::I64(1), 1),
        (Value::U8(1), 1),
        (Value::I32(2), 0),
        (Value::LongString(b"1".to_vec()), 0),
        (Value::Bool(true), 0),
    ] {
        alice.publish_with("amq.match", "", &with_headers(Table::new().with("n", value)), "x");
        assert_eq!(alice.purge("q"), count);
    }
}

#[test]
fn headers_that_begin_with_x_count_only_where_asked() {
    let world = World::new(1);
    let alice = world.channel(0);
    for mode in ["all", "any", "all-with-x", "any-with-x"] {
        alice.declare(mode);
        let arguments = Table::new().with("x-match", mode).with("x-a", 1).with("b", 2);
        alice.bind_with(mode, "amq.match", "", arguments);
    }
    let modes = ["all", "any", "all-with-x", "any-with-x"];
    let publish = |headers| alice.publish_with("amq.match", "", &with_headers(headers), "x");
    publish(Table::new().with("x-a", 1));
    assert_eq!(reached(&alice, &modes), ["any-with-x"]);
    publish(Table::new().with("b", 2));
    assert_eq!(reached(&alice, &modes), ["all", "any", "any-with-x"]);
    publish(Table::new().with("b", 2).with("x-a", 1));
    assert_eq!(reached(&alice, &modes), modes);
}

#[test]
fn an_unknown_x_match_is_refused_at_the_bind() {
    let world = World::new(2);
    let alice = world.channel(1);
    alice.declare("q");
    for value in [Value::from("some"), Value::from(1), Value::from("")] {
        let arguments = Table::new().with("x-match", value).to_bytes();
        let bind = queue::Bind {
            queue: "q",
            exchange: "amq.headers",
            arguments: arguments.as_ref(),
            ..Default::default()
        };
        let refused = alice.client().channel().refused(bind);
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (50, 20)));
    }
}

#[test]
fn a_consistent_hash_keeps_a_key_at_its_queue_and_shares_by_weight() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "x-consistent-hash");
        for (queue, weight) in [("q1", "1"), ("q2", "1"), ("q3", "2")] {
            near.declare(queue);
            near.bind(queue, "x", weight);
        }
        let client = far.client();
        client.together(|| {
            for key in 0..2_000 {
                far.publish("x", &format!("key {key}"), "x");
            }
        });
        let counts = ["q1", "q2", "q3"].map(|queue| near.purge(queue));
        assert_eq!(counts.iter().sum::<u32>(), 2_000);
        assert!(counts.iter().all(|&count| count > 250), "{counts:?}");
        assert!(counts[2] > counts[0] && counts[2] > counts[1], "{counts:?}");
        far.publish("x", "key 7", "x");
        let first = reached(&near, &["q1", "q2", "q3"]);
        for _ in 0..5 {
            far.publish("x", "key 7", "x");
            assert_eq!(reached(&near, &["q1", "q2", "q3"]), first);
        }
    });
}

#[test]
fn a_queue_that_comes_back_to_a_consistent_hash_gets_its_keys_again() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.exchange("x", "x-consistent-hash");
    let queues = ["q1", "q2", "q3", "q4", "q5"];
    for queue in queues {
        alice.declare(queue);
        alice.bind(queue, "x", "65535");
    }
    let homes = || -> Vec<Vec<String>> {
        let publish = |key| {
            alice.publish("x", &format!("key {key}"), "x");
            reached(&alice, &queues)
        };
        (0..200).map(publish).collect()
    };
    let before = homes();
    for queue in ["q2", "q4"] {
        alice.unbind(queue, "x", "65535");
    }
    alice.delete("q1");
    alice.declare("q1");
    for queue in ["q4", "q1", "q2"] {
        alice.bind(queue, "x", "65535");
    }
    assert_eq!(homes(), before);
}

#[test]
fn a_consistent_hash_may_look_at_a_header_or_a_property() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.exchange_with("h", "x-consistent-hash", Table::new().with("hash-header", "who"));
    alice.exchange_with("p", "x-consistent-hash", Table::new().with("hash-property", "message_id"));
    let queues = ["q1", "q2", "q3", "q4"];
    for queue in queues {
        alice.declare(queue);
        alice.bind(queue, "h", "1");
        alice.bind(queue, "p", "1");
    }
    let mut used = [Vec::new(), Vec::new()];
    for name in 0..40 {
        let name = format!("name {}", name % 20);
        let properties = Properties {
            headers: Some(Table::new().with("who", name.as_str())),
            message_id: Some(name.clone()),
            ..Properties::default()
        };
        for (index, exchange) in ["h", "p"].into_iter().enumerate() {
            alice.publish_with(exchange, &format!("{name} {index}"), &properties, "x");
            let found = reached(&alice, &queues);
            assert_eq!(found.len(), 1);
            used[index].push(found[0].clone());
        }
    }
    for used in used {
        assert_eq!(used[..20], used[20..], "the same value goes the same way");
        assert!(used.iter().any(|queue| *queue != used[0]));
    }
    let both = Table::new().with("hash-header", "a").with("hash-property", "message_id").to_bytes();
    let refused = alice.refused(exchange::Declare {
        exchange: "both",
        r#type: "x-consistent-hash",
        arguments: both.as_ref(),
        ..Default::default()
    });
    assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
}

#[test]
fn a_weight_must_be_a_number_above_zero() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.exchange("x", "x-consistent-hash");
    alice.declare("q");
    for routing_key in ["0", "-1", "one", ""] {
        let bind = queue::Bind { queue: "q", exchange: "x", routing_key, ..Default::default() };
        let refused = alice.client().channel().refused(bind);
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED, "{routing_key}");
    }
}

#[test]
fn a_random_exchange_takes_one_binding_each_time() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "x-random");
        let queues = ["q1", "q2", "q3"];
        for queue in queues {
            near.declare(queue);
            near.bind(queue, "x", "whatever");
        }
        far.client().together(|| (0..600).for_each(|_| far.publish("x", "k", "x")));
        let counts = queues.map(|queue| near.purge(queue));
        assert_eq!(counts.iter().sum::<u32>(), 600);
        assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    });
}

#[test]
fn a_modulus_hash_keeps_a_key_at_its_queue() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.exchange("x", "x-modulus-hash");
    let queues = ["q1", "q2", "q3"];
    for queue in queues {
        alice.declare(queue);
        alice.bind(queue, "x", "");
    }
    let mut seen = Vec::new();
    for key in 0..30 {
        let key = format!("key {key}");
        alice.publish("x", &key, "x");
        let first = reached(&alice, &queues);
        alice.publish("x", &key, "x");
        assert_eq!(reached(&alice, &queues), first);
        seen.extend(first);
    }
    assert!(queues.iter().all(|queue| seen.iter().any(|name| name == queue)));
}

#[test]
fn routes_follow_changes_at_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "direct");
        near.declare("q1");
        near.declare("q2");
        near.bind("q1", "x", "k");
        let publish = || {
            far.publish("x", "k", "x");
            reached(&near, &["q1", "q2"])
        };
        assert_eq!(publish(), ["q1"]);
        near.bind("q2", "x", "k");
        assert_eq!(publish(), ["q1", "q2"]);
        near.unbind("q1", "x", "k");
        assert_eq!(publish(), ["q2"]);
        near.delete("q2");
        near.declare("q2");
        assert_eq!(publish(), [""; 0]);
    });
}
