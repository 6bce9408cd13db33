//! Which segments of a log have its key, and the record that says so.

use crate::checksum::crc;
use crate::disk::LogId;
use crate::key::Key;
use crate::root::ROOT_STRIDE_BYTES;
use crate::varint::Reader;

/// First bytes of a record of the keys.
const KEYS_MAGIC: [u8; 8] = *b"LEPUSKEY";
/// Bytes of such a record.
pub const KEYS_RECORD_BYTES: usize = 32;
/// Where in the file `root` the two copies of the record are; root records lie in other sectors.
pub const KEYS_OFFSETS: [usize; 2] = [1024, ROOT_STRIDE_BYTES + 1024];

/// The keys of a log's segments: none up to some generation, then one.
///
/// As a record, in two copies in the file `root`, written before the first segment that has the key:
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | magic `LEPUSKEY` |
/// | 8 | 4 | log id |
/// | 12 | 4 | the first generation that has the key |
/// | 16 | 8 | key |
/// | 24 | 4 | zero |
/// | 28 | 4 | CRC32C of bytes 0 to 27 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The log.
    pub log: LogId,
    pub(crate) key: Key,
    pub(crate) first: u32,
}

impl Keys {
    /// Those of a log without a key.
    #[must_use]
    pub fn none(log: LogId) -> Keys {
        Keys { log, key: Key::NONE, first: 0 }
    }

    /// Those that the file `root` of a log names, or those of a log without a key.
    #[must_use]
    pub fn of_root(log: LogId, root: &[u8]) -> Keys {
        Keys::copies(root)
            .into_iter()
            .flatten()
            .find(|keys| keys.log == log)
            .unwrap_or(Keys::none(log))
    }

    /// The copies in a file `root`, as far as they are intact.
    pub(crate) fn copies(root: &[u8]) -> [Option<Keys>; 2] {
        KEYS_OFFSETS.map(|offset| Keys::decode(root.get(offset..)?))
    }

    /// The key of a segment.
    pub(crate) fn of(&self, generation: u32) -> Key {
        if generation >= self.first { self.key } else { Key::NONE }
    }

    /// Whether segments of both kinds can be there.
    pub(crate) fn are_mixed(&self) -> bool {
        !self.key.is_none() && self.first > 1
    }

    /// The header of this segment has this key, or none, or a batch of it has it.
    pub(crate) fn learn(&mut self, generation: u32, key: Key) {
        if self.key.is_none() && !key.is_none() {
            (self.key, self.first) = (key, generation);
        } else if key.is_none() && !self.key.is_none() {
            self.first = self.first.max(generation.saturating_add(1));
        } else if key == self.key {
            self.first = self.first.min(generation);
        }
    }

    /// The start value of a checksum of what lies at `offset` of the segment `generation`.
    pub(crate) fn seed(&self, generation: u32, offset: u32) -> u32 {
        crate::checksum::seed(self.log, generation, offset) ^ self.of(generation).seed()
    }

    pub(crate) fn encode(&self) -> [u8; KEYS_RECORD_BYTES] {
        let mut bytes = [0; KEYS_RECORD_BYTES];
        bytes[..8].copy_from_slice(&KEYS_MAGIC);
        bytes[8..12].copy_from_slice(&self.log.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.stored().to_le_bytes());
        let sum = crc(0, &bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Keys> {
        let bytes = bytes.get(..KEYS_RECORD_BYTES)?;
        let mut reader = Reader(bytes);
        if reader.bytes(8)? != KEYS_MAGIC || Reader(&bytes[28..]).u32()? != crc(0, &bytes[..28]) {
            return None;
        }
        let log = LogId(reader.u32()?);
        let first = reader.u32()?;
        Some(Keys { log, key: Key::from_stored(reader.u64()?), first })
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written_and_not_shown() {
        let keys = Keys { log: LogId(3), key: Key::new(0xFEED_0000_0000_0000), first: 7 };
        let mut root = vec![0; 2 * ROOT_STRIDE_BYTES];
        assert_eq!(Keys::of_root(LogId(3), &root), Keys::none(LogId(3)));
        root[KEYS_OFFSETS[1]..][..KEYS_RECORD_BYTES].copy_from_slice(&keys.encode());
        assert_eq!(Keys::copies(&root), [None, Some(keys)]);
        assert_eq!(Keys::of_root(LogId(3), &root), keys);
        assert_eq!(Keys::of_root(LogId(4), &root), Keys::none(LogId(4)));
        for at in 0..KEYS_RECORD_BYTES {
            let mut damaged = root.clone();
            damaged[KEYS_OFFSETS[1] + at] ^= 4;
            assert_eq!(Keys::copies(&damaged), [None, None]);
        }
        let shown = format!("{keys:?}");
        assert!(shown.contains("Key(..)") && !shown.to_lowercase().contains("feed"), "{shown}");
    }

    #[test]
    fn only_segments_from_the_first_on_have_the_key() {
        let mut keys = Keys::none(LogId(1));
        let unkeyed = keys;
        keys.learn(5, Key::NONE);
        assert_eq!(keys, unkeyed);
        keys.learn(9, Key::new(4));
        keys.learn(8, Key::new(4));
        assert_eq!((keys.of(7), keys.of(8)), (Key::NONE, Key::new(5)));
        keys.learn(8, Key::NONE);
        assert_eq!((keys.of(8), keys.of(9)), (Key::NONE, Key::new(5)));
        keys.learn(8, Key::new(5));
        assert_eq!(keys.seed(7, 64), unkeyed.seed(7, 64));
        assert_ne!(keys.seed(8, 64), unkeyed.seed(8, 64));
    }
}
