//! Whether a transaction has room in the logs as a whole.

use crate::effort::as_queues;
use crate::homes::HomeSide;
use crate::jobs::{Commit, Plan};

impl HomeSide<'_> {
    /// Finds out how much a commit takes, and how it goes on; `None` if the budget was too small.
    pub(crate) fn plan(&mut self, commit: &mut Commit, budget: &mut usize) -> Option<Plan> {
        let at = commit.at();
        let shards = usize::from(self.shard.settings.shards);
        let mut sizer = commit.sizer(self.directory.version(), shards)?;
        let mut left = core::mem::take(budget);
        while sizer.has_more() {
            if left == 0 && sizer.may_be_put_off() {
                return None;
            }
            left = left.saturating_sub(1);
            if let Some((held, queues)) = sizer.next_way() {
                let before = self.shard.effort.used();
                let is_route_known = match self.count_queues(at, held, queues) {
                    Ok(is_route_known) => is_route_known,
                    Err(refusal) => return Some(Plan::Refused(refusal)),
                };
                let routing = as_queues(self.shard.effort.used() - before);
                let queues = sizer.learn_way(is_route_known, self.logs_of_routes(), routing);
                left = left.saturating_sub(queues / 4 + routing);
            }
            sizer.add_next(self.shard.id, self.journal);
        }
        *budget = left;
        let is_moving = !self.homes.migrations.is_idle();
        Some(sizer.plan(self.shard.id, is_moving, self.journal))
    }
}
