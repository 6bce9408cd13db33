//! From what a session reads to what carries it out.

use crate::backpressure::Cause;
use crate::channel::At;
use crate::channel::Ending;
use crate::channel::confirm::Confirms;
use crate::connection::ConnectionEnd;
use crate::connections::connection_name;
use crate::effort::METHOD_STEPS;
use crate::mail::ChannelRef;
use crate::outbox::Outbox;
use crate::outbox::{ConnectionSlot, Severity};
use crate::parked::{park_operation, park_publish};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Answer, Asked, Closing, Done, Operation};
use crate::session::{Event, Publish};
use crate::sessions::SessionSide;
use alloc::format;
use lepus_base::Now;

impl SessionSide<'_> {
    /// What is asked for on no channel.
    pub(crate) fn connection_operation(
        &mut self,
        now: Now,
        slot: u32,
        operation: &Operation<'_>,
        asked: Asked,
        out: &mut Outbox,
    ) {
        let name = match operation {
            Operation::UpdateSecret => {
                // Users with passwords of our own keep their rights whatever the secret.
                return self.connections.answer(slot, 0, &Answer::Done(Done::SecretUpdated), out);
            }
            Operation::Unknown { name } => name,
            _ => "this",
        };
        let text = format!("{name} is not for channel 0");
        let refusal = Refusal::new(RefusalKind::CommandInvalid, text);
        self.fail_connection(now, slot, Closing::Refused(&refusal, asked), out);
    }

    pub(crate) fn at(&self, slot: u32, number: u16) -> Option<At> {
        let connection = self.connections.get(slot)?;
        let channel = connection.channel(number)?;
        Some(At {
            slot,
            vhost: connection.vhost,
            channel: ChannelRef {
                shard: self.shard.id,
                connection: connection.id,
                channel: channel.key,
            },
        })
    }

    pub(crate) fn unknown_channel(
        &mut self,
        now: Now,
        slot: u32,
        number: u16,
        asked: Asked,
        out: &mut Outbox,
    ) {
        if asked == Asked::ChannelClosed {
            // It comes late for a channel that both sides closed.
            return;
        }
        let text = format!("expected 'channel.open' on channel {number}");
        let refusal = Refusal::new(RefusalKind::ChannelError, text);
        self.fail_connection(now, slot, Closing::Refused(&refusal, asked), out);
    }

    pub(crate) fn confirm_select(
        &mut self,
        at: At,
        no_wait: bool,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let connection = &mut self.connections[at.slot];
        let Some(channel) = connection.incarnation(at.channel.channel) else {
            invariant!("a channel that asks is there")
        };
        if channel.tx.is_some() {
            let text = "cannot switch from tx to confirm mode";
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        if channel.confirms.is_none() {
            channel.confirms = Some(alloc::boxed::Box::new(Confirms::default()));
            connection.account_channel(at.channel.channel);
        }
        if !no_wait {
            self.say(at, &Answer::Done(Done::ConfirmsSelected), out);
        }
        Ok(())
    }

    /// Reads a connection again that was paused for its parked frames, once there are few.
    pub(crate) fn resume_parked(&mut self, slot: u32, out: &mut Outbox) {
        let limit = self.shard.limits.parked_bytes_max / 2;
        let Some(connection) = self.connections.get(slot) else {
            return race!("the connection closed over its parked frames");
        };
        let is_paused = connection.paused.has(Cause::Parked);
        if is_paused && connection.parked_bytes <= limit {
            self.connections.resume(self.shard, slot, Cause::Parked, out);
        }
    }

    /// What a client's bytes meant.
    pub(crate) fn on_event(&mut self, now: Now, slot: u32, event: Event<'_>, out: &mut Outbox) {
        match event {
            // A part of something, perhaps.
            Event::None => self.hold_begun_by_order(slot, out),
            Event::Publish { channel, publish } => {
                let Some(at) = self.at(slot, channel) else {
                    return self.unknown_channel(now, slot, channel, Asked::Publish, out);
                };
                self.on_publish(now, at, publish.as_ref(), out);
            }
            Event::Operation { channel: 0, operation, asked, .. } => {
                self.shard.effort.spend(METHOD_STEPS);
                self.connection_operation(now, slot, &operation, asked, out);
            }
            Event::Operation { channel, operation: Operation::OpenChannel, .. } => {
                self.shard.effort.spend(METHOD_STEPS);
                self.channel_open(now, slot, channel, out);
            }
            Event::Operation { channel, operation, asked, frame } => match self.at(slot, channel) {
                Some(at) => self.on_channel_operation(now, at, (&operation, asked), frame, out),
                None => self.unknown_channel(now, slot, channel, asked, out),
            },
            Event::Login(login) => self.log_in(now, slot, login, out),
            Event::Open { vhost } => self.open(now, slot, vhost, out),
            Event::TooLarge { channel, size, asked } => {
                let Some(at) = self.at(slot, channel) else {
                    return self.unknown_channel(now, slot, channel, asked, out);
                };
                let limit = self.shard.settings.server.body_bytes_max;
                let text =
                    format!("message size {size} is larger than configured max size {limit}");
                let refusal = Refusal::new(RefusalKind::PreconditionFailed, text);
                self.fail_channel(now, at, &refusal, asked, out);
            }
            Event::Close => {
                self.end_connection(now, slot, ConnectionEnd::ByClient, out);
            }
            Event::CloseOk => out.close.push(ConnectionSlot(slot)),
            Event::Broken => self.fail_connection(now, slot, Closing::Broken, out),
            Event::Disconnect => {
                let Some(connection) = self.connections.get(slot) else {
                    invariant!("bytes come from a connection that is there")
                };
                let reason = connection.session.disconnect_reason();
                let text = format!("{}: {reason}", connection_name(connection));
                out.log(Severity::Warning, "connection-refused", text);
                out.close.push(ConnectionSlot(slot));
            }
        }
    }

    pub(crate) fn on_publish(&mut self, now: Now, at: At, publish: Publish<'_>, out: &mut Outbox) {
        let limit = self.shard.limits.parked_bytes_max;
        let connection = &mut self.connections[at.slot];
        if connection.end.is_some() {
            return;
        }
        let Some(channel) = connection.channel_mut(at.channel.number()) else {
            invariant!("a channel that was just found is there")
        };
        if channel.ending.is_some() {
            return;
        }
        if channel.pending.is_some() || !channel.parked.is_empty() {
            let before = channel.parked.len();
            park_publish(&mut channel.parked, &publish);
            connection.parked_bytes += channel.parked.len() - before;
            if connection.parked_bytes > limit {
                self.pause_parked(at.slot, out);
            }
            return;
        }
        if let Err(refusal) = self.publish(now, at, publish, out) {
            self.fail_channel(now, at, &refusal, Asked::Publish, out);
        }
    }

    pub(crate) fn on_channel_operation(
        &mut self,
        now: Now,
        at: At,
        (operation, asked): (&Operation<'_>, Asked),
        frame: &[u8],
        out: &mut Outbox,
    ) {
        let limit = self.shard.limits.parked_bytes_max;
        let connection = &mut self.connections[at.slot];
        if connection.end.is_some() {
            return;
        }
        let Some(channel) = connection.channel_mut(at.channel.number()) else {
            invariant!("a channel that was just found is there")
        };
        if channel.ending == Some(Ending::ByBroker) {
            match operation {
                Operation::ChannelClosed => self.channel_close_ok(at),
                Operation::CloseChannel => {
                    let answer = Answer::Done(Done::ChannelClosed);
                    self.connections.answer(at.slot, at.channel.number(), &answer, out);
                }
                _ => {}
            }
            return;
        }
        if channel.ending.is_some() {
            return;
        }
        if channel.pending.is_some() || !channel.parked.is_empty() {
            let before = channel.parked.len();
            park_operation(&mut channel.parked, frame);
            connection.parked_bytes += channel.parked.len() - before;
            if connection.parked_bytes > limit {
                self.pause_parked(at.slot, out);
            }
            return;
        }
        self.perform(now, at, operation, asked, out);
    }

    pub(crate) fn perform(
        &mut self,
        now: Now,
        at: At,
        operation: &Operation<'_>,
        asked: Asked,
        out: &mut Outbox,
    ) {
        if let Err(refusal) = self.on_operation(now, at, operation, asked, out) {
            self.fail_channel(now, at, &refusal, asked, out);
        }
    }

    pub(crate) fn on_operation(
        &mut self,
        now: Now,
        at: At,
        operation: &Operation<'_>,
        asked: Asked,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if let Operation::Settle { number, several, outcome } = *operation {
            return self.settle(now, at, number, several, outcome, out);
        }
        self.shard.effort.spend(METHOD_STEPS);
        match *operation {
            Operation::Settle { .. } => unreachable!("it is settled"),
            Operation::Prefetch { bytes, messages, is_shared } => {
                self.prefetch(now, at, (bytes, messages, is_shared), out)
            }
            Operation::Consume(ref consume) => self.consume(at, consume, out),
            Operation::Cancel { tag, no_wait } => {
                self.cancel_consumer(at, tag, no_wait, out);
                Ok(())
            }
            Operation::Get { queue, no_ack } => self.fetch(at, queue, no_ack, out),
            Operation::Recover { requeue, answers } => self.recover(now, at, requeue, answers, out),
            Operation::DeclareExchange(ref declare) => self.exchange_declare(at, declare, out),
            Operation::DeleteExchange { .. }
            | Operation::BindExchange(_)
            | Operation::UnbindExchange(_)
            | Operation::BindQueue(_)
            | Operation::UnbindQueue(_) => self.change_routes(at, operation, asked, out),
            Operation::DeclareQueue(ref declare) => self.queue_declare(at, declare, out),
            Operation::PurgeQueue { queue, no_wait } => self.queue_purge(at, queue, no_wait, out),
            Operation::DeleteQueue { queue, if_unused, if_empty, no_wait } => {
                self.queue_delete(at, queue, (if_unused, if_empty), no_wait, out)
            }
            Operation::SelectConfirms { no_wait } => self.confirm_select(at, no_wait, out),
            Operation::SelectTx => self.tx_select(at, out),
            Operation::Commit => self.tx_commit(now, at, out),
            Operation::Rollback => self.tx_rollback(now, at, out),
            Operation::Flow { is_active: true } => {
                self.say(at, &Answer::Done(Done::Flowing), out);
                Ok(())
            }
            Operation::Flow { is_active: false } => {
                Err(Refusal::new(RefusalKind::NotImplemented, "active=false"))
            }
            Operation::CloseChannel => {
                self.end_channel(now, at, Ending::ByClient, out);
                Ok(())
            }
            Operation::ChannelClosed | Operation::Nothing => Ok(()),
            Operation::RequestAccess => {
                self.say(at, &Answer::Done(Done::AccessGranted), out);
                Ok(())
            }
            Operation::OpenChannel | Operation::UpdateSecret => {
                Err(Refusal::new(RefusalKind::CommandInvalid, "not for an open channel"))
            }
            Operation::Unknown { name } => {
                let text = format!("{name} is not for a client to send");
                Err(Refusal::new(RefusalKind::CommandInvalid, text))
            }
        }
    }
}
