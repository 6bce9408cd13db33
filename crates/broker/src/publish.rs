//! What is known of a publish on its way from its client to its queues, and how far it came.

mod checked;

use alloc::format;

pub(crate) use checked::{Checked, LOOKED_AT, delay_of, parse_expiration, plain_priority};

use alloc::vec::Vec;
use lepus_base::Position;

use crate::channel::Target;
use crate::directory::Routes;
use crate::message::{Layout, MessageView};
use crate::router::Route;
use crate::session::Publish;

use crate::directory::too_far;
use crate::mail::Receipt;
use crate::queue::Ticket;
use crate::refusal::{Refusal, RefusalKind};

/// What became of a message on its way to its queues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routed {
    /// Queues on other shards, each of which reports.
    pub remote: u32,
    /// Logs of this shard, each of which reports when the message is durable.
    pub logs: u32,
    /// What became of it in queues here.
    pub receipt: Receipt,
}

/// How far a publish is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Served {
    /// Its queues have it, or mail with it is on its way to them.
    Now,
    /// It is a job now.
    Later,
    /// No log ever has room for so many bytes.
    Never(usize),
    /// Its exchange is to hold it back, and no log ever has room for so many bytes beside that.
    NeverReleased(usize),
    /// Routing it takes more than so many steps.
    TooFar(u32),
}

impl Served {
    /// Whether it is published.
    #[inline]
    pub(crate) fn is_taken(self) -> bool {
        matches!(self, Served::Now | Served::Later)
    }

    /// What to tell who published it to `exchange`.
    ///
    /// # Errors
    /// Why it will never be in its queues.
    pub(crate) fn check(self, exchange: &str) -> Result<(), Refusal> {
        match self {
            Served::Now | Served::Later => Ok(()),
            Served::Never(bytes) => {
                let text = format!("message of {bytes} bytes is larger than what may be stored");
                Err(Refusal::new(RefusalKind::PreconditionFailed, text))
            }
            Served::NeverReleased(bytes) => {
                let text = format!(
                    "message of {bytes} bytes is larger than what may be stored while its exchange \
                     holds it back"
                );
                Err(Refusal::new(RefusalKind::PreconditionFailed, text))
            }
            Served::TooFar(steps_max) => Err(too_far(exchange, steps_max)),
        }
    }
}

/// A queue that wants the message once it is logged.
#[derive(Debug)]
pub(crate) struct Put {
    /// The queue's slot.
    pub slot: u32,
    /// The place of its log.
    pub log: u16,
    /// What the queue promised.
    pub ticket: Ticket,
    /// Where the log has it.
    pub place: lepus_store::Place,
    /// Its position in the log, if it is logged.
    pub position: Option<Position>,
}

/// Adds the queues at the ends of `routes` to the `targets`.
#[inline]
pub(crate) fn resolve(routes: &Routes, targets: &mut Vec<Target>) {
    targets.extend(routes.as_slice().iter().map(target_of));
}

pub(crate) fn target_of(route: &Route) -> Target {
    Target { queue: route.queue, home: route.home, slot: route.slot }
}

/// The view of a publish with possibly rewritten properties.
pub(crate) fn view_of<'a>(publish: &Publish<'a>, properties: &'a [u8]) -> MessageView<'a> {
    let layout = match publish.packed {
        Some(packed) if core::ptr::eq(properties, publish.properties) => {
            Layout::Packed(packed.bytes, packed.start)
        }
        _ => Layout::Parts,
    };
    MessageView {
        exchange: publish.exchange.as_bytes(),
        routing_key: publish.routing_key.as_bytes(),
        properties,
        body: publish.body,
        layout,
    }
}
