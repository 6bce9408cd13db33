//! Message bodies of one shard: reference-counted bytes in chunks, without atomics.
//!
//! A body is a handle; its bytes lie in a chunk together with others, so that storing a small
//! message costs no allocation of its own. A body larger than about a quarter of a chunk gets a chunk
//! of its own. A chunk whose last body is released is reused.
//!
//! Bodies that stay long would keep the chunks of those that came and went beside them. A chunk that
//! is less than half full of living bodies is noted as sparse, and [`Pool::compact`] moves what lives
//! in such chunks together, in a chunk apart from new bodies: so what outlived its neighbours is
//! rarely moved twice. Handles stay as they are.

mod places;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use places::Places;
use slab::Slab;

/// Size of a shared chunk in bytes.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Before each body in a shared chunk: its handle and its length, so that those that live are found.
const HEADER_BYTES: usize = 8;
/// Bodies above this size get a chunk of their own.
pub const SHARED_BODY_BYTES_MAX: usize = CHUNK_BYTES / 4 - HEADER_BYTES;
/// Living bytes below which a shared chunk is sparse.
const SPARSE_BYTES: usize = CHUNK_BYTES / 2;
/// Share of the used memory that sparse chunks must be for compaction to be worth its copies.
const SPARSE_SHARE: usize = 4;
/// Places that the tables of a pool begin with. A smaller table would be made of memory of up to 1,032
/// bytes, which allocators reuse whichever thread's it was, and would grow where that thread's memory is.
const PLACES_MIN: usize = 64;
/// Empty chunks kept for reuse before memory goes back to the allocator.
const SPARE_CHUNKS_MAX: usize = 16;

/// Stands for the chunk of a body without bytes.
const NO_CHUNK: u32 = u32::MAX;
/// Stands for a chunk that is not in the list of sparse ones.
const NOT_SPARSE: u32 = u32::MAX;

/// A handle to bytes in a [`Pool`]. Copying the handle does not count; see [`Pool::retain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Body(u32);

impl Body {
    /// The handle as a number, for whoever keeps it in few bits.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The handle that gave this number.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Body {
        Body(bits)
    }
}

/// The memory of a chunk.
#[derive(Debug)]
enum Memory {
    Own(Box<[u8]>),
    /// Of a body that was put together elsewhere. Nothing is written to it.
    Adopted(Arc<Vec<u8>>),
}

impl Memory {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Own(bytes) => bytes,
            Memory::Adopted(bytes) => bytes,
        }
    }

    fn own_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Own(bytes) => bytes,
            Memory::Adopted(_) => panic!("nothing is appended to a body's own chunk"),
        }
    }

    /// Bytes that it takes.
    fn size(&self) -> usize {
        match self {
            Memory::Own(bytes) => bytes.len(),
            Memory::Adopted(bytes) => bytes.capacity(),
        }
    }
}

#[derive(Debug)]
struct Chunk {
    memory: Memory,
    /// So many of them were written.
    filled: usize,
    /// Bytes of bodies that still live here, each with a header, also where none is stored.
    live: usize,
    /// With fewer living bytes there is something to do about it: none while bodies are appended or
    /// it is in the list of sparse ones.
    thin_below: usize,
    /// Where it stands in the list of sparse chunks.
    sparse_at: u32,
}

/// The bodies of one shard.
#[derive(Debug, Default)]
pub struct Pool {
    places: Places,
    chunks: Slab<Chunk>,
    /// The chunk that new small bodies are appended to.
    open: Option<u32>,
    /// The chunk that bodies are moved to.
    shelter: Option<u32>,
    /// Shared chunks that are full of dead bodies for the most part, in no order.
    sparse: Vec<u32>,
    spare: Vec<Box<[u8]>>,
    /// The fewest of these that there were since [`Pool::give_unused`] was called last.
    unused: usize,
    /// Sum of the capacities of all chunks with bodies.
    chunk_bytes: usize,
    live: usize,
}

impl Pool {
    /// An empty pool; it allocates with the first body.
    #[must_use]
    pub fn new() -> Pool {
        Pool::default()
    }

    /// Stores the concatenation of `parts` with one reference.
    ///
    /// # Panics
    /// When a body is larger than 4 GiB, which the protocol's limits exclude.
    #[inline]
    pub fn insert(&mut self, parts: &[&[u8]]) -> Body {
        self.insert_behind([], parts)
    }

    /// Stores `head`, of a length known to the compiler, and behind it the concatenation of `parts`.
    ///
    /// # Panics
    /// As [`Pool::insert`].
    #[inline]
    pub fn insert_behind<const HEAD: usize>(&mut self, head: [u8; HEAD], parts: &[&[u8]]) -> Body {
        let length: usize = HEAD + parts.iter().map(|part| part.len()).sum::<usize>();
        if length == 0 {
            return Body(self.places.insert(NO_CHUNK, 0, 0));
        }
        self.live += length;
        if length > SHARED_BODY_BYTES_MAX {
            return self.insert_alone(&head, parts, length);
        }
        let stored = HEADER_BYTES + length;
        let chunk = match self.open {
            Some(open) if self.chunks[open as usize].filled + stored <= CHUNK_BYTES => open,
            _ => self.open_chunk(),
        };
        let target = &mut self.chunks[chunk as usize];
        let start = target.filled;
        let handle = self.places.insert(chunk, (start + HEADER_BYTES) as u32, length as u32);
        target.filled += stored;
        target.live += stored;
        // Slices of one slice: what is written has its bounds checked once, not with each part.
        let (front, mut rest) =
            target.memory.own_mut()[start..start + stored].split_at_mut(HEADER_BYTES + HEAD);
        front[..HEADER_BYTES].copy_from_slice(&header(handle, length as u32));
        front[HEADER_BYTES..].copy_from_slice(&head);
        for part in parts {
            let (place, left) = core::mem::take(&mut rest).split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = left;
        }
        Body(handle)
    }

    /// Stores with one reference what begins at `start` and ends with `bytes`, which is larger than
    /// [`SHARED_BODY_BYTES_MAX`], without a copy.
    ///
    /// # Panics
    /// As [`Pool::insert`], and for a smaller body.
    pub fn adopt(&mut self, bytes: &Arc<Vec<u8>>, start: usize) -> Body {
        let length = bytes.len() - start;
        assert!(length > SHARED_BODY_BYTES_MAX, "a small body shares its chunk");
        self.live += length;
        self.add_alone(Memory::Adopted(Arc::clone(bytes)), start, length)
    }

    /// The bytes of a body.
    ///
    /// # Panics
    /// When the body was released.
    #[must_use]
    pub fn get(&self, body: Body) -> &[u8] {
        let place = self.places.get(body.0);
        if place.chunk == NO_CHUNK {
            return &[];
        }
        let start = place.offset as usize;
        &self.chunks[place.chunk as usize].memory.bytes()[start..start + place.length as usize]
    }

    /// Adds a reference.
    ///
    /// # Panics
    /// When the body was released.
    pub fn retain(&mut self, body: Body) {
        self.places.get_mut(body.0).references += 1;
    }

    /// Gives a reference back; the last one frees the bytes.
    ///
    /// # Panics
    /// When the body was released already.
    pub fn release(&mut self, body: Body) {
        let place = self.places.get_mut(body.0);
        if place.references > 1 {
            place.references -= 1;
            return;
        }
        let (chunk, length) = (place.chunk, place.length as usize);
        self.places.remove(body.0);
        if chunk == NO_CHUNK {
            return;
        }
        self.live -= length;
        let found = &mut self.chunks[chunk as usize];
        found.live -= HEADER_BYTES + length;
        if found.live < found.thin_below {
            self.thin(chunk);
        }
    }

    /// Bytes that bodies keep from being used for anything else: chunks with bodies, living or not,
    /// and the table of handles. It is what the memory budget counts.
    #[must_use]
    pub fn used(&self) -> usize {
        self.chunk_bytes + self.places.memory_bytes()
    }

    /// Bytes of empty chunks that are kept for new bodies.
    #[must_use]
    pub fn spare(&self) -> usize {
        self.spare.len() * CHUNK_BYTES
    }

    /// Gives back the empty chunks that were kept and not used since this was called last.
    pub fn give_unused(&mut self) {
        self.spare.truncate(self.spare.len() - self.unused);
        self.unused = self.spare.len();
    }

    /// Gives back what is kept for bodies to come: empty chunks, also those that bodies would be
    /// appended to, and unused places at the end of the table of handles. A pool without bodies uses
    /// nothing afterwards.
    pub fn give_back(&mut self) {
        (self.spare, self.unused) = (Vec::new(), 0);
        let chunks = &self.chunks;
        let is_empty = |chunk: &mut u32| chunks[*chunk as usize].live == 0;
        let empty = [self.open.take_if(is_empty), self.shelter.take_if(is_empty)];
        for chunk in empty.into_iter().flatten() {
            self.remove_chunk(chunk);
        }
        self.places.give_back();
    }

    /// Bytes of the bodies that live.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// Number of bodies that live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no body lives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.len() == 0
    }

    /// Whether so much of what is used is in sparse chunks that [`Pool::compact`] is worth its
    /// copies. Then at most one byte is copied for each that was released.
    #[must_use]
    #[inline]
    pub fn is_sparse(&self) -> bool {
        !self.sparse.is_empty()
            && self.sparse.len() * CHUNK_BYTES * SPARSE_SHARE >= self.chunk_bytes
    }

    /// Moves what lives in sparse chunks together and frees them, until about `bytes_max` bytes of
    /// chunks are freed. Returns whether sparse chunks are left.
    pub fn compact(&mut self, bytes_max: usize) -> bool {
        for _ in 0..bytes_max.div_ceil(CHUNK_BYTES) {
            let Some(&chunk) = self.sparse.last() else { return false };
            self.evacuate(chunk);
        }
        !self.sparse.is_empty()
    }

    #[cold]
    fn insert_alone(&mut self, head: &[u8], parts: &[&[u8]], length: usize) -> Body {
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(head);
        for part in parts {
            bytes.extend_from_slice(part);
        }
        self.add_alone(Memory::Own(bytes.into_boxed_slice()), 0, length)
    }

    /// A body with a chunk of its own.
    fn add_alone(&mut self, memory: Memory, start: usize, length: usize) -> Body {
        let stored = u32::try_from(length).expect("a body is smaller than 4 GiB");
        let offset = u32::try_from(start).expect("less than a frame is in front of a body");
        let chunk = self.add_chunk(memory);
        self.chunks[chunk as usize].live = HEADER_BYTES + length;
        Body(self.places.insert(chunk, offset, stored))
    }

    #[cold]
    fn open_chunk(&mut self) -> u32 {
        self.places.reserve(PLACES_MIN);
        let chunk = self.shared_chunk();
        if let Some(full) = self.open.replace(chunk) {
            self.close(full);
        }
        chunk
    }

    /// Nothing is appended to a shared chunk any more.
    fn close(&mut self, chunk: u32) {
        self.chunks[chunk as usize].thin_below = SPARSE_BYTES;
        self.thin(chunk);
    }

    /// An empty chunk for many bodies.
    fn shared_chunk(&mut self) -> u32 {
        let new = || vec![0; CHUNK_BYTES].into_boxed_slice();
        let bytes = self.spare.pop().unwrap_or_else(new);
        self.unused = self.unused.min(self.spare.len());
        self.add_chunk(Memory::Own(bytes))
    }

    fn add_chunk(&mut self, memory: Memory) -> u32 {
        if self.chunks.capacity() == 0 {
            self.chunks.reserve(PLACES_MIN);
        }
        self.chunk_bytes += memory.size();
        self.chunks.insert(Chunk {
            memory,
            filled: 0,
            live: 0,
            thin_below: 1,
            sparse_at: NOT_SPARSE,
        }) as u32
    }

    /// Does with a chunk what its living bytes ask for: an empty one is reused, one that nothing is
    /// appended to is sparse when they are few.
    fn thin(&mut self, chunk: u32) {
        let is_open = self.open == Some(chunk) || self.shelter == Some(chunk);
        let found = &mut self.chunks[chunk as usize];
        if found.live == 0 {
            if is_open {
                found.filled = 0;
            } else {
                let memory = self.remove_chunk(chunk);
                self.keep_spare(memory);
            }
        } else if found.live < found.thin_below {
            found.thin_below = 1;
            found.sparse_at = self.sparse.len() as u32;
            self.sparse.push(chunk);
        }
    }

    fn remove_chunk(&mut self, chunk: u32) -> Memory {
        let Chunk { memory, sparse_at, .. } = self.chunks.remove(chunk as usize);
        self.chunk_bytes -= memory.size();
        if sparse_at != NOT_SPARSE {
            self.sparse.swap_remove(sparse_at as usize);
            if let Some(&moved) = self.sparse.get(sparse_at as usize) {
                self.chunks[moved as usize].sparse_at = sparse_at;
            }
        }
        memory
    }

    fn keep_spare(&mut self, memory: Memory) {
        if let Memory::Own(bytes) = memory
            && bytes.len() == CHUNK_BYTES
            && self.spare.len() < SPARE_CHUNKS_MAX
        {
            self.spare.push(bytes);
        }
    }

    /// Moves the bodies that live in a shared chunk to the shelter, and frees it.
    fn evacuate(&mut self, chunk: u32) {
        let mut left = self.chunks[chunk as usize].live;
        // Its number stays taken until its last body has left it.
        let nothing = Memory::Own(Box::default());
        let memory = core::mem::replace(&mut self.chunks[chunk as usize].memory, nothing);
        let bytes = memory.bytes();
        let mut at = 0;
        while left > 0 {
            let (handle, length) = read_header(&bytes[at..]);
            let stored = &bytes[at..at + HEADER_BYTES + length];
            if self.places.is_at(handle, chunk, (at + HEADER_BYTES) as u32) {
                left -= stored.len();
                self.take_in(handle, stored);
            }
            at += stored.len();
        }
        self.chunks[chunk as usize].memory = memory;
        let memory = self.remove_chunk(chunk);
        self.keep_spare(memory);
    }

    /// Puts a body with its header into the shelter.
    fn take_in(&mut self, handle: u32, stored: &[u8]) {
        let has_room = |chunk: &Chunk| chunk.filled + stored.len() <= CHUNK_BYTES;
        let shelter = match self.shelter {
            Some(shelter) if has_room(&self.chunks[shelter as usize]) => shelter,
            _ => {
                let chunk = self.shared_chunk();
                if let Some(full) = self.shelter.replace(chunk) {
                    self.close(full);
                }
                chunk
            }
        };
        let target = &mut self.chunks[shelter as usize];
        let place = self.places.get_mut(handle);
        place.chunk = shelter;
        place.offset = (target.filled + HEADER_BYTES) as u32;
        target.memory.own_mut()[target.filled..][..stored.len()].copy_from_slice(stored);
        target.filled += stored.len();
        target.live += stored.len();
    }
}

/// What stands before a body in a shared chunk.
#[inline]
fn header(handle: u32, length: u32) -> [u8; HEADER_BYTES] {
    (u64::from(handle) | u64::from(length) << 32).to_le_bytes()
}

/// The handle and the length of the body that begins after these bytes.
fn read_header(bytes: &[u8]) -> (u32, usize) {
    let word = bytes.first_chunk::<HEADER_BYTES>().expect("a body has a header");
    let word = u64::from_le_bytes(*word);
    (word as u32, (word >> 32) as usize)
}
