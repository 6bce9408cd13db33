//! Who waits for what, on one shard.
//!
//! Whatever can hold somebody up is a [`Cause`], and whoever is held up is put on the list of its cause: a
//! connection that is not read, a consumer on another shard that gets nothing, a queue that makes no further dead
//! letters, a command whose queue has something to read from the disk first. Who ends a cause takes its list and
//! has those go on. Who waits is listed under one cause at a time, but for connections, which may have several
//! reasons not to be read ([`Causes`]).
//!
//! What is short here and on other shards is known here, too, since that is what decides who has to wait.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use lepus_base::{ConnectionId, QueueId, ShardId};

use crate::mail::{AlarmSource, ChannelRef, Command, Shortage};
use crate::owner::{Conditions, Owner};
use crate::queue::ConsumerKey;

/// What a consumer on another shard that waits takes, in bytes, about.
const CONSUMER_BYTES: usize = 64;
/// The same of a command.
const COMMAND_BYTES: usize = size_of::<((QueueId, u64), (ChannelRef, Command))>();

/// Why a connection is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// One of its channels has too many frames that wait for an answer. Over when few are left.
    Parked = 1,
    /// Mail to another shard waits in its batch, or its own shard waits for more memory. Over when there is room.
    Mail = 2,
    /// The memory budget is used up, or a disk is full, and the client publishes. Over when neither is so.
    Shortage = 4,
    /// The client does not read what it is answered. Over when it has read half of it.
    Unread = 8,
    /// A log to which it publishes has too much to write. Over when that is written.
    Log = 16,
    /// It is about to go to another shard. Over when it has gone, or stays.
    Move = 32,
    /// The turn has done enough for what clients ask. Over with the turn.
    Turn = 64,
}

/// Why a connection is not read: none or several causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes(u8);

impl Causes {
    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    #[inline]
    #[must_use]
    pub fn has(self, cause: Cause) -> bool {
        self.0 & cause as u8 != 0
    }

    /// Adds one. Whether it was not there.
    pub fn add(&mut self, cause: Cause) -> bool {
        let was_there = self.has(cause);
        self.0 |= cause as u8;
        !was_there
    }

    /// Takes one away. Whether it was there.
    pub fn remove(&mut self, cause: Cause) -> bool {
        let was_there = self.has(cause);
        self.0 &= !(cause as u8);
        was_there
    }

    /// The same without this one.
    #[must_use]
    pub fn without(mut self, cause: Cause) -> Causes {
        self.remove(cause);
        self
    }
}

/// A connection that waits: its slot, and the id that it had when it began.
pub type WaitingConnection = (u32, ConnectionId);
/// A consumer on another shard that waits, and its queue.
pub type WaitingConsumer = (QueueId, ConsumerKey);
/// A queue that waits: its slot, which is a hint, and its id.
pub type WaitingQueue = (u32, QueueId);

/// All lists of who waits for what on one shard, and what is short.
#[derive(Debug, Default)]
pub struct Backpressure {
    /// Connections that are read again when the turn ends.
    turn: Vec<WaitingConnection>,
    /// Those that are read again when mail has room.
    mail: Vec<WaitingConnection>,
    /// Those that are read again when the logs that they publish to have caught up.
    log: Vec<WaitingConnection>,
    /// Those that published while something was short: they are read until they publish again.
    blocked: Vec<WaitingConnection>,
    consumers: WaitingConsumers,
    /// Queues whose expiry waits until fewer dead letters are on their way.
    behind_dead_letters: Vec<WaitingQueue>,
    commands: WaitingCommands,
    /// What is short here.
    shortage: Option<Shortage>,
    /// What is short on other shards.
    short_elsewhere: Vec<(ShardId, Shortage)>,
    /// Whether memory was full at any moment since the shortage was looked at last.
    was_memory_full: bool,
    /// Whether a log of this shard lags, as the other shards were told.
    is_log_late: bool,
    /// Other shards whose logs lag.
    late_elsewhere: Vec<ShardId>,
    /// Whether some that wait for a log may go on: one has caught up, or somebody came to wait.
    must_look_at_logs: bool,
}

/// Connections.
impl Backpressure {
    /// A connection begins to wait, for one more cause. [`Cause::Parked`], [`Cause::Unread`] and [`Cause::Move`] end
    /// for each connection by itself: nobody is listed for them.
    pub(crate) fn wait(&mut self, cause: Cause, connection: WaitingConnection) {
        match cause {
            Cause::Turn => self.turn.push(connection),
            Cause::Mail => self.mail.push(connection),
            Cause::Log => {
                self.log.push(connection);
                self.must_look_at_logs = true;
            }
            Cause::Parked | Cause::Unread | Cause::Shortage | Cause::Move => {}
        }
    }

    /// The turn is over: those that waited for that.
    pub(crate) fn end_turn(&mut self) -> Vec<WaitingConnection> {
        core::mem::take(&mut self.turn)
    }

    /// Mail has room: those that waited for that.
    pub(crate) fn end_mail(&mut self) -> Vec<WaitingConnection> {
        core::mem::take(&mut self.mail)
    }

    /// Whether connections wait for the next turn.
    fn has_put_off(&self) -> bool {
        !self.turn.is_empty()
    }

    /// Whether a connection or a consumer waits for mail to have room.
    pub(crate) fn waits_for_mail(&self) -> bool {
        !(self.mail.is_empty() && self.consumers.by_mail.is_empty())
    }
}

/// Stand for shards on which something is short because somebody says so, each for who does: every connection sends there.
const ORDERED: ShardId = ShardId(u16::MAX);
const MEASURED: ShardId = ShardId(u16::MAX - 1);

/// Whether a shard stands for somebody who says that something is short.
#[inline]
fn is_said(shard: ShardId) -> bool {
    shard >= MEASURED
}

/// What is short.
impl Backpressure {
    /// A connection published while something is short: it waits when it publishes again.
    pub(crate) fn block(&mut self, connection: WaitingConnection) {
        self.blocked.push(connection);
    }

    /// Nothing is short any more: those that were blocked for it.
    pub(crate) fn end_shortage(&mut self) -> Vec<WaitingConnection> {
        match self.is_anything_short() {
            true => Vec::new(),
            false => core::mem::take(&mut self.blocked),
        }
    }

    /// Those that are blocked because something is short.
    pub fn blocked(&self) -> impl Iterator<Item = ConnectionId> {
        self.blocked.iter().map(|(_, id)| *id)
    }

    /// What is short on this shard.
    #[inline]
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// Whether this shard's memory is used up.
    #[inline]
    #[must_use]
    pub fn is_memory_short(&self) -> bool {
        self.shortage == Some(Shortage::Memory)
    }

    /// Whether there is a memory alarm that this shard raised, or somebody by order.
    #[must_use]
    pub fn has_memory_alarm(&self) -> bool {
        self.is_memory_short() || self.is_ordered(Shortage::Memory)
    }

    /// Whether something is short here or on another shard.
    #[must_use]
    pub fn is_anything_short(&self) -> bool {
        self.shortage.is_some() || self.is_short_elsewhere()
    }

    /// Whether something is short on another shard.
    #[inline]
    #[must_use]
    pub fn is_short_elsewhere(&self) -> bool {
        !self.short_elsewhere.is_empty()
    }

    /// What is short on the first of these shards, this one left out, that is short of something.
    pub(crate) fn shortage_among(&self, shards: &[ShardId]) -> Option<Shortage> {
        let concerns = |shard: &ShardId| shards.contains(shard) || is_said(*shard);
        let short = self.short_elsewhere.iter().find(|(shard, _)| concerns(shard));
        short.map(|&(_, shortage)| shortage)
    }

    /// Somebody says that something is short, or that it is not any more, whatever there is of it.
    pub(crate) fn order_shortage(&mut self, shortage: Shortage, is_on: bool, source: AlarmSource) {
        let who = match source {
            AlarmSource::Operator => ORDERED,
            AlarmSource::Measure => MEASURED,
        };
        self.short_elsewhere.retain(|&(shard, other)| shard != who || other != shortage);
        if is_on {
            self.short_elsewhere.push((who, shortage));
        }
    }

    /// Whether somebody says that this is short.
    #[must_use]
    pub fn is_ordered(&self, shortage: Shortage) -> bool {
        let mut said = self.short_elsewhere.iter().filter(|(shard, _)| is_said(*shard));
        said.any(|&(_, short)| short == shortage)
    }

    /// What somebody says is short, if anything.
    #[inline]
    pub(crate) fn ordered(&self) -> Option<Shortage> {
        let ordered = self.short_elsewhere.iter().find(|(shard, _)| is_said(*shard));
        ordered.map(|&(_, shortage)| shortage)
    }

    /// Something is short here from now on, or nothing. Whether the other shards have to be told.
    pub(crate) fn set_shortage(&mut self, shortage: Option<Shortage>) -> bool {
        core::mem::replace(&mut self.shortage, shortage) != shortage
    }

    /// Another shard says what it is short of.
    pub(crate) fn set_shortage_of(&mut self, shard: ShardId, shortage: Option<Shortage>) {
        self.short_elsewhere.retain(|&(other, _)| other != shard);
        self.short_elsewhere.extend(shortage.map(|shortage| (shard, shortage)));
    }

    /// A publisher found memory full.
    pub(crate) fn note_memory_full(&mut self) {
        self.was_memory_full = true;
    }

    /// Whether one did since this was asked last.
    pub(crate) fn take_memory_full(&mut self) -> bool {
        core::mem::take(&mut self.was_memory_full)
    }
}

/// Logs that lag.
impl Backpressure {
    /// Whether a log of this shard lags, as the other shards were told.
    pub(crate) fn is_log_late(&self) -> bool {
        self.is_log_late
    }

    /// A log of this shard lags, or none does. Whether the other shards have to be told.
    pub(crate) fn set_log_late(&mut self, is_late: bool) -> bool {
        let has_changed = core::mem::replace(&mut self.is_log_late, is_late) != is_late;
        self.must_look_at_logs |= has_changed;
        has_changed
    }

    /// The same of another shard.
    pub(crate) fn set_log_late_of(&mut self, shard: ShardId, is_late: bool) {
        self.late_elsewhere.retain(|&other| other != shard);
        self.late_elsewhere.extend(is_late.then_some(shard));
        self.must_look_at_logs = true;
    }

    /// Whether a log lags on one of these shards, this one left out.
    #[inline]
    pub(crate) fn is_log_late_among(&self, shards: &[ShardId]) -> bool {
        self.late_elsewhere.iter().any(|shard| shards.contains(shard))
    }

    /// Those that wait for a log, if some of them may go on: who still has to waits again.
    pub(crate) fn look_at_logs(&mut self) -> Vec<WaitingConnection> {
        if self.is_log_late || !core::mem::take(&mut self.must_look_at_logs) {
            return Vec::new();
        }
        core::mem::take(&mut self.log)
    }

    /// One that was looked at goes on waiting for a log.
    pub(crate) fn keep_waiting_for_log(&mut self, connection: WaitingConnection) {
        self.log.push(connection);
    }
}

/// Consumers on other shards that wait, in the order in which they began. Each has a place in one of the lists.
#[derive(Debug, Default)]
struct WaitingConsumers {
    /// Those that wait because the mail to their shard is full.
    by_mail: BTreeMap<u64, WaitingConsumer>,
    /// Those that wait for room on their connection.
    by_connection: BTreeMap<(ConnectionId, u64), WaitingConsumer>,
    /// The place that was given last.
    last: u64,
}

impl Backpressure {
    /// A consumer on another shard, which waits nowhere, waits for mail to have room. Its place.
    pub(crate) fn wait_for_mail(&mut self, consumer: WaitingConsumer) -> u64 {
        let waiting = &mut self.consumers;
        waiting.last += 1;
        waiting.by_mail.insert(waiting.last, consumer);
        waiting.last
    }

    /// A consumer on another shard, which waits nowhere, waits for room on its connection. Its place.
    pub(crate) fn wait_for_connection(&mut self, consumer: WaitingConsumer) -> u64 {
        let waiting = &mut self.consumers;
        waiting.last += 1;
        waiting.by_connection.insert((consumer.1.connection, waiting.last), consumer);
        waiting.last
    }

    /// A consumer that has this place waits no longer.
    pub(crate) fn end_wait(&mut self, key: ConsumerKey, place: u64) {
        let by_mail = self.consumers.by_mail.remove(&place).is_some();
        let by_connection = self.consumers.by_connection.remove(&(key.connection, place)).is_some();
        assert!(by_mail != by_connection, "a consumer that has a place waits for one thing");
    }

    /// How many wait for mail to have room.
    pub(crate) fn consumers_behind_mail(&self) -> usize {
        self.consumers.by_mail.len()
    }

    /// The one that has waited longest for mail to have room.
    pub(crate) fn first_behind_mail(&self) -> Option<WaitingConsumer> {
        self.consumers.by_mail.first_key_value().map(|(_, consumer)| *consumer)
    }

    /// The one that has waited longest for room on this connection.
    pub(crate) fn first_behind(&self, connection: ConnectionId) -> Option<WaitingConsumer> {
        let all = (connection, 0)..=(connection, u64::MAX);
        self.consumers.by_connection.range(all).next().map(|(_, consumer)| *consumer)
    }
}

/// Queues.
impl Backpressure {
    /// A queue makes no further dead letters by expiry before fewer are on their way.
    pub(crate) fn wait_behind_dead_letters(&mut self, queue: WaitingQueue) {
        self.behind_dead_letters.push(queue);
    }

    /// Whether one waits for that.
    pub(crate) fn waits_for_dead_letters(&self) -> bool {
        !self.behind_dead_letters.is_empty()
    }

    /// Whether this queue does.
    pub(crate) fn is_behind_dead_letters(&self, id: QueueId) -> bool {
        self.behind_dead_letters.iter().any(|queue| queue.1 == id)
    }

    /// Few dead letters are left: the queues that waited for that.
    pub(crate) fn end_dead_letters(&mut self) -> Vec<WaitingQueue> {
        core::mem::take(&mut self.behind_dead_letters)
    }
}

/// Commands to queues of this shard that cannot be carried out yet.
#[derive(Debug, Default)]
struct WaitingCommands {
    /// Those that are tried again in the next turn, in their order.
    next_turn: VecDeque<(ChannelRef, QueueId, Command)>,
    /// Those whose queue waits for the disk, in their order.
    disk: BTreeMap<(QueueId, u64), (ChannelRef, Command)>,
    /// How many have waited for the disk so far.
    last: u64,
}

impl Backpressure {
    /// A command waits for the next turn, behind those that do so, too.
    pub(crate) fn try_next_turn(&mut self, from: ChannelRef, queue: QueueId, command: Command) {
        self.commands.next_turn.push_back((from, queue, command));
    }

    /// A command waits until its queue has read something from the disk.
    pub(crate) fn wait_for_disk(&mut self, from: ChannelRef, queue: QueueId, command: Command) {
        let waiting = &mut self.commands;
        waiting.last += 1;
        waiting.disk.insert((queue, waiting.last), (from, command));
    }

    /// A queue has read what it waited for, or is gone: its commands are tried in the next turn.
    pub(crate) fn end_disk(&mut self, queue: QueueId) {
        let waiting = &mut self.commands;
        let all = (queue, 0)..=(queue, u64::MAX);
        while let Some((&key, _)) = waiting.disk.range(all.clone()).next() {
            if let Some((from, command)) = waiting.disk.remove(&key) {
                waiting.next_turn.push_back((from, queue, command));
            }
        }
    }

    /// The queues for which commands wait until they have read something.
    pub(crate) fn queues_with_commands(&self) -> impl Iterator<Item = QueueId> {
        self.commands.disk.keys().map(|(queue, _)| *queue)
    }

    /// How many commands are to be tried now.
    pub(crate) fn commands_to_try(&self) -> usize {
        self.commands.next_turn.len()
    }

    /// The next command to be tried.
    pub(crate) fn next_command(&mut self) -> Option<(ChannelRef, QueueId, Command)> {
        self.commands.next_turn.pop_front()
    }

    /// Whether a command to this queue waits.
    fn has_command_to(&self, queue: QueueId) -> bool {
        let mut of_disk = self.commands.disk.range((queue, 0)..=(queue, u64::MAX));
        of_disk.next().is_some() || self.commands.next_turn.iter().any(|(_, id, _)| *id == queue)
    }

    /// Memory that its lists take, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let consumers = &self.consumers;
        let commands = self.commands.next_turn.len() + self.commands.disk.len();
        (consumers.by_mail.len() + consumers.by_connection.len()) * CONSUMER_BYTES
            + commands * COMMAND_BYTES
    }
}

impl Owner for Backpressure {
    fn has_work(&self, conditions: &Conditions<'_>) -> bool {
        self.commands_to_try() > 0
            || self.has_put_off()
            || (self.waits_for_mail() && conditions.may_read_again())
    }

    fn has_of(&self, queue: QueueId) -> bool {
        self.has_command_to(queue)
    }
}
