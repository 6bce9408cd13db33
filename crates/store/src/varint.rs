//! Integers of variable length: seven bits per byte, lowest first (LEB128).

use alloc::vec::Vec;

/// Bytes of the longest encoding.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// Appends `value`.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put`] appends for `value`.
pub(crate) fn length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a signed value, small magnitudes in few bytes.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Reads bytes from the front of a slice; every read says whether there was enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for index in 0..VARINT_BYTES_MAX {
            let byte = *self.0.get(index)?;
            let bits = u64::from(byte & 0x7F);
            if index == VARINT_BYTES_MAX - 1 && bits > 1 {
                return None;
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                self.0 = &self.0[index + 1..];
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn varint32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (taken, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*taken))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (taken, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*taken))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read_again() {
        let values = [0, 1, 127, 128, 300, 1 << 32, u64::MAX];
        let mut bytes = Vec::new();
        for value in values {
            let start = bytes.len();
            put(&mut bytes, value);
            assert_eq!(bytes.len() - start, length(value));
            put_signed(&mut bytes, value as i64);
        }
        let mut reader = Reader(&bytes);
        for value in values {
            assert_eq!(reader.varint(), Some(value));
            assert_eq!(reader.signed(), Some(value as i64));
        }
        assert!(reader.is_empty());
        assert_eq!(reader.varint(), None);
    }

    #[test]
    fn overlong_and_cut_integers_are_refused() {
        assert_eq!(Reader(&[0x80]).varint(), None);
        assert_eq!(Reader(&[0xFF; 11]).varint(), None);
        let mut over = [0x80; 10];
        over[9] = 2;
        assert_eq!(Reader(&over).varint(), None);
        assert_eq!(Reader(&[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]).varint32(), None);
    }
}
