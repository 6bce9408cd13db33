//! Evaluation of the graph for one message.

use super::{NodeId, Op, Program, TestOp};
use crate::extract::{self, Extracted};
use crate::message::Message;
use crate::number::Number;
use crate::regexp::RegexpRoom;
use crate::steps::{self, Steps};
use crate::tree::{Arithmetic, Comparison, IsKind, Quantifier};
use crate::value::{Source, Sources, Span, Truth, Value, compare, holds};
use alloc::vec::Vec;

/// Room for results, used again for the next message.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Counts messages: results of others do not count.
    epoch: u32,
    /// By node, its result and of which message.
    results: Vec<(u32, Value)>,
    /// By array, of which message it is, whether it is there, and its elements.
    lists: Vec<(u32, bool, usize, usize)>,
    elements: Vec<Value>,
    /// A string in other letters, before it is kept.
    pub(super) changed: Vec<u8>,
    /// The table for looking for a string that is no constant.
    pub(super) failures: Vec<u32>,
    regexps: RegexpRoom,
    /// Counts what was found and kept: as long as it stays, what is missing costs what it did.
    pub(crate) kept: u64,
    /// What may be done for this message.
    pub(crate) steps: Steps,
}

impl Room {
    /// Begins with a message, which may take these steps.
    #[inline]
    pub(crate) fn begin(&mut self, program: &Program, steps: Steps) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // After 2^32 messages old results would look new.
            self.results.clear();
            self.lists.clear();
            self.epoch = 1;
        }
        // Those of other programs are of other messages.
        if self.results.len() < program.nodes.len() {
            self.results.resize(program.nodes.len(), (0, Value::Null));
        }
        if self.lists.len() < program.lists.places() {
            self.lists.resize(program.lists.places(), (0, false, 0, 0));
        }
        if !self.elements.is_empty() {
            self.elements.clear();
            self.elements.shrink_to(ELEMENTS_KEPT_MAX);
        }
        self.steps = steps;
    }
}

/// Elements of which the memory is kept for the next message.
const ELEMENTS_KEPT_MAX: usize = 1 << 14;
/// Parts of a condition that are asked for in one step.
const PARTS_PER_STEP: usize = 4;

/// The evaluation of parts for one message.
pub(crate) struct Evaluation<'e> {
    pub(crate) program: &'e Program,
    pub(crate) message: &'e Message<'e>,
    pub(crate) extracted: &'e mut Extracted,
    pub(crate) room: &'e mut Room,
}

impl Evaluation<'_> {
    pub(super) fn sources(&self) -> Sources<'_> {
        Sources {
            message: self.message,
            made: &self.extracted.made,
            constants: &self.program.texts,
        }
    }

    /// Whether a part is TRUE.
    pub(crate) fn is_true(&mut self, id: NodeId) -> bool {
        self.truth(id) == Some(true)
    }

    /// Writes what is computed of fields into its slots. What they hold means nothing where the steps have run out.
    pub(crate) fn fill_computed(&mut self) {
        let program = self.program;
        for computed in program.computed() {
            let value = self.value(computed.node);
            self.extracted.slots[computed.slot as usize] = value;
        }
    }

    fn truth(&mut self, id: NodeId) -> Truth {
        let Some(Some(node)) = self.program.nodes.get(id as usize) else { return None };
        if node.users > 1 || !node.op.is_condition() {
            return self.value(id).truth();
        }
        // Nobody else asks for it.
        if !self.spend(1) {
            return None;
        }
        // Mostly a field is compared with a number.
        if let Op::Compare(comparison, one, two) = node.op
            && let (Some(one), Some(two)) = (self.known_number(one), self.known_number(two))
        {
            return Some(holds(comparison, one.compare(two)));
        }
        self.condition(&node.op)
    }

    /// The number of a constant or a field.
    #[inline(always)]
    fn known_number(&self, id: NodeId) -> Option<Number> {
        match self.program.nodes.get(id as usize)?.as_ref()?.op {
            Op::Number(number) => Some(number),
            Op::Slot(slot) => match self.extracted.slots.get(slot as usize) {
                Some(Value::Number(number)) => Some(*number),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value of a part. As deep as the expression.
    #[inline]
    pub(super) fn value(&mut self, id: NodeId) -> Value {
        let Some(Some(node)) = self.program.nodes.get(id as usize) else { return Value::Null };
        match node.op {
            Op::Slot(slot) => self.slot(slot),
            Op::Number(number) => Value::Number(number),
            Op::Null => Value::Null,
            Op::Bool(value) => Value::Bool(value),
            Op::Text(owner) => self.text(owner),
            _ => match self.room.results[id as usize] {
                (epoch, known) if epoch == self.room.epoch => known,
                _ => self.new_value(id, &node.op),
            },
        }
    }

    fn new_value(&mut self, id: NodeId, op: &Op) -> Value {
        if !self.spend(1) {
            return Value::Null;
        }
        let value = self.compute(op);
        if self.room.steps.has_run_out() {
            return Value::Null;
        }
        self.room.results[id as usize] = (self.room.epoch, value);
        self.room.kept += 1;
        value
    }

    /// Asks to do something. What is refused must not be done.
    #[inline]
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        self.room.steps.spend(steps)
    }

    /// The number of a value.
    pub(super) fn number(&mut self, value: Value) -> Option<Number> {
        if let Value::Untyped(span) = value
            && !self.spend(steps::of_number(span.length as usize))
        {
            return None;
        }
        value.number(self.sources())
    }

    fn slot(&self, slot: u32) -> Value {
        self.extracted.slots.get(slot as usize).copied().unwrap_or(Value::Missing)
    }

    fn text(&self, owner: u32) -> Value {
        let length = self.program.texts.get(owner as usize).map_or(0, |text| text.len());
        Value::Text(Span { start: 0, length: length as u32, owner, source: Source::Constant })
    }

    fn compute(&mut self, op: &Op) -> Value {
        match op {
            Op::Null | Op::Bool(_) | Op::Number(_) | Op::Text(_) | Op::Slot(_) => Value::Null,
            Op::Arithmetic(operator, one, two) => {
                let (one, two) = (self.value(*one), self.value(*two));
                let (Some(one), Some(two)) = (self.number(one), self.number(two)) else {
                    return Value::Null;
                };
                Value::of_number(match operator {
                    Arithmetic::Add => one.checked_add(two),
                    Arithmetic::Subtract => one.checked_sub(two),
                    Arithmetic::Multiply => one.checked_mul(two),
                    Arithmetic::Divide => one.checked_div(two),
                    Arithmetic::Remainder => one.checked_rem(two),
                })
            }
            Op::Negate(inner) => {
                let value = self.value(*inner);
                Value::of_number(self.number(value).and_then(|number| number.checked_neg()))
            }
            Op::Plus(inner) => {
                let value = self.value(*inner);
                Value::of_number(self.number(value))
            }
            Op::Call(function, arguments) => self.call(*function, arguments),
            Op::Not(_)
            | Op::And(_)
            | Op::Or(_)
            | Op::Compare(..)
            | Op::Test(..)
            | Op::Quantified(..)
            | Op::Is { .. } => Value::of_truth(self.condition(op)),
        }
    }

    /// What a condition says.
    fn condition(&mut self, op: &Op) -> Truth {
        match op {
            Op::Not(inner) => self.truth(*inner).map(|value| !value),
            Op::And(list) => self.all(list, false),
            Op::Or(list) => self.all(list, true),
            Op::Compare(comparison, one, two) => {
                let (one, two) = (self.value(*one), self.value(*two));
                self.compare(*comparison, one, two)
            }
            Op::Test(value, test) => {
                let value = self.value(*value);
                self.test(value, test)
            }
            Op::Quantified(quantifier, list, test) => self.quantified(*quantifier, *list, test),
            Op::Is { value, kind, negated } => {
                let value = self.value(*value);
                let holds = match kind {
                    IsKind::Null => value.is_null(),
                    IsKind::Missing => matches!(value, Value::Missing),
                    IsKind::True => matches!(value, Value::Bool(true)),
                    IsKind::False => matches!(value, Value::Bool(false)),
                };
                Some(holds != *negated)
            }
            _ => None,
        }
    }

    /// OR where `decisive` is TRUE, AND where it is FALSE: that one decides, and else an unknown one.
    fn all(&mut self, list: &[NodeId], decisive: bool) -> Truth {
        let mut truth = Some(!decisive);
        if !self.spend((list.len() / PARTS_PER_STEP) as u64) {
            return None;
        }
        for id in list {
            if self.room.steps.has_run_out() {
                return None;
            }
            match self.truth(*id) {
                Some(value) if value == decisive => return Some(decisive),
                Some(_) => {}
                None => truth = None,
            }
        }
        truth
    }

    #[inline]
    fn compare(&mut self, comparison: Comparison, one: Value, two: Value) -> Truth {
        match (one, two) {
            (Value::Number(one), Value::Number(two)) => Some(holds(comparison, one.compare(two))),
            _ => self.compare_others(comparison, one, two),
        }
    }

    fn compare_others(&mut self, comparison: Comparison, one: Value, two: Value) -> Truth {
        if !self.spend(steps::of_comparison(one, two)) {
            return None;
        }
        compare(comparison, one, two, self.sources())
    }

    fn test(&mut self, value: Value, test: &TestOp) -> Truth {
        let both = |one: Truth, two: Truth, decisive: bool| match (one, two) {
            _ if one == Some(decisive) || two == Some(decisive) => Some(decisive),
            (Some(_), Some(_)) => Some(!decisive),
            _ => None,
        };
        match test {
            TestOp::Compare(comparison, right) => {
                let right = self.value(*right);
                self.compare(*comparison, value, right)
            }
            TestOp::Between { low, high, negated } => {
                let (low, high) = (self.value(*low), self.value(*high));
                let (above, below) = match negated {
                    false => (Comparison::GreaterOrEqual, Comparison::LessOrEqual),
                    true => (Comparison::Less, Comparison::Greater),
                };
                let (one, two) =
                    (self.compare(above, value, low), self.compare(below, value, high));
                both(one, two, *negated)
            }
            TestOp::In { list, negated } => self.is_one_of(value, list, *negated),
            TestOp::Values { values, negated } => {
                if !self.spend(values.steps(value)) {
                    return None;
                }
                values.test(value, *negated, self.sources())
            }
            TestOp::Like { pattern, negated } => {
                let span = self.string(value, |bytes| pattern.steps(bytes))?;
                let matches = |text| pattern.matches(text);
                Some(span.is_some_and(|span| matches(self.sources().bytes(span)) != *negated))
            }
            TestOp::Regexp { regexp, negated } => {
                let Some(span) = self.string(value, |bytes| regexp.steps(bytes))? else {
                    return Some(false);
                };
                let mut room = core::mem::take(&mut self.room.regexps);
                let matches = regexp.is_match(self.sources().bytes(span), &mut room);
                self.room.regexps = room;
                Some(matches != *negated)
            }
            TestOp::Never => None,
        }
    }

    /// Whether a value is one of these, or none of them: as comparing it with those of its type has it. Of another type than all of
    /// them it is FALSE, with NOT and without.
    fn is_one_of(&mut self, value: Value, list: &[NodeId], negated: bool) -> Truth {
        let (mut is_like, mut is_unknown) = (false, false);
        for right in list {
            if !self.spend(3) {
                return None;
            }
            let right = self.value(*right);
            match self.compare(Comparison::Equal, value, right) {
                Some(true) => return Some(!negated),
                Some(false) if negated && !is_like => {
                    is_like = self.compare(Comparison::NotEqual, value, right) == Some(true);
                }
                Some(false) => {}
                None => is_unknown = true,
            }
        }
        if is_unknown { None } else { Some(negated && is_like) }
    }

    /// The string that a pattern is compared with, where the steps for that may be taken; null is unknown, and what is
    /// no string none, which is FALSE with NOT and without.
    fn string(&mut self, value: Value, steps: impl Fn(usize) -> u64) -> Option<Option<Span>> {
        if value.is_null() {
            return None;
        }
        let Some(span) = value.string() else { return Some(None) };
        self.spend(steps(span.length as usize)).then_some(Some(span))
    }

    fn quantified(&mut self, quantifier: Quantifier, list: u32, test: &TestOp) -> Truth {
        let (is_there, start, end) = self.list(list);
        if !is_there {
            return None;
        }
        let decisive = quantifier == Quantifier::Any;
        let mut truth = Some(!decisive);
        for index in start..end {
            if !self.spend(steps::ELEMENT) {
                return None;
            }
            match self.test(self.room.elements[index], test) {
                Some(value) if value == decisive => return Some(decisive),
                Some(_) => {}
                None => truth = None,
            }
        }
        truth
    }

    /// Whether there is an array, and where its elements are.
    fn list(&mut self, id: u32) -> (bool, usize, usize) {
        let (epoch, is_there, start, end) = self.room.lists[id as usize];
        if epoch == self.room.epoch {
            return (is_there, start, end);
        }
        let Some(list) = self.program.lists.get(id) else { return (false, 0, 0) };
        let start = self.room.elements.len();
        let array = self.slot(list.slot);
        let is_there = extract::elements(
            self.message,
            &list.path.list,
            &list.path.element,
            array,
            self.extracted,
            &mut self.room.elements,
            &mut self.room.steps,
        );
        if self.room.steps.has_run_out() {
            return (false, 0, 0);
        }
        let end = self.room.elements.len();
        self.room.lists[id as usize] = (self.room.epoch, is_there, start, end);
        self.room.kept += 1;
        (is_there, start, end)
    }
}
