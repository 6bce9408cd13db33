//! A connection without state goes to the home of the first queue that it names.

use alloc::boxed::Box;
use lepus_amqp::properties::PropertiesRef;

use crate::connection::Connection;
use crate::departure::STAY;
use crate::directory::Message;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::session::{Consume, DeclareQueue, Event, Incoming, Operation, Publish};
use crate::sessions::SessionSide;
use lepus_base::{Now, ShardId, VhostId};

/// A connection between two shards.
#[derive(Debug)]
pub struct MovingConnection {
    connection: Box<Connection>,
    /// From where the balancer sent it, and why, if it did.
    reason: Option<(ShardId, Box<str>)>,
}

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
        let connection = self.connections.get(slot)?;
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
        let connection = self.connections.get(slot)?;
        let settled = connection.moved_at.is_some_and(|moved| now.instant.since(moved) < STAY);
        (home != self.shard.id && !settled && connection.is_movable()).then_some(home)
    }

    /// The home of the queue that a message reaches, if it reaches exactly one.
    pub(crate) fn only_home(&mut self, vhost: VhostId, publish: &Publish<'_>) -> Option<ShardId> {
        let message = Message {
            exchange: publish.exchange,
            keys: publish.routing_key.into(),
            properties: PropertiesRef(publish.properties),
            body: publish.body,
            millis: self.shard.now.wall_millis,
        };
        self.shard.find_routes(self.directory, vhost, message).then_some(())?;
        match self.shard.routes.as_slice() {
            [route] => Some(route.home),
            _ => None,
        }
    }

    /// Takes a connection off this shard. `None` where it is gone or cannot go any more; then it is served as before.
    pub(crate) fn release(&mut self, slot: ConnectionSlot) -> Option<MovingConnection> {
        let why = self.sessions.departures.end(self.connections.get(slot.0)?).ok()?;
        self.shard.counters.moved += u64::from(why.is_some());
        let mut connection = self.connections.remove(self.shard, slot.0)?;
        self.shard.counters.handed_over += 1;
        connection.leave_shard(self.shard.now.instant);
        Some(MovingConnection { connection, reason: why.map(|why| (self.shard.id, why)) })
    }

    /// Takes a connection over from another shard.
    pub(crate) fn adopt(
        &mut self,
        now: Now,
        moving: MovingConnection,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        let MovingConnection { mut connection, reason } = moving;
        connection.moved_at = Some(now.instant);
        connection.send.reallocate();
        let has_bytes = !connection.send.is_empty();
        let slot = self.connections.insert(self.shard, connection);
        self.sessions.looks.arm(now, &mut self.shard.timers);
        if has_bytes {
            self.connections.mark_dirty(slot, out);
        }
        self.attach_consumers(now, slot, out);
        self.receive_moved(now, slot, reason, out);
        ConnectionSlot(slot)
    }
}
