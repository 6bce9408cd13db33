//! Who may log in, and what a user may do.

use super::Directory;
use super::request::{Request, VhostRef, clean_name};
use crate::binding::Destination;
use crate::exchange::{ALTERNATE_EXCHANGE, ExchangeKind};
use crate::permission::{Access, Permission, Resource};
use crate::user::{LoginFailure, PasswordHash, User};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::table::{Table, Value};
use lepus_base::VhostId;
use lepus_queue::refusal::Refusal;

/// Whom clients log in as that give no name. The password has to be right, so that nobody gets more
/// in this way than by giving both.
#[derive(Clone)]
pub struct Anonymous {
    user: Box<str>,
    password: Box<str>,
}

impl Anonymous {
    /// The user of that name, as long as the password is right.
    #[must_use]
    pub fn new(user: &str, password: &str) -> Anonymous {
        Anonymous { user: user.into(), password: password.into() }
    }
}

impl core::fmt::Debug for Anonymous {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Anonymous").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Directory {
    /// Checks a name and password. An unknown name costs as much time as a wrong password, however
    /// that of a user is kept.
    ///
    /// # Errors
    /// Why the login is refused, for the log.
    pub fn authenticate(
        &self,
        user: &str,
        password: &[u8],
        from_loopback: bool,
    ) -> Result<(), LoginFailure> {
        let Some(user) = self.users.get(user) else {
            let _ = core::hint::black_box(PasswordHash::none().matches(password));
            return Err(LoginFailure::UnknownUser);
        };
        if !user.password.matches(password) {
            return Err(match user.password.is_none() {
                true => LoginFailure::NoPassword,
                false => LoginFailure::WrongPassword,
            });
        }
        self.check_address(user, from_loopback)
    }

    /// Checks a name that something else has vouched for, such as a client certificate.
    ///
    /// # Errors
    /// Why the login is refused, for the log.
    pub fn authenticate_external(
        &self,
        user: &str,
        from_loopback: bool,
    ) -> Result<(), LoginFailure> {
        let user = self.users.get(user).ok_or(LoginFailure::UnknownUser)?;
        self.check_address(user, from_loopback)
    }

    /// Whom clients log in as that give no name, if they are let in.
    #[must_use]
    pub fn anonymous(&self) -> Option<&Anonymous> {
        self.anonymous.as_ref()
    }

    /// The user that a client is who gives no name, and whether it may log in; `None` where such clients are not let in.
    #[must_use]
    pub fn authenticate_anonymous(
        &self,
        from_loopback: bool,
    ) -> Option<(&str, Result<(), LoginFailure>)> {
        let Anonymous { user, password } = self.anonymous.as_ref()?;
        Some((user, self.authenticate(user, password.as_bytes(), from_loopback)))
    }

    fn check_address(&self, user: &User, from_loopback: bool) -> Result<(), LoginFailure> {
        if !from_loopback && self.loopback_users.contains(&user.name) {
            return Err(LoginFailure::NotLoopback);
        }
        Ok(())
    }

    /// What to tell of a user who may log in from any machine with a password that everybody knows, if
    /// clients can come from there.
    #[must_use]
    pub fn open_door(&self, user: &str) -> Option<String> {
        let is_open = self.is_reachable && self.check_address(self.user(user)?, false).is_ok();
        is_open.then(|| self.known_password(user)).flatten()
    }

    /// The same, wherever the user may come from.
    #[must_use]
    pub fn known_password(&self, user: &str) -> Option<String> {
        let password = &self.user(user)?.password;
        let mut known = [user, "guest", "password"].into_iter();
        known.any(|word| password.matches(word.as_bytes())).then(|| {
            format!(
                "user {user} has a password that everybody knows and may log in from any machine: \
                 give it another one (lepus user set-password {user}) or name it in \
                 login.loopback_users"
            )
        })
    }

    fn permission(&self, user: &str, vhost: VhostId) -> Option<&Permission> {
        self.users.get(user)?.permissions.get(&vhost)
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

    /// Whether the user may publish or bind with the routing key. Restrictions exist for topic
    /// exchanges only, and only where an operator set some.
    #[must_use]
    pub fn may_topic(
        &self,
        user: &str,
        vhost: VhostId,
        exchange: &str,
        access: Access,
        routing_key: &str,
    ) -> bool {
        if !self.is_topic_restricted(user, vhost) {
            return true;
        }
        let is_topic =
            self.exchange(vhost, exchange).is_some_and(|info| info.kind == ExchangeKind::Topic);
        let Some(user) = self.users.get(user).filter(|_| is_topic) else {
            return true;
        };
        user.topic_permission(vhost, exchange)
            .is_none_or(|permission| permission.allows(access, routing_key))
    }

    /// Whether any restriction of routing keys holds for the user in the virtual host.
    #[must_use]
    pub fn is_topic_restricted(&self, user: &str, vhost: VhostId) -> bool {
        self.users.get(user).is_some_and(|user| {
            let mut from_here = user.topic_permissions.range((vhost, Box::default())..);
            from_here.next().is_some_and(|((first, _), _)| *first == vhost)
        })
    }

    /// As [`Directory::may`].
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
            ReplyCode::ACCESS_REFUSED,
            format!(
                "{} access to {resource} in vhost '{}' refused for user '{user}'",
                access.name(),
                self.vhost_name(vhost)
            ),
        ))
    }

    /// Whether the user may publish to the exchange.
    ///
    /// # Errors
    /// 403 where not.
    pub fn authorize_exchange_write(
        &self,
        user: &str,
        vhost: VhostId,
        exchange: &str,
    ) -> Result<(), Refusal> {
        self.authorize(user, vhost, Access::Write, Resource::Exchange(exchange))
    }

    /// As [`Directory::may_any`].
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

    /// As [`Directory::may_topic`].
    ///
    /// # Errors
    /// 403 where the routing key is not allowed.
    pub fn authorize_topic(
        &self,
        user: &str,
        vhost: VhostId,
        exchange: &str,
        access: Access,
        routing_key: &str,
    ) -> Result<(), Refusal> {
        if self.may_topic(user, vhost, exchange, access, routing_key) {
            return Ok(());
        }
        Err(Refusal::new(
            ReplyCode::ACCESS_REFUSED,
            format!(
                "{} access to topic '{routing_key}' in exchange '{exchange}' in vhost '{}' refused for user '{user}'",
                access.name(),
                self.vhost_name(vhost)
            ),
        ))
    }

    /// Whether a client may make this request: declare, delete, bind or unbind, with all that its
    /// arguments lead to. What only operators ask for is refused.
    ///
    /// # Errors
    /// 403 for the first right that is missing, 404 where the virtual host is gone.
    pub fn authorize_request(&self, user: &str, request: &Request) -> Result<(), Refusal> {
        match request {
            Request::DeclareExchange { vhost, name, arguments, .. } => {
                self.authorize_exchange(user, vhost, name, arguments)
            }
            Request::DeleteExchange { vhost, name, .. } => {
                let vhost = self.resolve(vhost)?.id;
                let name = clean_name(name);
                super::declaration::check_not_default(&name)?;
                self.authorize(user, vhost, Access::Configure, Resource::Exchange(&name))
            }
            Request::DeclareQueue { vhost, name, arguments, .. } => {
                self.authorize_queue(user, vhost, name, arguments)
            }
            Request::DeleteQueue { id } => match self.queue_by_id(*id) {
                Some(info) => {
                    let resource = Resource::Queue(info.name());
                    self.authorize(user, info.vhost, Access::Configure, resource)
                }
                None => Ok(()),
            },
            Request::Bind { vhost, source, destination, routing_key, .. }
            | Request::Unbind { vhost, source, destination, routing_key, .. } => {
                self.authorize_binding(user, vhost, source, destination, routing_key)
            }
            _ => Err(Refusal::new(
                ReplyCode::ACCESS_REFUSED,
                format!("user '{user}' is no operator here"),
            )),
        }
    }

    fn authorize_exchange(
        &self,
        user: &str,
        vhost: &VhostRef,
        name: &str,
        arguments: &Table,
    ) -> Result<(), Refusal> {
        let vhost = self.resolve(vhost)?.id;
        let name = clean_name(name);
        super::declaration::check_not_default(&name)?;
        self.authorize(user, vhost, Access::Configure, Resource::Exchange(&name))?;
        let alternate = arguments.get(ALTERNATE_EXCHANGE).and_then(Value::as_text);
        if let Some(alternate) = alternate
            && self.exchange(vhost, &name).is_none()
        {
            self.authorize(user, vhost, Access::Read, Resource::Exchange(&name))?;
            self.authorize(user, vhost, Access::Write, Resource::Exchange(alternate))?;
        }
        Ok(())
    }

    fn authorize_queue(
        &self,
        user: &str,
        vhost: &VhostRef,
        name: &str,
        arguments: &Table,
    ) -> Result<(), Refusal> {
        let vhost = self.resolve(vhost)?.id;
        let name = clean_name(name);
        self.authorize(user, vhost, Access::Configure, Resource::Queue(&name))?;
        let dead_letters = arguments.get("x-dead-letter-exchange");
        if let Some(exchange) = dead_letters.and_then(Value::as_text)
            && self.queue(vhost, &name).is_none()
        {
            self.authorize(user, vhost, Access::Read, Resource::Queue(&name))?;
            self.authorize(user, vhost, Access::Write, Resource::Exchange(exchange))?;
        }
        Ok(())
    }

    fn authorize_binding(
        &self,
        user: &str,
        vhost: &VhostRef,
        source: &str,
        destination: &Destination,
        routing_key: &str,
    ) -> Result<(), Refusal> {
        let vhost = self.resolve(vhost)?.id;
        let source = clean_name(source);
        super::declaration::check_not_default(&source)?;
        let (Destination::Queue(name) | Destination::Exchange(name)) = destination;
        let name = clean_name(name);
        let resource = match destination {
            Destination::Queue(_) => Resource::Queue(&name),
            Destination::Exchange(_) => Resource::Exchange(&name),
        };
        if let Resource::Exchange(name) = resource {
            super::declaration::check_not_default(name)?;
        }
        self.authorize(user, vhost, Access::Write, resource)?;
        self.authorize(user, vhost, Access::Read, Resource::Exchange(&source))?;
        self.authorize_topic(user, vhost, &source, Access::Read, routing_key)
    }
}
