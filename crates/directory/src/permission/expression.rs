//! From the expressions that RabbitMQ takes to those of the engine here, with the same meaning or a
//! narrower one, never a wider one.
//!
//! RabbitMQ compares bytes, not characters, and knows no classes of Unicode. A brace that is no
//! repetition is text. A bracket that opens within a class is text, and no operator stands there.
//! What no engine here can do (back references, atomic groups, possessive repetitions) is refused, as is what would
//! mean something else here. Groups that look around get a name each, which the engine for them knows.
//!
//! Where what is found rules a match out, a part that is narrower would make the whole wider: there the wider meaning
//! is taken of what is not certain.

use super::look_around::Side;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// Letters of Latin 1: whether `\w` takes them depends on where RabbitMQ runs.
const LATIN_LETTERS: [core::ops::RangeInclusive<u8>; 6] =
    [0xaa..=0xaa, 0xb5..=0xb5, 0xba..=0xba, 0xc0..=0xd6, 0xd8..=0xf6, 0xf8..=0xff];
/// Spaces of Latin 1: whether `\s` takes them depends on the same.
const LATIN_SPACES: [u8; 2] = [0x85, 0xa0];

/// A set of bytes.
#[derive(Clone, Copy)]
struct Bytes([bool; 256]);

impl Bytes {
    const NONE: Bytes = Bytes([false; 256]);

    fn of(is_member: impl Fn(u8) -> bool) -> Bytes {
        let mut bytes = Bytes::NONE;
        bytes.add(is_member);
        bytes
    }

    fn add(&mut self, is_member: impl Fn(u8) -> bool) {
        for byte in 0..=u8::MAX {
            self.0[usize::from(byte)] |= is_member(byte);
        }
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }
}

/// What a class takes for certain, and what it may take.
struct Class {
    sure: Bytes,
    possible: Bytes,
}

impl Class {
    fn new() -> Class {
        Class { sure: Bytes::NONE, possible: Bytes::NONE }
    }

    /// Adds a kind of bytes, such as digits; all others where `is_other`.
    fn add(&mut self, kind: Kind, is_other: bool) {
        let (sure, possible) = kind.members();
        if is_other {
            self.sure.add(|byte| !possible.has(byte));
            self.possible.add(|byte| !sure.has(byte));
        } else {
            self.sure.add(|byte| sure.has(byte));
            self.possible.add(|byte| possible.has(byte));
        }
    }

    fn add_range(&mut self, first: u8, last: u8) {
        self.sure.add(|byte| (first..=last).contains(&byte));
        self.possible.add(|byte| (first..=last).contains(&byte));
    }

    /// Writes the class. The complement is left to the engine, which knows about case. What it may take counts where
    /// the meaning `is_wide`.
    fn write(&self, is_complement: bool, is_wide: bool, out: &mut String) {
        let members = if is_complement == is_wide { self.sure } else { self.possible };
        let sign = match (is_complement, members.0.contains(&true)) {
            (true, true) => "^",
            (false, true) => "",
            // Nothing is not written as such: everything but everything.
            (true, false) => return out.push_str("[\\x00-\\xff]"),
            (false, false) => return out.push_str("[^\\x00-\\xff]"),
        };
        let _ = write!(out, "[{sign}");
        let mut byte = 0;
        while byte < 256 {
            if members.0[byte] {
                let first = byte;
                while byte < 255 && members.0[byte + 1] {
                    byte += 1;
                }
                let _ = write!(out, "\\x{first:02x}-\\x{byte:02x}");
            }
            byte += 1;
        }
        out.push(']');
    }
}

/// Kinds of bytes that have a name.
#[derive(Clone, Copy)]
enum Kind {
    Digit,
    Word,
    Space,
    Horizontal,
    Vertical,
    /// A class of POSIX: what it takes of ASCII.
    Posix(fn(&u8) -> bool),
}

impl Kind {
    /// Those that belong to it for certain, and those that may.
    fn members(self) -> (Bytes, Bytes) {
        let is_latin = |byte| LATIN_LETTERS.iter().any(|range| range.contains(&byte));
        let both = |bytes| (bytes, bytes);
        match self {
            Kind::Digit => both(Bytes::of(|byte| byte.is_ascii_digit())),
            Kind::Word => {
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                (Bytes::of(is_word), Bytes::of(|byte| is_word(byte) || is_latin(byte)))
            }
            Kind::Space => {
                let is_space = |byte| matches!(byte, 9..=13 | b' ');
                let may_be = |byte| is_space(byte) || LATIN_SPACES.contains(&byte);
                (Bytes::of(is_space), Bytes::of(may_be))
            }
            Kind::Horizontal => both(Bytes::of(|byte| matches!(byte, 9 | b' ' | 0xa0))),
            Kind::Vertical => both(Bytes::of(|byte| matches!(byte, 10..=13 | 0x85))),
            Kind::Posix(is_member) => {
                let may_be = |byte: u8| is_member(&byte) || !byte.is_ascii();
                (Bytes::of(|byte| is_member(&byte)), Bytes::of(may_be))
            }
        }
    }

    fn of_posix(name: &[u8]) -> Option<Kind> {
        let is_member: fn(&u8) -> bool = match name {
            b"alpha" => u8::is_ascii_alphabetic,
            b"lower" => u8::is_ascii_lowercase,
            b"upper" => u8::is_ascii_uppercase,
            b"alnum" => u8::is_ascii_alphanumeric,
            b"ascii" => u8::is_ascii,
            b"blank" => |byte| matches!(byte, 9 | b' '),
            b"cntrl" => u8::is_ascii_control,
            b"graph" => u8::is_ascii_graphic,
            b"print" => |byte| matches!(byte, b' '..=b'~'),
            b"punct" => u8::is_ascii_punctuation,
            b"xdigit" => u8::is_ascii_hexdigit,
            b"digit" => return Some(Kind::Digit),
            b"space" => return Some(Kind::Space),
            b"word" => return Some(Kind::Word),
            _ => return None,
        };
        Some(Kind::Posix(is_member))
    }
}

/// What stands behind a backslash.
enum Escape {
    Byte(u8),
    /// A kind of bytes, or all others.
    Kind(Kind, bool),
    /// A place between bytes, by the engine's letter.
    Place(char),
    /// The end, a line feed there left out.
    End,
    /// What follows is text.
    Quote,
}

/// An expression in the form of the engines here.
pub(super) struct Translation {
    /// The expression.
    pub(super) expression: String,
    /// Whether it has groups that look around.
    pub(super) looks_around: bool,
}

/// The engines' form of an expression.
///
/// # Errors
/// In words, where it cannot be had with the same meaning.
pub(super) fn translate(text: &str) -> Result<Translation, String> {
    let mut reader = Reader {
        rest: text.as_bytes(),
        out: String::with_capacity(text.len() + 8),
        groups: Vec::new(),
        looks: 0,
        has_comments: false,
    };
    while let Some(byte) = reader.next() {
        match byte {
            b'$' if reader.is_wide() => reader.wide_end("$"),
            b')' => {
                reader.groups.pop();
                reader.out.push(')');
            }
            b'\\' => reader.escape()?,
            b'[' => reader.class()?,
            b'(' => reader.group()?,
            b'*' | b'+' | b'?' => {
                reader.out.push(char::from(byte));
                reader.greed()?;
            }
            b'{' => match reader.repetition() {
                Some(repetition) => {
                    let _ = write!(reader.out, "{{{repetition}}}");
                    reader.greed()?;
                }
                None => reader.literal(b'{'),
            },
            b'.' | b'|' | b'^' | b'$' | b' ' | b'#' | b'\t' | b'\n' | b'\r' => {
                reader.out.push(char::from(byte));
            }
            _ => reader.literal(byte),
        }
    }
    let looks_around = reader.looks > 0;
    if looks_around && reader.has_comments {
        // Where a group ends could not be told.
        return Err("look-around together with the flag x is not supported".into());
    }
    Ok(Translation { expression: reader.out, looks_around })
}

struct Reader<'a> {
    rest: &'a [u8],
    out: String,
    /// Of the groups that are open, which rule a match out.
    groups: Vec<bool>,
    /// Groups that look around.
    looks: usize,
    /// Some flag lets spaces and comments stand anywhere.
    has_comments: bool,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes the bytes up to `end` and `end` itself.
    fn up_to(&mut self, end: &[u8]) -> Option<&[u8]> {
        let length = self.rest.windows(end.len()).position(|window| window == end)?;
        let (before, rest) = self.rest.split_at(length);
        self.rest = &rest[end.len()..];
        Some(before)
    }

    fn literal(&mut self, byte: u8) {
        if byte.is_ascii_alphanumeric() {
            self.out.push(char::from(byte));
        } else {
            let _ = write!(self.out, "\\x{byte:02x}");
        }
    }

    /// Whether the wider meaning is the safe one: an odd number of open groups rules a match out.
    fn is_wide(&self) -> bool {
        self.groups.iter().filter(|rules_out| **rules_out).count() % 2 == 1
    }

    /// The end of the name, and the place before a line feed there.
    fn wide_end(&mut self, end: &str) {
        self.looks += 1;
        let name = Side::Ahead.group_name(self.looks);
        let _ = write!(self.out, "(?P<{name}>\\n?{end})");
    }

    /// What may follow a repetition.
    fn greed(&mut self) -> Result<(), String> {
        match self.peek() {
            Some(b'?') => {
                self.rest = &self.rest[1..];
                self.out.push('?');
                Ok(())
            }
            Some(b'+') => Err("possessive repetitions are not supported".into()),
            _ => Ok(()),
        }
    }

    /// The numbers of a repetition behind its brace, which are taken if it is one.
    fn repetition(&mut self) -> Option<String> {
        let length = self.rest.iter().position(|byte| *byte == b'}')?;
        let inside = core::str::from_utf8(&self.rest[..length]).ok()?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_repetition = match inside.split_once(',') {
            None => is_number(inside),
            Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
        };
        let numbers = is_repetition.then(|| inside.into())?;
        self.rest = &self.rest[length + 1..];
        Some(numbers)
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.escaped(false)? {
            Escape::Byte(byte) => self.literal(byte),
            Escape::End if self.is_wide() => self.wide_end("\\z"),
            Escape::End => self.out.push_str("\\z"),
            Escape::Place(letter) => {
                let _ = write!(self.out, "\\{letter}");
            }
            Escape::Kind(kind, is_other) => {
                let mut class = Class::new();
                class.add(kind, false);
                class.write(is_other, self.is_wide(), &mut self.out);
            }
            Escape::Quote => {
                let quoted = self.rest;
                let length = match self.up_to(b"\\E") {
                    Some(text) => text.len(),
                    None => core::mem::take(&mut self.rest).len(),
                };
                quoted[..length].iter().for_each(|byte| self.literal(*byte));
            }
        }
        Ok(())
    }

    fn escaped(&mut self, in_class: bool) -> Result<Escape, String> {
        let Some(byte) = self.next() else {
            return Err("it ends with a backslash".into());
        };
        Ok(match byte {
            b'd' | b'D' => Escape::Kind(Kind::Digit, byte == b'D'),
            b'w' | b'W' => Escape::Kind(Kind::Word, byte == b'W'),
            b's' | b'S' => Escape::Kind(Kind::Space, byte == b'S'),
            b'h' | b'H' => Escape::Kind(Kind::Horizontal, byte == b'H'),
            b'v' | b'V' => Escape::Kind(Kind::Vertical, byte == b'V'),
            b'b' if in_class => Escape::Byte(8),
            b'b' | b'B' | b'A' | b'z' if !in_class => Escape::Place(char::from(byte)),
            // A line feed at the end may stand behind it there; here it may not.
            b'Z' if !in_class => Escape::End,
            b'Q' if !in_class => Escape::Quote,
            b'a' => Escape::Byte(7),
            b'e' => Escape::Byte(27),
            b'f' => Escape::Byte(12),
            b'n' => Escape::Byte(10),
            b'r' => Escape::Byte(13),
            b't' => Escape::Byte(9),
            b'x' => Escape::Byte(self.hexadecimal()?),
            _ if byte.is_ascii_alphanumeric() => {
                return Err(format!("\\{} is not supported", char::from(byte)));
            }
            _ => Escape::Byte(byte),
        })
    }

    fn hexadecimal(&mut self) -> Result<u8, String> {
        let is_braced = self.peek() == Some(b'{');
        let digits = if is_braced {
            self.rest = &self.rest[1..];
            self.up_to(b"}").ok_or("\\x{ without }")?
        } else {
            let count = self.rest.iter().take(2).take_while(|byte| byte.is_ascii_hexdigit());
            let (digits, rest) = self.rest.split_at(count.count());
            self.rest = rest;
            digits
        };
        let text = core::str::from_utf8(digits).unwrap_or_default();
        let is_short = text.is_empty() && !is_braced;
        match u8::from_str_radix(text, 16) {
            _ if is_short => Ok(0),
            Ok(byte) if !text.starts_with('+') => Ok(byte),
            _ => Err("\\x names no byte".into()),
        }
    }

    fn group(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'*') {
            return Err("(* is not supported".into());
        }
        if let Some(side) = Side::of(self.rest) {
            self.rest = &self.rest[side.sign().len()..];
            self.groups.push(side.is_negative());
            self.looks += 1;
            let _ = write!(self.out, "(?P<{}>", side.group_name(self.looks));
            return Ok(());
        }
        self.out.push('(');
        if self.peek() != Some(b'?') {
            self.groups.push(false);
            return Ok(());
        }
        let body = &self.rest[1..];
        let is_name = |body: &[u8]| body.first().is_some_and(u8::is_ascii_alphabetic);
        let named = body.strip_prefix(b"P<").or_else(|| body.strip_prefix(b"<"));
        if body.starts_with(b"#") {
            self.out.pop();
            self.up_to(b")").ok_or("a comment has no end")?;
            return Ok(());
        } else if named.is_some_and(is_name) {
            self.out.push('?');
            self.rest = body;
            while let Some(byte) = self.next() {
                self.out.push(char::from(byte));
                if byte == b'>' || !byte.is_ascii() {
                    break;
                }
            }
        } else {
            let is_flag = |byte: &u8| b"imsxU-".contains(byte);
            let length = body.iter().take_while(|byte| is_flag(byte)).count();
            if !matches!(body.get(length), Some(b':' | b')')) {
                return Err(unsupported_group(body));
            }
            self.has_comments |= body[..length].contains(&b'x');
            self.out.push('?');
            self.out.extend(body[..length].iter().map(|byte| char::from(*byte)));
            self.rest = &body[length..];
            if self.peek() == Some(b':') {
                self.rest = &self.rest[1..];
                self.out.push(':');
            }
        }
        self.groups.push(false);
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        let is_complement = self.peek() == Some(b'^');
        if is_complement {
            self.rest = &self.rest[1..];
        }
        let mut class = Class::new();
        let mut is_first = true;
        loop {
            let byte = self.next().ok_or("a class has no ]")?;
            if byte == b']' && !is_first {
                break;
            }
            is_first = false;
            let first = match byte {
                b'[' if matches!(self.peek(), Some(b':' | b'.' | b'=')) && self.has_posix() => {
                    self.posix(&mut class)?;
                    continue;
                }
                b'\\' => match self.escaped(true)? {
                    Escape::Byte(byte) => byte,
                    Escape::Kind(kind, is_other) => {
                        class.add(kind, is_other);
                        continue;
                    }
                    Escape::Place(_) | Escape::End | Escape::Quote => {
                        return Err("\\ within a class".into());
                    }
                },
                _ => byte,
            };
            let last = self.range_end(first)?;
            class.add_range(first, last);
        }
        class.write(is_complement, self.is_wide(), &mut self.out);
        Ok(())
    }

    /// The end of the range that begins with a byte; the byte itself where none does.
    fn range_end(&mut self, first: u8) -> Result<u8, String> {
        let after = match self.rest {
            [b'-', b']', ..] | [] | [b'-'] => return Ok(first),
            [b'-', after @ ..] => after,
            _ => return Ok(first),
        };
        let before = core::mem::replace(&mut self.rest, after);
        let last = match self.next() {
            Some(b'\\') => match self.escaped(true)? {
                Escape::Byte(byte) => byte,
                _ => {
                    // Then the hyphen is text.
                    self.rest = before;
                    return Ok(first);
                }
            },
            Some(byte) => byte,
            None => first,
        };
        if last < first {
            return Err("a range of a class ends before it begins".into());
        }
        Ok(last)
    }

    /// Whether a class of POSIX stands behind a bracket.
    fn has_posix(&self) -> bool {
        let Some((sign, body)) = self.rest.split_first() else { return false };
        let end = body.windows(2).position(|window| window == [*sign, b']']);
        end.is_some_and(|end| !body[..end].iter().any(|byte| matches!(byte, b']' | b'\\')))
    }

    fn posix(&mut self, class: &mut Class) -> Result<(), String> {
        let sign = self.next().unwrap_or_default();
        let name = self.up_to(&[sign, b']']).unwrap_or_default();
        let (is_other, name) = match name.strip_prefix(b"^") {
            Some(name) => (true, name),
            None => (false, name),
        };
        let kind = Kind::of_posix(name).filter(|_| sign == b':');
        class.add(kind.ok_or("an unknown class between [: and :]")?, is_other);
        Ok(())
    }
}

/// What a group is called that is none of those here, by its text behind the question mark.
fn unsupported_group(body: &[u8]) -> String {
    let what = match body {
        [b'>', ..] => "atomic groups (?>…) are",
        [b'|', ..] => "groups that reset numbers (?|…) are",
        [b'(', ..] => "conditions (?(…)…) are",
        [b'&' | b'R' | b'0'..=b'9', ..] | [b'P', b'>', ..] => "calls of groups are",
        [b'P', b'=', ..] => "back references (?P=…) are",
        _ => return "of groups, (…), (?:…), (?<name>…), (?=…), (?!…), (?<=…), (?<!…) and flags are supported".into(),
    };
    format!("{what} not supported")
}

#[cfg(test)]
mod tests {
    use super::translate;
    use regex::bytes::RegexBuilder;

    fn finds(pattern: &str, name: &str) -> bool {
        let found = translate(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert!(!found.looks_around);
        let expression = found.expression;
        let regex = RegexBuilder::new(&expression).unicode(false).build();
        regex.unwrap_or_else(|error| panic!("{pattern}: {error}")).is_match(name.as_bytes())
    }

    #[test]
    fn expressions_mean_what_they_mean_over_bytes() {
        let cases: [(&str, &[&str], &[&str]); 35] = [
            ("^team\\d$", &["team3"], &["team\u{663}", "team"]),
            ("^\\w+$", &["t_1"], &["t\u{eb}st", "a b"]),
            ("(?i)^kitchen$", &["KITCHEN"], &["\u{212a}itchen"]),
            ("^[^.]{1,4}$", &["abcd", "\u{e4}\u{f6}"], &["\u{e4}\u{f6}\u{fc}", "a.b"]),
            ("^a\\sb$", &["a b", "a\tb"], &["a\u{2003}b"]),
            ("^x[^\\d]$", &["xy"], &["x\u{663}", "x1"]),
            ("^.$", &["a"], &["\u{e4}", "\n", ""]),
            ("^\u{e4}$", &["\u{e4}"], &["a"]),
            ("^\\S+$", &["\u{e4}b"], &["a b"]),
            ("^\\W$", &["-"], &["a", "_"]),
            ("^[\\W]$", &["-"], &["a"]),
            ("^[^\\W]$", &["a"], &["-"]),
            ("(?i)^[^a]$", &["b"], &["a", "A"]),
            ("^[[:alpha:]]+$", &["ab"], &["a1", "\u{e4}"]),
            ("^[[:^alpha:]]$", &["1"], &["a"]),
            ("^{client_id}$", &["{client_id}"], &["client_id"]),
            ("^a{,3}$", &["a{,3}"], &["aa"]),
            ("^a{2,3}$", &["aa", "aaa"], &["a", "aaaa"]),
            ("^a{2}?b", &["aab"], &["ab"]),
            ("^x{$", &["x{"], &["x"]),
            ("^[[]$", &["["], &["a"]),
            ("^[a-z&&[^b]]$", &["b]", "&]", "^]"], &["b", "c"]),
            ("^[]a]$", &["]", "a"], &["b"]),
            ("^[^]a]$", &["b"], &["]", "a"]),
            ("^[a-]$", &["-", "a"], &["b"]),
            ("^[\\d-x]$", &["-", "x", "5"], &["y"]),
            ("^[+--]$", &["+", ",", "-"], &["."]),
            ("^[a~~b]$", &["a", "~", "b"], &["c"]),
            ("^\\<$", &["<"], &[""]),
            ("^\\x41\\x{42}$", &["AB"], &["ab"]),
            ("^\\Qa.b*\\E$", &["a.b*"], &["axb"]),
            ("^a(?#who)b$", &["ab"], &["a"]),
            ("^(?<n>a|b)(?:c)?$", &["ac", "b"], &["c"]),
            ("(?x) ^ a [ ] b $", &["a b"], &["ab"]),
            ("^a|b$", &["ax", "xb"], &["xa"]),
        ];
        for (pattern, taken, refused) in cases {
            taken.iter().for_each(|name| assert!(finds(pattern, name), "{pattern} on {name:?}"));
            refused.iter().for_each(|name| assert!(!finds(pattern, name), "{pattern} on {name:?}"));
        }
    }

    #[test]
    fn what_would_mean_something_else_is_refused() {
        for pattern in [
            "a++",
            "a*+",
            "a{2}+",
            "(?>a)",
            "\\1",
            "(?u)a",
            "(?R)",
            "(*UTF8)a",
            "\\p{L}",
            "\\R",
            "\\K",
            "\\G",
            "[a",
            "[[.a.]]",
            "[[:nothing:]]",
            "[z-a]",
            "\\x{100}",
            "a\\",
            "(?#a",
            "\\y",
            "(?'n'a)",
        ] {
            assert!(translate(pattern).is_err(), "{pattern}");
        }
    }
}
