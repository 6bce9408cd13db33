//! Forms in which exporters write one thing, read to one value.

use crate::json::Bounded;
use lepus_amqp::table::{DEPTH_MAX, Table, Value as AmqpValue};
use lepus_broker::directory::HashingAlgorithm;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// An object. By itself `serde` takes a list of its values as well.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// An object; `null` and `[]`, as some exporters write an empty one, have nothing in them.
#[derive(Debug, Default)]
pub struct MaybeEmpty<T>(pub T);

impl<'de, T: Default + Deserialize<'de>> Deserialize<'de> for MaybeEmpty<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<MaybeEmpty<T>, D::Error> {
        from.deserialize_any(MaybeEmptyVisitor(PhantomData)).map(MaybeEmpty)
    }
}

struct MaybeEmptyVisitor<T>(PhantomData<T>);

impl<'de, T: Default + Deserialize<'de>> Visitor<'de> for MaybeEmptyVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<T, S::Error> {
        match items.next_element::<IgnoredAny>()? {
            None => Ok(T::default()),
            Some(_) => Err(Error::custom("a list with something in it, expected an object")),
        }
    }
}

/// Objects in a list; a missing one and `null` are empty.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let items = Option::<Vec<Object<T>>>::deserialize(from)?.unwrap_or_default();
    Ok(items.into_iter().map(|Object(item)| item).collect())
}

/// The way in which a password is hashed.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm(pub HashingAlgorithm);

impl<'de> Deserialize<'de> for Algorithm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Algorithm, D::Error> {
        let name = String::deserialize(from)?;
        let known = HashingAlgorithm::from_name(&name).map(Algorithm);
        known.ok_or_else(|| {
            Error::custom(format!(
                "{name:?} is not known; there are rabbit_password_hashing_sha256, \
                 rabbit_password_hashing_sha512 and rabbit_password_hashing_md5"
            ))
        })
    }
}

/// Words: a list of texts, or one text with commas.
#[derive(Debug, Default)]
pub struct Words(pub Vec<Box<str>>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Words, D::Error> {
        let word = |text: &str| Box::from(text.trim());
        let words = match Bounded::deserialize(from)?.0 {
            Value::Null => Ok(Vec::new()),
            Value::String(text) => {
                Ok(text.split(',').filter(|part| !part.trim().is_empty()).map(word).collect())
            }
            Value::Array(items) => {
                let words = items.iter().map(|item| item.as_str().map(word).ok_or(item));
                words
                    .collect::<Result<_, _>>()
                    .map_err(|item| format!("found {} in the list", found(item)))
            }
            other => Err(format!("found {}", found(&other))),
        };
        words.map(Words).map_err(|found| {
            Error::custom(format!(
                "{found}, expected a list of texts, or one text with commas between the words"
            ))
        })
    }
}

/// Arguments; `null` and `[]` (as some exporters write it) are empty.
#[derive(Debug, Default)]
pub struct Arguments(pub Table);

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Arguments, D::Error> {
        table_of(Bounded::deserialize(from)?.0).map(Arguments).map_err(Error::custom)
    }
}

/// An object as a table; `null` and an empty list are empty ones.
pub fn table_of(value: Value) -> Result<Table, String> {
    match value {
        Value::Null => Ok(Table::new()),
        Value::Array(items) if items.is_empty() => Ok(Table::new()),
        Value::Object(fields) => table(fields, 1),
        other => Err(format!("found {}, expected an object", found(&other))),
    }
}

/// What a value is, as it stands behind "found".
fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(_) => "a text".to_owned(),
        // Nothing in these is long.
        other => other.to_string(),
    }
}

fn table(fields: serde_json::Map<String, Value>, depth: usize) -> Result<Table, String> {
    if depth > DEPTH_MAX {
        return Err(format!("nested deeper than {DEPTH_MAX} levels"));
    }
    let mut table = Table::new();
    for (name, value) in fields {
        if name.len() > 255 {
            return Err(format!("a name is longer than 255 bytes: {name}"));
        }
        let value = amqp(value, depth).map_err(|text| format!("{name}: {text}"))?;
        table.insert(name.as_str(), value);
    }
    Ok(table)
}

/// Whole numbers become 64-bit integers, others doubles.
fn amqp(value: Value, depth: usize) -> Result<AmqpValue, String> {
    Ok(match value {
        Value::Null => AmqpValue::Void,
        Value::Bool(on) => AmqpValue::Bool(on),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => AmqpValue::I64(number),
            (None, Some(number), _) => AmqpValue::U64(number),
            (None, None, Some(number)) => AmqpValue::F64(number),
            (None, None, None) => return Err("a number out of range".to_owned()),
        },
        Value::String(text) => AmqpValue::LongString(text.into_bytes()),
        Value::Array(_) if depth >= DEPTH_MAX => {
            return Err(format!("nested deeper than {DEPTH_MAX} levels"));
        }
        Value::Array(items) => {
            let values: Result<_, String> =
                items.into_iter().map(|value| amqp(value, depth + 1)).collect();
            AmqpValue::Array(values?)
        }
        Value::Object(fields) => AmqpValue::Table(table(fields, depth + 1)?),
    })
}
