//! Queues on their way to other shards, and what waits for them.

use crate::broker::Broker;
use crate::channel::Target;
use crate::directory::{QueueInfo, Request};
use crate::mail::Command;
use crate::mail::{Mail, Origin};
use crate::migration::Next;
use crate::migration::{Parcel, Rest};
use crate::outbox::Outbox;
use crate::queue::ConsumerKey;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use lepus_base::{Now, QueueId, ShardId};

impl Broker {
    /// Has a queue go to another shard, for the reason `why`, which the log tells. False if it is
    /// not here or does not go: it belongs to a connection, has many messages, is on its way or
    /// about to be deleted, too many others are on their way, or the broker stops.
    pub fn move_queue(
        &mut self,
        now: Now,
        id: QueueId,
        to: ShardId,
        why: &str,
        out: &mut Outbox,
    ) -> bool {
        self.shard.now = now;
        let Some(slot) = self.homes.slot_of(id, u32::MAX) else { return false };
        let may_begin =
            !self.shard.stopping && self.shard.may_send_to(to) && self.homes.migrations.may_begin();
        if !may_begin || !self.home().is_free(id, slot) {
            return false;
        }
        let number = self.homes.migrations.begin(now, (slot, id), to, why, self.shard.others());
        out.tell_others(self.shard.id, || Mail::QueueLeaves { queue: id, number });
        true
    }

    /// Whether some queue is on its way, as far as is known here.
    #[must_use]
    pub fn has_migrations(&self) -> bool {
        self.homes.migrations.is_any_on_its_way()
    }

    /// Brings migrations forward, at the end of a cycle.
    pub(crate) fn migrate(&mut self, now: Now, out: &mut Outbox) {
        for mut leaving in self.homes.migrations.take_leaving() {
            let (slot, id) = leaving.queue();
            let home = self.homes.queues.get(slot as usize);
            let Some(home) = home.filter(|home| home.id == id) else { continue };
            let log = home.log;
            if leaving.must_end(now, self.shard.stopping || home.is_dying()) {
                self.home().give_migration_up(now, &leaving, out);
                continue;
            }
            let is_still = leaving.depends_on_queue() && self.is_still(slot, id);
            let next = leaving.go_on(is_still, &mut self.journal, log);
            if next == Next::AskShards {
                let number = self.homes.migrations.ask_again(&mut leaving, self.shard.others());
                out.tell_others(self.shard.id, || Mail::QueueLeaves { queue: id, number });
            }
            let to = leaving.to();
            self.homes.migrations.keep(leaving);
            if next == Next::AskDirectory {
                let origin = Origin::Migration { shard: self.shard.id, queue: id };
                self.shard.ask_directory(origin, Request::MoveQueue { id, to }, out);
            }
        }
    }

    /// Whether nothing of a queue is here but itself and its consumers.
    pub(crate) fn is_still(&self, slot: u32, id: QueueId) -> bool {
        let queue = &self.homes.queues[slot as usize].queue;
        let detached = &self.homes.remote.detached;
        let is_detached = |key: &ConsumerKey| detached.contains(&key.connection);
        queue.is_still()
            // A connection is about to come to it.
            && (detached.is_empty() || !queue.consumers().any(|(_, one, _)| is_detached(&one.key)))
            && !self.has_of(id)
    }

    /// The directory gave a queue another home and another id.
    pub(crate) fn queue_moved(
        &mut self,
        now: Now,
        info: &Arc<QueueInfo>,
        id: QueueId,
        out: &mut Outbox,
    ) {
        let Some(to) = self.directory.queue_by_id(id).map(|info| info.home) else { return };
        let target = Target { queue: id, home: to, slot: u32::MAX };
        self.shard.jobs.redirect(info.id, target, self.shard.id);
        self.homes.dead_letters.redirect(info.id, id);
        // What is passed on to another shard waits for room in the own log.
        self.home().queue_left(info.id, 0);
        self.session().redirect_consumers(info, (id, to), out);
        let own = self.shard.id;
        let rest = self.homes.migrations.end_rest(info.id);
        if own == to {
            return self.homes.migrations.expect(id, rest);
        }
        if own == info.home {
            self.home().send_queue(now, info.id, (id, to), out);
        }
        if let Some(rest) = rest {
            self.send_rest_on(now, rest, id, out);
        }
    }

    /// A queue stays where it was, or is gone: what waited for it goes on.
    pub(crate) fn rest_over(&mut self, now: Now, queue: QueueId, out: &mut Outbox) {
        if let Some(rest) = self.homes.migrations.end_rest(queue) {
            self.send_rest_on(now, rest, queue, out);
        }
    }

    pub(crate) fn send_rest_on(&mut self, now: Now, rest: Rest, queue: QueueId, out: &mut Outbox) {
        let home = self.directory.queue_by_id(queue).map(|info| info.home);
        let is_here = home == Some(self.shard.id);
        // Of each channel, what found no room.
        let mut postponed = BTreeMap::new();
        for parcel in rest.into_parcels() {
            self.shard.resting_bytes -= parcel.bytes(&self.shard.pool);
            match parcel {
                Parcel::Message { body, bytes, terms } => {
                    let message = (body, bytes, terms);
                    self.home().send_message_on(now, (queue, home), message, &mut postponed, out);
                }
                Parcel::Mail(Mail::Command { from, mut command, .. }) => match home {
                    Some(home) if !is_here => {
                        if let Command::Subscribe { consumer, .. } = &mut command {
                            let limits = &self.shard.limits;
                            consumer.prefetch = limits.prefetch_elsewhere(consumer.prefetch);
                        }
                        let mail = Mail::Command { from, queue, command };
                        out.mail[home.index()].items.push(mail);
                    }
                    _ => self.command_mailed(now, from, queue, command, out),
                },
                Parcel::Mail(Mail::Govern { consumer, on, .. }) => {
                    self.home().govern(now, consumer, queue, on, out);
                }
                // Nothing else waits.
                Parcel::Mail(_) => {}
            }
        }
    }
}
