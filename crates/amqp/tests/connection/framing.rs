use crate::driver::{Message, Seen, Server, frame, header, method};
use lepus_amqp::client::encode_publish;
use lepus_amqp::frame::{FrameKind, HEAD_BYTES};
use lepus_amqp::method::{basic, channel, connection, queue};
use lepus_amqp::properties::EMPTY;
use lepus_amqp::server::ServerOptions;
use lepus_amqp::{Properties, ReplyCode, Table};

fn server() -> Server {
    Server::running(&ServerOptions::default(), 4096)
}

/// A server that offers frames of any size.
fn unlimited() -> ServerOptions {
    ServerOptions { frame_max: 0, ..ServerOptions::default() }
}

fn publish_method(channel: u16) -> Vec<u8> {
    method(channel, basic::Publish::default())
}

fn message(channel: u16, exchange: &str, key: &str, properties: &[u8], body: &[u8]) -> Message {
    Message {
        channel,
        exchange: exchange.into(),
        routing_key: key.into(),
        mandatory: false,
        properties: properties.into(),
        body: body.into(),
    }
}

fn encoded(message: &Message, frame_max: u32) -> Vec<u8> {
    let mut out = Vec::new();
    encode_publish(
        &mut out,
        message.channel,
        frame_max,
        &message.exchange,
        &message.routing_key,
        message.mandatory,
        &message.properties,
        &message.body,
    );
    out
}

/// Messages and methods on three channels, and what they must cause.
fn traffic() -> (Vec<u8>, Vec<Seen>) {
    let properties = Properties {
        headers: Some(Table::new().with("k", "v")),
        delivery_mode: Some(2),
        ..Properties::default()
    }
    .to_bytes();
    let messages = [
        message(1, "", "queue", &EMPTY, b"0123456789abcdef"),
        message(2, "amq.topic", "a.b.c", &properties, b""),
        message(3, "amq.fanout", "", &properties, &[7; 10_000]),
        message(1, "e", "k", &EMPTY, &[1; 4088]),
    ];
    let mut bytes = method(1, channel::Open {});
    let mut seen = vec![Seen::Method(1, "channel.open".into())];
    for message in messages {
        bytes.extend(encoded(&message, 4096));
        seen.push(Seen::Publish(Box::new(message)));
        bytes.extend(frame(FrameKind::Heartbeat, 0, b""));
        bytes.extend(method(2, basic::Ack { delivery_tag: 1, multiple: false }));
        seen.push(Seen::Method(2, "basic.ack".into()));
    }
    (bytes, seen)
}

#[test]
fn messages_that_lie_whole_in_the_buffer_are_borrowed() {
    let mut server = server();
    let (bytes, expected) = traffic();
    assert_eq!(server.feed(&bytes), expected);
    // All but the one with several body frames.
    assert_eq!(server.borrowed, 3);
    assert!(server.rest.is_empty() && server.out.is_empty());
}

#[test]
fn bytes_may_be_split_anywhere() {
    let (bytes, expected) = traffic();
    for split in 0..=bytes.len() {
        let mut server = server();
        let mut seen = server.feed(&bytes[..split]);
        seen.extend(server.feed(&bytes[split..]));
        assert!(seen == expected, "split at {split}");
    }
}

#[test]
fn bytes_may_come_one_by_one_or_in_small_reads() {
    let (bytes, expected) = traffic();
    for size in [1, 2, 3, 7, 100, 4096] {
        let mut server = server();
        let mut seen = Vec::new();
        for piece in bytes.chunks(size) {
            seen.extend(server.feed(piece));
        }
        assert!(seen == expected, "pieces of {size}");
    }
}

#[test]
fn bytes_behind_the_arguments_of_a_method_mean_nothing() {
    let message = message(1, "exchange", "key", &EMPTY, &[7; 10]);
    let publish =
        basic::Publish { exchange: "exchange", routing_key: "key", ..basic::Publish::default() };
    let whole = method(1, publish);
    let mut payload = whole[HEAD_BYTES..whole.len() - 1].to_vec();
    payload.extend([9; 600]);
    let mut bytes = frame(FrameKind::Method, 1, &payload);
    bytes.extend(header(1, 60, 0, 10, &EMPTY));
    // In two pieces, so that it is put together.
    bytes.extend(frame(FrameKind::Body, 1, &[7; 4]));
    bytes.extend(frame(FrameKind::Body, 1, &[7; 6]));
    assert_eq!(server().feed(&bytes), [Seen::Publish(Box::new(message))]);
}

#[test]
fn what_is_not_taken_stays_small_whatever_the_body() {
    let mut server = Server::running(&unlimited(), 0);
    let message = message(1, "", "q", &EMPTY, &vec![3; 5_000_000]);
    let mut seen = Vec::new();
    for piece in encoded(&message, 0).chunks(65_536) {
        seen.extend(server.feed(piece));
        assert!(server.rest.len() <= 32);
    }
    assert_eq!(seen, [Seen::Publish(Box::new(message))]);
}

#[test]
fn a_body_may_come_in_frames_of_one_byte_and_in_empty_ones() {
    let mut server = server();
    let mut bytes = method(
        5,
        basic::Publish { routing_key: "q", mandatory: true, ..basic::Publish::default() },
    );
    bytes.extend(header(5, 60, 0, 300, &EMPTY));
    for value in 0..300u32 {
        bytes.extend(frame(FrameKind::Body, 5, b""));
        bytes.extend(frame(FrameKind::Body, 5, &[value as u8]));
    }
    let body: Vec<u8> = (0..300u32).map(|value| value as u8).collect();
    let mut expected = message(5, "", "q", &EMPTY, &body);
    expected.mandatory = true;
    assert_eq!(server.feed(&bytes), [Seen::Publish(Box::new(expected))]);
}

#[test]
fn contents_of_several_channels_may_be_interleaved() {
    let mut server = server();
    let mut bytes = Vec::new();
    for channel in 1..=20 {
        bytes.extend(publish_method(channel));
    }
    for channel in (1..=20).rev() {
        bytes.extend(header(channel, 60, 0, 2, &EMPTY));
    }
    for value in [10u8, 20] {
        for channel in 1..=20u16 {
            let piece = [value + channel as u8];
            bytes.extend(frame(FrameKind::Body, channel, &piece));
        }
    }
    // A whole message on another channel in between.
    bytes.extend(encoded(&message(21, "", "x", &EMPTY, b"z"), 4096));
    let seen = server.feed(&bytes);
    assert_eq!(seen.len(), 21);
    for (channel, seen) in (1..=20u16).zip(&seen) {
        let body = [10 + channel as u8, 20 + channel as u8];
        let expected = message(channel, "", "", &EMPTY, &body);
        assert_eq!(*seen, Seen::Publish(Box::new(expected)));
    }
}

#[test]
fn an_ack_counts_only_between_contents() {
    let ack = basic::Ack { delivery_tag: 1, multiple: true };
    let (on_one, on_two) = (method(1, ack), method(2, ack));
    let mut server = server();
    server.feed(&publish_method(1));
    let seen = server.feed(&on_two);
    assert_eq!(seen, [Seen::Method(2, "basic.ack".into())]);
    assert_eq!(server.fails(&on_one).code, ReplyCode::UNEXPECTED_FRAME);
    assert_eq!(error_of(&method(0, ack)), (ReplyCode::UNEXPECTED_FRAME, 60, 80));
    let mut wrong_end = on_one.clone();
    wrong_end[20] = 0;
    assert_eq!(error_of(&wrong_end).0, ReplyCode::FRAME_ERROR);
}

/// Feeds the bytes whole, in two parts and one by one: the error must be the same.
fn error_of(bytes: &[u8]) -> (ReplyCode, u16, u16) {
    let mut errors = Vec::new();
    errors.push(server().fails(bytes));
    let mut byte_by_byte = server();
    for byte in bytes {
        for seen in byte_by_byte.feed(&[*byte]) {
            match seen {
                Seen::Error(error) => {
                    byte_by_byte.machine.close(byte_by_byte.now, &error, &mut byte_by_byte.out);
                    errors.push(error);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(errors[0], errors[1]);
    let error = &errors[0];
    assert!(error.text.starts_with(error.code.name()), "{}", error.text);
    (error.code, error.class_id, error.method_id)
}

#[test]
fn unexpected_frames_are_505() {
    let code = ReplyCode::UNEXPECTED_FRAME;
    let joined = |parts: &[Vec<u8>]| parts.concat();
    let whole_header = header(1, 60, 0, 5, &EMPTY);

    assert_eq!(error_of(&method(0, queue::Purge::default())), (code, 50, 30));
    assert_eq!(error_of(&publish_method(0)), (code, 60, 40));
    assert_eq!(error_of(&frame(FrameKind::Heartbeat, 1, b"")), (code, 0, 0));
    assert_eq!(error_of(&whole_header), (code, 0, 0));
    assert_eq!(error_of(&header(0, 60, 0, 5, &EMPTY)), (code, 0, 0));
    assert_eq!(error_of(&frame(FrameKind::Body, 1, b"x")), (code, 0, 0));
    assert_eq!(error_of(&frame(FrameKind::Body, 0, b"x")), (code, 0, 0));
    let body_too_soon = joined(&[publish_method(1), frame(FrameKind::Body, 1, b"x")]);
    assert_eq!(error_of(&body_too_soon), (code, 60, 40));
    let method_too_soon = joined(&[publish_method(1), publish_method(1)]);
    assert_eq!(error_of(&method_too_soon), (code, 60, 40));
    let method_in_body = joined(&[
        publish_method(1),
        whole_header.clone(),
        frame(FrameKind::Body, 1, b"x"),
        method(1, channel::Flow { active: true }),
    ]);
    assert_eq!(error_of(&method_in_body), (code, 60, 40));
    let two_headers = joined(&[publish_method(1), whole_header.clone(), whole_header]);
    assert_eq!(error_of(&two_headers), (code, 60, 40));
    let other_class = joined(&[publish_method(1), header(1, 50, 0, 5, &EMPTY)]);
    assert_eq!(error_of(&other_class), (code, 60, 40));
    let body_after_empty =
        joined(&[publish_method(1), header(1, 60, 0, 0, &EMPTY), frame(FrameKind::Body, 1, b"")]);
    let mut server = server();
    let seen = server.feed(&body_after_empty);
    assert!(matches!(&seen[..], [Seen::Publish(_), Seen::Error(error)] if error.code == code));
}

#[test]
fn malformed_frames_are_501() {
    let code = ReplyCode::FRAME_ERROR;
    let joined = |parts: &[Vec<u8>]| parts.concat();
    for kind in [0, 4, 5, 6, 7, 9, 65, 255] {
        let bytes = [kind, 0, 1, 0, 0, 0, 0, 0xce];
        assert_eq!(server().fails(&bytes).code, code);
        assert_eq!(server().fails(&bytes[..1]).code, code);
    }
    let mut wrong_end = method(1, channel::Open {});
    *wrong_end.last_mut().unwrap() = 0;
    assert_eq!(error_of(&wrong_end), (code, 0, 0));
    let weight = joined(&[publish_method(1), header(1, 60, 1, 5, &EMPTY)]);
    assert_eq!(server().fails(&weight).code, code);
    let too_much_body = joined(&[
        publish_method(1),
        header(1, 60, 0, 2, &EMPTY),
        frame(FrameKind::Body, 1, b"abc"),
    ]);
    assert_eq!(server().fails(&too_much_body).code, code);
    let mut wrong_body_end = encoded(&message(1, "", "q", &EMPTY, b"abc"), 4096);
    *wrong_body_end.last_mut().unwrap() = 1;
    assert_eq!(error_of(&wrong_body_end), (code, 0, 0));
    let loud_heartbeat = frame(FrameKind::Heartbeat, 0, b"x");
    assert_eq!(server().fails(&loud_heartbeat).code, code);
}

#[test]
fn a_frame_may_exceed_the_limit_by_its_envelope_only() {
    let content = |size: usize| {
        let mut bytes = publish_method(1);
        bytes.extend(header(1, 60, 0, size as u64, &EMPTY));
        bytes.extend(frame(FrameKind::Body, 1, &vec![0; size]));
        bytes
    };
    let mut fits = server();
    assert!(matches!(&fits.feed(&content(4096))[..], [Seen::Publish(_)]));
    let mut exceeds = server();
    let error = exceeds.fails(&content(4097));
    assert_eq!(error.code, ReplyCode::FRAME_ERROR);
    let mut unlimited = Server::running(&unlimited(), 0);
    let seen = unlimited.feed(&content(1_000_000));
    assert!(matches!(&seen[..], [Seen::Publish(_)]));
}

#[test]
fn methods_and_headers_are_bounded_even_without_a_frame_limit() {
    let mut server = Server::running(&unlimited(), 0);
    let error = server.fails(b"\x01\0\x01\0\x20\0\0");
    assert_eq!(error.code, ReplyCode::FRAME_ERROR);
}

#[test]
fn methods_from_the_wrong_side_or_on_the_wrong_channel_are_refused() {
    let invalid = ReplyCode::COMMAND_INVALID;
    let deliver = method(1, basic::Deliver::default());
    assert_eq!(error_of(&deliver), (invalid, 60, 60));
    let close = method(1, connection::Close::default());
    assert_eq!(error_of(&close), (invalid, 10, 50));
    let tune = method(0, connection::Tune::default());
    assert_eq!(error_of(&tune), (invalid, 10, 30));
    let unknown = frame(FrameKind::Method, 1, &[0, 60, 0, 1]);
    assert_eq!(error_of(&unknown), (ReplyCode::NOT_IMPLEMENTED, 60, 1));
}

#[test]
fn a_channel_may_have_any_number_but_no_more_contents_begin_than_channels_may_be_open() {
    let options = ServerOptions { channel_max: 3, ..ServerOptions::default() };
    let mut server = Server::running(&options, 4096);
    let seen = server.feed(&method(65_535, channel::Open {}));
    assert_eq!(seen, [Seen::Method(65_535, "channel.open".into())]);
    let begin = |channel| {
        let mut bytes = publish_method(channel);
        bytes.extend(header(channel, 60, 0, 100_000, &EMPTY));
        bytes
    };
    for channel in [65_535, 4, 40_000] {
        assert_eq!(server.feed(&begin(channel)), []);
    }
    assert_eq!(server.fails(&begin(1)).code, ReplyCode::NOT_ALLOWED);
}

#[test]
fn malformed_properties_and_names_are_502_whichever_way_they_come() {
    let syntax = ReplyCode::SYNTAX_ERROR;
    for properties in [&b"\x20\0\0\0\0\x03\x01kz"[..], b"\0\x01", b"\x80\0", b"\0\0x"] {
        let bytes = encoded(&message(1, "", "q", properties, b"abc"), 4096);
        assert_eq!(server().fails(&bytes).code, syntax);
        let mut split = server();
        assert_eq!(split.feed(&bytes[..bytes.len() - 2]), []);
        let error = split.fails(&bytes[bytes.len() - 2..]);
        assert_eq!((error.code, error.class_id, error.method_id), (syntax, 60, 40));
        // Several body frames: the frames are looked at one by one.
        let mut pieces = publish_method(1);
        pieces.extend(header(1, 60, 0, 2, properties));
        pieces.extend(frame(FrameKind::Body, 1, b"a"));
        let mut server = server();
        let seen = server.feed(&pieces);
        assert!(matches!(&seen[..], [Seen::Error(error)] if error.code == syntax));
    }
    let mut bytes = encoded(&message(1, "", "q", &EMPTY, b"abc"), 4096);
    let key = bytes.iter().position(|byte| *byte == b'q').unwrap();
    bytes[key] = 0xff;
    assert_eq!(error_of(&bytes), (syntax, 60, 40));
}

#[test]
fn a_body_that_is_too_large_is_announced_and_skipped() {
    let options = ServerOptions { body_bytes_max: 5000, ..ServerOptions::default() };
    for piece_bytes in [1, 1000, 100_000] {
        let mut server = Server::running(&options, 4096);
        let mut bytes = encoded(&message(1, "", "q", &EMPTY, &[0; 5001]), 4096);
        let fits = message(1, "", "q", &EMPTY, &[0; 5000]);
        bytes.extend(encoded(&fits, 4096));
        let mut seen = Vec::new();
        for piece in bytes.chunks(piece_bytes) {
            seen.extend(server.feed(piece));
        }
        let expected = [Seen::BodyTooLarge(1, 5001), Seen::Publish(Box::new(fits))];
        assert_eq!(seen, expected);
    }
}

#[test]
fn an_announced_size_costs_no_memory_until_the_bytes_come() {
    let options = ServerOptions { body_bytes_max: u64::MAX, ..ServerOptions::default() };
    let mut server = Server::running(&options, 4096);
    for channel in 1..=100 {
        server.feed(&publish_method(channel));
        server.feed(&header(channel, 60, 0, u64::MAX, &EMPTY));
        let seen = server.feed(&frame(FrameKind::Body, channel, b"abc"));
        assert_eq!(seen, []);
    }
    let sent = 100 * (publish_method(1).len() + 14 + 3);
    let held = server.machine.held_bytes();
    assert!(held >= sent && held < sent + 100 * 200, "{held} bytes are held of {sent}");
}

#[test]
fn what_an_unfinished_content_takes_grows_with_what_came_of_it() {
    let mut server = Server::running(&ServerOptions::default(), 131_072);
    server.feed(&publish_method(1));
    server.feed(&header(1, 60, 0, 1_000_000, &EMPTY));
    let empty = server.machine.held_bytes();
    assert!(empty < 1000, "{empty}");
    for came in (1..).map(|count| count * 65_536).take_while(|came| *came < 1_000_000) {
        server.feed(&frame(FrameKind::Body, 1, &[0; 65_536]));
        let held = server.machine.held_bytes();
        assert!(held >= came && held <= (2 * came).min(1_000_000) + 1000, "{held} of {came}");
    }
    let seen = server.feed(&frame(FrameKind::Body, 1, &[0; 1_000_000 % 65_536]));
    assert!(matches!(&seen[..], [Seen::Publish(_)]));
    assert!(server.machine.held_bytes() < 10_000);
}

#[test]
fn the_list_of_unfinished_contents_is_counted_and_given_back() {
    let mut server = server();
    for channel in 1..=2000 {
        server.feed(&publish_method(channel));
    }
    let each = publish_method(1).len() - 8;
    assert!(server.machine.held_bytes() >= 2000 * (each + 32), "{}", server.machine.held_bytes());
    for channel in 1..=2000 {
        server.feed(&header(channel, 60, 0, 0, &EMPTY));
    }
    assert!(server.machine.held_bytes() < 10_000, "{}", server.machine.held_bytes());
}

#[test]
fn unfinished_contents_are_bounded_together() {
    let options = ServerOptions { assembly_bytes_max: 10_000, ..ServerOptions::default() };
    let mut server = Server::running(&options, 4096);
    let start = |channel: u16| {
        let mut bytes = publish_method(channel);
        bytes.extend(header(channel, 60, 0, 5000, &EMPTY));
        bytes.extend(frame(FrameKind::Body, channel, &[0; 4000]));
        bytes
    };
    assert_eq!(server.feed(&start(1)), []);
    assert_eq!(server.feed(&start(2)), []);
    // What is finished counts no more.
    let seen = server.feed(&frame(FrameKind::Body, 1, &[0; 1000]));
    assert!(matches!(&seen[..], [Seen::Publish(_)]));
    assert_eq!(server.feed(&start(3)), []);
    let error = server.fails(&start(4));
    assert_eq!(error.code, ReplyCode::RESOURCE_ERROR);
}

#[test]
fn contents_of_a_closing_channel_are_ignored_until_it_opens_again() {
    let kept = message(2, "", "other", &EMPTY, b"kept");
    let lost = message(1, "", "q", &EMPTY, &[9; 9000]);
    let again = message(1, "", "again", &EMPTY, b"again");
    let lost_bytes = encoded(&lost, 4096);
    for cut in [0, 10, 30, 60, 1000, lost_bytes.len()] {
        let mut server = server();
        let (before, after) = lost_bytes.split_at(cut);
        assert_eq!(server.feed(before).len(), usize::from(after.is_empty()));
        server.machine.close_channel_content(1);
        assert_eq!(server.feed(after), []);
        assert_eq!(server.feed(&lost_bytes), []);
        let small = encoded(&again, 4096);
        assert_eq!(server.feed(&small), []);
        let seen = server.feed(&encoded(&kept, 4096));
        assert_eq!(seen, [Seen::Publish(Box::new(kept.clone()))]);
        let seen = server.feed(&method(1, channel::CloseOk {}));
        assert_eq!(seen, [Seen::Method(1, "channel.close-ok".into())]);
        server.machine.open_channel_content(1);
        let seen = server.feed(&small);
        assert_eq!(seen, [Seen::Publish(Box::new(again.clone()))]);
    }
}
