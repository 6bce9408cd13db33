//! What a shard holds, as it is told: totals that are kept, and lists in steps.

use lepus_broker::query::{Holdings, NAMES_MAX, Names, PLACES_MAX, Page};
use lepus_broker::{Answer, Query};
use lepus_sim::World;

fn holdings(world: &World) -> Holdings {
    match world.ask(0, Query::Figures) {
        Answer::Figures(figures) => figures.holdings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn queues_deliveries_and_channels_are_counted_as_they_come_and_go() {
    let world = World::new(1);
    let channel = world.channel(0);
    let few = holdings(&world);
    assert_eq!((few.connections, few.channels, few.ready, few.unacked), (1, 1, 0, 0));
    for queue in 0..50 {
        channel.declare(&format!("q{queue}"));
    }
    channel.publish_all("q7", (0..4_000).map(|number: u32| number.to_string()));
    channel.publish("", "q49", "x");
    channel.publish("", "q48", "y");
    channel.consume("q7", "c");
    let other = world.channel(0);
    other.get("q49").expect("a message");
    let all = holdings(&world);
    assert_eq!((all.connections, all.channels, all.publishers), (2, 2, 1));
    assert_eq!((all.queues, all.consumers), (50, 1));
    assert_eq!((all.ready, all.unacked), (1, 4_001));
    channel.delete("q7");
    other.delete("q48");
    let left = holdings(&world);
    assert_eq!((left.queues, left.consumers, left.ready, left.unacked), (48, 0, 0, 1));
    other.client().close();
    let left = holdings(&world);
    assert_eq!((left.connections, left.channels, left.ready, left.unacked), (1, 1, 1, 0));
    assert_eq!(world.broker(0, |broker| broker.miscounted()), None);
}

#[test]
fn a_connection_is_one_publisher_until_it_goes_however_many_channels_publish() {
    let world = World::new(1);
    let channel = world.channel(0);
    let second = channel.client().channel();
    assert_eq!(holdings(&world).publishers, 0);
    channel.publish("", "nowhere", "x");
    second.publish("", "nowhere", "x");
    world.channel(0).publish("", "nowhere", "x");
    let held = holdings(&world);
    assert_eq!((held.publishers, held.channels), (2, 3));
    channel.close();
    second.close();
    let held = holdings(&world);
    assert_eq!((held.publishers, held.channels), (2, 1), "they stay publishers without channels");
    second.client().close();
    assert_eq!(holdings(&world).publishers, 1);
}

#[test]
fn queues_are_listed_in_parts_each_once() {
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..2_000 {
        channel.declare(&format!("q{queue}"));
    }
    for queue in (0..2_000).step_by(7) {
        channel.delete(&format!("q{queue}"));
    }
    let (mut names, mut page) = (Vec::new(), Page { from: 0, limit: 100 });
    loop {
        let found = match world.ask(0, Query::Queues { vhost: "/".to_owned(), page }) {
            Answer::Queues(found) => found,
            other => panic!("{other:?}"),
        };
        assert!(found.rows.len() <= page.limit, "{} queues in a part", found.rows.len());
        names.extend(found.rows.into_iter().map(|row| row.name));
        match found.next {
            Some(next) => page.from = next,
            None => break,
        }
    }
    let all = (0..2_000).filter(|queue| queue % 7 != 0);
    let mut expected: Vec<_> = all.map(|queue| format!("q{queue}")).collect();
    expected.sort();
    names.sort();
    assert_eq!(names, expected);
}

/// However much is asked for, a part is bounded.
#[test]
fn a_part_covers_so_many_places_at_most() {
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..1_000 {
        channel.declare(&format!("q{queue}"));
    }
    for number in 0..100 {
        world.add_vhost(&format!("v{number:03}"));
        world.add_user(&format!("u{number:03}"), "secret");
    }
    let page = Page { from: 0, limit: usize::MAX };
    match world.ask(0, Query::Queues { vhost: "/".to_owned(), page }) {
        Answer::Queues(found) => {
            assert_eq!((found.rows.len(), found.next), (PLACES_MAX, Some(PLACES_MAX)));
        }
        other => panic!("{other:?}"),
    }
    let names = Names { after: None, limit: usize::MAX };
    match world.ask(0, Query::Users(names)) {
        Answer::Users(found) => assert_eq!(found.rows.len(), NAMES_MAX),
        other => panic!("{other:?}"),
    }
    let names = Names { after: Some("v090".to_owned()), limit: usize::MAX };
    match world.ask(0, Query::Vhosts(names)) {
        Answer::Vhosts(found) => {
            let first = found.rows.first().map(|row| row.name.as_str());
            assert_eq!((found.rows.len(), first), (9, Some("v091")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn lists_tell_what_there_is() {
    let world = World::new(1);
    let channel = world.channel(0);
    channel.declare("q");
    channel.exchange("x", "topic");
    channel.bind("q", "x", "a.#");
    channel.publish("", "q", "1");
    let page = Page { from: 0, limit: PLACES_MAX };
    let vhost = || "/".to_owned();
    match world.ask(0, Query::Queues { vhost: vhost(), page }) {
        Answer::Queues(found) => {
            let row = &found.rows[0];
            assert_eq!((row.name.as_str(), row.ready, row.consumers, row.shard.0), ("q", 1, 0, 0));
        }
        other => panic!("{other:?}"),
    }
    match world.ask(0, Query::Connections(page)) {
        Answer::Connections(found) => {
            let row = &found.rows[0];
            assert_eq!((row.user.as_str(), row.vhost.as_str(), row.channels), ("guest", "/", 1));
        }
        other => panic!("{other:?}"),
    }
    match world.ask(0, Query::Exchanges { vhost: vhost(), page }) {
        Answer::Exchanges(found) => {
            assert!(found.rows.iter().any(|row| (&*row.name, row.kind) == ("x", "topic")));
        }
        other => panic!("{other:?}"),
    }
    match world.ask(0, Query::Bindings { vhost: vhost(), page }) {
        Answer::Bindings(found) => {
            let row = &found.rows[0];
            assert_eq!((&*row.source, &*row.destination, &*row.routing_key), ("x", "q", "a.#"));
        }
        other => panic!("{other:?}"),
    }
    match world.ask(0, Query::Permissions(Names { after: None, limit: 1 })) {
        Answer::Permissions(found) => assert_eq!(found.next.as_deref(), Some("guest")),
        other => panic!("{other:?}"),
    }
    let none = Query::Queues { vhost: "none".to_owned(), page };
    assert_eq!(world.ask(0, none), Answer::NoVhost);
    let known = Query::Known { user: "guest".to_owned(), vhost: "none".to_owned() };
    assert_eq!(world.ask(0, known), Answer::Known { user: true, vhost: false });
}
