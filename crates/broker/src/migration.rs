//! Queues that the balancer sends to another shard, while nothing is in them.
//!
//! A migration goes through these stages. All shards are told that the queue leaves: from then on
//! what they have for it, publishes and questions alike, waits where it is said; their answers come
//! behind everything that they said before. The queue delivers what it has until nothing is left,
//! unacknowledged or under way. All shards are asked once more, so that the last deliveries have
//! arrived. The log is synced: where its messages went, as dead letters or by a transaction, must be
//! on the disk before what the log says of the queue counts no more. Then the directory gives the
//! queue another home and another id, so that nothing that is still said or logged of the old one
//! can mean the new one. Every shard sends on what waited there when it hears of that; the old home
//! sends the queue itself, with its consumers, and the new one lets everything wait until it has
//! come.
//!
//! So messages of a publisher stay in order, nothing is lost and nothing comes twice. What waits is
//! bounded by time and, since publishers are not read while it is much, in bytes. A migration that
//! takes too long is given up.
//!
//! When the definitions log fails before it has synced the new id, the queue stays, and nobody can
//! say whether the next start will know it by the old id or the new one. Persistent messages would
//! be lost with the other one: they are refused from then on.

mod parked_mail;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use lepus_base::{Instant, Now, Position, QueueId, ShardId};

pub(crate) use self::parked_mail::{ParkedItem, ParkedMail};
use crate::journal::Journal;
use crate::outbox::{Outbox, Severity};
use crate::owner::Owner;

/// How long a queue may take to become still: what is published meanwhile waits.
const PATIENCE: Duration = Duration::from_millis(50);
/// Queues on their way out of one shard at the same time.
const MIGRATIONS_MAX: usize = 8;
/// Messages in a queue, unacknowledged ones included, with which it is not asked to leave.
pub(crate) const MESSAGES_MAX: u64 = 1024;
/// How long a queue is left alone where it came to.
const STAY: Duration = Duration::from_secs(10);
/// How long one is left alone that did not become empty: each time publishers had to wait for it.
const STAY_BUSY: Duration = Duration::from_secs(60);
/// Queues of which that is remembered.
const STAYING_MAX: usize = 64;

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many shards may still have something under way for the queue.
    Quieting(u32),
    /// The queue delivers what it has.
    Draining,
    /// To so many shards deliveries may still be under way.
    Passing(u32),
    /// The log has yet to be synced up to here.
    Syncing(Position),
    /// The directory is asked.
    Asked,
}

/// What is to be done for a queue on its way out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    Wait,
    /// All other shards are asked once more.
    AskShards,
    /// The directory is asked.
    AskDirectory,
}

/// A queue on its way out.
#[derive(Debug)]
pub(crate) struct Leaving {
    slot: u32,
    id: QueueId,
    to: ShardId,
    why: Box<str>,
    /// Tells answers from those to earlier questions.
    number: u64,
    /// Until then it may take.
    until: Instant,
    stage: Stage,
}

impl Leaving {
    /// The queue, and where it is.
    pub(crate) fn queue(&self) -> (u32, QueueId) {
        (self.slot, self.id)
    }

    /// Where it is to go.
    pub(crate) fn to(&self) -> ShardId {
        self.to
    }

    /// Why it goes.
    pub(crate) fn into_reason(self) -> Box<str> {
        self.why
    }

    /// Whether it is to be given up, because of this or since its time is up. The directory is waited for.
    pub(crate) fn must_end(&self, now: Now, because: bool) -> bool {
        self.stage != Stage::Asked && (because || now.instant >= self.until)
    }

    /// Whether it depends on the queue now how it goes on.
    pub(crate) fn depends_on_queue(&self) -> bool {
        matches!(self.stage, Stage::Quieting(0) | Stage::Draining | Stage::Passing(0))
    }

    /// Brings it forward. `is_still` says whether nothing of the queue is here but itself, if it depends on the queue;
    /// `log` is its place in the journal.
    pub(crate) fn go_on(&mut self, is_still: bool, journal: &mut Journal, log: u16) -> Next {
        if self.stage == Stage::Quieting(0) {
            self.stage = Stage::Draining;
        }
        if self.stage == Stage::Draining && is_still {
            return Next::AskShards;
        }
        if self.stage == Stage::Passing(0) {
            self.stage = match journal.want_synced(log) {
                _ if !is_still => Stage::Draining,
                Some(end) => Stage::Syncing(end),
                None => Stage::Syncing(Position(0)),
            };
        }
        match self.stage {
            Stage::Syncing(end) if journal.is_synced(log, end) => {
                self.stage = Stage::Asked;
                Next::AskDirectory
            }
            _ => Next::Wait,
        }
    }

    /// Tells that the queue, which has this name, stays.
    pub(crate) fn tell_end(&self, name: &str, own: ShardId, out: &mut Outbox) {
        let text = format!("{name}: stays on shard {own}, was to go to {} ({})", self.to, self.why);
        out.log(Severity::Info, "queue-stays", text);
    }
}

/// All queues on their way out of a shard, and what waits here for those of any shard.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    parked: BTreeMap<QueueId, ParkedMail>,
    leaving: Vec<Leaving>,
    /// Queues that are left alone, and until when.
    staying: VecDeque<(QueueId, Instant)>,
    count: u64,
}

impl Migrations {
    /// Whether no queue is on its way, as far as is known here.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.parked.is_empty()
    }

    /// The same, with those that are only about to leave this shard.
    pub(crate) fn is_any_on_its_way(&self) -> bool {
        !self.is_idle() || !self.leaving.is_empty()
    }

    /// What waits here for a queue that is on its way.
    pub(crate) fn parked_mail(&self, queue: QueueId) -> Option<&ParkedMail> {
        self.parked.get(&queue)
    }

    /// Whether some queue is on its way to this shard.
    pub(crate) fn expects_any(&self) -> bool {
        self.parked.values().any(ParkedMail::is_expected)
    }

    /// Whether a queue is on its way out of this shard.
    pub(crate) fn leaves(&self, queue: QueueId) -> bool {
        self.leaving.iter().any(|leaving| leaving.id == queue)
    }

    /// The earliest moment at which a migration is to be given up.
    pub(crate) fn next_timeout(&self) -> Instant {
        let open = self.leaving.iter().filter(|leaving| leaving.stage != Stage::Asked);
        open.map(|leaving| leaving.until).min().unwrap_or(Instant::NEVER)
    }

    /// Whether another queue may begin to leave.
    pub(crate) fn may_begin(&self) -> bool {
        self.leaving.len() < MIGRATIONS_MAX
    }

    /// A queue begins to leave, for the reason `why`. So many `others` are to be asked, under the number that is
    /// given.
    pub(crate) fn begin(
        &mut self,
        now: Now,
        (slot, id): (u32, QueueId),
        to: ShardId,
        why: &str,
        others: u32,
    ) -> u64 {
        self.parked.insert(id, ParkedMail::default());
        self.count += 1;
        self.leaving.push(Leaving {
            slot,
            id,
            to,
            why: why.into(),
            number: self.count,
            until: now.instant + PATIENCE,
            stage: Stage::Quieting(others),
        });
        self.count
    }

    /// All `others` are asked once more, under the number that is given.
    pub(crate) fn ask_again(&mut self, leaving: &mut Leaving, others: u32) -> u64 {
        self.count += 1;
        (leaving.number, leaving.stage) = (self.count, Stage::Passing(others));
        self.count
    }

    /// All that are on their way out. Each that goes on comes back by [`Migrations::keep`].
    pub(crate) fn take_leaving(&mut self) -> Vec<Leaving> {
        core::mem::take(&mut self.leaving)
    }

    /// One goes on.
    pub(crate) fn keep(&mut self, leaving: Leaving) {
        self.leaving.push(leaving);
    }

    /// A queue is not on its way out any more.
    pub(crate) fn end_leaving(&mut self, queue: QueueId) -> Option<Leaving> {
        let place = self.leaving.iter().position(|leaving| leaving.id == queue)?;
        Some(self.leaving.swap_remove(place))
    }

    /// A queue of another shard is about to leave it: what is for it waits here.
    pub(crate) fn hold_for(&mut self, queue: QueueId) {
        self.parked.entry(queue).or_default();
    }

    /// Keeps something for a queue that is on its way. Whether it is.
    pub(crate) fn park_mail(&mut self, queue: QueueId, item: ParkedItem) -> bool {
        let parked = self.parked.get_mut(&queue);
        parked.map(|parked| parked.push(item)).is_some()
    }

    /// What waited for a queue waits no longer.
    pub(crate) fn take_parked_mail(&mut self, queue: QueueId) -> Option<ParkedMail> {
        self.parked.remove(&queue)
    }

    /// A queue is to come to this shard by this id: what waited for it goes on waiting, and what is said of it waits,
    /// too.
    pub(crate) fn expect(&mut self, queue: QueueId, parked: Option<ParkedMail>) {
        self.parked.insert(queue, parked.unwrap_or_default().expecting());
    }

    /// A queue has come: it is left alone for some time.
    pub(crate) fn came(&mut self, now: Now, queue: QueueId) {
        self.let_stay(queue, now.instant + STAY);
    }

    /// A queue did not go: it is left alone for longer.
    pub(crate) fn stayed(&mut self, now: Now, queue: QueueId) {
        self.let_stay(queue, now.instant + STAY_BUSY);
    }

    fn let_stay(&mut self, queue: QueueId, until: Instant) {
        if self.staying.len() == STAYING_MAX {
            self.staying.pop_front();
        }
        self.staying.push_back((queue, until));
    }

    /// Whether a queue is left alone now.
    pub(crate) fn is_left_alone(&self, now: Now, id: QueueId) -> bool {
        self.staying.iter().any(|(queue, until)| *queue == id && *until > now.instant)
    }

    /// A shard has nothing under way any more.
    pub(crate) fn is_quiet(&mut self, number: u64) {
        let found = self.leaving.iter_mut().find(|leaving| leaving.number == number);
        if let Some(Leaving { stage: Stage::Quieting(left) | Stage::Passing(left), .. }) = found {
            *left = left.saturating_sub(1);
        }
    }
}

impl Owner for Migrations {
    fn owes(&self) -> bool {
        self.is_any_on_its_way()
    }

    fn changes_logs(&self) -> bool {
        !self.is_idle()
    }

    fn holds_mail(&self) -> bool {
        !self.is_idle()
    }
}
