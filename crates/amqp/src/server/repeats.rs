//! What comes over and over on an open connection, recognised without decoding it anew each time.

use super::{ServerConnection, State, Wire};
use crate::content::{Following, following};
use crate::frame::{END, FrameKind, HEAD_BYTES};
use crate::method::{ACK_FRAME_BYTES, basic, decode_ack_frame};
use lepus_base::Instant;

/// Head of a method frame, class and method number.
const METHOD_HEAD_BYTES: usize = HEAD_BYTES + 4;

/// Bytes of a header frame but for the properties: its head, class, weight, body size, its end.
const HEADER_OVERHEAD_BYTES: usize = HEAD_BYTES + 12 + 1;

/// Takes frames like those that came before off the bytes of a connection. It holds until the
/// connection's machine is told anything.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    payload_max: u32,
    body_bytes_max: u64,
}

/// A publish whose method frame is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated<'a> {
    /// The properties in wire form, not checked.
    pub properties: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// Names and content as they came.
    pub wire: Wire<'a>,
    /// Bytes of all its frames.
    pub consumed: usize,
}

impl ServerConnection {
    /// What recognises the frames of a channel by those before, unless something else has to come
    /// next; then, and whenever it does not know a frame, [`ServerConnection::receive`] does. Counts
    /// as a sign of life of the client.
    #[inline]
    pub fn repeats(&mut self, now: Instant, channel: u16) -> Option<Repeats> {
        let is_free = self.assembler.is_between_frames() && self.assembler.is_free(channel);
        if self.state != State::Running || !is_free {
            return None;
        }
        self.now = now;
        self.heartbeat.received(now);
        Some(Repeats {
            payload_max: self.assembler.payload_max,
            body_bytes_max: self.assembler.body_bytes_max,
        })
    }
}

impl Repeats {
    /// The channel of the frame of a `basic.publish` at the start of `bytes`, and the whole frame.
    #[inline]
    #[must_use]
    pub fn publish_frame(bytes: &[u8]) -> Option<(u16, &[u8])> {
        const METHOD: u8 = FrameKind::Method as u8;

        let head = bytes.first_chunk::<METHOD_HEAD_BYTES>()?;
        let &[METHOD, c1, c0, s3, s2, s1, s0, 0, 60, 0, 40] = head else { return None };
        let end = HEAD_BYTES + u32::from_be_bytes([s3, s2, s1, s0]) as usize;
        let frame = bytes.get(..=end)?;
        (frame[end] == END).then_some((u16::from_be_bytes([c1, c0]), frame))
    }

    /// The publish at the start of `bytes`, if it begins with the bytes of `method` and is whole.
    /// `method` is a frame that [`ServerConnection::receive`] took for a publish on this connection.
    #[inline]
    #[must_use]
    pub fn publish<'a>(self, method: &'a [u8], bytes: &'a [u8]) -> Option<Repeated<'a>> {
        let &[_, c1, c0, ..] = method else { return None };
        let rest = bytes.strip_prefix(method)?;
        // Behind a reserved number, in front of the bits and the end.
        let names = method.get(METHOD_HEAD_BYTES + 2..method.len().checked_sub(2)?)?;
        match following(rest, [c1, c0], self.payload_max, self.body_bytes_max) {
            Following::Whole(content) => Some(Repeated {
                properties: content.properties,
                body: content.body,
                wire: Wire {
                    names,
                    frames: content.frames,
                    header_bytes: HEADER_OVERHEAD_BYTES + content.properties.len(),
                },
                consumed: method.len() + content.frames.len(),
            }),
            Following::Begun | Following::Other => None,
        }
    }

    /// The `basic.ack` at the start of `bytes`: its channel, its arguments and its length.
    #[inline]
    #[must_use]
    pub fn ack(bytes: &[u8]) -> Option<(u16, basic::Ack, usize)> {
        let (channel, ack) = decode_ack_frame(bytes)?;
        Some((channel, ack, ACK_FRAME_BYTES))
    }
}
