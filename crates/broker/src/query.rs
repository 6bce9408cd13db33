//! What operators and the threads of the server ask a shard, as values.
//!
//! A question goes in by [`Broker::query`](crate::Broker::query) under a number and is answered in the outbox
//! under it, at once or later. Nothing else that comes from outside reaches a shard's state, so a run can be
//! recorded with its operators and played again. No question makes a shard look at more than a bounded number
//! of things: totals are kept as they change, and lists are asked for in parts.

mod answer;
mod figures;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, QueueId, ShardId, VhostId};

pub use answer::{
    Answer, BindingRow, ChannelRow, ConnectionRow, ConsumerRow, DearFilterRow, ExchangeFigures,
    ExchangeRow, FilterFiguresRow, Part, PermissionRow, QueueFigures, QueueRow, Reached,
    SelectorRow, TopicPermissionRow, UserRow, VhostFigures, VhostRow,
};
pub use figures::{Figures, Holdings, LogFigures, Oldest};

use crate::directory::Request;
pub use crate::mail::{AlarmSource, Shortage};

/// Places that one part of a list covers at most.
pub const PLACES_MAX: usize = 256;
/// Distinct filters of an exchange that one part of a list covers at most, and those of them that it has.
pub const FILTERS_MAX: usize = 512;
/// Queues that are told at most of those that a message would go to.
pub const ROUTED_MAX: usize = 1_000;
/// See [`FILTERS_MAX`].
pub const DEAR_MAX: usize = 5;
/// Users or virtual hosts that one part of a list covers at most, and rights of users that it has.
pub const NAMES_MAX: usize = 64;

/// One question or order, for one shard.
///
/// Those about virtual hosts, users, exchanges and bindings have the same answer on every shard; shard 0 is the
/// first to know a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Does the shard answer at all? [`Answer::Alive`]
    Alive,
    /// The shard's totals: [`Answer::Figures`].
    Figures,
    /// Queues of a virtual host whose home is the shard: [`Answer::Queues`] or [`Answer::NoVhost`]. One that moves while
    /// shards are asked one by one is told by two of them or by none.
    Queues {
        /// Name of the virtual host.
        vhost: String,
        /// Which of them.
        page: Page,
    },
    /// Connections of the shard: [`Answer::Connections`]. With moves as for queues.
    Connections(Page),
    /// Those of these connections that are on the shard, of [`PLACES_MAX`] at most: [`Answer::Connections`]. With moves as
    /// for queues.
    ConnectionsById(Vec<ConnectionId>),
    /// Channels of the shard's connections: [`Answer::Channels`]. With moves as for queues.
    Channels(Nested),
    /// Consumers of queues whose home is the shard: [`Answer::Consumers`]. With moves as for queues.
    Consumers {
        /// Of this queue only.
        queue: Option<QueueId>,
        /// Which of them.
        from: Nested,
    },
    /// Figures of these queues, of [`PLACES_MAX`] at most, as far as the shard is their home: [`Answer::QueueFigures`].
    QueueFigures(Vec<QueueId>),
    /// The distinct filters of a queue's consumers and how they get on, none if its home is elsewhere: [`Answer::Selectors`].
    Selectors(QueueId),
    /// How many filters the bindings of these exchanges have, of [`PLACES_MAX`] at most, which is the same on every shard,
    /// and what they take of messages there: [`Answer::FilterFigures`].
    FilterFigures(Vec<(VhostId, Box<str>)>),
    /// The dearest of the distinct filters of an exchange's bindings, of those at [`FILTERS_MAX`] places at most:
    /// [`Answer::DearFilters`].
    DearFilters {
        /// The virtual host.
        vhost: VhostId,
        /// The exchange.
        exchange: Box<str>,
        /// The first place to look at.
        from: usize,
    },
    /// Queues whose home is the shard and whose consumers have filters: [`Answer::FilteredQueues`].
    FilteredQueues {
        /// Those behind this one; from the first on without one.
        after: Option<QueueId>,
    },
    /// Where a message would go if it was published now, the same on every shard but where an exchange chooses among its
    /// bindings: [`Answer::Routed`].
    Route(Box<TestMessage>),
    /// What clients of the shard published to these exchanges, of [`PLACES_MAX`] at most: [`Answer::ExchangeFigures`].
    ExchangeFigures(Vec<(VhostId, Box<str>)>),
    /// What connections and queues of the shard did and hold in these virtual hosts, of [`PLACES_MAX`] at most:
    /// [`Answer::VhostFigures`].
    VhostFigures(Vec<VhostId>),
    /// Exchanges of a virtual host: [`Answer::Exchanges`] or [`Answer::NoVhost`].
    Exchanges {
        /// Name of the virtual host.
        vhost: String,
        /// Which of them.
        page: Page,
    },
    /// Bindings of a virtual host without those of the default exchange: [`Answer::Bindings`] or
    /// [`Answer::NoVhost`].
    Bindings {
        /// Name of the virtual host.
        vhost: String,
        /// Which of them.
        page: Page,
    },
    /// Virtual hosts by name: [`Answer::Vhosts`].
    Vhosts(Names),
    /// Users by name: [`Answer::Users`].
    Users(Names),
    /// The permissions of users: [`Answer::Permissions`].
    Permissions(Rights),
    /// The topic permissions of users: [`Answer::TopicPermissions`].
    TopicPermissions(Rights),
    /// Whether there is a user and a virtual host of these names: [`Answer::Known`].
    Known {
        /// Name of the user.
        user: String,
        /// Name of the virtual host.
        vhost: String,
    },
    /// What connections and queues had to do since this was asked last: [`Answer::Traffic`]. Those are looked at
    /// next that were not this time.
    Traffic {
        /// Places of connections to look at.
        connections_max: usize,
        /// Places of queues to look at.
        queues_max: usize,
        /// Whether all that are looked at are told, however idle.
        with_idle: bool,
    },
    /// Changes the directory; for shard 0. [`Answer::Changed`], once the change is durable and applied.
    Change(Request),
    /// Changes the directory by each of these in their order, as [`Query::Change`] does, and goes on where one is
    /// refused; for shard 0. [`Answer::ChangedAll`], once all are answered. Others' changes may come in between.
    ChangeAll(Vec<Request>),
    /// Waits until every queue and exchange of the shard follows the policies of this epoch, and those that the shard
    /// knows: [`Answer::PoliciesApplied`], which may take as long as messages above a new limit have to leave. After some
    /// seconds the answer says how far the shard is by then. Who changed
    /// a policy and has the answer to that asks every shard with
    /// [`Directory::policy_epoch`](crate::directory::Directory::policy_epoch), or with 0 where it has no directory: the
    /// shard knows of the change by then.
    AwaitPolicies {
        /// A number of that kind.
        epoch: u64,
    },
    /// Holds publishers back as if memory or the disk were short, or no longer: [`Answer::Ordered`]. For every shard.
    Alarm {
        /// What is said to be short.
        shortage: Shortage,
        /// Whether it is from now on.
        is_on: bool,
        /// Who says so; what others say stands.
        source: AlarmSource,
    },
    /// Changes a setting until the broker ends: [`Answer::Ordered`]. For every shard.
    Set(Setting),
    /// Closes a connection: [`Answer::Ordered`]. For every shard, since it may be between two of them.
    CloseConnection {
        /// Which.
        connection: ConnectionId,
        /// What its client is told.
        why: String,
    },
    /// Sends a connection to another shard as soon as it can go: [`Answer::Ordered`].
    MoveConnection {
        /// Which.
        connection: ConnectionId,
        /// Where to.
        to: ShardId,
        /// What the log tells.
        why: String,
    },
    /// Sends a queue to another shard as soon as it can go: [`Answer::Ordered`].
    MoveQueue {
        /// Which.
        queue: QueueId,
        /// Where to.
        to: ShardId,
        /// What the log tells.
        why: String,
    },
}

/// A setting that can be changed while the broker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A shard's equal share of the memory budget, in bytes. What uses more than there is now holds publishers back at
    /// once.
    MemoryShare(usize),
    /// Channels that are offered to connections from now on; 0 is as many as the protocol has.
    ChannelMax(u16),
    /// Users who may log in from this machine only; who is logged in stays.
    LoopbackUsers(Vec<String>),
}

/// Which part of a list by place is meant. Where something is does not change while it is on the shard, so all parts of
/// one shard together have it once; they are in no particular order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The first place to look at.
    pub from: usize,
    /// Places to look at; at most [`PLACES_MAX`] are.
    pub limit: usize,
}

/// Which part of a list of what belongs to things at places is meant: channels of connections, consumers of queues.
/// At most [`PLACES_MAX`] places of owners are looked at, and as many rows given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nested {
    /// The first place of an owner to look at.
    pub owner: usize,
    /// The first number at that owner to look at; from the first on at all others.
    pub first: usize,
}

/// Which part of a list by name is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Those behind this name; from the first on without one.
    pub after: Option<String>,
    /// Names to look at; at most [`NAMES_MAX`] are.
    pub limit: usize,
}

/// A message of which is asked where it would go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestMessage {
    /// The virtual host.
    pub vhost: VhostId,
    /// The exchange; empty for the default exchange.
    pub exchange: String,
    /// Its routing key.
    pub routing_key: String,
    /// Its properties as on the wire, well-formed.
    pub properties: Vec<u8>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Which part of a list of what users may do is meant: it is in the order of users' names, and of one user in that of
/// the virtual hosts' age and the exchanges' names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// What is behind this place; all from the first user on without one.
    pub after: Option<RightsPlace>,
    /// Users to look at, and rows to give; at most [`NAMES_MAX`] are.
    pub limit: usize,
}

/// A place in a list of what users may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsPlace {
    /// The user.
    pub user: String,
    /// What of the user's it is behind: a right in this virtual host and, of topic permissions, for this exchange. Behind
    /// everything without one.
    pub right: Option<(VhostId, String)>,
}
