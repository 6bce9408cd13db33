//! Prometheus' text format (exposition format, version 0.0.4).

use std::fmt::{Display, Write};

/// What the counterpart's `Content-Type` says.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bound.
    Histogram,
}

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// An empty page.
    #[must_use]
    pub fn new() -> Exposition {
        Exposition::default()
    }

    /// Starts a family; its samples follow. Names are given by the caller and must be valid.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        debug_assert!(is_name(name), "{name}");
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(help, false, &mut self.text);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(name);
        self.text.push(' ');
        self.text.push_str(kind);
        self.text.push('\n');
    }

    /// Adds a sample of the family that was started last; `name` differs from the family's only for
    /// the parts of a histogram.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, content)) in labels.iter().enumerate() {
            debug_assert!(is_name(label) && !label.contains(':'), "{label}");
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(content, true, &mut self.text);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, " {value}");
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Bytes of what there is.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Takes what there is out, so that a long page can be made in parts.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// The page.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

fn escape(text: &str, quotes: bool, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_families_with_samples() {
        let mut page = Exposition::new();
        page.family("a_total", Kind::Counter, "first\nline \\ \"quoted\"");
        page.sample("a_total", &[("v", "x\"y\\z\n"), ("w", "")], 5_u64);
        page.single("b", Kind::Gauge, "one", 0.25);
        assert_eq!(
            page.into_text(),
            "# HELP a_total first\\nline \\\\ \"quoted\"\n\
             # TYPE a_total counter\n\
             a_total{v=\"x\\\"y\\\\z\\n\",w=\"\"} 5\n\
             # HELP b one\n# TYPE b gauge\nb 0.25\n"
        );
    }
}
