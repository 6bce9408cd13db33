//! Regular expressions: matched in time linear in the string, without back-references and look-around.

use alloc::string::{String, ToString};
use regex::bytes::{Regex, RegexBuilder};

/// Bytes of the states that a lazy automaton may keep per thread.
const CACHE_BYTES: usize = 256 * 1024;
/// Groups inside each other.
const NESTING_MAX: u32 = 64;

/// Compiles an expression to at most so many bytes.
///
/// # Errors
/// In words, why it is refused.
pub(crate) fn compile(pattern: &str, bytes_max: usize) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern)
        .size_limit(bytes_max)
        .dfa_size_limit(CACHE_BYTES)
        .nest_limit(NESTING_MAX)
        .build();
    built.map_err(|error| match error {
        // The library points into the text by lines; one of them says why.
        regex::Error::Syntax(text) => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            last.unwrap_or("it is not well-formed").trim_start_matches("error: ").to_string()
        }
        regex::Error::CompiledTooBig(_) => "it is too large when compiled".to_string(),
        _ => "it does not compile".to_string(),
    })
}
