//! What the simulator found about disks, each as the shortest story that shows it.

use lepus_amqp::method::queue;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, Options, StoreOptions, World};
use lepus_store::Settings;

/// Segments that a few messages fill.
fn tight_disk(shards: u16) -> World {
    let mut store = StoreOptions::default();
    store.template = Settings { segment_bytes: 8192, batch_bytes_max: 4096, ..store.template };
    World::with(Options { shards, store: Some(store), ..Options::default() })
}

fn declare(channel: &Channel, name: &str, arguments: Table) {
    let arguments = arguments.to_bytes();
    channel.declare_method(queue::Declare {
        queue: name,
        durable: true,
        arguments: arguments.as_ref(),
        ..Default::default()
    });
}

fn publish(channel: &Channel, queue: &str, body: &[u8]) {
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    channel.publish_with("", queue, &persistent, body);
}

/// Publishes without hearing of the disk until the log takes nothing more.
fn fill(world: &World, shard: u16) -> Channel {
    let filler = world.channel(shard);
    declare(&filler, &format!("filled on {shard}"), Table::new());
    filler.confirm_select();
    world.hold_disk();
    for _ in 0..100 {
        publish(&filler, &format!("filled on {shard}"), &[1; 400]);
    }
    filler
}

#[test]
fn a_dead_letter_for_which_the_log_has_no_room_is_not_lost_by_a_crash() {
    for shards in [1, 2] {
        let world = tight_disk(shards);
        let alice = world.channel(0);
        let dead = world.channel(shards - 1);
        declare(&dead, "dead", Table::new());
        let arguments = Table::new()
            .with("x-message-ttl", 1000)
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", "dead");
        declare(&alice, "brief", arguments);
        alice.confirm_select();
        publish(&alice, "brief", &[7; 1000]);
        assert_eq!(alice.confirmed(), (vec![1], vec![]));
        let _filler = fill(&world, shards - 1);
        world.advance(1000);
        world.release_disk();
        world.advance(3000);
        world.crash();
        world.start_again(shards);
        world.advance(10);
        let count = world.queue("brief").ready + world.queue("dead").ready;
        assert!(count >= 1, "with {shards} shards");
    }
}

#[test]
fn a_commit_for_which_the_log_has_no_room_is_not_answered_before_it_is_there() {
    for shards in [1, 2] {
        let world = tight_disk(shards);
        let alice = world.channel(0);
        declare(&alice, "q", Table::new());
        alice.tx_select();
        let _filler = fill(&world, 0);
        publish(&alice, "q", &[7; 1000]);
        alice.send(lepus_amqp::method::tx::Commit {});
        world.release_disk();
        world.advance(3000);
        let is_answered = alice.order().contains(&"tx.commit-ok");
        world.crash();
        world.start_again(shards);
        assert!(is_answered || !alice.client().is_open());
        assert_eq!(world.queue("q").ready, u64::from(is_answered));
    }
}

#[test]
fn a_message_for_more_queues_than_a_record_names_is_in_all_of_them_after_a_stop() {
    let world = tight_disk(1);
    let alice = world.channel(0);
    let queues: Vec<String> = (0..400).map(|number| format!("q{number}")).collect();
    for queue in &queues {
        declare(&alice, queue, Table::new());
        alice.bind(queue, "amq.fanout", "");
    }
    alice.confirm_select();
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    alice.publish_with("amq.fanout", "", &persistent, "for all");
    assert_eq!(alice.confirmed(), (vec![1], vec![]));
    world.stop();
    world.start_again(1);
    let found = queues.iter().filter(|queue| world.queue(queue).ready == 1);
    assert_eq!(found.count(), queues.len());
}

#[test]
fn a_queue_that_moves_while_a_message_waits_for_room_for_others_gets_it_once() {
    let world = tight_disk(3);
    let alice = world.channel(0);
    declare(&alice, "here", Table::new());
    world.channel(1).declare("far");
    for queue in ["here", "far"] {
        alice.bind(queue, "amq.fanout", "");
    }
    alice.confirm_select();
    let bob = world.channel(1);
    bob.consume_no_ack("far", "c");
    let _filler = fill(&world, 0);
    let persistent = Properties { delivery_mode: Some(2), ..Properties::default() };
    alice.publish_with("amq.fanout", "", &persistent, "x".repeat(1000));
    world.move_queue("far", 2);
    assert_eq!((world.queue("far").home, world.queue("here").ready), (2, 0));
    world.release_disk();
    world.advance(3000);
    assert_eq!(alice.confirmed(), (vec![1], vec![]));
    assert_eq!((bob.bodies().len(), world.queue("here").ready), (1, 1));
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn messages_behind_a_purge_are_counted_right_after_a_crash() {
    let world = World::on_disk(1);
    let alice = world.channel(0);
    declare(&alice, "q", Table::new());
    alice.confirm_select();
    publish(&alice, "q", b"logged");
    alice.publish("", "q", "in memory");
    publish(&alice, "q", b"logged");
    alice.purge("q");
    publish(&alice, "q", b"after the purge");
    assert_eq!(alice.confirmed(), (vec![1, 2, 3, 4], vec![]));
    world.advance(2000);
    world.crash();
    world.start_again(1);
    assert_eq!(world.queue("q").ready, 1);
    let bob = world.channel(0);
    bob.consume("q", "c");
    assert_eq!(bob.bodies(), ["after the purge"]);
    assert_eq!(world.queue("q").ready, 0);
}

#[test]
fn an_acknowledgement_a_second_before_a_crash_counts() {
    let world = World::on_disk(1);
    let alice = world.channel(0);
    declare(&alice, "q", Table::new());
    alice.confirm_select();
    publish(&alice, "q", b"once");
    let message = alice.get("q").expect("a message");
    alice.ack(message.tag);
    world.advance(1000);
    world.crash();
    world.start_again(1);
    assert_eq!(world.queue("q").ready, 0);
}

#[test]
fn a_shard_rests_while_expired_messages_wait_for_room_in_the_log() {
    let world = tight_disk(1);
    let alice = world.channel(0);
    declare(&alice, "dead", Table::new());
    let arguments = Table::new()
        .with("x-message-ttl", 10_000)
        .with("x-dead-letter-exchange", "")
        .with("x-dead-letter-routing-key", "dead");
    declare(&alice, "brief", arguments);
    alice.confirm_select();
    // More than dead letters may wait.
    for _ in 0..12 {
        for _ in 0..100 {
            publish(&alice, "brief", &[7; 10]);
        }
        assert_eq!(alice.confirmed().0.len(), 100);
    }
    let _filler = fill(&world, 0);
    let before = world.turns(0);
    world.advance(20_000);
    let turns = world.turns(0) - before;
    assert!(turns < 500, "{turns} cycles of a shard that waits for its disk");
    world.release_disk();
    world.advance(5_000);
    assert_eq!((world.queue("brief").ready, world.queue("dead").ready), (0, 1200));
}

#[test]
fn the_next_process_does_not_build_on_what_a_failed_sync_left_out() {
    for seed in 0..40 {
        let store = StoreOptions { seed, ..StoreOptions::default() };
        let world = World::with(Options { shards: 1, store: Some(store), ..Options::default() });
        let alice = world.channel(0);
        declare(&alice, "answered", Table::new());
        // The process is killed while a sync is under way, and nobody hears that it fails.
        world.hold_disk();
        alice.send(queue::Declare { queue: "asked for", durable: true, ..Default::default() });
        world.disk(|disk| disk.faults.sync_error = 1000);
        world.kill();
        world.disk(|disk| disk.faults.sync_error = 0);
        world.start_again(1);
        let was_there = world.find_queue("/", "asked for").is_some();
        world.crash();
        world.start_again(1);
        assert!(world.find_queue("/", "answered").is_some(), "on disk {seed}");
        let is_there = world.find_queue("/", "asked for").is_some();
        assert_eq!(is_there, was_there, "on disk {seed}");
    }
}
