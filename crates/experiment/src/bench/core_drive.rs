//! The pure core driven without sockets: what one message costs the broker itself, on one shard or on several.
//!
//! The input is encoded beforehand; what the broker sends is looked at no further than its length. Several shards take
//! turns on one thread; mail, changes of the directory and connections go between them as the driver would carry them.

mod words;

use lepus_base::{ConnectionId, Now, ShardId};
use lepus_broker::broker::Broker;
use lepus_broker::connection::PeerInfo;
use lepus_broker::directory::Directory;
use lepus_broker::mail::Mail;
use lepus_broker::outbox::{ConnectionSlot, Outbox};
use lepus_broker::settings::{Limits, Settings};
use words::Acks;

/// Bytes that one read brings.
const READ_BYTES: usize = 64 * 1024;

/// What makes publishes of a pair unlike those before them, or their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nothing: a row.
    Row,
    /// They go to so many queues in turn.
    Turns(usize),
    /// They have priorities.
    Priorities,
    /// They have a header.
    Headers,
    /// They go to so many queues in turn, by a topic exchange without filters.
    Topic(usize),
    /// They go to one of 100 queues by what is in them, of an exchange with so many filtered bindings.
    Filtered(usize),
    /// They have priorities, and their queue heeds them.
    PriorityQueue,
    /// They go to a queue where they expire at once, and are dead-lettered to the consumer's.
    Expiry,
    /// None: for each a connection comes, opens a channel, and closes.
    Connections,
}

/// A load that can be driven without sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drive {
    /// The name on the command line and in the file of ceilings.
    pub name: &'static str,
    /// Shards, each with clients of its own.
    pub shards: u16,
    /// Whether instructions have a ceiling; otherwise the load is there for the model of memory nodes.
    pub has_ceiling: bool,
    shape: Shape,
    /// Bytes of a body.
    body_bytes: usize,
    /// Publishes that come together.
    batch: usize,
    /// Whether publishes are confirmed and deliveries acknowledged, each by itself.
    settled: bool,
    /// Channels of a connection that each publish to a queue of their own; 0 for a publisher and a consumer.
    channels: u16,
    /// Connections of that kind on each shard.
    connections: u16,
    /// Whether queues are on another shard than the clients that use them.
    crossed: bool,
    /// How many times as much as a message costs elsewhere one costs here, about: so many times fewer are counted.
    pub dear: u64,
}

const PAIR: Drive = Drive {
    name: "",
    shards: 1,
    has_ceiling: true,
    shape: Shape::Row,
    body_bytes: 16,
    batch: READ_BYTES / 80,
    settled: false,
    channels: 0,
    connections: 0,
    crossed: false,
    dear: 1,
};
const E4: Drive = Drive { body_bytes: 12, batch: 100, settled: true, ..PAIR };
/// Of E1's 4,500 channels as many as fall to each of 24 shards; `e1-all` has all of them on one.
const E1: Drive =
    Drive { has_ceiling: false, body_bytes: 11, batch: 94, channels: 94, connections: 2, ..PAIR };

/// All loads.
pub const DRIVES: [Drive; 16] = [
    Drive { name: "stream-16", ..PAIR },
    Drive { name: "e4-single", ..E4 },
    Drive { name: "stream-16-two", shards: 2, ..PAIR },
    Drive { name: "e4-single-two", shards: 2, ..E4 },
    Drive { name: "turns", shape: Shape::Turns(64), ..PAIR },
    // More than a channel remembers the routes of.
    Drive { name: "turns-many", shape: Shape::Turns(800), ..PAIR },
    Drive { name: "priorities", shape: Shape::Priorities, ..PAIR },
    Drive { name: "headers", shape: Shape::Headers, ..PAIR },
    Drive { name: "topic", shape: Shape::Topic(800), ..PAIR },
    Drive {
        name: "filtered",
        shape: Shape::Filtered(10_000),
        body_bytes: 250,
        batch: 150,
        dear: 5,
        ..PAIR
    },
    Drive { name: "priority-queue", shape: Shape::PriorityQueue, ..PAIR },
    Drive { name: "expiry", shape: Shape::Expiry, dear: 10, ..PAIR },
    Drive { name: "connections", shape: Shape::Connections, batch: 10, dear: 50, ..PAIR },
    Drive { name: "e1-local", ..E1 },
    Drive { name: "e1-all", batch: 500, channels: 500, connections: 9, ..E1 },
    Drive { name: "e1-crossed", shards: 2, crossed: true, ..E1 },
];

impl Drive {
    /// Whether this is the same load on one shard.
    #[must_use]
    pub fn is_one_shard_of(self, other: Drive) -> bool {
        self.shards == 1 && self == Drive { name: self.name, shards: 1, ..other }
    }
}

/// The load with this name.
#[must_use]
pub fn find(name: &str) -> Option<Drive> {
    DRIVES.into_iter().find(|drive| drive.name == name)
}

/// What was driven, and what went between shards meanwhile, the start not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driven {
    /// Messages.
    pub messages: u64,
    /// Items of mail.
    pub mails: u64,
    /// Batches of mail: each wakes its receiver if that sleeps.
    pub batches: u64,
    /// Bytes of mail: the items, and the messages in them.
    pub mail_bytes: u64,
}

/// One shard and its clients.
struct Core {
    broker: Broker,
    out: Outbox,
    /// Who publishes, and what.
    publishers: Vec<(ConnectionSlot, Vec<u8>)>,
    /// Who acknowledges.
    consumer: Option<ConnectionSlot>,
}

/// The shards.
struct Bench {
    cores: Vec<Core>,
    now: Now,
    connections: u64,
    carried: Driven,
}

/// Sends `messages` (rounded up to whole batches) through the brokers and says what they were and what went between them.
///
/// # Errors
/// When the brokers do not deliver each of them.
pub fn run(drive: Drive, messages: u64) -> Result<Driven, String> {
    let mut bench = Bench::start(drive);
    let mut acks = Acks::new(drive.batch);
    bench.carried = Driven::default();
    let (mut sent, mut each) = (0, 0);
    while sent < messages && drive.shape == Shape::Connections {
        bench.open_and_close(drive.batch);
        sent += drive.batch as u64;
    }
    if drive.shape == Shape::Connections {
        return bench.count_connections(sent);
    }
    while sent < messages {
        for shard in 0..bench.cores.len() {
            for publisher in 0..bench.cores[shard].publishers.len() {
                let core = &mut bench.cores[shard];
                let (slot, publishes) = &core.publishers[publisher];
                receive(&mut core.broker, &mut core.out, bench.now, *slot, publishes);
                sent += drive.batch as u64;
                bench.end_cycles();
            }
            if let Some(consumer) = bench.cores[shard].consumer {
                let core = &mut bench.cores[shard];
                receive(&mut core.broker, &mut core.out, bench.now, consumer, acks.after(each));
                bench.end_cycles();
            }
        }
        each += drive.batch as u64;
    }
    let counters = bench.cores.iter().map(|core| &core.broker.shard.counters);
    let delivered: u64 =
        counters.map(|counters| counters.delivered_auto_ack + counters.delivered_manual_ack).sum();
    if delivered != sent {
        return Err(format!("{sent} messages were sent and {delivered} delivered"));
    }
    Ok(Driven { messages: sent, ..bench.carried })
}

fn receive(broker: &mut Broker, out: &mut Outbox, now: Now, slot: ConnectionSlot, bytes: &[u8]) {
    let consumed = broker.received(now, slot, bytes, out);
    assert_eq!(consumed, bytes.len(), "the broker takes all it is offered");
}

/// The sockets take everything.
fn write(broker: &mut Broker, out: &mut Outbox, now: Now) {
    while let Some(slot) = out.dirty.pop() {
        let bytes = broker.connections.writable_slices(&mut broker.shard, slot).len();
        broker.sent(now, slot, bytes, out);
    }
}

impl Bench {
    fn start(drive: Drive) -> Bench {
        let cores = (0..drive.shards).map(|shard| Core::new(shard, drive.shards)).collect();
        let mut bench =
            Bench { cores, now: Now::from_millis(1), connections: 0, carried: Driven::default() };
        for shard in 0..usize::from(drive.shards) {
            if drive.channels == 0 {
                bench.add_pair(drive, shard);
            }
        }
        for _ in 0..drive.connections {
            bench.add_loops(drive);
        }
        bench
    }

    /// A publisher and a consumer of one queue.
    fn add_pair(&mut self, drive: Drive, shard: usize) {
        let queue = format!("bench-{shard}");
        let consumer = self.connect(shard, &words::consumes(drive, &queue));
        let publisher = self.connect(shard, &words::publishes_on(drive));
        let core = &mut self.cores[shard];
        core.publishers.push((publisher, words::publishes(drive, &queue)));
        core.consumer = drive.settled.then_some(consumer);
    }

    /// On each shard a connection whose channels each publish to a queue of their own, and consume from it. Queues are
    /// declared on the shards in turn: one that had many more than others would get no further ones.
    fn add_loops(&mut self, drive: Drive) {
        let count = self.cores.len();
        let home = |shard: usize| if drive.crossed { (shard + 1) % count } else { shard };
        let numbers: Vec<usize> =
            (0..count).map(|shard| self.connections as usize + shard).collect();
        let declarers: Vec<ConnectionSlot> =
            (0..count).map(|shard| self.connect(home(shard), &words::loop_exchange())).collect();
        for channel in 1..=drive.channels {
            for shard in 0..count {
                let words = words::loop_queue(numbers[shard], channel);
                self.say(home(shard), declarers[shard], &words);
            }
        }
        for shard in 0..count {
            let client = match drive.crossed {
                true => self.connect(shard, &words::ties()),
                false => declarers[shard],
            };
            self.say(shard, client, &words::loop_consumers(drive, numbers[shard]));
            let publishes = words::loop_publishes(drive, numbers[shard]);
            self.cores[shard].publishers.push((client, publishes));
        }
    }

    fn connect(&mut self, shard: usize, words: &[u8]) -> ConnectionSlot {
        self.connections += 1;
        let peer = PeerInfo { loopback: true, ..PeerInfo::default() };
        let core = &mut self.cores[shard];
        let slot =
            core.broker.accept(self.now, ConnectionId(self.connections), peer, None, &mut core.out);
        self.say(shard, slot, &words::opening());
        self.say(shard, slot, words);
        slot
    }

    /// Connections come together, each with a channel, and go.
    fn open_and_close(&mut self, count: usize) {
        let slots: Vec<ConnectionSlot> =
            (0..count).map(|_| self.connect(0, &words::opens(1))).collect();
        for slot in slots {
            let core = &mut self.cores[0];
            receive(&mut core.broker, &mut core.out, self.now, slot, &words::close());
            core.broker.flush(self.now, &mut core.out);
            write(&mut core.broker, &mut core.out, self.now);
            // The client has its answer, and ends the socket.
            core.broker.closed(self.now, slot, &mut core.out);
            self.end_cycles();
        }
    }

    /// What was driven, if all these connections were opened and closed.
    fn count_connections(self, count: u64) -> Result<Driven, String> {
        let counters = &self.cores[0].broker.shard.counters;
        let (opened, closed) = (counters.connections_opened, counters.connections_closed);
        // A pair stays.
        match opened == count + 2 && closed == count {
            true => Ok(Driven { messages: count, ..self.carried }),
            false => Err(format!("of {count} connections {opened} opened and {closed} closed")),
        }
    }

    fn say(&mut self, shard: usize, slot: ConnectionSlot, words: &[u8]) {
        let mut rest = words;
        // Where an answer comes from another shard, the channel waits for it.
        while !rest.is_empty() {
            let core = &mut self.cores[shard];
            let consumed = core.broker.received(self.now, slot, rest, &mut core.out);
            rest = &rest[consumed..];
            assert!(self.end_cycles() || consumed > 0, "the broker gets on");
        }
    }

    /// What the driver does at the end of a cycle, with sockets that take everything, until no shard has anything more
    /// to do. Whether anything was carried from shard to shard.
    fn end_cycles(&mut self) -> bool {
        let mut carried = false;
        loop {
            for core in &mut self.cores {
                core.end_cycle(self.now);
            }
            if self.cores.len() == 1 || !self.carry() {
                return carried;
            }
            carried = true;
        }
    }

    /// Takes changes and mail to their shards. Whether there were any.
    fn carry(&mut self) -> bool {
        let mut carried = false;
        for from in 0..self.cores.len() {
            for change in std::mem::take(&mut self.cores[from].out.changes) {
                carried = true;
                for to in (0..self.cores.len()).filter(|to| *to != from) {
                    let core = &mut self.cores[to];
                    core.broker.change(self.now, &change, &mut core.out);
                }
            }
            for to in 0..self.cores.len() {
                if self.cores[from].out.mail[to].is_empty() {
                    continue;
                }
                carried = true;
                let mut batch = std::mem::take(&mut self.cores[from].out.mail[to]);
                self.carried.batches += 1;
                self.carried.mails += batch.items.len() as u64;
                self.carried.mail_bytes +=
                    (batch.items.len() * size_of::<Mail>() + batch.bytes.len()) as u64;
                let core = &mut self.cores[to];
                let from = ShardId(from as u16);
                core.broker.mail(self.now, from, &mut batch, &mut core.out);
                // As over the ring, its memory goes back to where it came from.
                self.cores[from.index()].out.mail[to] = batch;
            }
        }
        carried
    }
}

impl Core {
    fn new(shard: u16, shards: u16) -> Core {
        let settings = Settings {
            shard: ShardId(shard),
            shards,
            nodes: Vec::new(),
            hash: lepus_base::HashState::new(1),
            node: "rabbit@localhost".into(),
            secret: [7; 32],
            server: lepus_amqp::server::ServerOptions::default(),
            limits: Limits::default(),
            store: None,
        };
        let mut broker = Broker::new(settings);
        let mut out = Outbox::new(shards);
        let preset = Directory::preset("guest", b"guest", [1, 2, 3, 4], "/");
        // What applying the presets says to others is said to nobody: there is no one yet.
        broker.preset(Now::from_millis(1), &preset, &mut Outbox::new(shards));
        out.events.clear();
        Core { broker, out, publishers: Vec::new(), consumer: None }
    }

    fn end_cycle(&mut self, now: Now) {
        let (broker, out) = (&mut self.broker, &mut self.out);
        loop {
            broker.work(now, out);
            broker.flush(now, out);
            write(broker, out, now);
            assert!(out.close.is_empty() && out.hand_over.is_empty(), "connections stay");
            // A channel that waits for another shard pauses its reading.
            out.pause.clear();
            out.resume.clear();
            out.events.clear();
            if !broker.has_work(out) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_delivers_what_it_sends() {
        for drive in DRIVES {
            let driven = run(drive, 1000).unwrap();
            assert!(driven.messages >= 1000, "{}", drive.name);
        }
    }

    #[test]
    fn local_traffic_sends_no_mail_and_wakes_nobody() {
        for drive in DRIVES {
            let driven = run(drive, 1000).unwrap();
            if drive.crossed {
                // A message goes to its queue by mail, and from there to its consumer.
                assert!(driven.mails >= 2 * driven.messages, "{} {driven:?}", drive.name);
                assert!(driven.batches > 0 && driven.mail_bytes > driven.mails);
            } else {
                assert_eq!((driven.mails, driven.batches), (0, 0), "{}", drive.name);
            }
        }
    }
}
