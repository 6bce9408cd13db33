//! Jobs are served in slices, and those go on that waited for room in a log.

use crate::broker::Broker;
use crate::jobs::Job;
use crate::journal::Journal;
use crate::outbox::Outbox;
use lepus_base::Now;

impl Broker {
    /// Lets jobs go on that waited for room in their logs, as far as there is some, and ends what clients
    /// that are gone wait for.
    pub(crate) fn give_jobs_room(&mut self, now: Now, out: &mut Outbox) {
        let (directory, delayed, postponed) =
            (&self.directory, &self.homes.delayed, &self.homes.postponed);
        let is_moving = !self.homes.migrations.is_idle();
        let is_behind = |job: &Job, journal: &mut Journal| {
            job.waits_for_others(directory, delayed, journal) || postponed.has_from(job.channel())
        };
        let mut lost = self.shard.jobs.give_room(is_moving, &mut self.journal, is_behind);
        lost.retain(|channel| self.connections.is_lost(channel.connection));
        for channel in lost {
            self.session().end_lost(now, channel, out);
        }
    }
}
