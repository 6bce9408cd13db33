//! The projecting scanner.

use super::text::{
    Key, LENGTH_MAX, chunk, decode, is_plain, key, next, number, number_end, string_end,
};
use super::{DEPTH_MAX, Invalid};
use crate::steps::{self, Steps};
use crate::trie::{Names, NodeId, Trie, print};
use crate::value::{Source, Span, Value};
use alloc::vec::Vec;

/// Nothing below is wanted.
const NONE: NodeId = NodeId::MAX;
/// Not met yet.
const UNSEEN: u32 = u32::MAX;

/// Room that a scan needs, used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Wanted nodes in the order in which they were met.
    met: Vec<NodeId>,
    /// By node, its last place in `met`; that of one that was not met is [`UNSEEN`], also of nodes of other tries.
    places: Vec<u32>,
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
    /// Reads all of a text, which is plain or not. What is not wanted is read by functions of its own.
    fn document<const PLAIN: bool>(&mut self) -> Result<(), Invalid> {
        let root = if self.trie.is_empty() { NONE } else { 0 };
        let end = self.value::<PLAIN, true>(root, 0, 0)?;
        if next(self.text, end).1 == self.text.len() { Ok(()) } else { Err(Invalid) }
    }

    /// Reads the value of a node, space before it, inside so many objects and arrays. Returns the place behind it.
    #[inline(always)]
    fn value<const PLAIN: bool, const WANTED: bool>(
        &mut self,
        node: NodeId,
        at: usize,
        depth: usize,
    ) -> Result<usize, Invalid> {
        let text = self.text;
        let (byte, start) = next(text, at);
        if byte == b'"' {
            let (end, is_escaped) = string_end::<PLAIN>(text, start + 1)?;
            if WANTED && node != NONE {
                self.string(node, start + 1, end, !PLAIN && is_escaped)?;
            }
            return Ok(end + 1);
        }
        if byte.is_ascii_digit() {
            let end = number_end(text, start)?;
            if WANTED && node != NONE {
                self.number(node, start, end)?;
            }
            return Ok(end);
        }
        match byte {
            b'{' => {
                if !WANTED || node == NONE {
                    return self.object::<PLAIN, false>(NONE, start + 1, depth);
                }
                let end = self.object::<PLAIN, true>(node, start + 1, depth)?;
                self.keep(node, Value::Object(body_span(start, end)));
                Ok(end)
            }
            b'[' => {
                if !WANTED || node == NONE {
                    return self.array::<PLAIN, false>(NONE, start + 1, depth);
                }
                let end = self.array::<PLAIN, true>(node, start + 1, depth)?;
                self.keep(node, Value::Array(body_span(start, end)));
                Ok(end)
            }
            b't' => self.word(node, start, b"true", Value::Bool(true)),
            b'f' => self.word(node, start, b"false", Value::Bool(false)),
            b'n' => self.word(node, start, b"null", Value::Null),
            b'-' => {
                let end = number_end(text, start + 1)?;
                if WANTED && node != NONE {
                    self.number(node, start, end)?;
                }
                Ok(end)
            }
            _ => Err(Invalid),
        }
    }

    /// Reads the members of an object behind its bracket. Returns the place behind the other one. As deep as the document.
    fn object<const PLAIN: bool, const WANTED: bool>(
        &mut self,
        parent: NodeId,
        at: usize,
        depth: usize,
    ) -> Result<usize, Invalid> {
        if depth == DEPTH_MAX {
            return Err(Invalid);
        }
        let text = self.text;
        let (byte, mut at) = next(text, at);
        match byte {
            b'"' => at += 1,
            b'}' => return Ok(at + 1),
            _ => return Err(Invalid),
        }
        let trie = self.trie;
        let names = if WANTED { trie.names(parent) } else { Names::default() };
        loop {
            let (node, behind) = self.key::<PLAIN, WANTED>(names, at)?;
            at = self.value::<PLAIN, WANTED>(node, behind, depth + 1)?;
            // Mostly another member follows.
            if chunk(text, at) == Some(b",\"") {
                at += 2;
                continue;
            }
            match next(text, at) {
                (b'}', place) => return Ok(place + 1),
                (b',', place) => match next(text, place + 1) {
                    (b'"', place) => at = place + 1,
                    _ => return Err(Invalid),
                },
                _ => return Err(Invalid),
            }
        }
    }

    /// Reads the elements of an array behind its bracket. Returns the place behind the other one. As deep as the document.
    fn array<const PLAIN: bool, const WANTED: bool>(
        &mut self,
        parent: NodeId,
        mut at: usize,
        depth: usize,
    ) -> Result<usize, Invalid> {
        if depth == DEPTH_MAX {
            return Err(Invalid);
        }
        let text = self.text;
        if let (b']', place) = next(text, at) {
            return Ok(place + 1);
        }
        let mut index = 0;
        loop {
            let node = if WANTED { self.meet(self.trie.index(parent, index)) } else { NONE };
            at = self.value::<PLAIN, WANTED>(node, at, depth + 1)?;
            match next(text, at) {
                (b',', place) => at = place + 1,
                (b']', place) => return Ok(place + 1),
                _ => return Err(Invalid),
            }
            index += 1;
        }
    }

    /// Reads a key, whose inside begins at a place, and its colon. The node of its value, and what is behind the colon.
    #[inline(always)]
    fn key<const PLAIN: bool, const WANTED: bool>(
        &mut self,
        names: Names<'_>,
        start: usize,
    ) -> Result<(NodeId, usize), Invalid> {
        let Key { end, behind, is_escaped, print } = key::<PLAIN>(self.text, start)?;
        if !WANTED {
            return Ok((NONE, behind));
        }
        let found = if !PLAIN && is_escaped {
            self.escaped(names, start, end)?
        } else {
            names.find(print, self.text, start, end)
        };
        Ok((self.meet(found), behind))
    }

    #[cold]
    fn escaped(
        &mut self,
        names: Names<'_>,
        start: usize,
        end: usize,
    ) -> Result<Option<NodeId>, Invalid> {
        self.steps.allow(steps::of_escapes(end - start));
        let begin = self.made.len();
        decode(&self.text[start..end], self.made)?;
        let (made, end) = (&self.made[..], self.made.len());
        let found = names.find(print(made, begin, end), made, begin, end);
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
        if chunk(self.text, start) != Some(word) {
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
        if !self.steps.spend_on_string(steps::of_escapes(end - start)) {
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
            if end - start > steps::DIGITS_QUICK && !self.steps.spend_on_number(end - start) {
                return Err(Invalid);
            }
            self.slots[slot] = Value::Number(number(self.text, start, end));
        }
        Ok(())
    }

    /// Notes that a wanted value begins; what an earlier one of the same name left is forgotten.
    #[inline(always)]
    fn meet(&mut self, found: Option<NodeId>) -> NodeId {
        let Some(node) = found else { return NONE };
        self.steps.allow(steps::MET);
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
        self.steps.allow(steps::MET_WITH_OTHERS);
    }

    /// Each value is forgotten once at most, so the work is bounded by what was met.
    #[cold]
    fn forget(&mut self, node: NodeId, earlier: usize) {
        let trie = self.trie;
        let below = self.room.met[earlier..].iter().take_while(|met| trie.is_within(**met, node));
        for &met in below {
            self.steps.allow(steps::MET);
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
