//! Virtual hosts, users, and what these may do.

mod check;
mod listing;
mod login;
mod rights;

use crate::change::{Applied, Change};
use crate::permission::{Permission, TopicPermission};
use crate::request::VhostRef;
use crate::user::{PasswordHash, User};
use crate::vhost::{VhostInfo, VhostLimits, VhostMetadata};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;
use lepus_base::VhostId;
use lepus_queue::refusal::{Refusal, RefusalKind};
pub use login::Anonymous;

/// Virtual hosts, users and their permissions.
#[derive(Clone, Debug)]
pub struct Accounts {
    vhosts: BTreeMap<VhostId, VhostInfo>,
    vhosts_by_name: BTreeMap<Box<str>, VhostId>,
    next_vhost: u32,
    users: BTreeMap<Box<str>, User>,
    loopback_users: Vec<Box<str>>,
    /// Whether clients may come from other machines.
    is_reachable: bool,
    /// Whom clients log in as that give no name.
    anonymous: Option<Anonymous>,
}

impl Accounts {
    /// None yet; `guest` may log in from this machine only, and so who gives no name.
    pub(crate) fn new() -> Accounts {
        Accounts {
            vhosts: BTreeMap::new(),
            vhosts_by_name: BTreeMap::new(),
            next_vhost: 1,
            users: BTreeMap::new(),
            loopback_users: vec!["guest".into()],
            is_reachable: false,
            anonymous: Some(Anonymous::new("guest", "guest")),
        }
    }

    /// Sets who may log in from this machine only; `guest` unless said otherwise. The same on all
    /// shards; who is logged in stays.
    pub fn set_loopback_users(&mut self, names: Vec<Box<str>>) {
        self.loopback_users = names;
    }

    /// Who may log in from this machine only.
    #[must_use]
    pub fn loopback_users(&self) -> &[Box<str>] {
        &self.loopback_users
    }

    /// Sets whether clients may come from other machines: then [`Accounts::open_door`] has something
    /// to tell.
    pub fn set_reachable(&mut self, is_reachable: bool) {
        self.is_reachable = is_reachable;
    }

    /// Replaces whom clients log in as that give no name; with `None` they are not let in.
    pub fn set_anonymous(&mut self, anonymous: Option<Anonymous>) {
        self.anonymous = anonymous;
    }

    /// The lowest id of a virtual host that was never used.
    pub(crate) fn next_vhost(&self) -> u32 {
        self.next_vhost
    }

    /// Ids of virtual hosts below this one were used.
    pub(crate) fn use_ids(&mut self, below: u32) {
        self.next_vhost = self.next_vhost.max(below);
    }

    /// The virtual host of that name.
    #[must_use]
    pub fn vhost(&self, name: &str) -> Option<VhostId> {
        self.vhosts_by_name.get(name).copied()
    }

    /// Everything about a virtual host.
    #[must_use]
    pub fn vhost_info(&self, vhost: VhostId) -> Option<&VhostInfo> {
        self.vhosts.get(&vhost)
    }

    /// The virtual host's name; empty for one that is gone.
    #[must_use]
    pub fn vhost_name(&self, vhost: VhostId) -> &str {
        self.vhosts.get(&vhost).map_or("", |info| &info.name)
    }

    /// Whether there is such a virtual host.
    pub(crate) fn has_vhost(&self, vhost: VhostId) -> bool {
        self.vhosts.contains_key(&vhost)
    }

    /// The user of that name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// The virtual host that a request names.
    ///
    /// # Errors
    /// 404 where there is none.
    pub(crate) fn resolve(&self, vhost: &VhostRef) -> Result<&VhostInfo, Refusal> {
        let found = match vhost {
            VhostRef::Id(id) => self.vhosts.get(id),
            VhostRef::Name(name) => self.vhost(name).and_then(|id| self.vhosts.get(&id)),
        };
        found.ok_or_else(|| {
            let text = match vhost {
                VhostRef::Id(_) => "vhost was deleted".into(),
                VhostRef::Name(name) => format!("vhost '{name}' not found"),
            };
            Refusal::new(RefusalKind::NotFound, text)
        })
    }

    /// Adds a virtual host, unless there is one of that name.
    pub(crate) fn add_vhost(&mut self, id: VhostId, name: &str, metadata: &VhostMetadata) -> bool {
        if self.vhosts_by_name.contains_key(name) {
            return false;
        }
        self.next_vhost = self.next_vhost.max(id.0.saturating_add(1));
        self.vhosts_by_name.insert(name.into(), id);
        let info = VhostInfo {
            id,
            name: name.into(),
            metadata: metadata.clone(),
            limits: VhostLimits::default(),
        };
        self.vhosts.insert(id, info);
        true
    }

    /// Takes a virtual host out, with all permissions in it. False if there is none.
    pub(crate) fn delete_vhost(&mut self, id: VhostId) -> bool {
        let Some(info) = self.vhosts.remove(&id) else {
            return race!("the virtual host was deleted before", false);
        };
        self.vhosts_by_name.remove(&info.name);
        for user in self.users.values_mut() {
            user.forget_vhost(id);
        }
        true
    }

    /// Applies a change to what is here, and nothing of others: limits and descriptions of virtual hosts, users,
    /// permissions.
    pub(crate) fn apply(&mut self, change: &Change, applied: &mut Applied) {
        match change {
            Change::VhostDescribed { id, metadata } => {
                if let Some(info) = self.vhosts.get_mut(id) {
                    info.metadata = metadata.clone();
                }
                return;
            }
            Change::VhostLimited { id, limits } => {
                if let Some(info) = self.vhosts.get_mut(id) {
                    info.limits = *limits;
                }
                return;
            }
            _ => applied.permissions_changed = true,
        }
        match change {
            Change::UserPut { name, password, tags } => self.put_user(name, password, tags),
            Change::UserDeleted { name } => {
                applied.user_deleted = self.users.remove(name).map(|user| user.name);
            }
            Change::UserLimited { name, limits } => {
                if let Some(user) = self.users.get_mut(name) {
                    user.limits = *limits;
                }
            }
            Change::PermissionSet { user, vhost, configure, write, read } => {
                if let Some(user) = self.users.get_mut(user)
                    && self.vhosts.contains_key(vhost)
                {
                    user.permit(*vhost, Permission::recovered(configure, write, read));
                }
            }
            Change::PermissionCleared { user, vhost } => {
                if let Some(user) = self.users.get_mut(user) {
                    user.forbid(*vhost);
                }
            }
            Change::TopicPermissionSet { user, vhost, exchange, write, read } => {
                if let Some(user) = self.users.get_mut(user)
                    && let Some(info) = self.vhosts.get(vhost)
                {
                    let (user_name, vhost_name) = (&user.name, &info.name);
                    let permission = TopicPermission::recovered(write, read, user_name, vhost_name);
                    user.restrict(*vhost, exchange.clone(), permission);
                }
            }
            Change::TopicPermissionCleared { user, vhost, exchange } => {
                if let Some(user) = self.users.get_mut(user) {
                    user.unrestrict(*vhost, exchange.as_deref());
                }
            }
            _ => {}
        }
    }

    fn put_user(&mut self, name: &str, password: &PasswordHash, tags: &[Box<str>]) {
        if let Some(user) = self.users.get_mut(name) {
            user.password = password.clone();
            user.tags = tags.to_vec();
        } else {
            let user = User::new(name, password.clone(), tags.to_vec());
            self.users.insert(name.into(), user);
        }
    }

    /// The virtual host that was created next after this one.
    pub(crate) fn vhost_behind(&self, vhost: Option<VhostId>) -> Option<&VhostInfo> {
        let first = vhost.map_or(Bound::Unbounded, Bound::Excluded);
        self.vhosts.range((first, Bound::Unbounded)).next().map(|(_, info)| info)
    }

    /// The user whose name comes next after this one.
    pub(crate) fn user_behind(&self, name: Option<&str>) -> Option<&User> {
        let first = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.users.range::<str, _>((first, Bound::Unbounded)).next().map(|(_, user)| user)
    }
}
