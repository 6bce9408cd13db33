//! Who is made to wait, and who goes on: what the owners of a shard know, put together once a turn.

use alloc::vec::Vec;

use lepus_base::{Now, QueueId, ShardId};

use super::Broker;
use crate::backpressure::Cause;
use crate::journal::Left;
use crate::mail::{ChannelRef, Mail, Shortage};
use crate::outbox::Outbox;

impl Broker {
    /// Reads publishers again when memory or mail has room.
    pub(super) fn release_pressure(&mut self, now: Now, out: &mut Outbox) {
        self.shard.give_spare();
        self.adjust_loan(out);
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
        self.tell_shortage(now, out);
        self.sessions.unblock_all(&mut self.shard, out);
        if self.journal.is_on() {
            self.give_room(now, out);
        }
        self.tell_backlog(out);
        self.resume_loggers(out);
        if self.shard.backpressure.waits_for_mail() && self.conditions(out).may_read_again() {
            // Those that find a batch full again come behind them.
            for _ in 0..self.shard.backpressure.consumers_behind_mail() {
                let Some((queue, key)) =
                    self.homes.remote.take_first_behind_mail(&mut self.shard.backpressure)
                else {
                    break;
                };
                self.resume_remote(now, queue, key, out);
            }
            let waiting = self.shard.backpressure.end_mail();
            self.sessions.resume_all(&mut self.shard, waiting, Cause::Mail, out);
        }
    }

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

    /// Reads publishers again that were paused for a log, here or on other shards, where none of theirs lags any more.
    pub(crate) fn resume_loggers(&mut self, out: &mut Outbox) {
        let (sessions, shard) = (&mut self.sessions, &mut self.shard);
        for (slot, id) in shard.backpressure.look_at_logs() {
            if sessions.connection_at(slot, id).is_none() {
                continue;
            }
            if sessions.feeds_lagging_shard(shard, slot) {
                shard.backpressure.keep_waiting_for_log((slot, id));
            } else {
                sessions.resume(shard, slot, Cause::Log, out);
            }
        }
    }

    /// Lets dead letters, mail and jobs go on that waited for room in a log, as far as there
    /// is some.
    pub(crate) fn give_room(&mut self, now: Now, out: &mut Outbox) {
        self.journal.forget_wishes();
        self.look_for_memory();
        self.look_for_room_anew();
        self.homes.dead_letters.give_room(&mut self.journal);
        let journal = &mut self.journal;
        self.homes.delayed.let_pass(|logs| journal.is_full(logs));
        self.homes.delayed.give_room(|need, frees| !journal.must_wait_to_pass_on(need, frees));
        self.enqueue_postponed(now, out);
        self.end_lost_publishers(now, out);
        self.give_jobs_room(now, out);
    }

    /// Lets those look anew who wait for room in a log for a transient queue whose messages may stay in memory
    /// again.
    fn look_for_memory(&mut self) {
        if self.homes.spilling.is_empty() || self.shard.must_spill(0) {
            return;
        }
        for id in core::mem::take(&mut self.homes.spilling) {
            let slot = self.home_slot(id, u32::MAX);
            let Some(home) = slot.and_then(|slot| self.homes.queues.get(slot as usize)) else {
                continue;
            };
            let (log, pooled) = (home.log, home.queue.pooled_bytes());
            if self.shard.must_spill(pooled) {
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
    fn look_for_room_anew(&mut self) {
        let Left { all, commits } = self.journal.take_left();
        if !commits.is_empty() {
            self.homes.postponed.look_anew(all, commits);
            self.shard.jobs.look_anew(all, commits);
        }
    }

    /// Stops reading a client that does not read its answers. True when it is to wait.
    pub(crate) fn must_wait(&mut self, slot: u32, out: &mut Outbox) -> bool {
        let limit = self.shard.limits.unread_bytes_max;
        let Some(connection) = self.sessions.connections.get(slot as usize) else { return false };
        if connection.end.is_some() {
            // Nothing is asked any more, and nothing that was asked is to wait for ever.
            return false;
        }
        if connection.send.backlog() > limit {
            self.sessions.pause(&mut self.shard, slot, Cause::Unread, out);
            return true;
        }
        false
    }

    /// Reads a client again that has read enough of what was sent to it.
    pub(crate) fn resume_unread(&mut self, slot: u32, out: &mut Outbox) {
        let limit = self.shard.limits.unread_bytes_max;
        let shard = self.shard.id;
        let Some(connection) = self.sessions.connections.get(slot as usize) else { return };
        if connection.send.backlog() > limit / 2 {
            return;
        }
        let id = connection.id;
        let waiting: Vec<ChannelRef> = connection
            .open_channels()
            .filter(|channel| !channel.parked.is_empty() && channel.pending.is_none())
            .map(|channel| ChannelRef { shard, connection: id, channel: channel.key })
            .collect();
        for channel in waiting {
            self.unpark(slot, channel);
        }
        self.sessions.resume(&mut self.shard, slot, Cause::Unread, out);
    }

    /// Pauses a client while the mail to some shard has no room.
    pub(crate) fn press_mail(&mut self, slot: u32, out: &mut Outbox) {
        if self.shard.is_mail_full(out) {
            self.sessions.pause(&mut self.shard, slot, Cause::Mail, out);
        }
    }
}
