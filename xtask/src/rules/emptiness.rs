//! Names that are often empty are compared through `is_same`.

use super::Finding;
use crate::lexer::Kind;
use crate::source::Source;

/// The crates that a message goes through.
const CRATES: [&str; 3] = ["broker", "directory", "queue"];
/// Fields and variables of theirs that may be empty and are compared for every message.
const NAMES: [&str; 2] = ["exchange", "routing_key"];

/// Checks that none of them stands on either side of `==` or `!=` there.
pub fn check(source: &Source<'_>, findings: &mut Vec<Finding>) {
    if !CRATES.contains(&source.crate_name) || !source.path.contains("/src/") {
        return;
    }
    let code: Vec<_> = source.code().collect();
    for part in code.windows(3) {
        let [name, first, second] = [part[0], part[1], part[2]];
        let is_compared = second.is("=") && (first.is("=") || first.is("!"));
        let is_name = name.kind == Kind::Word && NAMES.contains(&name.text);
        if is_name && is_compared && !source.is_test_line(name.line) {
            let advice = format!(
                "`{}` may be empty, and `==` of empty strings is slow: compare it with \
                 `lepus_base::is_same`",
                name.text
            );
            findings.push(Finding::error(source.path, name.line, advice));
        }
    }
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
    fn names_that_may_be_empty_are_not_compared_by_operators() {
        let text = "fn f() { if route.exchange == other.exchange || routing_key != b\"\" {} }";
        assert_eq!(count("crates/broker/src/publish.rs", text), 2);
        assert_eq!(count("crates/perf/src/publish.rs", text), 0);
        let text = "fn f() { let exchange = is_same(routing_key, name); }";
        assert_eq!(count("crates/broker/src/publish.rs", text), 0);
    }
}
