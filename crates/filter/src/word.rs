//! Words: which characters they have, and which of them are never names.

use crate::path::Field;

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

macro_rules! keywords {
    ($($word:ident $variant:ident $reserved:literal),* $(,)?) => {
        /// A word that means something in its place, in any case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Keyword {
            $($variant,)*
            /// Any other.
            Other,
        }

        impl Keyword {
            /// What a word is.
            #[inline]
            pub(crate) fn of(word: &str) -> Keyword {
                $(const $word: u64 = code(stringify!($word).as_bytes());)*
                // No keyword has more letters than fit.
                if word.len() > 7 {
                    return Keyword::Other;
                }
                match code(word.as_bytes()) {
                    $($word => Keyword::$variant,)*
                    _ => Keyword::Other,
                }
            }

            /// Whether it is never a field of the headers table without its section.
            pub(crate) fn is_reserved(self) -> bool {
                match self {
                    $(Keyword::$variant => $reserved,)*
                    Keyword::Other => false,
                }
            }
        }
    };
}

keywords! {
    AND And true,
    OR Or true,
    NOT Not true,
    IN In true,
    IS Is true,
    LIKE Like true,
    NULL Null true,
    TRUE True true,
    FALSE False true,
    ILIKE Ilike false,
    REGEXP Regexp false,
    BETWEEN Between false,
    ESCAPE Escape false,
    MISSING Missing false,
    ANY Any false,
    ALL All false,
}

/// Up to seven letters and their number as one number, small ones as capitals. Nothing but a letter is taken for one.
const fn code(word: &[u8]) -> u64 {
    let (mut code, mut index) = (word.len() as u64, 0);
    while index < word.len() {
        code = code << 8 | (word[index] & !0x20) as u64;
        index += 1;
    }
    code
}

/// Whether a name can be a step of a path as it is.
pub(crate) fn is_step(name: &str) -> bool {
    !name.is_empty() && length(name) == name.len()
}

/// Whether a header's name can stand alone as it is.
pub(crate) fn is_bare(name: &str) -> bool {
    is_step(name)
        && name.starts_with(is_start)
        && !Keyword::of(name).is_reserved()
        && Field::of_jms(name).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_known_in_any_case_and_nothing_else_is_one() {
        for (word, keyword) in [
            ("AND", Keyword::And),
            ("and", Keyword::And),
            ("oR", Keyword::Or),
            ("Between", Keyword::Between),
            ("missing", Keyword::Missing),
            ("IS", Keyword::Is),
        ] {
            assert_eq!(Keyword::of(word), keyword, "{word}");
        }
        for word in
            ["", "A", "\u{1}S", "AN", "ANDS", "x", "i$", "I3", "betweens", "\0OR", "ÍS", "IS\0"]
        {
            assert_eq!(Keyword::of(word), Keyword::Other, "{word}");
        }
    }
}
