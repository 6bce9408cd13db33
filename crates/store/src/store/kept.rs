//! Segments that are kept for damage that a start met in them. What was lost there is in no index: the
//! segment counts a part of a message more than the table of such messages knows, which checkpoints say
//! like all other counts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Store;
use crate::disk::File;
use crate::place::generation;

impl Store {
    /// Segments that are kept for damage that a start met in them, this one or an earlier one: which segment
    /// of the log, its file, and how much of that was written. They stay until
    /// [`Store::release_damage`].
    #[must_use]
    pub fn damaged_segments(&self) -> Vec<(u32, File, u32)> {
        let kept = self.parts_unknown().into_iter();
        let segments = kept.filter_map(|(number, _)| {
            let segment = self.log.segments.get(&number)?;
            Some((number, File::Segment(self.settings.log, segment.slot?), segment.used_bytes))
        });
        segments.collect()
    }

    /// A segment is not kept any more for damage that a start met in it.
    pub fn release_damage(&mut self, number: u32) {
        let Some(unknown) = self.parts_unknown().remove(&number) else { return };
        if let Some(segment) = self.log.segments.get_mut(&number) {
            segment.pins -= unknown;
            self.state.died += usize::from(segment.is_dead());
        }
    }

    /// Parts of messages that segments count and no message has.
    pub(super) fn parts_unknown(&self) -> BTreeMap<u32, u32> {
        let pinned = self.log.segments.iter().filter(|(_, segment)| segment.pins > 0);
        let mut unknown: BTreeMap<u32, u32> =
            pinned.map(|(&number, segment)| (number, segment.pins)).collect();
        if unknown.is_empty() {
            return unknown;
        }
        for (&start, span) in self.state.tables.spans.iter().filter(|(_, span)| !span.is_transient)
        {
            for (_, parts) in unknown.range_mut(generation(start)..=span.generation_last) {
                *parts = parts.saturating_sub(1);
            }
        }
        unknown.retain(|_, parts| *parts > 0);
        unknown
    }
}
