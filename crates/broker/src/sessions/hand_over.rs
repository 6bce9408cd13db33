//! A connection without state goes to the home of the first queue that it names.

use crate::departure::STAY;
use crate::session::{Consume, DeclareQueue, Event, Incoming, Operation, Publish};
use crate::sessions::SessionSide;
use lepus_base::{Now, ShardId, VhostId};

impl SessionSide<'_> {
    /// The shard that a connection without state should move to, given what it asks for next:
    /// the home of the first queue that it names, or of the only one that its first publish
    /// reaches.
    pub(crate) fn hand_over_target(
        &mut self,
        now: Now,
        slot: u32,
        event: &Event<'_>,
    ) -> Option<ShardId> {
        if self.shard.settings.shards == 1 {
            return None;
        }
        let connection = self.connections.all.get(slot as usize)?;
        let home = match event {
            Event::Operation { operation, .. } => {
                let (Operation::DeclareQueue(DeclareQueue { queue, .. })
                | Operation::Consume(Consume { queue, .. })
                | Operation::Get { queue, .. }) = operation
                else {
                    return None;
                };
                self.directory.queue(connection.vhost, queue)?.home
            }
            Event::Publish { publish: Incoming::Borrowed(publish), .. }
                if !connection.publishes =>
            {
                let vhost = connection.vhost;
                self.only_home(vhost, publish)?
            }
            _ => return None,
        };
        let connection = self.connections.all.get(slot as usize)?;
        let settled = connection.moved_at.is_some_and(|moved| now.instant.since(moved) < STAY);
        (home != self.shard.id && !settled && connection.is_movable()).then_some(home)
    }

    /// The home of the queue that a message reaches, if it reaches exactly one.
    pub(crate) fn only_home(&mut self, vhost: VhostId, publish: &Publish<'_>) -> Option<ShardId> {
        let keys = publish.routing_key.into();
        self.shard
            .find_routes(self.directory, vhost, publish.exchange, keys, publish.properties)
            .then_some(())?;
        match self.shard.routes.as_slice() {
            [route] => Some(route.home),
            _ => None,
        }
    }
}
