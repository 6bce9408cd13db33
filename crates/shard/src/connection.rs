//! A connection as the runtime sees it: a socket, bytes that wait, and how it ends.

use std::net::IpAddr;

use lepus_base::{ConnectionId, Instant, Ticket};

use crate::core::{Core, PeerInfo};
use crate::tls::Session;

/// A connection that was just accepted, on its way to a shard.
#[derive(Debug)]
pub struct Arrival<K> {
    /// Unique in the process.
    pub id: ConnectionId,
    /// Its socket, not registered anywhere.
    pub socket: K,
    /// Who is at the other end.
    pub peer: PeerInfo,
    /// Set on TLS connections, after the handshake.
    pub tls: Option<Box<Session>>,
    /// The process has all the connections that it may have: another one that has not logged in goes
    /// in exchange for this one.
    pub replaces: bool,
}

/// A connection that one shard hands to another.
pub(crate) struct Envelope<C: Core, K> {
    pub(crate) id: ConnectionId,
    pub(crate) address: IpAddr,
    pub(crate) socket: K,
    pub(crate) tls: Option<Box<Session>>,
    pub(crate) leftover: Vec<u8>,
    pub(crate) traveller: C::Traveller,
}

/// What travels in a ring: mail, and behind it connections.
pub struct Parcel<C: Core, K> {
    pub(crate) mail: C::Mail,
    pub(crate) connections: Vec<Envelope<C, K>>,
    /// Bytes of its mail that are counted for the shard that it came from.
    pub(crate) counted: usize,
    /// How many directory changes its sender knew: nobody takes it who knows fewer.
    pub(crate) changes: u64,
}

impl<C: Core, K> Default for Parcel<C, K> {
    fn default() -> Parcel<C, K> {
        Parcel { mail: C::Mail::default(), connections: Vec::new(), counted: 0, changes: 0 }
    }
}

/// How far a connection is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In service.
    Open,
    /// The core wants it closed; its last bytes are being sent, nothing is read.
    Draining,
    /// The core has forgotten it; what the peer still sends is dropped until its end, so that the
    /// last bytes sent are not overtaken by a reset.
    Lingering,
}

/// A connection in a shard's table. An idle one holds no buffer.
#[derive(Debug)]
pub(crate) struct Connection<S, K> {
    pub(crate) id: ConnectionId,
    /// The core's name for it; of no meaning while it lingers.
    pub(crate) slot: S,
    /// The peer's.
    pub(crate) address: IpAddr,
    pub(crate) socket: K,
    pub(crate) tls: Option<Box<Session>>,
    /// Bytes that the core has not consumed.
    pub(crate) leftover: Vec<u8>,
    pub(crate) phase: Phase,
    /// Its place among those that have not logged in or are at their end, as long as it is one of them.
    pub(crate) ticket: Option<Ticket>,
    /// It is at its end, and its ticket that of one that is.
    pub(crate) is_over: bool,
    /// When it is cut in its phase.
    pub(crate) deadline: Instant,
    /// The socket may have bytes (or its end).
    pub(crate) readable: bool,
    /// The end follows the bytes that wait.
    pub(crate) ending: bool,
    /// The peer has ended its side; what it asked for before is still answered.
    pub(crate) ended: bool,
    /// It was counted as one that did not end in order.
    pub(crate) is_cut: bool,
    /// The socket took less than it was given; an event tells when it takes more.
    pub(crate) full: bool,
    /// The core does not want it to be read.
    pub(crate) paused: bool,
    /// The leftover is to be handed in without waiting for more.
    pub(crate) again: bool,
    /// It stands in the queue of connections to read.
    pub(crate) queued: bool,
    /// It stands in the list of those that are to be written.
    pub(crate) is_listed: bool,
}

impl<S, K> Connection<S, K> {
    /// An open connection whose socket is to be tried at once.
    pub(crate) fn new(
        id: ConnectionId,
        slot: S,
        address: IpAddr,
        socket: K,
        tls: Option<Box<Session>>,
    ) -> Self {
        Connection {
            id,
            slot,
            address,
            socket,
            tls,
            leftover: Vec::new(),
            phase: Phase::Open,
            ticket: None,
            is_over: false,
            deadline: Instant::NEVER,
            readable: true,
            ending: false,
            ended: false,
            is_cut: false,
            full: false,
            paused: false,
            again: false,
            queued: false,
            is_listed: false,
        }
    }

    /// Whether there is something to do for the reader.
    pub(crate) fn wants_turn(&self) -> bool {
        match self.phase {
            Phase::Open => !self.paused && !self.ended && (self.readable || self.again),
            Phase::Draining => false,
            Phase::Lingering => self.readable,
        }
    }
}
