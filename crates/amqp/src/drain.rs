//! What still comes in after `connection.close` was sent: everything is skipped but the two
//! methods that end a connection.

use crate::frame::{self, FrameKind, HANDSHAKE_PAYLOAD_BYTES_MAX, HEAD_BYTES};
use crate::method::{Method, connection};
use alloc::vec::Vec;

/// What was found among the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    Nothing,
    /// The peer closes as well and wants its answer.
    Close,
    /// The peer agrees.
    CloseOk,
}

/// Skips frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    /// Bytes that belong to the frame under way.
    skip: u64,
    /// Where frames start is not known any more.
    is_lost: bool,
}

impl Drain {
    /// Starts inside a frame that has `skip` bytes left.
    pub fn new(skip: u64, is_lost: bool) -> Drain {
        Drain { skip, is_lost }
    }

    /// Takes bytes and tells how many. None are taken when a frame is not whole.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Drained) {
        if self.is_lost {
            return (bytes.len(), last_frame(bytes));
        }
        if self.skip > 0 {
            let count = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= count as u64;
            return (count, Drained::Nothing);
        }
        let Ok(head) = frame::decode_head(bytes, u32::MAX) else {
            self.is_lost = true;
            return (bytes.len(), last_frame(bytes));
        };
        let Some(head) = head else {
            return (0, Drained::Nothing);
        };
        if head.kind != FrameKind::Method
            || head.channel != 0
            || head.payload_bytes > HANDSHAKE_PAYLOAD_BYTES_MAX
        {
            self.skip = u64::from(head.payload_bytes) + 1;
            return (HEAD_BYTES, Drained::Nothing);
        }
        match frame::decode(bytes, u32::MAX) {
            Ok(None) => (0, Drained::Nothing),
            Err(_) => {
                self.is_lost = true;
                (bytes.len(), last_frame(bytes))
            }
            Ok(Some((frame, consumed))) => {
                let drained = match Method::decode(frame.payload) {
                    Ok(Method::ConnectionClose(_)) => Drained::Close,
                    Ok(Method::ConnectionCloseOk(_)) => Drained::CloseOk,
                    _ => Drained::Nothing,
                };
                (consumed, drained)
            }
        }
    }
}

/// A peer that says nothing more ends with close-ok; among bytes without order that is what shows.
fn last_frame(bytes: &[u8]) -> Drained {
    let mut close_ok = Vec::new();
    Method::from(connection::CloseOk {}).encode_frame(0, &mut close_ok);
    if bytes.ends_with(&close_ok) { Drained::CloseOk } else { Drained::Nothing }
}
