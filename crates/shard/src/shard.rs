//! One shard: its core, its connections, and one turn of the duty cycle.

mod disk;
mod exchange;
mod input;
mod login;
mod output;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lepus_base::{ConnectionId, Crowd, Instant, Now, ShardId, Slab};
use lepus_mesh::{Bell, Signal};
use lepus_profile::{Mark, Phase as Stage};
use lepus_reactor::files::{Disk, Failure};
use lepus_reactor::{Reactor, Readiness};
use lepus_store::disk::{Completion, LogId};

use crate::command::{Command, Waiter, locate};
use crate::connection::{Connection, Envelope, Parcel, Phase};
use crate::core::{Core, Slot};
use crate::metrics::ShardMetrics;
use crate::notice::Notice;
use crate::pace::Samples;
use crate::wiring::Links;

/// Bytes read from one connection in one turn.
pub(crate) const READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes read in one turn from all connections; the others keep their place in the queue.
const TURN_BYTES_MAX: usize = 256 * 1024;
/// How long a connection that the core closed may take to accept its last bytes.
const DRAIN: Duration = Duration::from_secs(10);
/// How long the peer may take to end its side after that.
const LINGER: Duration = Duration::from_secs(2);
/// The same while the server stops.
const LINGER_STOPPING: Duration = Duration::from_millis(200);
/// Stands for "no connection" in the table of slots.
const NO_TOKEN: u32 = u32::MAX;
/// Connections taken from the acceptor in one turn.
const ARRIVALS_MAX: usize = 64;
/// Emptied leftover buffers kept for reuse, and the largest one kept.
const SPARES_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 256 * 1024;

/// What a turn left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// There is work that needs no event: the next poll must not wait.
    pub more: bool,
    /// Something was done.
    pub busy: bool,
}

/// One shard. Generic over the core that it runs and the reactor that it blocks in.
pub struct Shard<C: Core, R: Reactor> {
    id: ShardId,
    core: C,
    out: C::Outbox,
    reactor: R,
    disk: Option<Box<dyn Disk>>,
    /// Where it notes what it is at.
    mark: Mark,
    /// Operations that have ended.
    completions: Vec<(LogId, Completion)>,
    failures: Vec<Failure>,
    links: Links<C, R::Socket>,
    connections: Slab<Connection<C::Slot, R::Socket>>,
    /// Tokens by the core's slots.
    tokens: Vec<u32>,
    readiness: Vec<Readiness>,
    /// Tokens of connections to read, each once.
    queue: VecDeque<u32>,
    /// Tokens whose sockets take bytes again or have bytes of their own to send.
    unblocked: Vec<u32>,
    /// Tokens of those that are to be written, in their order, each once: those with little to send, and others.
    writing: [VecDeque<u32>; 2],
    /// Bytes that were written to those of one list in this turn.
    written: usize,
    /// Connections that are draining or lingering; their deadlines are looked at by need.
    leaving: Vec<(u32, ConnectionId)>,
    /// The earliest of those deadlines, or earlier.
    leaving_next: Instant,
    /// Connections that linger, in the order in which they began to, and some that are gone.
    lingering: VecDeque<(u32, ConnectionId)>,
    /// How many linger.
    lingering_count: usize,
    /// Directory changes that this shard knows: those that it took, or made.
    changes: u64,
    /// Mail of other shards that waits for its turn, in its order.
    received: VecDeque<(ShardId, Parcel<C, R::Socket>)>,
    /// A reused list of what has just come.
    fresh: Vec<(ShardId, Parcel<C, R::Socket>)>,
    /// Connections on their way to other shards, by shard.
    outgoing: Vec<Vec<Envelope<C, R::Socket>>>,
    waiters: HashMap<u64, Waiter<C>>,
    /// Read buffer shared by all connections: room for a leftover, then room for a read.
    scratch: Vec<u8>,
    /// The same for decrypted bytes; made with the first TLS connection.
    plain: Vec<u8>,
    spares: Vec<Vec<u8>>,
    /// Reused lists of slots that are being worked off.
    slots: Vec<C::Slot>,
    /// Tokens of those that have not logged in or are at their end, and how many there may be. As many
    /// may linger.
    entering: Crowd<u32>,
    entering_max: usize,
    /// Something was done in this turn.
    busy: bool,
    stopping: bool,
    /// Connections that did not end in order while the server stopped.
    cut: usize,
    /// Who said how much while it is tried whether naps hold anybody up.
    samples: Samples,
}

impl<C: Core, R: Reactor> Shard<C, R> {
    /// A shard without connections and files.
    pub fn new(core: C, reactor: R, links: Links<C, R::Socket>) -> Shard<C, R> {
        let shards = links.endpoint.shards();
        Shard {
            id: links.endpoint.shard(),
            core,
            out: C::outbox(shards as u16),
            reactor,
            disk: None,
            mark: Mark::default(),
            completions: Vec::new(),
            failures: Vec::new(),
            links,
            connections: Slab::new(),
            tokens: Vec::new(),
            readiness: Vec::new(),
            queue: VecDeque::new(),
            unblocked: Vec::new(),
            writing: Default::default(),
            written: 0,
            leaving: Vec::new(),
            leaving_next: Instant::NEVER,
            lingering: VecDeque::new(),
            lingering_count: 0,
            changes: 0,
            received: VecDeque::new(),
            fresh: Vec::new(),
            outgoing: (0..shards).map(|_| Vec::new()).collect(),
            waiters: HashMap::new(),
            scratch: vec![0; input::SCRATCH_BYTES],
            plain: Vec::new(),
            spares: Vec::new(),
            slots: Vec::new(),
            entering: Crowd::default(),
            entering_max: usize::MAX,
            busy: false,
            stopping: false,
            cut: 0,
            samples: Samples::default(),
        }
    }

    /// The shard with the outbox that its core used before: what it asked for is carried out.
    #[must_use]
    pub fn with_outbox(self, out: C::Outbox) -> Shard<C, R> {
        Shard { out, ..self }
    }

    /// The shard with files. The disk posts [`Signal::Disk`] at the shard's bell, and rings it, when
    /// there is something to take.
    #[must_use]
    pub fn with_disk(self, disk: Box<dyn Disk>) -> Shard<C, R> {
        Shard { disk: Some(disk), ..self }
    }

    /// The shard with a limit for connections that have not logged in: for one more of them, one gives
    /// way. It holds for those that linger, too.
    #[must_use]
    pub fn with_entering_max(self, entering_max: usize) -> Shard<C, R> {
        Shard { entering_max, ..self }
    }

    /// The shard with a place where others see what it is at.
    #[must_use]
    pub fn with_mark(self, mark: Mark) -> Shard<C, R> {
        Shard { mark, ..self }
    }

    /// Where it notes what it is at.
    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Who said how much in a trial of naps.
    pub(crate) fn samples(&mut self) -> &mut Samples {
        &mut self.samples
    }

    /// The shard's bell.
    pub fn bell(&self) -> &Bell {
        self.links.endpoint.bell()
    }

    /// The shard's counters.
    pub fn metrics(&self) -> &Arc<ShardMetrics> {
        &self.links.metrics
    }

    /// The core, to look at.
    #[must_use]
    pub fn core(&self) -> &C {
        &self.core
    }

    /// What the core has yet to have carried out.
    pub fn outbox(&self) -> &C::Outbox {
        &self.out
    }

    /// Connections in any phase.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The next moment at which the shard has something to do by itself.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.core.next_timeout().min(self.leaving_next)
    }

    /// Waits for events up to `timeout` (`None`: without limit) and notes what is ready; whether
    /// anything is.
    ///
    /// # Errors
    /// When the reactor fails, which a shard cannot survive.
    pub fn poll(&mut self, timeout: Option<Duration>) -> std::io::Result<bool> {
        let mut readiness = std::mem::take(&mut self.readiness);
        let rang = self.reactor.poll(timeout, &mut readiness)?;
        let found = rang || !readiness.is_empty();
        for event in readiness.drain(..) {
            self.note(event);
        }
        self.readiness = readiness;
        Ok(found)
    }

    fn note(&mut self, event: Readiness) {
        let token = event.token.0;
        let Some(connection) = self.connections.get_mut(token as usize) else {
            return;
        };
        connection.readable |= event.readable;
        connection.ending |= event.ending;
        if event.writable && connection.full {
            connection.full = false;
            self.unblocked.push(token);
        }
        if event.dead {
            // Reading tells why; nothing that waits here can be answered any more.
            connection.paused = false;
            connection.again = false;
            connection.ended = false;
        }
        self.enqueue(token);
    }

    /// One turn: everything that was found by the last poll and everything that was put into the
    /// shard's inboxes, within the turn's budget.
    pub fn turn(&mut self, now: Now) -> Turn {
        self.busy = false;
        self.mark.set(Stage::Handle);
        self.run_command(now);
        self.take_arrivals(now);
        self.take_mail(now);
        self.drain_directory(now);
        self.take_completions(now);
        self.read_sockets(now);
        self.make_room_to_enter(now);
        if self.core.next_timeout() <= now.instant {
            self.busy = true;
            self.core.timeout(now, &mut self.out);
        }
        self.core.work(now, &mut self.out);
        self.mark.set(Stage::Flush);
        self.core.flush(now, &mut self.out);
        self.mark.set(Stage::Submit);
        // First of all, so that the disk works while the sockets are written.
        self.submit();
        self.mark.set(Stage::Flush);
        self.apply_reading();
        // Room is looked for below in any case.
        self.bell().take(Signal::Room);
        self.send_parcels();
        self.mark.set(Stage::Write);
        self.write_sockets(now);
        self.cut_overdue(now);
        self.hand_over();
        // Writing gave windows back, closing gave messages back: both may have caused more.
        self.mark.set(Stage::Flush);
        self.core.flush(now, &mut self.out);
        self.mark.set(Stage::Submit);
        self.submit();
        self.mark.set(Stage::Flush);
        self.apply_reading();
        self.send_parcels();
        self.report();
        let wakes = self.links.endpoint.ring();
        let metrics = &self.links.metrics;
        metrics.cycles.add(1);
        metrics.wakes_sent.add(wakes);
        metrics.connections.set(self.connections.len() as u64);
        metrics.entering.set(self.entering.len() as u64);
        let more = self.core.has_work(&self.out) || self.has_more();
        Turn { more, busy: self.busy || more }
    }

    fn has_more(&mut self) -> bool {
        let effects = C::effects(&mut self.out);
        !self.queue.is_empty()
            || !self.received.is_empty()
            || !self.unblocked.is_empty()
            || self.writing.iter().any(|list| !list.is_empty())
            || !effects.dirty.is_empty()
            || !effects.close.is_empty()
            || !effects.hand_over.is_empty()
    }

    /// Begins the end: the core tells its clients, and no connection is taken any more.
    pub fn shut_down(&mut self, now: Now) {
        if !self.stopping {
            self.stopping = true;
            self.core.shut_down(now, &mut self.out);
            for (_, connection) in &mut self.connections {
                if connection.phase == Phase::Lingering {
                    let soon = now.instant + LINGER_STOPPING;
                    connection.deadline = connection.deadline.min(soon);
                    self.leaving_next = self.leaving_next.min(soon);
                }
            }
        }
    }

    /// Cuts all connections.
    pub fn cut_all(&mut self, now: Now) {
        let tokens: Vec<u32> = self.connections.iter().map(|(key, _)| key as u32).collect();
        for token in tokens {
            let connection = &self.connections[token as usize];
            self.cut += usize::from(connection.phase != Phase::Lingering && !connection.is_cut);
            self.lose(now, token);
        }
        self.links.metrics.connections.set(0);
    }

    /// Connections that did not end in order while the server stopped: they were cut, or did not
    /// answer for so long that the core gave up.
    #[must_use]
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Begins the orderly end of the core.
    pub fn close(&mut self, now: Now) {
        self.core.close(now, &mut self.out);
        self.submit();
    }

    /// Whether nothing waits to be sent to another shard, or for what would let it be sent.
    pub(crate) fn has_said_all(&mut self) -> bool {
        let mail = C::effects(&mut self.out).mail;
        mail.iter().all(C::is_mail_empty)
            && self.outgoing.iter().all(Vec::is_empty)
            && !self.core.owes()
    }

    /// Whether all mail that has come is taken.
    pub(crate) fn has_heard_all(&self) -> bool {
        self.received.is_empty()
    }

    /// Carries one command out: everybody else is served before the next. Who asks has perhaps seen a change done that is
    /// in this shard's lane: it is applied first. The answer goes when the turn ends, behind the changes that it may
    /// tell of.
    fn run_command(&mut self, now: Now) {
        if !self.links.commands.is_announced() {
            return;
        }
        let Some(command) = self.links.commands.take() else { return };
        self.busy = true;
        self.drain_directory(now);
        match command {
            Command::Query(number, query, waiter) => {
                if let Some(waiter) = waiter {
                    self.waiters.insert(number, waiter);
                }
                self.core.query(now, number, query, &mut self.out);
            }
            // Whoever asked may have gone.
            Command::Locate(reply) => drop(reply.try_send(locate(&self.core))),
        }
        // There may be more.
        self.bell().post(Signal::Command);
    }

    /// Makes a connection findable and has it tried in both directions.
    fn install(&mut self, slot: C::Slot, token: u32) {
        let index = slot.index();
        if self.tokens.len() <= index {
            self.tokens.resize(index + 1, NO_TOKEN);
        }
        self.tokens[index] = token;
        self.unblocked.push(token);
        self.enqueue(token);
    }

    /// The token of a slot, unless the connection is gone.
    fn token(&self, slot: C::Slot) -> Option<u32> {
        let token = *self.tokens.get(slot.index())?;
        (token != NO_TOKEN).then_some(token)
    }

    /// Applies every directory change that is there, before anything else is handled.
    fn drain_directory(&mut self, now: Now) {
        if !self.links.directory.is_announced() {
            return;
        }
        self.busy = true;
        while let Some(change) = self.links.directory.take() {
            self.changes += 1;
            self.core.change(now, &change, &mut self.out);
        }
    }

    /// Puts a connection into the queue of those to read, if it has something to do there.
    fn enqueue(&mut self, token: u32) {
        let connection = &mut self.connections[token as usize];
        if !connection.queued && connection.wants_turn() {
            connection.queued = true;
            self.queue.push_back(token);
        }
    }

    /// Events to the log, answers to those who wait.
    fn report(&mut self) {
        let effects = C::effects(&mut self.out);
        let lost = core::mem::take(effects.lost_events);
        if lost > 0 {
            self.links.notices.lose(lost);
        }
        for event in effects.events.drain(..) {
            self.links.notices.tell(Notice::Core { shard: self.id, event });
        }
        for (number, answer) in effects.answers.drain(..) {
            if let Some(waiter) = self.waiters.remove(&number) {
                waiter(answer);
            }
        }
    }
}
