//! Mail, from other shards and from one owner of this shard to another: to whom each piece goes.

use crate::broker::Broker;
use crate::homes::mail::CommitMailed;
use crate::mail::{Addressee, Mail, MailBatch, Step};
use crate::migration::ParkedMail;
use crate::outbox::Outbox;
use alloc::collections::BTreeMap;
use lepus_base::{Now, QueueId, ShardId};

impl Broker {
    /// Mail from another shard. The batch is left empty.
    pub fn mail(&mut self, now: Now, from: ShardId, batch: &mut MailBatch, out: &mut Outbox) {
        self.shard.now = now;
        let bytes = core::mem::take(&mut batch.bytes);
        let mut items = core::mem::take(&mut batch.items);
        self.shard.effort.spend_on_queues(items.len());
        self.shard.effort.spend_on_bytes(bytes.len());
        let mut mails = items.drain(..);
        let mut commit = CommitMailed::default();
        while let Some(mail) = mails.next() {
            let is_of_commit = commit.step();
            if mail.addressee() == Addressee::Queues {
                let part = (&mut commit, is_of_commit);
                self.home().messages_mailed(now, mail, &mut mails, &bytes, part, out);
            } else {
                self.on_mail(now, from, mail, &bytes, out);
                self.carry_own_mail(now, out);
            }
        }
        drop(mails);
        batch.items = items;
        batch.bytes = bytes;
        batch.clear();
        self.run_follow_ups(now, out);
    }

    /// Carries out what the owners of this shard's state tell each other, and what follows from it. A home answers a
    /// channel, and the directory who asked it, as they do on another shard; only that nothing has to be packed.
    pub(crate) fn carry_own_mail(&mut self, now: Now, out: &mut Outbox) {
        if out.own.is_empty() {
            return;
        }
        let own = self.shard.id;
        let mut steps = core::mem::take(&mut self.shard.own_steps);
        steps.extend(out.own.drain(..).map(Step::Mail));
        while let Some(step) = steps.pop_front() {
            let mut dispatch = None;
            match step {
                Step::Mail(Mail::Command { from, queue, command }) if from.shard == own => {
                    dispatch = self.session().pass_command(now, from, queue, command, out);
                }
                Step::Mail(mail) => self.on_mail(now, own, mail, &[], out),
                Step::Dispatch(home) => self.home().dispatch_ready(now, home, out),
            }
            // What follows from a step comes before the next one, and what a home answers before what it delivers.
            dispatch.into_iter().for_each(|home| steps.push_front(Step::Dispatch(home)));
            out.own.drain(..).rev().for_each(|mail| steps.push_front(Step::Mail(mail)));
        }
        self.shard.own_steps = steps;
    }

    /// One piece of mail, of another shard or of an owner of this one, to whoever takes it.
    fn on_mail(&mut self, now: Now, from: ShardId, mail: Mail, bytes: &[u8], out: &mut Outbox) {
        match mail.addressee() {
            Addressee::Sessions => self.session().mail(now, from, mail, bytes, out),
            Addressee::Homes => {
                let home = self.home().mail(now, from, mail, out);
                self.dispatch_after_mail(now, home, out);
            }
            Addressee::Shard => self.shard.mail(from, mail, out),
            Addressee::Directory => match mail {
                Mail::Ask { origin, request } => self.sequence(now, origin, *request, out),
                Mail::FilterCost(told) => self.note_filter_cost(now, from, *told, out),
                Mail::ChangesApplied { count } => {
                    self.definitions.followed(from, count);
                    self.advance(now, out);
                }
                other => unreachable!("{other:?} is not for who orders changes"),
            },
            Addressee::ParkedMail => {
                if let Mail::QueueStays { queue } = mail {
                    let parked = self.homes.take_parked_mail(queue);
                    self.send_parked_mail(now, parked, queue, out);
                }
            }
            Addressee::Queues => panic!("messages come in a batch: {mail:?}"),
        }
    }

    /// A home's queue delivers what it can, if there is one to deliver: behind what was told before.
    pub(crate) fn dispatch_after_mail(&mut self, now: Now, home: Option<u32>, out: &mut Outbox) {
        if let Some(home) = home {
            self.carry_own_mail(now, out);
            self.home().dispatch_ready(now, home, out);
        }
    }

    /// A queue is on its way no more: what waited here for it, if anything did, goes to where it is, in order.
    pub(crate) fn send_parked_mail(
        &mut self,
        now: Now,
        parked: Option<ParkedMail>,
        queue: QueueId,
        out: &mut Outbox,
    ) {
        // Of each channel, what found no room.
        let mut postponed = BTreeMap::new();
        for item in parked.into_iter().flat_map(ParkedMail::into_items) {
            let home = self.home().send_parked_item(now, queue, item, &mut postponed, out);
            self.dispatch_after_mail(now, home, out);
        }
    }
}
