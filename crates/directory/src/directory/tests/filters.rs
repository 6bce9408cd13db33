//! Bindings with filters.

use super::*;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use lepus_amqp::table::Value;
use lepus_filter::{Filter, FilterSet, Limits, Meta, Scratch, SetLimits};

fn filter(text: &str) -> Table {
    Table::new().with("x-filter", text)
}

fn refused(fixture: &mut Fixture, request: &Request) -> String {
    match fixture.ask(request) {
        Err((RefusalKind::PreconditionFailed, text)) => text,
        other => panic!("{request:?} is answered with {other:?}"),
    }
}

#[test]
fn a_binding_takes_what_its_filter_matches() {
    let mut fixture = Fixture::new();
    for (kind, key) in [
        ("fanout", ""),
        ("direct", "k"),
        ("topic", "#"),
        ("headers", ""),
        ("x-filter", ""),
        ("x-modulus-hash", ""),
        ("x-random", ""),
        ("x-local-random", ""),
        ("x-consistent-hash", "1"),
    ] {
        let exchange = &format!("x {kind}");
        fixture.exchange(exchange, kind);
        let queue = &format!("q {kind}");
        fixture.queue(queue);
        fixture.does(&bind_with(exchange, queue, key, filter("b.price > 100 AND land = 'UK'")));
        let uk = Table::new().with("land", "UK");
        let reached = |fixture: &mut Fixture, headers: &Table, body: &[u8]| {
            let found = fixture.reached_by(exchange, "k", headers, body);
            // What it says of one message it does not say of the next.
            assert!(!fixture.routes.is_cacheable(), "{kind}");
            found
        };
        assert_eq!(reached(&mut fixture, &uk, br#"{"price": 101}"#), [queue.as_str()], "{kind}");
        for body in [&br#"{"price": 100}"#[..], b"", b"price: 101", b"{"] {
            assert_eq!(reached(&mut fixture, &uk, body), [""; 0], "{kind}");
        }
        assert_eq!(reached(&mut fixture, &Table::new(), br#"{"price": 101}"#), [""; 0], "{kind}");
    }
}

#[test]
fn the_key_is_looked_at_first() {
    let mut fixture = Fixture::new();
    for name in ["a", "b", "plain"] {
        fixture.queue(name);
    }
    fixture.does(&bind_with("amq.direct", "a", "k", filter("m.routing_key = 'k'")));
    fixture.does(&bind_with("amq.direct", "b", "l", filter("m.exchange = 'amq.direct'")));
    fixture.bind("amq.direct", "plain", "k");
    fixture.bind("amq.direct", "plain", "m");
    assert_eq!(fixture.reached("amq.direct", "k"), ["a", "plain"]);
    assert_eq!(fixture.reached("amq.direct", "l"), ["b"]);
    // No binding with a filter is met: what was found holds for the key.
    assert_eq!(fixture.reached("amq.direct", "m"), ["plain"]);
    assert!(fixture.routes.is_cacheable());
}

#[test]
fn what_no_filter_matches_goes_to_the_alternate_exchange() {
    let mut fixture = Fixture::new();
    let mut request = declare_exchange("x", "fanout");
    if let Request::DeclareExchange { arguments, .. } = &mut request {
        *arguments = Table::new().with("alternate-exchange", "amq.fanout");
    }
    fixture.does(&request);
    for name in ["big", "rest"] {
        fixture.queue(name);
    }
    fixture.does(&bind_with("x", "big", "", filter("m.size > 3")));
    fixture.bind("amq.fanout", "rest", "");
    let none = Table::new();
    assert_eq!(fixture.reached_by("x", "", &none, b"1234"), ["big"]);
    assert_eq!(fixture.reached_by("x", "", &none, b"123"), ["rest"]);
}

#[test]
fn exchanges_are_bound_to_exchanges_with_filters() {
    let mut fixture = Fixture::new();
    fixture.exchange("x", "x-filter");
    fixture.queue("q");
    fixture.does(&bind_with("x", "amq.fanout", "", filter("a IN (1, 2)")));
    fixture.does(&bind_with("amq.fanout", "q", "", filter("m.exchange = 'x'")));
    assert_eq!(fixture.reached_with("x", "", &Table::new().with("a", 2i32)), ["q"]);
    assert_eq!(fixture.reached_with("x", "", &Table::new().with("a", 3i32)), [""; 0]);
    // The exchange is the one that the message was published to.
    assert_eq!(fixture.reached("amq.fanout", ""), [""; 0]);
}

#[test]
fn filters_tell_bindings_apart_and_go_with_them() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let (one, two) = (filter("a = 1"), filter("a = 2"));
    for _ in 0..2 {
        let _ = fixture.ask(&bind_with("amq.topic", "q", "#", one.clone()));
    }
    fixture.does(&bind_with("amq.topic", "q", "#", two.clone()));
    assert_eq!(fixture.directory.binding_count(), 2);
    let with = |value: i32| Table::new().with("a", value);
    assert_eq!(fixture.reached_with("amq.topic", "", &with(1)), ["q"]);
    fixture.does(&unbind_with("amq.topic", "q", "#", one));
    assert_eq!(fixture.reached_with("amq.topic", "", &with(1)), [""; 0]);
    assert_eq!(fixture.reached_with("amq.topic", "", &with(2)), ["q"]);
    fixture.does(&unbind_with("amq.topic", "q", "#", two));
    assert_eq!(fixture.reached_with("amq.topic", "", &with(2)), [""; 0]);
    fixture.bind("amq.topic", "q", "#");
    assert_eq!(fixture.reached("amq.topic", ""), ["q"]);
    assert!(fixture.routes.is_cacheable());
}

#[test]
fn a_headers_exchange_does_not_take_a_filter_for_a_header() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    for mode in ["all", "any", "all-with-x", "any-with-x"] {
        let arguments = filter("b = 2").with("x-match", mode).with("x-a", 1i32).with("c", 3i32);
        fixture.does(&bind_with("amq.headers", "q", "", arguments));
    }
    let headers = Table::new().with("x-a", 1i32).with("c", 3i32);
    assert_eq!(fixture.reached_with("amq.headers", "", &headers), [""; 0]);
    assert_eq!(fixture.reached_with("amq.headers", "", &headers.with("b", 2i32)), ["q"]);
}

#[test]
fn what_a_log_may_have_of_a_refused_filter_is_its_place() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    for (name, text, place) in [
        ("x-filter", "card = '4111' = 1", 15),
        ("x-filter-jms-selector", "p.card4111 = 1", 1),
        ("x-filter", "card = 4111_1111", 8),
        ("x-filter", "CARD4111(x) = 1", 1),
    ] {
        let bind = bind_with("amq.topic", "q", "#", Table::new().with(name, text));
        let refusal = fixture.directory.check(&bind).unwrap_err();
        assert!(refusal.reply().contains("4111"), "{}", refusal.reply());
        let logged = format!("invalid {name} at character {place} (more is not for logs)");
        assert_eq!(refusal.to_string(), logged);
    }
}

#[test]
fn what_is_no_filter_is_refused_with_its_place() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let mut bind = |arguments| refused(&mut fixture, &bind_with("amq.topic", "q", "#", arguments));
    assert_eq!(
        bind(filter("b.price > 100 AND ")),
        "invalid x-filter at character 19: expected a value after 'AND'"
    );
    let selector = Table::new().with("x-filter-jms-selector", "a = \"b\"");
    let text = bind(selector.clone());
    assert!(
        text.starts_with("invalid x-filter-jms-selector at character 5: write 'text'"),
        "{text}"
    );
    assert_eq!(
        bind(selector.with("x-filter", "a = 1")),
        "x-filter and x-filter-jms-selector mean the same: give one of them"
    );
    assert_eq!(bind(Table::new().with("x-filter", 1i32)), "invalid x-filter: a filter is a string");
    for name in ["x-filter", "x-filter-jms-selector"] {
        let text = Value::LongString(b"a = '\xc3\xbc\xfc'".to_vec());
        assert_eq!(
            bind(Table::new().with(name, text)),
            format!("invalid {name} at character 7: it is not UTF-8")
        );
    }
    assert_eq!(
        bind(filter("a = 1").with("x-filter-format", "xml")),
        "invalid x-filter-format: it is auto, json, fix, nvfix or none"
    );
    fixture.exchange("x", "x-filter");
    assert_eq!(
        refused(&mut fixture, &super::bind("x", "q", "")),
        "a binding of an exchange of type 'x-filter' needs x-filter"
    );
}

#[test]
fn an_empty_selector_is_none_and_formats_are_read_as_told() {
    let mut fixture = Fixture::new();
    fixture.queue("all");
    fixture.queue("fix");
    let selector = Table::new().with("x-filter-jms-selector", "");
    fixture.does(&bind_with("amq.fanout", "all", "", selector));
    let fix = filter("b.55 = 'MSFT'").with("x-filter-format", "fix");
    fixture.does(&bind_with("amq.fanout", "fix", "", fix));
    let none = Table::new();
    assert_eq!(fixture.reached_by("amq.fanout", "", &none, b"35=D\x0155=MSFT\x01"), ["all", "fix"]);
    assert_eq!(fixture.reached_by("amq.fanout", "", &none, br#"{"55": "MSFT"}"#), ["all"]);
}

#[test]
fn there_are_so_many_filters_and_no_more() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.directory.set_capacity(Capacity {
        exchange_filters_max: 2,
        vhost_filters_max: 3,
        ..Capacity::default()
    });
    let text = |number: i32| filter(&format!("a = {number}"));
    for number in 0..2 {
        fixture.does(&bind_with("amq.topic", "q", "#", text(number)));
    }
    assert_eq!(
        refused(&mut fixture, &bind_with("amq.topic", "q", "#", text(2))),
        "cannot bind to exchange 'amq.topic': 2 of its bindings have a filter"
    );
    fixture.bind("amq.topic", "q", "#");
    fixture.does(&bind_with("amq.fanout", "q", "", text(0)));
    assert_eq!(
        refused(&mut fixture, &bind_with("amq.fanout", "q", "", text(1))),
        "cannot bind to exchange 'amq.fanout': 3 bindings in vhost '/' have a filter"
    );
    fixture.does(&unbind_with("amq.topic", "q", "#", text(0)));
    fixture.does(&bind_with("amq.fanout", "q", "", text(1)));
}

#[test]
fn filters_that_take_too_much_match_nothing_and_take_nothing_along() {
    let mut fixture = Fixture::new();
    for queue in ["filtered", "plain", "other"] {
        fixture.queue(queue);
    }
    for number in 0..5 {
        let text = format!("b.text REGEXP '(a?){{300}}{number}'");
        fixture.does(&bind_with("amq.topic", "filtered", "#", filter(&text)));
    }
    fixture.bind("amq.topic", "plain", "#");
    // Those that read bodies in another way are asked by themselves.
    let other = filter("m.size > 0").with("x-filter-format", "none");
    fixture.does(&bind_with("amq.topic", "other", "#", other));
    let body = |length: usize| format!("{{\"text\": \"{}\"}}", "a".repeat(length)).into_bytes();
    let none = Table::new();
    // Each of the filters would take seconds: none is asked.
    fixture.routes = Routes::new(2_000_000);
    assert_eq!(fixture.reached_by("amq.topic", "k", &none, &body(900_000)), ["other", "plain"]);
    assert_eq!(fixture.routes.take_filters_given_up(), 1);
    assert!(fixture.routes.steps() < 1_000_000, "{}", fixture.routes.steps());
    // The next message is not the poorer for it.
    fixture.does(&bind_with("amq.topic", "filtered", "#", filter("b.text = 'aaa'")));
    let found = fixture.reached_by("amq.topic", "k", &none, &body(3));
    assert_eq!(found, ["filtered", "other", "plain"]);
    assert_eq!(fixture.routes.take_filters_given_up(), 0);
}

#[test]
fn bodies_that_filters_ask_for_and_cannot_read_are_counted() {
    let mut fixture = Fixture::new();
    for queue in ["a", "b", "c"] {
        fixture.queue(queue);
    }
    fixture.does(&bind_with("amq.topic", "a", "#", filter("b.x = 1 OR land = 'UK'")));
    // Two ways to read bodies, of which neither can.
    let fix = filter("b.55 = 'IBM'").with("x-filter-format", "nvfix");
    fixture.does(&bind_with("amq.topic", "b", "#", fix));
    fixture.does(&bind_with("amq.fanout", "c", "", filter("land = 'UK'")));
    fixture.does(&bind_with("amq.direct", "c", "k", filter("b.x = 1")));
    let uk = Table::new().with("land", "UK");
    let long = format!("{{\"x\": \"{}\"}}", " ".repeat(1 << 20)).into_bytes();
    let mut counted = |exchange: &str, key: &str, body: &[u8]| {
        let found = fixture.reached_by(exchange, key, &uk, body);
        let _ = fixture.routes.take_filter_samples().count();
        let has_notes = fixture.routes.has_filter_notes();
        let counted = fixture.routes.take_bodies_unreadable();
        assert_eq!(has_notes, counted > 0);
        assert!(!fixture.routes.has_filter_notes());
        (found.concat(), counted)
    };
    for (body, counts) in
        [(&b"{\"x\": 1}"[..], 0), (b"some text", 0), (b"{\"x\": 1", 1), (&long, 1)]
    {
        assert_eq!(counted("amq.topic", "k", body), ("a".into(), counts));
    }
    // Nobody asks for the body.
    assert_eq!(counted("amq.fanout", "k", b"{"), ("c".into(), 0));
    assert_eq!(counted("amq.direct", "k", b"{"), ("".into(), 1));
}

#[test]
fn a_binding_that_is_there_is_found_before_its_filter_is_read() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let request = bind_with("amq.topic", "q", "#", filter("a = 1"));
    fixture.does(&request);
    assert_eq!(fixture.directory.check(&request), Ok(Checked::Already(None)));
}

#[test]
fn what_a_filter_takes_is_effort_whether_it_is_taken_or_refused() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let effort = |text: &str| {
        let request = bind_with("amq.topic", "q", "#", filter(text));
        match fixture.directory.check(&request) {
            Ok(Checked::Change(change)) => fixture.directory.effort(&change),
            Err(_) => fixture.directory.refusal_effort(&request),
            already => panic!("{already:?}"),
        }
    };
    assert!((2..16).contains(&effort("a = 1")));
    assert!(effort("a REGEXP '\\w+'") > 200);
    assert!(effort(&format!("a = '{}'", "x".repeat(10_000))) > 150);
    assert!(effort(&format!("a = '{}' ?", "x".repeat(10_000))) > 2_000);
    let plain = super::bind("amq.topic", "q", "#");
    let Ok(Checked::Change(change)) = fixture.directory.check(&plain) else { panic!() };
    assert_eq!(fixture.directory.effort(&change), 1);
}

#[test]
fn filters_that_go_count_for_their_slice() {
    let deleted_in = |filtered: bool| {
        let mut fixture = Fixture::new();
        fixture.exchange("x", "topic");
        fixture.queue("q");
        for number in 0..50 {
            let arguments = if filtered { filter(&format!("a = {number}")) } else { Table::new() };
            fixture.does(&bind_with("x", "q", &format!("k{number}"), arguments));
        }
        let vhost = fixture.vhost();
        let change = Change::ExchangeDeleted { vhost, name: "x".into() };
        let effort = fixture.directory.effort(&change);
        let mut slices = 0;
        let applied = fixture.directory.apply(&change);
        while fixture.directory.clearing() > 0 {
            fixture.directory.apply(&Change::Cleared);
            slices += 1;
        }
        (applied.goes_in_slices, slices, effort)
    };
    assert_eq!(deleted_in(false), (false, 0, 51));
    let (goes_in_slices, slices, _) = deleted_in(true);
    assert!(goes_in_slices && slices >= 6, "{slices}");
}

#[test]
fn filters_of_an_exchange_have_so_many_fields_and_bytes() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.directory.set_capacity(Capacity {
        exchange_filter_fields_max: 5,
        exchange_filter_bytes_max: 400_000,
        ..Capacity::default()
    });
    fixture.does(&bind_with("amq.topic", "q", "#", filter("a = 1 AND b.x = 2 AND b.y = 3")));
    assert_eq!(
        refused(&mut fixture, &bind_with("amq.topic", "q", "#", filter("c = 1 OR d = 1 OR e = 1"))),
        "cannot bind to exchange 'amq.topic': its filters would have more than 5 fields in all filters"
    );
    fixture.does(&bind_with("amq.topic", "q", "#", filter("a = 1 OR c = 1 OR d = 1")));
    let long = |from: usize| {
        let values: Vec<String> = (from..from + 2000).map(|number| format!("{number}")).collect();
        filter(&format!("a IN ({})", values.join(",")))
    };
    let before = fixture.directory.bytes();
    let mut taken = 0;
    let text = loop {
        match fixture.ask(&bind_with("amq.topic", "q", "#", long(10_000 * taken))) {
            Ok(_) => taken += 1,
            Err((_, text)) => break text,
        }
    };
    assert_eq!(
        text,
        "cannot bind to exchange 'amq.topic': its filters would have more than 400000 bytes for all filters"
    );
    // What they take is counted as what the directory takes, and no more once they are gone.
    assert!((2..12).contains(&taken), "{taken}");
    assert!(fixture.directory.bytes() - before > taken * 30_000);
    for number in 0..taken {
        fixture.does(&unbind_with("amq.topic", "q", "#", long(10_000 * number)));
    }
    for text in ["a = 1 AND b.x = 2 AND b.y = 3", "a = 1 OR c = 1 OR d = 1"] {
        fixture.does(&unbind_with("amq.topic", "q", "#", filter(text)));
    }
    assert!(fixture.directory.bytes() < before);
}

/// Filters come and go at random; a message reaches what each filter alone says.
#[test]
fn they_say_together_what_each_says_alone() {
    let mut fixture = Fixture::new();
    let mut rng = Rng::new(7);
    fixture.exchange("x filter", "x-filter");
    for number in 0..8 {
        fixture.queue(&format!("q{number}"));
    }
    let places =
        [("x filter", ""), ("amq.fanout", ""), ("amq.topic", "k.*"), ("amq.direct", "k.1")];
    let mut bound: Vec<(usize, String, String)> = Vec::new();
    for round in 0..600 {
        let (queue, place) = (format!("q{}", rng.below(8)), rng.below(4) as usize);
        let text = match rng.below(4) {
            0 => format!("a = {}", rng.below(4)),
            1 => format!("a > {} AND b.x < {}", rng.below(4), rng.below(9)),
            2 => format!("b.x BETWEEN {} AND {} OR a = 3", rng.below(5), rng.below(9)),
            _ => format!("a + b.x = {}", rng.below(9)),
        };
        let (exchange, key) = places[place];
        let entry = (place, queue.clone(), text.clone());
        match bound.iter().position(|other| *other == entry) {
            Some(at) => {
                bound.swap_remove(at);
                fixture.does(&unbind_with(exchange, &queue, key, filter(&text)));
            }
            None => {
                fixture.does(&bind_with(exchange, &queue, key, filter(&text)));
                bound.push(entry);
            }
        }
        if bound.len() > 60 {
            let (place, queue, text) = bound.swap_remove(rng.below(60) as usize);
            let (exchange, key) = places[place];
            fixture.does(&unbind_with(exchange, &queue, key, filter(&text)));
        }
        if rng.below(3) == 0 {
            fixture.directory.tidy_filters(50);
        }
        let headers = Table::new().with("a", rng.below(5) as i32);
        let body = format!("{{\"x\": {}}}", rng.below(9));
        let place = round % 4;
        let found = fixture.reached_by(places[place].0, "k.1", &headers, body.as_bytes());
        let mut wanted: Vec<String> = bound
            .iter()
            .filter(|(other, _, text)| *other == place && is_true(text, &headers, &body))
            .map(|(_, queue, _)| queue.clone())
            .collect();
        wanted.sort();
        wanted.dedup();
        assert_eq!(found, wanted, "round {round}");
    }
    while fixture.directory.has_untidy_filters() {
        fixture.directory.tidy_filters(1_000);
    }
}

/// What one filter alone says of a message.
fn is_true(text: &str, headers: &Table, body: &str) -> bool {
    let mut set = FilterSet::new(SetLimits::default(), lepus_base::HashState::new(1));
    let filter = Filter::parse(text, &Limits::default()).unwrap();
    set.add(&filter, 0).unwrap();
    let properties =
        lepus_amqp::properties::Properties { headers: Some(headers.clone()), ..Default::default() };
    let properties = properties.to_bytes();
    let message = lepus_filter::Message {
        properties: PropertiesRef(&properties),
        body: body.as_bytes(),
        format: Default::default(),
        meta: Meta::default(),
    };
    let mut found = Vec::new();
    set.matches(&message, u64::MAX, &mut Scratch::default(), &mut found);
    !found.is_empty()
}

/// What one message in sixteen took, of those that are published to two exchanges in turn.
#[test]
fn what_filters_take_is_seen_of_messages_that_are_drawn() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.bind("amq.topic", "q", "#");
    fixture.does(&bind_with("amq.fanout", "q", "", filter("b.x = 1")));
    for number in 0..50 {
        fixture.does(&bind_with(
            "amq.headers",
            "q",
            "",
            filter(&format!("LENGTH(b.x) = {number}")),
        ));
    }
    let vhost = fixture.vhost();
    let mut steps = BTreeMap::new();
    for _ in 0..1600 {
        for exchange in ["amq.topic", "amq.fanout", "amq.headers"] {
            fixture.reached_by(exchange, "k", &Table::new(), br#"{"x": "abc"}"#);
            assert!(exchange != "amq.topic" || !fixture.routes.has_filter_notes());
            for sample in fixture.routes.take_filter_samples() {
                let seen: &mut Vec<_> = steps.entry(sample.exchange).or_default();
                seen.push((sample.matching, sample.unanchored));
            }
            assert!(!fixture.routes.has_filter_notes());
        }
    }
    let mut of = |exchange: &str| {
        let place = fixture.directory.exchange_place(vhost, exchange).unwrap();
        steps.remove(&place).unwrap_or_default()
    };
    assert_eq!(of("amq.topic"), [], "no filter was asked");
    let (cheap, dear) = (of("amq.fanout"), of("amq.headers"));
    for seen in [&cheap, &dear] {
        assert!((60..160).contains(&seen.len()), "{} of 1600", seen.len());
        assert!(seen.iter().all(|one| *one == seen[0]), "the same takes the same");
    }
    assert_eq!((cheap[0].1, dear[0].1), (0, 50));
    assert!(dear[0].0 > 50 && cheap[0].0 < 20, "{cheap:?} {dear:?}");
}

#[test]
fn where_filters_take_much_further_ones_have_to_be_looked_up() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let vhost = fixture.vhost();
    let bind = |text: &str| bind_with("amq.topic", "q", "#", filter(text));
    let unanchored = |number: usize| format!("LENGTH(a) = {number}");
    for number in 0..10 {
        fixture.does(&bind(&unanchored(number)));
    }
    let told = |steps| Some(FilterCost { steps, unanchored: 10 });
    fixture.directory.note_filter_cost(vhost, "amq.topic", ShardId(1), told(20_000));
    fixture.does(&bind(&unanchored(10)));
    fixture.does(&unbind_with("amq.topic", "q", "#", filter(&unanchored(10))));
    fixture.directory.note_filter_cost(vhost, "amq.topic", ShardId(0), told(31_250));
    let expected = "cannot bind to exchange 'amq.topic': its filters take 313 µs of a message; above 200 µs \
                    (limits.exchange_filter_micros_max) only such are taken as can be looked up (a field = or IN values, LIKE 'text%'): see 'lepus list filters'";
    for text in [unanchored(10).as_str(), "a > 1", "a = 1 OR b > 1", "a LIKE '%x'", "NOT a = 1"] {
        assert_eq!(refused(&mut fixture, &bind(text)), expected, "{text}");
    }
    let figures = fixture.directory.filter_figures(vhost, "amq.topic").unwrap();
    assert_eq!((figures.told_steps, figures.refuses), (Some(31_250), true));
    // What is looked up, what is there already, whatever has another exchange or no filter.
    for text in ["a = 1 AND b > 1", "a IN (1, 2) OR b LIKE 'x%'"] {
        fixture.does(&bind(text));
    }
    assert_eq!(fixture.ask(&bind(&unanchored(3))), Ok(None));
    fixture.does(&bind_with("amq.topic", "q", "another key", filter(&unanchored(3))));
    fixture.does(&bind_with("amq.fanout", "q", "", filter("a > 1")));
    fixture.bind("amq.topic", "q", "#");
    // Some go: they are taken to take less, and as many may come back, but no more.
    for number in [0, 1, 2] {
        fixture.does(&unbind_with("amq.topic", "q", "#", filter(&unanchored(number))));
    }
    let figures = fixture.directory.filter_figures(vhost, "amq.topic").unwrap();
    assert_eq!((figures.told_steps, figures.refuses), (Some(31_250 * 7 / 10), false));
    // Also where the shard says by then how much these take.
    let fewer = Some(FilterCost { steps: 25_000, unanchored: 7 });
    fixture.directory.note_filter_cost(vhost, "amq.topic", ShardId(0), fewer);
    for text in ["a > 1", "a > 2", "a > 3"] {
        fixture.does(&bind(text));
    }
    assert!(refused(&mut fixture, &bind("a > 4")).contains("take 250 µs"));
    // The shard says that it is no longer so, and the other one never said that it is too much.
    fixture.directory.note_filter_cost(vhost, "amq.topic", ShardId(0), None);
    fixture.does(&bind("a > 4"));
}

/// A start finds what it had: nothing was measured by then, and what is in a log is not asked for.
#[test]
fn what_is_told_of_filters_goes_with_them() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    fixture.exchange("x", "topic");
    let vhost = fixture.vhost();
    let bind = |text: &str| bind_with("x", "q", "#", filter(text));
    fixture.does(&bind("a > 1"));
    let much = Some(FilterCost { steps: 50_000, unanchored: 1 });
    fixture.directory.note_filter_cost(vhost, "x", ShardId(3), much);
    refused(&mut fixture, &bind("a > 2"));
    let mut again = Directory::new(HashState::new(7), 1);
    for change in &fixture.changes {
        again.replay(change);
    }
    assert!(again.check(&bind("a > 2")).is_ok());
    fixture.does(&unbind_with("x", "q", "#", filter("a > 1")));
    fixture.does(&bind("a > 2"));
    fixture.directory.note_filter_cost(vhost, "x", ShardId(3), much);
    fixture.does(&Request::DeleteExchange {
        vhost: "/".into(),
        name: "x".into(),
        if_unused: false,
    });
    fixture.directory.note_filter_cost(vhost, "x", ShardId(3), much);
    fixture.exchange("x", "topic");
    fixture.directory.note_filter_cost(vhost, "x", ShardId(3), much);
    fixture.does(&bind("a > 2"));
    fixture.does(&bind("a > 3"));
}

#[test]
fn the_dearest_filters_are_found_in_parts() {
    let mut fixture = Fixture::new();
    for queue in ["q", "other"] {
        fixture.queue(queue);
    }
    let long = format!("a REGEXP '{}'", "x".repeat(300));
    let texts =
        ["a = 1", "a > 1", "LENGTH(a) > 1", &long, "a = 1 AND b REGEXP 'x'", "a < 5 AND b < 5"];
    for (number, text) in texts.iter().enumerate() {
        fixture.does(&bind_with("amq.topic", "q", &format!("k{number}"), filter(text)));
    }
    fixture.does(&bind_with("amq.topic", "other", "k2", filter("LENGTH(a) > 1")));
    let fix = filter("LENGTH(b.5) > LENGTH(b.6)").with("x-filter-format", "fix");
    fixture.does(&bind_with("amq.topic", "other", "fix", fix));
    let vhost = fixture.vhost();
    let figures = fixture.directory.filter_figures(vhost, "amq.topic").unwrap();
    let counts = (figures.bindings, figures.looked_up, figures.compared, figures.evaluated);
    assert_eq!((counts, figures.fields), ((8, 2, 2, 3), 4));
    assert!(figures.bytes > 0 && !figures.refuses);
    assert_eq!(fixture.directory.filter_figures(vhost, "amq.fanout"), None);
    let names = fixture.directory.filtered_exchanges(&[vhost]).map(|info| &*info.name);
    assert_eq!(names.collect::<Vec<_>>(), ["amq.topic"]);
    for places in [1, 2, 5, 100] {
        let (mut found, mut next, mut parts) = (Vec::new(), Some(0), 0);
        while let Some(from) = next {
            let part = fixture.directory.dearest_filters(vhost, "amq.topic", from, places, 3);
            assert!(part.0.len() <= places.min(3));
            found.extend(part.0.into_iter().map(|(one, oldest)| {
                let (key, to) = (oldest.routing_key.to_owned(), oldest.destination.name());
                (one.way, one.cost, one.bindings, one.text, key, to.to_owned())
            }));
            (next, parts) = (part.1, parts + 1);
        }
        assert_eq!(parts, 7usize.div_ceil(places));
        found.sort_by_key(|one| core::cmp::Reverse((one.0, one.1)));
        let shown = |at: usize| (found[at].2, &*found[at].4, &*found[at].5, &found[at].3);
        let regexp = format!("{}…", &long[..200]);
        assert_eq!(shown(0), (1, "k3", "q", &regexp));
        assert_eq!(shown(1), (1, "fix", "other", &"LENGTH(b.5) > LENGTH(b.6)".to_owned()));
        assert_eq!(shown(2), (2, "k2", "q", &"LENGTH(a) > 1".to_owned()));
    }
}

/// A copy that routes nothing follows all changes, and keeps next to nothing of filters.
#[test]
fn a_copy_without_filters_knows_how_many_there_are() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let text = |number: usize| format!("a IN ({number}, {}) AND b.x > {number}", number + 1);
    let kinds = ["amq.fanout", "amq.topic", "amq.headers"];
    let bind = |at: usize| bind_with(kinds[at % 3], "q", "k", filter(&text(at)));
    let unbind = |at: usize| unbind_with(kinds[at % 3], "q", "k", filter(&text(at)));
    for at in 0..150 {
        fixture.does(&bind(at));
    }
    let (begun, without) = (fixture.changes.len(), fixture.directory.bytes());
    let mut copy = fixture.directory.clone().without_filters();
    let freed = without - copy.bytes();
    assert!(freed > 150 * 200, "{freed} bytes");
    for at in 150..300 {
        fixture.does(&bind(at));
    }
    for at in 0..290 {
        fixture.does(&unbind(at));
    }
    for change in &fixture.changes[begun..] {
        copy.apply(change);
    }
    let counts = |directory: &Directory| {
        let vhost = directory.vhost("/").unwrap();
        let names = directory.filtered_exchanges(&[vhost]).map(|info| info.name.clone());
        (directory.binding_count(), directory.version(), names.collect::<Vec<_>>())
    };
    assert_eq!(counts(&copy), counts(&fixture.directory));
    assert_eq!(counts(&copy).2.len(), 3);
    assert!(!copy.has_untidy_filters());
    for at in 290..300 {
        fixture.does(&unbind(at));
        copy.apply(fixture.changes.last().unwrap());
    }
    assert!(counts(&copy).2.is_empty());
    while fixture.directory.has_untidy_filters() {
        fixture.directory.tidy_filters(1_000);
    }
    assert_eq!(copy.bytes(), fixture.directory.bytes());
}
