//! Message bodies of one shard: reference-counted bytes in chunks, without atomics.
//!
//! A body is a handle; its bytes lie in a chunk together with others, so that storing a small
//! message costs no allocation of its own. A body larger than a quarter of a chunk gets a chunk
//! of its own. A chunk whose last body is released is reused.

use alloc::vec::Vec;
use slab::Slab;

/// Size of a shared chunk in bytes.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Bodies above this size get a chunk of their own.
pub const SHARED_BODY_BYTES_MAX: usize = CHUNK_BYTES / 4;
/// Places that the tables of a pool begin with. A smaller table would be made of memory of up to 1,032
/// bytes, which allocators reuse whichever thread's it was, and would grow where that thread's memory is.
const PLACES_MIN: usize = 64;
/// Empty chunks kept for reuse before memory goes back to the allocator.
const SPARE_CHUNKS_MAX: usize = 16;

/// Stands for the chunk of a body without bytes.
const NO_CHUNK: u32 = u32::MAX;

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

#[derive(Debug)]
struct Entry {
    chunk: u32,
    offset: u32,
    length: u32,
    references: u32,
}

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// Bytes of bodies that still live here.
    live: usize,
}

/// The bodies of one shard.
#[derive(Debug, Default)]
pub struct Pool {
    entries: Slab<Entry>,
    chunks: Slab<Chunk>,
    /// The chunk that small bodies are appended to.
    open: Option<u32>,
    spare: Vec<Vec<u8>>,
    /// Sum of the capacities of all chunks, spare ones included.
    capacity: usize,
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
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length == 0 {
            let entry = Entry { chunk: NO_CHUNK, offset: 0, length: 0, references: 1 };
            return Body(self.entries.insert(entry) as u32);
        }
        let chunk = if length > SHARED_BODY_BYTES_MAX {
            self.add_chunk(Vec::with_capacity(length))
        } else {
            self.chunk_with_room(length)
        };
        let target = &mut self.chunks[chunk as usize];
        let offset = target.bytes.len();
        for part in parts {
            target.bytes.extend_from_slice(part);
        }
        target.live += length;
        self.live += length;
        let length = u32::try_from(length).expect("a body is smaller than 4 GiB");
        let entry = Entry { chunk, offset: offset as u32, length, references: 1 };
        Body(self.entries.insert(entry) as u32)
    }

    /// The bytes of a body.
    ///
    /// # Panics
    /// When the body was released.
    #[must_use]
    pub fn get(&self, body: Body) -> &[u8] {
        let entry = &self.entries[body.0 as usize];
        if entry.chunk == NO_CHUNK {
            return &[];
        }
        let start = entry.offset as usize;
        &self.chunks[entry.chunk as usize].bytes[start..start + entry.length as usize]
    }

    /// Adds a reference.
    pub fn retain(&mut self, body: Body) {
        self.entries[body.0 as usize].references += 1;
    }

    /// Gives a reference back; the last one frees the bytes.
    ///
    /// # Panics
    /// When the body was released already.
    pub fn release(&mut self, body: Body) {
        let entry = &mut self.entries[body.0 as usize];
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        let entry = self.entries.remove(body.0 as usize);
        if entry.chunk == NO_CHUNK {
            return;
        }
        self.live -= entry.length as usize;
        let chunk = &mut self.chunks[entry.chunk as usize];
        chunk.live -= entry.length as usize;
        if chunk.live > 0 {
            return;
        }
        if self.open == Some(entry.chunk) {
            chunk.bytes.clear();
        } else {
            self.retire(entry.chunk);
        }
    }

    /// Bytes of all chunks, used or not: what the memory budget counts.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity + self.entries.capacity() * size_of::<Entry>()
    }

    /// Bytes of the bodies that live.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    /// Number of bodies that live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no body lives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn chunk_with_room(&mut self, length: usize) -> u32 {
        match self.open {
            Some(open) if self.chunks[open as usize].bytes.len() + length <= CHUNK_BYTES => open,
            _ => self.open_chunk(),
        }
    }

    #[cold]
    fn open_chunk(&mut self) -> u32 {
        if self.entries.capacity() < PLACES_MIN {
            self.entries.reserve(PLACES_MIN);
            self.chunks.reserve(PLACES_MIN);
        }
        if let Some(open) = self.open
            && self.chunks[open as usize].live == 0
        {
            self.retire(open);
        }
        let bytes = self.spare.pop().unwrap_or_else(|| {
            self.capacity += CHUNK_BYTES;
            Vec::with_capacity(CHUNK_BYTES)
        });
        let chunk = self.chunks.insert(Chunk { bytes, live: 0 }) as u32;
        self.open = Some(chunk);
        chunk
    }

    fn add_chunk(&mut self, bytes: Vec<u8>) -> u32 {
        self.capacity += bytes.capacity();
        self.chunks.insert(Chunk { bytes, live: 0 }) as u32
    }

    fn retire(&mut self, chunk: u32) {
        let mut bytes = self.chunks.remove(chunk as usize).bytes;
        if bytes.capacity() == CHUNK_BYTES && self.spare.len() < SPARE_CHUNKS_MAX {
            bytes.clear();
            self.spare.push(bytes);
        } else {
            self.capacity -= bytes.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_body_lives_until_its_last_reference_goes() {
        let mut pool = Pool::new();
        let body = pool.insert(&[b"ab", b"", b"c"]);
        pool.retain(body);
        pool.release(body);
        assert_eq!(pool.get(body), b"abc");
        pool.release(body);
        assert!(pool.is_empty());
        assert_eq!(pool.live(), 0);
    }

    #[test]
    fn a_large_body_gives_its_memory_back() {
        let mut pool = Pool::new();
        let before = pool.capacity;
        let body = pool.insert(&[&vec![7; CHUNK_BYTES * 3]]);
        assert!(pool.capacity >= before + CHUNK_BYTES * 3);
        pool.release(body);
        assert_eq!(pool.capacity, before);
    }

    #[test]
    fn chunks_are_reused_and_not_collected() {
        let mut pool = Pool::new();
        let bytes = vec![1; 1000];
        let mut window = alloc::collections::VecDeque::new();
        for _ in 0..100_000 {
            window.push_back(pool.insert(&[&bytes]));
            if window.len() > 300 {
                pool.release(window.pop_front().unwrap());
            }
        }
        assert!(pool.capacity <= 8 * CHUNK_BYTES, "capacity {}", pool.capacity);
        for body in window {
            pool.release(body);
        }
        assert!(pool.is_empty());
    }

    #[test]
    fn an_empty_body_is_a_body() {
        let mut pool = Pool::new();
        let empty = pool.insert(&[]);
        let full = pool.insert(&[b"x"]);
        pool.release(full);
        assert_eq!(pool.get(empty), b"");
        pool.release(empty);
        assert!(pool.is_empty());
    }
}
