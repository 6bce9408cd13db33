//! A routing key, or a word of one, as it is kept: 16 bytes, and no allocation while it is short.

use alloc::boxed::Box;
use core::fmt;

use lepus_amqp::table::{TableBytes, TableRef};

/// Longest text that needs no allocation, in bytes.
const SHORT_BYTES_MAX: usize = 14;
/// Longest text with an allocation of 40 bytes, in bytes.
const MIDDLE_BYTES_MAX: usize = 39;

/// A text of at most 255 bytes, and the arguments of the binding that it belongs to.
#[derive(Clone)]
pub(crate) struct Key(Form);

/// All boxes are thin, which keeps the key at 16 bytes.
#[derive(Clone)]
enum Form {
    Short { length: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Middle(Box<Middle>),
    Long(Box<Box<str>>),
    Described(Box<(Box<str>, TableBytes)>),
}

#[derive(Clone)]
struct Middle {
    length: u8,
    bytes: [u8; MIDDLE_BYTES_MAX],
}

impl Key {
    /// A text with arguments; an empty table is none.
    pub(crate) fn with(text: &str, arguments: &TableBytes) -> Key {
        if arguments.is_empty() {
            return Key::from(text);
        }
        Key(Form::Described(Box::new((text.into(), arguments.clone()))))
    }

    /// The arguments; empty where there are none.
    pub(crate) fn arguments(&self) -> TableRef<'_> {
        match &self.0 {
            Form::Described(described) => described.1.as_ref(),
            _ => TableRef::default(),
        }
    }

    /// Bytes that it takes beside its own 16, about.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Form::Short { .. } => 0,
            Form::Middle(_) => size_of::<Middle>(),
            Form::Long(text) => size_of::<Box<str>>() + text.len(),
            Form::Described(described) => {
                size_of::<(Box<str>, TableBytes)>() + described.0.len() + described.1.len()
            }
        }
    }

    /// The text's bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => &bytes[..usize::from(*length)],
            Form::Middle(middle) => &middle.bytes[..usize::from(middle.length)],
            Form::Long(text) => text.as_bytes(),
            Form::Described(described) => described.0.as_bytes(),
        }
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        match &self.0 {
            Form::Long(text) => text,
            Form::Described(described) => &described.0,
            // It was made from a text.
            _ => core::str::from_utf8(self.as_bytes()).unwrap_or_default(),
        }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        let length = text.len() as u8;
        if text.len() > MIDDLE_BYTES_MAX {
            return Key(Form::Long(Box::new(text.into())));
        }
        if text.len() > SHORT_BYTES_MAX {
            let mut bytes = [0; MIDDLE_BYTES_MAX];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            return Key(Form::Middle(Box::new(Middle { length, bytes })));
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Key(Form::Short { length, bytes })
    }
}

impl PartialEq<str> for Key {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::table::Table;

    #[test]
    fn a_key_of_any_length_stays_itself() {
        assert_eq!(size_of::<Key>(), 16);
        let (middle, longer, long) = ("m".repeat(39), "n".repeat(40), "ö".repeat(127));
        let short = ["", "a", "exactly14bytes", "and15bytes,long", "ääääääää"];
        for text in short.into_iter().chain([&*middle, &longer, &long]) {
            let key = Key::from(text);
            assert_eq!(key.as_str(), text);
            assert!(key == *text);
            assert!(key != *"else");
        }
    }

    #[test]
    fn a_key_may_have_arguments() {
        let arguments = Table::new().with("a", 1i32).to_bytes();
        for text in ["", "short", "one that is longer than fourteen bytes"] {
            let key = Key::with(text, &arguments);
            assert_eq!((key.as_str(), key.arguments()), (text, arguments.as_ref()));
            assert!(Key::with(text, &TableBytes::default()).arguments().is_empty());
        }
    }
}
