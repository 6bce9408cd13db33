//! A disk that is full, slow or broken.

use lepus_amqp::client::ClientOptions;
use lepus_amqp::table::Table;
use lepus_sim::{Channel, World};
use lepus_store::disk::DiskError;
use lepus_store::simulation::Outage;

use crate::restart::{drain, durable, durable_with, persistent, publish_confirmed};

/// Publishes until the client is told to stop; how many went.
fn fill(channel: &Channel, queue: &str) -> u32 {
    let body = vec![b'1'; 4_000];
    for count in 1..10_000 {
        channel.publish_with("", queue, &persistent(), &body);
        if channel.client().blocked().is_some() {
            return count;
        }
    }
    panic!("nobody stops the publisher");
}

#[test]
fn nothing_is_confirmed_before_the_disk_has_it() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.confirm_select();
    world.hold_disk();
    for body in 0..10 {
        channel.publish_with("", "q", &persistent(), body.to_string());
    }
    world.advance(5_000);
    assert_eq!(channel.confirms(), []);
    assert_eq!(world.queue("q").ready, 10);
    world.release_disk();
    assert_eq!(channel.confirmed().0, (1..=10).collect::<Vec<_>>());
}

#[test]
fn while_the_disk_writes_the_next_confirms_gather() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.confirm_select();
    world.slow_disk(5);
    let before = world.disk_figures().syncs;
    for body in 0..200 {
        channel.publish_with("", "q", &persistent(), body.to_string());
        world.advance(1);
    }
    world.advance(20);
    assert_eq!(channel.confirmed().0, (1..=200).collect::<Vec<_>>());
    assert!(world.disk_figures().syncs - before < 100);
}

#[test]
fn a_message_for_a_consumer_that_acknowledges_nothing_needs_no_disk() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    channel.consume_no_ack("q", "c");
    channel.confirm_select();
    world.hold_disk();
    channel.publish_with("", "q", &persistent(), "1");
    assert_eq!((channel.bodies(), channel.confirmed().0), (vec!["1".into()], vec![1]));
    world.release_disk();
}

#[test]
fn publishers_are_told_when_the_disk_is_full_and_go_on_when_it_has_room() {
    for shards in [1, 2] {
        let world = World::on_disk(shards);
        let channel = world.channel(0);
        durable(&channel, "q");
        channel.confirm_select();
        let used = world.disk(|disk| disk.bytes());
        world.disk(|disk| disk.bytes_max = used + 200_000);
        let count = fill(&channel, "q");
        assert!(channel.client().blocked().expect("blocked").contains("disk"));
        world.advance(5_000);
        let (acked, nacked) = channel.confirmed();
        // Only what is on the disk is confirmed, and everything is answered.
        assert_eq!((acked.len() + nacked.len()) as u32, count);
        // Consumers go on, and what they take makes room.
        let consumer = world.channel(0);
        consumer.consume("q", "c");
        let taken = consumer.deliveries();
        assert_eq!(taken.len() as u32, count);
        consumer.ack_up_to(taken.last().expect("some").tag);
        world.advance(30_000);
        assert_eq!(channel.client().blocked(), None, "with {shards} shards");
        channel.publish_with("", "q", &persistent(), "7");
        world.advance(10);
        assert_eq!(channel.confirmed().0.len(), 1);
    }
}

#[test]
fn what_was_confirmed_before_the_disk_was_full_is_there_after_a_crash() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    publish_confirmed(&channel, "q", 0..100);
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    fill(&channel, "q");
    let (acked, _) = channel.confirmed();
    world.crash();
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.start_again(1);
    let ready = world.queue("q").ready;
    assert!(ready >= 100 + acked.len() as u64, "{ready} of {} confirmed", 100 + acked.len());
}

#[test]
fn a_failed_sync_confirms_nothing_ever_after() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    publish_confirmed(&channel, "q", 0..10);
    world.disk(|disk| disk.faults.sync_error = 1_000);
    channel.publish_with("", "q", &persistent(), "10");
    world.disk(|disk| disk.faults.sync_error = 0);
    world.advance(10_000);
    channel.publish_with("", "q", &persistent(), "11");
    world.advance(10_000);
    assert_eq!(channel.confirmed().0, [0; 0]);
    assert!(world.events().iter().any(|event| event.kind == "log-stopped"));
    assert!(channel.client().blocked().is_some());
    world.crash();
    world.start_again(1);
    let found: Vec<u32> = drain(&world, "q").iter().map(|found| found.0).collect();
    assert_eq!(found[..10], (0..10).collect::<Vec<_>>());
}

/// Messages that are told apart by their first bytes, confirmed and on the disk.
fn fill_and_stop(world: &World) -> Vec<String> {
    let channel = world.channel(0);
    let bodies: Vec<String> =
        (0..100).map(|body| format!("{body:04}-{}", "x".repeat(400))).collect();
    channel.confirm_select();
    for body in &bodies {
        channel.publish_with("", "q", &persistent(), body);
    }
    assert_eq!(channel.confirmed().0.len(), 100);
    world.stop();
    bodies
}

/// Turns a bit of message 50 over on the disk, while no broker runs.
fn flip_one(world: &World) {
    let place = world.disk(|disk| {
        let files: Vec<_> = disk.files().map(|(file, _)| file).collect();
        files.into_iter().find_map(|file| {
            let data = disk.data(file)?;
            let at = data.windows(5).position(|bytes| bytes == b"0050-")?;
            Some((file, at))
        })
    });
    let (file, at) = place.expect("the message is on the disk");
    world.disk(|disk| disk.flip(file, at + 100, 3));
}

fn has_told(world: &World, kind: &str) -> bool {
    world.events().iter().any(|event| event.kind == kind)
}

#[test]
fn a_damaged_message_is_reported_kept_and_the_others_are_delivered() {
    let world = World::on_disk(1);
    durable(&world.channel(0), "q");
    let bodies = fill_and_stop(&world);
    flip_one(&world);
    world.start_again(1);
    let channel = world.channel(0);
    channel.consume_no_ack("q", "c");
    let found = channel.bodies();
    let expected: Vec<&String> = bodies.iter().filter(|body| !body.starts_with("0050")).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    assert!(has_told(&world, "log-damaged"));
    assert_eq!(world.queue("q").ready, 0);
    // The queue goes on as if nothing had been.
    channel.publish("", "q", "next");
    assert_eq!(channel.bodies(), ["next"]);
    // It is not settled: a run that can read it has it.
    world.stop();
    flip_one(&world);
    world.start_again(1);
    assert_eq!(world.queue("q").ready, 1);
    let channel = world.channel(0);
    channel.consume_no_ack("q", "c");
    assert_eq!(channel.bodies(), [bodies[50].as_str()]);
}

#[test]
fn a_damaged_message_that_expires_is_kept_and_the_others_are_passed_on() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "dead");
    let mut arguments = Table::new();
    arguments.insert("x-message-ttl", 60_000);
    arguments.insert("x-dead-letter-exchange", "");
    arguments.insert("x-dead-letter-routing-key", "dead");
    durable_with(&channel, "q", arguments);
    fill_and_stop(&world);
    flip_one(&world);
    world.start_again(1);
    world.advance(120_000);
    assert_eq!((world.queue("dead").ready, world.queue("q").ready), (99, 0));
    assert!(has_told(&world, "log-damaged"));
    world.stop();
    flip_one(&world);
    world.start_again(1);
    world.advance(1_000);
    assert_eq!((world.queue("dead").ready, world.queue("q").ready), (100, 0));
}

#[test]
fn while_reads_fail_a_queue_waits_and_then_has_everything() {
    let world = World::on_disk(1);
    durable(&world.channel(0), "q");
    let bodies = fill_and_stop(&world);
    world.start_again(1);
    world.disk(|disk| disk.faults.read_error = 1_000);
    let channel = world.channel(0);
    channel.consume_no_ack("q", "c");
    let before = world.disk_figures().reads;
    world.advance(50_000);
    let reads = world.disk_figures().reads - before;
    assert!(reads < 100, "{reads} reads in 50 s");
    assert_eq!(channel.bodies(), [""; 0]);
    assert_eq!(world.queue("q").ready, 100);
    assert!(has_told(&world, "reads-fail") && !has_told(&world, "log-damaged"));
    world.disk(|disk| disk.faults.read_error = 0);
    world.advance(5_000);
    assert_eq!(channel.bodies(), bodies);
    assert!(has_told(&world, "reads-work"));
}

#[test]
fn a_disk_that_gives_nothing_for_a_minute_ends_the_log_and_the_next_run_has_everything() {
    let world = World::on_disk(1);
    durable(&world.channel(0), "q");
    let bodies = fill_and_stop(&world);
    world.start_again(1);
    world.disk(|disk| disk.faults.read_error = 1_000);
    let channel = world.channel(0);
    channel.consume_no_ack("q", "c");
    world.advance(70_000);
    assert!(has_told(&world, "log-stopped"));
    world.crash();
    world.disk(|disk| disk.faults.read_error = 0);
    world.start_again(1);
    let channel = world.channel(0);
    channel.consume_no_ack("q", "c");
    assert_eq!(channel.bodies(), bodies);
}

#[test]
fn a_client_that_cannot_be_told_waits_too() {
    let world = World::on_disk(1);
    let options = ClientOptions { heartbeat: 0, ..ClientOptions::default() };
    let channel = world.connect_with(0, options).open().channel();
    durable(&channel, "q");
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    let count = fill(&channel, "q");
    channel.publish_with("", "q", &persistent(), "late");
    world.advance(2_000);
    assert_eq!(world.queue("q").ready, u64::from(count));
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(3_000);
    assert_eq!(world.queue("q").ready, u64::from(count) + 1);
}

#[test]
fn the_log_says_when_the_disk_is_short_and_when_it_has_room_again() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    let used = world.disk(|disk| disk.bytes());
    world.disk(|disk| disk.bytes_max = used);
    fill(&channel, "q");
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(20_000);
    let events = world.events().into_iter().filter(|event| event.kind.contains("alarm"));
    let lines: Vec<String> =
        events.map(|event| format!("{}: {}", event.kind, event.text)).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("disk-alarm: the disk is short: the shard's logs take "),
        "{lines:?}"
    );
    assert!(lines[0].contains("store.disk_free_limit"), "{lines:?}");
    assert!(lines[1].starts_with("disk-alarm-over: the disk has room after 10 s: "), "{lines:?}");
}

#[test]
fn the_log_says_once_that_a_checkpoint_waits_for_room_and_once_that_it_had_some() {
    let world = World::on_disk(1);
    let channel = world.channel(0);
    durable(&channel, "q");
    for _ in 0..50 {
        channel.publish_with("", "q", &persistent(), vec![b'1'; 4_000]);
    }
    channel.consume("q", "c");
    world.advance(1_000);
    channel.ack_up_to(channel.deliveries().last().expect("some").tag);
    // It is due when what died has waited for some time.
    let writes = Outage { writes: true, error: Some(DiskError::Full), ..Outage::default() };
    world.advance(2_000);
    world.disk(|disk| disk.outage = writes);
    world.advance(60_000);
    world.disk(|disk| disk.outage = Outage::default());
    world.advance(60_000);
    let events = world.events().into_iter().filter(|event| event.kind.contains("checkpoint"));
    let lines: Vec<String> =
        events.map(|event| format!("{}: {}", event.kind, event.text)).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("checkpoint-waits: log-00000001: the disk has no room"),
        "{lines:?}"
    );
    assert!(lines[0].contains("Free space on the disk"), "{lines:?}");
    assert!(lines[1].starts_with("checkpoint-goes-on: log-00000001: "), "{lines:?}");
}
