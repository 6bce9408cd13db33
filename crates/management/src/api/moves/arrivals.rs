//! Messages that a move has taken and not passed on.

use super::line::SLICE_BYTES;
use lepus_amqp::method::basic;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bytes of messages that are kept at most, but for one alone.
const KEPT_BYTES_MAX: usize = 4 << 20;

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
    /// How many ever came, and their bytes.
    came: (usize, usize),
    /// More came than are kept: they are unacknowledged.
    has_surplus: bool,
    /// When the first of those that are kept came, or one behind it.
    since: Option<Instant>,
}

fn size(one: &Taken) -> usize {
    one.properties.len() + one.body.len() + one.routing_key.len()
}

impl Arrivals {
    /// A message came. What is more than [`KEPT_BYTES_MAX`] together is not kept, nor what is behind that; a large one alone is.
    pub(super) fn note(&mut self, deliver: &basic::Deliver<'_>, properties: &[u8], body: &[u8]) {
        let size = properties.len() + body.len() + deliver.routing_key.len();
        self.came = (self.came.0 + 1, self.came.1 + size);
        if self.has_surplus || (!self.kept.is_empty() && self.bytes + size > KEPT_BYTES_MAX) {
            self.has_surplus = true;
            return;
        }
        self.bytes += size;
        self.since.get_or_insert_with(Instant::now);
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

    /// For how long there have been some.
    pub(super) fn age(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The first ones, at most so many, and of not more than [`SLICE_BYTES`], or one.
    pub(super) fn take(&mut self, most: usize) -> Vec<Taken> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < most
            && let Some(first) = self.kept.front().map(size)
            && (taken.is_empty() || bytes + first <= SLICE_BYTES)
        {
            bytes += first;
            taken.extend(self.kept.pop_front());
        }
        self.bytes -= bytes;
        self.since = (!self.kept.is_empty()).then(Instant::now);
        taken
    }

    /// How many are to come at a time where so many were too much: as many as fit if they are like those that came, and at
    /// most half as many.
    pub(super) fn fewer(&self, than: u16) -> u16 {
        let (count, bytes) = self.came;
        let fitting = KEPT_BYTES_MAX * count.max(1) / bytes.max(1);
        u16::try_from(fitting).unwrap_or(u16::MAX).clamp(1, (than / 2).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_not_kept_and_fewer_are_to_come() {
        let come = |arrivals: &mut Arrivals, tag: u64, bytes: usize| {
            let deliver =
                basic::Deliver { delivery_tag: tag, routing_key: "", ..basic::Deliver::default() };
            arrivals.note(&deliver, &[], &vec![0; bytes]);
        };
        let tags = |taken: &[Taken]| taken.iter().map(|one| one.tag).collect::<Vec<_>>();
        let mut arrivals = Arrivals::default();
        come(&mut arrivals, 1, 10);
        come(&mut arrivals, 2, SLICE_BYTES);
        come(&mut arrivals, 3, 1);
        assert!(!arrivals.has_surplus());
        assert_eq!(tags(&arrivals.take(9)), [1], "a transaction has no more");
        come(&mut arrivals, 4, KEPT_BYTES_MAX);
        come(&mut arrivals, 5, 1);
        assert!(arrivals.has_surplus());
        assert_eq!(tags(&arrivals.take(1)), [2]);
        assert_eq!(tags(&arrivals.take(9)), [3]);
        assert_eq!(
            (arrivals.is_empty(), arrivals.bytes, arrivals.age()),
            (true, 0, Duration::ZERO)
        );
        assert_eq!((arrivals.fewer(128), arrivals.fewer(1)), (3, 1));

        let mut arrivals = Arrivals::default();
        come(&mut arrivals, 1, 3 * KEPT_BYTES_MAX);
        assert_eq!((arrivals.len(), arrivals.has_surplus()), (1, false), "one alone is kept");
        (2..101).for_each(|tag| come(&mut arrivals, tag, 1));
        assert_eq!(
            arrivals.fewer(128),
            33,
            "one large message does not make the rest go one by one"
        );
    }
}
