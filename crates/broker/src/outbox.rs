//! Effects of the core, in the order in which they must happen.
//!
//! Bulk does not travel as single effects: bytes for a connection gather in its send buffer (the
//! outbox only names the connection), mail gathers per destination shard.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_base::{ByShard, ShardId};
use lepus_store::disk::Operations;

use crate::directory::Change;
use crate::mail::{Mail, MailBatch};
use crate::query::Answer;

/// Lines that one turn adds to the log at most, beside errors; more are counted.
const EVENTS_IN_TURN_MAX: usize = 1000;

/// A connection's place in its shard's table. Reused only after the driver was told to close it
/// and reported it closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionSlot(pub u32);

impl ConnectionSlot {
    /// The slot as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the driver has to carry out, reused from cycle to cycle.
///
/// Order: `changes` go into the other shards' directory lanes before `mail` is pushed and before
/// any socket is written, so that an effect is visible to everyone who saw its `-ok`.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Connections with bytes to send, each once.
    pub dirty: Vec<ConnectionSlot>,
    /// Connections whose send buffer takes more memory than is counted. [`crate::Broker::flush`] counts and empties it.
    pub(crate) grown: Vec<ConnectionSlot>,
    /// Connections to close once their send buffer is written (or cannot be written).
    pub close: Vec<ConnectionSlot>,
    /// Connections whose socket must not be read until they are resumed.
    pub pause: Vec<ConnectionSlot>,
    /// Paused connections that may be read again.
    pub resume: Vec<ConnectionSlot>,
    /// Connections to move to another shard, with the bytes that were not consumed.
    pub hand_over: Vec<(ConnectionSlot, ShardId)>,
    /// Mail by destination shard; the own shard's entry stays empty.
    pub mail: ByShard<MailBatch>,
    /// Mail from one owner of this shard's state to another one. The broker carries it out within the same cycle:
    /// between two cycles there is none.
    pub(crate) own: Vec<Mail>,
    /// Directory changes for every other shard's lane, also where there is none. Only shard 0 makes any.
    pub changes: Vec<Arc<Change>>,
    /// What an operator may want to read in the log.
    pub events: Vec<Event>,
    /// How many more there were in this turn, too many to be told.
    pub lost_events: u64,
    /// Answers to what [`crate::Broker::query`] was asked, by the question's number.
    pub answers: Vec<(u64, Answer)>,
    /// Disk operations of all logs that the shard drives. Each is answered by
    /// [`crate::Broker::disk_done`].
    pub disk: Operations,
}

impl Outbox {
    /// Adds a line to the log.
    pub fn log(&mut self, severity: Severity, kind: &'static str, text: String) {
        // The log is for people: a flood of lines helps nobody and must not grow without bound. What the
        // broker cannot do any more is told always; no peer can cause many of these.
        if self.events.len() < EVENTS_IN_TURN_MAX || severity == Severity::Error {
            self.events.push(Event { severity, kind, text });
        } else {
            self.lost_events += 1;
        }
    }

    /// A change of the directory goes to all other shards, and to whoever follows it, in order.
    pub(crate) fn tell_change(&mut self, change: Change) {
        self.changes.push(Arc::new(change));
    }

    /// Says something to all shards but the own one.
    pub(crate) fn tell_others(&mut self, own: ShardId, mail: impl Fn() -> Mail) {
        for shard in (0..self.mail.shards()).filter(|&shard| shard != own.index()) {
            self.mail[shard].items.push(mail());
        }
    }

    /// Says something to shard `to`, which may be the `own` one.
    pub(crate) fn send(&mut self, own: ShardId, to: ShardId, mail: Mail) {
        self.items_for(own, to).push(mail);
    }

    /// What goes to shard `to`, which may be the `own` one.
    pub(crate) fn items_for(&mut self, own: ShardId, to: ShardId) -> &mut Vec<Mail> {
        match to == own {
            true => &mut self.own,
            false => &mut self.mail[to.index()].items,
        }
    }

    /// An empty outbox for `shards` shards.
    #[must_use]
    pub fn new(shards: u16) -> Outbox {
        Outbox { mail: ByShard::new(shards), ..Outbox::default() }
    }

    /// Whether nothing waits to be carried out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.close.is_empty()
            && self.pause.is_empty()
            && self.resume.is_empty()
            && self.hand_over.is_empty()
            && self.changes.is_empty()
            && self.events.is_empty()
            && self.answers.is_empty()
            && self.disk.list.is_empty()
            && self.own.is_empty()
            && self.mail.iter().all(MailBatch::is_empty)
    }
}

/// How serious a logged event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Ordinary life: a connection opened.
    Info,
    /// A peer did something wrong or was refused.
    Warning,
    /// The broker cannot do what it promised.
    Error,
}

/// One structured log line: a fixed kind and human text, never a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How serious.
    pub severity: Severity,
    /// A fixed, greppable name: `connection-refused`.
    pub kind: &'static str,
    /// What happened, in plain words.
    pub text: String,
}
