//! Ways through a part of a document that was checked before.

use super::text::{behind_space, decode, number, number_end, string_end};
use crate::path::Step;
use crate::steps::{self, Steps};
use crate::value::{Source, Span, Value};
use alloc::vec::Vec;

/// Appends the elements that a quantifier looks at: those of the array at `list`, each followed along `steps`.
/// Going through it was asked for before; what is asked here is each element, so that they are not all found where
/// `steps` runs out. As deep as there are `[*]` in the path.
pub(crate) fn elements(
    text: &[u8],
    list: Span,
    way: &[Step],
    made: &mut Vec<u8>,
    out: &mut Vec<Value>,
    steps: &mut Steps,
) {
    let (start, end) = (list.start as usize, (list.start + list.length) as usize);
    let text = text.get(..end).unwrap_or_default();
    Walk { text, made, out, steps }.expand(start, way);
}

/// Elements of an array or members of an object; equal keys count once.
pub(crate) fn size(text: &[u8], span: Span) -> usize {
    let (start, end) = (span.start as usize, (span.start + span.length) as usize);
    let text = text.get(..end).unwrap_or_default();
    let is_object = text.get(start) == Some(&b'{');
    let mut members = Members::new(text, start);
    let (mut count, mut keys) = (0, Vec::new());
    while let Some((key, _)) = members.next() {
        count += 1;
        if is_object {
            keys.push(key);
        }
    }
    if !is_object {
        return count;
    }
    let mut names: Vec<Vec<u8>> = keys
        .into_iter()
        .map(|(start, end)| {
            let mut name = Vec::new();
            // It was read before.
            let _ = decode(&text[start..end], &mut name);
            name
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

struct Walk<'w> {
    text: &'w [u8],
    made: &'w mut Vec<u8>,
    out: &'w mut Vec<Value>,
    steps: &'w mut Steps,
}

impl Walk<'_> {
    /// Follows `steps` from each element of the array at `at`; what is no array is its only element.
    fn expand(&mut self, at: usize, steps: &[Step]) {
        if self.text.get(at) != Some(&b'[') {
            return self.follow(at, steps);
        }
        let mut members = Members::new(self.text, at);
        while let Some((_, element)) = members.next() {
            if !self.steps.spend(steps::ELEMENT) {
                return;
            }
            self.follow(element, steps);
        }
    }

    /// Follows `steps` from a value.
    fn follow(&mut self, mut at: usize, steps: &[Step]) {
        for (index, step) in steps.iter().enumerate() {
            let found = match step {
                Step::Every if self.text[at..].starts_with(b"null") => None,
                Step::Every => return self.expand(at, &steps[index + 1..]),
                Step::Name(name) => self.member(at, name.as_bytes()),
                Step::Index(wanted) => self.element(at, *wanted as usize),
            };
            match found {
                Some(found) => at = found,
                None => return self.out.push(Value::Missing),
            }
        }
        let value = self.value(at);
        self.out.push(value);
    }

    /// The last member of that name.
    fn member(&mut self, at: usize, name: &[u8]) -> Option<usize> {
        if self.text.get(at) != Some(&b'{') {
            return None;
        }
        let mut members = Members::new(self.text, at);
        let mut found = None;
        while let Some(((start, end), value)) = members.next() {
            let key = &self.text[start..end];
            let is_same = if key.contains(&b'\\') {
                let begin = self.made.len();
                let is_same = decode(key, self.made).is_ok() && &self.made[begin..] == name;
                self.made.truncate(begin);
                is_same
            } else {
                key == name
            };
            if is_same {
                found = Some(value);
            }
        }
        found
    }

    fn element(&mut self, at: usize, wanted: usize) -> Option<usize> {
        if self.text.get(at) != Some(&b'[') {
            return None;
        }
        let mut members = Members::new(self.text, at);
        let mut index = 0;
        loop {
            match members.next() {
                Some((_, value)) if index == wanted => break Some(value),
                Some(_) => index += 1,
                None => break None,
            }
        }
    }

    fn value(&mut self, at: usize) -> Value {
        let span = |end: usize| Span::new(Source::Body, at, end);
        let found = match self.text.get(at) {
            Some(b'"') => {
                string_end::<false>(self.text, at + 1).ok().and_then(|(end, is_escaped)| {
                    if !is_escaped {
                        return Span::new(Source::Body, at + 1, end).map(Value::Text);
                    }
                    if !self.steps.spend(steps::of_escapes(end - at)) {
                        return None;
                    }
                    let begin = self.made.len();
                    decode(&self.text[at + 1..end], self.made).ok()?;
                    Span::new(Source::Made, begin, self.made.len()).map(Value::Text)
                })
            }
            Some(b'{') => span(value_end(self.text, at)).map(Value::Object),
            Some(b'[') => span(value_end(self.text, at)).map(Value::Array),
            Some(b't') => Some(Value::Bool(true)),
            Some(b'f') => Some(Value::Bool(false)),
            Some(b'-' | b'0'..=b'9') => {
                let digits = at + usize::from(self.text[at] == b'-');
                number_end(self.text, digits).ok().and_then(|end| {
                    let may_read = self.steps.spend(steps::of_number(end - at));
                    may_read.then(|| Value::Number(number(self.text, at, end)))
                })
            }
            _ => Some(Value::Null),
        };
        found.unwrap_or(Value::Missing)
    }
}

/// Goes through an object or array that is well-formed.
struct Members<'t> {
    text: &'t [u8],
    at: usize,
    is_object: bool,
    is_begun: bool,
}

impl<'t> Members<'t> {
    fn new(text: &'t [u8], at: usize) -> Members<'t> {
        Members { text, at: at + 1, is_object: text.get(at) == Some(&b'{'), is_begun: false }
    }

    /// The inside of the next key, empty in an array, and where its value begins.
    fn next(&mut self) -> Option<((usize, usize), usize)> {
        self.at = behind_space(self.text, self.at);
        match self.text.get(self.at)? {
            b'}' | b']' => return None,
            b',' if self.is_begun => self.at = behind_space(self.text, self.at + 1),
            _ => {}
        }
        self.is_begun = true;
        let mut key = (self.at, self.at);
        if self.is_object {
            key = (self.at + 1, string_end::<false>(self.text, self.at + 1).ok()?.0);
            // Behind the quote and the colon.
            self.at = behind_space(self.text, behind_space(self.text, key.1 + 1) + 1);
        }
        let value = self.at;
        self.at = value_end(self.text, value);
        Some((key, value))
    }
}

/// The place behind a well-formed value.
fn value_end(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => match string_end::<false>(text, at + 1) {
                Ok((end, _)) => at = end,
                Err(_) => return text.len(),
            },
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return at,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}
