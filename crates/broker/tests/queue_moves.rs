//! Queues that the balancer sends to another shard.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, queue, tx};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_broker::definitions::LOG;
use lepus_broker::directory::Request;
use lepus_sim::{Channel, Options, StoreOptions, World};
use lepus_store::disk::LogId;

use crate::moves::{consumed, numbers, texts};
use crate::restart::{drain, durable, durable_with, persistent, publish_confirmed};
use crate::room::durable_of;
use crate::stage::Ending;

/// The log's lines about queues since the last look.
fn lines(world: &World) -> Vec<String> {
    let events = world.events().into_iter();
    let lines = events.filter(|event| event.kind.starts_with("queue-"));
    lines.map(|event| format!("{}: {}", event.kind, event.text)).collect()
}

/// A channel that is tied to its shard.
fn tied(world: &World, shard: u16) -> Channel {
    let client = world.connect(shard);
    client.channel().declare_exclusive("");
    client.channel()
}

#[test]
fn an_empty_queue_goes_with_its_bindings_and_consumers() {
    let world = World::new(3);
    let (near, far) = (tied(&world, 0), tied(&world, 2));
    near.declare("q");
    near.bind("q", "amq.topic", "#");
    near.consume_no_ack("q", "near");
    far.consume_no_ack("q", "far");
    world.move_queue("q", 1);
    assert_eq!(world.queue("q").home, 1);
    assert_eq!(
        lines(&world),
        ["queue-moved: queue 'q' in vhost '/': from shard 0 to 1; the simulator wants it"]
    );
    (0..10).for_each(|index| far.publish("amq.topic", "a", index.to_string()));
    // In turn, as before.
    assert_eq!((near.bodies().len(), far.bodies().len()), (5, 5));
    near.cancel("near");
    far.cancel("far");
    far.publish("", "q", "x");
    assert_eq!(texts(&near, "q"), ["x"]);
    let counters = world.counters();
    assert_eq!((counters.queues_moved, counters.moves_given_up), (1, 0));
    assert_eq!(world.leaks(), [""; 0]);
}

/// Publishes from two shards while the queue goes round, with a consumer on a third one.
fn publish_while_it_moves(world: &World, persistent: bool, no_ack: bool) {
    let shards = world.shards();
    let consumer = tied(world, 1 % shards);
    let durable = persistent;
    consumer.declare_method(queue::Declare { queue: "q", durable, ..Default::default() });
    consumer.qos(7);
    if no_ack {
        consumer.consume_no_ack("q", "c");
    } else {
        consumer.consume("q", "c");
    }
    let publishers = [tied(world, 0), tied(world, 2 % shards)];
    publishers.iter().for_each(|publisher| publisher.confirm_select());
    let properties = Properties { delivery_mode: persistent.then_some(2), ..Properties::default() };
    let mut number = 0;
    let mut received: Vec<String> = Vec::new();
    for round in 0..60_u16 {
        world.quietly(|| {
            world.move_queue("q", round % shards);
            for step in 0..round % 9 {
                for publisher in &publishers {
                    publisher.publish_with("", "q", &properties, number.to_string());
                }
                number += 1;
                if step % 2 == round % 2 {
                    world.round();
                }
            }
        });
        for _ in 0..round % 5 {
            world.round();
        }
        world.settle();
        received.extend(consumed(&consumer, !no_ack));
        world.advance(100);
    }
    for publisher in &publishers {
        assert_eq!(publisher.confirmed().0, (1..=number).collect::<Vec<u64>>());
    }
    // Each publisher's come in its order, each once.
    assert_eq!(received.len() as u64, 2 * number);
    let mut next = [0, 0];
    for number in received.iter().map(|text| text.parse::<u64>().unwrap()) {
        let publisher = next.iter_mut().find(|next| **next == number);
        *publisher.unwrap_or_else(|| panic!("{number} is out of order")) += 1;
    }
    let moved = world.counters().queues_moved;
    assert!(moved > 20, "{moved} moves");
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn order_and_confirms_hold_while_a_queue_moves() {
    for no_ack in [false, true] {
        publish_while_it_moves(&World::new(3), false, no_ack);
        publish_while_it_moves(&World::new(8), true, no_ack);
        publish_while_it_moves(&World::on_disk(3), true, no_ack);
        publish_while_it_moves(&World::on_disk(4), false, no_ack);
    }
}

#[test]
fn a_queue_that_does_not_become_empty_stays_and_loses_nothing() {
    let world = World::new(2);
    let channel = tied(&world, 0);
    channel.declare("q");
    channel.publish_all("q", numbers(0..3));
    let first = channel.get("q").unwrap();
    world.move_queue("q", 1);
    channel.publish("", "q", "3");
    world.advance(49);
    assert_eq!(lines(&world), [""; 0]);
    world.advance(1);
    assert_eq!(
        lines(&world),
        ["queue-stays: queue 'q' in vhost '/': stays on shard 0, was to go to 1 (the simulator \
          wants it)"]
    );
    assert_eq!((world.queue("q").home, world.counters().moves_given_up), (0, 1));
    channel.reject(first.tag, true);
    assert_eq!(texts(&channel, "q"), numbers(0..4));
    world.move_queue("q", 1);
    assert_eq!(world.queue("q").home, 1);
}

#[test]
fn a_queue_waits_until_its_last_delivery_is_acknowledged() {
    let world = World::new(2);
    let (near, far) = (tied(&world, 0), tied(&world, 1));
    near.declare("q");
    far.consume("q", "c");
    near.publish_all("q", numbers(0..3));
    let messages = far.deliveries();
    world.move_queue("q", 1);
    near.publish("", "q", "3");
    world.advance(20);
    assert_eq!((far.bodies().len(), world.queue("q").home), (0, 0));
    far.ack_up_to(messages[2].tag);
    assert_eq!(world.queue("q").home, 1);
    assert_eq!(far.bodies(), ["3"]);
}

#[test]
fn questions_wait_until_the_queue_has_arrived() {
    let world = World::new(3);
    let (near, far) = (tied(&world, 0), tied(&world, 2));
    near.declare("q");
    let third = far.client().channel();
    let fourth = far.client().channel();
    world.quietly(|| {
        world.move_queue("q", 1);
        world.round();
        far.publish("", "q", "x");
        far.send(basic::Get { queue: "q", no_ack: true });
        third.send(queue::Declare { queue: "q", passive: true, ..Default::default() });
        fourth.send(basic::Consume { queue: "q", consumer_tag: "c", ..Default::default() });
        near.send(queue::Purge { queue: "q", no_wait: false });
    });
    world.settle();
    assert_eq!(world.queue("q").home, 1);
    for channel in [&near, &far, &third, &fourth] {
        assert!(channel.is_open());
    }
    far.publish("", "q", "y");
    assert_eq!(fourth.bodies(), ["y"]);
}

#[test]
fn a_queue_deleted_on_its_way_takes_its_consumers_along() {
    for rounds in 0..12 {
        let world = World::new(3);
        let (near, far) = (tied(&world, 0), tied(&world, 2));
        near.declare("q");
        far.consume("q", "c");
        world.quietly(|| {
            world.move_queue("q", 1);
            for _ in 0..rounds {
                world.round();
            }
            near.send(queue::Delete { queue: "q", ..Default::default() });
            near.publish("", "q", "x");
        });
        world.settle();
        world.advance(100);
        assert!(world.find_queue("/", "q").is_none(), "after {rounds} rounds");
        assert_eq!(far.cancelled(), ["c"], "after {rounds} rounds");
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_vhost_deleted_meanwhile_leaves_nothing() {
    for rounds in 0..12 {
        let world = World::new(3);
        world.add_vhost("v");
        world.permit("guest", "v", ".*", ".*", ".*");
        let options = World::login("guest", "guest", "v");
        let client = world.connect_with(0, options);
        let channel = client.channel();
        channel.declare("q");
        channel.consume("q", "c");
        world.quietly(|| {
            world.move_queue_of("v", "q", 1);
            for _ in 0..rounds {
                world.round();
            }
            channel.publish("", "q", "x");
        });
        assert_eq!(world.request(Request::DeleteVhost { name: "v".into() }), Ok(()));
        world.settle();
        world.advance(100);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_global_prefetch_holds_where_the_queue_comes_to() {
    for (home, to, at) in [(0, 1, 0), (0, 1, 1), (0, 1, 2)] {
        let world = World::new(3);
        let (near, consumer) = (tied(&world, home), tied(&world, at));
        near.declare("q");
        consumer.qos_global(3);
        consumer.consume("q", "one");
        consumer.consume("q", "two");
        world.move_queue("q", to);
        assert_eq!(world.queue("q").home, to);
        near.publish_all("q", numbers(0..10));
        let messages = consumer.deliveries();
        assert_eq!(messages.len(), 3, "consumer on {at}");
        consumer.ack_up_to(messages[2].tag);
        assert_eq!(consumer.deliveries().len(), 3, "consumer on {at}");
        consumer.qos_global(0);
        assert_eq!(consumer.deliveries().len(), 4, "consumer on {at}");
    }
}

#[test]
fn a_prefetch_limit_and_the_single_active_consumer_go_along() {
    let world = World::new(3);
    let (near, far) = (tied(&world, 0), tied(&world, 2));
    near.declare_with("q", Table::new().with("x-single-active-consumer", true));
    far.qos(2);
    far.consume("q", "active");
    near.consume("q", "waiting");
    world.move_queue("q", 1);
    near.publish_all("q", numbers(0..5));
    assert_eq!((far.deliveries().len(), near.deliveries().len()), (2, 0));
    far.client().close();
    assert_eq!(near.deliveries().len(), 5);
}

#[test]
fn the_queue_of_a_connection_stays_with_it() {
    let world = World::new(2);
    let channel = world.channel(0);
    let name = channel.declare_exclusive("").queue;
    world.move_queue(&name, 1);
    world.advance(100);
    assert_eq!(world.queue(&name).home, 0);
    assert_eq!(lines(&world), [""; 0]);
}

#[test]
fn a_lease_goes_along_and_ends() {
    let world = World::new(2);
    let channel = tied(&world, 0);
    channel.declare_with("q", Table::new().with("x-expires", 1_000));
    world.advance(500);
    world.move_queue("q", 1);
    assert_eq!(world.queue("q").home, 1);
    world.advance(499);
    assert!(world.find_queue("/", "q").is_some());
    world.advance(1);
    assert!(world.find_queue("/", "q").is_none());
}

#[test]
fn a_transaction_is_committed_whole_while_a_queue_moves() {
    let world = World::on_disk(3);
    let (near, far) = (tied(&world, 0), tied(&world, 2));
    let durable = |queue| queue::Declare { queue, durable: true, ..Default::default() };
    near.declare_method(durable("q"));
    near.declare_method(durable("other"));
    far.tx_select();
    let properties = Properties { delivery_mode: Some(2), ..Properties::default() };
    for number in 0..5 {
        far.publish_with("", "q", &properties, number.to_string());
        far.publish_with("", "other", &properties, number.to_string());
    }
    world.quietly(|| {
        world.move_queue("q", 1);
        world.round();
        far.send(tx::Commit {});
    });
    world.settle();
    far.expect("tx.commit-ok");
    assert_eq!(world.queue("q").home, 1);
    assert_eq!((texts(&near, "q"), texts(&near, "other")), (numbers(0..5), numbers(0..5)));
}

#[test]
fn a_message_with_an_unknown_queue_is_still_refused_as_before() {
    let world = World::new(2);
    let channel = tied(&world, 0);
    channel.declare("q");
    world.move_queue("q", 1);
    channel.delete("q");
    let refused = channel.refused(basic::Get { queue: "q", no_ack: true });
    assert_eq!(refused.code, ReplyCode::NOT_FOUND);
}

#[test]
fn a_moved_queue_is_there_again_in_every_way_a_run_ends() {
    for ending in [Ending::Stop, Ending::Kill, Ending::Crash] {
        let world = World::on_disk(3);
        let channel = tied(&world, 0);
        durable(&channel, "q");
        channel.bind("q", "amq.fanout", "");
        publish_confirmed(&channel, "q", 0..5);
        assert_eq!(drain(&world, "q").len(), 5);
        world.advance(2_000);
        for home in [1, 2, 1] {
            world.move_queue("q", home);
            world.advance(10);
            assert_eq!(world.queue("q").home, home);
            publish_confirmed(&tied(&world, 0), "q", 5..8);
            assert_eq!(drain(&world, "q").len(), 3);
        }
        publish_confirmed(&tied(&world, 2), "q", 8..20);
        ending.now(&world);
        assert_eq!(world.queue("q").home, 1, "{ending:?}");
        let channel = world.channel(2);
        channel.publish_with("amq.fanout", "", &persistent(), "20");
        let mut found: Vec<u32> = drain(&world, "q").iter().map(|found| found.0).collect();
        // What was acknowledged in the last second may come again.
        found.retain(|number| *number >= 8);
        assert_eq!(found, (8..=20).collect::<Vec<u32>>(), "{ending:?}");
        world.stop();
    }
}

/// The disk has the move or not: what is confirmed is there in both cases.
#[test]
fn a_queue_whose_move_fails_on_the_disk_confirms_nothing_that_the_next_start_may_not_find() {
    let mut found_moved = 0;
    for (home, seed) in (0..20).map(|seed| (seed % 2, u64::from(seed))) {
        let store = Some(StoreOptions { seed, ..StoreOptions::default() });
        let world = World::with(Options { shards: 3, store, ..Options::default() });
        let channel = tied(&world, home);
        durable(&channel, "q");
        publish_confirmed(&channel, "q", 0..5);
        assert_eq!(drain(&world, "q").len(), 5);
        world.advance(2_000);
        let (near, far) = (tied(&world, home), tied(&world, 2));
        near.confirm_select();
        far.confirm_select();
        world.hold_log(LOG);
        world.move_queue("q", 2);
        world.advance(10);
        near.publish_with("", "q", &persistent(), "5");
        far.publish_with("", "q", &persistent(), "6");
        // What follows from the failure is not to fail as well.
        world.slow_disk(1);
        world.disk(|disk| disk.faults.sync_error = 1_000);
        world.release_disk();
        world.disk(|disk| disk.faults.sync_error = 0);
        world.slow_disk(0);
        world.advance(10);
        assert_eq!(world.queue("q").home, home);
        let undecided = lines(&world).iter().filter(|line| line.contains("undecided")).count();
        assert_eq!(undecided, 1);
        near.publish_with("", "q", &persistent(), "7");
        far.publish_with("", "q", &persistent(), "8");
        near.publish("", "q", "9");
        assert_eq!(near.confirmed(), (vec![3], vec![1, 2]));
        assert_eq!(far.confirmed(), (vec![], vec![1, 2]));
        assert_eq!(texts(&near, "q"), ["9"]);
        world.kill();
        world.start_again(3);
        found_moved += u32::from(world.queue("q").home == 2);
        publish_confirmed(&world.channel(0), "q", 10..13);
        world.crash();
        world.start_again(3);
        let found: Vec<u32> = drain(&world, "q").iter().map(|found| found.0).collect();
        assert!(found.ends_with(&[10, 11, 12]), "{found:?}");
    }
    assert!((1..20).contains(&found_moved), "{found_moved} of 20 show one case only");
}

#[test]
fn where_dead_letters_went_is_on_the_disk_before_their_queue_goes() {
    let world = World::on_disk(2);
    let channel = tied(&world, 1);
    durable(&channel, "graves");
    let arguments = Table::new().with("x-dead-letter-exchange", "");
    durable_with(&channel, "q", arguments.with("x-dead-letter-routing-key", "graves"));
    publish_confirmed(&channel, "q", 0..3);
    channel.consume("q", "c");
    assert_eq!((world.queue("q").home, channel.deliveries().len()), (1, 3));
    world.advance(2_000);
    world.hold_disk();
    world.move_queue("q", 0);
    channel.nack(0, true, false);
    world.settle();
    assert_eq!(world.queue("graves").ready, 3);
    // Until its log is synced, the definitions are not asked.
    assert_eq!(world.disk_waiting(), 1);
    assert_eq!(world.queue("q").home, 1);
    world.release_disk();
    world.advance(10);
    assert_eq!(world.queue("q").home, 0);
}

#[test]
fn a_consumer_may_end_while_its_queue_waits_to_go() {
    let world = World::new(3);
    let (near, far) = (tied(&world, 0), tied(&world, 2));
    near.declare("q");
    let held = far.client().channel();
    held.qos(1);
    held.consume("q", "held");
    near.publish_all("q", numbers(0..3));
    let first = held.delivery();
    far.qos(1);
    far.consume("q", "ends");
    let _ = far.delivery();
    world.move_queue("q", 1);
    // What it had is ready again, and nobody may take it.
    far.close();
    assert_eq!(world.queue("q").ready, 2);
    held.ack(first.tag);
    for _ in 0..2 {
        let next = held.delivery();
        held.ack(next.tag);
    }
    assert_eq!(world.queue("q").home, 1);
    near.publish("", "q", "3");
    assert_eq!(held.bodies(), ["3"]);
}

/// The queues of a shard that got messages within a second, with how many and whether they may go.
fn busy_queues(world: &World, shard: u16, publish: impl Fn()) -> Vec<(u64, bool)> {
    let _ = world.traffic(shard);
    publish();
    world.advance(1_000);
    let (_, queues) = world.traffic(shard);
    queues.iter().map(|queue| (queue.messages, queue.movable)).collect()
}

#[test]
fn the_balancer_hears_which_queues_are_busy_and_may_go() {
    let world = World::new(2);
    let near = tied(&world, 0);
    near.declare("q");
    near.declare("idle");
    let publish = || {
        near.publish_all("q", numbers(0..100));
        near.purge("q");
    };
    assert_eq!(busy_queues(&world, 0, publish), [(100, true)]);
    assert_eq!(busy_queues(&world, 0, || ()), []);
    let many = || near.publish_all("q", numbers(0..1_025));
    assert_eq!(busy_queues(&world, 0, many), [(1_025, false)]);
    near.purge("q");
    // One that did not become empty is left alone for a minute.
    near.publish("", "q", "x");
    let held = near.get("q").unwrap();
    world.move_queue("q", 1);
    world.advance(50);
    assert_eq!(world.counters().moves_given_up, 1);
    near.ack(held.tag);
    assert_eq!(busy_queues(&world, 0, publish), [(100, false)]);
    world.advance(58_000);
    assert_eq!(busy_queues(&world, 0, publish), [(100, true)]);
    // One that came stays for ten seconds.
    world.move_queue("q", 1);
    assert_eq!(busy_queues(&world, 1, publish), [(100, false)]);
    world.advance(8_000);
    assert_eq!(busy_queues(&world, 1, publish), [(100, true)]);
}

#[test]
fn the_balancer_hears_who_gets_messages_from_another_shard() {
    let world = World::new(3);
    let near = tied(&world, 0);
    near.declare("q");
    let client = world.connect(2);
    client.channel().declare_exclusive("anchor");
    let consumer = client.channel();
    consumer.consume_no_ack("q", "c");
    client.channel().delete("anchor");
    let _ = world.traffic(2);
    near.publish_all("q", numbers(0..100));
    world.advance(1_000);
    let _ = world.traffic(2);
    near.publish_all("q", numbers(0..100));
    world.advance(1_000);
    let (talks, _) = world.traffic(2);
    let [talk] = &talks[..] else { panic!("{talks:?}") };
    assert!(talk.movable);
    assert_eq!(
        talk.to.iter().map(|(shard, count)| (shard.0, *count)).collect::<Vec<_>>(),
        [(2, 0), (0, 100)]
    );
    // With a consumer of a queue elsewhere it belongs nowhere.
    tied(&world, 1).declare("r");
    consumer.consume("r", "r");
    near.publish_all("q", numbers(0..100));
    world.advance(1_000);
    assert!(!world.traffic(2).0[0].movable);
}

/// Publishes persistent messages on shard 3 to a queue that is on its way from shard 1 to shard 2.
fn publish_for_a_leaving_queue(world: &World, publisher: &Channel) {
    world.move_queue("q", 2);
    for number in 0..5 {
        publisher.publish_with("", "q", &persistent(), number.to_string());
    }
    assert!(world.broker(3, |broker| broker.view().owes()), "nothing waits for the queue");
}

/// Four shards on a disk, with a durable queue on shard 1, and a publisher on shard 3.
fn a_queue_and_a_publisher() -> (World, Channel) {
    let world = World::on_disk(4);
    durable(&tied(&world, 1), "q");
    let publisher = tied(&world, 3);
    world.advance(2_000);
    (world, publisher)
}

#[test]
fn a_stop_waits_for_what_waits_for_a_queue_on_its_way() {
    for millis in [1, 5, 20] {
        let (world, publisher) = a_queue_and_a_publisher();
        world.slow_disk(millis);
        publish_for_a_leaving_queue(&world, &publisher);
        world.stop();
        world.slow_disk(0);
        world.start_again(4);
        let found: Vec<u32> = drain(&world, "q").iter().map(|found| found.0).collect();
        assert_eq!(found, [0, 1, 2, 3, 4], "operations take {millis} ms");
    }
}

#[test]
fn a_queue_whose_move_is_not_decided_yet_stays_when_the_broker_stops() {
    let (world, publisher) = a_queue_and_a_publisher();
    world.hold_log(LogId(0));
    let other = tied(&world, 0);
    other.send(queue::Declare { queue: "other", durable: true, ..Default::default() });
    publish_for_a_leaving_queue(&world, &publisher);
    world.advance(100);
    assert_eq!(world.queue("q").ready, 0);
    world.shut_down();
    assert_eq!((world.queue("q").home, world.queue("q").ready), (1, 5));
    let shards = 0..world.shards();
    assert!(!shards.into_iter().any(|shard| world.broker(shard, |broker| broker.view().owes())));
    world.release_disk();
    world.stop();
    world.start_again(4);
    assert_eq!(drain(&world, "q").len(), 5);
}

/// Bytes of a message for which there is no room.
const LARGE: usize = 60_000;

/// Three shards on a disk that has no room for it, and a queue of the first one.
fn short_of_room() -> (World, String) {
    let mut store = StoreOptions::default();
    store.template.segment_bytes = 16 << 10;
    let world = World::with(Options { shards: 3, store: Some(store), ..Options::default() });
    let home = tied(&world, 1);
    for shard in 0..3 {
        // What is small fits into the segments that are begun.
        let begun = durable_of(&world, &home, "begun", shard);
        home.publish_with("", &begun, &persistent(), "x");
    }
    let came = durable_of(&world, &home, "came", 0);
    world.advance(1_000);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    (world, came)
}

/// A large message that waits for room in the log of shard 1, where its queue has come. What is small
/// finds room.
struct Roomless {
    world: World,
    /// The queue that has come.
    came: String,
    /// Who published: what it says next waits behind that.
    publisher: Channel,
}

/// The publisher, on shard `shard`, publishes a small message, the large one, and what `publish` does,
/// while the queue is on its way.
fn roomless(shard: u16, publish: impl FnOnce(&Channel, &str)) -> Roomless {
    let (world, came) = short_of_room();
    let publisher = tied(&world, shard);
    publisher.confirm_select();
    world.quietly(|| {
        world.move_queue(&came, 1);
        world.round();
        publisher.publish_with("", &came, &persistent(), "before");
        publisher.publish_with("", &came, &persistent(), vec![b'1'; LARGE]);
        publish(&publisher, &came);
        world.round();
        assert_eq!(world.queue(&came).home, 0, "it is on its way");
    });
    world.advance(1_000);
    let found = world.queue(&came);
    assert_eq!((found.home, found.ready), (1, 1));
    Roomless { world, came, publisher }
}

impl Roomless {
    fn make_room(&self) {
        self.world.disk(|disk| disk.bytes_max = u64::MAX);
        self.world.advance(5_000);
        assert!(!self.world.broker(1, |broker| broker.view().waits_for_room()));
    }
}

/// A transaction with one small message.
fn commit_one(world: &World, shard: u16, queue: &str) -> Channel {
    let channel = tied(world, shard);
    channel.tx_select();
    channel.publish_with("", queue, &persistent(), "1");
    channel.send(tx::Commit {});
    channel
}

#[test]
fn what_waits_for_room_where_its_queue_came_to_keeps_nobody_else_waiting() {
    for shard in [1, 2] {
        let roomless = roomless(shard, |_, _| {});
        let (world, came) = (&roomless.world, &roomless.came);
        let elsewhere = durable_of(world, &tied(world, 1), "elsewhere", 0);
        let beside = durable_of(world, &tied(world, 1), "beside", 1);
        let commits =
            [(1, &elsewhere), (0, &beside), (1, came)].map(|(at, to)| commit_one(world, at, to));
        let publishers = [0, 0, 1, 1].map(|shard| tied(world, shard));
        for (number, publisher) in publishers.iter().enumerate() {
            publisher.confirm_select();
            if number % 2 == 0 {
                publisher.publish_with("", came, &persistent(), "small");
            } else {
                publisher.publish("", came, "transient");
            }
        }
        world.advance(5_000);
        for commit in &commits {
            commit.expect("tx.commit-ok");
        }
        for publisher in &publishers {
            assert_eq!(publisher.confirmed(), (vec![1], vec![]));
        }
        // Questions, too.
        for publisher in &publishers {
            publisher.get_no_ack(came).expect("a message");
        }
        assert_eq!(world.queue(came).ready, 2);
        roomless.make_room();
        assert_eq!(world.queue(came).ready, 3);
        assert_eq!(roomless.publisher.confirmed(), (vec![1, 2], vec![]));
    }
}

#[test]
fn what_a_channel_says_next_comes_after_what_waits_for_room_where_its_queue_came_to() {
    for shard in [1, 2] {
        let roomless = roomless(shard, |publisher, came| {
            publisher.publish("", came, "behind");
        });
        let Roomless { world, came, publisher, .. } = &roomless;
        publisher.publish_with("", came, &persistent(), "last");
        publisher.send(queue::Purge { queue: came, ..Default::default() });
        world.advance(5_000);
        assert_eq!(publisher.confirmed(), (vec![1], vec![]));
        assert_eq!(publisher.answer(), None);
        assert_eq!(world.queue(came).ready, 1);
        roomless.make_room();
        assert_eq!(publisher.confirmed(), (vec![2, 3, 4], vec![]));
        let purged = publisher.expect("queue.purge-ok");
        assert!(format!("{purged:?}").contains('4'), "{purged:?}");
    }
}

#[test]
fn an_answer_that_comes_meanwhile_lets_nothing_pass_what_waits_for_room_where_its_queue_came_to() {
    let roomless = roomless(1, |publisher, _| {
        publisher.send(queue::Declare { queue: "new", ..Default::default() });
    });
    let Roomless { world, came, publisher, .. } = &roomless;
    publisher.expect("queue.declare-ok");
    publisher.publish_with("", came, &persistent(), "behind");
    world.advance(5_000);
    assert_eq!(publisher.confirmed(), (vec![1], vec![]));
    roomless.make_room();
    assert_eq!(publisher.confirmed(), (vec![2, 3], vec![]));
    let sizes = [(); 3].map(|()| publisher.get_no_ack(came).expect("a message").body.len());
    assert_eq!(sizes, [6, LARGE, 6]);
}

#[test]
fn a_commit_does_not_pass_what_its_channel_published_before_and_waits_for_room_where_its_queue_came_to()
 {
    for is_lost in [false, true] {
        let (world, came) = short_of_room();
        let channel = tied(&world, 1);
        world.quietly(|| {
            world.move_queue(&came, 1);
            world.round();
            channel.publish_with("", &came, &persistent(), vec![b'1'; LARGE]);
            channel.send(tx::Select {});
            channel.publish_with("", &came, &persistent(), "behind");
            channel.send(tx::Commit {});
            world.round();
        });
        world.advance(5_000);
        channel.expect("tx.select-ok");
        assert_eq!((channel.answer(), world.queue(&came).ready), (None, 0));
        if is_lost {
            channel.client().reset();
            world.advance(5_000);
        }
        world.disk(|disk| disk.bytes_max = u64::MAX);
        world.advance(5_000);
        if is_lost {
            assert_eq!(world.queue(&came).ready, 1);
            assert_eq!(world.leaks(), [""; 0]);
        } else {
            channel.expect("tx.commit-ok");
            let sizes = [(); 2].map(|()| channel.get_no_ack(&came).expect("a message").body.len());
            assert_eq!(sizes, [LARGE, 6]);
        }
    }
}

#[test]
fn a_channel_ends_though_its_question_is_behind_what_waits_for_room_where_its_queue_came_to() {
    for shard in [1, 2] {
        let roomless = roomless(shard, |publisher, came| {
            publisher.send(basic::Get { queue: came, no_ack: true });
        });
        let Roomless { world, came, publisher, .. } = &roomless;
        world.advance(5_000);
        assert_eq!(publisher.answer(), None);
        publisher.client().reset();
        world.advance(5_000);
        let ended = world.counters();
        assert_eq!(ended.channels_opened - ended.channels_closed, 2, "those of who declared");
        roomless.make_room();
        assert_eq!(world.queue(came).ready, 2);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn a_client_that_is_gone_keeps_no_deliveries_while_what_it_published_waits_for_room() {
    let roomless = roomless(1, |_, _| {});
    let Roomless { world, came, publisher, .. } = &roomless;
    // Said behind it.
    publisher.publish_with("", came, &persistent(), "behind");
    publisher.client().reset();
    world.advance(5_000);
    let ended = world.counters();
    assert_eq!(ended.channels_opened - ended.channels_closed, 2, "those of who declared");
    roomless.make_room();
    assert_eq!(world.queue(came).ready, 2);
    assert_eq!(world.leaks(), [""; 0]);
}

/// Nobody knows under which id the next start finds the queue, so it has no log: nothing that it is told looks for one.
#[test]
fn a_queue_whose_move_is_undecided_is_purged_of_very_many_messages() {
    let store = Some(StoreOptions { seed: 1, ..StoreOptions::default() });
    let world = World::with(Options { shards: 3, store, ..Options::default() });
    let channel = tied(&world, 0);
    durable(&channel, "q");
    publish_confirmed(&channel, "q", 0..5);
    assert_eq!(drain(&world, "q").len(), 5);
    world.advance(2_000);
    let near = tied(&world, 0);
    world.hold_log(LOG);
    world.move_queue("q", 2);
    world.advance(10);
    world.slow_disk(1);
    world.disk(|disk| disk.faults.sync_error = 1_000);
    world.release_disk();
    world.disk(|disk| disk.faults.sync_error = 0);
    world.slow_disk(0);
    world.advance(10);
    assert_eq!(lines(&world).iter().filter(|line| line.contains("undecided")).count(), 1);
    (0..2_000).for_each(|_| near.publish("", "q", "9"));
    world.advance(10);
    assert_eq!(world.queue("q").ready, 2_000);
    near.purge("q");
    world.advance(10);
    assert_eq!(world.queue("q").ready, 0);
}
