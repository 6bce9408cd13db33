//! Bindings with filters.

use super::*;
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
        for number in 0..200 {
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
    assert_eq!(deleted_in(false), (false, 0, 201));
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
