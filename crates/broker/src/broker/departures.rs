//! Connections on their way to other shards.

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::mail::Mail;
use crate::outbox::Outbox;
use lepus_base::{ConnectionId, Now, ShardId};

impl Broker {
    /// Has a connection go to another shard as soon as it can, for the reason `why`, which the log
    /// tells. False if it is not here or cannot go: it is tied to its shard by what it does besides
    /// publishing, is on its way already, or too many others are.
    pub fn move_connection(
        &mut self,
        now: Now,
        id: ConnectionId,
        to: ShardId,
        why: &str,
        out: &mut Outbox,
    ) -> bool {
        self.shard.now = now;
        if !self.shard.may_send_to(to) || !self.connections.departures.may_begin(id) {
            return false;
        }
        let Some((slot, connection)) = self.connections.connection(id, u32::MAX) else {
            return false;
        };
        if !connection.may_leave_to(to) {
            return false;
        }
        let detaches = !connection.attachments().is_empty();
        self.connections.pause(&mut self.shard, slot, Cause::Move, out);
        let number = self.connections.departures.begin(now, (slot, id), to, why, detaches);
        if detaches {
            let mail = Mail::DetachConsumers { connection: id, number };
            out.mail[to.index()].items.push(mail);
        }
        true
    }

    /// Brings departures forward, at the end of a cycle.
    pub(crate) fn depart(&mut self, now: Now, out: &mut Outbox) {
        if self.connections.departures.has_waiting() && self.has_applied_mail() {
            for (from, connection, number) in self.connections.departures.take_waiting() {
                out.mail[from.index()].items.push(Mail::MovePassed { connection, number });
            }
        }
        for mut departure in self.connections.departures.take_all() {
            let (slot, id) = departure.connection();
            if self.session().bring_forward(now, &mut departure, out) {
                self.connections.departures.keep(departure);
            } else if self.connections.connection_at(slot, id).is_some() {
                self.connections.resume(&mut self.shard, slot, Cause::Move, out);
            }
        }
    }

    /// A connection of another shard wants to go: is all applied that it sent here?
    pub(crate) fn move_barrier(
        &mut self,
        from: ShardId,
        connection: ConnectionId,
        number: u64,
        out: &mut Outbox,
    ) {
        // Nothing is delivered to it, and all deliveries are on their way to the client.
        self.homes.remote.windows.remove(&connection);
        if self.has_applied_mail() {
            out.mail[from.index()].items.push(Mail::MovePassed { connection, number });
        } else {
            self.connections.departures.wait(from, connection, number);
        }
    }
}
