//! The projecting scanner.

use super::text::{behind_space, decode, number, number_end, string_end};
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

/// An object or array whose end was not met.
#[derive(Clone, Copy, Debug)]
struct Open {
    node: NodeId,
    start: usize,
    /// Elements that ended, of an array.
    index: u32,
    is_object: bool,
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
    if core::str::from_utf8(text).is_err() || u32::try_from(text.len()).is_err() {
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
    Scanner { text, at: 0, trie, slots, made, room, steps }.document()
}

struct Scanner<'s> {
    text: &'s [u8],
    at: usize,
    trie: &'s Trie,
    slots: &'s mut [Value],
    made: &'s mut Vec<u8>,
    room: &'s mut Scan,
    steps: &'s mut Steps,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Invalid> {
        let mut node = if self.trie.is_empty() { NONE } else { 0 };
        loop {
            if let Some(first) = self.value(node)? {
                node = first;
                continue;
            }
            // A value ended: what follows?
            node = loop {
                let Some(open) = self.room.open.last_mut() else {
                    self.at = behind_space(self.text, self.at);
                    return if self.at == self.text.len() { Ok(()) } else { Err(Invalid) };
                };
                let is_object = open.is_object;
                self.at = behind_space(self.text, self.at);
                match self.text.get(self.at) {
                    Some(b',') => {
                        open.index += 1;
                        self.at = behind_space(self.text, self.at + 1);
                        break if is_object { self.key()? } else { self.element() };
                    }
                    Some(b'}') if is_object => self.close(),
                    Some(b']') if !is_object => self.close(),
                    _ => return Err(Invalid),
                }
            };
        }
    }

    /// Reads a value that is wanted as a node. Of an object or array that is not empty only the beginning: the node
    /// of its first member is returned.
    #[inline(always)]
    fn value(&mut self, node: NodeId) -> Result<Option<NodeId>, Invalid> {
        self.at = behind_space(self.text, self.at);
        let start = self.at;
        let value = match self.text.get(start) {
            Some(b'"') => {
                let (end, is_escaped) = string_end(self.text, start + 1)?;
                self.at = end + 1;
                if let Some(slot) = self.slot(node) {
                    self.slots[slot] = self.string(start + 1, end, is_escaped)?;
                }
                return Ok(None);
            }
            Some(b'-' | b'0'..=b'9') => {
                let (end, is_integer) = number_end(self.text, start)?;
                self.at = end;
                if let Some(slot) = self.slot(node) {
                    if !self.steps.spend(steps::of_number(end - start)) {
                        return Err(Invalid);
                    }
                    self.slots[slot] = Value::Number(number(&self.text[start..end], is_integer));
                }
                return Ok(None);
            }
            Some(b'{') => return self.open(node, true),
            Some(b'[') => return self.open(node, false),
            Some(b't') => self.word(b"true", Value::Bool(true))?,
            Some(b'f') => self.word(b"false", Value::Bool(false))?,
            Some(b'n') => self.word(b"null", Value::Null)?,
            _ => return Err(Invalid),
        };
        if let Some(slot) = self.slot(node) {
            self.slots[slot] = value;
        }
        Ok(None)
    }

    #[inline(always)]
    fn slot(&self, node: NodeId) -> Option<usize> {
        if node == NONE { None } else { self.trie.slot(node) }
    }

    #[inline(always)]
    fn word(&mut self, word: &[u8], value: Value) -> Result<Value, Invalid> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Invalid);
        }
        self.at += word.len();
        Ok(value)
    }

    fn string(&mut self, start: usize, end: usize, is_escaped: bool) -> Result<Value, Invalid> {
        let span = if is_escaped {
            if !self.steps.spend(steps::of_escapes(end - start)) {
                return Err(Invalid);
            }
            let begin = self.made.len();
            decode(&self.text[start..end], self.made)?;
            Span::new(Source::Made, begin, self.made.len())
        } else {
            Span::new(Source::Body, start, end)
        };
        span.map(Value::Text).ok_or(Invalid)
    }

    fn open(&mut self, node: NodeId, is_object: bool) -> Result<Option<NodeId>, Invalid> {
        if self.room.open.len() == DEPTH_MAX {
            return Err(Invalid);
        }
        self.room.open.push(Open { node, start: self.at, index: 0, is_object });
        self.at = behind_space(self.text, self.at + 1);
        match self.text.get(self.at) {
            Some(b'}') if is_object => {
                self.close();
                Ok(None)
            }
            Some(b']') if !is_object => {
                self.close();
                Ok(None)
            }
            _ if is_object => self.key().map(Some),
            _ => Ok(Some(self.element())),
        }
    }

    /// Ends the innermost object or array at its bracket.
    #[inline(always)]
    fn close(&mut self) {
        self.at += 1;
        let Some(open) = self.room.open.pop() else { return };
        if let Some(slot) = self.slot(open.node)
            && let Some(span) = Span::new(Source::Body, open.start, self.at)
        {
            self.slots[slot] =
                if open.is_object { Value::Object(span) } else { Value::Array(span) };
        }
    }

    /// Reads a key and its colon. Returns the node of its value.
    #[inline(always)]
    fn key(&mut self) -> Result<NodeId, Invalid> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(Invalid);
        }
        let start = self.at + 1;
        let (end, is_escaped) = string_end(self.text, start)?;
        self.at = behind_space(self.text, end + 1);
        if self.text.get(self.at) != Some(&b':') {
            return Err(Invalid);
        }
        self.at += 1;
        let parent = self.parent();
        if parent == NONE {
            return Ok(NONE);
        }
        let found = if is_escaped {
            let begin = self.made.len();
            decode(&self.text[start..end], self.made)?;
            let found = self.trie.name(parent, self.made, begin, self.made.len());
            self.made.truncate(begin);
            found
        } else {
            self.trie.name(parent, self.text, start, end)
        };
        Ok(self.meet(found))
    }

    /// The node of the element that begins here.
    #[inline(always)]
    fn element(&mut self) -> NodeId {
        let found = match self.room.open.last() {
            Some(open) if open.node != NONE => self.trie.index(open.node, open.index),
            _ => None,
        };
        self.meet(found)
    }

    #[inline(always)]
    fn parent(&self) -> NodeId {
        self.room.open.last().map_or(NONE, |open| open.node)
    }

    /// Notes that a wanted value begins; what an earlier one of the same name left is forgotten.
    #[inline(always)]
    fn meet(&mut self, found: Option<NodeId>) -> NodeId {
        let Some(node) = found else { return NONE };
        let earlier =
            core::mem::replace(&mut self.room.places[node as usize], self.room.met.len() as u32);
        if earlier != UNSEEN {
            self.forget(node, earlier as usize);
        }
        self.room.met.push(node);
        node
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
