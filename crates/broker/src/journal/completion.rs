//! What the disk's answers set going: confirms, parked queues, complaints.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{Completion, LogId};
use lepus_store::{Event, LaneSlot};

use super::{Journal, LETTERS, Log, Phase, READERS_MAX, Reader};
use crate::broker::Broker;
use crate::mail::{Receipt, report};
use crate::outbox::{Outbox, Severity};

impl Journal {
    /// Who waits for an index page.
    fn page_read(&mut self, log: u16, lane: LaneSlot) -> Option<Reader> {
        self.log(log)?.awaited.remove(&lane)
    }

    /// Who waits for a message.
    fn message_read(&mut self, log: u16, at: Position) -> Vec<Reader> {
        self.log(log).map_or(Vec::new(), |log| log.take_readers(at))
    }

    /// Who may begin to read now.
    fn next_hungry(&mut self, log: u16) -> Option<Reader> {
        let log = self.log(log)?;
        let has_room = log.readers.len() < READERS_MAX;
        has_room.then(|| log.hungry.pop_front()).flatten()
    }
}

impl Log {
    fn take_readers(&mut self, at: Position) -> Vec<Reader> {
        let range = (at, (0, QueueId(0)))..=(at, LETTERS);
        let found: Vec<Reader> = self.readers.range(range).map(|&(_, reader)| reader).collect();
        if found.is_empty() {
            // Whoever waits for something that was read along with it looks again.
            return core::mem::take(&mut self.readers).into_iter().map(|(_, r)| r).collect();
        }
        for &reader in &found {
            self.readers.remove(&(at, reader));
        }
        found
    }
}

impl Broker {
    /// An operation of one of the logs of queues ended.
    pub(crate) fn journal_done(
        &mut self,
        now: Now,
        id: LogId,
        completion: Completion,
        out: &mut Outbox,
    ) {
        let Some(place) = self.journal.logs.iter().position(|log| log.id == id) else { return };
        let place = place as u16;
        if let Some(log) = self.journal.log(place) {
            log.store.complete(now, completion, &mut out.disk);
        }
        self.take_log_events(now, place, out);
        self.report_durable(place, out);
        if self.journal.log(place).is_some_and(|log| log.phase != Phase::Running) {
            // Nobody else moves a log that is being opened or closed.
            self.journal.flush(now, &mut out.disk);
        }
    }

    /// What the logs have to say of themselves at the end of a cycle: damage that a look-up met.
    pub(crate) fn hear_logs(&mut self, now: Now, out: &mut Outbox) {
        for place in 0..self.journal.len() as u16 {
            self.take_log_events(now, place, out);
        }
    }

    fn take_log_events(&mut self, now: Now, place: u16, out: &mut Outbox) {
        let mut events = core::mem::take(&mut self.journal.events);
        if let Some(log) = self.journal.log(place) {
            log.store.take_events(&mut events);
        }
        for event in events.drain(..) {
            self.on_log_event(now, place, event, out);
        }
        self.journal.events = events;
    }

    fn on_log_event(&mut self, now: Now, place: u16, event: Event, out: &mut Outbox) {
        match event {
            Event::Ready { is_clean } => self.log_opened(now, place, is_clean, out),
            Event::Refused(refusal) => {
                if let Some(log) = self.journal.log(place) {
                    log.phase = Phase::Refused(refusal);
                }
            }
            Event::LaneReady(lane) => {
                if let Some(reader) = self.journal.page_read(place, lane) {
                    self.wake(now, reader, out);
                }
            }
            Event::MessageReady(at) => {
                for reader in self.journal.message_read(place, at) {
                    self.wake(now, reader, out);
                }
                while let Some(reader) = self.journal.next_hungry(place) {
                    self.wake(now, reader, out);
                }
            }
            Event::Damaged(damage) => {
                if let Some(log) = self.journal.log(place) {
                    log.is_damaged = true;
                }
                let text = format!(
                    "{}: {} bytes at offset {} are damaged; messages in them are kept and given to \
                     nobody, all others are served. See lepus store check and lepus store damaged",
                    damage.file, damage.bytes, damage.offset
                );
                out.log(Severity::Error, "log-damaged", text);
            }
            Event::ReadsFail(file, error) => {
                let text = format!(
                    "{file}: reading fails ({error:?}); queues wait, nothing is dropped, and it is \
                     tried again. See to the disk, its connection, and the limit of open files"
                );
                out.log(Severity::Error, "reads-fail", text);
            }
            Event::ReadsWork { failures, time } => {
                let text = format!(
                    "reading works again after {}.{:03} s and {failures} failures",
                    time.as_secs(),
                    time.subsec_millis()
                );
                out.log(Severity::Info, "reads-work", text);
            }
            Event::Missing(lane, count) => {
                let queue = self.describe_queue(lane.queue);
                let text = format!(
                    "{queue}: a damaged page of the index was put together again from the log; {count} \
                     messages of it were not found there. See lepus store check"
                );
                out.log(Severity::Error, "messages-missing", text);
            }
            Event::Stopped(file, error) => {
                if let Some(log) = self.journal.log(place) {
                    log.stopped = Some((file, error));
                }
                let text = format!(
                    "{file}: the disk fails ({error:?}); nothing is confirmed any more, publishers \
                     are held back"
                );
                out.log(Severity::Error, "log-stopped", text);
            }
            Event::Checkpointed(_) | Event::Found => {}
            Event::CheckpointWaits(bytes) => {
                let text = self.checkpoint_waits(place, bytes);
                out.log(Severity::Warning, "checkpoint-waits", text);
            }
            Event::CheckpointGoesOn => {
                let text = self.checkpoint_goes_on(place);
                out.log(Severity::Info, "checkpoint-goes-on", text);
            }
        }
    }

    fn checkpoint_waits(&mut self, place: u16, bytes: u64) -> String {
        let Some(log) = self.journal.log(place) else { return String::new() };
        let figures = log.store.figures();
        format!(
            "{}: the disk has no room for a checkpoint of {bytes} bytes, and {} of {} segments, whose \
             messages are gone, are not used again before there is one. Free space on the disk; it \
             is tried again once a second",
            log.id, figures.dead_segments, figures.segments
        )
    }

    fn checkpoint_goes_on(&mut self, place: u16) -> String {
        let Some(log) = self.journal.log(place) else { return String::new() };
        let figures = log.store.figures();
        format!(
            "{}: the disk had room for a checkpoint; {} segments are in use, {} ready",
            log.id, figures.segments, figures.spare_segments
        )
    }

    /// Lets a queue go on that waited for something to be read.
    fn wake(&mut self, now: Now, (slot, id): Reader, out: &mut Outbox) {
        if (slot, id) == LETTERS {
            return self.letters_go_on(now, out);
        }
        if self.delayed.holds(id) {
            return self.delayed.wake();
        }
        let Some(slot) = self.home_slot(id, slot) else { return };
        self.homes[slot as usize].queue.wake();
        self.edge.backpressure.end_disk(id);
        self.pump(now, slot, out);
    }

    /// Lets dead letters go on that waited, and the queues behind them.
    pub(crate) fn letters_go_on(&mut self, now: Now, out: &mut Outbox) {
        self.edge.dead_letters.go_on();
        if self.journal.closes {
            return;
        }
        for queue in self.edge.backpressure.end_dead_letters() {
            self.wake(now, queue, out);
        }
    }

    /// Tells those whose messages have become durable.
    fn report_durable(&mut self, place: u16, out: &mut Outbox) {
        while let Some(due) = self.journal.pop_report(place) {
            if due.to.shard == self.edge.shard {
                self.publish_reported(due.to, due.first, due.last, due.count, Receipt::Taken);
            } else {
                let batch = &mut out.mail[due.to.shard.index()];
                report(batch, due.to, (due.first, due.last), due.count, Receipt::Taken);
            }
        }
    }
}
