//! How `rabbitmqadmin` writes lists.

use crate::term::safe;
use serde_json::Value;

/// Columns that stand before the others.
const FIRST: [&str; 7] =
    ["vhost", "name", "type", "source", "destination", "destination_type", "routing_key"];

/// A table: names of columns, and rows of fields.
pub struct Table {
    /// The names.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Of the things in a list; all their columns down to a depth when none are named.
    #[must_use]
    pub fn of(items: &[Value], columns: &[String], json: &[&str], depth: usize) -> Table {
        let depth = if columns.is_empty() { depth } else { usize::MAX };
        let rows: Vec<Vec<(String, String)>> = items
            .iter()
            .map(|item| {
                let mut fields = Vec::new();
                flatten("", 1, item, json, depth, &mut fields);
                fields
            })
            .collect();
        let mut names = columns.to_vec();
        if columns.is_empty() {
            names = rows.iter().flatten().map(|(name, _)| name.clone()).collect();
            names.sort_by_key(|name| {
                let place = FIRST.iter().position(|first| first == name);
                (place.unwrap_or(FIRST.len()), name.clone())
            });
            names.dedup();
        }
        let field = |row: &[(String, String)], name: &String| {
            let found = row.iter().rfind(|(known, _)| known == name);
            found.map_or_else(String::new, |(_, value)| value.clone())
        };
        let rows = rows.iter().map(|row| names.iter().map(|name| field(row, name)).collect());
        Table { rows: rows.collect(), columns: names }
    }
}

/// Adds the fields of an object, those of inner ones under joined names.
fn flatten(
    prefix: &str,
    depth: usize,
    item: &Value,
    json: &[&str],
    depth_max: usize,
    fields: &mut Vec<(String, String)>,
) {
    let Some(object) = item.as_object() else { return };
    for (key, value) in object {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Object(_) if json.contains(&key.as_str()) => {
                fields.push((name, spaced(value)));
            }
            Value::Object(_) if depth < depth_max => {
                flatten(&name, depth + 1, value, json, depth_max, fields);
            }
            Value::Object(_) => {}
            Value::Array(items) if items.iter().all(Value::is_string) => {
                let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                fields.push((name, safe_field(&words.join(" "))));
            }
            Value::Array(_) => fields.push((name, spaced(value))),
            Value::String(text) => fields.push((name, safe_field(text))),
            Value::Bool(true) => fields.push((name, "True".to_owned())),
            Value::Bool(false) => fields.push((name, "False".to_owned())),
            Value::Null => fields.push((name, String::new())),
            Value::Number(number) => fields.push((name, number.to_string())),
        }
    }
}

/// A field stays on its line.
fn safe_field(text: &str) -> String {
    safe(text).replace('\n', "\\012").replace('\t', "\\011")
}

/// JSON with spaces behind commas and colons.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), spaced(value))
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => safe_field(&other.to_string()),
    }
}

/// The text of a table in a format; none when nobody knows the format.
#[must_use]
pub fn written(table: &Table, format: &str, is_quiet: bool) -> Option<String> {
    match format {
        "table" => Some(drawn(table)),
        "tsv" => {
            let mut lines = Vec::new();
            if !is_quiet {
                lines.push(table.columns.join("\t"));
            }
            lines.extend(table.rows.iter().map(|row| row.join("\t")));
            Some(lines_of(&lines))
        }
        "kvp" => {
            let line = |row: &Vec<String>| {
                let pair = |(name, value): (&String, &String)| format!("{name}=\"{value}\"");
                table.columns.iter().zip(row).map(pair).collect::<Vec<_>>().join(" ")
            };
            Some(lines_of(&table.rows.iter().map(line).collect::<Vec<_>>()))
        }
        "bash" => {
            let Some(place) = table.columns.iter().position(|name| name == "name") else {
                return Some(String::new());
            };
            let names: Vec<&str> = table.rows.iter().map(|row| row[place].as_str()).collect();
            Some(format!("{}\n", names.join(" ")))
        }
        "long" => {
            let line = format!("\n{}\n", "-".repeat(80));
            let width = table.columns.iter().map(|name| name.chars().count()).max().unwrap_or(0);
            let mut lines = vec![line.clone()];
            for row in &table.rows {
                let pair = |(name, value): (&String, &String)| format!("{name:>width$}: {value}");
                lines.extend(table.columns.iter().zip(row).map(pair));
                lines.push(line.clone());
            }
            Some(lines_of(&lines))
        }
        _ => None,
    }
}

fn lines_of(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn drawn(table: &Table) -> String {
    let all = std::iter::once(&table.columns).chain(&table.rows);
    let mut widths = vec![0; table.columns.len()];
    for row in all {
        for (width, field) in widths.iter_mut().zip(row) {
            *width = field.chars().count().max(*width);
        }
    }
    let bar: String = widths.iter().map(|width| format!("{}+", "-".repeat(width + 2))).collect();
    let bar = format!("+{bar}\n");
    let line = |row: &[String], is_head: bool| {
        let fields = row.iter().zip(&widths).map(|(field, width)| match is_head {
            true => format!(" {field:^width$} |"),
            false => format!(" {field:<width$} |"),
        });
        format!("|{}\n", fields.collect::<String>())
    };
    let rows: String = table.rows.iter().map(|row| line(row, false)).collect();
    format!("{bar}{}{bar}{rows}{bar}", line(&table.columns, true))
}
