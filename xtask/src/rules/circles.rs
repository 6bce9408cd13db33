//! No circle of imports between the modules of a crate.
//!
//! A module is a file right below `src` with the folder of its name: what two of them import of each other cannot be
//! read, tested or moved one without the other.

use super::Finding;
use crate::lexer::Token;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// By module, the modules that it imports from, each with the line of one import.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, (&'a str, usize)>>;

/// Checks the modules of every crate.
pub fn check(sources: &[Source<'_>], findings: &mut Vec<Finding>) {
    let crates: BTreeSet<&str> = sources.iter().map(|source| source.crate_name).collect();
    for name in crates {
        let graph = graph_of(name, sources);
        let circle = largest_circle(&graph);
        if !circle.is_empty() {
            let (first, next) = arrow_within(&graph, &circle);
            let (path, line) = graph[first][next];
            let advice = format!(
                "`{first}` and `{next}` are in a circle of imports of {} modules ({}): move what both need into a \
                 module below them, or hand it in as a value",
                circle.len(),
                circle.iter().copied().collect::<Vec<_>>().join(", ")
            );
            findings.push(Finding::error(path, line, advice));
        }
    }
}

/// Who imports from whom in a crate, test code left out.
fn graph_of<'a>(name: &str, sources: &'a [Source<'a>]) -> Graph<'a> {
    let own = || {
        sources.iter().filter(|source| source.crate_name == name && !source.is_test).filter_map(
            |source| {
                let (_, inside) = source.path.split_once("/src/")?;
                Some((source, inside.trim_end_matches(".rs")))
            },
        )
    };
    let modules: BTreeSet<&str> = own()
        .filter_map(|(_, inside)| inside.split('/').next())
        .filter(|module| !["lib", "main"].contains(module))
        .collect();
    // What the root of the crate passes on.
    let mut passed_on: BTreeMap<&str, &str> = BTreeMap::new();
    for (source, _) in own().filter(|(_, inside)| *inside == "lib") {
        for path in paths(source) {
            let words: Vec<&str> = path
                .words
                .iter()
                .copied()
                .filter(|word| !["self", "crate"].contains(word))
                .collect();
            if let [first, .., last] = words[..]
                && modules.contains(first)
            {
                passed_on.insert(last, first);
            }
        }
    }
    let mut graph: Graph<'a> = modules.iter().map(|module| (*module, BTreeMap::new())).collect();
    for (source, inside) in own() {
        let place: Vec<&str> = inside.split('/').collect();
        let Some(importer) = modules.get(place[0]).copied() else { continue };
        for path in paths(source) {
            let Some(first) = first_module(&path.words, place.len()) else { continue };
            let imported = modules.get(first).copied().or_else(|| passed_on.get(first).copied());
            if let Some(imported) = imported
                && imported != importer
            {
                let arrows = graph.get_mut(importer).expect("every module is in the graph");
                arrows.entry(imported).or_insert((source.path, path.line));
            }
        }
    }
    graph
}

/// The first word behind the crate's root of a path in a file so deep below it.
fn first_module<'a>(words: &[&'a str], depth: usize) -> Option<&'a str> {
    match words {
        ["crate", first, ..] => Some(first),
        ["super", ..] => {
            let up = words.iter().take_while(|word| **word == "super").count();
            (up == depth).then(|| words.get(up).copied()).flatten()
        }
        _ => None,
    }
}

/// A path as the code has it.
struct Path<'a> {
    words: Vec<&'a str>,
    line: usize,
}

/// All paths of imports, their braces opened, and all that begin with `crate` or `super` elsewhere.
fn paths<'a>(source: &Source<'a>) -> Vec<Path<'a>> {
    let code: Vec<&Token<'a>> = source.code().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let is_begin = code[at].is("crate") || code[at].is("super");
        // Behind a sign `use` names what a type captures.
        let is_import = code[at].is("use") && !code.get(at + 1).is_some_and(|token| token.is("<"));
        if is_import {
            at = import(&code, at + 1, &[], &mut found);
        } else if is_begin && is_joint(&code, at + 1) && (at == 0 || !code[at - 1].is("in")) {
            let line = code[at].line;
            let mut words = vec![code[at].text];
            while is_joint(&code, at + 1) && code.get(at + 3).is_some() {
                words.push(code[at + 3].text);
                at += 3;
            }
            found.push(Path { words, line });
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

fn is_joint(code: &[&Token<'_>], at: usize) -> bool {
    code.get(at).is_some_and(|token| token.is(":"))
        && code.get(at + 1).is_some_and(|token| token.is(":"))
}

/// One tree of an import from `at` on, behind the words before it. Returns the place behind it.
fn import<'a>(
    code: &[&Token<'a>],
    mut at: usize,
    before: &[&'a str],
    found: &mut Vec<Path<'a>>,
) -> usize {
    let mut words = before.to_vec();
    let line = code.get(at).map_or(0, |token| token.line);
    while let Some(token) = code.get(at) {
        if token.is("{") {
            at += 1;
            while code.get(at).is_some_and(|token| !token.is("}") && !token.is(";")) {
                at = import(code, at, &words, found);
                if code.get(at).is_some_and(|token| token.is(",")) {
                    at += 1;
                }
            }
            return at + 1;
        }
        if token.is(",") || token.is("}") || token.is(";") {
            break;
        }
        if token.is("as") {
            at += 2;
            break;
        }
        if !token.is(":") {
            words.push(token.text);
        }
        at += 1;
    }
    found.push(Path { words, line });
    at
}

/// The largest set of modules each of which reaches each other one; one module or none where there is no circle.
fn largest_circle<'a>(graph: &Graph<'a>) -> BTreeSet<&'a str> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (*module, reached(graph, module))).collect();
    let circles = graph.keys().map(|module| {
        let mutual = reach[module].iter().filter(|other| reach[*other].contains(module));
        mutual.copied().collect::<BTreeSet<&str>>()
    });
    circles.max_by_key(BTreeSet::len).unwrap_or_default()
}

/// The modules that one imports from, also by way of others.
fn reached<'a>(graph: &Graph<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&'a str> = graph[from].keys().copied().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module) {
            next.extend(graph[module].keys());
        }
    }
    seen
}

/// An import of one module of a circle from another one.
fn arrow_within<'a>(graph: &Graph<'a>, circle: &BTreeSet<&'a str>) -> (&'a str, &'a str) {
    let mut arrows = circle.iter().flat_map(|from| graph[from].keys().map(|to| (*from, *to)));
    arrows.find(|(_, to)| circle.contains(to)).expect("a circle has arrows")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source<'_>> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings
            .into_iter()
            .filter(|found| found.path.contains("src/"))
            .map(|found| found.to_string())
            .collect()
    }

    #[test]
    fn two_modules_that_import_from_each_other_are_found() {
        let a = ("crates/mesh/src/a.rs", "use std::fmt;\nuse crate::{c::C, b::{self, B}};\n");
        let b = ("crates/mesh/src/b.rs", "fn f(a: super::a::A) {}\n");
        let c = ("crates/mesh/src/c.rs", "pub struct C;\n");
        let found: Vec<_> =
            advice(&[a, b, c]).into_iter().filter(|text| text.contains("crates/mesh")).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("crates/mesh/src/a.rs:2") && found[0].contains("(a, b)"),
            "{found:?}"
        );
        let b = (
            "crates/mesh/src/b.rs",
            "use crate::c::C;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n",
        );
        assert!(advice(&[a, b, c]).iter().all(|text| !text.contains("crates/mesh")));
    }

    #[test]
    fn what_a_folder_and_the_root_pass_on_counts() {
        let root =
            ("crates/mesh/src/lib.rs", "mod a;\nmod b;\npub use b::{Thing, other::Other};\n");
        let a = ("crates/mesh/src/a/deep/inner.rs", "use crate::Other;\n");
        let b = ("crates/mesh/src/b.rs", "use crate::a;\n");
        let found = advice(&[root, a, b]);
        assert!(
            found.iter().any(|text| text.contains("circle of imports of 2 modules")),
            "{found:?}"
        );
        // Within a module its files may know each other.
        let a = (
            "crates/mesh/src/b/inner.rs",
            "use super::Thing;\nuse crate::b::other;\npub(in crate::b) fn f() {}\n",
        );
        assert!(advice(&[root, a, b]).iter().all(|text| !text.contains("crates/mesh")));
    }
}
