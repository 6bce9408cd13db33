//! Values of a JSON document that know where they stand.

use super::DefinitionsError;
use lepus_amqp::table::{DEPTH_MAX, Table, Value as AmqpValue};
use serde_json::Value;

/// A value and the way to it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    value: &'a Value,
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Item(&'a str, usize),
}

impl<'a> Place<'a> {
    /// The whole document.
    pub fn root(value: &'a Value) -> Place<'a> {
        Place { value, parent: None, step: Step::Root }
    }

    /// The value.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// The way from the document's root: `queues[3].arguments`.
    pub fn path(&self) -> String {
        let mut path = self.parent.map_or(String::new(), Place::path);
        match self.step {
            Step::Root => {}
            Step::Key(key) | Step::Item(key, _) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
        }
        if let Step::Item(_, index) = self.step {
            path.push_str(&format!("[{index}]"));
        }
        path
    }

    /// An error at this place.
    pub fn wrong(&self, text: impl Into<String>) -> DefinitionsError {
        DefinitionsError { path: self.path(), text: text.into() }
    }

    /// The value of a key; a missing one and `null` give `None`.
    pub fn get(&'a self, key: &'a str) -> Option<Place<'a>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(Place { value, parent: Some(self), step: Step::Key(key) })
    }

    /// The items of a list, all of them objects; a missing list is empty.
    pub fn list(
        &'a self,
        key: &'a str,
    ) -> Result<impl Iterator<Item = Place<'a>>, DefinitionsError> {
        let items: &[Value] = match self.get(key) {
            None => &[],
            Some(place) => match place.value {
                Value::Array(items) => items,
                other => return Err(place.expected("a list", other)),
            },
        };
        for (index, item) in items.iter().enumerate() {
            if !item.is_object() {
                return Err(self.item(key, index, item).expected("an object", item));
            }
        }
        let place = move |(index, item)| self.item(key, index, item);
        Ok(items.iter().enumerate().map(place))
    }

    fn item(&'a self, key: &'a str, index: usize, value: &'a Value) -> Place<'a> {
        Place { value, parent: Some(self), step: Step::Item(key, index) }
    }

    fn expected(&self, what: &str, found: &Value) -> DefinitionsError {
        let found = match found {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.wrong(format!("expected {what}, found {found}"))
    }

    /// The text of a key that must be there.
    pub fn text(&'a self, key: &'a str) -> Result<&'a str, DefinitionsError> {
        match self.get(key) {
            Some(place) => place.as_text(),
            None => Err(self.wrong(format!("{key} is missing"))),
        }
    }

    /// The text of a key, or `default` where it is missing.
    pub fn text_or(&'a self, key: &'a str, default: &'a str) -> Result<&'a str, DefinitionsError> {
        self.get(key).map_or(Ok(default), |place| place.as_text())
    }

    /// This value as text.
    pub fn as_text(&self) -> Result<&'a str, DefinitionsError> {
        let text = self.value.as_str();
        text.ok_or_else(|| self.expected("text", self.value))
    }

    /// The truth of a key, or `default` where it is missing.
    pub fn switch(&self, key: &str, default: bool) -> Result<bool, DefinitionsError> {
        self.get(key).map_or(Ok(default), |place| {
            let on = place.value.as_bool();
            on.ok_or_else(|| place.expected("true or false", place.value))
        })
    }

    /// Words of a key: a list of texts, or one text with commas.
    pub fn words(&self, key: &str) -> Result<Vec<Box<str>>, DefinitionsError> {
        let Some(place) = self.get(key) else {
            return Ok(Vec::new());
        };
        let word = |text: &str| Box::from(text.trim());
        match place.value {
            Value::String(text) => {
                Ok(text.split(',').filter(|part| !part.trim().is_empty()).map(word).collect())
            }
            Value::Array(items) => {
                let texts = items.iter().map(|item| item.as_str().map(word));
                let texts: Option<Vec<Box<str>>> = texts.collect();
                texts.ok_or_else(|| place.wrong("expected a list of texts"))
            }
            other => Err(place.expected("a list of texts", other)),
        }
    }

    /// The AMQP table of a key; a missing one, `{}` and `[]` (as some exporters write it) are empty.
    pub fn table(&self, key: &str) -> Result<Table, DefinitionsError> {
        match self.get(key) {
            None => Ok(Table::new()),
            Some(place) if place.value.as_array().is_some_and(Vec::is_empty) => Ok(Table::new()),
            Some(place) => place.as_table(1),
        }
    }

    fn as_table(&self, depth: usize) -> Result<Table, DefinitionsError> {
        let Value::Object(fields) = self.value else {
            return Err(self.expected("an object", self.value));
        };
        if depth > DEPTH_MAX {
            return Err(self.wrong(format!("nested deeper than {DEPTH_MAX} levels")));
        }
        let mut table = Table::new();
        for (name, value) in fields {
            let place = Place { value, parent: Some(self), step: Step::Key(name) };
            if name.len() > 255 {
                return Err(place.wrong("the name is longer than 255 bytes"));
            }
            table.insert(name.as_str(), place.as_amqp(depth)?);
        }
        Ok(table)
    }

    /// Whole numbers become 64-bit integers, others doubles.
    fn as_amqp(&self, depth: usize) -> Result<AmqpValue, DefinitionsError> {
        Ok(match self.value {
            Value::Null => AmqpValue::Void,
            Value::Bool(on) => AmqpValue::Bool(*on),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(number), _, _) => AmqpValue::I64(number),
                (None, Some(number), _) => AmqpValue::U64(number),
                (None, None, Some(number)) => AmqpValue::F64(number),
                (None, None, None) => return Err(self.wrong("a number out of range")),
            },
            Value::String(text) => AmqpValue::LongString(text.as_bytes().to_vec()),
            Value::Array(items) => {
                if depth >= DEPTH_MAX {
                    return Err(self.wrong(format!("nested deeper than {DEPTH_MAX} levels")));
                }
                let mut values = Vec::with_capacity(items.len());
                for (index, value) in items.iter().enumerate() {
                    let place = Place { value, parent: Some(self), step: Step::Item("", index) };
                    values.push(place.as_amqp(depth + 1)?);
                }
                AmqpValue::Array(values)
            }
            Value::Object(_) => AmqpValue::Table(self.as_table(depth + 1)?),
        })
    }
}
