//! The sessions of all clients: what they said, and the bytes that answer it.

use super::content;
use super::routes::{ConsumerKey, QueueIndex, Routes};
use crate::metrics::Counts;
use lepus_amqp::frame::HEAD_BYTES;
use lepus_amqp::method::{basic, channel, confirm, connection, exchange, queue};
use lepus_amqp::{Method, Table};
use slab::Slab;
use std::collections::HashMap;

/// The place of a session; reused after it was closed.
pub type SessionKey = usize;

/// The header with which every client starts.
const PROTOCOL_HEADER: &[u8; 8] = b"AMQP\0\0\x09\x01";
/// Class and method of basic.publish and basic.ack, as they begin a payload.
const PUBLISH: [u8; 4] = [0, 60, 0, 40];
const ACK: [u8; 4] = [0, 60, 0, 80];
/// Offset of the exchange in the payload of basic.publish: behind class, method and ticket.
const EXCHANGE_OFFSET: usize = 6;

#[derive(Debug, Default)]
struct Channel {
    number: u16,
    confirm: bool,
    /// Publishes so far.
    published: u64,
    /// Whether publishes were not confirmed yet.
    confirm_due: bool,
    /// Deliveries so far.
    delivered: u64,
    /// Deliveries acknowledged so far.
    acknowledged: u64,
    /// The last publish's payload and where it led under which version of the routes.
    route_payload: Vec<u8>,
    route_version: u64,
    route: Vec<QueueIndex>,
}

#[derive(Debug)]
struct Consumer {
    tag: String,
    channel: usize,
    no_ack: bool,
    /// The frame of basic.deliver for the exchange and key that stand in `template_route`.
    template: Vec<u8>,
    template_route: Vec<u8>,
    /// Offset of the delivery tag in the template.
    tag_offset: usize,
}

#[derive(Debug, Default)]
struct Session {
    started: bool,
    closing: bool,
    publishes: bool,
    output: Vec<u8>,
    /// Whether the session is in the list of those with output.
    dirty: bool,
    channels: Vec<Channel>,
    places: HashMap<u16, usize>,
    consumers: Vec<Consumer>,
}

/// All sessions and what they share.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: Slab<Session>,
    routes: Routes,
    /// Sessions and channels with publishes to confirm.
    due: Vec<(SessionKey, usize)>,
    /// Sessions with output, each once.
    pub dirty: Vec<SessionKey>,
    /// What was counted so far.
    pub counts: Counts,
}

impl Sessions {
    /// A session for a new connection.
    pub fn open(&mut self) -> SessionKey {
        self.sessions.insert(Session::default())
    }

    /// Ends a session; its consumers are gone.
    pub fn close(&mut self, key: SessionKey) {
        if self.sessions.try_remove(key).is_some() {
            self.routes.remove_consumers(|consumer| consumer.session == key);
            self.due.retain(|(session, _)| *session != key);
        }
    }

    /// Whether the session has ever published.
    pub fn publishes(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| session.publishes)
    }

    /// Whether the session ends once its output is sent.
    pub fn is_closing(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| session.closing)
    }

    /// The bytes to send; what was sent is drained by the caller.
    ///
    /// # Panics
    /// When there is no such session.
    pub fn output(&mut self, key: SessionKey) -> &mut Vec<u8> {
        let session = &mut self.sessions[key];
        session.dirty = false;
        &mut session.output
    }

    /// Confirms what was published since the last flush, one frame per channel.
    pub fn flush(&mut self) {
        for (key, place) in self.due.drain(..) {
            let session = &mut self.sessions[key];
            let channel = &mut session.channels[place];
            channel.confirm_due = false;
            let ack = basic::Ack { delivery_tag: channel.published, multiple: true };
            Method::from(ack).encode_frame(channel.number, &mut session.output);
            mark(session, key, &mut self.dirty);
        }
    }

    /// Handles all whole frames in `bytes` and says how many bytes they are.
    ///
    /// # Errors
    /// When the client does something that this broker does not know.
    pub fn receive(&mut self, key: SessionKey, bytes: &[u8]) -> Result<usize, String> {
        let mut at = 0;
        if !self.sessions[key].started {
            if bytes.len() < PROTOCOL_HEADER.len() {
                return Ok(0);
            }
            if !bytes.starts_with(PROTOCOL_HEADER) {
                return Err("a client that does not speak AMQP 0-9-1".into());
            }
            at = PROTOCOL_HEADER.len();
            self.greet(key);
        }
        while let Some(length) = content::frame_bytes(&bytes[at..])? {
            let frame = &bytes[at..at + length];
            let number = u16::from_be_bytes([frame[1], frame[2]]);
            let payload = &frame[HEAD_BYTES..length - 1];
            match (frame[0], payload.first_chunk::<4>()) {
                (1, Some(&PUBLISH)) => {
                    let rest = &bytes[at + length..];
                    let Some(content) = content::measure(rest)? else {
                        return Ok(at);
                    };
                    self.publish(key, number, payload, rest, content)?;
                    at += content.bytes;
                }
                (1, Some(&ACK)) => self.acknowledge(key, number, payload)?,
                (1, _) => self.answer(key, number, payload)?,
                (8, _) => {}
                (kind, _) => return Err(format!("a frame of kind {kind} outside of a publish")),
            }
            at += length;
        }
        Ok(at)
    }

    fn greet(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        session.started = true;
        let capabilities = Table::new()
            .with("publisher_confirms", true)
            .with("basic.nack", true)
            .with("consumer_cancel_notify", true);
        let properties = Table::new()
            .with("product", "RabbitMQ")
            .with("version", "4.2.0")
            .with("information", "null broker")
            .with("capabilities", capabilities)
            .to_bytes();
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: properties.as_ref(),
            mechanisms: b"PLAIN AMQPLAIN",
            locales: b"en_US",
        };
        Method::from(start).encode_frame(0, &mut session.output);
        mark(session, key, &mut self.dirty);
    }

    fn publish(
        &mut self,
        key: SessionKey,
        number: u16,
        payload: &[u8],
        content_bytes: &[u8],
        content: content::Content,
    ) -> Result<(), String> {
        let session = &mut self.sessions[key];
        session.publishes = true;
        let place = session.place(number)?;
        let channel = &mut session.channels[place];
        channel.published += 1;
        self.counts.received += 1;
        if channel.confirm && !channel.confirm_due {
            channel.confirm_due = true;
            self.due.push((key, place));
        }
        if channel.route_payload != payload || channel.route_version != self.routes.version() {
            let publish = match Method::decode(payload) {
                Ok(Method::BasicPublish(publish)) => publish,
                other => return Err(format!("not a publish: {other:?}")),
            };
            self.routes.route(publish.exchange, publish.routing_key, &mut channel.route);
            channel.route_payload.clear();
            channel.route_payload.extend_from_slice(payload);
            channel.route_version = self.routes.version();
        }
        let route = std::mem::take(&mut channel.route);
        for queue in &route {
            if let Some(target) = self.routes.next_consumer(*queue) {
                self.counts.delivered += 1;
                let session = &mut self.sessions[target.session];
                session.deliver(target.consumer, payload, content_bytes, content)?;
                mark(session, target.session, &mut self.dirty);
            }
        }
        self.sessions[key].channels[place].route = route;
        Ok(())
    }

    fn acknowledge(&mut self, key: SessionKey, number: u16, payload: &[u8]) -> Result<(), String> {
        let Ok(Method::BasicAck(ack)) = Method::decode(payload) else {
            return Err("a malformed basic.ack".into());
        };
        let session = &mut self.sessions[key];
        let place = session.place(number)?;
        let channel = &mut session.channels[place];
        if ack.multiple {
            // A tester acknowledges in order, so that what is below the tag and open is settled now.
            let settled = ack.delivery_tag.saturating_sub(channel.acknowledged);
            channel.acknowledged += settled;
            self.counts.acknowledged += settled;
        } else {
            channel.acknowledged += 1;
            self.counts.acknowledged += 1;
        }
        Ok(())
    }

    fn answer(&mut self, key: SessionKey, number: u16, payload: &[u8]) -> Result<(), String> {
        let method = Method::decode(payload).map_err(|error| error.to_string())?;
        let reply = match method {
            Method::ConnectionOpen(_) => connection::OpenOk {}.into(),
            Method::ConnectionStartOk(_) => {
                connection::Tune { channel_max: 2047, frame_max: 131_072, heartbeat: 0 }.into()
            }
            Method::ConnectionClose(_) => {
                self.sessions[key].closing = true;
                connection::CloseOk {}.into()
            }
            Method::ChannelOpen(_) => {
                let session = &mut self.sessions[key];
                session.places.insert(number, session.channels.len());
                session.channels.push(Channel { number, ..Channel::default() });
                channel::OpenOk {}.into()
            }
            Method::ChannelClose(_) => {
                self.close_channel(key, number)?;
                channel::CloseOk {}.into()
            }
            Method::ConnectionTuneOk(_)
            | Method::ConnectionCloseOk(_)
            | Method::ChannelCloseOk(_)
            | Method::BasicNack(_)
            | Method::BasicReject(_) => return Ok(()),
            Method::ExchangeDeclare(declare) => {
                if !declare.passive {
                    self.routes.declare_exchange(declare.exchange, declare.r#type);
                }
                exchange::DeclareOk {}.into()
            }
            Method::ExchangeDelete(_) => exchange::DeleteOk {}.into(),
            Method::QueueDeclare(declare) => return self.declare_queue(key, number, &declare),
            Method::QueueBind(bind) => {
                self.routes.bind(bind.exchange, bind.routing_key, bind.queue);
                queue::BindOk {}.into()
            }
            Method::QueueUnbind(_) => queue::UnbindOk {}.into(),
            Method::QueuePurge(_) => queue::PurgeOk { message_count: 0 }.into(),
            Method::QueueDelete(_) => queue::DeleteOk { message_count: 0 }.into(),
            Method::BasicQos(_) => basic::QosOk {}.into(),
            Method::BasicConsume(consume) => return self.consume(key, number, &consume),
            Method::BasicCancel(cancel) => {
                self.cancel(key, cancel.consumer_tag);
                let consumer_tag = cancel.consumer_tag;
                return self.reply(key, number, basic::CancelOk { consumer_tag });
            }
            Method::BasicGet(_) => basic::GetEmpty {}.into(),
            Method::ConfirmSelect(_) => {
                let session = &mut self.sessions[key];
                let place = session.place(number)?;
                session.channels[place].confirm = true;
                confirm::SelectOk {}.into()
            }
            other => return Err(format!("{} is not answered here", other.name())),
        };
        self.reply::<Method<'_>>(key, number, reply)
    }

    fn reply<'a, M: Into<Method<'a>>>(
        &mut self,
        key: SessionKey,
        number: u16,
        method: M,
    ) -> Result<(), String> {
        let session = &mut self.sessions[key];
        method.into().encode_frame(number, &mut session.output);
        mark(session, key, &mut self.dirty);
        Ok(())
    }

    fn declare_queue(
        &mut self,
        key: SessionKey,
        number: u16,
        declare: &queue::Declare<'_>,
    ) -> Result<(), String> {
        let generated;
        let name = if declare.queue.is_empty() {
            generated = format!("amq.gen-{}", self.routes.queue_count());
            &generated
        } else {
            declare.queue
        };
        self.routes.queue(name);
        let reply = queue::DeclareOk { queue: name, message_count: 0, consumer_count: 0 };
        self.reply(key, number, reply)
    }

    fn consume(
        &mut self,
        key: SessionKey,
        number: u16,
        consume: &basic::Consume<'_>,
    ) -> Result<(), String> {
        let session = &mut self.sessions[key];
        let channel = session.place(number)?;
        let place = session.consumers.len();
        let tag = if consume.consumer_tag.is_empty() {
            format!("amq.ctag-{key}-{place}")
        } else {
            consume.consumer_tag.to_owned()
        };
        let reply = basic::ConsumeOk { consumer_tag: &tag };
        Method::from(reply).encode_frame(number, &mut session.output);
        mark(session, key, &mut self.dirty);
        session.consumers.push(Consumer {
            tag,
            channel,
            no_ack: consume.no_ack,
            template: Vec::new(),
            template_route: Vec::new(),
            tag_offset: 0,
        });
        let consumer = ConsumerKey { session: key, consumer: place };
        self.routes.consume(consume.queue, consumer);
        Ok(())
    }

    fn cancel(&mut self, key: SessionKey, tag: &str) {
        let consumers = &self.sessions[key].consumers;
        self.routes.remove_consumers(|consumer| {
            consumer.session == key && consumers[consumer.consumer].tag == tag
        });
    }

    fn close_channel(&mut self, key: SessionKey, number: u16) -> Result<(), String> {
        let session = &mut self.sessions[key];
        let place = session.place(number)?;
        session.places.remove(&number);
        let consumers = &session.consumers;
        self.routes.remove_consumers(|consumer| {
            consumer.session == key && consumers[consumer.consumer].channel == place
        });
        self.due.retain(|due| *due != (key, place));
        Ok(())
    }
}

/// Puts the session into the list of those with output, once.
fn mark(session: &mut Session, key: SessionKey, dirty: &mut Vec<SessionKey>) {
    if !session.dirty {
        session.dirty = true;
        dirty.push(key);
    }
}

impl Session {
    fn place(&self, number: u16) -> Result<usize, String> {
        // Channels are seldom closed, so that the number mostly tells the place.
        let guess = usize::from(number).wrapping_sub(1);
        if self.channels.get(guess).is_some_and(|channel| channel.number == number)
            && self.places.len() == self.channels.len()
        {
            return Ok(guess);
        }
        let place = self.places.get(&number).copied();
        place.ok_or_else(|| format!("channel {number} is not open"))
    }

    #[inline]
    fn deliver(
        &mut self,
        consumer: usize,
        publish: &[u8],
        content_bytes: &[u8],
        content: content::Content,
    ) -> Result<(), String> {
        let consumer = &mut self.consumers[consumer];
        let channel = &mut self.channels[consumer.channel];
        channel.delivered += 1;
        if consumer.no_ack {
            channel.acknowledged += 1;
        }
        let route = &publish[EXCHANGE_OFFSET..];
        if consumer.template_route != route {
            consumer.prepare(channel.number, publish)?;
        }
        let start = self.output.len();
        self.output.reserve(consumer.template.len() + content.bytes);
        self.output.extend_from_slice(&consumer.template);
        let tag = start + consumer.tag_offset;
        self.output[tag..tag + 8].copy_from_slice(&channel.delivered.to_be_bytes());
        content::copy(&mut self.output, content_bytes, content, channel.number);
        Ok(())
    }
}

impl Consumer {
    #[cold]
    fn prepare(&mut self, channel: u16, payload: &[u8]) -> Result<(), String> {
        let Ok(Method::BasicPublish(publish)) = Method::decode(payload) else {
            return Err("a malformed basic.publish".into());
        };
        let deliver = basic::Deliver {
            consumer_tag: &self.tag,
            delivery_tag: 0,
            redelivered: false,
            exchange: publish.exchange,
            routing_key: publish.routing_key,
        };
        self.template.clear();
        Method::from(deliver).encode_frame(channel, &mut self.template);
        self.tag_offset = HEAD_BYTES + 4 + 1 + self.tag.len();
        self.template_route.clear();
        self.template_route.extend_from_slice(&payload[EXCHANGE_OFFSET..]);
        Ok(())
    }
}
