//! What keeps the memory that connections take bounded: it is counted, and a client that does not
//! read, or that adds more than there is room for, is not read any further.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_amqp::ProtocolError;
use lepus_amqp::code::ReplyCode;
use lepus_base::{Now, QueueId, ShardId};

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::channel::Channel;
use crate::connection::Connection;
use crate::edge::Edge;
use crate::idle_tables::IDLE_INTERVAL;
use crate::journal::Left;
use crate::mail::{ChannelRef, Mail, MailBatch};
use crate::outbox::Outbox;
use crate::timers::Timer;

/// How long an empty send buffer keeps its memory, about.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of chunks that one slice of compaction frees at most.
const COMPACTED_AT_ONCE_BYTES: usize = 1024 * 1024;
/// A queue's tables of fewer bytes are left as they are.
const SPARE_BYTES: usize = 512;
/// Half a message below this size is not worth closing a connection for, in bytes.
const HALF_MESSAGE_BYTES_MIN: usize = 64 * 1024;

impl Connection {
    /// Bytes that the client made the connection hold: half messages, frames that are not whole,
    /// parked frames, open transactions, what it has not read and not acknowledged, and the
    /// connection with its channels and consumers itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.send.memory_bytes()
            + self.machine.held_bytes()
            + self.leftover_bytes
            + self.apart_bytes
            + self.parked_bytes
            + self.tx_bytes
            + self.table_bytes()
    }

    /// The same with all channels counted anew.
    fn memory_by_walk(&self) -> usize {
        let counted: usize = self.all_channels().map(|channel| channel.counted_bytes).sum();
        let real: usize = self.all_channels().map(Channel::memory_bytes).sum();
        self.memory_bytes() - counted + real
    }
}

impl Edge {
    /// Whether a connection must not be read any further: the client does not read its answers, or
    /// mail to some shard has no room.
    #[inline]
    pub(crate) fn must_press(&self, slot: u32, out: &Outbox) -> bool {
        let Some(connection) = self.connections.get(slot as usize) else { return true };
        connection.send.backlog() > self.limits.unread_bytes_max || self.is_mail_full(out)
    }

    /// Whether a connection has published to a shard whose log lags.
    pub(crate) fn feeds_lagging_shard(&self, slot: u32) -> bool {
        let Some(connection) = self.connections.get(slot as usize) else { return false };
        self.backpressure.is_log_late_among(&connection.touched)
    }

    /// Whether the mail to some shard has no room.
    #[inline]
    fn is_mail_full(&self, out: &Outbox) -> bool {
        let limit = self.limits.mail_batch_bytes_max;
        self.resting_bytes > limit || out.mail.iter().any(|batch| batch.weight() > limit)
    }

    /// Brings the shard's sum up to date with one connection.
    #[inline]
    pub(crate) fn recount(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let bytes = connection.memory_bytes();
        connection.counted_capacity = connection.send.bytes.capacity();
        if connection.uncounted {
            return self.count(slot, bytes);
        }
        self.connection_bytes = self.connection_bytes + bytes - connection.counted_bytes;
        connection.counted_bytes = bytes;
    }

    /// Counts a connection that has no vhost yet, or whose channels are not counted.
    #[cold]
    fn count(&mut self, slot: u32, bytes: usize) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let before = core::mem::replace(&mut connection.counted_bytes, bytes);
        if connection.vhost_name.is_empty() {
            self.entering_bytes = self.entering_bytes + bytes - before;
            return;
        }
        self.connection_bytes = self.connection_bytes + bytes - before;
        connection.uncounted = false;
        let count = connection.channels.len();
        let before = core::mem::replace(&mut connection.counted_channels, count);
        if before != count {
            self.user_channels.adjust(&connection.user, before, count);
        }
    }

    /// A connection is about to open its vhost: it does not count among those any more that have
    /// not.
    pub(crate) fn let_in(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        self.entering_bytes -= core::mem::take(&mut connection.counted_bytes);
    }

    /// Notes a send buffer that is empty and keeps its memory, to be looked at again.
    #[inline]
    pub(crate) fn note_spacious(&mut self, slot: u32, now: Now) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.spacious || !connection.send.is_empty() || !connection.send.is_spacious() {
            return;
        }
        connection.spacious = true;
        if self.spacious.is_empty() {
            self.timers.arm(now.instant + TRIM_INTERVAL, Timer::Trim);
        }
        self.spacious.push((slot, connection.id));
    }

    /// Whether memory is used that few bodies keep, and so much in all that it matters: well before
    /// anything is spilled or anybody is blocked for it.
    #[must_use]
    #[inline]
    pub fn must_compact(&self) -> bool {
        self.pool.is_sparse() && self.memory() >= self.spilling_bytes() / 2
    }

    /// A slice of making the pool smaller.
    pub(crate) fn work_on_pool(&mut self) {
        if self.must_compact() {
            self.pool.compact(COMPACTED_AT_ONCE_BYTES);
        }
    }

    /// Gives memory back that is kept for what comes next, when there is little left.
    pub(crate) fn give_spare(&mut self) {
        let limit = self.loan.obtainable;
        if self.memory() + self.pool.spare() > limit - limit / 10 {
            self.pool.give_back();
        }
    }

    /// Takes a connection that leaves the shard out of the sum.
    pub(crate) fn forget_bytes(&mut self, connection: &mut Connection) {
        let bytes = core::mem::take(&mut connection.counted_bytes);
        match connection.vhost_name.is_empty() {
            true => self.entering_bytes -= bytes,
            false => self.connection_bytes -= bytes,
        }
        let channels = core::mem::take(&mut connection.counted_channels);
        connection.uncounted = true;
        if channels > 0 {
            self.user_channels.adjust(&connection.user, channels, 0);
        }
    }
}

impl Broker {
    /// Brings the sums of tables up to date at the end of a cycle: those of queues that were used, and
    /// what costs no walk to tell.
    pub(crate) fn weigh_tables(&mut self, now: Now, out: &Outbox) {
        let edge = &mut self.edge;
        let mut unweighed = core::mem::take(&mut edge.unweighed);
        for slot in unweighed.drain(..) {
            let Some(home) = self.homes.get_mut(slot as usize) else { continue };
            home.weigh(edge);
            if home.note_spare(SPARE_BYTES) && self.idle_tables.note(slot, home.id) {
                edge.timers.arm(now.instant + IDLE_INTERVAL, Timer::Tables);
            }
        }
        edge.unweighed = unweighed;
        edge.log_bytes = self.journal.memory_bytes()
            + edge.dead_letters.ledger_bytes()
            + self.delayed.memory_bytes();
        let mail: usize = out.mail.iter().map(MailBatch::weight).sum();
        edge.table_bytes = self.directory.bytes()
            + self.home_slots.memory_bytes()
            + self.idle_tables.memory_bytes()
            + self.postponed.memory_bytes()
            + self.jobs.memory_bytes()
            + self.spilling.len() * size_of::<QueueId>()
            + edge.timers.memory_bytes()
            + edge.by_id.allocation_size()
            + edge.remote_consumers.allocation_size()
            + edge.remote_windows.allocation_size()
            + edge.backpressure.memory_bytes()
            + edge.dead_letters.memory_bytes()
            + edge.resting_bytes
            + mail;
    }

    /// Queues that were not used since the last look give spare room in their tables back.
    pub(crate) fn look_at_tables(&mut self, now: Now) {
        let (homes, edge) = (&mut self.homes, &mut self.edge);
        let next = self.idle_tables.look(|slot, id| {
            let home = homes.get_mut(slot as usize).filter(|home| home.id == id);
            home.map_or(Some(0), |home| home.give_spare(edge))
        });
        if let Some(pause) = next {
            self.edge.timers.arm(now.instant + pause, Timer::Tables);
        }
    }

    /// What [`Edge::memory`] would be if everything was counted anew, by a walk over all.
    #[must_use]
    pub fn memory_by_walk(&self) -> usize {
        let edge = &self.edge;
        let all = edge.connections.iter().map(|(_, connection)| connection);
        let open = all.filter(|connection| !connection.vhost_name.is_empty());
        let connections: usize = open.map(|connection| connection.memory_by_walk()).sum();
        let homes: usize = self.homes.iter().map(|(_, home)| home.memory_bytes()).sum();
        let dead = self.working.deleted_bytes();
        let logs = self.journal.memory_by_walk()
            + edge.dead_letters.ledger_bytes()
            + self.delayed.memory_bytes();
        let counted = edge.connection_bytes + edge.queue_bytes + edge.log_bytes;
        edge.memory() - counted + connections + homes + dead + logs
    }

    /// Gives the memory of empty send buffers back; busy ones are looked at again.
    pub(crate) fn trim_buffers(&mut self, now: Now) {
        for (slot, id) in core::mem::take(&mut self.edge.spacious) {
            let Some(connection) = self.edge.connection_at(slot, id) else { continue };
            connection.spacious = false;
            connection.send.shrink();
            self.edge.recount(slot);
            self.edge.note_spacious(slot, now);
        }
    }

    /// Counts send buffers that have grown, whether their sockets take bytes or not.
    pub(crate) fn count_grown(&mut self, out: &mut Outbox) {
        for slot in out.grown.drain(..) {
            self.edge.recount(slot.0);
        }
    }

    /// Tells the other shards when a log here begins to lag, and when it has caught up: their clients publish to it,
    /// too, and what they send lies in memory until it is written.
    pub(crate) fn tell_backlog(&mut self, out: &mut Outbox) {
        let lags = match self.edge.backpressure.is_log_late() {
            true => !self.journal.has_caught_up(),
            false => self.journal.is_behind(),
        };
        if !self.edge.backpressure.set_log_late(lags) {
            return;
        }
        let own = self.edge.shard;
        for shard in (0..self.settings.shards).map(ShardId).filter(|&shard| shard != own) {
            out.mail[shard.index()].items.push(Mail::LogLags(lags));
        }
    }

    /// Reads publishers again that were paused for a log, here or on other shards, where none of theirs lags any more.
    pub(crate) fn resume_loggers(&mut self, out: &mut Outbox) {
        let edge = &mut self.edge;
        for (slot, id) in edge.backpressure.look_at_logs() {
            if edge.connection_at(slot, id).is_none() {
                continue;
            }
            if edge.feeds_lagging_shard(slot) {
                edge.backpressure.keep_waiting_for_log((slot, id));
            } else {
                edge.resume(slot, Cause::Log, out);
            }
        }
    }

    /// Lets dead letters, mail and jobs go on that waited for room in a log, as far as there
    /// is some.
    pub(crate) fn give_room(&mut self, now: Now, out: &mut Outbox) {
        self.journal.forget_wishes();
        self.look_for_memory();
        self.look_for_room_anew();
        self.give_letters_room();
        let journal = &mut self.journal;
        self.delayed.let_pass(|logs| journal.is_full(logs));
        self.delayed.give_room(|need, frees| !journal.must_wait_to_pass_on(need, frees));
        self.enqueue_postponed(now, out);
        self.give_jobs_room(now, out);
    }

    /// Lets those look anew who wait for room in a log for a transient queue whose messages may stay in memory
    /// again.
    fn look_for_memory(&mut self) {
        if self.spilling.is_empty() || self.edge.must_spill(0) {
            return;
        }
        for id in core::mem::take(&mut self.spilling) {
            let slot = self.home_slot(id, u32::MAX);
            let Some(home) = slot.and_then(|slot| self.homes.get(slot as usize)) else { continue };
            let (log, pooled) = (home.log, home.queue.pooled_bytes());
            if self.edge.must_spill(pooled) {
                self.spilling.insert(id);
            } else {
                self.queue_left(id, log);
            }
        }
    }

    /// A queue is gone, deleted or on its way to another shard, and with it a reason to wait for room in this
    /// log.
    pub(crate) fn queue_left(&mut self, id: QueueId, log: u16) {
        self.spilling.remove(&id);
        self.edge.dead_letters.target_left(id);
        self.delayed.target_left(id);
        self.journal.note_left(log);
    }

    /// The same. Those come and go all the time for which messages do not `always` need room in this log: queues
    /// that are not durable, for which they need it only where memory is short, and those of other shards.
    pub(crate) fn home_left(&mut self, id: QueueId, log: u16, always: bool) {
        if always || self.spilling.contains(&id) {
            self.queue_left(id, log);
        } else {
            self.edge.dead_letters.target_left(id);
            self.delayed.target_left(id);
            self.journal.note_left_by_commits(log);
        }
    }

    /// Who waits for room in logs that queues have left, and for what queues is not known, finds out anew where it
    /// is needed.
    fn look_for_room_anew(&mut self) {
        let Left { all, commits } = self.journal.take_left();
        if !commits.is_empty() {
            self.postponed.look_anew(all, commits);
            self.jobs.look_anew(all, commits);
        }
    }

    /// Stops reading a client that does not read its answers. True when it is to wait.
    pub(crate) fn must_wait(&mut self, slot: u32, out: &mut Outbox) -> bool {
        let limit = self.edge.limits.unread_bytes_max;
        let Some(connection) = self.edge.connections.get(slot as usize) else { return false };
        if connection.end.is_some() {
            // Nothing is asked any more, and nothing that was asked is to wait for ever.
            return false;
        }
        if connection.send.backlog() > limit {
            self.edge.pause(slot, Cause::Unread, out);
            return true;
        }
        false
    }

    /// Reads a client again that has read enough of what was sent to it.
    pub(crate) fn resume_unread(&mut self, slot: u32, out: &mut Outbox) {
        let limit = self.edge.limits.unread_bytes_max;
        let shard = self.edge.shard;
        let Some(connection) = self.edge.connections.get(slot as usize) else { return };
        if connection.send.backlog() > limit / 2 {
            return;
        }
        let id = connection.id;
        let waiting: Vec<ChannelRef> = connection
            .open_channels()
            .filter(|channel| !channel.parked.is_empty() && channel.pending.is_none())
            .map(|channel| ChannelRef { shard, connection: id, channel: channel.key })
            .collect();
        for channel in waiting {
            self.unpark(slot, channel);
        }
        self.edge.resume(slot, Cause::Unread, out);
    }

    /// Pauses a client while the mail to some shard has no room.
    pub(crate) fn press_mail(&mut self, slot: u32, out: &mut Outbox) {
        if self.edge.is_mail_full(out) {
            self.edge.pause(slot, Cause::Mail, out);
        }
    }

    /// Counts a connection anew after bytes came in. One that is in the middle of a message is
    /// closed when the shard's memory is used up so far that not even one more message has room:
    /// blocked publishers may end what they began, and many of them together could take any
    /// amount.
    #[inline]
    pub(crate) fn weigh(&mut self, now: Now, slot: u32, leftover: usize, out: &mut Outbox) {
        let Some(connection) = self.edge.connections.get_mut(slot as usize) else { return };
        connection.leftover_bytes = leftover;
        let held = connection.machine.held_bytes();
        let ends = connection.end.is_some();
        self.edge.recount(slot);
        if held < HALF_MESSAGE_BYTES_MIN || ends {
            return;
        }
        let limit = self.edge.loan.obtainable;
        let body_bytes_max = self.settings.server.body_bytes_max as usize;
        if self.edge.memory() > (limit + limit / 4).saturating_add(body_bytes_max) {
            let text = format!("no memory for the rest of a message after {held} bytes");
            let error = ProtocolError::new(ReplyCode::RESOURCE_ERROR, text);
            self.fail_connection(now, slot, error.caused_by(60, 40), out);
            self.edge.recount(slot);
        }
    }
}
