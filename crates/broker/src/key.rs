//! A routing key, or a word of one, as it is kept: 16 bytes, and no allocation while it is short.

use alloc::boxed::Box;
use core::fmt;

/// Longest text that needs no allocation, in bytes.
const SHORT_BYTES_MAX: usize = 14;

/// A text of at most 255 bytes.
#[derive(Clone)]
pub(crate) struct Key(Form);

#[derive(Clone)]
enum Form {
    Short {
        length: u8,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    /// A thin pointer keeps the key at 16 bytes.
    Long(Box<Box<str>>),
}

impl Key {
    /// The text's bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => &bytes[..usize::from(*length)],
            Form::Long(text) => text.as_bytes(),
        }
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        match &self.0 {
            // It was made from a text.
            Form::Short { .. } => core::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Form::Long(text) => text,
        }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        if text.len() > SHORT_BYTES_MAX {
            return Key(Form::Long(Box::new(text.into())));
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Key(Form::Short { length: text.len() as u8, bytes })
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

    #[test]
    fn a_key_of_any_length_stays_itself() {
        assert_eq!(size_of::<Key>(), 16);
        let long = "ö".repeat(127);
        for text in ["", "a", "exactly14bytes", "and15bytes,long", "ääääääää", &long] {
            let key = Key::from(text);
            assert_eq!(key.as_str(), text);
            assert!(key == *text);
            assert!(key != *"else");
        }
    }
}
