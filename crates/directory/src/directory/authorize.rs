//! What a user may do where exchanges and queues have a say in it.

use super::Directory;
use crate::binding::Destination;
use crate::check::check_not_default;
use crate::exchange::{ALTERNATE_EXCHANGE, ExchangeKind};
use crate::permission::{Access, Resource};
use crate::request::{Request, VhostRef, clean_name};
use alloc::format;
use lepus_amqp::table::{Table, Value};
use lepus_base::VhostId;
use lepus_queue::refusal::{Refusal, RefusalKind};

impl Directory {
    pub(super) fn may_topic(
        &self,
        user: &str,
        vhost: VhostId,
        exchange: &str,
        access: Access,
        routing_key: &str,
    ) -> bool {
        if !self.accounts.has_topic_rules(user, vhost) {
            return true;
        }
        let is_topic =
            self.exchange(vhost, exchange).is_some_and(|info| info.kind == ExchangeKind::Topic);
        let Some(user) = self.accounts.user(user).filter(|_| is_topic) else {
            return true;
        };
        user.topic_permission(vhost, exchange)
            .is_none_or(|permission| permission.allows(access, routing_key))
    }

    /// Whether the user may publish or bind with the routing key. Restrictions exist for topic
    /// exchanges only, and only where an operator set some.
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
            RefusalKind::AccessRefused,
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
                let vhost = self.accounts.resolve(vhost)?.id;
                let name = clean_name(name);
                check_not_default(&name)?;
                self.accounts.authorize(user, vhost, Access::Configure, Resource::Exchange(&name))
            }
            Request::DeclareQueue { vhost, name, arguments, .. } => {
                self.authorize_queue(user, vhost, name, arguments)
            }
            Request::DeleteQueue { id } => match self.queue_by_id(*id) {
                Some(info) => {
                    let resource = Resource::Queue(info.name());
                    self.accounts.authorize(user, info.vhost, Access::Configure, resource)
                }
                None => Ok(()),
            },
            Request::Bind { vhost, source, destination, routing_key, .. }
            | Request::Unbind { vhost, source, destination, routing_key, .. } => {
                self.authorize_binding(user, vhost, source, destination, routing_key)
            }
            _ => Err(Refusal::new(
                RefusalKind::AccessRefused,
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
        let vhost = self.accounts.resolve(vhost)?.id;
        let name = clean_name(name);
        check_not_default(&name)?;
        self.accounts.authorize(user, vhost, Access::Configure, Resource::Exchange(&name))?;
        let alternate = arguments.get(ALTERNATE_EXCHANGE).and_then(Value::as_text);
        if let Some(alternate) = alternate
            && self.exchange(vhost, &name).is_none()
        {
            self.accounts.authorize(user, vhost, Access::Read, Resource::Exchange(&name))?;
            self.accounts.authorize(user, vhost, Access::Write, Resource::Exchange(alternate))?;
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
        let vhost = self.accounts.resolve(vhost)?.id;
        let name = clean_name(name);
        self.accounts.authorize(user, vhost, Access::Configure, Resource::Queue(&name))?;
        let dead_letters = arguments.get("x-dead-letter-exchange");
        if let Some(exchange) = dead_letters.and_then(Value::as_text)
            && self.queue(vhost, &name).is_none()
        {
            self.accounts.authorize(user, vhost, Access::Read, Resource::Queue(&name))?;
            self.accounts.authorize(user, vhost, Access::Write, Resource::Exchange(exchange))?;
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
        let vhost = self.accounts.resolve(vhost)?.id;
        let source = clean_name(source);
        check_not_default(&source)?;
        let (Destination::Queue(name) | Destination::Exchange(name)) = destination;
        let name = clean_name(name);
        let resource = match destination {
            Destination::Queue(_) => Resource::Queue(&name),
            Destination::Exchange(_) => Resource::Exchange(&name),
        };
        if let Resource::Exchange(name) = resource {
            check_not_default(name)?;
        }
        self.accounts.authorize(user, vhost, Access::Write, resource)?;
        self.accounts.authorize(user, vhost, Access::Read, Resource::Exchange(&source))?;
        self.authorize_topic(user, vhost, &source, Access::Read, routing_key)
    }
}
