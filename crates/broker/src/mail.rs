//! Mail between shards, and between the owners of one: requests to a queue's home and replies to a channel's shard.
//!
//! Mail names incarnations (connection ids, channel incarnations, queue ids), never slots alone;
//! where a slot travels it is a hint that the receiver checks against the incarnation.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use lepus_base::{ConnectionId, QueueId, ShardId, VhostId};

use crate::directory::{FilterCost, Request};
use crate::queue::{Consumer, ConsumerHandle, ConsumerKey, Outcome, Queue, QueueSettings};
use crate::refusal::Refusal;
use crate::trace::Tapped;

/// One incarnation of a channel, from anywhere in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelRef {
    /// The shard of its connection.
    pub shard: ShardId,
    /// Its connection.
    pub connection: ConnectionId,
    /// Incarnation in the upper 48 bits, channel number in the lower 16.
    pub channel: u64,
}

/// Stands for the connection of a publisher where a dead letter is meant.
pub(crate) const LETTERS_CONNECTION: ConnectionId = ConnectionId(u64::MAX);

/// All reports of a commit come under this number; it is its channel's first.
pub(crate) const COMMIT_NUMBER: u64 = 1;

impl ChannelRef {
    /// The channel's number on its connection.
    #[must_use]
    pub fn number(self) -> u16 {
        self.channel as u16
    }
}

/// What became of a message at a queue, or at several: then it is the worst of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Receipt {
    /// Taken.
    #[default]
    Taken,
    /// A rule of the queue refused it.
    Refused,
    /// The log did not take it, so the queue does not have it.
    Unlogged,
}

/// What publishers are blocked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The memory budget is used up.
    Memory,
    /// The log takes no messages, or soon will not.
    Disk,
}

impl Shortage {
    /// What the client is told.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Shortage::Memory => "low on memory",
            Shortage::Disk => "low on disk",
        }
    }
}

/// Who says that something is short, whatever a shard has of it. What one says is over may be short for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmSource {
    /// An operator.
    Operator,
    /// Who measures what is free of the disk, beside the logs.
    Measure,
}

/// How the queues are told apart from the message: what enqueueing needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub persistent: bool,
    pub priority: u8,
    pub expiration: Option<Duration>,
    /// Who publishes it.
    pub from: ChannelRef,
    /// Its publish sequence number, if `from` is to hear what became of it.
    pub number: Option<u64>,
}

impl Terms {
    /// To whom to report what became of it.
    #[inline]
    pub(crate) fn confirm(&self) -> Option<(ChannelRef, u64)> {
        self.number.map(|number| (self.from, number))
    }

    /// The packed message at `message` in a batch, for a queue of the shard to which that goes.
    #[inline]
    pub(crate) fn mail(&self, queue: QueueId, message: Range<u32>) -> Mail {
        Mail::Enqueue {
            queue,
            message,
            persistent: self.persistent,
            priority: self.priority,
            expiration: self.expiration.map(|expiration| expiration.as_millis() as u64),
            from: self.from,
            number: self.number,
        }
    }
}

/// A question to the home of an existing queue.
#[derive(Debug)]
pub enum Command {
    /// Count messages and consumers; renews the lease of `x-expires`.
    Count,
    /// Add a consumer.
    Subscribe {
        /// The consumer.
        consumer: Box<Consumer>,
        /// Whether a channel-wide prefetch limit governs it from its first delivery on.
        governed: bool,
    },
    /// Remove a consumer; what it has unacknowledged stays with its channel.
    Cancel(ConsumerKey, ConsumerHandle),
    /// Take the head.
    Get {
        /// Whether the message counts as acknowledged at once.
        no_ack: bool,
    },
    /// Drop what is ready.
    Purge,
    /// Delete the queue.
    Delete {
        /// Only without consumers.
        if_unused: bool,
        /// Only without ready messages.
        if_empty: bool,
    },
    /// Nothing; the reply shows that all that the channel settled before is applied.
    Barrier,
}

impl Command {
    /// Whether its answer depends on the messages that its channel published before.
    pub(crate) fn is_about_messages(&self) -> bool {
        !matches!(self, Command::Cancel(..) | Command::Barrier)
    }
}

/// The home's answer to a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Ready messages and consumers.
    Counted {
        /// Messages ready for delivery.
        ready: u64,
        /// Consumers.
        consumers: u32,
    },
    /// A message was fetched, and is with the channel already: only where both are on the same shard.
    Fetched,
    /// The consumer is registered; deliveries follow.
    Subscribed {
        /// Its name within the queue.
        handle: ConsumerHandle,
        /// The queue's slot at its home.
        slot: u32,
    },
    /// The consumer is gone; no delivery follows.
    Cancelled,
    /// A message; its content follows the mail in the batch's bytes.
    Got {
        /// Place among the queue's unacknowledged messages.
        slot: u32,
        /// Sequence number in the queue.
        sequence: u64,
        /// Whether it was delivered before.
        redelivered: bool,
        /// Earlier returns, for queues that count them.
        delivery_count: u32,
        /// Ready messages left.
        remaining: u64,
        /// The packed message in the batch's bytes.
        message: Range<u32>,
    },
    /// Nothing was ready.
    GotNothing,
    /// Number of messages dropped.
    Purged(u64),
    /// Deleted with this number of ready messages.
    Deleted(u64),
    /// All that the channel settled before is applied.
    Passed,
    /// The queue does not exist any more.
    Gone,
    /// The command is refused.
    Refused(Refusal),
}

/// Who asked for a change of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A channel with a pending question.
    Channel(ChannelRef),
    /// A shard at its start; nobody waits for the answer.
    Start,
    /// A queue's home that wants the queue gone. Where it goes at once the change itself is the answer.
    Home {
        /// The home.
        shard: ShardId,
        /// The queue.
        queue: QueueId,
    },
    /// A connection that ends and deletes its exclusive queues.
    Ending {
        /// The shard of the connection.
        shard: ShardId,
        /// The connection.
        connection: ConnectionId,
    },
    /// A queue's home that sends it to another shard.
    Migration {
        /// The home.
        shard: ShardId,
        /// The queue.
        queue: QueueId,
    },
    /// The control plane; the number names its question.
    Control(u64),
    /// The same, of a question that asks for many changes: the change at this place.
    ControlPart {
        /// Number of the question.
        question: u64,
        /// The place.
        index: u32,
    },
    /// Shard 0 itself: an exchange that deletes itself by a deletion of this number.
    Deletion(u64),
}

/// A consumer and what its queue knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The queue.
    pub queue: QueueId,
    /// The consumer.
    pub key: ConsumerKey,
    /// Its name within the queue, unless the queue has yet to tell.
    pub handle: Option<ConsumerHandle>,
}

/// A message for very many queues of a shard.
#[derive(Debug)]
pub struct Many {
    /// The packed message in the batch's bytes.
    pub message: Range<u32>,
    /// The numbers of the queues' ids in the batch's bytes, eight bytes each with the lowest first.
    pub queues: Range<u32>,
    /// Delivery mode 2.
    pub persistent: bool,
    /// The message's priority, 0 without one.
    pub priority: u8,
    /// The message's own `expiration`.
    pub expiration: Option<Duration>,
    /// Who published it, and is told when all queues have it.
    pub from: ChannelRef,
    /// Its publish sequence number, if `from` is to hear what became of it in each queue.
    pub number: Option<u64>,
}

/// What a shard says of the filters of an exchange's bindings.
#[derive(Debug)]
pub struct ToldFilterCost {
    /// The virtual host.
    pub vhost: VhostId,
    /// The exchange's name.
    pub exchange: Box<str>,
    /// What they take of a message there, where that is much.
    pub cost: Option<FilterCost>,
}

/// One item of mail.
#[derive(Debug)]
pub enum Mail {
    /// A message for a queue.
    Enqueue {
        /// The queue.
        queue: QueueId,
        /// The packed message in the batch's bytes; shared by neighbours with the same range.
        message: Range<u32>,
        /// Delivery mode 2.
        persistent: bool,
        /// The message's priority, 0 without one.
        priority: u8,
        /// Milliseconds of the message's own `expiration`.
        expiration: Option<u64>,
        /// Who published it.
        from: ChannelRef,
        /// Its publish sequence number, if `from` is to hear what became of it.
        number: Option<u64>,
    },
    /// A message for very many queues.
    EnqueueMany(Box<Many>),
    /// All queues of a shard have what a channel published to very many: what it says next cannot
    /// overtake that.
    Fanned {
        /// The channel.
        to: ChannelRef,
    },
    /// Messages among the next items are the part of a transaction that goes to this shard: it is to
    /// be there as a whole after a crash, or not at all.
    Commit {
        /// Bytes that it takes in a log, at most.
        bytes: usize,
        /// How many items follow, in the same batch.
        items: usize,
    },
    /// Of what a channel of this shard published, more reports are to come than were counted.
    ExpectReports {
        /// The publisher's channel.
        to: ChannelRef,
        /// The publish sequence number.
        number: u64,
        /// How many more.
        more: u32,
    },
    /// Queues say what became of the messages with these publish sequence numbers.
    Enqueued {
        /// The publisher's channel.
        to: ChannelRef,
        /// First sequence number.
        first: u64,
        /// Last sequence number, inclusive.
        last: u64,
        /// For how many queues of each message this stands.
        queues: u32,
        /// What became of them there.
        receipt: Receipt,
    },
    /// A question to a queue's home.
    Command {
        /// Who waits for the reply.
        from: ChannelRef,
        /// The queue.
        queue: QueueId,
        /// The question.
        command: Command,
    },
    /// The answer to a question.
    Reply {
        /// The channel that waits.
        to: ChannelRef,
        /// The queue that answers.
        queue: QueueId,
        /// The answer.
        reply: Reply,
    },
    /// A channel ends and waits for no answer: a question that waits until all that the channel
    /// published has room is given up, and answered as refused.
    GiveUp {
        /// The channel.
        from: ChannelRef,
    },
    /// What a channel decided about a delivered message.
    Settle {
        /// The queue.
        queue: QueueId,
        /// Place among the queue's unacknowledged messages.
        slot: u32,
        /// Sequence number, to recognise a place that was reused.
        sequence: u64,
        /// Acknowledged, rejected or requeued.
        outcome: Outcome,
    },
    /// What a channel of this shard published waits for room in a log, or does not wait any more: it publishes nothing
    /// meanwhile.
    PublishesWait {
        /// The channel.
        channel: ChannelRef,
        /// Whether it waits.
        on: bool,
    },
    /// Deliveries of the queue rest until a channel has requeued all it held.
    Hold {
        /// The queue.
        queue: QueueId,
        /// Rest (`true`) or go on.
        on: bool,
    },
    /// A message for a consumer.
    Deliver {
        /// The consumer.
        to: ConsumerKey,
        /// Hint where its connection is.
        hint: u32,
        /// The queue.
        queue: QueueId,
        /// Place among the queue's unacknowledged messages; `NO_SLOT` without acknowledgement.
        slot: u32,
        /// Sequence number in the queue.
        sequence: u64,
        /// Whether it was delivered before.
        redelivered: bool,
        /// Earlier returns, for queues that count them.
        delivery_count: u32,
        /// The packed message in the batch's bytes.
        message: Range<u32>,
    },
    /// A direct reply-to message for a channel.
    DeliverReply {
        /// The channel that consumes replies.
        to: ChannelRef,
        /// The packed message in the batch's bytes.
        message: Range<u32>,
        /// How many further addresses stand behind it, to which it goes from there.
        further: u32,
        /// The publisher's channel.
        from: ChannelRef,
        /// The publish number that waits for the outcome.
        number: Option<u64>,
        /// Whether the message goes back when nobody listens.
        mandatory: bool,
    },
    /// A mandatory direct reply found nobody; it goes back to its publisher.
    ReturnReply {
        /// The publisher's channel.
        to: ChannelRef,
        /// The packed message in the batch's bytes.
        message: Range<u32>,
    },
    /// Whether a channel consumes replies: answered like [`Command::Count`].
    FindReplyConsumer {
        /// The channel asked for.
        of: ChannelRef,
        /// The channel that waits for the reply.
        from: ChannelRef,
    },
    /// The queue is gone: the consumer is cancelled by the server.
    ConsumerCancelled {
        /// The consumer.
        to: ConsumerKey,
        /// The queue.
        queue: QueueId,
    },
    /// Bytes of deliveries that the connection has sent: the home may deliver as many again.
    Window {
        /// The connection.
        connection: ConnectionId,
        /// Bytes.
        bytes: u64,
    },
    /// The home has messages for a consumer whose channel has a global prefetch limit.
    WantCredit {
        /// The consumer.
        to: ConsumerKey,
        /// Its queue.
        queue: QueueId,
    },
    /// One delivery may be made.
    GrantCredit {
        /// The consumer.
        to: ConsumerKey,
        /// Its queue.
        queue: QueueId,
    },
    /// A grant that the home had no use for.
    ReturnCredit {
        /// The consumer.
        to: ConsumerKey,
    },
    /// The channel's global prefetch limit starts or ceases to govern a consumer.
    Govern {
        /// The consumer.
        consumer: ConsumerKey,
        /// Its queue.
        queue: QueueId,
        /// Whether credit must be asked for.
        on: bool,
    },
    /// A connection of the sender wants to go to another shard: answered once all that it sent here
    /// is applied.
    MoveBarrier {
        /// The connection.
        connection: ConnectionId,
        /// Its departure.
        number: u64,
    },
    /// All that the connection sent is applied.
    MovePassed {
        /// The connection.
        connection: ConnectionId,
        /// Its departure.
        number: u64,
    },
    /// A connection of the sender wants to come here, with its consumers: they get nothing more until
    /// it has, or stays.
    DetachConsumers {
        /// The connection.
        connection: ConnectionId,
        /// Its departure.
        number: u64,
    },
    /// No delivery follows those before.
    ConsumersDetached {
        /// The departure.
        number: u64,
    },
    /// The connection stays after all.
    ConnectionStays {
        /// The connection.
        connection: ConnectionId,
        /// Its consumers.
        consumers: Vec<Attachment>,
    },
    /// A queue of the sender is about to go to another shard: what is for it waits from now on.
    /// Answered with [`Mail::QueueQuiet`].
    QueueLeaves {
        /// The queue.
        queue: QueueId,
        /// Names this attempt.
        number: u64,
    },
    /// Nothing that was said before of a queue that is about to leave is under way any more.
    QueueQuiet {
        /// The attempt.
        number: u64,
    },
    /// The definitions log failed with the move of a queue of the receiver in it: only the next
    /// start finds out whether the disk has it.
    QueueUndecided {
        /// The queue.
        queue: QueueId,
    },
    /// The queue stays after all.
    QueueStays {
        /// The queue.
        queue: QueueId,
    },
    /// A queue, to its new home.
    QueueArrives {
        /// Its old id.
        queue: QueueId,
        /// All that it is.
        cargo: Box<MovingQueue>,
    },
    /// The shard is short of something, or there is room again.
    Short(Option<Shortage>),
    /// A log of the shard begins to lag, or has caught up.
    LogLags(bool),
    /// The shard asks for a part of the memory budget (to shard 0).
    WantMemory {
        /// Bytes.
        bytes: usize,
    },
    /// It gives some back (to shard 0).
    ReturnMemory {
        /// Bytes.
        bytes: usize,
    },
    /// It may use more (from shard 0).
    MemoryLent {
        /// Bytes; none where there are none left now.
        bytes: usize,
        /// Bytes that are not lent.
        left: usize,
    },
    /// A connection has opened its vhost, or ends.
    ConnectionCounted {
        /// Which one.
        connection: ConnectionId,
        /// The vhost.
        vhost: VhostId,
        /// The user.
        user: Box<str>,
        /// Whether it came.
        came: bool,
    },
    /// A user with a limit of channels has so many on the shard that says so.
    ChannelsCounted {
        /// The user.
        user: Box<str>,
        /// Channels of the user's connections there.
        channels: u64,
    },
    /// A connection is gone; its window may be forgotten.
    ConnectionGone(ConnectionId),
    /// A change of the directory is asked for (to shard 0).
    Ask {
        /// Who asks.
        origin: Origin,
        /// What for.
        request: Box<Request>,
    },
    /// The directory's answer (from shard 0, after the change stands in all lanes).
    Answer {
        /// Who asked.
        origin: Origin,
        /// The id of the queue that exists now, where one was declared; or why not.
        result: Result<Option<QueueId>, Refusal>,
    },
    /// A copy of a message for those who trace (to the own shard only).
    Tapped(Box<Tapped>),
    /// For the shard that orders the directory's changes: what filters take on another.
    FilterCost(Box<ToldFilterCost>),
    /// For the shard that orders the directory's changes: so many more were applied here.
    ChangesApplied {
        /// How many.
        count: u32,
    },
    /// An operator closes a connection.
    CloseConnection {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        text: String,
    },
}

/// Who of a shard takes mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressee {
    /// The homes of queues, of messages for them.
    Queues,
    /// The homes of queues.
    Homes,
    /// The sessions.
    Sessions,
    /// What all share.
    Shard,
    /// Whoever orders the directory's changes.
    Directory,
    /// What waits for a queue that was on its way.
    ParkedMail,
}

impl Mail {
    /// Who takes it.
    pub(crate) fn addressee(&self) -> Addressee {
        match self {
            Mail::Enqueue { .. } | Mail::EnqueueMany(_) | Mail::Commit { .. } => Addressee::Queues,
            Mail::Enqueued { to, .. } if to.connection == LETTERS_CONNECTION => Addressee::Homes,
            Mail::Answer { origin: Origin::Home { .. } | Origin::Migration { .. }, .. } => {
                Addressee::Homes
            }
            Mail::Fanned { .. }
            | Mail::Command { .. }
            | Mail::GiveUp { .. }
            | Mail::Settle { .. }
            | Mail::Hold { .. }
            | Mail::Window { .. }
            | Mail::GrantCredit { .. }
            | Mail::Govern { .. }
            | Mail::DetachConsumers { .. }
            | Mail::ConnectionStays { .. }
            | Mail::ConnectionGone(_)
            | Mail::QueueLeaves { .. }
            | Mail::QueueQuiet { .. }
            | Mail::QueueUndecided { .. }
            | Mail::QueueArrives { .. } => Addressee::Homes,
            Mail::ExpectReports { .. }
            | Mail::Enqueued { .. }
            | Mail::Reply { .. }
            | Mail::PublishesWait { .. }
            | Mail::Deliver { .. }
            | Mail::DeliverReply { .. }
            | Mail::ReturnReply { .. }
            | Mail::FindReplyConsumer { .. }
            | Mail::ConsumerCancelled { .. }
            | Mail::WantCredit { .. }
            | Mail::ReturnCredit { .. }
            | Mail::Answer { .. }
            | Mail::MoveBarrier { .. }
            | Mail::MovePassed { .. }
            | Mail::ConsumersDetached { .. }
            | Mail::ConnectionCounted { .. }
            | Mail::ChannelsCounted { .. }
            | Mail::Tapped(_)
            | Mail::CloseConnection { .. } => Addressee::Sessions,
            Mail::Short(_)
            | Mail::LogLags(_)
            | Mail::WantMemory { .. }
            | Mail::ReturnMemory { .. }
            | Mail::MemoryLent { .. } => Addressee::Shard,
            Mail::Ask { .. } | Mail::FilterCost(_) | Mail::ChangesApplied { .. } => {
                Addressee::Directory
            }
            Mail::QueueStays { .. } => Addressee::ParkedMail,
        }
    }
}

/// Room for bytes of messages that an emptied batch keeps for the next one: between each two shards some
/// batches are under way.
const KEPT_BYTES_MAX: usize = 128 << 10;
/// Room for items that it keeps.
const KEPT_ITEMS_MAX: usize = 1 << 11;

/// Mail for one shard and the bytes of its messages.
#[derive(Debug, Default)]
pub struct MailBatch {
    /// The items, oldest first.
    pub items: Vec<Mail>,
    /// Packed messages that the items' ranges point into.
    pub bytes: Vec<u8>,
}

impl MailBatch {
    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Empties it and keeps its memory, unless that is much.
    pub fn clear(&mut self) {
        self.items.clear();
        self.bytes.clear();
        if self.items.capacity() > KEPT_ITEMS_MAX {
            self.items = Vec::new();
        }
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }

    /// Allocated bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Mail>()
    }

    /// A measure of the work in it, in bytes, for back-pressure.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.items.len() * 64
    }
}

/// Reports publishes for `queues` queues of each; neighbours that say the same share an item.
pub(crate) fn report(
    items: &mut Vec<Mail>,
    to: ChannelRef,
    (first, end): (u64, u64),
    queues: u32,
    receipt: Receipt,
) {
    if let Some(Mail::Enqueued { to: same, first: begin, last, queues: count, receipt: said }) =
        items.last_mut()
        && *same == to
        && *said == receipt
    {
        if *last + 1 == first && *count == queues {
            *last = end;
            return;
        }
        if (*begin, *last) == (first, end) {
            *count += queues;
            return;
        }
    }
    items.push(Mail::Enqueued { to, first, last: end, queues, receipt });
}

/// A queue between two shards.
#[derive(Debug)]
pub struct MovingQueue {
    /// The queue, with what it holds in memory.
    pub(crate) queue: Queue,
    /// What holds for it, where policies say more than its arguments.
    pub(crate) settings: Option<Box<QueueSettings>>,
    /// Why it goes.
    pub(crate) why: Box<str>,
}

/// The key of a channel's consumer.
pub(crate) fn consumer_key(channel: ChannelRef, key: u64, number: u32) -> ConsumerKey {
    ConsumerKey { connection: channel.connection, channel: key, consumer: number }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a batch that was filled and emptied.
    fn kept(items: usize, bytes: usize) -> [usize; 2] {
        let mut batch = MailBatch::default();
        batch.items.extend((0..items).map(|_| Mail::Short(None)));
        batch.bytes.resize(bytes, 7);
        batch.clear();
        assert!(batch.is_empty() && batch.bytes.is_empty());
        [batch.items.capacity() * size_of::<Mail>(), batch.bytes.capacity()]
    }

    #[test]
    fn an_emptied_batch_keeps_what_the_next_one_needs_and_not_what_was_very_much() {
        let [items, bytes] = kept(1_000, 100_000);
        assert!(items >= 1_000 * size_of::<Mail>() && bytes >= 100_000, "{items}, {bytes}");
        for (items, bytes) in [(200_000, 0), (0, 20 << 20), (200_000, 20 << 20)] {
            let kept = kept(items, bytes);
            assert!(kept.iter().all(|bytes| *bytes <= 2 << 20), "{kept:?}");
        }
    }
}

/// What is left to be done of what the owners of a shard's state tell each other.
#[derive(Debug)]
pub(crate) enum Step {
    /// Something is told.
    Mail(Mail),
    /// A home delivers what it may.
    Dispatch(u32),
}
