//! Publishes and commits that are served in slices: whose turn it is.

use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::jobs::{Job, Step};
use crate::outbox::Outbox;
use crate::sessions::SessionSide;
use lepus_base::Now;

impl SessionSide<'_> {
    /// A slice of the jobs.
    pub(crate) fn work_on_jobs(&mut self, now: Now, out: &mut Outbox) {
        // This gives memory back: it waits for no log and no mail.
        self.shard.jobs.free_discarded();
        let mut budget = TARGETS_AT_ONCE_MAX;
        for _ in 0..self.shard.jobs.ready() {
            if budget == 0 || !self.shard.conditions(self.journal, out).jobs_go_on() {
                break;
            }
            let Some(job) = self.shard.jobs.next_ready() else { break };
            self.work_on_job(now, job, &mut budget, out);
        }
    }

    /// A slice of one job, which takes what it does off the `budget`.
    pub(crate) fn work_on_job(&mut self, now: Now, job: Job, budget: &mut usize, out: &mut Outbox) {
        let step = match job {
            Job::Fanout(fanout) => self.home().step_fanout(now, fanout, budget, out),
            Job::Commit(commit) => self.step_commit(now, commit, budget, out),
        };
        match step {
            Step::Done => {}
            Step::More(job) => self.shard.jobs.push(job),
            Step::NeedsRoom(job, need) => {
                if let Job::Fanout(fanout) = &job {
                    self.home().let_others_pass(fanout);
                }
                self.shard.jobs.wait_for_room(job, need);
            }
            Step::Fans(commit) => self.shard.jobs.wait_for_publish(commit),
        }
    }
}
