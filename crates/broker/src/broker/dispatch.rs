//! From a session's events to what carries them out: channel state, parked frames,
//! transactions, and the decision to hand a connection over.

use alloc::format;

use lepus_base::{ConnectionId, Now};

use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::channel::{At, Ending};
use crate::connection::ConnectionEnd;
use crate::effort::METHOD_STEPS;
use crate::mail::ChannelRef;
use crate::outbox::{ConnectionSlot, Outbox, Severity};
use crate::parked::{self, Parked, park_operation, park_publish};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Answer, Asked, Closing, Done, Event, Operation, Publish};
use crate::sessions::connection_name;
use crate::sessions::lifecycle::answer_parked_close;

/// Parked frames of one channel handled in one go.
pub(crate) const REPLAY_AT_ONCE_MAX: usize = 512;

impl Broker {
    /// What a client's bytes meant.
    pub(crate) fn on_event(&mut self, now: Now, slot: u32, event: Event<'_>, out: &mut Outbox) {
        match event {
            Event::None => {}
            Event::Publish { channel, publish } => {
                let Some(at) = self.session().at(slot, channel) else {
                    return self.session().unknown_channel(now, slot, channel, Asked::Publish, out);
                };
                self.on_publish(now, at, publish.as_ref(), out);
            }
            Event::Operation { channel: 0, operation, asked, .. } => {
                self.shard.effort.spend(METHOD_STEPS);
                self.session().connection_operation(now, slot, &operation, asked, out);
            }
            Event::Operation { channel, operation: Operation::OpenChannel, .. } => {
                self.shard.effort.spend(METHOD_STEPS);
                self.session().channel_open(now, slot, channel, out);
            }
            Event::Operation { channel, operation, asked, frame } => {
                match self.session().at(slot, channel) {
                    Some(at) => self.on_channel_operation(now, at, (&operation, asked), frame, out),
                    None => self.session().unknown_channel(now, slot, channel, asked, out),
                }
            }
            Event::Login(login) => self.session().log_in(now, slot, login, out),
            Event::Open { vhost } => self.session().open(now, slot, vhost, out),
            Event::TooLarge { channel, size, asked } => {
                let Some(at) = self.session().at(slot, channel) else {
                    return self.session().unknown_channel(now, slot, channel, asked, out);
                };
                let limit = self.shard.settings.server.body_bytes_max;
                let text =
                    format!("message size {size} is larger than configured max size {limit}");
                let refusal = Refusal::new(RefusalKind::PreconditionFailed, text);
                self.session().fail_channel(now, at, &refusal, asked, out);
            }
            Event::Close => {
                self.session().end_connection(now, slot, ConnectionEnd::ByClient, out);
            }
            Event::CloseOk => out.close.push(ConnectionSlot(slot)),
            Event::Broken => self.session().fail_connection(now, slot, Closing::Broken, out),
            Event::Disconnect => {
                let Some(connection) = self.sessions.connections.get(slot as usize) else { return };
                let reason = connection.session.disconnect_reason();
                let text = format!("{}: {reason}", connection_name(connection));
                out.log(Severity::Warning, "connection-refused", text);
                out.close.push(ConnectionSlot(slot));
            }
        }
    }

    pub(crate) fn on_publish(&mut self, now: Now, at: At, publish: Publish<'_>, out: &mut Outbox) {
        let limit = self.shard.limits.parked_bytes_max;
        let connection = &mut self.sessions.connections[at.slot as usize];
        if connection.end.is_some() {
            return;
        }
        let Some(channel) = connection.channel_mut(at.channel.number()) else { return };
        if channel.ending.is_some() {
            return;
        }
        if channel.pending.is_some() || !channel.parked.is_empty() {
            let before = channel.parked.len();
            park_publish(&mut channel.parked, &publish);
            connection.parked_bytes += channel.parked.len() - before;
            if connection.parked_bytes > limit {
                self.session().pause_parked(at.slot, out);
            }
            return;
        }
        if let Err(refusal) = self.publish(now, at, publish, out) {
            self.session().fail_channel(now, at, &refusal, Asked::Publish, out);
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
        let connection = &mut self.sessions.connections[at.slot as usize];
        if connection.end.is_some() {
            return;
        }
        let Some(channel) = connection.channel_mut(at.channel.number()) else { return };
        if channel.ending == Some(Ending::ByBroker) {
            match operation {
                Operation::ChannelClosed => self.session().channel_close_ok(at),
                Operation::CloseChannel => {
                    let answer = Answer::Done(Done::ChannelClosed);
                    self.sessions.answer(at.slot, at.channel.number(), &answer, out);
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
                self.session().pause_parked(at.slot, out);
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
            self.session().fail_channel(now, at, &refusal, asked, out);
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
            return self.session().settle(now, at, number, several, outcome, out);
        }
        self.shard.effort.spend(METHOD_STEPS);
        match *operation {
            Operation::Settle { .. } => unreachable!("it is settled"),
            Operation::Prefetch { bytes, messages, is_shared } => {
                self.session().prefetch(at, (bytes, messages, is_shared), out)
            }
            Operation::Consume(ref consume) => self.session().consume(now, at, consume, out),
            Operation::Cancel { tag, no_wait } => {
                self.session().cancel_consumer(at, tag, no_wait, out);
                Ok(())
            }
            Operation::Get { queue, no_ack } => self.session().fetch(at, queue, no_ack, out),
            Operation::Recover { requeue, answers } => {
                self.session().recover(now, at, requeue, answers, out)
            }
            Operation::DeclareExchange(ref declare) => {
                self.session().exchange_declare(at, declare, out)
            }
            Operation::DeleteExchange { .. }
            | Operation::BindExchange(_)
            | Operation::UnbindExchange(_)
            | Operation::BindQueue(_)
            | Operation::UnbindQueue(_) => self.session().change_routes(at, operation, asked, out),
            Operation::DeclareQueue(ref declare) => self.session().queue_declare(at, declare, out),
            Operation::PurgeQueue { queue, no_wait } => {
                self.session().queue_purge(at, queue, no_wait, out)
            }
            Operation::DeleteQueue { queue, if_unused, if_empty, no_wait } => {
                self.session().queue_delete(at, queue, (if_unused, if_empty), no_wait, out)
            }
            Operation::SelectConfirms { no_wait } => {
                self.session().confirm_select(at, no_wait, out)
            }
            Operation::SelectTx => self.session().tx_select(at, out),
            Operation::Commit => self.tx_commit(now, at, out),
            Operation::Rollback => self.session().tx_rollback(now, at, out),
            Operation::Flow { is_active: true } => {
                self.session().say(at, &Answer::Done(Done::Flowing), out);
                Ok(())
            }
            Operation::Flow { is_active: false } => {
                Err(Refusal::new(RefusalKind::NotImplemented, "active=false"))
            }
            Operation::CloseChannel => {
                self.session().end_channel(now, at, Ending::ByClient, out);
                Ok(())
            }
            Operation::ChannelClosed | Operation::Nothing => Ok(()),
            Operation::RequestAccess => {
                self.session().say(at, &Answer::Done(Done::AccessGranted), out);
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

    pub(crate) fn tx_commit(&mut self, now: Now, at: At, out: &mut Outbox) -> Result<(), Refusal> {
        let tx = self.session().take_tx(at)?;
        self.begin_commit(now, at, tx, out);
        Ok(())
    }

    /// Handles frames that were parked behind questions that are answered now.
    pub(crate) fn replay_parked(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..self.sessions.follow_ups.channels_to_unpark() {
            if self.shard.effort.is_used_up() {
                return;
            }
            let Some((slot, id, key)) = self.sessions.follow_ups.next_to_unpark() else { return };
            self.replay_channel(now, slot, id, key, out);
        }
    }

    pub(crate) fn replay_channel(
        &mut self,
        now: Now,
        slot: u32,
        id: ConnectionId,
        key: u64,
        out: &mut Outbox,
    ) {
        let shard = self.shard.id;
        let Some(connection) = self.sessions.connection_at(slot, id) else { return };
        let vhost = connection.vhost;
        let is_silent = connection.is_silent;
        let Some(channel) = connection.incarnation(key) else { return };
        channel.unparking = false;
        if is_silent {
            // What is parked goes with the channel.
            return;
        }
        let parked = core::mem::take(&mut channel.parked);
        connection.parked_bytes = connection.parked_bytes.saturating_sub(parked.len());
        let at = At { slot, vhost, channel: ChannelRef { shard, connection: id, channel: key } };
        let mut place = 0;
        for _ in 0..REPLAY_AT_ONCE_MAX {
            let Some(connection) = self.sessions.connection_at(slot, id) else { return };
            let Some(channel) = connection.incarnation(key) else { break };
            if channel.ending.is_some() || channel.pending.is_some() || place >= parked.len() {
                break;
            }
            if self.session().must_wait(slot, out) || self.shard.effort.is_used_up() {
                break;
            }
            let Some(used) = self.replay_one(now, at, &parked[place..], out) else { break };
            self.carry_own_mail(now, out);
            place += used;
        }
        let Some(connection) = self.sessions.connection_at(slot, id) else { return };
        let ending = connection.incarnation(key).map(|channel| channel.ending);
        if ending == Some(Some(Ending::ByBroker)) {
            answer_parked_close(connection, at, &parked[place..], out);
        }
        if let Some(channel) = connection.incarnation(key)
            && channel.ending.is_none()
        {
            // Nothing was parked meanwhile: frames are only parked while bytes are received.
            channel.parked = parked;
            channel.parked.drain(..place.min(channel.parked.len()));
            let left = channel.parked.len();
            let is_asking = channel.pending.is_some();
            if left == 0 {
                channel.parked = alloc::vec::Vec::new();
            }
            connection.parked_bytes += left;
            // Otherwise it goes on with the answer, or when the client has read.
            let is_unread = connection.paused.has(Cause::Unread) && connection.end.is_none();
            if left > 0
                && !is_asking
                && !is_unread
                && let Some(channel) = connection.incarnation(key)
            {
                channel.unparking = true;
                self.sessions.follow_ups.unpark(slot, id, key);
            }
        }
        self.sessions.recount(&mut self.shard, slot);
        self.session().resume_parked(slot, out);
    }

    /// Handles the first of what is parked. Returns the bytes it took; `None` when nothing is left.
    pub(crate) fn replay_one(
        &mut self,
        now: Now,
        at: At,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Option<usize> {
        let (parked, used) = parked::first(bytes)?;
        match parked {
            Parked::End => self.session().end_channel(now, at, Ending::ByConnection, out),
            Parked::Operation(frame) => {
                let connection = self.sessions.connections.get(at.slot as usize)?;
                let (operation, asked) = connection
                    .session
                    .operation(frame)
                    .expect("what was read once can be read again");
                self.perform(now, at, &operation, asked, out);
            }
            Parked::Publish(publish) => {
                if let Err(refusal) = self.publish(now, at, publish, out) {
                    self.session().fail_channel(now, at, &refusal, Asked::Publish, out);
                }
            }
        }
        Some(used)
    }
}
