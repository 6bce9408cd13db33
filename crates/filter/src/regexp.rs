//! Regular expressions: matched in time linear in the string, without back-references and look-around.

use alloc::string::{String, ToString};
use regex::bytes::{Regex, RegexBuilder};

/// Bytes of the states that a lazy automaton may keep per thread.
const CACHE_BYTES: usize = 256 * 1024;
/// Groups inside each other.
const NESTING_MAX: u32 = 64;

/// Bytes to which an expression is tried to be compiled, from the smallest on: what it takes in the worst case grows
/// with what it is compiled to.
const SIZES: [usize; 6] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// Steps that a byte of a string takes for each KiB that the expression is compiled to, in the worst case: up to 270 ns
/// were seen.
const STEPS_PER_BYTE: u64 = 27;

/// An expression, ready to be matched.
#[derive(Clone, Debug)]
pub(crate) struct Regexp {
    regex: Regex,
    steps_per_byte: u64,
}

impl Regexp {
    /// Whether it is found somewhere in `text`.
    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// What looking at a string of so many bytes takes at most, in steps of some ten nanoseconds.
    pub(crate) fn steps(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(self.steps_per_byte)
    }
}

/// Compiles an expression to at most so many bytes.
///
/// # Errors
/// In words, why it is refused.
pub(crate) fn compile(pattern: &str, bytes_max: usize) -> Result<Regexp, String> {
    let smaller = SIZES.iter().copied().filter(|size| *size < bytes_max);
    for size in smaller.chain([bytes_max]) {
        match build(pattern, size) {
            Ok(regex) => {
                let kib = size.div_ceil(1 << 10) as u64;
                return Ok(Regexp { regex, steps_per_byte: kib * STEPS_PER_BYTE });
            }
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(error) => return Err(words(&error)),
        }
    }
    Err("it is too large when compiled".to_string())
}

fn build(pattern: &str, bytes_max: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .size_limit(bytes_max)
        .dfa_size_limit(CACHE_BYTES)
        .nest_limit(NESTING_MAX)
        .build()
}

fn words(error: &regex::Error) -> String {
    match error {
        // The library points into the text by lines; one of them says why.
        regex::Error::Syntax(text) => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            last.unwrap_or("it is not well-formed").trim_start_matches("error: ").to_string()
        }
        _ => "it does not compile".to_string(),
    }
}
