//! How queues go to other shards, and come from them.

use crate::channel::Target;
use crate::directory::{QueueInfo, Request};
use crate::home::Home;
use crate::homes::HomeSide;
use crate::journal::NO_LOG;
use crate::mail::{Mail, MovingQueue, Origin};
use crate::migration::{Leaving, MESSAGES_MAX, Next, ParkedMail};
use crate::outbox::{Outbox, Severity};
use crate::queue::{ConsumerKey, NoSink, command};
use crate::remote::RemoteConsumer;
use crate::traffic::QueueTraffic;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use lepus_base::{Now, QueueId, ShardId};
use lepus_store::disk::LogId;

impl HomeSide<'_> {
    /// Whether nothing speaks against an order to a queue to go to another shard: it could, and
    /// neither came nor failed to go lately.
    pub(crate) fn may_move(&self, now: Now, id: QueueId) -> bool {
        let is_free = |slot| self.is_free(id, slot);
        !self.homes.migrations.is_left_alone(now, id)
            && self.homes.slot_of(id, u32::MAX).is_some_and(is_free)
    }

    pub(crate) fn is_free(&self, id: QueueId, slot: u32) -> bool {
        let home = &self.homes.queues[slot as usize];
        self.directory.queue_by_id(id).is_some_and(|info| info.exclusive().is_none())
            && !home.is_dying()
            && self.homes.migrations.parked_mail(id).is_none()
            && home.queue.ready() + home.queue.unacked() <= MESSAGES_MAX
    }

    /// A queue of another shard is about to leave it.
    pub(crate) fn queue_leaves(
        &mut self,
        from: ShardId,
        queue: QueueId,
        number: u64,
        out: &mut Outbox,
    ) {
        if self.directory.queue_by_id(queue).is_some_and(|info| info.home == from) {
            self.homes.migrations.hold_for(queue);
        }
        out.mail[from.index()].items.push(Mail::QueueQuiet { number });
    }

    pub(crate) fn give_migration_up(&mut self, now: Now, leaving: &Leaving, out: &mut Outbox) {
        let (slot, queue) = leaving.queue();
        leaving.tell_end(&self.directory.describe_queue(queue), self.shard.id, out);
        self.shard.counters.moves_given_up += 1;
        self.homes.migrations.stayed(now, queue);
        out.tell_others(self.shard.id, || Mail::QueueStays { queue });
        out.own.push(Mail::QueueStays { queue });
        if let Some(slot) = self.homes.slot_of(queue, slot) {
            self.dispatch_ready(now, slot, out);
        }
    }

    /// The directory does not let a queue move.
    pub(crate) fn migration_refused(&mut self, now: Now, queue: QueueId, out: &mut Outbox) {
        if let Some(leaving) = self.homes.migrations.end_leaving(queue) {
            self.give_migration_up(now, &leaving, out);
        }
    }

    /// Nobody knows under which of two ids the next start will find a queue, so nothing is logged
    /// for it any more. It is empty: what it had has left its log.
    pub(crate) fn take_log_from(&mut self, now: Now, queue: QueueId, out: &mut Outbox) {
        let Some(slot) = self.homes.slot_of(queue, u32::MAX) else {
            return race!("the queue was deleted while it was to move");
        };
        let home = &mut self.homes.queues[slot as usize];
        if !home.queue.is_durable() {
            // Nothing of it is found again anyway.
            return;
        }
        let held = home.queue.ready() + home.queue.unacked();
        invariant!(held == 0, "a queue that is about to leave has no messages");
        self.journal.forget_windows(home.queue.windowed());
        home.queue.apply(now, command::DetachLog {}, &mut NoSink);
        home.log = NO_LOG;
        let name = self.directory.describe_queue(queue);
        let text = format!(
            "{name}: takes no persistent messages until the next start, which finds out whether \
             the disk has its move to another shard"
        );
        out.log(Severity::Error, "queue-undecided", text);
    }

    /// Sends a queue of this shard to its new home.
    pub(crate) fn send_queue(
        &mut self,
        now: Now,
        old: QueueId,
        (id, to): (QueueId, ShardId),
        out: &mut Outbox,
    ) {
        let why = self.homes.migrations.end_leaving(old).map(Leaving::into_reason);
        let homes = &self.homes.queues;
        let Some(slot) = self.homes.slots.remove(old, |slot| homes[slot as usize].id) else {
            invariant!("a queue that moves is at home where it was");
        };
        let mut home = self.homes.queues.remove(slot as usize);
        home.forget_bytes(self.shard);
        // Its last consumer left meanwhile, and its deletion is asked for already.
        for (to, reply) in home.take_answers() {
            self.shard.reply(to, old, reply, out);
        }
        self.homes.policies.trimmed(old);
        let (mut queue, settings, log) = home.into_parts();
        self.journal.forget_windows(queue.windowed());
        self.journal.drop_queue(log, old);
        self.home_left(old, log, queue.is_durable());
        queue.apply(now, command::DetachLog {}, &mut NoSink);
        let consumers: Vec<ConsumerKey> =
            queue.consumers().map(|(_, consumer, _)| consumer.key).collect();
        for key in consumers {
            self.forget_remote(key, old, out);
        }
        self.shard.counters.queues_moved += 1;
        let cargo = Box::new(MovingQueue { queue, settings, why: why.unwrap_or_default() });
        out.mail[to.index()].items.push(Mail::QueueArrives { queue: id, cargo });
    }

    /// A queue comes to its new home.
    pub(crate) fn queue_arrives(
        &mut self,
        now: Now,
        from: ShardId,
        id: QueueId,
        cargo: MovingQueue,
        out: &mut Outbox,
    ) {
        let MovingQueue { mut queue, settings, why } = cargo;
        let own = self.shard.id;
        let Some(info) = self.directory.queue_by_id(id) else {
            // Deleted on the way.
            let deleted = queue.apply(now, command::Delete {}, &mut NoSink);
            return self.tell_cancelled(id, deleted.consumers, out);
        };
        let number = LogId(1 + u32::from(info.log));
        let log_place = if self.journal.is_on() { self.journal.place_of(number) } else { 0 };
        if info.durable {
            self.journal.name(log_place);
        }
        let prefetch_max = self.shard.limits.unacked_per_channel_max;
        queue.apply(now, command::Arrive { own, prefetch_max }, &mut NoSink);
        for (handle, consumer, _) in queue.consumers() {
            if consumer.shard != own {
                let remote = RemoteConsumer {
                    queue: id,
                    handle,
                    shard: consumer.shard,
                    // Until its shard has told.
                    governed: true,
                    credit: 0,
                    wanted: false,
                    place: None,
                };
                self.homes.remote.consumers.insert(consumer.key, remote);
            }
        }
        let mut home = Home::arrived((id, info.vhost), queue, settings, log_place);
        home.account_memory(self.shard);
        let slot = self.homes.queues.insert(home) as u32;
        // What it brought may be more than it needs here.
        self.homes.queues[slot as usize].note(slot, self.shard);
        let Some(place) = self.directory.queue_place_by_id(id) else {
            invariant!("a queue that arrives and is known has a place");
        };
        self.directory.note_slot(place as usize, slot);
        let homes = &self.homes.queues;
        self.homes.slots.insert(id, slot, |slot| homes[slot as usize].id);
        // What was to go to it waited for room in the own log.
        self.queue_left(id, 0);
        let text =
            format!("{}: from shard {from} to {own}; {why}", self.directory.describe_queue(id));
        out.log(Severity::Info, "queue-moved", text);
        if self.homes.queues[slot as usize].queue.has_filters() {
            self.homes.watch_selectors(now, slot, &mut self.shard.timers);
        }
        self.homes.migrations.came(now, id);
        out.own.push(Mail::QueueStays { queue: id });
        self.renew_arrived(now, slot, out);
        self.dispatch_ready(now, slot, out);
    }

    /// Has a queue go to another shard, for the reason `why`, which the log tells. False if it is
    /// not here or does not go: it belongs to a connection, has many messages, is on its way or
    /// about to be deleted, too many others are on their way, or the broker stops.
    pub(crate) fn move_queue(
        &mut self,
        now: Now,
        id: QueueId,
        to: ShardId,
        why: &str,
        out: &mut Outbox,
    ) -> bool {
        let Some(slot) = self.homes.slot_of(id, u32::MAX) else {
            return race!("the queue left before it was to move", false);
        };
        let may_begin =
            !self.shard.stopping && self.shard.may_send_to(to) && self.homes.migrations.may_begin();
        if !may_begin || !self.is_free(id, slot) {
            return false;
        }
        let number = self.homes.migrations.begin(now, (slot, id), to, why, self.shard.others());
        out.tell_others(self.shard.id, || Mail::QueueLeaves { queue: id, number });
        true
    }

    /// Brings migrations forward, at the end of a cycle.
    pub(crate) fn migrate(&mut self, now: Now, out: &mut Outbox) {
        for mut leaving in self.homes.migrations.take_leaving() {
            let (slot, id) = leaving.queue();
            let home = self.homes.queues.get(slot as usize);
            let Some(home) = home.filter(|home| home.id == id) else {
                race!("the queue was deleted while it was to move");
                continue;
            };
            let log = home.log;
            if leaving.must_end(now, self.shard.stopping || home.is_dying()) {
                self.give_migration_up(now, &leaving, out);
                continue;
            }
            let is_still = leaving.depends_on_queue() && self.is_still(slot, id);
            let next = leaving.go_on(is_still, self.journal, log);
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

    /// Queues that got messages since they were looked at last: looks at up to `places_max`, those
    /// next that were not looked at this time. A queue is told from its second look on. If
    /// `with_idle`, all queues looked at are told.
    pub(crate) fn sample_queues(
        &mut self,
        now: Now,
        places_max: usize,
        with_idle: bool,
    ) -> Vec<QueueTraffic> {
        let places = self.homes.queues.capacity();
        let mut found = Vec::new();
        for _ in 0..places_max.min(places) {
            let place = self.homes.queue_looks.next_place(places);
            let Some(home) = self.homes.queues.get(place) else {
                self.homes.queue_looks.forget(place);
                continue;
            };
            let (id, total) = (home.id, home.queue.totals().published);
            let messages = self.homes.queue_looks.look(now.instant, place, (id, total), with_idle);
            if let Some(messages) = messages {
                found.push(QueueTraffic { queue: id, movable: self.may_move(now, id), messages });
            }
        }
        found
    }

    /// The directory gave a queue another home and another id. What waited here for it, if that is to go on.
    pub(crate) fn queue_moved(
        &mut self,
        now: Now,
        info: &QueueInfo,
        id: QueueId,
        out: &mut Outbox,
    ) -> Option<ParkedMail> {
        let own = self.shard.id;
        let Some(to) = self.directory.queue_by_id(id).map(|info| info.home) else {
            invariant!("a queue that moved just now is known by its new id")
        };
        self.shard.jobs.redirect(info.id, Target { queue: id, home: to, slot: u32::MAX }, own);
        self.homes.dead_letters.redirect(info.id, id);
        // What is passed on to another shard waits for room in the own log.
        self.queue_left(info.id, 0);
        let parked = self.homes.take_parked_mail(info.id);
        if own == to {
            self.homes.migrations.expect(id, parked);
            return None;
        }
        if own == info.home {
            self.send_queue(now, info.id, (id, to), out);
        }
        parked
    }
}
