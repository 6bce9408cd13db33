//! What the shard may use: memory that it borrows and lends, and what the log hears when something is short.

use lepus_base::{Now, ShardId};

use crate::alarm::Usage;
use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::loan::{Answer, Lender};
use crate::mail::Mail;
use crate::outbox::Outbox;

impl Broker {
    /// Asks for memory that will be needed, or gives back what is not.
    pub(crate) fn adjust_loan(&mut self, out: &mut Outbox) {
        if self.shard.settings.shards < 2 {
            return;
        }
        let used = self.shard.memory();
        // The lender hears itself at once: after less than it asked for it learns that this is all.
        while let Some(bytes) = self.shard.loan.ask(used) {
            match &mut self.shard.lender {
                Some(lender) => {
                    let answer = lender.ask(self.shard.id, bytes);
                    self.shard.loan.take(answer.lent, answer.left);
                }
                None => out.mail[0].items.push(Mail::WantMemory { bytes }),
            }
        }
        if let Some(bytes) = self.shard.loan.give_back(used) {
            match self.shard.lender {
                Some(_) => self.memory_returned(self.shard.id, bytes, out),
                None => out.mail[0].items.push(Mail::ReturnMemory { bytes }),
            }
        }
    }

    /// A publisher's shard uses more than it has. True where there is more, or where the answer to
    /// that is to come: until then the publisher is not read.
    #[cold]
    pub(crate) fn waits_for_loan(&mut self, slot: u32, out: &mut Outbox) -> bool {
        self.adjust_loan(out);
        if self.shard.loan.is_all() {
            return false;
        }
        if self.shard.awaits_loan() {
            self.sessions.pause(&mut self.shard, slot, Cause::Mail, out);
        }
        true
    }

    /// A shard asks for memory (on shard 0).
    pub(crate) fn memory_wanted(&mut self, from: ShardId, bytes: usize, out: &mut Outbox) {
        let lender = self.shard.lender.as_mut().expect("only shard 0 is asked for memory");
        let answer = lender.ask(from, bytes);
        self.tell_loan(answer, out);
    }

    /// A shard gives memory back (on shard 0).
    pub(crate) fn memory_returned(&mut self, from: ShardId, bytes: usize, out: &mut Outbox) {
        let lender = self.shard.lender.as_mut().expect("memory goes back to shard 0");
        lender.give_back(from, bytes);
        while let Some(answer) = self.shard.lender.as_mut().and_then(Lender::next_answer) {
            self.tell_loan(answer, out);
        }
    }

    fn tell_loan(&mut self, answer: Answer, out: &mut Outbox) {
        let Answer { to, lent, left } = answer;
        if to == self.shard.id {
            self.shard.loan.take(lent, left);
        } else {
            out.mail[to.index()].items.push(Mail::MemoryLent { bytes: lent, left });
        }
    }

    /// Who lends memory; on shard 0 where there are several.
    #[must_use]
    pub fn lender(&self) -> Option<&Lender> {
        self.shard.lender.as_ref()
    }

    /// Tells the log when something became short, or has room again.
    pub(super) fn tell_shortage(&mut self, now: Now, out: &mut Outbox) {
        let shortage = self.shard.backpressure.shortage();
        if !self.shard.alarm.must_tell(now, shortage) {
            return;
        }
        let store = self.shard.settings.store.as_ref();
        let usage = Usage {
            used: self.shard.memory(),
            limit: self.shard.loan.bytes,
            journal: &self.journal,
            segment_bytes: store.map_or(0, |store| store.template.segment_bytes as usize),
        };
        self.shard.alarm.tell(now, shortage, &usage, out);
    }
}
