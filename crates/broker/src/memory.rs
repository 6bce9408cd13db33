//! The memory that clients make a shard use: every byte of it is counted, when it changes.

use crate::channel::Channel;
use crate::connection::Connection;

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
