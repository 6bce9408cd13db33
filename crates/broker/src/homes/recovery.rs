//! Queues get what their logs had, and leave what they have at the end.

use lepus_base::Now;
use lepus_store::{Lane, Outline};

use crate::delivery::QueuePort;
use crate::directory::Request;
use crate::homes::HomeSide;
use crate::journal::log_of;
use crate::mail::Origin;
use crate::outbox::{Outbox, Severity};
use crate::queue::{NoSink, command};

impl HomeSide<'_> {
    /// Begins to recover the logs that the settings name; to be called once, when the directory
    /// is complete. The operations are in `out.disk`.
    pub(crate) fn open_stores(&mut self, now: Now, out: &mut Outbox) {
        let Some(settings) = self.shard.settings.store.clone() else { return };
        let unwritten_bytes_max = self.shard.limits.unwritten_bytes_max;
        self.journal.open(&settings, unwritten_bytes_max, &mut out.disk);
        for (_, home) in &mut self.homes.queues {
            // A queue that was there before the logs were.
            let Some(info) = self.directory.queue_by_id(home.id) else {
                invariant!("a queue that has a home is known")
            };
            home.log = self.journal.place_of(log_of(info));
            if info.durable {
                self.journal.name(home.log);
            }
        }
        self.journal.flush(now, &mut out.disk);
    }

    /// Makes the homes of this shard of all queues that the directory has, before anybody is served.
    pub(crate) fn make_homes(&mut self, now: Now, out: &mut Outbox) {
        self.homes.policies.start_at(self.directory.policy_epoch());
        let shard = self.shard.id;
        let places = 0..self.directory.queue_places();
        let is_own =
            |place: &usize| self.directory.queue_at(*place).is_some_and(|info| info.home == shard);
        let own = places.clone().filter(is_own).count();
        self.homes.slots.prepare(own);
        for place in places {
            self.make_home(now, place, out);
        }
    }

    /// A log is recovered: its queues get what they had.
    pub(crate) fn log_opened(&mut self, now: Now, place: u16, is_clean: bool, out: &mut Outbox) {
        let (directory, store) = (&self.directory, &self.shard.settings.store);
        let deleted = store.as_ref().map_or(&[][..], |store| &store.deleted);
        self.journal.opened(place, is_clean, directory, deleted);
        self.give_back(now, place);
        self.tell_orphans(place, out);
    }

    /// Messages of queues that nobody knows are named, and their ids are not given to others.
    pub(crate) fn tell_orphans(&mut self, place: u16, out: &mut Outbox) {
        let Some((below, text)) = self.journal.orphans(place) else { return };
        out.log(Severity::Warning, "orphaned-messages", text);
        self.shard.ask_directory(Origin::Start, Request::UseIds { below }, out);
    }

    /// The queues of a log get what they had.
    pub(crate) fn give_back(&mut self, now: Now, place: u16) {
        let lanes = self.journal.lanes_of_queues(place);
        for of_queue in lanes.chunk_by(|(one, _), (other, _)| one.queue == other.queue) {
            let is_live =
                |(lane, found): &&(Lane, Outline)| found.count > 0 && !lane.is_transient();
            let mut live = of_queue.iter().filter(is_live).peekable();
            let Some((first, outline)) = live.peek() else { continue };
            if self.directory.holding(first.queue).is_some() {
                self.homes.delayed.list(place, outline.slot, first.queue);
                continue;
            }
            let Some(home) = self.homes.slot_of(first.queue, u32::MAX) else {
                invariant!("a queue is at home on the shard that drives its log")
            };
            let state = &mut self.homes.queues[home as usize];
            let next = of_queue.iter().map(|(_, found)| found.next_seq).max();
            let begin = command::BeginAt { seq: next.unwrap_or(0) };
            state.queue.apply(now, begin, &mut NoSink);
            for (lane, found) in live {
                let recover = command::Recover {
                    priority: lane.level as u8,
                    lane: found.slot,
                    count: found.count,
                    bytes: found.bytes,
                };
                state.queue.apply(now, recover, &mut NoSink);
            }
            state.account_memory(self.shard);
            if state.queue.has_rules() {
                // What is expired or too much goes without being asked for.
                self.list_work(home);
            }
        }
    }

    /// Goes on closing, at the end of a cycle.
    pub(crate) fn continue_close(&mut self, now: Now, out: &mut Outbox) {
        if !self.journal.closes() {
            return;
        }
        while let Some(place) = self.journal.next_quiet() {
            for (slot, home) in self.homes.queues.iter_mut().filter(|(_, home)| home.log == place) {
                let mut sink = QueuePort {
                    shard: self.shard,
                    connections: self.connections,
                    remote: &mut self.homes.remote,
                    dead_letters: &mut self.homes.dead_letters,
                    out,
                    now,
                    queue: home.id,
                    queue_slot: slot as u32,
                    journal: self.journal,
                    log: place,
                };
                home.queue.apply(now, command::MarkUnacked {}, &mut sink);
            }
            let letters = self.homes.dead_letters.kept(place);
            let delivered = letters
                .filter(|(source, _)| source.was_delivered && !source.entry.place.is_spilled());
            self.journal.close_log(place, delivered.map(|(source, lane)| (lane, source.entry.seq)));
        }
    }
}
