//! What operators say of queues and exchanges by policies, and their parameters.

use super::Directory;
use crate::exchange::ExchangeInfo;
use crate::parameters::ParameterInfo;
use crate::policy::{Policy, PolicyMatch, PolicyScope};
use crate::queue_info::QueueInfo;
use crate::vhost::VhostInfo;
use alloc::borrow::Cow;
use lepus_base::VhostId;
use lepus_queue::QueueSettings;

impl Directory {
    /// Grows by one with every change of a policy in any virtual host, and is the same on every shard after the same
    /// changes. At a start it is that of the log that was read.
    #[must_use]
    pub fn policy_epoch(&self) -> u64 {
        self.policies.epoch()
    }

    /// The epoch at which a policy of the virtual host changed last; 0 where none ever did. What was computed of the
    /// policies holds as long as this stays.
    #[must_use]
    pub fn policy_epoch_of(&self, vhost: VhostId) -> u64 {
        self.policies.epoch_of(vhost)
    }

    /// A policy by its name.
    #[must_use]
    pub fn policy(&self, vhost: VhostId, scope: PolicyScope, name: &str) -> Option<&Policy> {
        self.policies.find(vhost, scope, name)
    }

    /// The policies of one virtual host, or of all by their names; then by name.
    pub fn policies(
        &self,
        scope: PolicyScope,
        vhost: Option<VhostId>,
    ) -> impl Iterator<Item = (&VhostInfo, &Policy)> {
        self.vhosts_or(vhost).flat_map(move |info| {
            self.policies.list(info.id, scope).map(move |policy| (info, policy))
        })
    }

    /// The policy and the operator policy that count for a queue.
    #[must_use]
    pub fn policy_of_queue(&self, queue: &QueueInfo) -> PolicyMatch<'_> {
        self.policies.of_queue(queue, &mut 0)
    }

    /// The policy that counts for an exchange.
    #[must_use]
    pub fn policy_of_exchange(&self, exchange: &ExchangeInfo) -> PolicyMatch<'_> {
        self.policies.of_exchange(exchange, &mut 0)
    }

    /// What holds for a queue by its arguments, its policy and its operator policy.
    #[must_use]
    pub fn settings_of<'a>(&self, queue: &'a QueueInfo) -> Cow<'a, QueueSettings> {
        self.policies.settings_of(queue, &mut 0)
    }

    /// As [`Directory::settings_of`]; adds what it cost to find them, in comparisons of names, about: some hundred
    /// nanoseconds each.
    #[must_use]
    pub fn settings_at_cost<'a>(
        &self,
        queue: &'a QueueInfo,
        cost: &mut usize,
    ) -> Cow<'a, QueueSettings> {
        self.policies.settings_of(queue, cost)
    }

    /// Has the exchanges at so many places from `first` on route by the policies as they are now, if they are of a
    /// virtual host that is `wanted`. Whether there are places behind these. Each shard does so by itself, in slices,
    /// after a change; an exchange that is declared later does from the beginning. Adds what it cost as
    /// [`Directory::settings_at_cost`] does.
    pub fn renew_exchanges(
        &mut self,
        first: usize,
        places: usize,
        wanted: impl Fn(VhostId) -> bool,
        cost: &mut usize,
    ) -> bool {
        let end = self.topology.exchange_places().min(first.saturating_add(places));
        for place in first..end {
            let Some(info) = self.topology.exchange_at(place).filter(|info| wanted(info.vhost))
            else {
                continue;
            };
            let alternate =
                self.policies.of_exchange(info, cost).alternate_exchange().map(Into::into);
            if self.topology.set_policy_alternate(place as u32, alternate) {
                // Who remembers a route looks again.
                self.version += 1;
            }
        }
        end < self.topology.exchange_places()
    }

    /// An exchange was declared: it routes by its policy from the beginning.
    pub(super) fn begin_exchange(&mut self, info: &ExchangeInfo) {
        let alternate =
            self.policies.of_exchange(info, &mut 0).alternate_exchange().map(Into::into);
        if let Some(place) = self.topology.exchange_place(info.vhost, &info.name)
            && alternate.is_some()
        {
            self.topology.set_policy_alternate(place, alternate);
        }
    }

    /// The JSON text of a parameter of a part of the broker.
    #[must_use]
    pub fn parameter(&self, vhost: VhostId, component: &str, name: &str) -> Option<&str> {
        self.parameters.find(vhost, component, name)
    }

    /// The parameters of one virtual host, or of all by their names; then by component and name. Operator policies and
    /// limits are not among them, whatever tools call these.
    pub fn parameters(
        &self,
        vhost: Option<VhostId>,
    ) -> impl Iterator<Item = (&VhostInfo, ParameterInfo<'_>)> {
        self.vhosts_or(vhost).flat_map(move |info| {
            self.parameters.list(info.id).map(move |parameter| (info, parameter))
        })
    }

    /// The JSON text of a parameter of the whole broker.
    #[must_use]
    pub fn global_parameter(&self, name: &str) -> Option<&str> {
        self.parameters.find_global(name)
    }

    /// The parameters of the whole broker by name, with their JSON texts.
    pub fn global_parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.list_global()
    }

    /// One virtual host, or all by name.
    fn vhosts_or(&self, vhost: Option<VhostId>) -> impl Iterator<Item = &VhostInfo> {
        let all = vhost.is_none().then(|| self.accounts.vhosts());
        let one = vhost.and_then(|vhost| self.accounts.vhost_info(vhost));
        all.into_iter().flatten().chain(one)
    }
}
