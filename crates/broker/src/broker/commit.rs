//! `tx.commit`: what a transaction held is published and settled, whole or in slices.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lepus_base::Now;

use crate::broker::Broker;
use crate::channel::{At, Pending, Tx};
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX, as_queues};
use crate::jobs::{Commit, Job, Plan, Step, Whole};
use crate::journal::Need;
use crate::mail::{COMMIT_NUMBER, Mail, Receipt};
use crate::outbox::Outbox;
use crate::publish::Served;
use crate::refusal::Refusal;

impl Broker {
    /// Begins to commit what a channel's transaction held.
    pub(crate) fn begin_commit(&mut self, now: Now, at: At, tx: Tx, out: &mut Outbox) {
        self.session().set_pending(at, Pending::Commit);
        let connection = &mut self.sessions.connections[at.slot as usize];
        if let Some(channel) = connection.incarnation(at.channel.channel) {
            let committing = channel.committing.insert(Box::default());
            committing.take_number();
            committing.open(COMMIT_NUMBER, 1, Receipt::Taken);
        }
        let size_matters = self.journal.is_on() && tx.is_persistent;
        let commit = Box::new(self.shard.jobs.begin_commit(at, tx, size_matters));
        if self.shard.effort.is_used_up() {
            // Others have begun to commit in this turn.
            return self.shard.jobs.push(Job::Commit(commit));
        }
        let mut budget = TARGETS_AT_ONCE_MAX;
        self.work_on_job(now, Job::Commit(commit), &mut budget, out);
        self.shard.effort.spend_on_queues(TARGETS_AT_ONCE_MAX - budget);
    }

    /// One slice of a commit.
    pub(crate) fn step_commit(
        &mut self,
        now: Now,
        mut commit: Box<Commit>,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        if self.homes.postponed.has_from(commit.channel()) {
            // What was published before must not be overtaken.
            return Step::Fans(commit);
        }
        if !commit.is_begun() {
            let plan = self.home().plan(&mut commit, budget);
            let has_turn = commit.take_turn();
            match plan {
                None => return Step::More(Job::Commit(commit)),
                Some(Plan::NeedsRoom(need)) => return Step::NeedsRoom(Job::Commit(commit), need),
                Some(Plan::Refused(refusal)) => {
                    self.session().refuse_commit(now, *commit, &refusal, out);
                    return Step::Done;
                }
                // Reading goes on with other channels, each of which may commit as much.
                Some(Plan::Whole(whole)) if whole.steps > TARGETS_AT_ONCE_MAX && !has_turn => {
                    return Step::More(Job::Commit(commit));
                }
                Some(Plan::Whole(whole)) => {
                    *budget = budget.saturating_sub(whole.steps);
                    let result = self.publish_whole(now, &mut commit, &whole, out);
                    if let Err(refusal) = result {
                        self.session().refuse_commit(now, *commit, &refusal, out);
                        return Step::Done;
                    }
                }
                Some(Plan::Sliced) => {}
            }
            commit.begin();
        }
        while *budget > 0
            && let Some(held) = commit.next_publish()
        {
            let bytes = held.memory_bytes();
            self.shard.jobs.discount_publish(&mut commit, bytes);
            let before = self.shard.effort.used();
            let (served, queues) = self.publish_held(now, commit.at(), &held, false, out);
            let effort = as_queues(self.shard.effort.used() - before);
            *budget = budget.saturating_sub(1 + queues.max(effort) + bytes / MESSAGE_BYTES);
            match served {
                Served::Now => {}
                Served::Later => return Step::Fans(commit),
                Served::Never(_) | Served::NeverReleased(_) | Served::TooFar(_) => {
                    if let Err(refusal) = served.check(&held.exchange) {
                        self.session().refuse_commit(now, *commit, &refusal, out);
                    }
                    return Step::Done;
                }
            }
        }
        while *budget > 0
            && let Some((unacked, outcome)) = commit.next_settle()
        {
            *budget -= 1;
            self.session().settle_one(commit.at(), &unacked, outcome, out);
        }
        if !commit.is_done() {
            return Step::More(Job::Commit(commit));
        }
        self.session().finish_commit(now, commit.at(), out);
        Step::Done
    }

    /// Publishes all of a commit so that it is in one batch of each log.
    ///
    /// # Errors
    /// What a publish is refused for which chance sent another way than before, too long a one. It
    /// and those behind it are not published then.
    pub(crate) fn publish_whole(
        &mut self,
        now: Now,
        commit: &mut Commit,
        whole: &Whole,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let bytes = whole.parts[self.shard.id.index()];
        self.journal.hold(Need { logs: whole.logs, bytes });
        // The room in the log, and the batch, are for what has to be there.
        self.shard.is_committing = true;
        let shards = 0..out.mail.shards();
        let before: Vec<usize> = shards.map(|shard| out.mail[shard].items.len()).collect();
        let mut result = Ok(());
        while result.is_ok()
            && let Some(held) = commit.next_publish()
        {
            let (served, _) = self.publish_held(now, commit.at(), &held, true, out);
            assert!(
                matches!(served, Served::Now | Served::TooFar(_)),
                "there was room for all of it"
            );
            self.shard.jobs.discount_publish(commit, held.memory_bytes());
            result = served.check(&held.exchange);
        }
        self.shard.is_committing = false;
        for (shard, (&before, &bytes)) in before.iter().zip(&whole.parts).enumerate() {
            let items = out.mail[shard].items.len() - before;
            if items > 0 && bytes > 0 {
                out.mail[shard].items.insert(before, Mail::Commit { bytes, items });
            }
        }
        result
    }
}
