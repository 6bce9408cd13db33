//! Who has seen an answer sees its effect, on whatever shard.

use lepus_amqp::method::{exchange, queue};

use crate::stage::everywhere;

#[test]
fn what_was_declared_is_there_for_everyone_at_once() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        for round in 0..20 {
            let (one, two) = if round % 2 == 0 { (&near, &far) } else { (&far, &near) };
            let name = format!("thing {round}");
            one.declare(&name);
            one.exchange(&name, "direct");
            one.bind(&name, &name, "k");
            two.publish(&name, "k", "x");
            assert_eq!(two.passive(&name).messages, 1);
            assert_eq!(one.get_no_ack(&name).unwrap().text(), "x");
            two.delete_exchange(&name);
            two.delete(&name);
            assert_eq!(stage.world.find_queue("/", &name), None);
            one.exchange(&name, "fanout");
            one.declare(&name);
        }
    });
}

#[test]
fn a_message_is_there_once_it_was_confirmed() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        far.confirm_select();
        for round in 0..20u64 {
            far.publish("", "q", round.to_string());
            assert_eq!(far.confirmed().0, [round + 1]);
            assert_eq!(near.get_no_ack("q").unwrap().text(), round.to_string());
        }
    });
}

#[test]
fn publishes_and_methods_of_one_channel_keep_their_order() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        for _ in 0..10 {
            far.client().together(|| {
                far.publish("", "q", "1");
                far.publish("", "q", "2");
                far.send(queue::Purge { queue: "q", no_wait: false });
                far.publish("", "q", "3");
                far.send(queue::Declare { queue: "q", passive: true, ..Default::default() });
            });
            let purged = far.expect("queue.purge-ok");
            let counted = far.expect("queue.declare-ok");
            let lepus_amqp::Method::QueuePurgeOk(ok) = purged.method() else { panic!() };
            assert_eq!(ok.message_count, 2);
            let lepus_amqp::Method::QueueDeclareOk(ok) = counted.method() else { panic!() };
            assert_eq!(ok.message_count, 1);
            near.purge("q");
        }
    });
}

#[test]
fn a_long_pipeline_is_worked_off_in_order() {
    everywhere(|stage| {
        let far = stage.far();
        far.client().together(|| {
            for index in 0..100 {
                let queue = format!("q{index}");
                far.send(queue::Declare { queue: &queue, ..Default::default() });
                far.send(queue::Bind {
                    queue: &queue,
                    exchange: "amq.topic",
                    routing_key: &format!("key.{index}"),
                    ..Default::default()
                });
                far.publish("amq.topic", &format!("key.{index}"), index.to_string());
                far.send(lepus_amqp::method::basic::Get { queue: &queue, no_ack: true });
                far.send(queue::Delete { queue: &queue, ..Default::default() });
            }
            far.send(exchange::Declare { exchange: "x", r#type: "fanout", ..Default::default() });
        });
        for _ in 0..100 {
            far.expect("queue.declare-ok");
            far.expect("queue.bind-ok");
            far.expect("basic.get-ok");
            far.expect("queue.delete-ok");
        }
        far.expect("exchange.declare-ok");
    });
}

#[test]
fn parked_publishes_with_large_bodies_keep_their_order_too() {
    everywhere(|stage| {
        let (near, far) = stage.pair();
        near.declare("q");
        let client = far.client();
        let body = |round: u8| vec![round; 300_000];
        client.together(|| {
            for round in 0..20 {
                let name = format!("between {round}");
                far.send(queue::Declare { queue: &name, ..Default::default() });
                far.publish("", "q", body(round));
            }
        });
        for round in 0..20 {
            far.expect("queue.declare-ok");
            assert!(near.get_no_ack("q").unwrap().body == body(round), "{round}");
        }
    });
}
