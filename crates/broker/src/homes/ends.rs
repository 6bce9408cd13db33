//! How channels, connections and the consumers of deleted queues end, step by step.

use lepus_base::QueueId;

use crate::homes::HomeSide;
use crate::mail::Mail;
use crate::outbox::Outbox;
use crate::queue::Orphans;

impl HomeSide<'_> {
    /// Tells consumers that their queue is gone.
    pub(crate) fn tell_cancelled(&mut self, queue: QueueId, orphans: Orphans, out: &mut Outbox) {
        if !orphans.is_empty() {
            self.shard.job_bytes += orphans.memory_bytes();
            self.go_on_telling(queue, orphans, out);
        }
    }

    /// Slices of telling consumers that their queues are gone.
    pub(crate) fn work_on_orphans(&mut self, out: &mut Outbox) {
        self.homes.orphans.renew();
        while let Some((queue, orphans)) = self.homes.orphans.next() {
            self.go_on_telling(queue, orphans, out);
        }
        self.homes.orphans.renew();
    }

    pub(crate) fn go_on_telling(&mut self, queue: QueueId, mut orphans: Orphans, out: &mut Outbox) {
        let enough = self.homes.orphans.begin_slice();
        while self.homes.orphans.take_step(enough) {
            if self.tell_next_cancelled(queue, &mut orphans, out) {
                return;
            }
        }
        self.homes.orphans.put_off((queue, orphans));
    }

    /// Tells the next consumer that its queue is gone. Whether none is left.
    pub(crate) fn tell_next_cancelled(
        &mut self,
        queue: QueueId,
        orphans: &mut Orphans,
        out: &mut Outbox,
    ) -> bool {
        if let Some(consumer) = orphans.step() {
            self.forget_remote(consumer.key, queue, out);
            let mail = Mail::ConsumerCancelled { to: consumer.key, queue };
            out.send(self.shard.id, consumer.shard, mail);
        }
        if orphans.is_empty() {
            self.shard.job_bytes -= orphans.memory_bytes();
        }
        orphans.is_empty()
    }
}
