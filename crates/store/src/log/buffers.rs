//! What of a log is in memory: not written yet, or written shortly before.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use lepus_base::Position;

use super::{Log, SPARE_BUFFERS_MAX};
use crate::place::position;
use crate::segment::BATCH_HEADER_BYTES;

impl Log {
    /// Drops the oldest buffers beyond the budget.
    pub(super) fn forget(&mut self) {
        while self.recent_bytes > self.settings.cache_bytes / 2 {
            let Some(batch) = self.recent.pop_front() else { break };
            self.recent_bytes -= batch.bytes.capacity();
            if self.buffers.len() < SPARE_BUFFERS_MAX
                && let Ok(bytes) = Arc::try_unwrap(batch.bytes)
                && bytes.capacity() <= 2 * self.settings.batch_bytes_max
            {
                self.buffers.push(bytes);
            }
        }
    }

    /// The bytes from `at` to the end of its batch, if they are still in memory.
    pub(crate) fn read(&self, at: Position) -> Option<&[u8]> {
        if !self.open.bytes.is_empty() {
            let start = position(self.open.generation, self.open.offset);
            if at >= start {
                return self.open.bytes.get((at.0 - start.0) as usize..);
            }
        }
        let list = match self.closed.front() {
            Some(first) if at >= first.start() => &self.closed,
            // Who reads a backlog looks here for every message.
            _ if at < self.recent.front()?.start() => return None,
            _ => &self.recent,
        };
        let index = list.partition_point(|batch| batch.start() <= at).checked_sub(1)?;
        let batch = &list[index];
        let start = (at.0 - batch.start().0) as usize;
        batch.bytes.get(start..batch.length)
    }

    /// Puts what is in memory of a segment where it belongs in `image`, the segment's bytes. Where the
    /// records of the batch lie that is still open, whose header is not known.
    pub(crate) fn overlay(&self, generation: u32, image: &mut Vec<u8>) -> Range<usize> {
        let mut put = |offset: u32, bytes: &[u8]| {
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            image.resize(image.len().max(end), 0);
            image[start..end].copy_from_slice(bytes);
            end
        };
        for batch in self.closed.iter().filter(|batch| batch.generation == generation) {
            put(batch.offset, &batch.bytes);
        }
        let open = &self.open;
        if open.generation != generation || open.bytes.is_empty() {
            return 0..0;
        }
        let end = put(open.offset, &open.bytes);
        open.offset as usize + open.header_at + BATCH_HEADER_BYTES..end
    }

    /// Bytes appended and not yet written.
    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.open.bytes.len() + self.closed.iter().map(|batch| batch.bytes.len()).sum::<usize>()
    }

    /// Memory of all buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        let spare: usize = self.buffers.iter().map(Vec::capacity).sum();
        let closed: usize = self.closed.iter().map(|batch| batch.bytes.capacity()).sum();
        self.open.bytes.capacity() + spare + closed + self.recent_bytes
    }
}
