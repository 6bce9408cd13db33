//! How much one type may do: the lines of its `impl` blocks together, and the files in which they are.

use super::Finding;
use crate::lexer::{Kind, Token};
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Lines of the `impl` blocks of a type together, net of tests.
const LINES_MAX: usize = 1000;
/// Files in which they are.
const FILES_MAX: usize = 6;

/// Types that still have more: crate, type, and how many lines and files there may be. They may not grow by more than a
/// small cure takes; the figures go down with the types.
const NOT_YET: [(&str, &str, usize, usize); 6] = [
    ("shard", "Shard", 1150, 6),
    ("sim", "Channel", 1250, 3),
    ("sim", "Run", 1150, 4),
    ("store", "Log", 1150, 3),
    ("store", "Recovery", 1200, 4),
    ("store", "Store", 3400, 12),
];

/// Types that own nothing: each is a set of owners borrowed for one call, and its methods are spread over a file per
/// feature. There may be as many as there are features; what one file may have is bounded. See `docs/decisions/sides.md`.
const SIDES: [(&str, &str); 2] = [("broker", "HomeSide"), ("broker", "SessionSide")];
/// Lines of the `impl` blocks of such a type in one file.
const SIDE_LINES_MAX: usize = 500;

#[derive(Default)]
struct Size<'a> {
    lines: usize,
    files: BTreeSet<&'a str>,
}

/// Checks the types of every crate.
pub fn check(sources: &[Source<'_>], findings: &mut Vec<Finding>) {
    let mut sizes: BTreeMap<(&str, &str), Size<'_>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test) {
        for (name, lines) in blocks(source) {
            if SIDES.contains(&(source.crate_name, name)) {
                if lines > SIDE_LINES_MAX {
                    let advice = format!(
                        "`{name}` has {lines} lines here, {SIDE_LINES_MAX} are allowed: is it still one feature?"
                    );
                    findings.push(Finding::error(source.path, 0, advice));
                }
                continue;
            }
            let size = sizes.entry((source.crate_name, name)).or_default();
            size.lines += lines;
            size.files.insert(source.path);
        }
    }
    for source in sources.iter().filter(|source| !source.is_test) {
        for (line, name) in owning_sides(source) {
            let advice = format!(
                "`{name}` is a side, which only borrows: give what it owns to an owner of its own"
            );
            findings.push(Finding::error(source.path, line, advice));
        }
    }
    for ((owner, name), size) in sizes {
        let known = NOT_YET.iter().find(|known| (known.0, known.1) == (owner, name));
        let (lines_max, files_max) =
            known.map_or((LINES_MAX, FILES_MAX), |known| (known.2, known.3));
        if size.lines > lines_max || size.files.len() > files_max {
            let advice = format!(
                "the `impl` blocks of `{name}` have {} lines in {} files, {lines_max} in {files_max} are allowed: find \
                 what it owns that could be a type of its own, with its own state and one way in",
                size.lines,
                size.files.len()
            );
            let path = size.files.first().copied().unwrap_or_default();
            findings.push(Finding::error(path, 0, advice));
        }
    }
}

/// Fields of sides that are no borrowed owners: their lines, and the sides.
fn owning_sides<'a>(source: &Source<'a>) -> Vec<(usize, &'a str)> {
    let code: Vec<&Token<'a>> = source.code().collect();
    let mut found = Vec::new();
    for (at, token) in code.iter().enumerate() {
        let Some(name) = code.get(at + 1).map(|name| name.text) else { break };
        if token.text != "struct" || !SIDES.contains(&(source.crate_name, name)) {
            continue;
        }
        let fields = code[at..].iter().skip_while(|token| token.text != "{");
        let fields: Vec<_> = fields.take_while(|token| token.text != "}").collect();
        for pair in fields.windows(2).filter(|pair| pair[0].text == ":") {
            if pair[1].text != "&" {
                found.push((pair[1].line, name));
            }
        }
    }
    found
}

/// Every `impl` block that is not test code: the type's name and its lines.
fn blocks<'a>(source: &Source<'a>) -> Vec<(&'a str, usize)> {
    let code: Vec<&Token<'a>> = source.code().collect();
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut open: Option<(&'a str, usize, usize)> = None;
    for (at, token) in code.iter().enumerate() {
        match token.text {
            "{" if token.kind == Kind::Mark => depth += 1,
            "}" if token.kind == Kind::Mark => {
                depth = depth.saturating_sub(1);
                if let Some((name, first, outside)) = open
                    && depth == outside
                {
                    found.push((name, token.line - first + 1));
                    open = None;
                }
            }
            "impl" if token.kind == Kind::Word && open.is_none() && begins_item(&code, at) => {
                open = type_of(&code[at + 1..]).map(|name| (name, token.line, depth));
            }
            _ => {}
        }
    }
    found
}

/// Whether an `impl` stands where an item begins, not in a type.
fn begins_item(code: &[&Token<'_>], at: usize) -> bool {
    match at.checked_sub(1).map(|before| code[before]) {
        None => true,
        Some(before) => ["}", ";", "{", "]", "unsafe"].iter().any(|text| before.is(text)),
    }
}

/// The type that an `impl` is for: its last word before its own arguments, behind `for` where it is of a trait.
fn type_of<'a>(head: &[&Token<'a>]) -> Option<&'a str> {
    let (mut angles, mut name) = (0_i32, None);
    for (at, token) in head.iter().enumerate() {
        match token.text {
            "<" => angles += 1,
            // Of an arrow it is no bracket.
            ">" if at > 0 && head[at - 1].is("-") => {}
            ">" => angles -= 1,
            "for" if angles == 0 => name = None,
            "{" | "where" if angles == 0 => return name,
            word if angles == 0
                && token.kind == Kind::Word
                && !["dyn", "mut", "crate", "super"].contains(&word) =>
            {
                name = Some(word);
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_by_the_type_they_are_for() {
        let text = "impl<T: Fn() -> u8> Queue<T> {\n  fn f() -> impl Fn() {\n  }\n}\n\
                    impl<'a> fmt::Display for super::Other<'a> where X: Y {\n}\n\
                    #[cfg(test)]\nmod tests {\n impl Queue {}\n}\n";
        let source = Source::new("crates/base/src/x.rs", text);
        assert_eq!(blocks(&source), [("Queue", 4), ("Other", 2)]);
    }

    #[test]
    fn a_side_borrows_all_it_has() {
        let text =
            |field: &str| format!("struct HomeSide<'a> {{\n homes: &'a mut Homes,\n{field}}}");
        let count = |text: &str, path: &str| owning_sides(&Source::new(path, text)).len();
        let path = "crates/broker/src/x.rs";
        assert_eq!(count(&text(""), path), 0);
        assert_eq!(count(&text("own: Vec<u32>,\n"), path), 1);
        assert_eq!(count(&text("own: Vec<u32>,\n"), "crates/store/src/x.rs"), 0);
        let text = format!("impl HomeSide<'_> {{\n{}}}\n", "// line\n".repeat(501));
        let mut findings = Vec::new();
        check(&[Source::new(path, &text)], &mut findings);
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn a_type_in_many_files_is_found() {
        let paths: Vec<String> =
            (0..7).map(|number| format!("crates/mesh/src/f{number}.rs")).collect();
        let sources: Vec<Source<'_>> =
            paths.iter().map(|path| Source::new(path, "impl Big {\n}\n")).collect();
        let count = |sources: &[Source<'_>]| {
            let mut findings = Vec::new();
            check(sources, &mut findings);
            findings.len()
        };
        assert_eq!((count(&sources), count(&sources[..6])), (1, 0));
        let text = format!("impl Big {{\n{}}}\n", "// line\n".repeat(1000));
        assert_eq!(count(&[Source::new("crates/mesh/src/f.rs", &text)]), 1);
    }
}
