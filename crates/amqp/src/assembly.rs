//! Frames of an open connection, checked and put together to methods and contents.

use crate::code::ReplyCode;
use crate::content::ContentOwned;
use crate::error::ProtocolError;
use crate::frame::{self, END, FrameKind, HEAD_BYTES, Head};
use crate::method::{Method, basic};
use crate::properties::PropertiesRef;
use crate::wire::Reader;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

/// Methods and headers must lie in one buffer; they are bounded even when frames are not.
const WHOLE_PAYLOAD_BYTES_MAX: u32 = 1024 * 1024;
/// What a content under way takes beside its bytes: itself, and its place in a map that is half full.
const CONTENT_BYTES: usize = size_of::<Content>() + 2 * (size_of::<u16>() + size_of::<usize>());

/// Which end of the connection this is: it decides what contents may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// What the next bytes are.
#[derive(Debug)]
pub(crate) enum Unit<'a> {
    /// Nothing to tell yet. More bytes are needed when none were consumed.
    More,
    /// A method without content.
    Method { channel: u16, method: Method<'a> },
    /// A whole content.
    Content { channel: u16, content: ContentOwned },
    /// A content that is larger than the limit; its body will be skipped.
    TooLarge { channel: u16, size: u64, class_id: u16, method_id: u16 },
}

/// What is awaited on a channel that is not between methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    Body,
    /// The body of a content that is too large.
    Skip,
    /// The channel is being closed: contents mean nothing until it is opened again.
    Ignored,
}

#[derive(Debug)]
struct Content {
    stage: Stage,
    method_id: u16,
    /// Bytes of the body that have not come yet.
    body_rest: u64,
    owned: ContentOwned,
}

/// The body frame that is under way.
#[derive(Clone, Copy, Debug)]
struct BodyFrame {
    channel: u16,
    /// Bytes of the payload that have not come yet; the end octet follows.
    rest: u32,
}

#[derive(Debug)]
pub(crate) struct Assembler {
    side: Side,
    /// Largest payload of a frame in bytes.
    pub payload_max: u32,
    /// Contents that may be begun at once: not more than channels may be open.
    pub contents_max: u16,
    /// Largest body of a content in bytes.
    pub body_bytes_max: u64,
    /// Bytes that all half-assembled contents together may hold.
    held_bytes_max: usize,
    held_bytes: usize,
    /// Channels inside a content and ignored ones; mostly empty. A client may have one on each channel, and
    /// any frame looks here.
    contents: BTreeMap<u16, Box<Content>>,
    body_frame: Option<BodyFrame>,
}

fn unexpected(text: impl core::fmt::Display) -> ProtocolError {
    ProtocolError::new(ReplyCode::UNEXPECTED_FRAME, text)
}

impl Assembler {
    pub fn new(side: Side, body_bytes_max: u64, held_bytes_max: usize) -> Assembler {
        Assembler {
            side,
            payload_max: frame::HANDSHAKE_PAYLOAD_BYTES_MAX,
            contents_max: 0,
            body_bytes_max,
            held_bytes_max,
            held_bytes: 0,
            contents: BTreeMap::new(),
            body_frame: None,
        }
    }

    /// Whether the bytes to come start with a frame.
    #[inline]
    pub fn is_between_frames(&self) -> bool {
        self.body_frame.is_none()
    }

    /// Whether contents may start on a channel.
    #[inline]
    pub fn is_free(&self, channel: u16) -> bool {
        channel != 0 && (self.contents.is_empty() || !self.contents.contains_key(&channel))
    }

    /// Bytes that half-assembled contents hold together, with the table of them.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.contents.len() * CONTENT_BYTES
    }

    /// Whether a content has begun, on any channel, that is told of once it is whole.
    pub fn has_begun(&self) -> bool {
        let awaited = |content: &Content| matches!(content.stage, Stage::Header | Stage::Body);
        self.contents.values().any(|content| awaited(content))
    }

    fn remove(&mut self, channel: u16) -> Option<Box<Content>> {
        let content = self.contents.remove(&channel)?;
        self.held_bytes -= content.owned.bytes.capacity();
        Some(content)
    }

    /// Forgets a half-assembled content and ignores contents on the channel from now on.
    pub fn ignore(&mut self, channel: u16) {
        self.unignore(channel);
        let ignored = Content {
            stage: Stage::Ignored,
            method_id: 0,
            body_rest: 0,
            owned: ContentOwned::default(),
        };
        self.contents.insert(channel, Box::new(ignored));
    }

    /// Forgets everything about a channel: the next content on it counts.
    pub fn unignore(&mut self, channel: u16) {
        self.remove(channel);
    }

    /// Forgets all contents and tells how many bytes belong to the frame that is under way.
    pub fn abandon(&mut self) -> u64 {
        self.contents.clear();
        self.held_bytes = 0;
        let rest = self.body_frame.take();
        rest.map_or(0, |frame| u64::from(frame.rest) + 1)
    }

    /// Takes the next unit from `bytes` and tells how many bytes it took. After an error the bytes
    /// taken end behind the frame at fault, unless it is a `FRAME_ERROR`.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> (usize, Result<Unit<'a>, ProtocolError>) {
        if let Some(frame) = self.body_frame {
            return self.continue_body(frame, bytes);
        }
        let head = match frame::decode_head(bytes, self.payload_max) {
            Ok(Some(head)) => head,
            Ok(None) => return (0, Ok(Unit::More)),
            Err(error) => return (0, Err(error)),
        };
        if head.kind == FrameKind::Body {
            let started = self.start_body(head);
            let frame = BodyFrame { channel: head.channel, rest: head.payload_bytes };
            self.body_frame = Some(frame);
            if let Err(error) = started {
                return (HEAD_BYTES, Err(error));
            }
            let (consumed, result) = self.continue_body(frame, &bytes[HEAD_BYTES..]);
            return (HEAD_BYTES + consumed, result);
        }
        let payload_max = self.payload_max.min(WHOLE_PAYLOAD_BYTES_MAX);
        match frame::decode(bytes, payload_max) {
            Ok(Some((frame, consumed))) => (consumed, self.take_frame(frame)),
            Ok(None) => (0, Ok(Unit::More)),
            Err(error) => (0, Err(error)),
        }
    }

    fn take_frame<'a>(&mut self, frame: frame::Frame<'a>) -> Result<Unit<'a>, ProtocolError> {
        match frame.kind {
            FrameKind::Method => self.take_method(frame.channel, frame.payload),
            FrameKind::Header => self.take_header(frame.channel, frame.payload),
            _ if frame.channel != 0 => {
                Err(unexpected(format!("heartbeat on channel {}", frame.channel)))
            }
            _ if !frame.payload.is_empty() => {
                Err(ProtocolError::new(ReplyCode::FRAME_ERROR, "heartbeat with a payload"))
            }
            _ => Ok(Unit::More),
        }
    }

    fn take_method<'a>(
        &mut self,
        channel: u16,
        payload: &'a [u8],
    ) -> Result<Unit<'a>, ProtocolError> {
        let entry = self.contents.get(&channel);
        let is_ignored = match entry.map(|content| content.stage) {
            None => false,
            Some(Stage::Ignored) => true,
            Some(stage) => {
                let awaited = match stage {
                    Stage::Header => "header",
                    _ => "body",
                };
                return Err(unexpected(format!(
                    "expected content {awaited} for class 60, got a method frame instead on channel {channel}"
                ))
                .caused_by(basic::CLASS_ID, entry.map_or(0, |content| content.method_id)));
            }
        };
        let method = Method::decode(payload)?;
        let (class_id, method_id) = method.ids();
        let refuse =
            |code, text: String| Err(ProtocolError::new(code, text).caused_by(class_id, method_id));
        let is_connection = class_id == crate::method::connection::CLASS_ID;
        if channel == 0 && !is_connection {
            let text = format!("{} on channel 0", method.name());
            return refuse(ReplyCode::UNEXPECTED_FRAME, text);
        }
        if channel != 0 && is_connection {
            let text = format!("{} on channel {channel}", method.name());
            return refuse(ReplyCode::COMMAND_INVALID, text);
        }
        if !method.has_content() {
            return Ok(Unit::Method { channel, method });
        }
        if (self.side == Side::Server) != matches!(method, Method::BasicPublish(_)) {
            let text = format!("{} from the wrong peer", method.name());
            return refuse(ReplyCode::COMMAND_INVALID, text);
        }
        if !is_ignored {
            if self.contents.len() >= usize::from(self.contents_max) {
                let text = format!(
                    "more contents begun than the negotiated channel_max ({})",
                    self.contents_max
                );
                return refuse(ReplyCode::NOT_ALLOWED, text);
            }
            self.check_room(payload.len())?;
            self.held_bytes += payload.len();
            let content = Content {
                stage: Stage::Header,
                method_id,
                body_rest: 0,
                owned: ContentOwned {
                    bytes: payload.into(),
                    method_end: payload.len(),
                    properties_end: payload.len(),
                },
            };
            self.contents.insert(channel, Box::new(content));
        }
        Ok(Unit::More)
    }

    fn take_header<'a>(
        &mut self,
        channel: u16,
        payload: &'a [u8],
    ) -> Result<Unit<'a>, ProtocolError> {
        let Some(content) = self.contents.get(&channel) else {
            return Err(unexpected(format!(
                "expected a method, got a content header on channel {channel}"
            )));
        };
        let method_id = content.method_id;
        let blame = |error: ProtocolError| error.caused_by(basic::CLASS_ID, method_id);
        match content.stage {
            Stage::Ignored => return Ok(Unit::More),
            Stage::Header => {}
            Stage::Body | Stage::Skip => {
                return Err(blame(unexpected(format!(
                    "expected content body, got a content header on channel {channel}"
                ))));
            }
        }
        let mut reader = Reader::new(payload);
        let class_id = reader.u16().map_err(|error| blame(error.into()))?;
        let weight = reader.u16().map_err(|error| blame(error.into()))?;
        let size = reader.u64().map_err(|error| blame(error.into()))?;
        let properties = reader.rest();
        if class_id != basic::CLASS_ID {
            return Err(blame(unexpected(format!(
                "expected content header for class 60, got one for class {class_id} instead"
            ))));
        }
        if weight != 0 {
            return Err(blame(ProtocolError::new(
                ReplyCode::FRAME_ERROR,
                format!("content header with weight {weight}"),
            )));
        }
        PropertiesRef(properties).validate().map_err(|error| blame(error.into()))?;
        self.check_room(properties.len())?;
        let Some(content) = self.contents.get_mut(&channel) else { return Ok(Unit::More) };
        self.held_bytes += content.owned.append(properties, 0, usize::MAX);
        content.body_rest = size;
        content.owned.properties_end = content.owned.bytes.len();
        if size > self.body_bytes_max {
            content.stage = Stage::Skip;
            return Ok(Unit::TooLarge { channel, size, class_id, method_id });
        }
        if size == 0 {
            return Ok(self.finish(channel));
        }
        content.stage = Stage::Body;
        Ok(Unit::More)
    }

    /// Whether there is room for more bytes that are kept until a content is whole.
    fn check_room(&self, bytes: usize) -> Result<(), ProtocolError> {
        if self.held_bytes + bytes > self.held_bytes_max {
            return Err(ProtocolError::new(
                ReplyCode::RESOURCE_ERROR,
                format!("unfinished contents hold more than {} bytes", self.held_bytes_max),
            ));
        }
        Ok(())
    }

    fn finish<'a>(&mut self, channel: u16) -> Unit<'a> {
        match self.remove(channel) {
            Some(content) => Unit::Content { channel, content: content.owned },
            None => Unit::More,
        }
    }

    /// Checks that a body frame may start here.
    fn start_body(&mut self, head: Head) -> Result<(), ProtocolError> {
        let channel = head.channel;
        let Some(content) = self.contents.get(&channel) else {
            return Err(unexpected(format!(
                "expected a method, got a content body on channel {channel}"
            )));
        };
        let (method_id, rest) = (content.method_id, content.body_rest);
        match content.stage {
            Stage::Ignored => Ok(()),
            Stage::Header => Err(unexpected(format!(
                "expected content header for class 60, got a content body on channel {channel}"
            ))
            .caused_by(basic::CLASS_ID, method_id)),
            Stage::Body | Stage::Skip if u64::from(head.payload_bytes) > rest => {
                Err(ProtocolError::new(
                    ReplyCode::FRAME_ERROR,
                    format!(
                        "body frame of {} bytes where only {rest} are left of the content",
                        head.payload_bytes
                    ),
                )
                .caused_by(basic::CLASS_ID, method_id))
            }
            Stage::Skip => Ok(()),
            Stage::Body => {
                // The bytes are counted as they come; only the limit is checked in advance.
                self.check_room(head.payload_bytes as usize)
            }
        }
    }

    fn continue_body<'a>(
        &mut self,
        mut frame: BodyFrame,
        bytes: &'a [u8],
    ) -> (usize, Result<Unit<'a>, ProtocolError>) {
        let count = bytes.len().min(frame.rest as usize);
        let (piece, after) = bytes.split_at(count);
        frame.rest -= count as u32;
        let mut over = None;
        if let Some(content) = self.contents.get_mut(&frame.channel) {
            match content.stage {
                Stage::Body => {
                    content.body_rest -= count as u64;
                    let room = self.held_bytes_max.saturating_sub(self.held_bytes);
                    self.held_bytes += content.owned.append(piece, content.body_rest, room);
                }
                Stage::Skip => content.body_rest -= count as u64,
                Stage::Header | Stage::Ignored => {}
            }
            over = Some(content.stage).filter(|_| content.body_rest == 0);
        }
        let Some(&end) = after.first().filter(|_| frame.rest == 0) else {
            self.body_frame = Some(frame);
            return (count, Ok(Unit::More));
        };
        self.body_frame = None;
        if end != END {
            return (count, Err(frame::wrong_end(end)));
        }
        let unit = match over {
            Some(Stage::Body) => self.finish(frame.channel),
            Some(Stage::Skip) => {
                self.remove(frame.channel);
                Unit::More
            }
            Some(Stage::Header | Stage::Ignored) | None => Unit::More,
        };
        (count + 1, Ok(unit))
    }
}
