//! The pure core driven without sockets: what one message costs the broker itself.
//!
//! The input is encoded beforehand; what the broker sends is looked at no further than its length.

use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::{basic, channel, confirm, connection, queue};
use lepus_amqp::{Method, TableRef, sasl};
use lepus_base::{ConnectionId, Now, ShardId};
use lepus_broker::broker::Broker;
use lepus_broker::connection::PeerInfo;
use lepus_broker::directory::Directory;
use lepus_broker::outbox::{ConnectionSlot, Outbox};
use lepus_broker::settings::{Limits, Settings};

/// Bytes that one read brings.
const READ_BYTES: usize = 64 * 1024;
/// Offset of the delivery tag in the frame of basic.ack.
const ACK_TAG_OFFSET: usize = frame::HEAD_BYTES + 4;

/// A load that can be driven without sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drive {
    /// The name on the command line and in the file of ceilings.
    pub name: &'static str,
    /// Bytes of a body.
    body_bytes: usize,
    /// Publishes that come together.
    batch: usize,
    /// Whether publishes are confirmed and deliveries acknowledged, each by itself.
    settled: bool,
}

/// All loads.
pub const DRIVES: [Drive; 2] = [
    Drive { name: "stream-16", body_bytes: 16, batch: READ_BYTES / 80, settled: false },
    Drive { name: "e4-single", body_bytes: 12, batch: 100, settled: true },
];

/// A broker with a publisher and a consumer of one queue.
struct Bench {
    broker: Broker,
    out: Outbox,
    now: Now,
    publisher: ConnectionSlot,
    consumer: ConnectionSlot,
}

/// Sends `messages` (rounded up to whole batches) through a broker and says how many they were.
///
/// # Errors
/// When the broker does not deliver each of them.
pub fn run(drive: Drive, messages: u64) -> Result<u64, String> {
    let mut bench = Bench::start(drive);
    let publishes = publishes(drive);
    let mut acks = acks(drive.batch);
    let ack_bytes = acks.len() / drive.batch;
    let mut sent = 0;
    while sent < messages {
        bench.receive(bench.publisher, &publishes);
        bench.end_cycle();
        if drive.settled {
            for (index, ack) in acks.chunks_exact_mut(ack_bytes).enumerate() {
                let tag = sent + index as u64 + 1;
                ack[ACK_TAG_OFFSET..ACK_TAG_OFFSET + 8].copy_from_slice(&tag.to_be_bytes());
            }
            bench.receive(bench.consumer, &acks);
            bench.end_cycle();
        }
        sent += drive.batch as u64;
    }
    let counters = &bench.broker.edge.counters;
    let delivered = counters.delivered_auto_ack + counters.delivered_manual_ack;
    if delivered != sent {
        return Err(format!("{sent} messages were sent and {delivered} delivered"));
    }
    Ok(sent)
}

impl Bench {
    fn start(drive: Drive) -> Bench {
        let settings = Settings {
            shard: ShardId(0),
            shards: 1,
            nodes: Vec::new(),
            hash_seed: 1,
            secret: [7; 32],
            server: lepus_amqp::server::ServerOptions::default(),
            limits: Limits::default(),
            store: None,
        };
        let mut broker = Broker::new(settings);
        let mut out = Outbox::new(1);
        let now = Now::from_millis(1);
        let preset = Directory::preset("guest", b"guest", [1, 2, 3, 4], "/");
        broker.preset(now, &preset, &mut out);
        let mut slots = [1, 2].map(|id| {
            let peer = PeerInfo { loopback: true, ..PeerInfo::default() };
            broker.accept(now, ConnectionId(id), peer, &mut out)
        });
        slots.sort();
        let [publisher, consumer] = slots;
        let mut bench = Bench { broker, out, now, publisher, consumer };
        bench.say(consumer, consumer_words(drive));
        bench.say(publisher, publisher_words(drive));
        bench
    }

    fn say(&mut self, slot: ConnectionSlot, words: Vec<u8>) {
        // The handshake's frames come one by one, as an answer is due after each.
        self.receive(slot, &words);
        self.end_cycle();
    }

    fn receive(&mut self, slot: ConnectionSlot, bytes: &[u8]) {
        let consumed = self.broker.received(self.now, slot, bytes, &mut self.out);
        assert_eq!(consumed, bytes.len(), "the broker takes all it is offered");
    }

    /// What the driver does at the end of a cycle, with sockets that take everything, until there is
    /// nothing more to do.
    fn end_cycle(&mut self) {
        loop {
            self.broker.work(self.now, &mut self.out);
            self.broker.flush(self.now, &mut self.out);
            while let Some(slot) = self.out.dirty.pop() {
                let bytes = self.broker.writable_bytes(slot).len();
                self.broker.sent(self.now, slot, bytes, &mut self.out);
            }
            assert!(self.out.close.is_empty(), "no connection fails");
            if !self.broker.has_work(&self.out) {
                return;
            }
        }
    }
}

/// What a client says until its channel 1 is open.
fn opening() -> Vec<u8> {
    let mut out = b"AMQP\0\0\x09\x01".to_vec();
    let response = sasl::response("PLAIN", "guest", "guest");
    let start_ok = connection::StartOk {
        client_properties: TableRef::default(),
        mechanism: "PLAIN",
        response: &response,
        locale: "en_US",
    };
    let tune_ok = connection::TuneOk { channel_max: 100, frame_max: 131_072, heartbeat: 0 };
    let open = connection::Open { virtual_host: "/" };
    for method in [start_ok.into(), tune_ok.into(), open.into()] {
        Method::encode_frame(&method, 0, &mut out);
    }
    Method::from(channel::Open {}).encode_frame(1, &mut out);
    out
}

fn consumer_words(drive: Drive) -> Vec<u8> {
    let mut out = opening();
    let declare = queue::Declare { queue: "bench", auto_delete: true, ..queue::Declare::default() };
    let qos = basic::Qos { prefetch_count: 300, ..basic::Qos::default() };
    let consume = basic::Consume {
        queue: "bench",
        consumer_tag: "amq.ctag-0123456789",
        no_ack: !drive.settled,
        ..basic::Consume::default()
    };
    for method in [declare.into(), qos.into(), consume.into()] {
        Method::encode_frame(&method, 1, &mut out);
    }
    out
}

fn publisher_words(drive: Drive) -> Vec<u8> {
    let mut out = opening();
    if drive.settled {
        Method::from(confirm::Select { no_wait: false }).encode_frame(1, &mut out);
    }
    out
}

fn publishes(drive: Drive) -> Vec<u8> {
    let mut one = Vec::new();
    let publish = basic::Publish {
        exchange: "",
        routing_key: "bench",
        mandatory: drive.settled,
        immediate: false,
    };
    Method::from(publish).encode_frame(1, &mut one);
    let mut header = vec![0, 60, 0, 0];
    header.extend((drive.body_bytes as u64).to_be_bytes());
    header.extend([0x10, 0, 1]);
    frame::write_frame(&mut one, FrameKind::Header, 1, &header);
    let body = vec![b'x'; drive.body_bytes];
    frame::write_frame(&mut one, FrameKind::Body, 1, &body);
    one.repeat(drive.batch)
}

fn acks(count: usize) -> Vec<u8> {
    let mut one = Vec::new();
    let ack = basic::Ack { delivery_tag: 0, multiple: false };
    Method::from(ack).encode_frame(1, &mut one);
    one.repeat(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_delivers_what_it_sends() {
        for drive in DRIVES {
            let sent = run(drive, 1000).unwrap();
            assert!(sent >= 1000, "{}", drive.name);
        }
    }
}
