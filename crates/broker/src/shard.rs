//! What all owners of a shard's state share: its time, its limits, its memory and what is counted.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::{HashState, Now, Pool, Rng, ShardId};

use crate::alarm::Alarm;
use crate::backpressure::Backpressure;
use crate::channel::Target;
use crate::counters::Counters;
use crate::directory::Routes;
use crate::effort::Effort;
use crate::held::Held;
use crate::jobs::Jobs;
use crate::loan::{Lender, Loan};
use crate::mail::Step;
use crate::outbox::Outbox;
use crate::settings::{Limits, Settings};
use crate::timers::Timers;

/// Payload bytes that one queue keeps in memory before it spills to the log.
const QUEUE_POOL_BYTES_MAX: u64 = 32 << 20;
/// Bytes of chunks that one slice of compaction frees at most.
const COMPACTED_AT_ONCE_BYTES: usize = 1024 * 1024;

/// What the owners of a shard's state share.
#[derive(Debug)]
pub struct Shard {
    /// This shard.
    pub id: ShardId,
    /// What the broker was started with.
    pub(crate) settings: Settings,
    pub(crate) hash: HashState,
    pub(crate) rng: Rng,
    /// Set when the broker stops.
    pub(crate) stopping: bool,
    /// What the log knows of what is short.
    pub(crate) alarm: Alarm,
    /// Who lends memory to all shards, on shard 0.
    pub(crate) lender: Option<Lender>,
    /// Publishes and commits that are served in slices.
    pub(crate) jobs: Jobs,
    /// Where the message goes that is routed now.
    pub(crate) routes: Routes,
    /// What the owners of the state tell each other, while it is carried out; to be used again.
    pub(crate) own_steps: VecDeque<Step>,
    /// The queues of that, to be used again.
    pub(crate) targets: Vec<Target>,
    /// Whether each shard is on the memory node of this one.
    pub near: Vec<bool>,
    /// This cycle's time, as the driver last told it.
    pub now: Now,
    /// Limits on what peers can make grow.
    pub limits: Limits,
    /// What the shard may use of the memory budget.
    pub loan: Loan,
    /// Bodies of this shard.
    pub pool: Pool,
    /// Timers of this shard.
    pub timers: Timers,
    /// Totals of this shard.
    pub counters: Counters,
    /// What its queues and connections hold.
    pub held: Held,
    /// A commit is being published as a whole: nothing else goes to the log meanwhile.
    pub is_committing: bool,
    /// What was done in this turn.
    pub effort: Effort,
    /// Who waits for what.
    pub backpressure: Backpressure,
    /// Bytes that clients made their connections hold, see [`Connection::memory_bytes`].
    pub connection_bytes: usize,
    /// The same of those that have not opened a vhost: they block nobody, and have a limit of their
    /// own, see [`Limits::entering_bytes_max`].
    pub entering_bytes: usize,
    /// Bytes that wait to be written to the log, and of what queues know of their logs.
    pub log_bytes: usize,
    /// Bytes of what waits for queues on their way to other shards.
    pub resting_bytes: usize,
    /// Bytes of the tables of this shard's queues, as far as they were counted.
    pub queue_bytes: usize,
    /// Queues whose tables are counted anew at the end of the cycle.
    pub unweighed: Vec<u32>,
    /// Bytes of what is done in slices.
    pub job_bytes: usize,
    /// Bytes of the shard's other tables, at the end of the last cycle.
    pub table_bytes: usize,
    /// Bytes of mail on its way to other shards, and of emptied batches on their way back.
    pub mail_bytes: usize,
}

impl Shard {
    /// What a shard begins with.
    #[must_use]
    pub(crate) fn new(settings: Settings) -> Shard {
        let (id, shards, hash) = (settings.shard, settings.shards, settings.hash);
        let limits = settings.limits.clone();
        let own = settings.nodes.get(id.index());
        let lends = id == ShardId(0) && shards > 1;
        Shard {
            id,
            near: settings.nodes.iter().map(|node| Some(node) == own).collect(),
            now: Now::default(),
            loan: Loan::new(&limits, shards),
            lender: lends.then(|| Lender::new(&limits, shards)),
            hash,
            rng: Rng::new(hash.seed() ^ u64::from(id.0) << 32),
            stopping: false,
            alarm: Alarm::default(),
            jobs: Jobs::default(),
            routes: Routes::new(limits.routing_steps_max),
            own_steps: VecDeque::new(),
            targets: Vec::new(),
            limits,
            pool: Pool::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            held: Held::default(),
            is_committing: false,
            effort: Effort::default(),
            backpressure: Backpressure::default(),
            connection_bytes: 0,
            entering_bytes: 0,
            log_bytes: 0,
            resting_bytes: 0,
            queue_bytes: 0,
            unweighed: Vec::new(),
            job_bytes: 0,
            table_bytes: 0,
            mail_bytes: 0,
            settings,
        }
    }

    /// Whether the mail to some shard has no room.
    #[inline]
    pub(crate) fn is_mail_full(&self, out: &Outbox) -> bool {
        let limit = self.limits.mail_batch_bytes_max;
        self.resting_bytes > limit || out.mail.iter().any(|batch| batch.weight() > limit)
    }

    /// Whether what comes into a transient queue with so many bytes in memory goes to the log, where
    /// there is one.
    #[inline]
    pub(crate) fn must_spill(&self, pooled_bytes: u64) -> bool {
        let is_much = pooled_bytes >= QUEUE_POOL_BYTES_MAX
            || self.pool.used() >= self.spilling_bytes()
            || self.backpressure.is_memory_short();
        is_much && !self.is_committing
    }

    /// Bytes of messages in memory above which transient ones go to the log, where there is one.
    #[inline]
    pub(crate) fn spilling_bytes(&self) -> usize {
        self.limits.spill_bytes.min(self.loan.obtainable / 2)
    }

    /// Whether the shard uses more than it has, and the answer to whether there is more is to come.
    #[inline]
    pub(crate) fn awaits_loan(&self) -> bool {
        self.memory() > self.loan.bytes && !self.loan.is_all()
    }

    /// Bytes that count against the shard's memory budget; those of connections that have not opened
    /// a vhost do not.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> usize {
        self.pool.used()
            + self.connection_bytes
            + self.queue_bytes
            + self.job_bytes
            + self.table_bytes
            + self.mail_bytes
            + self.log_bytes
    }

    /// Whether memory is used that few bodies keep, and so much in all that it matters: well before
    /// anything is spilled or anybody is blocked for it.
    #[must_use]
    #[inline]
    pub fn must_compact(&self) -> bool {
        self.pool.is_sparse() && self.memory() >= self.spilling_bytes() / 2
    }

    /// A slice of making the pool smaller.
    pub(crate) fn work_on_pool(&mut self) {
        if self.must_compact() {
            self.pool.compact(COMPACTED_AT_ONCE_BYTES);
        }
    }

    /// Gives memory back that is kept for what comes next, when there is little left.
    pub(crate) fn give_spare(&mut self) {
        let limit = self.loan.obtainable;
        if self.memory() + self.pool.spare() > limit - limit / 10 {
            self.pool.give_back();
        }
    }
}
