//! A message goes into queues near and far.

pub(crate) mod held;
pub(crate) mod logged;
pub(crate) mod row;

use alloc::vec::Vec;

use lepus_base::{Now, Pool, QueueId};
use lepus_store::AppendError;

use crate::channel::Target;
use crate::delayed::Later;
use crate::delivery::is_near;
use crate::homes::HomeSide;
use crate::mail::{Receipt, Terms};
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::Routed;
use crate::queue::Enqueued;
use crate::queue::command;
use crate::send_buffer::LARGE_BODY_BYTES_MIN;

/// Appends a message in its packed form.
pub(crate) fn append(
    incoming: &Incoming<'_>,
    pool: &Pool,
    out: &mut Vec<u8>,
) -> core::ops::Range<u32> {
    if let Some(view) = incoming.view() {
        return view.append_packed(out);
    }
    let Some(body) = incoming.stored() else {
        invariant!("a message lies in what came in, or in memory")
    };
    let start = out.len() as u32;
    out.extend_from_slice(pool.get(body));
    start..out.len() as u32
}

impl HomeSide<'_> {
    /// Where a queue of this shard is that something is for; `None` if it was deleted since, or has another id. A queue
    /// that was deleted has nothing any more, and what comes for it counts as taken.
    #[inline]
    pub(crate) fn slot_for(&self, queue: QueueId, hint: u32) -> Option<u32> {
        let slot = self.homes.slot_of(queue, hint);
        if slot.is_none() {
            self.miss(queue);
        }
        slot
    }

    /// Something finds no queue. What a queue does not get that exists would be lost, and count as taken.
    #[cold]
    #[inline(never)]
    fn miss(&self, queue: QueueId) {
        let is_known = self.directory.queue_by_id(queue).is_some();
        invariant!(!is_known, "a queue that exists gets what is for it at its home");
        if self.directory.id_now(queue) != queue {
            return race!("the queue moved, and a publish that was a job finds it by its new id");
        }
        race!("the queue was deleted before a message or a settlement came");
    }

    /// Has a delayed exchange hold a message back.
    pub(crate) fn delay_one(
        &mut self,
        now: Now,
        (id, later): (QueueId, Later),
        view: &MessageView<'_>,
        terms: &Terms,
        out: &mut Outbox,
    ) -> Routed {
        // While the logs close nobody waits.
        let held = match self.homes.delayed.takes_long(later.segments, self.journal) {
            true => self.delay(now, id, later, view, terms.persistent, out),
            false => Err(AppendError::Full),
        };
        let Ok(log) = held else {
            self.shard.counters.unlogged += 1;
            return Routed { receipt: Receipt::Unlogged, ..Routed::default() };
        };
        let Some((log, (to, number))) = log.zip(terms.confirm()) else { return Routed::default() };
        self.journal.report_when_durable(log, to, number);
        Routed { logs: 1, ..Routed::default() }
    }

    /// Puts a message into queues near and far. For those on their way to another shard it waits,
    /// and they report as those on other shards do.
    pub(crate) fn enqueue_all(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        out: &mut Outbox,
    ) -> Routed {
        if self.homes.migrations.is_idle() {
            return self.enqueue_here(now, incoming, targets, terms, out);
        }
        let others = self.set_aside(incoming, targets, terms, |_| true);
        let aside = (targets.len() - others.len()) as u32;
        let is_aside = |target: &&Target| self.homes.migrations.parked_mail(target.queue).is_some();
        for target in targets.iter().filter(is_aside) {
            let counters = &mut self.shard.counters;
            if target.home == self.shard.id {
                counters.enqueued_local += 1;
            } else {
                counters.enqueued_remote += 1;
                counters.enqueued_near += u64::from(is_near(&self.shard.near, target.home));
            }
        }
        let routed = self.enqueue_here(now, incoming, &others, terms, out);
        Routed { remote: routed.remote + aside, ..routed }
    }

    /// Puts a message into queues near and far, none of which is on its way.
    pub(crate) fn enqueue_here(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        out: &mut Outbox,
    ) -> Routed {
        incoming.persistent = terms.persistent;
        incoming.priority = terms.priority;
        incoming.expiration = terms.expiration;
        if targets.len() > 1 {
            self.shard.effort.spend_on_queues(targets.len());
            let bytes = incoming.bytes() as usize;
            if bytes < LARGE_BODY_BYTES_MIN {
                // Consumers may wait at all of them.
                self.shard.effort.spend_on_bytes(targets.len() * bytes);
            }
        }
        let own = self.shard.id;
        let mut remote = 0;
        // One copy for each shard.
        self.homes.packed.clear();
        let mut last_local = None;
        for (place, target) in targets.iter().enumerate() {
            if target.home == own {
                last_local = Some(place);
                continue;
            }
            remote += 1;
            self.shard.counters.enqueued_remote += 1;
            self.shard.counters.enqueued_near += u64::from(is_near(&self.shard.near, target.home));
            let batch = &mut out.mail[target.home.index()];
            let message = match self.homes.packed.iter().find(|(shard, _)| *shard == target.home) {
                Some((_, range)) => range.clone(),
                None => {
                    let range = append(incoming, &self.shard.pool, &mut batch.bytes);
                    self.homes.packed.push((target.home, range.clone()));
                    range
                }
            };
            batch.items.push(terms.mail(target.queue, message));
        }
        let Some(last) = last_local else { return Routed { remote, ..Routed::default() } };
        if terms.persistent && self.journal.is_on() {
            let routed = self.enqueue_logged(now, incoming, targets, terms.confirm(), out);
            return Routed { remote, ..routed };
        }
        let mut receipt = Receipt::Taken;
        for (place, target) in targets.iter().enumerate() {
            if target.home != own {
                continue;
            }
            incoming.last = place == last;
            receipt = receipt.max(self.enqueue(now, target, incoming, out));
        }
        Routed { remote, logs: 0, receipt }
    }

    /// Puts a message that is not logged into one queue of this shard.
    pub(crate) fn enqueue(
        &mut self,
        now: Now,
        target: &Target,
        incoming: &mut Incoming<'_>,
        out: &mut Outbox,
    ) -> Receipt {
        let Some(slot) = self.slot_for(target.queue, target.slot) else {
            return Receipt::Taken;
        };
        self.shard.counters.enqueued_local += 1;
        let enqueued = self.with_queue(now, slot, out, |queue, sink| {
            queue.apply(now, command::Publish { incoming }, sink)
        });
        self.dispatch_ready(now, slot, out);
        match enqueued {
            Enqueued::Accepted => Receipt::Taken,
            Enqueued::Rejected => Receipt::Refused,
        }
    }
}
