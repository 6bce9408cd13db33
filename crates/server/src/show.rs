//! Answers of the broker as text for people, or as JSON for programs.

use serde_json::{Map, Value};

/// Characters of a field table that a cell shows.
const FIELDS_CHARS_MAX: usize = 120;

/// Columns under their names for a table, lines of `key value` for an object.
#[must_use]
pub fn text(answer: &Value) -> String {
    if let (Some(columns), Some(rows)) = (answer["columns"].as_array(), answer["rows"].as_array()) {
        return table(columns, rows);
    }
    match answer {
        Value::Null => String::new(),
        Value::Object(object) => {
            let width = object.keys().map(|key| key.chars().count()).max();
            let width = width.unwrap_or(0);
            let lines =
                object.iter().map(|(key, value)| format!("{key:width$}  {}\n", cell(value)));
            lines.collect()
        }
        other => format!("{}\n", cell(other)),
    }
}

/// A table as an array of objects, anything else as it is.
#[must_use]
pub fn json(answer: &Value) -> String {
    let (Some(columns), Some(rows)) = (answer["columns"].as_array(), answer["rows"].as_array())
    else {
        return format!("{answer:#}\n");
    };
    let object = |row: &Value| {
        let names = columns.iter().map(|name| name.as_str().unwrap_or(""));
        let values = row.as_array().into_iter().flatten();
        let pairs = names.zip(values);
        let object: Map<String, Value> =
            pairs.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        Value::Object(object)
    };
    let objects: Vec<Value> = rows.iter().map(object).collect();
    format!("{:#}\n", Value::Array(objects))
}

fn table(columns: &[Value], rows: &[Value]) -> String {
    let lines: Vec<Vec<String>> = std::iter::once(columns)
        .chain(rows.iter().filter_map(Value::as_array).map(Vec::as_slice))
        .map(|row| row.iter().map(|value| fields(value).unwrap_or_else(|| cell(value))).collect())
        .collect();
    let mut widths = vec![0; columns.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let padded: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        out.push_str(padded.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// The cell of a field table: its names and values, of many the first.
fn fields(value: &Value) -> Option<String> {
    let each = |(name, value): (&String, &Value)| format!("{}: {}", escaped(name), cell(value));
    let text = value.as_object()?.iter().map(each).collect::<Vec<_>>().join(", ");
    Some(match text.char_indices().nth(FIELDS_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    })
}

/// One value without quotes; control characters are escaped, so that a name cannot drive a terminal.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(list) if list.iter().all(|one| !one.is_object() && !one.is_array()) => {
            list.iter().map(cell).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    escaped(&text)
}

fn escaped(text: &str) -> String {
    match text.chars().any(char::is_control) {
        true => text.escape_debug().to_string(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_is_aligned_and_safe() {
        let answer = json!({"columns": ["name", "n"], "rows": [["a\u{1b}[1m", 1], ["longer", 20]]});
        assert_eq!(text(&answer), "name        n\na\\u{1b}[1m  1\nlonger      20\n");
        let parsed: Value = serde_json::from_str(&json(&answer)).unwrap();
        assert_eq!(parsed[1], json!({"name": "longer", "n": 20}));
    }

    #[test]
    fn a_field_table_in_a_cell_is_short_and_nothing_where_it_is_empty() {
        let arguments = json!({"x-filter": "a = 1", "x-n\u{1b}": 5});
        let long = json!({"x-filter": "x".repeat(1_000)});
        let rows = json!([["a", {}], ["b", arguments], ["c", long]]);
        let answer = json!({"columns": ["key", "arguments"], "rows": rows});
        let shown = text(&answer);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..3], ["key  arguments", "a", "b    x-filter: a = 1, x-n\\u{1b}: 5"]);
        assert_eq!(lines[3], format!("c    x-filter: {}…", "x".repeat(FIELDS_CHARS_MAX - 10)));
        let whole: Value = serde_json::from_str(&json(&answer)).unwrap();
        assert_eq!((&whole[0]["arguments"], &whole[2]["arguments"]), (&json!({}), &long));
    }

    #[test]
    fn an_object_is_lines() {
        assert_eq!(text(&json!({"a": 1, "long": ["x", "y"]})), "a     1\nlong  x, y\n");
        assert_eq!(text(&Value::Null), "");
    }
}
