//! How queues begin and end, and how their consumers hear of the end.

use crate::directory::{Applied, QueueInfo, Request};
use crate::home::Home;
use crate::homes::HomeSide;
use crate::mail::{ChannelRef, Mail, Origin, Reply};
use crate::outbox::Outbox;
use crate::outbox::Severity;
use crate::queue::Orphans;
use crate::queue::{NoSink, command};
use crate::refusal::Refusal;
use alloc::format;
use lepus_base::Now;
use lepus_base::QueueId;

impl HomeSide<'_> {
    /// If the home of the queue at this place of the directory is here, it comes into being.
    pub(crate) fn make_home(&mut self, now: Now, place: usize, out: &mut Outbox) {
        let Some(info) = self.directory.queue_at(place) else { return };
        if info.home != self.shard.id {
            return;
        }
        let settings = self.directory.settings_of(info);
        let mut home = Home::new(now, info, settings);
        if let Some(recorder) = &self.homes.recorder {
            let settings = self.directory.settings_of(info);
            home.queue.record_to(now, &settings, recorder);
        }
        home.account_memory(self.shard);
        if info.durable {
            self.journal.name(0);
        }
        let id = info.id;
        let slot = self.homes.queues.insert(home) as u32;
        self.directory.note_slot(place, slot);
        let homes = &self.homes.queues;
        self.homes.slots.insert(id, slot, |slot| homes[slot as usize].id);
        if let Some(info) = self.directory.queue_by_id(id) {
            self.tell_strategy(info, out);
        }
        self.shard.counters.queues_created += 1;
        self.dispatch_ready(now, slot, out);
    }

    /// The directory is about to change. What died before is routed as it was then, or a queue that goes with the
    /// consumer that rejected a message would take its dead-letter exchange along.
    pub(crate) fn route_before_change(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..8 {
            if !self.route_dead_letters(now, out) {
                break;
            }
        }
    }

    /// The directory has changed: queues begin and end.
    pub(crate) fn follow_change(&mut self, now: Now, applied: &Applied, out: &mut Outbox) {
        for id in &applied.queues_created {
            let Some(place) = self.directory.queue_place_by_id(*id) else {
                invariant!("a queue that was just declared has a place")
            };
            self.make_home(now, place as usize, out);
        }
        for info in &applied.queues_deleted {
            self.home_deleted(now, info, applied.goes_in_slices, out);
        }
        if let Some(vhost) = applied.policies_changed {
            self.homes.policies.changed(vhost);
        }
        for id in &applied.holdings_dropped {
            self.drop_holding(*id);
        }
        self.shard.exchanges.forget(&applied.exchange_places_freed);
        self.shard.filter_costs.forget(&applied.exchange_places_freed);
    }

    /// Asks the directory to delete a queue; `answer` is given once it is gone.
    pub(crate) fn delete_home(
        &mut self,
        slot: u32,
        answer: Option<(ChannelRef, Reply)>,
        out: &mut Outbox,
    ) {
        let home = &mut self.homes.queues[slot as usize];
        let id = home.id;
        home.begin_deletion(answer);
        let origin = Origin::Home { shard: self.shard.id, queue: id };
        self.shard.ask_directory(origin, Request::DeleteQueue { id }, out);
    }

    /// The directory refuses to delete a queue whose home is here: it stays. One that is due to go
    /// by itself goes later.
    pub(crate) fn deletion_refused(
        &mut self,
        now: Now,
        queue: QueueId,
        refusal: &Refusal,
        out: &mut Outbox,
    ) {
        let Some(slot) = self.homes.slot_of(queue, u32::MAX) else {
            return race!("the queue was deleted before its deletion was refused");
        };
        let home = &mut self.homes.queues[slot as usize];
        let Some(dying) = home.end_deletion(now) else {
            return race!("its deletion was refused before");
        };
        let text = format!("{} stays for now: {refusal}", self.directory.describe_queue(queue));
        out.log(Severity::Warning, "queue-not-deleted", text);
        for (to, reply) in dying.answers {
            // Who cancelled the last consumer has done that.
            let is_done = reply == Reply::Cancelled;
            let reply = if is_done { reply } else { Reply::Refused(refusal.clone()) };
            self.shard.reply(to, queue, reply, out);
        }
        for from in dying.commands {
            self.shard.reply(from, queue, Reply::Refused(refusal.clone()), out);
        }
        self.list_work(slot);
        self.dispatch_ready(now, slot, out);
    }

    /// The directory deleted a queue whose home is here. Where its bindings go in slices, who deleted
    /// it hears that after the last: [`HomeSide::deletion_over`].
    pub(crate) fn home_deleted(
        &mut self,
        now: Now,
        info: &QueueInfo,
        goes_in_slices: bool,
        out: &mut Outbox,
    ) {
        let homes = &self.homes.queues;
        let Some(slot) = self.homes.slots.remove(info.id, |slot| homes[slot as usize].id) else {
            // What goes to one that is yet to come waits for room in the own log, and so does what is passed on to
            // another shard.
            return self.home_left(info.id, 0, info.home == self.shard.id);
        };
        let mut home = self.homes.queues.remove(slot as usize);
        self.homes.policies.trimmed(info.id);
        self.shard.counters.queues_deleted += 1;
        self.journal.forget_windows(home.queue.windowed());
        self.journal.drop_queue(home.log, home.id);
        self.home_left(home.id, home.log, home.queue.is_durable());
        self.shard.backpressure.end_disk(info.id);
        let answers = home.take_answers();
        let orphans = home.queue.apply(now, command::Delete {}, &mut NoSink).consumers;
        // They are counted apart.
        let counted_bytes = home.discount(orphans.memory_bytes(), self.shard);
        self.homes.working.delete(home.queue, counted_bytes);
        self.forget_letters(now, info.id);
        // Who deleted it hears that first, should it consume from it on the same channel.
        if !goes_in_slices {
            for (to, reply) in answers {
                self.shard.reply(to, info.id, reply, out);
            }
        } else if !answers.is_empty() {
            self.homes.leaving.insert(info.id, answers);
        }
        self.tell_cancelled(info.id, orphans, out);
    }

    /// A queue that had its home here is gone with all its bindings.
    pub(crate) fn deletion_over(&mut self, queue: QueueId, out: &mut Outbox) {
        for (to, reply) in self.homes.leaving.remove(&queue).unwrap_or_default() {
            self.shard.reply(to, queue, reply, out);
        }
    }

    /// Tells consumers that their queue is gone.
    pub(crate) fn tell_cancelled(&mut self, queue: QueueId, orphans: Orphans, out: &mut Outbox) {
        if !orphans.is_empty() {
            self.shard.job_bytes += orphans.memory_bytes();
            self.go_on_telling(queue, orphans, out);
        }
    }

    /// Slices of telling consumers that their queues are gone.
    pub(crate) fn work_on_orphans(&mut self, out: &mut Outbox) {
        self.homes.orphans.renew();
        while let Some((queue, orphans)) = self.homes.orphans.next() {
            self.go_on_telling(queue, orphans, out);
        }
        self.homes.orphans.renew();
    }

    pub(crate) fn go_on_telling(&mut self, queue: QueueId, mut orphans: Orphans, out: &mut Outbox) {
        let enough = self.homes.orphans.begin_slice();
        while self.homes.orphans.take_step(enough) {
            if self.tell_next_cancelled(queue, &mut orphans, out) {
                return;
            }
        }
        self.homes.orphans.put_off((queue, orphans));
    }

    /// Tells the next consumer that its queue is gone. Whether none is left.
    pub(crate) fn tell_next_cancelled(
        &mut self,
        queue: QueueId,
        orphans: &mut Orphans,
        out: &mut Outbox,
    ) -> bool {
        if let Some(consumer) = orphans.step() {
            self.forget_remote(consumer.key, queue, out);
            let mail = Mail::ConsumerCancelled { to: consumer.key, queue };
            out.send(self.shard.id, consumer.shard, mail);
        }
        if orphans.is_empty() {
            self.shard.job_bytes -= orphans.memory_bytes();
        }
        orphans.is_empty()
    }
}
