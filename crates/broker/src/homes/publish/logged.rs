//! Persistent messages on their way into the queues of this shard: logged once for all of them.

use crate::publish::Put;
use alloc::vec::Vec;

use lepus_base::{Now, QueueId};
use lepus_store::AppendError;

use crate::channel::Target;
use crate::effort::TARGETS_AT_ONCE_MAX;
use crate::homes::HomeSide;
use crate::journal::{LogSet, NO_LOG, Need, Occupied, Room, place_of};
use crate::mail::{ChannelRef, Receipt};
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::Routed;
use crate::queue::{Admission, NoSink, command};

impl HomeSide<'_> {
    /// Puts a persistent message into those targets that are here: first all queues are asked,
    /// then it is logged once with all its places, then they get it. Queues whose log does not take
    /// it do not get it. `confirm` is told when it is durable, once for each log.
    pub(crate) fn enqueue_logged(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        targets: &[Target],
        confirm: Option<(ChannelRef, u64)>,
        out: &mut Outbox,
    ) -> Routed {
        let own = self.shard.id;
        let mut puts = core::mem::take(&mut self.homes.puts);
        puts.clear();
        let (mut receipt, mut is_mixed) = (Receipt::Taken, false);
        incoming.last = false;
        for target in targets.iter().filter(|target| target.home == own) {
            let Some(slot) = self.slot_for(target.queue, target.slot) else { continue };
            if !self.homes.queues[slot as usize].queue.is_durable() {
                is_mixed = true;
                continue;
            }
            let log = self.homes.queues[slot as usize].log;
            if log == NO_LOG {
                receipt = Receipt::Unlogged;
                self.shard.counters.unlogged += 1;
                continue;
            }
            self.shard.counters.enqueued_local += 1;
            let admission = self.with_queue(now, slot, out, |queue, sink| {
                queue.apply(now, command::Admit { incoming }, sink)
            });
            match admission {
                Admission::Wanted(ticket, lane) => {
                    let place = place_of(now, lane, &ticket);
                    puts.push(Put { slot, log, ticket, place, position: None });
                }
                Admission::Delivered => self.dispatch_ready(now, slot, out),
                Admission::Rejected => {
                    receipt = receipt.max(Receipt::Refused);
                    self.dispatch_ready(now, slot, out);
                }
            }
        }
        let logs = match puts.is_empty() {
            true => 0,
            false => self.log_puts(incoming, &mut puts, confirm),
        };
        // Only now: what they have no memory for goes into the log too, and may take its last room.
        let transient = if is_mixed { targets } else { &[] };
        for target in transient.iter().filter(|target| target.home == own) {
            let Some(slot) = self.slot_for(target.queue, target.slot) else { continue };
            if !self.homes.queues[slot as usize].queue.is_durable() {
                receipt = receipt.max(self.enqueue(now, target, incoming, out));
            }
        }
        for put in &puts {
            let (slot, ticket) = (put.slot, put.ticket);
            let Some(position) = put.position else {
                let queue = &mut self.homes.queues[slot as usize].queue;
                queue.apply(now, command::Withdraw { ticket }, &mut NoSink);
                receipt = Receipt::Unlogged;
                self.shard.counters.unlogged += 1;
                continue;
            };
            self.with_queue(now, slot, out, |queue, sink| {
                queue.apply(now, command::Put { ticket, position, incoming }, sink);
            });
            self.dispatch_ready(now, slot, out);
        }
        self.homes.puts = puts;
        Routed { remote: 0, logs, receipt }
    }

    /// Whether the logs have room for a message that goes to these queues.
    #[inline]
    pub(crate) fn room_for(
        &mut self,
        incoming: &Incoming<'_>,
        persistent: bool,
        targets: &[Target],
    ) -> Room {
        self.room_beside(incoming, persistent, targets, Occupied::default())
    }

    /// The same for a message that has `occupied` something in a log itself, until all its queues have it.
    #[inline]
    pub(crate) fn room_beside(
        &mut self,
        incoming: &Incoming<'_>,
        persistent: bool,
        targets: &[Target],
        occupied: Occupied,
    ) -> Room {
        if !persistent || !self.journal.is_on() {
            return Room::Now;
        }
        let own = self.shard.id;
        let here = targets.iter().filter(|target| target.home == own).count();
        if here == 0 {
            return Room::Now;
        }
        let bytes = self.bytes_in_log(incoming, here);
        if !self.journal.lacks_room(bytes) {
            return Room::Now;
        }
        self.lack_of_room(bytes, targets, occupied)
    }

    /// The same for a message that is in a log until all its queues have it. Those on other shards
    /// count as if they were in the shard's own log: while room is short it is better kept there than in
    /// their memory. What it has `occupied` itself comes free only afterwards: there is no room ever if it
    /// needs that.
    pub(crate) fn room_to_pass_on(
        &mut self,
        incoming: &Incoming<'_>,
        persistent: bool,
        targets: &[Target],
        occupied: Occupied,
    ) -> Room {
        if !persistent || !self.journal.is_on() || targets.is_empty() {
            return Room::Now;
        }
        let bytes = self.bytes_in_log(incoming, targets.len());
        if !self.journal.lacks_room(bytes) {
            return Room::Now;
        }
        let room = self.room_beside(incoming, persistent, targets, occupied);
        let own = self.shard.id;
        if room != Room::Now || targets.iter().all(|target| target.home == own) {
            return room;
        }
        let need = Need { logs: LogSet::OWN, bytes };
        if self.journal.could_hold_beside(need.logs, bytes, occupied)
            && self.journal.must_wait_for(need)
        {
            return Room::Later(need);
        }
        Room::Now
    }

    /// As [`HomeSide::room_for`] says of a message of so many bytes that goes to these queues.
    #[cold]
    pub(crate) fn lack_of_room(
        &mut self,
        bytes: usize,
        targets: &[Target],
        occupied: Occupied,
    ) -> Room {
        let mut spilling = Vec::new();
        self.shard.effort.look_for_room(targets.len());
        let (logs, is_logged) = self.logs_asked(targets, &mut spilling);
        if !logs.is_empty() && self.journal.could_hold_beside(logs, bytes, occupied) {
            // Only who waits for room has it made.
            let need = Need { logs, bytes };
            if !self.journal.must_wait_for(need) {
                return Room::Now;
            }
            self.homes.spilling.extend(spilling);
            return Room::Later(need);
        }
        if is_logged { Room::Never(bytes) } else { Room::Now }
    }

    /// The logs of this shard that take a message for these queues, and whether it has to be in one. The queues
    /// that take it only because memory is short are added to `spilling`.
    pub(crate) fn logs_asked(
        &self,
        targets: &[Target],
        spilling: &mut Vec<QueueId>,
    ) -> (LogSet, bool) {
        let (mut logs, mut is_logged) = (LogSet::default(), false);
        for target in targets.iter().filter(|target| target.home == self.shard.id) {
            let Some(slot) = self.homes.slot_of(target.queue, target.slot) else {
                // What a durable delayed exchange gets, and queues that are yet to come here, goes to the
                // shard's own log. What is gone needs none.
                let id = target.queue;
                let holding = self.directory.holding(id);
                let is_held_back = holding.is_some_and(|info| info.durable);
                is_logged |= is_held_back;
                if is_held_back || self.directory.queue_by_id(id).is_some() {
                    logs.add(0);
                }
                continue;
            };
            let home = &self.homes.queues[slot as usize];
            let queue = &home.queue;
            is_logged |= queue.is_durable();
            let spills = !queue.is_durable() && self.shard.must_spill(queue.taken_bytes());
            if spills {
                spilling.push(home.id);
            }
            if queue.is_durable() || spills {
                logs.add(home.log);
            }
        }
        (logs, is_logged)
    }

    /// What a message needs to be passed on to these queues, whether there is room for it or not, as
    /// [`HomeSide::room_to_pass_on`] asks. `None` where it needs none. The queues for which it needs some only because
    /// memory is short are added to `spilling`.
    pub(crate) fn need_to_pass_on(
        &self,
        incoming: &Incoming<'_>,
        persistent: bool,
        targets: &[Target],
        spilling: &mut Vec<QueueId>,
    ) -> Option<Need> {
        if !persistent || !self.journal.is_on() || targets.is_empty() {
            return None;
        }
        let own = self.shard.id;
        let here = targets.iter().filter(|target| target.home == own).count();
        let (logs, _) = self.logs_asked(targets, spilling);
        if !logs.is_empty() {
            return Some(Need { logs, bytes: self.bytes_in_log(incoming, here) });
        }
        let bytes = self.bytes_in_log(incoming, targets.len());
        (here < targets.len()).then_some(Need { logs: LogSet::OWN, bytes })
    }

    /// Bytes that a message takes in a log, with its places in so many queues, at most; very many get it in
    /// slices.
    pub(crate) fn bytes_in_log(&self, incoming: &Incoming<'_>, queues: usize) -> usize {
        if queues <= TARGETS_AT_ONCE_MAX {
            return self.bytes_of_slice(incoming, queues);
        }
        let (slices, last) = (queues / TARGETS_AT_ONCE_MAX, queues % TARGETS_AT_ONCE_MAX);
        let of_last = if last > 0 { self.bytes_of_slice(incoming, last) } else { 0 };
        slices * self.bytes_of_slice(incoming, TARGETS_AT_ONCE_MAX) + of_last
    }

    pub(crate) fn bytes_of_slice(&self, incoming: &Incoming<'_>, queues: usize) -> usize {
        match (incoming.view(), incoming.stored()) {
            (Some(view), _) => self.journal.message_bytes(view, queues),
            (None, Some(body)) => {
                let view = MessageView::unpack(self.shard.pool.get(body));
                self.journal.message_bytes(&view, queues)
            }
            (None, None) => 0,
        }
    }

    /// Appends the message to each log that is concerned. How many took it and are to report.
    pub(crate) fn log_puts(
        &mut self,
        incoming: &Incoming<'_>,
        puts: &mut [Put],
        confirm: Option<(ChannelRef, u64)>,
    ) -> u32 {
        let mut taken = 0;
        let mut places = core::mem::take(&mut self.journal.places);
        for log in 0..self.journal.len() as u16 {
            places.clear();
            places.extend(puts.iter().filter(|put| put.log == log).map(|put| put.place));
            if places.is_empty() {
                continue;
            }
            let stored;
            let view = match (incoming.view(), incoming.stored()) {
                (Some(view), _) => view,
                (None, Some(body)) => {
                    stored = MessageView::unpack(self.shard.pool.get(body));
                    &stored
                }
                (None, None) => invariant!("a message lies in what came in, or in memory"),
            };
            let (mut done, mut at_once) = (0, places.len());
            while let Some(part) = places.get(done..places.len().min(done + at_once))
                && !part.is_empty()
            {
                match self.journal.append(log, view, part) {
                    Ok(position) => {
                        let puts = puts.iter_mut().filter(|put| put.log == log);
                        for put in puts.skip(done).take(part.len()) {
                            put.position = Some(position);
                        }
                        done += part.len();
                    }
                    // So many places are more than a segment holds: in two records, or more.
                    Err(AppendError::TooLarge) if at_once > 1 => at_once = at_once.div_ceil(2),
                    Err(_) => break,
                }
            }
            if let Some((to, number)) = confirm.filter(|_| done > 0) {
                taken += 1;
                self.journal.report_when_durable(log, to, number);
            }
        }
        self.journal.places = places;
        taken
    }
}
