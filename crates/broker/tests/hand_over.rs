//! Connections that move to the shard of the queue they deal with.

use lepus_amqp::method::{basic, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::Table;
use lepus_sim::World;

#[test]
fn a_connection_moves_to_the_home_of_the_first_queue_it_names() {
    let world = World::new(2);
    world.channel(0).declare("q");
    let consumer = world.channel(1);
    consumer.consume("q", "c");
    assert_eq!(consumer.client().shard(), Some(0));
    let declarer = world.channel(1);
    declarer.declare("q");
    assert_eq!(declarer.client().shard(), Some(0));
    let fetcher = world.channel(1);
    assert_eq!(fetcher.get("q"), None);
    assert_eq!(fetcher.client().shard(), Some(0));
    let publisher = world.channel(1);
    publisher.publish("", "q", "x");
    assert_eq!(publisher.client().shard(), Some(0));
    assert_eq!(consumer.bodies(), ["x"]);
    assert_eq!(world.counters().handed_over, 4);
    assert_eq!(world.counters().enqueued_remote, 0);
}

#[test]
fn a_publisher_moves_to_the_only_queue_that_its_exchange_reaches() {
    let world = World::new(2);
    let near = world.channel(0);
    near.declare("q");
    near.bind("q", "amq.topic", "a.*");
    let publisher = world.channel(1);
    publisher.confirm_select();
    publisher.client().together(|| {
        for index in 0..10 {
            publisher.publish("amq.topic", "a.b", index.to_string());
        }
    });
    assert_eq!(publisher.client().shard(), Some(0));
    assert_eq!(publisher.confirmed().0, (1..=10).collect::<Vec<u64>>());
    let texts: Vec<String> =
        core::iter::from_fn(|| near.get_no_ack("q")).map(|message| message.text()).collect();
    assert_eq!(texts, (0..10).map(|index| index.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_connection_that_is_tied_stays() {
    let world = World::new(2);
    let near = world.channel(0);
    near.declare("q");
    near.declare("other");
    let with_exclusive = world.channel(1);
    with_exclusive.declare_exclusive("");
    with_exclusive.consume("q", "c");
    assert_eq!(with_exclusive.client().shard(), Some(1));

    let own = world.channel(1);
    own.declare("mine");
    own.consume("mine", "c");
    own.consume("q", "c2");
    assert_eq!(own.client().shard(), Some(1));
    own.cancel("c");

    let holding = world.channel(1);
    holding.publish("", "mine", "x");
    let message = holding.get("mine").unwrap();
    holding.consume("q", "c");
    assert_eq!(holding.client().shard(), Some(1));
    holding.ack(message.tag);

    let transaction = world.channel(1);
    transaction.tx_select();
    transaction.publish("", "q", "held");
    transaction.tx_commit();
    assert_eq!(transaction.client().shard(), Some(1));
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_connection_keeps_what_it_agreed_on_and_what_it_sent_when_it_moves() {
    let world = World::new(2);
    world.channel(0).declare("q");
    let client = world.connect(1);
    let (one, two) = (client.channel_number(1), client.channel_number(7));
    one.qos(1);
    two.confirm_select();
    client.together(|| {
        one.send(basic::Consume { queue: "q", consumer_tag: "c", ..Default::default() });
        for index in 0..3 {
            two.publish("", "q", index.to_string());
        }
    });
    one.expect("basic.consume-ok");
    assert_eq!(client.shard(), Some(0));
    assert_eq!(two.confirmed().0, [1, 2, 3]);
    for index in 0..3 {
        let message = one.delivery();
        one.expect_none();
        assert_eq!(message.text(), index.to_string());
        one.ack(message.tag);
    }
    client.close();
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_moved_connection_serves_and_ends_like_any_other() {
    let world = World::new(3);
    world.channel(2).declare("q");
    let options = lepus_amqp::client::ClientOptions { heartbeat: 1, ..Default::default() };
    let client = world.connect_with(0, options);
    let channel = client.channel();
    channel.consume("q", "c");
    assert_eq!(client.shard(), Some(2));
    world.advance(10_000);
    assert!(client.is_open());
    world.channel(1).publish("", "q", "x");
    assert_eq!(channel.bodies(), ["x"]);
    client.reset();
    let queue = world.queue("q");
    assert_eq!((queue.ready, queue.unacked, queue.consumers), (1, 0, 0));
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_connection_moves_at_most_once_a_second() {
    let world = World::new(2);
    world.channel(0).declare("q0");
    let other = world.channel(1);
    other.declare("q1");
    let client = world.connect(1);
    let channel = client.channel();
    assert_eq!(channel.get("q0"), None);
    assert_eq!(client.shard(), Some(0));
    assert_eq!(channel.get("q1"), None);
    assert_eq!(client.shard(), Some(0), "too early");
    world.advance(2_000);
    assert_eq!(channel.get("q1"), None);
    assert!(client.is_open());
}

#[test]
fn order_holds_for_a_publisher_whatever_moves() {
    let world = World::new(3);
    let near = world.channel(2);
    near.declare("q");
    near.declare("copy");
    near.bind("q", "amq.fanout", "");
    near.bind("copy", "amq.fanout", "");
    let third = world.channel(1);
    third.declare("elsewhere");
    let publisher = world.channel(0);
    let mut expected = Vec::new();
    publisher.client().together(|| {
        for round in 0..20 {
            // To two queues at once, then a reason to move, then to one of them.
            publisher.publish("amq.fanout", "", format!("{round} by fanout"));
            let queue = if round % 2 == 0 { "elsewhere" } else { "q" };
            publisher.send(queue::Declare { queue, ..Default::default() });
            publisher.publish("", "q", format!("{round} by name"));
            expected.push(format!("{round} by fanout"));
            expected.push(format!("{round} by name"));
        }
    });
    assert!(publisher.is_open());
    let texts: Vec<String> =
        core::iter::from_fn(|| near.get_no_ack("q")).map(|message| message.text()).collect();
    assert_eq!(texts, expected);
}

#[test]
fn a_large_first_message_does_not_move_its_connection_halfway() {
    let world = World::new(2);
    let near = world.channel(0);
    near.declare("q");
    let publisher = world.channel(1);
    let body = vec![7; 2_000_000];
    let properties =
        Properties { headers: Some(Table::new().with("n", 1)), ..Properties::default() };
    publisher.publish_with("", "q", &properties, &body);
    publisher.publish("", "q", "after");
    assert!(near.get_no_ack("q").unwrap().body == body);
    assert_eq!(near.get_no_ack("q").unwrap().text(), "after");
    assert_eq!(world.leaks(), [""; 0]);
}
