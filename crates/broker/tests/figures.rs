//! What a shard holds, as it is told: totals that are kept, and lists in steps.

use std::fmt::Debug;

use lepus_amqp::table::Table;
use lepus_broker::directory::{Request, VhostRef};
use lepus_broker::query::{
    Holdings, NAMES_MAX, Names, PLACES_MAX, Page, Part, Rights, RightsPlace,
};
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
    assert_eq!(world.broker(0, |broker| broker.view().miscounted()), None);
}

#[test]
fn what_filters_passed_over_is_counted_as_it_comes_and_goes() {
    let world = World::new(1);
    let channel = world.channel(0);
    channel.declare("q");
    channel.declare("plain");
    let filter = |text| Table::new().with("x-filter", text);
    channel.consume_with("q", "none", filter("p.type = 'none'"));
    for queue in ["q", "plain"] {
        channel.publish_all(queue, (0..100).map(|number: u32| number.to_string()));
    }
    let passed_over = || (holdings(&world).passed_over, holdings(&world).ready);
    assert_eq!(passed_over(), (100, 200));
    assert_eq!(world.broker(0, |broker| broker.view().miscounted()), None);
    let other = world.channel(0);
    other.consume_with("q", "all", filter("m.size > 0"));
    world.settle();
    assert_eq!(passed_over(), (0, 100));
    other.client().close();
    world.settle();
    assert_eq!(passed_over(), (100, 200));
    channel.delete("q");
    assert_eq!(passed_over(), (0, 100));
    assert_eq!(world.broker(0, |broker| broker.view().miscounted()), None);
}

#[test]
fn bindings_are_listed_with_their_arguments_in_parts_that_are_not_long() {
    let world = World::new(1);
    let channel = world.channel(0);
    channel.declare("q");
    channel.exchange("x", "fanout");
    let long = "x".repeat(4_000);
    let text = |number: usize| format!("a = '{number}{long}'");
    for number in 0..20 {
        channel.bind_with("q", "x", "", Table::new().with("x-filter", &*text(number)));
    }
    let (mut told, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page = Page { from, limit: PLACES_MAX };
        let found = match world.ask(0, Query::Bindings { vhost: "/".to_owned(), page }) {
            Answer::Bindings(found) => found,
            other => panic!("{other:?}"),
        };
        let bytes: usize = found.rows.iter().map(|row| row.arguments.as_ref().bytes().len()).sum();
        assert!(bytes < 20_500, "{bytes}");
        told.extend(found.rows.into_iter().map(|row| row.arguments));
        next = found.next;
    }
    let expected: Vec<_> =
        (0..20).map(|number| Table::new().with("x-filter", &*text(number)).to_bytes()).collect();
    told.sort_by_key(|arguments| expected.iter().position(|one| one == arguments));
    assert_eq!(told, expected);
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

/// Everything that a list tells in parts of `limit`, each row in words, and of how many parts it is. None has more rows
/// than its limit.
fn whole<P>(
    limit: usize,
    mut part: impl FnMut(Option<P>) -> (Vec<String>, Option<P>),
) -> (Vec<String>, usize) {
    let (mut rows, mut parts, mut at) = (Vec::new(), 0, None);
    loop {
        let (found, next) = part(at);
        assert!(found.len() <= limit, "{} rows in a part of {limit}", found.len());
        rows.extend(found);
        parts += 1;
        at = next;
        if at.is_none() {
            return (rows, parts);
        }
    }
}

fn told<T: Debug, P>(part: Part<T, P>) -> (Vec<String>, Option<P>) {
    (part.rows.iter().map(|row| format!("{row:?}")).collect(), part.next)
}

/// What users may do, in parts of `limit`: permissions and topic permissions.
fn rights(world: &World, limit: usize, is_topic: bool) -> (Vec<String>, usize) {
    whole(limit, |after: Option<RightsPlace>| {
        let rights = Rights { after, limit };
        let query =
            if is_topic { Query::TopicPermissions(rights) } else { Query::Permissions(rights) };
        match world.ask(0, query) {
            Answer::Permissions(found) => told(found),
            Answer::TopicPermissions(found) => told(found),
            other => panic!("{other:?}"),
        }
    })
}

/// As they are listed by place and by name.
fn others(world: &World, limit: usize, list: usize) -> (Vec<String>, usize) {
    let vhost = || "/".to_owned();
    let by_place = |query: &dyn Fn(Page) -> Query| {
        whole(limit, |from: Option<usize>| {
            match world.ask(0, query(Page { from: from.unwrap_or(0), limit })) {
                Answer::Queues(found) => told(found),
                Answer::Connections(found) => told(found),
                Answer::Exchanges(found) => told(found),
                Answer::Bindings(found) => told(found),
                other => panic!("{other:?}"),
            }
        })
    };
    let by_name = |query: &dyn Fn(Names) -> Query| {
        whole(limit, |after| match world.ask(0, query(Names { after, limit })) {
            Answer::Vhosts(found) => told(found),
            Answer::Users(found) => told(found),
            other => panic!("{other:?}"),
        })
    };
    match list {
        0 => by_place(&|page| Query::Queues { vhost: vhost(), page }),
        1 => by_place(&Query::Connections),
        2 => by_place(&|page| Query::Exchanges { vhost: vhost(), page }),
        3 => by_place(&|page| Query::Bindings { vhost: vhost(), page }),
        4 => by_name(&Query::Vhosts),
        _ => by_name(&Query::Users),
    }
}

fn restrict(world: &World, user: &str, vhost: &str, exchange: &str) {
    let request = Request::SetTopicPermission {
        user: user.into(),
        vhost: VhostRef::Name(vhost.into()),
        exchange: exchange.into(),
        write: "^w".into(),
        read: "^r".into(),
    };
    world.request(request).expect("an operator is heard");
}

/// However many rights one user has, and however few many have.
#[test]
fn every_part_of_every_list_is_bounded_by_its_limit_and_all_have_everything_once() {
    let world = World::new(1);
    let channel = world.channel(0);
    for number in 0..100 {
        let name = format!("n{number:03}");
        channel.declare(&name);
        channel.exchange(&name, "direct");
        channel.bind(&name, &name, "k");
        world.add_vhost(&name);
        world.add_user(&name, "secret");
        // Two users have a hundred rights each, and what others have is between many that have none.
        for user in ["n000", "n050"].into_iter().filter(|user| **user <= *name) {
            world.permit(user, &name, "", "", &name);
        }
        if number % 20 == 7 {
            world.permit(&name, "/", "", "", "");
        }
    }
    for number in 0..100 {
        restrict(&world, "n050", "/", &format!("x{number}"));
        restrict(&world, "n070", &format!("n{number:03}"), "");
    }
    for limit in [1, 2, 7, NAMES_MAX] {
        let expected: [Vec<String>; 2] = world.broker(0, |broker| {
            let accounts = broker.directory.accounts();
            let permissions =
                accounts.permissions().map(|(user, vhost, _)| format!("{user} {}", vhost.name));
            let topic = accounts
                .topic_permissions()
                .map(|(user, vhost, x, _)| format!("{user} {} {x}", vhost.name));
            [permissions.collect(), topic.collect()]
        });
        for (expected, is_topic) in expected.iter().zip([false, true]) {
            let (rows, parts) = rights(&world, limit, is_topic);
            assert_eq!(rows.len(), expected.len());
            for (row, expected) in rows.iter().zip(expected) {
                for word in expected.split(' ') {
                    assert!(row.contains(&format!("{word:?}")), "{row} instead of {expected}");
                }
            }
            // Every part but the last gives so many rows or passes so many users.
            let (users, rows) = (101, rows.len());
            assert!(parts <= users / limit + rows / limit + 2, "{parts} parts of {limit}");
        }
        for (list, expected) in [100, 1, 107, 100, 101, 101].into_iter().enumerate() {
            let (mut rows, _) = others(&world, limit, list);
            let told = rows.len();
            rows.sort();
            rows.dedup();
            assert_eq!((told, rows.len()), (expected, expected), "list {list} in parts of {limit}");
        }
    }
}

/// A list goes on where it was, though what was last in it is gone.
#[test]
fn a_list_of_rights_goes_on_behind_what_is_gone() {
    let world = World::new(1);
    for name in ["a", "b", "c"] {
        world.add_vhost(name);
        world.add_user(name, "secret");
        for user in ["a", "b"].into_iter().filter(|user| *user <= name) {
            world.permit(user, name, "", "", "");
        }
    }
    let part = |after| match world.ask(0, Query::Permissions(Rights { after, limit: 2 })) {
        Answer::Permissions(found) => {
            let rows = found.rows.into_iter().map(|row| row.user + &row.vhost);
            (rows.collect::<Vec<_>>(), found.next)
        }
        other => panic!("{other:?}"),
    };
    let (rows, next) = part(None);
    assert_eq!(rows, ["aa", "ab"]);
    assert_eq!(part(next.clone()).0, ["ac", "bb"]);
    world.request(Request::DeleteVhost { name: "b".into() }).expect("an operator is heard");
    assert_eq!(part(next.clone()).0, ["ac", "bc"]);
    world.request(Request::DeleteUser { name: "a".into() }).expect("an operator is heard");
    // `c`, who may do nothing, is the second user of this part.
    let (rows, next) = part(next);
    assert_eq!(rows, ["bc"]);
    let (rows, next) = part(next);
    assert_eq!(rows, ["guest/"]);
    assert_eq!(part(next), (Vec::new(), None));
}

/// What a list over all shards cannot promise: whoever puts it together keeps one row of a name.
#[test]
fn what_moves_between_two_parts_of_a_list_is_told_twice_or_not_at_all() {
    let world = World::new(2);
    let channel = world.channel(0);
    for name in ["to and fro", "stays"] {
        channel.declare(name);
        world.move_queue(name, 0);
    }
    let names = |shard| {
        let page = Page { from: 0, limit: PLACES_MAX };
        match world.ask(shard, Query::Queues { vhost: "/".to_owned(), page }) {
            Answer::Queues(found) => {
                let mut rows: Vec<_> = found.rows.into_iter().map(|row| row.name).collect();
                rows.sort();
                rows
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(names(0), ["stays", "to and fro"]);
    world.move_queue("to and fro", 1);
    assert_eq!(names(1), ["to and fro"], "for the second time");
    // A queue is left where it is for a while.
    world.advance(60_000);
    assert_eq!(names(0), ["stays"]);
    world.move_queue("to and fro", 0);
    assert_eq!(names(1), [""; 0], "nowhere in this list");
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
    match world.ask(0, Query::Permissions(Rights { after: None, limit: 1 })) {
        Answer::Permissions(found) => {
            assert_eq!(found.next.map(|place| place.user).as_deref(), Some("guest"));
        }
        other => panic!("{other:?}"),
    }
    let none = Query::Queues { vhost: "none".to_owned(), page };
    assert_eq!(world.ask(0, none), Answer::NoVhost);
    let known = Query::Known { user: "guest".to_owned(), vhost: "none".to_owned() };
    assert_eq!(world.ask(0, known), Answer::Known { user: true, vhost: false });
}
