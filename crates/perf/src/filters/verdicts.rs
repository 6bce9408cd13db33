//! Whether a broker delivers what filters match and nothing else.

use super::scheme::{Place, Scheme};
use std::collections::HashSet;

/// Deliveries of the check, held against what should come.
#[derive(Debug)]
pub(crate) struct Verdicts<'a> {
    scheme: &'a Scheme,
    /// Messages 0 to this one are published.
    sample: u32,
    /// Consumer and message of what came. Filtered consumers of a queue share its messages: the consumer is left out then.
    seen: HashSet<(u32, u32)>,
    found: Found,
}

/// What the check came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Deliveries that came as they should.
    pub good: u64,
    /// Deliveries that did not come.
    pub missing: u64,
    /// Deliveries that should not have come.
    pub unexpected: u64,
    /// Deliveries that came before.
    pub repeated: u64,
    /// The first fault in words.
    pub first: Option<String>,
}

impl Found {
    /// Whether all was as it should be.
    pub(crate) fn is_good(&self) -> bool {
        self.missing + self.unexpected + self.repeated == 0
    }
}

impl<'a> Verdicts<'a> {
    /// Nothing has come of `sample` messages.
    pub(crate) fn new(scheme: &'a Scheme, sample: u32) -> Verdicts<'a> {
        Verdicts { scheme, sample, seen: HashSet::new(), found: Found::default() }
    }

    /// A message has come to a consumer; one that nobody published is unexpected too.
    pub(crate) fn receive(&mut self, consumer: u32, message: u32) {
        let scheme = self.scheme;
        let stream = match scheme.place {
            Place::Binding => consumer,
            Place::Consumer => 0,
        };
        let words = if consumer >= scheme.consumers() || message >= self.sample {
            self.found.unexpected += 1;
            "a message came that nobody published".to_owned()
        } else if !self.seen.insert((stream, message)) {
            self.found.repeated += 1;
            format!("{} came twice", scheme.describe(message))
        } else if !scheme.may_get(consumer, message) {
            self.found.unexpected += 1;
            scheme.describe_unexpected(consumer, message)
        } else {
            self.found.good += 1;
            return;
        };
        self.found.first.get_or_insert(words);
    }

    /// Deliveries that are to come, over all consumers.
    pub(crate) fn expected(&self) -> u64 {
        (0..self.sample).map(|message| self.scheme.deliveries(message)).sum()
    }

    /// How many have come, good or not.
    pub(crate) fn received(&self) -> u64 {
        self.found.good + self.found.unexpected + self.found.repeated
    }

    /// Nothing comes any more.
    pub(crate) fn finish(mut self) -> Found {
        for message in 0..self.sample {
            let consumers: Vec<u32> = match self.scheme.place {
                Place::Binding => self.scheme.queues_for(message).into_iter().collect(),
                Place::Consumer => vec![0],
            };
            for consumer in consumers {
                if self.seen.contains(&(consumer, message)) {
                    continue;
                }
                self.found.missing += 1;
                let words = self.scheme.describe_missing(consumer, message);
                self.found.first.get_or_insert(words);
            }
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::scheme::Body;
    use crate::filters::workload::{Dialect, Filter, LookAt, Trade, Workload};

    /// Filters 0 and 1 ask for symbol 0, filter 2 for symbol 1; messages are of the symbols 0, 1 and 2.
    fn scheme(place: Place) -> Scheme {
        let filter = |symbol| Filter { symbol: Some(symbol), ..Filter::default() };
        let trade = |symbol| Trade { symbol, price: 5, quantity: 5 };
        Scheme {
            id: "n".into(),
            place,
            workload: Workload {
                filters: vec![filter(0), filter(0), filter(1)],
                trades: vec![trade(0), trade(1), trade(2)],
                matching: vec![vec![0, 1], vec![2], vec![]],
            },
            dialect: Dialect::Filter,
            look_at: LookAt::Body,
            kind: "fanout".into(),
            queues: 2,
            durable: false,
            body: Body::Json,
            body_bytes: 250,
        }
    }

    fn found(place: Place, deliveries: &[(u32, u32)]) -> Found {
        let scheme = scheme(place);
        let mut verdicts = Verdicts::new(&scheme, 3);
        for (consumer, message) in deliveries {
            verdicts.receive(*consumer, *message);
        }
        assert_eq!(verdicts.received(), deliveries.len() as u64);
        verdicts.finish()
    }

    #[test]
    fn each_queue_with_a_matching_filter_gets_a_message_once() {
        // Filters 0 and 2 are of queue 0, filter 1 is of queue 1.
        let scheme = scheme(Place::Binding);
        assert_eq!(Verdicts::new(&scheme, 3).expected(), 3);
        let good = found(Place::Binding, &[(0, 0), (1, 0), (0, 1)]);
        assert!(good.is_good() && good.good == 3, "{good:?}");
        let less = found(Place::Binding, &[(0, 0), (0, 1)]);
        let text = "queue 1 did not get message 0 (sym S0000, price 0.05, qty 5), which `b.sym = 'S0000'` matches";
        assert_eq!((less.missing, less.first.as_deref()), (1, Some(text)));
        let more = found(Place::Binding, &[(0, 0), (1, 0), (0, 1), (1, 2), (0, 0), (0, 7)]);
        assert_eq!((more.good, more.unexpected, more.repeated, more.missing), (3, 2, 1, 0));
        let text = "queue 1 got message 2 (sym S0002, price 0.05, qty 5), which none of its filters matches";
        assert_eq!(more.first.as_deref(), Some(text));
    }

    #[test]
    fn one_matching_consumer_gets_a_message_and_the_last_one_what_no_filter_wants() {
        // Messages 0 and 2 are of queue 0, whose consumers are 0, 2 and 3; message 1 is of queue 1 with 1 and 4.
        let good = found(Place::Consumer, &[(0, 0), (4, 1), (3, 2)]);
        assert!(good.is_good() && good.good == 3, "{good:?}");
        // Each of them wrong in another way: not its filter, not its queue, a filter wants it.
        for wrong in [(2, 0), (1, 0), (3, 0)] {
            let found = found(Place::Consumer, &[wrong, (4, 1), (3, 2)]);
            assert_eq!((found.good, found.unexpected, found.missing), (2, 1, 0), "{wrong:?}");
        }
        let found = found(Place::Consumer, &[(0, 0), (4, 1), (4, 1)]);
        assert_eq!((found.repeated, found.missing), (1, 1));
        let text = "message 1 (sym S0001, price 0.05, qty 5) came twice";
        assert_eq!(found.first.as_deref(), Some(text));
    }
}
