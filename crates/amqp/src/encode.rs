//! Frames that are sent for every message, written in one go.
//!
//! Names and keys are short strings: they are cut to 255 bytes. `frame_max` is the negotiated one,
//! 0 for no limit; bodies are split into frames of at most that size.

use crate::code::ReplyCode;
use crate::frame::{END, HEAD_BYTES, OVERHEAD_BYTES};
use crate::wire::short_text;
use alloc::vec::Vec;

/// Head of a header frame and the fixed fields: class, weight, body size.
const HEADER_BYTES: usize = HEAD_BYTES + 12;

#[inline]
fn short(bytes: &[u8]) -> &[u8] {
    match bytes.len() {
        0..=255 => bytes,
        _ => &bytes[..255],
    }
}

/// Largest payload of a body frame.
#[inline]
fn piece_bytes_max(frame_max: u32) -> usize {
    match frame_max as usize {
        0 => u32::MAX as usize,
        limit => limit.saturating_sub(OVERHEAD_BYTES).max(1),
    }
}

/// Bytes of the frames of a content: its method with `arguments_bytes`, header and body.
#[inline]
fn content_bytes(
    arguments_bytes: usize,
    properties: &[u8],
    body: &[u8],
    piece_bytes_max: usize,
) -> usize {
    // The common case needs no division.
    let pieces = if body.len() <= piece_bytes_max {
        usize::from(!body.is_empty())
    } else {
        body.len().div_ceil(piece_bytes_max)
    };
    OVERHEAD_BYTES
        + 4
        + arguments_bytes
        + HEADER_BYTES
        + properties.len()
        + 1
        + body.len()
        + pieces * OVERHEAD_BYTES
}

/// Head and numbers of a method frame of class basic.
#[inline]
fn method_head(channel: u16, method_id: u8, arguments_bytes: usize) -> [u8; HEAD_BYTES + 4] {
    let [c1, c0] = channel.to_be_bytes();
    let [s3, s2, s1, s0] = (arguments_bytes as u32 + 4).to_be_bytes();
    [1, c1, c0, s3, s2, s1, s0, 0, 60, 0, method_id]
}

/// Appends the end of the method frame, the header frame and the body frames.
#[inline]
fn write_content(
    out: &mut Vec<u8>,
    channel: u16,
    piece_bytes_max: usize,
    properties: &[u8],
    body: &[u8],
) {
    let [c1, c0] = channel.to_be_bytes();
    let [s3, s2, s1, s0] = (properties.len() as u32 + 12).to_be_bytes();
    let mut header = [0; HEADER_BYTES + 1];
    header[..12].copy_from_slice(&[END, 2, c1, c0, s3, s2, s1, s0, 0, 60, 0, 0]);
    header[12..].copy_from_slice(&(body.len() as u64).to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(properties);
    if body.is_empty() {
        out.push(END);
        return;
    }
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(piece_bytes_max));
        let [s3, s2, s1, s0] = (piece.len() as u32).to_be_bytes();
        out.extend_from_slice(&[END, 3, c1, c0, s3, s2, s1, s0]);
        out.extend_from_slice(piece);
        rest = after;
    }
    out.push(END);
}

/// Appends the end of the method frame and the header frame of a content whose body follows later.
fn write_header(out: &mut Vec<u8>, channel: u16, properties: &[u8], body_bytes: u64) {
    let [c1, c0] = channel.to_be_bytes();
    let [s3, s2, s1, s0] = (properties.len() as u32 + 12).to_be_bytes();
    out.extend_from_slice(&[END, 2, c1, c0, s3, s2, s1, s0, 0, 60, 0, 0]);
    out.extend_from_slice(&body_bytes.to_be_bytes());
    out.extend_from_slice(properties);
    out.push(END);
}

/// As [`encode_delivery`] without the body, whose frames are to follow.
#[allow(clippy::too_many_arguments)]
pub fn encode_delivery_head(
    out: &mut Vec<u8>,
    channel: u16,
    consumer_tag: &str,
    delivery_tag: u64,
    redelivered: bool,
    exchange: &[u8],
    routing_key: &[u8],
    properties: &[u8],
    body_bytes: u64,
) {
    let tag = short(short_text(consumer_tag).as_bytes());
    let (exchange, routing_key) = (short(exchange), short(routing_key));
    let arguments_bytes = 1 + tag.len() + 8 + 1 + 1 + exchange.len() + 1 + routing_key.len();
    out.extend_from_slice(&method_head(channel, 60, arguments_bytes));
    out.push(tag.len() as u8);
    out.extend_from_slice(tag);
    out.extend_from_slice(&delivery_tag.to_be_bytes());
    out.push(u8::from(redelivered));
    write_names(out, exchange, routing_key);
    write_header(out, channel, properties, body_bytes);
}

/// As [`encode_get_ok`] without the body, whose frames are to follow.
#[allow(clippy::too_many_arguments)]
pub fn encode_get_ok_head(
    out: &mut Vec<u8>,
    channel: u16,
    delivery_tag: u64,
    redelivered: bool,
    exchange: &[u8],
    routing_key: &[u8],
    message_count: u32,
    properties: &[u8],
    body_bytes: u64,
) {
    let (exchange, routing_key) = (short(exchange), short(routing_key));
    let arguments_bytes = 8 + 1 + 1 + exchange.len() + 1 + routing_key.len() + 4;
    out.extend_from_slice(&method_head(channel, 71, arguments_bytes));
    out.extend_from_slice(&delivery_tag.to_be_bytes());
    out.push(u8::from(redelivered));
    write_names(out, exchange, routing_key);
    out.extend_from_slice(&message_count.to_be_bytes());
    write_header(out, channel, properties, body_bytes);
}

/// Appends `basic.deliver` with its content.
#[allow(clippy::too_many_arguments)]
#[inline]
pub fn encode_delivery(
    out: &mut Vec<u8>,
    channel: u16,
    frame_max: u32,
    consumer_tag: &str,
    delivery_tag: u64,
    redelivered: bool,
    exchange: &[u8],
    routing_key: &[u8],
    properties: &[u8],
    body: &[u8],
) {
    let tag = short(short_text(consumer_tag).as_bytes());
    let (exchange, routing_key) = (short(exchange), short(routing_key));
    let arguments_bytes = 1 + tag.len() + 8 + 1 + 1 + exchange.len() + 1 + routing_key.len();
    let piece_max = piece_bytes_max(frame_max);
    out.reserve(content_bytes(arguments_bytes, properties, body, piece_max));
    let mut start = [0; HEAD_BYTES + 5];
    start[..11].copy_from_slice(&method_head(channel, 60, arguments_bytes));
    start[11] = tag.len() as u8;
    out.extend_from_slice(&start);
    out.extend_from_slice(tag);
    let mut middle = [0; 10];
    middle[..8].copy_from_slice(&delivery_tag.to_be_bytes());
    middle[8] = u8::from(redelivered);
    middle[9] = exchange.len() as u8;
    out.extend_from_slice(&middle);
    out.extend_from_slice(exchange);
    out.push(routing_key.len() as u8);
    out.extend_from_slice(routing_key);
    write_content(out, channel, piece_max, properties, body);
}

/// A message's names and content as they lie on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire<'a> {
    /// Exchange and routing key, each a short string.
    pub names: &'a [u8],
    /// The header's frame and at most one of a body.
    pub frames: &'a [u8],
    /// Of these, bytes of the header's frame.
    pub header_bytes: usize,
}

/// As [`encode_delivery`], of a message whose content fits one body frame: what is on the wire
/// already is copied as it is, but for the channel's number.
#[inline]
pub fn encode_delivery_of(
    out: &mut Vec<u8>,
    channel: u16,
    consumer_tag: &str,
    delivery_tag: u64,
    redelivered: bool,
    wire: &Wire<'_>,
) {
    let tag = short(short_text(consumer_tag).as_bytes());
    let arguments_bytes = 1 + tag.len() + 8 + 1 + wire.names.len();
    out.reserve(HEAD_BYTES + 4 + arguments_bytes + 1 + wire.frames.len());
    let mut start = [0; HEAD_BYTES + 5];
    start[..11].copy_from_slice(&method_head(channel, 60, arguments_bytes));
    start[11] = tag.len() as u8;
    out.extend_from_slice(&start);
    out.extend_from_slice(tag);
    let mut middle = [0; 9];
    middle[..8].copy_from_slice(&delivery_tag.to_be_bytes());
    middle[8] = u8::from(redelivered);
    out.extend_from_slice(&middle);
    out.extend_from_slice(wire.names);
    out.push(END);
    let content = out.len();
    out.extend_from_slice(wire.frames);
    let content = &mut out[content..];
    for place in [0, wire.header_bytes] {
        if let Some(number) = content.get_mut(place + 1..place + 3) {
            number.copy_from_slice(&channel.to_be_bytes());
        }
    }
}

/// As [`encode_delivery_of`] for several messages with the same names, one after the other; delivery tags begin at
/// `delivery_tag`. None of them is redelivered.
///
/// What stands in front of the content differs in the delivery tag alone: it is put together once.
pub fn encode_deliveries_of<'a>(
    out: &mut Vec<u8>,
    channel: u16,
    consumer_tag: &str,
    delivery_tag: u64,
    mut messages: impl Iterator<Item = Wire<'a>>,
) {
    let Some(first) = messages.next() else { return };
    let start = out.len();
    encode_delivery_of(out, channel, consumer_tag, delivery_tag, false, &first);
    let head_bytes = out.len() - start - first.frames.len();
    // Behind the tag come, in front of the names, the number and the bit.
    let number_at = head_bytes - 1 - first.names.len() - 9;
    let channel = channel.to_be_bytes();
    for (further, wire) in messages.enumerate() {
        debug_assert_eq!(wire.names, first.names);
        let at = out.len();
        out.reserve(head_bytes + wire.frames.len());
        out.extend_from_within(start..start + head_bytes);
        out.extend_from_slice(wire.frames);
        let (head, content) = out[at..].split_at_mut(head_bytes);
        let number = delivery_tag + 1 + further as u64;
        head[number_at..number_at + 8].copy_from_slice(&number.to_be_bytes());
        for place in [0, wire.header_bytes] {
            if let Some(number) = content.get_mut(place + 1..place + 3) {
                number.copy_from_slice(&channel);
            }
        }
    }
}

/// Appends `basic.get-ok` with its content; `message_count` is what stays in the queue.
#[allow(clippy::too_many_arguments)]
pub fn encode_get_ok(
    out: &mut Vec<u8>,
    channel: u16,
    frame_max: u32,
    delivery_tag: u64,
    redelivered: bool,
    exchange: &[u8],
    routing_key: &[u8],
    message_count: u32,
    properties: &[u8],
    body: &[u8],
) {
    let (exchange, routing_key) = (short(exchange), short(routing_key));
    let arguments_bytes = 8 + 1 + 1 + exchange.len() + 1 + routing_key.len() + 4;
    let piece_max = piece_bytes_max(frame_max);
    out.reserve(content_bytes(arguments_bytes, properties, body, piece_max));
    out.extend_from_slice(&method_head(channel, 71, arguments_bytes));
    out.extend_from_slice(&delivery_tag.to_be_bytes());
    out.push(u8::from(redelivered));
    write_names(out, exchange, routing_key);
    out.extend_from_slice(&message_count.to_be_bytes());
    write_content(out, channel, piece_max, properties, body);
}

/// Appends `basic.return` with its content; `text` stands without a code's name, mostly `NO_ROUTE`.
#[allow(clippy::too_many_arguments)]
pub fn encode_return(
    out: &mut Vec<u8>,
    channel: u16,
    frame_max: u32,
    code: ReplyCode,
    text: &str,
    exchange: &[u8],
    routing_key: &[u8],
    properties: &[u8],
    body: &[u8],
) {
    let text = short(short_text(text).as_bytes());
    let (exchange, routing_key) = (short(exchange), short(routing_key));
    let arguments_bytes = 2 + 1 + text.len() + 1 + exchange.len() + 1 + routing_key.len();
    let piece_max = piece_bytes_max(frame_max);
    out.reserve(content_bytes(arguments_bytes, properties, body, piece_max));
    out.extend_from_slice(&method_head(channel, 50, arguments_bytes));
    out.extend_from_slice(&code.0.to_be_bytes());
    out.push(text.len() as u8);
    out.extend_from_slice(text);
    write_names(out, exchange, routing_key);
    write_content(out, channel, piece_max, properties, body);
}

/// Appends `basic.publish` with its content; `properties` in wire form, see
/// [`crate::properties::EMPTY`].
#[allow(clippy::too_many_arguments)]
#[inline]
pub fn encode_publish(
    out: &mut Vec<u8>,
    channel: u16,
    frame_max: u32,
    exchange: &str,
    routing_key: &str,
    mandatory: bool,
    properties: &[u8],
    body: &[u8],
) {
    let exchange = short(exchange.as_bytes());
    let routing_key = short(routing_key.as_bytes());
    let arguments_bytes = 2 + 1 + exchange.len() + 1 + routing_key.len() + 1;
    let piece_max = piece_bytes_max(frame_max);
    out.reserve(content_bytes(arguments_bytes, properties, body, piece_max));
    let mut start = [0; HEAD_BYTES + 7];
    start[..11].copy_from_slice(&method_head(channel, 40, arguments_bytes));
    start[13] = exchange.len() as u8;
    out.extend_from_slice(&start);
    out.extend_from_slice(exchange);
    out.push(routing_key.len() as u8);
    out.extend_from_slice(routing_key);
    out.push(u8::from(mandatory));
    write_content(out, channel, piece_max, properties, body);
}

fn write_names(out: &mut Vec<u8>, exchange: &[u8], routing_key: &[u8]) {
    out.push(exchange.len() as u8);
    out.extend_from_slice(exchange);
    out.push(routing_key.len() as u8);
    out.extend_from_slice(routing_key);
}

/// Appends a method of a delivery tag and an octet of bits.
#[inline]
fn settle(out: &mut Vec<u8>, channel: u16, method_id: u8, delivery_tag: u64, bits: u8) {
    let mut frame = [0; 21];
    frame[..11].copy_from_slice(&method_head(channel, method_id, 9));
    frame[11..19].copy_from_slice(&delivery_tag.to_be_bytes());
    frame[19] = bits;
    frame[20] = END;
    out.extend_from_slice(&frame);
}

/// Appends `basic.ack`.
#[inline]
pub fn encode_ack(out: &mut Vec<u8>, channel: u16, delivery_tag: u64, multiple: bool) {
    settle(out, channel, 80, delivery_tag, u8::from(multiple));
}

/// Appends `basic.nack`; `requeue` means nothing when the broker sends it.
#[inline]
pub fn encode_nack(
    out: &mut Vec<u8>,
    channel: u16,
    delivery_tag: u64,
    multiple: bool,
    requeue: bool,
) {
    let bits = u8::from(multiple) | u8::from(requeue) << 1;
    settle(out, channel, 120, delivery_tag, bits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameKind, write_frame};
    use crate::method::{Method, basic};
    use alloc::vec;

    const PROPERTIES: &[u8] = b"\x10\0\x02";

    /// The content as the general encoders write it.
    fn reference(method: Method<'_>, frame_max: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        method.encode_frame(9, &mut out);
        let mut header = Vec::from(*b"\0\x3c\0\0");
        header.extend_from_slice(&(body.len() as u64).to_be_bytes());
        header.extend_from_slice(PROPERTIES);
        write_frame(&mut out, FrameKind::Header, 9, &header);
        write_body(&mut out, frame_max, body);
        out
    }

    fn write_body(out: &mut Vec<u8>, frame_max: u32, body: &[u8]) {
        let piece_max = match frame_max {
            0 => usize::MAX,
            limit => limit as usize - 8,
        };
        for piece in body.chunks(piece_max) {
            write_frame(out, FrameKind::Body, 9, piece);
        }
    }

    #[test]
    fn deliveries_of_one_consumer_are_those_that_are_encoded_one_by_one() {
        let names = b"\x02ex\x03key";
        let frames: Vec<(Vec<u8>, usize)> = [0, 1, 300]
            .iter()
            .map(|&size| {
                let publish = basic::Publish {
                    exchange: "ex",
                    routing_key: "key",
                    mandatory: false,
                    immediate: false,
                };
                let body = vec![0x5a; size];
                let content = reference(publish.into(), 4096, &body);
                let method_bytes = 8 + u32::from_be_bytes([0, 0, 0, content[6]]) as usize;
                (content[method_bytes..].to_vec(), HEADER_BYTES + PROPERTIES.len() + 1)
            })
            .collect();
        let wire = |at: usize| {
            let (frames, header_bytes) = &frames[at];
            Wire { names, frames, header_bytes: *header_bytes }
        };
        for tag in ["", "ctag", &"t".repeat(255)] {
            for count in 0..=frames.len() {
                let (mut one_by_one, mut together) = (b"abc".to_vec(), b"abc".to_vec());
                for at in 0..count {
                    let number = 0x00ff_ffff + at as u64;
                    encode_delivery_of(&mut one_by_one, 9, tag, number, false, &wire(at));
                }
                encode_deliveries_of(&mut together, 9, tag, 0x00ff_ffff, (0..count).map(wire));
                assert!(one_by_one == together, "{count} with a tag of {} bytes", tag.len());
            }
        }
    }

    #[test]
    fn contents_are_what_the_general_encoders_write_in_one_reservation() {
        for frame_max in [0, 4096, 131_072, u32::MAX] {
            for size in [0, 1, 16, 4087, 4088, 4089, 8176, 8177, 200_000] {
                let body = vec![0x5a; size];
                let text = "NO_ROUTE";
                let deliver = basic::Deliver {
                    consumer_tag: "ctag",
                    delivery_tag: 0x0102_0304_0506_0708,
                    redelivered: true,
                    exchange: "ex",
                    routing_key: "key",
                };
                let get_ok = basic::GetOk {
                    delivery_tag: 7,
                    redelivered: true,
                    exchange: "ex",
                    routing_key: "key",
                    message_count: 513,
                };
                let returned = basic::Return {
                    reply_code: 312,
                    reply_text: text,
                    exchange: "ex",
                    routing_key: "key",
                };
                let publish = basic::Publish {
                    exchange: "ex",
                    routing_key: "key",
                    mandatory: true,
                    immediate: false,
                };
                let check = |method: Method<'_>, encode: &dyn Fn(&mut Vec<u8>)| {
                    let expected = reference(method, frame_max, &body);
                    // Bytes that stand in the buffer already stay; nothing grows it twice.
                    let mut out = Vec::with_capacity(expected.len() + 3);
                    out.extend_from_slice(b"abc");
                    let capacity = out.capacity();
                    encode(&mut out);
                    assert_eq!(&out[..3], b"abc");
                    assert!(out[3..] == expected, "{} {frame_max} {size}", method.name());
                    assert_eq!(out.capacity(), capacity);
                };
                let (e, k, p) = (&b"ex"[..], &b"key"[..], PROPERTIES);
                check(deliver.into(), &|out| {
                    let tag = deliver.delivery_tag;
                    encode_delivery(out, 9, frame_max, "ctag", tag, true, e, k, p, &body);
                });
                if frame_max == 0 || size + 8 <= frame_max as usize {
                    let content = reference(deliver.into(), frame_max, &body);
                    let method_bytes = 8 + u32::from_be_bytes([0, 0, 0, content[6]]) as usize;
                    let mut frames = content[method_bytes..].to_vec();
                    let header_bytes = HEADER_BYTES + p.len() + 1;
                    for place in [0, header_bytes] {
                        if place < frames.len() {
                            frames[place + 1..place + 3].copy_from_slice(&[7, 7]);
                        }
                    }
                    let wire = Wire { names: b"\x02ex\x03key", frames: &frames, header_bytes };
                    check(deliver.into(), &|out| {
                        encode_delivery_of(out, 9, "ctag", deliver.delivery_tag, true, &wire);
                    });
                }
                let bytes = size as u64;
                check(deliver.into(), &|out| {
                    let tag = deliver.delivery_tag;
                    encode_delivery_head(out, 9, "ctag", tag, true, e, k, p, bytes);
                    write_body(out, frame_max, &body);
                });
                check(get_ok.into(), &|out| {
                    encode_get_ok_head(out, 9, 7, true, e, k, 513, p, bytes);
                    write_body(out, frame_max, &body);
                });
                check(get_ok.into(), &|out| {
                    encode_get_ok(out, 9, frame_max, 7, true, e, k, 513, p, &body);
                });
                check(returned.into(), &|out| {
                    let code = ReplyCode::NO_ROUTE;
                    encode_return(out, 9, frame_max, code, text, e, k, p, &body);
                });
                check(publish.into(), &|out| {
                    encode_publish(out, 9, frame_max, "ex", "key", true, p, &body);
                });
            }
        }
    }

    #[test]
    fn settlements_are_what_the_general_encoder_writes() {
        for bits in 0..4u8 {
            let (multiple, requeue) = (bits & 1 != 0, bits & 2 != 0);
            let (mut expected, mut out) = (Vec::new(), Vec::new());
            let delivery_tag = 0x1122_3344_5566_7788;
            let ack = basic::Ack { delivery_tag, multiple };
            let nack = basic::Nack { delivery_tag, multiple, requeue };
            Method::from(ack).encode_frame(5, &mut expected);
            Method::from(nack).encode_frame(5, &mut expected);
            encode_ack(&mut out, 5, delivery_tag, multiple);
            encode_nack(&mut out, 5, delivery_tag, multiple, requeue);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_golden_delivery() {
        let mut out = Vec::new();
        encode_delivery(&mut out, 1, 4096, "c", 2, false, b"", b"q", b"\0\0", b"hi");
        let mut expected =
            Vec::from(*b"\x01\0\x01\0\0\0\x12\0\x3c\0\x3c\x01c\0\0\0\0\0\0\0\x02\0\0\x01q\xce");
        expected.extend_from_slice(b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\x02\0\0\xce");
        expected.extend_from_slice(b"\x03\0\x01\0\0\0\x02hi\xce");
        assert_eq!(out, expected);
    }
}
