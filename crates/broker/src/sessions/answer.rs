//! Answers to a channel's pending question, from a queue's home or from the directory.

use crate::channel::{AfterRequeue, At, Pending};
use crate::connections::mark_dirty;
use crate::directory::Request;
use crate::mail::{ChannelRef, Origin, Reply};
use crate::outbox::Outbox;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Answer, Asked, Done};
use crate::sessions::SessionSide;
use alloc::boxed::Box;
use lepus_base::{Now, QueueId};

impl SessionSide<'_> {
    /// Where a channel is, if it still lives.
    pub(crate) fn find_channel(&mut self, to: ChannelRef) -> Option<At> {
        let (slot, connection) = self.connections.connection(to.connection, u32::MAX)?;
        let vhost = connection.vhost;
        connection.incarnation(to.channel)?;
        Some(At { slot, channel: to, vhost })
    }

    /// Says something on a channel, unless the channel is ending.
    pub(crate) fn say(&mut self, at: At, answer: &Answer<'_>, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            return race!("the connection closed before something was said on it");
        };
        if connection.is_unheard(at.channel.channel) {
            return;
        }
        connection.answer(at.channel.number(), answer);
        mark_dirty(connection, at.slot, out);
    }

    pub(crate) fn set_pending(&mut self, at: At, pending: Pending) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            return race!("the connection closed before it waited for an answer");
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed before it waited for an answer");
        };
        channel.pending = Some(Box::new(pending));
    }

    pub(crate) fn take_pending(&mut self, at: At) -> Option<Box<Pending>> {
        let connection = self.connections.get_mut(at.slot)?;
        connection.incarnation(at.channel.channel)?.pending.take()
    }

    /// If this was a question for a message, there was none, or it was refused.
    fn end_get(&mut self, at: At, pending: &Pending, out: &mut Outbox) {
        if matches!(pending, Pending::Get { .. }) {
            self.connections[at.slot].get_ended();
            self.connections.resume_unread(self.shard, at.slot, out);
        }
    }

    /// The answer of a queue's home to the channel's pending question.
    pub(crate) fn on_reply(
        &mut self,
        now: Now,
        to: ChannelRef,
        queue: QueueId,
        reply: Reply,
        out: &mut Outbox,
    ) {
        let Some(at) = self.find_channel(to) else {
            return race!("the channel closed before its answer came");
        };
        if reply == Reply::Fetched {
            return self.go_on(now, at, out);
        }
        let Some(pending) = self.take_pending(at) else {
            return race!("the channel waits for no answer any more");
        };
        self.end_get(at, &pending, out);
        match (*pending, reply) {
            (Pending::Declare { name, request, no_wait }, reply) => {
                self.declared(now, at, name, request, no_wait, reply, out);
            }
            (Pending::Purge { no_wait, .. }, Reply::Purged(count)) => {
                if !no_wait {
                    self.say(at, &Answer::QueuePurged(count), out);
                }
            }
            (Pending::Delete { no_wait, .. }, reply @ (Reply::Deleted(_) | Reply::Gone)) => {
                let count = if let Reply::Deleted(count) = reply { count } else { 0 };
                self.forget_exclusive(at, queue);
                if !no_wait {
                    self.say(at, &Answer::QueueDeleted(count), out);
                }
            }
            (Pending::Consume { consumer, no_wait, .. }, Reply::Subscribed { handle, slot }) => {
                let connection = &mut self.connections[at.slot];
                let Some(subscription) = connection
                    .incarnation(at.channel.channel)
                    .and_then(|channel| channel.subscription_mut(consumer))
                else {
                    invariant!("a consumer is there while its queue is asked for it")
                };
                subscription.handle = Some(handle);
                subscription.queue_slot = slot;
                let tag = subscription.tag.clone();
                if !no_wait {
                    self.say(at, &Answer::Consuming(&tag), out);
                }
            }
            (Pending::Consume { consumer, name, .. }, reply) => {
                self.drop_subscription(at, consumer);
                self.refused(now, at, reply, Asked::Consume, &name, out);
            }
            (Pending::Cancel { consumer, no_wait }, _) => {
                let tag = self.drop_subscription(at, consumer);
                if let Some(tag) = tag
                    && !no_wait
                {
                    self.say(at, &Answer::Cancelled(&tag), out);
                }
            }
            (Pending::End { waiting }, _) => {
                if waiting > 1 {
                    self.set_pending(at, Pending::End { waiting: waiting - 1 });
                }
            }
            (Pending::Get { .. }, Reply::GotNothing) => {
                self.shard.counters.got_empty += 1;
                let connection = &mut self.connections[at.slot];
                connection.count_messages(at.channel.channel, |counts| counts.got_empty += 1);
                self.say(at, &Answer::Done(Done::GotNothing), out);
            }
            (Pending::Get { name }, reply) => {
                self.refused(now, at, reply, Asked::Get, &name, out);
            }
            (Pending::Purge { name, .. }, reply) => {
                self.refused(now, at, reply, Asked::PurgeQueue, &name, out);
            }
            (Pending::Delete { name, .. }, reply) => {
                self.refused(now, at, reply, Asked::DeleteQueue, &name, out);
            }
            (Pending::Requeue { waiting, then }, _) => {
                self.set_pending(at, Pending::Requeue { waiting, then });
                self.passed_barrier(now, at.slot, to, out);
                return;
            }
            // Another question is pending: this answer belongs to one that is not awaited any more.
            (
                pending @ (Pending::Done { .. }
                | Pending::Commit
                | Pending::Committed
                | Pending::Route),
                _,
            ) => {
                self.set_pending(at, pending);
                return;
            }
        }
        self.go_on(now, at, out);
    }

    /// After an answer: the channel ends if it was to, or handles what was parked.
    pub(crate) fn go_on(&mut self, now: Now, at: At, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(at.slot) else {
            return race!("the connection closed with that answer");
        };
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            return race!("the channel closed with that answer");
        };
        if channel.pending.is_some() {
            return;
        }
        if channel.ending.is_some() {
            self.continue_end(now, at, out);
        } else if channel.publishes_wait {
            self.pause_publishing(at.channel);
        } else {
            self.connections.unpark(at.slot, at.channel);
        }
    }

    pub(crate) fn declared(
        &mut self,
        now: Now,
        at: At,
        name: Box<str>,
        request: Option<Box<Request>>,
        no_wait: bool,
        reply: Reply,
        out: &mut Outbox,
    ) {
        match (reply, request) {
            (Reply::Counted { ready, consumers }, _) => {
                self.shard.counters.queues_declared += 1;
                if !no_wait {
                    let (queue, messages) = (&*name, ready);
                    self.say(at, &Answer::QueueDeclared { queue, messages, consumers }, out);
                }
            }
            // It vanished between the look-up and the question: declare it anew.
            (Reply::Gone, Some(request)) => {
                if let Err(refusal) = self.declare(at, name, request, no_wait, out) {
                    self.fail_channel(now, at, &refusal, Asked::DeclareQueue, out);
                }
            }
            (Reply::Refused(refusal), _) => {
                self.fail_channel(now, at, &refusal, Asked::DeclareQueue, out)
            }
            _ => {
                let vhost = self.directory.vhost_name(at.vhost);
                let text = alloc::format!("no queue '{name}' in vhost '{vhost}'");
                let refusal = Refusal::new(RefusalKind::NotFound, text);
                self.fail_channel(now, at, &refusal, Asked::DeclareQueue, out);
            }
        }
    }

    pub(crate) fn refused(
        &mut self,
        now: Now,
        at: At,
        reply: Reply,
        asked: Asked,
        name: &str,
        out: &mut Outbox,
    ) {
        let refusal = match reply {
            Reply::Refused(refusal) => refusal,
            _ => {
                let vhost = self.directory.vhost_name(at.vhost);
                let text = alloc::format!("no queue '{name}' in vhost '{vhost}'");
                Refusal::new(RefusalKind::NotFound, text)
            }
        };
        self.fail_channel(now, at, &refusal, asked, out);
    }

    /// Removes a consumer from its channel; its tag is free again.
    pub(crate) fn drop_subscription(&mut self, at: At, number: u32) -> Option<Box<str>> {
        let connection = self.connections.get_mut(at.slot)?;
        let channel = connection.incarnation(at.channel.channel)?;
        let subscription = channel.subscriptions.as_mut()?.remove(number)?;
        connection.account_channel(at.channel.channel);
        self.connections.recount(self.shard, at.slot);
        Some(subscription.tag)
    }

    pub(crate) fn forget_exclusive(&mut self, at: At, queue: QueueId) {
        if let Some(connection) = self.connections.get_mut(at.slot) {
            connection.exclusive_queues.remove(&queue);
        }
    }

    /// The directory's answer to a channel, or to a connection that ends.
    pub(crate) fn on_answer(
        &mut self,
        now: Now,
        origin: Origin,
        result: Result<Option<QueueId>, Refusal>,
        out: &mut Outbox,
    ) {
        let to = match origin {
            Origin::Channel(to) => to,
            Origin::Ending { connection, .. } => {
                let Some((slot, _)) = self.connections.connection(connection, u32::MAX) else {
                    invariant!("a connection stays until all that it has is gone");
                };
                return self.cleaned(now, slot, out);
            }
            Origin::Home { .. } | Origin::Migration { .. } => panic!("{origin:?} is no session"),
            Origin::Start
            | Origin::Control(_)
            | Origin::ControlPart { .. }
            | Origin::Deletion(_) => return,
        };
        let Some(at) = self.find_channel(to) else {
            return race!("the channel closed before the directory answered");
        };
        let Some(pending) = self.take_pending(at) else {
            return race!("the channel waits for no answer any more");
        };
        match (*pending, result) {
            (Pending::Done { done, .. }, Ok(_)) => {
                if let Some(done) = done {
                    let answer = Answer::Done(done);
                    self.connections.answer(at.slot, at.channel.number(), &answer, out);
                }
            }
            (Pending::Done { asked, .. }, Err(refusal)) => {
                self.fail_channel(now, at, &refusal, asked, out);
            }
            (Pending::Declare { name, request, no_wait }, Ok(Some(id))) => {
                self.declared_by_directory(now, at, name, request, no_wait, id, out);
            }
            (Pending::Declare { .. }, Ok(None)) => {
                invariant!("who declares a queue is told its id")
            }
            (Pending::Declare { .. }, Err(refusal)) => {
                self.fail_channel(now, at, &refusal, Asked::DeclareQueue, out);
            }
            (pending, _) => {
                self.set_pending(at, pending);
                return;
            }
        }
        self.go_on(now, at, out);
    }

    pub(crate) fn declared_by_directory(
        &mut self,
        now: Now,
        at: At,
        name: Box<str>,
        request: Option<Box<Request>>,
        no_wait: bool,
        id: QueueId,
        out: &mut Outbox,
    ) {
        self.remember_queue(at, &name);
        let Some(info) = self.directory.queue_by_id(id) else {
            // Deleted again before the answer arrived: as if it had been there and empty.
            let reply = Reply::Counted { ready: 0, consumers: 0 };
            return self.declared(now, at, name, None, no_wait, reply, out);
        };
        if info.exclusive() == Some(at.channel.connection) {
            let connection = &mut self.connections[at.slot];
            if connection.end.is_some() {
                // The connection ended before its queue was there: it goes at once.
                connection.cleaning += 1;
                let origin =
                    Origin::Ending { shard: self.shard.id, connection: at.channel.connection };
                self.shard.ask_directory(origin, Request::DeleteQueue { id }, out);
                return;
            }
            connection.exclusive_queues.insert(id);
        }
        self.set_pending(at, Pending::Declare { name, request, no_wait });
        self.ask_home(at, id, crate::mail::Command::Count, out);
    }

    /// A barrier of a channel's requeueing is passed.
    pub(crate) fn passed_barrier(
        &mut self,
        now: Now,
        _slot: u32,
        to: ChannelRef,
        out: &mut Outbox,
    ) {
        let Some(at) = self.find_channel(to) else {
            return race!("the channel closed before its requeueing was over");
        };
        let Some(pending) = self.take_pending(at) else {
            return race!("the channel waits for no answer any more");
        };
        let Pending::Requeue { waiting, then } = *pending else {
            self.set_pending(at, *pending);
            return;
        };
        if waiting > 1 {
            self.set_pending(at, Pending::Requeue { waiting: waiting - 1, then });
            return;
        }
        match then {
            AfterRequeue::Silence => {}
            AfterRequeue::RolledBack => self.say(at, &Answer::Done(Done::RolledBack), out),
            AfterRequeue::End => {
                self.finish_end(now, at, out);
                return;
            }
        }
        self.go_on(now, at, out);
    }
}
