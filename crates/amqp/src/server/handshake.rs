//! From the protocol header to an open virtual host (AMQP 0-9-1, section 2.2.4).

use super::{AuthenticationFailure, Event, REFUSAL_DELAY, ServerConnection, State, invalid};
use crate::code::ReplyCode;
use crate::error::ProtocolError;
use crate::frame::{self, FRAME_MAX_MIN, FrameKind};
use crate::method::{Method, connection};
use alloc::format;
use alloc::vec::Vec;
use lepus_base::Instant;

/// The header of the protocol this server speaks.
const HEADER: [u8; 8] = *b"AMQP\0\0\x09\x01";
/// How clients of AMQP 0-9 ask for what is the same protocol here.
const HEADER_0_9: [u8; 8] = *b"AMQP\x01\x01\0\x09";

/// Beginnings of other protocols that end up on this port by mistake.
const STRANGERS: [(&[u8], &str); 5] = [
    (b"GET ", "HTTP request on the AMQP port"),
    (b"POST", "HTTP request on the AMQP port"),
    (b"HEAD", "HTTP request on the AMQP port"),
    (b"PUT ", "HTTP request on the AMQP port"),
    (b"\x16\x03", "TLS handshake on the plain AMQP port"),
];

impl ServerConnection {
    /// Takes bytes in all states but [`State::Running`].
    pub(super) fn receive_handshake<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, Event<'a>) {
        match self.state {
            State::Header => self.receive_header(bytes, out),
            State::StartOk | State::TuneOk | State::Open => self.receive_method(bytes),
            State::Closing => self.receive_closing(bytes, out),
            State::Refused | State::PeerClosing | State::Leaving | State::Closed => {
                (bytes.len(), Event::None)
            }
            State::Authenticating | State::Opening | State::Failed | State::Running => {
                (0, Event::None)
            }
        }
    }

    fn receive_header<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> (usize, Event<'a>) {
        let head = &bytes[..bytes.len().min(HEADER.len())];
        if head == HEADER || head == HEADER_0_9 {
            out.append(&mut self.start_frame);
            self.start_frame = Vec::new();
            self.state = State::StartOk;
            self.deadline = self.handshake_deadline;
            return (HEADER.len(), Event::None);
        }
        if HEADER.starts_with(head) || HEADER_0_9.starts_with(head) {
            return (0, Event::None);
        }
        for (beginning, reason) in STRANGERS {
            if head.starts_with(beginning) {
                return (bytes.len(), self.disconnect(reason));
            }
            if beginning.starts_with(head) {
                return (0, Event::None);
            }
        }
        out.extend_from_slice(&HEADER);
        (bytes.len(), self.disconnect("unknown protocol header"))
    }

    /// Takes one method on channel 0.
    fn receive_method<'a>(&mut self, bytes: &'a [u8]) -> (usize, Event<'a>) {
        let (frame, consumed) = match frame::decode(bytes, self.assembler.payload_max) {
            Ok(Some(found)) => found,
            Ok(None) => return (0, Event::None),
            Err(error) => {
                self.is_lost = true;
                return (bytes.len(), self.fail(error));
            }
        };
        let is_heartbeat = frame.kind == FrameKind::Heartbeat && frame.channel == 0;
        if is_heartbeat && self.state == State::Open {
            return (consumed, Event::None);
        }
        if frame.kind != FrameKind::Method || frame.channel != 0 {
            let error = ProtocolError::new(
                ReplyCode::UNEXPECTED_FRAME,
                format!(
                    "expected a method on channel 0, got a frame of type {} on channel {}",
                    frame.kind as u8, frame.channel
                ),
            );
            return (consumed, self.fail(error));
        }
        let event = match (self.state, Method::decode(frame.payload)) {
            (State::StartOk, Ok(Method::ConnectionStartOk(start_ok))) => self.start_ok(start_ok),
            (State::TuneOk, Ok(Method::ConnectionTuneOk(tune_ok))) => self.tune_ok(tune_ok),
            (State::Open, Ok(Method::ConnectionOpen(open))) => {
                self.state = State::Opening;
                Event::Open { vhost: open.virtual_host }
            }
            (_, Ok(Method::ConnectionClose(close))) => self.peer_closes(close),
            (_, Ok(method)) => self.fail(invalid(&method)),
            (_, Err(error)) => self.fail(error),
        };
        (consumed, event)
    }

    fn start_ok<'a>(&mut self, start_ok: connection::StartOk<'a>) -> Event<'a> {
        self.client_properties = start_ok.client_properties.bytes().into();
        let mechanism = start_ok.mechanism;
        if !self.mechanisms.split(' ').any(|name| name == mechanism) || mechanism.is_empty() {
            let error = ProtocolError::new(
                ReplyCode::COMMAND_INVALID,
                format!("authentication mechanism '{mechanism}' is not supported"),
            );
            return self
                .fail(error.caused_by(connection::CLASS_ID, connection::StartOk::METHOD_ID));
        }
        self.mechanism = mechanism.into();
        self.state = State::Authenticating;
        Event::Authenticate { mechanism, response: start_ok.response }
    }

    /// Answers [`Event::Authenticate`]: appends `connection.tune`, or `connection.close` with
    /// `ACCESS_REFUSED` (403). A client that does not claim `authentication_failure_close` gets no
    /// answer and is dropped a little later, see [`super::TimeoutOutcome::Disconnect`].
    pub fn authenticated(
        &mut self,
        now: Instant,
        result: Result<(), AuthenticationFailure>,
        out: &mut Vec<u8>,
    ) {
        self.now = now;
        if self.state != State::Authenticating {
            return;
        }
        let Err(failure) = result else {
            self.state = State::TuneOk;
            Method::from(self.offer).encode_frame(0, out);
            return;
        };
        if !self.has_client_capability("authentication_failure_close") {
            self.state = State::Refused;
            self.deadline = now + REFUSAL_DELAY;
            return;
        }
        let text = failure.text.unwrap_or_else(|| {
            format!(
                "Login was refused using authentication mechanism {}. \
                 For details see the broker logfile.",
                self.mechanism
            )
        });
        self.close(now, &ProtocolError::new(ReplyCode::ACCESS_REFUSED, text), out);
    }

    /// Checks what the client makes of the offer: 0 means no limit, and so more than any offer.
    /// What was agreed holds once a virtual host is open.
    fn tune_ok<'a>(&mut self, tune_ok: connection::TuneOk) -> Event<'a> {
        let offer = self.offer;
        let not_allowed = |name: &str, value: u32, side: &str, limit: u32| {
            ProtocolError::new(
                ReplyCode::NOT_ALLOWED,
                format!(
                    "negotiated {name} = {value} is {side} than the {} allowed value ({limit})",
                    if side == "lower" { "minimum" } else { "maximum" },
                ),
            )
            .caused_by(connection::CLASS_ID, connection::TuneOk::METHOD_ID)
        };
        let (frames, channels) = (tune_ok.frame_max, tune_ok.channel_max);
        if frames != 0 && frames < FRAME_MAX_MIN {
            return self.fail(not_allowed("frame_max", frames, "lower", FRAME_MAX_MIN));
        }
        if offer.frame_max != 0 && (frames == 0 || frames > offer.frame_max) {
            return self.fail(not_allowed("frame_max", frames, "higher", offer.frame_max));
        }
        if offer.channel_max != 0 && (channels == 0 || channels > offer.channel_max) {
            let limit = offer.channel_max.into();
            return self.fail(not_allowed("channel_max", channels.into(), "higher", limit));
        }
        self.frame_max = frames;
        self.channel_max = match channels {
            0 => u16::MAX,
            limit => limit,
        };
        self.heartbeat_seconds = tune_ok.heartbeat;
        self.state = State::Open;
        Event::None
    }

    /// Answers [`Event::Open`]: appends `connection.open-ok`, or closes with the error.
    pub fn opened(&mut self, now: Instant, result: Result<(), ProtocolError>, out: &mut Vec<u8>) {
        self.now = now;
        if self.state != State::Opening {
            return;
        }
        match result {
            Ok(()) => {
                Method::from(connection::OpenOk {}).encode_frame(0, out);
                self.heartbeat.start(now, self.heartbeat_seconds);
                // A peer that counts the payload only, and not the frame around it, is within its
                // rights.
                self.assembler.payload_max = self.frame_max();
                self.assembler.contents_max = self.channel_max;
                self.state = State::Running;
            }
            Err(error) => {
                let error = error.caused_by(connection::CLASS_ID, connection::Open::METHOD_ID);
                self.close(now, &error, out);
            }
        }
    }
}
