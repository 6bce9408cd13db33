//! What queues and dead letters wait for in the logs, and what the log lines say of a shortage.

use alloc::vec::Vec;

use crate::alarm::Usage;
use crate::homes::HomeSide;
use crate::jobs::Job;
use crate::journal::{Journal, Left};
use crate::mail::{ChannelRef, Mail, Shortage};
use crate::outbox::Outbox;
use lepus_base::Now;
use lepus_base::{QueueId, ShardId};

impl HomeSide<'_> {
    /// Tells the other shards when a log here begins to lag, and when it has caught up: their clients publish to it,
    /// too, and what they send lies in memory until it is written.
    pub(crate) fn tell_backlog(&mut self, out: &mut Outbox) {
        let lags = match self.shard.backpressure.is_log_late() {
            true => !self.journal.has_caught_up(),
            false => self.journal.is_behind(),
        };
        if !self.shard.backpressure.set_log_late(lags) {
            return;
        }
        let own = self.shard.id;
        for shard in (0..self.shard.settings.shards).map(ShardId).filter(|&shard| shard != own) {
            out.mail[shard.index()].items.push(Mail::LogLags(lags));
        }
    }

    /// Lets those look anew who wait for room in a log for a transient queue whose messages may stay in memory
    /// again.
    pub(crate) fn look_for_memory(&mut self) {
        if self.homes.spilling.is_empty() || self.shard.must_spill(0) {
            return;
        }
        for id in core::mem::take(&mut self.homes.spilling) {
            let slot = self.homes.slot_of(id, u32::MAX);
            let Some(home) = slot.and_then(|slot| self.homes.queues.get(slot as usize)) else {
                race!("the queue left before there was memory again");
                continue;
            };
            let (log, taken) = (home.log, home.queue.taken_bytes());
            if self.shard.must_spill(taken) {
                self.homes.spilling.insert(id);
            } else {
                self.queue_left(id, log);
            }
        }
    }

    /// A queue is gone, deleted or on its way to another shard, and with it a reason to wait for room in this
    /// log.
    pub(crate) fn queue_left(&mut self, id: QueueId, log: u16) {
        self.homes.spilling.remove(&id);
        self.homes.dead_letters.target_left(id);
        self.homes.delayed.target_left(id);
        self.journal.note_left(log);
    }

    /// The same. Those come and go all the time for which messages do not `always` need room in this log: queues
    /// that are not durable, for which they need it only where memory is short, and those of other shards.
    pub(crate) fn home_left(&mut self, id: QueueId, log: u16, always: bool) {
        if always || self.homes.spilling.contains(&id) {
            self.queue_left(id, log);
        } else {
            self.homes.dead_letters.target_left(id);
            self.homes.delayed.target_left(id);
            self.journal.note_left_by_commits(log);
        }
    }

    /// Who waits for room in logs that queues have left, and for what queues is not known, finds out anew where it
    /// is needed.
    pub(crate) fn look_for_room_anew(&mut self) {
        let Left { all, commits } = self.journal.take_left();
        if !commits.is_empty() {
            self.homes.postponed.look_anew(all, commits);
            self.shard.jobs.look_anew(all, commits);
        }
    }

    /// Tells the log when something became short, or has room again.
    pub(crate) fn tell_shortage(&mut self, now: Now, out: &mut Outbox) {
        let shortage = self.shard.backpressure.shortage();
        if !self.shard.alarm.must_tell(now, shortage) {
            return;
        }
        let store = self.shard.settings.store.as_ref();
        let usage = Usage {
            used: self.shard.memory(),
            limit: self.shard.loan.limit,
            journal: self.journal,
            segment_bytes: store.map_or(0, |store| store.template.segment_bytes as usize),
        };
        self.shard.alarm.tell(now, shortage, &usage, out);
    }

    /// Lets dead letters and mail go on that waited for room in a log, as far as there is some.
    pub(crate) fn give_room(&mut self, now: Now, out: &mut Outbox) {
        self.journal.forget_wishes();
        self.look_for_memory();
        self.look_for_room_anew();
        self.homes.dead_letters.give_room(self.journal);
        let journal = &mut *self.journal;
        self.homes.delayed.let_pass(|logs| journal.is_full(logs));
        self.homes.delayed.give_room(|need, frees| !journal.must_wait_to_pass_on(need, frees));
        self.enqueue_postponed(now, out);
    }

    /// Lets jobs go on that waited for room in their logs, as far as there is some. Channels whose jobs still wait.
    pub(crate) fn give_jobs_room(&mut self) -> Vec<ChannelRef> {
        let (directory, delayed, postponed) =
            (&*self.directory, &self.homes.delayed, &self.homes.postponed);
        let is_moving = !self.homes.migrations.is_idle();
        let is_behind = |job: &Job, journal: &mut Journal| {
            job.waits_for_others(directory, delayed, journal) || postponed.has_from(job.channel())
        };
        self.shard.jobs.give_room(is_moving, self.journal, is_behind)
    }

    /// Channels of this shard that published something which waits for room.
    pub(crate) fn postponed_publishers(&self) -> Vec<ChannelRef> {
        self.homes.postponed.near().collect()
    }

    /// Mail has room: consumers of other shards that waited for it get on.
    pub(crate) fn resume_behind_mail(&mut self, now: Now, out: &mut Outbox) {
        // Those that find a batch full again come behind them.
        for _ in 0..self.shard.backpressure.consumers_behind_mail() {
            let first = self.homes.remote.take_first_behind_mail(&mut self.shard.backpressure);
            let Some((queue, key)) = first else { return };
            self.resume_remote(now, queue, key, out);
        }
    }

    /// Finds out what is short now, and tells the other shards and the log where that has changed.
    pub(crate) fn find_shortage(&mut self, now: Now, out: &mut Outbox) {
        self.shard.give_spare();
        self.shard.adjust_loan(out);
        let limit = self.shard.loan.limit;
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
        self.tell_shortage(now, out);
    }
}
