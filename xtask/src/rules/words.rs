//! Marks of unfinished work, which never land.

use super::Finding;
use crate::lexer::Kind;
use crate::source::Source;

/// Checks comments for notes to oneself. Macros that stand for work to come are clippy's.
pub fn check(source: &Source<'_>, findings: &mut Vec<Finding>) {
    let notes = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    for token in &source.tokens {
        let note = notes.iter().find(|note| has_word(token.text, note));
        if let (Kind::Comment, Some(note)) = (token.kind, note) {
            let advice =
                format!("a comment with `{note}`: do it, or write down the limit as a fact");
            findings.push(Finding::error(source.path, token.line, advice));
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let mut findings = Vec::new();
        check(&Source::new("crates/base/src/a.rs", text), &mut findings);
        findings.len()
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(count(concat!("// TO", "DO: later")), 1);
    }

    #[test]
    fn words_that_only_look_alike_are_not() {
        assert_eq!(count("let todo = 1; // a \"METODO\"\nlet s = \"todo!\";"), 0);
    }
}
