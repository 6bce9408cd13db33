//! The directory's changes: shard 0 orders them, every shard applies them.

use lepus_base::Now;

use crate::home::Home;
use crate::homes::HomeSide;
use crate::outbox::Outbox;

impl HomeSide<'_> {
    /// If the home of the queue at this place of the directory is here, it comes into being.
    pub(crate) fn make_home(&mut self, now: Now, place: usize, out: &mut Outbox) {
        let Some(info) = self.directory.queue_at(place) else { return };
        if info.home != self.shard.id {
            return;
        }
        let mut home = Home::new(now, info);
        if let Some(recorder) = &self.homes.recorder {
            home.queue.record_to(now, info.settings(), recorder);
        }
        home.weigh(&mut self.shard);
        if info.durable {
            self.journal.name(0);
        }
        self.tell_strategy(info, out);
        let id = info.id;
        let slot = self.homes.queues.insert(home) as u32;
        self.directory.note_slot(place, slot);
        let homes = &self.homes.queues;
        self.homes.slots.insert(id, slot, |slot| homes[slot as usize].id);
        self.shard.counters.queues_created += 1;
        self.pump(now, slot, out);
    }
}
