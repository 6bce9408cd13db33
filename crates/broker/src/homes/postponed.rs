//! Messages from other shards go into their queues, or wait for room in a log.

use crate::channel::Target;
use crate::dead_letter::must_arrive;
use crate::effort::{MESSAGE_BYTES, TARGETS_AT_ONCE_MAX};
use crate::homes::HomeSide;
use crate::jobs::Job;
use crate::journal::{LogSet, Need, Refusals, Room};
use crate::mail::{ChannelRef, Mail, Many, Receipt, Terms};
use crate::message::Incoming;
use crate::outbox::Outbox;
use crate::postponed::{Asked, Few, Part, Postponed, Waits, Wish};
use alloc::collections::BTreeMap;
use lepus_base::Now;

impl HomeSide<'_> {
    /// A message for very many queues of this shard.
    pub(crate) fn many_mailed(&mut self, many: &Many, bytes: &[u8]) {
        let fanout =
            self.shard.jobs.mailed_fanout(&mut self.shard.pool, self.shard.id, many, bytes);
        if self.homes.postponed.has_from(many.from) {
            self.homes.postponed.push(Postponed::Many(fanout), Waits::Turn);
        } else {
            self.shard.jobs.push(Job::Fanout(fanout));
        }
    }

    /// A message that has room, of a transaction or alone.
    pub(crate) fn enqueue_part(
        &mut self,
        now: Now,
        incoming: Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        part: Part,
        out: &mut Outbox,
    ) {
        // All of it lands in one batch of each log.
        self.journal.hold(part.begun());
        // The room in the log, and the batch, are for what has to be there.
        self.shard.is_committing = part != Part::Alone;
        self.enqueue_mailed(now, incoming, targets, terms, out);
        self.shard.is_committing = false;
    }

    /// A message for queues of this shard; each of them is reported to the publisher.
    pub(crate) fn enqueue_mailed(
        &mut self,
        now: Now,
        mut incoming: Incoming<'_>,
        targets: &[Target],
        terms: Terms,
        out: &mut Outbox,
    ) {
        let before = self.shard.counters.enqueued_local;
        let kept;
        let targets = if self.homes.migrations.is_idle() {
            targets
        } else {
            // What came before the queue did waits for it.
            kept = self.set_aside(&mut incoming, targets, terms, |rest| rest.is_expected());
            &kept[..]
        };
        let routed = self.enqueue_here(now, &mut incoming, targets, terms, out);
        // Counted where it was published.
        self.shard.counters.enqueued_local = before;
        incoming.finish(&mut self.shard.pool);
        if let Some((to, number)) = terms.confirm() {
            let is_gone = |target: &Target| self.homes.slot_of(target.queue, target.slot).is_none();
            let receipt = match must_arrive(to) && targets.iter().any(is_gone) {
                true => Receipt::Refused,
                false => routed.receipt,
            };
            // What is logged is reported when it is durable.
            let count = targets.len() as u32 - routed.logs;
            if count > 0 {
                self.shard.report_enqueued(to, number, count, receipt, out);
            }
        }
    }

    /// What a message has to wait for: room in its logs, or one of its channel that waits.
    pub(crate) fn must_postpone(
        &mut self,
        incoming: &Incoming<'_>,
        targets: &[Target],
        terms: &Terms,
        part: Part,
    ) -> Option<Waits> {
        if self.homes.postponed.has_from(terms.from) || self.must_give_up(part.begun()) {
            return Some(Waits::Turn);
        }
        self.must_wait_for_room(incoming, targets, terms, part)
    }

    /// What a message waits for that finds no room, or the transaction that it begins.
    pub(crate) fn must_wait_for_room(
        &mut self,
        incoming: &Incoming<'_>,
        targets: &[Target],
        terms: &Terms,
        part: Part,
    ) -> Option<Waits> {
        match part {
            Part::Alone => {
                let occupied = self.occupied_by(terms);
                let frees = occupied.frees();
                self.journal.set_passing(frees, true);
                let room = self.room_beside(incoming, terms.persistent, targets, occupied);
                self.journal.set_passing(frees, false);
                match room {
                    Room::Later(need) => Some(Waits::for_room(need, frees)),
                    Room::Now | Room::Never(_) => None,
                }
            }
            // It must not come apart because one of its queues is not here yet.
            Part::First(_) if self.homes.migrations.expects_any() => Some(Waits::Arrivals),
            Part::First(need) => {
                self.journal.must_wait_for(need).then(|| Waits::for_room(need, None))
            }
            // Asked again, it might be told that the room is gone which the transaction took.
            Part::Next => None,
        }
    }

    /// What a transaction of another shard waits for that brings these items: bytes of a segment at most,
    /// since what none holds is not atomic over a crash.
    pub(crate) fn commit_need(&self, bytes: usize, items: &[Mail]) -> Option<Need> {
        let store = self.shard.settings.store.as_ref()?;
        let bytes = bytes.min(store.template.payload_bytes_max());
        (bytes > 0).then(|| Need { logs: self.logs_of_mailed(items), bytes })
    }

    /// Logs that are to have something of these items.
    pub(crate) fn logs_of_mailed(&self, items: &[Mail]) -> LogSet {
        if self.journal.len() == 1 {
            return LogSet::ALL;
        }
        let mut logs = LogSet::default();
        for item in items {
            if let Mail::Enqueue { queue, persistent: true, .. } = item {
                self.log_of(*queue).into_iter().for_each(|log| logs.add(log));
            }
        }
        logs
    }

    /// The logs that are to have something of a transaction now, whose first message this is, and how many queues
    /// were looked at: some may be gone since it came.
    pub(crate) fn logs_of_commit(&self, first: &Few) -> (LogSet, usize) {
        let rest = self.homes.postponed.rest_of_commit(first.terms.from);
        let persistent = core::iter::once(first).chain(rest).filter(|few| few.terms.persistent);
        let (mut logs, mut looked_at) = (LogSet::default(), 0);
        for target in persistent.flat_map(|few| &few.targets) {
            looked_at += 1;
            self.log_of(target.queue).into_iter().for_each(|log| logs.add(log));
            if self.journal.len() == 1 && !logs.is_empty() {
                break;
            }
        }
        (logs, looked_at)
    }

    /// What the oldest of a channel still has to wait for.
    pub(crate) fn must_still_wait(&mut self, few: &Few) -> Option<Waits> {
        // It is only looked at.
        let incoming = Incoming::from_body(few.body, few.bytes);
        self.must_wait_for_room(&incoming, &few.targets, &few.terms, few.part)
    }

    /// A message that waited for its queue, which is here now, goes into it. What finds no room in the
    /// log waits as other mail does, and with it its channel alone. It came before all that waits of the channel
    /// for that queue, but for those that waited for the queue in front of it: `postponed` says how many of these
    /// wait for room now.
    pub(crate) fn enqueue_or_postpone(
        &mut self,
        now: Now,
        few: Few,
        postponed: &mut BTreeMap<ChannelRef, usize>,
        out: &mut Outbox,
    ) {
        let from = few.terms.from;
        let before = postponed.get(&from).copied().unwrap_or_default();
        let waits = if before == 0 { self.must_still_wait(&few) } else { Some(Waits::Turn) };
        let Some(waits) = waits else {
            return self.enqueue_few(now, few, out);
        };
        self.homes.postponed.insert(before, Postponed::Few(few), waits);
        postponed.insert(from, before + 1);
        out.own.push(Mail::PublishesWait { channel: from, on: true });
    }

    pub(crate) fn enqueue_few(&mut self, now: Now, few: Few, out: &mut Outbox) {
        let incoming = Incoming::from_body(few.body, few.bytes);
        let frees = self.occupied_by(&few.terms).frees();
        self.journal.set_passing(frees, true);
        self.enqueue_part(now, incoming, &few.targets, few.terms, few.part, out);
        self.journal.set_passing(frees, false);
    }

    /// Mail that waited for room in the log goes into its queues, as far as there is some. What one
    /// channel sent keeps that of no other waiting: it may need more room than there ever is. So many queues are
    /// looked at, or get something, as in a slice of a job, and fewer get large messages; more only where a
    /// transaction goes to more, of which all lands in one batch. What is left is for the next time: those first
    /// that were not looked at.
    pub(crate) fn enqueue_postponed(&mut self, now: Now, out: &mut Outbox) {
        self.homes.postponed.cut(false);
        if self.homes.postponed.is_empty() {
            return;
        }
        if !self.homes.migrations.expects_any() {
            self.homes.postponed.end_arrivals();
        }
        let mut budget = TARGETS_AT_ONCE_MAX;
        for _ in 0..self.homes.postponed.turns() {
            if budget == 0 {
                break;
            }
            let Some(channel) = self.homes.postponed.take_turn() else { break };
            self.enqueue_postponed_of(now, channel, &mut budget, out);
        }
        let (mut asked, mut refusals) = (None, Refusals::new());
        while let Some((wish, channel)) = self.homes.postponed.next_roomless(asked) {
            // Asked also where nothing more is done in this turn: room is made only for who asks.
            if self.lacks_wished(wish, &mut refusals) {
                asked = Some(Asked::Refused(wish, channel));
                continue;
            }
            if budget == 0 {
                self.homes.postponed.cut(true);
                break;
            }
            asked = Some(Asked::Taken(wish, channel));
            self.homes.postponed.take_roomless(channel);
            self.enqueue_postponed_of(now, channel, &mut budget, out);
        }
    }

    /// Whether there is no room for which somebody waits.
    pub(crate) fn lacks_wished(&mut self, wish: Wish, refusals: &mut Refusals) -> bool {
        match wish.frees {
            None => refusals.must_wait(wish.need, self.journal),
            // It may use what is kept for such.
            frees => self.journal.must_wait_to_pass_on(wish.need, frees),
        }
    }

    /// What waits of a channel goes on as far as it can, which takes what it does off the `budget`.
    pub(crate) fn enqueue_postponed_of(
        &mut self,
        now: Now,
        channel: ChannelRef,
        budget: &mut usize,
        out: &mut Outbox,
    ) {
        let (mut gives_up, mut is_first) = (false, true);
        while let Some(first) = self.homes.postponed.pop(channel) {
            match first {
                Postponed::Few(few) if gives_up => self.give_up(few, out),
                Postponed::Few(mut few) => {
                    let is_begun = few.part == Part::Next;
                    // Many of them are looked at where nothing else was.
                    if !is_begun
                        && *budget < TARGETS_AT_ONCE_MAX
                        && *budget < few.targets.len().max(1)
                    {
                        *budget = 0;
                        return self.homes.postponed.put_back(
                            Postponed::Few(few),
                            Waits::Turn,
                            is_first,
                        );
                    }
                    *budget = budget.saturating_sub(few.targets.len().max(1));
                    if let Part::First(need) = few.part {
                        let (logs, looked_at) = self.logs_of_commit(&few);
                        few.part = Part::First(Need { logs, ..need });
                        *budget = budget.saturating_sub(looked_at);
                        self.shard.effort.look_for_room(looked_at);
                    }
                    if self.must_give_up(few.part.begun()) {
                        gives_up = true;
                        self.give_up(few, out);
                    } else if let Some(waits) = self.must_still_wait(&few) {
                        return self.homes.postponed.put_back(Postponed::Few(few), waits, false);
                    } else {
                        *budget = budget.saturating_sub(few.bytes as usize / MESSAGE_BYTES);
                        self.enqueue_few(now, few, out);
                    }
                }
                Postponed::Many(fanout) => {
                    *budget = budget.saturating_sub(1);
                    self.shard.jobs.push(Job::Fanout(fanout));
                }
                Postponed::Command { from, queue, command } => {
                    *budget = budget.saturating_sub(1);
                    out.own.push(Mail::Command { from, queue, command });
                }
            }
            is_first = false;
        }
        if channel.shard == self.shard.id {
            self.publishes_go_on(channel, out);
        }
    }

    /// Whether the logs close and a transaction finds no room in them as a whole: then nothing of it
    /// happens, nor of what its channel sent after it.
    pub(crate) fn must_give_up(&self, commit: Need) -> bool {
        commit.bytes > 0 && self.journal.closes() && self.journal.has_no_room(commit)
    }

    /// A postponed message comes into no queue.
    pub(crate) fn give_up(&mut self, few: Few, out: &mut Outbox) {
        let Few { body, targets, terms, .. } = few;
        self.shard.pool.release(body);
        self.shard.counters.unlogged += targets.len() as u64;
        if let Some((to, number)) = terms.confirm() {
            self.shard.report_enqueued(to, number, targets.len() as u32, Receipt::Unlogged, out);
        }
    }
}
