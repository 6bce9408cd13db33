//! How connections go to other shards: who is asked and told on the way.

use lepus_base::{ConnectionId, Now, ShardId};

use crate::homes::HomeSide;
use crate::mail::{Attachment, Mail};
use crate::outbox::Outbox;

impl HomeSide<'_> {
    /// A connection of another shard wants to come here: its consumers get nothing more.
    pub(crate) fn detach_consumers(
        &mut self,
        from: ShardId,
        connection: ConnectionId,
        number: u64,
        out: &mut Outbox,
    ) {
        if !self.homes.remote.detached.contains(&connection) {
            self.homes.remote.detached.push(connection);
        }
        out.mail[from.index()].items.push(Mail::ConsumersDetached { number });
    }

    /// A connection of another shard stays there: its consumers get messages again.
    pub(crate) fn attach_again(
        &mut self,
        now: Now,
        connection: ConnectionId,
        consumers: &[Attachment],
        out: &mut Outbox,
    ) {
        self.homes.remote.detached.retain(|detached| *detached != connection);
        for consumer in consumers {
            self.resume_remote(now, consumer.queue, consumer.key, out);
        }
    }
}
