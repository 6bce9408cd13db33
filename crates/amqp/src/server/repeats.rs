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

    /// Exchange and routing key of such a frame.
    #[inline]
    #[must_use]
    pub fn publish_names(frame: &[u8]) -> Option<(&[u8], &[u8])> {
        // Behind a reserved number.
        let (&length, rest) = frame.get(METHOD_HEAD_BYTES + 2..)?.split_first()?;
        let (exchange, rest) = rest.split_at_checked(length.into())?;
        let (&length, rest) = rest.split_first()?;
        Some((exchange, rest.get(..length.into())?))
    }

    /// Whether nothing stands behind the arguments in such a frame. It would mean nothing, but be sent on with the names.
    #[must_use]
    pub fn ends_with_arguments(frame: &[u8]) -> bool {
        Repeats::publish_names(frame).is_some_and(|(exchange, routing_key)| {
            // A reserved number, two lengths, the bits and the end.
            frame.len() == METHOD_HEAD_BYTES + 2 + 2 + exchange.len() + routing_key.len() + 2
        })
    }

    /// The publish at the start of `bytes`, if it begins with the bytes of `method` and is whole.
    /// `method` is a frame that [`ServerConnection::receive`] took for a publish on this connection, and that
    /// [`Repeats::ends_with_arguments`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{encode_ack, encode_publish};
    use alloc::vec::Vec;

    const REPEATS: Repeats = Repeats { payload_max: 4088, body_bytes_max: 1000 };

    fn publish(channel: u16, frame_max: u32, key: &str, properties: &[u8], body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_publish(&mut out, channel, frame_max, "ex", key, true, properties, body);
        out
    }

    #[test]
    fn publishes_are_recognised_by_the_method_frame_before() {
        let first = publish(3, 4096, "key", &[0, 0], b"");
        let (channel, method) = Repeats::publish_frame(&first).unwrap();
        assert_eq!((channel, method.len()), (3, 8 + 4 + 2 + 3 + 4 + 1));
        assert!(Repeats::ends_with_arguments(method));
        let (behind, end) = (&method[..method.len() - 1], [9, 9, END]);
        assert!(!Repeats::ends_with_arguments(&[behind, &end].concat()));
        for (properties, body) in
            [(&[0, 0][..], &b""[..]), (&[0x10, 0, 2], b"body"), (b"bad", b"x")]
        {
            let bytes = publish(3, 4096, "key", properties, body);
            let found = REPEATS.publish(method, &bytes).unwrap();
            assert_eq!((found.properties, found.body), (properties, body));
            assert_eq!(found.consumed, bytes.len());
            assert_eq!(found.wire.names, b"\x02ex\x03key");
            assert_eq!(Repeats::publish_names(method), Some((&b"ex"[..], &b"key"[..])));
            (0..METHOD_HEAD_BYTES + 9)
                .for_each(|end| assert_eq!(Repeats::publish_names(&method[..end]), None, "{end}"));
            assert_eq!(found.wire.frames, &bytes[method.len()..]);
            assert_eq!(found.wire.header_bytes, 20 + properties.len());
            for end in 0..bytes.len() {
                assert_eq!(REPEATS.publish(method, &bytes[..end]), None, "{end}");
            }
        }
    }

    #[test]
    fn whatever_differs_is_left_to_the_general_way() {
        let first = publish(3, 4096, "key", &[0, 0], b"");
        let (_, method) = Repeats::publish_frame(&first).unwrap();
        let large = [b'x'; 1001];
        for other in [
            publish(4, 4096, "key", &[0, 0], b"x"),
            publish(3, 4096, "kez", &[0, 0], b"x"),
            publish(3, 4096, "keys", &[0, 0], b"x"),
            publish(3, 4096, "key", &[0, 0], &large),
            publish(3, 600, "key", &[0, 0], &large[..900]),
            [method, &publish(4, 4096, "key", &[0, 0], b"x")[method.len()..]].concat(),
            [method, method].concat(),
        ] {
            assert_eq!(REPEATS.publish(method, &other), None);
        }
        let mut cut = publish(3, 4096, "key", &[0, 0], b"x");
        *cut.last_mut().unwrap() = 0;
        assert_eq!(REPEATS.publish(method, &cut), None);
    }

    #[test]
    fn frames_that_are_no_publish_or_ack_are_told_apart() {
        let mut ack = Vec::new();
        encode_ack(&mut ack, 5, 7, true);
        let arguments = basic::Ack { delivery_tag: 7, multiple: true };
        assert_eq!(Repeats::ack(&ack), Some((5, arguments, ack.len())));
        assert_eq!(Repeats::publish_frame(&ack), None);
        let bytes = publish(1, 4096, "k", &[0, 0], b"");
        assert_eq!(Repeats::ack(&bytes), None);
        assert_eq!(Repeats::publish_frame(&bytes[..15]), None);
    }
}
