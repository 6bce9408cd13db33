//! Exchange and routing key pairs of the current segment, to be written once.

use alloc::vec::Vec;

use crate::checksum::crc;

/// Pairs remembered; a power of two.
const NAMES: usize = 256;

#[derive(Clone, Debug, Default)]
struct Slot {
    generation: u32,
    offset: u32,
    exchange: usize,
    bytes: Vec<u8>,
}

/// A table without chains: a pair takes the place of another with the same hash.
#[derive(Debug, Default)]
pub(crate) struct NameTable(Vec<Slot>);

impl NameTable {
    fn index(exchange: &[u8], routing_key: &[u8]) -> usize {
        crc(crc(exchange.len() as u32, exchange), routing_key) as usize % NAMES
    }

    /// The offset of the record in the segment `generation` that has these names.
    pub(crate) fn find(&self, generation: u32, exchange: &[u8], routing_key: &[u8]) -> Option<u32> {
        let slot = self.0.get(Self::index(exchange, routing_key))?;
        let is_same = slot.generation == generation
            && slot.bytes.split_at_checked(slot.exchange) == Some((exchange, routing_key));
        is_same.then_some(slot.offset)
    }

    /// The record at `offset` has these names.
    pub(crate) fn put(
        &mut self,
        generation: u32,
        offset: u32,
        exchange: &[u8],
        routing_key: &[u8],
    ) {
        if self.0.is_empty() {
            self.0.resize(NAMES, Slot::default());
        }
        let slot = &mut self.0[Self::index(exchange, routing_key)];
        slot.generation = generation;
        slot.offset = offset;
        slot.exchange = exchange.len();
        slot.bytes.clear();
        slot.bytes.extend_from_slice(exchange);
        slot.bytes.extend_from_slice(routing_key);
    }
}
