//! How queues go to other shards, and come from them.

use lepus_base::{QueueId, ShardId};

use crate::directory::QueueInfo;
use crate::mail::Mail;
use crate::outbox::Outbox;
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// Lets the consumers of this shard, and connections that published to the queue, know where it
    /// is now.
    pub(crate) fn redirect_consumers(
        &mut self,
        info: &QueueInfo,
        (id, to): (QueueId, ShardId),
        out: &mut Outbox,
    ) {
        let own = self.shard.id;
        for (_, connection) in &mut self.connections.all {
            connection.redirect((info.id, info.home), (id, to), own, |consumer, on| {
                out.mail[to.index()].items.push(Mail::Govern { consumer, queue: id, on });
            });
        }
    }
}
