//! Delayed messages in a log that is small or full: each waits for room alone, and all come in the end.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{queue, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::adopted_logs;
use crate::dead_letters_kept::with_little_room;
use crate::delayed_kept::{after, declare_both, declare_delayed};
use crate::restart::{durable, persistent};
use crate::stage::Ending;

/// A persistent message with a header of so many bytes that is held back so long.
fn with_header(millis: u64, bytes: usize) -> Properties {
    let text = "h".repeat(bytes);
    let headers =
        Some(Table::new().with("x-delay", Value::I64(millis as i64)).with("big", text.as_str()));
    Properties { headers, ..persistent() }
}

/// Takes all that comes to queues within so many seconds.
fn take_all(world: &World, queues: &[String], seconds: u64) -> usize {
    let (taker, mut taken) = (world.channel(0), 0);
    for _ in 0..seconds.div_ceil(10) {
        world.advance(10_000);
        for queue in queues {
            taken += core::iter::from_fn(|| taker.get_no_ack(queue)).count();
        }
    }
    taken
}

fn short_ones(channel: &Channel, exchange: &str, count: usize, millis: u64) {
    channel.client().together(|| {
        for _ in 0..count {
            channel.publish_with(exchange, "", &after(millis), vec![b'x'; 3_000]);
        }
    });
}

/// Short ones that are due fill the log beside a long one. They go to their queue, and with them goes what the long
/// one needs.
#[test]
fn a_long_one_and_short_ones_behind_it_all_come_from_a_small_log() {
    for (bytes, header) in [(50_000, 0), (70_000, 0), (200_000, 0), (251_000, 0), (180_000, 30_000)]
    {
        let (world, channel) = with_little_room();
        declare_both(&channel);
        channel.publish_with("x", "", &with_header(50_000, header), vec![b'x'; bytes]);
        world.advance(100);
        short_ones(&channel, "x", 120, 60_000);
        let taken = take_all(&world, &["q".into()], 400);
        assert_eq!(taken, 121, "with one of {bytes} bytes and a header of {header}");
        assert_eq!(channel.confirmed().0.len(), 121);
    }
}

#[test]
fn a_long_one_and_short_ones_for_many_queues_all_come_from_a_small_log() {
    let (world, channel) = with_little_room();
    declare_delayed(&channel, "x", "fanout");
    let queues: Vec<String> = (0..300).map(|number| format!("q{number}")).collect();
    for queue in &queues {
        durable(&channel, queue);
        channel.bind(queue, "x", "");
    }
    channel.publish_with("x", "", &after(50_000), vec![b'x'; 190_000]);
    world.advance(100);
    short_ones(&channel, "x", 100, 60_000);
    assert_eq!(take_all(&world, &queues, 300), 101 * 300);
}

#[test]
fn a_long_one_and_short_ones_of_transactions_all_come_from_a_small_log() {
    let (world, channel) = with_little_room();
    declare_both(&channel);
    channel.publish_with("x", "", &after(50_000), vec![b'x'; 200_000]);
    world.advance(100);
    let publisher = world.channel(0);
    publisher.tx_select();
    let mut committed = 0;
    loop {
        publisher.publish_with("x", "", &after(60_000), vec![b'x'; 3_000]);
        publisher.send(tx::Commit {});
        world.advance(10);
        committed += 1;
        if publisher.answer().is_none() {
            break;
        }
    }
    assert!(committed > 40, "{committed} commits have room");
    assert_eq!(take_all(&world, &["q".into()], 400), committed + 1);
}

/// Two long ones that a small log held at once would wait for the room of each other for ever.
#[test]
fn long_ones_that_a_small_log_cannot_hold_together_come_one_after_the_other() {
    for in_transaction in [false, true] {
        for (first, second) in [(190_000, 190_000), (190_000, 130_000), (130_000, 190_000)] {
            let (world, channel) = with_little_room();
            declare_both(&channel);
            let publisher = world.channel(0);
            if in_transaction {
                publisher.tx_select();
            }
            for bytes in [first, second] {
                publisher.publish_with("x", "", &after(50_000), vec![b'x'; bytes]);
            }
            if in_transaction {
                publisher.send(tx::Commit {});
            }
            let taken = take_all(&world, &["q".into()], 600);
            assert_eq!(taken, 2, "{first}, {second}, in a transaction: {in_transaction}");
        }
    }
}

/// The first lies in the log until the last of its queues has it, and keeps the second waiting for as long.
#[test]
fn long_ones_for_very_many_queues_come_one_after_the_other_from_a_small_log() {
    let (world, channel) = with_little_room();
    declare_delayed(&channel, "x", "fanout");
    let queues: Vec<String> = (0..600).map(|number| format!("q{number}")).collect();
    for queue in &queues {
        durable(&channel, queue);
        channel.bind(queue, "x", "");
    }
    for _ in 0..2 {
        channel.publish_with("x", "", &after(5_000), vec![b'x'; 150_000]);
    }
    assert_eq!(take_all(&world, &queues, 200), 2 * 600);
    assert_eq!(channel.confirmed(), (vec![1, 2], vec![]));
}

/// All sizes, moments and exchanges at random, more than the log holds at once.
#[test]
fn whatever_is_held_back_in_a_small_log_comes_in_the_end() {
    for (most, exchanges, segments) in
        [(120_000, 1, 12), (200_000, 1, 12), (200_000, 3, 12), (250_000, 1, 16)]
    {
        for seed in 1..8_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut random = |limit: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % limit
            };
            let world = World::in_segments(1, segments);
            let channel = world.channel(0);
            durable(&channel, "q");
            for number in 0..exchanges {
                let name = format!("x{number}");
                declare_delayed(&channel, &name, "fanout");
                channel.bind("q", &name, "");
            }
            let publishers: Vec<Channel> = (0..4).map(|_| world.channel(0)).collect();
            publishers.iter().for_each(Channel::confirm_select);
            for _ in 0..60 {
                for publisher in &publishers {
                    let longest = if random(4) == 0 { most } else { 9_000 };
                    let bytes = random(longest) as usize;
                    let exchange = format!("x{}", random(exchanges));
                    let properties = after(1_000 + random(60_000));
                    publisher.publish_with(&exchange, "", &properties, vec![b'x'; bytes]);
                }
                world.advance(random(300));
            }
            let taken = take_all(&world, &["q".into()], 2_000);
            assert_eq!(taken, 240, "{most} bytes, {exchanges} exchanges, seed {seed}");
            let confirmed = publishers.iter().map(|channel| channel.confirmed().0.len());
            assert_eq!(confirmed.sum::<usize>(), 240);
        }
    }
}

/// A world whose log has no room, and a channel whose exchange `x` has these messages due, which are numbered and
/// as long as this. With `make_room` there is some.
fn without_room(lengths: &[usize]) -> (World, Channel) {
    let world = World::in_segments(1, 19);
    let channel = world.channel(0);
    declare_both(&channel);
    channel.confirm_select();
    for (number, length) in lengths.iter().enumerate() {
        let mut body = format!("{number} ").into_bytes();
        body.resize(*length, b'x');
        channel.publish_with("x", "", &after(10_000 + number as u64), body);
    }
    assert_eq!(channel.confirmed().0.len(), lengths.len());
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    let other = world.channel(0);
    durable(&other, "other");
    for _ in 0..10_000 {
        other.publish_with("", "other", &persistent(), vec![b'1'; 4_000]);
        if other.client().blocked().is_some() {
            break;
        }
    }
    world.advance(20_000);
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    (world, channel)
}

fn make_room(world: &World) {
    world.channel(0).purge("other");
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(10_000);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    assert_eq!(world.leaks(), [""; 0]);
}

/// The numbers of all that is in a queue, in order.
fn numbers_in(channel: &Channel, queue: &str) -> Vec<usize> {
    let messages = core::iter::from_fn(|| channel.get_no_ack(queue));
    let number = |body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        text.split(' ').next().and_then(|text| text.parse().ok()).expect("a number")
    };
    messages.map(|message| number(&message.body)).collect()
}

/// How many of so many as long as each other come while the log has no room, where what is kept for them is used
/// by others.
#[test]
fn those_that_need_as_much_room_keep_their_order_and_shorter_ones_pass() {
    let lengths = [400_000, 60_000, 60_000, 10, 60_000, 60_000, 20];
    let (world, channel) = without_room(&lengths);
    let mut found = numbers_in(&channel, "q");
    let turns = world.turns(0);
    world.advance(20_000);
    assert!(world.turns(0) - turns < 100, "{} turns", world.turns(0) - turns);
    make_room(&world);
    found.extend(numbers_in(&channel, "q"));
    let place = |number| found.iter().position(|found| *found == number).expect("all come");
    assert_eq!(found.len(), lengths.len());
    let equal: Vec<_> = found.iter().filter(|number| [1, 2, 4, 5].contains(*number)).collect();
    assert_eq!(equal, [&1, &2, &4, &5], "{found:?}");
    assert!(place(3) < place(0) && place(6) < place(0), "{found:?}");
}

/// More of an exchange are due than may wait for room at once.
#[test]
fn very_many_that_wait_for_room_come_in_order() {
    // Those of an exchange that is not durable take no room in the log before.
    let world = World::in_segments(1, 12);
    let channel = world.channel(0);
    durable(&channel, "q");
    durable(&channel, "full");
    channel.exchange_with("y", "x-delayed-message", Table::new().with("x-delayed-type", "fanout"));
    channel.bind("q", "y", "");
    channel.confirm_select();
    let publish = |number: usize| {
        let mut body = format!("{number} ").into_bytes();
        body.resize(5_000, b'x');
        channel.publish_with("y", "", &after(600_000), body);
    };
    channel.client().together(|| (0..300).for_each(publish));
    assert_eq!(channel.confirmed().0.len(), 300);
    adopted_logs::fill(&world, "full");
    world.advance(600_000);
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    assert!(world.broker(0, |broker| broker.view().holdings().delayed) > 200);
    let turns = world.turns(0);
    world.advance(20_000);
    assert!(world.turns(0) - turns < 100, "{} turns", world.turns(0) - turns);
    channel.purge("full");
    let mut found = Vec::new();
    for _ in 0..100 {
        world.advance(1_000);
        found.extend(numbers_in(&channel, "q"));
    }
    assert_eq!(found, (0..300).collect::<Vec<_>>());
    assert_eq!(world.broker(0, |broker| broker.homes.delayed_in_memory()), 0);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn those_that_wait_for_room_go_with_their_exchange() {
    let (world, channel) = without_room(&[400_000, 60_000, 60_000, 60_000]);
    channel.delete_exchange("x");
    world.advance(1_000);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    assert_eq!(world.broker(0, |broker| broker.view().holdings().delayed), 0);
    make_room(&world);
}

#[test]
fn those_that_wait_for_room_look_anew_when_their_queue_is_gone() {
    let (world, channel) = without_room(&[400_000, 60_000, 60_000, 60_000]);
    channel.delete("q");
    world.advance(1_000);
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
    assert_eq!(world.broker(0, |broker| broker.view().holdings().delayed), 0, "they go nowhere");
    make_room(&world);
}

#[test]
fn what_waits_for_room_is_there_in_the_next_run() {
    for end in [Ending::Stop, Ending::Kill, Ending::Crash] {
        let lengths = [400_000, 60_000, 10, 60_000, 60_000];
        let (world, channel) = without_room(&lengths);
        let mut found = numbers_in(&channel, "q");
        // What was taken is settled on the disk after a moment.
        world.advance(2_000);
        end.now(&world);
        make_room(&world);
        found.extend(numbers_in(&world.channel(0), "q"));
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, (0..lengths.len()).collect::<Vec<_>>());
    }
}

/// What somebody has held back for long keeps the short ones of others from nothing.
#[test]
fn a_long_one_of_somebody_else_stops_no_short_ones() {
    let (world, channel) = with_little_room();
    declare_both(&channel);
    channel.publish_with("x", "", &after(30 * 24 * 3_600_000), vec![b'x'; 200_000]);
    world.advance(1_000);
    assert_eq!(channel.confirmed(), (vec![1], vec![]));
    let other = world.channel(0);
    declare_delayed(&other, "y", "fanout");
    durable(&other, "backlog");
    other.confirm_select();
    for _ in 0..70 {
        other.publish_with("", "backlog", &persistent(), vec![b'x'; 3_000]);
        world.advance(100);
    }
    assert_eq!(other.confirmed().0.len(), 70);
    other.bind("backlog", "y", "");
    other.publish_with("y", "", &after(1_000), "short");
    world.advance(3_000);
    assert_eq!(other.confirmed(), (vec![71], vec![]));
    assert_eq!(world.queue("backlog").ready, 71);
}

/// Who waits with a long one, since another one is held back, goes on when that has gone, whatever else is held back.
#[test]
fn who_waits_for_a_long_one_goes_on_when_it_has_gone() {
    let (world, channel) = with_little_room();
    declare_both(&channel);
    channel.publish_with("x", "", &after(20_000), vec![b'x'; 200_000]);
    world.advance(100);
    let other = world.channel(0);
    declare_delayed(&other, "y", "fanout");
    durable(&other, "z");
    other.bind("z", "y", "");
    other.confirm_select();
    short_ones(&other, "y", 20, 600_000);
    other.publish_with("y", "", &after(1_000), vec![b'x'; 200_000]);
    short_ones(&other, "y", 20, 600_000);
    world.advance(1_000);
    assert_eq!(other.confirmed().0.len(), 20, "those behind wait with the long one");
    let third = world.channel(0);
    third.confirm_select();
    short_ones(&third, "y", 5, 600_000);
    world.advance(1_000);
    assert_eq!(third.confirmed().0.len(), 5, "short ones of others do not");
    let turns = world.turns(0);
    world.advance(10_000);
    assert!(world.turns(0) - turns < 100, "{} turns", world.turns(0) - turns);
    assert_eq!(take_all(&world, &["q".into()], 30), 1);
    assert_eq!(other.confirmed().0.len(), 21);
    assert_eq!(take_all(&world, &["z".into()], 700), 46);
}

/// Nor does it wait for that once its own exchange is gone, which holds nothing back any more.
#[test]
fn who_waits_for_a_long_one_goes_on_when_its_own_exchange_is_gone() {
    let (world, channel) = with_little_room();
    declare_both(&channel);
    channel.publish_with("x", "", &after(30 * 24 * 3_600_000), vec![b'x'; 200_000]);
    world.advance(100);
    let other = world.channel(0);
    declare_delayed(&other, "y", "fanout");
    other.bind("q", "y", "");
    other.confirm_select();
    other.publish_with("y", "", &after(1_000), vec![b'x'; 200_000]);
    world.advance(1_000);
    assert_eq!(other.confirmed(), (vec![], vec![]));
    channel.delete_exchange("y");
    world.advance(1_000);
    assert_eq!(other.confirmed(), (vec![1], vec![]));
    assert!(!world.broker(0, |broker| broker.view().waits_for_room()));
}

/// Each is copied when it is looked at.
#[test]
fn a_turn_looks_at_few_large_ones_that_wait_for_room() {
    let world = World::in_segments(1, 12);
    let channel = world.channel(0);
    durable(&channel, "q");
    durable(&channel, "gone");
    durable(&channel, "full");
    channel.exchange_with("y", "x-delayed-message", Table::new().with("x-delayed-type", "fanout"));
    channel.bind("q", "y", "");
    channel.bind("gone", "y", "");
    channel.confirm_select();
    channel.client().together(|| {
        (0..60).for_each(|_| channel.publish_with("y", "", &after(600_000), vec![b'x'; 130_000]));
    });
    assert_eq!(channel.confirmed().0.len(), 60);
    adopted_logs::fill(&world, "full");
    world.advance(600_000);
    assert!(world.broker(0, |broker| broker.view().waits_for_room()));
    let looked_at = || world.broker(0, |broker| broker.shard.looked_for_room());
    let (mut before, mut most) = (looked_at(), 0);
    let begin = before;
    world.quietly(|| {
        channel.send(queue::Delete { queue: "gone", no_wait: true, ..Default::default() });
        while world.round() {
            let now = looked_at();
            most = most.max(now - core::mem::replace(&mut before, now));
        }
    });
    assert!(before - begin >= 60, "{} of 60 were looked at", before - begin);
    // A slice ends behind 256 KiB, and one of the publishes that filled the log is looked at again.
    assert!(most <= 4, "{most} in a turn");
}

/// What an exchange holds back that is not durable lies in memory.
#[test]
fn what_a_transient_exchange_holds_back_waits_for_no_room_in_a_log() {
    let (world, channel) = with_little_room();
    durable(&channel, "full");
    channel.exchange_with("y", "x-delayed-message", Table::new().with("x-delayed-type", "fanout"));
    adopted_logs::fill(&world, "full");
    let other = world.channel(0);
    other.confirm_select();
    other.publish_with("y", "", &after(1_000), vec![b'x'; 131_000]);
    world.advance(10_000);
    assert_eq!(other.confirmed(), (vec![1], vec![]));
}

/// As it is when it goes to a queue, with confirms and without.
#[test]
fn what_no_log_ever_holds_is_refused_also_if_it_is_to_be_held_back() {
    let refused = |to_exchange: bool, way: fn(&Channel), is_transaction: bool| {
        let (world, channel) = with_little_room();
        declare_both(&channel);
        let publisher = world.channel(0);
        way(&publisher);
        let body = vec![b'x'; 900_000];
        match to_exchange {
            true => publisher.publish_with("x", "", &after(1_000), body),
            false => publisher.publish_with("", "q", &persistent(), body),
        };
        if is_transaction {
            publisher.send(tx::Commit {});
        }
        world.advance(100);
        let refused = publisher.expect_refused();
        assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED);
        refused.text
    };
    let end = "larger than what may be stored";
    for way in [|_: &Channel| {}, Channel::confirm_select] {
        let texts = [refused(false, way, false), refused(true, way, false)];
        assert!(texts.iter().all(|text| text.ends_with(end)), "{texts:?}");
    }
    let text = refused(true, Channel::tx_select, true);
    assert!(text.contains(end), "{text}");
}

/// One that would be held back, and never find room beside itself when it is due. Headers and queues count.
#[test]
fn what_could_never_be_passed_on_is_refused_when_it_is_published() {
    for (queues, bytes, header, is_refused) in [
        (1, 255_000, 0, false),
        (1, 300_000, 0, true),
        (1, 200_000, 70_000, true),
        (500, 255_000, 0, true),
        (0, 300_000, 0, false),
    ] {
        for in_transaction in [false, true] {
            let (world, channel) = with_little_room();
            declare_delayed(&channel, "x", "fanout");
            for number in 0..queues {
                let queue = format!("q{number}");
                durable(&channel, &queue);
                channel.bind(&queue, "x", "");
            }
            let publisher = world.channel(0);
            match in_transaction {
                true => publisher.tx_select(),
                false => publisher.confirm_select(),
            }
            publisher.publish_with("x", "", &with_header(1_000, header), vec![b'x'; bytes]);
            if in_transaction {
                publisher.send(tx::Commit {});
            }
            world.advance(100);
            let case = format!("{queues} queues, {bytes} bytes, a header of {header}");
            if is_refused {
                let refused = publisher.expect_refused();
                let text = "larger than what may be stored while its exchange holds it back";
                assert_eq!(refused.code, ReplyCode::PRECONDITION_FAILED, "{case}");
                assert!(refused.text.ends_with(text), "{case}: {refused:?}");
                assert_eq!(world.broker(0, |broker| broker.view().holdings().delayed), 0, "{case}");
                continue;
            }
            match in_transaction {
                true => drop(publisher.expect("tx.commit-ok")),
                false => assert_eq!(publisher.confirmed(), (vec![1], vec![]), "{case}"),
            }
            world.advance(10_000);
            let ready = if queues > 0 { world.queue("q0").ready } else { 0 };
            assert_eq!(ready, u64::from(queues > 0), "{case}");
            assert_eq!(world.broker(0, |broker| broker.view().holdings().delayed), 0, "{case}");
        }
    }
}
