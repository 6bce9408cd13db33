//! Messages that a move has taken and not passed on.

use super::line::SLICE_BYTES;
use lepus_amqp::method::basic;
use std::collections::VecDeque;

/// A message that was taken from the queue.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) tag: u64,
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) properties: Vec<u8>,
    pub(super) body: Vec<u8>,
}

/// What a consumer was given, in its order, as far as it is kept.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    kept: VecDeque<Taken>,
    /// Bytes of those.
    bytes: usize,
    /// Bytes of the largest that ever came.
    largest: usize,
    /// More came than are kept: they are unacknowledged.
    has_surplus: bool,
}

impl Arrivals {
    /// A message came. What is more than [`SLICE_BYTES`] together is not kept, nor what is behind that; a large one alone is.
    pub(super) fn note(&mut self, deliver: &basic::Deliver<'_>, properties: &[u8], body: &[u8]) {
        let size = properties.len() + body.len() + deliver.routing_key.len();
        self.largest = self.largest.max(size);
        if self.has_surplus || (!self.kept.is_empty() && self.bytes + size > SLICE_BYTES) {
            self.has_surplus = true;
            return;
        }
        self.bytes += size;
        self.kept.push_back(Taken {
            tag: deliver.delivery_tag,
            exchange: deliver.exchange.to_owned(),
            routing_key: deliver.routing_key.to_owned(),
            properties: properties.to_vec(),
            body: body.to_vec(),
        });
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether more came than are kept.
    pub(super) fn has_surplus(&self) -> bool {
        self.has_surplus
    }

    /// The first ones, at most so many.
    pub(super) fn take(&mut self, most: usize) -> Vec<Taken> {
        let taken: Vec<Taken> = self.kept.drain(..most.min(self.kept.len())).collect();
        let size = |one: &Taken| one.properties.len() + one.body.len() + one.routing_key.len();
        self.bytes -= taken.iter().map(size).sum::<usize>();
        taken
    }

    /// How many are to come at a time where so many were too much: at most half as many.
    pub(super) fn fewer(&self, than: u16) -> u16 {
        let fitting = u16::try_from(SLICE_BYTES / self.largest.max(1)).unwrap_or(u16::MAX);
        fitting.clamp(1, (than / 2).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_not_kept_and_fewer_are_to_come() {
        let mut arrivals = Arrivals::default();
        let come = |arrivals: &mut Arrivals, tag: u64, bytes: usize| {
            let deliver =
                basic::Deliver { delivery_tag: tag, routing_key: "k", ..basic::Deliver::default() };
            arrivals.note(&deliver, &[], &vec![0; bytes]);
        };
        come(&mut arrivals, 1, 10);
        come(&mut arrivals, 2, SLICE_BYTES / 4);
        assert!(!arrivals.has_surplus());
        come(&mut arrivals, 3, SLICE_BYTES);
        come(&mut arrivals, 4, 1);
        assert!(arrivals.has_surplus());
        let tags = |taken: &[Taken]| taken.iter().map(|one| one.tag).collect::<Vec<_>>();
        assert_eq!(tags(&arrivals.take(1)), [1]);
        assert_eq!(tags(&arrivals.take(9)), [2]);
        assert_eq!((arrivals.is_empty(), arrivals.bytes), (true, 0));
        assert_eq!((arrivals.fewer(128), arrivals.fewer(1)), (1, 1));

        let mut arrivals = Arrivals::default();
        come(&mut arrivals, 1, 3 * SLICE_BYTES);
        assert_eq!((arrivals.len(), arrivals.has_surplus()), (1, false), "one alone is kept");
        let mut arrivals = Arrivals::default();
        (0..101).for_each(|tag| come(&mut arrivals, tag, SLICE_BYTES / 100));
        assert_eq!((arrivals.len(), arrivals.fewer(128), arrivals.fewer(256)), (99, 64, 99));
    }
}
