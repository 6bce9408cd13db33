//! Connections between two shards: those that are free to go when they say what they want, and those whose departure is
//! done.

use alloc::boxed::Box;
use alloc::format;

use lepus_base::{Now, ShardId, VhostId};

use crate::broker::Broker;
use crate::connection::Connection;
use crate::departure::STAY;
use crate::mail::Attachment;
use crate::outbox::{ConnectionSlot, Outbox, Severity};
use crate::queue::{NoSink, command};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing, Consume, DeclareQueue, Event, Incoming, Operation, Publish};
use crate::sessions::connection_name;

/// A connection between two shards.
#[derive(Debug)]
pub struct Traveller {
    connection: Box<Connection>,
    /// From where the balancer sent it, and why, if it did.
    errand: Option<(ShardId, Box<str>)>,
}

impl Broker {
    /// The shard that a connection without state should move to, given what it asks for next:
    /// the home of the first queue that it names, or of the only one that its first publish
    /// reaches.
    pub(super) fn hand_over_target(
        &mut self,
        now: Now,
        slot: u32,
        event: &Event<'_>,
    ) -> Option<ShardId> {
        if self.shard.settings.shards == 1 {
            return None;
        }
        let connection = self.sessions.connections.get(slot as usize)?;
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
        let connection = self.sessions.connections.get(slot as usize)?;
        let settled = connection.moved_at.is_some_and(|moved| now.instant.since(moved) < STAY);
        (home != self.shard.id && !settled && connection.is_movable()).then_some(home)
    }

    /// The home of the queue that a message reaches, if it reaches exactly one.
    fn only_home(&mut self, vhost: VhostId, publish: &Publish<'_>) -> Option<ShardId> {
        let keys = publish.routing_key.into();
        self.find_routes(vhost, publish.exchange, keys, publish.properties).then_some(())?;
        match self.shard.routes.as_slice() {
            [route] => Some(route.home),
            _ => None,
        }
    }

    /// Takes a connection off this shard. Call it for what the outbox asked to hand over. `None`
    /// where it is gone or cannot go any more; then it is served as before.
    pub fn release(&mut self, slot: ConnectionSlot) -> Option<Traveller> {
        let why =
            self.sessions.departures.end(self.sessions.connections.get(slot.index())?).ok()?;
        self.shard.counters.moved += u64::from(why.is_some());
        let mut connection = self.sessions.connections.try_remove(slot.index())?;
        self.sessions.by_id.remove(&connection.id);
        self.sessions.forget_bytes(&mut self.shard, &mut connection);
        self.shard.counters.handed_over += 1;
        connection.leave_shard(self.shard.now.instant);
        Some(Traveller { connection, errand: why.map(|why| (self.shard.id, why)) })
    }

    /// Takes a connection over from another shard.
    pub fn adopt(&mut self, now: Now, traveller: Traveller, out: &mut Outbox) -> ConnectionSlot {
        let Traveller { mut connection, errand } = traveller;
        connection.moved_at = Some(now.instant);
        connection.send.settle_in();
        let id = connection.id;
        let has_bytes = !connection.send.is_empty();
        let slot = self.sessions.connections.insert(connection) as u32;
        self.sessions.by_id.insert(id, slot);
        self.sessions.arm(&mut self.shard, slot);
        self.sessions.looks.arm(now, &mut self.shard.timers);
        self.sessions.recount(&mut self.shard, slot);
        if has_bytes {
            self.sessions.mark_dirty(slot, out);
        }
        self.attach_consumers(now, slot, out);
        self.receive_traveller(now, slot, errand, out);
        ConnectionSlot(slot)
    }

    /// A connection has come: its consumers get messages here.
    fn attach_consumers(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let own = self.shard.id;
        let Some(connection) = self.sessions.connections.get(slot as usize) else { return };
        let (id, consumers) = (connection.id, connection.attachments());
        self.homes.remote.detached.retain(|detached| *detached != id);
        for Attachment { queue, key, handle } in consumers {
            let handle = handle.expect("a connection stays while a queue has yet to answer it");
            let home = self.home_slot(queue, u32::MAX);
            let found = home.filter(|&home| {
                let relocate = command::Relocate { handle, shard: own, slot };
                self.homes.queues[home as usize].queue.apply(now, relocate, &mut NoSink)
            });
            let Some(home) = found else {
                // The queue went while it was on its way.
                self.consumer_cancelled(now, key, queue, out);
                continue;
            };
            self.homes.remote.end_wait(&mut self.shard.backpressure, key);
            self.homes.remote.consumers.remove(&key);
            if let Some((_, connection)) = self.sessions.connection(id, slot)
                && let Some(subscription) = connection.subscription(key)
            {
                subscription.queue_slot = home;
            }
            let queue = &mut self.homes.queues[home as usize].queue;
            queue.apply(now, command::Resume { handle }, &mut NoSink);
            self.pump(now, home, out);
        }
    }

    /// What became of the broker while a connection travelled may mean its end.
    fn receive_traveller(
        &mut self,
        now: Now,
        slot: u32,
        errand: Option<(ShardId, Box<str>)>,
        out: &mut Outbox,
    ) {
        let own = self.shard.id;
        let Some(connection) = self.sessions.connections.get(slot as usize) else { return };
        if let Some((from, why)) = errand {
            let name = connection_name(connection);
            let text = format!("{name}: from shard {from} to {own}; {why}");
            out.log(Severity::Info, "connection-moved", text);
        }
        let why = if self.shard.stopping {
            "broker forced connection closure with reason 'shutdown'"
        } else if self.directory.vhost_info(connection.vhost).is_none() {
            "vhost is deleted"
        } else if self.directory.user(&connection.user).is_none() {
            "user is deleted"
        } else if let Some(why) = self.sessions.departures.expelled(connection.id) {
            why
        } else {
            return;
        };
        let refusal = Refusal::new(RefusalKind::Forced, why);
        self.fail_connection(now, slot, Closing::Refused(&refusal, Asked::Nothing), out);
    }
}
