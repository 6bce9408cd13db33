//! How long a file and a function may be.

use super::Finding;
use crate::source::Source;

/// Lines of a file, net of tests, that are never passed.
const FILE_LINES_MAX: usize = 1000;
/// Lines of a file, net of tests, from which a second look is due.
const FILE_LINES_LOOK: usize = 600;
/// Lines of a function, from `fn` to its brace, that are passed only with a reason.
const FUNCTION_LINES_MAX: usize = 100;

/// Checks every file and function; `exceptions` is the text of `xtask/exceptions.txt`.
pub fn check(sources: &[Source<'_>], exceptions: &str, findings: &mut Vec<Finding>) {
    let mut unused: Vec<(usize, &str)> = exceptions
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(index, line)| (index + 1, line))
        .collect();
    for source in sources {
        check_file(source, findings);
        for function in source.functions() {
            let lines = function.last - function.first + 1;
            if lines <= FUNCTION_LINES_MAX {
                continue;
            }
            let key = format!("{}::{}", source.path, function.name);
            let excused = unused.iter().position(|(_, line)| excuses(line, &key));
            if let Some(at) = excused {
                unused.remove(at);
                continue;
            }
            let advice = format!(
                "`{}` has {lines} lines, {FUNCTION_LINES_MAX} are allowed: split it where its steps \
                 have names, or add a line `{key}  the reason` to xtask/exceptions.txt",
                function.name
            );
            findings.push(Finding::error(source.path, function.first, advice));
        }
    }
    for (line, text) in unused {
        let advice = format!(
            "nothing needs the exception `{}`, or it gives no reason: take it out, or say why",
            text.trim()
        );
        findings.push(Finding::error("xtask/exceptions.txt", line, advice));
    }
}

/// Whether the line of the exceptions' file names `key` and gives a reason.
fn excuses(line: &str, key: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some(key) && words.next().is_some()
}

fn check_file(source: &Source<'_>, findings: &mut Vec<Finding>) {
    let lines = source.lines_net();
    if lines > FILE_LINES_MAX {
        let advice = format!(
            "{lines} lines without tests, {FILE_LINES_MAX} are allowed: find the second noun in it \
             and give it a file of its own"
        );
        findings.push(Finding::error(source.path, 0, advice));
    } else if lines > FILE_LINES_LOOK {
        let advice = format!("{lines} lines without tests: is it still about one noun?");
        findings.push(Finding::warning(source.path, 0, advice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    fn check_text(text: &str, exceptions: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let sources = [Source::new("crates/base/src/a.rs", text)];
        check(&sources, exceptions, &mut findings);
        findings
    }

    #[test]
    fn a_function_of_a_hundred_lines_is_the_longest() {
        assert!(check_text(&function_of(100), "").is_empty());
        assert_eq!(check_text(&function_of(101), "").len(), 1);
    }

    #[test]
    fn an_exception_needs_a_reason_and_a_use() {
        let key = "crates/base/src/a.rs::long";
        let reasoned = format!("# comment\n{key}  one table\n");
        assert!(check_text(&function_of(101), &reasoned).is_empty());
        assert_eq!(check_text(&function_of(101), key).len(), 2);
        assert_eq!(check_text(&function_of(10), &reasoned).len(), 1);
    }

    #[test]
    fn tests_do_not_count_for_a_file() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(1200));
        assert!(check_text(&tests, "").is_empty());
        let found = check_text(&"\n".repeat(601), "");
        assert!(found.len() == 1 && found[0].warning);
        let found = check_text(&"\n".repeat(1001), "");
        assert!(found.len() == 1 && !found[0].warning);
    }
}
