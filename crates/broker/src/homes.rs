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
pub(crate) mod memory;
pub(crate) mod migrations;
pub(crate) mod parcels;
pub(crate) mod postponed;
pub(crate) mod publish;
pub(crate) mod recovery;
pub(crate) mod side;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use lepus_base::{HashState, Places, QueueId, ShardId, Slab};

use crate::channel::Target;
use crate::dead_letter::DeadLetters;
use crate::dead_letter::letters_of;
use crate::delayed::Delayed;
use crate::delivery::Noted;
use crate::ends::Ends;
use crate::home::Home;
use crate::idle_tables::IdleTables;
use crate::mail::{ChannelRef, Reply};
use crate::migration::Migrations;
use crate::oldest::OldestSearch;
use crate::postponed::Line;
use crate::publish::Put;
use crate::queue::{Orphans, Recorder};
use crate::remote::Remote;
use crate::traffic::QueueLooks;
use crate::working::Working;

pub(crate) use side::HomeSide;

/// The queues whose home is on a shard.
#[derive(Debug)]
pub struct Homes {
    /// The queues by slot.
    pub(crate) queues: Slab<Home>,
    /// Slots by the queues' ids.
    pub(crate) slots: Places,
    /// Consumers on other shards.
    pub remote: Remote,
    /// Messages on their way to a dead-letter exchange.
    pub dead_letters: DeadLetters,
    /// What delayed exchanges hold back.
    pub(crate) delayed: Delayed,
    /// Mail that waits for room in the log.
    pub(crate) postponed: Line,
    /// Queues on their way to other shards.
    pub(crate) migrations: Migrations,
    /// Queues with work left.
    pub(crate) working: Working,
    /// Tables of queues that may have spare room.
    pub(crate) idle_tables: IdleTables,
    /// Who waits until the bindings of queues that were deleted here are gone, too.
    pub(crate) leaving: BTreeMap<QueueId, Vec<(ChannelRef, Reply)>>,
    /// Consumers of queues that are gone, who are told in slices.
    pub(crate) orphans: Ends<(QueueId, Orphans)>,
    /// Looks for what keeps the logs' oldest segments.
    pub(crate) oldest: OldestSearch,
    /// What [`crate::Broker::queue_traffic`] saw last.
    pub(crate) queue_looks: QueueLooks,
    /// Transient queues for which somebody waits for room in a log only because there is little memory.
    pub(crate) spilling: BTreeSet<QueueId>,
    /// Takes down what happens to new queues, in tests.
    pub(crate) recorder: Option<Arc<dyn Recorder>>,
    /// Queues that get the message that is being logged.
    pub(crate) puts: Vec<Put>,
    /// Where the message that is being published stands in the mail to each shard.
    pub(crate) packed: Vec<(ShardId, Range<u32>)>,
    /// The queues of a message that came by mail, to be used again.
    pub(crate) mailed_targets: Vec<Target>,
    /// Deliveries of a row of publishes; empty between rows.
    pub(crate) noted: Vec<Noted>,
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
            working: Working::default(),
            idle_tables: IdleTables::default(),
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
