//! What the simulator found, each as the shortest story that shows it.

use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{basic, channel, queue};
use lepus_amqp::table::Table;
use lepus_sim::{Options, World};

#[test]
fn an_unanswered_bind_does_not_silence_the_connection() {
    let world = World::new(2);
    let alice = world.channel(1);
    alice.declare("q");
    alice.send(queue::Bind {
        queue: "q",
        exchange: "amq.fanout",
        no_wait: true,
        ..Default::default()
    });
    assert_eq!(alice.passive("q").messages, 0);
}

#[test]
fn a_connection_that_has_published_elsewhere_stays_so_that_nothing_overtakes() {
    let world = World::new(3);
    let carol = world.channel(1);
    carol.declare("far");
    carol.bind("far", "amq.fanout", "");
    world.channel(0).declare("other");
    let alice = world.channel(2);
    alice.client().together(|| {
        for number in 0..10 {
            alice.publish("amq.fanout", "", number.to_string());
        }
        alice.send(queue::Declare { queue: "other", ..Default::default() });
        for number in 10..20 {
            alice.publish("amq.fanout", "", number.to_string());
        }
    });
    let bob = world.channel(1);
    bob.consume("far", "c");
    assert_eq!(bob.bodies(), (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_channel_whose_frames_were_parked_is_read_again_after_it_ended() {
    let mut options = Options { shards: 2, ..Options::default() };
    options.limits.parked_bytes_max = 1;
    let world = World::with(options);
    world.channel(0).declare("far");
    let alice = world.channel(1);
    alice.client().together(|| {
        alice.send(queue::Purge { queue: "far", no_wait: false });
        alice.send(channel::Close::default());
    });
    alice.expect("queue.purge-ok");
    alice.expect("channel.close-ok");
    alice.client().close();
}

#[test]
fn a_channel_wide_limit_holds_for_the_first_deliveries_from_another_shard() {
    let world = World::new(2);
    let alice = world.channel(0);
    alice.declare("far");
    alice.publish_all("far", ["one", "two", "three"]);
    let bob = world.channel(1);
    bob.declare("near");
    bob.consume("near", "ties bob to his shard");
    bob.qos_global(1);
    bob.consume("far", "c");
    assert_eq!(bob.bodies(), ["one"]);
}

#[test]
fn a_channel_that_both_sides_close_gets_both_answers() {
    let world = World::new(2);
    let owner = world.channel(0);
    owner.declare("brief");
    let alice = world.channel(1);
    alice.client().together(|| {
        owner.client().together(|| {
            owner.send(queue::Delete { queue: "brief", ..Default::default() });
        });
        alice.send(basic::Consume { queue: "brief", ..Default::default() });
        alice.send(channel::Close::default());
    });
    assert!(alice.expect_refused().text.starts_with("NOT_FOUND - no queue 'brief' in vhost '/'"));
    alice.expect("channel.close-ok");
}

#[test]
fn a_publisher_paused_for_mail_goes_on_when_the_mail_has_left() {
    let mut options = Options { shards: 2, ..Options::default() };
    options.limits.mail_batch_bytes_max = 1;
    let world = World::with(options);
    world.channel(0).declare("far");
    let alice = world.channel(1);
    alice.publish("amq.fanout", "", "stay here");
    alice.publish_all("far", (0..100).map(|number| number.to_string()));
    assert_eq!(alice.passive("far").messages, 100);
}

#[test]
fn what_was_said_before_a_connection_closes_is_heard() {
    let world = World::new(2);
    world.channel(0).declare("far");
    let alice = world.channel(1);
    alice.publish("amq.fanout", "", "stay here");
    alice.client().together(|| {
        alice.send(queue::Declare { queue: "far", passive: true, ..Default::default() });
        alice.publish("", "far", "while a question is open");
        alice.client().say_close();
    });
    assert_eq!(world.queue("far").ready, 1);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn nothing_is_delivered_behind_the_close_of_a_channel() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.declare_with("single", Table::new().with("x-single-active-consumer", true));
    alice.publish_all("single", ["one", "two"]);
    alice.qos(1);
    alice.consume("single", "first");
    alice.consume("single", "second");
    assert_eq!(alice.bodies(), ["one"]);
    let _ = alice.order();
    alice.refused(basic::Ack { delivery_tag: 99, multiple: false });
    assert_eq!(alice.order(), ["channel.close"]);
}

#[test]
fn a_client_that_never_reads_leaves_nothing_behind() {
    let mut options = Options { shards: 2, ..Options::default() };
    options.limits.unread_bytes_max = 1;
    options.socket_bytes_max = 10;
    let world = World::with(options);
    world.channel(0).declare("far");
    let alice = world.channel(1);
    alice.declare("ties alice to her shard");
    alice.consume("ties alice to her shard", "c");
    alice.client().stop_reading();
    alice.client().together(|| {
        for _ in 0..5 {
            alice.send(queue::Declare { queue: "far", passive: true, ..Default::default() });
        }
    });
    alice.client().reset();
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_transaction_keeps_its_order_behind_a_message_for_very_many_queues() {
    let world = World::new(1);
    let alice = world.channel(0);
    alice.exchange("all", "fanout");
    for number in 0..600 {
        let name = format!("q{number}");
        alice.declare(&name);
        alice.bind(&name, "all", "");
    }
    alice.tx_select();
    alice.publish("all", "", "first");
    alice.publish("", "q599", "second");
    alice.publish("all", "", "third");
    alice.tx_commit();
    alice.consume("q599", "c");
    assert_eq!(alice.bodies(), ["first", "second", "third"]);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn what_is_delivered_to_a_channel_that_waits_to_end_does_not_come_again_and_again() {
    let world = World::on_disk(2);
    let home = world.channel(0);
    home.declare("q");
    let alice = world.channel(1);
    alice.declare("ties alice to her shard");
    alice.consume("ties alice to her shard", "tie");
    alice.consume("q", "c");
    let other = alice.client().channel();
    // The answer, and with it the end, waits for the disk.
    world.hold_disk();
    alice.client().together(|| {
        alice.send(queue::Declare { queue: "new", durable: true, ..Default::default() });
    });
    other.send(channel::Open {});
    for body in ["one", "two"] {
        home.publish("", "q", body);
    }
    assert_eq!(world.queue("q").ready, 0, "they wait with the channel");
    world.release_disk();
    alice.client().expect_closed(ReplyCode::CHANNEL_ERROR);
    assert_eq!(world.queue("q").ready, 2);
    let back: Vec<String> = ["q", "q"].map(|queue| home.get(queue).expect("it").text()).into();
    assert_eq!(back, ["one", "two"]);
    assert_eq!(world.leaks(), [""; 0]);
}
