//! Declaring and deleting exchanges and queues: what is allowed.

use super::{Check, check_not_default, locked};
use crate::change::{Change, Checked};
use crate::exchange::{DELAYED_TYPE, ExchangeInfo, ExchangeKind, Wanted};
use crate::queue_info::{Declared, QueueInfo};
use crate::vhost::VhostInfo;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use lepus_amqp::table::Table;
use lepus_base::{ConnectionId, QueueId, ShardId};
use lepus_queue::refusal::{Refusal, RefusalKind};
use lepus_queue::{QueueKind, QueueSettings};

/// Names travel as short strings.
const NAME_BYTES_MAX: usize = 255;

/// The wanted attributes of a queue, borrowed from a request.
#[derive(Clone, Copy)]
pub(super) struct WantedQueue<'a> {
    pub(super) name: &'a str,
    pub(super) server_named: bool,
    pub(super) durable: bool,
    pub(super) exclusive: Option<ConnectionId>,
    pub(super) auto_delete: bool,
    pub(super) arguments: &'a Table,
    pub(super) declared_on: ShardId,
    pub(super) user: &'a str,
}

impl Check<'_> {
    pub(super) fn move_queue(&self, id: QueueId, to: ShardId) -> Result<Checked, Refusal> {
        let Some(info) = self.topology.queues().by_id(id) else {
            return Err(Refusal::new(RefusalKind::NotFound, "the queue is gone"));
        };
        if info.exclusive().is_some() || to.index() >= self.topology.queues().shards() {
            return Err(Refusal::new(RefusalKind::PreconditionFailed, "the queue cannot go there"));
        }
        if info.home == to {
            return Ok(Checked::Already(Some(id)));
        }
        let new_id = self.topology.queues().next_id();
        Ok(Checked::Change(Change::QueueMoved { id, new_id, log: to.0 }))
    }

    pub(super) fn declare_exchange(
        &self,
        vhost: &VhostInfo,
        wanted: Wanted<'_>,
    ) -> Result<Checked, Refusal> {
        let name = wanted.name;
        let info = ExchangeInfo::parse(wanted, vhost.id, &vhost.name);
        // The type has to be known even where the exchange exists.
        if let Err(refusal) = &info
            && !is_known_type(wanted.kind)
        {
            return Err(refusal.clone());
        }
        check_not_default(name)?;
        if let Some(current) = self.topology.exchange(vhost.id, name) {
            return match current.difference(&wanted) {
                None => Ok(Checked::Already(None)),
                Some(difference) => Err(Refusal::new(
                    RefusalKind::PreconditionFailed,
                    format!(
                        "inequivalent arg '{}' for exchange '{name}' in vhost '{}': received {} but current is {}",
                        difference.name, vhost.name, difference.received, difference.current
                    ),
                )),
            };
        }
        check_new_name("exchange", name)?;
        let mut info = info?;
        info.holding = info.delayed.then_some(self.topology.queues().next_id());
        Ok(Checked::Change(Change::ExchangeDeclared(Box::new(info))))
    }

    pub(super) fn delete_exchange(
        &self,
        vhost: &VhostInfo,
        name: &str,
        if_unused: bool,
    ) -> Result<Checked, Refusal> {
        check_not_default(name)?;
        if name.starts_with("amq.") {
            let text = format!(
                "deletion of system exchange '{name}' in vhost '{}' not allowed",
                vhost.name
            );
            return Err(Refusal::new(RefusalKind::AccessRefused, text));
        }
        let Some(bindings) = self.topology.bindings_of(vhost.id, name) else {
            return Ok(Checked::Already(None));
        };
        if if_unused && bindings > 0 {
            let text = format!("exchange '{name}' in vhost '{}' in use", vhost.name);
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        Ok(Checked::Change(Change::ExchangeDeleted { vhost: vhost.id, name: name.into() }))
    }

    pub(super) fn declare_queue(
        &self,
        vhost: &VhostInfo,
        wanted: WantedQueue<'_>,
    ) -> Result<Checked, Refusal> {
        // An exclusive queue goes with its connection, so it never survives a restart.
        let durable = wanted.durable && wanted.exclusive.is_none();
        if let Some(current) = self.topology.queues().find(vhost.id, wanted.name) {
            self.check_equivalent(vhost, current, durable, &wanted)?;
            return Ok(Checked::Already(Some(current.id)));
        }
        if !wanted.server_named {
            check_new_name("queue", wanted.name)?;
        }
        if wanted.name.is_empty() || wanted.name.len() > NAME_BYTES_MAX {
            return Err(Refusal::new(
                RefusalKind::PreconditionFailed,
                format!("queue name has to have 1 to {NAME_BYTES_MAX} bytes"),
            ));
        }
        let limit = vhost.limits.queues();
        if let Some(limit) = limit.filter(|limit| self.topology.queues().count(vhost.id) >= *limit)
        {
            let text = format!(
                "cannot declare queue '{}' in vhost '{}': queue limit in vhost '{}' ({limit}) is reached",
                wanted.name, vhost.name, vhost.name
            );
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        let info = self.new_queue(vhost, durable, &wanted)?;
        Ok(Checked::Change(Change::QueueDeclared(Arc::new(info))))
    }

    /// Whether a redeclaration asks for the queue that exists.
    fn check_equivalent(
        &self,
        vhost: &VhostInfo,
        current: &QueueInfo,
        durable: bool,
        wanted: &WantedQueue<'_>,
    ) -> Result<(), Refusal> {
        if current.exclusive() != wanted.exclusive {
            return Err(locked(&vhost.name, current));
        }
        let flags = [
            ("durable", durable, current.durable),
            ("auto_delete", wanted.auto_delete, current.auto_delete),
        ];
        for (name, received, current) in flags {
            if received != current {
                let text = format!(
                    "inequivalent arg '{name}' for queue '{}' in vhost '{}': received '{received}' but current is '{current}'",
                    wanted.name, vhost.name
                );
                return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
            }
        }
        // Without a type the queue that is there will do.
        let difference = QueueSettings::inequivalent(
            &current.arguments().to_owned(),
            wanted.arguments,
            current.kind,
            wanted.name,
            &vhost.name,
        );
        difference.map_or(Ok(()), Err)
    }

    fn new_queue(
        &self,
        vhost: &VhostInfo,
        durable: bool,
        wanted: &WantedQueue<'_>,
    ) -> Result<QueueInfo, Refusal> {
        let WantedQueue { name, auto_delete, .. } = *wanted;
        let exclusive = wanted.exclusive.is_some();
        let mut arguments = wanted.arguments.clone();
        let default = vhost.metadata.default_queue_type;
        if arguments.get("x-queue-type").is_none()
            && let Some(kind) = default
            && kind
                .check_properties(wanted.durable, exclusive, auto_delete, name, &vhost.name)
                .is_ok()
        {
            arguments.insert("x-queue-type", kind.name());
        }
        let kind = QueueKind::of(&arguments, QueueKind::Classic, name, &vhost.name)?;
        kind.check_properties(wanted.durable, exclusive, auto_delete, name, &vhost.name)?;
        QueueSettings::check(&arguments, kind, name, &vhost.name)?;
        let settings = QueueSettings::parse(&arguments, kind, name, &vhost.name)?;
        let queues = self.topology.queues();
        let home = queues.home_for(wanted.declared_on, exclusive || wanted.server_named);
        Ok(QueueInfo::new(Declared {
            id: queues.next_id(),
            vhost: vhost.id,
            name,
            home,
            log: home.0,
            durable,
            auto_delete,
            exclusive: wanted.exclusive,
            server_named: wanted.server_named,
            kind,
            arguments: &arguments,
            settings,
            user: wanted.user,
        }))
    }
}

fn is_known_type(kind: &str) -> bool {
    kind == DELAYED_TYPE || ExchangeKind::from_name(kind).is_some()
}

/// Names that begin with `amq.` are the broker's; names are short strings.
fn check_new_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.starts_with("amq.") {
        let text = format!("{what} name '{name}' contains reserved prefix 'amq.*'");
        return Err(Refusal::new(RefusalKind::AccessRefused, text));
    }
    if name.len() > NAME_BYTES_MAX {
        let text = format!("{what} name is longer than {NAME_BYTES_MAX} bytes");
        return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
    }
    Ok(())
}
