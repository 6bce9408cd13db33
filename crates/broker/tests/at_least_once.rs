//! Dead letters that must arrive: `x-dead-letter-strategy: at-least-once`.

use lepus_amqp::method::queue;
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_sim::{Channel, World};

use crate::restart::{drain, durable, persistent, publish_confirmed};
use crate::stage::{everywhere, on_disk};

/// Longer than any pause before letters are tried again.
const A_WHILE: u64 = 31_000;

pub fn surely_to(exchange: &str, key: &str) -> Table {
    Table::new()
        .with("x-queue-type", "quorum")
        .with("x-overflow", "reject-publish")
        .with("x-dead-letter-strategy", "at-least-once")
        .with("x-dead-letter-exchange", exchange)
        .with("x-dead-letter-routing-key", key)
}

pub fn declare(channel: &Channel, name: &str, arguments: Table) {
    let arguments = arguments.to_bytes();
    channel.declare_method(queue::Declare {
        queue: name,
        durable: true,
        arguments: arguments.as_ref(),
        ..Default::default()
    });
}

/// A queue that refuses what is more than `count`.
fn declare_short(channel: &Channel, name: &str, count: i32) {
    let limits = Table::new().with("x-max-length", count).with("x-overflow", "reject-publish");
    channel.declare_with(name, limits);
}

fn reject_all(channel: &Channel, queue: &str) {
    while let Some(message) = channel.get(queue) {
        channel.reject(message.tag, false);
    }
}

fn bodies(channel: &Channel, queue: &str) -> Vec<String> {
    core::iter::from_fn(|| channel.get_no_ack(queue)).map(|message| message.text()).collect()
}

fn warnings(world: &World, kind: &str) -> usize {
    world.events().iter().filter(|event| event.kind == kind).count()
}

#[test]
fn a_letter_that_no_queue_gets_waits_for_a_binding() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "direct");
        declare(&near, "q", surely_to("dlx", "k"));
        far.declare("graves");
        near.publish_all("q", ["1", "2", "3"]);
        reject_all(&near, "q");
        stage.world.advance(10 * A_WHILE);
        assert_eq!(warnings(&stage.world, "dead-letters-wait"), 1);
        near.bind("graves", "dlx", "k");
        stage.world.advance(A_WHILE);
        let found: Vec<_> = core::iter::from_fn(|| far.get_no_ack("graves")).collect();
        assert_eq!(found.iter().map(|message| message.text()).collect::<Vec<_>>(), ["1", "2", "3"]);
        let deaths = found[0].header("x-death").and_then(Value::as_array).unwrap();
        let count = deaths[0].as_table().and_then(|death| death.get("count")?.as_integer());
        assert_eq!((deaths.len(), count), (1, Some(1)));
        stage.world.advance(A_WHILE);
        assert_eq!(bodies(&far, "graves"), [""; 0]);
    });
}

#[test]
fn a_letter_whose_exchange_is_missing_waits_for_it() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", surely_to("later", "k"));
        far.declare("graves");
        near.publish("", "q", "x");
        reject_all(&near, "q");
        stage.world.advance(A_WHILE);
        near.exchange("later", "fanout");
        near.bind("graves", "later", "");
        stage.world.advance(A_WHILE);
        assert_eq!(bodies(&far, "graves"), ["x"]);
    });
}

#[test]
fn what_a_full_queue_refuses_comes_in_order_once_there_is_room() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", surely_to("", "graves"));
        declare_short(&far, "graves", 2);
        near.publish_all("q", (1..=5).map(|number| number.to_string()));
        reject_all(&near, "q");
        stage.world.advance(A_WHILE);
        let mut found = bodies(&far, "graves");
        assert_eq!(found, ["1", "2"]);
        // A later one does not overtake them.
        near.publish("", "q", "6");
        reject_all(&near, "q");
        for _ in 0..2 {
            stage.world.advance(A_WHILE);
            found.extend(bodies(&far, "graves"));
        }
        assert_eq!(found, ["1", "2", "3", "4", "5", "6"]);
    });
}

#[test]
fn who_has_it_does_not_get_it_again_when_another_queue_refuses() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "fanout");
        declare(&near, "q", surely_to("dlx", ""));
        near.declare("takes near");
        far.declare("takes far");
        declare_short(&near, "full near", 0);
        declare_short(&far, "full far", 0);
        for queue in ["takes near", "full near", "takes far", "full far"] {
            near.bind(queue, "dlx", "");
        }
        near.publish("", "q", "x");
        reject_all(&near, "q");
        stage.world.advance(5 * A_WHILE);
        assert_eq!(
            (bodies(&near, "takes near"), bodies(&near, "takes far")),
            (vec!["x".into()], vec!["x".into()])
        );
        near.delete("full near");
        near.delete("full far");
        near.declare("full near");
        near.bind("full near", "dlx", "");
        stage.world.advance(A_WHILE);
        assert_eq!(bodies(&near, "full near"), ["x"]);
        assert_eq!(
            (stage.world.queue("takes near").ready, stage.world.queue("takes far").ready),
            (0, 0)
        );
    });
}

#[test]
fn letters_that_wait_count_as_the_queues_length() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", surely_to("", "graves").with("x-max-length", 2));
        near.publish_all("q", ["1", "2"]);
        reject_all(&near, "q");
        stage.world.advance(1);
        near.confirm_select();
        near.publish("", "q", "3");
        assert_eq!(near.confirmed(), (vec![], vec![1]));
        far.declare("graves");
        stage.world.advance(A_WHILE);
        near.publish("", "q", "4");
        assert_eq!(near.confirmed(), (vec![2], vec![]));
        assert_eq!(bodies(&far, "graves"), ["1", "2"]);
    });
}

#[test]
fn what_expires_or_comes_back_too_often_must_arrive_too() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "expires", surely_to("", "graves").with("x-message-ttl", 10));
        declare(&near, "limited", surely_to("", "graves").with("x-delivery-limit", 0));
        near.publish("", "expires", "1");
        near.publish("", "limited", "2");
        let message = near.get("limited").unwrap();
        near.reject(message.tag, true);
        stage.world.advance(A_WHILE);
        assert_eq!(
            (stage.world.queue("expires").ready, stage.world.queue("limited").ready),
            (0, 0)
        );
        far.declare("graves");
        stage.world.advance(A_WHILE);
        let mut found = bodies(&far, "graves");
        found.sort();
        assert_eq!(found, ["1", "2"]);
    });
}

#[test]
fn letters_that_wait_are_in_nobodys_way() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "stuck", surely_to("", "nowhere"));
        declare(&near, "goes", surely_to("", "graves"));
        far.declare("graves");
        near.publish_all("stuck", (0..2_000).map(|number| number.to_string()));
        reject_all(&near, "stuck");
        for number in 0..5 {
            near.publish("", "goes", number.to_string());
            reject_all(&near, "goes");
            stage.world.settle();
            assert_eq!(bodies(&far, "graves"), [number.to_string()]);
            stage.world.advance(1_000);
        }
        // Nothing of them is left behind by their queue.
        near.delete("stuck");
    });
}

#[test]
fn without_refusals_of_its_own_a_queue_sends_letters_at_most_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        declare(&near, "q", surely_to("", "graves").with("x-overflow", "drop-head"));
        assert_eq!(warnings(&stage.world, "dead-letter-strategy"), 1);
        near.publish("", "q", "x");
        reject_all(&near, "q");
        stage.world.advance(A_WHILE);
        far.declare("graves");
        stage.world.advance(A_WHILE);
        assert_eq!(bodies(&far, "graves"), [""; 0]);
    });
}

#[test]
fn what_waits_is_there_after_a_restart() {
    on_disk(|world, end| {
        let channel = world.channel(0);
        declare(&channel, "q", surely_to("", "graves"));
        publish_confirmed(&channel, "q", 0..20);
        reject_all(&channel, "q");
        world.advance(A_WHILE);
        end.now(world);
        assert_eq!(world.queue("q").ready, 20);
        let channel = world.channel(0);
        reject_all(&channel, "q");
        world.advance(A_WHILE);
        durable(&world.channel(world.shards() - 1), "graves");
        world.advance(A_WHILE);
        end.now(world);
        let found: Vec<u32> = drain(world, "graves").iter().map(|found| found.0).collect();
        assert_eq!(found, (0..20).collect::<Vec<_>>());
        assert_eq!(world.queue("q").ready, 0);
    });
}

#[test]
fn a_letter_that_one_queue_has_and_no_other_is_to_get_any_more_has_arrived() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.exchange("dlx", "fanout");
        declare(&near, "q", surely_to("dlx", "").with("x-max-length", 1));
        far.declare("takes");
        declare_short(&far, "full", 0);
        near.bind("takes", "dlx", "");
        near.bind("full", "dlx", "");
        near.publish("", "q", "x");
        reject_all(&near, "q");
        stage.world.advance(A_WHILE);
        near.confirm_select();
        near.publish("", "q", "y");
        assert_eq!(near.confirmed(), (vec![], vec![1]));
        near.unbind("takes", "dlx", "");
        near.unbind("full", "dlx", "");
        stage.world.advance(A_WHILE);
        near.publish("", "q", "y");
        assert_eq!(near.confirmed(), (vec![2], vec![]));
        assert_eq!(bodies(&far, "takes"), ["x"]);
    });
}

#[test]
fn letters_with_large_headers_find_the_room_that_they_need() {
    for size in [20_000, 35_000, 50_000, 64_900] {
        let world = World::on_disk(1);
        let channel = world.channel(0);
        durable(&channel, "graves");
        declare(&channel, "q", surely_to("", "graves"));
        // What the letters are made of stays where it is: nothing comes free.
        durable(&channel, "kept");
        ["q", "kept"].iter().for_each(|queue| channel.bind(queue, "amq.fanout", ""));
        let headers = Some(Table::new().with("h", "x".repeat(size).as_str()));
        let message = Properties { headers, ..persistent() };
        channel.confirm_select();
        for _ in 0..100 {
            channel.publish_with("amq.fanout", "", &message, "1");
            world.advance(1);
        }
        let used = world.disk(|disk| disk.bytes());
        world.disk(|disk| disk.bytes_max = used);
        reject_all(&channel, "q");
        world.advance(10_000);
        assert!(world.queue("graves").ready < 100, "the disk is full");
        world.disk(|disk| disk.bytes_max = u64::MAX);
        world.advance(10_000);
        // None was refused for lack of room.
        assert_eq!(warnings(&world, "dead-letters-wait"), 0);
        assert_eq!(world.queue("graves").ready, 100);
    }
}

#[test]
fn who_has_it_does_not_get_it_again_after_it_has_moved() {
    let world = World::new(2);
    let channel = world.channel(0);
    channel.exchange("dlx", "fanout");
    declare(&channel, "q", surely_to("dlx", ""));
    channel.declare("takes");
    declare_short(&channel, "full", 0);
    channel.bind("takes", "dlx", "");
    channel.bind("full", "dlx", "");
    channel.publish("", "q", "x");
    reject_all(&channel, "q");
    assert_eq!(bodies(&channel, "takes"), ["x"]);
    for round in 0..6 {
        world.move_queue("takes", 1 - round % 2);
        world.advance(A_WHILE);
        assert_eq!(world.queue("takes").ready, 0, "in round {round}");
    }
}

/// Also while those that are tried again are read from the disk, be they few or many.
#[test]
fn a_later_letter_overtakes_none_that_is_tried_again() {
    for count in [200, 280, 600] {
        let world = World::on_disk(1);
        let channel = world.channel(0);
        declare(&channel, "q", surely_to("", "graves"));
        let limits = Table::new().with("x-max-length", 0).with("x-overflow", "reject-publish");
        channel.declare_with("graves", limits);
        let body = |number: usize| format!("{number:05}{}", "-".repeat(5_000));
        channel.confirm_select();
        for number in 0..count {
            channel.publish_with("", "q", &persistent(), body(number));
        }
        world.advance(5_000);
        reject_all(&channel, "q");
        world.advance(5_000);
        channel.delete("graves");
        channel.declare("graves");
        world.hold_disk();
        world.advance(2 * A_WHILE);
        channel.publish_with("", "q", &persistent(), body(count));
        world.advance(10);
        reject_all(&channel, "q");
        world.advance(10);
        assert_eq!(world.queue("graves").ready, 0, "they are being read");
        world.release_disk();
        // Less than a pause: who only waited for others to arrive follows at once.
        world.advance(100);
        let found: Vec<usize> =
            bodies(&channel, "graves").iter().map(|body| body[..5].parse().unwrap()).collect();
        assert_eq!(found, (0..=count).collect::<Vec<_>>());
    }
}
