//! What is passed on is published by nobody's channel: each queue or exchange that messages leave has
//! something that stands for one. Messages of one channel keep their order wherever they wait, and wait for
//! no other's.

use lepus_base::{QueueId, ShardId};

use crate::mail::{ChannelRef, LETTERS_CONNECTION};

/// Numbers of its channels, of which each queue or exchange that messages leave has its own: those of dead
/// letters that must arrive, and of what delayed exchanges held; the others have 0.
const MUST_ARRIVE: u16 = 1;
const DELAYED: u16 = 2;

/// What stands for the channels by which a queue's dead letters are published.
pub(crate) fn letters_of(shard: ShardId, queue: QueueId) -> [ChannelRef; 2] {
    [loose_letters_of(shard, queue), sure_letters_of(shard, queue)]
}

/// What stands for the channel by which those of them are published that need not arrive.
pub(crate) fn loose_letters_of(shard: ShardId, queue: QueueId) -> ChannelRef {
    passing_channel(shard, queue, 0)
}

/// The same for those that must arrive.
pub(crate) fn sure_letters_of(shard: ShardId, queue: QueueId) -> ChannelRef {
    passing_channel(shard, queue, MUST_ARRIVE)
}

/// The same for what a shard holds back of a delayed exchange.
pub(crate) fn delayed_of(shard: ShardId, exchange: QueueId) -> ChannelRef {
    passing_channel(shard, exchange, DELAYED)
}

fn passing_channel(shard: ShardId, sender: QueueId, number: u16) -> ChannelRef {
    assert!(sender.0 >> 48 == 0, "there are fewer ids than incarnations of a channel");
    let channel = sender.0 << 16 | u64::from(number);
    ChannelRef { shard, connection: LETTERS_CONNECTION, channel }
}

/// What messages are passed on from.
pub(crate) enum Sender {
    Queue(QueueId),
    Exchange(QueueId),
}

/// For whom such a channel stands.
pub(crate) fn sender_of(channel: ChannelRef) -> Sender {
    let id = QueueId(channel.channel >> 16);
    if channel.number() == DELAYED { Sender::Exchange(id) } else { Sender::Queue(id) }
}

/// Whether reports to this channel are about dead letters that must arrive.
pub(crate) fn must_arrive(to: ChannelRef) -> bool {
    to.connection == LETTERS_CONNECTION && to.number() == MUST_ARRIVE
}
