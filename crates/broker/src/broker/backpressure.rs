//! Who is made to wait, and who goes on: what the owners of a shard know, put together once a turn.

use lepus_base::Now;

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::mail::{Mail, Shortage};
use crate::outbox::Outbox;

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
}
