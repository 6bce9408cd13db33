//! Publishes and commits that are large: they wait for room on the disk, they are refused as a whole,
//! and they keep nobody else waiting.

use core::time::Duration;

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue, tx};
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Limits, Options, StoreOptions, World};

use crate::adopted_logs::fill;
use crate::restart::{durable, durable_exchange, durable_with, persistent};

/// Durable queues behind a durable exchange `f`.
fn fan(channel: &Channel, queues: u32) {
    durable_exchange(channel, "f", "fanout");
    for queue in 0..queues {
        durable(channel, &format!("q{queue}"));
        channel.bind(&format!("q{queue}"), "f", "");
    }
}

/// A world whose logs have at most so many segments.
fn small(shards: u16, segments_max: usize) -> World {
    let mut store = StoreOptions::default();
    store.template.segments_max = segments_max;
    World::with(Options { shards, store: Some(store), ..Options::default() })
}

fn again(world: &World, shards: u16) {
    world.stop();
    world.start_again(shards);
}

/// Checks how many messages stand in each queue of the fan.
fn expect_ready(world: &World, queues: u32, ready: u64) {
    for queue in 0..queues {
        assert_eq!(world.queue(&format!("q{queue}")).ready, ready, "in q{queue}");
    }
}

#[test]
fn a_message_for_very_many_durable_queues_waits_for_room_and_is_in_all_of_them() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        let channel = world.channel(0);
        fan(&channel, 1_300);
        channel.confirm_select();
        channel.publish_with("f", "", &persistent(), vec![b'x'; 200_000]);
        world.advance(1_000);
        assert_eq!(channel.confirmed(), (vec![1], vec![]), "with {shards} shards");
        expect_ready(&world, 1_300, 1);
        again(&world, shards);
        expect_ready(&world, 1_300, 1);
    }
}

#[test]
fn a_record_that_names_many_queues_finds_the_room_that_was_asked_for() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    fan(&channel, 500);
    channel.confirm_select();
    channel.client().together(|| {
        for _ in 0..400 {
            channel.publish_with("f", "", &persistent(), "1");
        }
    });
    world.advance(1_000);
    let (acked, nacked) = channel.confirmed();
    assert_eq!((acked.len(), nacked.len()), (400, 0));
    again(&world, 1);
    expect_ready(&world, 500, 400);
}

#[test]
fn publishes_stay_in_order_behind_one_that_waits_for_room() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    fan(&channel, 600);
    channel.confirm_select();
    channel.client().together(|| {
        channel.publish_with("f", "", &persistent(), vec![b'0'; 300_000]);
        channel.publish_with("", "q599", &persistent(), "1");
        channel.publish("", "q599", "2");
    });
    world.advance(1_000);
    let sizes = |channel: &Channel| -> Vec<usize> {
        (0..3).map(|_| channel.get_no_ack("q599").expect("a message").body.len()).collect()
    };
    assert_eq!(sizes(&channel), [300_000, 1, 1]);
    assert_eq!(channel.confirmed(), (vec![1, 2, 3], vec![]));
}

#[test]
fn what_waits_for_room_on_a_full_disk_waits_asleep_and_is_stored_when_there_is_some() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    fan(&channel, 600);
    channel.confirm_select();
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    channel.publish_with("f", "", &persistent(), vec![b'x'; 400_000]);
    world.advance(3_000);
    assert_eq!(channel.confirmed(), (vec![], vec![]));
    let turns = world.turns(0);
    world.advance(100);
    assert!(world.turns(0) - turns < 10, "{} turns", world.turns(0) - turns);
    // Others are served meanwhile.
    let other = world.channel(0);
    other.declare("other");
    other.publish("", "other", "x");
    assert_eq!(world.queue("other").ready, 1);
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(5_000);
    assert_eq!(channel.confirmed(), (vec![1], vec![]));
    again(&world, 1);
    expect_ready(&world, 600, 1);
}

#[test]
fn a_message_that_no_log_can_ever_hold_is_refused_at_once() {
    for home in [0, 1] {
        let world = small(2, 12);
        durable(&world.channel(home), "q");
        let channel = world.channel(0);
        channel.confirm_select();
        channel.publish_with("", "q", &persistent(), vec![b'x'; 2_000_000]);
        if home == 0 {
            let refused = channel.expect_refused();
            assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (60, 40)));
            assert!(refused.text.contains("larger than what may be stored"), "{}", refused.text);
        } else {
            assert_eq!(channel.confirmed(), (vec![], vec![1]));
        }
        assert_eq!(world.queue("q").ready, 0);
        // Nobody waits behind it.
        let next = world.channel(0);
        next.confirm_select();
        next.publish_with("", "q", &persistent(), "1");
        world.advance(10);
        assert_eq!(next.confirmed(), (vec![1], vec![]));
    }
}

#[test]
fn a_queue_does_not_have_what_its_log_did_not_take() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "graves");
    let dead =
        Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", "graves");
    durable_with(&channel, "q", dead);
    channel.publish_with("", "q", &persistent(), "1");
    let message = channel.get("q").expect("a message");
    world.disk(|disk| disk.faults.sync_error = 1_000);
    channel.publish_with("", "q", &persistent(), "2");
    world.advance(10_000);
    assert!(world.events().iter().any(|event| event.kind == "log-stopped"));
    channel.reject(message.tag, false);
    world.advance(1_000);
    assert_eq!(world.queue("graves").ready, 0);
}

#[test]
fn a_commit_of_any_size_is_answered_and_all_of_it_is_there_after_a_restart() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        let channel = world.channel(0);
        fan(&channel, 400);
        channel.tx_select();
        channel.client().together(|| {
            for _ in 0..250 {
                channel.publish_with("f", "", &persistent(), "1");
            }
        });
        channel.send(tx::Commit {});
        world.advance(5_000);
        channel.expect("tx.commit-ok");
        expect_ready(&world, 400, 250);
        again(&world, shards);
        expect_ready(&world, 400, 250);
    }
}

#[test]
fn a_commit_that_no_log_can_ever_hold_is_refused_before_anything_of_it_is_done() {
    let world = small(1, 12);
    let channel = world.channel(0);
    fan(&channel, 50);
    durable(&channel, "work");
    channel.publish_with("", "work", &persistent(), "1");
    channel.tx_select();
    let message = channel.get("work").expect("a message");
    channel.client().together(|| {
        channel.ack(message.tag);
        for _ in 0..1_000 {
            channel.publish_with("f", "", &persistent(), vec![b'1'; 1_000]);
        }
    });
    channel.send(tx::Commit {});
    let refused = channel.expect_refused();
    assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (90, 20)));
    expect_ready(&world, 50, 0);
    // Not even its acknowledgement.
    let again = world.channel(0).get("work").expect("the message again");
    assert!(again.redelivered);
}

#[test]
fn a_commit_of_small_messages_for_many_queues_is_stored_if_they_are_without_a_transaction() {
    for messages in [300, 1_000] {
        let world = small(1, 12);
        let channel = world.channel(0);
        fan(&channel, 50);
        channel.tx_select();
        channel.client().together(|| {
            for _ in 0..messages {
                channel.publish_with("f", "", &persistent(), "1");
            }
        });
        channel.send(tx::Commit {});
        world.advance(5_000);
        channel.expect("tx.commit-ok");
        again(&world, 1);
        expect_ready(&world, 50, messages);
    }
}

#[test]
fn a_commit_one_message_of_which_no_log_can_ever_hold_is_refused_before_anything_of_it_is_done() {
    let world = small(2, 12);
    let home = world.channel(1);
    let far = durable_of(&world, &home, "far", 1);
    let near = durable_of(&world, &home, "near", 0);
    for last in [&near, &far] {
        let channel = world.channel(0);
        channel.tx_select();
        channel.publish_with("", &near, &persistent(), "1");
        channel.publish_with("", &far, &persistent(), "1");
        channel.publish_with("", last, &persistent(), vec![b'x'; 700_000]);
        channel.send(tx::Commit {});
        let refused = channel.expect_refused();
        assert_eq!((refused.code, refused.method), (ReplyCode::PRECONDITION_FAILED, (90, 20)));
        assert_eq!((world.queue(&near).ready, world.queue(&far).ready), (0, 0));
    }
}

#[test]
fn a_commit_that_waits_for_room_does_not_happen_when_its_channel_is_gone() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.publish_with("", "q", &persistent(), "1");
    channel.tx_select();
    let message = channel.get("q").expect("a message");
    channel.ack(message.tag);
    channel.publish_with("", "q", &persistent(), vec![b'2'; 50_000]);
    channel.publish_with("", "q", &persistent(), vec![b'2'; 9_000]);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    // A commit that is too large to be done at once takes what room there is.
    let filler = world.channel(0);
    durable(&filler, "filled");
    filler.tx_select();
    for _ in 0..200 {
        filler.publish_with("", "filled", &persistent(), vec![b'x'; 9_000]);
    }
    filler.send(tx::Commit {});
    world.advance(1_000);
    assert_eq!(filler.answer(), None);
    channel.send(tx::Commit {});
    world.advance(1_000);
    assert_eq!(channel.answer(), None);
    channel.client().reset();
    world.advance(1_000);
    assert_eq!(world.queue("q").ready, 1);
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(5_000);
    filler.expect("tx.commit-ok");
    let found = world.queue("q");
    assert_eq!((found.ready, found.unacked, world.queue("filled").ready), (1, 0, 200));
}

#[test]
fn a_commit_that_has_begun_is_finished_though_its_connection_is_gone() {
    let world = World::new(1);
    let channel = world.channel(0);
    channel.declare("work");
    channel.publish_all("work", (0..300).map(|index| index.to_string()));
    for queue in 0..20 {
        channel.declare(&format!("q{queue}"));
        channel.bind(&format!("q{queue}"), "amq.fanout", "");
    }
    channel.tx_select();
    for _ in 0..300 {
        channel.get("work").expect("a message");
    }
    world.quietly(|| {
        channel.ack_up_to(300);
        for _ in 0..500 {
            channel.publish("amq.fanout", "", "x");
        }
        channel.send(tx::Commit {});
    });
    let began = || world.queue("q0").ready > 0;
    while !began() {
        assert!(world.round(), "it begins");
    }
    assert!(world.queue("q0").ready < 500, "in slices");
    channel.client().reset();
    world.settle();
    for queue in 0..20 {
        assert_eq!(world.queue(&format!("q{queue}")).ready, 500);
    }
    let work = world.queue("work");
    assert_eq!((work.ready, work.unacked), (0, 0));
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn other_clients_are_served_between_the_slices_of_a_commit() {
    let world = World::new(1);
    let (channel, other) = (world.channel(0), world.channel(0));
    other.declare("other");
    for queue in 0..50 {
        channel.declare(&format!("q{queue}"));
        channel.bind(&format!("q{queue}"), "amq.fanout", "");
    }
    channel.tx_select();
    channel.client().together(|| {
        for _ in 0..400 {
            channel.publish("amq.fanout", "", "x");
        }
    });
    world.quietly(|| channel.send(tx::Commit {}));
    let mut answered = 0;
    while channel.answer().is_none() {
        world.quietly(|| other.send(basic::Get { queue: "other", no_ack: true }));
        assert!(world.round(), "the commit goes on");
        world.round();
        answered += usize::from(other.answer().is_some());
    }
    // 20,000 copies, at most 512 of them at once.
    assert!(answered > 10, "{answered} answers during the commit");
    for queue in 0..50 {
        assert_eq!(world.queue(&format!("q{queue}")).ready, 400);
    }
}

#[test]
fn a_transaction_to_very_many_queues_costs_one_list_of_them() {
    let world = World::new(1);
    let channel = world.channel(0);
    for queue in 0..600 {
        channel.declare(&format!("q{queue}"));
        channel.bind(&format!("q{queue}"), "amq.fanout", "");
    }
    channel.tx_select();
    channel.client().together(|| {
        for _ in 0..100 {
            channel.publish("amq.fanout", "", "x");
        }
    });
    world.quietly(|| channel.send(tx::Commit {}));
    let mut most = 0;
    while channel.answer().is_none() {
        assert!(world.round(), "the commit goes on");
        let bodies = world.broker(0, |broker| broker.shard.pool.len());
        let done = world.queue("q0").ready as usize;
        most = most.max(bodies.saturating_sub(done));
    }
    // One publish of it is under way at a time.
    assert!(most <= 1, "{most} bodies wait");
    for queue in 0..600 {
        assert_eq!(world.queue(&format!("q{queue}")).ready, 100);
    }
}

#[test]
fn a_message_for_very_many_queues_is_kept_once_on_each_shard_and_what_follows_does_not_overtake_it()
{
    let world = World::new(2);
    let (near, far) = (world.channel(0), world.channel(1));
    for queue in 0..1_400 {
        let channel = if queue % 2 == 0 { &near } else { &far };
        channel.declare(&format!("q{queue}"));
        channel.bind(&format!("q{queue}"), "amq.fanout", "");
    }
    let publisher = world.channel(0);
    publisher.confirm_select();
    publisher.client().together(|| {
        publisher.publish("amq.fanout", "", "first");
        publisher.publish("", "q1399", "second");
    });
    assert_eq!(publisher.confirmed(), (vec![1, 2], vec![]));
    let bodies = |shard| world.broker(shard, |broker| broker.shard.pool.len());
    assert_eq!((bodies(0), bodies(1)), (1, 2));
    expect_ready(&world, 1_399, 1);
    let texts = [(); 2].map(|()| near.get_no_ack("q1399").expect("a message").text());
    assert_eq!(texts, ["first", "second"]);
}

/// Declares durable queues until one of them is at home on this shard: its name.
pub(crate) fn durable_of(world: &World, channel: &Channel, prefix: &str, shard: u16) -> String {
    let names = (0..).map(|number| format!("{prefix}{number}"));
    let is_there = |name: &String| {
        durable(channel, name);
        world.queue(name).home == shard
    };
    names.into_iter().find(is_there).expect("queues go to all shards in turn")
}

/// Three shards, the first of them without room in its log, and a fan to durable queues of all of
/// them: with `x`, a queue of the second one. Who publishes on the first shard, who consumes from
/// `x`, and how room is made.
fn half_full() -> (World, Channel, Channel, String, impl FnOnce(&World)) {
    let world = small(3, 20);
    let channel = world.channel(0);
    fan(&channel, 600);
    let filled = durable_of(&world, &channel, "filled", 0);
    let x = durable_of(&world, &channel, "x", 1);
    channel.bind(&x, "f", "");
    let consumer = world.channel(1);
    consumer.consume_no_ack(&x, "c");
    let filler = world.channel(0);
    filler.client().together(|| {
        for _ in 0..200 {
            filler.publish_with("", &filled, &persistent(), vec![b'0'; 9_000]);
        }
    });
    world.advance(1_000);
    let publisher = world.channel(0);
    publisher.confirm_select();
    let make_room = move |world: &World| {
        world.channel(2).delete(&filled);
        world.advance(5_000);
    };
    (world, publisher, consumer, x, make_room)
}

#[test]
fn a_queue_that_has_what_others_wait_for_and_moves_does_not_get_it_again() {
    let (world, publisher, consumer, x, make_room) = half_full();
    publisher.publish_with("f", "", &persistent(), vec![b'x'; 30_000]);
    world.advance(1_000);
    assert_eq!((consumer.bodies().len(), publisher.confirmed().0.len()), (1, 0));
    world.move_queue(&x, 2);
    world.advance(1_000);
    assert_eq!(world.queue(&x).home, 2);
    make_room(&world);
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    expect_ready(&world, 600, 1);
    assert_eq!(consumer.bodies().len(), 0, "it came again");
}

#[test]
fn a_queue_on_its_way_gets_what_others_wait_for_once() {
    let (world, publisher, consumer, x, make_room) = half_full();
    world.quietly(|| {
        world.move_queue(&x, 2);
        world.round();
        publisher.publish_with("f", "", &persistent(), vec![b'x'; 30_000]);
        world.round();
    });
    world.advance(1_000);
    assert_eq!(world.queue(&x).home, 2);
    assert_eq!((consumer.bodies().len(), publisher.confirmed().0.len()), (0, 0));
    make_room(&world);
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    expect_ready(&world, 600, 1);
    assert_eq!(consumer.bodies().len(), 1);
}

#[test]
fn a_commit_of_many_publishes_comes_to_its_end_while_others_declare_queues() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.tx_select();
    channel.client().together(|| {
        for _ in 0..3_000 {
            channel.publish_with("", "q", &persistent(), "1");
        }
    });
    let other = world.channel(0);
    world.quietly(|| {
        channel.send(tx::Commit {});
        for number in 0..100 {
            let queue = format!("other{number}");
            other.send(queue::Declare { queue: &queue, ..Default::default() });
            world.round();
        }
    });
    let ready =
        |broker: &lepus_broker::Broker| broker.homes.queues().map(|(_, q)| q.ready()).sum::<u64>();
    assert_eq!(world.broker(0, ready), 3_000);
    channel.expect("tx.commit-ok");
}

#[test]
fn how_much_a_large_commit_takes_is_found_out_in_slices_though_others_declare_queues() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    for queue in 0..200 {
        let queue = format!("q{queue}");
        channel.declare(&queue);
        channel.bind(&queue, "amq.fanout", "");
        channel.bind(&queue, "amq.direct", "");
    }
    channel.tx_select();
    channel.client().together(|| {
        for number in 0..500 {
            // Each goes another way than the one before.
            let exchange = ["amq.fanout", "amq.direct"][number % 2];
            channel.publish_with(exchange, "", &persistent(), "1");
        }
    });
    let other = world.channel(0);
    let mut turns = 0;
    world.quietly(|| {
        channel.send(tx::Commit {});
        while world.counters().enqueued_local == 0 {
            let queue = format!("other{}", turns % 10);
            other.send(queue::Declare { queue: &queue, ..Default::default() });
            other.send(queue::Delete { queue: &queue, ..Default::default() });
            world.round();
            turns += 1;
        }
    });
    // 100,000 copies; from the moment at which it is known that they are too many for one go, a few
    // publishes at a time.
    assert!(turns > 10, "{turns} turns");
}

// A publish that goes the way of the one before is sized in no time, and yet it is as many copies.
#[test]
fn of_many_commits_to_very_many_queues_one_is_made_in_a_turn() {
    let (channels, publishes, queues) = (40, 4, 2_100);
    let mut store = StoreOptions::default();
    store.template.segment_bytes = 1 << 20;
    let world = World::with(Options { shards: 1, store: Some(store), ..Options::default() });
    let first = world.channel(0);
    for queue in 0..queues {
        let queue = format!("q{queue}");
        durable(&first, &queue);
        first.bind(&queue, "amq.fanout", "");
    }
    let client = first.client();
    let all: Vec<Channel> = (0..channels).map(|_| client.channel()).collect();
    for channel in &all {
        channel.tx_select();
        client.together(|| {
            for _ in 0..publishes {
                channel.publish_with("amq.fanout", "", &persistent(), "1");
            }
        });
    }
    let copies = || world.counters().enqueued_local;
    let (begin, mut before, mut most) = (copies(), copies(), 0);
    world.quietly(|| {
        client.together(|| all.iter().for_each(|channel| channel.send(tx::Commit {})));
        for _ in 0..100 * channels {
            world.round();
            let now = copies();
            most = most.max(now - core::mem::replace(&mut before, now));
        }
    });
    assert_eq!(before - begin, channels * publishes * queues);
    assert!(most <= publishes * queues + 512, "{most} copies in one turn");
    world.settle();
    for channel in &all {
        channel.expect("tx.commit-ok");
    }
}

#[test]
fn a_commit_of_very_many_publishes_is_sliced_though_they_go_nowhere() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    channel.tx_select();
    channel.client().together(|| {
        for _ in 0..70_000 {
            channel.publish_with("amq.fanout", "", &persistent(), "");
        }
    });
    let dropped = || world.counters().unroutable_dropped;
    let (mut before, mut most) = (dropped(), 0);
    world.quietly(|| channel.send(tx::Commit {}));
    while channel.answer().is_none() {
        assert!(world.round(), "the commit goes on");
        let now = dropped();
        most = most.max(now - core::mem::replace(&mut before, now));
    }
    assert_eq!(before, 70_000);
    assert!(most <= 512, "{most} in one turn");
}

#[test]
fn a_queue_that_waits_for_room_and_moves_gets_what_it_waits_for() {
    let (world, publisher, consumer, _, make_room) = half_full();
    let x = durable_of(&world, &consumer, "y", 0);
    consumer.bind(&x, "f", "");
    publisher.publish_with("f", "", &persistent(), vec![b'x'; 30_000]);
    world.advance(1_000);
    assert_eq!(world.queue(&x).ready, 0);
    world.move_queue(&x, 2);
    world.advance(1_000);
    assert_eq!(world.queue(&x).home, 2);
    make_room(&world);
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    assert_eq!(world.queue(&x).ready, 1);
}

/// Whether somebody may publish to a log with `filled` messages; before that a transaction may come
/// that finds no room, and go.
fn may_publish(filled: usize, somebody_waited: bool) -> Option<bool> {
    let mut store = StoreOptions::default();
    (store.template.segments_max, store.template.segment_bytes) = (12, 128 << 10);
    let world = World::with(Options { shards: 1, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.confirm_select();
    for _ in 0..filled {
        channel.publish_with("", "q", &persistent(), vec![b'0'; 9_000]);
    }
    world.advance(1_000);
    if somebody_waited {
        let client = world.channel(0);
        client.tx_select();
        for _ in 0..12 {
            client.publish_with("", "q", &persistent(), vec![b'1'; 9_000]);
        }
        client.send(tx::Commit {});
        world.advance(1_000);
        if client.answer().is_some() {
            return None;
        }
        client.client().reset();
        world.advance(5_000);
    }
    let other = world.channel(0);
    other.confirm_select();
    other.client().together(|| {
        for _ in 0..2 {
            other.publish_with("", "q", &persistent(), "2");
        }
    });
    world.advance(1_000);
    other.client().together(|| other.publish_with("", "q", &persistent(), "2"));
    world.advance(1_000);
    Some(other.confirmed().0.len() == 3)
}

#[test]
fn who_waited_for_room_and_is_gone_keeps_nobody_waiting() {
    let mut waited = 0;
    for filled in (60..150).step_by(5) {
        let Some(may) = may_publish(filled, true) else { continue };
        waited += 1;
        assert_eq!(may, may_publish(filled, false) == Some(true), "with {filled} messages");
    }
    assert!(waited > 0);
}

#[test]
fn what_needs_little_room_does_not_wait_behind_what_needs_much() {
    let world = small(1, 24);
    let channel = world.channel(0);
    durable(&channel, "q");
    for (queue, count) in [("dropped", 50), ("kept", 150)] {
        let filler = world.channel(0);
        durable(&filler, queue);
        filler.client().together(|| {
            for _ in 0..count {
                filler.publish_with("", queue, &persistent(), vec![b'0'; 9_000]);
            }
        });
        world.advance(1_000);
    }
    let (much, little) = (world.channel(0), world.channel(0));
    for (channel, bytes) in [(&much, 400_000), (&little, 9_000)] {
        channel.confirm_select();
        channel.publish_with("", "q", &persistent(), vec![b'1'; bytes]);
        world.advance(1_000);
        assert_eq!(channel.confirmed(), (vec![], vec![]));
    }
    channel.delete("dropped");
    world.advance(5_000);
    assert_eq!(little.confirmed(), (vec![1], vec![]));
    assert_eq!(much.confirmed(), (vec![], vec![]));
    channel.delete("kept");
    world.advance(5_000);
    assert_eq!(much.confirmed(), (vec![1], vec![]));
}

#[test]
fn publishers_are_held_back_again_as_soon_as_room_that_came_free_is_used_up() {
    let mut store = StoreOptions::default();
    store.template.retry_interval = Duration::from_secs(3_600);
    store.template.free_segments_max = 100;
    let world = World::with(Options { shards: 1, store: Some(store), ..Options::default() });
    let channel = world.channel(0);
    durable(&channel, "dropped");
    durable(&channel, "kept");
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used + 400_000);
    let fill = |queue| {
        let publisher = world.channel(0);
        for _ in 0..1_000 {
            publisher.publish_with("", queue, &persistent(), vec![b'1'; 9_000]);
            if publisher.client().blocked().is_some() {
                return;
            }
        }
        panic!("nobody holds the publisher back");
    };
    fill("dropped");
    channel.delete("dropped");
    world.advance(5_000);
    assert_eq!(channel.client().blocked(), None);
    fill("kept");
}

#[test]
fn a_persistent_message_to_transient_queues_alone_waits_for_no_log() {
    let world = small(1, 24);
    let channel = world.channel(0);
    durable(&channel, "filled");
    channel.declare("transient");
    channel.client().together(|| {
        for _ in 0..90 {
            channel.publish_with("", "filled", &persistent(), vec![b'0'; 9_000]);
        }
    });
    world.advance(1_000);
    let (waits, goes) = (world.channel(0), world.channel(0));
    waits.confirm_select();
    goes.confirm_select();
    world.quietly(|| {
        for (channel, queue) in [(&waits, "filled"), (&goes, "transient")] {
            channel.publish_with("", queue, &persistent(), vec![b'1'; 700_000]);
        }
    });
    world.advance(1_000);
    assert_eq!(waits.confirmed(), (vec![], vec![]));
    assert_eq!(goes.confirmed(), (vec![1], vec![]));
    assert_eq!(world.queue("transient").ready, 1);
}

#[test]
fn a_message_to_transient_queues_alone_has_no_segments_made() {
    let world = small(1, 24);
    let channel = world.channel(0);
    channel.declare("transient");
    let spare = || world.broker(0, |broker| broker.journal.figures().spare_segments);
    let before = spare();
    for _ in 0..10 {
        channel.publish_with("", "transient", &persistent(), vec![b'1'; 400_000]);
        world.advance(100);
    }
    assert_eq!(world.queue("transient").ready, 10);
    assert_eq!(spare(), before);
}

#[test]
fn what_one_client_sends_to_another_shard_does_not_wait_behind_what_needs_much() {
    let world = small(2, 24);
    let home = world.channel(1);
    home.declare_exclusive("");
    durable(&home, "filled");
    home.client().together(|| {
        for _ in 0..90 {
            home.publish_with("", "filled", &persistent(), vec![b'0'; 9_000]);
        }
    });
    world.advance(1_000);
    let publishers = [world.channel(0), world.channel(0)];
    let [much, little] = &publishers;
    for channel in &publishers {
        channel.declare_exclusive("");
        channel.confirm_select();
    }
    much.publish_with("", "filled", &persistent(), vec![b'1'; 700_000]);
    // What the same client says next keeps its order.
    much.publish_with("", "filled", &persistent(), "behind");
    world.advance(1_000);
    little.publish_with("", "filled", &persistent(), "little");
    world.advance(1_000);
    assert_eq!(little.confirmed(), (vec![1], vec![]));
    assert_eq!(much.confirmed(), (vec![], vec![]));
    home.purge("filled");
    world.advance(5_000);
    assert_eq!(much.confirmed(), (vec![1, 2], vec![]));
}

#[test]
fn a_publish_that_waits_for_more_room_than_the_disk_has_keeps_no_other_publisher_waiting() {
    let world = World::on_disk(1);
    let large = world.channel(0);
    durable(&large, "q");
    large.confirm_select();
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used + 300_000);
    large.publish_with("", "q", &persistent(), vec![b'1'; 400_000]);
    world.advance(5_000);
    assert_eq!(large.confirmed(), (vec![], vec![]));
    let small = world.channel(0);
    small.confirm_select();
    for _ in 0..5 {
        small.publish_with("", "q", &persistent(), "1");
        world.advance(100);
    }
    assert_eq!(small.confirmed(), ((1..=5).collect(), vec![]));
    assert_eq!(small.client().blocked(), None);
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(5_000);
    assert_eq!(large.confirmed(), (vec![1], vec![]));
}

#[test]
fn what_a_commit_spills_takes_no_room_from_what_it_has_to_log() {
    let store = Some(StoreOptions::default());
    let mut options = Options { shards: 1, store, ..Options::default() };
    options.limits.spill_bytes = 1;
    let world = World::with(options);
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.tx_select();
    for _ in 0..20 {
        channel.publish("", "q", vec![b't'; 9_000]);
        channel.publish_with("", "q", &persistent(), vec![b'p'; 1_000]);
    }
    channel.tx_commit();
    expect_all(&world, "q", 40);
    world.crash();
    world.start_again(1);
    expect_all(&world, "q", 20);
}

/// A log of another shard with `filled` messages, and a transaction of `publish` for a queue there that
/// may find no room: how many of its messages are there after a crash.
fn kept_of_a_far_commit(
    limits: Limits,
    filled: usize,
    publish: impl FnOnce(&Channel, &str),
) -> u64 {
    let mut store = StoreOptions::default();
    store.template.segments_max = 12;
    let world =
        World::with(Options { shards: 2, limits, store: Some(store), ..Options::default() });
    let home = world.channel(1);
    home.declare_exclusive("");
    let filler = durable_of(&world, &home, "filler", 1);
    let far = durable_of(&world, &home, "far", 1);
    home.client().together(|| {
        for _ in 0..filled {
            home.publish_with("", &filler, &persistent(), vec![b'0'; 9_000]);
        }
    });
    world.advance(1_000);
    let channel = world.channel(0);
    channel.declare_exclusive("");
    channel.tx_select();
    channel.client().together(|| publish(&channel, &far));
    channel.send(tx::Commit {});
    world.advance(2_000);
    world.crash();
    world.start_again(2);
    world.queue(&far).ready
}

#[test]
fn a_commit_for_a_queue_of_another_shard_is_there_as_a_whole_after_a_crash_or_not_at_all() {
    let three = |channel: &Channel, queue: &str| {
        for _ in 0..3 {
            channel.publish_with("", queue, &persistent(), vec![b'1'; 21_600]);
        }
    };
    let kept = (24..60).map(|filled| kept_of_a_far_commit(Limits::default(), filled, three));
    let kept: Vec<u64> = kept.collect();
    assert!(kept.iter().all(|kept| [0, 3].contains(kept)), "{kept:?}");
    assert!(kept.contains(&0) && kept.contains(&3), "{kept:?}");
}

#[test]
fn what_a_commit_for_another_shard_spills_takes_no_room_from_what_it_has_to_log() {
    let mixed = |channel: &Channel, queue: &str| {
        for _ in 0..20 {
            channel.publish("", queue, vec![b't'; 9_000]);
            channel.publish_with("", queue, &persistent(), vec![b'p'; 1_000]);
        }
    };
    let limits = Limits { spill_bytes: 1, ..Limits::default() };
    let kept = (0..76).step_by(4).map(|filled| kept_of_a_far_commit(limits.clone(), filled, mixed));
    let kept: Vec<u64> = kept.collect();
    assert!(kept.iter().all(|kept| [0, 20].contains(kept)), "{kept:?}");
    assert!(kept.contains(&20), "{kept:?}");
}

fn expect_all(world: &World, queue: &str, ready: u64) {
    world.advance(1_000);
    assert_eq!(world.queue(queue).ready, ready);
}

// The server stops while something waits for room that nobody makes any more.
#[test]
fn logs_without_room_close_and_what_waited_for_it_is_as_it_was() {
    for far in [false, true] {
        let shards = 1 + u16::from(far);
        let world = small(shards, 12);
        let home = world.channel(u16::from(far));
        durable(&home, "dead");
        let to_dead = Table::new()
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "dead");
        durable_with(&home, "q", to_dead);
        home.confirm_select();
        home.publish_with("", "q", &persistent(), vec![b'l'; 100_000]);
        world.advance(100);
        let channel = world.channel(0);
        channel.confirm_select();
        for _ in 0..5 {
            channel.publish_with("", "dead", &persistent(), vec![b'x'; 50_000]);
            world.advance(100);
        }
        let confirmed = channel.confirmed().0.len() as u64;
        assert_eq!(confirmed, 5);
        // An empty log would have room for it.
        channel.publish_with("", "dead", &persistent(), vec![b'x'; 200_000]);
        world.advance(100);
        assert!(world.broker(u16::from(far), |broker| broker.view().waits_for_room()));
        // A dead letter has no room either.
        let letter = home.get("q").expect("a message");
        home.reject(letter.tag, false);
        world.advance(10);
        again(&world, shards);
        let counts = ["q", "dead"].map(|queue| world.queue(queue).ready);
        assert_eq!(counts.iter().sum::<u64>(), confirmed + 1, "{counts:?}");
        // After an orderly stop nothing is found that may have been delivered and was not.
        let first = world.channel(0).get("dead").expect("a message");
        assert!(!first.redelivered);
    }
}

#[test]
fn a_commit_of_very_many_copies_stays_within_the_memory_budget() {
    const QUEUES: u32 = 200;
    let limits = Limits { memory_bytes: 4 << 20, ..Limits::default() };
    let store = Some(StoreOptions::default());
    let world = World::with(Options { limits, store, ..Options::default() });
    let channel = world.channel(0);
    for queue in 0..QUEUES {
        channel.declare(&format!("q{queue}"));
        channel.bind(&format!("q{queue}"), "amq.fanout", "");
    }
    channel.tx_select();
    for _ in 0..1_000 {
        channel.publish("amq.fanout", "", "x");
    }
    channel.tx_commit();
    let most = world.broker(0, |broker| broker.shard.memory());
    assert!(most < 16 << 20, "{most} bytes");
    assert_eq!(world.queue("q199").ready, 1_000);
}

#[test]
fn a_client_that_is_gone_holds_nothing_while_its_publish_waits_for_room() {
    let world = small(1, 24);
    let channel = world.channel(0);
    durable(&channel, "filled");
    let publisher = world.channel(0);
    publisher.consume("filled", "c");
    channel.client().together(|| {
        for _ in 0..90 {
            channel.publish_with("", "filled", &persistent(), vec![b'0'; 9_000]);
        }
    });
    world.advance(1_000);
    assert_eq!(publisher.deliveries().len(), 90);
    world.quietly(|| {
        publisher.publish_with("", "filled", &persistent(), vec![b'1'; 700_000]);
        publisher.publish_with("", "filled", &persistent(), "behind");
    });
    world.advance(1_000);
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    publisher.client().reset();
    world.advance(1_000);
    let figures = world.queue("filled");
    assert_eq!((figures.ready, figures.unacked, figures.consumers), (90, 0, 0));
    channel.purge("filled");
    world.advance(5_000);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
}

#[test]
fn a_commit_for_another_shard_waits_for_no_room_in_the_log_of_this_one() {
    let world = small(2, 12);
    let home = world.channel(1);
    home.declare_exclusive("");
    let filled = durable_of(&world, &home, "filled", 1);
    let moving = durable_of(&world, &home, "moving", 1);
    let far = durable_of(&world, &home, "far", 0);
    home.client().together(|| {
        for _ in 0..90 {
            home.publish_with("", &filled, &persistent(), vec![b'0'; 9_000]);
        }
    });
    world.advance(1_000);
    // The full log has no segment begun.
    again(&world, 2);
    let channel = world.channel(1);
    channel.declare_exclusive("");
    channel.tx_select();
    channel.publish_with("", &far, &persistent(), "1");
    world.quietly(|| {
        world.move_queue(&moving, 0);
        world.round();
        channel.send(tx::Commit {});
        world.round();
    });
    assert_eq!(channel.answer(), None, "it waits until the queue has moved");
    world.advance(10_000);
    channel.expect("tx.commit-ok");
    assert_eq!(world.queue(&far).ready, 1);
}

/// Has all messages of a queue dead-lettered.
fn reject_all(world: &World, queue: &str) {
    let channel = world.channel(0);
    channel.consume(queue, "c");
    let last = channel.deliveries().pop().expect("messages").tag;
    channel.nack(last, true, false);
    world.advance(60_000);
}

#[test]
fn a_dead_letter_has_the_room_that_is_kept_for_it_however_many_queues_it_goes_to() {
    for queues in [400, 600] {
        let world = small(1, 14);
        let channel = world.channel(0);
        fan(&channel, queues);
        durable(&channel, "own");
        durable_with(&channel, "letters", Table::new().with("x-dead-letter-exchange", "f"));
        for _ in 0..3 {
            channel.publish_with("", "letters", &persistent(), "1");
        }
        fill(&world, "own");
        reject_all(&world, "letters");
        expect_ready(&world, queues, 3);
    }
}

#[test]
fn a_dead_letter_for_which_not_enough_room_is_kept_leaves_that_to_others() {
    let world = small(1, 14);
    let channel = world.channel(0);
    fan(&channel, 1_300);
    durable(&channel, "own");
    durable(&channel, "dead");
    let to_dead =
        Table::new().with("x-dead-letter-exchange", "").with("x-dead-letter-routing-key", "dead");
    durable_with(&channel, "few", to_dead);
    durable_with(&channel, "many", Table::new().with("x-dead-letter-exchange", "f"));
    channel.publish_with("", "many", &persistent(), vec![b'm'; 40_000]);
    for _ in 0..5 {
        channel.publish_with("", "few", &persistent(), vec![b'f'; 9_000]);
    }
    fill(&world, "own");
    // Each slice of its queues takes nearly a segment.
    reject_all(&world, "many");
    assert_eq!(world.queue("q0").ready, 0);
    reject_all(&world, "few");
    assert_eq!(world.queue("dead").ready, 5);
    channel.purge("own");
    world.advance(10_000);
    expect_ready(&world, 1_300, 1);
}

#[test]
fn a_publish_whose_queue_moves_to_another_shard_waits_for_no_room_in_the_log_that_it_left() {
    let world = small(2, 14);
    let channel = world.channel(0);
    let filled = durable_of(&world, &channel, "filled", 0);
    let moving = durable_of(&world, &channel, "moving", 0);
    fill(&world, &filled);
    let publisher = world.channel(0);
    publisher.confirm_select();
    publisher.publish_with("", &moving, &persistent(), vec![b'1'; 60_000]);
    world.advance(1_000);
    assert_eq!(publisher.confirmed(), (vec![], vec![]));
    world.move_queue(&moving, 1);
    world.advance(10_000);
    assert_eq!(world.queue(&moving).home, 1);
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    assert_eq!(world.queue(&moving).ready, 1);
}
