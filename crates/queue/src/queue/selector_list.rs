//! The distinct filters of a queue's consumers, as others see them.

use super::aside::Aside;
use super::consumers::Consumers;
use super::selectors::{Number, SelectorFigures, Selectors};

/// The distinct filters of a queue's consumers.
#[derive(Clone, Copy, Debug)]
pub struct SelectorList<'q> {
    selectors: Option<&'q Selectors>,
    aside: Option<&'q Aside>,
    /// Messages that none of them has looked at.
    unseen: u64,
}

impl<'q> SelectorList<'q> {
    pub(super) fn of(
        consumers: Option<&'q Consumers>,
        aside: Option<&'q Aside>,
        unseen: u64,
    ) -> SelectorList<'q> {
        SelectorList { selectors: consumers.and_then(Consumers::selectors), aside, unseen }
    }

    /// Each of them.
    pub fn figures(self) -> impl Iterator<Item = SelectorFigures> + 'q {
        self.numbered().map(|(_, selector)| selector)
    }

    /// The same, each with the messages that it has not looked at yet, and with those that it matches and that wait for its
    /// consumers, as far as it remembers them. Of very many some are counted.
    pub fn distances(self) -> impl Iterator<Item = (SelectorFigures, u64, u64)> + 'q {
        self.numbered().map(move |(number, selector)| {
            let (behind, waiting) = self.aside.map_or((0, 0), |aside| aside.distance(number));
            (selector, behind + self.unseen, waiting)
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
                let filter = filter.cloned();
                let figures =
                    SelectorFigures { filter, way, cost, consumers, evaluations, deliveries };
                (number, figures)
            })
        };
        self.selectors.into_iter().flat_map(of)
    }
}
