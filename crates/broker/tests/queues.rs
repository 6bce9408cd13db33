//! Declaring, purging and deleting queues.

use lepus_amqp::Method;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue};
use lepus_amqp::table::{Table, Value};
use lepus_broker::directory::{Request, VhostRef};
use lepus_broker::vhost::VhostLimits;
use lepus_sim::{Channel, World};

use crate::stage::everywhere;

fn declare(queue: &str) -> queue::Declare<'_> {
    queue::Declare { queue, ..Default::default() }
}

fn passive(queue: &str) -> queue::Declare<'_> {
    queue::Declare { passive: true, ..declare(queue) }
}

/// The code and text with which a declaration is refused on a fresh channel.
fn refusal(alice: &Channel, method: queue::Declare<'_>, arguments: Table) -> (u16, String) {
    let arguments = arguments.to_bytes();
    let method = queue::Declare { arguments: arguments.as_ref(), ..method };
    let refused = alice.client().channel().refused(method);
    assert!(!refused.hard, "{}", refused.text);
    assert_eq!(refused.method, (50, 10));
    (refused.code.0, refused.text)
}

#[test]
fn declare_ok_tells_name_ready_messages_and_consumers() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let declared = near.declare("q");
        assert_eq!((declared.queue.as_str(), declared.messages, declared.consumers), ("q", 0, 0));
        far.publish_all("q", ["1", "2", "3"]);
        near.qos(1);
        near.consume("q", "c");
        let declared = far.declare("q");
        assert_eq!((declared.messages, declared.consumers), (2, 1));
        assert_eq!(far.passive("q"), declared);
    });
}

#[test]
fn a_queue_without_a_name_gets_one_that_nobody_else_has() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let mut names: Vec<String> = (0..20)
            .map(|index| if index % 2 == 0 { &near } else { &far }.declare("").queue)
            .collect();
        assert!(names.iter().all(|name| name.starts_with("amq.gen-") && name.len() > 20));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 20);
        far.publish("", &names[0], "x");
        assert_eq!(near.purge(&names[0]), 1);
    });
}

#[test]
fn an_empty_name_means_the_queue_declared_last_on_the_channel() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("first");
        far.declare("second");
        far.passive("first");
        assert_eq!(far.passive("").queue, "first");
        far.publish("", "first", "x");
        assert_eq!(far.get_no_ack("").unwrap().text(), "x");
        assert_eq!(far.consume_method(basic::Consume::default()).get(..9), Some("amq.ctag-"));
        far.publish("", "first", "y");
        far.ack(far.delivery().tag);
        far.delete("");
        assert_eq!(stage.world.find_queue("/", "first"), None);
        assert!(stage.world.find_queue("/", "second").is_some());
    });
}

#[test]
fn without_a_declared_queue_an_empty_name_is_not_found() {
    everywhere(|stage| {
        let client = stage.far_client();
        client.channel().declare("on another channel");
        let methods: [(Method<'_>, (u16, u16)); 5] = [
            (basic::Get::default().into(), (60, 70)),
            (basic::Consume::default().into(), (60, 20)),
            (queue::Purge::default().into(), (50, 30)),
            (queue::Delete::default().into(), (50, 40)),
            (passive("").into(), (50, 10)),
        ];
        for (method, ids) in methods {
            let refused = client.channel().refused(method);
            assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, ids));
            assert_eq!(refused.text, "NOT_FOUND - no previously declared queue");
        }
    });
}

#[test]
fn new_names_must_not_begin_with_amq_but_generated_ones_can_be_redeclared() {
    everywhere(|stage| {
        let alice = stage.far();
        let (code, text) = refusal(&alice, declare("amq.mine"), Table::new());
        assert_eq!(code, 403);
        assert!(text.contains("'amq.mine'") && text.contains("reserved prefix"), "{text}");
        let name = alice.declare("").queue;
        alice.declare(&name);
        alice.passive(&name);
    });
}

#[test]
fn a_redeclaration_must_agree_in_its_flags() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let (code, text) =
            refusal(&far, queue::Declare { durable: true, ..declare("q") }, Table::new());
        let expected = "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost \
                        '/': received 'true' but current is 'false'";
        assert_eq!((code, text.as_str()), (406, expected));
        let (code, text) =
            refusal(&far, queue::Declare { auto_delete: true, ..declare("q") }, Table::new());
        assert_eq!(code, 406);
        assert!(text.contains("'auto_delete'"), "{text}");
        let (code, text) =
            refusal(&far, queue::Declare { exclusive: true, ..declare("q") }, Table::new());
        assert_eq!(code, 405);
        assert!(text.starts_with("RESOURCE_LOCKED - "), "{text}");
    });
}

#[test]
fn a_redeclaration_must_agree_in_known_arguments_whatever_their_width() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = || {
            Table::new()
                .with("x-message-ttl", 60_000)
                .with("x-expires", Value::I64(3_600_000))
                .with("x-max-length", 100)
                .with("x-max-length-bytes", 100_000)
                .with("x-max-priority", 5)
                .with("x-dead-letter-exchange", "dlx")
                .with("x-dead-letter-routing-key", "dead")
                .with("x-overflow", "reject-publish")
                .with("x-single-active-consumer", false)
                .with("x-queue-type", "classic")
        };
        near.declare_with("q", arguments());
        let wider = arguments().with("x-max-length", Value::I64(100)).with("x-mine", 1);
        far.declare_with("q", wider.with("x-expires", Value::U32(3_600_000)));
        let changes = [
            ("x-message-ttl", Value::from(1)),
            ("x-expires", Value::from(1)),
            ("x-max-length", Value::from(1)),
            ("x-max-length", Value::F64(100.0)),
            ("x-max-length-bytes", Value::from(1)),
            ("x-max-priority", Value::from(1)),
            ("x-dead-letter-exchange", Value::from("other")),
            ("x-dead-letter-routing-key", Value::from("other")),
            ("x-overflow", Value::from("drop-head")),
            ("x-single-active-consumer", Value::from(true)),
            ("x-queue-type", Value::from("quorum")),
        ];
        for (name, value) in changes {
            let (code, text) = refusal(&far, declare("q"), arguments().with(name, value));
            assert_eq!(code, 406);
            let start = format!(
                "PRECONDITION_FAILED - inequivalent arg '{name}' for queue 'q' in vhost '/': "
            );
            assert!(text.starts_with(&start), "{text}");
        }
        let (code, text) = refusal(&far, declare("q"), Table::new());
        assert!(code == 406 && text.contains("received none but current is"), "{text}");
    });
}

#[test]
fn unknown_arguments_are_ignored() {
    let world = World::new(1);
    let alice = world.channel(0);
    let mine = Table::new().with("x-mine", 1).with("other", "text").with("nothing", Value::Void);
    alice.declare_with("q", mine);
    alice.declare("q");
    alice.declare_with("q", Table::new().with("x-mine", "something else"));
    alice.declare_with("cache", Table::new().with("x-cache-size", 1));
}

#[test]
fn arguments_out_of_range_or_of_the_wrong_type_are_refused() {
    everywhere(|stage| {
        let alice = stage.far();
        let wrong = [
            ("x-message-ttl", Value::from(-1)),
            ("x-message-ttl", Value::from("60000")),
            ("x-message-ttl", Value::F64(1.0)),
            ("x-expires", Value::from(0)),
            ("x-expires", Value::from(-1)),
            ("x-expires", Value::from("soon")),
            ("x-max-length", Value::from(-1)),
            ("x-max-length", Value::from("5")),
            ("x-max-length-bytes", Value::from(-1)),
            ("x-max-priority", Value::from(-1)),
            ("x-max-priority", Value::from(256)),
            ("x-max-priority", Value::from("5")),
            ("x-dead-letter-exchange", Value::from(5)),
            ("x-dead-letter-routing-key", Value::from("no exchange")),
            ("x-overflow", Value::from("drop-tail")),
            ("x-overflow", Value::from(1)),
            ("x-single-active-consumer", Value::from("true")),
            ("x-queue-type", Value::from("no-such-type")),
            ("x-queue-type", Value::from(1)),
        ];
        for (name, value) in wrong {
            let (code, text) =
                refusal(&alice, declare("q"), Table::new().with(name, value.clone()));
            assert_eq!(code, 406, "{name} {value:?}");
            assert!(text.contains(name), "{text}");
        }
        assert_eq!(stage.world.find_queue("/", "q"), None);
    });
}

#[test]
fn arguments_without_a_meaning_for_a_queue_of_that_kind_are_refused() {
    everywhere(|stage| {
        let alice = stage.far();
        let quorum = || Table::new().with("x-queue-type", "quorum");
        let mode = "invalid arg 'x-queue-mode' for queue 'q' in vhost '/'";
        let wrong = [
            (
                Table::new().with("x-queue-mode", "odd"),
                format!("{mode}: \"unsupported queue mode 'odd'\""),
            ),
            (
                quorum().with("x-queue-mode", "lazy"),
                format!("{mode} of queue type rabbit_quorum_queue"),
            ),
            (
                Table::new().with("x-queue-version", 3),
                "invalid arg 'x-queue-version' for queue 'q' in vhost '/': \
                 \"unsupported queue version '3'\""
                    .into(),
            ),
            (
                Table::new().with("x-delivery-limit", 3),
                "invalid arg 'x-delivery-limit' for queue 'q' in vhost '/' of queue type \
                 rabbit_classic_queue"
                    .into(),
            ),
            (
                Table::new().with("x-queue-leader-locator", "odd"),
                "invalid arg 'x-queue-leader-locator' for queue 'q' in vhost '/': \
                 invalid_queue_locator_arg"
                    .into(),
            ),
        ];
        for (arguments, why) in wrong {
            let durable = queue::Declare { durable: true, ..declare("q") };
            let (code, text) = refusal(&alice, durable, arguments);
            assert_eq!((code, text), (406, format!("PRECONDITION_FAILED - {why}")));
        }
        let mode = Table::new().with("x-queue-mode", "lazy").with("x-queue-version", 2);
        alice.declare_with("q", mode.with("x-queue-leader-locator", "balanced"));
        // A queue that is there is not asked what it has no use for.
        alice.declare_with("q", Table::new().with("x-queue-mode", "odd"));
    });
}

#[test]
fn streams_are_refused_in_words() {
    let world = World::new(1);
    let alice = world.channel(0);
    let durable = queue::Declare { durable: true, ..declare("s") };
    let (code, text) = refusal(&alice, durable, Table::new().with("x-queue-type", "stream"));
    assert_eq!(code, 406);
    assert!(text.contains("stream"), "{text}");
}

#[test]
fn a_passive_declare_looks_at_the_name_alone() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-max-length", 5));
        let arguments = Table::new().with("x-max-length", "nonsense").to_bytes();
        far.declare_method(queue::Declare {
            durable: true,
            auto_delete: true,
            arguments: arguments.as_ref(),
            ..passive("q")
        });
        let (code, text) = refusal(&far, passive("missing"), Table::new());
        assert_eq!((code, text.as_str()), (404, "NOT_FOUND - no queue 'missing' in vhost '/'"));
    });
}

#[test]
fn purge_drops_and_counts_only_what_is_ready() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_all("q", (0..10).map(|index| index.to_string()));
        let held = near.get("q").unwrap();
        assert_eq!(far.purge("q"), 9);
        assert_eq!(far.purge("q"), 0);
        let queue = stage.world.queue("q");
        assert_eq!((queue.ready, queue.unacked), (0, 1));
        near.reject(held.tag, true);
        assert_eq!(stage.world.queue("q").ready, 1);
        let refused = far.refused(queue::Purge { queue: "missing", no_wait: false });
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (50, 30)));
    });
}

#[test]
fn delete_tells_how_many_messages_were_ready_and_may_be_repeated() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_all("q", ["1", "2", "3"]);
        let held = near.get("q").unwrap();
        assert_eq!(far.delete("q"), 2);
        assert_eq!(far.delete("q"), 0);
        assert_eq!(near.delete("q"), 0);
        assert_eq!(near.delete("never there"), 0);
        // Its deliveries can still be settled, without effect.
        near.ack(held.tag);
        assert!(near.is_open());
        near.declare("q");
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn a_delivery_of_a_deleted_queue_does_not_touch_its_successor() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish("", "q", "old");
        let held = near.get("q").unwrap();
        far.delete("q");
        far.declare("q");
        far.publish("", "q", "new");
        let other = far.get("q").unwrap();
        near.reject(held.tag, true);
        assert!(near.is_open());
        assert_eq!(stage.world.queue("q").ready, 0);
        assert_eq!(stage.world.queue("q").unacked, 1);
        far.ack(other.tag);
    });
}

#[test]
fn if_unused_and_if_empty_spare_a_queue() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish("", "q", "x");
        let empty = queue::Delete { queue: "q", if_empty: true, ..Default::default() };
        let refused = far.client().channel().refused(empty);
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (50, 40)));
        assert_eq!(refused.text, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty");
        near.consume("q", "c");
        let unused = queue::Delete { queue: "q", if_unused: true, ..Default::default() };
        let refused = far.client().channel().refused(unused);
        assert_eq!(refused.text, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use");
        let message = near.delivery();
        near.ack(message.tag);
        near.cancel("c");
        let both =
            queue::Delete { queue: "q", if_unused: true, if_empty: true, ..Default::default() };
        assert_eq!(far.delete_method(both), 0);
    });
}

#[test]
fn an_auto_delete_queue_goes_before_cancel_ok_comes() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_method(queue::Declare { auto_delete: true, ..declare("q") });
        assert!(stage.world.find_queue("/", "q").is_some(), "it waits for its first consumer");
        far.publish("", "q", "x");
        near.consume("q", "c1");
        far.consume("q", "c2");
        near.cancel("c1");
        assert!(stage.world.find_queue("/", "q").is_some());
        let client = far.client();
        client.together(|| {
            far.send(basic::Cancel { consumer_tag: "c2", no_wait: false });
            far.send(passive("q"));
        });
        far.expect("basic.cancel-ok");
        assert_eq!(far.expect_refused().code, ReplyCode::NOT_FOUND);
        assert!(near.cancelled().is_empty());
        near.ack(near.delivery().tag);
    });
}

#[test]
fn an_auto_delete_queue_goes_with_the_connection_of_its_last_consumer() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for name in ["channel", "close", "reset"] {
            near.declare_method(queue::Declare { auto_delete: true, ..declare(name) });
        }
        let client = far.client();
        let channel = client.channel();
        channel.consume("channel", "c");
        channel.close();
        assert_eq!(stage.world.find_queue("/", "channel"), None);
        far.consume("close", "c");
        client.close();
        assert_eq!(stage.world.find_queue("/", "close"), None);
        let far = stage.far();
        far.consume("reset", "c");
        far.client().reset();
        assert_eq!(stage.world.find_queue("/", "reset"), None);
    });
}

#[test]
fn an_auto_delete_queue_stays_while_it_is_only_fetched_from() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.declare_method(queue::Declare { auto_delete: true, ..declare("q") });
        alice.publish("", "q", "x");
        assert!(alice.get_no_ack("q").is_some());
        assert_eq!(alice.get_no_ack("q"), None);
        assert!(stage.world.find_queue("/", "q").is_some());
    });
}

#[test]
fn nothing_is_answered_with_no_wait() {
    everywhere(|stage| {
        let alice = stage.far();
        alice.send(queue::Declare { no_wait: true, ..declare("q") });
        alice.publish_all("q", ["1", "2"]);
        alice.send(queue::Purge { queue: "q", no_wait: true });
        assert_eq!(stage.world.queue("q").ready, 0);
        alice.send(queue::Declare { no_wait: true, ..passive("q") });
        alice.send(queue::Delete { queue: "q", no_wait: true, ..Default::default() });
        assert_eq!(stage.world.find_queue("/", "q"), None);
        assert_eq!(alice.answer(), None);
        alice.send(queue::Declare { no_wait: true, ..passive("q") });
        assert_eq!(alice.expect_refused().code, ReplyCode::NOT_FOUND);
    });
}

#[test]
fn a_vhost_may_limit_its_queues() {
    let world = World::new(2);
    let limits = VhostLimits { queues_max: Some(2), ..VhostLimits::default() };
    let request = Request::SetVhostLimits { vhost: VhostRef::Name("/".into()), limits };
    world.request(request).unwrap();
    let alice = world.channel(1);
    alice.declare("q1");
    alice.declare("q2");
    alice.declare("q2");
    let (code, text) = refusal(&alice, declare("q3"), Table::new());
    assert_eq!(code, 406);
    assert!(text.contains("limit"), "{text}");
    alice.delete("q1");
    alice.declare("q3");
}

#[test]
fn two_clients_that_declare_the_same_queue_at_once_get_one() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.client().together(|| {
            far.client().together(|| {
                near.send(declare("q"));
                far.send(declare("q"));
            });
        });
        near.expect("queue.declare-ok");
        far.expect("queue.declare-ok");
        near.publish("", "q", "1");
        far.publish("", "q", "2");
        assert_eq!(near.purge("q"), 2);
    });
}

#[test]
fn thousands_of_queues_are_shared_out_over_the_shards() {
    let world = World::new(2);
    let alice = world.channel(1);
    for index in 0..500 {
        alice.declare(&format!("q{index}"));
    }
    let homes: Vec<u16> = (0..500).map(|index| world.queue(&format!("q{index}")).home).collect();
    let far = homes.iter().filter(|&&home| home == 0).count();
    assert!((200..=300).contains(&far), "{far} of 500 on the other shard");
    assert!(homes[..10].iter().all(|&home| home == 1), "the first ones where they are declared");
}

#[test]
fn who_deletes_a_queue_and_consumes_from_it_is_answered_before_the_cancel() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume("q", "c");
        let _ = far.order();
        far.delete("q");
        assert_eq!(far.order(), ["queue.delete-ok", "basic.cancel"]);
    });
}
