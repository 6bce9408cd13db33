//! Many filters that are asked together: which of them match a message?

mod direct;
mod filing;
mod listing;
mod matching;
mod plan;
#[cfg(test)]
mod tests;

pub use listing::{Listed, Way};
pub use matching::{Dear, Match, Report, Scratch, Shares};

use crate::atom::{Key, branches};
use crate::bound::Bound;
use crate::filter::Filter;
use crate::form::Form;
use crate::group::{Group, Looked, Place};
use crate::limits::PLACES_MAX;
use crate::merge::Merge;
use crate::paths::Slot;
use crate::program::{NodeId, Program};
use crate::segment::BranchId;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::BuildHasher;
use direct::Direct;
use filing::Filing;
use lepus_base::{HashState, LinearTable};
use plan::Plan;

/// Bounds of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// Distinct filters.
    pub filters_max: usize,
    /// Distinct filters with a part that can be looked up neither by a value nor by a range: each of them is paid at
    /// each message.
    pub unindexed_max: usize,
    /// Distinct fields that the filters name, arrays of `ANY` and `ALL` once more.
    pub paths_max: usize,
    /// Bytes that all of them take, see [`FilterSet::bytes`].
    pub bytes_max: usize,
    /// Bytes of a body that is read; every field of a longer one is missing.
    pub body_bytes_max: usize,
}

impl Default for SetLimits {
    fn default() -> SetLimits {
        SetLimits {
            filters_max: 100_000,
            unindexed_max: 10_000,
            paths_max: 1000,
            bytes_max: 32 << 20,
            body_bytes_max: 1024 * 1024,
        }
    }
}

/// A filter that a set has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFull {
    /// What there is too much of.
    pub what: &'static str,
    /// How much of it is allowed.
    pub allowed: usize,
}

impl fmt::Display for SetFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} {}", self.allowed, self.what)
    }
}

impl core::error::Error for SetFull {}

/// A use of a filter in a set, for taking it out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscription {
    filter: u32,
    number: u64,
}

/// What a filter that comes or goes tidies up for each of its places, in steps: about what the place will take.
const ADD_STEPS: usize = 160;
const REMOVE_STEPS: usize = 48;
/// What a step of a merge takes, in steps of ten nanoseconds: it goes through memory that is not at hand.
const MERGE_STEP: usize = 3;

/// No filter, no part of the program.
const NONE: u32 = u32::MAX;

/// Filters that are asked together.
///
/// Equal ones are kept once. What a filter compares for equality is looked up, ranges stand in columns, and only what is
/// left is evaluated, for messages that pass the rest. [`FilterSet::work`] tidies up a little at a time; without it
/// matching is as right, but slower.
#[derive(Clone, Debug)]
pub struct FilterSet {
    limits: SetLimits,
    state: HashState,
    program: Program,
    /// By the filter's place in the set.
    filters: Vec<Option<Entry>>,
    free_filters: Vec<u32>,
    by_text: LinearTable<u32>,
    branches: Vec<Branch>,
    free_branches: Vec<BranchId>,
    filing: Filing,
    /// Those that are there, where they are few and compare headers alone.
    direct: Option<Box<Direct>>,
    /// Where there is something to tidy up, and the merge that is under way.
    due: VecDeque<Due>,
    merge: Option<(Due, Box<Merge>)>,
    /// Counts segments and uses.
    born: u64,
    next_number: u64,
    unindexed: usize,
    /// Distinct filters that are found by values alone.
    looked_up: usize,
    dropped: Vec<BranchId>,
    /// The most steps that tidying up took beyond those that it was given.
    most_beyond: usize,
    /// Bytes of what filters have beside their place among them.
    entry_bytes: usize,
}

/// A place of a group where there is something to do.
#[derive(Clone, Copy, Debug)]
struct Due {
    group: u32,
    /// Tells the group apart from others that had its place.
    born: u64,
    place: Place,
}

/// A distinct filter.
#[derive(Clone, Debug)]
struct Entry {
    normal: Box<str>,
    hash: u64,
    uses: Vec<Match>,
    branches: Box<[BranchId]>,
    /// Slots that its branches look at, as often as they do.
    slots: Box<[Slot]>,
    way: Way,
    /// Whether it compares headers alone.
    is_direct: bool,
    /// See [`Filter::cost`].
    cost: u32,
}

impl Entry {
    /// Bytes of what it has beside its place among the others.
    fn bytes(&self) -> usize {
        self.normal.len()
            + self.uses.capacity() * size_of::<Match>()
            + size_of_val(&*self.branches)
            + size_of_val(&*self.slots)
    }
}

/// A part of a filter: if it is TRUE, so is the filter.
#[derive(Clone, Copy, Debug)]
struct Branch {
    /// The filter; none once it was removed.
    filter: u32,
    /// What must be TRUE besides.
    rest: NodeId,
    group: u32,
}

impl FilterSet {
    /// A set without filters. Names and values of messages are hashed with `state`.
    #[must_use]
    pub fn new(limits: SetLimits, state: HashState) -> FilterSet {
        FilterSet {
            limits,
            state,
            program: Program::new(state),
            filters: Vec::new(),
            free_filters: Vec::new(),
            by_text: LinearTable::new(),
            branches: Vec::new(),
            free_branches: Vec::new(),
            filing: Filing::new(state),
            direct: None,
            due: VecDeque::new(),
            merge: None,
            born: 0,
            next_number: 0,
            unindexed: 0,
            looked_up: 0,
            dropped: Vec::new(),
            most_beyond: 0,
            entry_bytes: 0,
        }
    }

    /// Number of distinct filters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_text.len()
    }

    /// Whether there is no filter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty()
    }

    /// Whether a filter names a field of the body, so that bodies are read.
    #[must_use]
    pub fn reads_bodies(&self) -> bool {
        self.program.paths.extraction().reads_bodies()
    }

    /// Adds a use of a filter; `target` comes with its matches.
    ///
    /// # Errors
    /// When the set has no room for one more distinct filter; it is as before then.
    pub fn add(&mut self, filter: &Filter, target: u64) -> Result<Subscription, SetFull> {
        let number = self.next_number;
        let found = Match { number, target };
        let hash = self.state.hash_one(filter.normal());
        if let Some(id) = self.place(filter, hash) {
            if let Some(entry) = &mut self.filters[id as usize] {
                self.entry_bytes -= entry.bytes();
                entry.uses.push(found);
                self.entry_bytes += entry.bytes();
            }
            self.next_number += 1;
            return Ok(Subscription { filter: id, number });
        }
        self.check_new(filter, &self.limits, 0)?;
        let id = self.free_filters.pop().unwrap_or_else(|| {
            self.filters.push(None);
            (self.filters.len() - 1) as u32
        });
        let entry = self.file(filter, id, hash, found);
        let places = entry.branches.len();
        self.unindexed += usize::from(entry.way == Way::Evaluated);
        self.looked_up += usize::from(entry.way == Way::LookedUp);
        self.entry_bytes += entry.bytes();
        self.filters[id as usize] = Some(entry);
        let filters = &self.filters;
        let hash_of = |id: &u32| filters[*id as usize].as_ref().map_or(0, |entry| entry.hash);
        self.by_text.insert_unique(hash, id, hash_of);
        self.next_number += 1;
        let subscription = Subscription { filter: id, number };
        if self.unindexed > self.limits.unindexed_max {
            self.remove(subscription);
            return Err(SetFull {
                what: "filters that no value and no range can be looked up for",
                allowed: self.limits.unindexed_max,
            });
        }
        self.renew_direct();
        self.pay(ADD_STEPS * places);
        Ok(subscription)
    }

    /// Whether there would be room for a filter in a set with these limits, beside so many bytes of other sets, as far
    /// as that is known before it is there.
    ///
    /// # Errors
    /// What there would be too much of.
    pub fn check(&self, filter: &Filter, limits: &SetLimits, others: usize) -> Result<(), SetFull> {
        match self.place(filter, self.state.hash_one(filter.normal())) {
            Some(_) => Ok(()),
            None => self.check_new(filter, limits, others),
        }
    }

    /// The same for a filter that is not there.
    fn check_new(&self, filter: &Filter, limits: &SetLimits, others: usize) -> Result<(), SetFull> {
        let SetLimits { filters_max, paths_max, bytes_max, .. } = *limits;
        let full = |what, allowed| Err(SetFull { what, allowed });
        if self.len() >= filters_max {
            return full("filters", filters_max);
        }
        let known = self.program.fields() + filter.quantifiers();
        // Mostly there is room even if all of them are new.
        if known + (filter.field_count() - filter.quantifiers()) > paths_max {
            let paths = &self.program.paths;
            let new = filter.fields().into_iter().filter(|path| !paths.contains(path)).count();
            if known + new > paths_max {
                return full("fields in all filters", paths_max);
            }
        }
        let bytes = self.bytes().saturating_add(filter.bytes_max());
        if bytes.saturating_add(others) > bytes_max {
            return full("bytes for all filters", bytes_max);
        }
        Ok(())
    }

    /// Fields that its filters name; arrays of `ANY` and `ALL` count once more.
    #[must_use]
    pub fn fields(&self) -> usize {
        self.program.fields()
    }

    /// Whether a filter is there already: another use of it costs next to nothing.
    #[must_use]
    pub fn contains(&self, filter: &Filter) -> bool {
        self.place(filter, self.state.hash_one(filter.normal())).is_some()
    }

    /// The place of a filter that is there.
    fn place(&self, filter: &Filter, hash: u64) -> Option<u32> {
        let is_same = |id: &u32| {
            let entry = self.filters[*id as usize].as_ref();
            entry.is_some_and(|entry| *entry.normal == *filter.normal())
        };
        self.by_text.find(hash, is_same).copied()
    }

    /// Takes a use of a filter out. Whether it was there.
    pub fn remove(&mut self, subscription: Subscription) -> bool {
        let id = subscription.filter;
        let Some(Some(entry)) = self.filters.get_mut(id as usize) else { return false };
        let order = |found: &Match| found.number.cmp(&subscription.number);
        let Ok(at) = entry.uses.binary_search_by(order) else { return false };
        self.entry_bytes -= entry.bytes();
        entry.uses.remove(at);
        if !entry.uses.is_empty() {
            if entry.uses.len() * 4 < entry.uses.capacity() {
                entry.uses.shrink_to(2 * entry.uses.len());
            }
            self.entry_bytes += entry.bytes();
            return true;
        }
        let Some(entry) = self.filters[id as usize].take() else { return false };
        self.by_text.remove(entry.hash, |known| *known == id);
        self.free_filters.push(id);
        self.unindexed -= usize::from(entry.way == Way::Evaluated);
        self.looked_up -= usize::from(entry.way == Way::LookedUp);
        for &branch in entry.branches.iter() {
            self.bury(branch);
        }
        entry.slots.iter().for_each(|slot| self.program.release_slot(*slot));
        self.renew_direct();
        self.pay(REMOVE_STEPS * entry.branches.len());
        true
    }

    /// The normal form of the filter of a use.
    #[must_use]
    pub fn normal(&self, subscription: Subscription) -> Option<&str> {
        let entry = self.filters.get(subscription.filter as usize)?.as_ref()?;
        Some(&entry.normal)
    }

    fn bury(&mut self, id: BranchId) {
        let Branch { rest, group, .. } = self.branches[id as usize];
        self.branches[id as usize].filter = NONE;
        if rest != NONE {
            self.program.release(rest);
        }
        let (at, due) = (self.born, &mut self.due);
        self.filing.change(group, |born, found| {
            due.extend(found.bury(at).map(|place| Due { group, born, place }));
        });
        self.forget_if_over(group);
    }

    /// Takes away a group without branches that live.
    fn forget_if_over(&mut self, group: u32) {
        if let Some(branches) = self.filing.remove_if_over(group) {
            self.free_branches.extend(branches);
        }
    }

    /// Files the branches of a filter.
    fn file(&mut self, filter: &Filter, id: u32, hash: u64, found: Match) -> Entry {
        let mut branches = branches(filter.tree());
        let plan = |atoms: &mut Vec<_>| Plan::new(atoms, &self.filing, &mut self.program);
        let mut plans: Vec<Plan> = branches.iter_mut().map(plan).collect();
        if plans.iter().map(Plan::places).sum::<usize>() > PLACES_MAX {
            for slot in plans.drain(..).flat_map(|plan| plan.slots) {
                self.program.release_slot(slot);
            }
            plans.push(Plan::evaluated(filter.tree()));
        }
        let mut all = Vec::with_capacity(plans.iter().map(Plan::places).sum());
        let mut slots = Vec::with_capacity(plans.iter().map(|plan| plan.slots.len()).sum());
        let mut way = Way::LookedUp;
        for plan in plans {
            let places = plan.places();
            slots.extend(plan.slots);
            way = way.max(match plan.keys {
                Some(_) => Way::LookedUp,
                // What is computed is paid at each message.
                None if plan.bounds.iter().all(|bound| self.program.is_computed(bound.slot)) => {
                    Way::Evaluated
                }
                None => Way::Compared,
            });
            let rest = match &plan.rest {
                Some(rest) => self.program.acquire(rest),
                None => NONE,
            };
            let mut keys = plan.keys.into_iter().flatten();
            let mut bounds = plan.bounds;
            for index in 0..places {
                let group = match keys.next() {
                    Some(key) => self.filing.group(key),
                    None => Filing::ALL,
                };
                if rest != NONE && index > 0 {
                    self.program.use_again(rest);
                }
                let branch = Branch { filter: id, rest, group };
                let branch_id = match self.free_branches.pop() {
                    Some(free) => {
                        self.branches[free as usize] = branch;
                        free
                    }
                    None => {
                        self.branches.push(branch);
                        (self.branches.len() - 1) as BranchId
                    }
                };
                all.push(branch_id);
                let own = match index + 1 == places {
                    true => core::mem::take(&mut bounds),
                    false => bounds.clone(),
                };
                self.enter(branch_id, group, own, plan.form.as_ref());
            }
        }
        Entry {
            normal: filter.normal().into(),
            hash,
            uses: Vec::from([found]),
            branches: all.into(),
            slots: slots.into(),
            way,
            is_direct: direct::suits(filter),
            cost: u32::try_from(filter.cost()).unwrap_or(u32::MAX),
        }
    }

    fn enter(
        &mut self,
        branch: BranchId,
        group: u32,
        bounds: Vec<Bound>,
        form: Option<&Arc<Form>>,
    ) {
        let due = &mut self.due;
        self.filing.change(group, |born, found| {
            let place = found.add(branch, bounds, form);
            due.extend(place.map(|place| Due { group, born, place }));
        });
    }

    /// Whoever changes the set tidies up a little, so that what there is to do does not grow.
    fn pay(&mut self, steps: usize) {
        if self.has_work() {
            self.work(steps);
        }
    }

    /// Whether there is something to tidy up.
    fn has_work(&self) -> bool {
        self.merge.is_some() || !self.due.is_empty()
    }

    /// Tidies up for about so many steps, of some ten nanoseconds each: puts what was added into columns, merges these, drops
    /// what was removed. Returns whether there is more to do. What is begun before they end may take some 5,200 steps more.
    pub fn work(&mut self, mut steps: usize) -> bool {
        while steps > 0 {
            let taken = match self.merge.take() {
                Some((due, merge)) => self.go_on(due, merge, steps),
                None => match self.due.pop_front() {
                    Some(due) => self.look(due),
                    None => break,
                },
            };
            self.most_beyond = self.most_beyond.max(taken.saturating_sub(steps));
            self.free_branches.append(&mut self.dropped);
            steps = steps.saturating_sub(taken);
        }
        self.has_work()
    }

    /// Goes on with a merge for at most so many steps; returns how many it took.
    fn go_on(&mut self, due: Due, mut merge: Box<Merge>, steps: usize) -> usize {
        let Self { filing, born, dropped, branches, .. } = self;
        let is_alive = |id: BranchId| branches[id as usize].filter != NONE;
        let mut taken = 1;
        let result = filing.change(due.group, |group_born, group| {
            if group_born != due.born {
                return None;
            }
            let given = steps.div_ceil(MERGE_STEP);
            let left = merge.work(given, is_alive);
            taken = (given - left) * MERGE_STEP;
            if !merge.is_done() {
                return Some((false, None));
            }
            *born += 1;
            Some((true, group.install(&mut merge, *born, dropped)))
        });
        // A group that is gone takes its merge along.
        let Some(Some((is_done, more))) = result else { return 1 };
        if is_done {
            self.due.push_front(due);
            self.due.extend(more.map(|place| Due { place, ..due }));
            self.forget_if_over(due.group);
        } else {
            self.merge = Some((due, merge));
        }
        taken
    }

    /// Looks at a place; returns how many steps it took.
    fn look(&mut self, due: Due) -> usize {
        let Self { filing, born, dropped, branches, .. } = self;
        let is_alive = |id: BranchId| branches[id as usize].filter != NONE;
        let mut more = None;
        let result = filing.change(due.group, |group_born, group| {
            (group_born == due.born)
                .then(|| group.look(due.place, born, is_alive, dropped, &mut more))
        });
        let Some(Some((looked, taken))) = result else { return 1 };
        match looked {
            Looked::Done => {}
            Looked::Again => self.due.push_front(due),
            Looked::Merge(merge) => self.merge = Some((due, merge)),
        }
        self.due.extend(more.map(|place| Due { place, ..due }));
        self.forget_if_over(due.group);
        taken
    }

    /// Bytes that the set takes, by the capacity of its tables. What it has of regular expressions may be shared with
    /// other sets, and counts here.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<FilterSet>()
            + self.filters.capacity() * size_of::<Option<Entry>>()
            + self.free_filters.capacity() * size_of::<u32>()
            + self.by_text.allocation_size()
            + self.free_branches.capacity() * size_of::<BranchId>()
            + self.due.capacity() * size_of::<Due>()
            + self.entry_bytes
            + self.direct.as_ref().map_or(0, |direct| direct.bytes())
            + self.program.bytes()
            + self.bytes_hot()
    }

    /// Bytes of those that matching looks at, but for what is evaluated.
    #[must_use]
    pub fn bytes_hot(&self) -> usize {
        self.branches.capacity() * size_of::<Branch>() + self.filing.bytes()
    }
}

/// What the messages have in common that a group is looked up for.
#[derive(Clone, Debug, PartialEq)]
enum GroupKey {
    /// The field has this value.
    Equal(Slot, Key),
    /// The field begins so.
    Prefix(Slot, Box<[u8]>),
}

impl GroupKey {
    /// Bytes of its text.
    fn text_bytes(&self) -> usize {
        match self {
            GroupKey::Equal(_, Key::Text(text)) | GroupKey::Prefix(_, text) => text.len(),
            GroupKey::Equal(..) => 0,
        }
    }

    fn slot(&self) -> Slot {
        match self {
            GroupKey::Equal(slot, _) | GroupKey::Prefix(slot, _) => *slot,
        }
    }
}

/// A group that is looked up, or the one of all messages.
#[derive(Clone, Debug)]
struct Filed {
    key: Option<GroupKey>,
    /// Tells groups apart that have the same place one after the other.
    born: u64,
    group: Group,
}
