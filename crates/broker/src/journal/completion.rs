//! What the disk's answers do to a log: who is woken by them, and what the log has to complain of.

use alloc::format;
use alloc::vec::Vec;

use lepus_base::{Now, Position, QueueId};
use lepus_store::disk::{Completion, LogId, Operations};
use lepus_store::{Event, LaneSlot};

use super::{Journal, LETTERS, Log, Phase, READERS_MAX, Reader};
use crate::outbox::{Outbox, Severity};

impl Journal {
    /// An operation of one of the logs ended. The log's place, if it is driven here.
    pub(crate) fn complete(
        &mut self,
        now: Now,
        id: LogId,
        completion: Completion,
        out: &mut Operations,
    ) -> Option<u16> {
        let place = self.logs.iter().position(|log| log.id == id)?;
        self.logs[place].store.complete(now, completion, out);
        Some(place as u16)
    }

    /// Nobody else moves a log that is being opened or closed.
    pub(crate) fn flush_unless_running(&mut self, now: Now, place: u16, out: &mut Operations) {
        if self.log(place).is_some_and(|log| log.phase != Phase::Running) {
            self.flush(now, out);
        }
    }

    /// What a log has to say of itself, in a list that comes back by [`Journal::give_back`].
    pub(crate) fn take_events(&mut self, place: u16) -> Vec<Event> {
        let mut events = core::mem::take(&mut self.events);
        if let Some(log) = self.log(place) {
            log.store.take_events(&mut events);
        }
        events
    }

    /// The empty list that [`Journal::take_events`] gave, to be filled again.
    pub(crate) fn give_back(&mut self, events: Vec<Event>) {
        self.events = events;
    }

    /// Takes from a log what is only about the log itself, and tells it.
    pub(crate) fn hear(&mut self, place: u16, event: Event, out: &mut Outbox) {
        let Some(log) = self.log(place) else {
            invariant!("what tells something is one of the logs")
        };
        let (severity, kind, text) = match event {
            Event::Refused(refusal) => {
                log.phase = Phase::Refused(refusal);
                return;
            }
            Event::Damaged(damage) => {
                log.is_damaged = true;
                let text = format!(
                    "{}: {} bytes at offset {} are damaged; messages in them are kept and given to \
                     nobody, all others are served. See lepus store check and lepus store damaged",
                    damage.file, damage.bytes, damage.offset
                );
                (Severity::Error, "log-damaged", text)
            }
            Event::ReadsFail(file, error) => {
                let text = format!(
                    "{file}: reading fails ({error:?}); queues wait, nothing is dropped, and it is \
                     tried again. See to the disk, its connection, and the limit of open files"
                );
                (Severity::Error, "reads-fail", text)
            }
            Event::ReadsWork { failures, time } => {
                let text = format!(
                    "reading works again after {}.{:03} s and {failures} failures",
                    time.as_secs(),
                    time.subsec_millis()
                );
                (Severity::Info, "reads-work", text)
            }
            Event::Stopped(file, error) => {
                let text = format!(
                    "{file}: the disk fails ({error:?}); nothing is confirmed any more, publishers \
                     are held back"
                );
                log.stopped = Some((file, error));
                (Severity::Error, "log-stopped", text)
            }
            Event::CheckpointWaits(bytes) => {
                let figures = log.store.figures();
                let text = format!(
                    "{}: the disk has no room for a checkpoint of {bytes} bytes, and {} of {} segments, \
                     whose messages are gone, are not used again before there is one. Free space on the \
                     disk; it is tried again once a second",
                    log.id, figures.dead_segments, figures.segments
                );
                (Severity::Warning, "checkpoint-waits", text)
            }
            Event::CheckpointGoesOn => {
                let figures = log.store.figures();
                let text = format!(
                    "{}: the disk had room for a checkpoint; {} segments are in use, {} ready",
                    log.id, figures.segments, figures.spare_segments
                );
                (Severity::Info, "checkpoint-goes-on", text)
            }
            // The first are about queues, and nobody has to be told of the others.
            Event::Ready { .. }
            | Event::LaneReady(_)
            | Event::MessageReady(_)
            | Event::Missing(..)
            | Event::Checkpointed(_)
            | Event::Found => return,
        };
        out.log(severity, kind, text);
    }

    /// Who waits for an index page.
    pub(crate) fn page_read(&mut self, log: u16, lane: LaneSlot) -> Option<Reader> {
        self.log(log)?.awaited.remove(&lane)
    }

    /// Who waits for a message.
    pub(crate) fn message_read(&mut self, log: u16, at: Position) -> Vec<Reader> {
        self.log(log).map_or(Vec::new(), |log| log.take_readers(at))
    }

    /// Who may begin to read now.
    pub(crate) fn next_waiting_reader(&mut self, log: u16) -> Option<Reader> {
        let log = self.log(log)?;
        let has_room = log.readers.len() < READERS_MAX;
        has_room.then(|| log.waiting_readers.pop_front()).flatten()
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
