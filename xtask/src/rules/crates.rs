//! Which crate may use which, and what the root of a crate must declare.

use super::Finding;
use crate::lexer::Kind;
use crate::source::Source;

/// All crates, from the bottom up: each may use only those before it.
const ORDER: [&str; 28] = [
    "base",
    "balance",
    "amqp",
    "filter",
    "store",
    "queue",
    "directory",
    "broker",
    "svg",
    "console",
    "ctl",
    "profile",
    "reactor",
    "mesh",
    "topology",
    "shard",
    "client",
    "management",
    "probe",
    "perf",
    "flame",
    "compiled",
    "experiment",
    "sim",
    "server",
    "kill",
    "fuzz",
    "a-tree-peer",
];

/// Crates that are functions of their inputs: no clock, no threads, no I/O, no `unsafe`.
pub const PURE: [&str; 8] =
    ["base", "balance", "amqp", "filter", "store", "queue", "directory", "broker"];

/// Packages that a pure crate may use: they keep no state and reach for no operating system.
const PURE_PACKAGES: [&str; 12] = [
    "slab",
    "hashbrown",
    "foldhash",
    "regex",
    "regex-automata",
    "regex-syntax",
    "sha2",
    "md-5",
    "hmac",
    "base64",
    "subtle",
    "crc32c",
];

/// Checks the manifests' dependencies and the crates' roots.
pub fn check(manifests: &[(String, String)], sources: &[Source<'_>], findings: &mut Vec<Finding>) {
    for (path, text) in manifests {
        check_manifest(path, text, findings);
    }
    for source in sources {
        let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
        if is_root {
            check_root(source, findings);
        }
    }
}

fn check_manifest(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let directory = path.trim_end_matches("Cargo.toml").trim_end_matches('/');
    let name = directory.rsplit('/').next().unwrap_or("");
    if name.is_empty() || name == "xtask" {
        return;
    }
    let Some(rank) = ORDER.iter().position(|known| *known == name) else {
        let advice = "this crate has no place in the order of crates: \
                      add it to ORDER in xtask/src/rules/crates.rs and to ARCHITECTURE.md";
        findings.push(Finding::error(path, 0, advice));
        return;
    };
    for (line, section, package) in dependencies(text) {
        let development = section == "dev-dependencies";
        if let Some(used) = package.strip_prefix("lepus-") {
            let used_rank = ORDER.iter().position(|known| *known == used);
            // Tests may be run on what is built above the crate: they build nothing on it.
            let is_below = used_rank.is_some_and(|used_rank| used_rank < rank || development);
            if !is_below {
                let advice = format!(
                    "{name} may only use crates below it, and {used} is not: move what is needed \
                     down, or hand it in as a value"
                );
                findings.push(Finding::error(path, line, advice));
            }
        } else if PURE.contains(&name) && !development && !PURE_PACKAGES.contains(&package) {
            let advice = format!(
                "{name} is pure, and {package} is not on the list of packages a pure crate may \
                 use: do it in the driver and hand the result in, or add the package to \
                 PURE_PACKAGES in xtask/src/rules/crates.rs with a page in docs/decisions"
            );
            findings.push(Finding::error(path, line, advice));
        }
    }
}

/// Every dependency of a manifest as (line, section, package).
fn dependencies(text: &str) -> Vec<(usize, &str, &str)> {
    let mut section = "";
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = header.rsplit('.').next().unwrap_or(header);
            continue;
        }
        if !section.ends_with("dependencies") || line.starts_with('#') {
            continue;
        }
        let name_end = |c: char| c == '.' || c == '=' || c.is_whitespace();
        let package = line.split(name_end).next().unwrap_or("");
        if !package.is_empty() {
            found.push((index + 1, section, package));
        }
    }
    found
}

fn check_root(source: &Source<'_>, findings: &mut Vec<Finding>) {
    let documented = source
        .tokens
        .first()
        .is_some_and(|token| token.kind == Kind::Comment && token.text.starts_with("//!"));
    if !documented {
        let advice = "the root of a crate starts with a doc comment (`//!`): say what the crate \
                      is for and what it must not do";
        findings.push(Finding::error(source.path, 1, advice));
    }
    if PURE.contains(&source.crate_name) {
        for attribute in ["no_std", "forbid(unsafe_code)"] {
            if !has_attribute(source, attribute) {
                let advice = format!("a pure crate declares `#![{attribute}]`: add it");
                findings.push(Finding::error(source.path, 1, advice));
            }
        }
    }
}

/// Whether the file carries the inner attribute `#![text]`.
pub fn has_attribute(source: &Source<'_>, text: &str) -> bool {
    let marker = format!("#![{text}]");
    let code: Vec<&str> = source.code().map(|token| token.text).collect();
    code.windows(3).enumerate().filter(|(_, window)| *window == ["#", "!", "["]).any(|(at, _)| {
        let mut joined = String::new();
        for word in code[at..].iter().take(12) {
            joined.push_str(word);
            if *word == "]" {
                break;
            }
        }
        joined == marker
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(path: &str, manifest: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_manifest(path, manifest, &mut findings);
        findings.into_iter().map(|found| found.advice).collect()
    }

    #[test]
    fn a_crate_may_not_use_one_above_it() {
        let manifest =
            "[dependencies]\nlepus-base.workspace = true\nlepus-broker = { path = \"..\" }\n";
        let found = advice("crates/amqp/Cargo.toml", manifest);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("broker is not"));
        assert!(advice("crates/server/Cargo.toml", manifest).is_empty());
    }

    #[test]
    fn a_pure_crate_uses_only_listed_packages() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nmio.workspace = true\n\
                        [dev-dependencies]\nproptest = \"1\"\n";
        assert_eq!(advice("crates/broker/Cargo.toml", manifest).len(), 1);
        assert!(advice("crates/reactor/Cargo.toml", manifest).is_empty());
    }

    #[test]
    fn an_unknown_crate_is_asked_for_its_place() {
        assert_eq!(advice("crates/extra/Cargo.toml", "[package]").len(), 1);
    }

    #[test]
    fn attributes_are_found_in_code_only() {
        let source =
            Source::new("crates/base/src/lib.rs", "//! #![no_std]\n#![forbid(unsafe_code)]\n");
        assert!(has_attribute(&source, "forbid(unsafe_code)"));
        assert!(!has_attribute(&source, "no_std"));
    }
}
