//! Policies on queues and exchanges that are there, and on those that come later.

use lepus_amqp::method::queue;
use lepus_amqp::table::{Table, Value};
use lepus_broker::directory::{PolicyScope, Request};
use lepus_broker::{Answer, Query};
use lepus_sim::{Channel, World};

use crate::restart::{durable, durable_with, persistent};
use crate::stage::{everywhere, on_disk};

fn set(scope: PolicyScope, name: &str, pattern: &str, definition: Table) -> Request {
    Request::SetPolicy {
        vhost: "/".into(),
        scope,
        name: name.into(),
        pattern: pattern.into(),
        apply_to: "all".into(),
        priority: 0,
        definition,
    }
}

pub fn clear(name: &str) -> Request {
    Request::ClearPolicy { vhost: "/".into(), scope: PolicyScope::User, name: name.into() }
}

/// Waits until every shard follows the policies that it knows.
pub fn await_policies(world: &World) {
    let epoch = world.broker(0, |broker| broker.directory.policy_epoch());
    for shard in 0..world.shards() {
        match world.ask(shard, Query::AwaitPolicies { epoch }) {
            Answer::PoliciesApplied { epoch: done } => assert_eq!(done, epoch),
            other => panic!("{other:?}"),
        }
    }
}

/// Sets a policy, and waits until it is followed.
pub fn set_policy(world: &World, name: &str, pattern: &str, definition: Table) {
    world.request(set(PolicyScope::User, name, pattern, definition)).unwrap();
    await_policies(world);
}

fn set_operator_policy(world: &World, name: &str, pattern: &str, definition: Table) {
    world.request(set(PolicyScope::Operator, name, pattern, definition)).unwrap();
    await_policies(world);
}

fn clear_policy(world: &World, name: &str) {
    world.request(clear(name)).unwrap();
    await_policies(world);
}

fn texts(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

fn limit(length: i64) -> Table {
    Table::new().with("max-length", length)
}

#[test]
fn a_new_limit_has_the_oldest_messages_dead_lettered_before_the_change_is_over() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.declare("dead");
        far.publish_all("q", (0..10).map(|number| number.to_string()));
        let to = limit(1).with("dead-letter-exchange", "").with("dead-letter-routing-key", "dead");
        set_policy(&stage.world, "p", "^q$", to);
        assert_eq!(stage.world.queue("q").ready, 1);
        let dead: Vec<_> = core::iter::from_fn(|| near.get_no_ack("dead")).collect();
        let expected: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        assert_eq!(dead.iter().map(|one| one.text()).collect::<Vec<_>>(), expected);
        let death = dead[0].header("x-death").and_then(Value::as_array).unwrap()[0].clone();
        let reason = death.as_table().unwrap().get("reason").and_then(Value::as_text);
        assert_eq!(reason, Some("maxlen"));
        assert_eq!(texts(&near, "q"), ["9"]);
    });
}

#[test]
fn the_answer_comes_when_the_last_message_has_left_and_not_before() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare("q");
    alice.declare("dead");
    alice.publish_all("q", (0..5_000).map(|number| number.to_string()));
    let definition =
        limit(1).with("dead-letter-exchange", "").with("dead-letter-routing-key", "dead");
    let changed = world.begin(set(PolicyScope::User, "p", "^q$", definition));
    while changed.try_recv().is_err() {
        world.round();
    }
    let applied = world.begin_asking(0, Query::AwaitPolicies { epoch: 1 });
    let mut rounds = 0;
    while applied.try_recv().is_err() {
        world.round();
        rounds += 1;
    }
    assert!(rounds > 5, "there are slices: {rounds}");
    assert_eq!((world.queue("q").ready, world.queue("dead").ready), (1, 4_999));
}

#[test]
fn where_a_ttl_is_cleared_new_messages_live_and_old_ones_keep_theirs() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish("", "q", "before");
        set_policy(&stage.world, "p", "", Table::new().with("message-ttl", 1_000));
        far.publish("", "q", "under");
        clear_policy(&stage.world, "p");
        far.publish("", "q", "after");
        stage.world.advance(999);
        assert_eq!(stage.world.queue("q").ready, 3);
        // The head does not expire, so what is behind it does when it is met.
        assert_eq!(near.get_no_ack("q").unwrap().text(), "before");
        stage.world.advance(1_000_000);
        assert_eq!(texts(&near, "q"), ["after"]);
    });
}

#[test]
fn of_argument_policy_and_operator_policy_the_lowest_limit_holds() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare_with("q", Table::new().with("x-max-length", 7));
        far.publish_all("q", (0..20).map(|number| number.to_string()));
        assert_eq!(stage.world.queue("q").ready, 7);
        set_policy(&stage.world, "p", "^q$", limit(10));
        assert_eq!(stage.world.queue("q").ready, 7);
        set_operator_policy(&stage.world, "o", "^q$", limit(5));
        assert_eq!(stage.world.queue("q").ready, 5);
        // A declaration is compared with the arguments.
        near.declare_with("q", Table::new().with("x-max-length", 7));
        assert_eq!(texts(&near, "q"), ["15", "16", "17", "18", "19"]);
    });
}

#[test]
fn a_queue_follows_the_policy_from_its_declaration_on() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        set_policy(&stage.world, "p", "^(?!amq\\.).*", limit(2));
        near.declare("q");
        let own = near.declare_exclusive("").queue;
        far.publish_all("q", ["1", "2", "3"]);
        far.publish_all(&own, ["1", "2", "3"]);
        assert_eq!(texts(&near, "q"), ["2", "3"]);
        assert_eq!(texts(&near, &own).len(), 3, "the pattern rules its name out");
    });
}

#[test]
fn a_policy_with_a_key_of_streams_is_for_no_other_queue() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.publish_all("q", ["1", "2", "3"]);
        set_policy(&stage.world, "p", "", limit(1).with("max-age", "7D"));
        assert_eq!(stage.world.queue("q").ready, 3);
    });
}

#[test]
fn a_lease_begins_with_the_policy_and_ends_with_it() {
    everywhere(|stage| {
        let near = stage.near();
        let exists = |name: &str| stage.world.find_queue("/", name).is_some();
        near.declare("a");
        near.declare("b");
        stage.world.advance(5_000);
        set_policy(&stage.world, "p", "^[ab]$", Table::new().with("expires", 1_000));
        stage.world.advance(500);
        // Another key does not renew it.
        set_policy(
            &stage.world,
            "p",
            "^[ab]$",
            Table::new().with("expires", 1_000).with("max-length", 9),
        );
        stage.world.advance(499);
        assert!(exists("a") && exists("b"));
        stage.world.request(clear("p")).unwrap();
        near.declare("c");
        set_policy(&stage.world, "p", "^c$", Table::new().with("expires", 1_000));
        stage.world.advance(999);
        assert!(exists("a") && exists("b") && exists("c"), "that of a and b is cleared");
        stage.world.advance(1);
        assert!(exists("a") && exists("b") && !exists("c"));
    });
}

#[test]
fn the_next_publish_meets_the_new_overflow_rule() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.declare_with("own", Table::new().with("x-overflow", "drop-head"));
        far.confirm_select();
        far.publish_all("q", ["1", "2"]);
        assert_eq!(far.confirmed().0.len(), 2);
        let definition = limit(2).with("overflow", "reject-publish");
        set_policy(&stage.world, "p", "", definition);
        far.publish("", "q", "3");
        assert_eq!(far.confirmed().1.len(), 1);
        assert_eq!(texts(&near, "q"), ["1", "2"]);
        far.publish_all("own", ["1", "2", "3"]);
        assert_eq!(far.confirmed().0.len(), 3);
        assert_eq!(texts(&near, "own"), ["2", "3"], "a classic queue follows its argument");
        clear_policy(&stage.world, "p");
        far.publish_all("q", ["1", "2", "3"]);
        assert_eq!(far.confirmed().0.len(), 3);
    });
}

#[test]
fn dead_letters_go_where_the_policy_says() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        near.declare("first");
        near.declare("second");
        let reject = |body: &str| {
            far.publish("", "q", body);
            let message = near.get("q").unwrap();
            near.reject(message.tag, false);
        };
        let to = |key: &str| {
            Table::new().with("dead-letter-exchange", "").with("dead-letter-routing-key", key)
        };
        reject("0");
        set_policy(&stage.world, "p", "^q$", to("first"));
        reject("1");
        set_policy(&stage.world, "p", "^q$", to("second"));
        reject("2");
        clear_policy(&stage.world, "p");
        reject("3");
        assert_eq!(
            (texts(&near, "first"), texts(&near, "second")),
            (vec!["1".into()], vec!["2".into()])
        );
    });
}

#[test]
fn a_message_comes_back_as_often_as_the_policy_says() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        set_policy(&stage.world, "p", "^q$", Table::new().with("delivery-limit", 1));
        far.publish("", "q", "1");
        for _ in 0..2 {
            let message = near.get("q").unwrap();
            near.reject(message.tag, true);
        }
        assert!(near.get("q").is_none());
    });
}

#[test]
fn a_delivery_waits_for_its_acknowledgement_as_long_as_the_policy_says() {
    let world = World::new(2);
    let (alice, bob) = (world.channel(0), world.channel(1));
    alice.declare("q");
    set_policy(&world, "p", "^q$", Table::new().with("consumer-timeout", 60_000));
    bob.consume("q", "c");
    alice.publish("", "q", "1");
    world.advance(300_000);
    assert!(!bob.is_open());
}

#[test]
fn an_exchange_sends_on_what_it_routes_nowhere_where_the_policy_says() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("x", "direct");
        near.exchange("rest", "fanout");
        near.declare("q");
        near.declare("lost");
        near.bind("q", "x", "known");
        near.bind("lost", "rest", "");
        let publish = || {
            far.publish("x", "known", "1");
            far.publish("x", "unknown", "2");
            (near.purge("q"), near.purge("lost"))
        };
        assert_eq!((publish(), publish()), ((1, 0), (1, 0)), "both ways are remembered");
        set_policy(&stage.world, "p", "^x$", Table::new().with("alternate-exchange", "rest"));
        assert_eq!((publish(), publish()), ((1, 1), (1, 1)));
        clear_policy(&stage.world, "p");
        assert_eq!(publish(), (1, 0));
        // One that is declared under a policy.
        set_policy(&stage.world, "p", "^y$", Table::new().with("alternate-exchange", "rest"));
        near.exchange("y", "direct");
        far.publish("y", "unknown", "3");
        assert_eq!(near.purge("lost"), 1);
    });
}

#[test]
fn very_many_queues_follow_in_slices() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.client().together(|| {
        for number in 0..3_000 {
            alice.send(queue::Declare {
                queue: &format!("q{number}"),
                no_wait: true,
                ..Default::default()
            });
        }
    });
    world.settle();
    let changed = world.begin(set(PolicyScope::User, "p", "", limit(5)));
    while changed.try_recv().is_err() {
        world.round();
    }
    let followers = || {
        world.broker(0, |broker| {
            broker.homes.policy_settings().filter(|(_, settings)| settings.is_some()).count()
        })
    };
    let (mut before, mut slices) = (followers(), 0);
    while before < 3_000 {
        world.turn(0);
        let after = followers();
        assert!(after - before <= 128, "{} queues in one turn", after - before);
        slices += usize::from(after > before);
        before = after;
    }
    assert!(slices > 2, "{slices}");
    await_policies(&world);
}

#[test]
fn the_same_settings_hold_after_a_restart() {
    on_disk(|world, ending| {
        let alice = world.channel(0);
        durable(&alice, "q");
        durable(&alice, "other");
        set_policy(world, "p", "^q$", limit(3));
        set_operator_policy(world, "o", "^q$", limit(2).with("message-ttl", 5_000));
        set_policy(world, "gone", "^other$", limit(1));
        clear_policy(world, "gone");
        let before = settings(world);
        assert_eq!(before.len(), 1);
        ending.now(world);
        assert_eq!(settings(world), before);
        let alice = world.channel(0);
        for queue in ["q", "other"] {
            (0..4).for_each(|number| {
                alice.publish_with("", queue, &persistent(), number.to_string())
            });
        }
        assert_eq!((world.queue("q").ready, world.queue("other").ready), (2, 4));
        world.advance(5_000);
        assert_eq!((world.queue("q").ready, world.queue("other").ready), (0, 4));
    });
}

/// Settings that policies give, by the queue's name.
fn settings(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for shard in 0..world.shards() {
        world.broker(shard, |broker| {
            for (id, settings) in broker.homes.policy_settings() {
                let name = broker.directory.queue_by_id(id).unwrap().name();
                found.extend(settings.map(|settings| format!("{name} {settings:?}")));
            }
        });
    }
    found.sort();
    found
}

#[test]
fn a_queue_that_moves_follows_its_policies_there() {
    let world = World::new(3);
    let alice = world.channel(0);
    alice.declare("q");
    set_policy(&world, "p", "^q$", limit(2));
    world.move_queue("q", 1);
    assert_eq!(world.queue("q").home, 1);
    alice.publish_all("q", ["1", "2", "3"]);
    assert_eq!(texts(&alice, "q"), ["2", "3"]);
    set_policy(&world, "p", "^q$", limit(1));
    world.move_queue("q", 2);
    alice.publish_all("q", ["1", "2", "3"]);
    assert_eq!(texts(&alice, "q"), ["3"]);
    // A change that comes while it is on its way.
    world.quietly(|| {
        world.move_queue("q", 1);
        drop(world.begin(clear("p")));
    });
    world.settle();
    await_policies(&world);
    assert_eq!(world.queue("q").home, 1);
    alice.publish_all("q", ["1", "2", "3"]);
    assert_eq!(texts(&alice, "q"), ["1", "2", "3"]);
}

#[test]
fn a_virtual_host_that_goes_keeps_nobody_waiting() {
    let world = World::new(2);
    world.add_vhost("v");
    let mut request = set(PolicyScope::User, "p", "", limit(1));
    if let Request::SetPolicy { vhost, .. } = &mut request {
        *vhost = "v".into();
    }
    drop(world.begin(request));
    drop(world.begin(Request::DeleteVhost { name: "v".into() }));
    world.settle();
    await_policies(&world);
}

#[test]
fn what_a_shard_does_not_know_yet_is_waited_for() {
    let world = World::new(2);
    let waits = world.begin_asking(1, Query::AwaitPolicies { epoch: 1 });
    world.settle();
    assert!(waits.try_recv().is_err());
    world.request(set(PolicyScope::User, "p", "", limit(1))).unwrap();
    assert_eq!(waits.try_recv(), Ok(Answer::PoliciesApplied { epoch: 1 }));
}

#[test]
fn changes_that_come_while_queues_trim_are_followed_in_the_end() {
    let world = World::new(1);
    let alice = world.channel(0);
    for queue in ["a", "b"] {
        alice.declare(queue);
        alice.publish_all(queue, (0..5_000).map(|number| number.to_string()));
    }
    for length in [30, 20, 10] {
        let changed = world.begin(set(PolicyScope::User, "p", "^[ab]$", limit(length)));
        while changed.try_recv().is_err() {
            world.round();
        }
        world.round();
        world.round();
        assert!(world.queue("b").ready > 30, "it is still trimmed");
    }
    let applied = world.begin_asking(0, Query::AwaitPolicies { epoch: 3 });
    world.settle();
    assert_eq!(applied.try_recv(), Ok(Answer::PoliciesApplied { epoch: 3 }));
    assert_eq!((world.queue("a").ready, world.queue("b").ready), (10, 10));
}

#[test]
fn who_waits_for_long_is_told_how_far_the_shard_is() {
    let world = World::new(1);
    world.request(set(PolicyScope::User, "p", "", limit(1))).unwrap();
    let waits = world.begin_asking(0, Query::AwaitPolicies { epoch: 2 });
    world.advance(14_000);
    assert!(waits.try_recv().is_err());
    world.advance(1_000);
    assert_eq!(waits.try_recv(), Ok(Answer::PoliciesApplied { epoch: 1 }));
}

#[test]
fn what_a_queue_has_dropped_goes_where_it_was_to_go_when_the_policy_ends_meanwhile() {
    let world = World::new(1);
    let alice = world.channel(0);
    let (queues, messages) = (["a", "b", "c"], 2_000);
    queues.iter().for_each(|queue| _ = alice.declare(queue));
    alice.declare("dead");
    let begin = |request| {
        let changed = world.begin(request);
        while changed.try_recv().is_err() {
            world.round();
        }
    };
    let mut met = 0;
    for rounds in 0..60 {
        for queue in queues {
            alice.publish_all(queue, (0..messages).map(|number| number.to_string()));
        }
        let to = limit(1).with("dead-letter-exchange", "").with("dead-letter-routing-key", "dead");
        begin(set(PolicyScope::User, "p", "^[abc]$", to));
        (0..rounds).for_each(|_| _ = world.round());
        begin(clear("p"));
        world.settle();
        let left: u64 = queues.iter().map(|queue| world.queue(queue).ready).sum();
        let dead = world.queue("dead").ready;
        assert_eq!(dead + left, 3 * messages, "after {rounds} rounds");
        met += usize::from(dead > 0 && left > 3);
        queues.iter().for_each(|queue| _ = alice.purge(queue));
        alice.purge("dead");
        if left == 3 {
            break;
        }
    }
    assert!(met > 3, "some changes come while the queues trim: {met}");
}

#[test]
fn a_letter_that_must_arrive_does_so_when_the_policy_has_ended() {
    let world = World::new(1);
    let alice = world.channel(0);
    durable_with(&alice, "q", Table::new().with("x-queue-type", "quorum"));
    let to = Table::new()
        .with("dead-letter-exchange", "")
        .with("dead-letter-routing-key", "dead")
        .with("overflow", "reject-publish")
        .with("dead-letter-strategy", "at-least-once");
    set_policy(&world, "p", "^q$", to.clone());
    alice.publish("", "q", "1");
    let tag = alice.get("q").unwrap().tag;
    alice.reject(tag, false);
    world.settle();
    clear_policy(&world, "p");
    world.advance(5_000);
    alice.declare("dead");
    world.advance(60_000);
    assert_eq!(texts(&alice, "dead"), ["1"]);
    // Where those that come next must arrive, too, it goes where they go.
    let wrong = to.clone().with("dead-letter-routing-key", "nowhere");
    set_policy(&world, "p", "^q$", wrong);
    alice.publish("", "q", "2");
    let tag = alice.get("q").unwrap().tag;
    alice.reject(tag, false);
    world.advance(5_000);
    set_policy(&world, "p", "^q$", to);
    world.advance(60_000);
    assert_eq!(texts(&alice, "dead"), ["2"]);
}
