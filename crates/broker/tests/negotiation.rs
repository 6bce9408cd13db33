//! What client and server agree on: frame size, number of channels.

use lepus_amqp::Method;
use lepus_amqp::client::ClientOptions;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::frame;
use lepus_amqp::method::basic;
use lepus_amqp::server::ServerOptions;
use lepus_sim::{Options, World};

use crate::wire;

#[test]
fn the_server_offers_2047_channels_frames_of_128_kib_and_a_minute() {
    let world = World::new(1);
    let client = world.dial(0);
    client.send_bytes(wire::HEADER);
    let response = lepus_amqp::sasl::response("PLAIN", "guest", "guest");
    client.send_bytes(&wire::start_ok("PLAIN", &response, &[]));
    let mut offer = None;
    wire::each_method(&client.take_bytes(), |_, method| {
        if let Method::ConnectionTune(tune) = method {
            offer = Some((tune.channel_max, tune.frame_max, tune.heartbeat));
        }
    });
    assert_eq!(offer, Some((2047, 131_072, 60)));
}

#[test]
fn a_frame_max_outside_of_the_limits_is_refused_in_words() {
    for (frame_max, allowed) in
        [(4095, false), (1, false), (131_073, false), (0, false), (4096, true), (131_072, true)]
    {
        let world = World::new(1);
        let client = wire::tuned(&world, 0);
        client.send_bytes(&wire::tune_ok(2047, frame_max, 0));
        client.send_bytes(&wire::open());
        let answer = client.take_bytes();
        if allowed {
            assert_eq!(wire::names(&answer), ["connection.open-ok"], "{frame_max}");
        } else {
            let (code, text, cause) = wire::close_in(&answer);
            assert_eq!((code, cause), (530, (10, 31)), "{frame_max}");
            assert!(text.starts_with("NOT_ALLOWED - ") && text.contains("frame_max"), "{text}");
        }
    }
}

#[test]
fn a_channel_max_above_the_offer_or_without_limit_is_refused() {
    for (channel_max, allowed) in [(2048, false), (0, false), (2047, true), (1, true)] {
        let world = World::new(1);
        let client = wire::tuned(&world, 0);
        client.send_bytes(&wire::tune_ok(channel_max, 131_072, 0));
        client.send_bytes(&wire::open());
        let answer = client.take_bytes();
        if allowed {
            assert_eq!(wire::names(&answer), ["connection.open-ok"], "{channel_max}");
        } else {
            assert_eq!(wire::close_in(&answer).0, 530, "{channel_max}");
        }
    }
}

#[test]
fn a_lower_channel_max_of_the_client_holds() {
    let world = World::new(1);
    let options = || ClientOptions { channel_max: 3, heartbeat: 0, ..Default::default() };
    let client = world.connect_with(0, options());
    let channels: Vec<_> = (1..=3).map(|number| client.channel_number(number)).collect();
    assert!(channels.iter().all(|channel| channel.is_open()));
    let refused = client.unopened(4).refused(lepus_amqp::method::channel::Open {});
    assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_ALLOWED, true));
}

#[test]
fn the_limit_is_for_the_number_of_open_channels_and_not_for_their_numbers() {
    let world = World::new(1);
    let options = || ClientOptions { channel_max: 3, heartbeat: 0, ..Default::default() };
    let client = world.connect_with(0, options());
    let far = client.channel_number(65_535);
    far.declare("q");
    far.publish("", "q", b"from afar");
    assert!(far.get("q").is_some_and(|message| message.body == b"from afar"));
    let (_near, other) = (client.channel_number(1), client.channel_number(40_000));
    other.close();
    let _again = client.channel_number(40_001);
    let refused = client.unopened(4).refused(lepus_amqp::method::channel::Open {});
    assert_eq!((refused.code, refused.hard), (ReplyCode::NOT_ALLOWED, true));
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn every_channel_number_can_be_used_again_after_its_close() {
    let world = World::new(1);
    let client = world.connect(0);
    for _ in 0..2 {
        let channels: Vec<_> = (1..=2047).map(|number| client.channel_number(number)).collect();
        for channel in &channels {
            channel.close();
        }
    }
    assert_eq!(world.leaks(), [""; 0]);
}

#[test]
fn the_negotiated_frame_max_holds_in_both_directions() {
    let world = World::new(1);
    let options = ClientOptions { frame_max: 70_000, heartbeat: 0, ..Default::default() };
    let client = world.connect_with(0, options);
    let alice = client.channel();
    alice.declare("q");
    let long: Vec<u8> = (0..200_000u32).map(|index| index as u8).collect();
    alice.publish("", "q", &long);
    assert!(alice.get("q").is_some_and(|message| message.body == long));

    let raw = wire::opened(&world, 0, 70_000);
    alice.publish("", "q", &long);
    raw.send_bytes(&wire::method(1, basic::Get { queue: "q", no_ack: true }));
    let bytes = raw.take_bytes();
    let mut rest = &bytes[..];
    let mut sizes = Vec::new();
    while let Ok(Some((found, used))) = frame::decode(rest, u32::MAX) {
        if found.kind == frame::FrameKind::Body {
            sizes.push(used);
        }
        rest = &rest[used..];
    }
    assert_eq!(sizes, [70_000, 70_000, 60_016 + 8]);
}

#[test]
fn a_frame_larger_than_agreed_is_a_frame_error() {
    let world = World::new(1);
    let raw = wire::opened(&world, 0, 4096);
    // The limit counts whole frames, but a peer that means the payload is let through.
    raw.send_bytes(&wire::publish(1, "nowhere"));
    raw.send_bytes(&wire::header(1, 60, 0, 4096));
    raw.send_bytes(&wire::body(1, &[0; 4096]));
    assert_eq!(raw.take_bytes(), b"");
    raw.send_bytes(&wire::publish(1, "nowhere"));
    raw.send_bytes(&wire::header(1, 60, 0, 4097));
    raw.send_bytes(&wire::body(1, &[0; 4097]));
    let (code, text, _) = wire::close_in(&raw.take_bytes());
    assert_eq!(code, 501, "{text}");
}

#[test]
fn without_a_frame_max_a_whole_body_comes_in_one_frame() {
    let server = ServerOptions { frame_max: 0, ..ServerOptions::default() };
    let world = World::with(Options { server, ..Options::default() });
    let raw = wire::opened(&world, 0, 0);
    let alice = world.channel(0);
    alice.declare("q");
    let long = vec![7; 1_000_000];
    raw.send_bytes(&wire::publish(1, "q"));
    raw.send_bytes(&wire::header(1, 60, 0, long.len() as u64));
    raw.send_bytes(&wire::body(1, &long));
    assert_eq!(world.queue("q").ready_bytes, 1_000_000);
    raw.send_bytes(&wire::method(1, basic::Get { queue: "q", no_ack: true }));
    let bytes = raw.take_bytes();
    assert!(bytes.len() > 1_000_000 && bytes.len() < 1_000_200);
}

#[test]
fn large_frames_are_not_taken_before_the_limits_are_agreed() {
    let world = World::new(1);
    let client = world.dial(0);
    client.send_bytes(wire::HEADER);
    let _ = client.take_bytes();
    let response = vec![b'x'; 20_000];
    client.send_bytes(&wire::start_ok("PLAIN", &response, &[]));
    assert_eq!(wire::close_in(&client.take_bytes()).0, 501);
}
