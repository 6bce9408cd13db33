//! The whole broker on one shard: whatever clients do in whatever order, nothing panics, what is
//! sent is well-formed, and nothing is left behind when they are gone.
#![no_main]

use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::channel;
use lepus_amqp::server::ServerOptions;
use lepus_amqp::{Method, ReplyCode};
use lepus_base::{ConnectionId, Now, ShardId};
use lepus_broker::broker::Broker;
use lepus_broker::connection::PeerInfo;
use lepus_broker::directory::Directory;
use lepus_broker::outbox::{ConnectionSlot, Outbox};
use lepus_broker::settings::{Limits, Settings};
use lepus_fuzz::deed::{self, Choices};
use lepus_fuzz::handshake;
use libfuzzer_sys::fuzz_target;

const CLIENTS: usize = 3;
const DEEDS_MAX: usize = 300;

#[derive(Default)]
struct Client {
    slot: Option<ConnectionSlot>,
    /// What the broker has not taken yet.
    unread: Vec<u8>,
    /// What came from the broker and is not whole yet.
    answers: Vec<u8>,
    /// Whether the client reads what it is sent.
    deaf: bool,
    paused: bool,
}

struct World {
    broker: Broker,
    out: Outbox,
    now: Now,
    clients: [Client; CLIENTS],
    connections: u64,
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut world = World::new();
    for _ in 0..DEEDS_MAX {
        if choices.is_empty() {
            break;
        }
        world.step(&mut choices);
    }
    world.finish();
});

impl World {
    fn new() -> World {
        let settings = Settings {
            shard: ShardId(0),
            shards: 1,
            nodes: Vec::new(),
            hash: lepus_base::HashState::new(1),
            node: "rabbit@localhost".into(),
            secret: [7; 32],
            server: ServerOptions::default(),
            limits: Limits::default(),
            store: None,
        };
        let mut broker = Broker::new(settings);
        let mut out = Outbox::new(1);
        let now = Now::from_millis(1000);
        let preset = Directory::preset("guest", b"guest", [1, 2, 3, 4], "/");
        broker.preset(now, &preset, &mut out);
        let clients = Default::default();
        World { broker, out, now, clients, connections: 0 }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let at = usize::from(choices.below(CLIENTS as u8));
        if self.clients[at].slot.is_none() {
            self.connect(at);
        }
        match choices.below(32) {
            0 => self.disconnect(at),
            1 => self.clients[at].deaf = !self.clients[at].deaf,
            2 => self.pass(u64::from(choices.byte())),
            3 => self.pass(u64::from(choices.byte()) * 1000),
            4 => {
                let bytes = choices.raw();
                self.clients[at].unread.extend_from_slice(bytes);
            }
            _ => {
                let number = u16::from(choices.below(2)) + 1;
                deed::write(choices, number, &mut self.clients[at].unread);
            }
        }
        self.feed(at);
        self.cycle();
    }

    fn connect(&mut self, at: usize) {
        self.connections += 1;
        let peer = PeerInfo { loopback: true, ..PeerInfo::default() };
        let id = ConnectionId(self.connections);
        let slot = self.broker.accept(self.now, id, peer, None, &mut self.out);
        let client = &mut self.clients[at];
        *client = Client { slot: Some(slot), ..Client::default() };
        handshake(&mut client.unread);
        for number in [1, 2] {
            Method::from(channel::Open {}).encode_frame(number, &mut client.unread);
        }
    }

    fn disconnect(&mut self, at: usize) {
        if let Some(slot) = self.clients[at].slot.take() {
            self.broker.closed(self.now, slot, &mut self.out);
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now = Now::from_millis(self.now.wall_millis + millis);
        if self.broker.next_timeout() <= self.now.instant {
            self.broker.timeout(self.now, &mut self.out);
        }
    }

    fn feed(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let Some(slot) = client.slot else { return };
        if client.paused {
            return;
        }
        let consumed = self.broker.received(self.now, slot, &client.unread, &mut self.out);
        assert!(consumed <= client.unread.len());
        client.unread.drain(..consumed);
    }

    /// The end of a cycle, as the driver does it.
    fn cycle(&mut self) {
        for _ in 0..10_000 {
            self.broker.work(self.now, &mut self.out);
            self.broker.flush(self.now, &mut self.out);
            self.carry_out();
            if !self.broker.has_work(&self.out) && self.out.is_empty() {
                return;
            }
        }
        panic!("the broker's work does not come to an end");
    }

    fn carry_out(&mut self) {
        assert!(self.out.hand_over.is_empty(), "there is nowhere to go");
        self.out.events.clear();
        self.out.changes.clear();
        self.out.answers.clear();
        for slot in std::mem::take(&mut self.out.dirty) {
            self.write(slot);
        }
        for slot in std::mem::take(&mut self.out.pause) {
            if let Some(at) = self.client_of(slot) {
                self.clients[at].paused = true;
            }
        }
        for slot in std::mem::take(&mut self.out.resume) {
            if let Some(at) = self.client_of(slot) {
                self.clients[at].paused = false;
                self.feed(at);
            }
        }
        for slot in std::mem::take(&mut self.out.close) {
            if let Some(at) = self.client_of(slot) {
                self.clients[at].deaf = false;
                self.write(slot);
                self.disconnect(at);
            }
        }
    }

    fn client_of(&self, slot: ConnectionSlot) -> Option<usize> {
        self.clients.iter().position(|client| client.slot == Some(slot))
    }

    fn write(&mut self, slot: ConnectionSlot) {
        let Some(at) = self.client_of(slot) else { return };
        let client = &mut self.clients[at];
        let Broker { connections, shard, .. } = &mut self.broker;
        let bytes = connections.writable_bytes(shard, slot);
        let count = if client.deaf { bytes.len().min(1) } else { bytes.len() };
        client.answers.extend_from_slice(&bytes[..count]);
        let consumed = check_frames(&client.answers);
        client.answers.drain(..consumed);
        self.broker.sent(self.now, slot, count, &mut self.out);
    }

    /// All clients go. Then nothing is unacknowledged, and only what is ready holds memory.
    fn finish(&mut self) {
        for at in 0..CLIENTS {
            self.disconnect(at);
        }
        self.cycle();
        let mut ready = 0;
        for (_, queue) in self.broker.homes.queues() {
            assert_eq!(queue.unacked(), 0, "nobody is there to acknowledge");
            assert_eq!(queue.consumer_count(), 0, "nobody is there to consume");
            ready += queue.ready();
        }
        let bodies = self.broker.shard.pool.len() as u64;
        if ready == 0 && !has_delayed(&self.broker) {
            assert_eq!(bodies, 0, "bodies of messages that are nowhere");
        }
        assert_eq!(self.broker.connections.len(), 0);
    }
}

/// Whether messages may wait in a delayed exchange, where no queue counts them.
fn has_delayed(broker: &Broker) -> bool {
    broker.next_timeout() != lepus_base::Instant::NEVER
}

/// Checks all whole frames at the start of `bytes` and says how many bytes they are.
fn check_frames(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let decoded = frame::decode(&bytes[at..], u32::MAX);
        let Some((frame, length)) = decoded.expect("the broker's frames are well-formed") else {
            return at;
        };
        at += length;
        assert!(length <= 131_072, "a frame above the negotiated size");
        if frame.kind == FrameKind::Method {
            let method =
                Method::decode(frame.payload).expect("the broker's methods are well-formed");
            if let Method::ConnectionClose(close) = method {
                assert_ne!(
                    ReplyCode(close.reply_code),
                    ReplyCode::INTERNAL_ERROR,
                    "{}",
                    close.reply_text
                );
            }
        }
    }
}
