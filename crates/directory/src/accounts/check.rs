//! Virtual hosts, users and permissions: what is allowed.

use super::Accounts;
use crate::change::{Change, Checked};
use crate::permission::{Permission, TopicPermission};
use crate::request::{Request, VhostRef};
use crate::user::{PasswordHash, User};
use crate::vhost::VhostMetadata;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use lepus_base::VhostId;
use lepus_queue::refusal::{Refusal, RefusalKind};

/// Longest name of a user or virtual host in bytes.
const NAME_BYTES_MAX: usize = 255;

impl Accounts {
    /// Which change fulfils a request about virtual hosts, users or permissions.
    ///
    /// # Errors
    /// The reply code and text for whoever asks.
    pub(crate) fn check(&self, request: &Request) -> Result<Checked, Refusal> {
        let change = match request {
            Request::CreateVhost { name, metadata } => {
                check_name("vhost", name)?;
                match self.vhost(name) {
                    None => Change::VhostCreated {
                        id: VhostId(self.next_vhost),
                        name: name.as_str().into(),
                        metadata: metadata.clone(),
                    },
                    Some(id) => {
                        let tracing = self.vhosts[&id].metadata.tracing;
                        return Ok(self.describe(id, VhostMetadata { tracing, ..metadata.clone() }));
                    }
                }
            }
            Request::SetTracing { vhost, on } => {
                let info = self.resolve(vhost)?;
                let metadata = VhostMetadata { tracing: *on, ..info.metadata.clone() };
                return Ok(self.describe(info.id, metadata));
            }
            Request::DeleteVhost { name } => {
                let info = self.resolve(&VhostRef::Name(name.as_str().into()))?;
                if info.metadata.protected {
                    let text = format!("vhost '{name}' is protected from deletion");
                    return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
                }
                Change::VhostDeleted { id: info.id }
            }
            Request::SetVhostLimits { vhost, limits } => {
                let info = self.resolve(vhost)?;
                if info.limits == *limits {
                    return Ok(Checked::Already(None));
                }
                Change::VhostLimited { id: info.id, limits: *limits }
            }
            Request::PutUser { name, password, tags } => {
                return self.check_user(name, password, tags);
            }
            Request::AddUser { name, .. } if self.user(name).is_some() => {
                let text = format!("user {name:?} exists already");
                return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
            }
            Request::AddUser { name, password, tags } => {
                return self.check_user(name, password, tags);
            }
            Request::SetPassword { name, password } => {
                let tags = self.known_user(name)?.tags.clone();
                return self.check_user(name, password, &tags);
            }
            Request::SetTags { name, tags } => {
                let password = self.known_user(name)?.password.clone();
                return self.check_user(name, &password, tags);
            }
            Request::DeleteUser { name } => {
                Change::UserDeleted { name: self.known_user(name)?.name.clone() }
            }
            Request::SetUserLimits { name, limits } => {
                let user = self.known_user(name)?;
                if user.limits == *limits {
                    return Ok(Checked::Already(None));
                }
                Change::UserLimited { name: user.name.clone(), limits: *limits }
            }
            _ => return self.check_permission(request),
        };
        Ok(Checked::Change(change))
    }

    /// Has a virtual host described so.
    fn describe(&self, id: VhostId, metadata: VhostMetadata) -> Checked {
        if self.vhosts[&id].metadata == metadata {
            return Checked::Already(None);
        }
        Checked::Change(Change::VhostDescribed { id, metadata })
    }

    fn check_user(
        &self,
        name: &str,
        password: &PasswordHash,
        tags: &[Box<str>],
    ) -> Result<Checked, Refusal> {
        check_name("user", name)?;
        let is_same = |user: &User| user.password == *password && user.tags == *tags;
        if self.user(name).is_some_and(is_same) {
            return Ok(Checked::Already(None));
        }
        let (password, tags) = (password.clone(), tags.to_vec());
        Ok(Checked::Change(Change::UserPut { name: name.into(), password, tags }))
    }

    fn check_permission(&self, request: &Request) -> Result<Checked, Refusal> {
        let change = match request {
            Request::SetPermission { user, vhost, configure, write, read } => {
                let (user, vhost) = (self.known_user(user)?, self.resolve(vhost)?);
                let permission = Permission::new(configure, write, read).map_err(invalid)?;
                if user.permission(vhost.id) == Some(&permission) {
                    return Ok(Checked::Already(None));
                }
                Change::PermissionSet {
                    user: user.name.clone(),
                    vhost: vhost.id,
                    configure: configure.as_str().into(),
                    write: write.as_str().into(),
                    read: read.as_str().into(),
                }
            }
            Request::ClearPermission { user, vhost } => {
                let (user, vhost) = (self.known_user(user)?, self.resolve(vhost)?);
                if user.permission(vhost.id).is_none() {
                    return Ok(Checked::Already(None));
                }
                Change::PermissionCleared { user: user.name.clone(), vhost: vhost.id }
            }
            Request::SetTopicPermission { user, vhost, exchange, write, read } => {
                let (user, vhost) = (self.known_user(user)?, self.resolve(vhost)?);
                let permission =
                    TopicPermission::new(write, read, &user.name, &vhost.name).map_err(invalid)?;
                if user.topic_permission(vhost.id, exchange) == Some(&permission) {
                    return Ok(Checked::Already(None));
                }
                Change::TopicPermissionSet {
                    user: user.name.clone(),
                    vhost: vhost.id,
                    exchange: exchange.as_str().into(),
                    write: write.as_str().into(),
                    read: read.as_str().into(),
                }
            }
            Request::ClearTopicPermission { user, vhost, exchange } => {
                let (user, vhost) = (self.known_user(user)?, self.resolve(vhost)?);
                let exchange = exchange.as_deref();
                let is_restricted = match exchange {
                    Some(exchange) => user.topic_permission(vhost.id, exchange).is_some(),
                    None => user.is_topic_restricted(vhost.id),
                };
                if !is_restricted {
                    return Ok(Checked::Already(None));
                }
                Change::TopicPermissionCleared {
                    user: user.name.clone(),
                    vhost: vhost.id,
                    exchange: exchange.map(Into::into),
                }
            }
            _ => return Ok(Checked::Already(None)),
        };
        Ok(Checked::Change(change))
    }

    fn known_user(&self, name: &str) -> Result<&User, Refusal> {
        self.user(name)
            .ok_or_else(|| Refusal::new(RefusalKind::NotFound, format!("user '{name}' not found")))
    }
}

fn invalid(text: String) -> Refusal {
    Refusal::new(RefusalKind::PreconditionFailed, text)
}

fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(invalid(format!("{what} name has to have 1 to {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}
