//! What may be done for a message, and what things take.
//!
//! A step is some ten nanoseconds. Whoever is about to do something asks for its steps first; what is refused is not done.

use crate::value::Value;

/// Counts the steps of a message.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    max: u64,
    /// Of these, what is left.
    left: u64,
    /// What was done beside them.
    allowed: u64,
    /// What was too little for the first thing that was not done.
    missing: u64,
    /// What is done once for a string of the message, in proportion to its bytes, is part of reading it.
    allows_strings: bool,
}

impl Steps {
    /// None yet, of so many.
    pub(crate) fn new(max: u64) -> Steps {
        Steps { max, left: max, ..Steps::default() }
    }

    /// The same, where what is done once for a string of the message counts as reading it: that one filter wants a long one is
    /// nothing that others should pay.
    pub(crate) fn with_strings(max: u64) -> Steps {
        Steps { allows_strings: true, ..Steps::new(max) }
    }

    /// Asks to decode a string that is wanted, or to hash one. False as of [`Steps::spend`].
    pub(crate) fn spend_on_string(&mut self, steps: u64) -> bool {
        if self.allows_strings {
            self.allow(steps);
            return true;
        }
        self.spend(steps)
    }

    /// Asks to read a number of so many bytes: passing over digits that do not count is as with strings. False as of
    /// [`Steps::spend`].
    pub(crate) fn spend_on_number(&mut self, bytes: usize) -> bool {
        let passing = (bytes / DIGITS_PER_STEP) as u64;
        self.spend(of_number(bytes) - passing) && self.spend_on_string(passing)
    }

    /// Asks to do something. False where it would be more than there may be: then it must not be done, and nothing that
    /// was found counts.
    #[inline]
    pub(crate) fn spend(&mut self, steps: u64) -> bool {
        match self.left.checked_sub(steps) {
            Some(left) if self.missing == 0 => {
                self.left = left;
                true
            }
            _ => self.refuse(steps),
        }
    }

    #[cold]
    fn refuse(&mut self, steps: u64) -> bool {
        if self.missing == 0 {
            self.missing = steps - self.left;
        }
        false
    }

    /// What follows may take at most so many of those that are left. Gives what is kept back, for [`Steps::widen`].
    pub(crate) fn narrow(&mut self, most: u64) -> u64 {
        let kept = self.left.saturating_sub(most);
        self.left -= kept;
        kept
    }

    /// Others may have what was kept back. How many steps more what came between would have taken at least, 0 where it had
    /// enough; that is forgotten.
    pub(crate) fn widen(&mut self, kept: u64) -> u64 {
        self.left += kept;
        core::mem::take(&mut self.missing)
    }

    /// So many more may be taken.
    pub(crate) fn extend(&mut self, more: u64) {
        self.max += more;
        self.left += more;
    }

    /// Steps that are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Counts what is done in any case, beside what there may be.
    #[inline]
    pub(crate) fn allow(&mut self, steps: u64) {
        self.allowed = self.allowed.saturating_add(steps);
    }

    /// Of the steps that were taken, those that are beside what there may be.
    pub(crate) fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Steps that were taken.
    pub(crate) fn used(&self) -> u64 {
        (self.max - self.left).saturating_add(self.allowed)
    }

    /// Whether something was not done since it would have been more than there may be.
    #[inline]
    pub(crate) fn has_run_out(&self) -> bool {
        self.missing > 0
    }

    /// How many steps more that would have taken, at least.
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }
}

/// Reading a document.
pub(crate) fn of_json(bytes: usize) -> u64 {
    (bytes / 8 + bytes / 32) as u64
}

/// Going through an array or object of a document that was read before, so many times.
pub(crate) fn of_walk(bytes: usize, passes: usize) -> u64 {
    ((bytes / 10) as u64).saturating_mul(passes as u64)
}

/// Going through fields of `tag=value`.
pub(crate) fn of_fields(bytes: usize) -> u64 {
    (bytes / 4) as u64
}

/// Going through properties, or an array or table in the headers.
pub(crate) fn of_headers(bytes: usize) -> u64 {
    (bytes / 8) as u64
}

/// Decoding a string with escapes.
pub(crate) fn of_escapes(bytes: usize) -> u64 {
    (bytes / 2) as u64
}

/// Comparing two strings, of which the shorter has so many bytes.
#[inline]
pub(crate) fn of_bytes(bytes: usize) -> u64 {
    (bytes / 64) as u64
}

/// Looking a value up, beside its hash.
pub(crate) const LOOK_UP: u64 = 5;

/// The hash of a string.
#[inline]
pub(crate) fn of_hash(bytes: usize) -> u64 {
    (bytes / 32) as u64
}

/// Looking a string up among sorted ones.
#[inline]
pub(crate) fn of_search(bytes: usize) -> u64 {
    2 + (bytes / 8) as u64
}

/// Finding a string in another.
pub(crate) fn of_find(text: usize, part: usize) -> u64 {
    1 + (text / 3 + part / 2) as u64
}

/// Counting code points.
pub(crate) fn of_code_points(bytes: usize) -> u64 {
    (bytes / 4) as u64
}

/// Writing a string in other letters.
pub(crate) fn of_letters(bytes: usize) -> u64 {
    1 + bytes as u64
}

/// Taking an element of an array, or testing it.
pub(crate) const ELEMENT: u64 = 4;

/// Meeting a name of a body that is wanted, beside reading it.
pub(crate) const MET: u64 = 1;
/// Meeting one below which, or beside which, others are wanted.
pub(crate) const MET_WITH_OTHERS: u64 = 3;
/// Looking for a header among few names that are wanted, beside its bytes, and among many.
pub(crate) const NAME: u64 = 1;
pub(crate) const NAME_AMONG_MANY: u64 = 5;
/// A field of `tag=value`, beside its bytes.
pub(crate) const FIELD: u64 = 4;
/// A decimal whose scale is above what divides exactly.
pub(crate) const DECIMAL_LONG: u64 = 40;

/// Writing a number.
pub(crate) const NUMBER_WRITTEN: u64 = 16;

/// Digits of a number that is read quickly.
pub(crate) const DIGITS_QUICK: usize = 18;
/// Digits of a number that count.
const DIGITS_MAX: usize = 800;
/// Digits that are passed over in a step.
const DIGITS_PER_STEP: usize = 16;

/// Reading a number of so many bytes: one that lies near the middle of two floats is read digit by digit.
#[inline]
pub(crate) fn of_number(bytes: usize) -> u64 {
    match bytes {
        ..=DIGITS_QUICK => 1 + (bytes / DIGITS_PER_STEP) as u64,
        _ => (bytes.min(DIGITS_MAX) + bytes / DIGITS_PER_STEP) as u64,
    }
}

/// Comparing two values.
#[inline]
pub(crate) fn of_comparison(one: Value, two: Value) -> u64 {
    match (one, two) {
        (Value::Untyped(one), Value::Untyped(two)) => {
            let (one, two) = (one.length as usize, two.length as usize);
            of_number(one) + of_number(two) + of_bytes(one.min(two))
        }
        (Value::Untyped(span), Value::Number(_)) | (Value::Number(_), Value::Untyped(span)) => {
            of_number(span.length as usize)
        }
        (
            Value::Text(one) | Value::Untyped(one) | Value::Binary(one),
            Value::Text(two) | Value::Untyped(two) | Value::Binary(two),
        ) => of_bytes(one.length.min(two.length) as usize),
        _ => 0,
    }
}
