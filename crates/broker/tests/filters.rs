//! Bindings with filters: a queue gets what they match, whatever way a message takes to the exchange.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_broker::{Answer, Query};
use lepus_sim::{Channel, Options, World};

use crate::stage::{Stage, everywhere, everywhere_with};

fn filter(text: &str) -> Table {
    Table::new().with("x-filter", text)
}

fn with(headers: Table) -> Properties {
    Properties { headers: Some(headers), ..Properties::default() }
}

fn texts(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

fn price(price: u32) -> String {
    format!("{{\"price\": {price}}}")
}

#[test]
fn a_queue_gets_what_its_filter_matches() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for (queue, text) in [("dear", "b.price >= 100"), ("cheap", "b.price < 100")] {
            near.declare(queue);
            near.bind_with(queue, "amq.topic", "stock.#", filter(text));
        }
        near.declare("all");
        near.bind("all", "amq.topic", "stock.#");
        // The same key over and over: what is remembered of its way must not be the whole way.
        far.client().together(|| {
            for number in [99, 100, 101, 5] {
                far.publish("amq.topic", "stock.x", price(number));
            }
        });
        far.publish("amq.topic", "bond.x", price(100));
        stage.world.settle();
        assert_eq!(texts(&near, "dear"), [price(100), price(101)]);
        assert_eq!(texts(&near, "cheap"), [price(99), price(5)]);
        assert_eq!(texts(&near, "all").len(), 4);
    });
}

#[test]
fn a_message_of_many_frames_is_read_as_a_whole() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.bind_with("q", "amq.fanout", "", filter("b.last = 'yes'"));
        let filler = "x".repeat(300_000);
        for last in ["no", "yes"] {
            far.publish("amq.fanout", "", format!("{{\"t\": \"{filler}\", \"last\": \"{last}\"}}"));
        }
        stage.world.settle();
        let found = texts(&near, "q");
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("\"yes\"}"));
    });
}

#[test]
fn what_nothing_matches_comes_back_to_who_asked() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "x-filter");
        near.declare("q");
        near.bind_with("q", "x", "", filter("b.price > 1"));
        far.confirm_select();
        far.publish_mandatory("x", "whatever", price(1));
        far.publish_mandatory("x", "whatever", price(2));
        stage.world.settle();
        assert_eq!(far.returns().len(), 1);
        assert_eq!(far.confirmed(), (vec![1, 2], vec![]));
        assert_eq!(texts(&near, "q"), [price(2)]);
    });
}

#[test]
fn a_transaction_goes_where_each_of_its_messages_matches() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.bind_with("q", "amq.direct", "k", filter("b.price % 2 = 0"));
        far.tx_select();
        for number in 0..6 {
            far.publish("amq.direct", "k", price(number));
        }
        far.tx_commit();
        stage.world.settle();
        assert_eq!(texts(&near, "q"), [price(0), price(2), price(4)]);
    });
}

#[test]
fn dead_letters_are_filtered_by_why_they_died() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dead", "x-filter");
        for reason in ["expired", "rejected"] {
            near.declare(reason);
            let text = format!("a.[x-first-death-reason] = '{reason}' AND b.n >= 0");
            near.bind_with(reason, "dead", "", filter(&text));
        }
        let arguments = Table::new().with("x-dead-letter-exchange", "dead");
        near.declare_with("q", arguments.with("x-message-ttl", 1_000i32));
        far.publish("", "q", "{\"n\": 1}");
        stage.world.settle();
        near.reject(near.get("q").unwrap().tag, false);
        far.publish("", "q", "{\"n\": 2}");
        far.publish("", "q", "{\"n\": -2}");
        stage.world.advance(1_000);
        stage.world.settle();
        assert_eq!(texts(&near, "rejected"), ["{\"n\": 1}"]);
        assert_eq!(texts(&near, "expired"), ["{\"n\": 2}"]);
    });
}

#[test]
fn a_delayed_message_is_asked_when_its_time_has_come() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        let arguments = Table::new().with("x-delayed-type", "x-filter");
        near.exchange_with("x", "x-delayed-message", arguments);
        let delayed = |land: &str| with(Table::new().with("x-delay", 1_000i32).with("land", land));
        far.publish_with("x", "", &delayed("UK"), "1");
        far.publish_with("x", "", &delayed("FR"), "2");
        near.declare("q");
        near.bind_with("q", "x", "", filter("land = 'FR'"));
        stage.world.advance(1_000);
        stage.world.settle();
        assert_eq!(texts(&near, "q"), ["2"]);
    });
}

#[test]
fn a_filter_that_is_none_closes_the_channel_with_its_place() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let arguments = filter("b.price >").to_bytes();
        let bind = queue::Bind {
            queue: "q",
            exchange: "amq.fanout",
            arguments: arguments.as_ref(),
            ..Default::default()
        };
        let refused = near.refused(bind);
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
        assert_eq!(
            refused.text,
            "PRECONDITION_FAILED - invalid x-filter at character 10: expected a value after '>'"
        );
        far.publish("amq.fanout", "", "1");
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

/// Filters that are refused, most of them with an error that quotes the `4111` in them.
const SECRETS: [&str; 10] = [
    "card = '4111' = 1",
    "card = '4111' b.x",
    "p.card4111 = 1",
    "card4111.number = 1",
    "CARD4111(x) = 1",
    "card = 4111_1111",
    "card = 1e4111",
    "card REGEXP '[4111'",
    "b.card4111. = 1",
    "card4111[0] = 1",
];

#[test]
fn the_log_has_nothing_of_a_filter_that_is_refused() {
    everywhere(|stage| {
        for (name, text) in ["x-filter", "x-filter-jms-selector"]
            .into_iter()
            .flat_map(|name| SECRETS.map(|text| (name, text)))
        {
            let arguments = Table::new().with(name, text).to_bytes();
            let arguments = arguments.as_ref();
            let (queue, exchange) = ("q", "amq.fanout");
            let near = stage.near();
            near.declare(queue);
            let _ = stage.world.events();
            for place in [Stage::near, Stage::far] {
                let bind = queue::Bind { queue, exchange, arguments, ..Default::default() };
                let between = exchange::Bind {
                    destination: "amq.topic",
                    source: exchange,
                    arguments,
                    ..Default::default()
                };
                let consume = basic::Consume { queue, arguments, ..Default::default() };
                let refused = [
                    place(stage).refused(bind),
                    place(stage).refused(between),
                    place(stage).refused(consume),
                ];
                for refused in refused {
                    let told = &refused.text;
                    assert!(told.contains(": "), "{text}: {told}");
                }
            }
            let lines = stage.world.events();
            let lines = lines.iter().filter(|line| line.kind == "channel-error");
            let start = format!("PRECONDITION_FAILED - invalid {name} at character ");
            let count = lines
                .inspect(|line| {
                    assert!(line.text.contains(&start), "{text}: {}", line.text);
                    let (_, place) = line.text.split_once(&start).unwrap();
                    assert!(!place.contains("4111"), "{text}: {}", line.text);
                })
                .count();
            assert_eq!(count, 6, "{text}");
        }
    });
}

#[test]
fn filters_are_there_again_after_a_restart() {
    let world = World::on_disk(2);
    let channel = world.channel(1);
    let declare = exchange::Declare {
        exchange: "x",
        r#type: "x-filter",
        durable: true,
        ..Default::default()
    };
    channel.exchange_method(declare);
    channel.declare_method(queue::Declare { queue: "q", durable: true, ..Default::default() });
    channel.bind_with("q", "x", "", filter("b.price IN (1, 3)"));
    world.settle();
    world.kill();
    world.start_again(3);
    let channel = world.channel(2);
    for number in 0..5 {
        channel.publish("x", "", price(number));
    }
    world.settle();
    assert_eq!(texts(&channel, "q"), [price(1), price(3)]);
}

#[test]
fn filters_that_take_too_much_take_nothing_else_along() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("plain");
        near.bind("plain", "amq.topic", "#");
        near.declare("filtered");
        for number in 0..20 {
            let text = format!("b.text REGEXP '(a?){{300}}{number}'");
            near.bind_with("filtered", "amq.topic", "#", filter(&text));
        }
        let arguments = Table::new()
            .with("x-dead-letter-exchange", "amq.topic")
            .with("x-message-ttl", 1_000i32);
        near.declare_with("source", arguments);
        let body = format!("{{\"text\": \"{}\"}}", "a".repeat(500_000));
        far.confirm_select();
        far.publish("amq.topic", "k", body.as_str());
        far.publish("", "source", body.as_str());
        stage.world.settle();
        stage.world.advance(1_000);
        stage.world.settle();
        assert_eq!(far.confirmed(), (vec![1, 2], vec![]));
        assert_eq!(texts(&near, "plain").len(), 2);
        assert_eq!(texts(&near, "filtered").len(), 0);
        let events = stage.world.events();
        assert!(events.iter().any(|event| event.kind == "filters-too-long"));
    });
}

#[test]
fn bodies_that_cannot_be_read_are_counted_where_filters_ask_for_them() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.bind_with("q", "amq.topic", "#", filter("b.price > 1 OR land = 'UK'"));
        let uk = Table::new().with("land", "UK");
        let encoded = Properties { content_encoding: Some("gzip".into()), ..with(uk.clone()) };
        let json = Properties { content_type: Some("application/json".into()), ..with(uk.clone()) };
        for (properties, body) in [
            (&with(uk), price(1).as_str()),
            (&json, "{\"price\":"),
            (&encoded, "\u{1f}"),
            (&json, " ".repeat((1 << 20) + 1).as_str()),
        ] {
            far.publish_with("amq.topic", "k", properties, body);
        }
        stage.world.settle();
        // They go on by their headers.
        assert_eq!(stage.world.queue("q").ready, 4);
        assert_eq!(stage.world.counters().filter_bodies_unreadable, 3);
        // To the exchange of dead letters as well, where they are asked for.
        let arguments = Table::new()
            .with("x-dead-letter-exchange", "amq.topic")
            .with("x-message-ttl", 1_000i32);
        near.declare_with("source", arguments);
        far.publish("", "source", "{");
        far.publish("amq.fanout", "", "{");
        stage.world.settle();
        assert_eq!(stage.world.counters().filter_bodies_unreadable, 3);
        stage.world.advance(1_000);
        stage.world.settle();
        assert_eq!(stage.world.counters().filter_bodies_unreadable, 4);
    });
}

/// Wherever messages are published and bindings made: the shard that decides hears what filters take on others.
#[test]
fn where_filters_take_much_further_ones_have_to_be_looked_up() {
    let mut options = Options::default();
    options.limits.capacity.exchange_filter_steps_max = 100;
    everywhere_with(&options, |stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let unanchored = |number: usize| filter(&format!("LENGTH(b.text) = {number}"));
        for number in 0..200 {
            near.bind_with("q", "amq.topic", "#", unanchored(number));
        }
        let publish = || {
            for _ in 0..600 {
                far.publish("amq.topic", "k", "{\"text\": \"\", \"a\": 1}");
            }
            stage.world.settle();
        };
        publish();
        let refused = |arguments: Table| {
            let channel = near.client().channel();
            let arguments = arguments.to_bytes();
            let bind = queue::Bind {
                queue: "q",
                exchange: "amq.topic",
                routing_key: "#",
                arguments: arguments.as_ref(),
                ..Default::default()
            };
            channel.refused(bind)
        };
        let answer = refused(unanchored(200));
        assert_eq!(answer.code, ReplyCode::PRECONDITION_FAILED);
        assert!(answer.text.contains("only such are taken as can be looked up"), "{}", answer.text);
        assert!(stage.world.events().iter().any(|event| event.kind == "filters-cost-much"));
        // What is there is there, and what is looked up may come.
        near.bind_with("q", "amq.topic", "#", unanchored(7));
        near.bind_with("q", "amq.topic", "#", filter("b.a = 1"));
        let vhost = stage.world.broker(0, |broker| broker.directory.vhost("/")).unwrap();
        let name = (vhost, "amq.topic".into());
        let (mut samples, mut refuses) = (0, false);
        for shard in 0..stage.world.shards() {
            match stage.world.ask(shard, Query::FilterFigures(vec![name.clone()])) {
                Answer::FilterFigures(rows) => {
                    let row = &rows[0];
                    let figures = row.figures;
                    let counts = (figures.bindings, figures.looked_up, figures.evaluated);
                    assert_eq!(counts, (201, 1, 200));
                    assert!(row.samples == 0 || row.matching_steps > 100);
                    samples += row.samples;
                    refuses |= figures.refuses;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((20..60).contains(&samples) && refuses, "{samples} of 600");
        // With most of them gone the others take little, as the shard sees by and by.
        for number in 0..195 {
            let arguments = unanchored(number).to_bytes();
            let (queue, exchange, routing_key) = ("q", "amq.topic", "#");
            let arguments = arguments.as_ref();
            near.call(queue::Unbind { queue, exchange, routing_key, arguments });
        }
        publish();
        publish();
        near.bind_with("q", "amq.topic", "#", unanchored(200));
    });
}
