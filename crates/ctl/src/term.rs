//! One value of a table, and the forms in which it is written.

use serde_json::{Map, Value};

/// A value as the commands mean it: the same JSON is written in other ways depending on what it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// Nothing is known: an empty field.
    Nothing,
    /// A word or a text.
    Text(String),
    /// A number or truth value.
    Plain(Value),
    /// A word that Erlang would not quote, such as `running`.
    Atom(String),
    /// Words in brackets, such as a user's tags.
    Atoms(Vec<String>),
    /// A field table of AMQP.
    Table(Map<String, Value>),
    /// JSON as text, such as a policy's definition.
    Json(Value),
}

impl Term {
    /// Of what came as JSON, when nothing else is known of it.
    #[must_use]
    pub fn of(value: &Value) -> Term {
        match value {
            Value::Null => Term::Nothing,
            Value::String(text) => Term::Text(text.clone()),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                Term::Atoms(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            Value::Object(fields) => Term::Table(fields.clone()),
            Value::Array(_) => Term::Json(value.clone()),
            Value::Bool(_) | Value::Number(_) => Term::Plain(value.clone()),
        }
    }

    /// For a field between TABs or commas.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Term::Nothing => String::new(),
            Term::Text(text) | Term::Atom(text) => escape(text),
            Term::Plain(value) => value.to_string(),
            Term::Atoms(words) => {
                let words: Vec<String> = words.iter().map(|word| escape(word)).collect();
                format!("[{}]", words.join(", "))
            }
            Term::Table(fields) => table_field(fields),
            Term::Json(value) => safe(&value.to_string()),
        }
    }

    /// For `--formatter json`: tables as lists of name, type and value.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Term::Nothing => Value::String(String::new()),
            Term::Text(text) | Term::Atom(text) => Value::String(text.clone()),
            Term::Plain(value) => value.clone(),
            Term::Atoms(words) => words.iter().cloned().collect(),
            Term::Table(fields) => table_json(fields),
            Term::Json(value) => Value::String(value.to_string()),
        }
    }

    /// As an Erlang term.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self {
            Term::Nothing => "''".to_owned(),
            Term::Text(text) => erlang_text(text),
            Term::Plain(value) => value.to_string(),
            Term::Atom(word) => atom(word),
            Term::Atoms(words) => {
                let words: Vec<String> = words.iter().map(|word| atom(word)).collect();
                format!("[{}]", words.join(","))
            }
            Term::Table(fields) => format!("[{}]", erlang_entries(fields).join(",")),
            Term::Json(value) => erlang_text(&value.to_string()),
        }
    }

    /// For a cell of a drawn table, where lists stand without brackets.
    #[must_use]
    pub fn cell(&self) -> String {
        match self {
            Term::Atoms(words) => words.iter().map(|word| escape(word)).collect(),
            Term::Table(fields) => safe(&erlang_entries(fields).concat()),
            other => other.field(),
        }
    }
}

/// The text with control characters as octal numbers, so that it stays one field and moves no cursor.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if letter.is_control() => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    escaped.push_str(&format!("\\{byte:03o}"));
                }
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The text with control characters other than line ends and TABs as octal numbers, for what is printed as it is.
#[must_use]
pub fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => safe.push(letter),
            letter if letter.is_control() => safe.push_str(&escape(&letter.to_string())),
            letter => safe.push(letter),
        }
    }
    safe
}

/// The text in quotes, with what could be taken for their end or for a control character written in letters.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{1b}' => quoted.push_str("\\e"),
            letter if letter.is_control() => {
                quoted.push_str(&format!("\\x{{{:X}}}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn table_field(fields: &Map<String, Value>) -> String {
    let entries: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{{{},{}}}", quoted(name), value_field(value)))
        .collect();
    format!("[{}]", entries.join(","))
}

fn value_field(value: &Value) -> String {
    match value {
        Value::Null => "undefined".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(value_field).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => table_field(fields),
        other => other.to_string(),
    }
}

/// The type that an argument has in AMQP, as its JSON lets one know.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "void",
        Value::Bool(_) => "bool",
        Value::Number(number) => match number.as_i64() {
            Some(number) if i32::try_from(number).is_ok() => "signedint",
            Some(_) => "long",
            None => "double",
        },
        Value::String(_) => "longstr",
        Value::Array(_) => "array",
        Value::Object(_) => "table",
    }
}

fn table_json(fields: &Map<String, Value>) -> Value {
    let entry = |(name, value): (&String, &Value)| {
        Value::from(vec![Value::from(name.as_str()), type_name(value).into(), value_json(value)])
    };
    fields.iter().map(entry).collect()
}

fn value_json(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let item =
                |value: &Value| Value::from(vec![type_name(value).into(), value_json(value)]);
            items.iter().map(item).collect()
        }
        Value::Object(fields) => table_json(fields),
        other => other.clone(),
    }
}

fn erlang_entries(fields: &Map<String, Value>) -> Vec<String> {
    let entry = |(name, value): (&String, &Value)| {
        format!("{{{},{},{}}}", erlang_text(name), type_name(value), value_erlang(value))
    };
    fields.iter().map(entry).collect()
}

fn value_erlang(value: &Value) -> String {
    match value {
        Value::Null => "undefined".to_owned(),
        Value::String(text) => erlang_text(text),
        Value::Array(items) => {
            let item = |value: &Value| format!("{{{},{}}}", type_name(value), value_erlang(value));
            format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) => format!("[{}]", erlang_entries(fields).join(",")),
        other => other.to_string(),
    }
}

fn erlang_text(text: &str) -> String {
    match text.is_ascii() {
        true => format!("<<{}>>", quoted(text)),
        false => format!("<<{}/utf8>>", quoted(text)),
    }
}

/// An atom, in quotes where Erlang asks for them.
fn atom(word: &str) -> String {
    let is_bare = word.starts_with(|first: char| first.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '@');
    match is_bare {
        true => word.to_owned(),
        false => format!("'{}'", escape(word).replace('\'', "\\'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(value: Value) -> Term {
        Term::of(&value)
    }

    #[test]
    fn arguments_are_lists_of_pairs_or_of_triples() {
        let arguments =
            table(json!({"x-list": ["a", 1, true], "x-max-length": 10, "x-table": {"k": 1}}));
        assert_eq!(
            arguments.field(),
            "[{\"x-list\",[\"a\",1,true]},{\"x-max-length\",10},{\"x-table\",[{\"k\",1}]}]"
        );
        let arguments = table(json!({"x-max-length": 10, "x-overflow": "drop-head"}));
        assert_eq!(
            arguments.json().to_string(),
            r#"[["x-max-length","signedint",10],["x-overflow","longstr","drop-head"]]"#
        );
        assert_eq!(
            arguments.erlang(),
            r#"[{<<"x-max-length">>,signedint,10},{<<"x-overflow">>,longstr,<<"drop-head">>}]"#
        );
        assert_eq!(table(json!({})).field(), "[]");
    }

    #[test]
    fn no_name_breaks_a_row_or_reaches_the_terminal_as_a_command() {
        assert_eq!(Term::Text("a\tb\nc\u{1b}[2J\\".to_owned()).field(), "a\\011b\\012c\\033[2J\\");
        assert_eq!(Term::Text("\u{9b}ü".to_owned()).field(), "\\302\\233ü");
        assert_eq!(safe("a\u{7}\n\tb\\"), "a\\007\n\tb\\");
    }

    #[test]
    fn texts_inside_lists_end_where_their_quotes_do() {
        let arguments = table(json!({"key": "a\"b\\\n\u{7}"}));
        assert_eq!(arguments.field(), r#"[{"key","a\"b\\\n\x{7}"}]"#);
        assert_eq!(Term::Text("a\"b".to_owned()).erlang(), r#"<<"a\"b">>"#);
        assert_eq!(Term::Text("ü".to_owned()).erlang(), "<<\"ü\"/utf8>>");
    }

    #[test]
    fn atoms_are_quoted_where_they_must_be() {
        let tags = Term::Atoms(vec!["administrator".to_owned(), "a b".to_owned()]);
        assert_eq!(tags.field(), "[administrator, a b]");
        assert_eq!(tags.erlang(), "[administrator,'a b']");
        assert_eq!(Term::Atoms(Vec::new()).field(), "[]");
    }
}
