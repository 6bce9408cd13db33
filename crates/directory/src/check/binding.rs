//! Binding and unbinding: what is allowed.

use super::{Check, check_not_default};
use crate::binding::Destination;
use crate::change::{BindingChange, Change, Checked};
use crate::request::{Request, clean_name};
use crate::router::{self, Prepared};
use alloc::boxed::Box;
use alloc::format;
use lepus_amqp::table::Table;
use lepus_base::{ConnectionId, VhostId};
use lepus_queue::refusal::{Refusal, RefusalKind};

/// The name that stands for a client's own replies; no queue has it.
const REPLY_TO: &str = "amq.rabbitmq.reply-to";
/// Keys travel as short strings.
const ROUTING_KEY_BYTES_MAX: usize = 255;

impl Check<'_> {
    pub(super) fn binding(&self, request: &Request) -> Result<Checked, Refusal> {
        let (Request::Bind { vhost, source, destination, routing_key, arguments, connection }
        | Request::Unbind { vhost, source, destination, routing_key, arguments, connection }) =
            request
        else {
            invariant!("only requests to bind or to unbind are checked as bindings")
        };
        let binds = matches!(request, Request::Bind { .. });
        let vhost = self.accounts.resolve(vhost)?;
        let source = clean_name(source);
        let destination = match destination {
            Destination::Queue(name) => Destination::Queue(clean_name(name).into()),
            Destination::Exchange(name) => Destination::Exchange(clean_name(name).into()),
        };
        check_destination(&destination)?;
        check_not_default(&source)?;
        let topology = self.topology;
        let from = topology.exchange(vhost.id, &source);
        if !binds && (from.is_none() || topology.target(vhost.id, &destination).is_none()) {
            // What does not exist is bound to nothing already.
            return Ok(Checked::Already(None));
        }
        let Some(from) = from else { return Err(self.no_exchange(vhost.id, &source)) };
        self.find_target(vhost.id, &destination, *connection)?;
        let arguments = sorted(arguments).to_bytes();
        if binds && routing_key.len() > ROUTING_KEY_BYTES_MAX {
            let text = format!("routing key is longer than {ROUTING_KEY_BYTES_MAX} bytes");
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        let kind = from.kind;
        let mut change = Box::new(BindingChange {
            vhost: vhost.id,
            source: source.into(),
            destination,
            routing_key: routing_key.as_str().into(),
            arguments,
            filter: Prepared::default(),
        });
        // Before its arguments are read, which may take long.
        if topology.find_binding(&change).is_some() == binds {
            return Ok(Checked::Already(None));
        }
        if binds {
            let BindingChange { routing_key, arguments, .. } = &*change;
            change.filter = router::check_binding(kind, routing_key, arguments.as_ref())?;
        }
        Ok(Checked::Change(if binds { Change::Bound(change) } else { Change::Unbound(change) }))
    }

    fn find_target(
        &self,
        vhost: VhostId,
        destination: &Destination,
        connection: Option<ConnectionId>,
    ) -> Result<(), Refusal> {
        if let Destination::Queue(name) = destination
            && let Some(connection) = connection
        {
            self.find_queue(vhost, name, connection)?;
        }
        match (self.topology.target(vhost, destination), destination) {
            (Some(_), _) => Ok(()),
            (None, Destination::Queue(name)) => Err(self.no_queue(vhost, name)),
            (None, Destination::Exchange(name)) => Err(self.no_exchange(vhost, name)),
        }
    }
}

fn check_destination(destination: &Destination) -> Result<(), Refusal> {
    match destination {
        Destination::Exchange(name) => check_not_default(name),
        Destination::Queue(name) if name.starts_with(REPLY_TO) => Err(Refusal::new(
            RefusalKind::AccessRefused,
            format!("queue name '{name}' contains reserved prefix 'amq.*'"),
        )),
        Destination::Queue(_) => Ok(()),
    }
}

/// The order of arguments does not matter for a binding's identity.
fn sorted(arguments: &Table) -> Table {
    let mut arguments = arguments.clone();
    arguments.0.sort_by(|(one, _), (two, _)| one.cmp(two));
    arguments
}
