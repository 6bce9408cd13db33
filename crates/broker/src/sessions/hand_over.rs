//! Connections between two shards: those that are free to go when they say what they want, and those whose departure is
//! done.

use crate::mail::Attachment;
use alloc::boxed::Box;
use alloc::format;

use lepus_base::{Now, ShardId, VhostId};

use crate::connections::connection_name;
use crate::departure::STAY;
use crate::outbox::{Outbox, Severity};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing, Consume, DeclareQueue, Event, Incoming, Operation, Publish};
use crate::sessions::SessionSide;

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
            .find_routes(&self.directory, vhost, publish.exchange, keys, publish.properties)
            .then_some(())?;
        match self.shard.routes.as_slice() {
            [route] => Some(route.home),
            _ => None,
        }
    }

    /// What became of the broker while a connection travelled may mean its end.
    pub(crate) fn receive_traveller(
        &mut self,
        now: Now,
        slot: u32,
        errand: Option<(ShardId, Box<str>)>,
        out: &mut Outbox,
    ) {
        let own = self.shard.id;
        let Some(connection) = self.connections.all.get(slot as usize) else { return };
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
        } else if let Some(why) = self.connections.departures.expelled(connection.id) {
            why
        } else {
            return;
        };
        let refusal = Refusal::new(RefusalKind::Forced, why);
        self.fail_connection(now, slot, Closing::Refused(&refusal, Asked::Nothing), out);
    }
}

impl SessionSide<'_> {
    /// A connection has come: its consumers get messages here.
    pub(crate) fn attach_consumers(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(connection) = self.connections.all.get(slot as usize) else { return };
        let (id, consumers) = (connection.id, connection.attachments());
        self.home().connection_came(id);
        for Attachment { queue, key, handle } in consumers {
            let handle = handle.expect("a connection stays while a queue has yet to answer it");
            let Some(home) = self.home().relocate_consumer(now, queue, (key, handle), slot) else {
                // The queue went while it was on its way.
                self.consumer_cancelled(key, queue, out);
                continue;
            };
            if let Some((_, connection)) = self.connections.connection(id, slot)
                && let Some(subscription) = connection.subscription(key)
            {
                subscription.queue_slot = home;
            }
            self.home().resume_consumer(now, (queue, home), handle, out);
        }
    }
}
