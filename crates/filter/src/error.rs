//! Why a filter was refused, and where in its text.

use alloc::string::String;
use core::fmt;

/// A filter that is refused.
///
/// `Display` says the place alone, which a log may have. [`FilterError::reply`] quotes the filter and is for who gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The character at which it went wrong, counted from 1; one behind the last for an end that came too early.
    pub at: usize,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Something else had to stand here: what, and behind what.
    Expected {
        /// What had to stand here, with its article.
        what: &'static str,
        /// The word or sign before it; empty at the start.
        after: String,
    },
    /// A character that begins nothing.
    Character(char),
    /// `"text"`, which is a string in one dialect and a name in another.
    DoubleQuotes,
    /// A string, a `[name]` or a list without its end.
    Unclosed(&'static str),
    /// A number that cannot be read or does not fit.
    Number(String),
    /// A field that its section does not have.
    Field {
        /// The section, in full.
        section: &'static str,
        /// The name that it does not have.
        name: String,
    },
    /// A name with a dot that begins with no section.
    Dotted(String),
    /// An element of an array whose name begins with no section.
    Subscripted(String),
    /// A function that does not exist.
    Function(String),
    /// A function with too few or too many arguments.
    Arguments {
        /// The function's name.
        function: &'static str,
        /// How many it takes.
        takes: &'static str,
    },
    /// `[*]` outside `ANY` and `ALL`.
    Every,
    /// A pattern, an escape or a point of time that is not well-formed: why.
    Literal(&'static str),
    /// A regular expression that does not compile.
    Regexp(String),
    /// A bound of the limits: its name and value.
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much of it is allowed.
        allowed: usize,
    },
}

impl FilterError {
    /// Where and why, for who gave the filter: parts of it are quoted, so that it goes into no log.
    #[must_use]
    pub fn reply(&self) -> String {
        alloc::format!("{self}: {}", self.reason.reply())
    }
}

/// The place.
impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}", self.at)
    }
}

impl Reason {
    /// What is wrong, for who gave the filter: parts of it are quoted, so that it goes into no log.
    #[must_use]
    pub fn reply(&self) -> String {
        let mut reply = String::new();
        // A string takes all.
        let _ = self.write(&mut reply);
        reply
    }

    fn write(&self, f: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Reason::Expected { what, after } if after.is_empty() => write!(f, "expected {what}"),
            Reason::Expected { what, after } => write!(f, "expected {what} after '{after}'"),
            Reason::Character(character) => {
                write!(f, "unexpected character '{}'", character.escape_default())
            }
            Reason::DoubleQuotes => f.write_str(
                "write 'text' for a string and [name] for a field: \"…\" could be either",
            ),
            Reason::Unclosed(what) => write!(f, "{what} has no end"),
            Reason::Number(text) => {
                write!(f, "the number '{text}' cannot be read or lies outside -2^63 … 2^64 - 1")
            }
            Reason::Field { section, name } => write!(f, "{section} has no field '{name}'"),
            Reason::Dotted(name) => write!(
                f,
                "'{name}.' begins with no section: write a.{name}.… for a field of a header's table, a.[{name}.…] for a \
                 header with dots in its name, b.{name}.… for the body"
            ),
            Reason::Subscripted(name) => write!(
                f,
                "'{name}[' begins with no section: write a.{name}[…] for an element of a header's array, b.{name}[…] for \
                 the body"
            ),
            Reason::Function(name) => write!(f, "there is no function '{name}'"),
            Reason::Arguments { function, takes } => write!(f, "{function} takes {takes}"),
            Reason::Every => f.write_str("[*] stands only in ANY(…) and ALL(…)"),
            Reason::Literal(text) => f.write_str(text),
            Reason::Regexp(text) => write!(f, "the regular expression is refused: {text}"),
            Reason::Limit { what, allowed } => write!(f, "more than {allowed} {what}"),
        }
    }
}

impl core::error::Error for FilterError {}
