//! What the disk's answers set going: queues that waited for a read, and reports of what is durable.

use alloc::format;

use lepus_base::Now;
use lepus_store::Event;
use lepus_store::disk::{Completion, LogId};

use crate::homes::HomeSide;
use crate::journal::{LETTERS, Reader};
use crate::mail::{Receipt, report};
use crate::outbox::{Outbox, Severity};
use crate::queue::{NoSink, command};

impl HomeSide<'_> {
    /// An operation of one of the logs of queues ended.
    pub(crate) fn journal_done(
        &mut self,
        now: Now,
        id: LogId,
        completion: Completion,
        out: &mut Outbox,
    ) {
        let Some(place) = self.journal.complete(now, id, completion, &mut out.disk) else {
            invariant!("an operation that ended is of a log of this shard")
        };
        self.take_log_events(now, place, out);
        self.report_durable(place, out);
        self.journal.flush_unless_running(now, place, &mut out.disk);
    }

    /// What the logs have to say of themselves at the end of a cycle: damage that a look-up met.
    pub(crate) fn drain_log_events(&mut self, now: Now, out: &mut Outbox) {
        for place in 0..self.journal.len() as u16 {
            self.take_log_events(now, place, out);
        }
    }

    pub(crate) fn take_log_events(&mut self, now: Now, place: u16, out: &mut Outbox) {
        let mut events = self.journal.take_events(place);
        for event in events.drain(..) {
            self.on_log_event(now, place, event, out);
        }
        self.journal.give_back(events);
    }

    pub(crate) fn on_log_event(&mut self, now: Now, place: u16, event: Event, out: &mut Outbox) {
        match event {
            Event::Ready { is_clean } => self.log_opened(now, place, is_clean, out),
            Event::LaneReady(lane) => {
                if let Some(reader) = self.journal.page_read(place, lane) {
                    self.wake(now, reader, out);
                }
            }
            Event::MessageReady(at) => {
                for reader in self.journal.message_read(place, at) {
                    self.wake(now, reader, out);
                }
                while let Some(reader) = self.journal.next_waiting_reader(place) {
                    self.wake(now, reader, out);
                }
            }
            Event::Missing(lane, count) => {
                let queue = self.directory.describe_queue(lane.queue);
                let text = format!(
                    "{queue}: a damaged page of the index was put together again from the log; {count} \
                     messages of it were not found there. See lepus store check"
                );
                out.log(Severity::Error, "messages-missing", text);
            }
            own => self.journal.hear(place, own, out),
        }
    }

    /// Lets a queue go on that waited for something to be read.
    pub(crate) fn wake(&mut self, now: Now, (slot, id): Reader, out: &mut Outbox) {
        if (slot, id) == LETTERS {
            return self.letters_go_on(now, out);
        }
        if self.homes.delayed.holds(id) {
            return self.homes.delayed.wake();
        }
        let Some(slot) = self.homes.slot_of(id, slot) else {
            return race!("the queue left before its page or message was read");
        };
        self.homes.queues[slot as usize].queue.apply(now, command::Wake {}, &mut NoSink);
        self.shard.backpressure.end_disk(id);
        if self.homes.queues[slot as usize].queue.has_filters() {
            // Filters that go through a backlog are woken many times in a turn, and have one share of it.
            return self.list_work(slot);
        }
        self.dispatch_ready(now, slot, out);
    }

    /// Lets dead letters go on that waited, and the queues behind them.
    pub(crate) fn letters_go_on(&mut self, now: Now, out: &mut Outbox) {
        self.homes.dead_letters.go_on();
        if self.journal.closes() {
            return;
        }
        for queue in self.shard.backpressure.end_dead_letters() {
            self.wake(now, queue, out);
        }
    }

    /// Tells those whose messages have become durable.
    pub(crate) fn report_durable(&mut self, place: u16, out: &mut Outbox) {
        while let Some(due) = self.journal.pop_report(place) {
            let items = out.items_for(self.shard.id, due.to.shard);
            report(items, due.to, (due.first, due.last), due.count, Receipt::Taken);
        }
    }

    /// A slice of the search for it.
    pub(crate) fn work_on_oldest(&mut self) {
        let homes = &self.homes.queues;
        let queue_at = |place| homes.get(place).map(|home| (home.id, &home.queue));
        self.homes.oldest.work(homes.capacity(), queue_at);
    }

    /// It is time to look for what keeps the logs' oldest segments.
    pub(crate) fn begin_oldest(&mut self) {
        self.homes.oldest.begin();
    }
}
