//! What a user may do.

use super::Accounts;
use crate::permission::{Access, Permission, Resource};
use alloc::format;
use lepus_base::VhostId;
use lepus_queue::refusal::{Refusal, RefusalKind};

impl Accounts {
    fn permission(&self, user: &str, vhost: VhostId) -> Option<&Permission> {
        self.users.get(user)?.permission(vhost)
    }

    /// Whether the user may open the virtual host at all.
    #[must_use]
    pub fn may_open(&self, user: &str, vhost: VhostId) -> bool {
        self.vhosts.contains_key(&vhost) && self.permission(user, vhost).is_some()
    }

    /// Whether the user has the access to a queue or exchange of that name; the empty name is the
    /// default exchange.
    #[must_use]
    pub fn may(&self, user: &str, vhost: VhostId, access: Access, resource: &str) -> bool {
        let name = match resource {
            "" => Resource::Exchange("").name(),
            name => name,
        };
        self.permission(user, vhost).is_some_and(|permission| permission.allows(access, name))
    }

    /// Whether the user has any access to it, as passive declarations need.
    #[must_use]
    pub fn may_any(&self, user: &str, vhost: VhostId, resource: &str) -> bool {
        [Access::Configure, Access::Write, Access::Read]
            .into_iter()
            .any(|access| self.may(user, vhost, access, resource))
    }

    /// Whether any restriction of routing keys holds for the user in the virtual host.
    #[must_use]
    pub fn has_topic_rules(&self, user: &str, vhost: VhostId) -> bool {
        self.users.get(user).is_some_and(|user| user.is_topic_restricted(vhost))
    }

    /// As [`Accounts::may`].
    ///
    /// # Errors
    /// 403 where the access is not given.
    pub fn authorize(
        &self,
        user: &str,
        vhost: VhostId,
        access: Access,
        resource: Resource<'_>,
    ) -> Result<(), Refusal> {
        if self.may(user, vhost, access, resource.name()) {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalKind::AccessRefused,
            format!(
                "{} access to {resource} in vhost '{}' refused for user '{user}'",
                access.name(),
                self.vhost_name(vhost)
            ),
        ))
    }

    /// As [`Accounts::may_any`].
    ///
    /// # Errors
    /// 403 where the user has no access at all.
    pub fn authorize_passive(
        &self,
        user: &str,
        vhost: VhostId,
        resource: Resource<'_>,
    ) -> Result<(), Refusal> {
        if self.may_any(user, vhost, resource.name()) {
            return Ok(());
        }
        self.authorize(user, vhost, Access::Configure, resource)
    }
}
