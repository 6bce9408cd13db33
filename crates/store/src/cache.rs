//! Messages read back from segments: blocks with read-ahead, within a budget.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lepus_base::Position;

use crate::disk::OperationId;

/// Names remembered at most.
const NAMES_MAX: usize = 1024;
/// Blocks kept whatever the budget: a message and the record that lends it its names.
const BLOCKS_MIN: usize = 2;
/// Fragmented messages kept whole at most.
const LARGE_MAX: usize = 8;

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    used: u64,
}

/// A read on its way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: OperationId,
    start: Position,
    length: usize,
}

/// A fragmented message, as far as it is put together.
#[derive(Debug, Default)]
pub(crate) struct Large {
    /// Payload of its first record.
    pub first: Vec<u8>,
    pub body: Vec<u8>,
    /// Length of the whole body.
    pub total: usize,
    /// The segment of its last fragment so far.
    pub generation: u32,
}

/// Exchange and routing key in one piece, and the length of the first.
type StoredNames = (u8, Box<[u8]>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    blocks: BTreeMap<Position, Block>,
    bytes: usize,
    clock: u64,
    pending: Vec<Pending>,
    names: BTreeMap<Position, StoredNames>,
    large: BTreeMap<Position, Large>,
    /// Bytes read so far.
    pub bytes_read: u64,
}

impl Cache {
    /// What was read at `at`, as far as the block reaches.
    pub(crate) fn read(&self, at: Position) -> Option<&[u8]> {
        let (start, block) = self.blocks.range(..=at).next_back()?;
        block.bytes.get((at.0 - start.0) as usize..).filter(|bytes| !bytes.is_empty())
    }

    /// Marks the block of `at` as used.
    pub(crate) fn touch(&mut self, at: Position) {
        self.clock += 1;
        if let Some((_, block)) = self.blocks.range_mut(..=at).next_back() {
            block.used = self.clock;
        }
    }

    /// Whether a read of at least `length` bytes at `at` is on its way.
    pub(crate) fn is_pending(&self, at: Position, length: usize) -> bool {
        self.pending.iter().any(|read| {
            read.start <= at && at.0 + length as u64 <= read.start.0 + read.length as u64
        })
    }

    pub(crate) fn start(&mut self, id: OperationId, start: Position, length: usize) {
        self.pending.push(Pending { id, start, length });
    }

    /// Takes what was read; `None` if the read was somebody else's. Gives the position back.
    pub(crate) fn finish(
        &mut self,
        id: OperationId,
        bytes: Option<Vec<u8>>,
        budget: usize,
    ) -> Option<Position> {
        let index = self.pending.iter().position(|read| read.id == id)?;
        let read = self.pending.swap_remove(index);
        if let Some(bytes) = bytes {
            self.bytes_read += bytes.len() as u64;
            self.evict(budget.saturating_sub(bytes.len()));
            self.clock += 1;
            self.bytes += bytes.len();
            let block = Block { bytes, used: self.clock };
            if let Some(old) = self.blocks.insert(read.start, block) {
                self.bytes -= old.bytes.len();
            }
        }
        Some(read.start)
    }

    fn evict(&mut self, budget: usize) {
        while self.bytes > budget && self.blocks.len() >= BLOCKS_MIN {
            let oldest = self.blocks.iter().min_by_key(|(_, block)| block.used);
            let Some((&start, _)) = oldest else { break };
            if let Some(block) = self.blocks.remove(&start) {
                self.bytes -= block.bytes.len();
            }
        }
    }

    /// Exchange and routing key defined by the record at `at`.
    pub(crate) fn names(&self, at: Position) -> Option<(&[u8], &[u8])> {
        let (exchange, names) = self.names.get(&at)?;
        names.split_at_checked((*exchange).into())
    }

    pub(crate) fn put_names(&mut self, at: Position, exchange: &[u8], routing_key: &[u8]) {
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let names = [exchange, routing_key].concat().into_boxed_slice();
        self.names.insert(at, (exchange.len() as u8, names));
    }

    pub(crate) fn large(&self, at: Position) -> Option<&Large> {
        self.large.get(&at)
    }

    pub(crate) fn large_mut(&mut self, at: Position) -> Option<&mut Large> {
        self.large.get_mut(&at)
    }

    pub(crate) fn put_large(&mut self, at: Position, large: Large) {
        if self.large.len() >= LARGE_MAX {
            let complete = self.large.iter().find(|(_, large)| large.body.len() >= large.total);
            let first = complete.or(self.large.first_key_value()).map(|(&at, _)| at);
            first.and_then(|at| self.large.remove(&at));
        }
        self.large.insert(at, large);
    }

    pub(crate) fn drop_large(&mut self, at: Position) {
        self.large.remove(&at);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let large: usize = self.large.values().map(|large| large.body.capacity()).sum();
        self.bytes + large + self.names.len() * 64
    }
}
