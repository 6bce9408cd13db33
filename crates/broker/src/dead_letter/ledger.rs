//! Dead letters that are where they were until others have said that they have them, and those that stay there.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use lepus_base::QueueId;
use lepus_store::LaneSlot;

use super::held::Shelf;
use super::{Source, must_arrive};
use crate::journal::Occupied;
use crate::mail::ChannelRef;

/// Messages whose queues elsewhere have yet to report: only then are they settled where they were.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) waiting: BTreeMap<u64, Waiting>,
    /// Those that a log did not take: they stay where they are for the next run.
    pub(super) kept: Vec<Source>,
    /// Dead letters that must arrive and have not yet.
    pub(super) shelf: Shelf,
    last: u64,
}

/// A message under way.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) source: Source,
    /// Reports that are still missing.
    pub(super) missing: u32,
    /// A log did not take it.
    pub(super) is_kept: bool,
}

impl Ledger {
    /// Whether none waits for a report.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.shelf.has_asked()
    }

    /// Those that stay where they are, in queues of one log, with their lanes.
    pub(super) fn kept(&self, log: u16) -> impl Iterator<Item = (&Source, LaneSlot)> {
        let stays = self.kept.iter().chain(self.shelf.held());
        let kept = stays.filter(move |source| source.log == log);
        kept.filter_map(|source| Some((source, source.lane?)))
    }

    /// Whether one of this queue waits for a report, or stays.
    pub(super) fn has_of(&self, queue: QueueId) -> bool {
        self.shelf.has_of(queue) || self.loose().any(|source| source.queue == queue)
    }

    /// Bytes that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.waiting.len() + self.kept.len()) * size_of::<Waiting>() + self.shelf.memory_bytes()
    }

    /// Where all are.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.loose().chain(self.shelf.sources())
    }

    /// Those that need not arrive.
    fn loose(&self) -> impl Iterator<Item = &Source> {
        self.waiting.values().map(|waiting| &waiting.source).chain(&self.kept)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// What a message takes in the log that it is in, of which a report under this number is missing.
    pub(super) fn occupied(&self, to: ChannelRef, number: u64) -> Occupied {
        let source = match must_arrive(to) {
            true => self.shelf.asked_of(number),
            false => self.waiting.get(&number).map(|waiting| &waiting.source),
        };
        source.map_or(Occupied::default(), Source::occupied)
    }

    /// So many more reports of a message are to come.
    pub(super) fn expect(&mut self, number: u64, more: u32) {
        let Some(waiting) = self.waiting.get_mut(&number) else {
            invariant!("what more reports are to come for is still waiting for some");
        };
        waiting.missing += more;
    }

    /// So many reports have come; the source, if they were the last and all have it.
    pub(super) fn report(&mut self, number: u64, reports: u32, is_kept: bool) -> Option<Source> {
        let waiting = self.waiting.get_mut(&number)?;
        invariant!(reports <= waiting.missing, "nobody reports what nobody waits for");
        waiting.missing -= reports;
        waiting.is_kept |= is_kept;
        if waiting.missing > 0 {
            return None;
        }
        let Waiting { source, is_kept, .. } = self.waiting.remove(&number)?;
        if is_kept {
            self.kept.push(source);
            return None;
        }
        Some(source)
    }
}
