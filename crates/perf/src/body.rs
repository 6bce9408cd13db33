//! What a message body carries: a sequence number, the time of sending and, for the order check, the producer.
//!
//! The layout of 12 bytes and more is the reference tester's: 4 bytes sequence number, 8 bytes time, big-endian. With
//! the check 4 bytes producer number follow. Smaller bodies carry what fits; behind the numbers stands a fixed filler.

/// Bytes of a body when no size is asked for: sequence number and time.
pub(crate) const BODY_BYTES_DEFAULT: usize = 12;
/// Smallest body that the order check can work with: sequence number and producer.
pub(crate) const CHECKED_BODY_BYTES_MIN: usize = 8;

/// Where the numbers stand in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of the whole body.
    pub size: usize,
    /// Offset of the sequence number, 4 bytes.
    pub sequence_at: Option<usize>,
    /// Offset of the time, 8 bytes.
    pub time_at: Option<usize>,
    /// Offset of the producer's number, 4 bytes; only with the check.
    pub producer_at: Option<usize>,
}

impl Layout {
    /// The layout for bodies of `size` bytes; `checked` bodies have at least [`CHECKED_BODY_BYTES_MIN`].
    pub(crate) fn new(size: usize, checked: bool) -> Layout {
        let (sequence_at, time_at, producer_at) = match (checked, size) {
            (true, 16..) => (Some(0), Some(4), Some(12)),
            (true, CHECKED_BODY_BYTES_MIN..) => (Some(0), None, Some(4)),
            (false, 12..) => (Some(0), Some(4), None),
            (false, 8..) => (None, Some(0), None),
            (false, 4..) => (Some(0), None, None),
            _ => (None, None, None),
        };
        Layout { size, sequence_at, time_at, producer_at }
    }

    /// Bytes that the numbers take; the filler begins here.
    pub(crate) fn numbers_bytes(&self) -> usize {
        let ends = [
            self.sequence_at.map(|at| at + 4),
            self.time_at.map(|at| at + 8),
            self.producer_at.map(|at| at + 4),
        ];
        ends.into_iter().flatten().max().unwrap_or(0)
    }

    /// A body of `producer` with sequence number and time still 0.
    pub(crate) fn body(&self, producer: u32) -> Vec<u8> {
        let mut body = filler(self.size);
        let numbers = self.numbers_bytes();
        body[..numbers].fill(0);
        if let Some(at) = self.producer_at {
            body[at..at + 4].copy_from_slice(&producer.to_be_bytes());
        }
        body
    }

    /// The sequence number in `body`.
    pub(crate) fn sequence(&self, body: &[u8]) -> Option<u32> {
        read_u32(body, self.sequence_at?)
    }

    /// The time in `body`.
    pub(crate) fn time(&self, body: &[u8]) -> Option<u64> {
        let at = self.time_at?;
        let bytes = body.get(at..at + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    }

    /// Whether bodies carry the time.
    pub(crate) fn has_time(&self) -> bool {
        self.time_at.is_some()
    }

    /// The producer's number in `body`.
    pub(crate) fn producer(&self, body: &[u8]) -> Option<u32> {
        read_u32(body, self.producer_at?)
    }
}

fn read_u32(body: &[u8], at: usize) -> Option<u32> {
    let bytes = body.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// The bytes a body has where no numbers stand; every offset has its own value within 251 bytes.
pub(crate) fn filler(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_bytes_are_laid_out_as_the_reference_does() {
        let layout = Layout::new(12, false);
        let body = [0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4];
        assert_eq!(layout.sequence(&body), Some(258));
        assert_eq!(layout.time(&body), Some(772));
        assert_eq!(layout.producer(&body), None);
    }

    #[test]
    fn small_bodies_carry_what_fits() {
        for size in 0..40 {
            for checked in [false, true] {
                let layout = Layout::new(size, checked);
                assert!(layout.numbers_bytes() <= size, "{size} {checked}");
                let body = layout.body(7);
                assert_eq!(body.len(), size);
                if checked && size >= CHECKED_BODY_BYTES_MIN {
                    assert_eq!(layout.producer(&body), Some(7));
                    assert_eq!(layout.sequence(&body), Some(0));
                }
            }
        }
        assert!(Layout::new(11, false).time_at.is_some());
        assert!(Layout::new(11, true).time_at.is_none());
        assert!(Layout::new(16, true).time_at.is_some());
    }

    #[test]
    fn a_truncated_body_reads_as_nothing() {
        let layout = Layout::new(16, true);
        assert_eq!(layout.sequence(&[0, 0, 0]), None);
        assert_eq!(layout.time(&[0; 11]), None);
        assert_eq!(layout.producer(&[0; 15]), None);
    }
}
