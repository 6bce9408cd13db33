//! The directory as a list of changes that make it from nothing.

use super::Directory;
use crate::accounts::Accounts;
use crate::change::Change;
use crate::parameters::{Key, Parameters};
use crate::policies::Policies;
use crate::policy::PolicyScope;
use crate::size::arguments_of;
use crate::user::{User, UserLimits};
use crate::vhost::VhostLimits;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use lepus_base::VhostId;

/// What a snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What survives a restart.
    Durable,
    /// Everything.
    All,
}

/// Bytes of texts and arguments with which a slice ends.
const SLICE_BYTES: usize = 64 << 10;

/// Bytes of what operators and clients may make long in a change.
fn text_bytes(change: &Change) -> usize {
    match change {
        Change::PolicySet { policy, .. } => {
            policy.pattern().len() + policy.definition().bytes().len()
        }
        Change::ParameterSet { value, .. } | Change::GlobalParameterSet { value, .. } => {
            value.len()
        }
        Change::PermissionSet { configure, write, read, .. } => {
            configure.len() + write.len() + read.len()
        }
        Change::TopicPermissionSet { write, read, .. } => write.len() + read.len(),
        other => arguments_of(other).map_or(0, |(_, bytes)| bytes),
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Ids,
    Vhosts,
    Users,
    /// Those of one user.
    Permissions,
    TopicPermissions,
    Policies,
    Parameters,
    GlobalParameters,
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
    /// Who or what was taken last, at the stages that go by names.
    vhost: Option<VhostId>,
    user: Option<Box<str>>,
    topic: Option<(VhostId, Box<str>)>,
    policy: Option<(VhostId, PolicyScope, Box<str>)>,
    parameter: Option<Key>,
    global_parameter: Option<Box<str>>,
    /// Bindings of one exchange, the oldest last.
    bindings: Vec<u32>,
}

impl Snapshot {
    /// The beginning of a walk.
    #[must_use]
    pub fn new(extent: Extent) -> Snapshot {
        Snapshot {
            extent,
            stage: Stage::Ids,
            next: 0,
            vhost: None,
            user: None,
            topic: None,
            policy: None,
            parameter: None,
            global_parameter: None,
            bindings: Vec::new(),
        }
    }

    /// Adds the next changes, about `count` and not many more bytes than fit into a slice. False when there are none
    /// any more.
    pub fn next(&mut self, directory: &Directory, count: usize, into: &mut Vec<Change>) -> bool {
        let end = into.len() + count;
        let (mut weighed, mut bytes) = (into.len(), 0);
        while into.len() < end && bytes < SLICE_BYTES {
            match self.stage {
                Stage::Ids => {
                    into.push(Change::IdsUsed {
                        vhosts: directory.accounts.next_vhost(),
                        queues: directory.next_queue(),
                    });
                    self.enter(Stage::Vhosts);
                }
                Stage::Vhosts => self.vhost(&directory.accounts, into),
                Stage::Users => self.user(&directory.accounts, into),
                Stage::Permissions => self.permission(&directory.accounts, into),
                Stage::TopicPermissions => self.topic_permission(&directory.accounts, into),
                Stage::Policies => self.policy(&directory.policies, into),
                Stage::Parameters => self.parameter(&directory.parameters, into),
                Stage::GlobalParameters => self.global_parameter(&directory.parameters, into),
                Stage::Exchanges => self.exchange(directory, into),
                Stage::Queues => self.queue(directory, into),
                Stage::Bindings => self.binding(directory, into),
                Stage::Done => return false,
            }
            bytes += into[weighed..].iter().map(text_bytes).sum::<usize>();
            weighed = into.len();
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

    fn vhost(&mut self, accounts: &Accounts, into: &mut Vec<Change>) {
        let Some(info) = accounts.vhost_behind(self.vhost) else {
            return self.enter(Stage::Users);
        };
        let (id, name) = (info.id, info.name.clone());
        into.push(Change::VhostCreated { id, name, metadata: info.metadata.clone() });
        if info.limits != VhostLimits::default() {
            into.push(Change::VhostLimited { id, limits: info.limits });
        }
        self.vhost = Some(id);
    }

    fn user(&mut self, accounts: &Accounts, into: &mut Vec<Change>) {
        let Some(user) = accounts.user_behind(self.user.as_deref()) else {
            return self.enter(Stage::Policies);
        };
        let (name, tags) = (user.name.clone(), user.tags.clone());
        into.push(Change::UserPut { name, password: user.password.clone(), tags });
        if user.limits != UserLimits::default() {
            into.push(Change::UserLimited { name: user.name.clone(), limits: user.limits });
        }
        (self.user, self.vhost, self.topic) = (Some(user.name.clone()), None, None);
        self.enter(Stage::Permissions);
    }

    /// The user whose permissions are taken.
    fn current_user<'a>(&self, accounts: &'a Accounts) -> &'a User {
        let user = self.user.as_deref().and_then(|name| accounts.user(name));
        let Some(user) = user else { invariant!("the accounts do not change during a walk") };
        user
    }

    fn permission(&mut self, accounts: &Accounts, into: &mut Vec<Change>) {
        let user = self.current_user(accounts);
        let Some((vhost, permission)) = user.permissions_behind(self.vhost).next() else {
            return self.enter(Stage::TopicPermissions);
        };
        into.push(Change::PermissionSet {
            user: user.name.clone(),
            vhost,
            configure: permission.configure.text().into(),
            write: permission.write.text().into(),
            read: permission.read.text().into(),
        });
        self.vhost = Some(vhost);
    }

    fn topic_permission(&mut self, accounts: &Accounts, into: &mut Vec<Change>) {
        let user = self.current_user(accounts);
        let next = user.topic_permissions_behind(self.topic.take()).next();
        let Some((vhost, exchange, permission)) = next else {
            return self.enter(Stage::Users);
        };
        into.push(Change::TopicPermissionSet {
            user: user.name.clone(),
            vhost,
            exchange: exchange.into(),
            write: permission.write.text().into(),
            read: permission.read.text().into(),
        });
        self.topic = Some((vhost, exchange.into()));
    }

    fn policy(&mut self, policies: &Policies, into: &mut Vec<Change>) {
        let last = self.policy.as_ref().map(|(vhost, scope, name)| (*vhost, *scope, &**name));
        let Some((vhost, scope, policy)) = policies.behind(last) else {
            return self.enter(Stage::Parameters);
        };
        into.push(Change::PolicySet { vhost, scope, policy: Arc::clone(policy) });
        self.policy = Some((vhost, scope, policy.name().into()));
    }

    fn parameter(&mut self, parameters: &Parameters, into: &mut Vec<Change>) {
        let Some((key, value)) = parameters.behind(self.parameter.as_ref()) else {
            return self.enter(Stage::GlobalParameters);
        };
        let (vhost, component, name) = key.clone();
        into.push(Change::ParameterSet { vhost, component, name, value: Arc::clone(value) });
        self.parameter = Some(key.clone());
    }

    fn global_parameter(&mut self, parameters: &Parameters, into: &mut Vec<Change>) {
        let next = parameters.global_behind(self.global_parameter.as_deref());
        let Some((name, value)) = next else {
            return self.enter(Stage::Exchanges);
        };
        into.push(Change::GlobalParameterSet { name: name.into(), value: Arc::clone(value) });
        self.global_parameter = Some(name.into());
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
