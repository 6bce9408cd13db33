//! What goes wrong on the wire.

use crate::code::ReplyCode;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// Why bytes could not be decoded. On a connection it becomes a `SYNTAX_ERROR` (502).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end inside a value.
    Short,
    /// A short string or a field name is not UTF-8.
    Text,
    /// A field table holds a value of this unknown type.
    FieldType(u8),
    /// Tables and arrays are nested deeper than [`crate::table::DEPTH_MAX`].
    Depth,
    /// The property flags name properties that class basic does not have.
    Flags,
    /// Bytes follow the last property.
    Trailing,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short => f.write_str("unexpected end of arguments"),
            Malformed::Text => f.write_str("a short string is not valid UTF-8"),
            Malformed::FieldType(tag) => write!(f, "unknown field type {tag}"),
            Malformed::Depth => f.write_str("field table is nested too deeply"),
            Malformed::Flags => f.write_str("unknown property flag"),
            Malformed::Trailing => f.write_str("bytes after the last property"),
        }
    }
}

/// A violation of the protocol or a refused operation, as a `close` method reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// The reply code; [`ReplyCode::is_hard`] tells whether it ends the connection.
    pub code: ReplyCode,
    /// The whole reply text, the code's name first: `NOT_FOUND - no queue 'x' in vhost '/'`.
    pub text: String,
    /// Class of the method that caused it, 0 when there is none.
    pub class_id: u16,
    /// Method that caused it, 0 when there is none.
    pub method_id: u16,
}

impl ProtocolError {
    /// An error whose reply text is the code's name, a dash and `text`; no method is blamed.
    #[must_use]
    pub fn new(code: ReplyCode, text: impl fmt::Display) -> ProtocolError {
        ProtocolError { code, text: format!("{} - {text}", code.name()), class_id: 0, method_id: 0 }
    }

    /// The same error, blamed on a method.
    #[must_use]
    pub fn caused_by(mut self, class_id: u16, method_id: u16) -> ProtocolError {
        self.class_id = class_id;
        self.method_id = method_id;
        self
    }
}

impl From<Malformed> for ProtocolError {
    fn from(malformed: Malformed) -> ProtocolError {
        ProtocolError::new(ReplyCode::SYNTAX_ERROR, malformed)
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl core::error::Error for ProtocolError {}
