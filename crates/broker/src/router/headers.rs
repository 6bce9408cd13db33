//! Headers exchanges: bindings whose arguments are compared with the message's headers.

use crate::binding::{Bindings, Link, Links, NONE};
use crate::properties::BCC;
use crate::refusal::Refusal;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use hashbrown::HashTable;
use lepus_amqp::code::ReplyCode;
use lepus_amqp::properties::PropertiesRef;
use lepus_amqp::table::{TableRef, ValueRef};
use lepus_base::{HashState, Slab};

/// Bytes that a condition takes in the index, about.
const CONDITION_BYTES: usize = 64;
/// Bytes that a binding takes here beside its conditions, about.
const RULE_BYTES: usize = 56;

/// What `x-match` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    fn of(arguments: TableRef<'_>) -> Mode {
        let text = arguments.get("x-match").and_then(ValueRef::as_text);
        text.and_then(|text| Mode::parse(text.as_bytes()))
            .unwrap_or(Mode { any: false, with_x: false })
    }
}

/// Whether `x-match`, if given, is one of the four known words.
///
/// # Errors
/// 406 otherwise.
pub(crate) fn check_arguments(arguments: TableRef<'_>) -> Result<(), Refusal> {
    let text = match arguments.get("x-match") {
        None => return Ok(()),
        Some(ValueRef::LongString(text)) if Mode::parse(text).is_some() => return Ok(()),
        Some(ValueRef::LongString(text)) => format!(
            "Invalid x-match field value '{}'; expected all, any, all-with-x, or any-with-x",
            String::from_utf8_lossy(text)
        ),
        Some(other) => {
            let kind = other.to_owned();
            format!("Invalid x-match field type {}; expected longstr", kind.type_name())
        }
    };
    Err(Refusal::new(ReplyCode::PRECONDITION_FAILED, text))
}

/// About how many bytes the index takes for a binding with these arguments.
pub(super) fn bytes_of(arguments: TableRef<'_>) -> usize {
    let mode = Mode::of(arguments);
    let conditions = compared(arguments, mode).count();
    RULE_BYTES + CONDITION_BYTES * if mode.any { conditions } else { conditions.min(1) }
}

/// Bindings, found by the conditions that they set to headers.
///
/// One that asks for any of its conditions stands under each of them, one that asks for all stands
/// under the rarest. So a message looks only at bindings of which it meets one condition at least.
#[derive(Debug)]
pub(crate) struct Headers {
    rules: Slab<Rule>,
    conditions: Slab<Condition>,
    by_hash: HashTable<u32>,
    /// Bindings that fit every message: they ask for all of nothing.
    always: Links,
    state: HashState,
}

/// What a binding asks for.
#[derive(Debug)]
struct Rule {
    link: Link,
    mode: Mode,
    /// Where it stands.
    slots: Box<[Slot]>,
}

#[derive(Debug)]
struct Slot {
    condition: u32,
    /// Place among the entries of the condition.
    position: u32,
    /// Place of the field in the binding's arguments.
    field: u32,
}

/// A header's name, perhaps with a value.
#[derive(Debug)]
struct Condition {
    hash: u64,
    /// Never empty.
    entries: Entries,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    rule: u32,
    slot: u32,
}

/// Mostly one.
#[derive(Debug)]
enum Entries {
    One(Entry),
    Many(Vec<Entry>),
}

impl Entries {
    fn as_slice(&self) -> &[Entry] {
        match self {
            Entries::One(entry) => core::slice::from_ref(entry),
            Entries::Many(entries) => entries,
        }
    }

    fn push(&mut self, entry: Entry) {
        match self {
            Entries::One(first) => *self = Entries::Many([*first, entry].to_vec()),
            Entries::Many(entries) => entries.push(entry),
        }
    }

    /// Takes an entry out; the one that stands in its place now.
    fn remove(&mut self, position: u32) -> Option<Entry> {
        let Entries::Many(entries) = self else { return None };
        entries.swap_remove(position as usize);
        let moved = entries.get(position as usize).copied();
        if let [last] = entries[..] {
            *self = Entries::One(last);
        } else if entries.capacity() > 64 && entries.len() < entries.capacity() / 4 {
            let half = entries.capacity() / 2;
            entries.shrink_to(half);
        }
        moved
    }
}

/// The headers of one message in order, and which bindings it fits. Kept between messages, so that
/// these allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Places of the fields in the headers, sorted by name, each name once.
    fields: Vec<u32>,
    /// By rule: the scan that it fitted last.
    stamps: Vec<u32>,
    scan: u32,
    /// Conditions that were looked at, each compared with one header.
    #[cfg(test)]
    pub(super) compared: u64,
}

impl Scan {
    fn read(&mut self, headers: TableRef<'_>, rules: usize) {
        self.fields.clear();
        let shown = headers.places().filter(|(_, name, _)| *name != BCC);
        self.fields.extend(shown.map(|(place, _, _)| place as u32));
        // Of two with the same name the first one counts.
        self.fields.sort_unstable_by(|&one, &two| {
            name_at(headers, one).cmp(name_at(headers, two)).then(one.cmp(&two))
        });
        self.fields.dedup_by(|two, one| name_at(headers, *one) == name_at(headers, *two));
        if self.stamps.len() < rules {
            self.stamps.resize(rules, 0);
        }
        self.scan = self.scan.wrapping_add(1);
        if self.scan == 0 {
            self.stamps.fill(0);
            self.scan = 1;
        }
    }

    fn count(&mut self) {
        #[cfg(test)]
        {
            self.compared += 1;
        }
    }

    fn has_fitted(&self, rule: u32) -> bool {
        self.stamps[rule as usize] == self.scan
    }

    /// Whether a binding that asks for all fits. Its arguments are sorted, too.
    fn fits_all(&mut self, arguments: TableRef<'_>, mode: Mode, headers: TableRef<'_>) -> bool {
        let mut from = 0;
        for (_, name, wanted) in compared(arguments, mode) {
            self.count();
            let is_less = |&place: &u32| name_at(headers, place) < name.as_bytes();
            // Mostly it is among the next ones.
            let rest = &self.fields[from..];
            let mut end = 2;
            while end < rest.len() && is_less(&rest[end - 1]) {
                end *= 2;
            }
            from += rest[..end.min(rest.len())].partition_point(is_less);
            let given = self.fields.get(from).and_then(|&place| headers.at(place as usize));
            if !given.is_some_and(|(given, value)| given == name && is_met(wanted, value)) {
                return false;
            }
        }
        true
    }
}

/// The name of the field at a place: a length in one octet, then the text.
fn name_at(headers: TableRef<'_>, place: u32) -> &[u8] {
    let field = headers.bytes().get(place as usize..).unwrap_or_default();
    match field {
        [length, rest @ ..] => rest.get(..usize::from(*length)).unwrap_or_default(),
        [] => &[],
    }
}

impl Headers {
    pub(super) fn new(state: HashState) -> Headers {
        Headers {
            rules: Slab::new(),
            conditions: Slab::new(),
            by_hash: HashTable::new(),
            always: Links::EMPTY,
            state,
        }
    }

    pub(super) fn insert(&mut self, bindings: &mut Bindings, place: u32) {
        let binding = bindings.get(place);
        let arguments = binding.arguments();
        let mode = Mode::of(arguments);
        let all = compared(arguments, mode)
            .map(|(field, name, wanted)| (self.condition_hash(name, of_wanted(wanted)), field));
        let conditions: Vec<(u64, usize)> = if mode.any {
            all.collect()
        } else {
            let rarity = |&(hash, _): &(u64, usize)| self.entries_of(hash).len();
            all.min_by_key(rarity).into_iter().collect()
        };
        let link = Link { target: binding.target, binding: place };
        if conditions.is_empty() && !mode.any {
            bindings.get_mut(place).node = NONE;
            bindings.push_link(&mut self.always, place);
            return;
        }
        let rule = self.rules.insert(Rule { link, mode, slots: Box::default() }) as u32;
        let slots = conditions.into_iter().zip(0..).map(|((hash, field), slot)| {
            let (condition, position) = self.enter(hash, Entry { rule, slot });
            Slot { condition, position, field: field as u32 }
        });
        let slots = slots.collect();
        self.rules[rule as usize].slots = slots;
        bindings.get_mut(place).node = rule;
    }

    pub(super) fn remove(&mut self, bindings: &mut Bindings, place: u32) {
        let rule = bindings.get(place).node;
        if rule == NONE {
            bindings.remove_link(&mut self.always, place);
            return;
        }
        // It may stand twice under one condition, so its own slots are corrected, too.
        for slot in 0..self.rules[rule as usize].slots.len() {
            let Slot { condition, position, .. } = self.rules[rule as usize].slots[slot];
            let Condition { hash, entries } = &mut self.conditions[condition as usize];
            if entries.as_slice().len() == 1 {
                if let Ok(entry) = self.by_hash.find_entry(*hash, |&other| other == condition) {
                    entry.remove();
                }
                self.conditions.remove(condition as usize);
            } else if let Some(moved) = entries.remove(position) {
                self.rules[moved.rule as usize].slots[moved.slot as usize].position = position;
            }
        }
        self.rules.remove(rule as usize);
    }

    /// Emits the bindings that fit the message, each once.
    pub(super) fn select(
        &self,
        bindings: &Bindings,
        properties: PropertiesRef<'_>,
        scan: &mut Scan,
        mut emit: impl FnMut(&[Link]),
    ) {
        emit(bindings.links(&self.always));
        if self.conditions.is_empty() {
            return;
        }
        let headers = properties.headers().unwrap_or_default();
        scan.read(headers, self.rules.capacity());
        for field in 0..scan.fields.len() {
            let Some((name, given)) = headers.at(scan.fields[field] as usize) else { continue };
            for value in [None, Some(given)] {
                let hash = self.condition_hash(name, value);
                for &Entry { rule: number, slot } in self.entries_of(hash) {
                    if scan.has_fitted(number) {
                        continue;
                    }
                    let rule = &self.rules[number as usize];
                    let arguments = bindings.get(rule.link.binding).arguments();
                    let fits = if rule.mode.any {
                        scan.count();
                        let field = arguments.at(rule.slots[slot as usize].field as usize);
                        field.is_some_and(|(other, wanted)| other == name && is_met(wanted, given))
                    } else {
                        scan.fits_all(arguments, rule.mode, headers)
                    };
                    if fits {
                        scan.stamps[number as usize] = scan.scan;
                        emit(core::slice::from_ref(&rule.link));
                    }
                }
            }
        }
    }

    /// Adds an entry under a condition; number of the condition, and place in it.
    fn enter(&mut self, hash: u64, entry: Entry) -> (u32, u32) {
        let is_same = |&condition: &u32| self.conditions[condition as usize].hash == hash;
        if let Some(&condition) = self.by_hash.find(hash, is_same) {
            let entries = &mut self.conditions[condition as usize].entries;
            entries.push(entry);
            return (condition, entries.as_slice().len() as u32 - 1);
        }
        let entries = Entries::One(entry);
        let condition = self.conditions.insert(Condition { hash, entries }) as u32;
        let conditions = &self.conditions;
        let hash_of = |&condition: &u32| conditions[condition as usize].hash;
        self.by_hash.insert_unique(hash, condition, hash_of);
        (condition, 0)
    }

    fn entries_of(&self, hash: u64) -> &[Entry] {
        let is_same = |&condition: &u32| self.conditions[condition as usize].hash == hash;
        let found = self.by_hash.find(hash, is_same);
        found.map_or(&[], |&condition| self.conditions[condition as usize].entries.as_slice())
    }

    /// The same for values that are equal; nested ones count by their type.
    fn condition_hash(&self, name: &str, value: Option<ValueRef<'_>>) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(name.as_bytes());
        let Some(value) = value else {
            hasher.write_u8(0);
            return hasher.finish();
        };
        if let Some(number) = value.as_integer() {
            hasher.write_u8(1);
            hasher.write_i64(number);
            return hasher.finish();
        }
        let mut float = |value: f64| {
            hasher.write_u8(2);
            // Zero has two forms.
            hasher.write_u64((value + 0.0).to_bits());
        };
        match value {
            ValueRef::F32(value) => float(value.into()),
            ValueRef::F64(value) => float(value),
            ValueRef::Bool(value) => hasher.write_u16(3 << 8 | u16::from(value)),
            ValueRef::LongString(bytes) => {
                hasher.write_u8(4);
                hasher.write(bytes);
            }
            ValueRef::Binary(bytes) => {
                hasher.write_u8(5);
                hasher.write(bytes);
            }
            ValueRef::Timestamp(seconds) => hasher.write_u128(6 << 64 | u128::from(seconds)),
            ValueRef::U64(number) => hasher.write_u128(7 << 64 | u128::from(number)),
            ValueRef::Decimal { scale, value } => {
                hasher.write_u128(8 << 64 | u128::from(scale) << 32 | u128::from(value));
            }
            ValueRef::Array(_) => hasher.write_u8(9),
            ValueRef::Table(_) => hasher.write_u8(10),
            _ => hasher.write_u8(11),
        }
        hasher.finish()
    }
}

/// What a condition is told apart by beside its name: nothing where it asks for presence.
fn of_wanted(wanted: ValueRef<'_>) -> Option<ValueRef<'_>> {
    (wanted != ValueRef::Void).then_some(wanted)
}

/// The arguments that are compared with headers, and their places.
fn compared(
    arguments: TableRef<'_>,
    mode: Mode,
) -> impl Iterator<Item = (usize, &str, ValueRef<'_>)> {
    arguments
        .places()
        .filter(move |(_, name, _)| *name != "x-match" && (mode.with_x || !name.starts_with("x-")))
}

/// Whether a header has the value that an argument asks for: nothing asks for presence.
fn is_met(wanted: ValueRef<'_>, given: ValueRef<'_>) -> bool {
    wanted == ValueRef::Void || is_equal(wanted, given)
}

/// Typed equality: integers of any width among each other, floats of both widths, everything else
/// with its own type, nested ones byte by byte.
fn is_equal(wanted: ValueRef<'_>, given: ValueRef<'_>) -> bool {
    match (wanted, given) {
        (ValueRef::F32(one), ValueRef::F64(two)) => f64::from(one) == two,
        (ValueRef::F64(one), ValueRef::F32(two)) => one == f64::from(two),
        _ => match (wanted.as_integer(), given.as_integer()) {
            (Some(one), Some(two)) => one == two,
            _ => wanted == given,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Target;
    use lepus_amqp::properties::Properties;
    use lepus_amqp::table::{Table, Value};
    use lepus_base::Rng;

    struct Fixture {
        bindings: Bindings,
        router: Headers,
        scan: Scan,
    }

    impl Fixture {
        fn new(state: HashState) -> Fixture {
            let (bindings, router) = (Bindings::new(state), Headers::new(state));
            Fixture { bindings, router, scan: Scan::default() }
        }

        fn bind(&mut self, queue: u32, arguments: &Table) -> u32 {
            let mut arguments = arguments.clone();
            arguments.0.sort_by(|(one, _), (two, _)| one.cmp(two));
            let arguments = arguments.to_bytes();
            let place = self.bindings.insert(0, Target::queue(queue), "", &arguments);
            self.router.insert(&mut self.bindings, place);
            place
        }

        fn unbind(&mut self, place: u32) {
            self.router.remove(&mut self.bindings, place);
            self.bindings.remove(place);
        }

        /// The bindings that fit, sorted.
        fn select(&mut self, headers: &Table) -> Vec<u32> {
            let properties = Properties { headers: Some(headers.clone()), ..Properties::default() };
            let mut found = Vec::new();
            let properties = properties.to_bytes();
            let properties = PropertiesRef(&properties);
            self.router.select(&self.bindings, properties, &mut self.scan, |links| {
                found.extend(links.iter().map(|link| link.binding));
            });
            found.sort_unstable();
            found
        }
    }

    fn fit(arguments: &Table, headers: &Table) -> bool {
        let mut fixture = Fixture::new(HashState::new(1));
        fixture.bind(0, arguments);
        !fixture.select(headers).is_empty()
    }

    /// What the protocol says, without an index.
    fn fits(arguments: &Table, headers: &Table) -> bool {
        let bytes = arguments.to_bytes();
        let mode = Mode::of(bytes.as_ref());
        let given = headers.to_bytes();
        let mut compared = compared(bytes.as_ref(), mode);
        let is_met = |(_, name, wanted): (usize, &str, ValueRef<'_>)| {
            given.as_ref().get(name).is_some_and(|given| is_met(wanted, given))
        };
        if mode.any { compared.any(is_met) } else { compared.all(is_met) }
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
        assert!(fit(&Table::new(), &Table::new()));
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
        let check =
            |value: Value| check_arguments(Table::new().with("x-match", value).to_bytes().as_ref());
        assert!(check_arguments(TableRef::default()).is_ok());
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
            let mut fixture = Fixture::new(HashState::new(rng.next_u64()));
            let mut bound: Vec<(u32, Table)> = Vec::new();
            for step in 0..100 {
                if bound.is_empty() || rng.chance(2, 3) {
                    let mut arguments = random_table(&mut rng, 4);
                    if rng.chance(2, 3) {
                        arguments.insert("x-match", modes[rng.below(4) as usize]);
                    }
                    bound.push((fixture.bind(step, &arguments), arguments));
                } else {
                    let (place, _) = bound.swap_remove(rng.below(bound.len() as u64) as usize);
                    fixture.unbind(place);
                }
                let headers = random_table(&mut rng, 5);
                let fitting = bound.iter().filter(|(_, arguments)| fits(arguments, &headers));
                let mut expected: Vec<u32> = fitting.map(|(place, _)| *place).collect();
                expected.sort_unstable();
                assert_eq!(fixture.select(&headers), expected);
            }
            for (place, _) in bound {
                fixture.unbind(place);
            }
            let Headers { rules, conditions, by_hash, always, .. } = fixture.router;
            assert!(rules.is_empty() && conditions.is_empty());
            assert!(by_hash.is_empty() && always.is_empty());
        }
    }

    #[test]
    fn of_two_headers_with_one_name_the_first_counts() {
        let mut fixture = Fixture::new(HashState::new(1));
        let any = fixture.bind(0, &Table::new().with("a", 1i32).with("x-match", "any"));
        let all = fixture.bind(1, &Table::new().with("a", 1i32));
        let field = |value: i32| (String::from("a"), Value::I32(value));
        assert_eq!(fixture.select(&Table([field(1), field(2)].to_vec())), [any, all]);
        assert!(fixture.select(&Table([field(2), field(1)].to_vec())).is_empty());
    }

    /// Conditions that one message makes the router look at.
    fn work(fixture: &mut Fixture, headers: &Table) -> u64 {
        let before = fixture.scan.compared;
        fixture.select(headers);
        fixture.scan.compared - before
    }

    #[test]
    fn a_message_looks_only_at_bindings_that_can_fit() {
        let mut one_by_mode = [0; 2];
        for (mode, count) in ["all", "any"].into_iter().zip(&mut one_by_mode) {
            let mut fixture = Fixture::new(HashState::new(1));
            for queue in 0..10_000 {
                let flag = queue == 7;
                let number = i32::try_from(queue).unwrap();
                let arguments = Table::new()
                    .with("flag", flag)
                    .with("number", number)
                    .with("text", format!("t{queue}"))
                    .with("x-match", mode);
                fixture.bind(queue, &arguments);
            }
            let headers =
                Table::new().with("flag", true).with("number", 7).with("text", "t7").with("z", 1);
            assert_eq!(fixture.select(&headers).len(), 1);
            *count = work(&mut fixture, &headers);
        }
        let [all, any] = one_by_mode;
        assert!(all <= 3 && any <= 2 * all, "all: {all}, any: {any}");
    }

    #[test]
    fn a_large_binding_is_searched_for_a_header_in_steps_of_halves() {
        let names: Vec<String> = (0..256).map(|number| format!("n{number}")).collect();
        let all: Table = names.iter().map(|name| (name.as_str(), true)).collect();
        let any = all.clone().with("x-match", "any");
        let mut fixture = Fixture::new(HashState::new(1));
        for queue in 0..20 {
            fixture.bind(queue, &any);
            fixture.bind(100 + queue, &all);
        }
        let others: Table = (0..1_000).map(|number| (format!("zz{number}"), true)).collect();
        assert_eq!(work(&mut fixture, &others), 0);
        // Each binding that fits is compared once for each of its conditions at most.
        assert_eq!(work(&mut fixture, &all), 20 + 20 * 256);
    }
}
