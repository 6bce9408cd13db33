//! What clients say, encoded beforehand.

use super::{Drive, Shape};
use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::{basic, channel, confirm, connection, exchange, queue};
use lepus_amqp::{Method, Table, TableRef, sasl};

/// Offset of the delivery tag in the frame of basic.ack.
const ACK_TAG_OFFSET: usize = frame::HEAD_BYTES + 4;
/// An exchange that each virtual host has.
const TOPIC: &str = "amq.topic";
/// The exchange of the loop.
const EXCHANGE: &str = "loop";

/// The exchange of [`Shape::Filtered`].
const FILTERED: &str = "filtered";
/// Queues of [`Shape::Filtered`].
const FILTERED_QUEUES: usize = 100;
/// Filters of a symbol, of which each takes the prices of one.
const RANGES: usize = 10;
/// Prices of a range.
const PRICES: usize = 100;

/// Priorities of [`Shape::Priorities`] and [`Shape::PriorityQueue`].
const PRIORITIES: u8 = 5;

/// What a client says until its connection is open.
pub(super) fn opening() -> Vec<u8> {
    let mut out = b"AMQP\0\0\x09\x01".to_vec();
    let response = sasl::response("PLAIN", "guest", "guest");
    let start_ok = connection::StartOk {
        client_properties: TableRef::default(),
        mechanism: "PLAIN",
        response: &response,
        locale: "en_US",
    };
    let tune_ok = connection::TuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 };
    let open = connection::Open { virtual_host: "/" };
    for method in [start_ok.into(), tune_ok.into(), open.into()] {
        Method::encode_frame(&method, 0, &mut out);
    }
    out
}

/// What a client says at its end.
pub(super) fn close() -> Vec<u8> {
    let mut out = Vec::new();
    let close =
        connection::Close { reply_code: 200, reply_text: "Goodbye", class_id: 0, method_id: 0 };
    Method::from(close).encode_frame(0, &mut out);
    out
}

pub(super) fn opens(channel: u16) -> Vec<u8> {
    let mut out = Vec::new();
    Method::from(channel::Open {}).encode_frame(channel, &mut out);
    out
}

/// A client that stays on its shard: it has a queue that is its own alone.
pub(super) fn ties() -> Vec<u8> {
    let mut out = opens(1);
    let declare = queue::Declare { queue: "", exclusive: true, ..queue::Declare::default() };
    Method::from(declare).encode_frame(1, &mut out);
    out
}

/// A consumer of the queues of a pair, which it declares.
pub(super) fn consumes(drive: Drive, queue: &str) -> Vec<u8> {
    let mut out = opens(1);
    let qos = basic::Qos { prefetch_count: 300, ..basic::Qos::default() };
    Method::from(qos).encode_frame(1, &mut out);
    let arguments = match drive.shape {
        Shape::PriorityQueue => Table::new().with("x-max-priority", PRIORITIES),
        _ => Table::new(),
    };
    let encoded = arguments.to_bytes();
    for (number, queue) in queues(drive, queue).iter().enumerate() {
        let arguments = encoded.as_ref();
        let declare =
            queue::Declare { queue, auto_delete: true, arguments, ..queue::Declare::default() };
        let consume = basic::Consume {
            queue,
            consumer_tag: &format!("amq.ctag-{number:010}"),
            no_ack: !drive.settled,
            ..basic::Consume::default()
        };
        for method in [declare.into(), consume.into()] {
            Method::encode_frame(&method, 1, &mut out);
        }
    }
    match drive.shape {
        Shape::Topic(_) => bind_by_key(&queues(drive, queue), &mut out),
        Shape::Filtered(count) => bind_by_content(&queues(drive, queue), count, &mut out),
        _ => {}
    }
    if drive.shape == Shape::Expiry {
        let arguments = Table::new()
            .with("x-message-ttl", 0)
            .with("x-dead-letter-exchange", "")
            .with("x-dead-letter-routing-key", queue)
            .to_bytes();
        let (queue, arguments) = (source(queue), arguments.as_ref());
        let declare = queue::Declare { queue: &queue, arguments, ..queue::Declare::default() };
        Method::from(declare).encode_frame(1, &mut out);
    }
    out
}

/// Binds each queue to the topic exchange, by its name.
fn bind_by_key(queues: &[String], out: &mut Vec<u8>) {
    for queue in queues {
        let (exchange, routing_key) = (TOPIC, &**queue);
        let bind = queue::Bind { queue, exchange, routing_key, ..queue::Bind::default() };
        Method::from(bind).encode_frame(1, out);
    }
}

/// Declares an exchange and binds the queues to it in turn with so many filters, one of which matches each message.
fn bind_by_content(queues: &[String], count: usize, out: &mut Vec<u8>) {
    let exchange = FILTERED;
    let declare =
        exchange::Declare { exchange, r#type: "x-filter", ..exchange::Declare::default() };
    Method::from(declare).encode_frame(1, out);
    for number in 0..count {
        let (symbol, least) = (number / RANGES, number % RANGES * PRICES);
        let filter =
            format!("b.sym = 'S{symbol}' AND b.price >= {least} AND b.price < {}", least + PRICES);
        let arguments = Table::new().with("x-filter", filter).to_bytes();
        let (queue, arguments) = (&*queues[number % queues.len()], arguments.as_ref());
        let bind = queue::Bind { queue, exchange, arguments, ..queue::Bind::default() };
        Method::from(bind).encode_frame(1, out);
    }
}

/// What is in the message with this number, padded to so many bytes.
fn trade(number: usize, filters: usize, bytes: usize) -> Vec<u8> {
    let number = number * 7919 % filters;
    let (symbol, price) = (number / RANGES, number % RANGES * PRICES + number % PRICES);
    let mut body = format!(
        "{{\"id\":{number},\"sym\":\"S{symbol}\",\"price\":{price},\"qty\":100,\"text\":\""
    );
    while body.len() + 2 < bytes {
        body.push('x');
    }
    body.push_str("\"}");
    assert_eq!(body.len(), bytes, "a trade fits the body");
    body.into_bytes()
}

/// The queue in which messages of a pair expire.
fn source(queue: &str) -> String {
    format!("{queue}-source")
}

/// The queues of a pair.
fn queues(drive: Drive, queue: &str) -> Vec<String> {
    match drive.shape {
        Shape::Turns(count) | Shape::Topic(count) => numbered(queue, count),
        Shape::Filtered(_) => numbered(queue, FILTERED_QUEUES),
        _ => vec![queue.to_owned()],
    }
}

fn numbered(queue: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{queue}-{number}")).collect()
}

/// A publisher's channel.
pub(super) fn publishes_on(drive: Drive) -> Vec<u8> {
    let mut out = opens(1);
    if drive.settled {
        Method::from(confirm::Select { no_wait: false }).encode_frame(1, &mut out);
    }
    out
}

/// Publishes of a pair that come together.
pub(super) fn publishes(drive: Drive, queue: &str) -> Vec<u8> {
    let queues = match drive.shape {
        Shape::Expiry => vec![source(queue)],
        _ => queues(drive, queue),
    };
    let mut out = Vec::new();
    let exchange = match drive.shape {
        Shape::Topic(_) => TOPIC,
        Shape::Filtered(_) => FILTERED,
        _ => "",
    };
    for number in 0..drive.batch {
        publish(&mut out, 1, exchange, &queues[number % queues.len()], number, drive);
    }
    out
}

fn loop_name(connection: usize, channel: u16) -> String {
    format!("lep.gen-{connection:04}-{channel:04}")
}

/// Declares the exchange of the loop.
pub(super) fn loop_exchange() -> Vec<u8> {
    let mut out = opens(1);
    let declare =
        exchange::Declare { exchange: EXCHANGE, r#type: "direct", ..exchange::Declare::default() };
    Method::from(declare).encode_frame(1, &mut out);
    out
}

/// Declares the queue of a channel of the loop, and binds it.
pub(super) fn loop_queue(connection: usize, channel: u16) -> Vec<u8> {
    let mut out = Vec::new();
    let queue = &loop_name(connection, channel);
    let declare = queue::Declare { queue, ..queue::Declare::default() };
    let bind =
        queue::Bind { queue, exchange: EXCHANGE, routing_key: queue, ..queue::Bind::default() };
    for method in [declare.into(), bind.into()] {
        Method::encode_frame(&method, 1, &mut out);
    }
    out
}

/// A consumer on each channel of a connection of the loop.
pub(super) fn loop_consumers(drive: Drive, connection: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for channel in 1..=drive.channels {
        // Channel 1 is open already.
        if channel > 1 {
            out.extend(opens(channel));
        }
        let queue = &loop_name(connection, channel);
        let consume =
            basic::Consume { queue, consumer_tag: "0", no_ack: true, ..basic::Consume::default() };
        Method::from(consume).encode_frame(channel, &mut out);
    }
    out
}

/// A publish on each channel of a connection of the loop.
pub(super) fn loop_publishes(drive: Drive, connection: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for channel in 1..=drive.channels {
        publish(&mut out, channel, EXCHANGE, &loop_name(connection, channel), 0, drive);
    }
    out
}

/// The publish with this number.
fn publish(
    out: &mut Vec<u8>,
    channel: u16,
    exchange: &str,
    routing_key: &str,
    number: usize,
    drive: Drive,
) {
    let publish =
        basic::Publish { exchange, routing_key, mandatory: drive.settled, immediate: false };
    Method::from(publish).encode_frame(channel, out);
    let mut header = vec![0, 60, 0, 0];
    header.extend((drive.body_bytes as u64).to_be_bytes());
    let priority = (number % usize::from(PRIORITIES)) as u8;
    match drive.shape {
        Shape::Row
        | Shape::Turns(_)
        | Shape::Topic(_)
        | Shape::Filtered(_)
        | Shape::Expiry
        | Shape::Connections => header.extend([0x10, 0, 1]),
        Shape::Priorities | Shape::PriorityQueue => header.extend([0x18, 0, 1, priority]),
        Shape::Headers => {
            header.extend([0x30, 0]);
            let headers = Table::new().with("number", number as i64);
            headers.encode(&mut header);
            header.push(1);
        }
    }
    frame::write_frame(out, FrameKind::Header, channel, &header);
    let body = match drive.shape {
        Shape::Filtered(filters) => trade(number, filters, drive.body_bytes),
        _ => vec![b'x'; drive.body_bytes],
    };
    frame::write_frame(out, FrameKind::Body, channel, &body);
}

/// Acknowledgements of single deliveries.
pub(super) struct Acks {
    bytes: Vec<u8>,
    each: usize,
}

impl Acks {
    pub(super) fn new(count: usize) -> Acks {
        let mut one = Vec::new();
        let ack = basic::Ack { delivery_tag: 0, multiple: false };
        Method::from(ack).encode_frame(1, &mut one);
        Acks { each: one.len(), bytes: one.repeat(count) }
    }

    /// Those of the deliveries behind `tag`.
    pub(super) fn after(&mut self, tag: u64) -> &[u8] {
        for (index, ack) in self.bytes.chunks_exact_mut(self.each).enumerate() {
            let tag = tag + index as u64 + 1;
            ack[ACK_TAG_OFFSET..ACK_TAG_OFFSET + 8].copy_from_slice(&tag.to_be_bytes());
        }
        &self.bytes
    }
}
