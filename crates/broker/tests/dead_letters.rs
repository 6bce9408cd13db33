//! Dead-lettering: reasons, routing, the death history and cycles.

use lepus_amqp::method::queue;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, Message, Options, World};

use crate::stage::{Stage, everywhere, everywhere_with};

/// Arguments of a queue that dead-letters to `exchange`, with `key` if given.
fn dead_to(exchange: &str, key: Option<&str>) -> Table {
    let mut arguments = Table::new().with("x-dead-letter-exchange", exchange);
    if let Some(key) = key {
        arguments.insert("x-dead-letter-routing-key", key);
    }
    arguments
}

/// The entries of a message's death history.
fn deaths(message: &Message) -> Vec<Table> {
    let deaths = message.header("x-death").and_then(Value::as_array).unwrap_or_default();
    deaths.iter().map(|death| death.as_table().expect("a table").clone()).collect()
}

fn text<'a>(table: &'a Table, name: &str) -> &'a str {
    table.get(name).and_then(Value::as_text).unwrap_or("(none)")
}

/// Queue, reason and count of each entry.
fn history(message: &Message) -> Vec<(String, String, i64)> {
    deaths(message)
        .iter()
        .map(|death| {
            let count = death.get("count").and_then(Value::as_integer).unwrap();
            (text(death, "queue").to_owned(), text(death, "reason").to_owned(), count)
        })
        .collect()
}

fn entry(queue: &str, reason: &str, count: i64) -> (String, String, i64) {
    (queue.to_owned(), reason.to_owned(), count)
}

fn reject_one(channel: &Channel, queue: &str) {
    let message = channel.get(queue).expect("a message to reject");
    channel.reject(message.tag, false);
}

#[test]
fn each_reason_is_written_into_the_history() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("graves");
        let to = || dead_to("", Some("graves"));
        near.declare_with("rejected", to());
        near.declare_with("expired", to().with("x-message-ttl", 10));
        near.declare_with("maxlen", to().with("x-max-length", 0));
        let limited = to().with("x-delivery-limit", 1).with("x-queue-type", "quorum").to_bytes();
        near.declare_method(queue::Declare {
            queue: "delivery_limit",
            durable: true,
            arguments: limited.as_ref(),
            ..Default::default()
        });
        for queue in ["rejected", "expired", "maxlen", "delivery_limit"] {
            far.publish("", queue, queue);
        }
        reject_one(&far, "rejected");
        stage.world.advance(10);
        for _ in 0..2 {
            let message = far.get("delivery_limit").unwrap();
            far.reject(message.tag, true);
        }
        let mut found: Vec<_> = core::iter::from_fn(|| near.get_no_ack("graves"))
            .map(|message| {
                let history = history(&message);
                assert_eq!(history.len(), 1);
                assert_eq!(history[0].0, message.text());
                (history[0].1.clone(), history[0].2)
            })
            .collect();
        found.sort();
        let expected = ["delivery_limit", "expired", "maxlen", "rejected"];
        assert_eq!(found, expected.map(|reason| (reason.to_owned(), 1)));
        let counters = stage.world.counters();
        assert_eq!(
            [
                counters.dead_lettered_rejected,
                counters.dead_lettered_expired,
                counters.dead_lettered_maxlen,
                counters.dead_lettered_delivery_limit
            ],
            [1; 4]
        );
    });
}

#[test]
fn the_history_tells_where_when_and_with_which_keys() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "direct");
        near.declare_with("q", dead_to("", Some("graves")));
        near.declare("graves");
        near.bind("q", "x", "key");
        let headers = Table::new()
            .with("CC", vec![Value::from("copy")])
            .with("BCC", vec![Value::from("hidden")])
            .with("mine", 1);
        let properties = Properties {
            headers: Some(headers),
            expiration: Some("60000".into()),
            content_type: Some("text/plain".into()),
            ..Properties::default()
        };
        far.publish_with("x", "key", &properties, "x");
        let second = stage.world.now().wall_millis / 1_000;
        reject_one(&far, "q");
        let message = near.get_no_ack("graves").unwrap();
        assert_eq!((message.exchange.as_str(), message.key.as_str()), ("", "graves"));
        let death = &deaths(&message)[0];
        assert_eq!(death.get("count"), Some(&Value::I64(1)));
        assert_eq!((text(death, "reason"), text(death, "queue")), ("rejected", "q"));
        assert_eq!(death.get("time"), Some(&Value::Timestamp(second)));
        assert_eq!(text(death, "exchange"), "x");
        let keys = vec![Value::from("key"), Value::from("copy")];
        assert_eq!(death.get("routing-keys"), Some(&Value::Array(keys)));
        assert_eq!(text(death, "original-expiration"), "60000");
        assert_eq!(message.properties.expiration, None);
        assert_eq!(message.properties.content_type.as_deref(), Some("text/plain"));
        assert_eq!(message.header("mine"), Some(&Value::I32(1)));
        let headers = message.properties.headers.as_ref().unwrap();
        for (name, value) in [
            ("x-first-death-reason", "rejected"),
            ("x-first-death-queue", "q"),
            ("x-first-death-exchange", "x"),
            ("x-last-death-reason", "rejected"),
            ("x-last-death-queue", "q"),
            ("x-last-death-exchange", "x"),
        ] {
            assert_eq!(text(headers, name), value, "{name}");
        }
    });
}

#[test]
fn a_dead_letter_keeps_its_key_unless_the_queue_has_another() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "topic");
        near.declare("graves");
        near.bind("graves", "dlx", "#");
        near.declare_with("keeps", dead_to("dlx", None));
        near.declare_with("changes", dead_to("dlx", Some("other")));
        for queue in ["keeps", "changes"] {
            far.publish("", queue, "x");
            reject_one(&far, queue);
        }
        let keys: Vec<String> =
            core::iter::from_fn(|| near.get_no_ack("graves")).map(|message| message.key).collect();
        assert_eq!(keys, ["keeps", "other"]);
    });
}

#[test]
fn copies_count_for_a_dead_letter_unless_the_queue_has_a_key_of_its_own() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "direct");
        for queue in ["by key", "by copy", "by own"] {
            near.declare(queue);
        }
        near.bind("by key", "dlx", "q");
        near.bind("by copy", "dlx", "copy");
        near.bind("by own", "dlx", "own");
        let headers = Table::new().with("CC", vec![Value::from("copy")]);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        near.declare_with("q", dead_to("dlx", None));
        far.publish_with("", "q", &properties, "x");
        reject_one(&far, "q");
        let message = near.get_no_ack("by copy").unwrap();
        assert!(message.header("CC").is_some());
        assert_eq!((near.purge("by key"), near.purge("by own")), (1, 0));
        near.delete("q");
        near.declare_with("q", dead_to("dlx", Some("own")));
        far.publish_with("", "q", &properties, "x");
        reject_one(&far, "q");
        let message = near.get_no_ack("by own").unwrap();
        assert_eq!(message.header("CC"), Some(&Value::Array(vec![Value::from("copy")])));
        assert_eq!((near.purge("by key"), near.purge("by copy")), (0, 0));
    });
}

#[test]
fn hidden_copies_count_for_every_death_and_nobody_sees_them() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "direct");
        near.declare_with("first", dead_to("dlx", None));
        near.declare_with("second", dead_to("dlx", None));
        near.declare("graves");
        near.bind("second", "dlx", "to second");
        near.bind("graves", "dlx", "second");
        let hidden = vec![Value::from("to second"), Value::from("second")];
        let headers = Table::new().with("BCC", hidden).with("CC", vec![Value::from("nowhere")]);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        far.publish_with("", "first", &properties, "x");
        // By a hidden key it is in the second queue, too.
        assert_eq!(near.purge("second"), 1);
        let message = near.get("first").unwrap();
        let headers = message.properties.headers.as_ref().unwrap();
        assert_eq!(*headers, Table::new().with("CC", vec![Value::from("nowhere")]));
        near.reject(message.tag, false);
        for queue in ["graves", "second"] {
            let message = near.get(queue).unwrap();
            assert_eq!(message.header("BCC"), None);
            assert_eq!(message.key, "first");
            let keys = vec![Value::from("first"), Value::from("nowhere")];
            assert_eq!(deaths(&message)[0].get("routing-keys"), Some(&Value::Array(keys)));
            near.reject(message.tag, false);
        }
        // It died there as well, and goes by the same keys again.
        let message = near.get_no_ack("graves").unwrap();
        assert_eq!((message.header("BCC"), deaths(&message).len()), (None, 2));
    });
}

#[test]
fn a_queue_that_gives_a_key_of_its_own_ends_all_others() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "direct");
        near.declare_with("first", dead_to("", Some("second")));
        near.declare_with("second", dead_to("dlx", None));
        near.declare("graves");
        near.bind("graves", "dlx", "second");
        near.declare("by copy");
        for key in ["copy", "hidden", "first"] {
            near.bind("by copy", "dlx", key);
        }
        let headers = Table::new()
            .with("CC", vec![Value::from("copy")])
            .with("BCC", vec![Value::from("hidden")]);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        far.publish_with("", "first", &properties, "x");
        for queue in ["first", "second"] {
            reject_one(&far, queue);
        }
        assert_eq!(near.purge("by copy"), 0);
        let message = near.get_no_ack("graves").unwrap();
        assert_eq!(message.header("CC"), Some(&Value::Array(vec![Value::from("copy")])));
        assert_eq!(message.header("BCC"), None);
        let keys = |death: &Table| death.get("routing-keys").cloned();
        let of = |keys: &[&str]| Some(Value::Array(keys.iter().map(|&key| key.into()).collect()));
        let deaths = deaths(&message);
        assert_eq!(keys(&deaths[0]), of(&["second"]));
        assert_eq!(keys(&deaths[1]), of(&["first", "copy"]));
    });
}

#[test]
fn without_the_exchange_a_dead_letter_is_dropped() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("missing", None));
        far.publish("", "q", "x");
        reject_one(&far, "q");
        let figures = stage.world.queue("q");
        assert_eq!((figures.ready, figures.unacked), (0, 0));
        assert!(far.is_open());
    });
}

#[test]
fn a_repeated_death_counts_up_and_moves_to_the_front() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        // From "work" to "wait", where it expires and returns to "work".
        near.declare_with("work", dead_to("", Some("wait")));
        near.declare_with("wait", dead_to("", Some("work")).with("x-message-ttl", 1_000));
        far.publish("", "work", "again and again");
        for round in 1..=5 {
            reject_one(&near, "work");
            stage.world.advance(1_000);
            let message = near.get("work").expect("it came back");
            let expected = [entry("wait", "expired", round), entry("work", "rejected", round)];
            assert_eq!(history(&message), expected);
            let headers = message.properties.headers.as_ref().unwrap();
            assert_eq!(text(headers, "x-first-death-queue"), "work");
            assert_eq!(text(headers, "x-first-death-reason"), "rejected");
            assert_eq!(text(headers, "x-last-death-queue"), "wait");
            near.reject(message.tag, true);
        }
    });
}

#[test]
fn the_same_queue_may_stand_there_with_two_reasons() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("back")).with("x-message-ttl", 1_000));
        near.declare_with("back", dead_to("", Some("q")));
        far.publish("", "q", "x");
        stage.world.advance(1_000);
        reject_one(&near, "back");
        reject_one(&near, "q");
        let message = near.get_no_ack("back").unwrap();
        let expected =
            [entry("q", "rejected", 1), entry("back", "rejected", 1), entry("q", "expired", 1)];
        assert_eq!(history(&message), expected);
    });
}

#[test]
fn expiry_does_not_go_round_in_circles() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("self", dead_to("", Some("self")).with("x-message-ttl", 10));
        near.declare_with("a", dead_to("", Some("b")).with("x-message-ttl", 10));
        near.declare_with("b", dead_to("", Some("a")).with("x-message-ttl", 10));
        far.publish("", "self", "x");
        far.publish("", "a", "x");
        stage.world.advance(15);
        assert_eq!(stage.world.queue("self").ready, 0);
        assert_eq!(stage.world.queue("b").ready, 1);
        stage.world.advance(1_000);
        for queue in ["a", "b", "self"] {
            assert_eq!(stage.world.queue(queue).ready, 0, "{queue}");
        }
    });
}

#[test]
fn a_length_limit_does_not_go_round_in_circles() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("q")).with("x-max-length", 2));
        far.publish_all("q", ["1", "2", "3"]);
        let kept: Vec<String> =
            core::iter::from_fn(|| near.get_no_ack("q")).map(|message| message.text()).collect();
        assert_eq!(kept, ["2", "3"]);
    });
}

#[test]
fn a_rejection_may_go_round_in_circles() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("q")));
        far.publish("", "q", "x");
        for round in 1..=10 {
            reject_one(&near, "q");
            let message = near.get("q").unwrap();
            assert_eq!(history(&message), [entry("q", "rejected", round)]);
            assert!(!message.redelivered);
            near.reject(message.tag, true);
        }
    });
}

#[test]
fn a_cycle_with_a_rejection_in_it_goes_on() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("a", dead_to("", Some("b")));
        near.declare_with("b", dead_to("", Some("a")).with("x-message-ttl", 10));
        far.publish("", "a", "x");
        for _ in 0..3 {
            reject_one(&near, "a");
            stage.world.advance(10);
            assert_eq!(stage.world.queue("a").ready, 1);
        }
    });
}

#[test]
fn a_history_made_up_by_the_publisher_does_not_count() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("graves")).with("x-message-ttl", 10));
        near.declare("graves");
        let forged = Table::new()
            .with("queue", "graves")
            .with("reason", "expired")
            .with("count", Value::I64(41));
        let headers = Table::new().with("x-death", vec![Value::Table(forged)]);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        far.publish_with("", "q", &properties, "x");
        stage.world.advance(10);
        let message = near.get_no_ack("graves").expect("no cycle is seen");
        assert_eq!(history(&message), [entry("q", "expired", 1)]);
    });
}

#[test]
fn a_republished_dead_letter_starts_a_new_history() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("graves")));
        near.declare("graves");
        far.publish("", "q", "x");
        for _ in 0..3 {
            reject_one(&near, "q");
            let message = near.get_no_ack("graves").unwrap();
            assert_eq!(history(&message), [entry("q", "rejected", 1)]);
            far.publish_with("", "q", &message.properties, &message.body);
        }
    });
}

#[test]
fn dead_letters_come_in_the_order_of_their_deaths() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("graves")));
        near.declare("graves");
        far.publish_all("q", (0..1_000).map(|index| index.to_string()));
        near.consume("q", "c");
        assert_eq!(near.deliveries().len(), 1_000);
        near.nack(0, true, false);
        let texts: Vec<String> = core::iter::from_fn(|| far.get_no_ack("graves"))
            .map(|message| message.text())
            .collect();
        assert_eq!(texts, (0..1_000).map(|index| index.to_string()).collect::<Vec<_>>());
    });
}

#[test]
fn a_backlog_that_expires_is_dead_lettered_whole_and_in_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("graves")).with("x-message-ttl", 10));
        far.declare("graves");
        far.publish_all("q", (0..3_000).map(|index| index.to_string()));
        stage.world.advance(10);
        assert_eq!(stage.world.queue("graves").ready, 3_000);
        far.consume_no_ack("graves", "c");
        let texts = far.bodies();
        assert_eq!(texts, (0..3_000).map(|index| index.to_string()).collect::<Vec<_>>());
    });
}

#[test]
fn letters_that_fill_the_mail_to_the_last_byte_do_not_hold_the_rest_up() {
    // Every letter is as much mail as may wait; behind the last of them the queue waits, too.
    let mut options = Options::default();
    options.limits.mail_batch_bytes_max = 100;
    everywhere_with(&options, |stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("graves")).with("x-message-ttl", 10));
        far.declare("graves");
        near.publish_all("q", (0..3_000).map(|index| format!("{index:200}")));
        stage.world.advance(10);
        assert_eq!(stage.world.queue("q").ready, 0);
        assert_eq!(stage.world.queue("graves").ready, 3_000);
    });
}

#[test]
fn a_dead_letter_may_go_to_several_queues_once_each() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "fanout");
        near.declare("one");
        far.declare("two");
        for queue in ["one", "two"] {
            near.bind(queue, "dlx", "");
            near.bind(queue, "dlx", "again");
        }
        near.declare_with("q", dead_to("dlx", None));
        far.publish("", "q", "x");
        reject_one(&far, "q");
        assert_eq!((near.purge("one"), near.purge("two")), (1, 1));
    });
}

#[test]
fn dead_letters_may_go_through_an_internal_exchange() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange_method(lepus_amqp::method::exchange::Declare {
            exchange: "inner",
            r#type: "fanout",
            internal: true,
            ..Default::default()
        });
        near.declare("graves");
        near.bind("graves", "inner", "");
        near.declare_with("q", dead_to("inner", None));
        far.publish("", "q", "x");
        reject_one(&far, "q");
        assert_eq!(near.purge("graves"), 1);
    });
}

#[test]
fn purged_and_deleted_messages_are_not_dead_lettered() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("graves");
        near.declare_with("q", dead_to("", Some("graves")));
        far.publish_all("q", ["1", "2"]);
        near.purge("q");
        far.publish("", "q", "3");
        near.delete("q");
        assert_eq!(stage.world.queue("graves").ready, 0);
    });
}

#[test]
fn a_dead_letters_own_ttl_starts_in_its_new_queue() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("graves")).with("x-message-ttl", 1_000));
        near.declare_with("graves", Table::new().with("x-message-ttl", 500));
        far.publish("", "q", "x");
        stage.world.advance(1_000);
        stage.world.advance(499);
        assert_eq!(stage.world.queue("graves").ready, 1);
        stage.world.advance(1);
        assert_eq!(stage.world.queue("graves").ready, 0);
    });
}

#[test]
fn persistence_and_priority_survive_death() {
    everywhere(|stage: &Stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", dead_to("", Some("graves")).with("x-max-priority", 5));
        near.declare_with("graves", Table::new().with("x-max-priority", 5));
        for priority in [1, 5, 3] {
            let properties = Properties {
                priority: Some(priority),
                delivery_mode: Some(2),
                ..Properties::default()
            };
            far.publish_with("", "q", &properties, priority.to_string());
        }
        near.consume("q", "c");
        near.nack(0, true, false);
        let messages: Vec<_> = core::iter::from_fn(|| near.get_no_ack("graves")).collect();
        let texts: Vec<String> = messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["5", "3", "1"]);
        assert!(messages.iter().all(|message| message.properties.delivery_mode == Some(2)));
    });
}

#[test]
fn dead_letters_that_go_to_many_queues_come_in_slices() {
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..600 {
        channel.declare(&format!("g{queue}"));
        channel.bind(&format!("g{queue}"), "amq.fanout", "");
    }
    let dead = Table::new().with("x-dead-letter-exchange", "amq.fanout");
    channel.declare_with("q", dead);
    channel.publish_all("q", (0..200).map(|number: u32| number.to_string()));
    channel.consume("q", "c");
    let last = channel.deliveries().pop().expect("messages").tag;
    world.quietly(|| channel.nack(last, true, false));
    let (mut before, mut most) = (world.counters().enqueued_local, 0);
    let mut is_busy = true;
    while is_busy {
        is_busy = world.round();
        let copies = world.counters().enqueued_local;
        most = most.max(copies - core::mem::replace(&mut before, copies));
    }
    assert!(most < 20_000, "{most} copies in one turn");
    assert_eq!(world.queue("g599").ready, 200);
}

#[test]
fn a_large_message_that_dies_again_and_again_leaves_others_their_turns() {
    const QUEUES: usize = 400;
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..QUEUES {
        let arguments = dead_to("", Some(&format!("q{}", queue + 1))).with("x-message-ttl", 0);
        channel.declare_with(&format!("q{queue}"), arguments);
    }
    channel.declare(&format!("q{QUEUES}"));
    let keys: Vec<Value> = (0..1_000).map(|key| format!("{key:40}").into()).collect();
    let headers = Some(Table::new().with("CC", keys));
    let properties = Properties { headers, ..Properties::default() };
    world.quietly(|| channel.publish_with("", "q0", &properties, "x"));
    let (mut before, mut most) = (0, 0);
    while world.round() {
        let deaths = world.counters().dead_lettered_expired;
        most = most.max(deaths - core::mem::replace(&mut before, deaths));
    }
    // Some tens of kilobytes are read and written anew with each death.
    assert!(most <= 32, "{most} deaths in one turn");
    let found = channel.get(&format!("q{QUEUES}")).expect("a message");
    let deaths = found.header("x-death").and_then(Value::as_array).expect("deaths");
    assert_eq!(deaths.len(), QUEUES);
}
