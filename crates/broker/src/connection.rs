//! One client connection on its shard: the session, the send buffer and the channels.
//!
//! A connection is *movable* while nothing ties it to its shard: no consumers, nothing
//! unacknowledged or unconfirmed, no open transaction, no exclusive queues, nothing sent to
//! another shard. Then it may be handed to the home of the queue that it names. What is unconfirmed
//! or was sent elsewhere does not last: see [`crate::departure`].

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{ConnectionId, Instant, QueueId, ShardId, VhostId};

use crate::backpressure::{Cause, Causes};
use crate::channel::{Channel, Subscription, Subscriptions, WaitsFor};
use crate::channels::Channels;
use crate::mail::Attachment;
use crate::message_counts::MessageCounts;
use crate::parked::park_end;
use crate::queue::ConsumerKey;
use crate::send_buffer::SendBuffer;
use crate::session::amqp::Amqp;
use crate::session::{Answer, Arguments, Speaker, State};
use crate::traffic::{Octets, Traffic};
use crate::vhost_counts::Unsummed;

/// Bytes of a connection's channels from which on none of them remembers more routes: a few channels that publish to
/// very many queues in turn are served well, and thousands of them take little memory.
const ROUTES_CHANNEL_BYTES_MAX: usize = 256 << 10;

/// Messages that may be under way at once to channels of a connection that asked for them (`basic.get`). How large they are is not known
/// before they come, so this is what bounds them.
pub(crate) const GETS_MAX: u16 = 16;

/// Who is at the other end.
#[derive(Clone, Debug, Default)]
pub struct PeerInfo {
    /// `address:port`.
    pub address: String,
    /// The server's own `address:port` of the connection.
    pub local_address: String,
    /// Whether the peer is this machine.
    pub loopback: bool,
    /// Set on TLS connections.
    pub tls: Option<TlsPeer>,
    /// The user that it has proven to be before it said anything: by a certificate, or to another part of the process.
    pub login_name: Option<String>,
}

/// What TLS tells about the peer.
#[derive(Clone, Debug, Default)]
pub struct TlsPeer {
    /// Protocol version and cipher suite, for people to read.
    pub protocol: String,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The client sent `connection.close`; it gets `close-ok` when all is cleaned up.
    ByClient,
    /// The broker sent `connection.close` and waits for `close-ok`.
    ByBroker,
    /// The socket is gone.
    Lost,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// Unique in the process.
    pub id: ConnectionId,
    /// Who is at the other end.
    pub peer: PeerInfo,
    /// When it was accepted, milliseconds of wall time.
    pub accepted_millis: u64,
    /// What its client speaks.
    pub(crate) session: Speaker,
    /// Bytes on their way to the client.
    pub send: SendBuffer,
    /// Whether it is in the outbox's list of connections with bytes to send.
    pub dirty: bool,
    /// The user, once authenticated.
    pub user: Box<str>,
    /// The vhost, once open.
    pub vhost: VhostId,
    /// The vhost's name.
    pub vhost_name: Box<str>,
    /// Channels by number.
    pub channels: Channels,
    /// Channels whose numbers are free again while other shards still clean up after them.
    #[allow(clippy::vec_box, reason = "a channel moves here in its box and must not be copied")]
    retired_channels: Vec<Box<Channel>>,
    /// Channels opened so far, for incarnations.
    pub incarnations: u64,
    /// Exclusive queues, deleted with the connection.
    pub exclusive_queues: BTreeSet<QueueId>,
    /// Channels with consumers on this shard that wait for room, here or on the channel.
    pub stalled: Vec<u64>,
    /// Bytes delivered by other shards and not yet reported back as sent.
    pub debts: Vec<(ShardId, u64)>,
    /// Shards that got mail of this connection.
    pub known_shards: Vec<ShardId>,
    /// What it has published lately.
    pub traffic: Traffic,
    /// What passed its socket.
    pub octets: Octets,
    /// What the sums of its virtual host lack of it.
    pub(crate) unsummed: Unsummed,
    /// Why it is not read, if it is not.
    pub paused: Causes,
    /// Whether it published while memory was short: its next publish waits until there is room.
    pub blocked: bool,
    /// How the connection ends, once it does.
    pub end: Option<ConnectionEnd>,
    /// Whether the broker ended it: what was said and not done yet is not done any more, and nothing
    /// is said.
    pub is_silent: bool,
    /// Channels and exclusive queues that are still being cleaned up.
    pub cleaning: u32,
    /// Whether the client did not answer the broker's close in time.
    pub gave_up: bool,
    /// Whether the driver reported the socket closed.
    pub gone: bool,
    /// The earliest timer that is armed.
    pub armed: Instant,
    /// Whether the connection was handed over before; it moves at most once a second.
    pub moved_at: Option<Instant>,
    /// Whether it has published.
    pub publishes: bool,
    /// Whether its send buffer is given back when it is found empty.
    pub trimmable: bool,
    /// Bytes that came and are not consumed, at the last look.
    pub leftover_bytes: usize,
    /// Bytes that the driver holds for it, and those of what the client told about itself.
    pub apart_bytes: usize,
    /// Bytes of parked frames of all channels.
    pub parked_bytes: usize,
    /// Messages that its channels have asked for with `basic.get` and that have yet to come.
    pub gets_under_way: u16,
    /// Bytes held by open transactions of all channels.
    pub tx_bytes: usize,
    /// Bytes of its channels, as far as they were counted.
    channel_bytes: usize,
    /// What the shard's sum has of it.
    pub counted_bytes: usize,
    /// Room of the send buffer that is counted in them.
    pub counted_capacity: usize,
    /// Channels that the user's count has of it.
    pub counted_channels: usize,
    /// Whether it is counted among those that have published.
    pub counts_as_publisher: bool,
    /// Whether its bytes count among those of connections without a vhost, its channels are more
    /// or fewer than counted, or it has begun to publish.
    pub uncounted: bool,
}

/// Bytes that a session takes, beside what it says that it holds.
const SESSION_BYTES: usize = size_of::<Amqp>();

impl Connection {
    /// A connection that was just accepted.
    #[must_use]
    pub(crate) fn new(
        id: ConnectionId,
        peer: PeerInfo,
        session: Speaker,
        accepted_millis: u64,
    ) -> Connection {
        Connection {
            id,
            peer,
            accepted_millis,
            session,
            send: SendBuffer::default(),
            dirty: false,
            user: "".into(),
            vhost: VhostId::default(),
            vhost_name: "".into(),
            channels: Channels::default(),
            retired_channels: Vec::new(),
            incarnations: 0,
            exclusive_queues: BTreeSet::new(),
            stalled: Vec::new(),
            debts: Vec::new(),
            known_shards: Vec::new(),
            traffic: Traffic::default(),
            octets: Octets::default(),
            unsummed: Unsummed::default(),
            paused: Causes::default(),
            blocked: false,
            end: None,
            is_silent: false,
            cleaning: 0,
            gave_up: false,
            gone: false,
            armed: Instant::NEVER,
            moved_at: None,
            publishes: false,
            trimmable: false,
            counted_capacity: 0,
            leftover_bytes: 0,
            apart_bytes: 0,
            parked_bytes: 0,
            gets_under_way: 0,
            tx_bytes: 0,
            channel_bytes: 0,
            counted_bytes: 0,
            counted_channels: 0,
            counts_as_publisher: false,
            uncounted: true,
        }
    }

    /// The channel with this number.
    #[must_use]
    pub fn channel(&self, number: u16) -> Option<&Channel> {
        self.channels.get(number)
    }

    /// The channel with this number.
    pub fn channel_mut(&mut self, number: u16) -> Option<&mut Channel> {
        self.channels.get_mut(number)
    }

    /// The channel of this incarnation.
    #[inline(always)]
    pub fn incarnation(&mut self, key: u64) -> Option<&mut Channel> {
        match self.channels.get_mut(key as u16).filter(|channel| channel.key == key) {
            Some(channel) => Some(channel),
            None => Self::retired_incarnation(&mut self.retired_channels, key),
        }
    }

    #[cold]
    fn retired_incarnation(retired: &mut [Box<Channel>], key: u64) -> Option<&mut Channel> {
        retired.iter_mut().find(|channel| channel.key == key).map(|channel| &mut **channel)
    }

    /// Frees a channel's number while other shards still clean up after it.
    pub fn retire_channel(&mut self, number: u16) {
        if let Some(channel) = self.channels.take(number) {
            self.uncounted = true;
            self.retired_channels.push(channel);
        }
    }

    /// Whether a channel's number is free although the channel is not quite gone.
    #[must_use]
    pub fn is_retired(&self, key: u64) -> bool {
        self.retired_channels.iter().any(|channel| channel.key == key)
    }

    /// Nothing of a retired channel is left.
    pub fn remove_retired(&mut self, key: u64) {
        let channel_bytes = &mut self.channel_bytes;
        self.retired_channels.retain(|channel| {
            let stays = channel.key != key;
            if !stays {
                *channel_bytes -= channel.counted_bytes;
            }
            stays
        });
    }

    /// Channels whose numbers are free although they are not quite gone.
    pub fn retired(&self) -> impl Iterator<Item = &Channel> {
        self.retired_channels.iter().map(|channel| &**channel)
    }

    /// The consumer with this key.
    pub fn subscription(&mut self, key: ConsumerKey) -> Option<&mut Subscription> {
        self.incarnation(key.channel)?.subscription_mut(key.consumer)
    }

    /// Lets a consumer wait for room, here or on its channel.
    pub(crate) fn stall(&mut self, key: ConsumerKey) {
        let channel = self.incarnation(key.channel);
        if let Some(all) = channel.and_then(|channel| channel.subscriptions.as_mut())
            && all.wait(key.consumer, WaitsFor::Room)
        {
            self.list(key.channel);
        }
    }

    /// Puts a channel on the list of those with consumers that wait for room.
    pub(crate) fn list(&mut self, key: u64) {
        if let Some(all) = self.incarnation(key).and_then(|one| one.subscriptions.as_mut())
            && !core::mem::replace(&mut all.is_listed, true)
        {
            self.stalled.push(key);
        }
    }

    /// A channel was taken off that list. How many of its consumers wait.
    pub(crate) fn unlist(&mut self, key: u64) -> u32 {
        let channel = self.incarnation(key);
        let Some(all) = channel.and_then(|channel| channel.subscriptions.as_mut()) else {
            return race!("the channel closed before the turn of its consumers", 0);
        };
        all.is_listed = false;
        all.waiting(WaitsFor::Room)
    }

    /// Opens a channel; the number must be free.
    pub fn open_channel(&mut self, number: u16) -> &mut Channel {
        self.incarnations += 1;
        self.uncounted = true;
        let key = self.incarnations << 16 | u64::from(number);
        let channel = self.channels.insert(number, Channel::new(key));
        channel.counted_bytes = channel.memory_bytes();
        self.channel_bytes += channel.counted_bytes;
        channel
    }

    /// Brings the sum up to date with a channel of which tables were changed.
    pub(crate) fn account_channel(&mut self, key: u64) {
        let Some(channel) = self.incarnation(key) else {
            invariant!("a channel that is accounted for is there")
        };
        let bytes = channel.memory_bytes();
        let before = core::mem::replace(&mut channel.counted_bytes, bytes);
        self.channel_bytes = self.channel_bytes + bytes - before;
    }

    /// Whether a connection that was not read since it did not read has read enough, of what there may be so many bytes,
    /// and few messages are under way to it that it asked for.
    pub(crate) fn has_read(&self, unread_bytes_max: usize) -> bool {
        self.send.backlog() <= unread_bytes_max / 2 && self.gets_under_way <= GETS_MAX / 2
    }

    /// A question for a message has its answer.
    pub(crate) fn get_ended(&mut self) {
        assert!(self.gets_under_way > 0, "an answer came that nobody asked for");
        self.gets_under_way -= 1;
    }

    /// Whether its channels take so little that one of them may remember several routes.
    pub(crate) fn may_remember_routes(&self) -> bool {
        self.channel_bytes < ROUTES_CHANNEL_BYTES_MAX
    }

    /// The same for all channels.
    pub(crate) fn account_channels(&mut self) {
        self.channel_bytes = 0;
        let retired = self.retired_channels.iter_mut().map(|channel| &mut **channel);
        for channel in self.channels.iter_mut().chain(retired) {
            channel.counted_bytes = channel.memory_bytes();
            self.channel_bytes += channel.counted_bytes;
        }
    }

    /// Bytes of the connection itself, its channels, consumers and unacknowledged deliveries.
    pub(crate) fn table_bytes(&self) -> usize {
        size_of::<Connection>() + SESSION_BYTES + self.channels.table_bytes() + self.channel_bytes
    }

    /// Frees a channel's number.
    pub fn remove_channel(&mut self, number: u16) {
        if let Some(gone) = self.channels.take(number) {
            self.uncounted = true;
            self.channel_bytes -= gone.counted_bytes;
        }
    }

    /// Open channels.
    pub fn open_channels(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter()
    }

    /// Consumers with a filter, of open channels.
    pub(crate) fn filtered_consumers(&self) -> usize {
        let all = self.open_channels().filter_map(|channel| channel.subscriptions.as_ref());
        all.map(|subscriptions| subscriptions.filtered()).sum()
    }

    /// Open channels, and those whose numbers are free although they are not quite gone.
    pub(crate) fn all_channels(&self) -> impl Iterator<Item = &Channel> {
        self.open_channels().chain(self.retired())
    }

    /// Whether nothing ties the connection to its shard, now.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        self.may_leave()
            && self.is_quiet()
            && self.paused.is_empty()
            && self.known_shards.is_empty()
    }

    /// Whether nothing ties the connection to its shard but what will be over soon, if it is not
    /// read.
    #[must_use]
    pub fn may_leave(&self) -> bool {
        self.end.is_none()
            && !self.blocked
            && self.session.state() == State::Running
            && self.exclusive_queues.is_empty()
            && self.open_channels().all(|channel| !channel.is_tied())
    }

    /// Whether nothing ties the connection to its shard but what will be over soon, and what may go
    /// to shard `to`, another one, with it: consumers of queues there.
    #[must_use]
    pub fn may_leave_to(&self, to: ShardId) -> bool {
        self.end.is_none()
            && !self.blocked
            && self.session.state() == State::Running
            && self.exclusive_queues.is_empty()
            && self.open_channels().all(|channel| !channel.is_tied_but_to(to))
    }

    /// Its consumers, and what their queues know them by.
    #[must_use]
    pub fn attachments(&self) -> Vec<Attachment> {
        let mut all = Vec::new();
        for channel in self.open_channels() {
            for (number, subscription) in
                channel.subscriptions.iter().flat_map(|subscriptions| &subscriptions.by_number)
            {
                let consumer = number as u32;
                let key = ConsumerKey { connection: self.id, channel: channel.key, consumer };
                let (queue, handle) = (subscription.queue, subscription.handle);
                all.push(Attachment { queue, key, handle });
            }
        }
        all
    }

    /// Whether nothing of the connection is under way on its shard.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.paused.without(Cause::Move).is_empty()
            && !self.send.is_streaming()
            && self.debts.is_empty()
            && self.retired_channels.is_empty()
            && self.open_channels().all(Channel::is_quiet)
    }

    /// Lets its consumers know that a queue has another home and another id, and the connection that it has said
    /// something to that shard, if it had to the one before. `tell` gets the consumers that are of another shard's
    /// queue now, and whether a channel-wide prefetch limit governs each.
    pub(crate) fn redirect(
        &mut self,
        (old, before): (QueueId, ShardId),
        (id, to): (QueueId, ShardId),
        own: ShardId,
        mut tell: impl FnMut(ConsumerKey, bool),
    ) {
        let mut is_touched = self.known_shards.contains(&before);
        for channel in self.channels.iter_mut() {
            let is_governed = channel.global.as_ref().is_some_and(|global| global.limit > 0);
            let key = channel.key;
            let Some(subscriptions) = &mut channel.subscriptions else { continue };
            let Subscriptions { by_number, ungoverned, .. } = &mut **subscriptions;
            for (number, subscription) in by_number {
                if subscription.queue != old {
                    continue;
                }
                (subscription.queue, subscription.home) = (id, to);
                subscription.queue_slot = u32::MAX;
                is_touched = true;
                let consumer = number as u32;
                ungoverned.remove(&consumer);
                if to != own {
                    if !is_governed {
                        ungoverned.insert(consumer);
                    }
                    tell(ConsumerKey { connection: self.id, channel: key, consumer }, is_governed);
                }
            }
        }
        if is_touched {
            self.note_shard(to);
        }
    }

    /// Counts a message for a queue of shard `home`; `own` is the connection's.
    #[inline]
    pub fn count(&mut self, home: ShardId, own: ShardId) {
        if home == own {
            self.traffic.here += 1;
        } else {
            self.note_shard(home);
            self.traffic.count(home);
        }
    }

    /// Counts messages for a channel and for the connection.
    #[inline]
    pub(crate) fn count_messages(&mut self, key: u64, mut count: impl FnMut(&mut MessageCounts)) {
        count(self.unsummed.counts());
        if let Some(channel) = self.incarnation(key) {
            count(&mut channel.counts);
        }
    }

    /// What the client said about itself.
    #[must_use]
    pub fn client_properties(&self) -> Arguments<'_> {
        self.session.client_properties()
    }

    /// Says something on a channel, or on channel 0 of the connection.
    pub(crate) fn answer(&mut self, channel: u16, answer: &Answer<'_>) {
        self.session.answer(channel, answer, &mut self.send.bytes);
    }

    /// Whether a channel of it hears nothing any more.
    pub(crate) fn is_unheard(&mut self, key: u64) -> bool {
        self.is_silent || self.incarnation(key).is_none_or(|channel| channel.ending.is_some())
    }

    /// Puts its end behind what was said before on a channel. Whether the channel has to be looked at again, because it
    /// waits for nothing.
    pub(crate) fn park_end(&mut self, key: u64) -> bool {
        let Some(channel) = self.incarnation(key) else {
            return race!("the channel closed before its end was parked", false);
        };
        let before = channel.parked.len();
        park_end(&mut channel.parked);
        let added = channel.parked.len() - before;
        let waits = channel.pending.is_some();
        self.parked_bytes += added;
        !waits
    }

    /// Leaves its shard: what is only known there is forgotten.
    pub(crate) fn leave_shard(&mut self, now: Instant) {
        self.dirty = false;
        self.trimmable = false;
        self.armed = Instant::NEVER;
        self.known_shards.clear();
        self.traffic = Traffic::default();
        self.stalled.clear();
        if !self.paused.is_empty() {
            self.paused = Causes::default();
            self.session.reading_paused(now, false);
        }
        for channel in self.channels.iter_mut() {
            channel.routes = None;
            if let Some(all) = &mut channel.subscriptions {
                all.end_waits();
                all.is_listed = false;
            }
            if let Some(confirms) = &mut channel.confirms {
                confirms.listed = false;
            }
        }
        self.account_channels();
    }

    /// Remembers that `shard` got mail of this connection.
    pub fn note_shard(&mut self, shard: ShardId) {
        if !self.known_shards.contains(&shard) {
            self.known_shards.push(shard);
        }
    }
}
