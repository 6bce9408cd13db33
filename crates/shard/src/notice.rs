//! What the runtime tells the log.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;

use lepus_base::ShardId;
use lepus_reactor::files::Failure;

/// One event for the log.
#[derive(Debug)]
pub enum Notice<E> {
    /// An event of a shard's core.
    Core {
        /// The shard.
        shard: ShardId,
        /// The event.
        event: E,
    },
    /// A shard is not where it was planned to be.
    Misplaced {
        /// The shard.
        shard: ShardId,
        /// What was planned and what the system said or did.
        reason: String,
    },
    /// An operation on a file failed.
    DiskFailed {
        /// The shard.
        shard: ShardId,
        /// What was tried and what the system said.
        failure: Failure,
    },
    /// Accepting fails (no file descriptors left, for one) and is tried again soon.
    AcceptFailed {
        /// The listener.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A connection beyond the limit was closed at once.
    ConnectionRefused {
        /// Who.
        peer: SocketAddr,
        /// The limit that is reached.
        connections_max: usize,
    },
    /// A connection could not be taken into service.
    ConnectionFailed {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Connections were closed that had not said anything.
    TurnedAway {
        /// The last of them.
        peer: SocketAddr,
        /// How many had been silent for too long since this was told last.
        expired: u64,
        /// How many gave way to new ones because too many were silent.
        gave_way: u64,
    },
    /// A TLS handshake failed or took too long.
    TlsFailed {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// Where notices go: a channel without bound, so that no shard ever waits for the log.
pub type Notices<E> = Sender<Notice<E>>;
