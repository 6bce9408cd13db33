//! JSON as a run writes it.

use std::fmt::Write as _;

/// Writes JSON: one member or element per call, commas included.
#[derive(Debug, Default)]
pub(crate) struct Json {
    pub text: String,
}

impl Json {
    fn key(&mut self, name: Option<&str>) {
        if !self.text.is_empty() && !self.text.ends_with(['{', '[']) {
            self.text.push(',');
        }
        if let Some(name) = name {
            self.quote(name);
            self.text.push(':');
        }
    }

    fn quote(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => {
                    self.text.push('\\');
                    self.text.push(c);
                }
                c if c < ' ' => {
                    let _ = write!(self.text, "\\u{:04x}", c as u32);
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }

    /// Opens an object or array, in an object under `name`.
    pub(crate) fn open(&mut self, name: Option<&str>, bracket: char) {
        self.key(name);
        self.text.push(bracket);
    }

    /// Closes what was opened last; `bracket` is its closing one.
    pub(crate) fn close(&mut self, bracket: char) {
        self.text.push(bracket);
    }

    /// A member whose `value` is JSON already.
    pub(crate) fn raw(&mut self, name: &str, value: &str) {
        self.key(Some(name));
        self.text.push_str(value);
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.key(Some(name));
        self.quote(value);
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.raw(name, &value.to_string());
    }

    /// A number with decimals; what is not finite is written as 0.
    pub(crate) fn float(&mut self, name: &str, value: f64) {
        let value = if value.is_finite() { value } else { 0.0 };
        self.raw(name, &format!("{value:.6}"));
    }
}

impl Json {
    /// A member that is a whole number or null.
    pub(crate) fn optional(&mut self, name: &str, value: Option<u64>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// An array of texts.
    pub(crate) fn texts(&mut self, name: &str, texts: &[String]) {
        self.open(Some(name), '[');
        for text in texts {
            self.key(None);
            self.quote(text);
        }
        self.close(']');
    }

    /// A value and how often it came as an element.
    pub(crate) fn bucket(&mut self, value: f64, count: u64) {
        self.key(None);
        let _ = write!(self.text, "[{value:.3},{count}]");
    }

    /// An array of two numbers as an element.
    pub(crate) fn pair(&mut self, first: f64, second: f64) {
        self.key(None);
        let _ = write!(self.text, "[{first:.8},{second:.3}]");
    }
}
