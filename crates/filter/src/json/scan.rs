//! The projecting scanner.

use super::text::{
    Key, LENGTH_MAX, chunk, decode, is_plain, key, next, number, number_end, string_end,
};
use super::{DEPTH_MAX, Invalid};
use crate::steps::{self, Steps};
use crate::trie::{NodeId, Trie};
use crate::value::{Source, Span, Value};
use alloc::vec::Vec;

/// Nothing below is wanted.
const NONE: NodeId = NodeId::MAX;
/// Not met yet.
const UNSEEN: u32 = u32::MAX;

/// Room that a scan needs, used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    open: Vec<Open>,
    /// Wanted nodes in the order in which they were met.
    met: Vec<NodeId>,
    /// By node, its last place in `met`; that of one that was not met is [`UNSEEN`], also of nodes of other tries.
    places: Vec<u32>,
}

/// What a value lies in.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u32)]
enum Kind {
    Document,
    Object,
    Array,
}

/// An object or array whose end was not met, or the document.
#[derive(Clone, Copy, Debug)]
struct Open {
    node: NodeId,
    start: u32,
    /// Elements that ended, of an array.
    index: u32,
    kind: Kind,
}

/// Reads a document and writes the wanted values into `slots`, which are all missing before.
///
/// # Errors
/// When it is no JSON, or `steps` has run out; what the slots hold then means nothing.
pub(crate) fn scan(
    text: &[u8],
    trie: &Trie,
    slots: &mut [Value],
    made: &mut Vec<u8>,
    room: &mut Scan,
    steps: &mut Steps,
) -> Result<(), Invalid> {
    let is_plain = is_plain(text);
    if !is_plain && core::str::from_utf8(text).is_err() || text.len() > LENGTH_MAX {
        return Err(Invalid);
    }
    room.open.clear();
    // There may be very many that are not met.
    for node in room.met.drain(..) {
        room.places[node as usize] = UNSEEN;
    }
    if room.places.len() < trie.len() {
        room.places.resize(trie.len(), UNSEEN);
    }
    let mut scanner = Scanner { text, trie, slots, made, room, steps };
    if is_plain { scanner.document::<true>() } else { scanner.document::<false>() }
}

struct Scanner<'s> {
    text: &'s [u8],
    trie: &'s Trie,
    slots: &'s mut [Value],
    made: &'s mut Vec<u8>,
    room: &'s mut Scan,
    steps: &'s mut Steps,
}

impl Scanner<'_> {
    /// Reads all of a text, which is plain or not.
    fn document<const PLAIN: bool>(&mut self) -> Result<(), Invalid> {
        let text = self.text;
        let mut node = if self.trie.is_empty() { NONE } else { 0 };
        let mut open = Open { node: NONE, start: 0, index: 0, kind: Kind::Document };
        let mut at = 0;
        loop {
            let (byte, start) = next(text, at);
            if byte == b'"' {
                let (end, is_escaped) = string_end::<PLAIN>(text, start + 1)?;
                if node != NONE {
                    self.string(node, start + 1, end, !PLAIN && is_escaped)?;
                }
                at = end + 1;
            } else if byte.is_ascii_digit() {
                at = number_end(text, start)?;
                if node != NONE {
                    self.number(node, start, at)?;
                }
            } else {
                at = match byte {
                    b'{' | b'[' => {
                        if self.room.open.len() == DEPTH_MAX {
                            return Err(Invalid);
                        }
                        self.room.open.push(open);
                        let is_object = byte == b'{';
                        let kind = if is_object { Kind::Object } else { Kind::Array };
                        open = Open { node, start: start as u32, index: 0, kind };
                        let (byte, first) = next(text, start + 1);
                        if byte != if is_object { b'}' } else { b']' } {
                            (node, at) = self.member::<PLAIN>(open, byte, first)?;
                            continue;
                        }
                        // It is empty, and closed below.
                        first
                    }
                    b't' => self.word(node, start, b"true", Value::Bool(true))?,
                    b'f' => self.word(node, start, b"false", Value::Bool(false))?,
                    b'n' => self.word(node, start, b"null", Value::Null)?,
                    b'-' => {
                        let end = number_end(text, start + 1)?;
                        if node != NONE {
                            self.number(node, start, end)?;
                        }
                        end
                    }
                    _ => return Err(Invalid),
                };
            }
            // A value ended, or an empty object or array begins: what follows?
            loop {
                // Mostly another member.
                if chunk(text, at) == Some(b",\"") && open.kind == Kind::Object {
                    (node, at) = self.key::<PLAIN>(open.node, at + 2)?;
                    break;
                }
                let (byte, place) = next(text, at);
                match (byte, open.kind) {
                    (b',', Kind::Object | Kind::Array) => {
                        open.index += 1;
                        let (byte, place) = next(text, place + 1);
                        (node, at) = self.member::<PLAIN>(open, byte, place)?;
                        break;
                    }
                    (b'}', Kind::Object) | (b']', Kind::Array) => {
                        at = place + 1;
                        self.close(open, at);
                        open = self.room.open.pop().ok_or(Invalid)?;
                    }
                    (_, Kind::Document) if place == text.len() => return Ok(()),
                    _ => return Err(Invalid),
                }
            }
        }
    }

    /// The node of the member of an object or array that begins with `byte` at a place, and where its value is.
    #[inline(always)]
    fn member<const PLAIN: bool>(
        &mut self,
        open: Open,
        byte: u8,
        at: usize,
    ) -> Result<(NodeId, usize), Invalid> {
        if open.kind == Kind::Object {
            return if byte == b'"' { self.key::<PLAIN>(open.node, at + 1) } else { Err(Invalid) };
        }
        let found = match open.node {
            NONE => None,
            parent => self.trie.index(parent, open.index),
        };
        Ok((self.meet(found), at))
    }

    /// Reads a key, whose inside begins at a place, and its colon. The node of its value, and what is behind the colon.
    #[inline(always)]
    fn key<const PLAIN: bool>(
        &mut self,
        parent: NodeId,
        start: usize,
    ) -> Result<(NodeId, usize), Invalid> {
        let Key { end, behind, is_escaped, print } = key::<PLAIN>(self.text, start)?;
        let found = match parent {
            NONE => None,
            _ if !PLAIN && is_escaped => self.escaped(parent, start, end)?,
            _ => self.trie.member(parent, print, self.text, start, end),
        };
        Ok((self.meet(found), behind))
    }

    #[cold]
    fn escaped(
        &mut self,
        parent: NodeId,
        start: usize,
        end: usize,
    ) -> Result<Option<NodeId>, Invalid> {
        let begin = self.made.len();
        decode(&self.text[start..end], self.made)?;
        let found = self.trie.name(parent, self.made, begin, self.made.len());
        self.made.truncate(begin);
        Ok(found)
    }

    /// Keeps a value if its node is wanted.
    #[inline(always)]
    fn keep(&mut self, node: NodeId, value: Value) {
        if let Some(slot) = self.trie.slot(node) {
            self.slots[slot] = value;
        }
    }

    #[inline(always)]
    fn word<const N: usize>(
        &mut self,
        node: NodeId,
        start: usize,
        word: &[u8; N],
        value: Value,
    ) -> Result<usize, Invalid> {
        if self.text[start..].first_chunk() != Some(word) {
            return Err(Invalid);
        }
        if node != NONE {
            self.keep(node, value);
        }
        Ok(start + N)
    }

    #[inline(always)]
    fn string(
        &mut self,
        node: NodeId,
        start: usize,
        end: usize,
        is_escaped: bool,
    ) -> Result<(), Invalid> {
        if is_escaped {
            return self.decoded(node, start, end);
        }
        self.keep(node, Value::Text(body_span(start, end)));
        Ok(())
    }

    /// A string with escapes, decoded if it is wanted.
    #[cold]
    fn decoded(&mut self, node: NodeId, start: usize, end: usize) -> Result<(), Invalid> {
        let Some(slot) = self.trie.slot(node) else { return Ok(()) };
        if !self.steps.spend(steps::of_escapes(end - start)) {
            return Err(Invalid);
        }
        let begin = self.made.len();
        decode(&self.text[start..end], self.made)?;
        let span = Span::new(Source::Made, begin, self.made.len());
        self.slots[slot] = Value::Text(span.ok_or(Invalid)?);
        Ok(())
    }

    #[inline(always)]
    fn number(&mut self, node: NodeId, start: usize, end: usize) -> Result<(), Invalid> {
        if let Some(slot) = self.trie.slot(node) {
            // What a short one takes is in what reading the document takes.
            if end - start > steps::DIGITS_QUICK
                && !self.steps.spend(steps::of_number(end - start))
            {
                return Err(Invalid);
            }
            self.slots[slot] = Value::Number(number(self.text, start, end));
        }
        Ok(())
    }

    /// Ends an object or array, whose bracket is before a place.
    #[inline(always)]
    fn close(&mut self, open: Open, end: usize) {
        if open.node != NONE {
            let span = body_span(open.start as usize, end);
            let is_object = open.kind == Kind::Object;
            self.keep(
                open.node,
                if is_object { Value::Object(span) } else { Value::Array(span) },
            );
        }
    }

    /// Notes that a wanted value begins; what an earlier one of the same name left is forgotten.
    #[inline(always)]
    fn meet(&mut self, found: Option<NodeId>) -> NodeId {
        let Some(node) = found else { return NONE };
        // What comes in place of another one by itself needs no more.
        if !self.trie.is_alone(node) {
            self.meet_others(node);
        }
        node
    }

    fn meet_others(&mut self, node: NodeId) {
        let earlier =
            core::mem::replace(&mut self.room.places[node as usize], self.room.met.len() as u32);
        if earlier != UNSEEN {
            self.forget(node, earlier as usize);
        }
        self.room.met.push(node);
    }

    /// Each value is forgotten once at most, so the work is bounded by what was met.
    #[cold]
    fn forget(&mut self, node: NodeId, earlier: usize) {
        let trie = self.trie;
        let below = self.room.met[earlier..].iter().take_while(|met| trie.is_within(**met, node));
        for &met in below {
            if let Some(slot) = self.trie.slot(met) {
                self.slots[slot] = Value::Missing;
            }
            if met != node {
                self.room.places[met as usize] = UNSEEN;
            }
        }
    }
}

/// Bytes of the document, which is shorter than 4 GiB.
#[inline(always)]
fn body_span(start: usize, end: usize) -> Span {
    Span { start: start as u32, length: (end - start) as u32, owner: 0, source: Source::Body }
}
