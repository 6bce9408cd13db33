//! The core knows no protocol: what a client speaks is its session's matter.

use super::Finding;
use crate::source::Source;

/// The crates that know no protocol.
const CRATES: [&str; 3] = ["broker", "directory", "queue"];
/// Where AMQP 0-9-1 is a session, and where sessions are named.
const SESSIONS: [&str; 2] = ["crates/broker/src/session.rs", "crates/broker/src/session/amqp"];
/// What it shares with all: how arguments and properties are kept.
const SHARED: [&str; 2] = ["properties", "table"];

/// Checks that nothing else of the protocol's crate is used there.
pub fn check(source: &Source<'_>, findings: &mut Vec<Finding>) {
    let is_core = CRATES.contains(&source.crate_name) && source.path.contains("/src/");
    if !is_core || source.is_test || SESSIONS.iter().any(|path| source.path.starts_with(path)) {
        return;
    }
    let code: Vec<_> = source.code().collect();
    for path in code.windows(4) {
        let is_shared = path[1].is(":") && SHARED.contains(&path[3].text);
        if path[0].is("lepus_amqp") && !is_shared && !source.is_test_line(path[0].line) {
            let advice = "the core knows no protocol: ask the session for it, or say what is meant in \
                          the words of `crates/broker/src/session.rs`";
            findings.push(Finding::error(source.path, path[0].line, advice));
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
    fn only_sessions_use_the_protocol() {
        let text = "use lepus_amqp::method::Method; fn f() { lepus_amqp::frame::decode(b\"\"); }";
        assert_eq!(count("crates/broker/src/publish.rs", text), 2);
        assert_eq!(count("crates/queue/src/message.rs", text), 2);
        assert_eq!(count("crates/broker/src/session/amqp/answers.rs", text), 0);
        assert_eq!(count("crates/perf/src/load.rs", text), 0);
        let text = "use lepus_amqp::table::Table; use lepus_amqp::properties::PropertiesRef;";
        assert_eq!(count("crates/broker/src/publish.rs", text), 0);
    }
}
