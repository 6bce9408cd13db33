//! Points of time as `DATE('…')` has them: a subset of RFC 3339.

use alloc::format;
use alloc::string::String;

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970-01-01 UTC of `2026-01-31`, `2026-01-31T12:00:00Z` and its like with a fraction or an offset;
/// digits behind the third of a fraction are left out. `None` for anything else.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let (year, month, day) = (number(bytes, 0, 4)?, number(bytes, 5, 2)?, number(bytes, 8, 2)?);
    let is_date = bytes[4] == b'-' && bytes[7] == b'-';
    if !is_date || !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    let days = days_before(year, month, day) * DAY_MS;
    if bytes.len() == 10 {
        return Some(days);
    }
    let (hour, minute, second) =
        (number(bytes, 11, 2)?, number(bytes, 14, 2)?, number(bytes, 17, 2)?);
    let is_time = matches!(bytes[10], b'T' | b't' | b' ') && bytes[13] == b':' && bytes[16] == b':';
    if !is_time || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction, offset) = fraction(bytes.get(19..)?)?;
    let offset_ms = match offset {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(offset, 1, 2)?, number(offset, 4, 2)?);
            let size = (hours < 24 && minutes < 60).then_some((hours * 60 + minutes) * 60_000)?;
            if *sign == b'-' { -size } else { size }
        }
        _ => return None,
    };
    Some(days + ((hour * 60 + minute) * 60 + second) * 1000 + fraction - offset_ms)
}

/// The text that [`parse`] reads as this; for what it can give.
pub(crate) fn print(milliseconds: i64) -> String {
    let (days, within) = (milliseconds.div_euclid(DAY_MS), milliseconds.rem_euclid(DAY_MS));
    let (year, month, day) = date_of(days);
    let (seconds, fraction) = (within / 1000, within % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:03}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

fn number(bytes: &[u8], at: usize, digits: usize) -> Option<i64> {
    let digits = bytes.get(at..at + digits)?;
    digits
        .iter()
        .all(u8::is_ascii_digit)
        .then(|| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
}

/// Milliseconds of `.123` and what is behind it.
fn fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', digits @ ..] = rest else { return Some((0, rest)) };
    let count = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
    let (digits, behind) = digits.split_at(count);
    let place = |index: usize| digits.get(index).map_or(0, |digit| i64::from(digit - b'0'));
    (count > 0).then(|| (place(0) * 100 + place(1) * 10 + place(2), behind))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    years + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1
}

/// The date so many days after 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    // An estimate from the mean length of a year is wrong by one at most.
    let mut year = 1970 + (days * 400).div_euclid(146_097);
    while days_before(year, 1, 1) > days {
        year -= 1;
    }
    while days_before(year + 1, 1, 1) <= days {
        year += 1;
    }
    let mut rest = days - days_before(year, 1, 1);
    let mut month = 1;
    while rest >= days_in(year, month) {
        rest -= days_in(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        assert_eq!(parse("1970-01-01"), Some(0));
        assert_eq!(parse("2026-01-31T00:00:00Z"), Some(1_769_817_600_000));
        assert_eq!(parse("2026-01-31T01:00:00.2509+01:00"), Some(1_769_817_600_250));
        assert_eq!(parse("1969-12-31T23:59:59.999Z"), Some(-1));
        assert_eq!(parse("2000-02-29"), Some(951_782_400_000));
        for text in [
            "",
            "2026",
            "2026-02-29",
            "2026-13-01",
            "2026-01-31T24:00:00Z",
            "2026-01-31T00:00:00",
            "2026-01-31T00:00:00+1:00",
            "2026-01-31T00:00:00.Z",
            "2026-01-31X",
            "é026-01-31",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_date_is_printed_as_it_is_read() {
        let first = parse("0000-01-01").unwrap();
        let last = parse("9999-12-31T23:59:59.999Z").unwrap();
        let mut at = first;
        while at <= last {
            assert_eq!(parse(&print(at)), Some(at));
            // Four days, and some hours, minutes and milliseconds.
            at += 4 * DAY_MS + 3_723_004;
        }
        assert_eq!(print(last), "9999-12-31T23:59:59.999Z");
    }
}
