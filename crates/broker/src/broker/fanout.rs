//! Messages on their way to queues that cannot have them at once: a slice of the queues at a time, and who goes on
//! when all have it.

use lepus_base::Now;

use crate::broker::Broker;
use crate::channel::Target;
use crate::delivery::is_near;
use crate::jobs::{Asker, Fanout, Job, Step};
use crate::journal::{Need, Room};
use crate::mail::{ChannelRef, LETTERS_CONNECTION, Mail};
use crate::message::MessageView;
use crate::outbox::Outbox;
use crate::publish::Routed;

impl Broker {
    /// Mails a message once to each other shard with queues that get it.
    pub(crate) fn mail_fanout(&mut self, fanout: &mut Fanout, out: &mut Outbox) {
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

    pub(crate) fn serve_fanout(
        &mut self,
        now: Now,
        mut fanout: Fanout,
        here: &[Target],
        budget: &mut usize,
        out: &mut Outbox,
    ) -> Step {
        let mut incoming = fanout.incoming(&mut self.shard.pool);
        let (room, passes) = self.home().room_for_slice(&mut fanout, &incoming, here);
        if let Room::Later(need) = room {
            // To look at them is work, too.
            *budget = budget.saturating_sub(here.len().max(1));
            incoming.finish(&mut self.shard.pool);
            return Step::NeedsRoom(Job::Fanout(fanout), need);
        }
        self.journal.set_passing(passes, true);
        let terms = fanout.terms();
        if fanout.is_mailed() {
            self.home().enqueue_mailed(now, incoming, here, terms, out);
        } else {
            let routed = match fanout.later() {
                // Deleted meanwhile, with all that it held back.
                Some(_) if self.directory.holding(here[0].queue).is_none() => Routed::default(),
                Some(later) => {
                    let packed = self.shard.pool.get(fanout.body()).to_vec();
                    let later = (here[0].queue, later);
                    self.home().delay_one(now, later, &MessageView::unpack(&packed), &terms, out)
                }
                None => self.home().enqueue_all(now, &mut incoming, here, terms, out),
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

    pub(crate) fn finish_fanout(&mut self, fanout: Fanout, out: &mut Outbox) {
        if self.shard.jobs.is_away(fanout.channel()) {
            self.home().let_others_pass(&fanout);
        }
        let ended = self.shard.jobs.end_fanout(&mut self.shard.pool, fanout);
        if let Some((to, number)) = ended.confirm {
            self.shard.report_enqueued(to, number, 1, ended.receipt, out);
        }
        match ended.asker {
            Asker::Far(to) => out.mail[to.shard.index()].items.push(Mail::Fanned { to }),
            asker => self.fanned(asker.channel()),
        }
    }

    /// All queues of a shard, this one or another, have what was published to very many.
    pub(crate) fn fanned(&mut self, channel: ChannelRef) {
        if !self.shard.jobs.come_back(channel) {
            return;
        }
        if channel.connection == LETTERS_CONNECTION {
            self.home().passed_on(channel);
        } else if !self.homes.postponed.has_from(channel) {
            self.session().go_on_publishing(channel);
        }
    }

    /// More reports of a publish are to come than were counted.
    pub(crate) fn expect_reports(&mut self, to: ChannelRef, number: u64, more: u32) {
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
}
