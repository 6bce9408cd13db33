//! Numbers: integers from -2^63 to 2^64 - 1 and 64-bit floats, compared exactly with each other.

use core::cmp::Ordering;

/// A number of a filter or of a message.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// An integer that fits into 64 bits with a sign.
    Signed(i64),
    /// An integer above `i64::MAX`, and none that is not.
    Unsigned(u64),
    /// A float. Literals are finite; a header may hold infinities and NaN.
    Float(f64),
}

/// 2^63, the first float above all of `i64`.
const SIGNED_END: f64 = 9_223_372_036_854_775_808.0;
/// 2^64, the first float above all integers.
const UNSIGNED_END: f64 = 18_446_744_073_709_551_616.0;

impl Number {
    /// The integer, or `None` outside -2^63 … 2^64 - 1.
    #[must_use]
    pub fn from_wide(wide: i128) -> Option<Number> {
        match i64::try_from(wide) {
            Ok(signed) => Some(Number::Signed(signed)),
            Err(_) => u64::try_from(wide).ok().map(Number::Unsigned),
        }
    }

    /// The integer of an unsigned field.
    #[must_use]
    pub fn from_unsigned(value: u64) -> Number {
        i64::try_from(value).map_or(Number::Unsigned(value), Number::Signed)
    }

    /// The value of an integer; `None` for floats.
    #[must_use]
    pub fn wide(self) -> Option<i128> {
        match self {
            Number::Signed(value) => Some(value.into()),
            Number::Unsigned(value) => Some(value.into()),
            Number::Float(_) => None,
        }
    }

    /// The nearest float.
    #[must_use]
    pub fn to_float(self) -> f64 {
        match self {
            Number::Signed(value) => value as f64,
            Number::Unsigned(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    /// The float that is this number exactly; `None` for integers of 2^53 and more, though a few of them are floats.
    #[inline]
    pub(crate) fn exact(self) -> Option<f64> {
        match self {
            Number::Signed(value) if value.unsigned_abs() < EXACT_END => Some(value as f64),
            Number::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The exact order of two numbers; `None` if one is NaN.
    #[inline]
    #[must_use]
    pub fn compare(self, other: Number) -> Option<Ordering> {
        if let (Number::Signed(one), Number::Signed(two)) = (self, other) {
            return Some(one.cmp(&two));
        }
        match (self.exact(), other.exact()) {
            (Some(one), Some(two)) => one.partial_cmp(&two),
            _ => self.compare_large(other),
        }
    }

    /// The same of any numbers, by their digits where it must be.
    fn compare_large(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Unsigned(one), Number::Unsigned(two)) => Some(one.cmp(&two)),
            (Number::Signed(_), Number::Unsigned(_)) => Some(Ordering::Less),
            (Number::Unsigned(_), Number::Signed(_)) => Some(Ordering::Greater),
            (Number::Signed(one), Number::Float(two)) => signed_against_float(one, two),
            (Number::Unsigned(one), Number::Float(two)) => wide_against_float(one.into(), two),
            (Number::Float(one), Number::Signed(two)) => {
                signed_against_float(two, one).map(Ordering::reverse)
            }
            (Number::Float(one), Number::Unsigned(two)) => {
                wide_against_float(two.into(), one).map(Ordering::reverse)
            }
            (Number::Signed(one), Number::Signed(two)) => Some(one.cmp(&two)),
            (Number::Float(one), Number::Float(two)) => one.partial_cmp(&two),
        }
    }

    /// The same number, an integer wherever it is one: what equal numbers have in common. NaN stays NaN.
    #[must_use]
    pub fn canonical(self) -> Number {
        match self {
            Number::Float(value) if (-SIGNED_END..SIGNED_END).contains(&value) => {
                let whole = value as i64;
                if whole as f64 == value { Number::Signed(whole) } else { self }
            }
            Number::Float(value) if (SIGNED_END..UNSIGNED_END).contains(&value) => {
                Number::Unsigned(value as u64)
            }
            _ => self,
        }
    }

    /// The sum; `None` on overflow or where it is no finite number.
    #[must_use]
    pub fn checked_add(self, other: Number) -> Option<Number> {
        match (self.wide(), other.wide()) {
            (Some(one), Some(two)) => Number::from_wide(one + two),
            _ => finite(self.to_float() + other.to_float()),
        }
    }

    /// The difference; `None` on overflow or where it is no finite number.
    #[must_use]
    pub fn checked_sub(self, other: Number) -> Option<Number> {
        match (self.wide(), other.wide()) {
            (Some(one), Some(two)) => Number::from_wide(one - two),
            _ => finite(self.to_float() - other.to_float()),
        }
    }

    /// The product; `None` on overflow or where it is no finite number.
    #[must_use]
    pub fn checked_mul(self, other: Number) -> Option<Number> {
        match (self.wide(), other.wide()) {
            (Some(one), Some(two)) => one.checked_mul(two).and_then(Number::from_wide),
            _ => finite(self.to_float() * other.to_float()),
        }
    }

    /// The quotient: an integer where two integers divide without a rest, else a float. `None` for a divisor of 0.
    #[must_use]
    pub fn checked_div(self, other: Number) -> Option<Number> {
        match (self.wide(), other.wide()) {
            (_, Some(0)) => None,
            (Some(one), Some(two)) if one % two == 0 => Number::from_wide(one / two),
            _ if other.to_float() == 0.0 => None,
            _ => finite(self.to_float() / other.to_float()),
        }
    }

    /// What is left of a division of integers, with the dividend's sign; `None` for floats and a divisor of 0.
    #[must_use]
    pub fn checked_rem(self, other: Number) -> Option<Number> {
        match (self.wide()?, other.wide()?) {
            (_, 0) => None,
            (one, two) => Number::from_wide(one % two),
        }
    }

    /// The number with its sign turned; `None` on overflow.
    #[must_use]
    pub fn checked_neg(self) -> Option<Number> {
        match self {
            Number::Float(value) => Some(Number::Float(-value)),
            _ => self.wide().and_then(|wide| Number::from_wide(-wide)),
        }
    }

    /// The number without its sign.
    #[must_use]
    pub fn absolute(self) -> Number {
        match self {
            Number::Signed(value) => Number::from_unsigned(value.unsigned_abs()),
            Number::Unsigned(_) => self,
            Number::Float(value) => Number::Float(value.abs()),
        }
    }

    /// The largest whole number that is not above; a float stays one.
    #[must_use]
    pub fn floor(self) -> Number {
        match self {
            Number::Float(value) => Number::Float(floor(value)),
            _ => self,
        }
    }

    /// The nearest whole number, halves away from zero; a float stays one.
    #[must_use]
    pub fn round(self) -> Number {
        match self {
            Number::Float(value) if value < 0.0 => Number::Float(-round_positive(-value)),
            Number::Float(value) => Number::Float(round_positive(value)),
            _ => self,
        }
    }

    /// Reads decimal digits with an optional sign, fraction and exponent, all of `text`. Integers out of range
    /// become floats. `None` for anything else.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Number> {
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let first = *digits.first()?;
        if digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit) {
            let value = digits.iter().fold(0, |sum: i64, digit| sum * 10 + i64::from(digit - b'0'));
            return Some(Number::Signed(if negative { -value } else { value }));
        }
        // What is left of the syntax that Rust reads: `inf`, `nan` and a second sign are none of it.
        if !(first.is_ascii_digit() || first == b'.') {
            return None;
        }
        let text = core::str::from_utf8(text).ok()?;
        if digits.iter().all(u8::is_ascii_digit)
            && let Some(number) = text.parse().ok().and_then(Number::from_wide)
        {
            return Some(number);
        }
        text.parse().ok().map(Number::Float)
    }
}

/// Two literals are the same when they are of one kind and have the same bits.
impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        match (self, other) {
            (Number::Signed(one), Number::Signed(two)) => one == two,
            (Number::Unsigned(one), Number::Unsigned(two)) => one == two,
            (Number::Float(one), Number::Float(two)) => one.to_bits() == two.to_bits(),
            _ => false,
        }
    }
}

impl Eq for Number {}

impl core::hash::Hash for Number {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let (kind, bits) = match *self {
            Number::Signed(value) => (0_u8, value.cast_unsigned()),
            Number::Unsigned(value) => (1, value),
            Number::Float(value) => (2, value.to_bits()),
        };
        state.write_u8(kind);
        state.write_u64(bits);
    }
}

/// Integers below this size are floats as they are.
const EXACT_END: u64 = 1 << 53;

#[inline]
fn signed_against_float(signed: i64, float: f64) -> Option<Ordering> {
    if signed.unsigned_abs() < EXACT_END {
        return (signed as f64).partial_cmp(&float);
    }
    wide_against_float(signed.into(), float)
}

/// The order of an integer of the domain and a float, without rounding either.
fn wide_against_float(wide: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float >= UNSIGNED_END {
        return Some(Ordering::Less);
    }
    if float < -SIGNED_END {
        return Some(Ordering::Greater);
    }
    let whole = float as i128;
    let fraction = float - whole as f64;
    Some(wide.cmp(&whole).then_with(|| 0.0.partial_cmp(&fraction).unwrap_or(Ordering::Equal)))
}

/// Powers of ten that are floats.
pub(crate) const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Digits that any float between two numbers of so many tells apart.
const DIGITS_MAX: usize = 15;

/// The float of a decimal of few digits without a sign and an exponent; `None` for any other text. Both parts are floats as
/// they are, and their quotient is rounded once.
#[inline]
pub(crate) fn short_decimal(text: &[u8]) -> Option<f64> {
    let (mut value, mut scale) = (0_u64, None);
    if text.len() > DIGITS_MAX + 1 {
        return None;
    }
    for byte in text {
        match byte {
            b'0'..=b'9' => {
                value = value * 10 + u64::from(byte - b'0');
                scale = scale.map(|scale| scale + 1);
            }
            b'.' if scale.is_none() => scale = Some(0),
            _ => return None,
        }
    }
    (value < EXACT_END).then(|| value as f64 / POWERS[scale.unwrap_or(0)])
}

/// A float as the decimal that it is read from, where that has few digits: these as a number, and how many of them stand
/// behind the point. There is no shorter one, and no other one of so many digits.
pub(crate) fn digits(value: f64) -> Option<(u64, usize)> {
    let value = value.abs();
    // What is smaller or larger is written with an exponent.
    if value != 0.0 && value < 1e-4 {
        return None;
    }
    for (scale, power) in POWERS.iter().enumerate().take(5) {
        let scaled = value * power;
        if scaled >= DIGITS_END {
            return None;
        }
        let whole = scaled as u64;
        if whole as f64 == scaled && scaled / power == value {
            let (mut whole, mut scale) = (whole, scale);
            while scale > 0 && whole.is_multiple_of(10) {
                (whole, scale) = (whole / 10, scale - 1);
            }
            return Some((whole, scale));
        }
    }
    None
}

/// One above the largest number of [`DIGITS_MAX`] digits.
const DIGITS_END: f64 = 1e15;

fn finite(value: f64) -> Option<Number> {
    value.is_finite().then_some(Number::Float(value))
}

/// Floats of at least this size are whole.
const WHOLE_FROM: f64 = 4_503_599_627_370_496.0;

fn floor(value: f64) -> f64 {
    // Not below it: NaN and infinities as well.
    if value.is_nan() || value.abs() >= WHOLE_FROM {
        return value;
    }
    let whole = value as i64 as f64;
    if whole > value { whole - 1.0 } else { whole }
}

fn round_positive(value: f64) -> f64 {
    let whole = floor(value);
    if value - whole >= 0.5 { whole + 1.0 } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Number::{Float, Signed, Unsigned};
    use alloc::borrow::ToOwned;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn integers_and_floats_are_compared_without_rounding() {
        let rows = [
            (Signed(9_007_199_254_740_993), Float(9_007_199_254_740_992.0), Ordering::Greater),
            (Signed(i64::MAX), Float(SIGNED_END), Ordering::Less),
            (Signed(i64::MIN), Float(-SIGNED_END), Ordering::Equal),
            (Unsigned(u64::MAX), Float(UNSIGNED_END), Ordering::Less),
            (Unsigned(1 << 63), Float(SIGNED_END), Ordering::Equal),
            (Signed(-3), Float(-3.5), Ordering::Greater),
            (Signed(3), Float(3.5), Ordering::Less),
            (Signed(0), Float(-0.0), Ordering::Equal),
            (Signed(0), Float(f64::INFINITY), Ordering::Less),
            (Signed(0), Float(f64::NEG_INFINITY), Ordering::Greater),
            (Signed(-1), Unsigned(u64::MAX), Ordering::Less),
        ];
        for (one, two, order) in rows {
            assert_eq!(one.compare(two), Some(order), "{one:?} {two:?}");
            assert_eq!(two.compare(one), Some(order.reverse()), "{two:?} {one:?}");
        }
        assert_eq!(Signed(1).compare(Float(f64::NAN)), None);
        assert_eq!(Float(f64::NAN).compare(Float(f64::NAN)), None);
    }

    #[test]
    fn equal_numbers_have_one_canonical_form() {
        assert_eq!(Float(5.0).canonical(), Signed(5));
        assert_eq!(Float(-0.0).canonical(), Signed(0));
        assert_eq!(Float(SIGNED_END).canonical(), Unsigned(1 << 63));
        assert_eq!(Float(5.5).canonical(), Float(5.5));
        assert_eq!(Float(UNSIGNED_END).canonical(), Float(UNSIGNED_END));
    }

    #[test]
    fn arithmetic_leaves_the_domain_as_unknown() {
        assert_eq!(Unsigned(u64::MAX).checked_add(Signed(1)), None);
        assert_eq!(Signed(i64::MAX).checked_add(Signed(1)), Some(Unsigned(1 << 63)));
        assert_eq!(Signed(i64::MIN).checked_neg(), Some(Unsigned(1 << 63)));
        assert_eq!(Unsigned(u64::MAX).checked_mul(Unsigned(u64::MAX)), None);
        assert_eq!(Signed(5).checked_div(Signed(2)), Some(Float(2.5)));
        assert_eq!(Signed(6).checked_div(Signed(2)), Some(Signed(3)));
        assert_eq!(Signed(6).checked_div(Float(-0.0)), None);
        assert_eq!(Signed(7).checked_rem(Signed(-5)), Some(Signed(2)));
        assert_eq!(Signed(7).checked_rem(Float(2.0)), None);
        assert_eq!(Float(1e308).checked_mul(Float(10.0)), None);
        assert_eq!(Signed(i64::MIN).absolute(), Unsigned(1 << 63));
    }

    #[test]
    fn rounding_is_away_from_zero_and_floors_go_down() {
        for (value, floor, round) in
            [(2.5, 2.0, 3.0), (-2.5, -3.0, -3.0), (-0.2, -1.0, 0.0), (1e300, 1e300, 1e300)]
        {
            assert_eq!(Float(value).floor().to_float(), floor, "{value}");
            assert_eq!(Float(value).round().to_float(), round, "{value}");
        }
    }

    #[test]
    fn short_decimals_are_what_they_are_read_as() {
        let mut rng = lepus_base::Rng::new(3);
        let mut texts: Vec<String> = Vec::new();
        for _ in 0..20_000 {
            let end = 10_u64.pow(rng.below(17) as u32 + 1);
            let digits = rng.below(end);
            let text = format!("{digits:03}");
            let point = rng.below(text.len() as u64 + 1) as usize;
            texts.push(format!("{}.{}", &text[..point], &text[point..]));
            texts.push(text);
        }
        texts.extend(
            ["0.", ".5", "00.10", "9007199254740991", "9007199254740993"].map(String::from),
        );
        let (mut read, mut written) = (0, 0);
        for text in &texts {
            let expected: f64 = text.parse().unwrap();
            if let Some(value) = short_decimal(text.as_bytes()) {
                assert_eq!(value.to_bits(), expected.to_bits(), "{text}");
                read += 1;
            }
            for value in [expected, -expected, expected.next_up(), expected / 3.0] {
                let Some((digits, scale)) = digits(value) else { continue };
                let power = 10_u64.pow(scale as u32);
                let fraction = match scale {
                    0 => "0".to_owned(),
                    _ => format!("{:0scale$}", digits % power),
                };
                let sign = if value.is_sign_negative() { "-" } else { "" };
                let text = format!("{sign}{}.{fraction}", digits / power);
                assert_eq!(text, format!("{value:?}"));
                written += 1;
            }
        }
        assert!(read > 25_000 && written > 20_000, "{read} {written}");
        for text in ["", "1e3", "1.2.3", "-1", "1234567890123456789.5"] {
            let is_read = short_decimal(text.as_bytes());
            assert!(is_read.is_none() || text.is_empty(), "{text}");
        }
        for value in [f64::NAN, f64::INFINITY, 1e15, 1e300, 5e-5, 0.1 + 0.2] {
            assert_eq!(digits(value), None, "{value}");
        }
    }

    #[test]
    fn numbers_are_read_whole_or_not_at_all() {
        assert_eq!(Number::parse(b"-12"), Some(Signed(-12)));
        assert_eq!(Number::parse(b"18446744073709551615"), Some(Unsigned(u64::MAX)));
        assert_eq!(Number::parse(b"18446744073709551616"), Some(Float(UNSIGNED_END)));
        assert_eq!(Number::parse(b"0012.50"), Some(Float(12.5)));
        assert_eq!(Number::parse(b".5"), Some(Float(0.5)));
        assert_eq!(Number::parse(b"1e3"), Some(Float(1000.0)));
        for text in ["", "-", "nan", "inf", "+-1", "1 ", "0x1", ".", "1e", "-inf"] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text}");
        }
    }
}
