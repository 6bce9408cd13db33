//! Splits Rust source into the few kinds of tokens that the rules look at.
//!
//! It knows comments, strings and characters well enough that braces and words inside them never
//! count as code. It does not parse.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A keyword or name, raw ones without `r#`.
    Word,
    /// A number, string, character or lifetime.
    Literal,
    /// One character of punctuation.
    Mark,
    /// A comment, doc comments included, with its markers.
    Comment,
}

/// One token and the line (from 1) on which it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: &'a str,
    /// The line on which it starts, from 1.
    pub line: usize,
}

impl Token<'_> {
    /// Whether this is the given keyword, name or punctuation.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// All tokens of `source`. Unterminated strings and comments run to the end.
pub fn lex(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, bytes: source.as_bytes(), at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token() {
        tokens.push(token);
    }
    tokens
}

struct Lexer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next_token(&mut self) -> Option<Token<'a>> {
        while self.peek(0).is_ascii_whitespace() {
            self.step();
        }
        if self.at >= self.bytes.len() {
            return None;
        }
        let (start, line) = (self.at, self.line);
        let kind = self.scan();
        let text = self.source.get(start..self.at).unwrap_or("");
        let text = text
            .strip_prefix("r#")
            .map_or(text, |name| if kind == Kind::Word { name } else { text });
        Some(Token { kind, text, line })
    }

    fn step(&mut self) {
        if self.peek(0) == b'\n' {
            self.line += 1;
        }
        self.at += 1;
    }

    /// Moves behind the token that starts here.
    fn scan(&mut self) -> Kind {
        match (self.peek(0), self.peek(1)) {
            (b'/', b'/') => {
                while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                    self.step();
                }
                Kind::Comment
            }
            (b'/', b'*') => {
                self.scan_block_comment();
                Kind::Comment
            }
            (b'"', _) => {
                self.scan_string();
                Kind::Literal
            }
            (b'\'', _) => {
                self.scan_quote();
                Kind::Literal
            }
            (first, _) if is_word(first) => self.scan_word(),
            _ => {
                self.step();
                while self.at < self.bytes.len() && !self.source.is_char_boundary(self.at) {
                    self.step();
                }
                Kind::Mark
            }
        }
    }

    fn scan_block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.step();
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.step();
                }
                _ => {}
            }
            self.step();
            if depth == 0 {
                return;
            }
        }
    }

    fn scan_string(&mut self) {
        self.step();
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' => self.step(),
                b'"' => return self.step(),
                _ => {}
            }
            self.step();
        }
    }

    fn scan_raw_string(&mut self) {
        let mut hashes = 0;
        while self.peek(0) == b'#' {
            hashes += 1;
            self.step();
        }
        self.step();
        while self.at < self.bytes.len() {
            let closes = self.peek(0) == b'"' && (1..=hashes).all(|i| self.peek(i) == b'#');
            self.step();
            if closes {
                self.at += hashes;
                return;
            }
        }
    }

    /// A character literal or a lifetime.
    fn scan_quote(&mut self) {
        self.step();
        if self.peek(0) == b'\\' {
            self.step();
            self.step();
            while self.at < self.bytes.len() && self.peek(0) != b'\'' {
                self.step();
            }
            return self.step();
        }
        let character = self.source[self.at..].chars().next();
        let width = character.map_or(1, char::len_utf8);
        if self.peek(width) == b'\'' {
            self.at += width;
            return self.step();
        }
        while is_word(self.peek(0)) {
            self.step();
        }
    }

    fn scan_word(&mut self) -> Kind {
        let start = self.at;
        while is_word(self.peek(0)) {
            self.step();
        }
        let word = &self.bytes[start..self.at];
        let raw = matches!(word, b"r" | b"br" | b"cr");
        match self.peek(0) {
            b'"' if raw => self.scan_raw_string(),
            b'#' if raw && (self.peek(1) == b'"' || self.peek(1) == b'#') => {
                self.scan_raw_string();
            }
            b'#' if word == b"r" && is_word(self.peek(1)) => {
                self.step();
                while is_word(self.peek(0)) {
                    self.step();
                }
                return Kind::Word;
            }
            b'"' if matches!(word, b"b" | b"c") => self.scan_string(),
            b'\'' if word == b"b" => self.scan_quote(),
            _ if word[0].is_ascii_digit() => {}
            _ => return Kind::Word,
        }
        Kind::Literal
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        lex(source).iter().map(|token| token.text).collect()
    }

    #[test]
    fn strings_and_comments_hide_their_braces() {
        let source = "fn f() { \"}\" r#\"}\"# b'}' '}' '\\'' /* } /* } */ */ // }\n}";
        let marks: Vec<_> = lex(source)
            .into_iter()
            .filter(|token| token.is("{") || token.is("}"))
            .map(|token| (token.text, token.line))
            .collect();
        assert_eq!(marks, [("{", 1), ("}", 2)]);
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        assert_eq!(texts("&'a str"), ["&", "'a", "str"]);
        assert_eq!(texts("'a' 'é'"), ["'a'", "'é'"]);
    }

    #[test]
    fn a_raw_name_loses_its_prefix() {
        assert_eq!(texts("r#type"), ["type"]);
    }

    #[test]
    fn lines_are_counted_inside_strings() {
        let last = lex("\"a\nb\"\nx").pop().unwrap();
        assert_eq!((last.text, last.line), ("x", 3));
    }
}
