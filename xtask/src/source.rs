//! One Rust source file as the rules see it.

use crate::lexer::{self, Kind, Token};
use std::ops::RangeInclusive;

/// A source file, lexed, with its test code marked.
pub struct Source<'a> {
    /// Path from the root of the repository, with `/`.
    pub path: &'a str,
    /// The crate's directory name: `base` for `crates/base/src/pool.rs`, `xtask` for the task runner.
    pub crate_name: &'a str,
    /// Whether the whole file is test code: under `tests/`, or named `tests.rs`.
    pub is_test: bool,
    /// All tokens.
    pub tokens: Vec<Token<'a>>,
    /// Number of lines.
    pub lines: usize,
    /// Lines that belong to items under `#[cfg(test)]`.
    tests: Vec<RangeInclusive<usize>>,
}

impl<'a> Source<'a> {
    /// Lexes `text`, found at `path`.
    pub fn new(path: &'a str, text: &'a str) -> Source<'a> {
        let tokens = lexer::lex(text);
        let tests = test_ranges(&tokens);
        let mut parts = path.split('/');
        let first = parts.next().unwrap_or("");
        let crate_name = match first {
            "crates" => parts.next().unwrap_or(""),
            _ => first,
        };
        Source {
            path,
            crate_name,
            is_test: path.contains("/tests/") || path.ends_with("/tests.rs"),
            tokens,
            lines: text.lines().count(),
            tests,
        }
    }

    /// Whether the line (from 1) is test code.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.is_test || self.tests.iter().any(|range| range.contains(&line))
    }

    /// Number of lines that are not test code.
    pub fn lines_net(&self) -> usize {
        if self.is_test {
            return 0;
        }
        let tests: usize = self.tests.iter().map(|range| range.clone().count()).sum();
        self.lines - tests
    }

    /// The tokens that are code: comments left out, test code left out.
    pub fn code(&self) -> impl Iterator<Item = &Token<'a>> {
        self.tokens
            .iter()
            .filter(|token| token.kind != Kind::Comment && !self.is_test_line(token.line))
    }

    /// Every function that has a body and is not test code: its name, first and last line.
    pub fn functions(&self) -> Vec<Function<'a>> {
        let code: Vec<&Token<'a>> = self.code().collect();
        let mut functions = Vec::new();
        for (at, pair) in code.windows(2).enumerate() {
            if !pair[0].is("fn") || pair[1].kind != Kind::Word {
                continue;
            }
            let Some(open) = body_start(&code, at) else {
                continue;
            };
            let last = closing(&code, open).map_or(self.lines, |end| code[end].line);
            functions.push(Function { name: pair[1].text, first: pair[0].line, last });
        }
        functions
    }
}

/// A function with a body.
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// The line of `fn`.
    pub first: usize,
    /// The line of the closing brace.
    pub last: usize,
}

/// The index of the `{` that opens the body of the function whose `fn` is at `at`.
fn body_start(code: &[&Token<'_>], at: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (index, token) in code.iter().enumerate().skip(at) {
        match token.text {
            "(" | "[" if token.kind == Kind::Mark => depth += 1,
            ")" | "]" if token.kind == Kind::Mark => depth -= 1,
            "{" if token.kind == Kind::Mark && depth == 0 => return Some(index),
            ";" if token.kind == Kind::Mark && depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The index of the brace that closes the one at `open`.
fn closing(code: &[&Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (index, token) in code.iter().enumerate().skip(open) {
        if token.is("{") {
            depth += 1;
        } else if token.is("}") {
            depth -= 1;
            if depth == 0 {
                return Some(index);
            }
        }
    }
    None
}

/// The lines of every item behind `#[cfg(test)]`.
fn test_ranges(tokens: &[Token<'_>]) -> Vec<RangeInclusive<usize>> {
    const MARKER: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let tokens: Vec<&Token<'_>> = tokens.iter().collect();
    let mut ranges = Vec::new();
    for (at, window) in tokens.windows(MARKER.len()).enumerate() {
        if !window.iter().zip(MARKER).all(|(token, text)| token.is(text)) {
            continue;
        }
        let first = window[0].line;
        let item = at + MARKER.len();
        let ends = |token: &&Token<'_>| token.is("{") || token.is(";");
        let Some(end) = tokens[item..].iter().position(ends).map(|end| item + end) else {
            continue;
        };
        let last = if tokens[end].is("{") {
            closing(&tokens, end).unwrap_or(tokens.len() - 1)
        } else {
            end
        };
        ranges.push(first..=tokens[last].line);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_does_not_count() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::new("crates/base/src/x.rs", text);
        assert_eq!(source.lines_net(), 2);
        let names: Vec<_> = source.functions().iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert!(source.is_test_line(4));
        assert!(!source.is_test_line(6));
    }

    #[test]
    fn a_function_ends_at_its_own_brace() {
        let text = "fn a(x: [u8; 2]) -> impl Fn() {\n  if x { y }\n}\ntrait T { fn b(); }\n";
        let source = Source::new("crates/base/src/x.rs", text);
        let functions = source.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!((functions[0].first, functions[0].last), (1, 3));
    }

    #[test]
    fn the_crate_is_named_by_the_path() {
        assert_eq!(Source::new("crates/amqp/src/a.rs", "").crate_name, "amqp");
        assert_eq!(Source::new("xtask/src/a.rs", "").crate_name, "xtask");
        assert!(Source::new("crates/amqp/tests/a.rs", "").is_test);
    }
}
