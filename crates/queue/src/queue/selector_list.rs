//! The distinct filters of a queue's consumers, as others see them.

use super::aside::Aside;
use super::consumers::Consumers;
use super::selectors::{Number, SelectorBits, SelectorFigures, Selectors, bit};

/// How far a selector is from the end of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// Messages that it has not looked at yet; of very many some are counted.
    pub behind: u64,
    /// Messages that it matches and that wait for its consumers, as far as it remembers them.
    pub waiting: u64,
    /// It has looked at all, and its consumers got what it matches.
    pub is_through: bool,
}

impl Distance {
    /// It is at the end.
    pub(super) const NONE: Distance = Distance { behind: 0, waiting: 0, is_through: true };
}

/// The distinct filters of a queue's consumers.
#[derive(Clone, Copy, Debug)]
pub struct SelectorList<'q> {
    selectors: Option<&'q Selectors>,
    aside: Option<&'q Aside>,
    /// Those whose consumers are served.
    counting: SelectorBits,
    /// Messages that none of them has looked at.
    unseen: u64,
}

impl<'q> SelectorList<'q> {
    pub(super) fn of(
        consumers: Option<&'q Consumers>,
        aside: Option<&'q Aside>,
        unseen: u64,
    ) -> SelectorList<'q> {
        let counting = consumers.map_or(0, Consumers::counting_selectors);
        let selectors = consumers.and_then(Consumers::selectors);
        SelectorList { selectors, aside, counting, unseen }
    }

    /// Each of them.
    pub fn figures(self) -> impl Iterator<Item = SelectorFigures> + 'q {
        self.numbered().map(|(_, selector)| selector)
    }

    /// The same, each with how far it is from the end.
    pub fn distances(self) -> impl Iterator<Item = (SelectorFigures, Distance)> + 'q {
        self.numbered().map(move |(number, selector)| {
            let mut distance = self.aside.map_or(Distance::NONE, |aside| aside.distance(number));
            distance.behind += self.unseen;
            distance.is_through &= self.unseen == 0;
            (selector, distance)
        })
    }

    /// Whether one of them is of consumers that do not want everything.
    pub fn are_any_filtered(self) -> bool {
        self.selectors.is_some_and(Selectors::are_any_filtered)
    }

    fn numbered(self) -> impl Iterator<Item = (Number, SelectorFigures)> + 'q {
        let of = move |all: &'q Selectors| {
            all.iter().map(move |(number, filter, consumers)| {
                let counts = self.aside.map_or((0, 0), |aside| aside.counts(number));
                let ((evaluations, deliveries), (way, cost)) = (counts, all.cost(number));
                let (filter, given_up) = (filter.cloned(), all.given_up(number));
                let figures = SelectorFigures {
                    filter,
                    way,
                    cost,
                    consumers,
                    evaluations,
                    deliveries,
                    given_up,
                    is_dear: all.dear() & bit(number) != 0,
                    is_counting: self.counting & bit(number) != 0,
                };
                (number, figures)
            })
        };
        self.selectors.into_iter().flat_map(of)
    }
}
