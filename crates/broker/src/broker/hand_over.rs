//! Connections change hands between shards.

use crate::broker::Broker;
use crate::connection::Connection;
use crate::outbox::{ConnectionSlot, Outbox};
use alloc::boxed::Box;
use lepus_base::{Now, ShardId};

/// A connection between two shards.
#[derive(Debug)]
pub struct Traveller {
    connection: Box<Connection>,
    /// From where the balancer sent it, and why, if it did.
    errand: Option<(ShardId, Box<str>)>,
}

impl Broker {
    /// Takes a connection off this shard. Call it for what the outbox asked to hand over. `None`
    /// where it is gone or cannot go any more; then it is served as before.
    pub fn release(&mut self, slot: ConnectionSlot) -> Option<Traveller> {
        let why = self.connections.departures.end(self.connections.all.get(slot.index())?).ok()?;
        self.shard.counters.moved += u64::from(why.is_some());
        let mut connection = self.connections.all.try_remove(slot.index())?;
        self.connections.by_id.remove(&connection.id);
        self.connections.forget_bytes(&mut self.shard, &mut connection);
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
        let slot = self.connections.all.insert(connection) as u32;
        self.connections.by_id.insert(id, slot);
        self.connections.arm(&mut self.shard, slot);
        self.connections.looks.arm(now, &mut self.shard.timers);
        self.connections.recount(&mut self.shard, slot);
        if has_bytes {
            self.connections.mark_dirty(slot, out);
        }
        self.session().attach_consumers(now, slot, out);
        self.session().receive_traveller(now, slot, errand, out);
        ConnectionSlot(slot)
    }
}
