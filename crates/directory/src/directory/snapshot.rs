//! The directory as a list of changes that make it from nothing.

use super::change::{BindingChange, Change};

use super::{Directory, QueueInfo};
use crate::binding::{Chain, Destination};
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
                    accounts(directory, into);
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
        if self.next >= directory.exchanges.places() {
            return self.enter(Stage::Queues);
        }
        if let Some(slot) = directory.exchanges.get(self.next)
            && self.wants(slot.info.durable)
            && !slot.is_gone
            && !slot.info.is_predeclared()
        {
            into.push(Change::ExchangeDeclared(Box::new(slot.info.clone())));
        }
        self.next += 1;
    }

    fn queue(&mut self, directory: &Directory, into: &mut Vec<Change>) {
        if self.next >= directory.queues.places() {
            return self.enter(Stage::Bindings);
        }
        if let Some(slot) = directory.queues.get(self.next)
            && self.wants(slot.info.durable)
            && !slot.is_gone
        {
            into.push(Change::QueueDeclared(Arc::clone(&slot.info)));
        }
        self.next += 1;
    }

    fn binding(&mut self, directory: &Directory, into: &mut Vec<Change>) {
        if let Some(place) = self.bindings.pop() {
            let binding = directory.bindings.get(place);
            if self.wants(directory.is_durable_target(binding.target)) && !directory.is_going(place)
            {
                into.push(Change::Bound(Box::new(bound(directory, place))));
            }
            return;
        }
        if self.next >= directory.exchanges.places() {
            return self.enter(Stage::Done);
        }
        if let Some(slot) = directory.exchanges.get(self.next)
            && self.wants(slot.info.durable)
        {
            self.bindings.extend(directory.bindings.chain(Chain::Source, slot.as_source));
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
        let mut changes = Vec::with_capacity(self.queues.len());
        let mut walk = Snapshot::new(extent);
        while walk.next(self, 1024, &mut changes) {}
        changes
    }

    /// Whether most places of queues, exchanges or bindings are those of what is gone: they do not go by themselves.
    fn is_sparse(&self) -> bool {
        let is_sparse = |places: usize, len: usize| places > 4096 && places > 2 * len;
        is_sparse(self.queues.places(), self.queues.len())
            || is_sparse(self.exchanges.places(), self.exchanges.len())
            || is_sparse(self.bindings.places(), self.bindings.len())
    }

    /// The same without the places of what is gone, where these are most.
    pub fn without_gaps(self) -> Directory {
        if !self.is_sparse() {
            return self;
        }
        let mut dense = Directory::new(self.hash, self.held.len() as u16);
        dense.prepare(self.queues.len());
        for change in self.snapshot(Extent::All) {
            drop(dense.apply(&change));
        }
        dense
    }
}

/// Ids, virtual hosts, users and permissions.
fn accounts(directory: &Directory, into: &mut Vec<Change>) {
    into.push(Change::IdsUsed { vhosts: directory.next_vhost, queues: directory.next_queue });
    for info in directory.vhosts.values() {
        let (id, name) = (info.id, info.name.clone());
        into.push(Change::VhostCreated { id, name, metadata: info.metadata.clone() });
        if info.limits != crate::vhost::VhostLimits::default() {
            into.push(Change::VhostLimited { id, limits: info.limits });
        }
    }
    for user in directory.users.values() {
        let (name, tags) = (user.name.clone(), user.tags.clone());
        into.push(Change::UserPut { name, password: user.password.clone(), tags });
        if user.limits != crate::user::UserLimits::default() {
            into.push(Change::UserLimited { name: user.name.clone(), limits: user.limits });
        }
        for (&vhost, permission) in &user.permissions {
            into.push(Change::PermissionSet {
                user: user.name.clone(),
                vhost,
                configure: permission.configure.text().into(),
                write: permission.write.text().into(),
                read: permission.read.text().into(),
            });
        }
        for ((vhost, exchange), permission) in &user.topic_permissions {
            into.push(Change::TopicPermissionSet {
                user: user.name.clone(),
                vhost: *vhost,
                exchange: exchange.clone(),
                write: permission.write.text().into(),
                read: permission.read.text().into(),
            });
        }
    }
}

fn bound(directory: &Directory, place: u32) -> BindingChange {
    let binding = directory.bindings.get(place);
    let source = &directory.exchanges[binding.source as usize].info;
    let destination = match binding.target.split() {
        Ok(queue) => {
            let info: &QueueInfo = &directory.queues[queue as usize].info;
            Destination::Queue(info.name().into())
        }
        Err(exchange) => {
            Destination::Exchange(directory.exchanges[exchange as usize].info.name.clone().into())
        }
    };
    BindingChange {
        vhost: source.vhost,
        source: source.name.clone(),
        destination,
        routing_key: binding.routing_key.as_str().into(),
        arguments: binding.arguments().to_bytes(),
    }
}
