//! What is deleted and not over yet: who waits for it, and what has to happen before.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use lepus_base::VhostId;

use crate::directory::Request;
use crate::mail::Origin;

/// A deletion of which something goes in slices, or by which exchanges delete themselves that have to
/// be deleted by requests.
#[derive(Debug)]
struct Deletion {
    origin: Origin,
    /// Slices and requests that are not over.
    open: usize,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Deletions {
    by_number: BTreeMap<u64, Deletion>,
    /// Those whose slices are not over, in the order of the directory.
    in_slices: VecDeque<u64>,
    next: u64,
}

impl Deletions {
    /// Whether nobody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Whether the directory has something to take out in slices.
    pub(crate) fn has_slices(&self) -> bool {
        !self.in_slices.is_empty()
    }

    /// The deletion whose slices come next.
    pub(crate) fn first(&self) -> Option<u64> {
        self.in_slices.front().copied()
    }

    /// The slices of the first one are over.
    pub(crate) fn end_slices(&mut self) {
        self.in_slices.pop_front();
    }

    /// Adds a deletion that waits for nothing yet; its number.
    pub(crate) fn add(&mut self, origin: Origin) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, Deletion { origin, open: 0 });
        number
    }

    /// The deletion is not over before its slices are.
    pub(crate) fn wait_for_slices(&mut self, number: u64) {
        self.in_slices.push_back(number);
        self.wait(number, 1);
    }

    /// Puts requests that delete what deletes itself by this deletion before all others: what the
    /// directory says of it must hold when they are decided.
    pub(crate) fn request(
        &mut self,
        number: u64,
        exchanges: Vec<(VhostId, Box<str>)>,
        waiting: &mut VecDeque<(Origin, Request)>,
    ) {
        self.wait(number, exchanges.len());
        for (vhost, name) in exchanges.into_iter().rev() {
            let (vhost, name) = (vhost.into(), name.into());
            let request = Request::DeleteExchange { vhost, name, if_unused: true };
            waiting.push_front((Origin::Deletion(number), request));
        }
    }

    fn wait(&mut self, number: u64, count: usize) {
        if let Some(deletion) = self.by_number.get_mut(&number) {
            deletion.open += count;
        }
    }

    /// One of the things that a deletion waits for is over. Whoever has to hear that it was the last.
    pub(crate) fn one_less(&mut self, mut number: u64) -> Option<Origin> {
        loop {
            let deletion = self.by_number.get_mut(&number)?;
            deletion.open -= 1;
            if deletion.open > 0 {
                return None;
            }
            match self.by_number.remove(&number)?.origin {
                Origin::Deletion(cause) => number = cause,
                origin => return Some(origin),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanges(names: &[&str]) -> Vec<(VhostId, Box<str>)> {
        names.iter().map(|name| (VhostId(1), Box::from(*name))).collect()
    }

    #[test]
    fn who_asked_hears_when_all_that_followed_is_over() {
        let (mut deletions, mut waiting) = (Deletions::default(), VecDeque::new());
        waiting.push_back((Origin::Start, Request::UseIds { below: 1 }));
        let first = deletions.add(Origin::Control(7));
        deletions.wait_for_slices(first);
        deletions.request(first, exchanges(&["a", "b"]), &mut waiting);
        let names: Vec<&str> = (waiting.iter())
            .map(|(_, request)| match request {
                Request::DeleteExchange { name, .. } => &**name,
                _ => "another",
            })
            .collect();
        assert_eq!(names, ["a", "b", "another"]);
        // The first of them is large.
        let second = deletions.add(waiting[0].0);
        deletions.wait_for_slices(second);
        assert_eq!(deletions.first(), Some(first));
        deletions.end_slices();
        assert_eq!(deletions.one_less(first), None);
        assert_eq!(deletions.one_less(first), None);
        assert_eq!(deletions.first(), Some(second));
        deletions.end_slices();
        assert!(!deletions.has_slices() && !deletions.is_empty());
        assert_eq!(deletions.one_less(second), Some(Origin::Control(7)));
        assert!(deletions.is_empty());
    }
}
