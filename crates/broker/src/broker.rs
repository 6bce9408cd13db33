//! The broker on one shard: a function of its inputs.
//!
//! The driver calls [`Broker::accept`], [`Broker::received`], [`Broker::sent`] and
//! [`Broker::closed`] for its sockets, [`Broker::change`] for the directory lane,
//! [`Broker::mail`] for mail, [`Broker::timeout`] when [`Broker::next_timeout`] has come,
//! [`Broker::work`] once a cycle, and [`Broker::flush`] at its end. Every call may push effects
//! into the [`Outbox`]; none of them blocks, fails or reads a clock.

mod inbox;
mod query;
mod route_test;
mod sequencer;

pub use crate::sessions::hand_over::MovingConnection;

use alloc::boxed::Box;
use alloc::sync::Arc;

use lepus_base::{ConnectionId, Instant, Now, QueueId, ShardId};
use lepus_store::disk::{Completion, LogId};

use crate::backpressure::Cause;
use crate::connection::PeerInfo;
use crate::connections::Connections;
use crate::definitions::{Definitions, LOG as DEFINITIONS_LOG};
use crate::directory::{Change, Directory};
use crate::homes::{HomeSide, Homes};
use crate::journal::Journal;
use crate::mail::Mail;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::queue::Queue;
use crate::session::Session;
use crate::sessions::reading::Read;
use crate::sessions::{SessionSide, Sessions};
use crate::settings::Settings;
use crate::shard::Shard;
use crate::timers::Timer;
use crate::view::View;

/// What is spent in a turn on tidying up filters of bindings, in steps of some ten nanoseconds.
const TIDY_STEPS: usize = 8_192;

/// The broker's state on one shard.
#[derive(Debug)]
pub struct Broker {
    /// The directory: vhosts, users, exchanges, bindings and the homes of queues.
    pub directory: Directory,
    /// Orders the directory's changes, on shard 0.
    pub definitions: Definitions,
    /// The connections.
    pub connections: Connections,
    /// What the sessions have to do for them.
    pub(crate) sessions: Sessions,
    /// The queues, and what is on its way between them.
    pub homes: Homes,
    /// The logs that the shard drives.
    pub journal: Journal,
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
            definitions: Definitions::new(hash, shard, settings.shards),
            connections: Connections::new(hash),
            sessions: Sessions::new(hash, settings.secret, shard),
            homes: Homes::new(hash, shard),
            journal: Journal::default(),
            shard: Shard::new(settings),
        }
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
            sessions: &mut self.sessions,
            connections: &mut self.connections,
            homes: &mut self.homes,
            journal: &mut self.journal,
            shard: &mut self.shard,
            directory: &mut self.directory,
        }
    }

    /// All of it but the definitions, to be read: figures, lists, sums, who has work.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            connections: &self.connections,
            sessions: &self.sessions,
            homes: &self.homes,
            journal: &self.journal,
            directory: &self.directory,
            shard: &self.shard,
        }
    }

    /// Whether [`Broker::work`] or [`Broker::flush`] would get on with something now. To be asked
    /// at the very end of a cycle: what the driver does after them leaves work, too.
    #[must_use]
    pub fn has_work(&self, out: &Outbox) -> bool {
        self.definitions.has_work()
            || self.directory.has_untidy_filters()
            || self.view().has_work(out)
    }

    /// The queue with this id, if its home is here.
    #[must_use]
    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.homes.find(id).map(|home| &home.queue)
    }

    /// Applies changes before the shard serves anyone: the same on every shard.
    pub fn preset(&mut self, now: Now, changes: &[Change], out: &mut Outbox) {
        for change in changes {
            self.apply(now, change, out);
        }
    }

    /// A connection was accepted, whose client speaks AMQP 0-9-1 unless `other` says how it speaks.
    pub fn accept(
        &mut self,
        now: Now,
        id: ConnectionId,
        peer: PeerInfo,
        other: Option<Box<dyn Session>>,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        self.shard.now = now;
        self.session().accept(now, id, peer, other, out)
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
        let (slot, mut consumed) = (slot.0, 0);
        self.session().begin_reading(slot, out);
        while let Some(more) = self.session().read_next(now, slot, &bytes[consumed..], out) {
            consumed += more.bytes();
            if let Read::Event { is_last, .. } = more {
                self.carry_own_mail(now, out);
                if is_last || self.session().is_leaving(slot, out) {
                    break;
                }
            }
        }
        self.connections.arm(&mut self.shard, slot);
        self.run_follow_ups(now, out);
        self.session().end_reading(now, slot, (consumed, bytes.len() - consumed), out);
        consumed
    }

    /// The socket took some of what was to be sent.
    pub fn sent(&mut self, now: Now, slot: ConnectionSlot, bytes: usize, out: &mut Outbox) {
        self.shard.now = now;
        if self.session().sent(now, slot, bytes, out) {
            self.run_follow_ups(now, out);
        }
    }

    /// The socket is gone. Called once for each connection; its slot is free afterwards.
    pub fn closed(&mut self, now: Now, slot: ConnectionSlot, out: &mut Outbox) {
        self.shard.now = now;
        self.session().closed(now, slot, out);
        self.run_follow_ups(now, out);
    }

    /// Takes a connection off this shard. Call it for what the outbox asked to hand over. `None`
    /// where it is gone or cannot go any more; then it is served as before.
    pub fn release(&mut self, slot: ConnectionSlot) -> Option<MovingConnection> {
        self.session().release(slot)
    }

    /// Takes a connection over from another shard.
    pub fn adopt(
        &mut self,
        now: Now,
        moving: MovingConnection,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        self.shard.now = now;
        self.session().adopt(now, moving, out)
    }

    /// A change from the directory lane.
    pub fn change(&mut self, now: Now, change: &Arc<Change>, out: &mut Outbox) {
        self.shard.now = now;
        self.apply(now, change, out);
        if let Some(count) = self.definitions.follow(change) {
            out.send(self.shard.id, ShardId(0), Mail::ChangesApplied { count });
        }
        self.run_follow_ups(now, out);
    }

    /// A disk operation of a log ended.
    pub fn disk_done(&mut self, now: Now, log: LogId, completion: Completion, out: &mut Outbox) {
        self.shard.now = now;
        if log != DEFINITIONS_LOG {
            self.home().journal_done(now, log, completion, out);
        } else if self.definitions.complete(now, completion, &mut out.disk) {
            self.definitions.tell_failure(out);
            self.advance(now, out);
        }
        self.run_follow_ups(now, out);
    }

    /// The broker stops: all clients are told, new ones are refused. Queues whose move is not decided yet stay, and
    /// what waits for them goes on.
    pub fn shut_down(&mut self, now: Now, out: &mut Outbox) {
        self.shard.now = now;
        self.shard.stopping = true;
        for origin in self.definitions.take_moves() {
            self.definitions.answer(self.shard.id, origin, Err(sequencer::stays()), out);
        }
        self.session().tell_shut_down(now, out);
    }

    /// The orderly end of the logs, once no connection is left and no shard owes anything. Cycles go
    /// on until [`Broker::is_closed`].
    pub fn close(&mut self, now: Now, out: &mut Outbox) {
        self.shard.now = now;
        self.definitions.close();
        self.flush_definitions(now, out);
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
        let shortage = self.shard.backpressure.shortage();
        let of_owners = [
            self.definitions.next_timeout(),
            self.journal.next_timeout(),
            self.sessions.next_timeout(),
            self.homes.next_timeout(),
            self.shard.alarm.next_timeout(shortage),
        ];
        of_owners.into_iter().fold(self.shard.timers.next(), Instant::min)
    }

    /// Serves the timers that are due.
    pub fn timeout(&mut self, now: Now, out: &mut Outbox) {
        self.shard.now = now;
        while let Some((at, timer)) = self.shard.timers.pop(now.instant) {
            match timer {
                Timer::Connection(slot, id) => {
                    self.session().connection_timeout(now, at, (slot, id), out);
                }
                Timer::Queue(slot, id) => self.home().queue_timeout(now, at, (slot, id), out),
                Timer::Letters(queue) => self.home().letters_due(now, queue),
                Timer::Looks => self.session().begin_looks(),
                Timer::Oldest => self.home().begin_oldest(),
                Timer::UnreadReplies => self.session().tell_unread_replies(now, out),
                Timer::Trim => self.session().trim_buffers(now),
                Timer::Tables => self.home().look_at_tables(now),
                Timer::Selectors => self.home().look_at_selectors(now, out),
                Timer::FilterCosts => self.shard.filter_costs.review(),
            }
        }
        self.home().look_at_delayed(now);
        self.run_follow_ups(now, out);
    }

    /// One slice of whatever takes long. [`Broker::has_work`] tells whether more is left.
    pub fn work(&mut self, now: Now, out: &mut Outbox) {
        self.shard.now = now;
        self.shard.effort.renew();
        self.home().work_on_queues(now, out);
        self.home().work_on_policies(now, out);
        self.session().work_on_jobs(now, out);
        self.session().work_on_ends(now, out);
        self.home().work_on_orphans(out);
        self.session().work_on_settlings(now, out);
        self.home().work_on_delayed(now, out);
        self.work_on_definitions(now, out);
        self.directory.tidy_filters(TIDY_STEPS);
        self.session().work_on_looks(now, out);
        self.home().work_on_oldest();
        self.home().retry_dead_letters();
        self.journal.work(now, &mut out.disk);
        self.shard.work_on_pool();
        for _ in 0..self.shard.backpressure.commands_to_try() {
            let Some((from, queue, command)) = self.shard.backpressure.next_command() else {
                break;
            };
            let home = self.home().command(now, from, queue, command, out);
            self.dispatch_after_mail(now, home, out);
        }
        // Each of them gets on, however much the others do.
        self.shard.effort.renew();
        self.replay_parked(now, out);
        self.shard.effort.renew();
        self.run_follow_ups(now, out);
    }

    /// The end of a cycle: confirms and commits go out.
    pub fn flush(&mut self, now: Now, out: &mut Outbox) {
        self.shard.now = now;
        self.session().end_turn(out);
        self.shard.tell_filters(now, &self.directory, out);
        self.session().flush_confirms(now, out);
        self.session().count_grown(out);
        self.release_pressure(now, out);
        self.home().sweep_timers();
        self.session().close_surplus(now, out);
        self.run_follow_ups(now, out);
        self.session().flush_confirms_left(now, out);
        self.session().depart(now, out);
        self.home().migrate(now, out);
        self.flush_definitions(now, out);
        if !self.view().changes_logs() {
            self.home().continue_close(now, out);
        }
        self.home().drain_log_events(now, out);
        self.carry_own_mail(now, out);
        self.journal.flush(now, &mut out.disk);
        self.session().tell_channels(out);
        self.home().answer_policies(now, out);
        self.home().account_tables(now, out);
    }

    /// Reads publishers again when memory or mail has room, and lets go on what waited for room in a log.
    fn release_pressure(&mut self, now: Now, out: &mut Outbox) {
        self.home().find_shortage(now, out);
        self.connections.unblock_all(&mut self.shard, out);
        if self.journal.is_on() {
            self.home().give_room(now, out);
            let waiting = self.home().postponed_publishers();
            self.session().end_lost_of(now, waiting, out);
            let waiting = self.home().give_jobs_room();
            self.session().end_lost_of(now, waiting, out);
        }
        self.home().tell_backlog(out);
        self.session().resume_loggers(out);
        if self.shard.backpressure.waits_for_mail()
            && self.shard.conditions(&self.journal, out).may_read_again()
        {
            self.home().resume_behind_mail(now, out);
            let waiting = self.shard.backpressure.end_mail();
            self.connections.resume_all(&mut self.shard, waiting, Cause::Mail, out);
        }
    }

    /// Handles frames that were parked behind questions that are answered now.
    fn replay_parked(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..self.connections.channels_to_unpark() {
            let Some(mut replay) = self.session().begin_replay() else { return };
            while self.session().replay_next(now, &mut replay, out) {
                self.carry_own_mail(now, out);
            }
            self.session().end_replay(replay, out);
        }
        self.carry_own_mail(now, out);
    }

    /// Follow-ups that calls leave behind: dead letters, parked frames, consumers with room again.
    pub(crate) fn run_follow_ups(&mut self, now: Now, out: &mut Outbox) {
        // Bounded: what is left goes on in the next cycle through `work`.
        for _ in 0..4 {
            self.carry_own_mail(now, out);
            let more = self.home().route_dead_letters(now, out);
            self.session().resume_with_room(now, out);
            self.replay_parked(now, out);
            let is_quiet =
                !self.homes.dead_letters().has_any_to_send() && self.connections.is_quiet();
            if more || is_quiet {
                break;
            }
        }
    }
}
