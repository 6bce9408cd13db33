//! Declaring and deleting exchanges and queues: what is allowed.

use super::change::{Change, Checked};
use super::request::{Request, clean_name};
use super::{Directory, HOME_IMBALANCE_MAX};
use crate::exchange::{ExchangeInfo, Wanted};
use crate::vhost::VhostInfo;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::table::Table;
use lepus_base::{ConnectionId, QueueId, ShardId};
use lepus_queue::refusal::Refusal;
use lepus_queue::{QueueKind, QueueSettings};

use super::{Declared, QueueInfo};

/// Names travel as short strings.
const NAME_BYTES_MAX: usize = 255;

/// The wanted attributes of a queue, borrowed from a request.
#[derive(Clone, Copy)]
struct WantedQueue<'a> {
    name: &'a str,
    server_named: bool,
    durable: bool,
    exclusive: Option<ConnectionId>,
    auto_delete: bool,
    arguments: &'a Table,
    declared_on: ShardId,
    user: &'a str,
}

impl Directory {
    /// Whether a request can be fulfilled, and which change does it. Only the shard that orders
    /// the changes may act on a change; it applies it before it checks the next request.
    ///
    /// # Errors
    /// The reply code and text for the client.
    pub fn check(&self, request: &Request) -> Result<Checked, Refusal> {
        let checked = self.check_rules(request)?;
        if let Checked::Change(change) = &checked {
            self.check_capacity(change)?;
        }
        Ok(checked)
    }

    fn check_rules(&self, request: &Request) -> Result<Checked, Refusal> {
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
                self.check_declare_exchange(self.resolve(vhost)?, wanted)
            }
            Request::DeleteExchange { vhost, name, if_unused } => {
                self.check_delete_exchange(self.resolve(vhost)?, &clean_name(name), *if_unused)
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
                self.check_declare_queue(self.resolve(vhost)?, wanted)
            }
            Request::DeleteQueue { id } => {
                let id = self.id_now(*id);
                Ok(match self.queue_by_id(id) {
                    Some(_) => Checked::Change(Change::QueueDeleted { id }),
                    None => Checked::Already(None),
                })
            }
            Request::MoveQueue { id, to } => self.check_move_queue(*id, *to),
            Request::UseIds { below } if *below <= self.next_queue => Ok(Checked::Already(None)),
            Request::UseIds { below } => {
                Ok(Checked::Change(Change::IdsUsed { vhosts: 0, queues: *below }))
            }
            Request::Bind { .. } | Request::Unbind { .. } => self.check_binding(request),
            _ => self.check_account(request),
        }
    }

    fn check_move_queue(&self, id: QueueId, to: ShardId) -> Result<Checked, Refusal> {
        let Some(info) = self.queue_by_id(id) else {
            return Err(Refusal::new(ReplyCode::NOT_FOUND, "the queue is gone"));
        };
        if info.exclusive().is_some() || to.index() >= self.held.len() {
            return Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, "the queue cannot go there"));
        }
        if info.home == to {
            return Ok(Checked::Already(Some(id)));
        }
        let new_id = QueueId(self.next_queue);
        Ok(Checked::Change(Change::QueueMoved { id, new_id, log: to.0 }))
    }

    fn check_declare_exchange(
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
        if let Some(current) = self.exchange(vhost.id, name) {
            return match current.difference(&wanted) {
                None => Ok(Checked::Already(None)),
                Some(difference) => Err(Refusal::new(
                    ReplyCode::PRECONDITION_FAILED,
                    format!(
                        "inequivalent arg '{}' for exchange '{name}' in vhost '{}': received {} but current is {}",
                        difference.name, vhost.name, difference.received, difference.current
                    ),
                )),
            };
        }
        check_new_name("exchange", name)?;
        let mut info = info?;
        info.holding = info.delayed.then_some(QueueId(self.next_queue));
        Ok(Checked::Change(Change::ExchangeDeclared(Box::new(info))))
    }

    fn check_delete_exchange(
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
            return Err(Refusal::new(ReplyCode::ACCESS_REFUSED, text));
        }
        let Some(place) = self.exchange_place(vhost.id, name) else {
            return Ok(Checked::Already(None));
        };
        if if_unused && self.exchanges[place as usize].bindings > 0 {
            let text = format!("exchange '{name}' in vhost '{}' in use", vhost.name);
            return Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text));
        }
        Ok(Checked::Change(Change::ExchangeDeleted { vhost: vhost.id, name: name.into() }))
    }

    fn check_declare_queue(
        &self,
        vhost: &VhostInfo,
        wanted: WantedQueue<'_>,
    ) -> Result<Checked, Refusal> {
        // An exclusive queue goes with its connection, so it never survives a restart.
        let durable = wanted.durable && wanted.exclusive.is_none();
        if let Some(current) = self.queue(vhost.id, wanted.name) {
            self.check_equivalent(vhost, current, durable, &wanted)?;
            return Ok(Checked::Already(Some(current.id)));
        }
        if !wanted.server_named {
            check_new_name("queue", wanted.name)?;
        }
        if wanted.name.is_empty() || wanted.name.len() > NAME_BYTES_MAX {
            return Err(Refusal::new(
                ReplyCode::PRECONDITION_FAILED,
                format!("queue name has to have 1 to {NAME_BYTES_MAX} bytes"),
            ));
        }
        let limit = vhost.limits.queues_max;
        if let Some(limit) = limit.filter(|limit| self.queue_count(vhost.id) >= *limit) {
            let text = format!(
                "cannot declare queue '{}' in vhost '{}': queue limit in vhost '{}' ({limit}) is reached",
                wanted.name, vhost.name, vhost.name
            );
            return Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text));
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
            return Err(self.locked(current));
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
                return Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text));
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
        let home = self.home_for(wanted.declared_on, exclusive || wanted.server_named);
        Ok(QueueInfo::new(Declared {
            id: QueueId(self.next_queue),
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

    /// Where a new queue lives: where it is declared, unless that shard holds many more than
    /// another. One that only its declarer knows, because it is exclusive or the broker made up its
    /// name, stays with it.
    fn home_for(&self, declared_on: ShardId, is_personal: bool) -> ShardId {
        let wished = match self.held.get(declared_on.index()) {
            Some(_) => declared_on,
            None => ShardId(0),
        };
        let fewest = self.held.iter().enumerate().min_by_key(|(_, held)| **held);
        match fewest {
            Some((shard, fewest))
                if !is_personal && self.held[wished.index()] > fewest + HOME_IMBALANCE_MAX =>
            {
                ShardId(shard as u16)
            }
            _ => wished,
        }
    }
}

fn is_known_type(kind: &str) -> bool {
    kind == crate::exchange::DELAYED_TYPE || super::ExchangeKind::from_name(kind).is_some()
}

/// The default exchange cannot be touched.
///
/// # Errors
/// 403 where it is meant.
pub fn check_not_default(exchange: &str) -> Result<(), Refusal> {
    if exchange.is_empty() {
        let text = "operation not permitted on the default exchange";
        return Err(Refusal::new(ReplyCode::ACCESS_REFUSED, text));
    }
    Ok(())
}

/// Names that begin with `amq.` are the broker's; names are short strings.
fn check_new_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.starts_with("amq.") {
        let text = format!("{what} name '{name}' contains reserved prefix 'amq.*'");
        return Err(Refusal::new(ReplyCode::ACCESS_REFUSED, text));
    }
    if name.len() > NAME_BYTES_MAX {
        let text = format!("{what} name is longer than {NAME_BYTES_MAX} bytes");
        return Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text));
    }
    Ok(())
}
