//! Bytes on their way to one client.
//!
//! Frames are encoded when they come up, but for large bodies: a body that many clients read
//! slowly must not lie encoded in every one of their buffers, and to encode it for all of them is
//! more than one turn is for. Such a body stays in the shard's pool, and the socket is given its
//! bytes from there, part by part, with what the protocol has around each. Short parts are copied:
//! many of them go with one write.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lepus_base::{Body, Pool, Slices};

pub use crate::message::LARGE_BODY_BYTES_MIN;

/// Bytes of short parts that are encoded in one go; no more is encoded while so much is not sent: what
/// lies encoded takes memory for each of those that get it. Parts that have no limit are of this length.
const PIECE_BYTES: usize = 64 * 1024;
/// A part of no more than this is as large as agreed.
const FRAME_BYTES_MAX: usize = 128 * 1024;
/// Parts of at least so many bytes are not copied.
const DIRECT_BYTES_MIN: usize = 16 * 1024;
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
    /// What goes first; the part before `start` is sent.
    encoded: Vec<u8>,
    start: usize,
    /// So many bytes of the first body go behind that, from where they lie: the rest of a part of which the head
    /// is encoded.
    direct: usize,
    /// What comes behind these.
    queue: VecDeque<Stream>,
    /// Bytes in front of bodies that wait in the queue.
    heads: usize,
    /// Payload bytes of all bodies that are neither encoded nor sent.
    waiting: usize,
}

/// A large body, and what is sent before it.
#[derive(Debug)]
struct Stream {
    head: Vec<u8>,
    /// One reference to the packed message.
    body: Body,
    /// The next payload byte to encode or send, in the packed message. The payload ends with it.
    next: usize,
    /// Payload bytes that are neither encoded nor sent.
    waiting: usize,
    channel: u16,
}

/// Who knows how the parts of a body are sent.
pub trait Parts {
    /// Bytes of a body that fit one part, 0 or very many where there is no such thing.
    fn part_bytes_max(&self) -> usize;
    /// Appends what goes before so many bytes of a body, which are one part.
    fn begin_part(&self, channel: u16, bytes: usize, out: &mut Vec<u8>);
    /// What goes behind them.
    fn part_end(&self) -> &'static [u8];
}

impl Streams {
    /// Bytes that are encoded and not sent.
    fn unsent(&self) -> usize {
        self.encoded.len() - self.start
    }

    /// Encodes what comes next, as long as little is encoded: up to a part that is sent from where it lies.
    fn fill(&mut self, pool: &mut Pool, parts: &impl Parts) {
        let part_max = part_bytes(parts.part_bytes_max());
        while self.direct == 0
            && self.unsent() < PIECE_BYTES
            && let Some(stream) = self.queue.front_mut()
        {
            self.encoded.extend_from_slice(&stream.head);
            self.heads -= stream.head.len();
            stream.head = Vec::new();
            let part = stream.waiting.min(part_max);
            parts.begin_part(stream.channel, part, &mut self.encoded);
            if part >= DIRECT_BYTES_MIN {
                self.direct = part;
                return;
            }
            let piece = &pool.get(stream.body)[stream.next..stream.next + part];
            self.encoded.extend_from_slice(piece);
            self.encoded.extend_from_slice(parts.part_end());
            self.pass(part, pool);
        }
    }

    /// So many payload bytes of the first body are encoded or sent.
    fn pass(&mut self, bytes: usize, pool: &mut Pool) {
        let stream = self.queue.front_mut().expect("what is on its way belongs to a body");
        stream.next += bytes;
        stream.waiting -= bytes;
        self.waiting -= bytes;
        if stream.waiting == 0 {
            pool.release(stream.body);
            self.queue.pop_front();
        }
    }

    /// Encodes the rest of the part of which the head is encoded, if one is.
    fn complete_part(&mut self, pool: &mut Pool, parts: &impl Parts) {
        let rest = core::mem::take(&mut self.direct);
        if rest > 0
            && let Some(stream) = self.queue.front()
        {
            let rest_of_part = &pool.get(stream.body)[stream.next..stream.next + rest];
            self.encoded.extend_from_slice(rest_of_part);
            self.encoded.extend_from_slice(parts.part_end());
            self.pass(rest, pool);
        }
    }

    /// The socket took `count` bytes of what goes first, or all of that. How many it took behind it.
    fn advance_encoded(&mut self, count: usize) -> usize {
        let taken = count.min(self.unsent());
        self.start += taken;
        let left = self.unsent();
        if self.start > left {
            self.encoded.copy_within(self.start.., 0);
            self.encoded.truncate(left);
            self.start = 0;
        }
        count - taken
    }

    /// The socket took `count` bytes. How many of them were behind the bodies.
    fn advance(&mut self, count: usize, pool: &mut Pool, parts: &impl Parts) -> usize {
        let mut count = self.advance_encoded(count);
        let taken = count.min(self.direct);
        if taken > 0 {
            self.direct -= taken;
            count -= taken;
            self.pass(taken, pool);
            if self.direct == 0 {
                self.encoded.extend_from_slice(parts.part_end());
                count = self.advance_encoded(count);
            }
        }
        count
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
    pub fn unsent<'a>(&'a self, pool: &'a Pool, parts: &impl Parts) -> Slices<'a> {
        match &self.streams {
            None => Slices::of(self.unstreamed()),
            Some(streams) => {
                let first = &streams.encoded[streams.start..];
                Slices { first, more: Some(self.behind_encoded(streams, pool, parts)) }
            }
        }
    }

    /// The same while no large body is on its way.
    #[inline]
    #[must_use]
    pub fn unstreamed(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn behind_encoded<'a>(
        &'a self,
        streams: &'a Streams,
        pool: &'a Pool,
        parts: &impl Parts,
    ) -> [&'a [u8]; 3] {
        match streams.queue.front() {
            Some(stream) if streams.direct > 0 => {
                let rest = &pool.get(stream.body)[stream.next..stream.next + streams.direct];
                let is_last = stream.waiting == streams.direct && streams.queue.len() == 1;
                let behind = if is_last { &*self.bytes } else { &[] };
                [rest, parts.part_end(), behind]
            }
            Some(_) => [&[]; 3],
            None => [&self.bytes, &[], &[]],
        }
    }

    /// Encodes the next piece of what is on its way.
    pub fn encode_next(&mut self, pool: &mut Pool, parts: &impl Parts) {
        if let Some(streams) = &mut self.streams {
            streams.fill(pool, parts);
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

    /// The socket took `count` bytes, while no large body is on its way.
    #[inline]
    pub fn advance(&mut self, count: usize) {
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

    /// The socket took `count` bytes, while large bodies are on their way.
    #[cold]
    pub fn advance_streams(&mut self, count: usize, pool: &mut Pool, parts: &impl Parts) {
        let Some(streams) = &mut self.streams else { return self.advance(count) };
        let behind = streams.advance(count, pool, parts);
        let is_over = streams.unsent() == 0 && streams.queue.is_empty();
        assert!(is_over || behind == 0, "what follows large bodies goes behind them");
        if is_over {
            self.streams = None;
            self.advance(behind);
        }
    }

    /// Drops what is left but for the parts of a large body that have begun, so that a
    /// last method can follow them.
    pub fn cut(&mut self, pool: &mut Pool, parts: &impl Parts) {
        let Some(mut streams) = self.streams.take() else { return };
        streams.complete_part(pool, parts);
        (self.bytes, self.start) = (streams.encoded, streams.start);
        for stream in streams.queue {
            pool.release(stream.body);
        }
    }

    /// Drops everything and gives the memory back.
    pub fn clear(&mut self, pool: &mut Pool) {
        if let Some(streams) = self.streams.take() {
            for stream in streams.queue {
                pool.release(stream.body);
            }
        }
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

/// Payload bytes of a part.
fn part_bytes(part_bytes_max: usize) -> usize {
    match part_bytes_max {
        0 => PIECE_BYTES,
        payload if payload > FRAME_BYTES_MAX => PIECE_BYTES,
        payload => payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageView;
    use lepus_amqp::frame::{self, FrameKind, OVERHEAD_BYTES};

    /// Frames of this length at most.
    struct Frames(u32);

    impl Parts for Frames {
        fn part_bytes_max(&self) -> usize {
            self.0 as usize - OVERHEAD_BYTES
        }

        fn begin_part(&self, channel: u16, bytes: usize, out: &mut Vec<u8>) {
            frame::write_head(out, FrameKind::Body, channel, bytes);
        }

        fn part_end(&self) -> &'static [u8] {
            &[frame::END]
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
            let mut next = buffer.unsent(pool, parts).all().concat();
            next.truncate(step);
            assert!(!next.is_empty());
            assert!(buffer.len() + parts.part_end().len() >= next.len());
            sent.extend_from_slice(&next);
            buffer.advance_streams(next.len(), pool, parts);
            assert!(buffer.encoded() <= PIECE_BYTES + DIRECT_BYTES_MIN);
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
            buffer.advance_streams(2, &mut pool, &Frames(frame_max));
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

        fn begin_part(&self, _: u16, bytes: usize, _: &mut Vec<u8>) {
            assert!(bytes <= PIECE_BYTES, "{bytes} bytes in one go");
        }

        fn part_end(&self) -> &'static [u8] {
            &[]
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
                assert_eq!(
                    buffer.unsent(&pool, &parts).all().map(<[u8]>::len),
                    [4, PIECE_BYTES, 0, 0]
                );
                let sent = drain(&mut buffer, &mut pool, &parts, step);
                assert_eq!(sent.strip_prefix(b"head").unwrap(), payload);
                assert!(pool.is_empty());
            }
        }
    }

    #[test]
    fn a_part_is_as_large_as_agreed_unless_that_is_very_large() {
        for (part_bytes_max, expected) in [
            (1, 1),
            (4000, 4000),
            (PIECE_BYTES, PIECE_BYTES),
            (PIECE_BYTES + 1, PIECE_BYTES + 1),
            (FRAME_BYTES_MAX, FRAME_BYTES_MAX),
            (FRAME_BYTES_MAX + 1, PIECE_BYTES),
            (0, PIECE_BYTES),
        ] {
            assert_eq!(part_bytes(part_bytes_max), expected, "{part_bytes_max} bytes in a part");
        }
    }

    #[test]
    fn long_parts_are_sent_from_the_pool_and_short_ones_together() {
        let mut pool = Pool::new();
        let (long, short) = (Frames(131_072), Frames(4096));
        let part = long.part_bytes_max();
        let (body, next, payload) = packed(&mut pool, part + 1);
        let mut buffer = SendBuffer::default();
        buffer.stream(body, next, 7, &pool);
        buffer.bytes.extend_from_slice(b"behind");
        buffer.encode_next(&mut pool, &long);
        let slices = buffer.unsent(&pool, &long).all();
        assert_eq!(slices.map(<[u8]>::len), [frame::HEAD_BYTES, part, 1, 0]);
        assert_eq!(slices[1].as_ptr(), pool.get(body)[next..].as_ptr());
        // The head and some of the part, then its rest.
        buffer.advance_streams(frame::HEAD_BYTES + 10, &mut pool, &long);
        let slices = buffer.unsent(&pool, &long).all();
        assert_eq!(slices.map(<[u8]>::len), [0, part - 10, 1, 0]);
        assert_eq!(slices[1], &payload[10..part]);
        // The rest without its end, which goes before what is encoded next.
        buffer.advance_streams(part - 10, &mut pool, &long);
        buffer.encode_next(&mut pool, &long);
        let slices = buffer.unsent(&pool, &long).all();
        assert_eq!(slices.map(<[u8]>::len), [1 + OVERHEAD_BYTES + 1, 6, 0, 0]);
        assert_eq!(slices[1], b"behind");
        buffer.advance_streams(1 + OVERHEAD_BYTES + 1 + 2, &mut pool, &long);
        assert_eq!(buffer.unsent(&pool, &long).all(), [b"hind", &[][..], &[], &[]]);
        assert!(pool.is_empty());

        let (body, next, _) = packed(&mut pool, 1_000_000);
        let mut buffer = SendBuffer::default();
        buffer.stream(body, next, 7, &pool);
        buffer.encode_next(&mut pool, &short);
        let [encoded, direct, ..] = buffer.unsent(&pool, &short).all();
        assert!(encoded.len() >= PIECE_BYTES && direct.is_empty());

        // The last part goes with what comes behind.
        let (body, next, _) = packed(&mut pool, part);
        let mut buffer = SendBuffer::default();
        buffer.stream(body, next, 7, &pool);
        buffer.bytes.extend_from_slice(b"behind");
        buffer.encode_next(&mut pool, &long);
        let slices = buffer.unsent(&pool, &long).all();
        assert_eq!(slices.map(<[u8]>::len), [frame::HEAD_BYTES, part, 1, 6]);
        buffer.advance_streams(frame::HEAD_BYTES + part + 1 + 6, &mut pool, &long);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_cut_leaves_whole_frames_and_releases_the_bodies() {
        for frame_max in [4096, 131_072] {
            let mut pool = Pool::new();
            let mut buffer = SendBuffer::default();
            let (body, next, payload) = packed(&mut pool, 1_000_000);
            let mut whole = Vec::new();
            frame::write_head(&mut whole, FrameKind::Body, 7, frame_max as usize - OVERHEAD_BYTES);
            whole.extend_from_slice(&payload[..1000]);
            pool.retain(body);
            buffer.bytes.extend_from_slice(b"head");
            buffer.stream(body, next, 7, &pool);
            buffer.stream(body, next, 7, &pool);
            buffer.bytes.extend_from_slice(b"behind");
            buffer.encode_next(&mut pool, &Frames(frame_max));
            buffer.advance_streams(4 + 100, &mut pool, &Frames(frame_max));
            buffer.cut(&mut pool, &Frames(frame_max));
            assert!(pool.is_empty());
            buffer.bytes.extend_from_slice(&frame::HEARTBEAT);
            let rest = drain(&mut buffer, &mut pool, &Frames(frame_max), usize::MAX);
            let rest = rest.strip_suffix(&frame::HEARTBEAT).unwrap();
            let frames = [&whole[..100], rest].concat();
            let left = payload_of(&frames, frame_max);
            assert!(
                left.len() >= frame_max as usize - OVERHEAD_BYTES && left.len() < payload.len()
            );
            assert_eq!(left, payload[..left.len()]);
            buffer.bytes.extend_from_slice(b"x");
            buffer.clear(&mut pool);
            assert!(buffer.is_empty());
        }
    }
}
