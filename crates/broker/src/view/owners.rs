//! What is asked of all owners of a shard's state but the definitions: whether they have work, owe something, hold mail.
//!
//! Each names what it has that may, once (`owners` of sessions, homes and shard), so that no question is asked of all but
//! one.

use lepus_base::QueueId;

use crate::journal::Journal;
use crate::outbox::Outbox;
use crate::owner::Owner;
use crate::view::View;

impl View<'_> {
    #[inline(always)]
    fn any(self, asked: impl Fn(&dyn Owner) -> bool) -> bool {
        asked(self.journal)
            || asked(self.connections.owner())
            || self.homes.owners().into_iter().any(&asked)
            || self.sessions.owners().into_iter().any(&asked)
            || self.shard.owners().into_iter().any(&asked)
    }

    /// Whether the next turn would get on with something now.
    pub(crate) fn has_work(self, out: &Outbox) -> bool {
        let conditions = self.shard.conditions(self.journal, out);
        self.any(|owner| owner.has_work(&conditions))
    }

    /// Whether the shard holds something that it took and that has yet to come into a queue, here or
    /// on another shard: what waits for a queue on its way, for room in a log or for its turn. No
    /// shard closes its logs before none of them owes anything. A dead letter that its source has on
    /// the disk is not owed: it may stay there for the next run.
    #[must_use]
    pub fn owes(self) -> bool {
        self.any(|owner| owner.owes())
    }

    /// Whether something that the shard holds waits for room in a log.
    #[must_use]
    pub fn waits_for_room(self) -> bool {
        self.any(|owner| owner.waits_for_room())
    }

    /// Whether something is left that changes logs.
    pub(crate) fn changes_logs(self) -> bool {
        self.any(|owner| owner.changes_logs())
    }

    /// Whether all mail that came is applied.
    pub(crate) fn has_applied_mail(self) -> bool {
        !self.any(|owner| owner.holds_mail())
    }
}

impl Owner for Journal {
    fn has_work(&self, _: &crate::owner::Conditions<'_>) -> bool {
        Journal::has_work(self)
    }

    fn has_of(&self, queue: QueueId) -> bool {
        // With its lanes what is kept there of it would go.
        self.keeps_damaged(queue)
    }
}
