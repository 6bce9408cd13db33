//! The connections of a shard: their sockets are here, and so is all that their clients have open.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use lepus_base::{ConnectionId, HashMap, HashState, Slab, Slices, VhostId};

use crate::backpressure::{Cause, WaitingConnection};
use crate::channel::{At, Channel};
use crate::connection::{Connection, ConnectionEnd};
use crate::directory::Directory;
use crate::follow_ups::FollowUps;
use crate::mail::{ChannelRef, Shortage};
use crate::outbox::{ConnectionSlot, Outbox};
use crate::owner::Owner;
use crate::session::{Answer, Capability, Done, State};
use crate::shard::Shard;
use crate::timers::Timer;
use crate::user_channels::UserChannels;
use crate::vhost_counts::{VhostCounts, VhostSum};

/// The connections of a shard.
#[derive(Debug)]
pub struct Connections {
    /// By slot.
    all: Slab<Box<Connection>>,
    /// Slots by id.
    by_id: HashMap<ConnectionId, u32>,
    /// How many channels the users have.
    user_channels: UserChannels,
    /// What is left to be done for connections.
    follow_ups: FollowUps,
    /// What those of each virtual host did.
    vhost_counts: VhostCounts,
}

/// The connection in a slot that is taken.
impl Index<u32> for Connections {
    type Output = Connection;

    #[inline]
    fn index(&self, slot: u32) -> &Connection {
        &self.all[slot as usize]
    }
}

impl IndexMut<u32> for Connections {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Connection {
        &mut self.all[slot as usize]
    }
}

impl Connections {
    /// No connections.
    #[must_use]
    pub(crate) fn new(hash: HashState) -> Connections {
        Connections {
            all: Slab::new(),
            by_id: HashMap::with_hasher(hash),
            user_channels: UserChannels::new(hash),
            follow_ups: FollowUps::default(),
            vhost_counts: VhostCounts::default(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Slots, those that are free included.
    pub(crate) fn capacity(&self) -> usize {
        self.all.capacity()
    }

    /// All of them, with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.all.iter().map(|(slot, connection)| (slot as u32, &**connection))
    }

    /// The connection in this slot.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<&Connection> {
        self.all.get(slot as usize).map(|connection| &**connection)
    }

    /// The connection in this slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.all.get_mut(slot as usize).map(|connection| &mut **connection)
    }

    /// All of them, with their slots.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Connection)> {
        self.all.iter_mut().map(|(slot, connection)| (slot as u32, &mut **connection))
    }

    /// How many channels the users have.
    pub(crate) fn user_channels(&mut self) -> &mut UserChannels {
        &mut self.user_channels
    }

    /// What is left to be done for connections.
    pub(crate) fn follow_ups(&mut self) -> &mut FollowUps {
        &mut self.follow_ups
    }

    /// The same, as an owner that is asked whether it has work.
    pub(crate) fn owner(&self) -> &dyn Owner {
        &self.follow_ups
    }

    /// How many channels have frames that were parked and can be handled.
    pub(crate) fn channels_to_unpark(&self) -> usize {
        self.follow_ups.channels_to_unpark()
    }

    /// Whether nothing is left to be done for connections.
    pub(crate) fn is_quiet(&self) -> bool {
        self.follow_ups.is_quiet()
    }

    /// Puts a channel on the list of those whose parked frames can be handled.
    pub(crate) fn unpark(&mut self, slot: u32, channel: ChannelRef) {
        let Some(connection) = self.connection_at(slot, channel.connection) else {
            return race!("the connection closed before a channel's parked frames had their turn");
        };
        let Some(parked) = connection.incarnation(channel.channel) else {
            return race!("the channel closed before its parked frames had their turn");
        };
        if !parked.parked.is_empty() && !parked.unparking {
            parked.unparking = true;
            self.follow_ups.unpark(slot, channel.connection, channel.channel);
        }
    }

    /// Why the user may not open one more channel on this connection, if so.
    pub(crate) fn over_channel_limit(&self, directory: &Directory, slot: u32) -> Option<String> {
        self.user_channels.over_limit(directory, self.get(slot)?)
    }

    /// A connection comes: from outside, or from another shard. Its slot.
    pub(crate) fn insert(&mut self, shard: &mut Shard, connection: Box<Connection>) -> u32 {
        let id = connection.id;
        if !connection.vhost_name.is_empty() {
            self.vhost_counts.enter(connection.vhost);
        }
        let slot = self.all.insert(connection) as u32;
        self.by_id.insert(id, slot);
        self.arm(shard, slot);
        self.recount(shard, slot);
        slot
    }

    /// A connection goes: its socket is gone, or another shard takes it. It counts no more here.
    pub(crate) fn remove(&mut self, shard: &mut Shard, slot: u32) -> Option<Box<Connection>> {
        self.sum_up(slot);
        let mut connection = self.all.try_remove(slot as usize)?;
        self.by_id.remove(&connection.id);
        self.forget_bytes(shard, &mut connection);
        Some(connection)
    }

    /// The slot of the connection with this id, if it lives here.
    #[must_use]
    pub fn slot_of(&self, id: ConnectionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Bytes of the table by id.
    pub(crate) fn table_bytes(&self) -> usize {
        self.by_id.allocation_size() + self.vhost_counts.memory_bytes()
    }

    /// A connection opens this virtual host.
    pub(crate) fn enter_vhost(&mut self, vhost: VhostId) {
        self.vhost_counts.enter(vhost);
    }

    /// The virtual host is gone.
    pub(crate) fn forget_vhost(&mut self, vhost: VhostId) {
        self.vhost_counts.forget(vhost);
    }

    /// What the connections of a virtual host did, as far as it was summed up; `None` where none ever came.
    pub(crate) fn vhost_sum(&self, vhost: VhostId) -> Option<VhostSum> {
        self.vhost_counts.sum(vhost)
    }

    /// Sums up what so many connections did at most. Whether that are all that did something.
    pub(crate) fn sum_up_vhosts(&mut self, connections_max: usize) -> bool {
        for _ in 0..connections_max {
            let Some(slot) = self.vhost_counts.next() else { break };
            self.sum_up(slot);
        }
        self.vhost_counts.next().is_none()
    }

    fn sum_up(&mut self, slot: u32) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            return race!("the connection in the slot is gone already");
        };
        let octets = (connection.octets.received, connection.octets.sent);
        let vhost = connection.vhost;
        let moved = self.vhost_counts.sum_up(vhost, &mut connection.unsummed, octets);
        if let Some((slot, place)) = moved {
            self[slot].unsummed.moved_to(place);
        }
    }

    /// Whether the client has logged in and opened a vhost, and is not at its end: it counts for limits,
    /// and nobody waits only for what it does to its socket.
    #[must_use]
    pub fn is_open(&self, slot: ConnectionSlot) -> bool {
        self.get(slot.0).is_some_and(|connection| {
            let is_over = matches!(
                connection.session.state(),
                State::Closing | State::Leaving | State::Closed
            );
            !connection.vhost_name.is_empty() && !is_over
        })
    }

    /// Whether the client has asked for the end of the connection and the answer is not on its way.
    #[must_use]
    pub fn owes_end(&self, slot: ConnectionSlot) -> bool {
        self.get(slot.0).is_some_and(|connection| {
            connection.end == Some(ConnectionEnd::ByClient)
                && (connection.session.state() == State::PeerClosing || !connection.send.is_empty())
        })
    }

    /// Whether the connection is closed because the client did not answer the broker's close in time.
    #[must_use]
    pub fn gave_up(&self, slot: ConnectionSlot) -> bool {
        self.get(slot.0).is_some_and(|connection| connection.gave_up)
    }

    /// How many bytes are left to send to a client, those of large bodies included that are not encoded.
    #[must_use]
    pub fn bytes_to_send(&self, slot: ConnectionSlot) -> usize {
        self.get(slot.0).map_or(0, |connection| connection.send.len())
    }

    /// What is to be sent to a client next.
    #[must_use]
    pub fn writable_slices<'a>(
        &'a mut self,
        shard: &'a mut Shard,
        slot: ConnectionSlot,
    ) -> Slices<'a> {
        if self.get(slot.0).is_some_and(|connection| connection.send.is_streaming()) {
            return self.streamed(shard, slot);
        }
        let unsent = |connection: &'a Connection| Slices::of(connection.send.unstreamed());
        self.get(slot.0).map_or(Slices::default(), unsent)
    }

    /// The same while large bodies are on their way.
    #[inline(never)]
    fn streamed<'a>(&'a mut self, shard: &'a mut Shard, slot: ConnectionSlot) -> Slices<'a> {
        let connection = &mut self[slot.0];
        connection.send.encode_next(&mut shard.pool, &connection.session);
        self.recount(shard, slot.0);
        let connection = &self[slot.0];
        connection.send.unsent(&shard.pool, &connection.session)
    }

    /// The driver holds so many bytes for a connection, beside those that were not consumed: a stage of
    /// its own between the socket and here.
    pub fn driver_holds(&mut self, shard: &mut Shard, slot: ConnectionSlot, bytes: usize) {
        let Some(connection) = self.get_mut(slot.0) else {
            invariant!("the driver names connections that are there")
        };
        connection.apart_bytes = bytes + connection.client_properties().bytes().len();
        self.recount(shard, slot.0);
    }

    /// The connection with this id, if it lives here; `hint` is where it probably is.
    pub fn connection(&mut self, id: ConnectionId, hint: u32) -> Option<(u32, &mut Connection)> {
        let slot = match self.all.get(hint as usize) {
            Some(connection) if connection.id == id => hint,
            _ => *self.by_id.get(&id)?,
        };
        self.all.get_mut(slot as usize).map(|connection| (slot, &mut **connection))
    }

    /// The connection in this slot, if it is still the one with this id.
    pub fn connection_at(&mut self, slot: u32, id: ConnectionId) -> Option<&mut Connection> {
        self.all
            .get_mut(slot as usize)
            .map(|connection| &mut **connection)
            .filter(|connection| connection.id == id)
    }

    /// Whether the client of a connection is gone, and something of it is still here.
    pub(crate) fn is_lost(&mut self, id: ConnectionId) -> bool {
        let connection = self.connection(id, u32::MAX);
        connection.is_some_and(|(_, connection)| connection.end == Some(ConnectionEnd::Lost))
    }

    /// This channel, if it is open.
    pub(crate) fn channel_at(&mut self, at: At) -> Option<&mut Channel> {
        let connection = self.connection_at(at.slot, at.channel.connection)?;
        connection.incarnation(at.channel.channel)
    }

    /// Notes that a connection has bytes to send.
    pub fn mark_dirty(&mut self, slot: u32, out: &mut Outbox) {
        if let Some(connection) = self.all.get_mut(slot as usize) {
            mark_dirty(connection, slot, out);
        }
    }

    /// Says something on a channel, or on channel 0 of the connection.
    pub fn answer(&mut self, slot: u32, channel: u16, answer: &Answer<'_>, out: &mut Outbox) {
        if let Some(connection) = self.all.get_mut(slot as usize) {
            connection.answer(channel, answer);
            mark_dirty(connection, slot, out);
        }
    }

    /// Stops reading a connection, for this cause.
    pub fn pause(&mut self, shard: &mut Shard, slot: u32, cause: Cause, out: &mut Outbox) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            return race!("the connection closed before its reading paused");
        };
        let was_read = connection.paused.is_empty();
        if !connection.paused.add(cause) {
            return;
        }
        if was_read {
            connection.session.reading_paused(shard.now.instant, true);
            out.resume.retain(|&resumed| resumed.0 != slot);
            out.pause.push(ConnectionSlot(slot));
        }
        shard.backpressure.wait(cause, (slot, connection.id));
    }

    /// One cause for not reading a connection is over.
    pub fn resume(&mut self, shard: &mut Shard, slot: u32, cause: Cause, out: &mut Outbox) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            return race!("the connection closed before its reading went on");
        };
        if connection.paused.remove(cause) && connection.paused.is_empty() {
            connection.session.reading_paused(shard.now.instant, false);
            out.pause.retain(|&paused| paused.0 != slot);
            out.resume.push(ConnectionSlot(slot));
        }
    }

    /// The same for those that were listed for it, as far as they are still here.
    pub(crate) fn resume_all(
        &mut self,
        shard: &mut Shard,
        waiting: Vec<WaitingConnection>,
        cause: Cause,
        out: &mut Outbox,
    ) {
        for (slot, id) in waiting {
            if self.connection_at(slot, id).is_some() {
                self.resume(shard, slot, cause, out);
            }
        }
    }

    /// Blocks a publishing connection while memory or the disk is short, and says so if the client
    /// can hear. It is read until it publishes again, so that a client that heeds can close.
    pub fn block(&mut self, shard: &mut Shard, slot: u32, shortage: Shortage, out: &mut Outbox) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            return race!("the connection closed before it was blocked");
        };
        if connection.blocked || connection.end.is_some() {
            return;
        }
        connection.blocked = true;
        shard.backpressure.block((slot, connection.id));
        if connection.session.understands(Capability::Blocked) {
            connection.answer(0, &Answer::Blocked(shortage.text()));
            mark_dirty(connection, slot, out);
        }
    }

    /// Reads publishers again that were blocked, if nothing is short any more.
    pub(crate) fn unblock_all(&mut self, shard: &mut Shard, out: &mut Outbox) {
        for (slot, id) in shard.backpressure.end_shortage() {
            let Some(connection) = self.connection_at(slot, id) else {
                race!("the connection closed while something was short");
                continue;
            };
            connection.blocked = false;
            if connection.end.is_none() && connection.session.understands(Capability::Blocked) {
                connection.answer(0, &Answer::Done(Done::Unblocked));
                mark_dirty(connection, slot, out);
            }
            self.resume(shard, slot, Cause::Shortage, out);
        }
    }

    /// Whether a connection must not be read any further: the client does not read its answers, or
    /// mail to some shard has no room.
    #[inline]
    pub(crate) fn must_hold_back(&self, shard: &Shard, slot: u32, out: &Outbox) -> bool {
        let Some(connection) = self.all.get(slot as usize) else {
            return race!("the connection closed over its publish", true);
        };
        connection.send.backlog() > shard.limits.unread_bytes_max || shard.is_mail_full(out)
    }

    /// Whether a connection has published to a shard whose log lags.
    pub(crate) fn feeds_lagging_shard(&self, shard: &Shard, slot: u32) -> bool {
        let Some(connection) = self.all.get(slot as usize) else {
            return race!("the connection closed over its publish", false);
        };
        shard.backpressure.is_log_late_among(&connection.known_shards)
    }

    /// Arms the connection's next timer if it is earlier than the armed one.
    pub fn arm(&mut self, shard: &mut Shard, slot: u32) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            return race!("the connection closed before its timer was armed");
        };
        if connection.session.state() == State::Closed {
            return;
        }
        let next = connection.session.next_timeout();
        if next < connection.armed {
            connection.armed = next;
            shard.timers.arm(next, Timer::Connection(slot, connection.id));
        }
    }

    /// Brings the shard's sum up to date with one connection, after it did something.
    #[inline]
    pub(crate) fn recount(&mut self, shard: &mut Shard, slot: u32) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            return race!("the connection closed before it was counted");
        };
        self.vhost_counts.note(slot, &mut connection.unsummed);
        let bytes = connection.memory_bytes();
        connection.counted_capacity = connection.send.bytes.capacity();
        if connection.uncounted {
            return self.count(shard, slot, bytes);
        }
        shard.connection_bytes = shard.connection_bytes + bytes - connection.counted_bytes;
        connection.counted_bytes = bytes;
    }

    /// Counts a connection that has no vhost yet, or whose channels are not counted.
    #[cold]
    fn count(&mut self, shard: &mut Shard, slot: u32, bytes: usize) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            invariant!("a connection that was just counted is there")
        };
        let before = core::mem::replace(&mut connection.counted_bytes, bytes);
        if connection.vhost_name.is_empty() {
            shard.entering_bytes = shard.entering_bytes + bytes - before;
            return;
        }
        shard.connection_bytes = shard.connection_bytes + bytes - before;
        connection.uncounted = false;
        shard.held.publishers += u64::from(connection.publishes && !connection.counts_as_publisher);
        connection.counts_as_publisher = connection.publishes;
        let count = connection.channels.len();
        let before = core::mem::replace(&mut connection.counted_channels, count);
        shard.held.channels = shard.held.channels + count as u64 - before as u64;
        if before != count {
            self.user_channels.adjust(&connection.user, before, count);
        }
    }

    /// A connection is about to open its vhost: it does not count among those any more that have
    /// not.
    pub(crate) fn let_in(&mut self, shard: &mut Shard, slot: u32) {
        let Some(connection) = self.all.get_mut(slot as usize) else {
            invariant!("a connection that logs in is there")
        };
        shard.entering_bytes -= core::mem::take(&mut connection.counted_bytes);
    }

    /// Takes a connection that leaves the shard out of the sums.
    fn forget_bytes(&mut self, shard: &mut Shard, connection: &mut Connection) {
        let bytes = core::mem::take(&mut connection.counted_bytes);
        match connection.vhost_name.is_empty() {
            true => shard.entering_bytes -= bytes,
            false => shard.connection_bytes -= bytes,
        }
        let channels = core::mem::take(&mut connection.counted_channels);
        shard.held.channels -= channels as u64;
        shard.held.publishers -= u64::from(core::mem::take(&mut connection.counts_as_publisher));
        connection.uncounted = true;
        if channels > 0 {
            self.user_channels.adjust(&connection.user, channels, 0);
        }
    }
}

/// Notes that a connection has bytes to send, if it has any: the driver says nothing about a
/// connection that had none.
pub fn mark_dirty(connection: &mut Connection, slot: u32, out: &mut Outbox) {
    if connection.send.bytes.capacity() > connection.counted_capacity {
        note_growth(connection, slot, out);
    }
    if !connection.dirty && !connection.send.is_empty() {
        connection.dirty = true;
        out.dirty.push(ConnectionSlot(slot));
    }
}

/// Notes that a connection's send buffer takes more memory than is counted.
#[cold]
fn note_growth(connection: &mut Connection, slot: u32, out: &mut Outbox) {
    connection.counted_capacity = connection.send.bytes.capacity();
    out.grown.push(ConnectionSlot(slot));
}

/// How a connection is named in the log: `peer -> server`.
#[must_use]
pub fn connection_name(connection: &Connection) -> String {
    format!("{} -> {}", connection.peer.address, connection.peer.local_address)
}
