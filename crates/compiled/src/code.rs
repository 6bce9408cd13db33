//! Conditions as instructions: what is handed to Cranelift, and the bytes that it gives.

use crate::condition::{Comparison, Condition, Operator};
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F64, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, Function, InstBuilder, MemFlagsData, Signature, UserFuncName, Value,
};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Switch};
use std::collections::BTreeMap;

/// Bytes of a value, its tag first.
const VALUE_BYTES: i32 = 16;
const BITS_OFFSET: i32 = 8;
/// Places where functions begin are multiples of this.
const ALIGNMENT: usize = 64;

/// Compiles functions, one after the other, into one text.
pub(crate) struct Compiler {
    isa: OwnedTargetIsa,
    context: Context,
    builder: FunctionBuilderContext,
    /// The instructions of all functions.
    pub(crate) text: Vec<u8>,
}

impl Compiler {
    /// For x86-64 as all such machines have it.
    pub(crate) fn new() -> Result<Compiler, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("filters are compiled for x86-64 alone".to_owned());
        }
        let mut flags = settings::builder();
        for (name, value) in [("opt_level", "speed"), ("enable_verifier", "false")] {
            flags.set(name, value).map_err(|error| error.to_string())?;
        }
        let found = isa::lookup_by_name("x86_64").map_err(|error| error.to_string())?;
        let isa = found.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())?;
        Ok(Compiler {
            isa,
            context: Context::new(),
            builder: FunctionBuilderContext::new(),
            text: Vec::new(),
        })
    }

    /// A function of values: 1 where the condition holds, else 0. Returns where it begins.
    pub(crate) fn each(&mut self, condition: &Condition) -> Result<usize, String> {
        self.function(1, |body, values, _| {
            let mut loaded = Loaded::new(values);
            let holds = match body.all(&mut loaded, &condition.0) {
                Some(holds) => body.0.ins().uextend(I64, holds),
                None => body.0.ins().iconst(I64, 1),
            };
            body.0.ins().return_(&[holds]);
        })
    }

    /// A function of values and of where numbers are written to: how many of the conditions hold, whose numbers are written.
    /// All conditions compare the same fields with the same operators. Where the first is a text it is looked up by a
    /// tree of comparisons, and only the conditions with this text are asked. Returns where the function begins.
    pub(crate) fn fused(&mut self, conditions: &[(u32, &Condition)]) -> Result<usize, String> {
        let shape = conditions.first().map_or(&[][..], |(_, condition)| &condition.0);
        let is_keyed = conditions.first().is_some_and(|(_, condition)| condition.is_keyed());
        let key = shape.first().filter(|_| is_keyed);
        self.function(2, |body, values, out| {
            let mut loaded = Loaded::new(values);
            // Nothing can hold where a number is not there: asked once for all.
            let nothing = body.0.create_block();
            let numbers = shape.iter().filter(|comparison| comparison.constant.is_number());
            let mut slots: Vec<u32> = numbers.map(|comparison| comparison.slot).collect();
            slots.sort_unstable();
            slots.dedup();
            for slot in slots {
                let is_number = body.is_number(&mut loaded, slot);
                loaded.numbers.push(slot);
                let next = body.0.create_block();
                body.0.ins().brif(is_number, next, &[], nothing, &[]);
                body.0.switch_to_block(next);
                // Loaded here, what a later block compares is there.
                body.load_float(&mut loaded, slot);
            }
            match key {
                None => body.write(&mut loaded, out, conditions, 0),
                Some(key) => {
                    let bits = body.load_bits(&mut loaded, key.slot);
                    body.load_tag(&mut loaded, key.slot);
                    let mut by_text: BTreeMap<u64, Vec<(u32, &Condition)>> = BTreeMap::new();
                    for (number, condition) in conditions {
                        let text = condition.0[0].constant.0.bits;
                        by_text.entry(text).or_default().push((*number, condition));
                    }
                    let mut switch = Switch::new();
                    let blocks: Vec<_> = by_text
                        .iter()
                        .map(|(text, of_text)| {
                            let block = body.0.create_block();
                            switch.set_entry(u128::from(*text), block);
                            (block, of_text)
                        })
                        .collect();
                    switch.emit(&mut body.0, bits, nothing);
                    for (block, of_text) in blocks {
                        body.0.switch_to_block(block);
                        // What one block computes the next one does not have.
                        body.write(&mut loaded.clone(), out, of_text, 1);
                    }
                }
            }
            body.0.switch_to_block(nothing);
            let none = body.0.ins().iconst(I64, 0);
            body.0.ins().return_(&[none]);
        })
    }

    /// Compiles one function of so many pointers, which returns a 64-bit number.
    fn function(
        &mut self,
        parameters: usize,
        write: impl FnOnce(&mut Body<'_>, Value, Value),
    ) -> Result<usize, String> {
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.extend(std::iter::repeat_n(AbiParam::new(I64), parameters));
        signature.returns.push(AbiParam::new(I64));
        self.context.clear();
        self.context.func = Function::with_name_signature(UserFuncName::user(0, 0), signature);
        let mut body = Body(FunctionBuilder::new(&mut self.context.func, &mut self.builder));
        let entry = body.0.create_block();
        body.0.append_block_params_for_function_params(entry);
        body.0.switch_to_block(entry);
        let pointers = body.0.block_params(entry);
        let (first, last) = (pointers[0], pointers[parameters - 1]);
        write(&mut body, first, last);
        body.0.seal_all_blocks();
        body.0.finalize(self.isa.frontend_config());
        let compiled = self.context.compile(&*self.isa, &mut ControlPlane::default());
        let compiled = compiled.map_err(|error| error.inner.to_string())?;
        assert!(compiled.buffer.relocs().is_empty(), "compiled code calls nothing");
        let start = self.text.len().next_multiple_of(ALIGNMENT);
        self.text.resize(start, 0);
        self.text.extend_from_slice(compiled.code_buffer());
        Ok(start)
    }
}

/// What a function has read, by the fields' places.
#[derive(Clone)]
struct Loaded {
    values: Value,
    tags: BTreeMap<u32, Value>,
    bits: BTreeMap<u32, Value>,
    floats: BTreeMap<u32, Value>,
    /// Fields that are numbers for sure.
    numbers: Vec<u32>,
}

impl Loaded {
    fn new(values: Value) -> Loaded {
        Loaded {
            values,
            tags: BTreeMap::new(),
            bits: BTreeMap::new(),
            floats: BTreeMap::new(),
            numbers: Vec::new(),
        }
    }
}

/// A function while it is written.
struct Body<'a>(FunctionBuilder<'a>);

impl Body<'_> {
    fn load_tag(&mut self, loaded: &mut Loaded, slot: u32) -> Value {
        let offset = slot as i32 * VALUE_BYTES;
        *loaded.tags.entry(slot).or_insert_with(|| {
            self.0.ins().load(I64, MemFlagsData::trusted(), loaded.values, offset)
        })
    }

    fn load_bits(&mut self, loaded: &mut Loaded, slot: u32) -> Value {
        let offset = slot as i32 * VALUE_BYTES + BITS_OFFSET;
        *loaded.bits.entry(slot).or_insert_with(|| {
            self.0.ins().load(I64, MemFlagsData::trusted(), loaded.values, offset)
        })
    }

    fn load_float(&mut self, loaded: &mut Loaded, slot: u32) -> Value {
        let offset = slot as i32 * VALUE_BYTES + BITS_OFFSET;
        *loaded.floats.entry(slot).or_insert_with(|| {
            self.0.ins().load(F64, MemFlagsData::trusted(), loaded.values, offset)
        })
    }

    fn is_number(&mut self, loaded: &mut Loaded, slot: u32) -> Value {
        let tag = self.load_tag(loaded, slot);
        let number = self.0.ins().iconst(I64, 1);
        self.0.ins().icmp(IntCC::Equal, tag, number)
    }

    /// Whether all of them hold, without a jump; nothing where there are none.
    fn all(&mut self, loaded: &mut Loaded, comparisons: &[Comparison]) -> Option<Value> {
        let mut all = None;
        for comparison in comparisons {
            for part in self.parts(loaded, *comparison).into_iter().flatten() {
                all = Some(match all {
                    None => part,
                    Some(before) => self.0.ins().band(before, part),
                });
            }
        }
        all
    }

    /// What a comparison consists of: one or two tests.
    fn parts(&mut self, loaded: &mut Loaded, comparison: Comparison) -> [Option<Value>; 2] {
        let Comparison { slot, operator, constant } = comparison;
        if !constant.is_number() {
            let tag = self.load_tag(loaded, slot);
            let wanted = self.0.ins().iconst(I64, constant.0.tag as i64);
            let has_length = self.0.ins().icmp(IntCC::Equal, tag, wanted);
            let bits = self.load_bits(loaded, slot);
            let wanted = self.0.ins().iconst(I64, constant.0.bits as i64);
            return [Some(has_length), Some(self.0.ins().icmp(IntCC::Equal, bits, wanted))];
        }
        let is_number = if loaded.numbers.contains(&slot) {
            None
        } else {
            loaded.numbers.push(slot);
            Some(self.is_number(loaded, slot))
        };
        let number = self.load_float(loaded, slot);
        let wanted = self.0.ins().f64const(constant.to_float());
        let order = match operator {
            Operator::Equal => FloatCC::Equal,
            Operator::NotEqual => FloatCC::NotEqual,
            Operator::Less => FloatCC::LessThan,
            Operator::LessOrEqual => FloatCC::LessThanOrEqual,
            Operator::Greater => FloatCC::GreaterThan,
            Operator::GreaterOrEqual => FloatCC::GreaterThanOrEqual,
        };
        [is_number, Some(self.0.ins().fcmp(order, number, wanted))]
    }

    /// Writes the numbers of the conditions that hold, and returns how many there are. Each writes its number where the next
    /// one would; only where it holds does that place move on. Of a condition's comparisons the first `known` are looked at
    /// by the text's length alone.
    fn write(
        &mut self,
        loaded: &mut Loaded,
        out: Value,
        conditions: &[(u32, &Condition)],
        known: usize,
    ) {
        let two = self.0.ins().iconst(I64, 2);
        let mut place = out;
        for (number, condition) in conditions {
            let mut holds = self.all(loaded, &condition.0[known..]);
            for comparison in &condition.0[..known] {
                let tag = self.load_tag(loaded, comparison.slot);
                let wanted = self.0.ins().iconst(I64, comparison.constant.0.tag as i64);
                let has_length = self.0.ins().icmp(IntCC::Equal, tag, wanted);
                holds = Some(match holds {
                    None => has_length,
                    Some(before) => self.0.ins().band(before, has_length),
                });
            }
            let number = self.0.ins().iconst(I32, i64::from(*number));
            self.0.ins().store(MemFlagsData::trusted(), number, place, 0);
            let step = match holds {
                Some(holds) => {
                    let holds = self.0.ins().uextend(I64, holds);
                    self.0.ins().ishl(holds, two)
                }
                None => self.0.ins().iconst(I64, 4),
            };
            place = self.0.ins().iadd(place, step);
        }
        let bytes = self.0.ins().isub(place, out);
        let count = self.0.ins().ushr(bytes, two);
        self.0.ins().return_(&[count]);
    }
}
