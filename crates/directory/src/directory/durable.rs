//! What survives a restart: which changes have to be kept, and in what words.

use super::Directory;
use super::change::{BindingChange, Change};
use crate::binding::{Chain, Target};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use lepus_base::VhostId;

impl Change {
    /// Whether what appears by the change survives a restart. What goes has to be looked at in the
    /// directory: see [`Directory::durable_part`].
    #[must_use]
    pub fn is_durable(&self) -> bool {
        match self {
            Change::ExchangeDeclared(info) => info.durable,
            Change::QueueDeclared(info) => info.durable,
            // Who reads of the deletion takes everything out at once.
            Change::Cleared => false,
            _ => true,
        }
    }
}

impl Directory {
    /// What a log has to keep of a change that was checked and is not applied yet; nothing where
    /// no durable object comes, changes or goes.
    ///
    /// Exchanges that delete themselves are named; or, where they are too many to be looked for at once,
    /// it is said that they follow. Who reads the log knows nothing of what was not durable, so it must
    /// not compute such consequences: it uses [`Directory::replay`].
    #[must_use]
    pub fn durable_part(&self, change: &Change) -> Vec<Change> {
        let mut part = Vec::new();
        let wake = self.wake(change);
        if self.touches_durable(change) {
            if !wake.is_whole {
                part.push(Change::InParts);
            }
            part.push(change.clone());
        }
        part.extend(wake.doomed.into_iter().filter_map(|place| {
            let info = &self.exchanges[place as usize].info;
            let (vhost, name) = (info.vhost, info.name.clone());
            info.durable.then_some(Change::ExchangeDeleted { vhost, name })
        }));
        part
    }

    /// Applies a change that was read from a log: exchanges do not delete themselves.
    pub fn replay(&mut self, change: &Change) {
        let is_in_parts = core::mem::take(&mut self.is_in_parts);
        self.is_replaying = true;
        let left = self.apply_all(change);
        self.is_replaying = false;
        if is_in_parts {
            self.left_behind.extend(left);
        }
    }

    /// Numbers of the logs that durable queues name, and of how many queues each is named.
    #[must_use]
    pub fn logs(&self) -> BTreeMap<u16, u64> {
        let mut logs = BTreeMap::new();
        for (_, slot) in self.queues.iter().filter(|(_, slot)| slot.info.durable && !slot.is_gone) {
            *logs.entry(slot.info.log).or_default() += 1;
        }
        logs
    }

    fn touches_durable(&self, change: &Change) -> bool {
        match change {
            Change::ExchangeDeleted { vhost, name } => {
                self.exchange(*vhost, name).is_some_and(|info| info.durable)
            }
            Change::QueueDeleted { id } | Change::QueueMoved { id, .. } => {
                self.queue_by_id(*id).is_some_and(|info| info.durable)
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

    /// Whether what a binding leads to survives a restart.
    pub(super) fn is_durable_target(&self, target: Target) -> bool {
        match target.split() {
            Ok(queue) => self.queues[queue as usize].info.durable,
            Err(exchange) => self.exchanges[exchange as usize].info.durable,
        }
    }

    /// What a change takes along.
    pub(super) fn wake(&self, change: &Change) -> Wake {
        let mut budget = self.slice;
        let doomed = self.doomed(change, &mut budget);
        Wake {
            is_whole: doomed.is_some(),
            steps: self.slice - budget,
            doomed: doomed.unwrap_or_default(),
        }
    }

    /// How much work it is to carry out a request that comes to this change: bindings that go.
    pub fn effort(&self, change: &Change) -> usize {
        1 + self.wake(change).steps
    }

    /// The exchanges that delete themselves because of a change, by place; `None` if more bindings go
    /// by all that than the budget has.
    fn doomed(&self, change: &Change, budget: &mut usize) -> Option<BTreeSet<u32>> {
        let mut doomed = BTreeSet::new();
        let mut named = None;
        let mut going = match change {
            Change::ExchangeDeleted { vhost, name } => {
                let Some(place) = self.exchange_place(*vhost, name) else { return Some(doomed) };
                named = Some(place);
                let slot = &self.exchanges[place as usize];
                charge(budget, slot.bindings as usize)?;
                self.uprooted(slot.as_target, budget)?
            }
            Change::QueueDeleted { id } => {
                let Some(place) = self.queue_place_by_id(*id) else { return Some(doomed) };
                self.uprooted(self.queues[place as usize].as_target, budget)?
            }
            Change::Unbound(binding) => {
                let source = self.exchange_place(binding.vhost, &binding.source);
                let target = self.target(binding.vhost, &binding.destination);
                let found = source.zip(target).and_then(|(source, target)| {
                    let (key, arguments) = (&binding.routing_key, binding.arguments.as_ref());
                    self.bindings.find(source, target, key, arguments)
                });
                found.into_iter().collect()
            }
            _ => return Some(doomed),
        };
        let mut gone = BTreeSet::new();
        let mut lost: BTreeMap<u32, u32> = BTreeMap::new();
        while let Some(binding) = going.pop() {
            let source = self.bindings.get(binding).source;
            let slot = &self.exchanges[source as usize];
            let may_go = slot.info.auto_delete && !slot.is_gone && named != Some(source);
            if !may_go || !gone.insert(binding) {
                continue;
            }
            let lost = lost.entry(source).or_default();
            *lost += 1;
            if *lost == slot.bindings && doomed.insert(source) {
                going.extend(self.uprooted(slot.as_target, budget)?);
            }
        }
        Some(doomed)
    }

    /// The bindings that lead somewhere; `None` if they are more than the budget has.
    fn uprooted(&self, as_target: u32, budget: &mut usize) -> Option<Vec<u32>> {
        let chain = self.bindings.chain(Chain::Target, as_target);
        chain.map(|binding| charge(budget, 1).map(|()| binding)).collect()
    }

    /// The exchanges whose bindings a deletion takes along, by virtual host and name; `None` where
    /// one of them deletes itself with its last binding, or where they are more than `max`.
    pub(super) fn sources_of(
        &self,
        target: Option<Target>,
        max: usize,
    ) -> Option<Vec<(VhostId, &str)>> {
        let head = match target.map(Target::split) {
            Some(Ok(queue)) => self.queues[queue as usize].as_target,
            Some(Err(exchange)) => self.exchanges[exchange as usize].as_target,
            None => return Some(Vec::new()),
        };
        let mut sources = Vec::new();
        for binding in self.bindings.chain(Chain::Target, head) {
            let info = &self.exchanges[self.bindings.get(binding).source as usize].info;
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
pub(super) struct Wake {
    /// It goes at once. Otherwise it is too much for that: bindings go in slices, and exchanges that
    /// delete themselves go by requests.
    pub(super) is_whole: bool,
    /// Bindings that were looked at.
    steps: usize,
    /// The exchanges that delete themselves at once, by place.
    doomed: BTreeSet<u32>,
}

fn charge(budget: &mut usize, steps: usize) -> Option<()> {
    *budget = budget.checked_sub(steps)?;
    Some(())
}
