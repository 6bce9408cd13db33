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
use alloc::vec::Vec;
use core::cmp::Reverse;
use lepus_base::{ConnectionId, Now, QueueId, ShardId};

use crate::backpressure::Cause;
use crate::traffic::ConnectionTraffic;

impl SessionSide<'_> {
    /// Lets the consumers of this shard, and connections that published to the queue, know where it
    /// is now.
    pub(crate) fn redirect_consumers(&mut self, info: &QueueInfo, id: QueueId, out: &mut Outbox) {
        let own = self.shard.id;
        let Some(to) = self.directory.queue_by_id(id).map(|info| info.home) else {
            invariant!("a queue that moved just now is known by its new id")
        };
        for (_, connection) in self.connections.iter_mut() {
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
        let Some(connection) = self.connections.connection_at(slot, id) else {
            return race!("the connection closed before it left", false);
        };
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
            for shard in connection.known_shards.iter().filter(|&&shard| shard != own) {
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
    pub(crate) fn receive_moved(
        &mut self,
        now: Now,
        slot: u32,
        reason: Option<(ShardId, Box<str>)>,
        out: &mut Outbox,
    ) {
        let own = self.shard.id;
        let Some(connection) = self.connections.get(slot) else {
            invariant!("a connection that just came is there")
        };
        if let Some((from, why)) = reason {
            let name = connection_name(connection);
            let text = format!("{name}: from shard {from} to {own}; {why}");
            out.log(Severity::Info, "connection-moved", text);
        }
        let why = if self.shard.stopping {
            "broker forced connection closure with reason 'shutdown'"
        } else if self.directory.vhost_info(connection.vhost).is_none() {
            let vhost = connection.vhost;
            self.connections.forget_vhost(vhost);
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

    /// A connection has come: its consumers get messages here.
    pub(crate) fn attach_consumers(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let Some(connection) = self.connections.get(slot) else {
            invariant!("a connection that just came is there")
        };
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

    /// Has a connection go to another shard as soon as it can, for the reason `why`, which the log
    /// tells. False if it is not here or cannot go: it is tied to its shard by what it does besides
    /// publishing, is on its way already, or too many others are.
    pub(crate) fn move_connection(
        &mut self,
        now: Now,
        id: ConnectionId,
        to: ShardId,
        why: &str,
        out: &mut Outbox,
    ) -> bool {
        if !self.shard.may_send_to(to) || !self.sessions.departures.may_begin(id) {
            return false;
        }
        let Some((slot, connection)) = self.connections.connection(id, u32::MAX) else {
            return race!("the connection closed before it was to move", false);
        };
        if !connection.may_leave_to(to) {
            return false;
        }
        let detaches = !connection.attachments().is_empty();
        self.connections.pause(self.shard, slot, Cause::Move, out);
        let number = self.sessions.departures.begin(now, (slot, id), to, why, detaches);
        if detaches {
            let mail = Mail::DetachConsumers { connection: id, number };
            out.mail[to.index()].items.push(mail);
        }
        true
    }

    /// Brings departures forward, at the end of a cycle.
    pub(crate) fn depart(&mut self, now: Now, out: &mut Outbox) {
        if self.sessions.departures.has_waiting() && self.has_applied_mail() {
            for (from, connection, number) in self.sessions.departures.take_waiting() {
                out.mail[from.index()].items.push(Mail::MovePassed { connection, number });
            }
        }
        for mut departure in self.sessions.departures.take_all() {
            let (slot, id) = departure.connection();
            if self.bring_forward(now, &mut departure, out) {
                self.sessions.departures.keep(departure);
            } else if self.connections.connection_at(slot, id).is_some() {
                self.connections.resume(self.shard, slot, Cause::Move, out);
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
        self.homes.forget_window(connection);
        if self.has_applied_mail() {
            out.mail[from.index()].items.push(Mail::MovePassed { connection, number });
        } else {
            self.sessions.departures.wait(from, connection, number);
        }
    }

    /// What connections published since they were looked at last: looks at up to `slots_max`, those
    /// next that were not looked at this time. If `with_idle`, all connections looked at are told,
    /// and whether one may go is only known when it is sent.
    pub(crate) fn sample_connections(
        &mut self,
        now: Now,
        slots_max: usize,
        with_idle: bool,
    ) -> Vec<ConnectionTraffic> {
        let own = self.shard.id;
        let slots = self.connections.capacity();
        let mut samples = Vec::new();
        for _ in 0..slots_max.min(slots) {
            let next = self.sessions.sampled + 1;
            self.sessions.sampled = if (next as usize) < slots { next } else { 0 };
            let found = self.connections.get_mut(self.sessions.sampled);
            let Some(connection) = found else { continue };
            let to = connection.traffic.take(now.instant, own);
            if with_idle || !to.is_empty() {
                let most = to.iter().max_by_key(|(shard, count)| (*count, Reverse(*shard)));
                let movable = match most {
                    Some(&(shard, _)) if shard != own => connection.may_leave_to(shard),
                    _ => connection.may_leave(),
                };
                let movable = movable || with_idle;
                samples.push(ConnectionTraffic { connection: connection.id, movable, to });
            }
        }
        samples
    }
}
