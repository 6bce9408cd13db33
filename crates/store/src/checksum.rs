//! CRC32C that knows where its bytes belong.
//!
//! Every checksum in a log starts from a seed made of log, generation and offset, and of the log's key. For one
//! offset the seed is a bijection of the generation, and CRC32C is a bijection of its start value: a
//! record left over from an earlier use of a segment can never pass at its old place. What a client made
//! to pass there would have to guess the key.

use crate::disk::LogId;

/// The start value for what lies at `offset` of the segment `generation`, without a key.
pub(crate) fn seed(log: LogId, generation: u32, offset: u32) -> u32 {
    generation.wrapping_mul(0x9E37_79B1)
        ^ offset.wrapping_mul(0x85EB_CA6B).rotate_left(13)
        ^ log.0.wrapping_mul(0xC2B2_AE35)
}

/// CRC32C of `bytes`, continued from `start`.
pub(crate) fn crc(start: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(start, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc(0, b"123456789"), 0xE306_9283);
    }

    #[test]
    fn one_place_has_another_seed_in_every_generation() {
        let log = LogId(7);
        for offset in [0, 64, 1 << 20] {
            let first = crc(seed(log, 1, offset), b"same bytes");
            for generation in 2..2000 {
                assert_ne!(crc(seed(log, generation, offset), b"same bytes"), first);
            }
        }
    }
}
