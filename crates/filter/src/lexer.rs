//! From text to tokens. A path is one token, so that its steps may look like numbers or signs.

use crate::error::{FilterError, Reason};
use crate::number::{self, Number};
use crate::path::{Field, Path, Section, Step};
use crate::word::{self, Keyword};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// A piece of the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    /// A keyword, a function's name or a field of the headers table.
    Word(&'t str, Keyword),
    /// A field with its section, or a name in brackets, which is one of the headers table.
    Path(Section, Written<'t>),
    /// A string.
    Text(Cow<'t, str>),
    /// A number without a sign.
    Number(Number),
    /// Anything else that means something.
    Sign(Sign),
    /// Nothing more.
    End,
}

/// The steps of a path as they were written, at least one. Mostly it is one, and takes no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written<'t> {
    pub(crate) first: WrittenStep<'t>,
    pub(crate) more: Vec<WrittenStep<'t>>,
}

/// A part of a path as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WrittenStep<'t> {
    Name(Cow<'t, str>),
    Index(u32),
    Every,
}

impl<'t> Written<'t> {
    /// A name alone.
    #[inline]
    pub(crate) fn name(name: &'t str) -> Written<'t> {
        Written { first: WrittenStep::Name(Cow::Borrowed(name)), more: Vec::new() }
    }

    /// Number of steps.
    pub(crate) fn len(&self) -> usize {
        1 + self.more.len()
    }

    /// The steps, one after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WrittenStep<'t>> {
        core::iter::once(&self.first).chain(&self.more)
    }

    /// The steps on their own.
    pub(crate) fn steps(&self) -> Vec<Step> {
        if self.more.is_empty() {
            return Vec::from([self.first.step()]);
        }
        self.iter().map(WrittenStep::step).collect()
    }
}

impl WrittenStep<'_> {
    /// The step on its own.
    #[inline]
    pub(crate) fn step(&self) -> Step {
        match self {
            WrittenStep::Name(name) => Step::Name((**name).into()),
            WrittenStep::Index(index) => Step::Index(*index),
            WrittenStep::Every => Step::Every,
        }
    }
}

/// A field that is named, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named<'t> {
    /// Of the body; without steps it is the body itself.
    Body(Option<Written<'t>>),
    Header(Written<'t>),
    Field(Field),
}

impl Named<'_> {
    /// The field on its own.
    pub(crate) fn path(&self) -> Path {
        match self {
            Named::Body(written) => {
                Path::Body(written.as_ref().map_or_else(Vec::new, Written::steps))
            }
            Named::Header(written) => Path::Header(written.steps()),
            Named::Field(field) => Path::Field(*field),
        }
    }

    /// Number of its steps; none where it has a place of its own.
    pub(crate) fn len(&self) -> usize {
        match self {
            Named::Body(written) => written.as_ref().map_or(0, Written::len),
            Named::Header(written) => written.len(),
            Named::Field(_) => 0,
        }
    }
}

/// The field that a word alone names.
pub(crate) fn named(word: &str) -> Named<'_> {
    match Field::of_jms(word) {
        Some(field) => Named::Field(field),
        None => Named::Header(Written::name(word)),
    }
}

/// A sign. There are two for "unlike", which mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Open,
    Close,
    Comma,
    Dot,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Over,
    Percent,
}

impl Sign {
    /// Whether it stands between numbers, and computes.
    #[inline]
    pub(crate) fn is_arithmetic(self) -> bool {
        matches!(self, Sign::Plus | Sign::Minus | Sign::Times | Sign::Over | Sign::Percent)
    }
}

/// The sign that a text begins with, and its length.
fn sign(text: &[u8]) -> Option<(Sign, usize)> {
    Some(match text {
        [b'<', b'>', ..] | [b'!', b'=', ..] => (Sign::NotEqual, 2),
        [b'<', b'=', ..] => (Sign::LessOrEqual, 2),
        [b'>', b'=', ..] => (Sign::GreaterOrEqual, 2),
        [b'(', ..] => (Sign::Open, 1),
        [b')', ..] => (Sign::Close, 1),
        [b',', ..] => (Sign::Comma, 1),
        [b'=', ..] => (Sign::Equal, 1),
        [b'<', ..] => (Sign::Less, 1),
        [b'>', ..] => (Sign::Greater, 1),
        [b'+', ..] => (Sign::Plus, 1),
        [b'-', ..] => (Sign::Minus, 1),
        [b'*', ..] => (Sign::Times, 1),
        [b'/', ..] => (Sign::Over, 1),
        [b'%', ..] => (Sign::Percent, 1),
        [b'.', ..] => (Sign::Dot, 1),
        _ => return None,
    })
}

/// Reads one token after the other.
pub(crate) struct Lexer<'t> {
    text: &'t str,
    /// Bytes that were read.
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, at: 0 }
    }

    /// An error at a byte of the text.
    pub(crate) fn error(&self, at: usize, reason: Reason) -> FilterError {
        let before = self.text.get(..at).unwrap_or(self.text);
        FilterError { at: before.chars().count() + 1, reason }
    }

    /// The next token and the byte at which it begins.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<(Token<'t>, usize), FilterError> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c) = self.text.as_bytes().get(self.at) {
            self.at += 1;
        }
        let at = self.at;
        Ok((self.token()?, at))
    }

    /// Bytes that were read.
    pub(crate) fn place(&self) -> usize {
        self.at
    }

    /// Whether a parenthesis opens next.
    pub(crate) fn is_call(&self) -> bool {
        self.rest().trim_ascii_start().starts_with('(')
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn token(&mut self) -> Result<Token<'t>, FilterError> {
        let rest = self.rest();
        let Some(character) = rest.chars().next() else { return Ok(Token::End) };
        let second_is_digit = rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        match character {
            '\'' => self.string().map(Token::Text),
            '"' => Err(self.error(self.at, Reason::DoubleQuotes)),
            '0'..='9' => self.number(),
            '.' if second_is_digit => self.number(),
            '[' => {
                let begin = self.at;
                let name = self.bracketed()?;
                self.require_no_subscript(begin)?;
                Ok(Token::Path(Section::Headers, Written::name(name)))
            }
            _ if word::is_start(character) => self.word(),
            _ => {
                let Some((sign, length)) = sign(rest.as_bytes()) else {
                    return Err(self.error(self.at, Reason::Character(character)));
                };
                self.at += length;
                Ok(Token::Sign(sign))
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'t, str>, FilterError> {
        let begin = self.at;
        self.at += 1;
        let part = self.quoted_part(begin)?;
        if !self.rest().starts_with('\'') {
            return Ok(Cow::Borrowed(part));
        }
        let mut text = String::from(part);
        while self.rest().starts_with('\'') {
            text.push('\'');
            self.at += 1;
            text.push_str(self.quoted_part(begin)?);
        }
        Ok(Cow::Owned(text))
    }

    /// What stands before the next quote; the string begins at `begin`.
    fn quoted_part(&mut self, begin: usize) -> Result<&'t str, FilterError> {
        let rest = self.rest();
        let Some(length) = rest.bytes().position(|byte| byte == b'\'') else {
            return Err(self.error(begin, Reason::Unclosed("the string")));
        };
        self.at += length + 1;
        Ok(&rest[..length])
    }

    fn number(&mut self) -> Result<Token<'t>, FilterError> {
        let begin = self.at;
        let bytes = self.rest().as_bytes();
        let digits =
            |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let refuse = |lexer: &Lexer<'t>| {
            let end = lexer.rest().find(|sign| !word::is_part(sign)).unwrap_or(lexer.rest().len());
            let shown = lexer.rest()[..end].chars().take(40).collect();
            Err(lexer.error(begin, Reason::Number(shown)))
        };
        if let [b'0', b'x' | b'X', ..] = bytes {
            let count = bytes[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let is_end = self.ends(2 + count + usize::from(self.is_suffix(2 + count, "lL")));
            return match u64::from_str_radix(&self.rest()[2..2 + count], 16) {
                Ok(value) if is_end => {
                    self.at += 2 + count + usize::from(self.is_suffix(2 + count, "lL"));
                    Ok(Token::Number(Number::from_unsigned(value)))
                }
                _ => refuse(self),
            };
        }
        let mut end = digits(0);
        let mut is_float = false;
        if bytes.get(end) == Some(&b'.') {
            is_float = true;
            end += 1 + digits(end + 1);
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            is_float = true;
            let exponent = bytes.get(end + 1 + sign..).map_or(0, |_| digits(end + 1 + sign));
            if exponent == 0 {
                return refuse(self);
            }
            end += 1 + sign + exponent;
        }
        let text = &self.rest()[..end];
        let has_float_suffix = self.is_suffix(end, "fFdD");
        let has_suffix = has_float_suffix || !is_float && self.is_suffix(end, "lL");
        let number = if is_float || has_float_suffix {
            let value = number::short_decimal(text.as_bytes()).or_else(|| text.parse().ok());
            value.filter(|value| value.is_finite()).map(Number::Float)
        } else {
            text.parse().ok().map(Number::from_unsigned)
        };
        let end = end + usize::from(has_suffix);
        match number {
            Some(number) if self.ends(end) => {
                self.at += end;
                Ok(Token::Number(number))
            }
            _ => refuse(self),
        }
    }

    /// Whether one of the letters of Java's suffixes stands there.
    fn is_suffix(&self, at: usize, letters: &str) -> bool {
        self.rest()[at..].starts_with(|letter| letters.contains(letter))
    }

    /// Whether no word goes on there.
    fn ends(&self, at: usize) -> bool {
        !self.rest()[at..].starts_with(word::is_part)
    }

    /// Length of the word that is next.
    fn word_length(&self) -> usize {
        word::length(self.rest())
    }

    fn word(&mut self) -> Result<Token<'t>, FilterError> {
        let begin = self.at;
        let hyphened = "application-properties";
        let rest = self.rest();
        let length = if rest.starts_with(hyphened) && rest[hyphened.len()..].starts_with(['.', '['])
        {
            hyphened.len()
        } else {
            self.word_length()
        };
        let word = &rest[..length];
        self.at += length;
        let behind = self.rest();
        match Section::of(word) {
            Some(section @ (Section::Body | Section::Headers))
                if behind.starts_with(['.', '[']) =>
            {
                self.path(section, begin)
            }
            Some(section) if behind.starts_with('.') => self.field(section),
            // `x.5` is the start of a path as well, never a number.
            _ if behind.starts_with('.') => Err(self.error(begin, Reason::Dotted(word.into()))),
            section => {
                let keyword = Keyword::of(word);
                // Behind others a name in brackets may follow: `x AND[y]`.
                if section.is_none() && keyword == Keyword::Other {
                    self.require_no_subscript(begin)?;
                }
                Ok(Token::Word(word, keyword))
            }
        }
    }

    /// A name without a section, which begins at `begin`, ends here: it has no elements.
    fn require_no_subscript(&self, begin: usize) -> Result<(), FilterError> {
        if !self.rest().starts_with('[') {
            return Ok(());
        }
        let name = self.text[begin..self.at].chars().take(40).collect();
        Err(self.error(begin, Reason::Subscripted(name)))
    }

    /// The name of a section whose fields are all known.
    fn field(&mut self, section: Section) -> Result<Token<'t>, FilterError> {
        self.at += 1;
        let begin = self.at;
        if self.rest().starts_with('[') {
            let name = self.bracketed()?;
            return Ok(Token::Path(section, Written::name(name)));
        }
        let rest = self.rest();
        // RabbitMQ writes hyphens; a minus between two fields is none of them.
        let is_long = |character: char| !(word::is_part(character) || character == '-');
        let long = rest.find(is_long).unwrap_or(rest.len());
        let length = match Field::of(section, &rest[..long]) {
            Some(_) => long,
            None => self.word_length(),
        };
        if length == 0 {
            let after = section.name().into();
            return Err(self.error(begin, Reason::Expected { what: "a name", after }));
        }
        self.at += length;
        Ok(Token::Path(section, Written::name(&rest[..length])))
    }

    /// The steps of a path in the body or the headers table.
    fn path(&mut self, section: Section, begin: usize) -> Result<Token<'t>, FilterError> {
        let first = self.step(begin)?;
        let mut written = Written { first, more: Vec::new() };
        while self.rest().starts_with(['.', '[']) {
            written.more.push(self.step(begin)?);
        }
        Ok(Token::Path(section, written))
    }

    /// A step of a path that begins at `begin`: a dot or a bracket is next.
    fn step(&mut self, begin: usize) -> Result<WrittenStep<'t>, FilterError> {
        if self.rest().starts_with('[') {
            return self.subscript();
        }
        self.at += 1;
        let rest = self.rest();
        if rest.starts_with('[') {
            return Ok(WrittenStep::Name(Cow::Borrowed(self.bracketed()?)));
        }
        let length = self.word_length();
        if length == 0 {
            let after = self.text[begin..self.at].into();
            return Err(self.error(self.at, Reason::Expected { what: "a name", after }));
        }
        self.at += length;
        Ok(WrittenStep::Name(Cow::Borrowed(&rest[..length])))
    }

    /// `[name]`: anything but brackets.
    fn bracketed(&mut self) -> Result<&'t str, FilterError> {
        let begin = self.at;
        let inside = &self.rest()[1..];
        let length = inside.find(['[', ']']).unwrap_or(inside.len());
        if length == 0 || !inside[length..].starts_with(']') {
            return Err(self.error(begin, Reason::Unclosed("the name in brackets")));
        }
        self.at += length + 2;
        Ok(&inside[..length])
    }

    /// `[0]`, `['name']` or `[*]`.
    fn subscript(&mut self) -> Result<WrittenStep<'t>, FilterError> {
        let begin = self.at;
        self.at += 1;
        let rest = self.rest();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let step = if rest.starts_with('*') {
            self.at += 1;
            WrittenStep::Every
        } else if rest.starts_with('\'') {
            WrittenStep::Name(self.string()?)
        } else if let Ok(index) = rest[..digits].parse() {
            self.at += digits;
            WrittenStep::Index(index)
        } else {
            let what = "an index, a 'name' or *";
            return Err(self.error(self.at, Reason::Expected { what, after: "[".into() }));
        };
        if !self.rest().starts_with(']') {
            return Err(self.error(begin, Reason::Unclosed("the bracket")));
        }
        self.at += 1;
        Ok(step)
    }
}
