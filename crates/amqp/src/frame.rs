//! Frames (AMQP 0-9-1, section 2.3.5): type, channel, length, payload, end octet.

use crate::code::ReplyCode;
use crate::error::ProtocolError;
use alloc::format;
use alloc::vec::Vec;

/// Bytes in front of a payload.
pub const HEAD_BYTES: usize = 7;
/// Bytes of a frame that are not payload.
pub const OVERHEAD_BYTES: usize = 8;
/// The octet that ends every frame.
pub const END: u8 = 0xCE;
/// The smallest frame_max a peer may ask for (0 apart, which means no limit).
pub const FRAME_MAX_MIN: u32 = 4096;
/// The largest payload taken before tune-ok.
pub const HANDSHAKE_PAYLOAD_BYTES_MAX: u32 = 8192;
/// A heartbeat frame.
pub const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, END];

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A method with its arguments.
    Method = 1,
    /// A content header: class, body size, properties.
    Header = 2,
    /// A piece of a body.
    Body = 3,
    /// A sign of life.
    Heartbeat = 8,
}

impl FrameKind {
    /// The kind that stands for `octet` on the wire.
    #[must_use]
    pub fn from_octet(octet: u8) -> Option<FrameKind> {
        match octet {
            1 => Some(FrameKind::Method),
            2 => Some(FrameKind::Header),
            3 => Some(FrameKind::Body),
            8 => Some(FrameKind::Heartbeat),
            _ => None,
        }
    }
}

/// A whole frame, its payload still in the buffer it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it carries.
    pub kind: FrameKind,
    /// The channel, 0 for the connection itself.
    pub channel: u16,
    /// The payload without head and end octet.
    pub payload: &'a [u8],
}

/// The first seven bytes of a frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: FrameKind,
    pub channel: u16,
    pub payload_bytes: u32,
}

/// Decodes and checks a frame's head; `None` needs more bytes.
#[inline]
pub(crate) fn decode_head(bytes: &[u8], payload_max: u32) -> Result<Option<Head>, ProtocolError> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        // An unknown type is refused at its first octet.
        return match bytes.first() {
            Some(&octet) if FrameKind::from_octet(octet).is_none() => Err(unknown_kind(octet)),
            _ => Ok(None),
        };
    };
    let [octet, c1, c0, s3, s2, s1, s0] = *head;
    let Some(kind) = FrameKind::from_octet(octet) else {
        return Err(unknown_kind(octet));
    };
    let payload_bytes = u32::from_be_bytes([s3, s2, s1, s0]);
    if payload_bytes > payload_max {
        return Err(ProtocolError::new(
            ReplyCode::FRAME_ERROR,
            format!(
                "frame payload of {payload_bytes} bytes is larger than the limit of {payload_max}"
            ),
        ));
    }
    Ok(Some(Head { kind, channel: u16::from_be_bytes([c1, c0]), payload_bytes }))
}

#[cold]
fn unknown_kind(octet: u8) -> ProtocolError {
    ProtocolError::new(ReplyCode::FRAME_ERROR, format!("unknown frame type {octet}"))
}

#[cold]
pub(crate) fn wrong_end(octet: u8) -> ProtocolError {
    ProtocolError::new(
        ReplyCode::FRAME_ERROR,
        format!("frame ends with octet {octet} instead of {END}"),
    )
}

/// Decodes the frame at the start of `bytes` and tells how many bytes it takes; `None` needs more.
///
/// # Errors
/// `FRAME_ERROR` (501) for an unknown type, a payload larger than `payload_max` bytes and a wrong
/// end octet.
#[inline]
pub fn decode(bytes: &[u8], payload_max: u32) -> Result<Option<(Frame<'_>, usize)>, ProtocolError> {
    let Some(head) = decode_head(bytes, payload_max)? else {
        return Ok(None);
    };
    let end = HEAD_BYTES + head.payload_bytes as usize;
    let Some(&octet) = bytes.get(end) else {
        return Ok(None);
    };
    if octet != END {
        return Err(wrong_end(octet));
    }
    let frame = Frame { kind: head.kind, channel: head.channel, payload: &bytes[HEAD_BYTES..end] };
    Ok(Some((frame, end + 1)))
}

/// Appends a frame.
pub fn write_frame(out: &mut Vec<u8>, kind: FrameKind, channel: u16, payload: &[u8]) {
    out.reserve(payload.len() + OVERHEAD_BYTES);
    write_head(out, kind, channel, payload.len());
    out.extend_from_slice(payload);
    out.push(END);
}

/// Appends a heartbeat.
pub fn write_heartbeat(out: &mut Vec<u8>) {
    out.extend_from_slice(&HEARTBEAT);
}

/// Appends the head of a frame of `payload_bytes`; the payload and [`END`] must follow.
#[inline]
pub fn write_head(out: &mut Vec<u8>, kind: FrameKind, channel: u16, payload_bytes: usize) {
    let [c1, c0] = channel.to_be_bytes();
    let [s3, s2, s1, s0] = (payload_bytes as u32).to_be_bytes();
    out.extend_from_slice(&[kind as u8, c1, c0, s3, s2, s1, s0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_decoded_once_it_is_whole() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, FrameKind::Body, 0x0203, b"abc");
        assert_eq!(bytes, b"\x03\x02\x03\0\0\0\x03abc\xce");
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], 3), Ok(None));
        }
        bytes.push(1);
        let frame = Frame { kind: FrameKind::Body, channel: 0x0203, payload: b"abc" };
        assert_eq!(decode(&bytes, 3), Ok(Some((frame, 11))));
    }

    #[test]
    fn malformed_frames_are_refused_as_soon_as_they_show() {
        let code = |bytes: &[u8]| decode(bytes, 3).unwrap_err().code;
        assert_eq!(code(b"\x04"), ReplyCode::FRAME_ERROR);
        assert_eq!(code(b"\x03\0\x01\0\0\0\x04"), ReplyCode::FRAME_ERROR);
        assert_eq!(code(b"\x03\0\x01\0\0\0\x01a\0"), ReplyCode::FRAME_ERROR);
    }

    #[test]
    fn a_heartbeat_is_eight_octets() {
        let mut bytes = Vec::new();
        write_heartbeat(&mut bytes);
        assert_eq!(bytes, b"\x08\0\0\0\0\0\0\xce");
    }
}
