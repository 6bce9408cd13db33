//! The small parts of JSON: strings, numbers, space.

use super::Invalid;
use crate::number::Number;
use alloc::vec::Vec;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks the high bit of bytes that end the plain part of a string. Above the lowest mark there may be false ones.
#[inline(always)]
fn special(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let back = zero(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | back | control) & HIGH
}

/// The end of a string that begins at `at`, behind its quote, and whether something in it must be decoded. The end is
/// the place of the closing quote.
#[inline(always)]
pub(super) fn string_end(text: &[u8], mut at: usize) -> Result<(usize, bool), Invalid> {
    let mut is_escaped = false;
    loop {
        while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let marks = special(u64::from_le_bytes(*chunk));
            if marks != 0 {
                at += marks.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match *text.get(at).ok_or(Invalid)? {
            b'"' => return Ok((at, is_escaped)),
            b'\\' => {
                is_escaped = true;
                at = escape(text, at)?.1;
            }
            ..0x20 => return Err(Invalid),
            _ => at += 1,
        }
    }
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

/// The place behind a number that begins at `at`, and whether it is written as an integer.
#[inline(always)]
pub(super) fn number_end(text: &[u8], at: usize) -> Result<(usize, bool), Invalid> {
    let digits = |mut at: usize| {
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let begin = at + usize::from(text[at] == b'-');
    let mut end = digits(begin);
    // At least one digit, and no zero before others.
    if end == begin || (text[begin] == b'0' && end > begin + 1) {
        return Err(Invalid);
    }
    let mut is_integer = true;
    if text.get(end) == Some(&b'.') {
        is_integer = false;
        let fraction = end + 1;
        end = digits(fraction);
        if end == fraction {
            return Err(Invalid);
        }
    }
    if let Some(b'e' | b'E') = text.get(end) {
        is_integer = false;
        let exponent = end + 1 + usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = digits(exponent);
        if end == exponent {
            return Err(Invalid);
        }
    }
    Ok((end, is_integer))
}

/// The number that well-formed digits say.
pub(super) fn number(digits: &[u8], is_integer: bool) -> Number {
    if is_integer && digits == b"-0" {
        return Number::Float(-0.0);
    }
    if let Some(number) = short(digits) {
        return number;
    }
    // What overflows is infinite, which compares as what was meant.
    Number::parse(digits).unwrap_or(Number::Float(f64::INFINITY))
}

/// A number of few digits, computed exactly: a fraction is the quotient of two integers that floats can hold.
fn short(digits: &[u8]) -> Option<Number> {
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    if digits.len() > 16 {
        return None;
    }
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, digits),
    };
    let (mut value, mut fraction) = (0_i64, None);
    for (index, digit) in digits.iter().enumerate() {
        match digit {
            b'0'..=b'9' => value = value * 10 + i64::from(digit - b'0'),
            b'.' => fraction = Some(digits.len() - index - 1),
            _ => return None,
        }
    }
    Some(match fraction {
        None => Number::Signed(if negative { -value } else { value }),
        Some(places) => {
            let value = value as f64 / POWERS[places.min(15)];
            Number::Float(if negative { -value } else { value })
        }
    })
}

/// The place of the next byte that is no space.
#[inline(always)]
pub(super) fn behind_space(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        // Mostly there is none.
        Some(byte) if *byte > b' ' => at,
        _ => behind_spaces(text, at),
    }
}

fn behind_spaces(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_their_quote_wherever_it_lies_in_a_word() {
        for length in 0..40 {
            let text = alloc::format!("{}\"xxxxxxxxxxxx", "é".repeat(length));
            assert_eq!(string_end(text.as_bytes(), 0), Ok((2 * length, false)));
            let text = alloc::format!("{}\\\"\"xxxxxxxx", "a".repeat(length));
            assert_eq!(string_end(text.as_bytes(), 0), Ok((length + 2, true)));
            let text = alloc::format!("{}\u{1f}\"xxxxxxx", "a".repeat(length));
            assert_eq!(string_end(text.as_bytes(), 0), Err(Invalid));
            assert_eq!(string_end("a".repeat(length).as_bytes(), 0), Err(Invalid));
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
        ] {
            let long = match text.parse::<i64>() {
                Ok(value) => Number::Signed(value),
                Err(_) => Number::Float(text.parse().unwrap()),
            };
            assert_eq!(short(text.as_bytes()), Some(long), "{text}");
        }
        assert_eq!(number(b"1e999", false), Number::Float(f64::INFINITY));
        assert_eq!(number(b"-1e999", false), Number::Float(f64::NEG_INFINITY));
    }
}
