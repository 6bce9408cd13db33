//! What a shard answers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, QueueId, ShardId};

use super::RightsPlace;
use super::figures::Figures;
use crate::refusal::Refusal;
use crate::traffic::{ConnectionTraffic, QueueTraffic};

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
    /// Whether an order is being carried out, or could not be: what it names is not here, or cannot go.
    Ordered(bool),
    /// There is no virtual host of that name.
    NoVhost,
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

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRow {
    /// Its id; later ones are higher.
    pub id: ConnectionId,
    /// Address and port of the client.
    pub peer: String,
    /// The user; empty before the login.
    pub user: String,
    /// Name of the virtual host; empty before it is opened.
    pub vhost: String,
    /// Open channels.
    pub channels: usize,
    /// Whether it is encrypted.
    pub tls: bool,
    /// Whether it published while memory or the disk was short, and waits.
    pub blocked: bool,
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
