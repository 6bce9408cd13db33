//! The seam between the runtime and what it runs.

use std::net::SocketAddr;
use std::sync::Arc;

use lepus_base::{ByShard, ConnectionId, Instant, Now, ShardId, Slices};
use lepus_store::disk::{Completion, LogId, Operation};

/// A connection's place in its core's table, a small number that is reused.
pub trait Slot: Copy + 'static {
    /// The slot as an index; dense.
    fn index(self) -> usize;
}

impl Slot for u32 {
    fn index(self) -> usize {
        self as usize
    }
}

/// Who is at the other end of a new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// The peer's address and port.
    pub address: SocketAddr,
    /// The server's own address and port of the connection.
    pub local_address: SocketAddr,
    /// Set on TLS connections.
    pub tls: Option<TlsPeer>,
    /// The user that the peer has proven to be before it said anything (SASL EXTERNAL): by the certificate that
    /// it sent, or to a part of this process that has let it in.
    pub login_name: Option<String>,
}

impl PeerInfo {
    /// Whether the peer is this machine, IPv4 written as IPv6 included.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// What TLS tells about the peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPeer {
    /// Protocol version and cipher suite, for people to read.
    pub protocol: String,
    /// Distinguished name of the verified client certificate, most specific part first (RFC 4514).
    pub subject: Option<String>,
}

/// What a core wants to be carried out, as the runtime takes it out of the core's outbox. All
/// vectors are reused; the runtime empties them once per cycle, `pause`, `resume` and `close` also
/// between two calls of the core.
pub struct Effects<'a, C: Core> {
    /// Connections with bytes to send, each once.
    pub dirty: &'a mut Vec<C::Slot>,
    /// Connections to close once their bytes are sent.
    pub close: &'a mut Vec<C::Slot>,
    /// Connections that must not be read until resumed. Taken before `resume`.
    pub pause: &'a mut Vec<C::Slot>,
    /// Connections that may be read again and whose unconsumed bytes are to be handed in again.
    pub resume: &'a mut Vec<C::Slot>,
    /// Connections to move to another shard.
    pub hand_over: &'a mut Vec<(C::Slot, ShardId)>,
    /// Mail by destination shard.
    pub mail: &'a mut ByShard<C::Mail>,
    /// Operations on files. Only a core whose shard has a disk asks for any.
    pub disk: &'a mut Vec<Operation>,
    /// Directory changes for every other shard.
    pub changes: &'a mut Vec<Arc<C::Change>>,
    /// What an operator may want to read.
    pub events: &'a mut Vec<C::Event>,
    /// How many more there were, which are lost. The runtime sets it to 0 once per cycle.
    pub lost_events: &'a mut u64,
    /// Answers to questions of the control plane, by the question's number.
    pub answers: &'a mut Vec<(u64, C::Answer)>,
}

/// The state and rules of one shard: a function of its inputs that never blocks.
///
/// Calls for one connection are `accept` or `adopt`, then any of `received`, `writable_slices` and
/// `sent`, then exactly one of `closed` or `release`, after which its slot may be reused.
pub trait Core: Sized + 'static {
    /// Names a connection.
    type Slot: Slot;
    /// Gathers effects.
    type Outbox: 'static;
    /// Mail for one other shard; emptied batches travel back to be filled again.
    type Mail: Default + Send + 'static;
    /// One change of the directory.
    type Change: Send + Sync + 'static;
    /// A connection's state on its way to another shard.
    type Traveller: Send + 'static;
    /// One log event.
    type Event: Send + 'static;
    /// A question or order of the control plane, as a value.
    type Query: Send + 'static;
    /// An answer to one.
    type Answer: Send + 'static;

    /// An empty outbox for so many shards.
    fn outbox(shards: u16) -> Self::Outbox;
    /// The outbox's parts.
    fn effects(out: &mut Self::Outbox) -> Effects<'_, Self>;
    /// Whether a batch holds nothing.
    fn is_mail_empty(mail: &Self::Mail) -> bool;
    /// Bytes that a batch has allocated.
    fn mail_bytes(mail: &Self::Mail) -> usize;

    /// A new connection.
    fn accept(
        &mut self,
        now: Now,
        connection: ConnectionId,
        peer: PeerInfo,
        out: &mut Self::Outbox,
    ) -> Self::Slot;
    /// Bytes of a connection, those that were not consumed before included. Returns how many are
    /// consumed; the rest is handed in again when more came or the connection was resumed.
    fn received(
        &mut self,
        now: Now,
        slot: Self::Slot,
        bytes: &[u8],
        out: &mut Self::Outbox,
    ) -> usize;
    /// Whether so much was done for received bytes that no other connection is read in this turn,
    /// which ends with [`Core::flush`].
    fn has_read_enough(&self) -> bool {
        false
    }
    /// Whether the connection has logged in and is not at its end, with nothing left to say. Before and after that
    /// it may have to give way to another one.
    fn is_open(&self, slot: Self::Slot) -> bool;
    /// Whether the connections that have not logged in hold more memory than they may. Then some of
    /// them give way.
    fn is_crowded(&self) -> bool;
    /// The driver holds so many bytes for the connection, beside what [`Core::received`] was given: what it
    /// said last counts.
    fn driver_holds(&mut self, slot: Self::Slot, bytes: usize);
    /// Whether the peer has asked for the end of the connection, and has not been sent the answer.
    fn owes_end(&self, slot: Self::Slot) -> bool;
    /// Whether the core closes the connection because the peer did not answer.
    fn gave_up(&self, slot: Self::Slot) -> bool;
    /// What is to be sent next, in this order; nothing of it only when nothing is left.
    fn writable_slices(&mut self, slot: Self::Slot) -> Slices<'_>;
    /// So many bytes of mail from here are on their way to other shards, or as emptied batches back.
    fn note_mail_on_its_way(&mut self, bytes: usize);
    /// Whether the rest of the mail is to wait for the next turn: much was done for what came before it.
    fn has_taken_enough_mail(&self) -> bool;
    /// How many bytes are left to send, those included that are not encoded.
    fn bytes_to_send(&self, slot: Self::Slot) -> usize;
    /// The first `bytes` of them are on their way.
    fn sent(&mut self, now: Now, slot: Self::Slot, bytes: usize, out: &mut Self::Outbox);
    /// The connection is gone, whoever ended it.
    fn closed(&mut self, now: Now, slot: Self::Slot, out: &mut Self::Outbox);
    /// Freezes a connection that the core asked to hand over and forgets it. `None` when it cannot
    /// go (any more): then it stays in service.
    fn release(&mut self, slot: Self::Slot) -> Option<Self::Traveller>;
    /// Takes a connection over.
    fn adopt(&mut self, now: Now, traveller: Self::Traveller, out: &mut Self::Outbox)
    -> Self::Slot;
    /// Mail of another shard. The batch is left empty.
    fn mail(&mut self, now: Now, from: ShardId, mail: &mut Self::Mail, out: &mut Self::Outbox);
    /// A change of the directory.
    fn change(&mut self, now: Now, change: &Arc<Self::Change>, out: &mut Self::Outbox);
    /// An operation on a file of `log` has ended.
    fn disk_done(&mut self, now: Now, log: LogId, completion: Completion, out: &mut Self::Outbox);
    /// Somebody outside asks or orders something. The answer goes into the outbox under `number`, now or later.
    fn query(&mut self, now: Now, number: u64, query: Self::Query, out: &mut Self::Outbox);
    /// The moment of [`Core::next_timeout`] has come.
    fn timeout(&mut self, now: Now, out: &mut Self::Outbox);
    /// The next moment at which something is due; [`Instant::NEVER`] for none.
    fn next_timeout(&self) -> Instant;
    /// One slice of long work.
    fn work(&mut self, now: Now, out: &mut Self::Outbox);
    /// Whether [`Core::work`] or [`Core::flush`] would do something that no event announces. Asked at
    /// the end of a cycle: writing, closing and sending mail come after both, and may leave some.
    fn has_work(&self, out: &Self::Outbox) -> bool;
    /// The end of a cycle: gather what was put off.
    fn flush(&mut self, now: Now, out: &mut Self::Outbox);
    /// The server stops: tell the clients and let the connections end.
    fn shut_down(&mut self, now: Now, out: &mut Self::Outbox);
    /// Whether it holds something that it took and that has yet to come to where it is kept, here or
    /// on another shard. No shard closes before none owes anything.
    fn owes(&self) -> bool;
    /// The last connection of the process has ended, and no shard owes anything: bring everything to the disk. Other calls go
    /// on until [`Core::is_closed`].
    fn close(&mut self, now: Now, out: &mut Self::Outbox);
    /// Whether everything is on the disk after [`Core::close`], or cannot be brought there.
    fn is_closed(&self) -> bool;
}
