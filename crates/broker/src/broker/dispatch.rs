//! From the protocol machine's events to the methods' handlers: channel state, parked frames,
//! transactions, and the decision to hand a connection over.

use alloc::format;

use lepus_amqp::ProtocolError;
use lepus_amqp::client::encode_publish;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::frame;
use lepus_amqp::method::{Method, access, basic, channel, confirm, connection, tx};
use lepus_amqp::server::{Event, PublishRef};
use lepus_base::{ConnectionId, Now};

use super::lifecycle::answer_parked_close;
use crate::backpressure::Cause;
use crate::broker::Broker;
use crate::channel::confirm::Confirms;
use crate::channel::{At, Ending, Tx};
use crate::connection::ConnectionEnd;
use crate::edge::connection_name;
use crate::effort::METHOD_STEPS;
use crate::mail::ChannelRef;
use crate::outbox::{ConnectionSlot, Outbox, Severity};
use crate::queue::Outcome;
use crate::refusal::Refusal;

/// Parked frames of one channel handled in one go.
const REPLAY_AT_ONCE_MAX: usize = 512;

impl Broker {
    /// What a client's bytes meant.
    pub(crate) fn on_event(&mut self, now: Now, slot: u32, event: Event<'_>, out: &mut Outbox) {
        match event {
            Event::None => {}
            Event::Publish { channel, publish } => {
                let Some(at) = self.at(slot, channel) else {
                    return self.unknown_channel(now, slot, channel, (60, 40), out);
                };
                self.on_publish(now, at, publish.as_ref(), out);
            }
            Event::Method { channel: 0, method } => {
                self.edge.effort.spend(METHOD_STEPS);
                if let Method::ConnectionUpdateSecret(_) = method {
                    // Users with passwords of our own keep their rights whatever the secret.
                    self.edge.send(slot, 0, &connection::UpdateSecretOk {}.into(), out);
                } else {
                    let (class, id) = method.ids();
                    let text = format!("{} is not for channel 0", method.name());
                    let error = ProtocolError::new(ReplyCode::COMMAND_INVALID, text);
                    self.fail_connection(now, slot, error.caused_by(class, id), out);
                }
            }
            Event::Method { channel, method: Method::ChannelOpen(_) } => {
                self.edge.effort.spend(METHOD_STEPS);
                self.channel_open(now, slot, channel, out);
            }
            Event::Method { channel, method } => match self.at(slot, channel) {
                Some(at) => self.on_channel_method(now, at, method, out),
                None => self.unknown_channel(now, slot, channel, method.ids(), out),
            },
            Event::Authenticate { mechanism, response } => {
                self.authenticate(now, slot, mechanism, response, out);
            }
            Event::Open { vhost } => self.open(now, slot, vhost, out),
            Event::BodyTooLarge { channel, size, class_id, method_id } => {
                let Some(at) = self.at(slot, channel) else {
                    return self.unknown_channel(now, slot, channel, (class_id, method_id), out);
                };
                let limit = self.settings.server.body_bytes_max;
                let text =
                    format!("message size {size} is larger than configured max size {limit}");
                let refusal = Refusal::new(ReplyCode::PRECONDITION_FAILED, text);
                self.fail_channel(now, at, &refusal, (class_id, method_id), out);
            }
            Event::Close { .. } => {
                self.end_connection(now, slot, ConnectionEnd::ByClient, out);
            }
            Event::CloseOk => out.close.push(ConnectionSlot(slot)),
            Event::Error(error) => self.fail_connection(now, slot, error, out),
            Event::Disconnect => {
                let Some(connection) = self.edge.connections.get(slot as usize) else { return };
                let reason = connection.machine.disconnect_reason();
                let text = format!("{}: {reason}", connection_name(connection));
                out.log(Severity::Warning, "connection-refused", text);
                out.close.push(ConnectionSlot(slot));
            }
        }
    }

    fn at(&self, slot: u32, number: u16) -> Option<At> {
        let connection = self.edge.connections.get(slot as usize)?;
        let channel = connection.channel(number)?;
        Some(At {
            slot,
            vhost: connection.vhost,
            channel: ChannelRef {
                shard: self.edge.shard,
                connection: connection.id,
                channel: channel.key,
            },
        })
    }

    fn unknown_channel(
        &mut self,
        now: Now,
        slot: u32,
        number: u16,
        method: (u16, u16),
        out: &mut Outbox,
    ) {
        if method == (20, 41) {
            // A late close-ok of a channel that both sides closed.
            return;
        }
        let text = format!("expected 'channel.open' on channel {number}");
        let error = ProtocolError::new(ReplyCode::CHANNEL_ERROR, text);
        self.fail_connection(now, slot, error.caused_by(method.0, method.1), out);
    }

    fn on_publish(&mut self, now: Now, at: At, publish: PublishRef<'_>, out: &mut Outbox) {
        let limit = self.edge.limits.parked_bytes_max;
        let connection = &mut self.edge.connections[at.slot as usize];
        if connection.end.is_some() {
            return;
        }
        let Some(channel) = connection.channel_mut(at.channel.number()) else { return };
        if channel.ending.is_some() {
            return;
        }
        if channel.pending.is_some() || !channel.parked.is_empty() {
            let before = channel.parked.len();
            encode_publish_parked(&mut channel.parked, at.channel.number(), &publish);
            connection.parked_bytes += channel.parked.len() - before;
            if connection.parked_bytes > limit {
                self.pause_parked(at.slot, out);
            }
            return;
        }
        if let Err(refusal) = self.publish(now, at, publish, out) {
            self.fail_channel(now, at, &refusal, (60, 40), out);
        }
    }

    fn on_channel_method(&mut self, now: Now, at: At, method: Method<'_>, out: &mut Outbox) {
        let limit = self.edge.limits.parked_bytes_max;
        let connection = &mut self.edge.connections[at.slot as usize];
        if connection.end.is_some() {
            return;
        }
        let Some(channel) = connection.channel_mut(at.channel.number()) else { return };
        if channel.ending == Some(Ending::ByBroker) {
            match method {
                Method::ChannelCloseOk(_) => self.channel_close_ok(at),
                Method::ChannelClose(_) => {
                    self.edge.send(at.slot, at.channel.number(), &channel::CloseOk {}.into(), out);
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
            method.encode_frame(at.channel.number(), &mut channel.parked);
            connection.parked_bytes += channel.parked.len() - before;
            if connection.parked_bytes > limit {
                self.pause_parked(at.slot, out);
            }
            return;
        }
        self.handle_method(now, at, method, out);
    }

    fn handle_method(&mut self, now: Now, at: At, method: Method<'_>, out: &mut Outbox) {
        let ids = method.ids();
        if let Err(refusal) = self.on_method(now, at, method, out) {
            self.fail_channel(now, at, &refusal, ids, out);
        }
    }

    fn on_method(
        &mut self,
        now: Now,
        at: At,
        method: Method<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let is_settling =
            matches!(method, Method::BasicAck(_) | Method::BasicNack(_) | Method::BasicReject(_));
        if !is_settling {
            self.edge.effort.spend(METHOD_STEPS);
        }
        match method {
            Method::BasicAck(basic::Ack { delivery_tag, multiple }) => {
                self.settle(now, at, delivery_tag, multiple, Outcome::Ack, out)
            }
            Method::BasicNack(basic::Nack { delivery_tag, multiple, requeue }) => {
                self.settle(now, at, delivery_tag, multiple, outcome(requeue), out)
            }
            Method::BasicReject(basic::Reject { delivery_tag, requeue }) => {
                self.settle(now, at, delivery_tag, false, outcome(requeue), out)
            }
            Method::BasicQos(method) => self.basic_qos(now, at, method, out),
            Method::BasicConsume(method) => self.basic_consume(now, at, method, out),
            Method::BasicCancel(method) => {
                self.basic_cancel(now, at, method, out);
                Ok(())
            }
            // The client's answer to a cancellation by the server.
            Method::BasicCancelOk(_) => Ok(()),
            Method::BasicGet(method) => self.basic_get(now, at, method, out),
            Method::BasicRecover(method) => self.basic_recover(now, at, method.requeue, true, out),
            Method::BasicRecoverAsync(method) => {
                self.basic_recover(now, at, method.requeue, false, out)
            }
            Method::ExchangeDeclare(method) => self.exchange_declare(now, at, method, out),
            Method::ExchangeDelete(method) => self.exchange_delete(now, at, method, out),
            Method::ExchangeBind(method) => self.exchange_bind(now, at, method, out),
            Method::ExchangeUnbind(method) => self.exchange_unbind(now, at, method, out),
            Method::QueueDeclare(method) => self.queue_declare(now, at, method, out),
            Method::QueueBind(method) => self.queue_bind(now, at, method, out),
            Method::QueueUnbind(method) => self.queue_unbind(now, at, method, out),
            Method::QueuePurge(method) => self.queue_purge(now, at, method, out),
            Method::QueueDelete(method) => self.queue_delete(now, at, method, out),
            Method::ConfirmSelect(method) => self.confirm_select(at, method, out),
            Method::TxSelect(_) => self.tx_select(at, out),
            Method::TxCommit(_) => self.tx_commit(now, at, out),
            Method::TxRollback(_) => self.tx_rollback(now, at, out),
            Method::ChannelFlow(channel::Flow { active: true }) => {
                self.send_method(at, &channel::FlowOk { active: true }.into(), out);
                Ok(())
            }
            Method::ChannelFlow(_) => Err(Refusal::new(ReplyCode::NOT_IMPLEMENTED, "active=false")),
            Method::ChannelClose(_) => {
                self.end_channel(now, at, Ending::ByClient, out);
                Ok(())
            }
            Method::ChannelCloseOk(_) => Ok(()),
            Method::AccessRequest(_) => {
                self.send_method(at, &access::RequestOk { ticket: 1 }.into(), out);
                Ok(())
            }
            other => {
                let text = format!("{} is not for a client to send", other.name());
                Err(Refusal::new(ReplyCode::COMMAND_INVALID, text))
            }
        }
    }

    fn confirm_select(
        &mut self,
        at: At,
        method: confirm::Select,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let connection = &mut self.edge.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return Ok(()) };
        if channel.tx.is_some() {
            let text = "cannot switch from tx to confirm mode";
            return Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text));
        }
        if channel.confirms.is_none() {
            channel.confirms = Some(alloc::boxed::Box::new(Confirms::default()));
            connection.weigh_channel(at.channel.channel);
        }
        if !method.no_wait {
            self.send_method(at, &confirm::SelectOk {}.into(), out);
        }
        Ok(())
    }

    fn tx_select(&mut self, at: At, out: &mut Outbox) -> Result<(), Refusal> {
        let connection = &mut self.edge.connections[at.slot as usize];
        let Some(channel) = connection.incarnation(at.channel.channel) else { return Ok(()) };
        if channel.confirms.is_some() {
            let text = "cannot switch from confirm to tx mode";
            return Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text));
        }
        channel.tx.get_or_insert_default();
        self.send_method(at, &tx::SelectOk {}.into(), out);
        Ok(())
    }

    fn take_tx(&mut self, at: At) -> Result<Tx, Refusal> {
        let connection = &mut self.edge.connections[at.slot as usize];
        let taken = connection
            .incarnation(at.channel.channel)
            .and_then(|channel| channel.tx.as_mut())
            .map(|tx| core::mem::take(&mut **tx));
        let bytes = taken.as_ref().map_or(0, |tx| tx.bytes);
        connection.tx_bytes = connection.tx_bytes.saturating_sub(bytes);
        taken.ok_or_else(|| {
            let text = "channel is not transactional";
            Refusal::new(ReplyCode::PRECONDITION_FAILED, text)
        })
    }

    fn tx_commit(&mut self, now: Now, at: At, out: &mut Outbox) -> Result<(), Refusal> {
        let tx = self.take_tx(at)?;
        self.begin_commit(now, at, tx, out);
        Ok(())
    }

    fn tx_rollback(&mut self, now: Now, at: At, out: &mut Outbox) -> Result<(), Refusal> {
        let tx = self.take_tx(at)?;
        let held = self.jobs.discard_tx(tx);
        self.put_back(now, at, held, out);
        Ok(())
    }

    /// Puts a channel on the list of those whose parked frames can be handled.
    pub(crate) fn unpark(&mut self, slot: u32, channel: ChannelRef) {
        let Some(connection) = self.edge.connection_at(slot, channel.connection) else { return };
        let Some(parked) = connection.incarnation(channel.channel) else { return };
        if !parked.parked.is_empty() && !parked.unparking {
            parked.unparking = true;
            self.edge.follow_ups.unpark(slot, channel.connection, channel.channel);
        }
    }

    /// Handles frames that were parked behind questions that are answered now.
    pub(crate) fn replay_parked(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..self.edge.follow_ups.channels_to_unpark() {
            if self.edge.effort.is_used_up() {
                return;
            }
            let Some((slot, id, key)) = self.edge.follow_ups.next_to_unpark() else { return };
            self.replay_channel(now, slot, id, key, out);
        }
    }

    fn replay_channel(
        &mut self,
        now: Now,
        slot: u32,
        id: ConnectionId,
        key: u64,
        out: &mut Outbox,
    ) {
        let shard = self.edge.shard;
        let Some(connection) = self.edge.connection_at(slot, id) else { return };
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
            let Some(connection) = self.edge.connection_at(slot, id) else { return };
            let Some(channel) = connection.incarnation(key) else { break };
            if channel.ending.is_some() || channel.pending.is_some() || place >= parked.len() {
                break;
            }
            if self.must_wait(slot, out) || self.edge.effort.is_used_up() {
                break;
            }
            let Some(used) = self.replay_one(now, at, &parked[place..], out) else { break };
            place += used;
        }
        let Some(connection) = self.edge.connection_at(slot, id) else { return };
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
                self.edge.follow_ups.unpark(slot, id, key);
            }
        }
        self.resume_parked(slot, out);
    }

    /// Reads a connection again that was paused for its parked frames, once there are few.
    pub(crate) fn resume_parked(&mut self, slot: u32, out: &mut Outbox) {
        let limit = self.edge.limits.parked_bytes_max / 2;
        let Some(connection) = self.edge.connections.get(slot as usize) else { return };
        let is_paused = connection.paused.has(Cause::Parked);
        if is_paused && connection.parked_bytes <= limit {
            self.edge.resume(slot, Cause::Parked, out);
        }
    }

    /// Handles the first parked method, with its content. Returns the bytes it took.
    fn replay_one(&mut self, now: Now, at: At, bytes: &[u8], out: &mut Outbox) -> Option<usize> {
        let (first, mut used) = frame::decode(bytes, u32::MAX).ok()??;
        let method = Method::decode(first.payload).ok()?;
        if let Method::ConnectionClose(_) = method {
            // Put here when the connection ended: the channel ends behind what it had said.
            self.end_channel(now, at, Ending::ByConnection, out);
            return Some(used);
        }
        let Method::BasicPublish(publish) = method else {
            self.handle_method(now, at, method, out);
            return Some(used);
        };
        let (header, length) = frame::decode(&bytes[used..], u32::MAX).ok()??;
        used += length;
        let properties = header.payload.get(12..)?;
        let size = u64::from_be_bytes(header.payload.get(4..12)?.try_into().ok()?);
        let mut body: &[u8] = &[];
        if size > 0 {
            let (content, length) = frame::decode(&bytes[used..], u32::MAX).ok()??;
            used += length;
            body = content.payload;
        }
        let publish = PublishRef {
            exchange: publish.exchange,
            routing_key: publish.routing_key,
            mandatory: publish.mandatory,
            immediate: publish.immediate,
            properties,
            body,
        };
        if let Err(refusal) = self.publish(now, at, publish, out) {
            self.fail_channel(now, at, &refusal, (60, 40), out);
        }
        Some(used)
    }
}

fn outcome(requeue: bool) -> Outcome {
    if requeue { Outcome::Requeue } else { Outcome::Reject }
}

/// A publish as three frames that fit any limit, to be decoded again when the channel goes on.
fn encode_publish_parked(out: &mut alloc::vec::Vec<u8>, channel: u16, publish: &PublishRef<'_>) {
    let start = out.len();
    encode_publish(
        out,
        channel,
        u32::MAX,
        publish.exchange,
        publish.routing_key,
        publish.mandatory,
        publish.properties,
        publish.body,
    );
    if publish.immediate {
        // The last argument octet of the method frame: bit 0 mandatory, bit 1 immediate.
        let place = start + 7 + 4 + 2 + 1 + publish.exchange.len() + 1 + publish.routing_key.len();
        if let Some(bits) = out.get_mut(place) {
            *bits |= 2;
        }
    }
}
