//! A message on its way into queues, and its packed form in the shard's body pool.
//!
//! A packed message is `u8` length of the exchange's name, `u8` length of the routing key, `u32`
//! little-endian length of the properties, then exchange, routing key, properties and payload.
//! All queues of a shard that keep a message share one packed body.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;
use lepus_base::pool::SHARED_BODY_BYTES_MAX;
use lepus_base::{Body, Pool};

/// Payloads of at least this size are sent from where they are stored, as the socket takes them, in bytes.
pub const LARGE_BODY_BYTES_MIN: usize = 32 * 1024;
/// Payloads of at least this size, in bytes, are not even encoded at once for one consumer that alone gets them.
pub const COPIED_BYTES_MAX: usize = 256 * 1024;
/// An allocation is taken as it is if no more than this share of it is in front of the message.
const UNUSED_SHARE: usize = 64;
/// Bytes before the exchange's name in a packed message.
const PREFIX_BYTES: usize = 6;

/// A message's names and content as its publisher sent them, for a session that can send them on like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire<'a> {
    /// Exchange and routing key, each behind its length in a byte.
    pub names: &'a [u8],
    /// Properties and body, framed.
    pub frames: &'a [u8],
    /// Of the frames, bytes before the body's first.
    pub header_bytes: usize,
}

/// The parts of a message, borrowed from a connection's input or from a packed body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageView<'a> {
    /// Name of the exchange it was published to, at most 255 bytes.
    pub exchange: &'a [u8],
    /// Routing key, at most 255 bytes.
    pub routing_key: &'a [u8],
    /// Properties as they came: flags word and list of the content header.
    pub properties: &'a [u8],
    /// Payload.
    pub body: &'a [u8],
    /// How it lies in memory, where more is known of that.
    pub layout: Layout<'a>,
}

/// How the parts of a message lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout<'a> {
    /// Each somewhere.
    #[default]
    Parts,
    /// All of it as it came.
    Wire(Wire<'a>),
    /// Packed, from that byte on to the end.
    Packed(&'a Arc<Vec<u8>>, usize),
}

impl<'a> MessageView<'a> {
    /// A message of which nothing is known.
    const EMPTY: MessageView<'static> = MessageView {
        exchange: &[],
        routing_key: &[],
        properties: &[],
        body: &[],
        layout: Layout::Parts,
    };

    /// Stores the message with one reference. Names beyond 255 bytes are cut: the protocol's short
    /// strings cannot be longer.
    pub fn pack(&self, pool: &mut Pool) -> Body {
        if let Layout::Packed(bytes, start) = self.layout
            && bytes.len() - start > SHARED_BODY_BYTES_MAX
            && start <= bytes.len() / UNUSED_SHARE
        {
            return pool.adopt(bytes, start);
        }
        let exchange = &self.exchange[..self.exchange.len().min(255)];
        let routing_key = &self.routing_key[..self.routing_key.len().min(255)];
        let properties = u32::try_from(self.properties.len()).unwrap_or(u32::MAX);
        let length = properties.to_le_bytes();
        let prefix: [u8; PREFIX_BYTES] = [
            exchange.len() as u8,
            routing_key.len() as u8,
            length[0],
            length[1],
            length[2],
            length[3],
        ];
        pool.insert_behind(prefix, &[exchange, routing_key, self.properties, self.body])
    }

    /// Appends the packed message to `out` and says where it stands.
    pub fn append_packed(&self, out: &mut Vec<u8>) -> Range<u32> {
        let exchange = &self.exchange[..self.exchange.len().min(255)];
        let routing_key = &self.routing_key[..self.routing_key.len().min(255)];
        let properties = u32::try_from(self.properties.len()).unwrap_or(u32::MAX);
        let start = out.len() as u32;
        out.reserve(PREFIX_BYTES + 510 + self.properties.len() + self.body.len());
        out.push(exchange.len() as u8);
        out.push(routing_key.len() as u8);
        out.extend_from_slice(&properties.to_le_bytes());
        out.extend_from_slice(exchange);
        out.extend_from_slice(routing_key);
        out.extend_from_slice(self.properties);
        out.extend_from_slice(self.body);
        start..out.len() as u32
    }

    /// The parts of a packed message. Bytes that are no packed message give empty parts.
    #[must_use]
    pub fn unpack(bytes: &'a [u8]) -> MessageView<'a> {
        Self::split(bytes).unwrap_or_default()
    }

    fn split(bytes: &'a [u8]) -> Option<MessageView<'a>> {
        let (prefix, rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
        let [exchange, routing_key, length @ ..] = *prefix;
        let (exchange, rest) = rest.split_at_checked(exchange.into())?;
        let (routing_key, rest) = rest.split_at_checked(routing_key.into())?;
        let (properties, body) = rest.split_at_checked(u32::from_le_bytes(length) as usize)?;
        Some(MessageView { exchange, routing_key, properties, body, layout: Layout::Parts })
    }
}

/// A message offered to queues, one after the other.
///
/// It is packed when the first queue has to keep it and shared from then on. Whoever made it calls
/// [`Incoming::finish`] after the last queue.
#[derive(Debug)]
pub struct Incoming<'a> {
    view: Option<MessageView<'a>>,
    /// One reference that belongs to this value, while it is `Some`.
    stored: Option<Body>,
    bytes: u32,
    /// Whether it must survive a restart in durable queues (delivery-mode 2).
    pub persistent: bool,
    /// Property `priority`; 0 when absent.
    pub priority: u8,
    /// Property `expiration`, decoded.
    pub expiration: Option<Duration>,
    /// Set before it is offered to the last (or only) queue, which then takes the reference over.
    pub last: bool,
}

impl<'a> Incoming<'a> {
    /// A transient message of priority 0 without expiration.
    #[must_use]
    pub fn new(view: MessageView<'a>) -> Incoming<'a> {
        Incoming {
            bytes: u32::try_from(view.body.len()).unwrap_or(u32::MAX),
            view: Some(view),
            ..Incoming::empty()
        }
    }

    /// A message that is packed already. `body` brings one reference, which belongs to the result;
    /// `bytes` is the size of the payload.
    #[must_use]
    pub fn from_body(body: Body, bytes: u32) -> Incoming<'static> {
        Incoming { bytes, stored: Some(body), ..Incoming::empty() }
    }

    fn empty() -> Incoming<'a> {
        Incoming {
            view: None,
            stored: None,
            bytes: 0,
            persistent: false,
            priority: 0,
            expiration: None,
            last: false,
        }
    }

    /// Size of the payload in bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The borrowed parts, unless the message came packed.
    #[must_use]
    pub fn view(&self) -> Option<&MessageView<'a>> {
        self.view.as_ref()
    }

    /// The packed form, if some queue asked for it before and others are to follow.
    #[must_use]
    pub fn stored(&self) -> Option<Body> {
        self.stored
    }

    /// One reference for the caller. Packs the message unless that was done before.
    #[inline]
    pub fn keep(&mut self, pool: &mut Pool) -> Body {
        match self.stored {
            Some(body) if self.last => {
                self.stored = None;
                body
            }
            Some(body) => {
                pool.retain(body);
                body
            }
            None => {
                let body = self.view.as_ref().unwrap_or(&MessageView::EMPTY).pack(pool);
                if !self.last {
                    pool.retain(body);
                    self.stored = Some(body);
                }
                body
            }
        }
    }

    /// Ends the offering: gives the reference back that no queue took over.
    pub fn finish(self, pool: &mut Pool) {
        if let Some(body) = self.stored {
            pool.release(body);
        }
    }
}

/// The message that an item's range points at.
#[must_use]
pub fn packed(bytes: &[u8], range: Range<u32>) -> MessageView<'_> {
    let Some(packed) = bytes.get(range.start as usize..range.end as usize) else {
        invariant!("a batch has the messages that its mail names")
    };
    MessageView::unpack(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const VIEW: MessageView<'static> = MessageView {
        exchange: b"amq.topic",
        routing_key: b"a.b",
        properties: &[0, 0],
        body: b"payload",
        layout: Layout::Parts,
    };

    #[test]
    fn a_packed_message_unpacks_to_the_same_parts() {
        let mut pool = Pool::new();
        let body = VIEW.pack(&mut pool);
        assert_eq!(MessageView::unpack(pool.get(body)), VIEW);
        let long = vec![b'x'; 255];
        let view = MessageView { exchange: &long, routing_key: &long, ..MessageView::default() };
        let body = view.pack(&mut pool);
        assert_eq!(MessageView::unpack(pool.get(body)), view);
    }

    #[test]
    fn a_large_message_in_an_allocation_of_its_own_is_not_copied() {
        let large = SHARED_BODY_BYTES_MAX;
        for (size, start, is_adopted) in
            [(large, 3, true), (large, 1000, true), (100, 3, false), (large, 2000, false)]
        {
            let payload = vec![7; size];
            let mut bytes = vec![0; start];
            let _ = MessageView { body: &payload, ..VIEW }.append_packed(&mut bytes);
            let bytes = Arc::new(bytes);
            let layout = Layout::Packed(&bytes, start);
            let view = MessageView { layout, ..MessageView::unpack(&bytes[start..]) };
            let mut pool = Pool::new();
            let body = view.pack(&mut pool);
            assert_eq!(pool.get(body), &bytes[start..]);
            let is_same = core::ptr::eq(pool.get(body), &bytes[start..]);
            assert_eq!(is_same, is_adopted, "{size} bytes behind {start}");
        }
    }

    #[test]
    fn bytes_that_are_no_packed_message_give_empty_parts() {
        for bytes in [&b""[..], b"\x01", b"\x05\x00\x00\x00\x00\x00abc"] {
            assert_eq!(MessageView::unpack(bytes), MessageView::default());
        }
    }

    #[test]
    fn queues_share_one_body_and_the_last_one_takes_it_over() {
        let mut pool = Pool::new();
        let mut incoming = Incoming::new(VIEW);
        let first = incoming.keep(&mut pool);
        incoming.last = true;
        let second = incoming.keep(&mut pool);
        incoming.finish(&mut pool);
        assert_eq!((first, pool.len()), (second, 1));
        pool.release(first);
        assert_eq!(pool.len(), 1);
        pool.release(second);
        assert!(pool.is_empty());
    }

    #[test]
    fn a_message_outlives_the_first_queue_that_dropped_it() {
        let mut pool = Pool::new();
        let mut incoming = Incoming::new(VIEW);
        let first = incoming.keep(&mut pool);
        pool.release(first);
        let second = incoming.keep(&mut pool);
        assert_eq!(MessageView::unpack(pool.get(second)), VIEW);
        pool.release(second);
        incoming.finish(&mut pool);
        assert!(pool.is_empty());
    }

    #[test]
    fn a_message_for_one_queue_leaves_nothing_behind() {
        let mut pool = Pool::new();
        let mut incoming = Incoming::new(VIEW);
        incoming.last = true;
        let only = incoming.keep(&mut pool);
        incoming.finish(&mut pool);
        pool.release(only);
        assert!(pool.is_empty());

        let body = VIEW.pack(&mut pool);
        Incoming::from_body(body, 7).finish(&mut pool);
        assert!(pool.is_empty());
    }
}
