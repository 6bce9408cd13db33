//! Connections that the balancer sends to another shard: paused, drained, and handed over when all
//! that they said is applied where it went.
//!
//! A departure goes through these stages: the connection is not read any more; consumers, which it
//! may have only of queues of the shard to which it goes, get nothing more; confirms, parked
//! frames and questions drain; a barrier goes to every shard that got mail of it and comes back
//! once that mail is applied; then it is handed over. One that takes too long, or whose connection
//! turns out to be tied to the shard, is given up and the connection is read again.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_amqp::ProtocolError;
use lepus_amqp::code::ReplyCode;
use lepus_base::{ConnectionId, Instant, Now, ShardId};

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::edge::connection_name;
use crate::mail::{Attachment, Mail};
use crate::outbox::{ConnectionSlot, Outbox, Severity};

/// How long a departure may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// A connection stays at least so long where it came to, whatever queue it names.
pub(crate) const STAY: Duration = Duration::from_secs(1);
/// Connections that were to be closed and are not here: they may be on their way.
const EXPELLED_MAX: usize = 64;
/// Connections on their way out of one shard at the same time.
const DEPARTURES_MAX: usize = 64;

/// How far a departure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its consumers may still get something.
    Detaching,
    /// Something of it is still under way here.
    Draining,
    /// So many shards have yet to apply what it said.
    Passing(u32),
    /// It may go.
    Ready,
}

/// A connection on its way out.
#[derive(Debug)]
struct Departure {
    slot: u32,
    id: ConnectionId,
    to: ShardId,
    why: Box<str>,
    /// Tells its barriers from those of departures that were given up.
    number: u64,
    /// Until then it may take.
    until: Instant,
    stage: Stage,
    /// Its consumers wait for it where it goes.
    detaches: bool,
}

/// All connections on their way out of a shard, and barriers of others that wait here.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    list: Vec<Departure>,
    count: u64,
    /// Barriers behind mail that waits for room in the log: from where, connection and number.
    waiting: Vec<(ShardId, ConnectionId, u64)>,
    /// Connections that an operator closed and that are not here, and why.
    expelled: VecDeque<(ConnectionId, Box<str>)>,
}

impl Departures {
    /// The earliest moment at which one is to be given up.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.list.iter().map(|departure| departure.until).min().unwrap_or(Instant::NEVER)
    }

    /// Whether this connection is on its way.
    pub(crate) fn has(&self, id: ConnectionId) -> bool {
        self.list.iter().any(|departure| departure.id == id)
    }

    /// Whether barriers of other shards wait here.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Remembers a connection that is to be closed should it come here.
    pub(crate) fn expel(&mut self, id: ConnectionId, why: &str) {
        if self.expelled.len() == EXPELLED_MAX {
            self.expelled.pop_front();
        }
        self.expelled.push_back((id, why.into()));
    }

    fn expelled(&self, id: ConnectionId) -> Option<&str> {
        let found = self.expelled.iter().find(|(expelled, _)| *expelled == id);
        found.map(|(_, why)| &**why)
    }
}

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
        self.edge.now = now;
        let list = &self.departures.list;
        if !self.may_send_to(to)
            || list.len() >= DEPARTURES_MAX
            || list.iter().any(|departure| departure.id == id)
        {
            return false;
        }
        let Some((slot, connection)) = self.edge.connection(id, u32::MAX) else { return false };
        if !connection.may_leave_to(to) {
            return false;
        }
        let detaches = !connection.attachments().is_empty();
        self.edge.pause(slot, Cause::Move, out);
        self.departures.count += 1;
        let number = self.departures.count;
        if detaches {
            let mail = Mail::DetachConsumers { connection: id, number };
            out.mail[to.index()].items.push(mail);
        }
        self.departures.list.push(Departure {
            slot,
            id,
            to,
            why: why.into(),
            number,
            until: now.instant + PATIENCE,
            stage: if detaches { Stage::Detaching } else { Stage::Draining },
            detaches,
        });
        true
    }

    /// Whether anything may be sent to shard `to` for good: it is another one, and the broker does
    /// not stop.
    pub(crate) fn may_send_to(&self, to: ShardId) -> bool {
        to != self.edge.shard && to.0 < self.settings.shards && !self.stopping
    }

    /// Brings departures forward, at the end of a cycle.
    pub(crate) fn depart(&mut self, now: Now, out: &mut Outbox) {
        if !self.departures.waiting.is_empty() && self.has_applied_mail() {
            for (from, connection, number) in core::mem::take(&mut self.departures.waiting) {
                out.mail[from.index()].items.push(Mail::MovePassed { connection, number });
            }
        }
        if self.departures.list.is_empty() {
            return;
        }
        for mut departure in core::mem::take(&mut self.departures.list) {
            if self.bring_forward(now, &mut departure, out) {
                self.departures.list.push(departure);
            } else if self.edge.connection_at(departure.slot, departure.id).is_some() {
                self.edge.resume(departure.slot, Cause::Move, out);
            }
        }
    }

    /// False when the departure is over.
    fn bring_forward(&mut self, now: Now, departure: &mut Departure, out: &mut Outbox) -> bool {
        let own = self.edge.shard;
        let Some(connection) = self.edge.connection_at(departure.slot, departure.id) else {
            return false;
        };
        if connection.end.is_some() || connection.gone {
            return false;
        }
        if now.instant >= departure.until || !connection.may_leave_to(departure.to) {
            let name = connection_name(connection);
            if departure.detaches {
                let (connection, consumers) = (departure.id, connection.attachments());
                let mail = Mail::ConnectionStays { connection, consumers };
                out.mail[departure.to.index()].items.push(mail);
            }
            let (to, why) = (departure.to, &departure.why);
            let text = format!("{name}: stays on shard {own}, was to go to {to} ({why})");
            out.log(Severity::Info, "connection-stays", text);
            self.edge.counters.moves_given_up += 1;
            return false;
        }
        if departure.stage == Stage::Detaching || !connection.is_quiet() {
            return true;
        }
        if departure.stage == Stage::Draining {
            if !self.migrations.is_idle() {
                // What it said may wait for a queue that is on its way.
                return true;
            }
            let (connection, number) = (departure.id, departure.number);
            let touched = self.edge.connections[departure.slot as usize].touched.iter();
            let mut waiting = 0;
            for shard in touched.filter(|&&shard| shard != own) {
                out.mail[shard.index()].items.push(Mail::MoveBarrier { connection, number });
                waiting += 1;
            }
            departure.stage = Stage::Passing(waiting);
        }
        if departure.stage == Stage::Passing(0) {
            departure.stage = Stage::Ready;
        }
        if departure.stage == Stage::Ready {
            out.hand_over.push((ConnectionSlot(departure.slot), departure.to));
        }
        true
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
        self.edge.remote_windows.remove(&connection);
        if self.has_applied_mail() {
            out.mail[from.index()].items.push(Mail::MovePassed { connection, number });
        } else {
            self.departures.waiting.push((from, connection, number));
        }
    }

    /// Another shard has applied all that a connection sent there.
    pub(crate) fn move_passed(&mut self, number: u64) {
        let found = self.departures.list.iter_mut().find(|departure| departure.number == number);
        if let Some(Departure { stage: Stage::Passing(waiting), .. }) = found {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// A connection of another shard wants to come here: its consumers get nothing more.
    pub(crate) fn detach_consumers(
        &mut self,
        from: ShardId,
        connection: ConnectionId,
        number: u64,
        out: &mut Outbox,
    ) {
        if !self.edge.detached.contains(&connection) {
            self.edge.detached.push(connection);
        }
        out.mail[from.index()].items.push(Mail::ConsumersDetached { number });
    }

    /// The consumers of a connection that goes get nothing more.
    pub(crate) fn consumers_detached(&mut self, number: u64) {
        let found = self.departures.list.iter_mut().find(|departure| departure.number == number);
        if let Some(departure) = found.filter(|departure| departure.stage == Stage::Detaching) {
            departure.stage = Stage::Draining;
        }
    }

    /// A connection of another shard stays there: its consumers get messages again.
    pub(crate) fn attach_again(
        &mut self,
        now: Now,
        connection: ConnectionId,
        consumers: &[Attachment],
        out: &mut Outbox,
    ) {
        self.edge.detached.retain(|detached| *detached != connection);
        for consumer in consumers {
            self.resume_consumer(now, consumer.queue, u32::MAX, consumer.key, out);
        }
    }

    /// A connection has come: its consumers get messages here.
    pub(crate) fn attach_consumers(&mut self, now: Now, slot: u32, out: &mut Outbox) {
        let own = self.edge.shard;
        let Some(connection) = self.edge.connections.get(slot as usize) else { return };
        let (id, consumers) = (connection.id, connection.attachments());
        self.edge.detached.retain(|detached| *detached != id);
        for Attachment { queue, key, handle } in consumers {
            let home = self.home_slot(queue, u32::MAX);
            let found =
                home.filter(|&home| self.homes[home as usize].queue.relocate(handle, own, slot));
            let Some(home) = found else {
                // The queue went while it was on its way.
                self.consumer_cancelled(now, key, queue, out);
                continue;
            };
            self.edge.end_wait(key);
            self.edge.remote_consumers.remove(&key);
            if let Some((_, connection)) = self.edge.connection(id, slot)
                && let Some(subscription) = connection.subscription(key)
            {
                subscription.queue_slot = home;
            }
            self.homes[home as usize].queue.resume(handle);
            self.pump(now, home, out);
        }
    }

    /// Ends the departure of a connection that is handed over now. `Err` if it must not go yet;
    /// otherwise why it goes, if by a departure.
    pub(crate) fn end_departure(&mut self, slot: u32) -> Result<Option<Box<str>>, ()> {
        let Some(connection) = self.edge.connections.get_mut(slot as usize) else { return Err(()) };
        let id = connection.id;
        let found = self.departures.list.iter().position(|departure| departure.id == id);
        let Some(place) = found else { return Ok(None) };
        let is_ready = self.departures.list[place].stage == Stage::Ready;
        let to = self.departures.list[place].to;
        if !is_ready || !connection.may_leave_to(to) || !connection.is_quiet() {
            return Err(());
        }
        let Departure { why, .. } = self.departures.list.swap_remove(place);
        self.edge.counters.moved += 1;
        Ok(Some(why))
    }

    /// What became of the broker while a connection travelled may mean its end.
    pub(crate) fn receive_traveller(
        &mut self,
        now: Now,
        slot: u32,
        errand: Option<(ShardId, Box<str>)>,
        out: &mut Outbox,
    ) {
        let own = self.edge.shard;
        let Some(connection) = self.edge.connections.get(slot as usize) else { return };
        if let Some((from, why)) = errand {
            let name = connection_name(connection);
            let text = format!("{name}: from shard {from} to {own}; {why}");
            out.log(Severity::Info, "connection-moved", text);
        }
        let why = if self.stopping {
            "broker forced connection closure with reason 'shutdown'"
        } else if self.directory.vhost_info(connection.vhost).is_none() {
            "vhost is deleted"
        } else if self.directory.user(&connection.user).is_none() {
            "user is deleted"
        } else if let Some(why) = self.departures.expelled(connection.id) {
            why
        } else {
            return;
        };
        let error = ProtocolError::new(ReplyCode::CONNECTION_FORCED, why);
        self.fail_connection(now, slot, error, out);
    }
}
