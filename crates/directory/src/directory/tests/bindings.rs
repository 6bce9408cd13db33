//! Bindings, routing over several exchanges, and what goes with what.

use super::*;
use crate::binding::Destination;
use lepus_amqp::table::Value;

fn auto_delete(name: &str) -> Request {
    let mut request = declare_exchange(name, "fanout");
    if let Request::DeclareExchange { auto_delete, .. } = &mut request {
        *auto_delete = true;
    }
    request
}

fn with_alternate(name: &str, alternate: &str) -> Request {
    let mut request = declare_exchange(name, "direct");
    if let Request::DeclareExchange { arguments, .. } = &mut request {
        arguments.insert("alternate-exchange", alternate);
    }
    request
}

fn deleted(applied: &Applied) -> Vec<&str> {
    let names = applied.exchanges_deleted.iter();
    names.map(|(_, name)| &**name).collect()
}

#[test]
fn the_default_exchange_reaches_every_queue_by_name() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    assert_eq!(fixture.reached("", "q"), ["q"]);
    assert!(fixture.reached("", "other").is_empty());
    assert!(fixture.routes.is_cacheable());
}

#[test]
fn each_type_routes_in_its_way() {
    let mut fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fixture.queue(name);
    }
    fixture.bind("amq.direct", "a", "k");
    fixture.bind("amq.direct", "b", "k");
    fixture.bind("amq.direct", "c", "l");
    assert_eq!(fixture.reached("amq.direct", "k"), ["a", "b"]);
    assert!(fixture.reached("amq.direct", "").is_empty());
    fixture.bind("amq.fanout", "a", "1");
    fixture.bind("amq.fanout", "a", "2");
    fixture.bind("amq.fanout", "c", "");
    assert_eq!(fixture.reached("amq.fanout", "any"), ["a", "c"]);
    fixture.bind("amq.topic", "a", "x.#");
    fixture.bind("amq.topic", "a", "*.y");
    fixture.bind("amq.topic", "b", "x.z");
    assert_eq!(fixture.reached("amq.topic", "x.y"), ["a"]);
    assert_eq!(fixture.reached("amq.topic", "x.z"), ["a", "b"]);
    assert!(fixture.routes.is_cacheable());
    let wanted = Table::new().with("h", 1i32);
    fixture.does(&bind_with("amq.headers", "b", "", wanted));
    let headers = Table::new().with("h", Value::I64(1));
    assert_eq!(fixture.reached_with("amq.headers", "", &headers), ["b"]);
    assert!(fixture.reached("amq.headers", "").is_empty());
    assert!(!fixture.routes.is_cacheable());
}

#[test]
fn spreading_types_pick_one_binding() {
    let mut fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fixture.queue(name);
    }
    for (exchange, kind, key) in [
        ("x1", "x-random", "k"),
        ("x2", "x-local-random", ""),
        ("x3", "x-modulus-hash", "k"),
        ("x4", "x-consistent-hash", "10"),
    ] {
        fixture.exchange(exchange, kind);
        assert!(fixture.reached(exchange, "k").is_empty());
        for queue in ["a", "b", "c"] {
            fixture.bind(exchange, queue, key);
        }
        let mut seen = Vec::new();
        for number in 0..100 {
            let reached = fixture.reached(exchange, &alloc::format!("{number}"));
            assert_eq!(reached.len(), 1, "{kind}");
            seen.extend(reached);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen, ["a", "b", "c"], "{kind}");
        assert_eq!(fixture.routes.is_cacheable(), kind.ends_with("hash"));
    }
    assert_eq!(fixture.ask(&bind("x2", "a", "k")).unwrap_err().0, RefusalKind::PreconditionFailed);
    assert_eq!(
        fixture.ask(&bind("x4", "a", "k")),
        refusal(RefusalKind::PreconditionFailed, "The binding key must be an integer: k")
    );
}

#[test]
fn a_binding_is_known_by_all_of_its_parts() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let one = Table::new().with("a", 1i32).with("b", 2i32);
    let other = Table::new().with("b", 2i32).with("a", 1i32);
    fixture.bind("amq.fanout", "q", "k");
    assert_eq!(fixture.ask(&bind("amq.fanout", "q", "k")), Ok(None));
    fixture.does(&bind_with("amq.fanout", "q", "k", one));
    let again = bind_with("amq.fanout", "q", "k", other.clone());
    assert_eq!(fixture.ask(&again), Ok(None));
    assert_eq!(fixture.directory.binding_count(), 2);
    fixture.does(&unbind_with("amq.fanout", "q", "k", other));
    assert_eq!(fixture.reached("amq.fanout", ""), ["q"]);
    fixture.does(&unbind("amq.fanout", "q", "k"));
    assert_eq!(fixture.ask(&unbind("amq.fanout", "q", "k")), Ok(None));
    assert!(fixture.reached("amq.fanout", "").is_empty());
}

#[test]
fn what_is_bound_must_exist() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let no_queue = refusal(RefusalKind::NotFound, "no queue 'other' in vhost '/'");
    let no_exchange = refusal(RefusalKind::NotFound, "no exchange 'x' in vhost '/'");
    assert_eq!(fixture.ask(&bind("amq.fanout", "other", "")), no_queue);
    assert_eq!(fixture.ask(&bind("x", "q", "")), no_exchange);
    assert_eq!(fixture.ask(&bind("amq.fanout", "x", "")), no_exchange);
    // What does not exist is bound to nothing.
    assert_eq!(fixture.ask(&unbind("x", "q", "")), Ok(None));
    let mut request = bind("amq.direct", "q", "");
    if let Request::Bind { destination, .. } = &mut request {
        *destination = Destination::Queue("amq.rabbitmq.reply-to".into());
    }
    assert_eq!(fixture.ask(&request).unwrap_err().0, RefusalKind::AccessRefused);
    let some = Table::new().with("x-match", "some");
    let request = bind_with("amq.headers", "q", "", some);
    assert_eq!(
        fixture.ask(&request),
        refusal(
            RefusalKind::PreconditionFailed,
            "Invalid x-match field value 'some'; expected all, any, all-with-x, or any-with-x"
        )
    );
}

#[test]
fn exchanges_bound_in_a_circle_reach_each_queue_once() {
    let mut fixture = Fixture::new();
    for name in ["x1", "x2", "x3"] {
        fixture.exchange(name, "fanout");
    }
    fixture.queue("a");
    fixture.queue("b");
    fixture.bind("x1", "x2", "");
    fixture.bind("x2", "x3", "");
    fixture.bind("x3", "x1", "");
    fixture.bind("x1", "x1", "");
    for exchange in ["x1", "x2", "x3"] {
        fixture.bind(exchange, "a", "");
    }
    fixture.bind("x3", "b", "");
    for exchange in ["x1", "x2", "x3"] {
        assert_eq!(fixture.reached(exchange, "k"), ["a", "b"]);
    }
    fixture.does(&delete_exchange("x1", false));
    assert_eq!(fixture.reached("x2", "k"), ["a", "b"]);
    assert_eq!(fixture.directory.binding_count(), 4);
}

#[test]
fn a_route_through_a_headers_exchange_is_not_cacheable() {
    let mut fixture = Fixture::new();
    fixture.exchange("x", "fanout");
    fixture.bind("x", "amq.headers", "");
    assert!(fixture.reached("x", "k").is_empty());
    assert!(!fixture.routes.is_cacheable());
}

#[test]
fn an_internal_exchange_takes_messages_from_exchanges_only() {
    let mut fixture = Fixture::new();
    let mut request = declare_exchange("xi", "fanout");
    if let Request::DeclareExchange { internal, .. } = &mut request {
        *internal = true;
    }
    fixture.does(&request);
    fixture.queue("q");
    fixture.bind("xi", "q", "");
    fixture.bind("amq.fanout", "xi", "");
    assert_eq!(fixture.reached("amq.fanout", ""), ["q"]);
    let vhost = fixture.vhost();
    let properties = PropertiesRef(&[0, 0]);
    let Fixture { directory, rng, routes, .. } = &mut fixture;
    let message =
        |exchange| Message { exchange, keys: "".into(), properties, body: b"", millis: 0 };
    let refused = directory.route(vhost, message("xi"), rng, routes);
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::AccessRefused);
    assert_eq!(refused.reply(), "cannot publish to internal exchange 'xi' in vhost '/'");
    routes.clear();
    assert!(directory.route_dead_letter(vhost, message("xi"), rng, routes));
    assert_eq!(routes.len(), 1);
    assert!(!directory.route_dead_letter(vhost, message("gone"), rng, routes));
}

#[test]
fn alternate_exchanges_form_chains_that_end() {
    let mut fixture = Fixture::new();
    fixture.queue("a");
    fixture.queue("b");
    fixture.does(&with_alternate("x1", "x2"));
    fixture.does(&with_alternate("x2", "x3"));
    fixture.does(&with_alternate("x3", "x1"));
    fixture.does(&with_alternate("x4", "missing"));
    fixture.does(&with_alternate("x5", ""));
    fixture.bind("x1", "a", "a");
    fixture.bind("x3", "b", "b");
    assert_eq!(fixture.reached("x1", "a"), ["a"]);
    assert_eq!(fixture.reached("x1", "b"), ["b"]);
    assert_eq!(fixture.reached("x2", "a"), ["a"]);
    assert!(fixture.reached("x1", "c").is_empty());
    assert!(fixture.reached("x4", "a").is_empty());
    assert_eq!(fixture.reached("x5", "a"), ["a"]);
}

#[test]
fn an_exchange_that_deletes_itself_goes_with_its_last_binding() {
    let mut fixture = Fixture::new();
    fixture.does(&auto_delete("x1"));
    fixture.does(&auto_delete("x2"));
    fixture.does(&auto_delete("x3"));
    let id = fixture.queue("q");
    fixture.queue("other");
    assert!(fixture.directory.exchange(fixture.vhost(), "x1").is_some());
    fixture.bind("x1", "x2", "");
    fixture.bind("x2", "x3", "");
    fixture.bind("x3", "q", "");
    fixture.bind("x3", "other", "");
    let applied = fixture.does(&unbind("x3", "other", ""));
    assert!(applied.exchanges_deleted.is_empty());
    let applied = fixture.does(&Request::DeleteQueue { id });
    assert_eq!(deleted(&applied), ["x3", "x2", "x1"]);
    assert_eq!(fixture.directory.binding_count(), 0);
}

#[test]
fn a_circle_of_exchanges_that_delete_themselves_unravels() {
    let mut fixture = Fixture::new();
    for name in ["x1", "x2", "x3"] {
        fixture.does(&auto_delete(name));
    }
    fixture.bind("x1", "x2", "");
    fixture.bind("x2", "x3", "");
    fixture.bind("x3", "x1", "");
    fixture.bind("x2", "x2", "");
    let applied = fixture.does(&unbind("x1", "x2", ""));
    assert_eq!(deleted(&applied), ["x1", "x3"]);
    let applied = fixture.does(&unbind("x2", "x2", ""));
    assert_eq!(deleted(&applied), ["x2"]);
    assert_eq!(fixture.directory.binding_count(), 0);
}

#[test]
fn ten_thousand_queues_can_be_bound_and_let_go() {
    let mut fixture = Fixture::new();
    let mut ids = Vec::new();
    for number in 0..10_000 {
        let name = alloc::format!("q{number}");
        ids.push(fixture.queue(&name));
        fixture.bind("amq.fanout", &name, "");
        fixture.bind("amq.topic", &name, "#");
    }
    assert_eq!(fixture.reached("amq.fanout", "k").len(), 10_000);
    assert_eq!(fixture.reached("amq.topic", "k").len(), 10_000);
    for id in ids.drain(..).step_by(2) {
        fixture.does(&Request::DeleteQueue { id });
    }
    assert_eq!(fixture.reached("amq.fanout", "k").len(), 5_000);
    fixture.does(&Request::DeleteVhost { name: "/".into() });
    let mut slices = 0;
    while fixture.directory.clearing() > 0 {
        let before = (fixture.directory.binding_count(), fixture.directory.object_count());
        let _ = fixture.directory.apply(&Change::Cleared);
        let gone = (before.0 - fixture.directory.binding_count())
            + (before.1 - fixture.directory.object_count());
        assert!(gone <= 512, "{gone} objects in one slice");
        slices += 1;
    }
    assert!(slices >= 15_000 / 512, "{slices} slices");
    assert_eq!(fixture.directory.binding_count(), 0);
    assert_eq!(fixture.directory.queues(None).len(), 0);
    assert_eq!(fixture.directory.exchanges(None).len(), 0);
}

#[test]
fn bindings_are_listed_in_order_with_the_default_ones_first() {
    let mut fixture = Fixture::new();
    for name in ["b", "a"] {
        fixture.queue(name);
    }
    fixture.bind("amq.topic", "b", "2");
    fixture.bind("amq.topic", "b", "1");
    fixture.bind("amq.direct", "a", "k");
    fixture.bind("amq.direct", "amq.topic", "k");
    let directory = &fixture.directory;
    let list: Vec<_> = directory
        .bindings(fixture.vhost())
        .map(|info| (info.source, info.destination.name(), info.routing_key))
        .collect();
    assert_eq!(
        list,
        [
            ("", "a", "a"),
            ("", "b", "b"),
            ("amq.direct", "amq.topic", "k"),
            ("amq.direct", "a", "k"),
            ("amq.topic", "b", "1"),
            ("amq.topic", "b", "2"),
        ]
    );
    let from = directory.bindings_from(fixture.vhost(), "amq.topic");
    assert_eq!(from.len(), 2);
    let to = directory.bindings_to(fixture.vhost(), DestinationRef::Queue("b"));
    assert_eq!(to.len(), 3);
    let names: Vec<&str> =
        directory.exchanges(Some(fixture.vhost())).map(|info| &*info.name).collect();
    assert!(names.is_sorted() && names.len() == 7 && names.contains(&"amq.rabbitmq.trace"));
}

#[test]
fn lists_in_parts_have_everything_once_and_no_part_looks_at_much() {
    let mut fixture = Fixture::new();
    for index in 0..300 {
        fixture.queue(&alloc::format!("q{index}"));
        fixture.exchange(&alloc::format!("x{index}"), "fanout");
        fixture.bind("amq.topic", &alloc::format!("q{index}"), "k");
    }
    fixture.does(&delete_exchange("x7", false));
    fixture.does(&unbind("amq.topic", "q9", "k"));
    let (directory, vhost) = (&fixture.directory, fixture.vhost());
    let (mut exchanges, mut bindings) = (Vec::new(), Vec::new());
    let mut place = 0;
    while let Some(part) = directory.exchanges_in(vhost, place, 64) {
        exchanges.extend(part.map(|info| String::from(&*info.name)));
        assert!(exchanges.len() <= place + 64);
        place += 64;
    }
    place = 0;
    while let Some(part) = directory.bindings_in(vhost, place, 64) {
        bindings.extend(part.map(|binding| String::from(binding.destination.name())));
        assert!(bindings.len() <= place + 64);
        place += 64;
    }
    exchanges.sort();
    bindings.sort();
    let mut expected: Vec<String> =
        directory.exchanges(Some(vhost)).map(|info| String::from(&*info.name)).collect();
    expected.sort();
    assert_eq!(exchanges, expected);
    let all = directory.bindings(vhost).filter(|binding| !binding.source.is_empty());
    let mut expected: Vec<String> = all.map(|found| found.destination.name().into()).collect();
    expected.sort();
    assert_eq!((bindings.len(), bindings), (299, expected));
}

/// Bytes of a binding with a key of its own, where there are `count` of them.
fn bytes_of_binding(exchange: &str, count: usize) -> usize {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    for index in 0..count {
        fixture.bind(exchange, "q", &alloc::format!("key-{index}"));
    }
    let directory = &fixture.directory;
    directory.topology.memory_of_bindings(fixture.vhost(), exchange) / count
}

#[test]
fn a_binding_is_small() {
    // Tables double, so the cost per binding goes up and down with their number.
    for (exchange, bytes_max) in [("amq.direct", [82, 84]), ("amq.topic", [166, 157])] {
        for (count, bytes_max) in [50_000, 60_000].into_iter().zip(bytes_max) {
            let bytes = bytes_of_binding(exchange, count);
            assert!(bytes <= bytes_max, "{bytes} bytes in {exchange} with {count}");
        }
    }
}

#[test]
fn the_headers_of_a_message_are_read_once_for_all_exchanges() {
    let mut fixture = Fixture::new();
    fixture.queue("q");
    let wanted = || Table::new().with("h0", 0).with("x-match", "any");
    for place in 0..300 {
        fixture.does(&declare_exchange(&format!("e{place}"), "headers"));
        if place > 0 {
            let mut request = bind_with(&format!("e{}", place - 1), "", "", wanted());
            if let Request::Bind { destination, .. } = &mut request {
                *destination = Destination::Exchange(format!("e{place}"));
            }
            fixture.does(&request);
        }
    }
    fixture.does(&bind_with("e299", "q", "", wanted()));
    let headers: Table = (0..2_000).map(|number| (format!("h{number}"), number)).collect();
    assert_eq!(fixture.reached_with("e299", "", &headers), ["q"]);
    let one = fixture.routes.steps();
    assert_eq!(fixture.reached_with("e0", "", &headers), ["q"]);
    let all = fixture.routes.steps();
    assert!(all < 2 * one, "{all} through 300 exchanges, {one} through one");
}
