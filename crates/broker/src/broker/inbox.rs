//! Mail, from other shards and from one owner of this shard to another: to whom each piece goes.

use crate::broker::Broker;
use crate::channel::Target;
use crate::mail::Origin;
use crate::mail::{ChannelRef, Command, LETTERS_CONNECTION, Mail, MailBatch, Step, Terms};
use crate::message::{Incoming, packed};
use crate::migration::{Parcel, Rest};
use crate::outbox::Outbox;
use crate::postponed::{Few, Part, Postponed, Waits};
use crate::refusal::Refusal;
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
        let own = self.shard.id;
        let mut targets = core::mem::take(&mut self.homes.mailed_targets);
        // Of a transaction: what it needs before the first message, and items that follow.
        let (mut commit, mut commit_items) = (None, 0_usize);
        while let Some(mail) = mails.next() {
            let is_of_commit = commit_items > 0;
            commit_items = commit_items.saturating_sub(1);
            let Mail::Enqueue { queue, message, persistent, priority, expiration, from, number } =
                mail
            else {
                match mail {
                    Mail::Commit { bytes, items } => {
                        let following = mails.as_slice().get(..items).unwrap_or_default();
                        (commit, commit_items) = (self.home().commit_need(bytes, following), items);
                    }
                    Mail::EnqueueMany(many) => self.home().many_mailed(&many, &bytes),
                    mail => {
                        self.on_mail(now, from, mail, &bytes, out);
                        self.carry_own_mail(now, out);
                    }
                }
                continue;
            };
            let part = match commit.take() {
                None if is_of_commit => Part::Next,
                None => Part::Alone,
                Some(need) => Part::First(need),
            };
            let target = |queue| Target { queue, home: own, slot: u32::MAX };
            targets.clear();
            targets.push(target(queue));
            // Neighbours for the same message: it is stored once for all of them.
            while let Some(Mail::Enqueue { message: same, .. }) = mails.as_slice().first()
                && *same == message
                && let Some(Mail::Enqueue { queue, .. }) = mails.next()
            {
                targets.push(target(queue));
                commit_items = commit_items.saturating_sub(1);
            }
            let expiration = expiration.map(core::time::Duration::from_millis);
            let terms = Terms { persistent, priority, expiration, from, number };
            let view = packed(&bytes, message);
            if let Some(waits) =
                self.home().must_postpone(&Incoming::new(view), &targets, &terms, part)
            {
                let body = view.pack(&mut self.shard.pool);
                let bytes = view.body.len() as u32;
                let targets = targets.clone();
                let few = Few { body, bytes, targets, terms, part };
                self.homes.postponed.push(Postponed::Few(few), waits);
                continue;
            }
            self.home().enqueue_part(now, Incoming::new(view), &targets, terms, part, out);
        }
        drop(mails);
        self.homes.mailed_targets = targets;
        batch.items = items;
        batch.bytes = bytes;
        batch.clear();
        self.settle_down(now, out);
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
                    dispatch = self.pass_command(now, from, queue, command, out);
                }
                Step::Mail(mail) => self.on_mail(now, own, mail, &[], out),
                Step::Dispatch(home) => self.home().pump(now, home, out),
            }
            // What follows from a step comes before the next one, and what a home answers before what it delivers.
            dispatch.into_iter().for_each(|home| steps.push_front(Step::Dispatch(home)));
            out.own.drain(..).rev().for_each(|mail| steps.push_front(Step::Mail(mail)));
        }
        self.shard.own_steps = steps;
    }

    /// A channel of this shard asks the home of a queue, wherever that is. The home whose queue is to deliver then,
    /// if that is here.
    pub(crate) fn pass_command(
        &mut self,
        now: Now,
        from: ChannelRef,
        queue: QueueId,
        command: Command,
        out: &mut Outbox,
    ) -> Option<u32> {
        let own = self.shard.id;
        let home = self.directory.queue_by_id(queue).map_or(own, |info| info.home);
        // A consumer that ends takes no more of what is to be gone before its queue leaves.
        let is_end = matches!(command, Command::Cancel(..));
        let rests =
            self.homes.migrations.rests(queue).is_some_and(|rest| !is_end || rest.is_expected());
        if (rests || home != own)
            && let Some((_, connection)) = self.connections.connection(from.connection, u32::MAX)
        {
            connection.touch(home);
        }
        if rests {
            self.home().let_rest(queue, Parcel::Mail(Mail::Command { from, queue, command }));
        } else if home == own {
            return self.home().command(now, from, queue, command, out);
        } else {
            out.mail[home.index()].items.push(Mail::Command { from, queue, command });
        }
        None
    }

    /// A question from a channel of another shard, once all that the channel published before is
    /// in its queues.
    pub(crate) fn command_mailed(
        &mut self,
        now: Now,
        from: ChannelRef,
        queue: QueueId,
        command: Command,
        out: &mut Outbox,
    ) {
        if self.homes.postponed.has_from(from) && command.is_about_messages() {
            self.homes.postponed.push(Postponed::Command { from, queue, command }, Waits::Turn);
        } else if self.homes.migrations.rests(queue).is_some_and(Rest::is_expected) {
            self.home().let_rest(queue, Parcel::Mail(Mail::Command { from, queue, command }));
        } else if let Some(home) = self.home().command(now, from, queue, command, out) {
            self.carry_own_mail(now, out);
            self.home().pump(now, home, out);
        }
    }

    pub(crate) fn on_mail(
        &mut self,
        now: Now,
        from: ShardId,
        mail: Mail,
        bytes: &[u8],
        out: &mut Outbox,
    ) {
        match mail {
            // Taken out before.
            Mail::Enqueue { .. } | Mail::EnqueueMany(_) | Mail::Commit { .. } => {}
            Mail::Fanned { to } => self.home().fanned(to, out),
            Mail::ExpectReports { to, number, more } => {
                self.session().expect_reports(to, number, more)
            }
            Mail::Enqueued { to, first, last, queues, receipt } => {
                if to.connection == LETTERS_CONNECTION {
                    self.home().letters_reported(now, to, (first, last), queues, receipt);
                } else {
                    self.session().publish_reported(to, (first, last), queues, receipt);
                }
            }
            Mail::Govern { queue, .. }
                if self.homes.migrations.rests(queue).is_some_and(Rest::is_expected) =>
            {
                self.home().let_rest(queue, Parcel::Mail(mail));
            }
            Mail::Command { from, queue, command } => {
                self.command_mailed(now, from, queue, command, out);
            }
            Mail::GiveUp { from } => {
                self.home().question_given_up(from, out);
            }
            Mail::Reply { to, queue, reply } => {
                self.session().on_mailed_reply(now, from, to, queue, reply, bytes, out)
            }
            Mail::Settle { queue, slot, sequence, outcome } => {
                let delivery = (queue, u32::MAX, slot, sequence);
                if let Some(home) = self.home().settle_home(now, delivery, outcome, out) {
                    self.home().pump(now, home, out);
                }
            }
            Mail::PublishesWait { channel, on } => self.session().publishes_wait(channel, on),
            Mail::Hold { queue, on } => self.home().hold_home(now, queue, on, out),
            Mail::Deliver { .. } => self.session().on_delivery(now, from, &mail, bytes, out),
            Mail::DeliverReply { .. } => self.session().reply_mailed(&mail, bytes, out),
            Mail::ReturnReply { to, message } => {
                self.session().return_reply(to, &packed(bytes, message), out);
            }
            Mail::FindReplyConsumer { of, from } => {
                self.session().find_reply_consumer(of, from, out)
            }
            Mail::ConsumerCancelled { to, queue } => {
                self.session().consumer_cancelled(to, queue, out)
            }
            Mail::Window { connection, bytes } => {
                self.home().window_returned(now, connection, bytes, out)
            }
            Mail::WantCredit { to, queue } => {
                self.session().credit_wanted(now, to, queue, from, out)
            }
            Mail::GrantCredit { to, queue } => {
                self.home().credit_granted(now, to, queue, from, out)
            }
            Mail::ReturnCredit { to } => self.session().credit_returned(now, to, out),
            Mail::Govern { consumer, queue, on } => {
                self.home().govern(now, consumer, queue, on, out);
            }
            Mail::Ask { origin, request } => self.sequence(now, origin, *request, out),
            Mail::Answer { origin, result } => self.pass_answer(now, origin, result, out),
            about_moves @ (Mail::MoveBarrier { .. }
            | Mail::MovePassed { .. }
            | Mail::DetachConsumers { .. }
            | Mail::ConsumersDetached { .. }
            | Mail::ConnectionStays { .. }
            | Mail::QueueLeaves { .. }
            | Mail::QueueQuiet { .. }
            | Mail::QueueUndecided { .. }
            | Mail::QueueStays { .. }
            | Mail::QueueArrives { .. }
            | Mail::ConnectionGone(_)) => self.on_mail_of_moves(now, from, about_moves, out),
            of_shards @ (Mail::Short(_)
            | Mail::LogLags(_)
            | Mail::WantMemory { .. }
            | Mail::ReturnMemory { .. }
            | Mail::MemoryLent { .. }
            | Mail::ConnectionCounted { .. }
            | Mail::ChannelsCounted { .. }
            | Mail::CloseConnection { .. }) => self.on_mail_of_shards(now, from, of_shards, out),
        }
    }

    /// What is said of connections and queues on their way to other shards.
    fn on_mail_of_moves(&mut self, now: Now, from: ShardId, mail: Mail, out: &mut Outbox) {
        match mail {
            Mail::MoveBarrier { connection, number } => {
                self.move_barrier(from, connection, number, out);
            }
            Mail::MovePassed { number, .. } => self.connections.departures.passed(number),
            Mail::DetachConsumers { connection, number } => {
                self.home().detach_consumers(from, connection, number, out);
            }
            Mail::ConsumersDetached { number } => self.connections.departures.detached(number),
            Mail::ConnectionStays { connection, consumers } => {
                self.home().attach_again(now, connection, &consumers, out);
            }
            Mail::QueueLeaves { queue, number } => {
                self.home().queue_leaves(from, queue, number, out)
            }
            Mail::QueueQuiet { number } => self.homes.migrations.is_quiet(number),
            Mail::QueueUndecided { queue } => self.home().take_log_from(queue, out),
            Mail::QueueStays { queue } => self.rest_over(now, queue, out),
            Mail::QueueArrives { queue, cargo } => {
                self.home().queue_arrives(now, from, queue, *cargo, out)
            }
            Mail::ConnectionGone(id) => {
                self.homes.remote.windows.remove(&id);
                self.homes.remote.detached.retain(|detached| *detached != id);
            }
            other => panic!("{other:?} is not about a move"),
        }
    }

    /// What shards tell each other of what they have and what they lack.
    fn on_mail_of_shards(&mut self, now: Now, from: ShardId, mail: Mail, out: &mut Outbox) {
        match mail {
            Mail::Short(shortage) => {
                self.shard.backpressure.set_shortage_of(from, shortage);
            }
            Mail::LogLags(lags) => {
                self.shard.backpressure.set_log_late_of(from, lags);
            }
            Mail::WantMemory { bytes } => self.shard.memory_wanted(from, bytes, out),
            Mail::ReturnMemory { bytes } => self.shard.memory_returned(from, bytes, out),
            Mail::MemoryLent { bytes, left } => self.shard.loan.take(bytes, left),
            Mail::ConnectionCounted { connection, vhost, user, came } => {
                self.session().connection_counted(connection, vhost, user, came);
            }
            Mail::ChannelsCounted { user, channels } => {
                self.connections.user_channels.set_elsewhere(&user, from, channels);
            }
            Mail::CloseConnection { connection, text } => {
                self.close_connection(now, connection, &text, out);
            }
            other => panic!("{other:?} is not between shards"),
        }
    }

    /// The directory's answer to whoever asked it.
    pub(crate) fn pass_answer(
        &mut self,
        now: Now,
        origin: Origin,
        result: Result<Option<QueueId>, Refusal>,
        out: &mut Outbox,
    ) {
        match (origin, result) {
            (Origin::Home { queue, .. }, Ok(_)) => self.home().deletion_over(queue, out),
            (Origin::Home { queue, .. }, Err(refusal)) => {
                self.home().deletion_refused(now, queue, &refusal, out);
            }
            (Origin::Migration { .. }, Ok(_)) => {}
            (Origin::Migration { queue, .. }, Err(_)) => {
                self.home().migration_refused(now, queue, out)
            }
            (origin, result) => self.session().on_answer(now, origin, result, out),
        }
    }
}
