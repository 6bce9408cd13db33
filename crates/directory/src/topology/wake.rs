//! What a change takes along, and what of it survives a restart.

use super::{FILTER_REMOVAL, Topology};
use crate::binding::{Chain, Target};
use crate::change::{BindingChange, Change};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use lepus_base::VhostId;

impl Topology {
    /// What a log has to keep of a change that was checked and is not applied yet; nothing where
    /// no durable object comes, changes or goes.
    ///
    /// Exchanges that delete themselves are named; or, where they are too many to be looked for at once,
    /// it is said that they follow. Who reads the log knows nothing of what was not durable, so it must
    /// not compute such consequences: it uses [`Directory::replay`].
    ///
    /// [`Directory::replay`]: crate::Directory::replay
    pub(crate) fn durable_part(&self, change: &Change) -> Vec<Change> {
        let mut part = Vec::new();
        let wake = Wake::of(self, change);
        if self.touches_durable(change) {
            if !wake.is_whole {
                part.push(Change::InParts);
            }
            part.push(change.clone());
        }
        part.extend(wake.doomed.into_iter().filter_map(|place| {
            let info = &self.exchanges.at(place).info;
            let (vhost, name) = (info.vhost, info.name.clone());
            info.durable.then_some(Change::ExchangeDeleted { vhost, name })
        }));
        part
    }

    fn touches_durable(&self, change: &Change) -> bool {
        match change {
            Change::ExchangeDeleted { vhost, name } => {
                self.exchange(*vhost, name).is_some_and(|info| info.durable)
            }
            Change::QueueDeleted { id } | Change::QueueMoved { id, .. } => {
                self.queues.by_id(*id).is_some_and(|info| info.durable)
            }
            Change::Bound(binding) | Change::Unbound(binding) => self.is_durable_binding(binding),
            _ => change.is_durable(),
        }
    }

    fn is_durable_binding(&self, binding: &BindingChange) -> bool {
        let source = self.exchange(binding.vhost, &binding.source);
        source.is_some_and(|info| info.durable)
            && self
                .target(binding.vhost, &binding.destination)
                .is_some_and(|target| self.is_durable_target(target))
    }

    /// Whether what the binding at a place leads to survives a restart.
    pub(crate) fn leads_to_durable(&self, binding: u32) -> bool {
        self.is_durable_target(self.bindings.get(binding).target)
    }

    fn is_durable_target(&self, target: Target) -> bool {
        match target.split() {
            Ok(queue) => self.queues.at(queue).info.durable,
            Err(exchange) => self.exchanges.at(exchange).info.durable,
        }
    }

    /// Whether all that a change takes along goes at once.
    pub(super) fn is_small(&self, change: &Change) -> bool {
        Wake::of(self, change).is_whole
    }

    /// How much work it is to carry out a request that comes to this change: bindings that go, and filters that come or
    /// go.
    pub(crate) fn effort(&self, change: &Change) -> usize {
        let of_filter = match change {
            Change::Bound(binding) => binding.filter.effort(),
            Change::Unbound(binding) => match self.find_binding(binding) {
                Some(place) => self.removal(place),
                None => 0,
            },
            _ => 0,
        };
        1 + of_filter + Wake::of(self, change).steps
    }

    /// The exchanges whose bindings a deletion takes along, by virtual host and name; `None` where
    /// one of them deletes itself with its last binding, or where they are more than `max`.
    pub(crate) fn sources_of(
        &self,
        target: Option<Target>,
        max: usize,
    ) -> Option<Vec<(VhostId, &str)>> {
        let head = match target.map(Target::split) {
            Some(Ok(queue)) => self.queues.at(queue).as_target,
            Some(Err(exchange)) => self.exchanges.at(exchange).as_target,
            None => return Some(Vec::new()),
        };
        let mut sources = Vec::new();
        for binding in self.bindings.chain(Chain::Target, head) {
            let info = &self.exchanges.at(self.bindings.get(binding).source).info;
            if info.auto_delete || sources.len() == max {
                return None;
            }
            sources.push((info.vhost, &*info.name));
        }
        Some(sources)
    }
}

/// What goes with a change beside what it names.
#[derive(Debug)]
struct Wake {
    /// It goes at once. Otherwise it is too much for that: bindings go in slices, and exchanges that
    /// delete themselves go by requests.
    is_whole: bool,
    /// Bindings that were looked at.
    steps: usize,
    /// The exchanges that delete themselves at once, by place.
    doomed: BTreeSet<u32>,
}

impl Wake {
    fn of(topology: &Topology, change: &Change) -> Wake {
        let mut search = Search { topology, budget: topology.slice };
        let doomed = search.doomed(change);
        Wake {
            is_whole: doomed.is_some(),
            steps: topology.slice - search.budget,
            doomed: doomed.unwrap_or_default(),
        }
    }
}

/// A look at the bindings that go, as many as may go in one step.
struct Search<'a> {
    topology: &'a Topology,
    budget: usize,
}

impl Search<'_> {
    /// The exchanges that delete themselves because of a change, by place; `None` if more bindings go
    /// by all that than the budget has.
    fn doomed(&mut self, change: &Change) -> Option<BTreeSet<u32>> {
        let topology = self.topology;
        let mut doomed = BTreeSet::new();
        let mut named = None;
        let mut going = match change {
            Change::ExchangeDeleted { vhost, name } => {
                let Some(place) = topology.exchanges.place(*vhost, name) else {
                    return race!("the exchange was deleted before", Some(doomed));
                };
                named = Some(place);
                let slot = topology.exchanges.at(place);
                let filters = slot.outlet.filter_count();
                self.charge(slot.bindings as usize + (FILTER_REMOVAL - 1) * filters)?;
                self.uprooted(slot.as_target)?
            }
            Change::QueueDeleted { id } => {
                let Some(place) = topology.queues.place_by_id(*id) else {
                    return race!("the queue was deleted before", Some(doomed));
                };
                self.uprooted(topology.queues.at(place).as_target)?
            }
            Change::Unbound(binding) => topology.find_binding(binding).into_iter().collect(),
            _ => return Some(doomed),
        };
        let mut gone = BTreeSet::new();
        let mut lost: BTreeMap<u32, u32> = BTreeMap::new();
        while let Some(binding) = going.pop() {
            let source = topology.bindings.get(binding).source;
            let slot = topology.exchanges.at(source);
            let may_go = slot.info.auto_delete && !slot.is_gone && named != Some(source);
            if !may_go || !gone.insert(binding) {
                continue;
            }
            let lost = lost.entry(source).or_default();
            *lost += 1;
            if *lost == slot.bindings && doomed.insert(source) {
                going.extend(self.uprooted(slot.as_target)?);
            }
        }
        Some(doomed)
    }

    /// The bindings that lead somewhere; `None` if they are more than the budget has.
    fn uprooted(&mut self, as_target: u32) -> Option<Vec<u32>> {
        let chain = self.topology.bindings.chain(Chain::Target, as_target);
        chain.map(|binding| self.charge(self.topology.removal(binding)).map(|()| binding)).collect()
    }

    fn charge(&mut self, steps: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(steps)?;
        Some(())
    }
}
