//! What the sessions of a shard own beside the connections themselves.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, HashState, Instant, ShardId};

use crate::acknowledgement::Looks;
use crate::connection_counts::ConnectionCounts;
use crate::departure::Departures;
use crate::ends::{End, Ends};
use crate::owner::Owner;
use crate::reply_to::UnreadReplies;
use crate::settle::Settling;
use crate::token::Names;

/// What the sessions of a shard have to do, and what they know of sessions elsewhere.
#[derive(Debug)]
pub struct Sessions {
    /// Connections whose empty send buffers are given back before long.
    pub(super) trimmable: Vec<(u32, ConnectionId)>,
    /// Direct replies that nobody reads.
    pub(super) unread_replies: UnreadReplies,
    /// Connections of all shards by vhost and user.
    pub(super) connection_counts: ConnectionCounts,
    /// Looks at deliveries that wait for their acknowledgement.
    pub(super) looks: Looks,
    /// Names that the broker makes up for clients.
    pub(super) names: Names,
    /// The slot at which their traffic was sampled last.
    pub(super) sampled: u32,
    /// Acknowledgements that are served in slices.
    pub(super) settlings: VecDeque<Settling>,
    /// What ends and takes long.
    pub(super) ends: Ends<End>,
    /// Connections on their way to other shards.
    pub(super) departures: Departures,
}

impl Sessions {
    /// Nothing to do.
    #[must_use]
    pub(crate) fn new(hash: HashState, secret: [u8; 32], shard: ShardId) -> Sessions {
        Sessions {
            trimmable: Vec::new(),
            unread_replies: UnreadReplies::default(),
            connection_counts: ConnectionCounts::new(hash),
            looks: Looks::default(),
            names: Names::new(secret, shard),
            sampled: 0,
            settlings: VecDeque::new(),
            ends: Ends::default(),
            departures: Departures::default(),
        }
    }

    /// Those that may have work, owe something or hold mail: see [`Owner`].
    pub(crate) fn owners(&self) -> [&dyn Owner; 3] {
        // A field that is added is named here, too: so no question forgets it.
        let Sessions {
            trimmable: _,
            unread_replies: _,
            connection_counts: _,
            looks,
            names: _,
            sampled: _,
            settlings,
            ends,
            departures: _,
        } = self;
        [looks, settlings, ends]
    }

    /// The earliest moment at which something of them is due that has no timer of its own.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.departures.next_timeout()
    }

    /// Whether this connection is on its way to another shard.
    pub(crate) fn is_departing(&self, id: ConnectionId) -> bool {
        self.departures.has(id)
    }

    /// Whether another shard is to be told when all is applied that a connection of it sent here.
    pub(crate) fn has_waiting_departures(&self) -> bool {
        self.departures.has_waiting()
    }
}
