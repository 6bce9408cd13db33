//! The client's end of one connection, sans I/O, for the load tester and the simulator.

mod options;

pub use crate::encode::{encode_ack, encode_nack, encode_publish};
pub use options::ClientOptions;

use crate::assembly::{Assembler, Side, Unit};
use crate::code::ReplyCode;
use crate::content::{ContentOwned, Found, contiguous};
use crate::drain::{Drain, Drained};
use crate::error::ProtocolError;
use crate::frame;
use crate::heartbeat::Heartbeat;
use crate::method::{ACK_FRAME_BYTES, Method, basic, connection, decode_ack_frame, decode_deliver};
use crate::properties::PropertiesRef;
use crate::sasl;
use crate::server::TimeoutOutcome;
use crate::table::Table;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use lepus_base::Instant;

/// How long the server may take to answer our close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// Waits for `connection.start`.
    Start,
    /// Waits for `connection.tune`.
    Tune,
    /// Waits for `connection.open-ok`.
    OpenOk,
    /// Open.
    Running,
    /// `connection.close` was sent; waits for the answer.
    Closing,
    /// Nothing more will happen.
    Closed,
}

/// What came in.
#[derive(Clone, Debug)]
pub enum ClientEvent<'a> {
    /// Nothing to tell. More bytes are needed when none were consumed; otherwise call again.
    None,
    /// The virtual host is open.
    Opened,
    /// A method without content.
    Method {
        /// The channel.
        channel: u16,
        /// The method.
        method: Method<'a>,
    },
    /// A message.
    Content {
        /// The channel.
        channel: u16,
        /// `basic.deliver`, `basic.return` or `basic.get-ok`.
        method: Method<'a>,
        /// The properties in wire form, well-formed.
        properties: &'a [u8],
        /// The body.
        body: &'a [u8],
    },
    /// The server reads no more from this connection, for this reason.
    Blocked(&'a str),
    /// The server reads again.
    Unblocked,
    /// The connection has ended: the server closed it (the answer is in `out`) or agreed to our
    /// close (then the code is `REPLY_SUCCESS`).
    Closed {
        /// The server's reply code.
        code: ReplyCode,
        /// The server's reply text.
        text: &'a str,
    },
    /// The server broke the protocol, or speaks another one: drop the socket.
    Error(ProtocolError),
}

/// The machine.
#[derive(Debug)]
pub struct ClientConnection {
    state: ClientState,
    options: ClientOptions,
    assembler: Assembler,
    heartbeat: Heartbeat,
    drain: Drain,
    now: Instant,
    deadline: Instant,
    /// The content that the last event shows.
    shown: ContentOwned,
    server_properties: Table,
    channel_max: u16,
    frame_max: u32,
}

impl ClientConnection {
    /// A machine that has written the protocol header to `out`.
    #[must_use]
    pub fn new(options: ClientOptions, now: Instant, out: &mut Vec<u8>) -> ClientConnection {
        out.extend_from_slice(b"AMQP\0\0\x09\x01");
        ClientConnection {
            state: ClientState::Start,
            assembler: Assembler::new(Side::Client, options.body_bytes_max, usize::MAX),
            heartbeat: Heartbeat::new(now),
            drain: Drain::default(),
            now,
            deadline: now + options.handshake_timeout,
            shown: ContentOwned::default(),
            server_properties: Table::new(),
            channel_max: options.channel_max,
            frame_max: options.frame_max,
            options,
        }
    }

    /// Takes the next unit of the protocol from `bytes` and tells how many bytes it took. Answers
    /// that belong to the handshake or to a close are appended to `out`.
    ///
    /// Call it again with the rest until it takes nothing; what it does not take must come again
    /// in front of the next bytes.
    #[inline]
    pub fn receive<'a>(
        &'a mut self,
        now: Instant,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, ClientEvent<'a>) {
        if bytes.is_empty() {
            return (0, ClientEvent::None);
        }
        self.now = now;
        self.heartbeat.received(now);
        match self.state {
            ClientState::Running => self.receive_running(bytes, out),
            ClientState::Closing => self.receive_closing(bytes, out),
            ClientState::Closed => (bytes.len(), ClientEvent::None),
            _ => self.receive_handshake(bytes, out),
        }
    }

    #[inline]
    fn receive_running<'a>(
        &'a mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, ClientEvent<'a>) {
        if self.assembler.is_between_frames() {
            let payload_max = self.assembler.payload_max;
            match contiguous(bytes, 60, payload_max, self.assembler.body_bytes_max) {
                // Frames that are whole but malformed are left to the way that names the error.
                Found::Whole(whole) if self.assembler.is_free(whole.channel) => {
                    if let Ok(deliver) = decode_deliver(whole.arguments)
                        && PropertiesRef(whole.properties).validate().is_ok()
                    {
                        let event = ClientEvent::Content {
                            channel: whole.channel,
                            method: Method::BasicDeliver(deliver),
                            properties: whole.properties,
                            body: whole.body,
                        };
                        return (whole.consumed, event);
                    }
                }
                Found::Wait(channel) if self.assembler.is_free(channel) => {
                    return (0, ClientEvent::None);
                }
                Found::Whole(_) | Found::Wait(_) => {}
                Found::No => match decode_ack_frame(bytes) {
                    Some((channel, ack)) if self.assembler.is_free(channel) => {
                        let method = Method::BasicAck(ack);
                        return (ACK_FRAME_BYTES, ClientEvent::Method { channel, method });
                    }
                    _ => {}
                },
            }
        }
        self.receive_frame(bytes, out)
    }

    fn receive_frame<'a>(
        &'a mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, ClientEvent<'a>) {
        let (consumed, result) = self.assembler.next(bytes);
        let event = match result {
            Ok(Unit::More) => ClientEvent::None,
            Ok(Unit::Method { channel: 0, method }) => self.take_connection_method(method, out),
            Ok(Unit::Method { channel, method }) => ClientEvent::Method { channel, method },
            Ok(Unit::Content { channel, content }) => {
                self.shown = content;
                ClientEvent::Content {
                    channel,
                    // The payload was decoded once before the content was taken in.
                    method: Method::decode(self.shown.method())
                        .unwrap_or(Method::BasicDeliver(basic::Deliver::default())),
                    properties: self.shown.properties(),
                    body: self.shown.body(),
                }
            }
            Ok(Unit::TooLarge { size, .. }) => self.fail(ProtocolError::new(
                ReplyCode::CONTENT_TOO_LARGE,
                format!("a message of {size} bytes"),
            )),
            Err(error) => return (bytes.len(), self.fail(error)),
        };
        (consumed, event)
    }

    fn take_connection_method<'a>(
        &mut self,
        method: Method<'a>,
        out: &mut Vec<u8>,
    ) -> ClientEvent<'a> {
        match method {
            Method::ConnectionClose(close) => self.server_closes(close, out),
            Method::ConnectionBlocked(blocked) => ClientEvent::Blocked(blocked.reason),
            Method::ConnectionUnblocked(_) => ClientEvent::Unblocked,
            _ => ClientEvent::Method { channel: 0, method },
        }
    }

    fn server_closes<'a>(
        &mut self,
        close: connection::Close<'a>,
        out: &mut Vec<u8>,
    ) -> ClientEvent<'a> {
        Method::from(connection::CloseOk {}).encode_frame(0, out);
        self.state = ClientState::Closed;
        ClientEvent::Closed { code: ReplyCode(close.reply_code), text: close.reply_text }
    }

    #[cold]
    fn fail<'a>(&mut self, error: ProtocolError) -> ClientEvent<'a> {
        self.state = ClientState::Closed;
        ClientEvent::Error(error)
    }

    fn receive_closing<'a>(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> (usize, ClientEvent<'a>) {
        let (consumed, drained) = self.drain.take(bytes);
        let event = match drained {
            Drained::Nothing => ClientEvent::None,
            Drained::Close => {
                Method::from(connection::CloseOk {}).encode_frame(0, out);
                ClientEvent::None
            }
            Drained::CloseOk => {
                self.state = ClientState::Closed;
                ClientEvent::Closed { code: ReplyCode::REPLY_SUCCESS, text: "" }
            }
        };
        (consumed, event)
    }

    fn receive_handshake<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, ClientEvent<'a>) {
        if bytes.starts_with(b"AMQP") {
            let error = ProtocolError::new(
                ReplyCode::NOT_IMPLEMENTED,
                "the server does not speak AMQP 0-9-1",
            );
            return (bytes.len(), self.fail(error));
        }
        if b"AMQP".starts_with(bytes) {
            return (0, ClientEvent::None);
        }
        let (frame, consumed) = match frame::decode(bytes, u32::from(u16::MAX)) {
            Ok(Some(found)) => found,
            Ok(None) => return (0, ClientEvent::None),
            Err(error) => return (bytes.len(), self.fail(error)),
        };
        if frame == HEARTBEAT {
            return (consumed, ClientEvent::None);
        }
        let method = Method::decode(frame.payload);
        let event = match (self.state, method) {
            (ClientState::Start, Ok(Method::ConnectionStart(start))) => self.start(start, out),
            (ClientState::Tune, Ok(Method::ConnectionTune(tune))) => {
                self.tune(tune, out);
                ClientEvent::None
            }
            (ClientState::OpenOk, Ok(Method::ConnectionOpenOk(_))) => {
                self.heartbeat.start(self.now, self.options.heartbeat);
                self.state = ClientState::Running;
                ClientEvent::Opened
            }
            (_, Ok(Method::ConnectionClose(close))) => self.server_closes(close, out),
            (_, Ok(method)) => self.fail(ProtocolError::new(
                ReplyCode::COMMAND_INVALID,
                format!("unexpected method {}", method.name()),
            )),
            (_, Err(error)) => self.fail(error),
        };
        (consumed, event)
    }

    fn start<'a>(&mut self, start: connection::Start<'a>, out: &mut Vec<u8>) -> ClientEvent<'a> {
        self.server_properties = start.server_properties.to_owned();
        let options = &self.options;
        let mechanism = options.mechanism.as_str();
        let mut offered = start.mechanisms.split(|byte| *byte == b' ');
        if !offered.any(|name| name == mechanism.as_bytes()) {
            let text = format!("the server does not offer mechanism {mechanism}");
            return self.fail(ProtocolError::new(ReplyCode::COMMAND_INVALID, text));
        }
        let properties = options.properties.to_bytes();
        let response = sasl::response(mechanism, &options.user, &options.password);
        let start_ok = connection::StartOk {
            client_properties: properties.as_ref(),
            mechanism,
            response: &response,
            locale: &options.locale,
        };
        Method::from(start_ok).encode_frame(0, out);
        self.state = ClientState::Tune;
        ClientEvent::None
    }

    /// Takes the smaller one of each limit and opens the virtual host.
    fn tune(&mut self, tune: connection::Tune, out: &mut Vec<u8>) {
        fn smaller<T: Ord + Default>(one: T, two: T) -> T {
            if one == T::default() || (two != T::default() && two < one) { two } else { one }
        }
        self.channel_max = smaller(tune.channel_max, self.options.channel_max);
        self.frame_max = smaller(tune.frame_max, self.options.frame_max);
        let tune_ok = connection::TuneOk {
            channel_max: self.channel_max,
            frame_max: self.frame_max,
            heartbeat: self.options.heartbeat,
        };
        Method::from(tune_ok).encode_frame(0, out);
        let open = connection::Open { virtual_host: &self.options.vhost };
        Method::from(open).encode_frame(0, out);
        self.assembler.payload_max = self.frame_max();
        self.assembler.contents_max = self.channel_max();
        self.state = ClientState::OpenOk;
    }

    /// Closes the connection: appends `connection.close`; [`ClientEvent::Closed`] comes when the
    /// server agrees.
    pub fn close(&mut self, now: Instant, code: ReplyCode, text: &str, out: &mut Vec<u8>) {
        if matches!(self.state, ClientState::Closing | ClientState::Closed) {
            return;
        }
        let close =
            connection::Close { reply_code: code.0, reply_text: text, class_id: 0, method_id: 0 };
        Method::from(close).encode_frame(0, out);
        self.drain = Drain::new(self.assembler.abandon(), false);
        self.now = now;
        self.deadline = now + CLOSE_TIMEOUT;
        self.state = ClientState::Closing;
    }

    /// Bytes went out to the server: no heartbeat is due for a while.
    #[inline]
    pub fn sent(&mut self, now: Instant) {
        self.heartbeat.sent(now);
    }

    /// Nothing is read from the server while `is_paused`: its silence does not count.
    pub fn reading_paused(&mut self, now: Instant, is_paused: bool) {
        self.heartbeat.pause(now, is_paused);
    }

    /// Does what is due at `now`; a heartbeat is appended to `out`.
    pub fn on_timeout(&mut self, now: Instant, out: &mut Vec<u8>) -> TimeoutOutcome {
        self.now = now;
        let outcome = match self.state {
            ClientState::Closed => TimeoutOutcome::Disconnect,
            ClientState::Running => {
                if self.heartbeat.on_timeout(now, out) {
                    return TimeoutOutcome::Nothing;
                }
                TimeoutOutcome::PeerDead
            }
            _ if now < self.deadline => return TimeoutOutcome::Nothing,
            ClientState::Closing => TimeoutOutcome::Disconnect,
            _ => TimeoutOutcome::HandshakeExpired,
        };
        self.state = ClientState::Closed;
        outcome
    }

    /// When [`ClientConnection::on_timeout`] wants to be called. It moves with the traffic, mostly
    /// to later; calling too early does no harm.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        match self.state {
            ClientState::Running => self.heartbeat.next_timeout(),
            ClientState::Closed => self.now,
            _ => self.deadline,
        }
    }

    /// Where the connection stands.
    #[must_use]
    pub fn state(&self) -> ClientState {
        self.state
    }

    /// The highest channel number, after the handshake.
    #[must_use]
    pub fn channel_max(&self) -> u16 {
        match self.channel_max {
            0 => u16::MAX,
            limit => limit,
        }
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

    /// What the server said about itself.
    #[must_use]
    pub fn server_properties(&self) -> &Table {
        &self.server_properties
    }
}

const HEARTBEAT: frame::Frame<'static> =
    frame::Frame { kind: frame::FrameKind::Heartbeat, channel: 0, payload: &[] };
