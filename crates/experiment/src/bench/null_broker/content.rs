//! A whole publish in a buffer: method, header and body frames behind each other.

use lepus_amqp::frame::{END, HEAD_BYTES, OVERHEAD_BYTES};

/// Offset of the body's size in a header frame: behind head, class and weight.
const BODY_SIZE_OFFSET: usize = HEAD_BYTES + 4;

/// The frames that follow a publish's method frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Bytes of the header frame.
    pub header_bytes: usize,
    /// Bytes of header and body frames.
    pub bytes: usize,
}

/// The length of the frame at the start of `bytes`; `None` needs more bytes.
///
/// # Errors
/// When it does not end as a frame must.
#[inline]
pub fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let payload = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    match bytes.get(HEAD_BYTES + payload) {
        None => Ok(None),
        Some(&END) => Ok(Some(payload + OVERHEAD_BYTES)),
        Some(octet) => Err(format!("a frame ends with {octet}")),
    }
}

/// Measures the content at the start of `bytes`; `None` needs more bytes.
///
/// # Errors
/// When it is not a header frame and body frames.
#[inline]
pub fn measure(bytes: &[u8]) -> Result<Option<Content>, String> {
    let Some(header_bytes) = frame_bytes(bytes)? else {
        return Ok(None);
    };
    let size = bytes
        .get(BODY_SIZE_OFFSET..BODY_SIZE_OFFSET + 8)
        .filter(|_| bytes[0] == 2)
        .and_then(|size| size.first_chunk::<8>())
        .ok_or("a publish without its header frame behind it")?;
    let mut left = u64::from_be_bytes(*size) as usize;
    let mut end = header_bytes;
    while left > 0 {
        let Some(frame) = frame_bytes(&bytes[end..])? else {
            return Ok(None);
        };
        if bytes[end] != 3 {
            return Err("a body in pieces that are not next to each other".into());
        }
        left = left.saturating_sub(frame - OVERHEAD_BYTES);
        end += frame;
    }
    Ok(Some(Content { header_bytes, bytes: end }))
}

/// Appends the content, with every frame's channel replaced.
#[inline]
pub fn copy(out: &mut Vec<u8>, bytes: &[u8], content: Content, channel: u16) {
    let start = out.len();
    out.extend_from_slice(&bytes[..content.bytes]);
    let frames = &mut out[start..];
    let mut at = 0;
    while at < frames.len() {
        frames[at + 1..at + 3].copy_from_slice(&channel.to_be_bytes());
        let size = [at + 3, at + 4, at + 5, at + 6].map(|index| frames[index]);
        at += u32::from_be_bytes(size) as usize + OVERHEAD_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::frame::{FrameKind, write_frame};

    fn content(body: &[&[u8]]) -> Vec<u8> {
        let size: usize = body.iter().map(|piece| piece.len()).sum();
        let mut header = vec![0, 60, 0, 0];
        header.extend((size as u64).to_be_bytes());
        header.extend([0, 0]);
        let mut out = Vec::new();
        write_frame(&mut out, FrameKind::Header, 7, &header);
        for piece in body {
            write_frame(&mut out, FrameKind::Body, 7, piece);
        }
        out
    }

    #[test]
    fn content_is_measured_only_when_whole() {
        for pieces in 0..3 {
            let bytes = content(&[&b"abc"[..], b"d"][..pieces]);
            for end in 0..bytes.len() {
                assert_eq!(measure(&bytes[..end]), Ok(None));
            }
            let found = measure(&bytes).unwrap().unwrap();
            assert_eq!(found.bytes, bytes.len());
        }
    }

    #[test]
    fn every_frame_gets_the_new_channel() {
        let bytes = content(&[b"abc", b"d"]);
        let mut out = vec![9];
        copy(&mut out, &bytes, measure(&bytes).unwrap().unwrap(), 0x0102);
        let expected: Vec<u8> = content(&[b"abc", b"d"]);
        assert_eq!(out.len(), expected.len() + 1);
        assert_eq!(out[2..4], [1, 2]);
        assert_eq!(out.iter().filter(|byte| **byte == 7).count(), 0);
    }
}
