//! Traffic that stays on its shard costs nothing more because there are other shards.

use lepus_sim::World;

/// Batches of mail and wake-ups while `messages` go through a queue of each shard, confirmed and acknowledged.
fn mail_and_wakes(shards: u16, messages: usize) -> (u64, u64) {
    let world = World::new(shards);
    let pairs: Vec<_> = (0..shards)
        .map(|shard| {
            let (publisher, consumer) = (world.channel(shard), world.channel(shard));
            let queue = format!("q{shard}");
            consumer.declare(&queue);
            consumer.qos(10);
            consumer.consume(&queue, "c");
            publisher.confirm_select();
            publisher.publish("", &queue, "first");
            consumer.ack(consumer.delivery().tag);
            (publisher, consumer, queue)
        })
        .collect();
    world.settle();
    pairs.iter().for_each(|(publisher, ..)| drop(publisher.confirmed()));
    let before = world.mail_and_wakes();
    for index in 0..messages {
        for (publisher, consumer, queue) in &pairs {
            publisher.publish("", queue, index.to_string());
            let message = consumer.delivery();
            assert_eq!(message.text(), index.to_string());
            consumer.ack(message.tag);
        }
    }
    world.settle();
    for (publisher, ..) in &pairs {
        assert_eq!(publisher.confirmed().0.len(), messages);
    }
    let after = world.mail_and_wakes();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn local_traffic_sends_no_mail_and_wakes_no_other_shard() {
    assert_eq!(mail_and_wakes(1, 200), (0, 0));
    assert_eq!(mail_and_wakes(2, 200), (0, 0));
    assert_eq!(mail_and_wakes(8, 50), (0, 0));
}

#[test]
fn traffic_between_shards_is_counted() {
    let world = World::new(2);
    let (publisher, consumer) = (world.channel(0), world.channel(1));
    // It has a queue of its own and so stays where it is.
    publisher.declare_exclusive("");
    consumer.declare("q");
    consumer.consume_no_ack("q", "c");
    let before = world.mail_and_wakes();
    publisher.publish("", "q", "x");
    assert_eq!(consumer.delivery().text(), "x");
    let after = world.mail_and_wakes();
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
}
