//! The queues whose home is on a shard, and what is on its way between queues.

pub(crate) mod ack_row;
pub(crate) mod backpressure;
pub(crate) mod commands;
pub(crate) mod commit;
pub(crate) mod consumers;
pub(crate) mod dead_letters;
pub(crate) mod delayed;
pub(crate) mod fanout;
pub(crate) mod journal;
pub(crate) mod lifecycle;
pub(crate) mod mail;
pub(crate) mod memory;
pub(crate) mod migrations;
pub(crate) mod parked_mail;
pub(crate) mod policies;
pub(crate) mod postponed;
pub(crate) mod publish;
pub(crate) mod recovery;
pub(crate) mod side;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use lepus_base::{ConnectionId, HashState, Instant, Now, Places, Position, QueueId, ShardId, Slab};

use crate::channel::Target;
use crate::dead_letter::DeadLetters;
use crate::dead_letter::letters_of;
use crate::delayed::Delayed;
use crate::delivery::Noted;
use crate::ends::Ends;
use crate::home::Home;
use crate::idle_tables::IdleTables;
use crate::mail::{ChannelRef, Reply};
use crate::migration::{Migrations, ParkedMail};
use crate::oldest::OldestSearch;
use crate::owner::Owner;
use crate::policy_work::PolicyWork;
use crate::postponed::Line;
use crate::publish::Put;
use crate::queue::{Orphans, Queue, QueueSettings, Recorder};
use crate::remote::Remote;
use crate::selector_watch::{Costly, SelectorWatch};
use crate::timers::Timers;
use crate::traffic::QueueLooks;
use crate::working::Working;

pub(crate) use side::HomeSide;

/// The queues whose home is on a shard.
#[derive(Debug)]
pub struct Homes {
    /// The queues by slot.
    queues: Slab<Home>,
    /// Slots by the queues' ids.
    slots: Places,
    /// Consumers on other shards.
    remote: Remote,
    /// Messages on their way to a dead-letter exchange.
    dead_letters: DeadLetters,
    /// What delayed exchanges hold back.
    delayed: Delayed,
    /// Mail that waits for room in the log.
    postponed: Line,
    /// Queues on their way to other shards.
    migrations: Migrations,
    /// What a change of policies leaves to be done.
    policies: PolicyWork,
    /// Queues with work left.
    working: Working,
    /// Tables of queues that may have spare room.
    idle_tables: IdleTables,
    /// Looks for filters of consumers that cost much.
    selectors: SelectorWatch,
    /// Who waits until the bindings of queues that were deleted here are gone, too.
    leaving: BTreeMap<QueueId, Vec<(ChannelRef, Reply)>>,
    /// Consumers of queues that are gone, who are told in slices.
    orphans: Ends<(QueueId, Orphans)>,
    /// Looks for what keeps the logs' oldest segments.
    oldest: OldestSearch,
    /// What was seen of them when their traffic was sampled last.
    queue_looks: QueueLooks,
    /// Transient queues for which somebody waits for room in a log only because there is little memory.
    spilling: BTreeSet<QueueId>,
    /// Takes down what happens to new queues, in tests.
    recorder: Option<Arc<dyn Recorder>>,
    /// Queues that get the message that is being logged.
    puts: Vec<Put>,
    /// Where the message that is being published stands in the mail to each shard.
    packed: Vec<(ShardId, Range<u32>)>,
    /// The queues of a message that came by mail, to be used again.
    mailed_targets: Vec<Target>,
    /// Deliveries of a row of publishes; empty between rows.
    noted: Vec<Noted>,
}

impl Homes {
    /// No queues.
    #[must_use]
    pub(crate) fn new(hash: HashState, shard: ShardId) -> Homes {
        Homes {
            queues: Slab::new(),
            slots: Places::new(hash),
            remote: Remote::new(hash),
            dead_letters: DeadLetters::default(),
            delayed: Delayed::default(),
            postponed: Line::new(hash, shard),
            migrations: Migrations::default(),
            policies: PolicyWork::default(),
            working: Working::default(),
            idle_tables: IdleTables::default(),
            selectors: SelectorWatch::default(),
            leaving: BTreeMap::new(),
            orphans: Ends::default(),
            oldest: OldestSearch::default(),
            queue_looks: QueueLooks::default(),
            spilling: BTreeSet::new(),
            recorder: None,
            puts: Vec::new(),
            packed: Vec::new(),
            mailed_targets: Vec::new(),
            noted: Vec::new(),
        }
    }

    /// How many queues there are.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Slots, those that are free included.
    pub(crate) fn capacity(&self) -> usize {
        self.queues.capacity()
    }

    /// All homes, with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Home)> {
        self.queues.iter().map(|(slot, home)| (slot as u32, home))
    }

    /// The home in this slot.
    pub(crate) fn get(&self, slot: u32) -> Option<&Home> {
        self.queues.get(slot as usize)
    }

    /// The queues, with their ids.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.iter().map(|(_, home)| (home.id, &home.queue))
    }

    /// The home of the queue with this id, if it is here.
    pub(crate) fn find(&self, queue: QueueId) -> Option<&Home> {
        self.get(self.slot_of(queue, u32::MAX)?)
    }

    /// The queue in this slot has consumers with filters, one that came just now perhaps.
    pub(crate) fn watch_selectors(&mut self, now: Now, slot: u32, timers: &mut Timers) {
        let home = &self.queues[slot as usize];
        self.selectors.note(now, home.id, &home.queue, timers);
    }

    /// Queues whose consumers have filters or had some in the last second or so, behind one of them, by id.
    pub(crate) fn queues_with_selectors(
        &self,
        after: Option<QueueId>,
    ) -> impl Iterator<Item = QueueId> {
        self.selectors.behind(after)
    }

    /// Looks for filters of consumers that cost much.
    pub(crate) fn look_at_selectors(&mut self, now: Now, timers: &mut Timers) -> Vec<Costly> {
        let (queues, slots) = (&self.queues, &self.slots);
        self.selectors.look(now, timers, |id| {
            let slot = slots.find(id, |slot| queues[slot as usize].id)?;
            Some(&queues[slot as usize].queue)
        })
    }

    /// Has the commands of queues that are made here from now on written down, for tests.
    pub fn record_to(&mut self, recorder: Arc<dyn Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Consumers on other shards of queues on this one.
    #[must_use]
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Messages on their way to a dead-letter exchange.
    #[must_use]
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.dead_letters
    }

    /// The queues, with their ids and with what holds for them where policies say more than their arguments.
    pub fn policy_settings(&self) -> impl Iterator<Item = (QueueId, Option<&QueueSettings>)> {
        self.iter().map(|(_, home)| (home.id, home.settings()))
    }

    /// The epoch whose policies every queue and exchange here follows.
    #[must_use]
    pub fn policies_done(&self) -> u64 {
        self.policies.done()
    }

    /// A connection of another shard gets nothing any more from here, for now: what room it has is not known.
    pub(crate) fn forget_window(&mut self, connection: ConnectionId) {
        self.remote.windows.remove(&connection);
    }

    /// How many messages delayed exchanges hold back here.
    pub(crate) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// How many of them are in memory.
    #[must_use]
    pub fn delayed_in_memory(&self) -> usize {
        self.delayed.pooled()
    }

    /// The delivery that pins the logs' oldest segment, as it was found last: where its message is, and of which
    /// queue.
    pub(crate) fn oldest(&self) -> Option<(Position, QueueId)> {
        self.oldest.found()
    }

    /// Whether some queue is on its way, as far as is known here.
    #[must_use]
    pub fn has_migrations(&self) -> bool {
        self.migrations.is_any_on_its_way()
    }

    /// What waits here for this queue, if that is on its way, as far as is known here.
    pub(crate) fn parked_mail(&self, queue: QueueId) -> Option<&ParkedMail> {
        self.migrations.parked_mail(queue)
    }

    /// A queue is on its way no more: what waited here for it.
    pub(crate) fn take_parked_mail(&mut self, queue: QueueId) -> Option<ParkedMail> {
        self.migrations.take_parked_mail(queue)
    }

    /// Whether this queue is about to leave.
    pub(crate) fn leaves(&self, queue: QueueId) -> bool {
        self.migrations.leaves(queue)
    }

    /// Whether somebody waits until the bindings of a queue are gone that was deleted here.
    #[must_use]
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether mail waits here for a queue that is to come.
    pub(crate) fn awaits_arrivals_in_vain(&self) -> bool {
        self.postponed.awaits_arrivals() && !self.migrations.expects_any()
    }

    /// The earliest moment at which something of them is due that has no timer of its own.
    pub(crate) fn next_timeout(&self) -> Instant {
        let of_owners = [self.delayed.next_timeout(), self.policies.next_timeout()];
        of_owners.into_iter().fold(self.migrations.next_timeout(), Instant::min)
    }

    /// Bytes of tables that are not counted queue by queue.
    pub(crate) fn table_bytes(&self) -> usize {
        self.slots.memory_bytes()
            + self.idle_tables.memory_bytes()
            + self.selectors.memory_bytes()
            + self.postponed.memory_bytes()
            + self.spilling.len() * size_of::<QueueId>()
            + self.remote.memory_bytes()
            + self.dead_letters.memory_bytes()
    }

    /// Bytes of what is known here of messages in the logs, beside the queues.
    pub(crate) fn log_bytes(&self) -> usize {
        self.dead_letters.ledger_bytes() + self.delayed.memory_bytes()
    }

    /// Bytes of the queues, deleted ones included, by a walk over all.
    pub(crate) fn queue_bytes_by_walk(&self) -> usize {
        let homes: usize = self.iter().map(|(_, home)| home.memory_bytes()).sum();
        homes + self.working.deleted_bytes()
    }

    /// Those that may have work, owe something or hold mail: see [`Owner`].
    pub(crate) fn owners(&self) -> [&dyn Owner; 8] {
        // A field that is added is named here, too: so no question forgets it.
        let Homes {
            queues: _,
            slots: _,
            remote: _,
            dead_letters,
            delayed,
            postponed,
            migrations,
            policies,
            working,
            idle_tables: _,
            selectors: _,
            leaving: _,
            orphans,
            oldest,
            queue_looks: _,
            spilling: _,
            recorder: _,
            puts: _,
            packed: _,
            mailed_targets: _,
            noted: _,
        } = self;
        [postponed, oldest, delayed, working, orphans, migrations, policies, dead_letters]
    }

    /// Where a queue of this shard is.
    pub(crate) fn slot_of(&self, queue: QueueId, hint: u32) -> Option<u32> {
        match self.queues.get(hint as usize) {
            Some(home) if home.id == queue => Some(hint),
            _ => self.slots.find(queue, |slot| self.queues[slot as usize].id),
        }
    }

    /// Whether dead letters of a queue of this shard, the `own` one, that were set aside wait for room.
    pub(crate) fn has_postponed_letters_of(&self, own: ShardId, queue: QueueId) -> bool {
        let mut senders = letters_of(own, queue).into_iter();
        senders.any(|sender| self.postponed.has_from(sender))
    }

    /// Whether no queue is on its way, as far as is known here.
    #[inline]
    pub(crate) fn is_none_moving(&self) -> bool {
        self.migrations.is_idle()
    }

    /// Whether something that a channel published waits for room.
    pub(crate) fn has_postponed_from(&self, channel: ChannelRef) -> bool {
        self.postponed.has_from(channel)
    }
}
