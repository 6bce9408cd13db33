//! All owners of a shard's state, and what is asked of them: whether they have work, owe something, hold something of
//! a queue.
//!
//! Each is named in [`Broker::owners`] once. A field that is added is named there, too, or the crate does not
//! compile: so no question is asked of all owners but one.

use lepus_base::QueueId;

use crate::broker::Broker;
use crate::connections::Connections;
use crate::definitions::Definitions;
use crate::homes::Homes;
use crate::journal::Journal;
use crate::outbox::Outbox;
use crate::owner::{Conditions, Owner};
use crate::shard::Shard;

impl Broker {
    /// All owners.
    fn owners(&self) -> [&dyn Owner; 16] {
        let Broker { directory: _, definitions, connections, homes, journal, shard } = self;
        let Connections {
            all: _,
            by_id: _,
            follow_ups,
            user_channels: _,
            spacious: _,
            unread_replies: _,
            census: _,
            looks,
            names: _,
            looked_at: _,
            settlings,
            ends,
            departures: _,
        } = connections;
        let Homes {
            queues: _,
            slots: _,
            remote: _,
            dead_letters,
            delayed,
            postponed,
            migrations,
            working,
            idle_tables: _,
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
        } = homes;
        let Shard {
            id: _,
            settings: _,
            hash: _,
            rng: _,
            stopping: _,
            alarm: _,
            lender: _,
            jobs,
            routes: _,
            own_steps: _,
            targets: _,
            near: _,
            now: _,
            limits: _,
            loan: _,
            pool: _,
            timers: _,
            counters: _,
            held: _,
            is_committing: _,
            effort: _,
            backpressure,
            connection_bytes: _,
            entering_bytes: _,
            log_bytes: _,
            resting_bytes: _,
            queue_bytes: _,
            unweighed: _,
            job_bytes: _,
            table_bytes: _,
            mail_bytes: _,
        } = shard;
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
            orphans,
            migrations,
            dead_letters,
            backpressure,
            follow_ups,
            shard,
        ]
    }

    /// Whether [`Broker::work`] or [`Broker::flush`] would get on with something now. To be asked
    /// at the very end of a cycle: what the driver does after them leaves work, too.
    #[must_use]
    pub fn has_work(&self, out: &Outbox) -> bool {
        let conditions = self.shard.conditions(&self.journal, out);
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
impl Owner for Shard {
    fn has_work(&self, _: &Conditions<'_>) -> bool {
        self.must_compact()
    }
}
