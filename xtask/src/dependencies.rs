//! What the project is built from: each package's licence and origin, and packages built twice.
//!
//! `cargo tree` names everything that the workspace's lock file can lead to, on any target and with
//! any feature. What may pass stands in `xtask/dependencies.txt`, with reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The file of what may pass, from the root.
const ALLOWED: &str = "xtask/dependencies.txt";
/// What is asked of cargo: one line `NAME vVERSION REMARKS|LICENCE` for each package.
const TREE: [&str; 13] = [
    "tree",
    "--workspace",
    "--locked",
    "--all-features",
    "--target",
    "all",
    "--edges",
    "normal,build,dev",
    "--prefix",
    "none",
    "--no-dedupe",
    "--format",
    "{p}|{l}",
];

/// Prints what may not stay as it is, and says whether there is nothing.
///
/// # Errors
/// When cargo cannot be asked, or the file of what may pass cannot be read.
pub fn run(root: &Path) -> Result<bool, String> {
    let path = root.join(ALLOWED);
    let allowed = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(TREE).current_dir(root).output();
    let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let tree = String::from_utf8_lossy(&output.stdout);
    let (packages, findings) = check(&tree, &root.display().to_string(), &allowed);
    for finding in &findings {
        println!("{finding}");
    }
    println!("dependencies: {packages} packages, {} errors", findings.len());
    Ok(findings.is_empty())
}

/// The number of packages from elsewhere that the lines of `tree` name, and all that is wrong with them.
fn check(tree: &str, root: &str, allowed: &str) -> (usize, Vec<String>) {
    let mut findings = Vec::new();
    let mut lines = Allowed::read(allowed, &mut findings);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let packages: BTreeSet<&str> = tree.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut strangers = 0;
    for line in packages {
        let (package, licence) = line.rsplit_once('|').unwrap_or((line, ""));
        let mut words = package.splitn(3, ' ');
        let (name, version) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let remark = words.next().unwrap_or("").replace("(proc-macro)", "");
        let remark = remark.trim().trim_matches(['(', ')']);
        if remark.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')) {
            continue;
        }
        strangers += 1;
        versions.entry(name).or_default().insert(version);
        if !remark.is_empty() {
            findings.push(format!(
                "{name} {version} comes from {remark}: only packages of crates.io stay where they are"
            ));
        }
        if let Err(why) = accept(licence, &mut lines) {
            findings.push(format!(
                "{name} {version}: {why}. If its licence goes with Apache-2.0 add `licence NAME  the reason` to \
                 {ALLOWED}, else do without the package (`cargo tree -i {name}` says who wants it)"
            ));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !lines.has("twice", name) {
            let versions: Vec<&str> = versions.iter().copied().collect();
            findings.push(format!(
                "{name} is built more than once, as {}: bring those who want it to one version, or add \
                 `twice {name}  the reason` to {ALLOWED}",
                versions.join(" and ")
            ));
        }
    }
    findings.extend(lines.0.iter().filter(|line| !line.used).map(|line| {
        format!("{ALLOWED}: nothing needs `{} {}`: take it out", line.kind, line.name)
    }));
    (strangers, findings)
}

/// One line of the file of what may pass.
struct Line<'a> {
    kind: &'a str,
    name: &'a str,
    used: bool,
}

/// What may pass.
struct Allowed<'a>(Vec<Line<'a>>);

impl<'a> Allowed<'a> {
    fn read(text: &'a str, findings: &mut Vec<String>) -> Allowed<'a> {
        let mut lines = Vec::new();
        for text in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = text.split_whitespace().collect();
            match words[..] {
                [kind @ ("licence" | "twice"), name, _, ..] => {
                    lines.push(Line { kind, name, used: false });
                }
                _ => findings.push(format!(
                    "{ALLOWED}: `{text}` is neither `licence NAME  the reason` nor `twice PACKAGE  the reason`"
                )),
            }
        }
        Allowed(lines)
    }

    /// Whether the file has this line, which is needed then.
    fn has(&mut self, kind: &str, name: &str) -> bool {
        let line = self.0.iter_mut().find(|line| line.kind == kind && line.name == name);
        line.map(|line| line.used = true).is_some()
    }
}

/// Whether a package under these terms (an SPDX expression; `/` is an old form of OR) may be used.
fn accept(terms: &str, allowed: &mut Allowed<'_>) -> Result<(), String> {
    if terms.is_empty() {
        return Err("it names no licence".to_owned());
    }
    let spaced = terms.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    match any_of(&mut rest, allowed) {
        Some(true) if rest.is_empty() => Ok(()),
        Some(false) if rest.is_empty() => Err(format!("its licence is {terms}")),
        _ => {
            Err(format!("its licence, `{terms}`, is not an SPDX expression that this check reads"))
        }
    }
}

/// Terms joined by OR, each of which may be chosen; `None` when it is no expression.
fn any_of(words: &mut &[&str], allowed: &mut Allowed<'_>) -> Option<bool> {
    let mut holds = all_of(words, allowed)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        // All are looked at: each allowed licence that is met counts as needed.
        holds |= all_of(words, allowed)?;
    }
    Some(holds)
}

/// Terms joined by AND, all of which hold.
fn all_of(words: &mut &[&str], allowed: &mut Allowed<'_>) -> Option<bool> {
    let mut holds = one(words, allowed)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        holds &= one(words, allowed)?;
    }
    Some(holds)
}

/// One licence, perhaps with an exception that gives further rights, or terms in brackets.
fn one(words: &mut &[&str], allowed: &mut Allowed<'_>) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    match *first {
        "(" => {
            let holds = any_of(words, allowed)?;
            let (&")", rest) = words.split_first()? else { return None };
            *words = rest;
            Some(holds)
        }
        ")" | "AND" | "OR" | "WITH" => None,
        name => {
            if words.first() == Some(&"WITH") {
                *words = words.get(2..)?;
            }
            Some(allowed.has("licence", name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "# comment\nlicence MIT  notice only\nlicence Zlib  less\ntwice b  ages\n";

    fn findings(tree: &str) -> Vec<String> {
        check(tree, "/home/lepus", ALL).1
    }

    const GOOD: &str = "lepus v0.1.0 (/home/lepus/crates/lepus)|\n\
                        a v1.0.0 (proc-macro)|GPL-2.0 OR (MIT AND Zlib)\n\
                        a v1.0.0 (proc-macro)|GPL-2.0 OR (MIT AND Zlib)\n\
                        b v1.0.0|MIT/Apache-2.0\n\
                        b v2.0.0|Apache-2.0 WITH LLVM-exception OR MIT\n";

    #[test]
    fn what_is_allowed_passes() {
        assert_eq!(check(GOOD, "/home/lepus", ALL), (3, Vec::new()));
    }

    #[test]
    fn what_is_new_is_told() {
        for (line, part) in [
            ("c v1.0.0|GPL-3.0", "c v1.0.0: its licence is GPL-3.0"),
            ("c v1.0.0|MIT AND GPL-3.0", "its licence is MIT AND GPL-3.0"),
            ("c v1.0.0|", "names no licence"),
            ("c v1.0.0|(MIT", "not an SPDX expression"),
            ("c v1.0.0|MIT Zlib", "not an SPDX expression"),
            ("c v1.0.0 (https://example.org/c#1)|MIT", "comes from https://example.org/c#1"),
            ("c v1.0.0 (/home/lepus-other/c)|MIT", "comes from /home/lepus-other/c"),
            ("a v2.0.0|MIT", "a is built more than once, as v1.0.0 and v2.0.0"),
        ] {
            let found = findings(&format!("{GOOD}{line}\n"));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].contains(part), "{line}: {found:?}");
        }
    }

    #[test]
    fn what_nothing_needs_is_told() {
        let found = findings("a v1.0.0|MIT\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`licence Zlib`") && found[1].contains("`twice b`"), "{found:?}");
        let (_, found) = check(GOOD, "/home/lepus", &format!("{ALL}licence ISC\n"));
        assert!(found.len() == 1 && found[0].contains("the reason"), "{found:?}");
    }
}
