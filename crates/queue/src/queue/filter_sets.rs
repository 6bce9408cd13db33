//! The filters of a queue, compiled to be asked together: those that read bodies in the same way are a set, and the dear ones
//! of them another one, so that others can be asked without them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lepus_filter::{BodyFormat, FilterSet, SetLimits, Subscription, Way};

use super::selectors::{ConsumerFilter, Number, SELECTORS_MAX, SelectorBits, bit};

/// Bytes that the filters of a queue take at most, of those that read bodies in the same way.
const SET_BYTES_MAX: usize = 1 << 20;

/// Bounds of a set.
const SET_LIMITS: SetLimits = SetLimits {
    filters_max: SELECTORS_MAX,
    unindexed_max: SELECTORS_MAX,
    paths_max: 1000,
    bytes_max: SET_BYTES_MAX,
    body_bytes_max: 1 << 20,
};

/// Those of the dear ones: whatever fields they name, a message is read once for all of them.
const DEAR_LIMITS: SetLimits =
    SetLimits { paths_max: SELECTORS_MAX * SET_LIMITS.paths_max, ..SET_LIMITS };

/// Filters that are asked in one pass.
pub(super) struct Pass {
    /// How they read bodies.
    pub(super) format: BodyFormat,
    /// Whether they are dear.
    pub(super) is_dear: bool,
    /// The selectors whose filters they are.
    pub(super) members: SelectorBits,
    pub(super) filters: FilterSet,
}

impl Pass {
    /// One for such filters, without any.
    fn new(filter: &ConsumerFilter, is_dear: bool) -> Pass {
        let limits = if is_dear { DEAR_LIMITS } else { SET_LIMITS };
        let filters = FilterSet::new(limits, filter.hash);
        Pass { format: filter.format, is_dear, members: 0, filters }
    }
}

/// Where a selector's filter is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filed {
    pass: usize,
    subscription: Subscription,
}

/// See the module.
#[derive(Default)]
pub(super) struct FilterSets {
    passes: Vec<Pass>,
}

impl FilterSets {
    /// What is asked of a message, one after the other: the dear ones last, since all together have a bound.
    pub(super) fn passes(&self) -> impl Iterator<Item = &Pass> {
        let of = |is_dear| self.passes.iter().filter(move |pass| pass.is_dear == is_dear);
        of(false).chain(of(true))
    }

    /// A selector comes, whose filter is not dear as far as is known.
    ///
    /// # Errors
    /// In words, what there would be too much of.
    pub(super) fn file(
        &mut self,
        filter: &ConsumerFilter,
        selector: Number,
    ) -> Result<Filed, Box<str>> {
        let alike = |pass: &&Pass| pass.format == filter.format;
        let dear = self.passes.iter().filter(|pass| pass.is_dear).filter(alike);
        let dear_bytes = dear.map(|pass| pass.filters.bytes()).sum();
        let found = self.passes.iter().position(|pass| alike(&pass) && !pass.is_dear);
        let at = found.unwrap_or_else(|| self.place(None, Pass::new(filter, false)));
        let pass = &mut self.passes[at];
        let checked = pass.filters.check(&filter.filter, &SET_LIMITS, dear_bytes);
        let added = checked.and_then(|()| pass.filters.add(&filter.filter, selector.into()));
        let subscription = added.map_err(|full| alloc::format!("x-filter: {full}"))?;
        pass.members |= bit(selector);
        Ok(Filed { pass: at, subscription })
    }

    /// Puts a pass in the place of another one, or behind all.
    fn place(&mut self, at: Option<usize>, pass: Pass) -> usize {
        let at = at.unwrap_or(self.passes.len());
        match self.passes.get_mut(at) {
            Some(free) => *free = pass,
            None => self.passes.push(pass),
        }
        at
    }

    /// The filter of a selector is found to be dear: it goes to those that are.
    pub(super) fn make_dear(
        &mut self,
        filter: &ConsumerFilter,
        selector: Number,
        filed: Filed,
    ) -> Filed {
        self.remove(selector, filed);
        let mut added = None;
        let alike = self.passes.iter_mut().enumerate();
        let alike = alike.filter(|(_, pass)| pass.is_dear && pass.format == filter.format);
        for (at, pass) in alike {
            added = pass.filters.add(&filter.filter, selector.into()).ok().map(|new| (at, new));
            if added.is_some() {
                break;
            }
        }
        let (at, subscription) = added.unwrap_or_else(|| {
            // There are no more of these than selectors.
            let is_free = |pass: &Pass| pass.members == 0 && pass.is_dear;
            let free = self.passes.iter().position(is_free);
            let mut new = Pass::new(filter, true);
            let added = new.filters.add(&filter.filter, selector.into());
            let Ok(subscription) = added else {
                invariant!("what a set with others takes is taken alone")
            };
            (self.place(free, new), subscription)
        });
        self.passes[at].members |= bit(selector);
        Filed { pass: at, subscription }
    }

    /// A selector goes.
    pub(super) fn remove(&mut self, selector: Number, filed: Filed) {
        let pass = &mut self.passes[filed.pass];
        let was_there = pass.filters.remove(filed.subscription);
        assert!(was_there, "a selector stays in its set as long as it is used");
        // One group at a time: selectors are few.
        while pass.filters.work(usize::MAX) {}
        pass.members &= !bit(selector);
    }

    /// How a filter comes to be asked, and what evaluating it takes.
    pub(super) fn cost(&self, filed: Filed) -> Option<(Way, u32)> {
        let listed = self.passes[filed.pass].filters.listed(filed.subscription)?;
        Some((listed.way, listed.cost))
    }

    /// Allocated bytes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.passes.iter().map(|pass| pass.filters.bytes()).sum()
    }
}
