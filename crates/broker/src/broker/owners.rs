//! All owners of a shard's state, and what is asked of them: whether they have work, owe something, hold something of
//! a queue.
//!
//! Each is named in [`Broker::owners`] once. A field that is added is named there, too, or the crate does not
//! compile: so no question is asked of all owners but one.

use lepus_base::QueueId;

use crate::broker::Broker;
use crate::definitions::Definitions;
use crate::edge::Edge;
use crate::journal::Journal;
use crate::outbox::Outbox;
use crate::owner::{Conditions, Owner};

impl Broker {
    /// All owners.
    fn owners(&self) -> [&dyn Owner; 15] {
        let Broker {
            directory: _,
            edge,
            census: _,
            homes: _,
            home_slots: _,
            idle_tables: _,
            leaving: _,
            definitions,
            journal,
            postponed,
            looks,
            oldest,
            names: _,
            rng: _,
            delayed,
            routes: _,
            targets: _,
            mailed_targets: _,
            puts: _,
            packed: _,
            noted: _,
            working,
            jobs,
            settlings,
            ends,
            departures: _,
            migrations,
            queue_looks: _,
            looked_at: _,
            stopping: _,
            alarm: _,
            spilling: _,
            lender: _,
            recorder: _,
            settings: _,
            hash: _,
        } = self;
        let Edge {
            shard: _,
            near: _,
            now: _,
            limits: _,
            loan: _,
            connections: _,
            by_id: _,
            pool: _,
            timers: _,
            counters: _,
            held: _,
            dead_letters,
            remote_consumers: _,
            remote_windows: _,
            is_committing: _,
            effort: _,
            backpressure,
            follow_ups,
            connection_bytes: _,
            entering_bytes: _,
            user_channels: _,
            log_bytes: _,
            detached: _,
            spacious: _,
            resting_bytes: _,
            queue_bytes: _,
            unweighed: _,
            unread_replies: _,
            job_bytes: _,
            table_bytes: _,
            mail_bytes: _,
        } = edge;
        [
            definitions,
            journal,
            postponed,
            looks,
            oldest,
            delayed,
            working,
            jobs,
            settlings,
            ends,
            migrations,
            dead_letters,
            backpressure,
            follow_ups,
            edge,
        ]
    }

    /// What decides now whether owners get on.
    pub(crate) fn conditions<'a>(&'a self, out: &'a Outbox) -> Conditions<'a> {
        Conditions {
            journal: &self.journal,
            out,
            limits: &self.edge.limits,
            resting_bytes: self.edge.resting_bytes,
            awaits_loan: self.edge.awaits_loan(),
            is_stopping: self.stopping,
        }
    }

    /// Whether [`Broker::work`] or [`Broker::flush`] would get on with something now. To be asked
    /// at the very end of a cycle: what the driver does after them leaves work, too.
    #[must_use]
    pub fn has_work(&self, out: &Outbox) -> bool {
        let conditions = self.conditions(out);
        self.owners().iter().any(|owner| owner.has_work(&conditions))
    }

    /// Whether the shard holds something that it took and that has yet to come into a queue, here or
    /// on another shard: what waits for a queue on its way, for room in a log or for its turn. No
    /// shard closes its logs before none of them owes anything. A dead letter that its source has on
    /// the disk is not owed: it may stay there for the next run.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.owners().iter().any(|owner| owner.owes())
    }

    /// Whether something that the shard holds waits for room in a log.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.owners().iter().any(|owner| owner.waits_for_room())
    }

    /// Whether something is left that changes logs.
    pub(crate) fn changes_logs(&self) -> bool {
        self.owners().iter().any(|owner| owner.changes_logs())
    }

    /// Whether all mail that came is applied.
    pub(crate) fn has_applied_mail(&self) -> bool {
        !self.owners().iter().any(|owner| owner.holds_mail())
    }

    /// Whether something is here of a queue, or for it, beside the queue itself.
    pub(crate) fn has_of(&self, queue: QueueId) -> bool {
        self.owners().iter().any(|owner| owner.has_of(queue))
    }
}

impl Owner for Definitions {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        Definitions::has_work(self)
    }
}

impl Owner for Journal {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        Journal::has_work(self)
    }

    fn has_of(&self, queue: QueueId) -> bool {
        // With its lanes what is kept there of it would go.
        self.keeps_damaged(queue)
    }
}

/// Its pool, which is made smaller in slices.
impl Owner for Edge {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        self.must_compact()
    }
}
