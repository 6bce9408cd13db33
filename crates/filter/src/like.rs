//! `LIKE`: `%` for any text, `_` for one code point, anchored at both ends.

use crate::text;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Code points of a part between two `%` that holds `_` or is folded: it is looked for at each place of the string, so
/// this many steps per byte are the worst that a string can ask for.
const FLOATING_MAX: usize = 64;

/// As how many code points one counts that is compared without regard to case.
const FOLDED_STEPS: u64 = 8;
/// Code points that are compared in a step.
const UNITS_PER_STEP: u64 = 4;

/// A pattern, ready to be matched.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct LikePattern {
    /// What lies between the `%`, the empty ones in the middle left out.
    parts: Box<[Part]>,
    /// Whether the pattern begins with `%`.
    open_start: bool,
    /// Whether it ends with `%`.
    open_end: bool,
    folded: bool,
}

/// What lies between two `%`.
#[derive(Clone, Debug, PartialEq, Hash)]
enum Part {
    /// Bytes, with the table for looking for them.
    Plain(Box<[u8]>, Box<[u32]>),
    /// Code points, folded where the pattern is; `None` stands for any one.
    Units(Box<[Option<u32>]>),
}

impl LikePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// In words, when it ends with its escape or one of its parts is too long.
    pub(crate) fn new(
        pattern: &str,
        escape: Option<char>,
        folded: bool,
    ) -> Result<LikePattern, &'static str> {
        let mut parts: Vec<Vec<Option<char>>> = Vec::from([Vec::new()]);
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            let last = parts.last_mut().expect("there is always a part");
            if Some(character) == escape {
                let next = characters.next();
                last.push(Some(next.ok_or("the pattern ends with its escape character")?));
            } else if character == '%' {
                parts.push(Vec::new());
            } else {
                last.push((character != '_').then_some(character));
            }
        }
        let count = parts.len();
        let open_start = count > 1 && parts[0].is_empty();
        let open_end = count > 1 && parts[count - 1].is_empty();
        let mut kept = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            if part.is_empty() && count > 1 {
                continue;
            }
            let is_floating = index > 0 && index + 1 < count;
            let part = Part::new(&part, folded);
            if is_floating && part.is_long() {
                return Err(
                    "a part between two % with _ or without regard to case has at most 64 characters",
                );
            }
            kept.push(part);
        }
        Ok(LikePattern { parts: kept.into(), open_start, open_end, folded })
    }

    /// The bytes that every string it matches begins with; empty for a folded pattern.
    pub(crate) fn prefix(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Plain(bytes, _)) if !self.open_start => bytes,
            _ => &[],
        }
    }

    /// What looking at a string of so many bytes takes at most, in steps of some ten nanoseconds.
    pub(crate) fn steps(&self, bytes: usize) -> u64 {
        let parts = self.parts.len();
        let first_floating = usize::from(!self.open_start);
        let mut of_byte = 0;
        let mut steps = (1 + parts / 4 + bytes / 4) as u64;
        for (index, part) in self.parts.iter().enumerate() {
            let Part::Units(units) = part else { continue };
            let each = if self.folded { FOLDED_STEPS } else { 1 };
            let is_floating = index >= first_floating && (self.open_end || index + 1 < parts);
            if is_floating {
                // It is looked for at each place, but those of a part are not those of another.
                of_byte = of_byte.max(each * units.len() as u64);
            } else {
                // The end is found by counting.
                steps += each * units.len().min(bytes) as u64 + (bytes / 4) as u64;
            }
        }
        // As many units as are compared at a place, some in each step.
        steps += (bytes as u64).saturating_mul(of_byte.div_ceil(UNITS_PER_STEP));
        steps
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| match part {
            Part::Plain(bytes, failures) => bytes.len() + size_of_val(&**failures),
            Part::Units(units) => size_of_val(&**units),
        });
        size_of::<LikePattern>() + size_of_val(&*self.parts) + parts.sum::<usize>()
    }

    /// Whether the whole of `text` matches.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let is_anchored = !self.open_start && !self.open_end && self.parts.len() == 1;
        if is_anchored {
            return self.parts[0].at(text, self.folded) == Some(text.len());
        }
        let (mut rest, mut parts) = (text, &self.parts[..]);
        if !self.open_start
            && let [begin, others @ ..] = parts
        {
            let Some(length) = begin.at(rest, self.folded) else { return false };
            (rest, parts) = (&rest[length..], others);
        }
        if !self.open_end
            && let [others @ .., end] = parts
        {
            let Some(length) = end.before(rest, self.folded) else { return false };
            (rest, parts) = (&rest[..rest.len() - length], others);
        }
        // The first place of each part leaves most for those behind it.
        for part in parts {
            let Some(behind) = part.find(rest, self.folded) else { return false };
            rest = &rest[behind..];
        }
        true
    }
}

impl Part {
    fn new(units: &[Option<char>], folded: bool) -> Part {
        let plain: Option<alloc::string::String> = units.iter().copied().collect();
        match plain {
            Some(plain) if !folded => {
                let failures = text::failures(plain.as_bytes()).into();
                Part::Plain(plain.into_bytes().into(), failures)
            }
            _ => {
                let fold = |unit: char| if folded { text::fold(unit.into()) } else { unit.into() };
                Part::Units(units.iter().map(|unit| unit.map(fold)).collect())
            }
        }
    }

    fn is_long(&self) -> bool {
        matches!(self, Part::Units(units) if units.len() > FLOATING_MAX)
    }

    /// Bytes at the start of `text` that it takes.
    fn at(&self, text: &[u8], folded: bool) -> Option<usize> {
        match self {
            Part::Plain(bytes, _) => text.starts_with(bytes).then_some(bytes.len()),
            Part::Units(units) => {
                let mut at = 0;
                for unit in units {
                    let (found, length) = text::first(&text[at..])?;
                    let found = if folded { text::fold(found) } else { found };
                    if unit.is_some_and(|unit| unit != found) {
                        return None;
                    }
                    at += length;
                }
                Some(at)
            }
        }
    }

    /// Bytes at the end of `text` that it takes.
    fn before(&self, text: &[u8], folded: bool) -> Option<usize> {
        match self {
            Part::Plain(bytes, _) => text.ends_with(bytes).then_some(bytes.len()),
            Part::Units(units) => {
                let begin = text.len() - last_units(text, units.len())?;
                (self.at(&text[begin..], folded)? == text.len() - begin)
                    .then_some(text.len() - begin)
            }
        }
    }

    /// Behind its first place in `text`.
    fn find(&self, text: &[u8], folded: bool) -> Option<usize> {
        if let Part::Plain(bytes, failures) = self {
            return text::find(text, bytes, failures).map(|at| at + bytes.len());
        }
        let mut at = 0;
        loop {
            if let Some(length) = self.at(&text[at..], folded) {
                return Some(at + length);
            }
            at += text::first(&text[at..])?.1;
        }
    }
}

/// Bytes of the last code points of `text`.
fn last_units(text: &[u8], count: usize) -> Option<usize> {
    let total = text::count(text);
    let begin = total.checked_sub(count)?;
    Some(text.len() - text::place(text, begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(text: &str, pattern: &str) -> bool {
        LikePattern::new(pattern, Some('!'), false).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn parts_are_found_in_their_order_and_do_not_overlap() {
        let rows = [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("a", "a%a", false),
            ("aa", "a%a", true),
            ("abcabc", "%abc", true),
            ("aab", "%ab%", true),
            ("car🥕rot", "car_rot", true),
            ("car🥕rot", "%_🥕_%", true),
            ("xay", "%a_%_", false),
            ("xayz", "%a_%_", true),
            ("5%", "_!%", true),
            ("ab", "a%b%", true),
            ("abab", "ab%ab%ab", false),
        ];
        for (text, pattern, expected) in rows {
            assert_eq!(like(text, pattern), expected, "{text} LIKE {pattern}");
        }
    }

    #[test]
    fn case_is_folded_on_both_sides() {
        let folded = LikePattern::new("%STRASSE é%", None, true).unwrap();
        assert!(folded.matches("Hauptstrasse É1".as_bytes()));
        assert!(!folded.matches("Hauptstrase É1".as_bytes()));
        assert_eq!(folded.prefix(), b"");
    }

    #[test]
    fn what_would_be_slow_or_means_nothing_is_refused() {
        assert!(LikePattern::new("a!", Some('!'), false).is_err());
        assert!(LikePattern::new(&alloc::format!("%{}%", "_".repeat(65)), None, false).is_err());
        assert!(LikePattern::new(&"_".repeat(65), None, false).is_ok());
        assert_eq!(LikePattern::new("ab_%", None, false).unwrap().prefix(), b"");
        assert_eq!(LikePattern::new("ab%c", None, false).unwrap().prefix(), b"ab");
    }
}
