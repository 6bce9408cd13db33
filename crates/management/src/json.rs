//! JSON whose size in memory is bounded: a value of a few bytes takes hundreds there, so that a bound of the text says little.

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// Values that one may have in it, itself, lists and objects included. As many take 13 MB at most, beside their texts.
pub const VALUES_MAX: usize = 20_000;

/// A value that has [`VALUES_MAX`] values in it at most; reading others fails before they are there.
#[derive(Debug, Default)]
pub struct Bounded(pub Value);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bounded, D::Error> {
        Reader(&Cell::new(VALUES_MAX)).deserialize(from).map(Bounded)
    }
}

/// Reads a text.
///
/// # Errors
/// For what is no JSON; an error of data (`is_data`) for more than [`VALUES_MAX`] values.
pub fn read(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|Bounded(value)| value)
}

/// Reads a value while there are some left.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let Some(left) = self.0.get().checked_sub(1) else {
            return Err(D::Error::custom(format!("more than {VALUES_MAX} values in one")));
        };
        self.0.set(left);
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Value, S::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Value, M::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_stands_there() {
        for text in [
            "null",
            r#"{"a": [1, -2, 2.5, true, null, "t\n", {"b": {}}, []], "a2": 18446744073709551615}"#,
            r#"{"a": 1, "a": 2}"#,
            "1e300",
        ] {
            assert_eq!(
                read(text.as_bytes()).unwrap(),
                serde_json::from_str::<Value>(text).unwrap()
            );
        }
        for broken in ["", "{", "[1,]", "1 2", "{1: 2}"] {
            assert!(!read(broken.as_bytes()).unwrap_err().is_data(), "{broken}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(deep.as_bytes()).is_err());
    }

    #[test]
    fn values_are_counted_wherever_they_stand() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(read(list(VALUES_MAX - 1).as_bytes()).is_ok());
        let objects = format!("[{}0]", "{\"\":0},".repeat(VALUES_MAX / 2));
        for text in [list(VALUES_MAX), objects, format!("{{\"a\":[{}]}}", list(VALUES_MAX))] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.is_data() && error.to_string().contains("more than 20000"), "{error}");
        }
    }
}
