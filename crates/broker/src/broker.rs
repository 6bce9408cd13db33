//! The broker on one shard: a function of its inputs.
//!
//! The driver calls [`Broker::accept`], [`Broker::received`], [`Broker::sent`] and
//! [`Broker::closed`] for its sockets, [`Broker::change`] for the directory lane,
//! [`Broker::mail`] for mail, [`Broker::timeout`] when [`Broker::next_timeout`] has come,
//! [`Broker::work`] once a cycle, and [`Broker::flush`] at its end. Every call may push effects
//! into the [`Outbox`]; none of them blocks, fails or reads a clock.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_amqp::server::{Event, Publish, ServerConnection};
use lepus_base::{ConnectionId, HashMap, HashState, Instant, Now, QueueId, Rng, ShardId, Slab};

use crate::channel::Target;
use crate::connection::{Connection, ConnectionEnd, PauseReason, PeerInfo};
use crate::consume::Requeue;
use crate::delayed::Delayed;
use crate::directory::{Change, Checked, Directory, Request, Routes};
use crate::edge::Edge;
use crate::home::Home;
use crate::log::Log;
use crate::mail::{ChannelRef, Command, Mail, MailBatch, Origin};
use crate::message::{Incoming, MessageView};
use crate::outbox::{ConnectionSlot, Outbox};
use crate::publish::Fanout;
use crate::queue::{Enqueued, Queue};
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::timers::Timer;
use crate::token::Names;

/// The broker's state on one shard.
#[derive(Debug)]
pub struct Broker {
    pub(crate) settings: Settings,
    pub(crate) hash: HashState,
    /// The directory: vhosts, users, exchanges, bindings and the homes of queues.
    pub directory: Directory,
    /// Connections, bodies, timers and counters.
    pub edge: Edge,
    pub(crate) homes: Slab<Home>,
    pub(crate) home_slots: HashMap<QueueId, u32>,
    pub(crate) log: Log,
    pub(crate) names: Names,
    pub(crate) rng: Rng,
    pub(crate) delayed: Delayed,
    pub(crate) routes: Routes,
    pub(crate) targets: Vec<Target>,
    /// Queues with work left.
    pub(crate) working: VecDeque<(u32, QueueId)>,
    /// Deleted queues whose messages are still to be released.
    pub(crate) graveyard: VecDeque<Queue>,
    pub(crate) fanouts: VecDeque<Fanout>,
    pub(crate) requeues: VecDeque<Requeue>,
    /// Commands that have to wait for a queue's work.
    pub(crate) retries: VecDeque<(ChannelRef, QueueId, Command)>,
    pub(crate) stopping: bool,
    /// Whether publishers are blocked because memory is short.
    pub(crate) memory_short: bool,
}

/// A connection between two shards.
#[derive(Debug)]
pub struct Traveller(Box<Connection>);

impl Broker {
    /// A broker without vhosts, users and connections.
    #[must_use]
    pub fn new(settings: Settings) -> Broker {
        let hash = HashState::new(settings.hash_seed);
        Broker {
            hash,
            directory: Directory::new(hash, settings.shards),
            edge: Edge::new(settings.shard, settings.limits.clone(), hash),
            homes: Slab::new(),
            home_slots: HashMap::with_hasher(hash),
            log: Log::default(),
            names: Names::new(settings.secret, settings.shard),
            rng: Rng::new(settings.hash_seed ^ u64::from(settings.shard.0) << 32),
            delayed: Delayed::default(),
            routes: Routes::default(),
            targets: Vec::new(),
            working: VecDeque::new(),
            graveyard: VecDeque::new(),
            fanouts: VecDeque::new(),
            requeues: VecDeque::new(),
            retries: VecDeque::new(),
            stopping: false,
            memory_short: false,
            settings,
        }
    }

    /// This shard.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.edge.shard
    }

    /// What it was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The queues whose home is here, with their ids.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.homes.iter().map(|(_, home)| (home.id, &home.queue))
    }

    /// The queue with this id, if its home is here.
    #[must_use]
    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        let slot = *self.home_slots.get(&id)?;
        self.homes.get(slot as usize).map(|home| &home.queue)
    }

    /// Applies changes before the shard serves anyone: the same on every shard.
    pub fn preset(&mut self, now: Now, changes: &[Change], out: &mut Outbox) {
        for change in changes {
            self.apply(now, change, out);
        }
    }

    /// A connection was accepted.
    pub fn accept(
        &mut self,
        now: Now,
        id: ConnectionId,
        peer: PeerInfo,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        let mut options = self.settings.server.clone();
        if peer.tls.as_ref().is_some_and(|tls| tls.common_name.is_some()) {
            options.mechanisms.push_str(" EXTERNAL");
        }
        let machine = ServerConnection::new(&options, now.instant);
        let connection = Box::new(Connection::new(id, peer, machine, now.wall_millis));
        let slot = self.edge.connections.insert(connection) as u32;
        self.edge.by_id.insert(id, slot);
        self.edge.arm(slot);
        if self.stopping {
            out.close.push(ConnectionSlot(slot));
        }
        ConnectionSlot(slot)
    }

    /// Bytes came from a client. Returns how many were consumed; the driver keeps the rest and
    /// offers it again together with what follows (or when the connection is resumed).
    pub fn received(
        &mut self,
        now: Now,
        slot: ConnectionSlot,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> usize {
        self.edge.now = now;
        let slot = slot.0;
        let mut consumed = 0;
        while let Some(connection) = self.edge.connections.get_mut(slot as usize) {
            if connection.paused != 0 || connection.gone {
                break;
            }
            let sent_before = connection.send.bytes.len();
            let rest = &bytes[consumed..];
            let (used, event) =
                connection.machine.receive(now.instant, rest, &mut connection.send.bytes);
            let answered = connection.send.bytes.len() > sent_before;
            if let Some(to) = self.hand_over_target(now, slot, &event) {
                out.hand_over.push((ConnectionSlot(slot), to));
                break;
            }
            if let Event::Publish { publish, .. } = &event
                && self.edge.connections[slot as usize].blocked
            {
                self.edge.pause(slot, PauseReason::Memory, out);
                // One that was put together cannot be given back.
                if matches!(publish, Publish::Borrowed(_)) {
                    break;
                }
            }
            consumed += used;
            let idle = used == 0 && matches!(event, Event::None);
            if answered {
                self.edge.mark_dirty(slot, out);
            }
            if idle {
                break;
            }
            self.on_event(now, slot, event, out);
            if out.hand_over.last().is_some_and(|(moved, _)| moved.0 == slot) {
                break;
            }
        }
        self.edge.arm(slot);
        self.settle_down(now, out);
        consumed
    }

    /// The socket is gone. Called once for each connection; its slot is free afterwards.
    pub fn closed(&mut self, now: Now, slot: ConnectionSlot, out: &mut Outbox) {
        let Some(connection) = self.edge.connections.get_mut(slot.index()) else { return };
        connection.gone = true;
        self.end_connection(now, slot.0, ConnectionEnd::Lost, out);
        self.settle_down(now, out);
    }

    /// What is to be sent to a client next.
    #[must_use]
    pub fn writable_bytes(&self, slot: ConnectionSlot) -> &[u8] {
        self.edge.connections.get(slot.index()).map_or(&[], |connection| connection.send.unsent())
    }

    /// The socket took some of what was to be sent.
    pub fn sent(&mut self, now: Now, slot: ConnectionSlot, bytes: usize, out: &mut Outbox) {
        let window = self.edge.limits.send_window_bytes;
        let Some(connection) = self.edge.connections.get_mut(slot.index()) else { return };
        connection.send.advance(bytes);
        connection.dirty = !connection.send.is_empty();
        if bytes > 0 {
            connection.machine.sent(now.instant);
        }
        if connection.send.len() > window / 2 {
            return;
        }
        for (home, bytes) in connection.debts.drain(..) {
            let mail = Mail::Window { connection: connection.id, bytes };
            out.mail[home.index()].items.push(mail);
        }
        if !connection.stalled.is_empty() {
            for (queue, hint, key) in core::mem::take(&mut connection.stalled) {
                self.resume_consumer(now, queue, hint, key, out);
            }
            self.settle_down(now, out);
        }
    }

    /// Mail from another shard. The batch is left empty.
    pub fn mail(&mut self, now: Now, from: ShardId, batch: &mut MailBatch, out: &mut Outbox) {
        self.edge.now = now;
        let bytes = core::mem::take(&mut batch.bytes);
        let mut items = core::mem::take(&mut batch.items);
        for mail in items.drain(..) {
            self.on_mail(now, from, mail, &bytes, out);
        }
        batch.items = items;
        batch.bytes = bytes;
        batch.clear();
        self.settle_down(now, out);
    }

    /// A change from the directory lane.
    pub fn change(&mut self, now: Now, change: &Arc<Change>, out: &mut Outbox) {
        self.apply(now, change, out);
        self.settle_down(now, out);
    }

    /// The earliest moment at which [`Broker::timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.edge.timers.next()
    }

    /// Serves the timers that are due.
    pub fn timeout(&mut self, now: Now, out: &mut Outbox) {
        while let Some(timer) = self.edge.timers.pop(now.instant) {
            match timer {
                Timer::Connection(slot, id) => self.connection_timeout(now, slot, id, out),
                Timer::Queue(slot, id) => self.queue_timeout(now, slot, id, out),
                Timer::Delayed => self.publish_delayed(now, out),
            }
        }
        self.settle_down(now, out);
    }

    /// One slice of whatever takes long. True when more is left.
    pub fn work(&mut self, now: Now, out: &mut Outbox) -> bool {
        let mut more = self.work_on_queues(now, out);
        more |= self.work_on_fanouts(now, out);
        more |= self.work_on_requeues(now, out);
        for _ in 0..self.retries.len() {
            let Some((from, queue, command)) = self.retries.pop_front() else { break };
            self.command(now, from, queue, command, out);
        }
        more |= !self.retries.is_empty();
        self.settle_down(now, out);
        more || !self.edge.dead_letters.is_empty() || !self.edge.unparking.is_empty()
    }

    /// The end of a cycle: confirms and commits go out.
    pub fn flush(&mut self, now: Now, out: &mut Outbox) {
        self.edge.now = now;
        self.flush_confirms(now, out);
        self.release_pressure(out);
        self.settle_down(now, out);
        if !self.edge.confirming.is_empty() {
            self.flush_confirms(now, out);
        }
    }

    /// Takes a connection off this shard. Call it for what the outbox asked to hand over.
    pub fn release(&mut self, slot: ConnectionSlot) -> Option<Traveller> {
        let mut connection = self.edge.connections.try_remove(slot.index())?;
        self.edge.by_id.remove(&connection.id);
        self.edge.counters.handed_over += 1;
        connection.dirty = false;
        connection.armed = Instant::NEVER;
        connection.touched.clear();
        for channel in connection.channels.iter_mut().flatten() {
            channel.route = None;
            if let Some(confirms) = &mut channel.confirms {
                confirms.listed = false;
            }
        }
        Some(Traveller(connection))
    }

    /// Takes a connection over from another shard.
    pub fn adopt(&mut self, now: Now, traveller: Traveller, out: &mut Outbox) -> ConnectionSlot {
        let Traveller(mut connection) = traveller;
        connection.moved_at = Some(now.instant);
        let id = connection.id;
        let has_bytes = !connection.send.is_empty();
        let slot = self.edge.connections.insert(connection) as u32;
        self.edge.by_id.insert(id, slot);
        self.edge.arm(slot);
        if has_bytes {
            self.edge.mark_dirty(slot, out);
        }
        ConnectionSlot(slot)
    }

    /// Follow-ups that calls leave behind: dead letters, parked frames, consumers with room again.
    fn settle_down(&mut self, now: Now, out: &mut Outbox) {
        // Bounded: what is left goes on in the next cycle through `work`.
        for _ in 0..4 {
            self.route_dead_letters(now, out);
            for slot in core::mem::take(&mut self.edge.roomy) {
                let Some(connection) = self.edge.connections.get_mut(slot as usize) else {
                    continue;
                };
                for (queue, hint, key) in core::mem::take(&mut connection.stalled) {
                    self.resume_consumer(now, queue, hint, key, out);
                }
            }
            self.replay_parked(now, out);
            if self.edge.dead_letters.is_empty()
                && self.edge.roomy.is_empty()
                && self.edge.unparking.is_empty()
            {
                break;
            }
        }
    }

    /// Reads publishers again when memory or mail has room.
    fn release_pressure(&mut self, out: &mut Outbox) {
        let limit = self.edge.limits.memory_bytes;
        let enough = if self.memory_short { limit - limit / 10 } else { limit };
        let is_short = self.edge.memory() > enough;
        if is_short != self.memory_short {
            self.memory_short = is_short;
            let others = (0..self.settings.shards).map(ShardId);
            for shard in others.filter(|&shard| shard != self.edge.shard) {
                out.mail[shard.index()].items.push(Mail::MemoryShort(is_short));
            }
        }
        if !is_short && self.edge.short_shards.is_empty() && !self.edge.blocked_by_memory.is_empty()
        {
            self.edge.unblock_all(out);
        }
        if self.edge.paused_by_mail.is_empty() {
            return;
        }
        let low = self.edge.limits.mail_batch_bytes_max / 2;
        if out.mail.iter().all(|batch| batch.weight() <= low) {
            for (slot, id) in core::mem::take(&mut self.edge.paused_by_mail) {
                if self.edge.connection_at(slot, id).is_some() {
                    self.edge.resume(slot, PauseReason::Mail, out);
                }
            }
        }
    }

    /// Asks for a change of the directory: shard 0 decides.
    pub(crate) fn ask_directory(
        &mut self,
        now: Now,
        origin: Origin,
        request: Request,
        out: &mut Outbox,
    ) {
        if self.edge.shard == ShardId(0) {
            self.sequence(now, origin, &request, out);
        } else {
            let mail = Mail::Ask { origin, request: Box::new(request) };
            out.mail[0].items.push(mail);
        }
    }

    /// An operator or a start-up file asks for a change. The answer comes in `out.answers` under
    /// `question`, on shard 0, which is where this must be called.
    pub fn request(&mut self, now: Now, question: u64, request: &Request, out: &mut Outbox) {
        self.sequence(now, Origin::Control(question), request, out);
        self.settle_down(now, out);
    }

    /// Shard 0 orders the directory's changes: decides, applies, tells the others, answers.
    fn sequence(&mut self, now: Now, origin: Origin, request: &Request, out: &mut Outbox) {
        let result = match self.directory.check(request) {
            Err(refusal) => Err(refusal),
            Ok(Checked::Already(id)) => Ok(id),
            Ok(Checked::Change(change)) => {
                let id = change.queue_id();
                self.apply(now, &change, out);
                if self.settings.shards > 1 {
                    out.changes.push(Arc::new(change));
                }
                Ok(id)
            }
        };
        self.answer(now, origin, result, out);
    }

    fn answer(
        &mut self,
        now: Now,
        origin: Origin,
        result: Result<Option<QueueId>, Refusal>,
        out: &mut Outbox,
    ) {
        let shard = match origin {
            Origin::Channel(channel) => channel.shard,
            Origin::Ending { shard, .. } => shard,
            Origin::Home => return,
            Origin::Control(question) => {
                out.answers.push((question, result.map(|_| ())));
                return;
            }
        };
        if shard == self.edge.shard {
            self.on_answer(now, origin, result, out);
        } else {
            out.mail[shard.index()].items.push(Mail::Answer { origin, result });
        }
    }

    /// Applies a change of the directory to this shard.
    fn apply(&mut self, now: Now, change: &Change, out: &mut Outbox) {
        // What died before the change is routed as it was then, or a queue that goes with the
        // consumer that rejected a message would take its dead-letter exchange along.
        for _ in 0..8 {
            if !self.route_dead_letters(now, out) {
                break;
            }
        }
        let applied = self.directory.apply(change);
        for id in applied.queues_created {
            let Some(info) = self.directory.queue_by_id(id) else { continue };
            if info.home != self.edge.shard {
                continue;
            }
            let home = Home::new(now, info);
            let slot = self.homes.insert(home) as u32;
            self.home_slots.insert(id, slot);
            self.edge.counters.queues_created += 1;
            self.pump(now, slot, out);
        }
        for info in applied.queues_deleted {
            self.home_deleted(now, &info, out);
        }
        if let Some(vhost) = applied.vhost_deleted {
            self.close_connections(
                now,
                |connection| connection.vhost == vhost,
                "vhost is deleted",
                out,
            );
        }
        if let Some(user) = applied.user_deleted {
            self.close_connections(
                now,
                |connection| *connection.user == *user,
                "user is deleted",
                out,
            );
        }
    }

    /// Asks the home of a queue; the channel's pending question must be set before.
    pub(crate) fn ask_home(
        &mut self,
        now: Now,
        at: crate::channel::At,
        queue: QueueId,
        home: ShardId,
        command: Command,
        out: &mut Outbox,
    ) {
        if home == self.edge.shard {
            self.command(now, at.channel, queue, command, out);
        } else {
            if let Some(connection) = self.edge.connections.get_mut(at.slot as usize) {
                connection.touch(home);
            }
            let mail = Mail::Command { from: at.channel, queue, command };
            out.mail[home.index()].items.push(mail);
        }
    }

    fn on_mail(&mut self, now: Now, from: ShardId, mail: Mail, bytes: &[u8], out: &mut Outbox) {
        match mail {
            Mail::Enqueue { queue, message, persistent, priority, expiration, confirm } => {
                let view = packed(bytes, message);
                let mut incoming = Incoming::new(view);
                incoming.persistent = persistent;
                incoming.priority = priority;
                incoming.expiration = expiration.map(core::time::Duration::from_millis);
                incoming.last = true;
                let mut refused = false;
                if let Some(slot) = self.home_slot(queue, u32::MAX) {
                    if persistent {
                        self.log.append(view.body.len());
                    }
                    refused = self.with_queue(now, slot, out, |queue, sink| {
                        queue.enqueue(now, &mut incoming, sink)
                    }) == Enqueued::Rejected;
                    self.pump(now, slot, out);
                }
                incoming.finish(&mut self.edge.pool);
                if let Some((to, number)) = confirm {
                    report(&mut out.mail[to.shard.index()], to, number, refused);
                }
            }
            Mail::Enqueued { to, first, last, refused } => {
                self.publish_reported(to, first, last, refused);
            }
            Mail::Command { from, queue, command } => self.command(now, from, queue, command, out),
            Mail::Reply { to, queue, reply } => {
                self.on_mailed_reply(now, from, to, queue, reply, bytes, out)
            }
            Mail::Settle { queue, slot, sequence, outcome } => {
                if let Some(home) =
                    self.settle_home(now, queue, u32::MAX, slot, sequence, outcome, out)
                {
                    self.pump(now, home, out);
                }
            }
            Mail::Hold { queue, on } => self.hold_home(now, queue, on, out),
            Mail::Deliver { .. } => self.on_delivery(from, &mail, bytes, out),
            Mail::DeliverReply { to, message } => {
                self.deliver_reply(to, &packed(bytes, message), out);
            }
            Mail::FindReplyConsumer { of, from } => self.find_reply_consumer(now, of, from, out),
            Mail::ConsumerCancelled { to, queue } => self.consumer_cancelled(now, to, queue, out),
            Mail::Window { connection, bytes } => self.window_returned(now, connection, bytes, out),
            Mail::WantCredit { to, queue } => self.credit_wanted(now, to, queue, from, out),
            Mail::GrantCredit { to, queue } => self.credit_granted(now, to, queue, from, out),
            Mail::ReturnCredit { to } => self.credit_returned(now, to, out),
            Mail::Govern { consumer, queue, on } => {
                if let Some(remote) = self.edge.remote_consumers.get_mut(&consumer) {
                    remote.governed = on;
                    remote.wanted = false;
                    self.resume_consumer(now, queue, u32::MAX, consumer, out);
                }
            }
            Mail::MemoryShort(true) => {
                if !self.edge.short_shards.contains(&from) {
                    self.edge.short_shards.push(from);
                }
            }
            Mail::MemoryShort(false) => self.edge.short_shards.retain(|&shard| shard != from),
            Mail::ConnectionGone(id) => {
                self.edge.remote_windows.remove(&id);
            }
            Mail::Ask { origin, request } => self.sequence(now, origin, &request, out),
            Mail::Answer { origin, result } => self.on_answer(now, origin, result, out),
            Mail::CloseConnection { connection, text } => {
                self.close_connection(now, connection, &text, out);
            }
        }
    }

    fn window_returned(&mut self, now: Now, id: ConnectionId, bytes: u64, out: &mut Outbox) {
        let Some(window) = self.edge.remote_windows.get_mut(&id) else { return };
        window.room += bytes as i64;
        if window.room <= 0 {
            return;
        }
        for (queue, key) in core::mem::take(&mut window.stalled) {
            self.resume_consumer(now, queue, u32::MAX, key, out);
        }
    }
}

/// The message that an item's range points at.
pub(crate) fn packed(bytes: &[u8], range: core::ops::Range<u32>) -> MessageView<'_> {
    MessageView::unpack(bytes.get(range.start as usize..range.end as usize).unwrap_or_default())
}

/// Reports a publish; neighbours of one channel with the same outcome share an item.
fn report(batch: &mut MailBatch, to: ChannelRef, number: u64, refused: bool) {
    if let Some(Mail::Enqueued { to: same, last, refused: same_outcome, .. }) =
        batch.items.last_mut()
        && *same == to
        && *last + 1 == number
        && *same_outcome == refused
    {
        *last = number;
        return;
    }
    batch.items.push(Mail::Enqueued { to, first: number, last: number, refused });
}
