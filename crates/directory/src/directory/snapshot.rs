//! The directory as a list of changes that make it from nothing.

use super::Directory;
use crate::change::Change;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What survives a restart.
    Durable,
    /// Everything.
    All,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Accounts,
    Exchanges,
    Queues,
    Bindings,
    Done,
}

/// A walk over a directory that does not change meanwhile.
#[derive(Debug)]
pub struct Snapshot {
    extent: Extent,
    stage: Stage,
    next: usize,
    /// Bindings of one exchange, the oldest last.
    bindings: Vec<u32>,
}

impl Snapshot {
    /// The beginning of a walk.
    #[must_use]
    pub fn new(extent: Extent) -> Snapshot {
        Snapshot { extent, stage: Stage::Accounts, next: 0, bindings: Vec::new() }
    }

    /// Adds the next changes, about `count`. False when there are none any more.
    pub fn next(&mut self, directory: &Directory, count: usize, into: &mut Vec<Change>) -> bool {
        let end = into.len() + count;
        while into.len() < end {
            match self.stage {
                Stage::Accounts => {
                    into.push(Change::IdsUsed {
                        vhosts: directory.accounts.next_vhost(),
                        queues: directory.next_queue(),
                    });
                    directory.accounts.snapshot(into);
                    directory.policies.snapshot(into);
                    directory.parameters.snapshot(into);
                    self.stage = Stage::Exchanges;
                }
                Stage::Exchanges => self.exchange(directory, into),
                Stage::Queues => self.queue(directory, into),
                Stage::Bindings => self.binding(directory, into),
                Stage::Done => return false,
            }
        }
        true
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.next = 0;
    }

    fn wants(&self, is_durable: bool) -> bool {
        is_durable || self.extent == Extent::All
    }

    fn exchange(&mut self, directory: &Directory, into: &mut Vec<Change>) {
        if self.next >= directory.topology.exchange_places() {
            return self.enter(Stage::Queues);
        }
        if let Some(info) = directory.topology.exchange_at(self.next)
            && self.wants(info.durable)
            && !info.is_predeclared()
        {
            into.push(Change::ExchangeDeclared(Box::new(info.clone())));
        }
        self.next += 1;
    }

    fn queue(&mut self, directory: &Directory, into: &mut Vec<Change>) {
        let queues = directory.topology.queues();
        if self.next >= queues.places() {
            return self.enter(Stage::Bindings);
        }
        if let Some(info) = queues.living_at(self.next)
            && self.wants(info.durable)
        {
            into.push(Change::QueueDeclared(Arc::clone(info)));
        }
        self.next += 1;
    }

    fn binding(&mut self, directory: &Directory, into: &mut Vec<Change>) {
        let topology = &directory.topology;
        if let Some(place) = self.bindings.pop() {
            if self.wants(topology.leads_to_durable(place)) && !topology.is_going(place) {
                into.push(Change::Bound(Box::new(topology.binding_change(place))));
            }
            return;
        }
        if self.next >= topology.exchange_places() {
            return self.enter(Stage::Done);
        }
        if let Some(info) = topology.exchange_at(self.next)
            && self.wants(info.durable)
        {
            self.bindings.extend(topology.bindings_at(self.next));
        }
        self.next += 1;
    }
}

impl Directory {
    /// The changes that make this directory from an empty one, in order: nothing in them goes
    /// again.
    #[must_use]
    pub fn snapshot(&self, extent: Extent) -> Vec<Change> {
        // Those that a queue each has are nearly all of them, where there are many.
        let mut changes = Vec::with_capacity(self.topology.queues().len());
        let mut walk = Snapshot::new(extent);
        while walk.next(self, 1024, &mut changes) {}
        changes
    }

    /// The same without the places of what is gone, where these are most.
    pub fn without_gaps(self) -> Directory {
        if !self.topology.is_sparse() {
            return self;
        }
        let queues = self.topology.queues();
        let mut dense = Directory::new(self.hash, queues.shards() as u16);
        dense.prepare(queues.len());
        for change in self.snapshot(Extent::All) {
            drop(dense.apply(&change));
        }
        dense
    }
}
