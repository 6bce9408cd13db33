//! Writes JSON, for the machine-readable copy of a run.

use std::fmt::Write;

/// A JSON value; objects keep the order in which they were built.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`, also written for numbers that JSON has no form for.
    Null,
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// An object of the given members.
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
        let named = members.map(|(name, value)| (name.to_owned(), value));
        Json::Object(named.into())
    }

    /// A number, or `null` where there is none.
    pub fn optional(value: Option<f64>) -> Json {
        value.map_or(Json::Null, Json::Number)
    }

    /// A string.
    pub fn text(value: impl Into<String>) -> Json {
        Json::Text(value.into())
    }

    /// The value as text, indented.
    pub fn render(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out.push('\n');
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        match self {
            Json::Number(number) if number.is_finite() => {
                let _ = write!(out, "{number}");
            }
            Json::Null | Json::Number(_) => out.push_str("null"),
            Json::Text(text) => write_text(out, text),
            Json::List(items) => write_group(out, depth, ('[', ']'), items, |out, item| {
                item.write(out, depth + 1);
            }),
            Json::Object(members) => {
                write_group(out, depth, ('{', '}'), members, |out, (name, value)| {
                    write_text(out, name);
                    out.push_str(": ");
                    value.write(out, depth + 1);
                });
            }
        }
    }
}

fn write_group<T>(
    out: &mut String,
    depth: usize,
    brackets: (char, char),
    items: &[T],
    mut write: impl FnMut(&mut String, &T),
) {
    out.push(brackets.0);
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.push_str(&"  ".repeat(depth + 1));
        write(out, item);
    }
    if !items.is_empty() {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    }
    out.push(brackets.1);
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rendered_as_json() {
        let value = Json::object([
            ("a", Json::Number(1.5)),
            ("b", Json::List(vec![Json::Null, Json::Number(f64::NAN)])),
            ("c", Json::text("x\"\\\n\u{1}")),
            ("d", Json::Object(Vec::new())),
        ]);
        let expected = "{\n  \"a\": 1.5,\n  \"b\": [\n    null,\n    null\n  ],\n  \
                        \"c\": \"x\\\"\\\\\\n\\u0001\",\n  \"d\": {}\n}\n";
        assert_eq!(value.render(), expected);
    }
}
