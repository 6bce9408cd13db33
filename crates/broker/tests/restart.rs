//! What is there again after a restart, and in which state.

use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::stage::{Ending, on_disk};

/// Declares a durable queue.
pub fn durable(channel: &Channel, name: &str) {
    durable_with(channel, name, Table::new());
}

/// Declares a durable queue with arguments.
pub fn durable_with(channel: &Channel, name: &str, arguments: Table) {
    let arguments = arguments.to_bytes();
    channel.declare_method(queue::Declare {
        queue: name,
        durable: true,
        arguments: arguments.as_ref(),
        ..Default::default()
    });
}

/// Declares a durable exchange.
pub fn durable_exchange(channel: &Channel, name: &str, kind: &str) {
    channel.exchange_method(exchange::Declare {
        exchange: name,
        r#type: kind,
        durable: true,
        ..Default::default()
    });
}

pub fn persistent() -> Properties {
    Properties { delivery_mode: Some(2), ..Properties::default() }
}

/// Publishes persistent messages and waits until all are confirmed.
pub fn publish_confirmed(channel: &Channel, queue: &str, bodies: impl IntoIterator<Item = u32>) {
    channel.confirm_select();
    let mut count = 0;
    channel.client().together(|| {
        for body in bodies {
            channel.publish_with("", queue, &persistent(), body.to_string());
            count += 1;
        }
    });
    let (acked, nacked) = channel.confirmed();
    assert_eq!((acked.len(), nacked.len()), (count, 0));
}

/// Takes everything that is ready, and says which were delivered before.
pub fn drain(world: &World, queue: &str) -> Vec<(u32, bool)> {
    let channel = world.channel(0);
    channel.consume(queue, "drain");
    world.advance(1);
    let found = channel.deliveries();
    if let Some(last) = found.last() {
        channel.ack_up_to(last.tag);
    }
    channel.cancel("drain");
    found.iter().map(|m| (m.text().parse().expect("a number"), m.redelivered)).collect()
}

fn numbers(found: &[(u32, bool)]) -> Vec<u32> {
    found.iter().map(|found| found.0).collect()
}

#[test]
fn what_was_confirmed_is_there_again_in_its_order() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "q");
        publish_confirmed(&channel, "q", 0..500);
        end.now(world);
        assert_eq!(world.queue("q").ready, 500, "the depth is known at once");
        let found = drain(world, "q");
        assert_eq!(numbers(&found), (0..500).collect::<Vec<_>>());
        let is_redelivered = found.iter().all(|found| found.1);
        assert_eq!(is_redelivered, end != Ending::Stop, "only after a crash nobody knows");
        assert_eq!(world.queue("q").ready, 0);
    });
}

#[test]
fn what_was_acknowledged_does_not_come_back() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "q");
        publish_confirmed(&channel, "q", 0..100);
        channel.consume("q", "c");
        let taken = channel.deliveries();
        for message in taken.iter().filter(|message| message.tag % 3 != 0) {
            channel.ack(message.tag);
        }
        // What nobody waits for is on the disk after a moment.
        world.advance(1_500);
        end.now(world);
        let expected: Vec<u32> = (0..100).filter(|body| (body + 1) % 3 == 0).collect();
        assert_eq!(world.queue("q").ready, expected.len() as u64);
        assert_eq!(numbers(&drain(world, "q")), expected);
    });
}

#[test]
fn what_was_taken_and_not_acknowledged_comes_back() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "q");
        publish_confirmed(&channel, "q", 0..10);
        let first = channel.get("q").expect("a message");
        assert_eq!(first.text(), "0");
        channel.get_no_ack("q").expect("another");
        let other = world.channel(0);
        other.consume("q", "c");
        assert_eq!(other.deliveries().len(), 8);
        world.advance(1_500);
        end.now(world);
        let found = numbers(&drain(world, "q"));
        assert_eq!(found, [0, 2, 3, 4, 5, 6, 7, 8, 9]);
    });
}

#[test]
fn transient_messages_and_queues_end_with_the_broker() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "kept");
        channel.declare("gone");
        channel.declare_exclusive("mine");
        channel.confirm_select();
        for queue in ["kept", "gone", "mine"] {
            channel.publish("", queue, "0");
            channel.publish_with("", queue, &persistent(), "1");
        }
        assert_eq!(channel.confirmed().0.len(), 6);
        end.now(world);
        assert_eq!(numbers(&drain(world, "kept")), [1]);
        assert!(world.find_queue("/", "gone").is_none());
        assert!(world.find_queue("/", "mine").is_none());
    });
}

#[test]
fn a_purged_queue_is_empty_and_a_deleted_one_starts_empty() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        for queue in ["purged", "deleted"] {
            durable(&channel, queue);
            publish_confirmed(&channel, queue, 0..300);
        }
        let held = channel.get("purged").expect("a message");
        assert_eq!(channel.purge("purged"), 299);
        channel.delete("deleted");
        durable(&channel, "deleted");
        publish_confirmed(&channel, "purged", 900..902);
        publish_confirmed(&channel, "deleted", 700..702);
        channel.reject(held.tag, true);
        end.now(world);
        assert_eq!(numbers(&drain(world, "purged")), [0, 900, 901]);
        assert_eq!(numbers(&drain(world, "deleted")), [700, 701]);
    });
}

#[test]
fn priorities_hold_over_a_restart() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable_with(&channel, "q", Table::new().with("x-max-priority", 5));
        channel.confirm_select();
        for (body, priority) in [(0, 0), (1, 5), (2, 3), (3, 9), (4, 5), (5, 0)] {
            let properties = Properties { priority: Some(priority), ..persistent() };
            channel.publish_with("", "q", &properties, body.to_string());
        }
        assert_eq!(channel.confirmed().0.len(), 6);
        end.now(world);
        let channel = world.channel(0);
        let properties = Properties { priority: Some(4), ..persistent() };
        channel.publish_with("", "q", &properties, "6");
        assert_eq!(numbers(&drain(world, "q")), [1, 3, 4, 6, 2, 0, 5]);
    });
}

#[test]
fn a_message_expires_at_its_time_whether_the_broker_runs_or_not() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable_with(&channel, "q", Table::new().with("x-message-ttl", 5_000));
        durable(&channel, "plain");
        publish_confirmed(&channel, "q", 0..3);
        world.advance(3_000);
        publish_confirmed(&channel, "q", 3..6);
        let short = Properties { expiration: Some("100".into()), ..persistent() };
        channel.publish_with("", "plain", &short, "0");
        channel.publish_with("", "plain", &persistent(), "1");
        end.now(world);
        assert_eq!(world.queue("q").ready, 6);
        world.advance(2_001);
        assert_eq!(world.queue("q").ready, 3, "nobody has to ask");
        world.advance(2_000);
        assert_eq!(numbers(&drain(world, "q")), [3, 4, 5]);
        assert_eq!(numbers(&drain(world, "plain")), [1]);
        world.advance(60_000);
        assert_eq!(world.queue("q").ready, 0);
    });
}

#[test]
fn length_limits_hold_over_a_restart() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable_with(&channel, "drops", Table::new().with("x-max-length", 3));
        let refuse = Table::new().with("x-max-length", 3).with("x-overflow", "reject-publish");
        durable_with(&channel, "refuses", refuse);
        publish_confirmed(&channel, "drops", 0..5);
        publish_confirmed(&channel, "refuses", 0..3);
        channel.publish_with("", "refuses", &persistent(), "3");
        assert_eq!(channel.confirmed().1.len(), 1);
        end.now(world);
        let channel = world.channel(0);
        publish_confirmed(&channel, "drops", 5..6);
        channel.publish_with("", "refuses", &persistent(), "4");
        assert_eq!(channel.confirmed().1.len(), 1);
        assert_eq!(numbers(&drain(world, "drops")), [3, 4, 5]);
        assert_eq!(numbers(&drain(world, "refuses")), [0, 1, 2]);
    });
}

#[test]
fn requeued_messages_keep_their_places_over_a_restart() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "q");
        publish_confirmed(&channel, "q", 0..6);
        channel.qos(4);
        channel.consume("q", "c");
        let taken = channel.deliveries();
        channel.ack(taken[1].tag);
        channel.reject(taken[3].tag, true);
        channel.reject(taken[0].tag, true);
        world.advance(1_500);
        end.now(world);
        assert_eq!(numbers(&drain(world, "q")), [0, 2, 3, 4, 5]);
    });
}

#[test]
fn a_transaction_is_there_as_a_whole_after_its_commit() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        for queue in ["a", "b"] {
            durable(&channel, queue);
            publish_confirmed(&world.channel(0), queue, 0..2);
        }
        channel.tx_select();
        let taken = channel.get("a").expect("a message");
        channel.publish_with("", "b", &persistent(), "7");
        channel.publish_with("", "a", &persistent(), "8");
        channel.ack(taken.tag);
        channel.tx_commit();
        let open = world.channel(0);
        open.tx_select();
        open.publish_with("", "a", &persistent(), "9");
        world.advance(1_500);
        end.now(world);
        assert_eq!(numbers(&drain(world, "a")), [1, 8]);
        assert_eq!(numbers(&drain(world, "b")), [0, 1, 7]);
    });
}

#[test]
fn a_commit_is_answered_when_it_is_on_the_disk() {
    let world = World::on_disk(2);
    let (near, far) = (world.channel(0), world.channel(1));
    far.declare_exclusive("anchor");
    durable(&near, "near");
    far.tx_select();
    world.hold_disk();
    far.publish_with("", "near", &persistent(), "1");
    far.send(lepus_amqp::method::tx::Commit {});
    assert!(far.answer().is_none(), "the disk has not answered");
    world.release_disk();
    far.expect("tx.commit-ok");
}

#[test]
fn a_message_for_many_queues_is_written_once_and_comes_back_to_each() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable_exchange(&channel, "fan", "fanout");
        let queues: Vec<String> = (0..10).map(|number| format!("q{number}")).collect();
        for queue in &queues {
            durable(&channel, queue);
            channel.bind(queue, "fan", "");
        }
        channel.confirm_select();
        let before = world.disk_figures().written_bytes;
        let body = vec![b'7'; 1_000];
        for _ in 0..20 {
            channel.publish_with("fan", "", &persistent(), &body);
        }
        assert_eq!(channel.confirmed().0.len(), 20);
        let written = world.disk_figures().written_bytes - before;
        // Pages are written whole, and each of the twenty is synced for itself.
        assert!(written < 20 * 8192 + 64 * 1024, "{written} bytes for 20,000 of payload");
        end.now(world);
        for queue in &queues {
            assert_eq!(world.queue(queue).ready, 20);
            let message = world.channel(0).get(queue).expect("a message");
            assert_eq!((message.body, message.exchange.as_str()), (body.clone(), "fan"));
        }
    });
}

#[test]
fn a_message_from_another_shard_is_confirmed_by_the_disk_of_its_home() {
    let world = World::on_disk(2);
    let (near, far) = (world.channel(0), world.channel(1));
    far.declare_exclusive("anchor");
    durable(&near, "q");
    far.confirm_select();
    world.hold_disk();
    far.publish_with("", "q", &persistent(), "1");
    far.publish("", "q", "2");
    assert_eq!(far.confirmed().0, [0; 0]);
    near.consume("q", "c");
    assert_eq!(near.bodies(), ["1", "2"], "deliveries do not wait for the disk");
    world.release_disk();
    assert_eq!(far.confirmed().0, [1, 2]);
}

#[test]
fn with_fewer_or_more_shards_everything_is_there() {
    let world = World::on_disk(3);
    for shard in 0..3 {
        let channel = world.channel(shard);
        let queue = format!("q{shard}");
        durable(&channel, &queue);
        publish_confirmed(&channel, &queue, 0..50);
    }
    let expected: Vec<u32> = (0..50).collect();
    for shards in [1, 2, 4] {
        world.stop();
        world.start_again(shards);
        for shard in 0..3 {
            let queue = format!("q{shard}");
            let found = numbers(&drain(&world, &queue));
            assert_eq!(found, expected, "{queue} with {shards} shards");
            publish_confirmed(&world.channel(0), &queue, 0..50);
        }
    }
}

#[test]
fn get_finds_what_an_earlier_run_left() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable(&channel, "q");
        publish_confirmed(&channel, "q", 0..3);
        end.now(world);
        let channel = world.channel(0);
        world.hold_disk();
        channel.send(basic::Get { queue: "q", no_ack: true });
        world.release_disk();
        let first = channel.answer();
        assert!(first.is_some(), "the answer comes when it is read");
        assert_eq!(world.queue("q").ready, 2);
    });
}

#[test]
fn hidden_copies_are_known_after_a_restart_and_stay_hidden() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        durable_exchange(&channel, "dlx", "direct");
        durable_with(&channel, "q", Table::new().with("x-dead-letter-exchange", "dlx"));
        durable(&channel, "graves");
        channel.bind("graves", "dlx", "hidden");
        let headers = Table::new().with("BCC", vec![Value::from("hidden")]).with("mine", 1);
        let properties = Properties { headers: Some(headers), ..persistent() };
        channel.confirm_select();
        channel.publish_with("", "q", &properties, "1");
        assert_eq!(channel.confirmed().0.len(), 1);
        end.now(world);
        let channel = world.channel(0);
        let message = channel.get("q").expect("a message");
        assert_eq!(message.properties.headers, Some(Table::new().with("mine", 1)));
        channel.reject(message.tag, false);
        world.advance(1);
        let message = channel.get_no_ack("graves").expect("a dead letter");
        assert_eq!((message.header("BCC"), message.key.as_str()), (None, "q"));
    });
}
