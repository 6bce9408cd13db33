//! A publish that is encoded once and then only copied and patched.

use crate::body::Layout;
use lepus_amqp::Method;
use lepus_amqp::frame::{self, FrameKind, OVERHEAD_BYTES};
use lepus_amqp::method::basic;

/// Bytes of every random routing key, which is written like a UUID.
pub(crate) const KEY_BYTES: usize = 36;

/// What is published, before the channel and the frame size are known.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub exchange: String,
    pub routing_key: String,
    pub mandatory: bool,
    pub immediate: bool,
    /// Encoded: flags and fields.
    pub properties: Vec<u8>,
    pub body: Vec<u8>,
    /// Where the numbers stand in the body; `None` for bodies from files, which are sent as they are.
    pub layout: Option<Layout>,
}

/// The frames of one publish, with the places that change from message to message.
#[derive(Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    sequence_at: Option<usize>,
    time_at: Option<usize>,
    key_at: usize,
}

/// The header field that carries the time of bodies from files, as it stands in an encoded table.
const TIME_FIELD: &[u8] = b"\x09timestampl";

impl Template {
    /// Encodes `message` for `channel`; bodies are split for `frame_bytes_max` (0 is no limit, as in tune).
    pub(crate) fn new(channel: u16, frame_bytes_max: u32, message: &Message) -> Template {
        let mut bytes = Vec::new();
        Method::from(basic::Publish {
            exchange: &message.exchange,
            routing_key: &message.routing_key,
            mandatory: message.mandatory,
            immediate: message.immediate,
        })
        .encode_frame(channel, &mut bytes);
        // Behind the head: class, method, the reserved short, the exchange with its length, the key's length.
        let key_at = frame::HEAD_BYTES + 2 + 2 + 2 + 1 + message.exchange.len() + 1;
        let header_at = bytes.len() + frame::HEAD_BYTES;
        let mut header = Vec::with_capacity(12 + message.properties.len());
        header.extend_from_slice(&basic::CLASS_ID.to_be_bytes());
        header.extend_from_slice(&[0, 0]);
        header.extend_from_slice(&(message.body.len() as u64).to_be_bytes());
        header.extend_from_slice(&message.properties);
        frame::write_frame(&mut bytes, FrameKind::Header, channel, &header);
        let body_at = bytes.len() + frame::HEAD_BYTES;
        let piece_bytes_max = match frame_bytes_max as usize {
            0 => usize::MAX,
            limit => limit.saturating_sub(OVERHEAD_BYTES).max(1),
        };
        for piece in message.body.chunks(piece_bytes_max) {
            frame::write_frame(&mut bytes, FrameKind::Body, channel, piece);
        }
        let in_body = |at: Option<usize>| Some(body_at + at?);
        let time_in_header = || {
            let mut windows = message.properties.windows(TIME_FIELD.len());
            let at = windows.position(|window| window == TIME_FIELD)?;
            Some(header_at + 12 + at + TIME_FIELD.len())
        };
        let (sequence_at, time_at) = match message.layout {
            Some(layout) => (in_body(layout.sequence_at), in_body(layout.time_at)),
            None => (None, time_in_header()),
        };
        Template { bytes, sequence_at, time_at, key_at }
    }

    /// Bytes of one message on the wire.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the message numbered `sequence` with `time`.
    #[inline]
    pub(crate) fn append(&self, out: &mut Vec<u8>, sequence: u32, time: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let message = &mut out[start..];
        if let Some(at) = self.sequence_at {
            message[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        }
        if let Some(at) = self.time_at {
            message[at..at + 8].copy_from_slice(&time.to_be_bytes());
        }
    }

    /// Appends the message with another routing key, for messages whose key has [`KEY_BYTES`].
    pub(crate) fn append_keyed(
        &self,
        out: &mut Vec<u8>,
        key: &[u8; KEY_BYTES],
        sequence: u32,
        time: u64,
    ) {
        let start = out.len();
        self.append(out, sequence, time);
        let at = start + self.key_at;
        out[at..at + KEY_BYTES].copy_from_slice(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: usize, checked: bool) -> Message {
        let layout = Layout::new(size, checked);
        Message {
            exchange: "direct".into(),
            routing_key: "k".repeat(KEY_BYTES),
            mandatory: true,
            immediate: false,
            properties: vec![0x10, 0, 2],
            body: layout.body(5),
            layout: Some(layout),
        }
    }

    /// Decodes what a peer would: key, body size, body.
    fn read(bytes: &[u8], payload_max: u32) -> (String, u64, Vec<u8>) {
        let (mut rest, mut key, mut size, mut body) = (bytes, String::new(), 0, Vec::new());
        while !rest.is_empty() {
            let (frame, used) = frame::decode(rest, payload_max).unwrap().unwrap();
            assert_eq!(frame.channel, 3);
            match frame.kind {
                FrameKind::Method => match Method::decode(frame.payload).unwrap() {
                    Method::BasicPublish(publish) => {
                        assert!(publish.mandatory && !publish.immediate);
                        assert_eq!(publish.exchange, "direct");
                        key = publish.routing_key.to_owned();
                    }
                    other => panic!("{}", other.name()),
                },
                FrameKind::Header => {
                    size = u64::from_be_bytes(frame.payload[4..12].try_into().unwrap());
                    assert_eq!(&frame.payload[12..], [0x10, 0, 2]);
                }
                FrameKind::Body => body.extend_from_slice(frame.payload),
                FrameKind::Heartbeat => panic!("a heartbeat in a publish"),
            }
            rest = &rest[used..];
        }
        (key, size, body)
    }

    #[test]
    fn a_copy_differs_only_in_its_numbers() {
        for size in [8, 12, 16, 100, 5_000, 9_000] {
            for checked in [false, true] {
                let message = message(size, checked);
                let template = Template::new(3, 4_096, &message);
                let mut out = b"before".to_vec();
                template.append(&mut out, 77, 99);
                assert_eq!(out.len(), 6 + template.bytes());
                let (key, announced, body) = read(&out[6..], 4_088);
                assert_eq!((key.len(), announced), (KEY_BYTES, size as u64));
                let layout = message.layout.unwrap();
                assert_eq!(layout.sequence(&body), layout.sequence_at.map(|_| 77));
                assert_eq!(layout.time(&body), layout.time_at.map(|_| 99));
                assert_eq!(layout.producer(&body), layout.producer_at.map(|_| 5));
                let numbers = layout.numbers_bytes();
                assert_eq!(body[numbers..], message.body[numbers..]);
            }
        }
    }

    #[test]
    fn an_empty_body_has_no_body_frame() {
        let template = Template::new(3, 0, &message(0, false));
        let mut out = Vec::new();
        template.append(&mut out, 1, 2);
        assert_eq!(read(&out, u32::MAX), ("k".repeat(KEY_BYTES), 0, Vec::new()));
    }

    #[test]
    fn a_key_is_written_into_its_place() {
        let template = Template::new(3, 0, &message(12, false));
        let mut out = Vec::new();
        template.append_keyed(&mut out, &[b'z'; KEY_BYTES], 1, 2);
        assert_eq!(read(&out, u32::MAX).0, "z".repeat(KEY_BYTES));
    }

    #[test]
    fn a_file_s_time_travels_in_a_header() {
        let table = lepus_amqp::Table::new().with("timestamp", 0i64);
        let properties = lepus_amqp::Properties {
            content_type: Some("text/plain".into()),
            headers: Some(table),
            ..Default::default()
        };
        let message =
            Message { properties: properties.to_bytes(), layout: None, ..message(20, false) };
        let template = Template::new(3, 0, &message);
        let mut out = Vec::new();
        template.append(&mut out, 1, 123_456_789);
        let (_, used) = frame::decode(&out, u32::MAX).unwrap().unwrap();
        let (header, _) = frame::decode(&out[used..], u32::MAX).unwrap().unwrap();
        let headers = lepus_amqp::PropertiesRef(&header.payload[12..]).headers().unwrap();
        assert_eq!(headers.get("timestamp").unwrap().as_integer(), Some(123_456_789));
    }
}
