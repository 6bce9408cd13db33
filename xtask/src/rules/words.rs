//! Marks of unfinished work, which never land.

use super::Finding;
use crate::lexer::Kind;
use crate::source::Source;

/// Macros that stand for work to come, or for a look while debugging.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Checks macros everywhere, and comments for notes to oneself.
pub fn check(source: &Source<'_>, findings: &mut Vec<Finding>) {
    for pair in source.tokens.windows(2) {
        if MACROS.contains(&pair[0].text) && pair[0].kind == Kind::Word && pair[1].is("!") {
            let advice = format!(
                "`{}!` does not land: finish it, or leave the feature out and say so in the README",
                pair[0].text
            );
            findings.push(Finding::error(source.path, pair[0].line, advice));
        }
    }
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
        let text = "fn f() { todo!() }\n#[cfg(test)]\nmod tests { fn g() { dbg!(1); } }";
        assert_eq!(count(text), 2);
        assert_eq!(count(concat!("// TO", "DO: later")), 1);
    }

    #[test]
    fn words_that_only_look_alike_are_not() {
        assert_eq!(count("let todo = 1; // a \"METODO\"\nlet s = \"todo!\";"), 0);
    }
}
