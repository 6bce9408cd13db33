//! How much of a log the messages of a commit fill at least.

/// Segments that messages fill one after the other, if they find an empty log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    /// Bytes of all messages.
    pub bytes: usize,
    segments: usize,
    /// What is left of the last segment.
    rest: usize,
}

impl Filling {
    /// One more of so many bytes. One that is not `whole` goes on in the next of the segments, which have
    /// `segment` bytes each.
    pub(super) fn add(&mut self, bytes: usize, whole: bool, segment: usize) {
        self.bytes += bytes;
        if bytes <= self.rest {
            self.rest -= bytes;
            return;
        }
        let behind = if whole { bytes } else { bytes - self.rest };
        let more = behind.div_ceil(segment.max(1));
        self.segments += more;
        self.rest = (more * segment).saturating_sub(behind);
    }

    /// Bytes of the segments.
    pub(super) fn taken(&self, segment: usize) -> usize {
        self.segments.saturating_mul(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::Filling;

    fn segments(messages: &[usize]) -> usize {
        let mut filling = Filling::default();
        for &bytes in messages {
            filling.add(bytes, bytes <= 60, 100);
        }
        filling.taken(1)
    }

    #[test]
    fn messages_share_segments_and_leave_the_end_of_one_that_they_do_not_fit_into() {
        assert_eq!(segments(&[]), 0);
        assert_eq!(segments(&[50, 50]), 1);
        assert_eq!(segments(&[50, 51, 50]), 3);
    }

    #[test]
    fn a_long_message_begins_in_what_is_left_of_a_segment() {
        assert_eq!(segments(&[50, 150]), 2);
        assert_eq!(segments(&[50, 151, 99]), 3);
        assert_eq!(segments(&[50, 151, 100]), 4);
    }
}
