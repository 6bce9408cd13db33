//! The memory that clients make a shard use: every byte of it is counted, when it changes.

use core::time::Duration;

use lepus_base::Now;

use crate::channel::Channel;
use crate::connection::Connection;
use crate::edge::Edge;
use crate::timers::Timer;

/// How long an empty send buffer keeps its memory, about.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of chunks that one slice of compaction frees at most.
const COMPACTED_AT_ONCE_BYTES: usize = 1024 * 1024;

impl Connection {
    /// Bytes that the client made the connection hold: half messages, frames that are not whole,
    /// parked frames, open transactions, what it has not read and not acknowledged, and the
    /// connection with its channels and consumers itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.send.memory_bytes()
            + self.session.held_bytes()
            + self.leftover_bytes
            + self.apart_bytes
            + self.parked_bytes
            + self.tx_bytes
            + self.table_bytes()
    }

    /// The same with all channels counted anew.
    pub(crate) fn memory_by_walk(&self) -> usize {
        let counted: usize = self.all_channels().map(|channel| channel.counted_bytes).sum();
        let real: usize = self.all_channels().map(Channel::memory_bytes).sum();
        self.memory_bytes() - counted + real
    }
}

impl Edge {
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
        self.held.publishers += u64::from(connection.publishes && !connection.counts_as_publisher);
        connection.counts_as_publisher = connection.publishes;
        let count = connection.channels.len();
        let before = core::mem::replace(&mut connection.counted_channels, count);
        self.held.channels = self.held.channels + count as u64 - before as u64;
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

    /// Takes a connection that leaves the shard out of the sums.
    pub(crate) fn forget_bytes(&mut self, connection: &mut Connection) {
        let bytes = core::mem::take(&mut connection.counted_bytes);
        match connection.vhost_name.is_empty() {
            true => self.entering_bytes -= bytes,
            false => self.connection_bytes -= bytes,
        }
        let channels = core::mem::take(&mut connection.counted_channels);
        self.held.channels -= channels as u64;
        self.held.publishers -= u64::from(core::mem::take(&mut connection.counts_as_publisher));
        connection.uncounted = true;
        if channels > 0 {
            self.user_channels.adjust(&connection.user, channels, 0);
        }
    }
}
