//! A record of a queue: how it began, then a line for each command, with all that the queue asked of its shard and was
//! answered.

use alloc::vec::Vec;

use lepus_base::{Now, Pool, Position};

use crate::code::{Digest, Encode};
use crate::entry::{Content, Entry};
use crate::message::MessageView;
use crate::queue::Queue;
use crate::settings::QueueSettings;

/// What a queue asks, one letter each.
pub(crate) mod question {
    pub(crate) const MAY_DELIVER: u8 = b'm';
    pub(crate) const SELECT: u8 = b'q';
    pub(crate) const DELIVER: u8 = b'd';
    pub(crate) const MAY_DEAD_LETTER: u8 = b'e';
    pub(crate) const WAITS_FOR_LETTERS: u8 = b'w';
    pub(crate) const DEAD_LETTER: u8 = b'D';
    pub(crate) const DISCARD: u8 = b'x';
    pub(crate) const BACKLOG: u8 = b'b';
    pub(crate) const SPILLS: u8 = b's';
    pub(crate) const LETTERS: u8 = b'L';
    pub(crate) const LANE: u8 = b'l';
    pub(crate) const NEXT_SEQ: u8 = b'n';
    pub(crate) const HAS_WINDOW_ROOM: u8 = b'r';
    pub(crate) const WINDOW: u8 = b'W';
    pub(crate) const PASS: u8 = b'p';
    pub(crate) const ADD_TO_WINDOWS: u8 = b'+';
    pub(crate) const FORGET: u8 = b'-';
    pub(crate) const FETCH: u8 = b'f';
    pub(crate) const FETCH_AT: u8 = b'F';
    pub(crate) const ANNOUNCE: u8 = b'a';
    pub(crate) const LOOKUP: u8 = b'?';
    pub(crate) const SETTLE: u8 = b'.';
    pub(crate) const SET_ASIDE: u8 = b'!';
    pub(crate) const MARK_DELIVERED: u8 = b'*';
    pub(crate) const PURGE: u8 = b'P';
    pub(crate) const PURGE_UNFETCHED: u8 = b'u';
    pub(crate) const APPEND: u8 = b'A';
    /// The end of a line, with what the command had for effects.
    pub(crate) const EFFECTS: u8 = b'=';
}

/// How a queue began.
pub(crate) fn put_beginning(now: Now, settings: &QueueSettings, queue: &Queue, out: &mut Vec<u8>) {
    (now, settings, queue.is_auto_delete(), queue.is_durable()).put(out);
}

/// The digest of the message that is sent, or its place in the log and the bytes of its payload.
pub(crate) fn content(sent: Content<'_>, pool: &mut Pool) -> Result<u64, (Position, u32)> {
    match sent {
        Content::Stored(body) => Ok(Digest::of_message(&MessageView::unpack(pool.get(body))).0),
        Content::Incoming(view) => Ok(Digest::of_message(view).0),
        Content::Logged(position, bytes) => Err((position, bytes)),
    }
}

/// The digest of a message that lies in the pool.
pub(crate) fn body(entry: &Entry, pool: &mut Pool) -> Option<u64> {
    let body = entry.place.body()?;
    Some(Digest::of_message(&MessageView::unpack(pool.get(body))).0)
}
