//! Compiled conditions, ready to be asked.

use crate::code::Compiler;
use crate::condition::{Condition, Value};
use crate::memory::Memory;
use std::collections::HashMap;

type OfOne = extern "C" fn(*const Value) -> u64;
type OfMany = extern "C" fn(*const Value, *mut u32) -> u64;

/// The most conditions of a function that asks one behind the other: the compiler takes more than twice as long for twice as many.
const STRAIGHT_MAX: usize = 512;

/// Conditions each of which is a function of its own.
#[derive(Debug)]
pub struct Each {
    memory: Memory,
    starts: Vec<usize>,
    slots: usize,
}

impl Each {
    /// Compiles the conditions.
    ///
    /// # Errors
    /// A text: the compiler refuses something, the system has no memory for code, or this is not x86-64.
    pub fn compile(conditions: &[Condition]) -> Result<Each, String> {
        let mut compiler = Compiler::new()?;
        let starts: Result<_, String> =
            conditions.iter().map(|condition| compiler.each(condition)).collect();
        let memory = Memory::new(&compiler.text).map_err(|error| error.to_string())?;
        Ok(Each { memory, starts: starts?, slots: slots(conditions) })
    }

    /// Puts the numbers of the conditions that hold behind those in `found`, ascending.
    ///
    /// # Panics
    /// With fewer values than the conditions look at.
    pub fn matches(&self, values: &[Value], found: &mut Vec<u32>) {
        assert!(values.len() >= self.slots, "a value for each field");
        for (number, start) in (0..).zip(&self.starts) {
            // SAFETY: a function of this type begins there, as the compiler says. It reads the first `slots` values alone, which
            // are there, and writes nothing.
            let function: OfOne = unsafe { std::mem::transmute(self.memory.at(*start)) };
            if function(values.as_ptr()) != 0 {
                found.push(number);
            }
        }
    }
}

/// Conditions of which all that compare the same fields with the same operators are one function: where the first is a text, with
/// a tree of jumps to those that ask for the same, otherwise up to 512 of them.
#[derive(Debug)]
pub struct Fused {
    memory: Memory,
    /// Where each function begins, and of how many conditions it is.
    functions: Vec<(usize, usize)>,
    slots: usize,
}

impl Fused {
    /// Compiles the conditions.
    ///
    /// # Errors
    /// A text: the compiler refuses something, the system has no memory for code, or this is not x86-64.
    pub fn compile(conditions: &[Condition]) -> Result<Fused, String> {
        let mut compiler = Compiler::new()?;
        let mut shapes: HashMap<_, usize> = HashMap::new();
        let mut of_shapes: Vec<Vec<(u32, &Condition)>> = Vec::new();
        for (number, condition) in (0..).zip(conditions) {
            let compared = condition.0.iter();
            let shape: Vec<_> = compared
                .map(|one| (one.slot, one.operator as u8, one.constant.is_number()))
                .collect();
            let place = *shapes.entry(shape).or_insert(of_shapes.len());
            if place == of_shapes.len() {
                of_shapes.push(Vec::new());
            }
            of_shapes[place].push((number, condition));
        }
        let mut functions = Vec::new();
        for of_shape in &of_shapes {
            let is_keyed = of_shape.first().is_some_and(|(_, condition)| condition.is_keyed());
            let most = if is_keyed { usize::MAX } else { STRAIGHT_MAX };
            for part in of_shape.chunks(most) {
                functions.push((compiler.fused(part)?, part.len()));
            }
        }
        let memory = Memory::new(&compiler.text).map_err(|error| error.to_string())?;
        Ok(Fused { memory, functions, slots: slots(conditions) })
    }

    /// Puts the numbers of the conditions that hold behind those in `found`, ascending within each shape.
    ///
    /// # Panics
    /// With fewer values than the conditions look at.
    pub fn matches(&self, values: &[Value], found: &mut Vec<u32>) {
        assert!(values.len() >= self.slots, "a value for each field");
        for (start, conditions) in &self.functions {
            found.reserve(*conditions);
            let room = found.spare_capacity_mut().as_mut_ptr().cast::<u32>();
            // SAFETY: a function of this type begins there, as the compiler says. It reads the first `slots` values alone, which are
            // there, and writes for each condition at most one number behind the other.
            let function: OfMany = unsafe { std::mem::transmute(self.memory.at(*start)) };
            let count = function(values.as_ptr(), room) as usize;
            assert!(count <= *conditions, "no more conditions hold than there are");
            // SAFETY: the function has written so many numbers, for which there was room.
            unsafe { found.set_len(found.len() + count) };
        }
    }
}

fn slots(conditions: &[Condition]) -> usize {
    conditions.iter().map(Condition::slots).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Comparison, Constant, Operator};

    const OPERATORS: [Operator; 6] = [
        Operator::Equal,
        Operator::NotEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
    ];

    /// Numbers that follow from each other, the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % end
        }
    }

    fn value(numbers: &mut Numbers) -> Value {
        let texts = ["", "A", "B", "A\0", "12345678", "123456789"];
        match numbers.below(8) {
            0 => Value::default(),
            1 | 2 => Value::text(texts[numbers.below(6) as usize]),
            3 => Value::float(f64::NAN),
            _ => Value::float(numbers.below(5) as f64 / 2.0),
        }
    }

    fn comparison(numbers: &mut Numbers) -> Comparison {
        let slot = numbers.below(4) as u32;
        if numbers.below(4) == 0 {
            let text = ["A", "B", "A\0", "12345678", ""][numbers.below(5) as usize];
            let constant = Constant::text(text).unwrap();
            return Comparison::new(slot, Operator::Equal, constant).unwrap();
        }
        let operator = OPERATORS[numbers.below(6) as usize];
        Comparison::new(slot, operator, Constant::number(numbers.below(5) as f64 / 2.0)).unwrap()
    }

    #[test]
    fn compiled_and_interpreted_conditions_give_the_same_verdicts() {
        let mut numbers = Numbers(1);
        let mut held = 0;
        for _ in 0..20 {
            let conditions: Vec<Condition> = (0..60)
                .map(|_| {
                    let count = numbers.below(4);
                    Condition::new((0..count).map(|_| comparison(&mut numbers)).collect())
                })
                .collect();
            let each = Each::compile(&conditions).unwrap();
            let fused = Fused::compile(&conditions).unwrap();
            for _ in 0..200 {
                let values: [Value; 4] = std::array::from_fn(|_| value(&mut numbers));
                let holding = (0..).zip(&conditions).filter(|(_, one)| one.holds(&values));
                let expected: Vec<u32> = holding.map(|(number, _)| number).collect();
                let mut found = Vec::new();
                each.matches(&values, &mut found);
                assert_eq!(found, expected, "each: {values:?}");
                found.clear();
                fused.matches(&values, &mut found);
                found.sort_unstable();
                assert_eq!(found, expected, "fused: {values:?}");
                held += expected.len();
            }
        }
        assert!(held > 10_000, "{held} conditions hold: too few to tell");
    }

    #[test]
    fn many_conditions_of_a_shape_are_several_functions() {
        let above = |number: u32| {
            let constant = Constant::number(f64::from(number));
            Condition::new(vec![Comparison::new(0, Operator::Greater, constant).unwrap()])
        };
        let conditions: Vec<Condition> = (0..2 * STRAIGHT_MAX as u32 + 1).map(above).collect();
        let fused = Fused::compile(&conditions).unwrap();
        assert_eq!(fused.functions.len(), 3);
        let mut found = Vec::new();
        fused.matches(&[Value::float(600.0)], &mut found);
        assert_eq!(found, (0..600).collect::<Vec<u32>>());
        fused.matches(&[Value::float(2.0 * STRAIGHT_MAX as f64 + 1.0)], &mut found);
        assert_eq!(found.len(), 600 + conditions.len());
    }

    #[test]
    #[should_panic(expected = "a value for each field")]
    fn too_few_values_are_not_read() {
        let wide = Comparison::new(3, Operator::Equal, Constant::number(1.0)).unwrap();
        let each = Each::compile(&[Condition::new(vec![wide])]).unwrap();
        each.matches(&[Value::default(); 3], &mut Vec::new());
    }
}
