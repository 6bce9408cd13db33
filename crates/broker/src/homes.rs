//! The queues whose home is on a shard, and what is on its way between queues.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use lepus_base::{HashState, Places, QueueId, ShardId, Slab};

use crate::channel::Target;
use crate::dead_letter::DeadLetters;
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
}
