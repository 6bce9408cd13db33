//! Opening and closing channels, and what is said on them out of turn.

use lepus_amqp::Method;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::method::{access, basic, channel, queue};
use lepus_sim::World;

use crate::stage::everywhere;
use crate::wire;

/// A method that the broker answers with 404 on its channel.
fn missing() -> queue::Declare<'static> {
    queue::Declare { queue: "missing", passive: true, ..Default::default() }
}

const CLOSE: channel::Close<'static> =
    channel::Close { reply_code: 200, reply_text: "", class_id: 0, method_id: 0 };

#[test]
fn a_second_open_of_a_channel_is_a_channel_error() {
    let world = World::new(1);
    let alice = world.channel(0);
    let refused = alice.refused(channel::Open {});
    assert_eq!((refused.code, refused.hard), (ReplyCode::CHANNEL_ERROR, true));
}

#[test]
fn a_method_on_a_channel_that_is_not_open_is_a_channel_error() {
    let world = World::new(1);
    for bytes in [
        wire::method(5, queue::Declare { queue: "q", ..Default::default() }),
        wire::method(5, basic::Ack { delivery_tag: 1, multiple: false }),
        [wire::publish(5, "q"), wire::header(5, 60, 0, 0)].concat(),
    ] {
        let raw = wire::opened(&world, 0, 131_072);
        raw.send_bytes(&bytes);
        let (code, text, _) = wire::close_in(&raw.take_bytes());
        assert_eq!(code, 504);
        assert!(text.contains("expected 'channel.open'"), "{text}");
    }
}

#[test]
fn a_refusal_names_code_resource_and_vhost_and_the_method_at_fault() {
    everywhere(|stage| {
        let alice = stage.far();
        let refused = alice.refused(missing());
        assert_eq!(refused.text, "NOT_FOUND - no queue 'missing' in vhost '/'");
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (50, 10)));
        assert!(!refused.hard);
        let refused = alice.client().channel().refused(basic::Get { queue: "", no_ack: true });
        assert_eq!((refused.code, refused.method), (ReplyCode::NOT_FOUND, (60, 70)));
    });
}

#[test]
fn other_channels_go_on_after_one_was_closed() {
    everywhere(|stage| {
        let client = stage.far_client();
        let (first, second) = (client.channel(), client.channel());
        first.refused(missing());
        second.declare("q");
        second.publish("", "q", "still here");
        assert_eq!(second.get_no_ack("q").unwrap().text(), "still here");
        let first = client.channel_number(first.number());
        first.declare("q");
    });
}

#[test]
fn frames_on_a_channel_that_is_being_closed_are_ignored() {
    let world = World::new(2);
    let raw = wire::opened(&world, 1, 131_072);
    let alice = world.channel(0);
    alice.declare("q");
    let talk = [
        wire::method(1, missing()),
        // The client has not heard of the close yet.
        wire::publish(1, "q"),
        wire::header(1, 60, 0, 5),
        wire::body(1, b"hello"),
        wire::method(1, queue::Declare { queue: "late", ..Default::default() }),
        wire::publish(1, "q"),
    ]
    .concat();
    raw.send_bytes(&talk);
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.close"]);
    raw.send_bytes(&[wire::header(1, 60, 0, 5), wire::body(1, b"hello")].concat());
    assert_eq!(raw.take_bytes(), b"");
    raw.send_bytes(&wire::method(1, channel::CloseOk {}));
    raw.send_bytes(&wire::method(1, channel::Open {}));
    raw.send_bytes(&wire::method(1, queue::Declare { queue: "q", ..Default::default() }));
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.open-ok", "queue.declare-ok"]);
    assert_eq!(world.queue("q").ready, 0);
    assert_eq!(world.find_queue("/", "late"), None);
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn a_client_may_break_off_in_the_middle_of_a_content_when_its_channel_is_closed() {
    let world = World::new(2);
    let raw = wire::opened(&world, 1, 131_072);
    raw.send_bytes(&[wire::method(1, missing()), wire::publish(1, "q")].concat());
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.close"]);
    raw.send_bytes(&wire::header(1, 60, 0, 5));
    raw.send_bytes(&wire::method(1, channel::CloseOk {}));
    raw.send_bytes(&wire::method(1, channel::Open {}));
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.open-ok"]);
}

#[test]
fn a_close_that_crosses_the_brokers_own_is_answered() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 131_072);
    raw.send_bytes(&[wire::method(1, missing()), wire::method(1, CLOSE)].concat());
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.close", "channel.close-ok"]);
    raw.send_bytes(&wire::method(1, channel::CloseOk {}));
    raw.send_bytes(&wire::method(1, channel::Open {}));
    assert_eq!(wire::names(&raw.take_bytes()), ["channel.open-ok"]);
}

#[test]
fn a_number_can_be_opened_again_right_after_close_ok() {
    everywhere(|stage| {
        let client = stage.far_client();
        stage.near().declare("q");
        for round in 0..50u32 {
            let channel = client.channel_number(7);
            channel.consume("q", "same tag");
            channel.publish("", "q", round.to_string());
            assert_eq!(channel.delivery().text(), round.to_string());
            channel.ack(1);
            channel.close();
        }
        assert_eq!(stage.world.queue("q").consumers, 0);
        assert_eq!(stage.world.queue("q").ready, 0);
    });
}

#[test]
fn thousands_of_channels_come_and_go_in_a_tight_loop() {
    let world = World::new(2);
    let raw = wire::opened(&world, 1, 131_072);
    let mut talk = Vec::new();
    for round in 0..5_000u16 {
        let number = 2 + round % 50;
        talk.extend(wire::method(number, channel::Open {}));
        talk.extend(wire::method(number, confirm_select()));
        talk.extend(wire::method(number, CLOSE));
    }
    raw.send_bytes(&talk);
    let mut counts = [0; 3];
    let mut turn = [0u8; 64];
    wire::each_method(&raw.take_bytes(), |number, method| {
        let index = match method {
            Method::ChannelOpenOk(_) => 0,
            Method::ConfirmSelectOk(_) => 1,
            Method::ChannelCloseOk(_) => 2,
            other => panic!("{other:?}"),
        };
        assert_eq!(turn[usize::from(number)], index as u8);
        turn[usize::from(number)] = (index as u8 + 1) % 3;
        counts[index] += 1;
    });
    assert_eq!(counts, [5_000; 3]);
    assert_eq!(world.leaks(), [""; 0]);
}

fn confirm_select() -> lepus_amqp::method::confirm::Select {
    lepus_amqp::method::confirm::Select { no_wait: false }
}

#[test]
fn pipelined_declares_are_answered_in_order() {
    everywhere(|stage| {
        let near = stage.near();
        for index in 0..99 {
            near.declare(&format!("q{index}"));
        }
        let raw = wire::opened(&stage.world, stage.world.queue("q0").home, 131_072);
        let mut talk = Vec::new();
        for index in 0..99 {
            let queue = format!("q{index}");
            let declare = queue::Declare { queue: &queue, passive: true, ..Default::default() };
            talk.extend(wire::method(1, declare));
        }
        talk.extend(wire::method(1, CLOSE));
        raw.send_bytes(&talk);
        let mut answers = Vec::new();
        wire::each_method(&raw.take_bytes(), |_, method| {
            answers.push(match method {
                Method::QueueDeclareOk(ok) => ok.queue.to_owned(),
                other => other.name().to_owned(),
            });
        });
        let mut expected: Vec<String> = (0..99).map(|index| format!("q{index}")).collect();
        expected.push("channel.close-ok".into());
        assert_eq!(answers, expected);
    });
}

#[test]
fn flow_can_be_switched_on_but_not_off() {
    let world = World::new(1);
    let alice = world.channel(0);
    let answer = alice.call(channel::Flow { active: true });
    assert!(matches!(answer.method(), Method::ChannelFlowOk(channel::FlowOk { active: true })));
    let refused = alice.refused(channel::Flow { active: false });
    assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_IMPLEMENTED, true));
}

#[test]
fn old_clients_get_a_ticket() {
    let world = World::new(1);
    let alice = world.channel(0);
    let answer = alice.call(access::Request { realm: "/data", ..Default::default() });
    let expected = access::RequestOk { ticket: 1 };
    assert!(matches!(answer.method(), Method::AccessRequestOk(ok) if ok == expected));
}

#[test]
fn soft_codes_close_the_channel_and_hard_codes_the_connection() {
    let world = World::new(1);
    let hard = world.channel(0);
    hard.declare("q");
    hard.consume("q", "tag");
    let consume = basic::Consume { queue: "q", consumer_tag: "tag", ..Default::default() };
    let refused = hard.refused(consume);
    assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_ALLOWED, true));
    assert!(!hard.client().is_open());
    let soft = world.channel(0);
    assert!(!soft.refused(missing()).hard);
    assert!(soft.client().is_open());
}

#[test]
fn a_connection_closes_while_questions_are_open() {
    everywhere(|stage| {
        stage.near().declare("q");
        let client = stage.far_client();
        let channels: Vec<_> = (0..20).map(|_| client.channel()).collect();
        client.together(|| {
            for (index, channel) in channels.iter().enumerate() {
                channel.send(basic::Consume { queue: "q", ..Default::default() });
                let queue = format!("own{index}");
                channel.send(queue::Declare {
                    queue: &queue,
                    exclusive: true,
                    ..Default::default()
                });
                channel.send(basic::Get { queue: "q", no_ack: false });
            }
            client.say_close();
        });
        assert!(client.closed().is_some());
        assert_eq!(stage.world.queue("q").consumers, 0);
        for index in 0..20 {
            assert_eq!(stage.world.find_queue("/", &format!("own{index}")), None);
        }
    });
}

#[test]
fn a_connection_that_breaks_while_questions_are_open_leaves_nothing() {
    everywhere(|stage| {
        stage.near().declare("q");
        let client = stage.far_client();
        let channel = client.channel();
        let queue = queue::Declare { queue: "own", exclusive: true, ..Default::default() };
        client.together(|| {
            channel.send(queue);
            channel.send(basic::Consume { queue: "q", ..Default::default() });
            channel.publish("", "q", "x");
        });
        client.reset();
        assert_eq!(stage.world.find_queue("/", "own"), None);
        assert_eq!(stage.world.queue("q").consumers, 0);
    });
}

#[test]
fn a_connection_that_fails_while_it_waits_for_its_exclusive_queue_does_not_leave_it() {
    everywhere(|stage| {
        let client = stage.far_client();
        let channel = client.channel();
        client.together(|| {
            let queue = queue::Declare { queue: "own", exclusive: true, ..Default::default() };
            channel.send(queue);
            client.send_bytes(&wire::frame(4, 0, b"no such frame"));
        });
        client.expect_closed(ReplyCode::FRAME_ERROR);
        assert_eq!(stage.world.find_queue("/", "own"), None);
    });
}
