//! Where dead letters go. A change of policies is for those that come after it: who left its queue before goes where
//! it was to go then.

use alloc::boxed::Box;
use alloc::sync::Arc;

use lepus_base::QueueId;

use super::{DeadLetter, DeadLetters};
use crate::queue::QueueSettings;

/// Where the dead letters of a queue go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DestinationRef<'a> {
    /// The dead-letter exchange.
    pub exchange: Option<&'a str>,
    /// The routing key, if it is not their own.
    pub routing_key: Option<&'a str>,
    /// Whether they must arrive.
    pub at_least_once: bool,
}

impl<'a> DestinationRef<'a> {
    /// By what holds for a queue.
    pub(crate) fn of(settings: &'a QueueSettings) -> DestinationRef<'a> {
        DestinationRef {
            exchange: settings.dead_letter_exchange.as_deref(),
            routing_key: settings.dead_letter_routing_key.as_deref(),
            at_least_once: settings.at_least_once,
        }
    }
}

/// Where the dead letters of a queue went before a change.
#[derive(Debug)]
pub(crate) struct Destination {
    exchange: Option<Box<str>>,
    routing_key: Option<Box<str>>,
    at_least_once: bool,
}

impl Destination {
    fn new(from: DestinationRef<'_>) -> Destination {
        Destination {
            exchange: from.exchange.map(Box::from),
            routing_key: from.routing_key.map(Box::from),
            at_least_once: from.at_least_once,
        }
    }

    fn get(&self) -> DestinationRef<'_> {
        DestinationRef {
            exchange: self.exchange.as_deref(),
            routing_key: self.routing_key.as_deref(),
            at_least_once: self.at_least_once,
        }
    }
}

impl DeadLetter {
    /// Where it goes, where those of its queue go to `now` that come next. One that must arrive and could not does as
    /// these, or a wrong exchange would keep it for ever: but only if these must arrive, too.
    pub(crate) fn destination<'a>(&'a self, now: DestinationRef<'a>) -> DestinationRef<'a> {
        match self.before.as_deref().map(Destination::get) {
            Some(before) if before.at_least_once && now.at_least_once && self.is_tried_again() => {
                now
            }
            Some(before) => before,
            None => now,
        }
    }

    /// Has it go where it was to go before a change, if it does not do so because of an earlier one.
    pub(super) fn keep_destination(&mut self, before: &Arc<Destination>) {
        self.before.get_or_insert_with(|| before.clone());
    }
}

impl DeadLetters {
    /// The letters of a queue are to go elsewhere from now on: those that have left it go where they were to go
    /// `before`. How many were looked at.
    pub(crate) fn keep_destination(&mut self, queue: QueueId, before: DestinationRef<'_>) -> usize {
        if before.exchange.is_none() || (self.is_empty() && self.ledger.shelf.is_empty()) {
            return 0;
        }
        let before = Arc::new(Destination::new(before));
        let mut looked_at = self.next.len();
        for letter in self.next.iter_mut().filter(|letter| letter.source.queue == queue) {
            letter.keep_destination(&before);
        }
        looked_at += self.lines.keep_destination(queue, &before);
        looked_at + self.ledger.shelf.keep_destination(queue, &before, before.at_least_once)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::tests::letter_of;
    use super::*;
    use crate::journal::{LogSet, Need};

    fn to(exchange: &str, at_least_once: bool) -> DestinationRef<'_> {
        DestinationRef { exchange: Some(exchange), routing_key: None, at_least_once }
    }

    #[test]
    fn letters_on_their_way_and_in_lines_go_where_they_were_to_go() {
        let mut letters = DeadLetters::default();
        let push = |letters: &mut DeadLetters, queue| {
            let letter = letter_of(queue, 1);
            letters.push(letter.source, letter.reason);
        };
        push(&mut letters, 1);
        push(&mut letters, 2);
        let need = Need { logs: LogSet::OWN, bytes: 1 };
        letters.lines.wait(letter_of(1, 0), need, Vec::new(), true);
        assert_eq!(letters.keep_destination(QueueId(1), to("a", false)), 3);
        // The first change counts, and those that come later are of the second.
        push(&mut letters, 1);
        letters.keep_destination(QueueId(1), to("b", false));
        let now = to("c", false);
        let goes_to = |letter: &DeadLetter| letter.destination(now).exchange.map(Box::from);
        let found: Vec<Option<Box<str>>> = letters.next.iter().map(goes_to).collect();
        assert_eq!(found, [Some("a".into()), Some("c".into()), Some("b".into())]);
        let waiting = letters.lines.letters_of(QueueId(1)).map(goes_to).collect::<Vec<_>>();
        assert_eq!(waiting, [Some("a".into())]);
    }
}
