//! Where `unsafe` may stand, and what stands before it.

use super::Finding;
use super::crates::has_attribute;
use crate::lexer::Kind;
use crate::source::Source;

/// The crates that may contain `unsafe`, each with its reason.
const ALLOWED: [(&str, &str); 3] = [
    ("compiled", "machine code that was just compiled can be called in no safe way"),
    ("topology", "the calls that pin a thread and bind its memory have no safe form"),
    ("profile", "a signal handler that reads its thread's stack, and timers, have no safe form"),
];
/// Lines above an `unsafe` in which its reason must start.
const REASON_LINES: usize = 6;

/// Checks every `unsafe` of the file, and that a crate without any forbids it.
pub fn check(source: &Source<'_>, findings: &mut Vec<Finding>) {
    let allowed = ALLOWED.iter().any(|(name, _)| *name == source.crate_name);
    let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
    if is_root && !allowed && !has_attribute(source, "forbid(unsafe_code)") {
        let advice = "this crate contains no `unsafe`: say so with `#![forbid(unsafe_code)]`";
        findings.push(Finding::error(source.path, 1, advice));
    }
    for token in source.tokens.iter().filter(|token| token.is("unsafe")) {
        if !allowed {
            let advice = "`unsafe` in a crate that has none: find a safe way, or add the crate to \
                          ALLOWED in xtask/src/rules/unsafety.rs with its reason";
            findings.push(Finding::error(source.path, token.line, advice));
        } else if !has_reason(source, token.line) {
            let advice = "`unsafe` without a reason: write `// SAFETY: …` above it and say why it \
                          cannot go wrong";
            findings.push(Finding::error(source.path, token.line, advice));
        }
    }
}

fn has_reason(source: &Source<'_>, line: usize) -> bool {
    source.tokens.iter().any(|token| {
        token.kind == Kind::Comment
            && (token.text.contains("SAFETY:") || token.text.contains("# Safety"))
            && token.line <= line
            && token.line + REASON_LINES >= line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings.len()
    }

    #[test]
    fn unsafe_stands_only_in_listed_crates_and_with_its_reason() {
        let bare = "fn f() { unsafe { g() } }";
        let reasoned = "fn f() {\n    // SAFETY: g has no conditions\n    unsafe { g() }\n}";
        assert_eq!(count("crates/broker/src/a.rs", reasoned), 1);
        assert_eq!(count("crates/topology/src/a.rs", bare), 1);
        assert_eq!(count("crates/topology/src/a.rs", reasoned), 0);
        assert_eq!(count("crates/broker/src/a.rs", "// unsafe\nlet x = \"unsafe\";"), 0);
    }

    #[test]
    fn a_crate_without_unsafe_says_so() {
        assert_eq!(count("crates/mesh/src/lib.rs", "//! x\n"), 1);
        assert_eq!(count("crates/mesh/src/lib.rs", "#![forbid(unsafe_code)]"), 0);
    }
}
