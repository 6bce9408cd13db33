//! The small parts of JSON: strings, numbers, space.

use super::Invalid;
use crate::number::Number;
use crate::trie::print;
use alloc::vec::Vec;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Bytes that are looked at together to see whether a text is plain.
const BLOCK: usize = 32;

/// Whether a text is *plain*: it has ASCII alone, no control characters and no backslash. So mostly, and then a string ends
/// at the next quote.
pub(super) fn is_plain(text: &[u8]) -> bool {
    let is_other = |byte: &u8| byte.cast_signed() < 0x20 || *byte == b'\\';
    // Without a branch for each byte, which is what vector instructions are made of.
    let has_other = |block: &[u8; BLOCK]| {
        block
            .iter()
            .fold(false, |found, byte| found | (byte.cast_signed() < 0x20) | (*byte == b'\\'))
    };
    let (blocks, rest) = text.as_chunks();
    let has_any = match text.last_chunk() {
        // Some of it is looked at twice.
        Some(last) => has_other(last),
        None => rest.iter().any(is_other),
    };
    !has_any && !blocks.iter().any(has_other)
}

/// Marks the high bit of bytes that end the plain part of a string. Above the lowest mark there may be false ones.
#[inline(always)]
fn special<const PLAIN: bool>(word: u64) -> u64 {
    if PLAIN {
        // No byte has its high bit: the difference keeps that of those alone that are the quote.
        return HIGH.wrapping_sub(word ^ (ONES * b'"' as u64)) & HIGH;
    }
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let back = zero(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | back | control) & HIGH
}

/// Bytes of a text at most: a place in it is below 2^32, so that nothing is checked twice.
pub(super) const LENGTH_MAX: usize = u32::MAX as usize - 16;

/// The bytes at a place; none where there are not so many.
#[inline(always)]
pub(super) fn chunk<const N: usize>(text: &[u8], at: usize) -> Option<&[u8; N]> {
    let at = at as u32 as usize;
    text.get(at..at + N)?.first_chunk()
}

/// The eight bytes at a place, the first of them lowest; zeros behind the end of the text.
#[inline(always)]
fn word(text: &[u8], at: usize) -> u64 {
    chunk(text, at).map_or_else(|| last_word(text, at), |chunk| u64::from_le_bytes(*chunk))
}

#[cold]
#[inline(never)]
fn last_word(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    match text.last_chunk() {
        _ if rest.is_empty() => 0,
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The first byte that is no space at `at` or behind it, and its place. At the end of the text it is a zero.
#[inline(always)]
pub(super) fn next(text: &[u8], at: usize) -> (u8, usize) {
    match text.get(at) {
        // Mostly there is none.
        Some(byte) if *byte > b' ' => (*byte, at),
        _ => behind_spaces(text, at),
    }
}

#[cold]
#[inline(never)]
fn behind_spaces(text: &[u8], mut at: usize) -> (u8, usize) {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    (text.get(at).copied().unwrap_or(0), at)
}

/// The place of the next byte that is no space.
#[inline(always)]
pub(super) fn behind_space(text: &[u8], at: usize) -> usize {
    next(text, at).1
}

/// The end of a string that begins at `at`, behind its quote, and whether something in it must be decoded. The end is
/// the place of the closing quote. A text that is plain may be read as such.
#[inline(always)]
pub(super) fn string_end<const PLAIN: bool>(
    text: &[u8],
    at: usize,
) -> Result<(usize, bool), Invalid> {
    let word = word(text, at);
    let marks = special::<PLAIN>(word);
    if marks != 0 && (PLAIN || byte_at(word, marks) == b'"') {
        return Ok((at + place(marks), false));
    }
    long_string_end::<PLAIN>(text, at)
}

/// A key that was read.
pub(super) struct Key {
    /// The place of its closing quote.
    pub(super) end: usize,
    /// Where its value may begin, or space before that.
    pub(super) behind: usize,
    pub(super) is_escaped: bool,
    /// Its first eight bytes as they are written, with zeros behind a shorter one.
    pub(super) print: u64,
}

/// Reads a key whose inside begins at `at`, and its colon.
#[inline(always)]
pub(super) fn key<const PLAIN: bool>(text: &[u8], at: usize) -> Result<Key, Invalid> {
    let word = word(text, at);
    let marks = special::<PLAIN>(word);
    if marks != 0 && (PLAIN || byte_at(word, marks) == b'"') {
        let end = at + place(marks);
        // All bits below those of the quote.
        let print = word & ((marks ^ (marks - 1)) >> 8);
        return Ok(Key { end, behind: behind_colon(text, end + 1)?, is_escaped: false, print });
    }
    let (end, is_escaped) = long_string_end::<PLAIN>(text, at)?;
    let behind = behind_colon(text, end + 1)?;
    Ok(Key { end, behind, is_escaped, print: print(text, at, end) })
}

/// The place behind a colon that is next.
#[inline(always)]
fn behind_colon(text: &[u8], at: usize) -> Result<usize, Invalid> {
    if text.get(at) == Some(&b':') { Ok(at + 1) } else { behind_late_colon(text, at) }
}

#[cold]
#[inline(never)]
fn behind_late_colon(text: &[u8], at: usize) -> Result<usize, Invalid> {
    let (byte, place) = next(text, at);
    if byte == b':' { Ok(place + 1) } else { Err(Invalid) }
}

/// The byte that the lowest mark is at.
#[inline(always)]
fn byte_at(word: u64, marks: u64) -> u8 {
    (word >> (marks.trailing_zeros() & 56)) as u8
}

/// How many bytes lie before the lowest mark.
#[inline(always)]
fn place(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

#[cold]
#[inline(never)]
fn long_string_end<const PLAIN: bool>(
    text: &[u8],
    mut at: usize,
) -> Result<(usize, bool), Invalid> {
    let mut is_escaped = false;
    while at < text.len() {
        let word = word(text, at);
        let marks = special::<PLAIN>(word);
        if marks == 0 {
            at += 8;
            continue;
        }
        at += place(marks);
        match byte_at(word, marks) {
            b'"' => return Ok((at, is_escaped)),
            b'\\' => {
                is_escaped = true;
                at = escape(text, at)?.1;
            }
            _ => return Err(Invalid),
        }
    }
    Err(Invalid)
}

/// The character that an escape stands for and the place behind it.
#[cold]
fn escape(text: &[u8], at: usize) -> Result<(char, usize), Invalid> {
    let character = match text.get(at + 1).ok_or(Invalid)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let high = hex(text, at + 2)?;
            if !(0xd800..0xdc00).contains(&high) {
                return Ok((char::from_u32(high).ok_or(Invalid)?, at + 6));
            }
            let low = match text.get(at + 6..at + 8) {
                Some(b"\\u") => hex(text, at + 8)?,
                _ => return Err(Invalid),
            };
            if !(0xdc00..0xe000).contains(&low) {
                return Err(Invalid);
            }
            let character = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            return Ok((char::from_u32(character).ok_or(Invalid)?, at + 12));
        }
        _ => return Err(Invalid),
    };
    Ok((character, at + 2))
}

fn hex(text: &[u8], at: usize) -> Result<u32, Invalid> {
    let digits = text.get(at..at + 4).ok_or(Invalid)?;
    digits.iter().try_fold(0, |sum, digit| {
        char::from(*digit).to_digit(16).map(|digit| sum * 16 + digit).ok_or(Invalid)
    })
}

/// Appends what the inside of a string says.
pub(super) fn decode(inside: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
    let mut at = 0;
    while at < inside.len() {
        let plain =
            inside[at..].iter().position(|byte| *byte == b'\\').unwrap_or(inside.len() - at);
        out.extend_from_slice(&inside[at..at + plain]);
        at += plain;
        if at < inside.len() {
            let (character, behind) = escape(inside, at)?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            at = behind;
        }
    }
    Ok(())
}

/// How many digits there are from a place on.
#[inline(always)]
fn digits(text: &[u8], begin: usize) -> usize {
    match no_digits(word(text, begin)) {
        0 => many_digits(text, begin),
        marks => place(marks),
    }
}

#[cold]
#[inline(never)]
fn many_digits(text: &[u8], begin: usize) -> usize {
    let rest = text.get(begin..).unwrap_or_default();
    rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
}

/// Marks the high bit of bytes that are no digits. Above the lowest mark there may be false ones.
#[inline(always)]
fn no_digits(word: u64) -> u64 {
    let values = word ^ (ONES * b'0' as u64);
    (values.wrapping_add(ONES * 0x76) | values) & HIGH
}

/// The place behind a number that begins at `at`, behind its sign.
#[inline(always)]
pub(super) fn number_end(text: &[u8], at: usize) -> Result<usize, Invalid> {
    match text.get(at) {
        Some(first @ b'0'..=b'9') => {
            let end = at + digits(text, at);
            // No zero before others.
            if *first == b'0' && end > at + 1 {
                return Err(Invalid);
            }
            match text.get(end) {
                Some(b'.' | b'e' | b'E') => fraction_end(text, end),
                _ => Ok(end),
            }
        }
        _ => Err(Invalid),
    }
}

/// The place behind the fraction and the exponent that begin at `at`.
#[inline(always)]
fn fraction_end(text: &[u8], at: usize) -> Result<usize, Invalid> {
    let mut end = at;
    if text.get(at) == Some(&b'.') {
        end = at + 1 + digits(text, at + 1);
        if end == at + 1 {
            return Err(Invalid);
        }
    }
    match text.get(end) {
        Some(b'e' | b'E') => exponent_end(text, end),
        _ => Ok(end),
    }
}

#[cold]
#[inline(never)]
fn exponent_end(text: &[u8], at: usize) -> Result<usize, Invalid> {
    let begin = at + 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
    match many_digits(text, begin) {
        0 => Err(Invalid),
        count => Ok(begin + count),
    }
}

/// The number that stands between two places.
#[inline(always)]
pub(super) fn number(text: &[u8], start: usize, end: usize) -> Number {
    short(text, start, end).unwrap_or_else(|| long(&text[start..end]))
}

/// The number that well-formed digits say.
fn long(digits: &[u8]) -> Number {
    if digits == b"-0" {
        return Number::Float(-0.0);
    }
    // What overflows is infinite, which compares as what was meant.
    Number::parse(digits).unwrap_or(Number::Float(f64::INFINITY))
}

/// A number of up to eight digits, and up to seven behind a point, computed exactly: a fraction is the quotient of two
/// integers that floats can hold. None for others and for those below zero.
#[inline(always)]
fn short(text: &[u8], start: usize, end: usize) -> Option<Number> {
    const POWERS: [f64; 8] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7];
    let first = word(text, start);
    let length = end - start;
    let marks = no_digits(first);
    let whole = if marks == 0 { 8 } else { place(marks) };
    if whole == length {
        return Some(Number::Signed(value(first, whole) as i64));
    }
    let fraction = length.wrapping_sub(whole + 1);
    if whole == 0 || fraction >= POWERS.len() || text.get(start + whole) != Some(&b'.') {
        return None;
    }
    let rest = word(text, end - fraction);
    if place(no_digits(rest)) != fraction {
        return None;
    }
    let float = |value: u64| value as i64 as f64;
    let power = POWERS[fraction];
    Some(Number::Float((float(value(first, whole)) * power + float(value(rest, fraction))) / power))
}

/// The value of the first one to eight bytes of a word, which are digits: pairs of them are added up, and pairs of pairs.
#[inline(always)]
fn value(word: u64, count: usize) -> u64 {
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    // Zeros before them.
    let digits = (word ^ (ONES * b'0' as u64)) << ((64 - 8 * count as u32) & 63);
    let twos = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let high = (twos & PAIRS).wrapping_mul(100 + (1_000_000 << 32));
    let low = ((twos >> 16) & PAIRS).wrapping_mul(1 + (10_000 << 32));
    high.wrapping_add(low) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_their_quote_wherever_it_lies_in_a_word() {
        for length in 0..40 {
            let text = alloc::format!("{}\"xxxxxxxxxxxx", "é".repeat(length));
            assert_eq!(string_end::<false>(text.as_bytes(), 0), Ok((2 * length, false)));
            let text = alloc::format!("{}\":xxxxxxxxxxx", "a".repeat(length));
            assert_eq!(string_end::<true>(text.as_bytes(), 0), Ok((length, false)));
            for key in [key::<true>(text.as_bytes(), 0), key::<false>(text.as_bytes(), 0)] {
                let Ok(key) = key else { panic!("{text}") };
                assert_eq!((key.end, key.behind, key.is_escaped), (length, length + 2, false));
                assert_eq!(key.print, print(text.as_bytes(), 0, length));
            }
            let text = alloc::format!("{}\\\"\"xxxxxxxx", "a".repeat(length));
            assert_eq!(string_end::<false>(text.as_bytes(), 0), Ok((length + 2, true)));
            let text = alloc::format!("{}\u{1f}\"xxxxxxx", "a".repeat(length));
            assert_eq!(string_end::<false>(text.as_bytes(), 0), Err(Invalid));
            assert_eq!(string_end::<true>("a".repeat(length).as_bytes(), 0), Err(Invalid));
        }
    }

    #[test]
    fn a_byte_that_is_not_plain_is_seen_wherever_it_lies() {
        for length in 0..50 {
            let mut text = alloc::vec![b'"'; length];
            text.iter_mut().step_by(2).for_each(|byte| *byte = 0x7f);
            assert!(is_plain(&text));
            for place in 0..length {
                for byte in [0, 0x1f, b'\n', b'\\', 0x80, 0xff] {
                    let known = core::mem::replace(&mut text[place], byte);
                    assert!(!is_plain(&text), "{byte} at {place} of {length}");
                    text[place] = known;
                }
            }
        }
    }

    #[test]
    fn short_numbers_are_those_of_the_long_way() {
        for text in [
            "0",
            "-7",
            "1.5",
            "-0.001",
            "123456789012345",
            "12345678.9012345",
            "0.1",
            "99999999999999.9",
            "12345678",
            "-87654321.25",
            "999999999999999",
            "0.123456789012",
        ] {
            let long = match text.parse::<i64>() {
                Ok(value) => Number::Signed(value),
                Err(_) => Number::Float(text.parse().unwrap()),
            };
            let padded = alloc::format!("{text},xxxxxxxx");
            for (whole, begin) in [(&padded, 0), (&alloc::format!("x{text}"), 1)] {
                let digits = begin + usize::from(text.starts_with('-'));
                let end = begin + text.len();
                assert_eq!(number_end(whole.as_bytes(), digits), Ok(end), "{text}");
                assert_eq!(number(whole.as_bytes(), begin, end), long, "{text}");
            }
        }
        let number = |text: &[u8]| number(text, 0, text.len());
        assert_eq!(number(b"1e999"), Number::Float(f64::INFINITY));
        assert_eq!(number(b"-1e999"), Number::Float(f64::NEG_INFINITY));
        assert_eq!(number(b"-0"), Number::Float(-0.0));
        assert_eq!(number(b"1234567890123456"), Number::Signed(1_234_567_890_123_456));
    }
}
