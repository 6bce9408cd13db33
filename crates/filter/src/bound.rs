//! Ends of ranges of fields, and values that are compared with them.

use crate::atom::{Constant, Limit};
use crate::number::Number;
use crate::paths::Slot;
use crate::steps;
use crate::value::{Sources, Value};
use alloc::vec::Vec;
use core::cmp::Ordering;

/// One end of the range in which a field must lie.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) slot: Slot,
    pub(crate) limit: Limit,
    pub(crate) constant: Constant,
}

/// Ends of a branch at most.
pub(crate) const SIDES_MAX: usize = 8;

/// An end without its constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Side {
    pub(crate) slot: Slot,
    pub(crate) is_text: bool,
    pub(crate) is_lower: bool,
}

impl Side {
    /// Whether another one is an end of the same field, for constants of the same type.
    #[inline]
    pub(crate) fn is_of_same(self, other: Side) -> bool {
        (self.slot, self.is_text) == (other.slot, other.is_text)
    }
}

impl Bound {
    /// The end without its constant.
    pub(crate) fn side(&self) -> Side {
        let is_text = matches!(self.constant, Constant::Text(_));
        Side { slot: self.slot, is_text, is_lower: self.limit.is_lower() }
    }

    /// Bytes of its text.
    pub(crate) fn text_bytes(&self) -> usize {
        match &self.constant {
            Constant::Text(text) => text.len(),
            Constant::Number(_) => 0,
        }
    }

    /// What comparing a value with it takes beside the step of its branch.
    #[inline]
    pub(crate) fn steps(&self, value: Value) -> u64 {
        if let Value::Number(_) = value {
            return 0;
        }
        match (&self.constant, value) {
            (Constant::Number(_), Value::Untyped(span)) => steps::of_number(span.length as usize),
            (Constant::Text(constant), Value::Text(span) | Value::Untyped(span)) => {
                steps::of_bytes(constant.len().min(span.length as usize))
            }
            _ => 0,
        }
    }

    /// Whether a value is on the right side: FALSE for values of unlike types and for null.
    #[inline]
    pub(crate) fn holds(&self, value: Value, sources: Sources<'_>) -> bool {
        let order = match (&self.constant, value) {
            (Constant::Number(constant), Value::Number(number)) => number.compare(*constant),
            (Constant::Number(constant), Value::Untyped(_)) => {
                value.number(sources).and_then(|number| number.compare(*constant))
            }
            (Constant::Text(constant), Value::Text(span) | Value::Untyped(span)) => {
                Some(sources.bytes(span).cmp(constant))
            }
            _ => None,
        };
        match (self.limit, order) {
            (_, None) => false,
            (Limit::Above, Some(order)) => order == Ordering::Greater,
            (Limit::From, Some(order)) => order != Ordering::Less,
            (Limit::UpTo, Some(order)) => order != Ordering::Greater,
            (Limit::Below, Some(order)) => order == Ordering::Less,
        }
    }
}

/// Constants in their order, each once.
#[derive(Clone, Debug)]
pub(crate) enum Constants {
    /// Numbers that are floats as they are.
    Floats(Vec<f64>),
    /// Numbers of which some are not.
    Numbers(Vec<Number>),
    /// The bytes of all, and where each ends.
    Texts(Vec<u8>, Vec<u32>),
}

/// The order of two numbers of filters, which are never NaN.
pub(crate) fn order(one: Number, two: Number) -> Ordering {
    one.compare(two).unwrap_or(Ordering::Equal)
}

impl Constants {
    /// None yet, with room for so many.
    pub(crate) fn with_capacity(is_text: bool, count: usize) -> Constants {
        if is_text {
            Constants::Texts(Vec::new(), Vec::with_capacity(count))
        } else {
            Constants::Floats(Vec::with_capacity(count))
        }
    }

    /// Makes room for numbers that are no floats.
    fn widen(&mut self) -> &mut Constants {
        if let Constants::Floats(floats) = self {
            let mut numbers = Vec::with_capacity(floats.capacity());
            numbers.extend(floats.iter().copied().map(Number::Float));
            *self = Constants::Numbers(numbers);
        }
        self
    }

    /// The number at an index; none where there are texts.
    pub(crate) fn number(&self, index: usize) -> Option<Number> {
        match self {
            Constants::Floats(floats) => Some(Number::Float(floats[index])),
            Constants::Numbers(numbers) => Some(numbers[index]),
            Constants::Texts(..) => None,
        }
    }

    /// Number of constants.
    pub(crate) fn len(&self) -> usize {
        match self {
            Constants::Floats(floats) => floats.len(),
            Constants::Numbers(numbers) => numbers.len(),
            Constants::Texts(_, ends) => ends.len(),
        }
    }

    fn text<'c>(bytes: &'c [u8], ends: &[u32], index: usize) -> &'c [u8] {
        let start = if index == 0 { 0 } else { ends[index - 1] as usize };
        &bytes[start..ends[index] as usize]
    }

    /// The order of a constant here and one there.
    pub(crate) fn compare(&self, index: usize, other: &Constants, other_index: usize) -> Ordering {
        if let (Constants::Floats(one), Constants::Floats(two)) = (self, other) {
            return one[index].partial_cmp(&two[other_index]).unwrap_or(Ordering::Equal);
        }
        if let (Constants::Texts(one, ends), Constants::Texts(two, other_ends)) = (self, other) {
            return Self::text(one, ends, index).cmp(Self::text(two, other_ends, other_index));
        }
        match (self.number(index), other.number(other_index)) {
            (Some(one), Some(two)) => order(one, two),
            _ => Ordering::Equal,
        }
    }

    /// Appends a constant of others.
    pub(crate) fn push_from(&mut self, other: &Constants, index: usize) {
        if let (Constants::Floats(floats), Constants::Floats(others)) = (&mut *self, other) {
            return floats.push(others[index]);
        }
        if let (Constants::Texts(bytes, ends), Constants::Texts(others, other_ends)) =
            (&mut *self, other)
        {
            bytes.extend_from_slice(Self::text(others, other_ends, index));
            ends.push(bytes.len() as u32);
        } else if let Some(number) = other.number(index) {
            self.push_number(number);
        }
    }

    /// Appends a constant.
    pub(crate) fn push(&mut self, constant: &Constant) {
        match (&mut *self, constant) {
            (Constants::Texts(bytes, ends), Constant::Text(text)) => {
                bytes.extend_from_slice(text);
                ends.push(bytes.len() as u32);
            }
            (_, Constant::Number(number)) => self.push_number(*number),
            _ => {}
        }
    }

    fn push_number(&mut self, number: Number) {
        match (self, number.exact()) {
            (Constants::Floats(floats), Some(float)) => floats.push(float),
            (known, _) => {
                if let Constants::Numbers(numbers) = known.widen() {
                    numbers.push(number);
                }
            }
        }
    }

    /// The place of a constant that is one of them.
    pub(crate) fn place(&self, constant: &Constant) -> usize {
        let (Ok(place) | Err(place)) = match (self, constant) {
            (Constants::Floats(_) | Constants::Numbers(_), Constant::Number(number)) => {
                self.search_number(*number)
            }
            (Constants::Texts(bytes, ends), Constant::Text(text)) => {
                Self::search(bytes, ends, text)
            }
            _ => Err(0),
        };
        place
    }

    /// Where a number is, or where it would be. It is not NaN.
    fn search_number(&self, number: Number) -> Result<usize, usize> {
        match (self, number.exact()) {
            (Constants::Floats(floats), Some(number)) => {
                // What lies outside is found at once.
                match floats.last() {
                    Some(last) if number <= *last => {}
                    _ => return Err(floats.len()),
                }
                let is_first = floats.first().is_some_and(|first| number < *first);
                let place =
                    if is_first { 0 } else { floats.partition_point(|known| *known < number) };
                if floats.get(place) == Some(&number) { Ok(place) } else { Err(place) }
            }
            (Constants::Floats(floats), None) => {
                floats.binary_search_by(|known| order(Number::Float(*known), number))
            }
            (Constants::Numbers(numbers), _) => {
                numbers.binary_search_by(|known| order(*known, number))
            }
            (Constants::Texts(..), _) => Err(0),
        }
    }

    fn search(bytes: &[u8], ends: &[u32], wanted: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match Self::text(bytes, ends, middle).cmp(wanted) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The rank of a value: 2i + 1 if it is the i-th constant, 2i if it lies before that one. `None` if it is of
    /// another type, null or NaN: then it is on no side of any.
    pub(crate) fn rank(&self, value: Value, sources: Sources<'_>) -> Option<u32> {
        let found = match self {
            Constants::Floats(_) | Constants::Numbers(_) => {
                let number = match value {
                    Value::Number(number) => number,
                    _ => value.number(sources)?,
                };
                number.compare(number)?;
                self.search_number(number)
            }
            Constants::Texts(bytes, ends) => {
                Self::search(bytes, ends, sources.bytes(value.string()?))
            }
        };
        Some(match found {
            Ok(index) => 2 * index as u32 + 1,
            Err(index) => 2 * index as u32,
        })
    }

    /// What finding the rank of a value takes, in steps.
    pub(crate) fn steps(&self, value: Value) -> u64 {
        match (self, value) {
            (Constants::Floats(_) | Constants::Numbers(_), Value::Untyped(span)) => {
                1 + steps::of_number(span.length as usize)
            }
            (Constants::Texts(bytes, ends), Value::Text(span) | Value::Untyped(span)) => {
                let each = steps::of_bytes(bytes.len().min(span.length as usize));
                1 + each * u64::from(1 + ends.len().max(1).ilog2())
            }
            _ => 1,
        }
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Constants::Floats(floats) => floats.capacity() * size_of::<f64>(),
            Constants::Numbers(numbers) => numbers.capacity() * size_of::<Number>(),
            Constants::Texts(bytes, ends) => bytes.capacity() + ends.capacity() * size_of::<u32>(),
        }
    }
}
