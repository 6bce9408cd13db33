//! Sorted lists for tools.

use super::Accounts;
use crate::permission::{Permission, TopicPermission};
use crate::user::User;
use crate::vhost::VhostInfo;
use alloc::boxed::Box;
use core::ops::Bound;
use lepus_base::VhostId;

impl Accounts {
    /// All virtual hosts by name.
    pub fn vhosts(&self) -> impl ExactSizeIterator<Item = &VhostInfo> {
        self.vhosts_by_name.values().map(|id| &self.vhosts[id])
    }

    /// The virtual hosts whose names come behind this one, by name; all without one.
    pub fn vhosts_behind(&self, name: Option<&str>) -> impl Iterator<Item = &VhostInfo> {
        let first = name.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.vhosts_by_name.range::<str, _>((first, Bound::Unbounded));
        found.map(|(_, id)| &self.vhosts[id])
    }

    /// Ids of all virtual hosts by age.
    pub(crate) fn vhost_ids(&self) -> impl ExactSizeIterator<Item = VhostId> {
        self.vhosts.keys().copied()
    }

    /// All users by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &User> {
        self.users.values()
    }

    /// The users whose names come behind this one, by name; all without one.
    pub fn users_behind(&self, name: Option<&str>) -> impl Iterator<Item = &User> {
        let first = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.users.range::<str, _>((first, Bound::Unbounded)).map(|(_, user)| user)
    }

    /// The permissions of a user by age of the virtual host: virtual host, patterns.
    pub fn permissions_of<'a>(
        &'a self,
        user: &'a User,
    ) -> impl Iterator<Item = (&'a VhostInfo, &'a Permission)> {
        user.permissions().map(|(vhost, permission)| (&self.vhosts[&vhost], permission))
    }

    /// A user's restrictions of routing keys: virtual host, exchange, patterns.
    pub fn topic_permissions_of<'a>(
        &'a self,
        user: &'a User,
    ) -> impl Iterator<Item = (&'a VhostInfo, &'a str, &'a TopicPermission)> {
        let own = user.topic_permissions();
        own.map(|(vhost, exchange, permission)| (&self.vhosts[&vhost], exchange, permission))
    }

    /// As [`Accounts::permissions_of`], those in virtual hosts younger than this one; all without one.
    pub fn permissions_behind<'a>(
        &'a self,
        user: &'a User,
        vhost: Option<VhostId>,
    ) -> impl Iterator<Item = (&'a VhostInfo, &'a Permission)> {
        let found = user.permissions_behind(vhost);
        found.map(|(vhost, permission)| (&self.vhosts[&vhost], permission))
    }

    /// As [`Accounts::topic_permissions_of`], those behind that of an exchange in a virtual host; all without one.
    pub fn topic_permissions_behind<'a>(
        &'a self,
        user: &'a User,
        exchange: Option<(VhostId, Box<str>)>,
    ) -> impl Iterator<Item = (&'a VhostInfo, &'a str, &'a TopicPermission)> {
        let found = user.topic_permissions_behind(exchange);
        found.map(|(vhost, exchange, permission)| (&self.vhosts[&vhost], exchange, permission))
    }

    /// All permissions by user, then by age of the virtual host: user, virtual host, patterns.
    pub fn permissions(&self) -> impl Iterator<Item = (&str, &VhostInfo, &Permission)> {
        self.users.values().flat_map(|user| {
            let own = self.permissions_of(user);
            own.map(|(vhost, permission)| (&*user.name, vhost, permission))
        })
    }

    /// All restrictions of routing keys by user: user, virtual host, exchange, patterns.
    pub fn topic_permissions(
        &self,
    ) -> impl Iterator<Item = (&str, &VhostInfo, &str, &TopicPermission)> {
        self.users.values().flat_map(|user| {
            let own = self.topic_permissions_of(user);
            own.map(|(vhost, exchange, permission)| (&*user.name, vhost, exchange, permission))
        })
    }
}
