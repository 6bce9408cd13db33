//! What a shard answers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_amqp::table::TableBytes;
use lepus_base::{ConnectionId, QueueId, ShardId, VhostId};

use super::figures::Figures;
use super::{Nested, RightsPlace};
use crate::directory::FilterFigures;
use crate::exchange_counts::ExchangeCounts;
use crate::message_counts::MessageCounts;
use crate::queue::Totals;
use crate::refusal::Refusal;
use crate::traffic::{ConnectionTraffic, Octets, QueueTraffic};

/// The answer to a [`Query`](super::Query).
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The shard takes questions.
    Alive,
    /// Its totals.
    Figures(Box<Figures>),
    /// Queues.
    Queues(Part<QueueRow, usize>),
    /// Connections.
    Connections(Part<ConnectionRow, usize>),
    /// Channels.
    Channels(Part<ChannelRow, Nested>),
    /// Consumers.
    Consumers(Part<ConsumerRow, Nested>),
    /// Figures of queues.
    QueueFigures(Vec<QueueFigures>),
    /// Filters of a queue's consumers.
    Selectors(Vec<SelectorRow>),
    /// Filters of exchanges' bindings, of those only that have some.
    FilterFigures(Vec<FilterFiguresRow>),
    /// Filters, the dearest first.
    DearFilters(Part<DearFilterRow, usize>),
    /// Queues whose consumers have filters.
    FilteredQueues(Part<QueueId, QueueId>),
    /// Where a message would go, or why it would be refused.
    Routed(Result<Reached, Refusal>),
    /// Figures of exchanges, of those only to which something was published.
    ExchangeFigures(Vec<ExchangeFigures>),
    /// Figures of virtual hosts.
    VhostFigures {
        /// Of each that is there.
        rows: Vec<VhostFigures>,
        /// Whether they have all that connections did. If not, asking again brings more.
        is_whole: bool,
    },
    /// Exchanges.
    Exchanges(Part<ExchangeRow, usize>),
    /// Bindings.
    Bindings(Part<BindingRow, usize>),
    /// Virtual hosts.
    Vhosts(Part<VhostRow, String>),
    /// Users.
    Users(Part<UserRow, String>),
    /// Permissions.
    Permissions(Part<PermissionRow, RightsPlace>),
    /// Topic permissions.
    TopicPermissions(Part<TopicPermissionRow, RightsPlace>),
    /// Whether there are a user and a virtual host of the names that were asked for.
    Known {
        /// Whether there is the user.
        user: bool,
        /// Whether there is the virtual host.
        vhost: bool,
    },
    /// What connections and queues had to do.
    Traffic {
        /// Connections that talked.
        connections: Vec<ConnectionTraffic>,
        /// Queues that got messages.
        queues: Vec<QueueTraffic>,
    },
    /// What became of a change of the directory.
    Changed(Result<(), Refusal>),
    /// What became of many, in the order of the requests.
    ChangedAll(Vec<Result<(), Refusal>>),
    /// The policies are followed.
    PoliciesApplied {
        /// Up to this epoch; less than was asked for only where very many wait.
        epoch: u64,
    },
    /// Whether an order is being carried out, or could not be: what it names is not here, or cannot go.
    Ordered(bool),
    /// There is no virtual host of that name.
    NoVhost,
}

/// The queues that a message would go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The first of them, [`ROUTED_MAX`](super::ROUTED_MAX) at most.
    pub queues: Vec<QueueId>,
    /// How many they are.
    pub total: usize,
    /// How many exchanges on its way have filters that would take too long for it, which do not take it then.
    pub given_up: u32,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T, P> {
    /// What was found.
    pub rows: Vec<T>,
    /// Where the next part begins; `None` when this is the last one.
    pub next: Option<P>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// Its id.
    pub id: QueueId,
    /// Its name.
    pub name: String,
    /// Name of its type.
    pub kind: &'static str,
    /// Whether it survives a restart.
    pub durable: bool,
    /// Whether it goes with its last consumer.
    pub auto_delete: bool,
    /// Whether it is for one connection only.
    pub exclusive: bool,
    /// Messages that are ready.
    pub ready: u64,
    /// Messages that are delivered and not settled.
    pub unacked: u64,
    /// Consumers.
    pub consumers: u32,
    /// Its home.
    pub shard: ShardId,
}

/// What a queue holds and has done since its home took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// The queue.
    pub id: QueueId,
    /// Messages that are ready.
    pub ready: u64,
    /// Their bodies' bytes.
    pub ready_bytes: u64,
    /// Messages that are delivered and not settled.
    pub unacked: u64,
    /// Their bodies' bytes.
    pub unacked_bytes: u64,
    /// Of those that are ready, the ones that consumers' filters have looked at and that nobody has.
    pub passed_over: u64,
    /// Whether a consumer has a filter.
    pub has_filters: bool,
    /// Consumers.
    pub consumers: u32,
    /// Messages taken in, handed out and acknowledged.
    pub totals: Totals,
    /// Bytes of its own state, without bodies.
    pub memory_bytes: u64,
}

/// A distinct filter of a queue's consumers, and how it gets on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorRow {
    /// What it says, in normal form; `None` for consumers that want everything.
    pub filter: Option<String>,
    /// How it reads bodies: the word of `x-filter-format`.
    pub format: &'static str,
    /// How the queue comes to ask it: `looked_up`, `compared` or `evaluated`; the first where there is none.
    pub way: &'static str,
    /// What evaluating it takes, by what it is made of.
    pub cost: u32,
    /// Consumers that have it.
    pub consumers: u32,
    /// Messages that it was asked about.
    pub evaluations: u64,
    /// Messages that its consumers got.
    pub deliveries: u64,
    /// How often it took more than it may for a message, which does not match then.
    pub given_up: u64,
    /// Whether it took much for a message, so that it reads through what is there apart from others.
    pub is_dear: bool,
    /// Messages that others passed over and that it has yet to look at.
    pub behind: u64,
    /// Messages that it matches and that wait for its consumers, as far as the queue remembers them.
    pub waiting: u64,
    /// It has looked at all messages that are there, and its consumers got those that it matches.
    pub is_through: bool,
}

/// How many filters the bindings of an exchange have, and what these take of messages on a shard. Steps are some ten
/// nanoseconds each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterFiguresRow {
    /// The virtual host.
    pub vhost: VhostId,
    /// The exchange's name.
    pub name: Box<str>,
    /// How many there are. What shards said of their cost is known on the one that orders changes alone.
    pub figures: FilterFigures,
    /// Messages that were drawn on the shard: one in sixteen.
    pub samples: u64,
    /// Steps for reading one of them, in the mean of the last 32 or so.
    pub reading_steps: u32,
    /// Steps for asking the filters.
    pub matching_steps: u32,
}

/// A distinct filter of an exchange's bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DearFilterRow {
    /// What it says, in normal form; of a long one the first 200 bytes, with an ellipsis behind them.
    pub text: String,
    /// How bodies are read, as arguments have it.
    pub format: &'static str,
    /// How it comes to be asked: `looked_up`, `compared` or `evaluated`.
    pub way: &'static str,
    /// What evaluating it takes, by what it is made of: a condition 1, a `LIKE` 8, a `REGEXP` 200.
    pub cost: u32,
    /// How many bindings have it.
    pub bindings: u32,
    /// What the oldest of them leads to: `queue` or `exchange`.
    pub destination_kind: &'static str,
    /// The name of that.
    pub destination: String,
    /// Its key.
    pub routing_key: String,
}

/// What clients of a shard published to an exchange since it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeFigures {
    /// The virtual host.
    pub vhost: VhostId,
    /// The exchange's name.
    pub name: Box<str>,
    /// What was published.
    pub counts: ExchangeCounts,
}

/// What the connections and queues of a shard did and hold in a virtual host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostFigures {
    /// The virtual host.
    pub vhost: VhostId,
    /// Messages of its connections, those that are gone included.
    pub counts: MessageCounts,
    /// Bytes that came over them.
    pub received_bytes: u64,
    /// Bytes that were sent over them.
    pub sent_bytes: u64,
    /// Messages that are ready in its queues.
    pub ready: u64,
    /// Messages of its queues that are delivered and not settled.
    pub unacked: u64,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRow {
    /// Its connection.
    pub connection: ConnectionId,
    /// Its number there.
    pub number: u16,
    /// Consumers.
    pub consumers: usize,
    /// The limit of unacknowledged deliveries that a new consumer gets; 0 for none.
    pub prefetch: u32,
    /// The limit for all its consumers together; 0 for none.
    pub global_prefetch: u32,
    /// Deliveries that are not settled.
    pub unacked: usize,
    /// Publishes that are not confirmed.
    pub unconfirmed: u64,
    /// Publishes that the open transaction holds.
    pub uncommitted: usize,
    /// Settlements that the open transaction holds.
    pub acks_uncommitted: usize,
    /// Whether publishes are confirmed.
    pub confirms: bool,
    /// Whether there are transactions.
    pub transactional: bool,
    /// Messages since it was opened.
    pub counts: MessageCounts,
}

/// A consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRow {
    /// The queue it consumes from.
    pub queue: QueueId,
    /// Its connection.
    pub connection: ConnectionId,
    /// The number of its channel there.
    pub channel: u16,
    /// Its tag.
    pub tag: String,
    /// Whether deliveries are settled by being sent.
    pub no_ack: bool,
    /// Whether no other consumer may join.
    pub exclusive: bool,
    /// Higher first.
    pub priority: i32,
    /// Deliveries that may be unsettled; 0 for any number.
    pub prefetch: u32,
    /// Whether it gets messages: not while another one is the single active consumer.
    pub active: bool,
    /// Its filter in normal form, if it has one.
    pub filter: Option<Box<str>>,
    /// How that reads bodies: the word of `x-filter-format`; `auto` where there is none.
    pub format: &'static str,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRow {
    /// Its id; later ones are higher.
    pub id: ConnectionId,
    /// Address and port of the client.
    pub peer: String,
    /// The broker's own address and port of the connection.
    pub local_address: String,
    /// When it was accepted: milliseconds since 1970.
    pub accepted_millis: u64,
    /// What the client says about itself: a table in wire form.
    pub client_properties: TableBytes,
    /// What it speaks; the protocol with its version.
    pub protocol: &'static str,
    /// The mechanism by which it logged in; empty before that.
    pub mechanism: String,
    /// Channels that may be open at once.
    pub channel_max: u16,
    /// Bytes of the largest frame; 0 for no limit.
    pub frame_max: u32,
    /// Seconds between heartbeats; 0 for none.
    pub heartbeat_seconds: u16,
    /// The user; empty before the login.
    pub user: String,
    /// Name of the virtual host; empty before it is opened.
    pub vhost: String,
    /// Open channels.
    pub channels: usize,
    /// Protocol version and cipher suite where it is encrypted.
    pub tls: Option<String>,
    /// Whether it published while memory or the disk was short, and waits.
    pub blocked: bool,
    /// What passed its socket.
    pub octets: Octets,
    /// Where it is.
    pub shard: ShardId,
}

/// An exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeRow {
    /// Its name.
    pub name: String,
    /// Name of its type.
    pub kind: &'static str,
    /// Whether it survives a restart.
    pub durable: bool,
    /// Whether it goes with its last binding.
    pub auto_delete: bool,
    /// Whether clients may not publish to it.
    pub internal: bool,
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingRow {
    /// The exchange that messages come from.
    pub source: String,
    /// `queue` or `exchange`.
    pub destination_kind: &'static str,
    /// Name of what messages go to.
    pub destination: String,
    /// Its key.
    pub routing_key: String,
    /// Its arguments: a table in wire form.
    pub arguments: TableBytes,
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostRow {
    /// Its name.
    pub name: String,
    /// Queues in it, on all shards.
    pub queues: u64,
    /// What an operator says about it.
    pub description: String,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRow {
    /// The name.
    pub name: String,
    /// The tags.
    pub tags: Vec<String>,
    /// Whether a password is set.
    pub has_password: bool,
}

/// What a user may do in a virtual host: patterns over names of queues and exchanges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRow {
    /// The user.
    pub user: String,
    /// Name of the virtual host.
    pub vhost: String,
    /// What may be declared and deleted.
    pub configure: String,
    /// What may be published to.
    pub write: String,
    /// What may be consumed from.
    pub read: String,
}

/// Which routing keys of an exchange a user may use: patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPermissionRow {
    /// The user.
    pub user: String,
    /// Name of the virtual host.
    pub vhost: String,
    /// The exchange.
    pub exchange: String,
    /// Keys to publish with.
    pub write: String,
    /// Keys to bind with.
    pub read: String,
}
