//! From requests to changes, and what these do. The same changes give the same directory on every shard.

use super::Directory;
use crate::change::{Applied, Change, Checked};
use crate::request::Request;
use crate::router::request_effort;
use alloc::boxed::Box;
use alloc::vec::Vec;
use lepus_base::VhostId;
use lepus_queue::refusal::Refusal;

impl Directory {
    /// Whether a request can be fulfilled, and which change does it. Only the shard that orders
    /// the changes may act on a change; it applies it before it checks the next request.
    ///
    /// # Errors
    /// The reply code and text for the client.
    pub fn check(&self, request: &Request) -> Result<Checked, Refusal> {
        let checked = match request {
            Request::SetPolicy { .. } | Request::ClearPolicy { .. } => {
                self.policies.check(request, &self.accounts)?
            }
            Request::SetParameter { .. }
            | Request::ClearParameter { .. }
            | Request::SetGlobalParameter { .. }
            | Request::ClearGlobalParameter { .. } => {
                self.parameters.check(request, &self.accounts)?
            }
            _ => self.look().request(request)?,
        };
        if let Checked::Change(change) = &checked {
            self.budget.check(change, &self.accounts, &self.topology)?;
            self.budget.check_settings(change, &self.policies, &self.parameters)?;
        }
        Ok(checked)
    }

    /// Counts what was checked and is to be applied later, so that limits hold and further queues
    /// get other ids and homes.
    pub fn reserve(&mut self, change: &Change) {
        self.budget.reserve(change);
        self.topology.reserve(change);
    }

    /// The opposite, right before the change is applied or given up.
    pub fn release(&mut self, change: &Change) {
        self.budget.release(change);
        self.topology.release(change);
    }

    /// How much work it is to carry out a request that comes to this change: bindings that go.
    #[must_use]
    pub fn effort(&self, change: &Change) -> usize {
        self.topology.effort(change)
    }

    /// How much work a request is that was refused.
    #[must_use]
    pub fn refusal_effort(&self, request: &Request) -> usize {
        match request {
            Request::Bind { arguments, .. } => 1 + request_effort(arguments),
            _ => 1,
        }
    }

    /// Applies a change and tells what followed from it.
    pub fn apply(&mut self, change: &Change) -> Applied {
        self.version += 1;
        let mut applied = Applied::default();
        match change {
            Change::IdsUsed { vhosts, queues } => {
                self.accounts.use_ids(*vhosts);
                self.topology.queues_mut().use_ids(*queues);
            }
            Change::ExchangeDeclared(info) => {
                if self.accounts.has_vhost(info.vhost) {
                    self.topology.apply(change, &mut applied);
                    self.begin_exchange(info);
                }
            }
            Change::QueueDeclared(info) => {
                if self.accounts.has_vhost(info.vhost) {
                    self.topology.apply(change, &mut applied);
                }
                applied.queues_created.push(info.id);
            }
            Change::ExchangeDeleted { .. }
            | Change::QueueDeleted { .. }
            | Change::QueueMoved { .. }
            | Change::Bound(_)
            | Change::Unbound(_) => self.topology.apply(change, &mut applied),
            Change::VhostCreated { id, name, metadata } => {
                if self.accounts.add_vhost(*id, name, metadata) {
                    self.topology.add_vhost(*id);
                }
            }
            Change::VhostDeleted { id } => {
                // Nobody finds it any more.
                if self.accounts.delete_vhost(*id) {
                    self.topology.delete_vhost(*id);
                    self.policies.forget_vhost(*id);
                    self.parameters.forget_vhost(*id);
                    applied.goes_in_slices = true;
                    applied.vhost_deleted = Some(*id);
                    applied.permissions_changed = true;
                }
            }
            Change::PolicySet { vhost, .. } | Change::PolicyCleared { vhost, .. } => {
                if self.accounts.has_vhost(*vhost) && self.policies.apply(change) {
                    applied.policies_changed = Some(*vhost);
                }
            }
            Change::ParameterSet { vhost, .. } | Change::ParameterCleared { vhost, .. } => {
                if self.accounts.has_vhost(*vhost) {
                    self.parameters.apply(change);
                }
            }
            Change::GlobalParameterSet { .. } | Change::GlobalParameterCleared { .. } => {
                self.parameters.apply(change);
            }
            Change::Cleared => self.topology.clear_slice(&mut applied),
            Change::InParts => self.is_in_parts = true,
            _ => self.accounts.apply(change, &mut applied),
        }
        applied
    }

    /// What was deleted and is not gone with all that was in it: each needs [`Change::Cleared`] until
    /// this is one less. The oldest goes first.
    #[must_use]
    pub fn clearing(&self) -> usize {
        self.topology.clearing()
    }

    /// What a slice may cost, in looks at places.
    #[must_use]
    pub fn slice_looks(&self) -> usize {
        self.topology.slice_looks()
    }

    /// What a log has to keep of a change that was checked and is not applied yet; nothing where
    /// no durable object comes, changes or goes. Who reads the log uses [`Directory::replay`].
    #[must_use]
    pub fn durable_part(&self, change: &Change) -> Vec<Change> {
        self.topology.durable_part(change)
    }

    /// Applies a change that was read from a log: exchanges do not delete themselves.
    pub fn replay(&mut self, change: &Change) {
        let is_in_parts = core::mem::take(&mut self.is_in_parts);
        if let Change::ExchangeDeleted { vhost, name } = change {
            self.left_behind.remove(&(*vhost, name.clone()));
        }
        self.topology.set_replaying(true);
        let left = self.apply_all(change);
        self.topology.set_replaying(false);
        if is_in_parts {
            self.left_behind.extend(left);
        }
    }

    /// Applies a change and takes out all that is left of what was deleted, however long that takes.
    /// Exchanges that were left are told by [`Directory::next_left_behind`].
    pub fn apply_whole(&mut self, change: &Change) {
        let left = self.apply_all(change);
        self.left_behind.extend(left);
    }

    /// The same; the exchanges that were left.
    fn apply_all(&mut self, change: &Change) -> Vec<(VhostId, Box<str>)> {
        let mut left = self.apply(change).exchanges_left;
        while self.clearing() > 0 {
            left.append(&mut self.apply(&Change::Cleared).exchanges_left);
        }
        left
    }

    /// The deletion of an exchange that has lost its last binding, in what [`Directory::apply_whole`]
    /// did or in a log that says nothing of its end.
    pub fn next_left_behind(&mut self) -> Option<Change> {
        while let Some((vhost, name)) = self.left_behind.pop_first() {
            let is_left = self.exchange(vhost, &name).is_some_and(|info| info.auto_delete)
                && self.topology.bindings_of(vhost, &name) == Some(0);
            if is_left {
                return Some(Change::ExchangeDeleted { vhost, name });
            }
        }
        None
    }
}
