//! How a connection leaves for another shard, how it comes, and how its consumers follow queues that move.

use crate::connections::connection_name;
use crate::departure::Departure;
use crate::directory::QueueInfo;
use crate::mail::Attachment;
use crate::mail::Mail;
use crate::outbox::ConnectionSlot;
use crate::outbox::Outbox;
use crate::outbox::Severity;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing};
use crate::sessions::SessionSide;
use alloc::boxed::Box;
use alloc::format;
use lepus_base::Now;
use lepus_base::{QueueId, ShardId};

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
