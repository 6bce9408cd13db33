//! Turns the fuzzer's bytes into what clients do, over few names, so that deeds meet each other.

use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::{basic, channel, confirm, exchange, queue, tx};
use lepus_amqp::{Method, Properties, Table, Value};

/// The fuzzer's bytes, one decision each; behind their end every decision is 0.
#[derive(Debug)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// All decisions that `bytes` hold.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices(bytes)
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next decision.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    /// A truth value.
    pub fn bit(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Up to 31 bytes as they come.
    pub fn raw(&mut self) -> &'a [u8] {
        let length = usize::from(self.below(32)).min(self.0.len());
        let (head, rest) = self.0.split_at(length);
        self.0 = rest;
        head
    }

    /// One of the given.
    pub fn of<T: Copy>(&mut self, options: &[T]) -> T {
        options[usize::from(self.byte()) % options.len()]
    }
}

const QUEUES: [&str; 5] = ["a", "b", "c", "", "amq.rabbitmq.reply-to"];
const EXCHANGES: [&str; 7] = ["", "x", "y", "amq.direct", "amq.topic", "amq.fanout", "amq.headers"];
const KEYS: [&str; 6] = ["a", "b", "c", "a.b", "#", "*.b"];
const TAGS: [&str; 3] = ["t", "u", ""];
const KINDS: [&str; 6] =
    ["direct", "fanout", "topic", "headers", "x-delayed-message", "x-consistent-hash"];

/// Appends the frames of one deed on the channel.
pub fn write(choices: &mut Choices<'_>, number: u16, out: &mut Vec<u8>) {
    match choices.below(20) {
        0..=4 => return publish(choices, number, out),
        5 => return declare_queue(choices, number, out),
        6 => return declare_exchange(choices, number, out),
        7 => return bind(choices, number, out),
        8 | 9 => return consume(choices, number, out),
        _ => {}
    }
    let deed = choices.below(20);
    let delivery_tag = u64::from(choices.below(12));
    let multiple = choices.bit();
    let requeue = choices.bit();
    let queue = choices.of(&QUEUES);
    let no_wait = choices.below(8) == 0;
    let method: Method<'_> = match deed {
        0..=3 => basic::Ack { delivery_tag, multiple }.into(),
        4 => basic::Nack { delivery_tag, multiple, requeue }.into(),
        5 => basic::Reject { delivery_tag, requeue }.into(),
        6 => basic::Get { queue, no_ack: multiple }.into(),
        7 => basic::Cancel { consumer_tag: choices.of(&TAGS), no_wait }.into(),
        8 => basic::Qos {
            prefetch_size: 0,
            prefetch_count: u16::from(choices.below(4)),
            global: requeue,
        }
        .into(),
        9 => confirm::Select { no_wait }.into(),
        10 => tx::Select {}.into(),
        11 => tx::Commit {}.into(),
        12 => tx::Rollback {}.into(),
        13 => queue::Purge { queue, no_wait }.into(),
        14 => queue::Delete { queue, if_unused: multiple, if_empty: requeue, no_wait }.into(),
        15 => exchange::Delete { exchange: choices.of(&EXCHANGES), if_unused: multiple, no_wait }
            .into(),
        16 => basic::Recover { requeue: true }.into(),
        17 => channel::Close { reply_code: 200, reply_text: "", class_id: 0, method_id: 0 }.into(),
        18 => channel::CloseOk {}.into(),
        _ => channel::Open {}.into(),
    };
    method.encode_frame(number, out);
}

fn publish(choices: &mut Choices<'_>, number: u16, out: &mut Vec<u8>) {
    let publish = basic::Publish {
        exchange: choices.of(&EXCHANGES),
        routing_key: choices.of(&KEYS),
        mandatory: choices.bit(),
        immediate: false,
    };
    Method::from(publish).encode_frame(number, out);
    let body = match choices.below(8) {
        0 => vec![],
        7 => vec![b'z'; 70_000],
        length => vec![b'x'; usize::from(length) * 10],
    };
    let properties = match choices.below(6) {
        0 => raw_properties(choices),
        1 => Properties { delivery_mode: Some(2), ..Properties::default() }.to_bytes(),
        2 => {
            let expiration = Some(choices.of(&["0", "5", "100", "x"]).to_owned());
            Properties { expiration, ..Properties::default() }.to_bytes()
        }
        3 => {
            let reply_to = Some("amq.rabbitmq.reply-to".to_owned());
            Properties { reply_to, priority: Some(choices.byte()), ..Properties::default() }
                .to_bytes()
        }
        4 => {
            let keys = vec![Value::from(choices.of(&KEYS)), Value::from(choices.of(&KEYS))];
            let headers = Table::new()
                .with(choices.of(&["CC", "BCC", "x"]), keys)
                .with("x-delay", i32::from(choices.below(20)));
            Properties { headers: Some(headers), ..Properties::default() }.to_bytes()
        }
        _ => vec![0, 0],
    };
    let mut header = vec![0, 60, 0, 0];
    header.extend((body.len() as u64).to_be_bytes());
    header.extend(properties);
    frame::write_frame(out, FrameKind::Header, number, &header);
    for piece in body.chunks(if choices.bit() { 7_000 } else { 130_000 }) {
        frame::write_frame(out, FrameKind::Body, number, piece);
    }
}

fn raw_properties(choices: &mut Choices<'_>) -> Vec<u8> {
    choices.raw().to_vec()
}

fn declare_queue(choices: &mut Choices<'_>, number: u16, out: &mut Vec<u8>) {
    let mut arguments = Table::new();
    for _ in 0..choices.below(4) {
        let (name, value) = match choices.below(12) {
            0 => ("x-message-ttl", Value::from(i32::from(choices.below(30)))),
            1 => ("x-expires", Value::from(i32::from(choices.below(30)))),
            2 => ("x-max-length", Value::from(i32::from(choices.below(4)))),
            3 => ("x-max-length-bytes", Value::from(i32::from(choices.byte()))),
            4 => ("x-dead-letter-exchange", Value::from(choices.of(&EXCHANGES))),
            5 => ("x-dead-letter-routing-key", Value::from(choices.of(&KEYS))),
            6 => ("x-max-priority", Value::from(i32::from(choices.byte()))),
            7 => ("x-single-active-consumer", Value::from(choices.bit())),
            8 => ("x-delivery-limit", Value::from(i32::from(choices.below(4)))),
            9 => ("x-queue-type", Value::from(choices.of(&["classic", "quorum", "stream"]))),
            10 => {
                let overflow = choices.of(&["drop-head", "reject-publish", "reject-publish-dlx"]);
                ("x-overflow", Value::from(overflow))
            }
            _ => ("x-unknown", Value::from("?")),
        };
        arguments.insert(name, value);
    }
    let bytes = arguments.to_bytes();
    let declare = queue::Declare {
        queue: choices.of(&QUEUES),
        passive: choices.below(8) == 0,
        durable: choices.bit(),
        exclusive: choices.below(8) == 0,
        auto_delete: choices.below(4) == 0,
        no_wait: choices.below(8) == 0,
        arguments: bytes.as_ref(),
    };
    Method::from(declare).encode_frame(number, out);
}

fn declare_exchange(choices: &mut Choices<'_>, number: u16, out: &mut Vec<u8>) {
    let mut arguments = Table::new();
    if choices.bit() {
        arguments.insert("alternate-exchange", choices.of(&EXCHANGES));
    }
    if choices.bit() {
        arguments.insert("x-delayed-type", choices.of(&KINDS));
    }
    let bytes = arguments.to_bytes();
    let declare = exchange::Declare {
        exchange: choices.of(&EXCHANGES),
        r#type: choices.of(&KINDS),
        passive: choices.below(8) == 0,
        durable: choices.bit(),
        auto_delete: choices.below(4) == 0,
        internal: choices.below(8) == 0,
        no_wait: choices.below(8) == 0,
        arguments: bytes.as_ref(),
    };
    Method::from(declare).encode_frame(number, out);
}

fn bind(choices: &mut Choices<'_>, number: u16, out: &mut Vec<u8>) {
    let (source, routing_key) = (choices.of(&EXCHANGES), choices.of(&KEYS));
    let queue = choices.of(&QUEUES);
    let destination = choices.of(&EXCHANGES);
    let no_wait = choices.below(8) == 0;
    let empty = Table::new().to_bytes();
    let arguments = empty.as_ref();
    let method: Method<'_> = match choices.below(6) {
        0 => exchange::Bind { destination, source, routing_key, no_wait, arguments }.into(),
        1 => exchange::Unbind { destination, source, routing_key, no_wait, arguments }.into(),
        2 => queue::Unbind { queue, exchange: source, routing_key, arguments }.into(),
        _ => queue::Bind { queue, exchange: source, routing_key, no_wait, arguments }.into(),
    };
    method.encode_frame(number, out);
}

fn consume(choices: &mut Choices<'_>, number: u16, out: &mut Vec<u8>) {
    let mut arguments = Table::new();
    if choices.bit() {
        arguments.insert("x-priority", i32::from(choices.below(3)) - 1);
    }
    let bytes = arguments.to_bytes();
    let consume = basic::Consume {
        queue: choices.of(&QUEUES),
        consumer_tag: choices.of(&TAGS),
        no_local: false,
        no_ack: choices.bit(),
        exclusive: choices.below(8) == 0,
        no_wait: choices.below(8) == 0,
        arguments: bytes.as_ref(),
    };
    Method::from(consume).encode_frame(number, out);
}
