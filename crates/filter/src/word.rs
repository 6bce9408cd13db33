//! Words: which characters they have, and which of them are never names.

use crate::path::{Field, Path, Step};
use alloc::vec::Vec;

/// Whether a word may begin so.
pub(crate) fn is_start(character: char) -> bool {
    character.is_alphabetic() || matches!(character, '_' | '$')
}

/// Whether a word may go on so.
pub(crate) fn is_part(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$')
}

/// Bytes of the word that `text` begins with.
pub(crate) fn length(text: &str) -> usize {
    let is_other = |byte: &u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'));
    let bytes = text.as_bytes();
    match bytes.iter().position(is_other) {
        Some(end) if bytes[end].is_ascii() => end,
        Some(_) => text.find(|character| !is_part(character)).unwrap_or(text.len()),
        None => text.len(),
    }
}

/// Whether a word is never a field of the headers table without its section.
pub(crate) fn is_reserved(word: &str) -> bool {
    ["AND", "OR", "NOT", "IN", "IS", "LIKE", "NULL", "TRUE", "FALSE"]
        .iter()
        .any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// Whether a name can be a step of a path as it is.
pub(crate) fn is_step(name: &str) -> bool {
    !name.is_empty() && length(name) == name.len()
}

/// Whether a header's name can stand alone as it is.
pub(crate) fn is_bare(name: &str) -> bool {
    is_step(name)
        && name.starts_with(is_start)
        && !is_reserved(name)
        && Field::of_jms(name).is_none()
}

/// The field that a word alone names.
pub(crate) fn field(word: &str) -> Path {
    match Field::of_jms(word) {
        Some(field) => Path::Field(field),
        None => Path::Header(Vec::from([Step::Name(word.into())])),
    }
}
