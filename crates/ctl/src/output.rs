//! What a command gives back, and how each `--formatter` writes it.

use crate::term::{Term, safe};
use serde_json::{Value, json};

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formatter {
    /// Rows joined by TABs; the default.
    Table,
    /// JSON.
    Json,
    /// Comma-separated, every field in quotes.
    Csv,
    /// A drawn table.
    Pretty,
    /// Erlang terms.
    Erlang,
}

impl Formatter {
    /// The one of that name.
    #[must_use]
    pub fn of(name: &str) -> Option<Formatter> {
        match name {
            "table" | "plain" | "string" | "string_per_line" | "report" | "inspect" => {
                Some(Formatter::Table)
            }
            "json" | "json_stream" => Some(Formatter::Json),
            "csv" => Some(Formatter::Csv),
            "pretty_table" => Some(Formatter::Pretty),
            "erlang" => Some(Formatter::Erlang),
            _ => None,
        }
    }

    /// Whether a banner would spoil the result for the program that reads it.
    #[must_use]
    pub fn is_for_programs(self) -> bool {
        matches!(self, Formatter::Json | Formatter::Csv)
    }
}

/// What a command that went well has to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Nothing.
    Nothing,
    /// A sentence for people, which `--quiet` keeps back.
    Note(String),
    /// A result in words.
    Text(String),
    /// A text that is printed as it is, also where JSON is asked for.
    Raw(String),
    /// Rows under names of columns.
    Rows(Rows),
    /// One thing: as JSON, and in words.
    Object(Value, String),
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, each as wide as `columns`.
    pub rows: Vec<Vec<Term>>,
    /// No header line is printed at any time.
    pub is_bare: bool,
    /// A line end is printed where there are no rows.
    pub ends_empty: bool,
}

/// The text of a result. `headers` asks for the header line.
#[must_use]
pub fn write(
    output: &Output,
    formatter: Formatter,
    headers: bool,
    quiet: bool,
    node: &str,
) -> String {
    match output {
        Output::Nothing => match formatter {
            Formatter::Json => format!("{}\n", json!({"node": node, "result": "ok"})),
            _ => String::new(),
        },
        Output::Note(text) if formatter == Formatter::Json => {
            format!("{}\n", json!({"message": text, "node": node, "status": "ok"}))
        }
        Output::Note(_) if quiet || formatter == Formatter::Csv => String::new(),
        Output::Note(text) | Output::Text(text) => match formatter {
            Formatter::Json => format!("{}\n", json!({ "message": text })),
            _ => format!("{}\n", safe(text)),
        },
        Output::Raw(text) => text.clone(),
        Output::Rows(rows) => match formatter {
            Formatter::Table => table(rows, headers),
            Formatter::Json => json_rows(rows),
            Formatter::Csv => csv(rows, headers),
            Formatter::Pretty => pretty(rows),
            Formatter::Erlang => erlang(rows),
        },
        Output::Object(value, text) => match formatter {
            Formatter::Json => format!("{value}\n"),
            _ => format!("{}\n", with_bold(text)),
        },
    }
}

/// Control characters go, but for the two sequences that make headings bold.
fn with_bold(text: &str) -> String {
    let parts = text.split("\u{1b}[1m").map(|part| {
        let parts = part.split("\u{1b}[0m").map(safe);
        parts.collect::<Vec<_>>().join("\u{1b}[0m")
    });
    parts.collect::<Vec<_>>().join("\u{1b}[1m")
}

/// A heading, as on a terminal.
#[must_use]
pub fn bold(text: &str) -> String {
    format!("\u{1b}[1m{text}\u{1b}[0m")
}

fn table(rows: &Rows, headers: bool) -> String {
    let mut text = String::new();
    if rows.rows.is_empty() {
        if rows.ends_empty {
            text.push('\n');
        }
        return text;
    }
    if headers && !rows.is_bare {
        text.push_str(&rows.columns.join("\t"));
        text.push('\n');
    }
    for row in &rows.rows {
        let fields: Vec<String> = row.iter().map(Term::field).collect();
        text.push_str(&fields.join("\t"));
        text.push('\n');
    }
    text
}

fn json_rows(rows: &Rows) -> String {
    let mut text = String::from("[\n");
    for (index, row) in rows.rows.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let fields: Vec<String> = rows
            .columns
            .iter()
            .zip(row)
            .map(|(column, term)| format!("{}:{}", Value::from(column.as_str()), term.json()))
            .collect();
        text.push_str(&format!("{{{}}}\n", fields.join(",")));
    }
    text.push_str("]\n");
    text
}

fn csv(rows: &Rows, headers: bool) -> String {
    let quoted = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
    let mut text = String::new();
    if rows.rows.is_empty() {
        return text;
    }
    if headers {
        let names: Vec<String> = rows.columns.iter().map(|name| quoted(name)).collect();
        text.push_str(&names.join(","));
        text.push('\n');
    }
    for row in &rows.rows {
        let fields: Vec<String> = row.iter().map(|term| quoted(&term.field())).collect();
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

fn erlang(rows: &Rows) -> String {
    let row = |row: &Vec<Term>| {
        let fields: Vec<String> = rows
            .columns
            .iter()
            .zip(row)
            .map(|(column, term)| {
                format!("{{{},{}}}", Term::Atom(column.clone()).erlang(), term.erlang())
            })
            .collect();
        format!("[{}]", fields.join(","))
    };
    let rows: Vec<String> = rows.rows.iter().map(row).collect();
    format!("[{}]\n", rows.join(",\n "))
}

/// Lines drawn with the terminal's second alphabet, as the original draws them.
fn pretty(rows: &Rows) -> String {
    if rows.rows.is_empty() {
        return String::new();
    }
    let cells: Vec<Vec<String>> =
        rows.rows.iter().map(|row| row.iter().map(Term::cell).collect()).collect();
    let width = |column: usize| {
        let widest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        widest.max(rows.columns[column].chars().count())
    };
    let widths: Vec<usize> = (0..rows.columns.len()).map(width).collect();
    let line = |left: char, middle: char, right: char| {
        let bars: Vec<String> = widths.iter().map(|width| "q".repeat(width + 2)).collect();
        format!("\u{1b}(0{left}{}{right}\u{1b}(B\n", bars.join(&middle.to_string()))
    };
    let bar = "\u{1b}(0x\u{1b}(B";
    let written = |fields: &[String], is_head: bool| {
        let mut text = String::from(bar);
        for (field, width) in fields.iter().zip(&widths) {
            let rest = " ".repeat(width.saturating_sub(field.chars().count()));
            let field = if is_head { bold(field) } else { field.clone() };
            text.push_str(&format!(" {field}{rest} {bar}"));
        }
        text.push('\n');
        text
    };
    let mut text = line('l', 'w', 'k');
    text.push_str(&written(&rows.columns, true));
    for row in &cells {
        text.push_str(&line('t', 'n', 'u'));
        text.push_str(&written(row, false));
    }
    text.push_str(&line('m', 'v', 'j'));
    text
}
