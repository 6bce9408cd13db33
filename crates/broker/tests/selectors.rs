//! Consumers with filters: a queue gives each what it wants, and keeps the rest.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_broker::Answer;
use lepus_sim::{Channel, World};

use crate::stage::{Ending, Stage, everywhere, on_disk};

fn filter(text: &str) -> Table {
    Table::new().with("x-filter", text)
}

fn publish(channel: &Channel, key: &str, kind: &str, body: &str) {
    let properties = Properties {
        message_type: Some(kind.to_owned()),
        delivery_mode: Some(2),
        ..Properties::default()
    };
    channel.publish_with("", key, &properties, body);
}

fn texts(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

#[test]
fn each_consumer_gets_what_its_filter_matches() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.consume_with("q", "gold", filter("p.type = 'gold'"));
        far.consume_with("q", "dear", filter("b.price > 100"));
        for (kind, price) in [("gold", 1), ("lead", 101), ("lead", 7), ("gold", 9), ("tin", 102)] {
            publish(&near, "q", kind, &format!("{{\"price\": {price}}}"));
        }
        stage.world.settle();
        assert_eq!(near.bodies(), ["{\"price\": 1}", "{\"price\": 9}"]);
        assert_eq!(far.bodies(), ["{\"price\": 101}", "{\"price\": 102}"]);
        let figures = stage.world.queue("q");
        assert_eq!((figures.ready, figures.unacked), (1, 4));
        // It waits for who wants it: one who comes, or who fetches.
        far.consume_with("q", "late", filter("b.price = 7"));
        stage.world.settle();
        assert_eq!(far.bodies(), ["{\"price\": 7}"]);
    });
}

#[test]
fn the_rest_waits_in_order_for_whoever_takes_all() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume_with("q", "none", filter("p.type = 'none'"));
        for number in 0..20 {
            publish(&near, "q", "some", &number.to_string());
        }
        stage.world.settle();
        assert_eq!(near.get_no_ack("q").map(|message| message.text()), Some("0".to_owned()));
        near.consume_no_ack("q", "all");
        stage.world.settle();
        let expected: Vec<String> = (1..20).map(|number| number.to_string()).collect();
        assert_eq!(near.bodies(), expected);
        far.expect_none();
        far.cancel("none");
        // It is an ordinary queue again.
        publish(&near, "q", "some", "after");
        stage.world.settle();
        assert_eq!(near.bodies(), ["after"]);
    });
}

#[test]
fn a_selector_without_credit_holds_nobody_up_and_misses_nothing() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.qos(1);
        far.consume_with("q", "slow", filter("p.type = 'a'"));
        near.consume_with("q", "fast", filter("p.type = 'b'"));
        let count = 3000;
        near.client().together(|| {
            for number in 0..count {
                publish(&near, "q", "a", &number.to_string());
            }
            publish(&near, "q", "b", "the last");
        });
        stage.world.settle();
        assert_eq!(near.bodies(), ["the last"]);
        for number in 0..count {
            let message = far.delivery();
            assert_eq!(message.text(), number.to_string());
            far.ack(message.tag);
            if number % 500 == 0 {
                stage.world.settle();
            }
        }
        far.expect_none();
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn a_selector_that_comes_late_finds_its_message_behind_many() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume_with("q", "never", filter("p.type = 'never'"));
        near.client().together(|| {
            for number in 0..5000 {
                publish(
                    &near,
                    "q",
                    if number == 4321 { "rare" } else { "usual" },
                    &number.to_string(),
                );
            }
        });
        stage.world.settle();
        near.consume_with("q", "rare", filter("p.type = 'rare'"));
        assert_eq!(near.delivery().text(), "4321");
        assert_eq!(stage.world.queue("q").ready, 4999);
        assert_eq!(near.purge("q"), 4999);
        publish(&near, "q", "never", "x");
        stage.world.settle();
        assert_eq!(far.bodies(), ["x"]);
    });
}

#[test]
fn what_comes_back_goes_to_whom_it_matches() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.qos(1);
        far.qos(1);
        near.consume_with("q", "a", filter("p.type LIKE 'a%'"));
        far.consume_with("q", "ab", filter("p.type = 'ab'"));
        for kind in ["ab", "ab", "ac"] {
            publish(&near, "q", kind, kind);
        }
        stage.world.settle();
        let (one, other) = (near.delivery(), far.delivery());
        near.reject(one.tag, true);
        stage.world.settle();
        let again = near.delivery();
        assert!(again.redelivered);
        near.ack(again.tag);
        far.ack(other.tag);
        stage.world.settle();
        assert_eq!(near.delivery().text(), "ac");
        far.expect_none();
    });
}

#[test]
fn what_is_passed_over_expires_and_is_dropped_like_the_rest() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("dead");
        let arguments = Table::new()
            .with("x-message-ttl", 1000)
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "dead");
        near.declare_with("q", arguments);
        far.consume_with("q", "none", filter("p.type = 'none'"));
        for number in 0..5 {
            publish(&near, "q", "some", &number.to_string());
        }
        stage.world.advance(500);
        publish(&near, "q", "some", "later");
        stage.world.advance(600);
        assert_eq!(texts(&near, "dead"), ["0", "1", "2", "3", "4"]);
        stage.world.advance(500);
        assert_eq!(texts(&near, "dead"), ["later"]);
        near.declare_with("short", Table::new().with("x-max-length", 3));
        far.consume_with("short", "short-none", filter("p.type = 'none'"));
        for number in 0..5 {
            publish(&near, "short", "some", &number.to_string());
        }
        stage.world.settle();
        assert_eq!(texts(&near, "short"), ["2", "3", "4"]);
    });
}

#[test]
fn priorities_of_messages_and_consumers_hold_for_filters() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-max-priority", 5));
        for (priority, text) in [(0, "low"), (5, "high"), (3, "middle")] {
            let properties = Properties {
                priority: Some(priority),
                message_type: Some("a".to_owned()),
                ..Properties::default()
            };
            near.publish_with("", "q", &properties, text);
        }
        let dear = filter("p.type = 'a'").with("x-priority", 10);
        far.qos(2);
        far.consume_with("q", "first", dear);
        near.consume_with("q", "second", filter("p.type IN ('a', 'b')"));
        stage.world.settle();
        let mut first = far.bodies();
        first.extend(near.bodies());
        first.sort_unstable();
        assert_eq!(first, ["high", "low", "middle"]);
        let properties = Properties { message_type: Some("a".to_owned()), ..Properties::default() };
        near.publish_with("", "q", &properties, "next");
        stage.world.settle();
        assert_eq!(near.bodies(), ["next"], "the first one has what it may have");
    });
}

#[test]
fn only_the_active_consumers_filter_counts() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-single-active-consumer", true));
        near.consume_with("q", "active", filter("p.type = 'a'"));
        far.consume_with("q", "waiting", filter("p.type = 'b'"));
        publish(&near, "q", "b", "b");
        publish(&near, "q", "a", "a");
        stage.world.settle();
        assert_eq!(near.bodies(), ["a"]);
        far.expect_none();
        near.cancel("active");
        stage.world.settle();
        assert_eq!(far.bodies(), ["b"]);
    });
}

#[test]
fn a_filter_that_is_none_is_refused_with_its_place() {
    everywhere(|stage| {
        let near = stage.near();
        near.declare("q");
        let arguments = filter("p.type =").to_bytes();
        let arguments = arguments.as_ref();
        let method = basic::Consume { queue: "q", arguments, ..Default::default() };
        let refused = near.refused(method);
        assert_eq!((refused.code, refused.hard), (ReplyCode::PRECONDITION_FAILED, false));
        assert!(refused.text.contains("invalid x-filter at character"), "{}", refused.text);
        let near = stage.near();
        for number in 0..63 {
            near.consume_with("q", &number.to_string(), filter(&format!("p.type = '{number}'")));
        }
        let more = filter("p.type = 'more'").to_bytes();
        let arguments = more.as_ref();
        let refused = near.refused(basic::Consume { queue: "q", arguments, ..Default::default() });
        assert!(refused.text.contains("63 different filters"), "{}", refused.text);
    });
}

#[test]
fn a_queue_with_filters_is_deleted_with_all_that_it_remembers() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume_with("q", "none", filter("p.type = 'none'"));
        near.client().together(|| {
            for number in 0..2000 {
                publish(&near, "q", "some", &number.to_string());
            }
        });
        stage.world.settle();
        assert_eq!(near.delete("q"), 2000);
        stage.world.settle();
        assert_eq!(far.cancelled(), ["none"]);
        near.declare("q");
        publish(&near, "q", "some", "x");
        stage.world.settle();
        assert_eq!(texts(&near, "q"), ["x"]);
    });
}

#[test]
fn what_was_passed_over_is_there_after_a_restart() {
    on_disk(|world: &World, ending: Ending| {
        let channel = world.connect(0).channel();
        let durable = true;
        channel.declare_method(queue::Declare { queue: "q", durable, ..Default::default() });
        channel.confirm_select();
        channel.consume_with("q", "gold", filter("p.type = 'gold'"));
        for number in 0..600 {
            let kind = if number % 100 == 7 { "gold" } else { "lead" };
            publish(&channel, "q", kind, &number.to_string());
        }
        world.settle();
        let gold = channel.deliveries();
        assert_eq!(gold.len(), 6);
        channel.ack_up_to(gold[3].tag);
        world.advance(1000);
        ending.now(world);
        let channel = world.connect(0).channel();
        channel.consume_with("q", "gold", filter("p.type = 'gold'"));
        world.settle();
        assert_eq!(channel.bodies(), ["407", "507"]);
        assert_eq!(texts(&channel, "q").len(), 594);
    });
}

#[test]
fn nobody_gets_what_has_expired_though_it_is_not_the_head() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("dead");
        let arguments = Table::new()
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "dead");
        near.declare_with("q", arguments);
        far.qos(1);
        far.consume_with("q", "a", filter("p.type = 'a'"));
        publish(&near, "q", "z", "for ever");
        publish(&near, "q", "a", "first");
        let short = Properties {
            message_type: Some("a".to_owned()),
            expiration: Some("500".to_owned()),
            delivery_mode: Some(2),
            ..Properties::default()
        };
        near.publish_with("", "q", &short, "short");
        publish(&near, "q", "a", "last");
        stage.world.advance(2000);
        let first = far.delivery();
        far.ack(first.tag);
        stage.world.settle();
        assert_eq!((first.text().as_str(), far.delivery().text().as_str()), ("first", "last"));
        assert_eq!(texts(&near, "dead"), ["short"]);
        assert_eq!(texts(&near, "q"), ["for ever"]);
    });
}

#[test]
fn a_filter_that_takes_too_much_is_not_what_others_miss() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.consume_with("q", "cheap", filter("p.type = 'a'"));
        far.consume_with("q", "dear", filter("ANY(b.s) REGEXP '(a|b)*c0(x|y)+$'"));
        let strings: Vec<String> = (0..300).map(|_| format!("\"{}\"", "ab".repeat(20))).collect();
        let body = format!("{{\"s\": [{}]}}", strings.join(","));
        publish(&near, "q", "a", &body);
        stage.world.settle();
        assert_eq!(near.bodies(), [body]);
        far.expect_none();
    });
}

#[test]
fn bodies_that_cannot_be_read_are_counted_where_consumers_ask_for_them() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.declare("other");
        near.consume_with("q", "cheap", filter("b.price < 5"));
        far.consume_with("q", "kind", filter("p.type = 'a'"));
        near.consume_with("other", "kind", filter("p.type = 'a'"));
        for body in ["{\"price\": 1}", "{\"price\":", "price"] {
            publish(&far, "q", "b", body);
            publish(&far, "other", "b", body);
        }
        stage.world.settle();
        assert_eq!(near.bodies(), ["{\"price\": 1}"]);
        assert_eq!(stage.world.counters().filter_bodies_unreadable, 1);
    });
}

#[test]
fn what_no_filter_matches_becomes_a_dead_letter_after_a_time() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("dead");
        let arguments = Table::new()
            .with("x-unmatched-after", 1000)
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "dead");
        near.declare_with("q", arguments);
        far.qos(1);
        far.consume_with("q", "a", filter("p.type = 'a'"));
        near.consume_with("q", "b", filter("p.type = 'b'"));
        // Many, so that most are known by their numbers alone where they lie in the log.
        for number in 0..600 {
            let kind = ["a", "z"][number % 2];
            publish(&near, "q", kind, &number.to_string());
        }
        stage.world.advance(900);
        assert_eq!(stage.world.queue("q").ready, 599);
        stage.world.advance(300);
        let expected: Vec<String> = (0..300).map(|number| (2 * number + 1).to_string()).collect();
        assert_eq!(texts(&near, "dead"), expected);
        // What somebody wants waits for ever, and time stands still while nobody is there.
        stage.world.advance(60_000);
        assert_eq!(stage.world.queue("q").ready, 299);
        near.cancel("b");
        publish(&near, "q", "z", "later");
        far.ack(far.delivery().tag);
        stage.world.settle();
        far.cancel("a");
        near.purge("q");
        publish(&near, "q", "z", "nobody is there");
        stage.world.advance(60_000);
        assert_eq!((stage.world.queue("q").ready, texts(&near, "dead").len()), (1, 0));
        near.consume_with("q", "b", filter("p.type = 'b'"));
        stage.world.advance(1100);
        let letters: Vec<_> = core::iter::from_fn(|| near.get_no_ack("dead")).collect();
        assert_eq!(letters.len(), 1);
        let reason = letters[0].header("x-first-death-reason");
        assert_eq!(reason.and_then(Value::as_text), Some("unmatched"));
    });
}

#[test]
fn without_a_dead_letter_exchange_what_no_filter_matches_is_gone() {
    everywhere(|stage| {
        let (near, _) = stage.pair();
        near.declare_with("q", Table::new().with("x-unmatched-after", 0));
        near.consume_with("q", "b", filter("p.type = 'b'"));
        for number in 0..300 {
            publish(&near, "q", if number == 77 { "b" } else { "z" }, &number.to_string());
        }
        stage.world.advance(50);
        assert_eq!(near.bodies(), ["77"]);
        let figures = stage.world.queue("q");
        assert_eq!((figures.ready, figures.unacked), (0, 1));
    });
}

#[test]
fn consumers_with_filters_of_one_connection_are_limited() {
    let limits = lepus_sim::Limits { connection_filters_max: 2, ..Default::default() };
    let world = World::with(lepus_sim::Options { limits, ..Default::default() });
    let (one, other) = (world.channel(0), world.channel(0));
    one.declare("q");
    let client = one.client();
    let second = client.channel();
    one.consume_with("q", "1", filter("p.type = 'a'"));
    second.consume_with("q", "2", filter("p.type = 'a'"));
    second.consume("q", "plain");
    let arguments = filter("p.type = 'b'").to_bytes();
    let consume = basic::Consume {
        queue: "q",
        consumer_tag: "3",
        arguments: arguments.as_ref(),
        ..Default::default()
    };
    let refused = second.refused(consume);
    assert_eq!((refused.code, refused.hard), (ReplyCode::PRECONDITION_FAILED, false));
    assert!(refused.text.contains("limits.connection_filters_max"), "{}", refused.text);
    // Its channel is closed, so that there is room again; others have their own.
    one.consume_with("q", "4", filter("p.type = 'c'"));
    one.cancel("1");
    one.consume_with("q", "5", filter("p.type = 'd'"));
    other.consume_with("q", "6", filter("p.type = 'e'"));
}

#[test]
fn the_log_is_told_of_a_filter_that_looks_at_many_for_few() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.consume_with("q", "rare", filter("p.type = 'rare'"));
        far.consume_with("q", "usual", filter("p.type = 'usual'"));
        let told = |stage: &Stage| {
            let events = stage.world.events();
            events.iter().filter(|event| event.kind == "filter-costs-much").count()
        };
        stage.world.advance(61_000);
        near.client().together(|| {
            for number in 0..1200 {
                publish(&near, "q", "usual", &number.to_string());
            }
        });
        stage.world.settle();
        let selectors = stage.world.selectors("q");
        let rows = |text: &str| {
            let row = selectors.iter().find(|row| row.filter.as_deref() == Some(text)).unwrap();
            (row.evaluations, row.deliveries, row.behind)
        };
        assert_eq!(rows("p.type = 'rare'"), (1200, 0, 0));
        assert_eq!(rows("p.type = 'usual'"), (1200, 1200, 0));
        stage.world.advance(61_000);
        assert_eq!(told(stage), 1);
        stage.world.advance(121_000);
        assert_eq!(told(stage), 0, "nothing was asked since");
    });
}

/// The warnings of filters that look at many for few since this was asked last.
fn costly_told(stage: &Stage) -> usize {
    stage.world.events().iter().filter(|event| event.kind == "filter-costs-much").count()
}

#[test]
fn the_log_is_told_of_a_consumer_after_the_first_minute_of_its_life_whenever_that_began() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume_with("q", "before", filter("p.type = 'usual'"));
        stage.world.advance(31_700);
        near.consume_with("q", "rare", filter("p.type = 'rare'"));
        near.client().together(|| {
            for number in 0..1200 {
                publish(&near, "q", "usual", &number.to_string());
            }
        });
        stage.world.advance(58_000);
        assert_eq!(costly_told(stage), 0);
        stage.world.advance(3_000);
        assert_eq!(costly_told(stage), 1);
    });
}

#[test]
fn what_a_filter_let_through_before_hides_no_minute_in_which_it_costs_much() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.consume_with("q", "rare", filter("p.type = 'rare'"));
        far.consume_with("q", "usual", filter("p.type = 'usual'"));
        for _ in 0..2 {
            stage.world.advance(70_000);
            for number in 0..10 {
                publish(&near, "q", "rare", &number.to_string());
            }
        }
        for _ in 0..62 {
            near.client().together(|| {
                for number in 0..30 {
                    publish(&near, "q", "usual", &number.to_string());
                }
            });
            stage.world.advance(1_000);
        }
        assert_eq!(costly_told(stage), 1);
    });
}

#[test]
fn the_log_is_not_told_of_a_consumer_that_waits_to_be_the_active_one() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-single-active-consumer", true));
        near.consume_with("q", "active", filter("p.type = 'usual'"));
        far.consume_with("q", "waits", filter("p.type = 'rare'"));
        near.client().together(|| {
            for number in 0..1200 {
                publish(&near, "q", "usual", &number.to_string());
            }
        });
        stage.world.advance(122_000);
        assert_eq!(costly_told(stage), 0);
    });
}

#[test]
fn the_log_is_told_of_each_queue_whose_filter_costs_much_in_its_turn() {
    let world = World::new(1);
    let channel = world.channel(0);
    let queues: Vec<String> = (0..7).map(|number| format!("queue-{number}")).collect();
    for queue in &queues {
        channel.declare(queue);
        channel.consume_with(queue, queue, filter("p.type = 'rare'"));
    }
    let mut told = vec![0; queues.len()];
    for minute in 1..=3 {
        for queue in &queues {
            channel.client().together(|| {
                for number in 0..1_100 {
                    publish(&channel, queue, "usual", &number.to_string());
                }
            });
        }
        world.advance(61_000);
        for event in world.events().iter().filter(|event| event.kind == "filter-costs-much") {
            let is_it = |queue: &String| event.text.contains(queue.as_str());
            told[queues.iter().position(is_it).unwrap()] += 1;
        }
        assert_eq!(told.iter().sum::<usize>(), 5 * minute, "{told:?}");
    }
    assert!(told.iter().all(|told| *told >= 2), "{told:?}");
}

/// Filters that take about as long as they may for a message whose body is [`dear_body`].
fn consume_dearly(channel: &Channel, queue: &str) {
    for number in 0..DEAR_FILTERS {
        let text = format!("b.text REGEXP 'x{number}[yz]*$'");
        channel.consume_with(queue, &format!("{queue}-{number}"), filter(&text));
    }
}

const DEAR_FILTERS: u64 = 20;

fn dear_body() -> String {
    format!("{{\"text\": \"{}\"}}", "x".repeat(1_000))
}

/// How many messages the filters of [`consume_dearly`] have looked at.
fn dearly_looked_at(answer: Answer) -> u64 {
    let Answer::Selectors(rows) = answer else { panic!("it was asked for selectors") };
    rows.iter().map(|row| row.evaluations).sum::<u64>() / DEAR_FILTERS
}

/// What filters take is not in proportion to a message's bytes. What a turn has no time for is looked at by those that follow,
/// whether messages come from clients of the shard or from other shards.
#[test]
fn a_turn_looks_at_no_more_messages_than_are_work_for_it() {
    const MESSAGES: u64 = 600;
    for publishing in [0, 1] {
        let world = World::new(2);
        let (home, publisher) = (world.channel(0), world.channel(publishing));
        home.declare("q");
        consume_dearly(&home, "q");
        let body = dear_body();
        world.quietly(|| {
            publisher.client().together(|| {
                for _ in 0..MESSAGES {
                    publish(&publisher, "q", "some", &body);
                }
            });
        });
        let (mut looked_at, mut most, mut turns) = (0, 0, 0);
        while looked_at < MESSAGES {
            let asked = world.begin_asking_selectors("q");
            world.skip(1);
            world.round();
            let now = dearly_looked_at(asked.try_recv().expect("it was asked"));
            most = most.max(now - looked_at);
            looked_at = now;
            turns += 1;
            assert!(turns < 10_000, "{looked_at} messages were looked at");
        }
        assert!(most <= 20, "{most} messages in one turn");
        world.settle();
        assert_eq!(world.queue("q").ready, MESSAGES);
    }
}

/// Those that take long read through what is there apart from others, which get on meanwhile; all get what they match.
#[test]
fn dear_filters_read_through_a_queue_apart_from_the_others() {
    everywhere(|stage| {
        const MESSAGES: u64 = 50;
        let (near, far) = stage.pair();
        near.declare("q");
        far.consume_with("q", "none", filter("p.type = 'never'"));
        let body = dear_body();
        near.client().together(|| {
            for number in 0..MESSAGES {
                let kind = if number == MESSAGES - 1 { "last" } else { "some" };
                publish(&near, "q", kind, &body);
            }
        });
        stage.world.settle();
        let rows = || {
            let asked = stage.world.begin_asking_selectors("q");
            stage.world.round();
            let Ok(Answer::Selectors(rows)) = asked.try_recv() else { panic!("it was asked") };
            rows
        };
        assert!(rows().iter().all(|row| !row.is_dear));
        consume_dearly(&far, "q");
        near.consume_with("q", "last", filter("p.type = 'last'"));
        assert_eq!(near.delivery().text(), body);
        stage.world.settle();
        let rows = rows();
        assert_eq!(rows.iter().filter(|row| row.is_dear).count() as u64, DEAR_FILTERS);
        for row in &rows {
            assert!(row.is_through && row.given_up == 0, "{row:?}");
            // Each looked at what was there, and no more than twice at the last one.
            let whole = MESSAGES - 1..=MESSAGES + u64::from(!row.is_dear);
            assert!(whole.contains(&row.evaluations), "{row:?}");
        }
        publish(&near, "q", "some", "{\"text\": \"x7y\"}");
        stage.world.settle();
        assert_eq!(far.bodies(), ["{\"text\": \"x7y\"}"]);
        assert_eq!(stage.world.queue("q").ready, MESSAGES - 1);
    });
}

/// A message goes to many queues at once; the filters of those that a turn has no time for come later.
#[test]
fn a_turn_lets_the_filters_of_few_queues_look_at_a_message() {
    const QUEUES: u64 = 40;
    let world = World::new(1);
    let channel = world.channel(0);
    let names: Vec<String> = (0..QUEUES).map(|number| format!("q{number}")).collect();
    for name in &names {
        channel.declare(name);
        channel.bind(name, "amq.fanout", "");
        consume_dearly(&channel, name);
        channel.consume_with(name, &format!("{name}-all"), filter("b.text IS NOT NULL"));
    }
    world.quietly(|| channel.publish("amq.fanout", "", dear_body()));
    let (mut before, mut most) = (0, 0);
    while before < QUEUES {
        world.skip(1);
        world.round();
        let now = names.iter().map(|name| world.queue(name).unacked).sum();
        most = most.max(now - core::mem::replace(&mut before, now));
    }
    assert!(most <= 10, "filters of {most} queues in one turn");
}
