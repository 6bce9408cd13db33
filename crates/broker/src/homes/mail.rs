//! Mail for the homes of queues: messages, commands, settlements, and what is told of queues and connections that move.

use alloc::vec::Drain;
use core::time::Duration;

use lepus_base::{Now, QueueId, ShardId};

use crate::channel::Target;
use crate::homes::HomeSide;
use crate::journal::Need;
use crate::mail::{ChannelRef, Command, Mail, Origin, Terms};
use crate::message::{Incoming, packed};
use crate::migration::{ParkedItem, ParkedMail};
use crate::outbox::Outbox;
use crate::postponed::{Few, Part, Postponed, Waits};

/// Where a batch of mail is within the part of a transaction that it brings.
#[derive(Debug, Default)]
pub(crate) struct CommitMailed {
    /// What it needs in the log before its first message.
    need: Option<Need>,
    /// Items of it that follow.
    items: usize,
}

impl CommitMailed {
    /// The next item of the batch. Whether it is of the transaction.
    pub(crate) fn step(&mut self) -> bool {
        let is_of_it = self.items > 0;
        self.items = self.items.saturating_sub(1);
        is_of_it
    }

    /// Which part of the transaction a message is, if it is of it.
    fn part(&mut self, is_of_it: bool) -> Part {
        match self.need.take() {
            Some(need) => Part::First(need),
            None if is_of_it => Part::Next,
            None => Part::Alone,
        }
    }
}

impl HomeSide<'_> {
    /// Messages that came by mail for queues of this shard: the first of `mails` is one, or says how many follow that
    /// belong together; `bytes` are those of the batch.
    pub(crate) fn messages_mailed(
        &mut self,
        now: Now,
        mail: Mail,
        mails: &mut Drain<'_, Mail>,
        bytes: &[u8],
        (commit, is_of_commit): (&mut CommitMailed, bool),
        out: &mut Outbox,
    ) {
        match mail {
            Mail::Commit { bytes, items } => {
                let following = mails.as_slice().get(..items).unwrap_or_default();
                *commit = CommitMailed { need: self.commit_need(bytes, following), items };
            }
            Mail::EnqueueMany(many) => self.many_mailed(&many, bytes),
            Mail::Enqueue { queue, message, persistent, priority, expiration, from, number } => {
                let part = commit.part(is_of_commit);
                let home = self.shard.id;
                let target = |queue| Target { queue, home, slot: u32::MAX };
                let mut targets = core::mem::take(&mut self.homes.mailed_targets);
                targets.clear();
                targets.push(target(queue));
                // Neighbours for the same message: it is stored once for all of them.
                while let Some(Mail::Enqueue { message: same, .. }) = mails.as_slice().first()
                    && *same == message
                    && let Some(Mail::Enqueue { queue, .. }) = mails.next()
                {
                    targets.push(target(queue));
                    commit.step();
                }
                let expiration = expiration.map(Duration::from_millis);
                let terms = Terms { persistent, priority, expiration, from, number };
                let view = packed(bytes, message);
                match self.must_postpone(&Incoming::new(view), &targets, &terms, part) {
                    None => {
                        self.enqueue_part(now, Incoming::new(view), &targets, terms, part, out);
                    }
                    Some(waits) => {
                        let body = view.pack(&mut self.shard.pool);
                        let bytes = view.body.len() as u32;
                        let few = Few { body, bytes, targets: targets.clone(), terms, part };
                        self.homes.postponed.push(Postponed::Few(few), waits);
                    }
                }
                self.homes.mailed_targets = targets;
            }
            other => panic!("{other:?} is no message"),
        }
    }

    /// Mail of the shard `from`, which may be this one. The home whose queue is to deliver, once what the mail has led
    /// to is told.
    pub(crate) fn mail(
        &mut self,
        now: Now,
        from: ShardId,
        mail: Mail,
        out: &mut Outbox,
    ) -> Option<u32> {
        match mail {
            Mail::Fanned { to } => self.fanned(to, out),
            Mail::Enqueued { to, first, last, queues, receipt } => {
                self.letters_reported(now, to, (first, last), queues, receipt);
            }
            Mail::Govern { queue, .. }
                if self.homes.parked_mail(queue).is_some_and(ParkedMail::is_expected) =>
            {
                self.park_mail(queue, ParkedItem::Mail(mail));
            }
            Mail::Govern { consumer, queue, on } => self.govern(now, consumer, queue, on, out),
            Mail::Command { from, queue, command } => {
                return self.command_mailed(now, from, queue, command, out);
            }
            Mail::GiveUp { from } => self.question_given_up(from, out),
            Mail::Settle { queue, slot, sequence, outcome } => {
                let delivery = (queue, u32::MAX, slot, sequence);
                if let Some(home) = self.settle_home(now, delivery, outcome, out) {
                    self.dispatch_ready(now, home, out);
                }
            }
            Mail::Hold { queue, on } => self.hold_home(now, queue, on, out),
            Mail::Window { connection, bytes } => self.window_returned(now, connection, bytes, out),
            Mail::GrantCredit { to, queue } => self.credit_granted(now, to, queue, from, out),
            Mail::Answer { origin: Origin::Home { queue, .. }, result } => match result {
                Ok(_) => self.deletion_over(queue, out),
                Err(refusal) => self.deletion_refused(now, queue, &refusal, out),
            },
            Mail::Answer { origin: Origin::Migration { queue, .. }, result } => {
                if result.is_err() {
                    self.migration_refused(now, queue, out);
                }
            }
            Mail::DetachConsumers { connection, number } => {
                self.detach_consumers(from, connection, number, out);
            }
            Mail::ConnectionStays { connection, consumers } => {
                self.attach_again(now, connection, &consumers, out);
            }
            Mail::ConnectionGone(connection) => {
                self.homes.forget_window(connection);
                self.connection_came(connection);
            }
            Mail::QueueLeaves { queue, number } => self.queue_leaves(from, queue, number, out),
            Mail::QueueQuiet { number } => self.homes.migrations.is_quiet(number),
            Mail::QueueUndecided { queue } => self.take_log_from(now, queue, out),
            Mail::QueueArrives { queue, cargo } => {
                self.queue_arrives(now, from, queue, *cargo, out)
            }
            other => panic!("{other:?} is not for homes"),
        }
        None
    }

    /// A question from a channel of another shard, once all that the channel published before is
    /// in its queues. The home whose queue is to deliver then.
    pub(crate) fn command_mailed(
        &mut self,
        now: Now,
        from: ChannelRef,
        queue: QueueId,
        command: Command,
        out: &mut Outbox,
    ) -> Option<u32> {
        if self.homes.postponed.has_from(from) && command.is_about_messages() {
            self.homes.postponed.push(Postponed::Command { from, queue, command }, Waits::Turn);
        } else if self.homes.parked_mail(queue).is_some_and(ParkedMail::is_expected) {
            self.park_mail(queue, ParkedItem::Mail(Mail::Command { from, queue, command }));
        } else {
            return self.command(now, from, queue, command, out);
        }
        None
    }
}
