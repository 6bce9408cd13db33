//! Strings as a filter sees them: bytes that should be UTF-8.
//!
//! Code points are counted; a byte that belongs to none counts as one, so that no string is without a verdict.

use alloc::vec::Vec;

/// What a byte that is part of no code point is told apart by.
const INVALID: u32 = 0x11_0000;

/// The first code point of `bytes` and its length; a byte that begins none comes as a number above all of them.
#[inline]
pub(crate) fn first(bytes: &[u8]) -> Option<(u32, usize)> {
    let byte = *bytes.first()?;
    if byte < 0x80 {
        return Some((byte.into(), 1));
    }
    let length = match byte {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let decoded = bytes.get(..length).and_then(|part| core::str::from_utf8(part).ok());
    match decoded.and_then(|text| text.chars().next()) {
        Some(character) => Some((character.into(), length)),
        None => Some((INVALID + u32::from(byte), 1)),
    }
}

/// Code points in `bytes`.
pub(crate) fn count(bytes: &[u8]) -> usize {
    let chunks = bytes.utf8_chunks();
    chunks.map(|chunk| chunk.valid().chars().count() + chunk.invalid().len()).sum()
}

/// Where the code point with this number begins; the end where there are not so many.
pub(crate) fn place(bytes: &[u8], number: usize) -> usize {
    if number >= bytes.len() {
        return bytes.len();
    }
    // As far as so many code points may reach; the last one there may be cut.
    let head = &bytes[..bytes.len().min(4 * number)];
    let text = match core::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && head.len() < bytes.len() => {
            core::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return place_among_strays(bytes, number),
    };
    let mut characters = text.chars();
    if let Some(last) = number.checked_sub(1) {
        characters.nth(last);
    }
    text.len() - characters.as_str().len()
}

/// The same where some bytes are part of no code point.
fn place_among_strays(bytes: &[u8], number: usize) -> usize {
    let mut at = 0;
    for _ in 0..number {
        match first(&bytes[at..]) {
            Some((_, length)) => at += length,
            None => break,
        }
    }
    at
}

/// The code point as `ILIKE` compares it: simple case mappings of Unicode, to capitals and back to small letters.
#[inline]
pub(crate) fn fold(unit: u32) -> u32 {
    match unit {
        0x41..=0x5a => unit + 32,
        0..0x80 => unit,
        // The dotless i is a letter of its own, as in Unicode's table of simple case folding.
        0x131 => unit,
        _ => match char::from_u32(unit) {
            Some(character) => {
                let upper = single(character.to_uppercase(), character);
                single(upper.to_lowercase(), upper).into()
            }
            None => unit,
        },
    }
}

/// The mapped character where it is one, else the character itself.
fn single(mut mapped: impl Iterator<Item = char>, character: char) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(only), None) => only,
        _ => character,
    }
}

/// Appends `text` in small letters or in capitals; bytes that are no UTF-8 stay as they are.
pub(crate) fn change_case(text: &[u8], upper: bool, out: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    let mut push = |character: char, out: &mut Vec<u8>| {
        out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    };
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if upper {
                character.to_uppercase().for_each(|mapped| push(mapped, out));
            } else {
                character.to_lowercase().for_each(|mapped| push(mapped, out));
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
}

/// Whether `needle` is in `text`: Knuth, Morris and Pratt, so that no text makes it slow. `failures` is from
/// [`failures`]. Returns the place of the first one.
pub(crate) fn find(text: &[u8], needle: &[u8], failures: &[u32]) -> Option<usize> {
    let Some(&begin) = needle.first() else { return Some(0) };
    let (mut at, mut matched) = (0, 0);
    while at < text.len() {
        if matched == 0 {
            at += text[at..].iter().position(|byte| *byte == begin)?;
            matched = 1;
            at += 1;
        } else if text[at] == needle[matched] {
            matched += 1;
            at += 1;
        } else {
            matched = failures[matched - 1] as usize;
        }
        if matched == needle.len() {
            return Some(at - matched);
        }
    }
    None
}

/// For every beginning of `needle` the length of its longest proper ending that is a beginning as well.
pub(crate) fn failures(needle: &[u8]) -> Vec<u32> {
    let mut failures = Vec::new();
    write_failures(needle, &mut failures);
    failures
}

/// The same, into memory that is there.
pub(crate) fn write_failures(needle: &[u8], failures: &mut Vec<u32>) {
    failures.clear();
    failures.reserve_exact(needle.len());
    let mut matched = 0_usize;
    for (index, byte) in needle.iter().enumerate() {
        while matched > 0 && needle[matched] != *byte {
            matched = failures[matched - 1] as usize;
        }
        if index > 0 && needle[matched] == *byte {
            matched += 1;
        }
        failures.push(matched as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_and_stray_bytes_count_one_each() {
        assert_eq!(count("aé🥕".as_bytes()), 3);
        assert_eq!(count(b"a\xff\xe2\x82z"), 5);
        assert_eq!(place("aé🥕z".as_bytes(), 2), 3);
        assert_eq!(place("aé".as_bytes(), 7), 3);
        for text in ["", "a", "aé🥕zé🥕🥕", "🥕🥕🥕🥕", "ééééééé", "aaaaaaaaaaaaaa🥕", "e\u{301}x"]
        {
            for end in 0..=text.len() {
                for stray in [false, true] {
                    let mut bytes = text.as_bytes()[..end].to_vec();
                    if stray {
                        bytes.extend([0xff, b'a', 0xe2, 0x82]);
                    }
                    for number in 0..=bytes.len() {
                        let expected = match number >= bytes.len() {
                            true => bytes.len(),
                            false => place_among_strays(&bytes, number),
                        };
                        assert_eq!(place(&bytes, number), expected, "{bytes:?} {number}");
                    }
                }
            }
        }
    }

    #[test]
    fn folding_is_simple_case_folding() {
        for (one, two) in [('A', 'a'), ('É', 'é'), ('ſ', 's'), ('ς', 'σ'), ('K', 'k')] {
            assert_eq!(fold(one.into()), fold(two.into()), "{one} {two}");
        }
        for (one, two) in [('ı', 'i'), ('İ', 'i'), ('ß', 's'), ('é', 'e')] {
            assert_ne!(fold(one.into()), fold(two.into()), "{one} {two}");
        }
    }

    #[test]
    fn needles_are_found_where_they_are_first() {
        let all = |text: &str, needle: &str| {
            find(text.as_bytes(), needle.as_bytes(), &failures(needle.as_bytes()))
        };
        for text in ["", "a", "aab", "aabaab", "abababac", "aaaaaaab", "xyzabababc"] {
            for needle in ["", "a", "ab", "aab", "abab", "ababac", "aaab", "abc", "q"] {
                assert_eq!(all(text, needle), text.find(needle), "{needle} in {text}");
            }
        }
    }
}
