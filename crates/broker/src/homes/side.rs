//! What the homes of a shard may touch of it.

use crate::directory::Directory;
use crate::homes::Homes;
use crate::journal::Journal;
use crate::owner::Owner;
use lepus_base::QueueId;

use crate::connections::Connections;
use crate::shard::Shard;

/// The queues of a shard at work: what their homes own, and what they may touch of the shard.
///
/// Of the sessions they use what delivers a message to a consumer, and nothing else: whatever a session is to know
/// or to do goes to it as mail.
pub(crate) struct HomeSide<'a> {
    pub homes: &'a mut Homes,
    pub journal: &'a mut Journal,
    pub shard: &'a mut Shard,
    pub directory: &'a mut Directory,
    pub connections: &'a mut Connections,
}

impl HomeSide<'_> {
    /// Whether something is here of a queue, or for it, beside the queue itself.
    pub(crate) fn has_of(&self, queue: QueueId) -> bool {
        let journal: &dyn Owner = self.journal;
        let (homes, shard) = (self.homes.owners(), self.shard.owners());
        let mut all = homes.into_iter().chain(shard).chain([journal]);
        all.any(|owner| owner.has_of(queue))
    }
}
