//! The exchanges, and how they are found.

use super::name_hash;
use crate::binding::Bindings;
use crate::binding::NONE;
use crate::change::BindingChange;
use crate::exchange::ExchangeInfo;
use crate::router::Outlet;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use lepus_base::{ChunkedSlab, HashState, LinearTable, QueueId, VhostId, is_same};

/// An exchange with what routing needs.
#[derive(Clone, Debug)]
pub(super) struct ExchangeSlot {
    pub(super) info: ExchangeInfo,
    pub(super) outlet: Outlet,
    /// Where a message goes that it routes nowhere, by its policy, if its arguments do not say.
    pub(super) by_policy: Option<Box<str>>,
    /// First of the bindings that have it as their source.
    pub(super) as_source: u32,
    /// How many these are.
    pub(super) bindings: u32,
    /// First of the bindings that lead to it.
    pub(super) as_target: u32,
    /// Nobody finds it any more; it stays until its bindings are gone.
    pub(super) is_gone: bool,
}

/// Bytes that the filters of an exchange's bindings took, and take now.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(super) struct Grown {
    pub(super) before: usize,
    pub(super) after: usize,
}

/// All exchanges by place, with those on their way out.
#[derive(Clone, Debug)]
pub(super) struct Exchanges {
    hash: HashState,
    slots: ChunkedSlab<ExchangeSlot>,
    by_name: LinearTable<u32>,
    /// Exchanges by the id of what they hold back.
    holdings: BTreeMap<QueueId, u32>,
    /// Places of those whose filters may be tidied up.
    untidy: BTreeSet<u32>,
    /// Bytes of bindings' filters, as they were told: those of a clone are fewer, as it has no spare room.
    filter_bytes: usize,
    /// What bindings' filters say is not kept: no message comes here.
    without_filters: bool,
    /// How often all of them were gone through.
    #[cfg(test)]
    gone_through: core::cell::Cell<usize>,
}

impl Exchanges {
    pub(super) fn new(hash: HashState) -> Exchanges {
        Exchanges {
            hash,
            slots: ChunkedSlab::new(),
            by_name: LinearTable::new(),
            holdings: BTreeMap::new(),
            untidy: BTreeSet::new(),
            filter_bytes: 0,
            without_filters: false,
            #[cfg(test)]
            gone_through: core::cell::Cell::default(),
        }
    }

    /// Forgets what filters say, those included that come. Bytes that this sets free.
    pub(super) fn forget_filters(&mut self) -> usize {
        self.without_filters = true;
        self.untidy.clear();
        for place in 0..self.slots.places() {
            if let Some(slot) = self.slots.get_mut(place) {
                slot.outlet.forget_filters();
            }
        }
        core::mem::take(&mut self.filter_bytes)
    }

    /// Whether what filters say is kept.
    pub(super) fn has_filters(&self) -> bool {
        !self.without_filters
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Places of exchanges, free ones included.
    #[inline]
    pub(super) fn places(&self) -> usize {
        self.slots.places()
    }

    /// The place of the exchange of that name; the empty name is the default exchange.
    pub(super) fn place(&self, vhost: VhostId, name: &str) -> Option<u32> {
        let is_same = |&place: &u32| {
            let info = &self.slots[place as usize].info;
            info.vhost == vhost && is_same(&*info.name, name)
        };
        self.by_name.find(name_hash(self.hash, vhost, name), is_same).copied()
    }

    /// The exchange at a place that has one.
    #[inline]
    pub(super) fn at(&self, place: u32) -> &ExchangeSlot {
        &self.slots[place as usize]
    }

    /// The same, to change it.
    pub(super) fn at_mut(&mut self, place: u32) -> &mut ExchangeSlot {
        &mut self.slots[place as usize]
    }

    /// The exchange at a place that may be free.
    pub(super) fn get(&self, place: usize) -> Option<&ExchangeSlot> {
        self.slots.get(place)
    }

    /// Has messages to the exchange at a place find a binding, which came by a change.
    pub(super) fn bind(
        &mut self,
        at: u32,
        bindings: &mut Bindings,
        place: u32,
        change: &BindingChange,
    ) -> Grown {
        let outlet = &mut self.slots[at as usize].outlet;
        let before = outlet.filter_bytes();
        let filter = Some(&change.filter).filter(|_| !self.without_filters);
        if outlet.insert(bindings, place, &change.destination, filter) && filter.is_some() {
            self.untidy.insert(at);
        }
        let after = outlet.filter_bytes();
        self.grown(before, after)
    }

    /// The opposite.
    pub(super) fn unbind(&mut self, at: u32, bindings: &mut Bindings, place: u32) -> Grown {
        let outlet = &mut self.slots[at as usize].outlet;
        let before = outlet.filter_bytes();
        if outlet.remove(bindings, place) && !self.without_filters {
            self.untidy.insert(at);
        }
        let after = outlet.filter_bytes();
        self.grown(before, after)
    }

    /// Tidies up what exchanges know of their bindings' filters, for about so many steps of some ten nanoseconds. What
    /// they say is the same before and after.
    pub(super) fn tidy(&mut self, steps: usize) -> Grown {
        let Some(&place) = self.untidy.first() else { return Grown::default() };
        let Some(slot) = self.slots.get_mut(place as usize) else {
            self.untidy.remove(&place);
            return Grown::default();
        };
        let before = slot.outlet.filter_bytes();
        if !slot.outlet.tidy(steps) {
            self.untidy.remove(&place);
        }
        let after = slot.outlet.filter_bytes();
        self.grown(before, after)
    }

    fn grown(&mut self, before: usize, after: usize) -> Grown {
        self.filter_bytes = self.filter_bytes + after - before;
        Grown { before, after }
    }

    /// Whether [`Exchanges::tidy`] has something to do.
    pub(super) fn is_untidy(&self) -> bool {
        !self.untidy.is_empty()
    }

    /// All exchanges with those on their way out.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ExchangeSlot> {
        #[cfg(test)]
        self.gone_through.set(self.gone_through.get() + 1);
        self.slots.iter().map(|(_, slot)| slot)
    }

    /// Those that somebody finds.
    pub(super) fn living(&self) -> impl Iterator<Item = &ExchangeInfo> {
        self.iter().filter(|slot| !slot.is_gone).map(|slot| &slot.info)
    }

    /// Adds an exchange whose name is not in use.
    pub(super) fn insert(&mut self, info: ExchangeInfo) -> u32 {
        let hash = name_hash(self.hash, info.vhost, &info.name);
        let holding = info.holding;
        let outlet = Outlet::new(info.kind, info.arguments.as_ref(), self.hash);
        let place = self.slots.insert(ExchangeSlot {
            info,
            outlet,
            by_policy: None,
            as_source: NONE,
            bindings: 0,
            as_target: NONE,
            is_gone: false,
        }) as u32;
        let (slots, state) = (&self.slots, self.hash);
        self.by_name.insert_unique(hash, place, |&place| {
            let info = &slots[place as usize].info;
            name_hash(state, info.vhost, &info.name)
        });
        self.give_holding(place, holding);
        place
    }

    /// Gives the id under which an exchange holds messages back.
    pub(super) fn give_holding(&mut self, place: u32, holding: Option<QueueId>) {
        let Some(id) = holding else { return };
        self.slots[place as usize].info.holding = holding;
        self.holdings.insert(id, place);
    }

    /// The exchange whose messages are held back under this id.
    pub(super) fn holding(&self, id: QueueId) -> Option<&ExchangeInfo> {
        self.holdings.get(&id).map(|&place| &self.at(place).info)
    }

    /// Lets nobody find the exchange any more.
    pub(super) fn forget(&mut self, place: u32) -> &ExchangeInfo {
        let info = &self.slots[place as usize].info;
        let hash = name_hash(self.hash, info.vhost, &info.name);
        self.by_name.remove(hash, |&other| other == place);
        if let Some(id) = info.holding {
            self.holdings.remove(&id);
        }
        info
    }

    /// Takes out an exchange that has no bindings any more and that nobody finds.
    pub(super) fn free(&mut self, place: u32) -> ExchangeInfo {
        self.slots.remove(place as usize).info
    }

    /// Whether there is one at a place.
    pub(super) fn contains(&self, place: u32) -> bool {
        self.slots.contains(place as usize)
    }

    /// The virtual hosts and names of those at some places.
    pub(super) fn names_of(&self, places: Vec<u32>) -> impl Iterator<Item = (VhostId, Box<str>)> {
        places.into_iter().map(|place| {
            let info = &self.at(place).info;
            (info.vhost, info.name.clone())
        })
    }
}

#[cfg(test)]
impl Exchanges {
    /// How often all of them were gone through.
    pub(super) fn gone_through(&self) -> usize {
        self.gone_through.get()
    }

    /// How many there are, and how many somebody finds.
    pub(super) fn sums(&self) -> (usize, usize) {
        (self.slots.len(), self.by_name.len())
    }
}
