//! The policies of all virtual hosts: what may be set, and which count for a queue or an exchange.

use crate::accounts::Accounts;
use crate::change::{Change, Checked};
use crate::exchange::ExchangeInfo;
use crate::policy::{self, Policy, PolicyMatch, PolicyScope};
use crate::queue_info::QueueInfo;
use crate::request::Request;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;
use lepus_base::VhostId;
use lepus_queue::QueueSettings;
use lepus_queue::refusal::{Refusal, RefusalKind};

/// Bytes that a policy takes on a shard beside what all shards share, about.
const ENTRY_BYTES: usize = 128;

/// Those of one scope in one virtual host.
#[derive(Clone, Debug, Default)]
struct Scope {
    by_name: BTreeMap<Box<str>, Arc<Policy>>,
    /// In the order in which they count.
    ranked: Vec<Arc<Policy>>,
}

impl Scope {
    fn put(&mut self, policy: &Arc<Policy>) -> Option<Arc<Policy>> {
        let before = self.remove(policy.name());
        let place = self.ranked.partition_point(|other| other.rank() < policy.rank());
        self.ranked.insert(place, Arc::clone(policy));
        self.by_name.insert(policy.name().into(), Arc::clone(policy));
        before
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Policy>> {
        let policy = self.by_name.remove(name)?;
        let place = self.ranked.partition_point(|other| other.rank() < policy.rank());
        self.ranked.remove(place);
        Some(policy)
    }

    fn first(&self, mut is_for: impl FnMut(&Policy) -> bool) -> Option<&Policy> {
        self.ranked.iter().map(|policy| &**policy).find(|policy| is_for(policy))
    }
}

/// Those of one virtual host.
#[derive(Clone, Debug, Default)]
struct OfVhost {
    user: Scope,
    operator: Scope,
    /// [`Policies::epoch`] when one of them changed last.
    epoch: u64,
}

impl OfVhost {
    fn scope(&self, scope: PolicyScope) -> &Scope {
        match scope {
            PolicyScope::User => &self.user,
            PolicyScope::Operator => &self.operator,
        }
    }

    fn scope_mut(&mut self, scope: PolicyScope) -> &mut Scope {
        match scope {
            PolicyScope::User => &mut self.user,
            PolicyScope::Operator => &mut self.operator,
        }
    }

    fn len(&self) -> usize {
        self.user.by_name.len() + self.operator.by_name.len()
    }
}

/// The policies of all virtual hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    by_vhost: BTreeMap<VhostId, OfVhost>,
    /// Grows by one with every change of a policy.
    epoch: u64,
    len: usize,
    /// Bytes of the policies, which all shards share.
    shared_bytes: usize,
}

impl Policies {
    /// Grows by one with every change of a policy: the same on every shard after the same changes.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch at which a policy of a virtual host changed last; 0 where none ever did.
    pub(crate) fn epoch_of(&self, vhost: VhostId) -> u64 {
        self.by_vhost.get(&vhost).map_or(0, |found| found.epoch)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many there are in a virtual host.
    pub(crate) fn len_in(&self, vhost: VhostId) -> usize {
        self.by_vhost.get(&vhost).map_or(0, OfVhost::len)
    }

    /// About how many bytes they take on one of so many shards.
    pub(crate) fn bytes(&self, shards: usize) -> usize {
        self.len * ENTRY_BYTES + self.shared_bytes / shards.max(1)
    }

    /// A policy by its name.
    pub(crate) fn find(&self, vhost: VhostId, scope: PolicyScope, name: &str) -> Option<&Policy> {
        let found = self.by_vhost.get(&vhost)?.scope(scope).by_name.get(name);
        found.map(|policy| &**policy)
    }

    /// The policies of a virtual host by name.
    pub(crate) fn list(
        &self,
        vhost: VhostId,
        scope: PolicyScope,
    ) -> impl Iterator<Item = &Policy> + use<'_> {
        let found = self.by_vhost.get(&vhost).map(|found| found.scope(scope));
        found.into_iter().flat_map(|scope| scope.by_name.values()).map(|policy| &**policy)
    }

    /// Those that count for a queue. Adds what it cost to find them, in comparisons of names, about.
    pub(crate) fn of_queue(&self, queue: &QueueInfo, cost: &mut usize) -> PolicyMatch<'_> {
        let Some(found) = self.by_vhost.get(&queue.vhost) else { return PolicyMatch::default() };
        PolicyMatch {
            policy: found.user.first(|policy| policy.takes_queue(queue, cost)),
            operator: found.operator.first(|policy| policy.takes_queue(queue, cost)),
        }
    }

    /// That which counts for an exchange. Adds what it cost to find it, in comparisons of names, about.
    pub(crate) fn of_exchange(&self, exchange: &ExchangeInfo, cost: &mut usize) -> PolicyMatch<'_> {
        let Some(found) = self.by_vhost.get(&exchange.vhost) else {
            return PolicyMatch::default();
        };
        let policy = found.user.first(|policy| policy.takes_exchange(exchange, cost));
        PolicyMatch { policy, operator: None }
    }

    /// What holds for a queue by its arguments and its policies. Adds what it cost to find these, in comparisons of
    /// names, about.
    pub(crate) fn settings_of<'a>(
        &self,
        queue: &'a QueueInfo,
        cost: &mut usize,
    ) -> Cow<'a, QueueSettings> {
        let found = self.of_queue(queue, cost);
        if found.is_none() {
            return Cow::Borrowed(queue.settings());
        }
        // Where no argument was given the settings do not know their kind.
        let own = QueueSettings { kind: queue.kind, ..queue.settings().clone() };
        Cow::Owned(own.under(queue.arguments(), &found.settings()))
    }

    /// Which change fulfils a request about policies.
    ///
    /// # Errors
    /// Why not, for whoever asks.
    pub(crate) fn check(&self, request: &Request, accounts: &Accounts) -> Result<Checked, Refusal> {
        match request {
            Request::SetPolicy { vhost, scope, name, pattern, apply_to, priority, definition } => {
                let vhost = accounts.resolve(vhost)?;
                let policy = policy::checked(name, pattern, apply_to, definition, *scope)
                    .map_err(|text| Refusal::new(RefusalKind::PreconditionFailed, text))?
                    .with_priority(*priority);
                if self.find(vhost.id, *scope, name) == Some(&policy) {
                    return Ok(Checked::Already(None));
                }
                let policy = Arc::new(policy);
                Ok(Checked::Change(Change::PolicySet { vhost: vhost.id, scope: *scope, policy }))
            }
            Request::ClearPolicy { vhost, scope, name } => {
                let vhost = accounts.resolve(vhost)?;
                if self.find(vhost.id, *scope, name).is_none() {
                    let (what, vhost) = (scope.name(), &vhost.name);
                    let text = format!("{what} '{name}' in vhost '{vhost}' not found");
                    return Err(Refusal::new(RefusalKind::NotFound, text));
                }
                let name = name.as_str().into();
                let (vhost, scope) = (vhost.id, *scope);
                Ok(Checked::Change(Change::PolicyCleared { vhost, scope, name }))
            }
            _ => Ok(Checked::Already(None)),
        }
    }

    /// Applies a change of policies; their virtual host is there. Whether anything is otherwise now.
    pub(crate) fn apply(&mut self, change: &Change) -> bool {
        let (vhost, before, now) = match change {
            Change::PolicySet { vhost, scope, policy } => {
                let found = self.by_vhost.entry(*vhost).or_default();
                (*vhost, found.scope_mut(*scope).put(policy), Some(&**policy))
            }
            Change::PolicyCleared { vhost, scope, name } => {
                let Some(found) = self.by_vhost.get_mut(vhost) else { return false };
                (*vhost, found.scope_mut(*scope).remove(name), None)
            }
            _ => return false,
        };
        if before.is_none() && now.is_none() {
            return race!("the policy was cleared before", false);
        }
        self.epoch += 1;
        let Some(found) = self.by_vhost.get_mut(&vhost) else {
            invariant!("the virtual host of a policy that changed has policies, or had some")
        };
        found.epoch = self.epoch;
        if let Some(before) = before {
            self.len -= 1;
            self.shared_bytes -= before.bytes();
        }
        if let Some(now) = now {
            self.len += 1;
            self.shared_bytes += now.bytes();
        }
        true
    }

    /// A virtual host is gone, and its policies with it.
    pub(crate) fn forget_vhost(&mut self, vhost: VhostId) {
        let Some(found) = self.by_vhost.remove(&vhost) else { return };
        self.len -= found.len();
        for policy in found.user.ranked.iter().chain(&found.operator.ranked) {
            self.shared_bytes -= policy.bytes();
        }
    }

    /// The policy next after this one: by virtual host, scope and name.
    pub(crate) fn behind(
        &self,
        last: Option<(VhostId, PolicyScope, &str)>,
    ) -> Option<(VhostId, PolicyScope, &Arc<Policy>)> {
        let first = last.map_or(Bound::Unbounded, |(vhost, ..)| Bound::Included(vhost));
        self.by_vhost.range((first, Bound::Unbounded)).find_map(|(vhost, found)| {
            let last = last.filter(|(other, ..)| other == vhost);
            let is_over = |scope: &PolicyScope| last.is_some_and(|(_, last, _)| last != *scope);
            PolicyScope::ALL.into_iter().skip_while(is_over).find_map(|scope| {
                let name = last.filter(|(_, last, _)| *last == scope).map(|(.., name)| name);
                let first = name.map_or(Bound::Unbounded, Bound::Excluded);
                let mut behind =
                    found.scope(scope).by_name.range::<str, _>((first, Bound::Unbounded));
                behind.next().map(|(_, policy)| (*vhost, scope, policy))
            })
        })
    }
}
