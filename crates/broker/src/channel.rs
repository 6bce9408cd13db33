//! One channel of a connection: its consumers, unacknowledged deliveries, confirms, transaction,
//! and the one question it may have pending.

pub mod ages;
pub mod confirm;
pub mod routes;
pub mod settles;
mod subscriptions;
pub mod unacked;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{QueueId, ShardId, VhostId, is_same};

use crate::directory::Request;
use crate::mail::ChannelRef;
use crate::message::{Layout, MessageView};
use crate::message_counts::MessageCounts;
use crate::queue::Outcome;
use crate::session::{Asked, Done};

use ages::Ages;
use confirm::Confirms;
use routes::Routes;
use settles::Settles;
pub use subscriptions::{Late, Subscription, Subscriptions, WaitsFor};
use unacked::{Unacked, UnackedList};

/// Where a routed message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The queue.
    pub queue: QueueId,
    /// Its home.
    pub home: ShardId,
    /// Its place in this shard's table, when this shard is its home.
    pub slot: u32,
}

/// What to do when the answer to the pending question comes.
#[derive(Debug)]
pub enum Pending {
    /// A change of exchanges or bindings.
    Done {
        /// The answer; `None` when none is wanted.
        done: Option<Done>,
        /// What was asked for.
        asked: Asked,
    },
    /// `queue.declare`: the request, to ask again should the queue vanish meanwhile.
    Declare {
        /// The queue's name.
        name: Box<str>,
        /// The request; `None` for a passive declare.
        request: Option<Box<Request>>,
        /// No reply is wanted.
        no_wait: bool,
    },
    /// `queue.purge`.
    Purge {
        /// The queue's name.
        name: Box<str>,
        /// No reply is wanted.
        no_wait: bool,
    },
    /// `queue.delete`.
    Delete {
        /// The queue's name.
        name: Box<str>,
        /// No reply is wanted.
        no_wait: bool,
    },
    /// `basic.consume`: the subscription's number on the channel.
    Consume {
        /// The subscription's number.
        consumer: u32,
        /// The queue's name.
        name: Box<str>,
        /// No reply is wanted.
        no_wait: bool,
    },
    /// `basic.cancel`.
    Cancel {
        /// The subscription's number.
        consumer: u32,
        /// No reply is wanted.
        no_wait: bool,
    },
    /// `basic.get`.
    Get {
        /// The queue's name.
        name: Box<str>,
    },
    /// Requeueing in slices; `waiting` barriers are still to be passed.
    Requeue {
        /// Barriers still to be passed.
        waiting: u32,
        /// What comes then.
        then: AfterRequeue,
    },
    /// `tx.commit` is being served.
    Commit,
    /// `tx.commit` is served, and waits until every queue has its messages.
    Committed,
    /// A publish is served in slices, or waits for room in a log.
    Route,
    /// Cancels all consumers before the channel ends.
    End {
        /// Cancellations still to be answered.
        waiting: u32,
    },
}

/// What follows when a channel's deliveries have been requeued, or settled otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRequeue {
    /// Nothing more is said.
    Silence,
    /// `tx.rollback-ok`.
    RolledBack,
    /// The channel has ended.
    End,
}

/// Why a channel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client asked: `channel.close-ok` follows.
    ByClient,
    /// The broker sent `channel.close`; the client's `close-ok` frees the number.
    ByBroker,
    /// Its connection ends.
    ByConnection,
}

/// Bytes that a held publish takes beside its content, about.
const HELD_BYTES: usize = 128;

/// A publish held back by a transaction.
#[derive(Debug)]
pub struct HeldPublish {
    /// Exchange name.
    pub exchange: Box<str>,
    /// Routing key.
    pub routing_key: Box<str>,
    /// Whether an unroutable message returns.
    pub mandatory: bool,
    /// Routing keys of its `CC` and `BCC` headers.
    pub extra_keys: Vec<String>,
    /// Raw properties.
    pub properties: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

impl HeldPublish {
    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let keys = self.extra_keys.iter().map(|key| size_of::<String>() + key.capacity());
        let names = self.exchange.len() + self.routing_key.len();
        self.body.len() + self.properties.len() + names + keys.sum::<usize>() + HELD_BYTES
    }

    /// The message.
    #[must_use]
    pub fn view(&self) -> MessageView<'_> {
        MessageView {
            exchange: self.exchange.as_bytes(),
            routing_key: self.routing_key.as_bytes(),
            properties: &self.properties,
            body: &self.body,
            layout: Layout::Parts,
        }
    }

    /// Whether it names the same exchange and key as another one, and no further keys.
    #[must_use]
    pub fn goes_with(&self, other: &HeldPublish) -> bool {
        is_same(&*self.exchange, &*other.exchange)
            && is_same(&*self.routing_key, &*other.routing_key)
            && self.extra_keys.is_empty()
    }
}

/// An open transaction.
#[derive(Debug, Default)]
pub struct Tx {
    /// Publishes in order.
    pub publishes: Vec<HeldPublish>,
    /// Whether one of them is persistent.
    pub is_persistent: bool,
    /// Settlements in order.
    pub settles: Settles,
    /// Bytes held, against the limit.
    pub bytes: usize,
}

impl Tx {
    /// Holds a publish.
    pub(crate) fn publish(&mut self, held: HeldPublish, persistent: bool) {
        self.bytes += held.memory_bytes();
        self.is_persistent |= persistent;
        self.publishes.push(held);
    }

    /// Holds a settlement.
    pub(crate) fn settle(&mut self, unacked: Unacked, outcome: Outcome) {
        self.settles.push(unacked, outcome);
        self.bytes += size_of::<Unacked>();
    }

    /// Memory of its publishes, in bytes.
    pub(crate) fn publishes_bytes(&self) -> usize {
        self.bytes - self.settles.len() * size_of::<Unacked>()
    }
}

/// Channel-wide prefetch (`basic.qos` with `global`).
#[derive(Debug, Default)]
pub struct GlobalPrefetch {
    /// The limit; 0 lifts it.
    pub limit: u32,
    /// Deliveries to consumers that wait for an acknowledgement.
    pub in_flight: u32,
    /// Credits granted to homes on other shards and not used yet.
    pub granted: u32,
}

impl GlobalPrefetch {
    /// Whether one more delivery may be made.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.limit == 0 || self.in_flight + self.granted < self.limit
    }
}

/// One channel.
#[derive(Debug)]
pub struct Channel {
    /// Incarnation in the upper 48 bits, number in the lower 16.
    pub key: u64,
    /// Set when the channel ends; no method is taken any more.
    pub ending: Option<Ending>,
    /// The last delivery tag given.
    pub last_tag: u64,
    /// `basic.qos` without `global`: holds for consumers that come.
    pub prefetch: u32,
    /// `basic.qos` with `global`.
    pub global: Option<Box<GlobalPrefetch>>,
    /// Deliveries that wait.
    pub unacked: UnackedList,
    /// How long they wait.
    pub ages: Ages,
    /// Publisher confirms, once selected.
    pub confirms: Option<Box<Confirms>>,
    /// Counts publishes of a transaction that is being committed.
    pub committing: Option<Box<Confirms>>,
    /// The open transaction, once selected.
    pub tx: Option<Box<Tx>>,
    /// The queue that an empty name means.
    pub last_queue: Option<Box<str>>,
    /// Where its last publishes went.
    pub routes: Option<Box<Routes>>,
    /// Consumers.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The consumer tag of the direct reply-to consumer.
    pub reply_consumer: Option<Box<str>>,
    /// The question that waits for an answer from elsewhere.
    pub pending: Option<Box<Pending>>,
    /// What was said while a question was pending, see [`crate::parked`].
    pub parked: Vec<u8>,
    /// Whether the channel is on the list of channels whose parked frames can be handled.
    pub unparking: bool,
    /// Whether what it published waits for room in a log.
    pub publishes_wait: bool,
    /// What its connection's sum has of it, in bytes.
    pub counted_bytes: usize,
    /// Messages since it was opened.
    pub counts: MessageCounts,
}

impl Channel {
    /// A channel that has just been opened.
    #[must_use]
    pub fn new(key: u64) -> Channel {
        Channel {
            key,
            ending: None,
            last_tag: 0,
            prefetch: 0,
            global: None,
            unacked: UnackedList::default(),
            ages: Ages::default(),
            confirms: None,
            committing: None,
            tx: None,
            last_queue: None,
            routes: None,
            subscriptions: None,
            reply_consumer: None,
            pending: None,
            parked: Vec::new(),
            unparking: false,
            publishes_wait: false,
            counted_bytes: 0,
            counts: MessageCounts::default(),
        }
    }

    /// Allocated bytes, this value included, but for parked frames and what a transaction holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Channel>()
            // Its place in the list of channels with consumers that wait.
            + size_of::<u64>()
            + self.unacked.memory_bytes()
            + self.subscriptions.as_ref().map_or(0, |all| all.memory_bytes())
            + self.routes.as_ref().map_or(0, |routes| routes.memory_bytes())
            + self.confirms.as_ref().map_or(0, |confirms| confirms.memory_bytes())
    }

    /// The channel's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.key as u16
    }

    /// How many of its consumers wait for something.
    #[must_use]
    pub fn waiting(&self, what: WaitsFor) -> u32 {
        self.subscriptions.as_ref().map_or(0, |all| all.waiting(what))
    }

    /// The consumer with this number.
    #[must_use]
    pub fn subscription(&self, number: u32) -> Option<&Subscription> {
        self.subscriptions.as_ref()?.by_number.get(number as usize)
    }

    /// The consumer with this number.
    pub fn subscription_mut(&mut self, number: u32) -> Option<&mut Subscription> {
        self.subscriptions.as_mut()?.by_number.get_mut(number as usize)
    }

    /// Whether what comes on the channel is done at once: nothing is asked, nothing waits, no
    /// transaction is open and no end is near.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.ending.is_none()
            && self.pending.is_none()
            && self.parked.is_empty()
            && self.tx.is_none()
            && self.committing.is_none()
    }

    /// Whether something ties the channel to this shard until the client ends it (see
    /// [`crate::connection`], hand-over).
    #[must_use]
    pub fn is_tied(&self) -> bool {
        self.awaits_close_ok()
            || !self.unacked.is_empty()
            || self.tx.is_some()
            || self.reply_consumer.is_some()
            || self.subscriptions.as_ref().is_some_and(|all| !all.by_number.is_empty())
    }

    /// The same, but for consumers of queues of shard `to` and what is unacknowledged of these: they
    /// may go there.
    #[must_use]
    pub fn is_tied_but_to(&self, to: ShardId) -> bool {
        let stays = |subscription: &Subscription| {
            subscription.home != to || subscription.handle.is_none() || subscription.cancelling
        };
        self.awaits_close_ok()
            || self.tx.is_some()
            || self.reply_consumer.is_some()
            || !self.unacked.is_all_of(to)
            || self.subscriptions.as_ref().is_some_and(|all| {
                !all.late.is_empty() || all.by_number.iter().any(|(_, one)| stays(one))
            })
    }

    /// Whether its number becomes free with the client's next word, so that it must be read.
    fn awaits_close_ok(&self) -> bool {
        self.ending == Some(Ending::ByBroker)
    }

    /// Whether nothing of the channel is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.ending.is_none()
            && self.pending.is_none()
            && self.parked.is_empty()
            && self.committing.is_none()
            && self.global.as_ref().is_none_or(|global| global.granted == 0)
            && self.confirms.as_ref().is_none_or(|confirms| confirms.outstanding() == 0)
    }
}

/// Where something happens: a connection's slot and a channel's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The connection's slot.
    pub slot: u32,
    /// The channel.
    pub channel: ChannelRef,
    /// The connection's vhost.
    pub vhost: VhostId,
}
