//! Bodies of requests, as scripts send them: numbers and booleans may be texts, `null` is as good as nothing.

use super::failure::Failure;
use crate::{definitions, json};
use lepus_amqp::table::Table;
use serde_json::{Map, Value};

/// RabbitMQ's word, and what is wrong.
fn not_json(what: &str) -> Failure {
    Failure::bad_request(format!("not_json: {what}"))
}

/// The fields of a body.
#[derive(Debug, Default)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body; an empty one and `null` have no fields.
    ///
    /// # Errors
    /// 400 for what is no JSON object, or has more than [`json::VALUES_MAX`] values in it.
    pub(crate) fn read(body: &[u8]) -> Result<Fields, Failure> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Fields::default());
        }
        match json::read(body) {
            Ok(Value::Null) => Ok(Fields::default()),
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(Value::String(text)) if text.trim_start().starts_with('{') => {
                Err(not_json("the body is a JSON text that holds JSON: send the object itself"))
            }
            Ok(_) => Err(not_json("the body is to be a JSON object")),
            Err(error) if error.is_data() => Err(not_json(&format!("the body has {error}"))),
            Err(error) => Err(not_json(&format!("the body is no JSON: {error}"))),
        }
    }

    /// The fields of an object; anything else has none.
    pub(crate) fn of(value: &Value) -> Fields {
        Fields(value.as_object().cloned().unwrap_or_default())
    }

    /// The value of a field that is there and not `null`.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The value of a field that is there, also `null`.
    pub(crate) fn as_sent(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The value of a field that is there and not `null`.
    ///
    /// # Errors
    /// 400 where it is missing.
    pub(crate) fn require(&self, key: &str) -> Result<&Value, Failure> {
        self.get(key).ok_or_else(|| Failure::key_missing(key))
    }

    /// A text; a number is one, too.
    ///
    /// # Errors
    /// 400 for anything else.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, Failure> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(Failure::bad_request(format!("{key} is to be a text"))),
        }
    }

    /// The same.
    ///
    /// # Errors
    /// 400 where it is missing, too.
    pub(crate) fn required_text(&self, key: &str) -> Result<String, Failure> {
        self.text(key)?.ok_or_else(|| Failure::key_missing(key))
    }

    /// True or false, also as a text; `default` where it is missing.
    ///
    /// # Errors
    /// 400 for anything else.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, Failure> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(is_on)) => Ok(*is_on),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(_) => Err(Failure::bad_request(format!("{key} is to be true or false"))),
        }
    }

    /// A whole number, also as a text.
    ///
    /// # Errors
    /// 400 for anything else.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, Failure> {
        let wrong = || Failure::bad_request(format!("{key} is to be a whole number"));
        match self.get(key) {
            None => Ok(None),
            Some(Value::Number(number)) => number.as_i64().ok_or_else(wrong).map(Some),
            Some(Value::String(text)) => text.parse().map_err(|_| wrong()).map(Some),
            Some(_) => Err(wrong()),
        }
    }

    /// Arguments, or anything else that is a table in AMQP; an empty list is an empty one.
    ///
    /// # Errors
    /// 400 for what is no object, and for what no table can hold.
    pub(crate) fn table(&self, key: &str) -> Result<Table, Failure> {
        match self.get(key) {
            None => Ok(Table::new()),
            Some(value) => definitions::table_of(value.clone())
                .map_err(|text| Failure::bad_request(format!("{key}: {text}"))),
        }
    }

    /// Words: a list of texts, or one text with commas.
    ///
    /// # Errors
    /// 400 for anything else.
    pub(crate) fn words(&self, key: &str) -> Result<Option<Vec<Box<str>>>, Failure> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let words = match value {
            Value::String(text) => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                Some(words.map(Box::from).collect())
            }
            Value::Array(items) => items.iter().map(|item| item.as_str().map(Box::from)).collect(),
            _ => None,
        };
        let wrong = || {
            let text = format!("{key} is to be a list of texts, or one text with commas");
            Failure::bad_request(text)
        };
        words.ok_or_else(wrong).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_for_numbers_and_booleans() {
        let body = br#"{"durable":"true","count":"12","n":3,"x":null,"odd":"maybe"}"#;
        let fields = Fields::read(body).unwrap();
        assert_eq!(fields.flag("durable", false), Ok(true));
        assert_eq!(fields.flag("x", true), Ok(true));
        assert_eq!((fields.integer("count"), fields.integer("n")), (Ok(Some(12)), Ok(Some(3))));
        assert_eq!(fields.flag("odd", false).unwrap_err().status, 400);
        assert_eq!(fields.integer("odd").unwrap_err().status, 400);
        assert_eq!(fields.required_text("x").unwrap_err().reason, "[{key_missing,x}]");
    }

    /// Each of the small ones would take hundreds of bytes.
    #[test]
    fn a_body_of_very_many_values_is_refused() {
        let body = format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(2_900_000));
        let failure = Fields::read(body.as_bytes()).unwrap_err();
        assert_eq!(failure.status, 400);
        let told = "not_json: the body has more than 20000 values in one";
        assert!(failure.reason.starts_with(told), "{}", failure.reason);
    }

    #[test]
    fn nothing_is_an_empty_object() {
        for body in [&b""[..], b"  ", b"null", b"{}"] {
            assert!(Fields::read(body).unwrap().get("x").is_none());
        }
        for body in [&b"[]"[..], b"1", b"{", b"\"{}\""] {
            assert!(Fields::read(body).unwrap_err().reason.starts_with("not_json"));
        }
    }
}
