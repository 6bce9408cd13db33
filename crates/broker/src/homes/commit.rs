//! Whether a transaction has room in the logs as a whole.

use crate::channel::settles::Settles;
use crate::effort::as_queues;
use crate::homes::HomeSide;
use crate::jobs::{Commit, Plan};
use crate::queue::{Outcome, Overflow};
use crate::refusal::{Refusal, RefusalKind};

/// Queues of other shards whose rules are looked at for one message.
const RULES_ASKED_MAX: usize = 16;

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
                if let Some((count, bytes)) = sizer.strictly()
                    && self.may_be_refused(count, bytes)
                {
                    let text = "a queue that takes no more than it holds may refuse a message";
                    let refusal = Refusal::new(RefusalKind::PreconditionFailed, text);
                    return Some(Plan::Refused(refusal));
                }
                let routing = as_queues(self.shard.effort.used() - before);
                let queues = sizer.learn_way(is_route_known, self.logs_of_routes(), routing);
                left = left.saturating_sub(queues / 4 + routing);
            }
            if sizer.is_in_vain() {
                let refusal =
                    Refusal::new(RefusalKind::PreconditionFailed, "a message reaches no queue");
                return Some(Plan::Refused(refusal));
            }
            sizer.add_next(self.shard.id, self.journal);
        }
        *budget = left;
        let is_moving = !self.homes.migrations.is_idle();
        let only = sizer.only_log(self.shard.id, self.journal);
        let settled_in = only.filter(|(log, settles)| self.are_in_log(*log, settles));
        let settled_in = settled_in.map(|(log, _)| log);
        Some(sizer.plan(self.shard.id, is_moving, settled_in, self.journal))
    }

    /// Whether a queue, of those that a message was just routed to, may refuse one of so many. How full one of another shard
    /// is nobody knows here: several are not sent to one that refuses any.
    fn may_be_refused(&mut self, count: u64, bytes: u64) -> bool {
        let routes = self.shard.routes.as_slice();
        let is_wide = routes.len() > RULES_ASKED_MAX;
        let mut cost = 0;
        let may = routes.iter().any(|route| {
            if let Some(slot) = self.homes.slot_of(route.queue, u32::MAX) {
                return self.homes.queues[slot as usize].queue.may_refuse(count, bytes);
            }
            let Some(info) = self.directory.queue_by_id(route.queue).filter(|_| count > 1) else {
                return false;
            };
            let mut refuses = || {
                let settings = self.directory.settings_at_cost(info, &mut cost);
                settings.overflow != Overflow::DropHead
            };
            is_wide || refuses()
        });
        self.shard.effort.spend_on_queues(cost);
        may
    }

    /// Whether all that is to be settled is acknowledged, and in this log of this shard.
    fn are_in_log(&self, log: u16, settles: &Settles) -> bool {
        let own = self.shard.id;
        let mut last = None;
        settles.all().all(|(unacked, outcome)| {
            let is_known = last == Some(unacked.queue);
            last = Some(unacked.queue);
            *outcome == Outcome::Ack
                && unacked.home == own
                && (is_known || self.log_of(unacked.queue) == Some(log))
        })
    }
}
