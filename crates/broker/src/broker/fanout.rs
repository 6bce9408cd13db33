//! Messages on their way to queues that cannot have them at once: a slice of the queues at a time, and who goes on
//! when all have it.

use lepus_base::Now;

use super::Broker;
use crate::channel::{At, Pending, Target};
use crate::delayed::Later;
use crate::delivery::is_near;
use crate::jobs::{Asker, Fanout, Job, Step};
use crate::journal::{LogSet, Need, Occupied, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Mail, Terms};
use crate::message::{Incoming, MessageView};
use crate::outbox::Outbox;
use crate::publish::Routed;

impl Broker {
    /// A channel's publish, or one of its commit, becomes a job. With `later` the target is a delayed
    /// exchange, which holds it back.
    pub(crate) fn start_fanout(
        &mut self,
        at: At,
        view: &MessageView<'_>,
        terms: Terms,
        targets: &[Target],
        later: Option<Later>,
    ) {
        let asker = if self.is_committing(at) {
            Asker::Commit(at.channel)
        } else {
            self.set_pending(at, Pending::Route);
            Asker::Channel(at.channel)
        };
        self.shard.jobs.start_fanout(&mut self.shard.pool, asker, view, terms, targets, later);
    }

    /// Mails a message once to each other shard with queues that get it.
    fn mail_fanout(&mut self, fanout: &mut Fanout, out: &mut Outbox) {
        let migrations = &self.homes.migrations;
        let is_away = |queue| migrations.rests(queue).is_some();
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
            self.expect_reports(to, number, queues);
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

    fn serve_fanout(
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
                // Deleted meanwhile, with all that it held back.
                Some(_) if self.directory.holding(here[0].queue).is_none() => Routed::default(),
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
                self.expect_reports(to, number, routed.remote + routed.logs);
            }
        }
        self.journal.set_passing(passes, false);
        if !fanout.pass(budget) {
            return Step::More(Job::Fanout(fanout));
        }
        self.finish_fanout(fanout, out);
        Step::Done
    }

    /// Whether there is room for the next queues of a message, and in which log it takes that of what is
    /// kept for those that are passed on.
    fn room_for_slice(
        &mut self,
        fanout: &mut Fanout,
        incoming: &Incoming<'_>,
        here: &[Target],
    ) -> (Room, Option<u16>) {
        let persistent = fanout.terms().persistent;
        let room = self.room_for(incoming, persistent, here);
        let (directory, delayed) = (&self.directory, &self.homes.delayed);
        if room == Room::Now && fanout.waits_for_others(directory, delayed, &mut self.journal) {
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

    fn finish_fanout(&mut self, fanout: Fanout, out: &mut Outbox) {
        if self.shard.jobs.is_away(fanout.channel()) {
            self.let_others_pass(&fanout);
        }
        let ended = self.shard.jobs.end_fanout(&mut self.shard.pool, fanout);
        if let Some((to, number)) = ended.confirm {
            self.report_enqueued(to, number, 1, ended.receipt, out);
        }
        match ended.asker {
            Asker::Far(to) => out.mail[to.shard.index()].items.push(Mail::Fanned { to }),
            asker => self.fanned(asker.channel()),
        }
    }

    /// A message can only wait now, for room or for other shards: if it is one that is passed on, those of others
    /// that are do not wait with it.
    pub(crate) fn let_others_pass(&mut self, fanout: &Fanout) {
        if let Some((from, bytes)) = fanout.passed_on() {
            self.give_turn_away(from, bytes);
        }
    }

    /// All queues of a shard, this one or another, have what was published to very many.
    pub(crate) fn fanned(&mut self, channel: ChannelRef) {
        if !self.shard.jobs.come_back(channel) {
            return;
        }
        if channel.connection == LETTERS_CONNECTION {
            self.passed_on(channel);
        } else if !self.homes.postponed.has_from(channel) {
            self.go_on_publishing(channel);
        }
    }

    /// A channel of this shard publishes nothing more before what waits of it for room is in its
    /// queue.
    pub(crate) fn pause_publishing(&mut self, channel: ChannelRef) {
        let Some(at) = self.find_channel(channel) else { return };
        let connection = &mut self.sessions.connections[at.slot as usize];
        // It may wait for something else; that is seen to when it has come.
        if connection
            .incarnation(channel.channel)
            .is_some_and(|found| found.pending.is_none() && found.ending.is_none())
        {
            self.set_pending(at, Pending::Route);
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

    /// What a channel published begins to wait for room, or has it.
    pub(crate) fn publishes_wait(&mut self, channel: ChannelRef, on: bool) {
        if let Some((_, connection)) = self.sessions.connection(channel.connection, u32::MAX)
            && let Some(found) = connection.incarnation(channel.channel)
        {
            found.publishes_wait = on;
        }
        if on {
            self.pause_publishing(channel);
        } else if !self.shard.jobs.has_fanout_of(channel) {
            self.go_on_publishing(channel);
        }
    }

    fn go_on_publishing(&mut self, channel: ChannelRef) {
        if !self.shard.jobs.end_fanning(channel) {
            self.finish_pending_route(channel);
        }
    }

    /// More reports of a publish are to come than were counted.
    fn expect_reports(&mut self, to: ChannelRef, number: u64, more: u32) {
        if to.connection == LETTERS_CONNECTION {
            return self.homes.dead_letters.expect(number, more);
        }
        let Some((_, connection)) = self.sessions.connection(to.connection, u32::MAX) else {
            return;
        };
        let Some(channel) = connection.incarnation(to.channel) else { return };
        if let Some(confirms) = channel.committing.as_mut().or(channel.confirms.as_mut()) {
            confirms.expect(number, more);
        }
    }

    fn finish_pending_route(&mut self, at: ChannelRef) {
        let Some((slot, connection)) = self.sessions.connection(at.connection, u32::MAX) else {
            return;
        };
        let Some(channel) = connection.incarnation(at.channel) else { return };
        if matches!(channel.pending.as_deref(), Some(Pending::Route)) {
            channel.pending = None;
            self.unpark(slot, at);
        }
    }

    /// Whether it is a channel's commit that publishes.
    fn is_committing(&mut self, at: At) -> bool {
        let connection = &mut self.sessions.connections[at.slot as usize];
        let channel = connection.incarnation(at.channel.channel);
        channel.is_some_and(|found| matches!(found.pending.as_deref(), Some(Pending::Commit)))
    }
}
