//! The shards of a simulated process: the real driver and the real broker, one duty cycle at a
//! time on one thread, in virtual time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lepus_amqp::server::ServerOptions;
use lepus_base::{ConnectionId, Instant, Now, ShardId};
use lepus_broker::directory::{Directory, Request};
use lepus_broker::outbox::Event;
use lepus_broker::refusal::Refusal;
use lepus_broker::{Broker, Limits, Outbox, Settings};
use lepus_mesh::{Bell, Post};
use lepus_shard::{Arrival, Commands, MetricsSnapshot, Notice, PeerInfo, Shard, Wiring};

use crate::wire::{ReadyList, SimReactor, SimSocket, Wire};

/// Wall time at the start of a simulation: 2026-01-01 00:00:00 UTC, in milliseconds.
const EPOCH_MILLIS: u64 = 1_767_225_600_000;
/// Connections come from this address unless another is named.
const HERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40_000);
/// Where the simulated server listens.
const LISTENER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5672);

/// What a simulated process is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of shards.
    pub shards: u16,
    /// Mail batches in flight per ordered pair of shards, at least 2.
    pub ring_capacity: usize,
    /// Bytes that a socket holds on their way to a client that does not read.
    pub socket_bytes_max: usize,
    /// Keys the hash maps and seeds the broker's choices.
    pub hash_seed: u64,
    /// The handshake's offer and the protocol's limits.
    pub server: ServerOptions,
    /// Limits on what peers can make grow.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            shards: 1,
            ring_capacity: 16,
            socket_bytes_max: 64 * 1024,
            hash_seed: 1,
            server: ServerOptions::default(),
            limits: Limits::default(),
        }
    }
}

/// One shard and whether it sleeps.
struct Seat {
    shard: Shard<Broker, SimReactor>,
    ready: ReadyList,
    /// Set when a peer rings a sleeper.
    alarm: Arc<AtomicBool>,
    bell: Arc<Bell>,
    asleep: bool,
    more: bool,
}

/// All shards of a simulated process.
pub(crate) struct Shards {
    seats: Vec<Seat>,
    arrivals: Vec<Post<Arrival<SimSocket>>>,
    commands: Commands<Broker>,
    metrics: Vec<Arc<lepus_shard::ShardMetrics>>,
    notices: mpsc::Receiver<Notice<Event>>,
    now: Now,
    connections: u64,
    socket_bytes_max: usize,
}

impl Shards {
    /// Starts the shards with user `guest` and vhost `/`.
    pub(crate) fn new(options: &Options) -> Shards {
        let now = Now { instant: Instant(1), wall_millis: EPOCH_MILLIS };
        let (notices_in, notices) = mpsc::channel();
        let count = usize::from(options.shards.max(1));
        let alarms: Vec<Arc<AtomicBool>> = (0..count).map(|_| Arc::default()).collect();
        let bells: Vec<Arc<Bell>> = alarms
            .iter()
            .map(|alarm| {
                let alarm = Arc::clone(alarm);
                Arc::new(Bell::new(move || alarm.store(true, Ordering::SeqCst)))
            })
            .collect();
        let wiring = Wiring::new(&bells, options.ring_capacity, &notices_in);
        let changes = Directory::preset("guest", b"guest", [7; 4], "/");
        let seats = wiring
            .links
            .into_iter()
            .zip(alarms)
            .zip(&bells)
            .enumerate()
            .map(|(index, ((links, alarm), bell))| {
                let mut broker = Broker::new(Settings {
                    shard: ShardId(index as u16),
                    shards: count as u16,
                    hash_seed: options.hash_seed,
                    secret: [3; 32],
                    server: options.server.clone(),
                    limits: options.limits.clone(),
                });
                // What applying the presets says to others is said to nobody: there is no one yet.
                broker.preset(now, &changes, &mut Outbox::new(count as u16));
                let (reactor, ready) = SimReactor::new();
                Seat {
                    shard: Shard::new(broker, reactor, links),
                    ready,
                    alarm,
                    bell: Arc::clone(bell),
                    asleep: false,
                    more: true,
                }
            })
            .collect();
        Shards {
            seats,
            arrivals: wiring.arrivals,
            commands: wiring.commands,
            metrics: wiring.metrics,
            notices,
            now,
            connections: 0,
            socket_bytes_max: options.socket_bytes_max,
        }
    }

    /// Nothing, to stand in for shards that are elsewhere for a moment.
    pub(crate) fn none() -> Shards {
        let (_, notices) = mpsc::channel();
        Shards {
            seats: Vec::new(),
            arrivals: Vec::new(),
            commands: Wiring::<Broker, SimSocket>::new(&[], 2, &mpsc::channel().0).commands,
            metrics: Vec::new(),
            notices,
            now: Now::default(),
            connections: 0,
            socket_bytes_max: 0,
        }
    }

    /// An operator closes a connection, wherever it is.
    pub(crate) fn close_connection(&self, id: ConnectionId) {
        for shard in 0..self.len() {
            let order = move |broker: &mut Broker, now, out: &mut Outbox| {
                broker.close_connection(now, id, "an operator wants it", out);
            };
            assert!(self.commands.send(ShardId(shard as u16), order).is_ok(), "shards take orders");
        }
    }

    /// Number of shards.
    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }

    /// The time.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Moves time forward to `instant`.
    pub(crate) fn set_time(&mut self, instant: Instant) {
        let instant = instant.max(self.now.instant);
        let wall_millis = EPOCH_MILLIS + instant.0 / 1_000_000;
        self.now = Now { instant, wall_millis };
    }

    /// Whether the shard has something to do now.
    pub(crate) fn is_runnable(&self, shard: usize) -> bool {
        let seat = &self.seats[shard];
        !seat.asleep
            || seat.alarm.load(Ordering::SeqCst)
            || !seat.ready.is_empty()
            || seat.shard.next_timeout() <= self.now.instant
    }

    /// One duty cycle of a shard; afterwards it sleeps if nothing is left to do.
    pub(crate) fn turn(&mut self, shard: usize) {
        let seat = &mut self.seats[shard];
        if seat.asleep {
            seat.asleep = false;
            seat.bell.wake_up();
        }
        seat.alarm.store(false, Ordering::SeqCst);
        seat.shard.poll(Some(Duration::ZERO)).expect("a reactor in memory does not fail");
        seat.more = seat.shard.turn(self.now).more;
        if !seat.more && seat.shard.next_timeout() > self.now.instant {
            seat.asleep = seat.bell.fall_asleep();
        }
    }

    /// The earliest moment at which a shard has something to do by itself.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.seats.iter().map(|seat| seat.shard.next_timeout()).min().unwrap_or(Instant::NEVER)
    }

    /// A client connects to a shard.
    pub(crate) fn connect(&mut self, shard: usize, address: Option<SocketAddr>) -> Wire {
        let wire = Wire::new(self.socket_bytes_max);
        self.connections += 1;
        let mut address = address.unwrap_or(HERE);
        if address == HERE {
            address.set_port(40_000 + (self.connections % 20_000) as u16);
        }
        let arrival = Arrival {
            id: ConnectionId(self.connections),
            socket: wire.server_end(),
            peer: PeerInfo { address, local_address: LISTENER, tls: None },
            tls: None,
        };
        assert!(self.arrivals[shard].send(arrival).is_ok(), "a shard takes connections");
        wire
    }

    /// The id of the connection that was made last.
    pub(crate) fn last_connection(&self) -> ConnectionId {
        ConnectionId(self.connections)
    }

    /// An operator asks for a change of the directory; the answer comes when the shards have run.
    pub(crate) fn request(&self, request: Request) -> mpsc::Receiver<Result<(), Refusal>> {
        let (reply, answer) = mpsc::channel();
        let asked = self.commands.question(
            ShardId(0),
            move |broker, now, number, out| broker.request(now, number, &request, out),
            move |result| {
                // Whoever asked may not care.
                let _ = reply.send(result);
            },
        );
        assert!(asked.is_ok(), "shard 0 takes commands");
        answer
    }

    /// The server stops.
    pub(crate) fn shut_down(&mut self) {
        for seat in &mut self.seats {
            seat.shard.shut_down(self.now);
            if seat.asleep {
                seat.asleep = false;
                seat.bell.wake_up();
            }
        }
    }

    /// A shard's broker.
    pub(crate) fn broker(&self, shard: usize) -> &Broker {
        self.seats[shard].shard.core()
    }

    /// All brokers, in the order of their shards.
    pub(crate) fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.seats.iter().map(|seat| seat.shard.core())
    }

    /// What a shard's driver counted.
    pub(crate) fn metrics(&self, shard: usize) -> MetricsSnapshot {
        self.metrics[shard].snapshot()
    }

    /// Log events since the last call.
    pub(crate) fn events(&self) -> Vec<Event> {
        let core = |notice| match notice {
            Notice::Core { event, .. } => Some(event),
            _ => None,
        };
        self.notices.try_iter().filter_map(core).collect()
    }
}
