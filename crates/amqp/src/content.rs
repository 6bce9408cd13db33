//! A content: the method that announces it, a header frame and body frames (section 4.2.6).

use crate::frame::{END, FrameKind, HEAD_BYTES};
use alloc::vec::Vec;

/// A content that is not whole yet is waited for in the caller's buffer up to this size, so that it
/// can be borrowed; larger ones are assembled piece by piece.
pub(crate) const WAIT_BYTES_MAX: usize = 16 * 1024;
/// Head of a header frame and the fixed fields: class, weight, body size.
const HEADER_BYTES: usize = HEAD_BYTES + 12;

/// A content that was assembled from several reads or body frames, in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentOwned {
    /// The method's payload, the properties and the body, one behind the other.
    pub bytes: Vec<u8>,
    pub method_end: usize,
    pub properties_end: usize,
}

impl ContentOwned {
    /// The method's payload, class and method number included.
    pub fn method(&self) -> &[u8] {
        self.bytes.get(..self.method_end).unwrap_or_default()
    }

    /// Appends bytes behind which `rest` more are to come, and tells by how many bytes the memory
    /// taken has grown: never to more than twice of what came, nor beyond all that is to come, nor
    /// by more than `room` unless these bytes need it.
    pub fn append(&mut self, bytes: &[u8], rest: u64, room: usize) -> usize {
        let before = self.bytes.capacity();
        let needed = self.bytes.len() + bytes.len();
        if needed > before {
            let whole = needed.saturating_add(usize::try_from(rest).unwrap_or(usize::MAX));
            let ample = needed.max(before.saturating_mul(2)).min(whole);
            let target = if ample - before <= room { ample } else { needed };
            self.bytes.reserve_exact(target - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        self.bytes.capacity() - before
    }

    pub fn properties(&self) -> &[u8] {
        let range = self.method_end..self.properties_end;
        self.bytes.get(range).unwrap_or_default()
    }

    pub fn body(&self) -> &[u8] {
        self.bytes.get(self.properties_end..).unwrap_or_default()
    }
}

/// A content whose frames lie whole and in order in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contiguous<'a> {
    pub channel: u16,
    /// The arguments of the method, without class and method number.
    pub arguments: &'a [u8],
    pub properties: &'a [u8],
    pub body: &'a [u8],
    /// Bytes of all its frames.
    pub consumed: usize,
}

/// What [`contiguous`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// A content with at most one body frame.
    Whole(Contiguous<'a>),
    /// The beginning of one on this channel that is small enough to wait for.
    Wait(u16),
    /// Anything else, correct or not: to be taken frame by frame.
    No,
}

/// Looks for a content of `method_id` of class basic at the start of `bytes`.
#[inline]
pub(crate) fn contiguous(
    bytes: &[u8],
    method_id: u8,
    payload_max: u32,
    body_bytes_max: u64,
) -> Found<'_> {
    const METHOD: u8 = FrameKind::Method as u8;

    let Some(&[METHOD, c1, c0, s3, s2, s1, s0, 0, 60, 0, method]) = bytes.first_chunk() else {
        return Found::No;
    };
    let size = u32::from_be_bytes([s3, s2, s1, s0]);
    if method != method_id || size > payload_max || size < 4 {
        return Found::No;
    }
    let method_end = HEAD_BYTES + size as usize;
    let Some((method_frame, rest)) = bytes.split_at_checked(method_end + 1) else {
        return Found::No;
    };
    if method_frame[method_end] != END {
        return Found::No;
    }
    let channel = u16::from_be_bytes([c1, c0]);
    match following(rest, [c1, c0], payload_max, body_bytes_max) {
        Following::Whole(content) => Found::Whole(Contiguous {
            channel,
            arguments: &method_frame[HEAD_BYTES + 4..method_end],
            properties: content.properties,
            body: content.body,
            consumed: method_end + 1 + content.frames.len(),
        }),
        Following::Begun if bytes.len() < WAIT_BYTES_MAX => Found::Wait(channel),
        Following::Begun | Following::Other => Found::No,
    }
}

/// The frames of a content behind its method's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames<'a> {
    /// All of them as they came: the header's and at most one of a body.
    pub frames: &'a [u8],
    pub properties: &'a [u8],
    pub body: &'a [u8],
}

/// What [`following`] found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Following<'a> {
    /// Header and body with at most one body frame.
    Whole(Frames<'a>),
    /// The beginning of that, with a body small enough to wait for.
    Begun,
    /// Anything else.
    Other,
}

/// Looks for header and body of a content at the start of `bytes`.
#[inline]
pub(crate) fn following(
    bytes: &[u8],
    channel: [u8; 2],
    payload_max: u32,
    body_bytes_max: u64,
) -> Following<'_> {
    const HEADER: u8 = FrameKind::Header as u8;
    const BODY: u8 = FrameKind::Body as u8;

    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return match bytes.first() {
            None | Some(&HEADER) => Following::Begun,
            Some(_) => Following::Other,
        };
    };
    let &[HEADER, h1, h0, s3, s2, s1, s0, 0, 60, 0, 0, ref body_size @ ..] = header else {
        return Following::Other;
    };
    let size = u32::from_be_bytes([s3, s2, s1, s0]);
    if [h1, h0] != channel || size > payload_max || size < 12 {
        return Following::Other;
    }
    let header_end = HEAD_BYTES + size as usize;
    let Some((header_frame, rest)) = bytes.split_at_checked(header_end + 1) else {
        return Following::Begun;
    };
    if header_frame[header_end] != END {
        return Following::Other;
    }
    let properties = &header_frame[HEADER_BYTES..header_end];
    let body_size = u64::from_be_bytes(*body_size);
    if body_size == 0 {
        return Following::Whole(Frames { frames: header_frame, properties, body: &[] });
    }
    if body_size > body_bytes_max || body_size > u64::from(payload_max) {
        return Following::Other;
    }
    let body_bytes = body_size as usize;
    let Some((body_head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else {
        return match rest.first() {
            None | Some(&BODY) if body_bytes < WAIT_BYTES_MAX => Following::Begun,
            _ => Following::Other,
        };
    };
    let &[BODY, b1, b0, s3, s2, s1, s0] = body_head else {
        return Following::Other;
    };
    if [b1, b0] != channel || u32::from_be_bytes([s3, s2, s1, s0]) as usize != body_bytes {
        return Following::Other;
    }
    let Some((body, &[end, ..])) = rest.split_at_checked(body_bytes) else {
        return if body_bytes < WAIT_BYTES_MAX { Following::Begun } else { Following::Other };
    };
    if end != END {
        return Following::Other;
    }
    let frames = &bytes[..header_end + 1 + HEAD_BYTES + body_bytes + 1];
    Following::Whole(Frames { frames, properties, body })
}
