//! Once a turn: who has room again, in memory, mail and logs.

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::jobs::Job;
use crate::journal::Journal;
use crate::mail::ChannelRef;
use crate::mail::{Mail, Shortage};
use crate::outbox::Outbox;
use alloc::vec::Vec;
use lepus_base::Now;

impl Broker {
    /// Reads publishers again when memory or mail has room.
    pub(crate) fn release_pressure(&mut self, now: Now, out: &mut Outbox) {
        self.shard.give_spare();
        self.shard.adjust_loan(out);
        let limit = self.shard.loan.bytes;
        let was_full = self.shard.backpressure.take_memory_full();
        let is_memory = self.shard.backpressure.is_memory_short();
        let enough = if is_memory || was_full { limit - limit / 10 } else { limit };
        let may_be_short = is_memory || self.shard.loan.is_all();
        let shortage = if self.shard.memory() > enough && may_be_short {
            Some(Shortage::Memory)
        } else {
            self.journal.is_short().then_some(Shortage::Disk)
        };
        if self.shard.backpressure.set_shortage(shortage) {
            out.tell_others(self.shard.id, || Mail::Short(shortage));
        }
        self.home().tell_shortage(now, out);
        self.connections.unblock_all(&mut self.shard, out);
        if self.journal.is_on() {
            self.give_room(now, out);
        }
        self.home().tell_backlog(out);
        self.session().resume_loggers(out);
        if self.shard.backpressure.waits_for_mail()
            && self.shard.conditions(&self.journal, out).may_read_again()
        {
            // Those that find a batch full again come behind them.
            for _ in 0..self.shard.backpressure.consumers_behind_mail() {
                let Some((queue, key)) =
                    self.homes.remote.take_first_behind_mail(&mut self.shard.backpressure)
                else {
                    break;
                };
                self.home().resume_remote(now, queue, key, out);
            }
            let waiting = self.shard.backpressure.end_mail();
            self.connections.resume_all(&mut self.shard, waiting, Cause::Mail, out);
        }
    }

    /// Lets dead letters, mail and jobs go on that waited for room in a log, as far as there
    /// is some.
    pub(crate) fn give_room(&mut self, now: Now, out: &mut Outbox) {
        self.journal.forget_wishes();
        self.home().look_for_memory();
        self.home().look_for_room_anew();
        self.homes.dead_letters.give_room(&mut self.journal);
        let journal = &mut self.journal;
        self.homes.delayed.let_pass(|logs| journal.is_full(logs));
        self.homes.delayed.give_room(|need, frees| !journal.must_wait_to_pass_on(need, frees));
        self.home().enqueue_postponed(now, out);
        self.end_lost_publishers(now, out);
        self.give_jobs_room(now, out);
    }

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

    /// Publishes of clients that are gone wait for room: whoever said more behind one waits for nothing any more.
    pub(crate) fn end_lost_publishers(&mut self, now: Now, out: &mut Outbox) {
        let near: Vec<ChannelRef> = self.homes.postponed.near().collect();
        for channel in near {
            if self.connections.is_lost(channel.connection) {
                self.session().end_lost(now, channel, out);
            }
        }
    }
}
