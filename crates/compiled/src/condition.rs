//! What is compared with what, and the loop that interprets it.

/// A text's tag is this and its bytes.
const TEXT: u64 = 2;
const NUMBER: u64 = 1;
/// Bytes of the longest text that a constant may be.
const TEXT_BYTES_MAX: usize = 8;
/// Integers from here on are not all floats.
const EXACT_END: u64 = 1 << 53;

/// A field of a message, as compiled code reads it. One that is not there is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// 0: not there, 1: a number, from 2 on a text with so many bytes and two.
    pub(crate) tag: u64,
    /// A float's bits, or the first eight bytes of a text, zeros behind a shorter one.
    pub(crate) bits: u64,
}

impl Value {
    /// A number that a float can be without loss.
    #[must_use]
    pub fn float(number: f64) -> Value {
        Value { tag: NUMBER, bits: number.to_bits() }
    }

    /// An integer; `None` from 2^53 on, where floats no longer tell integers apart.
    #[must_use]
    pub fn integer(number: i64) -> Option<Value> {
        (number.unsigned_abs() < EXACT_END).then(|| Value::float(number as f64))
    }

    /// A text. Of one longer than eight bytes the first eight and the length are kept: enough to tell it from every constant.
    #[must_use]
    pub fn text(text: &str) -> Value {
        let mut first = [0; TEXT_BYTES_MAX];
        for (place, byte) in first.iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        Value { tag: TEXT + text.len() as u64, bits: u64::from_le_bytes(first) }
    }
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a field is compared with: a number, or a text of up to eight bytes for [`Operator::Equal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant(pub(crate) Value);

impl Constant {
    /// A number that a float can be without loss.
    #[must_use]
    pub fn number(value: f64) -> Constant {
        Constant(Value::float(value))
    }

    /// An integer; `None` from 2^53 on, where floats no longer tell integers apart.
    #[must_use]
    pub fn integer(value: i64) -> Option<Constant> {
        Value::integer(value).map(Constant)
    }

    /// A text; `None` where it is longer than eight bytes.
    #[must_use]
    pub fn text(text: &str) -> Option<Constant> {
        (text.len() <= TEXT_BYTES_MAX).then(|| Constant(Value::text(text)))
    }

    pub(crate) fn is_number(self) -> bool {
        self.0.tag == NUMBER
    }

    pub(crate) fn to_float(self) -> f64 {
        f64::from_bits(self.0.bits)
    }
}

/// A field's place among the values, and what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub(crate) slot: u32,
    pub(crate) operator: Operator,
    pub(crate) constant: Constant,
}

impl Comparison {
    /// `None` for a text that is compared other than for equality: that is not compiled.
    #[must_use]
    pub fn new(slot: u32, operator: Operator, constant: Constant) -> Option<Comparison> {
        let is_known = constant.is_number() || operator == Operator::Equal;
        is_known.then_some(Comparison { slot, operator, constant })
    }

    /// Whether it is TRUE: of a field that is not there or is of another type it never is.
    #[inline]
    fn holds(self, values: &[Value]) -> bool {
        let Some(value) = values.get(self.slot as usize) else { return false };
        if !self.constant.is_number() {
            return *value == self.constant.0;
        }
        if value.tag != NUMBER {
            return false;
        }
        let (left, right) = (f64::from_bits(value.bits), self.constant.to_float());
        match self.operator {
            Operator::Equal => left == right,
            Operator::NotEqual => left != right,
            Operator::Less => left < right,
            Operator::LessOrEqual => left <= right,
            Operator::Greater => left > right,
            Operator::GreaterOrEqual => left >= right,
        }
    }
}

/// Comparisons that all have to be TRUE. Since nothing negates them, unknown and FALSE come to the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition(pub(crate) Box<[Comparison]>);

impl Condition {
    /// The comparisons in the order in which they are asked.
    #[must_use]
    pub fn new(comparisons: Vec<Comparison>) -> Condition {
        Condition(comparisons.into())
    }

    /// Whether all comparisons are TRUE of a message with these values: the interpreter. One without comparisons holds.
    #[inline]
    #[must_use]
    pub fn holds(&self, values: &[Value]) -> bool {
        self.0.iter().all(|comparison| comparison.holds(values))
    }

    /// Whether it asks first for a text.
    #[cfg(feature = "cranelift")]
    pub(crate) fn is_keyed(&self) -> bool {
        self.0.first().is_some_and(|first| !first.constant.is_number())
    }

    /// One more than the highest place that is looked at.
    #[cfg(feature = "cranelift")]
    pub(crate) fn slots(&self) -> usize {
        self.0.iter().map(|comparison| comparison.slot as usize + 1).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(slot: u32, operator: Operator, constant: Constant) -> Condition {
        Condition::new(vec![Comparison::new(slot, operator, constant).unwrap()])
    }

    #[test]
    fn numbers_are_compared_as_they_say() {
        use Operator::*;
        let expected = [
            (Equal, [false, true, false]),
            (NotEqual, [true, false, true]),
            (Less, [true, false, false]),
            (LessOrEqual, [true, true, false]),
            (Greater, [false, false, true]),
            (GreaterOrEqual, [false, true, true]),
        ];
        for (operator, verdicts) in expected {
            let condition = one(0, operator, Constant::number(5.5));
            let found = [5.25, 5.5, 6.0].map(|number| condition.holds(&[Value::float(number)]));
            assert_eq!(found, verdicts, "{operator:?}");
        }
    }

    #[test]
    fn fields_of_another_type_and_missing_ones_never_hold() {
        let number = one(0, Operator::NotEqual, Constant::number(5.0));
        let text = one(0, Operator::Equal, Constant::text("A").unwrap());
        for value in [Value::default(), Value::text("5"), Value::text("")] {
            assert!(!number.holds(&[value]), "{value:?}");
        }
        for value in [Value::default(), Value::float(0.0), Value::text("AA"), Value::text("B")] {
            assert!(!text.holds(&[value]), "{value:?}");
        }
        assert!(text.holds(&[Value::text("A")]) && !text.holds(&[]));
    }

    #[test]
    fn texts_are_told_apart_by_bytes_and_length() {
        let eight = one(0, Operator::Equal, Constant::text("12345678").unwrap());
        assert!(eight.holds(&[Value::text("12345678")]));
        assert!(
            !eight.holds(&[Value::text("123456789")]) && !eight.holds(&[Value::text("1234567")])
        );
        let zero = one(0, Operator::Equal, Constant::text("a\0").unwrap());
        assert!(zero.holds(&[Value::text("a\0")]) && !zero.holds(&[Value::text("a")]));
    }

    #[test]
    fn what_cannot_be_said_exactly_is_refused() {
        assert_eq!(Value::integer(-7), Some(Value::float(-7.0)));
        assert!(Value::integer(1 << 53).is_none() && Value::integer(i64::MIN).is_none());
        assert!(Constant::text("123456789").is_none() && Constant::integer(-(1 << 53)).is_none());
        let text = Constant::text("A").unwrap();
        assert!(Comparison::new(0, Operator::Less, text).is_none());
    }
}
