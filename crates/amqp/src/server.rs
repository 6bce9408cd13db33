//! The server's end of one connection, sans I/O: handshake, frame assembly, heartbeats, close.
//!
//! The machine knows the protocol and nothing of the broker: it turns bytes into events and leaves
//! to the broker what they mean.

mod handshake;
mod options;
mod repeats;

pub use crate::encode::{
    Wire, encode_ack, encode_deliveries_of, encode_delivery, encode_delivery_head,
    encode_delivery_of, encode_get_ok, encode_get_ok_head, encode_nack, encode_return,
};
pub use options::ServerOptions;
pub use repeats::{Repeated, Repeats};

use crate::assembly::{Assembler, Side, Unit};
use crate::code::ReplyCode;
use crate::content::{ContentOwned, Found, contiguous};
use crate::drain::{Drain, Drained};
use crate::error::ProtocolError;
use crate::heartbeat::Heartbeat;
use crate::method::{ACK_FRAME_BYTES, Method, basic, connection, decode_ack_frame, decode_publish};
use crate::properties::PropertiesRef;
use crate::table::{TableRef, ValueRef};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::Instant;

/// How long a client that cannot be told why it is refused is kept waiting.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for the protocol header.
    Header,
    /// Waits for `connection.start-ok`.
    StartOk,
    /// [`Event::Authenticate`] was given; waits for [`ServerConnection::authenticated`].
    Authenticating,
    /// The login was refused; everything is ignored until the delay is over.
    Refused,
    /// Waits for `connection.tune-ok`.
    TuneOk,
    /// Waits for `connection.open`.
    Open,
    /// [`Event::Open`] was given; waits for [`ServerConnection::opened`].
    Opening,
    /// Open.
    Running,
    /// [`Event::Error`] was given; waits for [`ServerConnection::close`].
    Failed,
    /// `connection.close` was sent; waits for the answer.
    Closing,
    /// [`Event::Close`] was given; waits for [`ServerConnection::close_ok`].
    PeerClosing,
    /// The client's `connection.close` is answered; it ends the socket, or the time is up.
    Leaving,
    /// Nothing more will happen.
    Closed,
}

/// What came in.
#[derive(Debug)]
pub enum Event<'a> {
    /// Nothing to tell. More bytes are needed when none were consumed; otherwise call again.
    None,
    /// The client wants to log in; answer with [`ServerConnection::authenticated`].
    Authenticate {
        /// One of the mechanisms offered.
        mechanism: &'a str,
        /// The mechanism's response, see [`crate::sasl`].
        response: &'a [u8],
    },
    /// The client wants a virtual host; answer with [`ServerConnection::opened`].
    Open {
        /// The name of the virtual host.
        vhost: &'a str,
    },
    /// A method without content: of a channel, or `connection.update-secret` on channel 0.
    Method {
        /// The channel, not 0.
        channel: u16,
        /// The method.
        method: Method<'a>,
    },
    /// A whole message.
    Publish {
        /// The channel, not 0.
        channel: u16,
        /// The message.
        publish: Publish<'a>,
    },
    /// A message larger than allowed; its body is skipped as it comes.
    BodyTooLarge {
        /// The channel.
        channel: u16,
        /// The size announced, in bytes.
        size: u64,
        /// The class to blame.
        class_id: u16,
        /// The method to blame.
        method_id: u16,
    },
    /// The client closes; answer with [`ServerConnection::close_ok`] once all is cleaned up.
    Close {
        /// The client's reply code.
        code: ReplyCode,
        /// The client's reply text.
        text: &'a str,
        /// The class that the client blames.
        class_id: u16,
        /// The method that the client blames.
        method_id: u16,
    },
    /// The client answered our close: drop the socket.
    CloseOk,
    /// The client broke the protocol; answer with [`ServerConnection::close`].
    Error(ProtocolError),
    /// Send what is in the buffer and drop the socket, see
    /// [`ServerConnection::disconnect_reason`].
    Disconnect,
}

/// A message as it was published.
#[derive(Clone, Debug)]
pub enum Publish<'a> {
    /// It lies whole in the bytes received.
    Borrowed(PublishRef<'a>),
    /// It came in several reads or body frames.
    Assembled(Box<PublishOwned>),
}

impl Publish<'_> {
    /// The parts of the message.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> PublishRef<'_> {
        match self {
            Publish::Borrowed(publish) => *publish,
            Publish::Assembled(owned) => PublishOwned::as_ref(owned),
        }
    }
}

/// The parts of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishRef<'a> {
    /// The exchange's name, empty for the default exchange.
    pub exchange: &'a str,
    /// The routing key.
    pub routing_key: &'a str,
    /// Whether an unroutable message must come back.
    pub mandatory: bool,
    /// Whether it must be consumed at once.
    pub immediate: bool,
    /// The properties in wire form, well-formed, see [`PropertiesRef`].
    pub properties: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// All of it in an allocation of its own, where it has one.
    pub packed: Option<Packed<'a>>,
}

/// A message in an allocation of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'a> {
    /// From `start` on to the end: lengths of the exchange's name and the routing key, a byte each, and of the
    /// properties, in four bytes, the lowest first; then exchange, routing key, properties and body.
    pub bytes: &'a Arc<Vec<u8>>,
    /// What is in front means nothing.
    pub start: usize,
}

/// Bytes of the lengths in front of a packed message.
const LENGTHS_BYTES: usize = 6;

impl<'a> PublishRef<'a> {
    #[inline]
    fn new(method: basic::Publish<'a>, properties: &'a [u8], body: &'a [u8]) -> PublishRef<'a> {
        PublishRef {
            exchange: method.exchange,
            routing_key: method.routing_key,
            mandatory: method.mandatory,
            immediate: method.immediate,
            properties,
            body,
            packed: None,
        }
    }
}

/// A message that was put together from pieces.
#[derive(Clone, Debug)]
pub struct PublishOwned {
    /// As in [`Packed`].
    bytes: Arc<Vec<u8>>,
    start: usize,
    mandatory: bool,
    immediate: bool,
}

impl PublishOwned {
    /// Lays the message out in the place where it is: instead of the method's number, ticket and flags the lengths are in
    /// front of it, which take less.
    fn new(content: ContentOwned) -> PublishOwned {
        let arguments = content.method().get(4..).unwrap_or_default();
        // The arguments were decoded once before the content was taken in.
        let basic::Publish { exchange, routing_key, mandatory, immediate, .. } =
            decode_publish(arguments).unwrap_or_default();
        let mut head = Vec::with_capacity(LENGTHS_BYTES + exchange.len() + routing_key.len());
        head.extend_from_slice(&[exchange.len() as u8, routing_key.len() as u8]);
        head.extend_from_slice(&(content.properties().len() as u32).to_le_bytes());
        head.extend_from_slice(exchange.as_bytes());
        head.extend_from_slice(routing_key.as_bytes());
        let start = content.method_end - head.len();
        let mut bytes = content.bytes;
        bytes[start..content.method_end].copy_from_slice(&head);
        PublishOwned { bytes: Arc::new(bytes), start, mandatory, immediate }
    }

    /// The parts of the message.
    #[must_use]
    pub fn as_ref(&self) -> PublishRef<'_> {
        let (lengths, rest) = self.bytes[self.start..].split_at(LENGTHS_BYTES);
        let (exchange, rest) = rest.split_at(lengths[0].into());
        let (routing_key, rest) = rest.split_at(lengths[1].into());
        let properties = u32::from_le_bytes([lengths[2], lengths[3], lengths[4], lengths[5]]);
        let (properties, body) = rest.split_at(properties as usize);
        // They were text when they were decoded.
        let text = |name| core::str::from_utf8(name).unwrap_or_default();
        PublishRef {
            exchange: text(exchange),
            routing_key: text(routing_key),
            mandatory: self.mandatory,
            immediate: self.immediate,
            properties,
            body,
            packed: Some(Packed { bytes: &self.bytes, start: self.start }),
        }
    }
}

/// Why a login is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationFailure {
    /// What the client is told instead of the usual text, without the code's name.
    pub text: Option<String>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutOutcome {
    /// Nothing; a heartbeat may have been written.
    Nothing,
    /// The client was silent for two heartbeat intervals: drop the socket.
    PeerDead,
    /// The handshake took too long: drop the socket.
    HandshakeExpired,
    /// The client did not answer our close, or its refused login was kept waiting for long enough:
    /// drop the socket.
    Disconnect,
}

/// The machine. It holds no broker state and can be moved between threads.
#[derive(Debug)]
pub struct ServerConnection {
    state: State,
    assembler: Assembler,
    heartbeat: Heartbeat,
    drain: Drain,
    /// The latest time seen.
    now: Instant,
    /// When the present part of the handshake, a close or a refusal has taken long enough.
    deadline: Instant,
    /// When the whole handshake has.
    handshake_deadline: Instant,
    close_timeout: Duration,
    start_frame: Vec<u8>,
    mechanisms: String,
    mechanism: String,
    /// In wire form: as values they would take many times the memory.
    client_properties: Box<[u8]>,
    offer: connection::Tune,
    channel_max: u16,
    frame_max: u32,
    heartbeat_seconds: u16,
    is_lost: bool,
    disconnect_reason: &'static str,
}

impl ServerConnection {
    /// A machine that waits for the protocol header.
    #[must_use]
    pub fn new(options: &ServerOptions, now: Instant) -> ServerConnection {
        ServerConnection {
            state: State::Header,
            assembler: Assembler::new(
                Side::Server,
                options.body_bytes_max,
                options.assembly_bytes_max,
            ),
            heartbeat: Heartbeat::new(now),
            drain: Drain::default(),
            now,
            deadline: now + options.header_timeout,
            handshake_deadline: now + options.handshake_timeout,
            close_timeout: options.close_timeout,
            start_frame: options.start_frame(),
            mechanisms: options.mechanisms.clone(),
            mechanism: String::new(),
            client_properties: Box::default(),
            offer: connection::Tune {
                channel_max: options.channel_max,
                frame_max: options.frame_max,
                heartbeat: options.heartbeat,
            },
            channel_max: options.channel_max,
            frame_max: options.frame_max,
            heartbeat_seconds: 0,
            is_lost: false,
            disconnect_reason: "",
        }
    }

    /// Takes the next unit of the protocol from `bytes` and tells how many bytes it took. What
    /// belongs to the handshake, and answers to a close that crosses ours, are appended to `out`.
    ///
    /// Call it again with the rest until it takes nothing; what it does not take must come again
    /// in front of the next bytes.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, Event<'a>) {
        if bytes.is_empty() {
            return (0, Event::None);
        }
        self.now = now;
        self.heartbeat.received(now);
        if self.state == State::Running {
            self.receive_running(bytes)
        } else {
            self.receive_handshake(bytes, out)
        }
    }

    #[inline]
    fn receive_running<'a>(&mut self, bytes: &'a [u8]) -> (usize, Event<'a>) {
        if self.assembler.is_between_frames() {
            let payload_max = self.assembler.payload_max;
            match contiguous(bytes, 40, payload_max, self.assembler.body_bytes_max) {
                Found::Whole(whole) if self.assembler.is_free(whole.channel) => {
                    let checked = decode_publish(whole.arguments).and_then(|method| {
                        PropertiesRef(whole.properties).validate()?;
                        Ok(method)
                    });
                    let event = match checked {
                        Ok(method) => Event::Publish {
                            channel: whole.channel,
                            publish: Publish::Borrowed(PublishRef::new(
                                method,
                                whole.properties,
                                whole.body,
                            )),
                        },
                        Err(malformed) => self.fail(
                            ProtocolError::from(malformed)
                                .caused_by(basic::CLASS_ID, basic::Publish::METHOD_ID),
                        ),
                    };
                    return (whole.consumed, event);
                }
                Found::Wait(channel) if self.assembler.is_free(channel) => return (0, Event::None),
                Found::Whole(_) | Found::Wait(_) => {}
                Found::No => match decode_ack_frame(bytes) {
                    Some((channel, ack)) if self.assembler.is_free(channel) => {
                        let method = Method::BasicAck(ack);
                        return (ACK_FRAME_BYTES, Event::Method { channel, method });
                    }
                    _ => {}
                },
            }
        }
        self.receive_frame(bytes)
    }

    fn receive_frame<'a>(&mut self, bytes: &'a [u8]) -> (usize, Event<'a>) {
        let (consumed, result) = self.assembler.next(bytes);
        let event = match result {
            Ok(Unit::More) => Event::None,
            Ok(Unit::Method { channel: 0, method }) => self.take_connection_method(method),
            Ok(Unit::Method { channel, method }) => Event::Method { channel, method },
            Ok(Unit::Content { channel, content }) => Event::Publish {
                channel,
                publish: Publish::Assembled(Box::new(PublishOwned::new(content))),
            },
            Ok(Unit::TooLarge { channel, size, class_id, method_id }) => {
                Event::BodyTooLarge { channel, size, class_id, method_id }
            }
            Err(error) => {
                if error.code == ReplyCode::FRAME_ERROR {
                    // Where the next frame starts is not known.
                    self.is_lost = true;
                    return (bytes.len(), self.fail(error));
                }
                self.fail(error)
            }
        };
        (consumed, event)
    }

    fn take_connection_method<'a>(&mut self, method: Method<'a>) -> Event<'a> {
        match method {
            Method::ConnectionClose(close) => self.peer_closes(close),
            Method::ConnectionUpdateSecret(_) => Event::Method { channel: 0, method },
            // A late answer to nothing; harmless.
            Method::ConnectionCloseOk(_) => Event::None,
            _ => self.fail(invalid(&method)),
        }
    }

    fn peer_closes<'a>(&mut self, close: connection::Close<'a>) -> Event<'a> {
        self.state = State::PeerClosing;
        self.assembler.abandon();
        Event::Close {
            code: ReplyCode(close.reply_code),
            text: close.reply_text,
            class_id: close.class_id,
            method_id: close.method_id,
        }
    }

    #[cold]
    fn fail<'a>(&mut self, error: ProtocolError) -> Event<'a> {
        self.state = State::Failed;
        self.deadline = self.now + self.close_timeout;
        Event::Error(error)
    }

    fn disconnect<'a>(&mut self, reason: &'static str) -> Event<'a> {
        self.state = State::Closed;
        self.disconnect_reason = reason;
        Event::Disconnect
    }

    /// Skips what comes while we wait for the answer to our close.
    fn receive_closing<'a>(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Event<'a>) {
        let (consumed, drained) = self.drain.take(bytes);
        let event = match drained {
            Drained::Nothing => Event::None,
            Drained::Close => {
                Method::from(connection::CloseOk {}).encode_frame(0, out);
                Event::None
            }
            Drained::CloseOk => {
                self.state = State::Closed;
                Event::CloseOk
            }
        };
        (consumed, event)
    }

    /// Closes the connection with `error`: `connection.close` is appended to `out`, and from now on
    /// everything but close and close-ok is ignored. Before the handshake's first method there is
    /// nothing to send; then [`ServerConnection::on_timeout`] tells at once to disconnect.
    pub fn close(&mut self, now: Instant, error: &ProtocolError, out: &mut Vec<u8>) {
        self.now = now;
        match self.state {
            State::Closing | State::PeerClosing | State::Leaving | State::Closed => return,
            State::Header | State::Refused => {
                self.state = State::Closed;
                return;
            }
            _ => {}
        }
        let close = connection::Close {
            reply_code: error.code.0,
            reply_text: &error.text,
            class_id: error.class_id,
            method_id: error.method_id,
        };
        Method::from(close).encode_frame(0, out);
        self.drain = Drain::new(self.assembler.abandon(), self.is_lost);
        self.deadline = now + self.close_timeout;
        self.state = State::Closing;
    }

    /// Answers [`Event::Close`]. The client ends the socket: some clients take an end that comes
    /// together with the answer for a loss. [`ServerConnection::on_timeout`] tells to disconnect
    /// when it does not.
    pub fn close_ok(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.now = now;
        if self.state == State::PeerClosing {
            Method::from(connection::CloseOk {}).encode_frame(0, out);
            self.deadline = now + self.close_timeout;
            self.state = State::Leaving;
        }
    }

    /// Forgets a half-assembled content of a channel and ignores further contents on it, because
    /// the channel is being closed. Methods without content are still told.
    pub fn close_channel_content(&mut self, channel: u16) {
        self.assembler.ignore(channel);
    }

    /// Contents on the channel count again.
    pub fn open_channel_content(&mut self, channel: u16) {
        self.assembler.unignore(channel);
    }

    /// Bytes went out to the client: no heartbeat is due for a while.
    #[inline]
    pub fn sent(&mut self, now: Instant) {
        self.heartbeat.sent(now);
    }

    /// Nothing is read from the client while `is_paused`: its silence does not count.
    pub fn reading_paused(&mut self, now: Instant, is_paused: bool) {
        self.heartbeat.pause(now, is_paused);
    }

    /// Does what is due at `now`; a heartbeat is appended to `out`.
    pub fn on_timeout(&mut self, now: Instant, out: &mut Vec<u8>) -> TimeoutOutcome {
        self.now = now;
        let is_late = now >= self.deadline;
        let outcome = match self.state {
            State::Closed => TimeoutOutcome::Disconnect,
            State::Running => {
                if self.heartbeat.on_timeout(now, out) {
                    return TimeoutOutcome::Nothing;
                }
                TimeoutOutcome::PeerDead
            }
            State::PeerClosing => return TimeoutOutcome::Nothing,
            _ if !is_late => return TimeoutOutcome::Nothing,
            State::Failed | State::Closing | State::Leaving | State::Refused => {
                TimeoutOutcome::Disconnect
            }
            _ => TimeoutOutcome::HandshakeExpired,
        };
        self.state = State::Closed;
        outcome
    }

    /// When [`ServerConnection::on_timeout`] wants to be called. It moves with the traffic, mostly
    /// to later; calling too early does no harm.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        match self.state {
            State::Running => self.heartbeat.next_timeout(),
            State::PeerClosing => Instant::NEVER,
            State::Closed => self.now,
            _ => self.deadline,
        }
    }

    /// Where the connection stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// How many channels may be open at once, after the handshake.
    #[must_use]
    pub fn channel_max(&self) -> u16 {
        self.channel_max
    }

    /// Bytes held by contents that are not whole yet.
    #[inline]
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.assembler.held_bytes()
    }

    /// Whether a message has begun that will be published once all of it is there.
    #[must_use]
    pub fn has_begun_message(&self) -> bool {
        self.assembler.has_begun()
    }

    /// The largest frame in bytes, after the handshake; `u32::MAX` for no limit.
    #[inline]
    #[must_use]
    pub fn frame_max(&self) -> u32 {
        match self.frame_max {
            0 => u32::MAX,
            limit => limit,
        }
    }

    /// The heartbeat interval in seconds, after the handshake; 0 for none.
    #[must_use]
    pub fn heartbeat(&self) -> u16 {
        self.heartbeat_seconds
    }

    /// The mechanism that the client chose.
    #[must_use]
    pub fn mechanism(&self) -> &str {
        &self.mechanism
    }

    /// What the client said about itself.
    #[must_use]
    pub fn client_properties(&self) -> TableRef<'_> {
        TableRef::trusted(&self.client_properties)
    }

    /// Whether the client claims a capability, `consumer_cancel_notify` for one.
    #[must_use]
    pub fn has_client_capability(&self, name: &str) -> bool {
        self.client_properties()
            .get("capabilities")
            .and_then(ValueRef::as_table)
            .and_then(|capabilities| capabilities.get(name))
            .and_then(ValueRef::as_bool)
            .unwrap_or(false)
    }

    /// Why [`Event::Disconnect`] was given, for the log.
    #[must_use]
    pub fn disconnect_reason(&self) -> &'static str {
        self.disconnect_reason
    }
}

/// A method of the connection that does not belong here.
fn invalid(method: &Method<'_>) -> ProtocolError {
    let (class_id, method_id) = method.ids();
    ProtocolError::new(ReplyCode::COMMAND_INVALID, format!("unexpected method {}", method.name()))
        .caused_by(class_id, method_id)
}
