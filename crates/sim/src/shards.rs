//! The shards of a simulated process: the real driver and the real broker, one duty cycle at a
//! time on one thread, in virtual time.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lepus_amqp::server::ServerOptions;
use lepus_base::{ConnectionId, Instant, Now, ShardId};
use lepus_broker::directory::{Directory, QueueInfo};
use lepus_broker::outbox::Event;
use lepus_broker::queue::Recorder;
use lepus_broker::start::{share_logs, start as begin};
use lepus_broker::{Answer, Broker, Limits, Outbox, Query, Settings, StoreSettings};
use lepus_mesh::{Bell, Post};
use lepus_shard::{
    Arrival, Commands, MetricsSnapshot, Notice, NoticeReader, PeerInfo, Shard, Wiring, notices,
};

use crate::disk::SimDisk;
use crate::start::{self, StartingDisk};
use crate::wire::{ReadyList, SimReactor, SimSocket, Wire};

/// Wall time at the start of a simulation: 2026-01-01 00:00:00 UTC, in milliseconds.
const EPOCH_MILLIS: u64 = 1_767_225_600_000;
/// Connections come from this address unless another is named.
const HERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40_000);
/// Where the simulated server listens.
const LISTENER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5672);

/// Copies of messages that one duty cycle may put into queues for each message that it read, and
/// for as many slices of what takes long.
const COPIES_AT_ONCE_MAX: u64 = 512;
/// Rounds after which shards that should come to rest are taken to be stuck in a circle.
const ROUNDS_MAX: usize = 100_000;
/// Slices of what takes long that one duty cycle serves at most, all kinds together.
const SLICES_MAX: u64 = 32;

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
    /// How things are kept on a disk; `None` keeps everything in memory only.
    pub store: Option<StoreOptions>,
    /// Takes down what happens to queues.
    pub recorder: Option<Arc<dyn Recorder>>,
}

/// How a simulated process keeps things on its disk.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The settings of each log but for its number. Everything is small by default, so that a test
    /// sees more than one segment and checkpoint.
    pub template: lepus_store::Settings,
    /// Decides about chances of the disk.
    pub seed: u64,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        let template = lepus_store::Settings {
            segment_bytes: 64 << 10,
            batch_bytes_max: 16 << 10,
            write_bytes_min: 16 << 10,
            gather_bytes: 4 << 10,
            compaction_slack_bytes: 0,
            free_segments_max: 4,
            index_pages_max: 16,
            cache_bytes: 128 << 10,
            read_ahead_bytes: 16 << 10,
            checkpoint_log_bytes: 256 << 10,
            key: lepus_store::Key::new(0x5EC1_2E7D_0F0A_70A5),
            ..lepus_store::Settings::new(lepus_store::disk::LogId(0))
        };
        StoreOptions { template, seed: 1 }
    }
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
            store: None,
            recorder: None,
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

impl Seat {
    /// It does not sleep any more.
    fn rouse(&mut self) {
        if self.asleep {
            self.asleep = false;
            self.bell.wake_up();
        }
    }
}

/// What a shard has done so far, to see what one duty cycle adds.
#[derive(Clone, Copy, Debug)]
struct Work {
    copies: u64,
    received: u64,
}

impl Work {
    fn of(broker: &Broker) -> Work {
        let counters = &broker.shard.counters;
        let copies = counters.enqueued_local + counters.enqueued_remote;
        Work { copies, received: counters.received }
    }

    /// Whether so much in one duty cycle makes others wait, in words.
    fn excess_since(self, before: Work) -> Option<String> {
        let copies = self.copies - before.copies;
        let received = self.received - before.received;
        (copies > COPIES_AT_ONCE_MAX * (received + SLICES_MAX)).then(|| {
            format!("one duty cycle puts {copies} copies into queues and reads {received} messages")
        })
    }
}

/// All shards of a simulated process, and the disk that outlives it.
pub(crate) struct Shards {
    options: Options,
    seats: Vec<Seat>,
    arrivals: Vec<Post<Arrival<SimSocket>>>,
    commands: Commands<Broker>,
    metrics: Vec<Arc<lepus_shard::ShardMetrics>>,
    notices: NoticeReader<Event>,
    /// Log events of earlier processes and of starts.
    told: RefCell<Vec<Event>>,
    now: Now,
    /// Wall time when the process started.
    start_millis: u64,
    connections: u64,
    /// Those of them that were made to earlier processes.
    connections_before: u64,
    /// The first duty cycle that did more than it should.
    pub(crate) overlong: Option<String>,
    pub(crate) disk: Option<SimDisk>,
}

impl Shards {
    /// Starts the shards with user `guest` and vhost `/`, on an empty disk if there is one.
    pub(crate) fn new(options: &Options) -> Shards {
        let mut shards = Shards::none();
        shards.options = options.clone();
        shards.disk = options.store.as_ref().map(|store| SimDisk::new(store.seed));
        if let Err(reason) = shards.start(options.shards) {
            panic!("a process does not start on an empty disk: {reason}");
        }
        shards
    }

    /// No process, no disk: nothing.
    pub(crate) fn none() -> Shards {
        Shards {
            options: Options::default(),
            seats: Vec::new(),
            arrivals: Vec::new(),
            commands: Wiring::<Broker, SimSocket>::new(&[], 2, &notices(|_| true).0).commands,
            metrics: Vec::new(),
            notices: notices(|_| true).1,
            told: RefCell::default(),
            now: Now::default(),
            start_millis: EPOCH_MILLIS,
            connections: 0,
            connections_before: 0,
            overlong: None,
            disk: None,
        }
    }

    /// Starts a process with so many shards.
    ///
    /// # Errors
    /// Why it refuses to start.
    pub(crate) fn start(&mut self, count: u16) -> Result<(), String> {
        self.now = Now { instant: Instant(1), wall_millis: self.start_millis };
        let count = usize::from(count.max(1));
        let alarms: Vec<Arc<AtomicBool>> = (0..count).map(|_| Arc::default()).collect();
        let bells: Vec<Arc<Bell>> = alarms
            .iter()
            .map(|alarm| {
                let alarm = Arc::clone(alarm);
                Arc::new(Bell::new(move || alarm.store(true, Ordering::SeqCst)))
            })
            .collect();
        let brokers = self.make_brokers(count)?;
        let ports = self.disk.as_mut().map(|disk| disk.connect(&bells)).unwrap_or_default();
        let mut ports = ports.into_iter();
        // Whoever asks for the events may do so after very many of them.
        let (notices_in, notices) = notices(|_| true);
        let wiring = Wiring::new(&bells, self.options.ring_capacity, &notices_in);
        let ends = wiring.links.into_iter().zip(alarms).zip(bells);
        self.seats = brokers
            .into_iter()
            .zip(ends)
            .map(|((broker, out), ((links, alarm), bell))| {
                let (reactor, ready) = SimReactor::new();
                let mut shard = Shard::new(broker, reactor, links).with_outbox(out);
                if let Some(port) = ports.next() {
                    shard = shard.with_disk(Box::new(port));
                }
                Seat { shard, ready, alarm, bell, asleep: false, more: true }
            })
            .collect();
        self.arrivals = wiring.arrivals;
        self.commands = wiring.commands;
        self.metrics = wiring.metrics;
        self.notices = notices;
        self.connections_before = self.connections;
        Ok(())
    }

    /// The brokers of a new process, each with its outbox.
    fn make_brokers(&mut self, count: usize) -> Result<Vec<(Broker, Outbox)>, String> {
        let first = Directory::preset("guest", b"guest", [7; 4], "/");
        let template = self.options.store.as_ref().map(|store| store.template);
        let hash = lepus_base::HashState::new(self.options.hash_seed);
        let (mut definitions, directory, deleted, named) = match (&mut self.disk, template) {
            (Some(disk), Some(template)) => {
                let shards = (hash, count as u16);
                let found = start::definitions(disk, template, shards, self.now, &first)?;
                (Some(found.log), found.directory, found.deleted, found.named)
            }
            _ => {
                let mut directory = Directory::new(hash, count as u16);
                first.iter().for_each(|change| drop(directory.apply(change)));
                (None, directory, [].into(), Vec::new())
            }
        };
        let found = match &self.disk {
            Some(disk) => start::found_logs(disk, &named),
            None => Vec::new(),
        };
        let mut brokers = Vec::new();
        for (index, logs) in share_logs(found, count as u16).into_iter().enumerate() {
            let settings = Settings {
                shard: ShardId(index as u16),
                shards: count as u16,
                nodes: Vec::new(),
                hash,
                node: "rabbit@localhost".into(),
                secret: [3; 32],
                server: self.options.server.clone(),
                limits: self.options.limits.clone(),
                store: template.filter(|_| self.disk.is_some()).map(|template| StoreSettings {
                    template,
                    logs,
                    deleted: Arc::clone(&deleted),
                }),
            };
            let mut broker = Broker::new(settings);
            if let Some(recorder) = &self.options.recorder {
                broker.homes.record_to(Arc::clone(recorder));
            }
            let now = self.now;
            let mut disk = self.disk.as_mut().map(|disk| StartingDisk { disk, now });
            let mut out = Outbox::new(count as u16);
            let (own, log) = (directory.clone(), definitions.take());
            let started = begin(&mut broker, own, log, now, disk.as_mut(), &mut out);
            self.told.borrow_mut().append(&mut out.events);
            started.map_err(|error| format!("shard {index}: {}", error.text()))?;
            brokers.push((broker, out));
        }
        Ok(brokers)
    }

    /// The process is gone, and with it all that was in memory.
    pub(crate) fn end(&mut self, power_fails: bool) {
        let told = self.events();
        self.told.borrow_mut().extend(told);
        if let Some(disk) = &mut self.disk {
            disk.disconnect(power_fails);
        }
        self.seats.clear();
        self.start_millis = self.now.wall_millis + 1;
    }

    /// Whether a write or sync of the log of definitions has failed in the life of this process:
    /// durable changes are refused, if the broker knows it yet.
    pub(crate) fn definitions_failed(&self) -> bool {
        let log = &lepus_broker::definitions::LOG;
        self.disk
            .as_ref()
            .is_some_and(|disk| disk.failed.contains(log) || disk.hindered.contains(log))
    }

    /// Whether a log has stopped, or is about to.
    pub(crate) fn has_stopped_log(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| !disk.failed.is_empty())
            || self.brokers().any(|broker| broker.journal.troubles().is_stopped)
    }

    /// Logs that are opened from now on may have so many segments.
    pub(crate) fn allow_segments(&mut self, segments_max: usize) {
        if let Some(store) = &mut self.options.store {
            store.template.segments_max = segments_max;
        }
    }

    /// Whether something waits for room in a log.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.brokers().any(|broker| broker.view().waits_for_room())
    }

    /// Whether writes or syncs that failed wait to be made again: until then nothing is durable.
    pub(crate) fn waits_for_writes(&self) -> bool {
        self.brokers().any(|broker| broker.journal.troubles().has_waiting_writes)
    }

    /// Whether a read failed that somebody waits for: it is made again when its pause is over.
    pub(crate) fn waits_for_reads(&self) -> bool {
        self.brokers().any(|broker| broker.journal.troubles().has_waiting_reads)
    }

    /// Whether somebody may have to wait for the disk: a log has stopped or lacks room.
    pub(crate) fn has_disk_trouble(&mut self) -> bool {
        let is_hindered = |disk: &SimDisk| !disk.hindered.is_empty() || disk.has_been_full;
        let is_hindered = self.disk.as_ref().is_some_and(is_hindered);
        let store = self.options.store.as_ref();
        let is_bounded = store.is_some_and(|store| store.template.segments_max != usize::MAX);
        let now = self.now.instant;
        // What is large waits also where there is enough for what is small.
        self.may_refuse()
            || self.disk.as_ref().is_some_and(|disk| disk.has_outage(now))
            || (is_hindered || is_bounded)
                && (self.waits_for_room()
                    || self.brokers().any(|broker| broker.journal.troubles().is_low))
    }

    /// Whether a log may refuse messages: one has stopped, or the disk lacks space, or one of an earlier run with more
    /// shards is full. What waits for that when the process stops finds no room.
    pub(crate) fn may_refuse(&mut self) -> bool {
        if self.brokers().any(|broker| broker.journal.troubles().is_adopted_full) {
            return true;
        }
        // What stopped it has a cause: that is looked at where its event is heard.
        if self.has_stopped_log() {
            return true;
        }
        let Some(disk) = &self.disk else { return false };
        let is_over = disk.was_full
            && !disk.has_news()
            && !self.brokers().any(|broker| broker.journal.troubles().is_low);
        let Some(disk) = &mut self.disk else { return false };
        let was_full = disk.was_full;
        disk.was_full &= !is_over;
        was_full
    }

    /// Connections of all shards, those that are about to end included.
    pub(crate) fn connections(&self) -> usize {
        self.seats.iter().map(|seat| seat.shard.connections()).sum()
    }

    /// Whether every client is gone, and everything that they said is where it is kept.
    pub(crate) fn may_close(&self) -> bool {
        self.connections() == 0 && !self.brokers().any(|broker| broker.view().owes())
    }

    /// Ends the logs in order, once [`Shards::may_close`].
    pub(crate) fn close(&mut self) {
        for seat in &mut self.seats {
            seat.shard.close(self.now);
            seat.rouse();
        }
    }

    /// Whether the end of all logs is on the disk.
    pub(crate) fn is_closed(&self) -> bool {
        self.brokers().all(Broker::is_closed)
    }

    /// Connections of a shard that did not end in order while the server stopped.
    pub(crate) fn cut(&self, shard: usize) -> usize {
        self.seats[shard].shard.cut()
    }

    /// Cuts the connections that are left.
    pub(crate) fn cut_all(&mut self) {
        for seat in &mut self.seats {
            seat.shard.cut_all(self.now);
            seat.rouse();
        }
    }

    /// Carries out what the disk was asked for and is due. Whether there was anything.
    pub(crate) fn carry_out(&mut self) -> bool {
        let now = self.now.instant;
        self.disk.as_mut().is_some_and(|disk| disk.carry_out(now))
    }

    /// An operator closes a connection, wherever it is.
    pub(crate) fn close_connection(&self, id: ConnectionId) {
        let why = "an operator wants it".to_owned();
        for shard in 0..self.len() as u16 {
            let query = Query::CloseConnection { connection: id, why: why.clone() };
            assert!(self.commands.send(ShardId(shard), query).is_ok(), "shards take orders");
        }
    }

    /// The balancer sends a connection to another shard. False if no shard has it.
    pub(crate) fn move_connection(&self, id: ConnectionId, to: u16) -> bool {
        let holder = self.brokers().find(|broker| broker.connections.slot_of(id).is_some());
        let Some(from) = holder.map(|broker| broker.shard.id) else { return false };
        let why = "the simulator wants it".to_owned();
        let query = Query::MoveConnection { connection: id, to: ShardId(to), why };
        assert!(self.commands.send(from, query).is_ok(), "shards take orders");
        true
    }

    /// The home of a queue, if there is one of that name.
    pub(crate) fn home_of(&self, vhost: &str, name: &str) -> Option<ShardId> {
        self.find(vhost, name).map(|info| info.home)
    }

    fn find(&self, vhost: &str, name: &str) -> Option<&QueueInfo> {
        let directory = &self.broker(0).directory;
        directory.queue(directory.vhost(vhost)?, name)
    }

    /// The balancer sends a queue to another shard. False if there is none of that name.
    pub(crate) fn move_queue(&self, vhost: &str, name: &str, to: u16) -> bool {
        let Some(info) = self.find(vhost, name) else { return false };
        let why = "the simulator wants it".to_owned();
        let query = Query::MoveQueue { queue: info.id, to: ShardId(to), why };
        assert!(self.commands.send(info.home, query).is_ok(), "shards take orders");
        true
    }

    /// Somebody asks a shard. The answer to most is there after the shard's next cycle.
    pub(crate) fn ask(&self, shard: u16, query: Query) -> mpsc::Receiver<Answer> {
        match self.commands.begin(ShardId(shard), query) {
            Ok(answer) => answer,
            Err(stopped) => panic!("shard {shard} takes no question: {stopped}"),
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
        let wall_millis = self.start_millis + instant.0 / 1_000_000;
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
        seat.rouse();
        seat.alarm.store(false, Ordering::SeqCst);
        seat.shard.poll(Some(Duration::ZERO)).expect("a reactor in memory does not fail");
        let before = Work::of(seat.shard.core());
        seat.more = seat.shard.turn(self.now).more;
        if let Some(text) = Work::of(seat.shard.core()).excess_since(before) {
            self.overlong.get_or_insert(text);
        }
        if !seat.more && seat.shard.next_timeout() > self.now.instant {
            seat.asleep = seat.bell.fall_asleep();
        }
    }

    /// Runs shards and disk until nothing is to be done; nobody says a word meanwhile.
    ///
    /// # Errors
    /// When that does not come to an end.
    pub(crate) fn run_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            let mut quiet = true;
            for shard in 0..self.len() {
                if self.is_runnable(shard) {
                    self.turn(shard);
                    quiet = false;
                }
            }
            if !self.carry_out() && quiet {
                return Ok(());
            }
        }
        Err("the shards do not come to rest by themselves".into())
    }

    /// The earliest moment at which a shard has something to do by itself.
    pub(crate) fn next_timeout(&self) -> Instant {
        let shards = self.seats.iter().map(|seat| seat.shard.next_timeout());
        let disk = self.disk.iter().map(SimDisk::next_due);
        shards.chain(disk).min().unwrap_or(Instant::NEVER)
    }

    /// A client connects to a shard.
    pub(crate) fn connect(&mut self, shard: usize, address: Option<SocketAddr>) -> Wire {
        let wire = Wire::new(self.options.socket_bytes_max);
        self.connections += 1;
        let mut address = address.unwrap_or(HERE);
        if address == HERE {
            address.set_port(40_000 + (self.connections % 20_000) as u16);
        }
        let arrival = Arrival {
            replaces: false,
            id: ConnectionId(self.connections),
            socket: wire.server_end(),
            peer: PeerInfo { address, local_address: LISTENER, tls: None, login_name: None },
            tls: None,
        };
        assert!(self.arrivals[shard].send(arrival).is_ok(), "a shard takes connections");
        wire
    }

    /// Connections that this process was ever asked to take.
    pub(crate) fn connections_taken(&self) -> u64 {
        self.connections - self.connections_before
    }

    /// The id of the connection that was made last.
    pub(crate) fn last_connection(&self) -> ConnectionId {
        ConnectionId(self.connections)
    }

    /// The server stops.
    pub(crate) fn shut_down(&mut self) {
        for seat in &mut self.seats {
            seat.shard.shut_down(self.now);
            seat.rouse();
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

    /// Who waits for what is over, on any shard, while no shard has anything to do.
    pub(crate) fn overdue(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (shard, seat) in self.seats.iter().enumerate() {
            let all = seat.shard.core().view().overdue(self.now, seat.shard.outbox());
            found.extend(all.into_iter().map(|what| format!("shard {shard}: {what}")));
            for (key, at) in seat.shard.core().view().credit_asked() {
                if !self.broker(at.index()).view().knows_wish(key) {
                    let at = at.0;
                    found.push(format!(
                        "shard {shard}: {key:?} asked for credit, and shard {at} does not know"
                    ));
                }
            }
        }
        found
    }

    /// Sums that a shard keeps and a walk over what it holds finds to be others, between two duty cycles.
    pub(crate) fn miscounted(&self) -> impl Iterator<Item = String> {
        let wrong = |broker: &Broker| Some((broker.shard.id, broker.view().miscounted()?));
        self.brokers().filter_map(wrong).map(|(shard, what)| format!("shard {shard}: {what}"))
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
        let mut events = std::mem::take(&mut *self.told.borrow_mut());
        events.extend(self.notices.try_iter().filter_map(core));
        events
    }
}
