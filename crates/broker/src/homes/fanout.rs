//! A message for very many queues: a slice of them at a time, here and by mail.

use crate::channel::Target;
use crate::delivery::is_near;
use crate::homes::HomeSide;
use crate::jobs::Fanout;
use crate::jobs::{Asker, Job, Step};
use crate::journal::{LogSet, Need, Occupied, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Mail};
use crate::message::Incoming;
use crate::message::MessageView;
use crate::outbox::Outbox;
use crate::publish::Routed;
use lepus_base::Now;

impl HomeSide<'_> {
    /// Whether there is room for the next queues of a message, and in which log it takes that of what is
    /// kept for those that are passed on.
    pub(crate) fn room_for_slice(
        &mut self,
        fanout: &mut Fanout,
        incoming: &Incoming<'_>,
        here: &[Target],
    ) -> (Room, Option<u16>) {
        let persistent = fanout.terms().persistent;
        let room = self.room_for(incoming, persistent, here);
        let (directory, delayed) = (&self.directory, &self.homes.delayed);
        if room == Room::Now && fanout.waits_for_others(directory, delayed, self.journal) {
            let need = Need { logs: LogSet::OWN, bytes: self.bytes_in_log(incoming, 1) };
            return (Room::Later(need), None);
        }
        let frees = fanout.frees().filter(|_| room != Room::Now);
        if frees.is_none() {
            return (room, None);
        }
        let bytes = self.bytes_in_log(incoming, fanout.rest());
        self.journal.set_passing(frees, true);
        let of_rest = self.lack_of_room(bytes, here, Occupied::default());
        self.journal.set_passing(frees, false);
        fanout.learn_room_of_rest(of_rest);
        match (of_rest, room) {
            (Room::Now, _) => (Room::Now, frees),
            (Room::Later(_), Room::Never(_)) => (of_rest, None),
            _ => (room, None),
        }
    }

    /// A message can only wait now, for room or for other shards: if it is one that is passed on, those of others
    /// that are do not wait with it.
    pub(crate) fn let_others_pass(&mut self, fanout: &Fanout) {
        if let Some((from, bytes)) = fanout.passed_on() {
            self.give_turn_away(from, bytes);
        }
    }

    /// Nothing of a channel of this shard waits for room any more.
    pub(crate) fn publishes_go_on(&mut self, channel: ChannelRef, out: &mut Outbox) {
        if channel.connection == LETTERS_CONNECTION {
            self.set_aside_over(channel);
        } else {
            out.own.push(Mail::PublishesWait { channel, on: false });
        }
    }
}

impl HomeSide<'_> {
    /// Mails a message once to each other shard with queues that get it.
    pub(crate) fn mail_fanout(&mut self, fanout: &mut Fanout, out: &mut Outbox) {
        let migrations = &self.homes.migrations;
        let is_away = |queue| migrations.parked_mail(queue).is_some();
        let sent = fanout.mail(self.shard.id, &self.shard.pool, is_away, out);
        let mut queues = 0;
        for &(shard, count) in &sent {
            let counters = &mut self.shard.counters;
            counters.enqueued_remote += u64::from(count);
            if is_near(&self.shard.near, shard) {
                counters.enqueued_near += u64::from(count);
            }
            queues += count;
        }
        if sent.is_empty() {
            return;
        }
        if let Some((to, number)) = fanout.terms().confirm() {
            self.expect_reports(to, number, queues, out);
        }
        self.shard.jobs.send_away(fanout.channel(), sent.len() as u32);
    }

    /// One slice of a message's queues.
    pub(crate) fn step_fanout(
        &mut self,
        now: Now,
        mut fanout: Fanout,
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        if self.homes.postponed.has_from(fanout.channel()) {
            // What was published before must not be overtaken.
            return Step::NeedsRoom(Job::Fanout(fanout), Need::default());
        }
        if fanout.is_unsent() {
            self.mail_fanout(&mut fanout, out);
        }
        let mut here = core::mem::take(&mut self.shard.targets);
        here.clear();
        fanout.next_here(*budget, self.shard.id, &mut here);
        let step = self.serve_fanout(now, fanout, &here, budget, out);
        self.shard.targets = here;
        step
    }

    pub(crate) fn serve_fanout(
        &mut self,
        now: Now,
        mut fanout: Fanout,
        here: &[Target],
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        let mut incoming = fanout.incoming(&mut self.shard.pool);
        let (room, passes) = self.room_for_slice(&mut fanout, &incoming, here);
        if let Room::Later(need) = room {
            // To look at them is work, too.
            *budget = budget.saturating_sub(here.len().max(1));
            incoming.finish(&mut self.shard.pool);
            return Step::NeedsRoom(Job::Fanout(fanout), need);
        }
        self.journal.set_passing(passes, true);
        let terms = fanout.terms();
        if fanout.is_mailed() {
            self.enqueue_mailed(now, incoming, here, terms, out);
        } else {
            let routed = match fanout.later() {
                Some(_) if self.directory.holding(here[0].queue).is_none() => {
                    race!("the exchange was deleted before its message came", Routed::default())
                }
                Some(later) => {
                    let packed = self.shard.pool.get(fanout.body()).to_vec();
                    let later = (here[0].queue, later);
                    self.delay_one(now, later, &MessageView::unpack(&packed), &terms, out)
                }
                None => self.enqueue_all(now, &mut incoming, here, terms, out),
            };
            incoming.finish(&mut self.shard.pool);
            fanout.learn(routed.receipt);
            if let Some((to, number)) = terms.confirm() {
                self.expect_reports(to, number, routed.remote + routed.logs, out);
            }
        }
        self.journal.set_passing(passes, false);
        if !fanout.pass(budget) {
            return Step::More(Job::Fanout(fanout));
        }
        self.finish_fanout(fanout, out);
        Step::Done
    }

    pub(crate) fn finish_fanout(&mut self, fanout: Fanout, out: &mut Outbox) {
        if self.shard.jobs.is_away(fanout.channel()) {
            self.let_others_pass(&fanout);
        }
        let ended = self.shard.jobs.end_fanout(&mut self.shard.pool, fanout);
        if let Some((to, number)) = ended.confirm {
            self.shard.report_enqueued(to, number, 1, ended.receipt, out);
        }
        match ended.asker {
            Asker::Far(to) => out.mail[to.shard.index()].items.push(Mail::Fanned { to }),
            asker => self.fanned(asker.channel(), out),
        }
    }

    /// All queues of a shard, this one or another, have what was published to very many.
    pub(crate) fn fanned(&mut self, channel: ChannelRef, out: &mut Outbox) {
        if !self.shard.jobs.come_back(channel) {
            return;
        }
        if channel.connection == LETTERS_CONNECTION {
            self.passed_on(channel);
        } else if !self.homes.postponed.has_from(channel) {
            out.own.push(Mail::PublishesWait { channel, on: false });
        }
    }

    /// More reports of a publish are to come than were counted.
    pub(crate) fn expect_reports(
        &mut self,
        to: ChannelRef,
        number: u64,
        more: u32,
        out: &mut Outbox,
    ) {
        if to.connection == LETTERS_CONNECTION {
            self.homes.dead_letters.expect(number, more);
        } else {
            out.own.push(Mail::ExpectReports { to, number, more });
        }
    }
}
