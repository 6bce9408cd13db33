//! The filters of an exchange as operators see them: how many there are of which kind, and the dearest.

use super::{FilterCost, Filters, Prepared};
use crate::binding::Link;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use lepus_base::ShardId;
use lepus_filter::{BodyFormat, Listed, Way};

/// Bytes of a filter that are shown; of a longer one the beginning is.
const TEXT_BYTES_MAX: usize = 200;

/// How many filters the bindings of an exchange have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterFigures {
    /// Bindings with a filter.
    pub bindings: u32,
    /// Distinct filters that are found by values of fields, or by what these begin with.
    pub looked_up: u32,
    /// Others of which a part is compared for each message, many at a time.
    pub compared: u32,
    /// Those of which a part is evaluated for each message.
    pub evaluated: u32,
    /// Fields that they name.
    pub fields: u32,
    /// Bytes that they take on each shard.
    pub bytes: u64,
    /// What they take of a message, in steps of some ten nanoseconds, where a shard said that it is much: see
    /// [`Directory::note_filter_cost`](crate::Directory::note_filter_cost).
    pub told_steps: Option<u32>,
    /// Whether that is more than there may be, and none has gone since: further ones are taken only if they are looked up.
    pub refuses: bool,
}

/// A distinct filter of an exchange's bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DearFilter {
    /// What it says, in normal form; of a long one the beginning, with an ellipsis behind it.
    pub text: String,
    /// How bodies are read.
    pub format: BodyFormat,
    /// How it comes to be asked.
    pub way: Way,
    /// What evaluating it takes, by what it is made of.
    pub cost: u32,
    /// How many bindings have it.
    pub bindings: u32,
    /// The place of the oldest of them.
    pub(crate) oldest: u32,
}

/// The dearest filters among some places, and where to go on.
pub(crate) struct Dearest {
    pub(crate) filters: Vec<DearFilter>,
    pub(crate) next: Option<usize>,
}

impl Filters {
    /// Distinct filters that are not looked up.
    pub(super) fn unanchored(&self) -> u32 {
        let of = |set: &lepus_filter::FilterSet| set.len() - set.len_of(Way::LookedUp);
        self.sets.iter().map(|(_, set)| of(set)).sum::<usize>() as u32
    }

    /// How many there are.
    pub(crate) fn figures(&self) -> FilterFigures {
        let sum = |way| self.sets.iter().map(|(_, set)| set.len_of(way)).sum::<usize>() as u32;
        FilterFigures {
            bindings: self.len() as u32,
            looked_up: sum(Way::LookedUp),
            compared: sum(Way::Compared),
            evaluated: sum(Way::Evaluated),
            fields: self.fields() as u32,
            bytes: self.bytes() as u64,
            told_steps: self.told_steps(),
            refuses: self.has_most(),
        }
    }

    /// The dearest distinct filters, so many at most, among those at so many places from `from` on.
    pub(crate) fn dearest(&self, from: usize, places: usize, count: usize) -> Dearest {
        let mut found: Vec<(BodyFormat, Listed<'_>)> = Vec::new();
        let (mut before, end) = (0, from.saturating_add(places));
        for (format, set) in &self.sets {
            let all = before + set.places();
            let own = from.max(before)..end.min(all);
            found.extend(own.filter_map(|place| Some((*format, set.at(place - before)?))));
            before = all;
        }
        // What is paid for each message comes first; among equals the oldest.
        found.sort_by_key(|(_, one)| Reverse((one.way, one.cost, one.uses.len())));
        found.truncate(count);
        let row = |(format, one): (BodyFormat, Listed<'_>)| {
            Some(DearFilter {
                text: beginning(one.normal),
                format,
                way: one.way,
                cost: one.cost,
                bindings: one.uses.len() as u32,
                oldest: Link::from_bits(one.uses.first()?.target).binding,
            })
        };
        let filters = found.into_iter().filter_map(row).collect();
        Dearest { filters, next: (end < before).then_some(end) }
    }

    /// A shard says what asking them takes there, if that is much.
    pub(crate) fn note_cost(&mut self, shard: ShardId, cost: Option<FilterCost>) {
        self.told.retain(|(other, _)| *other != shard);
        self.told.extend(cost.map(|cost| (shard, cost)));
        let most =
            cost.map_or(self.unanchored_told, |cost| cost.unanchored.max(self.unanchored_told));
        self.unanchored_told = if self.told.is_empty() { 0 } else { most };
    }

    /// Whether there are as many that are not looked up as ever were while it was much: with fewer, some have gone, whose
    /// clients may come back with them.
    fn has_most(&self) -> bool {
        self.unanchored() >= self.unanchored_told
    }

    /// The most that a shard said, for as many filters as there are now.
    fn told_steps(&self) -> Option<u32> {
        let unanchored = self.unanchored();
        self.told.iter().map(|(_, cost)| cost.with(unanchored)).max()
    }

    /// The steps that they take of a message, if that is more than so many and a filter would make it more: it is none
    /// of them, and would not be looked up.
    pub(crate) fn refuses(&self, filter: &Prepared, steps_max: u32) -> Option<u32> {
        let steps = self.told_steps().filter(|steps| *steps > steps_max)?;
        (filter.is_unanchored() && self.has_most() && !self.has_equal(filter)).then_some(steps)
    }

    fn has_equal(&self, filter: &Prepared) -> bool {
        let Prepared(Some(parsed)) = filter else { return false };
        let same = self.sets.iter().find(|(format, _)| *format == parsed.format);
        same.is_some_and(|(_, set)| set.contains(&parsed.filter))
    }
}

fn beginning(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.into();
    }
    let mut cut = String::from(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(beginning("a = 1"), "a = 1");
        let long = alloc::format!("{}é{}", "a".repeat(TEXT_BYTES_MAX - 1), "b".repeat(9));
        assert_eq!(beginning(&long), alloc::format!("{}…", "a".repeat(TEXT_BYTES_MAX - 1)));
    }
}
