//! AMQP 0-9-1 as a session: its methods and codes for what the broker understands.

mod answers;
mod operations;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use lepus_amqp::ProtocolError;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::frame::{self, FrameKind};
use lepus_amqp::method::{Method, channel};
use lepus_amqp::sasl;
use lepus_amqp::server::{
    self, AuthenticationFailure, ServerConnection, ServerOptions, TimeoutOutcome, encode_ack,
    encode_deliveries_of, encode_delivery, encode_delivery_head, encode_delivery_of, encode_get_ok,
    encode_get_ok_head, encode_nack, encode_return,
};
use lepus_base::Instant;

pub(crate) use lepus_amqp::frame::OVERHEAD_BYTES;
pub(crate) use lepus_amqp::server::Repeats;

use super::{
    Answer, Arguments, Asked, Capability, Claim, Closing, Delivered, Event, Login, Manner,
    Operation, Session, Source, State,
};
use crate::message::Wire;
use crate::refusal::{Refusal, RefusalKind};

/// A client that speaks AMQP 0-9-1.
#[derive(Debug)]
pub(crate) struct Amqp {
    machine: ServerConnection,
    /// How the client broke the protocol, between the event that tells so and its answer.
    broken: Option<Box<ProtocolError>>,
}

impl Amqp {
    /// One that has yet to send its first byte.
    pub(crate) fn new(options: &ServerOptions, now: Instant) -> Amqp {
        Amqp { machine: ServerConnection::new(options, now), broken: None }
    }

    /// What recognises frames of a channel that are like those before.
    #[inline]
    pub(crate) fn repeats(&mut self, now: Instant, channel: u16) -> Option<Repeats> {
        self.machine.repeats(now, channel)
    }

    /// Appends a message in the frames in which it came, if they fit. False if they do not.
    #[inline]
    pub(crate) fn deliver_frames(
        &self,
        channel: u16,
        (tag, number, redelivered): (&str, u64, bool),
        wire: &Wire<'_>,
        body_bytes: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let fits = body_bytes + OVERHEAD_BYTES <= self.machine.frame_max() as usize;
        if fits {
            encode_delivery_of(out, channel, tag, number, redelivered, &frames_of(*wire));
        }
        fits
    }

    /// The same for several, with numbers in a row, for the same consumer. They fit.
    #[inline]
    pub(crate) fn deliver_all_frames<'a>(
        channel: u16,
        tag: &str,
        first_number: u64,
        wires: impl Iterator<Item = Wire<'a>>,
        out: &mut Vec<u8>,
    ) {
        encode_deliveries_of(out, channel, tag, first_number, wires.map(frames_of));
    }

    /// The largest body whose frames can be sent on as they came.
    #[inline]
    pub(crate) fn whole_body_bytes_max(&self) -> usize {
        (self.machine.frame_max() as usize).saturating_sub(OVERHEAD_BYTES)
    }

    /// Whether a message has begun that will be published once all of it is there.
    pub(crate) fn has_begun_message(&self) -> bool {
        self.machine.has_begun_message()
    }

    /// What a reason to close is in this protocol.
    fn error(&self, why: Closing<'_>) -> ProtocolError {
        match why {
            Closing::Refused(refusal, asked) => error(refusal, asked),
            Closing::Broken => match &self.broken {
                Some(broken) => (**broken).clone(),
                None => ProtocolError::new(ReplyCode::INTERNAL_ERROR, "unexpected close"),
            },
        }
    }
}

impl Session for Amqp {
    #[inline(always)]
    fn receive<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> (usize, Event<'a>) {
        let (used, event) = self.machine.receive(now, bytes, out);
        let event = match event {
            server::Event::None => Event::None,
            server::Event::Publish { channel, publish } => Event::Publish { channel, publish },
            server::Event::Method { channel, method } => {
                let (operation, asked) = operations::operation(method);
                Event::Operation { channel, operation, asked, frame: &bytes[..used] }
            }
            server::Event::Authenticate { mechanism, response } => {
                Event::Login(login(mechanism, response))
            }
            server::Event::Open { vhost } => Event::Open { vhost },
            server::Event::BodyTooLarge { channel, size, class_id, method_id } => {
                Event::TooLarge { channel, size, asked: operations::asked((class_id, method_id)) }
            }
            server::Event::Close { .. } => Event::Close,
            server::Event::CloseOk => Event::CloseOk,
            server::Event::Error(error) => {
                self.broken = Some(Box::new(error));
                Event::Broken
            }
            server::Event::Disconnect => Event::Disconnect,
        };
        (used, event)
    }

    fn operation<'a>(&self, frame: &'a [u8]) -> Option<(Operation<'a>, Asked)> {
        let (frame, _) = frame::decode(frame, u32::MAX).ok()??;
        Method::decode(frame.payload).ok().map(operations::operation)
    }

    #[inline]
    fn state(&self) -> State {
        match self.machine.state() {
            server::State::Running => State::Running,
            server::State::Header
            | server::State::StartOk
            | server::State::Authenticating
            | server::State::Refused
            | server::State::TuneOk
            | server::State::Open
            | server::State::Opening => State::Entering,
            server::State::Failed => State::Failed,
            server::State::Closing => State::Closing,
            server::State::PeerClosing => State::PeerClosing,
            server::State::Leaving => State::Leaving,
            server::State::Closed => State::Closed,
        }
    }

    fn logged_in(&mut self, now: Instant, is_let_in: bool, out: &mut Vec<u8>) {
        let result = if is_let_in { Ok(()) } else { Err(AuthenticationFailure::default()) };
        self.machine.authenticated(now, result, out);
    }

    fn opened(&mut self, now: Instant, result: Result<(), &Refusal>, out: &mut Vec<u8>) {
        let result = result.map_err(|refusal| error(refusal, Asked::Nothing));
        self.machine.opened(now, result, out);
    }

    fn answer(&self, channel: u16, answer: &Answer<'_>, out: &mut Vec<u8>) {
        answers::method(answer).encode_frame(channel, out);
    }

    fn channel_opened(&mut self, channel: u16, out: &mut Vec<u8>) {
        self.machine.open_channel_content(channel);
        Method::from(channel::OpenOk {}).encode_frame(channel, out);
    }

    fn refuse(&mut self, channel: u16, refusal: &Refusal, asked: Asked, out: &mut Vec<u8>) -> bool {
        let error = error(refusal, asked);
        if error.code.is_hard() {
            return true;
        }
        self.machine.close_channel_content(channel);
        let close = channel::Close {
            reply_code: error.code.0,
            reply_text: &error.text,
            class_id: error.class_id,
            method_id: error.method_id,
        };
        Method::from(close).encode_frame(channel, out);
        false
    }

    fn close(&mut self, now: Instant, why: Closing<'_>, out: &mut Vec<u8>) {
        let error = self.error(why);
        self.machine.close(now, &error, out);
        self.broken = None;
    }

    fn close_ok(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.machine.close_ok(now, out);
    }

    fn words(&self, why: Closing<'_>) -> String {
        match why {
            // Its reply may quote what only the client may see.
            Closing::Refused(refusal, _) => format!("{} - {refusal}", code(refusal.kind).name()),
            Closing::Broken => self.error(why).text,
        }
    }

    fn deliver(&self, channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>) {
        let frame_max = self.machine.frame_max();
        let Delivered { source, exchange, routing_key, properties, body } = *delivered;
        match source {
            Source::Consumer { tag, number, redelivered } => encode_delivery(
                out,
                channel,
                frame_max,
                tag,
                number,
                redelivered,
                exchange,
                routing_key,
                properties,
                body,
            ),
            Source::Get { number, redelivered, remaining } => encode_get_ok(
                out,
                channel,
                frame_max,
                number,
                redelivered,
                exchange,
                routing_key,
                answers::clamp(remaining),
                properties,
                body,
            ),
            Source::Unroutable => encode_return(
                out,
                channel,
                frame_max,
                ReplyCode::NO_ROUTE,
                ReplyCode::NO_ROUTE.name(),
                exchange,
                routing_key,
                properties,
                body,
            ),
        }
    }

    fn deliver_head(&self, channel: u16, delivered: &Delivered<'_>, out: &mut Vec<u8>) {
        let Delivered { source, exchange, routing_key, properties, body } = *delivered;
        let body_bytes = body.len() as u64;
        match source {
            Source::Consumer { tag, number, redelivered } => encode_delivery_head(
                out,
                channel,
                tag,
                number,
                redelivered,
                exchange,
                routing_key,
                properties,
                body_bytes,
            ),
            Source::Get { number, redelivered, remaining } => encode_get_ok_head(
                out,
                channel,
                number,
                redelivered,
                exchange,
                routing_key,
                answers::clamp(remaining),
                properties,
                body_bytes,
            ),
            Source::Unroutable => panic!("a message is given back as a whole"),
        }
    }

    #[inline]
    fn part_bytes_max(&self) -> usize {
        self.whole_body_bytes_max()
    }

    fn begin_part(&self, channel: u16, bytes: usize, out: &mut Vec<u8>) {
        frame::write_head(out, FrameKind::Body, channel, bytes);
    }

    fn part_end(&self) -> &'static [u8] {
        &[frame::END]
    }

    #[inline]
    fn confirm(&self, channel: u16, number: u64, is_taken: bool, several: bool, out: &mut Vec<u8>) {
        if is_taken {
            encode_ack(out, channel, number, several);
        } else {
            encode_nack(out, channel, number, several, false);
        }
    }

    #[inline]
    fn sent(&mut self, now: Instant) {
        self.machine.sent(now);
    }

    fn reading_paused(&mut self, now: Instant, is_paused: bool) {
        self.machine.reading_paused(now, is_paused);
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Vec<u8>) -> TimeoutOutcome {
        self.machine.on_timeout(now, out)
    }

    #[inline]
    fn next_timeout(&self) -> Instant {
        self.machine.next_timeout()
    }

    fn channel_max(&self) -> u16 {
        self.machine.channel_max()
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        self.machine.held_bytes()
    }

    fn client_properties(&self) -> Arguments<'_> {
        self.machine.client_properties()
    }

    fn manner(&self) -> Manner<'_> {
        Manner {
            protocol: "AMQP 0-9-1",
            mechanism: self.machine.mechanism(),
            frame_max: self.machine.frame_max(),
            heartbeat_seconds: self.machine.heartbeat(),
        }
    }

    fn understands(&self, what: Capability) -> bool {
        self.machine.has_client_capability(match what {
            Capability::Blocked => "connection.blocked",
            Capability::ConsumerCancelled => "consumer_cancel_notify",
            Capability::WholeTransactions => "lepus.whole_transactions",
        })
    }

    fn disconnect_reason(&self) -> &'static str {
        self.machine.disconnect_reason()
    }
}

/// A message as it came, for the broker.
#[inline]
pub(crate) fn as_it_came(frames: server::Wire<'_>) -> Wire<'_> {
    let server::Wire { names, frames, header_bytes } = frames;
    Wire { names, frames, header_bytes }
}

/// The same, for the protocol.
#[inline]
fn frames_of(wire: Wire<'_>) -> server::Wire<'_> {
    let Wire { names, frames, header_bytes } = wire;
    server::Wire { names, frames, header_bytes }
}

fn login<'a>(mechanism: &'a str, response: &'a [u8]) -> Login<'a> {
    let password = |found: Option<sasl::Credentials<'a>>| match found {
        Some(sasl::Credentials { user, password }) => Claim::Password { user, password },
        None => Claim::Unreadable,
    };
    let claim = match mechanism {
        "EXTERNAL" => Claim::Certificate,
        "ANONYMOUS" => Claim::Anonymous,
        "AMQPLAIN" => password(sasl::amqplain(response)),
        _ => password(sasl::plain(response)),
    };
    Login { mechanism, claim, bytes: response.len() }
}

/// A refusal as the protocol's error.
fn error(refusal: &Refusal, asked: Asked) -> ProtocolError {
    let (class_id, method_id) = operations::ids(asked);
    ProtocolError::new(code(refusal.kind), refusal.reply()).caused_by(class_id, method_id)
}

/// What a kind of refusal is in this protocol.
fn code(kind: RefusalKind) -> ReplyCode {
    match kind {
        RefusalKind::AccessRefused => ReplyCode::ACCESS_REFUSED,
        RefusalKind::NotFound => ReplyCode::NOT_FOUND,
        RefusalKind::Locked => ReplyCode::RESOURCE_LOCKED,
        RefusalKind::PreconditionFailed => ReplyCode::PRECONDITION_FAILED,
        RefusalKind::NotAllowed => ReplyCode::NOT_ALLOWED,
        RefusalKind::NotImplemented => ReplyCode::NOT_IMPLEMENTED,
        RefusalKind::CommandInvalid => ReplyCode::COMMAND_INVALID,
        RefusalKind::ChannelError => ReplyCode::CHANNEL_ERROR,
        RefusalKind::ResourceError => ReplyCode::RESOURCE_ERROR,
        RefusalKind::Forced => ReplyCode::CONNECTION_FORCED,
        RefusalKind::Internal => ReplyCode::INTERNAL_ERROR,
    }
}
