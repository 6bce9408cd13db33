//! Definitions survive a restart: what was answered is there again, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::table::Table;
use lepus_base::{QueueId, Rng};
use lepus_broker::definitions::LOG;
use lepus_broker::directory::{DestinationRef, Directory, Request, VhostRef};
use lepus_broker::vhost::VhostLimits;
use lepus_sim::{Channel, World};
use lepus_store::disk::File;

fn durable(queue: &str) -> queue::Declare<'_> {
    queue::Declare { queue, durable: true, ..Default::default() }
}

fn durable_exchange(exchange: &str) -> exchange::Declare<'_> {
    exchange::Declare { exchange, r#type: "topic", durable: true, ..Default::default() }
}

/// Everything durable, as text.
fn picture(directory: &Directory) -> String {
    let mut text = String::new();
    for vhost in directory.accounts().vhosts() {
        let is_durable = |name: DestinationRef<'_>| match name {
            DestinationRef::Queue(name) => directory.queue(vhost.id, name).unwrap().durable,
            DestinationRef::Exchange(name) => directory.exchange(vhost.id, name).unwrap().durable,
        };
        writeln!(text, "{vhost:?}").unwrap();
        for binding in directory.bindings(vhost.id) {
            let source = directory.exchange(vhost.id, binding.source).unwrap();
            if source.durable && is_durable(binding.destination) {
                writeln!(text, "{binding:?}").unwrap();
            }
        }
    }
    for info in directory.exchanges(None).filter(|info| info.durable) {
        writeln!(text, "{info:?}").unwrap();
    }
    for info in directory.queues(None).filter(|info| info.durable) {
        let parts = (info.id, info.vhost, info.name(), info.log, info.auto_delete);
        writeln!(text, "{parts:?} {:?} {:?} {}", info.arguments(), info.kind, info.user()).unwrap();
    }
    for user in directory.accounts().users() {
        writeln!(text, "{user:?}").unwrap();
    }
    text
}

fn picture_of(world: &World) -> String {
    let first = world.broker(0, |broker| picture(&broker.directory));
    for shard in 1..world.shards() {
        assert_eq!(world.broker(shard, |broker| picture(&broker.directory)), first);
    }
    first
}

fn id_of(world: &World, name: &str) -> QueueId {
    world.broker(0, |broker| {
        let vhost = broker.directory.vhost("/").unwrap();
        broker.directory.queue(vhost, name).unwrap().id
    })
}

/// A little of everything, durable and not.
fn furnish(world: &World, one: &Channel) {
    one.declare_method(durable("d"));
    let arguments = Table::new().with("x-max-length", 7i32).to_bytes();
    one.declare_method(queue::Declare { arguments: arguments.as_ref(), ..durable("args") });
    one.declare("transient");
    one.exchange_method(durable_exchange("xd"));
    one.exchange("xt", "topic");
    for (queue, exchange) in [("d", "xd"), ("d", "xt"), ("transient", "xd"), ("d", "amq.topic")] {
        one.bind(queue, exchange, "key");
    }
    one.bind_with("args", "amq.headers", "", Table::new().with("b", 1i32).with("a", "x"));
    one.bind_exchange("xd", "amq.fanout", "");
    world.add_user("ann", "secret");
    world.permit("ann", "/", "^a", "", ".*");
    world.add_vhost("other");
    let limits = VhostLimits { connections_max: Some(3), queues_max: None };
    world.request(Request::SetVhostLimits { vhost: VhostRef::from("other"), limits }).unwrap();
    world
        .request(Request::SetTopicPermission {
            user: "ann".into(),
            vhost: "/".into(),
            exchange: "amq.topic".into(),
            write: "^w".into(),
            read: "^{username}".into(),
        })
        .unwrap();
}

#[test]
fn a_durable_queue_is_there_for_nobody_before_it_is_synced() {
    for shards in 1..=3 {
        let world = World::on_disk(shards);
        let (one, other) = (world.channel(shards - 1), world.channel(0));
        world.hold_log(LOG);
        one.send(durable("q"));
        assert!(one.answer().is_none());
        let missing = other.client().channel().refused(queue::Declare {
            queue: "q",
            passive: true,
            ..Default::default()
        });
        assert_eq!(missing.code, ReplyCode::NOT_FOUND);
        other.publish_mandatory("", "q", "lost");
        assert_eq!(other.returns().len(), 1);
        world.release_disk();
        one.expect("queue.declare-ok");
        assert_eq!(other.passive("q").messages, 0);
    }
}

#[test]
fn what_is_not_durable_waits_for_no_disk() {
    let world = World::on_disk(2);
    let (one, other) = (world.channel(0), world.channel(1));
    one.declare_exclusive("first, which takes a stock of ids");
    let before = world.log_figures(LOG);
    world.hold_disk();
    one.declare("a");
    other.exchange("x", "direct");
    other.declare_exclusive("b");
    other.bind("b", "x", "k");
    other.delete_exchange("x");
    one.delete("a");
    assert_eq!(world.log_figures(LOG), before);
}

#[test]
fn requests_behind_a_sync_keep_their_order() {
    for shards in 1..=3 {
        let world = World::on_disk(shards);
        let channels: Vec<Channel> = (0..4).map(|index| world.channel(index % shards)).collect();
        channels[0].declare("transient");
        world.hold_log(LOG);
        channels[0].send(durable("q"));
        // This finds the queue that is not there yet, so it must come after it.
        channels[1].send(durable("q"));
        channels[2].send(queue::Declare { queue: "later", ..Default::default() });
        channels[3].send(queue::Delete { queue: "transient", ..Default::default() });
        assert!(channels.iter().all(|channel| channel.answer().is_none()));
        world.release_disk();
        for channel in &channels[..3] {
            channel.expect("queue.declare-ok");
        }
        channels[3].expect("queue.delete-ok");
        assert_eq!(world.broker(0, |broker| broker.directory.queues(None).len()), 2);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn requests_that_come_during_a_sync_share_the_next() {
    let world = World::on_disk(2);
    let channels: Vec<Channel> = (0..64).map(|index| world.channel(index % 2)).collect();
    let before = world.log_figures(LOG).syncs;
    world.hold_log(LOG);
    for (index, channel) in channels.iter().enumerate() {
        channel.send(durable(&format!("q{index}")));
    }
    world.release_disk();
    for channel in &channels {
        channel.expect("queue.declare-ok");
    }
    let syncs = world.log_figures(LOG).syncs - before;
    assert!(syncs <= 2, "{syncs} syncs for 64 queues");
    let homes = world.broker(0, |broker| broker.homes.queues().count());
    assert!((16..=48).contains(&homes), "{homes} of 64 queues on one of two shards");
}

#[test]
fn everything_durable_is_there_again_and_nothing_else() {
    type End = fn(&World);
    let ends: [End; 3] = [World::stop, World::kill, World::crash];
    for (end, shards) in ends.into_iter().zip([[1, 1, 2], [2, 1, 3], [3, 2, 2]]) {
        let world = World::on_disk(shards[0]);
        furnish(&world, &world.channel(shards[0] - 1));
        let expected = picture_of(&world);
        for shards in &shards[1..] {
            end(&world);
            world.start_again(*shards);
            assert_eq!(picture_of(&world), expected);
        }
        let one = world.channel(0);
        one.declare("transient");
        one.exchange("xt", "topic");
        assert!(world.connect_as(0, "ann", "secret").is_open());
        // Queues whose homes moved are served there.
        one.publish("xd", "key", "x");
        assert_eq!(one.purge("d"), 1);
        assert_eq!(world.leaks(), [""; 0]);
    }
}

#[test]
fn what_was_deleted_stays_deleted() {
    let world = World::on_disk(2);
    let one = world.channel(1);
    furnish(&world, &one);
    one.declare_method(durable("kept"));
    one.delete("d");
    one.delete_exchange("xd");
    one.unbind("args", "amq.direct", "none");
    world.request(Request::DeleteVhost { name: "other".into() }).unwrap();
    world.request(Request::DeleteUser { name: "ann".into() }).unwrap();
    let expected = picture_of(&world);
    assert!(expected.contains("\"kept\"") && !expected.contains("\"ann\""));
    world.crash();
    world.start_again(2);
    assert_eq!(picture_of(&world), expected);
}

#[test]
fn an_exchange_that_deleted_itself_stays_deleted() {
    let world = World::on_disk(2);
    let one = world.channel(1);
    let vanishing =
        |exchange| exchange::Declare { auto_delete: true, ..durable_exchange(exchange) };
    for name in ["x1", "x2", "x3"] {
        one.exchange_method(vanishing(name));
    }
    one.bind_exchange("x2", "x1", "");
    // The last binding of x2 goes with a queue that leaves nothing in the log itself.
    let short = world.channel(0);
    short.declare_exclusive("short");
    one.declare_method(durable("long"));
    short.bind("short", "x2", "");
    one.bind("long", "x3", "");
    short.bind("short", "x3", "");
    short.client().close();
    let expected = picture_of(&world);
    assert!(!expected.contains("\"x1\"") && !expected.contains("\"x2\""), "{expected}");
    // Unbinding what is durable leaves x3 to what is not.
    let other = world.channel(0);
    other.declare_exclusive("other");
    other.bind("other", "x3", "");
    one.unbind("long", "x3", "");
    let expected = picture_of(&world);
    assert!(expected.contains("\"x3\""));
    world.crash();
    world.start_again(1);
    assert_eq!(picture_of(&world), expected);
}

#[test]
fn ids_of_queues_are_never_used_again() {
    let world = World::on_disk(2);
    let one = world.channel(0);
    let mut last = QueueId(0);
    for name in ["a", "b"] {
        for shards in [1, 2] {
            one_more(&world, &mut last, durable(name));
            one_more(&world, &mut last, queue::Declare { queue: "t", ..Default::default() });
            world.channel(0).delete(name);
            world.kill();
            world.start_again(shards);
        }
    }
    drop(one);
    one_more(&world, &mut last, durable("end"));
}

fn one_more(world: &World, last: &mut QueueId, declare: queue::Declare<'_>) {
    world.channel(0).declare_method(declare);
    let id = id_of(world, declare.queue);
    assert!(id > *last, "{id:?} after {last:?}");
    *last = id;
}

#[test]
fn nothing_is_answered_with_ok_after_a_failed_sync() {
    let world = World::on_disk(2);
    let (one, two, three) = (world.channel(0), world.channel(1), world.channel(1));
    one.declare("transient");
    let before = picture_of(&world);
    world.disk(|disk| disk.faults.sync_error = 1000);
    one.send(durable("q"));
    one.client().expect_closed(ReplyCode::INTERNAL_ERROR);
    two.send(durable("r"));
    two.client().expect_closed(ReplyCode::INTERNAL_ERROR);
    let told = world.events().iter().filter(|event| event.kind == "definitions-stopped").count();
    assert_eq!(told, 1);
    assert_eq!(picture_of(&world), before);
    three.declare("also transient");
    world.disk(|disk| disk.faults.sync_error = 0);
    world.kill();
    world.start_again(2);
    let one = world.channel(0);
    one.declare_method(durable("q"));
    one.declare_method(durable("r"));
}

#[test]
fn without_room_on_the_disk_durable_changes_are_refused_until_there_is_some() {
    let world = World::on_disk(2);
    let one = world.channel(1);
    one.declare("transient");
    world.disk(|disk| disk.bytes_max = disk.bytes());
    let filler = "x".repeat(8000);
    let arguments = Table::new().with("filler", filler.as_str()).to_bytes();
    let names: Vec<String> = (0..100).map(|index| format!("q{index}")).collect();
    let large =
        |index: usize| queue::Declare { arguments: arguments.as_ref(), ..durable(&names[index]) };
    let mut made = 0;
    let waiting = loop {
        let channel = world.channel(0);
        channel.send(large(made));
        if channel.answer().is_none() {
            break channel;
        }
        made += 1;
    };
    world.advance(6000);
    waiting.client().expect_closed(ReplyCode::RESOURCE_ERROR);
    one.declare("also transient");
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(6000);
    let channel = world.channel(0);
    channel.declare_method(large(made));
    let expected = picture_of(&world);
    world.crash();
    world.start_again(2);
    assert_eq!(picture_of(&world), expected);
}

#[test]
fn the_log_of_many_changes_stays_short() {
    let world = World::on_disk(2);
    let one = world.channel(1);
    furnish(&world, &one);
    let filler = "x".repeat(4000);
    let arguments = Table::new().with("filler", filler.as_str()).to_bytes();
    for round in 0..1500 {
        let name = format!("q{}", round % 3);
        one.declare_method(queue::Declare { arguments: arguments.as_ref(), ..durable(&name) });
        one.delete(&name);
    }
    let written = world.log_figures(LOG).written_bytes;
    let kept: u64 = world.disk(|disk| {
        let own = disk.files().filter(|(file, _)| matches!(file, File::Segment(LOG, _)));
        own.map(|(_, bytes)| bytes).sum()
    });
    assert!(written > 6 << 20 && kept < 3 << 20, "{kept} of {written} bytes are kept");
    let expected = picture_of(&world);
    world.crash();
    world.start_again(2);
    assert_eq!(picture_of(&world), expected);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn the_log_of_many_starts_stays_short() {
    let world = World::on_disk(2);
    furnish(&world, &world.channel(1));
    let expected = picture_of(&world);
    let segments = || {
        let is_own = |file: &File| matches!(file, File::Segment(LOG, _));
        world.disk(|disk| disk.files().filter(|(file, _)| is_own(file)).count())
    };
    let mut most = 0;
    for start in 0..60 {
        if start % 3 == 0 {
            world.stop()
        } else {
            world.crash()
        }
        world.start_again(2);
        // A few requests, as a snapshot takes the time between them.
        world.channel(0).declare_exclusive("");
        world.advance(1000);
        most = most.max(segments());
    }
    assert!(most < 30, "{most} segments");
    assert_eq!(picture_of(&world), expected);
}

#[test]
fn a_snapshot_keeps_what_is_asked_for_meanwhile_in_order() {
    let world = World::on_disk(2);
    let one = world.channel(1);
    let filler = "x".repeat(4000);
    let arguments = Table::new().with("filler", filler.as_str()).to_bytes();
    let large = |queue| queue::Declare { arguments: arguments.as_ref(), ..durable(queue) };
    let names: Vec<String> = (0..400).map(|index| format!("q{index}")).collect();
    world.slow_disk(3);
    // Many channels, so that requests come while the snapshot is on its way.
    let channels: Vec<Channel> = (0..20).map(|index| world.channel(index % 2)).collect();
    for chunk in names.chunks(channels.len()) {
        for (channel, name) in channels.iter().zip(chunk) {
            channel.send(large(name));
        }
        world.advance(1);
        one.send(queue::Declare { queue: "t", auto_delete: true, ..Default::default() });
        world.advance(500);
        one.expect("queue.declare-ok");
        for channel in &channels {
            channel.expect("queue.declare-ok");
        }
    }
    world.slow_disk(0);
    let expected = picture_of(&world);
    world.kill();
    world.start_again(2);
    assert_eq!(picture_of(&world), expected);
}

#[test]
fn who_saw_the_answer_finds_it_after_a_loss_of_power() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let world = World::on_disk(1 + (seed % 3) as u16);
        // What was answered, and what was asked for last and may have happened.
        let mut known: BTreeMap<String, bool> = BTreeMap::new();
        for _ in 0..3 {
            let channel = world.channel(world.shards() - 1);
            world.slow_disk(rng.below(4));
            let mut pending = None;
            for _ in 0..rng.below(40) {
                let (name, wanted) = (format!("q{}", rng.below(5)), rng.chance(2, 3));
                if wanted {
                    channel.send(durable(&name));
                } else {
                    channel.send(queue::Delete { queue: &name, ..Default::default() });
                }
                world.advance(rng.below(6));
                if channel.answer().is_none() {
                    pending = Some((name, wanted));
                    break;
                }
                known.insert(name, wanted);
            }
            world.crash();
            world.slow_disk(0);
            world.start_again(1 + rng.below(3) as u16);
            for (name, wanted) in &known {
                let is_there = world.find_queue("/", name).is_some();
                let may_differ = pending.as_ref() == Some(&(name.clone(), !wanted));
                assert!(is_there == *wanted || may_differ, "seed {seed}: {name} is {is_there}");
            }
            let names: Vec<String> = known.keys().cloned().collect();
            for name in names.into_iter().chain(pending.map(|(name, _)| name)) {
                let is_there = world.find_queue("/", &name).is_some();
                known.insert(name, is_there);
            }
        }
    }
}

/// Fills the disk until the definitions log takes nothing more; the channels that wait for it.
fn fill_definitions(world: &World) -> Vec<Channel> {
    world.disk(|disk| disk.bytes_max = disk.bytes());
    let mut made = 0;
    let fill = |size: usize| {
        let filler = "x".repeat(size);
        let arguments = Table::new().with("filler", filler.as_str()).to_bytes();
        loop {
            let channel = world.channel(0);
            made += 1;
            let name = format!("fill{made}");
            channel.send(queue::Declare { arguments: arguments.as_ref(), ..durable(&name) });
            if channel.answer().is_none() {
                return channel;
            }
        }
    };
    [8_000, 500, 1].map(fill).into()
}

#[test]
fn a_queue_whose_deletion_is_refused_lives_on_and_goes_later() {
    let world = World::on_disk(2);
    let one = world.channel(1);
    one.declare_method(queue::Declare { auto_delete: true, ..durable("auto") });
    let expires = Table::new().with("x-expires", 3_000).to_bytes();
    one.declare_method(queue::Declare { arguments: expires.as_ref(), ..durable("expires") });
    one.consume("auto", "c");
    let _waiting = fill_definitions(&world);
    one.send(basic::Cancel { consumer_tag: "c", no_wait: false });
    world.advance(40_000);
    one.expect("basic.cancel-ok");
    // They are there and serve.
    for queue in ["auto", "expires"] {
        one.publish("", queue, "x");
        assert_eq!(one.get_no_ack(queue).map(|message| message.text()), Some("x".into()));
    }
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(40_000);
    for queue in ["auto", "expires"] {
        assert!(world.find_queue("/", queue).is_none(), "{queue}");
    }
    assert!(world.events().iter().any(|event| event.kind == "queue-not-deleted"));
}

#[test]
fn a_queue_whose_deletion_was_refused_stays_while_it_is_used_again() {
    let world = World::on_disk(1);
    let one = world.channel(0);
    one.declare_method(queue::Declare { auto_delete: true, ..durable("auto") });
    one.consume("auto", "c");
    let _waiting = fill_definitions(&world);
    one.send(basic::Cancel { consumer_tag: "c", no_wait: false });
    world.advance(40_000);
    one.expect("basic.cancel-ok");
    one.consume("auto", "again");
    world.disk(|disk| disk.bytes_max = u64::MAX);
    world.advance(60_000);
    one.publish("", "auto", "x");
    assert_eq!(one.bodies(), ["x"]);
    one.cancel("again");
    world.advance(1_000);
    assert!(world.find_queue("/", "auto").is_none());
}
