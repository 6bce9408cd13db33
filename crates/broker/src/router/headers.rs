//! Headers exchanges: bindings whose arguments are compared with the message's headers.

use crate::binding::{Bindings, Link, Links, NONE};
use crate::properties::BCC;
use crate::refusal::Refusal;
use alloc::format;
use alloc::string::String;
use core::hash::{BuildHasher, Hasher};
use hashbrown::HashTable;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::PropertiesRef;
use lepus_amqp::table::{Table, TableRef, Value, ValueRef};
use lepus_base::{HashState, Slab};

/// What `x-match` asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mode {
    any: bool,
    /// Names that begin with `x-` are compared too.
    with_x: bool,
}

impl Mode {
    fn parse(text: &[u8]) -> Option<Mode> {
        let (any, with_x) = match text {
            b"all" => (false, false),
            b"any" => (true, false),
            b"all-with-x" => (false, true),
            b"any-with-x" => (true, true),
            _ => return None,
        };
        Some(Mode { any, with_x })
    }

    fn of(arguments: &Table) -> Mode {
        let text = arguments.get("x-match").and_then(Value::as_text);
        text.and_then(|text| Mode::parse(text.as_bytes()))
            .unwrap_or(Mode { any: false, with_x: false })
    }
}

/// Whether `x-match`, if given, is one of the four known words.
///
/// # Errors
/// 406 otherwise.
pub(crate) fn check_arguments(arguments: &Table) -> Result<(), Refusal> {
    let text = match arguments.get("x-match") {
        None => return Ok(()),
        Some(Value::LongString(text)) if Mode::parse(text).is_some() => return Ok(()),
        Some(Value::LongString(text)) => format!(
            "Invalid x-match field value '{}'; expected all, any, all-with-x, or any-with-x",
            String::from_utf8_lossy(text)
        ),
        Some(other) => {
            format!("Invalid x-match field type {}; expected longstr", other.type_name())
        }
    };
    Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text))
}

/// Bindings in lists of those that share a condition.
///
/// A binding that needs all of its conditions stands in the list of one of them, so that a message
/// looks only at the lists of its own headers. The others stand in one list and are all looked at.
#[derive(Debug)]
pub(crate) struct Headers {
    lists: Slab<List>,
    by_condition: HashTable<u32>,
    others: Links,
    state: HashState,
}

#[derive(Debug)]
struct List {
    condition: u64,
    /// Never empty.
    links: Links,
}

impl Headers {
    pub(super) fn new(state: HashState) -> Headers {
        Headers { lists: Slab::new(), by_condition: HashTable::new(), others: Links::EMPTY, state }
    }

    pub(super) fn insert(&mut self, bindings: &mut Bindings, place: u32) {
        let condition = self.rarest_condition(bindings, bindings.get(place).arguments());
        let Some(condition) = condition else {
            bindings.get_mut(place).node = NONE;
            bindings.push_link(&mut self.others, place);
            return;
        };
        let list = self.list_of(condition).unwrap_or_else(|| {
            let list = self.lists.insert(List { condition, links: Links::EMPTY }) as u32;
            let lists = &self.lists;
            let hash = |&list: &u32| lists[list as usize].condition;
            self.by_condition.insert_unique(condition, list, hash);
            list
        });
        bindings.get_mut(place).node = list;
        bindings.push_link(&mut self.lists[list as usize].links, place);
    }

    pub(super) fn remove(&mut self, bindings: &mut Bindings, place: u32) {
        let list = bindings.get(place).node;
        if list == NONE {
            bindings.remove_link(&mut self.others, place);
            return;
        }
        let List { condition, links } = &mut self.lists[list as usize];
        bindings.remove_link(links, place);
        if links.is_empty() {
            let found = self.by_condition.find_entry(*condition, |&other| other == list);
            if let Ok(entry) = found {
                entry.remove();
            }
            self.lists.remove(list as usize);
        }
    }

    /// Emits the bindings that fit the message, some perhaps twice.
    pub(super) fn select(
        &self,
        bindings: &Bindings,
        properties: PropertiesRef<'_>,
        mut emit: impl FnMut(&[Link]),
    ) {
        let headers = properties.headers().unwrap_or_default();
        let mut emit_fitting = |links: &[Link]| {
            for link in links {
                let arguments = bindings.get(link.binding).arguments();
                if fits(arguments, headers) {
                    emit(core::slice::from_ref(link));
                }
            }
        };
        emit_fitting(bindings.links(&self.others));
        if self.lists.is_empty() {
            return;
        }
        for (name, value) in headers.iter() {
            let presence = condition_hash(self.state, name, None);
            let value =
                Hashed::of(value).map(|value| condition_hash(self.state, name, Some(value)));
            for condition in core::iter::once(presence).chain(value) {
                if let Some(list) = self.list_of(condition) {
                    emit_fitting(bindings.links(&self.lists[list as usize].links));
                }
            }
        }
    }

    /// Of the conditions that the binding needs all, the one with the shortest list.
    fn rarest_condition(&self, bindings: &Bindings, arguments: Option<&Table>) -> Option<u64> {
        let arguments = arguments?;
        let mode = Mode::of(arguments);
        if mode.any {
            return None;
        }
        let conditions = compared(arguments, mode)
            .map(|(name, wanted)| condition_hash(self.state, name, Hashed::wanted(wanted)));
        conditions.min_by_key(|condition| match self.list_of(*condition) {
            Some(list) => bindings.links(&self.lists[list as usize].links).len(),
            None => 0,
        })
    }

    fn list_of(&self, condition: u64) -> Option<u32> {
        let is_same = |&list: &u32| self.lists[list as usize].condition == condition;
        self.by_condition.find(condition, is_same).copied()
    }
}

/// A value that conditions are told apart by. Others count by their name alone.
enum Hashed<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> Hashed<'a> {
    fn of(value: ValueRef<'a>) -> Option<Hashed<'a>> {
        match value {
            ValueRef::LongString(bytes) => Some(Hashed::Bytes(bytes)),
            other => other.as_integer().map(Hashed::Integer),
        }
    }

    fn wanted(value: &'a Value) -> Option<Hashed<'a>> {
        match value {
            Value::LongString(bytes) => Some(Hashed::Bytes(bytes)),
            other => other.as_integer().map(Hashed::Integer),
        }
    }
}

fn condition_hash(state: HashState, name: &str, value: Option<Hashed<'_>>) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(name.as_bytes());
    match value {
        None => hasher.write_u8(0),
        Some(Hashed::Bytes(bytes)) => {
            hasher.write_u8(1);
            hasher.write(bytes);
        }
        Some(Hashed::Integer(number)) => {
            hasher.write_u8(2);
            hasher.write_i64(number);
        }
    }
    hasher.finish()
}

/// The arguments that are compared with headers.
fn compared(arguments: &Table, mode: Mode) -> impl Iterator<Item = (&str, &Value)> {
    arguments
        .iter()
        .filter(move |(name, _)| *name != "x-match" && (mode.with_x || !name.starts_with("x-")))
}

/// Whether a binding with these arguments fits the headers. Without anything to compare, `all`
/// fits every message and `any` none.
fn fits(arguments: Option<&Table>, headers: TableRef<'_>) -> bool {
    let Some(arguments) = arguments else {
        return true;
    };
    let mode = Mode::of(arguments);
    let mut compared = compared(arguments, mode);
    let is_met = |(name, wanted): (&str, &Value)| {
        let given = (name != BCC).then(|| headers.get(name)).flatten();
        given.is_some_and(|given| matches!(wanted, Value::Void) || is_equal(wanted, given))
    };
    if mode.any { compared.any(is_met) } else { compared.all(is_met) }
}

/// Typed equality: integers of any width among each other, floats of both widths, everything else
/// with its own type.
fn is_equal(wanted: &Value, given: ValueRef<'_>) -> bool {
    match (wanted, given) {
        (Value::LongString(one), ValueRef::LongString(two))
        | (Value::Binary(one), ValueRef::Binary(two)) => one == two,
        (Value::Bool(one), ValueRef::Bool(two)) => *one == two,
        (Value::F32(one), ValueRef::F32(two)) => *one == two,
        (Value::F64(one), ValueRef::F64(two)) => *one == two,
        (Value::F32(one), ValueRef::F64(two)) => f64::from(*one) == two,
        (Value::F64(one), ValueRef::F32(two)) => *one == f64::from(two),
        (Value::Timestamp(one), ValueRef::Timestamp(two)) => *one == two,
        (Value::U64(one), ValueRef::U64(two)) => *one == two,
        (Value::Array(_), ValueRef::Array(_)) | (Value::Table(_), ValueRef::Table(_)) => {
            given.to_owned() == *wanted
        }
        (
            Value::Decimal { scale, value },
            ValueRef::Decimal { scale: other_scale, value: other },
        ) => (*scale, *value) == (other_scale, other),
        _ => match (wanted.as_integer(), given.as_integer()) {
            (Some(one), Some(two)) => one == two,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Target;
    use alloc::vec::Vec;
    use lepus_amqp::properties::Properties;
    use lepus_base::Rng;

    fn fit(arguments: &Table, headers: &Table) -> bool {
        let bytes = headers.to_bytes();
        fits(Some(arguments), bytes.as_ref())
    }

    #[test]
    fn all_needs_every_field_and_any_needs_one() {
        let both = Table::new().with("a", 1i32).with("b", "two");
        let all = both.clone().with("x-match", "all");
        let any = both.clone().with("x-match", "any");
        let one = Table::new().with("b", "two").with("c", true);
        assert!(fit(&both, &both) && fit(&all, &both) && fit(&any, &both));
        assert!(!fit(&both, &one) && !fit(&all, &one));
        assert!(fit(&any, &one));
        assert!(!fit(&any, &Table::new().with("c", true)));
    }

    #[test]
    fn nothing_to_compare_fits_all_and_no_any() {
        assert!(fit(&Table::new().with("x-match", "all"), &Table::new()));
        assert!(!fit(&Table::new().with("x-match", "any"), &Table::new()));
        assert!(fits(None, TableRef::default()));
    }

    #[test]
    fn names_with_x_count_only_where_asked() {
        let plain = Table::new().with("x-match", "all").with("x-a", 1i32);
        let with_x = Table::new().with("x-match", "all-with-x").with("x-a", 1i32);
        let any_x = Table::new().with("x-match", "any-with-x").with("x-a", 1i32);
        assert!(fit(&plain, &Table::new()));
        assert!(!fit(&with_x, &Table::new()) && !fit(&any_x, &Table::new()));
        let headers = Table::new().with("x-a", 1i32);
        assert!(fit(&with_x, &headers) && fit(&any_x, &headers));
    }

    #[test]
    fn void_asks_for_presence() {
        let wanted = Table::new().with("a", Value::Void);
        assert!(fit(&wanted, &Table::new().with("a", 5i32)));
        assert!(fit(&wanted, &Table::new().with("a", Value::Void)));
        assert!(!fit(&wanted, &Table::new().with("b", 5i32)));
    }

    #[test]
    fn values_are_compared_with_their_kind() {
        let fields = |value: Value| Table::new().with("a", value);
        let same = |one: Value, two: Value| fit(&fields(one), &fields(two));
        assert!(same(Value::I8(7), Value::I64(7)) && same(Value::U16(7), Value::I32(7)));
        assert!(!same(Value::I32(7), Value::from("7")));
        assert!(!same(Value::I32(1), Value::Bool(true)));
        assert!(!same(Value::from("a"), Value::Binary(b"a".to_vec())));
        assert!(same(Value::F32(0.5), Value::F64(0.5)));
        assert!(!same(Value::I32(1), Value::F64(1.0)));
        assert!(same(Value::U64(u64::MAX), Value::U64(u64::MAX)));
        assert!(!same(Value::U64(u64::MAX), Value::I64(-1)));
        let nested = Value::Table(fields(Value::Array([Value::Bool(true)].to_vec())));
        assert!(same(nested.clone(), nested.clone()));
        assert!(!same(nested, Value::Table(Table::new())));
    }

    #[test]
    fn other_words_for_x_match_are_refused() {
        let check = |value: Value| check_arguments(&Table::new().with("x-match", value));
        assert!(check_arguments(&Table::new()).is_ok());
        for word in ["all", "any", "all-with-x", "any-with-x"] {
            assert!(check(word.into()).is_ok());
        }
        for value in [Value::from("some"), Value::from(""), Value::I32(1), Value::Void] {
            let refusal = check(value).unwrap_err();
            assert_eq!(refusal.code, ReplyCode::PRECONDITION_FAILED);
            assert!(refusal.text.starts_with("Invalid x-match field"));
        }
    }

    #[test]
    fn the_lists_find_what_looking_at_every_binding_finds() {
        let mut rng = Rng::new(17);
        let values = [
            Value::from("v"),
            Value::I32(1),
            Value::U64(u64::MAX),
            Value::Bool(true),
            Value::F64(0.5),
            Value::Void,
        ];
        let modes = ["all", "any", "all-with-x", "any-with-x"];
        let random_table = |rng: &mut Rng, fields: u64| -> Table {
            let names = ["a", "b", "c", "x-d"];
            let pick = |rng: &mut Rng| {
                let name = names[rng.below(4) as usize];
                (name, values[rng.below(6) as usize].clone())
            };
            (0..rng.below(fields)).map(|_| pick(rng)).collect()
        };
        for _ in 0..40 {
            let state = HashState::new(rng.next_u64());
            let mut bindings = Bindings::new(state);
            let mut router = Headers::new(state);
            let mut bound: Vec<u32> = Vec::new();
            for step in 0..100 {
                if bound.is_empty() || rng.chance(2, 3) {
                    let mut arguments = random_table(&mut rng, 4);
                    if rng.chance(2, 3) {
                        arguments.insert("x-match", modes[rng.below(4) as usize]);
                    }
                    let place = bindings.insert(0, Target::queue(step), "", &arguments);
                    router.insert(&mut bindings, place);
                    bound.push(place);
                } else {
                    let place = bound.swap_remove(rng.below(bound.len() as u64) as usize);
                    router.remove(&mut bindings, place);
                    bindings.remove(place);
                }
                let headers = random_table(&mut rng, 5);
                let bytes = headers.to_bytes();
                let is_fitting =
                    |place: &&u32| fits(bindings.get(**place).arguments(), bytes.as_ref());
                let mut expected: Vec<u32> = bound.iter().filter(is_fitting).copied().collect();
                expected.sort_unstable();
                let properties = Properties { headers: Some(headers), ..Properties::default() };
                let mut found = Vec::new();
                router.select(&bindings, PropertiesRef(&properties.to_bytes()), |links| {
                    found.extend(links.iter().map(|link| link.binding));
                });
                found.sort_unstable();
                found.dedup();
                assert_eq!(found, expected);
            }
            for place in bound {
                router.remove(&mut bindings, place);
                bindings.remove(place);
            }
            assert!(router.lists.is_empty() && router.by_condition.is_empty());
        }
    }
}
