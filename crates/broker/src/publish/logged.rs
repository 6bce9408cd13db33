//! Persistent messages on their way into the queues of this shard: logged once for all of them.

use lepus_base::{Now, Position};
use lepus_store::AppendError;

use crate::broker::Broker;
use crate::channel::Target;
use crate::journal::place_of;
use crate::mail::ChannelRef;
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::Routed;
use crate::queue::{Admission, Ticket};

/// A queue that wants the message once it is logged.
#[derive(Debug)]
pub(crate) struct Put {
    slot: u32,
    log: u16,
    ticket: Ticket,
    place: lepus_store::Place,
    position: Option<Position>,
}

impl Broker {
    /// Puts a persistent message into those targets that are here: first all queues are asked,
    /// then it is logged once with all its places, then they get it. `confirm` is told when it is
    /// durable, once for each log.
    pub(crate) fn enqueue_logged(
        &mut self,
        now: Now,
        incoming: &mut Incoming<'_>,
        targets: &[Target],
        confirm: Option<(ChannelRef, u64)>,
        out: &mut Outbox,
    ) -> Routed {
        let own = self.edge.shard;
        let mut puts = core::mem::take(&mut self.puts);
        puts.clear();
        let (mut refused, mut is_mixed) = (false, false);
        incoming.last = false;
        for target in targets.iter().filter(|target| target.home == own) {
            let Some(slot) = self.home_slot(target.queue, target.slot) else { continue };
            if !self.homes[slot as usize].queue.is_durable() {
                is_mixed = true;
                continue;
            }
            self.edge.counters.enqueued_local += 1;
            let admission =
                self.with_queue(now, slot, out, |queue, sink| queue.admit(now, incoming, sink));
            match admission {
                Admission::Wanted(ticket, lane) => {
                    let log = self.homes[slot as usize].log;
                    let place = place_of(now, lane, &ticket);
                    puts.push(Put { slot, log, ticket, place, position: None });
                }
                Admission::Delivered => self.pump(now, slot, out),
                Admission::Rejected => {
                    refused = true;
                    self.pump(now, slot, out);
                }
            }
        }
        let (mut logs, mut unlogged) = (0, false);
        if !puts.is_empty() {
            let (taken, is_whole) = self.log_puts(incoming, &mut puts, confirm);
            logs = taken;
            unlogged = !is_whole;
        }
        // Only now: what they have no memory for goes into the log too, and may take its last room.
        let transient = if is_mixed { targets } else { &[] };
        for target in transient.iter().filter(|target| target.home == own) {
            let Some(slot) = self.home_slot(target.queue, target.slot) else { continue };
            if !self.homes[slot as usize].queue.is_durable() {
                refused |= self.enqueue(now, target, incoming, out);
            }
        }
        for put in &puts {
            let (slot, ticket, position) = (put.slot, put.ticket, put.position);
            self.with_queue(now, slot, out, |queue, sink| {
                queue.put(now, ticket, position, incoming, sink);
            });
            self.pump(now, slot, out);
        }
        self.puts = puts;
        Routed { remote: 0, logs, refused: refused || unlogged, unlogged }
    }

    /// Appends the message to each log that is concerned. How many took it and are to report, and
    /// whether all of them did.
    fn log_puts(
        &mut self,
        incoming: &Incoming<'_>,
        puts: &mut [Put],
        confirm: Option<(ChannelRef, u64)>,
    ) -> (u32, bool) {
        let (mut taken, mut is_whole) = (0, true);
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
                    stored = MessageView::unpack(self.edge.pool.get(body));
                    &stored
                }
                (None, None) => continue,
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
            is_whole &= done == places.len();
            if let Some((to, number)) = confirm.filter(|_| done > 0) {
                taken += 1;
                self.journal.report_when_durable(log, to, number);
            }
        }
        self.journal.places = places;
        (taken, is_whole)
    }
}
