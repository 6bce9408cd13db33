//! Expressions that look around: what is found depends on what does, or does not, stand before or behind a place.
//!
//! The engine that others use has nothing of the kind, and engines that have it go back and forth for an unbounded time.
//! Whether a name is matched at all can be found without that: for each part of the expression the places of a name
//! are computed at which it may end, given those at which it may begin. So a part is looked at once for a set of
//! places, not once for each way to get there, and a limit of steps holds, in which every place counts.
//!
//! `docs/decisions/look-around.md` says why this and no library.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// Parts of an expression, counted as often as they are repeated.
const WEIGHT_MAX: u64 = 4_000;
/// What a search for one name may cost: looks at one place each, of a class at one range of it. Some hundred
/// microseconds.
const STEPS_MAX: usize = 100_000;
/// What it costs to look at a part, beside its places.
const PART_STEPS: usize = 8;
/// Bytes of the summary that each part has.
const PROPERTIES_BYTES: usize = 96;
/// Groups within groups.
const NEST_MAX: u32 = 100;

/// Where a group looks, and for what. No group of a client's has such a name: theirs begin with a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Its body stands behind the place.
    Ahead,
    /// It does not.
    NotAhead,
    /// Its body stands before the place.
    Behind,
    /// It does not.
    NotBehind,
}

impl Side {
    const ALL: [Side; 4] = [Side::Ahead, Side::NotAhead, Side::Behind, Side::NotBehind];

    /// What its group begins with in an expression.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Side::Ahead => "?=",
            Side::NotAhead => "?!",
            Side::Behind => "?<=",
            Side::NotBehind => "?<!",
        }
    }

    /// The side of which a group's text, after the bracket, begins with its sign.
    pub(super) fn of(group: &[u8]) -> Option<Side> {
        Side::ALL.into_iter().find(|side| group.starts_with(side.sign().as_bytes()))
    }

    /// Whether what is found rules a match out.
    pub(super) fn is_negative(self) -> bool {
        matches!(self, Side::NotAhead | Side::NotBehind)
    }

    /// The name of the group that stands for it, the `number`th of an expression.
    pub(super) fn group_name(self, number: usize) -> String {
        let word = match self {
            Side::Ahead => "_ahead",
            Side::NotAhead => "_not_ahead",
            Side::Behind => "_behind",
            Side::NotBehind => "_not_behind",
        };
        format!("{word}.{number}")
    }

    fn of_name(name: &str) -> Option<Side> {
        let word = name.split_once('.')?.0;
        Side::ALL
            .into_iter()
            .find(|side| side.group_name(0).split_once('.').unwrap_or_default().0 == word)
    }
}

/// An expression that looks around.
#[derive(Clone, Debug)]
pub(super) struct LookAround {
    expression: Hir,
    bytes: usize,
}

impl LookAround {
    /// From an expression in which groups with names of [`Side::group_name`] stand for what is looked for.
    ///
    /// # Errors
    /// In words, for what is no expression, or is too large.
    pub(super) fn new(expression: &str) -> Result<LookAround, String> {
        let mut parser =
            ParserBuilder::new().unicode(false).utf8(false).nest_limit(NEST_MAX).build();
        let expression = parser.parse(expression).map_err(|error| error.to_string())?;
        if weight(&expression) > WEIGHT_MAX {
            return Err(format!(
                "more than {WEIGHT_MAX} parts, counted as often as they are repeated"
            ));
        }
        let bytes = bytes(&expression);
        Ok(LookAround { expression, bytes })
    }

    /// Whether it is found in a text, and in how many steps. Where these are too many it is not.
    pub(super) fn find(&self, text: &[u8]) -> (bool, usize) {
        let mut search = Search { text, steps: 0 };
        let found = search.ends(&self.expression, &Places::all(text.len()));
        (found.is_some_and(|ends| !ends.is_empty()), search.steps)
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// About how many bytes an expression takes: each part is a value of its own, with a summary of what it can match.
fn bytes(part: &Hir) -> usize {
    let own = size_of::<Hir>() + PROPERTIES_BYTES;
    own + match part.kind() {
        HirKind::Repetition(Repetition { sub, .. }) => bytes(sub),
        HirKind::Capture(capture) => {
            bytes(&capture.sub) + capture.name.as_ref().map_or(0, |name| name.len())
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(bytes).sum(),
        HirKind::Literal(text) => text.0.len(),
        HirKind::Class(class) => 2 * size_of::<u32>() * ranges(class),
        HirKind::Empty | HirKind::Look(_) => 0,
    }
}

fn ranges(class: &Class) -> usize {
    match class {
        Class::Bytes(class) => class.ranges().len(),
        Class::Unicode(class) => class.ranges().len(),
    }
}

/// How many parts an expression has, counted as often as they are repeated at least or at most.
fn weight(part: &Hir) -> u64 {
    match part.kind() {
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let times = u64::from(max.unwrap_or(min.saturating_add(1)));
            weight(sub).saturating_mul(times.max(1)).saturating_add(1)
        }
        HirKind::Capture(capture) => weight(&capture.sub).saturating_add(1),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(1, |sum: u64, part| sum.saturating_add(weight(part)))
        }
        HirKind::Literal(text) => 1 + text.0.len() as u64 / 16,
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => 1,
    }
}

/// Places between the bytes of a text, its beginning and its end among them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Places(Vec<u64>);

impl Places {
    /// None of a text of so many bytes.
    fn none(bytes: usize) -> Places {
        Places(vec![0; bytes / 64 + 1])
    }

    /// All of them.
    fn all(bytes: usize) -> Places {
        let mut places = Places(vec![u64::MAX; bytes / 64 + 1]);
        places.0[bytes / 64] = u64::MAX >> (63 - bytes % 64);
        places
    }

    /// One of them.
    fn one(bytes: usize, place: usize) -> Places {
        let mut places = Places::none(bytes);
        places.add(place);
        places
    }

    fn add(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn has(&self, place: usize) -> bool {
        self.0[place / 64] & 1 << (place % 64) != 0
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Adds those of others.
    fn join(&mut self, others: &Places) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word |= other);
    }

    /// Takes those of others out.
    fn leave(&mut self, others: &Places) {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= !other);
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

/// One text that is searched.
struct Search<'a> {
    text: &'a [u8],
    steps: usize,
}

impl Search<'_> {
    /// Takes so many steps; `None` if they are too many.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.steps += steps;
        (self.steps <= STEPS_MAX).then_some(())
    }

    /// What it costs to make or to join a set of places.
    fn set_steps(&self) -> usize {
        1 + self.text.len() / 64
    }

    /// Where a part may end that begins at one of these places; `None` after too many steps.
    fn ends(&mut self, part: &Hir, starts: &Places) -> Option<Places> {
        self.spend(PART_STEPS + self.set_steps())?;
        Some(match part.kind() {
            HirKind::Empty => starts.clone(),
            HirKind::Literal(literal) => {
                self.spend(starts.count() * (1 + literal.0.len() / 16))?;
                let is_there = |place: &usize| self.text[*place..].starts_with(&literal.0);
                self.moved(starts.iter().filter(is_there), literal.0.len())
            }
            HirKind::Class(class) => {
                self.spend(starts.count() * (1 + ranges(class)))?;
                let is_there =
                    |place: &usize| self.text.get(*place).is_some_and(|byte| is_in(class, *byte));
                self.moved(starts.iter().filter(is_there), 1)
            }
            HirKind::Look(look) => {
                self.spend(starts.count())?;
                let is_there = |place: &usize| is_at(*look, self.text, *place);
                self.moved(starts.iter().filter(is_there), 0)
            }
            HirKind::Repetition(repetition) => return self.repeated(repetition, starts),
            HirKind::Capture(capture) => {
                return match capture.name.as_deref().and_then(Side::of_name) {
                    Some(side) => self.looked(side, &capture.sub, starts),
                    None => self.ends(&capture.sub, starts),
                };
            }
            HirKind::Concat(parts) => {
                let mut places = starts.clone();
                for part in parts {
                    if places.is_empty() {
                        break;
                    }
                    places = self.ends(part, &places)?;
                }
                places
            }
            HirKind::Alternation(parts) => {
                let mut places = Places::none(self.text.len());
                for part in parts {
                    places.join(&self.ends(part, starts)?);
                }
                places
            }
        })
    }

    /// These places, each so many bytes further on.
    fn moved(&self, places: impl Iterator<Item = usize>, bytes: usize) -> Places {
        let mut moved = Places::none(self.text.len());
        places.for_each(|place| moved.add(place + bytes));
        moved
    }

    fn repeated(&mut self, repetition: &Repetition, starts: &Places) -> Option<Places> {
        let Repetition { min, max, sub, .. } = repetition;
        let mut last = starts.clone();
        for _ in 0..*min {
            if last.is_empty() {
                return Some(last);
            }
            last = self.ends(sub, &last)?;
        }
        let mut all = last.clone();
        if max.is_none()
            && let HirKind::Class(class) = sub.kind()
        {
            self.sweep(class, &mut all)?;
            return Some(all);
        }
        let mut left = max.map(|max| max - min);
        while left != Some(0) && !last.is_empty() {
            last = self.ends(sub, &last)?;
            self.spend(2 * self.set_steps())?;
            // Who got to a place with fewer repetitions gets as far from there as who got to it with more.
            last.leave(&all);
            all.join(&last);
            left = left.map(|left| left - 1);
        }
        Some(all)
    }

    /// Adds the places that are got to from these over bytes of a class.
    fn sweep(&mut self, class: &Class, places: &mut Places) -> Option<()> {
        let Some(first) = places.iter().next() else { return Some(()) };
        self.spend((self.text.len() - first) * (1 + ranges(class)))?;
        for place in first..self.text.len() {
            if places.has(place) && is_in(class, self.text[place]) {
                places.add(place + 1);
            }
        }
        Some(())
    }

    /// Those of the places at which what is looked for is, or is not.
    fn looked(&mut self, side: Side, body: &Hir, starts: &Places) -> Option<Places> {
        let bytes = self.text.len();
        self.spend(starts.count())?;
        let found = match side {
            Side::Behind | Side::NotBehind => self.ends(body, &Places::all(bytes))?,
            Side::Ahead | Side::NotAhead => {
                let mut found = Places::none(bytes);
                for place in starts.iter() {
                    if !self.ends(body, &Places::one(bytes, place))?.is_empty() {
                        found.add(place);
                    }
                }
                found
            }
        };
        let is_wanted = |place: &usize| found.has(*place) != side.is_negative();
        Some(self.moved(starts.iter().filter(is_wanted), 0))
    }
}

fn is_in(class: &Class, byte: u8) -> bool {
    match class {
        Class::Bytes(class) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&byte))
        }
        // Such a class has ASCII alone, as the parser is told.
        Class::Unicode(class) => {
            let is_in = |character| {
                class
                    .ranges()
                    .iter()
                    .any(|range| (range.start()..=range.end()).contains(&character))
            };
            byte.is_ascii() && is_in(char::from(byte))
        }
    }
}

fn is_at(look: Look, text: &[u8], place: usize) -> bool {
    let before = place.checked_sub(1).map(|place| text[place]);
    let behind = text.get(place).copied();
    let is_word =
        |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match look {
        Look::Start => before.is_none(),
        Look::End => behind.is_none(),
        Look::StartLF => before.is_none_or(|byte| byte == b'\n'),
        Look::EndLF => behind.is_none_or(|byte| byte == b'\n'),
        Look::WordAscii => is_word(before) != is_word(behind),
        Look::WordAsciiNegate => is_word(before) == is_word(behind),
        // No translated expression has one of the others.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use lepus_base::Rng;
    use regex::bytes::RegexBuilder;

    /// An expression that looks nowhere, and is the same for both engines.
    fn random(rng: &mut Rng, depth: u32) -> String {
        let leaf = |rng: &mut Rng| {
            let leaves =
                ["a", "b", "ab", ".", "[ab]", "[^a]", "^", "$", "\\b", "\\B", "", "(?i:A)"];
            String::from(leaves[rng.below(leaves.len() as u64) as usize])
        };
        if depth == 0 {
            return leaf(rng);
        }
        let mut part = || Box::new(random(rng, depth - 1));
        let (one, other) = (part(), part());
        match rng.below(8) {
            0 => format!("(?:{one}|{other})"),
            1 => format!("(?:{one})*"),
            2 => format!("(?:{one})+?"),
            3 => format!("(?:{one})?{other}"),
            4 => format!("(?:{one}){{1,3}}"),
            5 => format!("({one}){other}"),
            _ => format!("{one}{other}"),
        }
    }

    #[test]
    fn without_a_look_around_it_finds_what_the_other_engine_finds() {
        let mut rng = Rng::new(5);
        for _ in 0..3_000 {
            let depth = 1 + rng.below(3) as u32;
            let expression = random(&mut rng, depth);
            let other = RegexBuilder::new(&expression).unicode(false).build().unwrap();
            let own = LookAround::new(&expression).unwrap();
            for _ in 0..8 {
                let length = rng.below(6) as usize;
                let text: Vec<u8> = (0..length).map(|_| b"abA \n"[rng.below(5) as usize]).collect();
                let found = other.is_match(&text);
                assert_eq!(own.find(&text).0, found, "{expression:?} on {text:?}");
            }
        }
    }

    #[test]
    fn places_are_of_a_text_of_any_length() {
        for bytes in [0, 1, 63, 64, 65, 255] {
            assert_eq!(Places::all(bytes).iter().count(), bytes + 1);
            assert!(Places::one(bytes, bytes).has(bytes) && Places::none(bytes).is_empty());
        }
    }

    #[test]
    fn what_takes_too_many_steps_is_not_found() {
        let slow = LookAround::new("(?:(?P<_ahead.1>(?P<_ahead.2>.*b)*)a)*$").unwrap();
        assert!(slow.find(b"aab").0, "it is found where it takes few");
        assert!(!slow.find("a".repeat(4_000).as_bytes()).0);
    }
}
