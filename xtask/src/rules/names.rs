//! Names that say nothing, and bounds that come first.

use super::Finding;
use crate::lexer::Kind;
use crate::source::Source;

/// Words that no name declared here contains.
const FORBIDDEN: [&str; 6] = ["process", "manager", "helper", "helpers", "util", "utils"];
/// Names that no file or module has.
const FORBIDDEN_FILES: [&str; 8] =
    ["process", "manager", "helper", "helpers", "util", "utils", "common", "misc"];
/// Keywords that declare the name behind them.
const DECLARING: [&str; 8] = ["fn", "struct", "enum", "trait", "mod", "type", "const", "static"];
/// Names of functions whose meaning is the operating system's, not ours.
const ALLOWED: [&str; 4] = ["process_id", "ProcessId", "process_cpu", "process_status"];

/// Checks the file's name and every name it declares.
pub fn check(source: &Source<'_>, findings: &mut Vec<Finding>) {
    check_path(source, findings);
    let code: Vec<_> = source.code().collect();
    for pair in code.windows(2) {
        let (keyword, name) = (pair[0], pair[1]);
        if !DECLARING.contains(&keyword.text)
            || name.kind != Kind::Word
            || keyword.kind != Kind::Word
        {
            continue;
        }
        let text = name.text;
        if ALLOWED.contains(&text) {
            continue;
        }
        let words = words(text);
        let forbidden = words.iter().find(|word| FORBIDDEN.contains(&word.as_str()));
        if let Some(word) = forbidden {
            let advice = format!(
                "`{text}` contains `{word}`, which says nothing: name what it does (handle, route, \
                 enqueue, settle, flush, check, encode …) or what it is"
            );
            findings.push(Finding::error(source.path, name.line, advice));
        } else if words.first().is_some_and(|word| word == "do") {
            let advice = format!("`{text}`: take the `do_` away and name the step");
            findings.push(Finding::error(source.path, name.line, advice));
        } else if keyword.text == "mod" && text == "common" {
            let advice = "`common` names no noun: say what these things have in common";
            findings.push(Finding::error(source.path, name.line, advice));
        }
        let bound_first = matches!(words.first().map(String::as_str), Some("max" | "min"));
        if matches!(keyword.text, "const" | "static") && bound_first && words.len() > 1 {
            let advice = format!("`{text}`: unit and bound come last, as in `SEGMENT_BYTES_MAX`");
            findings.push(Finding::error(source.path, name.line, advice));
        }
    }
}

fn check_path(source: &Source<'_>, findings: &mut Vec<Finding>) {
    let file = source.path.rsplit('/').next().unwrap_or("");
    let stem = file.trim_end_matches(".rs");
    if file == "mod.rs" {
        let advice = "no `mod.rs`: put `queue.rs` beside `queue/`";
        findings.push(Finding::error(source.path, 0, advice));
    } else if FORBIDDEN_FILES.contains(&stem) {
        let advice = format!("`{stem}` names no noun: name the file after what is in it");
        findings.push(Finding::error(source.path, 0, advice));
    }
}

/// The words of a name in any case, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous_lower = false;
    for part in name.split('_').filter(|part| !part.is_empty()) {
        words.push(String::new());
        for character in part.chars() {
            if character.is_uppercase() && previous_lower {
                words.push(String::new());
            }
            previous_lower = character.is_lowercase() || character.is_ascii_digit();
            if let Some(word) = words.last_mut() {
                word.extend(character.to_lowercase());
            }
        }
        previous_lower = false;
    }
    words
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
    fn names_are_split_into_words() {
        assert_eq!(words("QueueManager"), ["queue", "manager"]);
        assert_eq!(words("BODY_BYTES_MAX"), ["body", "bytes", "max"]);
        assert_eq!(words("do_it"), ["do", "it"]);
    }

    #[test]
    fn empty_words_are_found_where_they_are_declared() {
        let path = "crates/base/src/a.rs";
        assert_eq!(count(path, "fn process_frame() {} struct FrameHelper;"), 2);
        assert_eq!(count(path, "fn do_it() {} fn done() {} fn document() {}"), 1);
        assert_eq!(count(path, "use std::process; fn exit() { process::exit(0) }"), 0);
        assert_eq!(count(path, "const MAX_BYTES: u8 = 0; const BYTES_MAX: u8 = 0;"), 1);
    }

    #[test]
    fn files_are_named_after_nouns() {
        assert_eq!(count("crates/base/src/util.rs", ""), 1);
        assert_eq!(count("crates/base/src/queue/mod.rs", ""), 1);
        assert_eq!(count("crates/base/src/queue.rs", ""), 0);
    }
}
