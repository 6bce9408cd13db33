//! How connections go to other shards: who is asked and told on the way.

use crate::connections::connection_name;
use crate::departure::Departure;
use crate::mail::Mail;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::sessions::SessionSide;
use lepus_base::Now;

impl SessionSide<'_> {
    /// False when the departure is over.
    pub(crate) fn bring_forward(
        &mut self,
        now: Now,
        departure: &mut Departure,
        out: &mut Outbox,
    ) -> bool {
        let own = self.shard.id;
        let (slot, id) = departure.connection();
        let Some(connection) = self.connections.connection_at(slot, id) else { return false };
        if connection.end.is_some() || connection.gone {
            return false;
        }
        if departure.must_end(now, connection) {
            if departure.detaches() {
                let consumers = connection.attachments();
                let mail = Mail::ConnectionStays { connection: id, consumers };
                out.mail[departure.to().index()].items.push(mail);
            }
            departure.tell_end(&connection_name(connection), own, out);
            self.shard.counters.moves_given_up += 1;
            return false;
        }
        if departure.is_detaching() || !connection.is_quiet() {
            return true;
        }
        if departure.is_draining() {
            if !self.homes.is_none_moving() {
                // What it said may wait for a queue that is on its way.
                return true;
            }
            let number = departure.number();
            let mut waiting = 0;
            for shard in connection.touched.iter().filter(|&&shard| shard != own) {
                let mail = Mail::MoveBarrier { connection: id, number };
                out.mail[shard.index()].items.push(mail);
                waiting += 1;
            }
            departure.wait_for(waiting);
        }
        if departure.may_go() {
            out.hand_over.push((ConnectionSlot(slot), departure.to()));
        }
        true
    }
}
