//! Bytes on their way to one client.
//!
//! Frames are encoded when they come up, but for large bodies: a body that many clients read
//! slowly must not lie encoded in every one of their buffers, and to encode it for all of them is
//! more than one turn is for. Such a body stays in the shard's pool, and its frames are encoded
//! piece by piece as the socket takes them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::{Body, Pool};

pub use crate::message::LARGE_BODY_BYTES_MIN;

/// Payload bytes of a large body that are encoded in one go; no more is encoded while so much is not sent: what
/// lies encoded takes memory for each of those that get it.
const PIECE_BYTES: usize = 64 * 1024;
/// A frame of no more than this is encoded whole, though it is more than such a piece: as large as agreed.
const FRAME_BYTES_MAX: usize = 128 * 1024;
/// Capacity that an idle buffer may keep, in bytes.
const SMALL_BYTES: usize = 1024;
/// Capacity that an empty buffer keeps, in bytes.
const KEPT_BYTES_MAX: usize = 512 * 1024;

/// Bytes on their way to a client.
#[derive(Debug, Default)]
pub struct SendBuffer {
    /// Where frames are appended. The part before `start` is sent. While large bodies are on
    /// their way, these are the bytes that come behind the last of them.
    pub bytes: Vec<u8>,
    start: usize,
    /// `None` unless a large body is on its way.
    streams: Option<Box<Streams>>,
}

/// Large bodies on their way. There is a body, or something encoded that is not sent.
#[derive(Debug, Default)]
struct Streams {
    /// Frames that go first; the part before `start` is sent.
    encoded: Vec<u8>,
    start: usize,
    /// What comes behind these.
    queue: VecDeque<Stream>,
    /// Bytes in front of bodies that wait in the queue.
    heads: usize,
    /// Payload bytes of all bodies that are not encoded.
    waiting: usize,
}

/// A large body, and what is sent before it.
#[derive(Debug)]
struct Stream {
    head: Vec<u8>,
    /// One reference to the packed message.
    body: Body,
    /// The next payload byte to encode, in the packed message. The payload ends with it.
    next: usize,
    /// Payload bytes that are not encoded.
    waiting: usize,
    channel: u16,
}

/// Who knows how the parts of a body are sent.
pub trait Parts {
    /// Bytes of a body that fit one part, 0 or very many where there is no such thing.
    fn part_bytes_max(&self) -> usize;
    /// Appends some bytes of a body, in as many parts as they need.
    fn append_part(&self, channel: u16, part: &[u8], out: &mut Vec<u8>);
}

impl Streams {
    /// Bytes that are encoded and not sent.
    fn unsent(&self) -> usize {
        self.encoded.len() - self.start
    }

    /// Encodes what comes next, as long as little is encoded.
    fn fill(&mut self, pool: &mut Pool, parts: &impl Parts) {
        while self.unsent() < PIECE_BYTES
            && let Some(stream) = self.queue.front_mut()
        {
            self.encoded.extend_from_slice(&stream.head);
            self.heads -= stream.head.len();
            stream.head = Vec::new();
            let packed = pool.get(stream.body);
            let end = packed.len().min(stream.next + piece_bytes(parts.part_bytes_max()));
            let piece = &packed[stream.next..end];
            parts.append_part(stream.channel, piece, &mut self.encoded);
            self.waiting -= piece.len();
            stream.waiting -= piece.len();
            stream.next = end;
            if end == packed.len() {
                pool.release(stream.body);
                self.queue.pop_front();
            }
        }
    }
}

impl SendBuffer {
    /// Takes memory of the calling thread: the old shard's would grow where that shard's heap is, with pages that
    /// are near this one.
    pub fn reallocate(&mut self) {
        self.bytes = self.bytes.clone();
    }

    /// What is to be sent next. Behind [`SendBuffer::encode_next`] it is empty only when nothing is left.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        match &self.streams {
            None => &self.bytes[self.start..],
            Some(streams) => &streams.encoded[streams.start..],
        }
    }

    /// Encodes the next piece of what is on its way, and with the last one what comes behind it.
    pub fn encode_next(&mut self, pool: &mut Pool, parts: &impl Parts) {
        let Some(streams) = &mut self.streams else { return };
        streams.fill(pool, parts);
        if streams.queue.is_empty() && streams.unsent() + self.bytes.len() <= PIECE_BYTES {
            // It goes with the same write. What comes later finds a small buffer, not one that has to grow.
            streams.encoded.append(&mut self.bytes);
        }
    }

    /// Number of bytes left to send, payloads of large bodies included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.streams {
            None => self.bytes.len() - self.start,
            Some(streams) => self.encoded() + streams.waiting,
        }
    }

    /// Number of bytes left to send behind the large body that is on its way, if one is.
    #[inline]
    #[must_use]
    pub fn backlog(&self) -> usize {
        match &self.streams {
            None => self.bytes.len() - self.start,
            Some(_) => self.len() - self.first_waiting(),
        }
    }

    /// Payload bytes that are not encoded of the first large body.
    fn first_waiting(&self) -> usize {
        let first = self.streams.as_ref().and_then(|streams| streams.queue.front());
        first.map_or(0, |stream| stream.waiting)
    }

    /// Number of bytes left to send that are encoded: what the buffer itself holds.
    #[must_use]
    pub fn encoded(&self) -> usize {
        let streams = self.streams.as_ref();
        let before = streams.map_or(0, |streams| streams.unsent() + streams.heads);
        before + self.bytes.len() - self.start
    }

    /// Bytes of memory that the buffer takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let streams = self.streams.as_ref();
        let before = streams.map_or(0, |streams| {
            let queue = streams.queue.capacity() * size_of::<Stream>();
            streams.encoded.capacity() + streams.heads + queue
        });
        before + self.bytes.capacity()
    }

    /// Whether everything is sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_none() && self.start == self.bytes.len()
    }

    /// Whether a large body is on its way.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.streams.is_some()
    }

    /// Sends the rest of a packed message, from payload byte `next` on, behind everything that was
    /// appended so far: the content's method and header frames. Takes over one reference.
    pub fn stream(&mut self, body: Body, next: usize, channel: u16, pool: &Pool) {
        let mut head = core::mem::take(&mut self.bytes);
        let start = core::mem::take(&mut self.start);
        let streams = match &mut self.streams {
            Some(streams) => streams,
            empty => {
                let encoded = core::mem::take(&mut head);
                empty.insert(Box::new(Streams { encoded, start, ..Streams::default() }))
            }
        };
        let waiting = pool.get(body).len() - next;
        streams.heads += head.len();
        streams.waiting += waiting;
        streams.queue.push_back(Stream { head, body, next, waiting, channel });
    }

    /// The socket took `count` bytes.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        if self.streams.is_some() {
            return self.advance_streams(count);
        }
        self.start = (self.start + count).min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else if self.start > self.bytes.len() - self.start {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
    }

    fn advance_streams(&mut self, count: usize) {
        let Some(streams) = &mut self.streams else { return };
        streams.start = (streams.start + count).min(streams.encoded.len());
        let left = streams.unsent();
        if left == 0 && streams.queue.is_empty() {
            self.streams = None;
        } else if streams.start > left {
            streams.encoded.copy_within(streams.start.., 0);
            streams.encoded.truncate(left);
            streams.start = 0;
        }
    }

    /// Drops what is left but for the frames of a large body that are encoded already, so that a
    /// last method can follow them.
    pub fn cut(&mut self, pool: &mut Pool) {
        let Some(streams) = self.streams.take() else { return };
        (self.bytes, self.start) = (streams.encoded, streams.start);
        for stream in streams.queue {
            pool.release(stream.body);
        }
    }

    /// Drops everything and gives the memory back.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.cut(pool);
        self.bytes = Vec::new();
        self.start = 0;
    }

    /// Whether it takes memory worth giving back.
    #[inline]
    #[must_use]
    pub fn is_trimmable(&self) -> bool {
        self.bytes.capacity() > SMALL_BYTES
    }

    /// Gives spare memory back.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
            self.start = 0;
        }
    }
}

/// Payload bytes encoded in one go: whole frames.
fn piece_bytes(part_bytes_max: usize) -> usize {
    match part_bytes_max {
        0 => PIECE_BYTES,
        payload if payload > FRAME_BYTES_MAX => PIECE_BYTES,
        payload if payload > PIECE_BYTES => payload,
        payload => PIECE_BYTES / payload * payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageView;
    use alloc::vec;
    use lepus_amqp::frame::{self, OVERHEAD_BYTES};
    use lepus_amqp::server::encode_body_frames;

    /// Frames of this length at most.
    struct Frames(u32);

    impl Parts for Frames {
        fn part_bytes_max(&self) -> usize {
            self.0 as usize - OVERHEAD_BYTES
        }

        fn append_part(&self, channel: u16, part: &[u8], out: &mut Vec<u8>) {
            encode_body_frames(out, channel, self.0, part);
        }
    }

    fn packed(pool: &mut Pool, size: usize) -> (Body, usize, Vec<u8>) {
        let payload: Vec<u8> = (0..size).map(|place| (place / 7) as u8).collect();
        let view = MessageView { body: &payload, properties: &[0, 0], ..MessageView::default() };
        let body = view.pack(pool);
        let next = pool.get(body).len() - size;
        (body, next, payload)
    }

    /// Sends everything, `step` bytes at a time at most, and gives what was sent.
    fn drain(buffer: &mut SendBuffer, pool: &mut Pool, parts: &impl Parts, step: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while !buffer.is_empty() {
            buffer.encode_next(pool, parts);
            let count = buffer.unsent().len().min(step);
            assert!(count > 0);
            assert!(buffer.len() >= count);
            sent.extend_from_slice(&buffer.unsent()[..count]);
            buffer.advance(count);
            assert!(buffer.encoded() <= PIECE_BYTES + FRAME_BYTES_MAX);
            assert!(buffer.encoded() <= buffer.backlog() && buffer.backlog() <= buffer.len());
        }
        assert_eq!(buffer.len(), 0);
        sent
    }

    fn payload_of(mut bytes: &[u8], frame_max: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        while !bytes.is_empty() {
            let (frame, used) = frame::decode(bytes, frame_max).unwrap().unwrap();
            assert!(used <= frame_max as usize);
            payload.extend_from_slice(frame.payload);
            bytes = &bytes[used..];
        }
        payload
    }

    #[test]
    fn large_bodies_come_out_whole_and_in_order() {
        let cases = [(1000, 4096), (65_536, 131_072), (usize::MAX, 4096), (usize::MAX, 131_072)];
        for (step, frame_max) in cases {
            let mut pool = Pool::new();
            let mut buffer = SendBuffer::default();
            let (body, next, payload) = packed(&mut pool, 1_000_000);
            buffer.bytes.extend_from_slice(b"before");
            buffer.advance(2);
            buffer.stream(body, next, 7, &pool);
            buffer.bytes.extend_from_slice(b"between");
            pool.retain(body);
            buffer.stream(body, next, 8, &pool);
            buffer.bytes.extend_from_slice(b"behind");
            let sent = drain(&mut buffer, &mut pool, &Frames(frame_max), step);
            let rest = sent.strip_prefix(b"fore").unwrap().strip_suffix(b"behind").unwrap();
            let middle = rest.windows(7).position(|window| window == b"between").unwrap();
            assert_eq!(payload_of(&rest[..middle], frame_max), payload);
            assert_eq!(payload_of(&rest[middle + 7..], frame_max), payload);
            assert!(pool.is_empty());
        }
    }

    /// Parts without a header, of any length, which is told as `0` or as very many bytes.
    struct Plain(usize);

    impl Parts for Plain {
        fn part_bytes_max(&self) -> usize {
            self.0
        }

        fn append_part(&self, _: u16, part: &[u8], out: &mut Vec<u8>) {
            assert!(part.len() <= PIECE_BYTES, "{} bytes in one go", part.len());
            out.extend_from_slice(part);
        }
    }

    #[test]
    fn without_a_limit_of_parts_a_body_is_encoded_piece_by_piece_as_well() {
        for part_bytes_max in [0, FRAME_BYTES_MAX + 1, usize::MAX] {
            let parts = Plain(part_bytes_max);
            for step in [1000, usize::MAX] {
                let mut pool = Pool::new();
                let mut buffer = SendBuffer::default();
                let (body, next, payload) = packed(&mut pool, 200_001);
                buffer.bytes.extend_from_slice(b"head");
                buffer.stream(body, next, 7, &pool);
                buffer.encode_next(&mut pool, &parts);
                assert_eq!(buffer.unsent().len(), b"head".len() + PIECE_BYTES);
                let sent = drain(&mut buffer, &mut pool, &parts, step);
                assert_eq!(sent.strip_prefix(b"head").unwrap(), payload);
                assert!(pool.is_empty());
            }
        }
    }

    #[test]
    fn a_piece_is_of_whole_parts_unless_a_part_is_very_large() {
        for (part_bytes_max, expected) in [
            (1, PIECE_BYTES),
            (4000, 16 * 4000),
            (PIECE_BYTES, PIECE_BYTES),
            (PIECE_BYTES + 1, PIECE_BYTES + 1),
            (FRAME_BYTES_MAX, FRAME_BYTES_MAX),
            (FRAME_BYTES_MAX + 1, PIECE_BYTES),
        ] {
            assert_eq!(piece_bytes(part_bytes_max), expected, "{part_bytes_max} bytes in a part");
        }
    }

    #[test]
    fn a_cut_leaves_whole_frames_and_releases_the_bodies() {
        let mut pool = Pool::new();
        let mut buffer = SendBuffer::default();
        let (body, next, _) = packed(&mut pool, 1_000_000);
        pool.retain(body);
        buffer.bytes.extend_from_slice(b"head");
        buffer.stream(body, next, 7, &pool);
        buffer.stream(body, next, 7, &pool);
        buffer.bytes.extend_from_slice(b"behind");
        buffer.encode_next(&mut pool, &Frames(4096));
        assert_eq!(buffer.unsent().len() - 4, PIECE_BYTES);
        buffer.advance(4);
        buffer.advance(100);
        buffer.cut(&mut pool);
        assert!(pool.is_empty());
        buffer.bytes.extend_from_slice(&frame::HEARTBEAT);
        let mut sent = vec![0; 100];
        let payload: Vec<u8> =
            (0..piece_bytes(4096 - OVERHEAD_BYTES)).map(|place| (place / 7) as u8).collect();
        let mut whole = Vec::new();
        encode_body_frames(&mut whole, 7, 4096, &payload);
        sent.copy_from_slice(&whole[..100]);
        sent.extend(drain(&mut buffer, &mut pool, &Frames(4096), usize::MAX));
        let frames = sent.strip_suffix(&frame::HEARTBEAT).unwrap();
        assert_eq!(payload_of(frames, 4096), payload);
        buffer.bytes.extend_from_slice(b"x");
        buffer.clear(&mut pool);
        assert!(buffer.is_empty());
    }
}
