//! What is allowed: from a request to the change that fulfils it.

mod binding;
mod declaration;

use crate::accounts::Accounts;
use crate::change::{Change, Checked};
use crate::exchange::{ExchangeInfo, Wanted};
use crate::queue_info::QueueInfo;
use crate::request::{Request, clean_name};
use crate::topology::Topology;
use alloc::format;
use declaration::WantedQueue;
use lepus_base::{ConnectionId, VhostId};
use lepus_queue::refusal::{Refusal, RefusalKind};

/// A look at what is there, to say what may come.
#[derive(Clone, Copy)]
pub(crate) struct Check<'a> {
    accounts: &'a Accounts,
    topology: &'a Topology,
}

impl<'a> Check<'a> {
    pub(crate) fn new(accounts: &'a Accounts, topology: &'a Topology) -> Check<'a> {
        Check { accounts, topology }
    }

    /// Which change fulfils a request.
    ///
    /// # Errors
    /// The reply code and text for the client.
    pub(crate) fn request(&self, request: &Request) -> Result<Checked, Refusal> {
        match request {
            Request::DeclareExchange {
                vhost,
                name,
                kind,
                durable,
                auto_delete,
                internal,
                arguments,
            } => {
                let wanted = Wanted {
                    name: &clean_name(name),
                    kind,
                    durable: *durable,
                    auto_delete: *auto_delete,
                    internal: *internal,
                    arguments,
                };
                self.declare_exchange(self.accounts.resolve(vhost)?, wanted)
            }
            Request::DeleteExchange { vhost, name, if_unused } => {
                self.delete_exchange(self.accounts.resolve(vhost)?, &clean_name(name), *if_unused)
            }
            Request::DeclareQueue {
                vhost,
                name,
                server_named,
                durable,
                exclusive,
                auto_delete,
                arguments,
                declared_on,
                user,
            } => {
                let wanted = WantedQueue {
                    name: &clean_name(name),
                    server_named: *server_named,
                    durable: *durable,
                    exclusive: *exclusive,
                    auto_delete: *auto_delete,
                    arguments,
                    declared_on: *declared_on,
                    user,
                };
                self.declare_queue(self.accounts.resolve(vhost)?, wanted)
            }
            Request::DeleteQueue { id } => {
                let queues = self.topology.queues();
                let id = queues.id_now(*id);
                Ok(match queues.by_id(id) {
                    Some(_) => Checked::Change(Change::QueueDeleted { id }),
                    None => Checked::Already(None),
                })
            }
            Request::MoveQueue { id, to } => self.move_queue(*id, *to),
            Request::UseIds { below } if *below <= self.topology.queues().next_id().0 => {
                Ok(Checked::Already(None))
            }
            Request::UseIds { below } => {
                Ok(Checked::Change(Change::IdsUsed { vhosts: 0, queues: *below }))
            }
            Request::Bind { .. } | Request::Unbind { .. } => self.binding(request),
            _ => self.accounts.check(request),
        }
    }

    /// The queue that a connection names.
    ///
    /// # Errors
    /// 404 where there is none, 405 where another connection holds it exclusively.
    pub(crate) fn find_queue(
        self,
        vhost: VhostId,
        name: &str,
        connection: ConnectionId,
    ) -> Result<&'a QueueInfo, Refusal> {
        let Some(info) = self.topology.queues().find(vhost, name) else {
            return Err(self.no_queue(vhost, name));
        };
        if info.exclusive().is_some_and(|owner| owner != connection) {
            return Err(locked(self.accounts.vhost_name(info.vhost), info));
        }
        Ok(info)
    }

    /// The exchange that a client names.
    ///
    /// # Errors
    /// 404 where there is none.
    pub(crate) fn find_exchange(
        self,
        vhost: VhostId,
        name: &str,
    ) -> Result<&'a ExchangeInfo, Refusal> {
        self.topology.exchange(vhost, name).ok_or_else(|| self.no_exchange(vhost, name))
    }

    fn no_queue(self, vhost: VhostId, name: &str) -> Refusal {
        let vhost = self.accounts.vhost_name(vhost);
        let text = format!("no queue '{name}' in vhost '{vhost}'");
        Refusal::new(RefusalKind::NotFound, text)
    }

    /// What a client is told that names an exchange which is not there.
    pub(crate) fn no_exchange(self, vhost: VhostId, name: &str) -> Refusal {
        let vhost = self.accounts.vhost_name(vhost);
        let text = format!("no exchange '{name}' in vhost '{vhost}'");
        Refusal::new(RefusalKind::NotFound, text)
    }
}

/// The default exchange cannot be touched.
///
/// # Errors
/// 403 where it is meant.
pub fn check_not_default(exchange: &str) -> Result<(), Refusal> {
    if exchange.is_empty() {
        let text = "operation not permitted on the default exchange";
        return Err(Refusal::new(RefusalKind::AccessRefused, text));
    }
    Ok(())
}

fn locked(vhost: &str, queue: &QueueInfo) -> Refusal {
    let text = format!(
        "cannot obtain exclusive access to locked queue '{}' in vhost '{vhost}'. It could be \
         originally declared on another connection or the exclusive property value does not \
         match that of the original declaration.",
        queue.name()
    );
    Refusal::new(RefusalKind::Locked, text)
}
