//! The configuration file: TOML, taken apart into keys, texts and lines.

use super::{ConfigError, Place};
use toml::de::{DeTable, DeValue};

/// One key of the file with its value as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Dotted path.
    pub key: String,
    /// The value; `None` when it is of a form that no setting has, such as a date.
    pub text: Option<String>,
    /// Line of the key, counted from 1.
    pub line: usize,
}

/// Takes `content` apart. `path` is only named in errors.
pub fn entries(path: &str, content: &str) -> Result<Vec<Entry>, ConfigError> {
    let table = DeTable::parse(content).map_err(|error| ConfigError {
        place: Place::File {
            path: path.to_owned(),
            line: line_of(content, error.span().map_or(0, |span| span.start)),
        },
        text: format!("not valid TOML: {}", error.message().replace('\n', "; ")),
    })?;
    let mut entries = Vec::new();
    collect("", table.get_ref(), content, &mut entries);
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn collect(prefix: &str, table: &DeTable<'_>, content: &str, entries: &mut Vec<Entry>) {
    for (name, value) in table {
        let key = match prefix {
            "" => name.get_ref().to_string(),
            prefix => format!("{prefix}.{}", name.get_ref()),
        };
        let line = line_of(content, name.span().start);
        match value.get_ref() {
            DeValue::Table(inner) if super::setting(&key).is_none() && !inner.is_empty() => {
                collect(&key, inner, content, entries);
            }
            DeValue::Table(inner) if inner.is_empty() && is_section(&key) => {}
            value => entries.push(Entry { key, text: text_of(value), line }),
        }
    }
}

pub(crate) fn is_section(key: &str) -> bool {
    super::SECTIONS.iter().any(|(name, _)| *name == key)
}

/// A value as the text that the settings' kinds read; lists are joined by commas.
pub(crate) fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let value = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(value.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(on) => Some(on.to_string()),
        DeValue::Array(list) => {
            let parts: Option<Vec<String>> =
                list.iter().map(|one| text_of(one.get_ref())).collect();
            Some(parts?.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

fn line_of(content: &str, offset: usize) -> usize {
    let before = &content.as_bytes()[..offset.min(content.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_with_their_lines() {
        let content = "shards = 0x10\n\n[limits]\nframe_max = \"64KiB\"\n[tls]\nlisten = [\"1.1.1.1:1\", '2.2.2.2:2']\n";
        let entries = entries("f", content).unwrap();
        let seen: Vec<(&str, Option<&str>, usize)> = entries
            .iter()
            .map(|entry| (entry.key.as_str(), entry.text.as_deref(), entry.line))
            .collect();
        assert_eq!(
            seen,
            [
                ("shards", Some("16"), 1),
                ("limits.frame_max", Some("64KiB"), 4),
                ("tls.listen", Some("1.1.1.1:1,2.2.2.2:2"), 6),
            ]
        );
    }

    #[test]
    fn what_is_not_toml_names_its_line() {
        let error = entries("x.toml", "shards = 2\nlisten = = 3\n").unwrap_err();
        assert!(error.to_string().starts_with("x.toml:2: not valid TOML"), "{error}");
    }
}
