//! The broker on one shard: a function of its inputs.
//!
//! The driver calls [`Broker::accept`], [`Broker::received`], [`Broker::sent`] and
//! [`Broker::closed`] for its sockets, [`Broker::change`] for the directory lane,
//! [`Broker::mail`] for mail, [`Broker::timeout`] when [`Broker::next_timeout`] has come,
//! [`Broker::work`] once a cycle, and [`Broker::flush`] at its end. Every call may push effects
//! into the [`Outbox`]; none of them blocks, fails or reads a clock.

mod backpressure;
mod definitions;
mod departures;
mod dispatch;
mod hand_over;
mod inbox;
mod lifecycle;
mod memory;
mod migrations;
mod overdue;
mod owners;
mod query;
mod recovery;
mod sequencer;

pub use hand_over::Traveller;

use alloc::boxed::Box;
use alloc::sync::Arc;

use lepus_base::{ConnectionId, Instant, Now, QueueId, ShardId};
use lepus_store::disk::{Completion, LogId};

use crate::backpressure::Cause;
use crate::connection::{Connection, ConnectionEnd, PeerInfo};
use crate::connections::Connections;
use crate::definitions::{Definitions, LOG as DEFINITIONS_LOG};
use crate::directory::{Change, Directory};
use crate::homes::{HomeSide, Homes};
use crate::journal::Journal;
use crate::mail::Mail;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::queue::{Queue, Recorder};
use crate::session::amqp::Amqp;
use crate::session::{Event, Incoming, Session, Speaker, State};
use crate::sessions::SessionSide;
use crate::settings::Settings;
use crate::shard::Shard;
use crate::timers::Timer;

/// The broker's state on one shard.
#[derive(Debug)]
pub struct Broker {
    /// The directory: vhosts, users, exchanges, bindings and the homes of queues.
    pub directory: Directory,
    /// Orders the directory's changes, on shard 0.
    pub(crate) definitions: Definitions,
    /// The connections.
    pub connections: Connections,
    /// The queues, and what is on its way between them.
    pub homes: Homes,
    /// The logs that the shard drives.
    pub(crate) journal: Journal,
    /// What these share.
    pub shard: Shard,
}

impl Broker {
    /// A broker without vhosts, users and connections.
    #[must_use]
    pub fn new(settings: Settings) -> Broker {
        let (hash, shard) = (settings.hash, settings.shard);
        let mut directory = Directory::new(hash, settings.shards);
        directory.set_capacity(settings.limits.capacity);
        directory.set_slice(settings.limits.bindings_at_once);
        Broker {
            directory,
            definitions: Definitions::new(hash),
            connections: Connections::new(hash, settings.secret, shard),
            homes: Homes::new(hash, shard),
            journal: Journal::default(),
            shard: Shard::new(settings),
        }
    }

    /// Has the commands of queues that are made here from now on written down, for tests.
    pub fn record_queues(&mut self, recorder: Arc<dyn Recorder>) {
        self.homes.recorder = Some(recorder);
    }

    /// The queues at work.
    #[inline]
    pub(crate) fn home(&mut self) -> HomeSide<'_> {
        HomeSide {
            homes: &mut self.homes,
            journal: &mut self.journal,
            shard: &mut self.shard,
            directory: &mut self.directory,
            connections: &mut self.connections,
        }
    }

    /// The sessions at work.
    #[inline]
    pub(crate) fn session(&mut self) -> SessionSide<'_> {
        SessionSide {
            connections: &mut self.connections,
            homes: &mut self.homes,
            journal: &mut self.journal,
            shard: &mut self.shard,
            directory: &mut self.directory,
        }
    }

    /// This shard.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard.id
    }

    /// What it was started with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shard.settings
    }

    /// The queues whose home is here, with their ids.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.homes.queues.iter().map(|(_, home)| (home.id, &home.queue))
    }

    /// The queue with this id, if its home is here.
    #[must_use]
    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        let slot = self.homes.slot_of(id, u32::MAX)?;
        self.homes.queues.get(slot as usize).map(|home| &home.queue)
    }

    /// Takes over what exists at a start, before the shard serves anyone: the same on every shard. Who may log in
    /// and how is set afterwards.
    ///
    /// # Panics
    /// If there is something already.
    pub fn begin_with(&mut self, now: Now, directory: Directory, out: &mut Outbox) {
        assert!(self.directory.object_count() == 0, "nothing was declared before");
        let limits = &self.shard.settings.limits;
        self.directory = directory;
        self.directory.settle(limits.capacity, limits.bindings_at_once);
        let shard = self.shard.id;
        let places = 0..self.directory.queue_places();
        let is_own =
            |place: &usize| self.directory.queue_at(*place).is_some_and(|info| info.home == shard);
        let own = places.clone().filter(is_own).count();
        self.homes.slots.prepare(own);
        for place in places {
            self.home().make_home(now, place, out);
        }
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
        let mut options = self.shard.settings.server.clone();
        if self.directory.anonymous().is_some() {
            options.mechanisms.push_str(" ANONYMOUS");
        }
        if peer.tls.as_ref().is_some_and(|tls| tls.login_name.is_some()) {
            options.mechanisms.push_str(" EXTERNAL");
        }
        let session = Speaker::Amqp(Box::new(Amqp::new(&options, now.instant)));
        self.accept_speaker(now, id, peer, session, out)
    }

    /// A connection was accepted whose client speaks something else than AMQP 0-9-1.
    pub fn accept_session(
        &mut self,
        now: Now,
        id: ConnectionId,
        peer: PeerInfo,
        session: Box<dyn Session>,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        self.accept_speaker(now, id, peer, Speaker::Other(session), out)
    }

    fn accept_speaker(
        &mut self,
        now: Now,
        id: ConnectionId,
        peer: PeerInfo,
        session: Speaker,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        let connection = Box::new(Connection::new(id, peer, session, now.wall_millis));
        let slot = self.connections.all.insert(connection) as u32;
        self.connections.by_id.insert(id, slot);
        self.connections.arm(&mut self.shard, slot);
        self.connections.looks.arm(now, &mut self.shard.timers);
        self.connections.recount(&mut self.shard, slot);
        if self.shard.stopping {
            out.close.push(ConnectionSlot(slot));
        }
        ConnectionSlot(slot)
    }

    /// Whether publishers are blocked because memory is short.
    #[must_use]
    pub fn is_short_of_memory(&self) -> bool {
        self.shard.backpressure.is_memory_short()
    }

    /// Whether connections that have not opened a vhost hold more memory than they may: then some
    /// of them have to give way.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.shard.entering_bytes > self.shard.limits.entering_bytes_max()
    }

    /// Whether the client has logged in and opened a vhost, and is not at its end: it counts for limits,
    /// and nobody waits only for what it does to its socket.
    #[must_use]
    pub fn is_open(&self, slot: ConnectionSlot) -> bool {
        let connection = self.connections.all.get(slot.0 as usize);
        connection.is_some_and(|connection| {
            let is_over = matches!(
                connection.session.state(),
                State::Closing | State::Leaving | State::Closed
            );
            !connection.vhost_name.is_empty() && !is_over
        })
    }

    /// Whether the client has asked for the end of the connection and the answer is not on its way.
    #[must_use]
    pub fn owes_end(&self, slot: ConnectionSlot) -> bool {
        self.connections.all.get(slot.0 as usize).is_some_and(|connection| {
            connection.end == Some(ConnectionEnd::ByClient)
                && (connection.session.state() == State::PeerClosing || !connection.send.is_empty())
        })
    }

    /// Whether the connection is closed because the client did not answer the broker's close in time.
    #[must_use]
    pub fn gave_up(&self, slot: ConnectionSlot) -> bool {
        let connection = self.connections.all.get(slot.0 as usize);
        connection.is_some_and(|connection| connection.gave_up)
    }

    /// The driver holds so many bytes for a connection, beside those that were not consumed: a stage of
    /// its own between the socket and here.
    pub fn driver_holds(&mut self, slot: ConnectionSlot, bytes: usize) {
        let Some(connection) = self.connections.all.get_mut(slot.index()) else { return };
        connection.apart_bytes = bytes + connection.client_properties().bytes().len();
        self.connections.recount(&mut self.shard, slot.0);
    }

    /// Bytes came from a client. Returns how many were consumed; the driver keeps the rest and
    /// offers it again together with what follows (or when the connection is resumed). It takes no
    /// more of them than are work for one turn: the connection is paused then, and resumed by
    /// [`Broker::flush`].
    pub fn received(
        &mut self,
        now: Now,
        slot: ConnectionSlot,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> usize {
        self.shard.now = now;
        let slot = slot.0;
        let mut consumed = 0;
        let unread_bytes_max = self.shard.limits.unread_bytes_max;
        self.session().press_mail(slot, out);
        self.shard.effort.begin_reading();
        while let Some(connection) = self.connections.all.get_mut(slot as usize) {
            if !connection.paused.is_empty() || connection.gone {
                break;
            }
            if self.shard.effort.has_read_enough() {
                self.connections.pause(&mut self.shard, slot, Cause::Turn, out);
                break;
            }
            if connection.send.backlog() > unread_bytes_max {
                self.connections.pause(&mut self.shard, slot, Cause::Unread, out);
                break;
            }
            let rest = &bytes[consumed..];
            let used = self.take_row(now, slot, rest, out);
            if used > 0 {
                consumed += used;
                continue;
            }
            let Some(connection) = self.connections.all.get_mut(slot as usize) else { break };
            let sent_before = connection.send.bytes.len();
            let (used, event) =
                connection.session.receive(now.instant, rest, &mut connection.send.bytes);
            let answered = connection.send.bytes.len() > sent_before;
            if let Some(to) = self.session().hand_over_target(now, slot, &event) {
                out.hand_over.push((ConnectionSlot(slot), to));
                break;
            }
            if let Event::Publish { publish, .. } = &event
                && self.connections.all[slot as usize].blocked
            {
                self.connections.pause(&mut self.shard, slot, Cause::Shortage, out);
                // One that was put together cannot be given back.
                if matches!(publish, Incoming::Borrowed(_)) {
                    break;
                }
            }
            consumed += used;
            let idle = used == 0 && matches!(event, Event::None);
            if answered {
                self.connections.mark_dirty(slot, out);
            }
            if idle {
                break;
            }
            if let Event::Publish { publish: Incoming::Borrowed(publish), .. } = event {
                self.session().on_event(now, slot, event, out);
                self.session().learn_publish(slot, rest, &publish);
            } else {
                self.session().on_event(now, slot, event, out);
            }
            self.carry_own_mail(now, out);
            if out.hand_over.last().is_some_and(|(moved, _)| moved.0 == slot) {
                break;
            }
        }
        self.connections.arm(&mut self.shard, slot);
        self.settle_down(now, out);
        self.shard.effort.end_reading();
        self.session().weigh(now, slot, bytes.len() - consumed, out);
        consumed
    }

    /// Takes frames at the start of `bytes` that are like those before. Returns the bytes they took.
    fn take_row(&mut self, now: Now, slot: u32, bytes: &[u8], out: &mut Outbox) -> usize {
        match bytes.get(10) {
            Some(40) => self.session().publish_row(now, slot, bytes, out),
            Some(80) => self.session().ack_row(now, slot, bytes, out),
            _ => 0,
        }
    }

    /// The socket is gone. Called once for each connection; its slot is free afterwards.
    pub fn closed(&mut self, now: Now, slot: ConnectionSlot, out: &mut Outbox) {
        let Some(connection) = self.connections.all.get_mut(slot.index()) else { return };
        connection.gone = true;
        connection.send.clear(&mut self.shard.pool);
        connection.leftover_bytes = 0;
        connection.apart_bytes = 0;
        self.connections.recount(&mut self.shard, slot.0);
        self.session().end_connection(now, slot.0, ConnectionEnd::Lost, out);
        self.settle_down(now, out);
    }

    /// What is to be sent to a client next.
    #[must_use]
    pub fn writable_bytes(&mut self, slot: ConnectionSlot) -> &[u8] {
        let (connections, pool) = (&mut self.connections.all, &mut self.shard.pool);
        if let Some(connection) = connections.get_mut(slot.index())
            && connection.send.is_streaming()
        {
            let connection = &mut **connection;
            connection.send.encode_next(pool, &connection.session);
            self.connections.recount(&mut self.shard, slot.0);
        }
        self.connections.all.get(slot.index()).map_or(&[], |connection| connection.send.unsent())
    }

    /// How many bytes are left to send to a client, those of large bodies included that are not encoded.
    #[must_use]
    pub fn bytes_to_send(&self, slot: ConnectionSlot) -> usize {
        self.connections.all.get(slot.index()).map_or(0, |connection| connection.send.len())
    }

    /// So many bytes of this shard's mail are on their way to others, or as emptied batches back.
    pub fn note_mail_on_its_way(&mut self, bytes: usize) {
        self.shard.mail_bytes = bytes;
    }

    /// The socket took some of what was to be sent.
    pub fn sent(&mut self, now: Now, slot: ConnectionSlot, bytes: usize, out: &mut Outbox) {
        let window = self.shard.limits.send_window_bytes;
        let Some(connection) = self.connections.all.get_mut(slot.index()) else { return };
        let was_streaming = connection.send.is_streaming();
        connection.send.advance(bytes);
        connection.dirty = !connection.send.is_empty();
        if bytes > 0 {
            connection.session.sent(now.instant);
        }
        if was_streaming && connection.dirty && out.dirty.last() != Some(&slot) {
            // The driver was given a part and does not know that there is more.
            out.dirty.push(slot);
        }
        let is_unread = connection.paused.has(Cause::Unread);
        let has_room = connection.send.len() <= window / 2;
        self.connections.note_spacious(&mut self.shard, slot.0, now);
        self.connections.recount(&mut self.shard, slot.0);
        if is_unread {
            self.session().resume_unread(slot.0, out);
        }
        if !has_room {
            return;
        }
        let Some(connection) = self.connections.all.get_mut(slot.index()) else { return };
        for (home, bytes) in connection.debts.drain(..) {
            let mail = Mail::Window { connection: connection.id, bytes };
            out.mail[home.index()].items.push(mail);
        }
        if !connection.stalled.is_empty() {
            self.session().resume_stalled(now, slot.0, out);
            self.settle_down(now, out);
        }
    }

    /// A change from the directory lane.
    pub fn change(&mut self, now: Now, change: &Arc<Change>, out: &mut Outbox) {
        self.apply(now, change, out);
        self.settle_down(now, out);
    }

    /// A disk operation of a log ended.
    pub fn disk_done(&mut self, now: Now, log: LogId, completion: Completion, out: &mut Outbox) {
        if log == DEFINITIONS_LOG {
            self.definitions_done(now, completion, out);
        } else {
            self.home().journal_done(now, log, completion, out);
        }
        self.settle_down(now, out);
    }

    /// The orderly end of the logs, once no connection is left and no shard owes anything. Cycles go
    /// on until [`Broker::is_closed`].
    pub fn close(&mut self, now: Now, out: &mut Outbox) {
        self.close_definitions(now, out);
        self.journal.close();
    }

    /// Whether the end of the logs is on the disk and no operation is under way.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.definitions.is_closed() && self.journal.is_closed()
    }

    /// The earliest moment at which [`Broker::timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        let logs = self.definitions.next_timeout().min(self.journal.next_timeout());
        let moves =
            self.connections.departures.next_timeout().min(self.homes.migrations.next_timeout());
        let timers = self.shard.timers.next().min(self.homes.delayed.next_timeout());
        timers
            .min(logs)
            .min(moves)
            .min(self.shard.alarm.next_timeout(self.shard.backpressure.shortage()))
    }

    /// Serves the timers that are due.
    pub fn timeout(&mut self, now: Now, out: &mut Outbox) {
        while let Some((at, timer)) = self.shard.timers.pop(now.instant) {
            match timer {
                Timer::Connection(slot, id) => {
                    self.session().connection_timeout(now, at, (slot, id), out)
                }
                Timer::Queue(slot, id) => self.home().queue_timeout(now, at, (slot, id), out),
                Timer::Letters(queue) => self.home().letters_due(now, queue),
                Timer::Looks => self.connections.looks.begin(),
                Timer::Oldest => self.homes.oldest.begin(),
                Timer::UnreadReplies => {
                    let timers = &mut self.shard.timers;
                    self.connections.unread_replies.tell_more(now, timers, out);
                }
                Timer::Trim => self.session().trim_buffers(now),
                Timer::Tables => self.home().look_at_tables(now),
            }
        }
        self.homes.delayed.look(now);
        self.settle_down(now, out);
    }

    /// One slice of whatever takes long. [`Broker::has_work`] tells whether more is left.
    pub fn work(&mut self, now: Now, out: &mut Outbox) {
        self.shard.effort.renew();
        self.home().work_on_queues(now, out);
        self.session().work_on_jobs(now, out);
        self.session().work_on_ends(now, out);
        self.home().work_on_orphans(out);
        self.session().work_on_settlings(now, out);
        self.home().work_on_delayed(now, out);
        self.work_on_definitions(now, out);
        self.session().work_on_looks(now, out);
        self.work_on_oldest();
        if !self.journal.closes() {
            self.homes.dead_letters.try_again();
        }
        self.journal.work(now, &mut out.disk);
        self.shard.work_on_pool();
        for _ in 0..self.shard.backpressure.commands_to_try() {
            let Some((from, queue, command)) = self.shard.backpressure.next_command() else {
                break;
            };
            if let Some(home) = self.home().command(now, from, queue, command, out) {
                self.carry_own_mail(now, out);
                self.home().pump(now, home, out);
            }
        }
        // Each of them gets on, however much the others do.
        self.shard.effort.renew();
        self.replay_parked(now, out);
        self.shard.effort.renew();
        self.settle_down(now, out);
    }

    /// The end of a cycle: confirms and commits go out.
    pub fn flush(&mut self, now: Now, out: &mut Outbox) {
        self.shard.now = now;
        self.session().end_turn(out);
        self.session().flush_confirms(now, out);
        self.session().count_grown(out);
        self.release_pressure(now, out);
        self.sweep_timers();
        self.close_surplus(now, out);
        self.settle_down(now, out);
        if self.connections.follow_ups.has_confirms() {
            self.session().flush_confirms(now, out);
        }
        self.depart(now, out);
        self.migrate(now, out);
        self.flush_definitions(now, out);
        if !self.changes_logs() {
            self.home().continue_close(now, out);
        }
        self.home().hear_logs(now, out);
        self.carry_own_mail(now, out);
        self.journal.flush(now, &mut out.disk);
        if self.connections.user_channels.has_changed() {
            self.session().tell_channels(out);
        }
        self.weigh_tables(now, out);
    }

    /// Follow-ups that calls leave behind: dead letters, parked frames, consumers with room again.
    pub(crate) fn settle_down(&mut self, now: Now, out: &mut Outbox) {
        // Bounded: what is left goes on in the next cycle through `work`.
        for _ in 0..4 {
            self.carry_own_mail(now, out);
            let more = self.home().route_dead_letters(now, out);
            for slot in self.connections.follow_ups.take_resumable() {
                self.session().resume_stalled(now, slot, out);
            }
            self.replay_parked(now, out);
            self.carry_own_mail(now, out);
            let is_quiet = !self.homes.dead_letters.has_any_to_send()
                && self.connections.follow_ups.is_quiet();
            if more || is_quiet {
                break;
            }
        }
    }
}
