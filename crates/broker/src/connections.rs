//! The connections of a shard: their sockets are here, and so is all that their clients have open.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{ConnectionId, HashMap, HashState, Now, ShardId, Slab};

use crate::acknowledgement::Looks;
use crate::backpressure::{Cause, WaitingConnection};
use crate::census::Census;
use crate::connection::Connection;
use crate::departure::Departures;
use crate::ends::{End, Ends};
use crate::follow_ups::FollowUps;
use crate::mail::{ChannelRef, Shortage};
use crate::outbox::{ConnectionSlot, Outbox};
use crate::reply_to::UnreadReplies;
use crate::session::{Answer, Capability, Done, State};
use crate::settle::Settling;
use crate::shard::Shard;
use crate::timers::Timer;
use crate::token::Names;
use crate::user_channels::UserChannels;

/// How long an empty send buffer keeps its memory, about.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);

/// The connections of a shard.
#[derive(Debug)]
pub struct Connections {
    /// Connections by slot.
    pub all: Slab<Box<Connection>>,
    /// Slots by connection id.
    pub by_id: HashMap<ConnectionId, u32>,
    /// What is left to be done for connections.
    pub follow_ups: FollowUps,
    /// How many channels the users have.
    pub user_channels: UserChannels,
    /// Connections whose empty send buffers are given back before long.
    pub spacious: Vec<(u32, ConnectionId)>,
    /// Direct replies that nobody reads.
    pub unread_replies: UnreadReplies,
    /// Connections of all shards by vhost and user.
    pub(crate) census: Census,
    /// Looks at deliveries that wait for their acknowledgement.
    pub(crate) looks: Looks,
    /// Names that the broker makes up for clients.
    pub(crate) names: Names,
    /// The slot at which [`crate::Broker::talks`] looked last.
    pub(crate) looked_at: usize,
    /// Acknowledgements that are served in slices.
    pub(crate) settlings: VecDeque<Settling>,
    /// What ends and takes long.
    pub(crate) ends: Ends<End>,
    /// Connections on their way to other shards.
    pub(crate) departures: Departures,
}

impl Connections {
    /// No connections.
    #[must_use]
    pub(crate) fn new(hash: HashState, secret: [u8; 32], shard: ShardId) -> Connections {
        Connections {
            all: Slab::new(),
            by_id: HashMap::with_hasher(hash),
            follow_ups: FollowUps::default(),
            user_channels: UserChannels::new(hash),
            spacious: Vec::new(),
            unread_replies: UnreadReplies::default(),
            census: Census::new(hash),
            looks: Looks::default(),
            names: Names::new(secret, shard),
            looked_at: 0,
            settlings: VecDeque::new(),
            ends: Ends::default(),
            departures: Departures::default(),
        }
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
        connection.is_some_and(|(_, connection)| {
            connection.end == Some(crate::connection::ConnectionEnd::Lost)
        })
    }

    /// Notes that a connection has bytes to send.
    pub fn mark_dirty(&mut self, slot: u32, out: &mut Outbox) {
        if let Some(connection) = self.all.get_mut(slot as usize) {
            mark_dirty(connection, slot, out);
        }
    }

    /// Puts a channel on the list of those whose parked frames can be handled.
    pub(crate) fn unpark(&mut self, slot: u32, channel: ChannelRef) {
        let Some(connection) = self.connection_at(slot, channel.connection) else {
            return;
        };
        let Some(parked) = connection.incarnation(channel.channel) else { return };
        if !parked.parked.is_empty() && !parked.unparking {
            parked.unparking = true;
            self.follow_ups.unpark(slot, channel.connection, channel.channel);
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
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
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
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
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
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
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
            let Some(connection) = self.connection_at(slot, id) else { continue };
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
    pub(crate) fn must_press(&self, shard: &Shard, slot: u32, out: &Outbox) -> bool {
        let Some(connection) = self.all.get(slot as usize) else { return true };
        connection.send.backlog() > shard.limits.unread_bytes_max || shard.is_mail_full(out)
    }

    /// Whether a connection has published to a shard whose log lags.
    pub(crate) fn feeds_lagging_shard(&self, shard: &Shard, slot: u32) -> bool {
        let Some(connection) = self.all.get(slot as usize) else { return false };
        shard.backpressure.is_log_late_among(&connection.touched)
    }

    /// Arms the connection's next timer if it is earlier than the armed one.
    pub fn arm(&mut self, shard: &mut Shard, slot: u32) {
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
        if connection.session.state() == State::Closed {
            return;
        }
        let next = connection.session.next_timeout();
        if next < connection.armed {
            connection.armed = next;
            shard.timers.arm(next, Timer::Connection(slot, connection.id));
        }
    }

    /// A direct reply to the connection in this slot is dropped.
    pub(crate) fn drop_unread_reply(&mut self, shard: &mut Shard, slot: u32, out: &mut Outbox) {
        if self.unread_replies.is_told_later() {
            return;
        }
        let Some(connection) = self.all.get(slot as usize) else { return };
        let name = connection_name(connection);
        self.unread_replies.tell_one(&name, shard.now, &mut shard.timers, out);
    }

    /// Brings the shard's sum up to date with one connection.
    #[inline]
    pub(crate) fn recount(&mut self, shard: &mut Shard, slot: u32) {
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
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
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
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
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
        shard.entering_bytes -= core::mem::take(&mut connection.counted_bytes);
    }

    /// Notes a send buffer that is empty and keeps its memory, to be looked at again.
    #[inline]
    pub(crate) fn note_spacious(&mut self, shard: &mut Shard, slot: u32, now: Now) {
        let Some(connection) = self.all.get_mut(slot as usize) else { return };
        if connection.spacious || !connection.send.is_empty() || !connection.send.is_spacious() {
            return;
        }
        connection.spacious = true;
        if self.spacious.is_empty() {
            shard.timers.arm(now.instant + TRIM_INTERVAL, Timer::Trim);
        }
        self.spacious.push((slot, connection.id));
    }

    /// Takes a connection that leaves the shard out of the sums.
    pub(crate) fn forget_bytes(&mut self, shard: &mut Shard, connection: &mut Connection) {
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
