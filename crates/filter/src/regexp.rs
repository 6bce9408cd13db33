//! Regular expressions: matched in time linear in the string, without back-references and look-around.
//!
//! The text is parsed first, which is quick, and what it asks for is weighed by its syntax tree. Only what is light enough
//! is translated and compiled, both once.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;
use regex_automata::Input;
use regex_automata::nfa::thompson::pikevm::{self, PikeVM};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{self, Ast, ClassPerlKind, ClassSetItem, Flag, FlagsItem, FlagsItemKind};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Hir, HirKind, Look};

/// Groups inside each other.
const NESTING_MAX: u32 = 64;

/// An expression, ready to be matched. Copies share what it was compiled to.
#[derive(Clone)]
pub struct Regexp(Arc<Compiled>);

struct Compiled {
    pattern: Box<str>,
    machine: PikeVM,
    /// States that may be looked at for a byte of a string.
    active: u64,
    /// Steps that it takes to make room for it.
    entry: u64,
    bytes: usize,
}

/// Room for matching, used again for the next expression.
#[derive(Debug, Default)]
pub(crate) struct RegexpRoom(Option<pikevm::Cache>);

impl Regexp {
    /// Its text.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.0.pattern
    }

    /// Whether it is found somewhere in `text`.
    pub(crate) fn is_match(&self, text: &[u8], room: &mut RegexpRoom) -> bool {
        let machine = &self.0.machine;
        let cache = match &mut room.0 {
            Some(cache) => {
                machine.reset_cache(cache);
                cache
            }
            none => none.insert(machine.create_cache()),
        };
        machine.is_match(cache, Input::new(text))
    }

    /// What looking at a string of so many bytes takes at most, in steps of some ten nanoseconds.
    pub(crate) fn steps(&self, bytes: usize) -> u64 {
        let each = STEPS_PER_STATE * self.0.active + 1;
        (bytes as u64 + 1).saturating_mul(each).saturating_add(self.0.entry)
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// Two are the same when their texts are.
impl PartialEq for Regexp {
    fn eq(&self, other: &Regexp) -> bool {
        self.0.pattern == other.0.pattern
    }
}

impl Eq for Regexp {}

impl core::hash::Hash for Regexp {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.0.pattern.hash(state);
    }
}

impl fmt::Debug for Regexp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Regexp").field(&self.0.pattern).finish()
    }
}

/// A text that is an expression, and what it weighs.
pub(crate) struct Parsed {
    ast: Ast,
    /// What translating it takes: 1 is some three microseconds.
    pub(crate) weight: usize,
}

/// Reads an expression.
///
/// # Errors
/// In words, why it is none.
pub(crate) fn parse(pattern: &str) -> Result<Parsed, String> {
    let mut parser = ParserBuilder::new().nest_limit(NESTING_MAX).build();
    let ast = parser.parse(pattern).map_err(|error| error.kind().to_string())?;
    let Ok(folds) = ast::visit(&ast, Folding::default());
    let Ok(weight) = ast::visit(&ast, Weigher { folds, ..Weigher::default() });
    Ok(Parsed { ast, weight })
}

/// Compiles an expression to at most so many bytes.
///
/// # Errors
/// In words, why it is refused.
pub(crate) fn compile(pattern: &str, parsed: &Parsed, bytes_max: usize) -> Result<Regexp, String> {
    let mut translator = TranslatorBuilder::new().utf8(false).build();
    let hir = translator.translate(pattern, &parsed.ast);
    let hir = hir.map_err(|error| error.kind().to_string())?;
    let config = thompson::Config::new()
        .utf8(false)
        .shrink(false)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(bytes_max));
    let nfa = thompson::Compiler::new().configure(config).build_from_hir(&hir);
    let nfa = nfa.map_err(|error| match error.size_limit() {
        Some(_) => "it is too large when compiled".to_string(),
        None => "it does not compile".to_string(),
    })?;
    let entry = (nfa.states().len() / STATES_PER_STEP) as u64;
    let bytes = size_of::<Compiled>() + pattern.len() + nfa.memory_usage();
    let machine = PikeVM::new_from_nfa(nfa).map_err(|_| "it does not compile".to_string())?;
    let pattern = pattern.into();
    Ok(Regexp(Arc::new(Compiled { pattern, machine, active: active(&hir), entry, bytes })))
}

/// Steps of looking at a state for a byte.
const STEPS_PER_STATE: u64 = 2;
/// States of the machine that are made room for in one step.
const STATES_PER_STEP: usize = 64;

/// Weights: of the class of word characters, which has hundreds of ranges, of that of digits, of an operation on two
/// classes.
const WORD_WEIGHT: usize = 100;
const DIGIT_WEIGHT: usize = 10;
const OPERATION_WEIGHT: usize = 10;
/// Characters of a range that weigh 1 where case is ignored: of each those are looked for that are the same then.
const CHARACTERS_PER_WEIGHT: usize = 32;
/// Characters that there are.
const CHARACTERS: usize = 0x11_0000;

/// Finds out whether case is ignored anywhere.
#[derive(Default)]
struct Folding(bool);

impl ast::Visitor for Folding {
    type Output = bool;
    type Err = core::convert::Infallible;

    fn finish(self) -> Result<bool, Self::Err> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        let flags = match ast {
            Ast::Flags(set) => Some(&set.flags),
            Ast::Group(group) => group.flags(),
            _ => None,
        };
        let is_it = |item: &FlagsItem| item.kind == FlagsItemKind::Flag(Flag::CaseInsensitive);
        self.0 |= flags.is_some_and(|flags| flags.items.iter().any(is_it));
        Ok(())
    }
}

/// Weighs a syntax tree. What is inside brackets in brackets is gone through for each pair of them.
#[derive(Default)]
struct Weigher {
    weight: usize,
    brackets: usize,
    /// Case is ignored somewhere.
    folds: bool,
}

impl Weigher {
    /// A range of so many characters within brackets.
    fn range(&mut self, characters: usize) {
        self.add(1 + if self.folds { characters / CHARACTERS_PER_WEIGHT } else { 0 });
    }

    /// Brackets go through what something inside them is not.
    fn negation(&mut self, is_negated: bool) {
        if is_negated {
            self.range(CHARACTERS);
        }
    }

    fn add(&mut self, weight: usize) {
        self.weight = self.weight.saturating_add(weight * self.brackets.max(1));
    }

    fn perl(&mut self, kind: &ClassPerlKind) {
        self.add(match kind {
            ClassPerlKind::Word => WORD_WEIGHT,
            ClassPerlKind::Digit | ClassPerlKind::Space => DIGIT_WEIGHT,
        });
    }
}

impl ast::Visitor for Weigher {
    type Output = usize;
    type Err = core::convert::Infallible;

    fn finish(self) -> Result<usize, Self::Err> {
        Ok(self.weight)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::ClassPerl(class) => self.perl(&class.kind),
            Ast::ClassUnicode(_) => self.add(WORD_WEIGHT),
            Ast::ClassBracketed(_) => {
                self.brackets = 1;
                self.add(1);
            }
            _ => self.add(1),
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if let Ast::ClassBracketed(_) = ast {
            self.brackets = 0;
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Perl(class) => {
                self.perl(&class.kind);
                self.negation(class.negated);
            }
            ClassSetItem::Ascii(class) => {
                self.add(1);
                self.negation(class.negated);
            }
            ClassSetItem::Unicode(class) => {
                self.add(WORD_WEIGHT);
                self.negation(class.is_negated());
            }
            ClassSetItem::Range(range) => {
                let span = u32::from(range.end.c).saturating_sub(range.start.c.into()) as usize;
                self.range(span);
            }
            ClassSetItem::Bracketed(class) => {
                // Those around it go through what it comes to.
                self.negation(class.negated);
                self.brackets += 1;
                self.add(1);
            }
            _ => self.add(1),
        }
        Ok(())
    }

    fn visit_class_set_item_post(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        if let ClassSetItem::Bracketed(_) = item {
            self.brackets -= 1;
        }
        Ok(())
    }

    fn visit_class_set_binary_op_pre(
        &mut self,
        _: &ast::ClassSetBinaryOp,
    ) -> Result<(), Self::Err> {
        self.add(OPERATION_WEIGHT);
        Ok(())
    }
}

/// States of a class of characters that can be looked at for the same byte: one for each byte of a character.
const CLASS_ACTIVE: u64 = 4;
/// A word boundary decodes the characters on both sides.
const BOUNDARY_ACTIVE: u64 = 8;

/// How many states may be looked at for one byte: all that wait for one, but of a class of characters only those that can
/// wait at the same time. As deep as the expression.
fn active(hir: &Hir) -> u64 {
    let sum = |list: &[Hir]| list.iter().map(active).fold(0, u64::saturating_add);
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) if hir.properties().maximum_len() == Some(1) => 1,
        HirKind::Class(_) => CLASS_ACTIVE,
        HirKind::Look(
            Look::Start | Look::End | Look::StartLF | Look::EndLF | Look::StartCRLF | Look::EndCRLF,
        ) => 1,
        HirKind::Look(_) => BOUNDARY_ACTIVE,
        HirKind::Repetition(repetition) => {
            // One copy for each that must be there, one that comes again, or one for each that may be there.
            let copies = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            (active(&repetition.sub) + 1).saturating_mul(copies.into())
        }
        HirKind::Capture(capture) => active(&capture.sub),
        HirKind::Concat(list) => sum(list),
        HirKind::Alternation(list) => sum(list).saturating_add(list.len() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(pattern: &str) -> usize {
        parse(pattern).map(|parsed| parsed.weight).unwrap()
    }

    #[test]
    fn what_takes_long_to_translate_is_heavy_whatever_becomes_of_it() {
        assert!(weight(&"(?i)[\\w]{0}".repeat(90)) >= 90 * WORD_WEIGHT);
        for all in
            ["[\u{1}-\u{10ffff}]", "[[^a]b]", "[[:^alpha:]b]", "[\\D]", "[a[\\W]]", "[a&&[^b]]"]
        {
            // Each goes through all characters.
            for pattern in [alloc::format!("(?i){all}{{0}}"), alloc::format!("x(?i:{all})")] {
                assert!(weight(&pattern) > 30_000, "{pattern}: {}", weight(&pattern));
            }
            assert!(weight(all) < 300, "{all}: {}", weight(all));
        }
        assert!(weight("(?i)[^a-z]\\D\\W") < 300);
        let nested = alloc::format!("{}{}", "[a".repeat(20), "]".repeat(20));
        assert!(weight(&nested) >= 200, "{}", weight(&nested));
        assert!(weight("^[A-Z]{2}-[0-9]+(foo|bar)?$") < 30);
    }

    #[test]
    fn steps_count_all_states_that_may_wait_for_a_byte() {
        let steps = |pattern: &str| {
            let parsed = parse(pattern).unwrap();
            compile(pattern, &parsed, 64 << 10).unwrap().steps(1000) / 1000
        };
        assert!(steps("(a?){300}c") >= 300);
        assert!(steps("abc") < 10);
        assert!(steps("\\w+@\\w+") < 60);
        assert!(steps("(a|b|c){1,50}x") >= 100);
        assert!(steps("\\b\\b\\b") >= 24);
    }

    #[test]
    fn expressions_match_as_they_say() {
        let rows = [
            ("^a", "ab", true),
            ("^a", "ba", false),
            ("(?i)É", "xéx", true),
            ("b+$", "abb", true),
            ("[a-c]{2}", "xabx", true),
            ("\\bfoo\\b", "a foo b", true),
            ("\\bfoo\\b", "afoo", false),
        ];
        // One room for all of them.
        let mut room = RegexpRoom::default();
        for (pattern, text, expected) in rows {
            let parsed = parse(pattern).unwrap();
            let regexp = compile(pattern, &parsed, 64 << 10).unwrap();
            assert_eq!(regexp.is_match(text.as_bytes(), &mut room), expected, "{pattern} {text}");
        }
    }
}
