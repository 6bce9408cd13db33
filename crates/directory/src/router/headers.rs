//! Headers exchanges: bindings whose arguments are compared with the message's headers.

use super::filters::{FILTER, FORMAT, SELECTOR};
use super::meter::Meter;
use crate::binding::{Bindings, Link, Links, NONE};
use crate::routing_keys::BCC;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use hashbrown::HashTable;
use lepus_amqp::properties::PropertiesRef;
use lepus_amqp::table::{TableRef, ValueRef};
use lepus_base::{ChunkedSlab, HashState, LinearTable};
use lepus_queue::refusal::{Refusal, RefusalKind};

/// Bytes that a condition takes beside its text, about.
const CONDITION_BYTES: usize = 96;
/// Bytes that a binding takes here beside its conditions, about.
const RULE_BYTES: usize = 56;
/// What reading a header of a message costs, in steps of a [`Meter`], beside its bytes.
const FIELD_STEPS: u32 = 40;
/// Bytes of a header that are read in one step.
const BYTES_PER_STEP: usize = 16;
/// What looking a condition up costs.
const LOOK_STEPS: u32 = 8;
/// With more conditions of a message than this for each one of an exchange, the latter are looked up
/// among the former.
const CONDITIONS_RATIO: usize = 4;
/// Bytes and conditions that are kept for the next message.
const KEPT_MAX: usize = 64 * 1024;

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
    Err(Refusal::new(RefusalKind::PreconditionFailed, text))
}

/// About how many bytes the index takes for a binding with these arguments.
pub(super) fn bytes_of(arguments: TableRef<'_>) -> usize {
    let mode = Mode::of(arguments);
    let conditions = compared(arguments, mode).count();
    RULE_BYTES + CONDITION_BYTES * conditions + arguments.bytes().len()
}

/// Bindings, found by the conditions that they set to headers.
///
/// One that asks for any of its conditions stands under each of them, one that asks for all stands
/// under the rarest. So a message looks only at bindings of which it meets one condition at least.
/// A condition is kept once, whichever bindings ask for it: which of them a message meets is found out
/// once for each of its headers, and a binding is a list of their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    rules: ChunkedSlab<Rule>,
    conditions: ChunkedSlab<Condition>,
    by_hash: LinearTable<u32>,
    /// Bindings that fit every message: they ask for all of nothing.
    always: Links,
    state: HashState,
}

/// What a binding asks for.
#[derive(Clone, Debug)]
struct Rule {
    link: Link,
    mode: Mode,
    /// Where it stands.
    slots: Box<[Slot]>,
    /// All that have to be met, where it asks for all.
    conditions: Box<[u32]>,
}

#[derive(Clone, Debug)]
struct Slot {
    condition: u32,
    /// Place among the entries of the condition.
    position: u32,
}

/// A header's name, perhaps with a value.
#[derive(Clone, Debug)]
struct Condition {
    hash: u64,
    /// What tells it from others: see [`write_condition`].
    text: Box<[u8]>,
    /// How often bindings ask for it.
    uses: u32,
    /// Bindings that stand under it.
    entries: Entries,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    rule: u32,
    slot: u32,
}

/// Mostly one.
#[derive(Clone, Debug)]
enum Entries {
    None,
    One(Entry),
    Many(Vec<Entry>),
}

impl Entries {
    fn as_slice(&self) -> &[Entry] {
        match self {
            Entries::None => &[],
            Entries::One(entry) => core::slice::from_ref(entry),
            Entries::Many(entries) => entries,
        }
    }

    fn push(&mut self, entry: Entry) {
        match self {
            Entries::None => *self = Entries::One(entry),
            Entries::One(first) => *self = Entries::Many([*first, entry].to_vec()),
            Entries::Many(entries) => entries.push(entry),
        }
    }

    /// Takes an entry out; the one that stands in its place now.
    fn remove(&mut self, position: u32) -> Option<Entry> {
        let Entries::Many(entries) = self else {
            *self = Entries::None;
            return None;
        };
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

/// The headers of one message, read once for all exchanges on its way, and which bindings of one of
/// these it fits. Kept between messages, so that these allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Whether the headers of the message that is routed are read.
    is_read: bool,
    /// Places of the fields in the headers, sorted by name, each name once.
    fields: Vec<u32>,
    /// The conditions that the headers meet.
    given: Vec<Given>,
    /// Their texts, one behind the other.
    texts: Vec<u8>,
    /// Their places by hash; empty until it is asked for.
    by_hash: HashTable<u32>,
    /// By rule: the scan that it fitted last.
    stamps: Vec<u32>,
    /// By condition: the scan that met it last.
    met: Vec<u32>,
    /// The conditions of the exchange that are met.
    list: Vec<u32>,
    /// A condition that is written.
    text: Vec<u8>,
    scan: u32,
    /// Conditions of bindings that were looked at.
    #[cfg(test)]
    pub(super) compared: u64,
    /// Headers that were read.
    #[cfg(test)]
    pub(super) read: u64,
}

/// A condition that the headers of a message meet.
#[derive(Debug)]
struct Given {
    hash: u64,
    /// Where its text is.
    start: u32,
    end: u32,
}

impl Scan {
    /// Another message is routed.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.is_read = false;
    }

    /// Reads the headers of the message, unless that was done for another exchange. False when the
    /// meter has run out.
    fn read(&mut self, properties: PropertiesRef<'_>, state: HashState, meter: &Meter) -> bool {
        if self.is_read {
            return true;
        }
        self.is_read = true;
        self.rest();
        let headers = properties.headers().unwrap_or_default();
        let shown = headers.places().filter(|(_, name, _)| *name != BCC);
        self.fields.extend(shown.map(|(place, _, _)| place as u32));
        // Of two with the same name the last one counts.
        self.fields.sort_unstable_by(|&one, &two| {
            name_at(headers, one).cmp(name_at(headers, two)).then(two.cmp(&one))
        });
        self.fields.dedup_by(|two, one| name_at(headers, *one) == name_at(headers, *two));
        let mut text = core::mem::take(&mut self.text);
        for &field in &self.fields {
            let Some((name, value)) = headers.at(field as usize) else { continue };
            for value in [None, Some(value)] {
                if is_comparable(value) {
                    write_condition(name, value, &mut text);
                    let start = self.texts.len() as u32;
                    self.texts.extend_from_slice(&text);
                    let (hash, end) = (hash(state, &text), self.texts.len() as u32);
                    self.given.push(Given { hash, start, end });
                }
            }
        }
        self.text = text;
        #[cfg(test)]
        {
            self.read += self.fields.len() as u64;
        }
        let bytes = headers.bytes().len() / BYTES_PER_STEP;
        let fields = (self.fields.len() as u32).saturating_mul(FIELD_STEPS);
        meter.spend(fields.saturating_add(bytes as u32))
    }

    /// Forgets the message before, and gives back what few messages need.
    fn rest(&mut self) {
        self.fields.clear();
        self.given.clear();
        self.texts.clear();
        self.by_hash.clear();
        self.fields.shrink_to(KEPT_MAX);
        self.given.shrink_to(KEPT_MAX);
        self.texts.shrink_to(KEPT_MAX);
        self.text.shrink_to(KEPT_MAX);
        if self.by_hash.capacity() > KEPT_MAX {
            self.by_hash = HashTable::new();
        }
    }

    /// Makes the conditions that the message meets findable.
    fn index(&mut self, meter: &Meter) -> bool {
        if !self.by_hash.is_empty() {
            return true;
        }
        let given = &self.given;
        self.by_hash.reserve(given.len(), |&place| given[place as usize].hash);
        for (place, found) in (0..).zip(given) {
            self.by_hash.insert_unique(found.hash, place, |&place| given[place as usize].hash);
        }
        meter.spend((given.len() as u32).saturating_mul(LOOK_STEPS))
    }

    /// Whether the message meets a condition.
    fn has(&self, condition: &Condition) -> bool {
        let is_same = |&place: &u32| {
            let given = &self.given[place as usize];
            given.hash == condition.hash && self.text_of(given) == &*condition.text
        };
        self.by_hash.find(condition.hash, is_same).is_some()
    }

    fn text_of(&self, given: &Given) -> &[u8] {
        &self.texts[given.start as usize..given.end as usize]
    }

    /// Begins to compare with the bindings of one exchange.
    fn compare(&mut self, rules: usize, conditions: usize) {
        if self.stamps.len() < rules {
            self.stamps.resize(rules, 0);
        }
        if self.met.len() < conditions {
            self.met.resize(conditions, 0);
        }
        self.scan = self.scan.wrapping_add(1);
        if self.scan == 0 {
            self.stamps.fill(0);
            self.met.fill(0);
            self.scan = 1;
        }
        self.list.clear();
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

    /// Notes a condition that is met.
    fn meet(&mut self, condition: u32) {
        self.met[condition as usize] = self.scan;
        self.list.push(condition);
    }

    /// Whether all of these conditions are met; not when the meter has run out.
    fn meets_all(&mut self, conditions: &[u32], meter: &Meter) -> bool {
        let mut looks = 0;
        let meets = conditions.iter().all(|&condition| {
            self.count();
            looks += 1;
            self.met[condition as usize] == self.scan
        });
        meter.spend(looks) && meets
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
            rules: ChunkedSlab::new(),
            conditions: ChunkedSlab::new(),
            by_hash: LinearTable::new(),
            always: Links::EMPTY,
            state,
        }
    }

    pub(super) fn insert(&mut self, bindings: &mut Bindings, place: u32) {
        let binding = bindings.get(place);
        let arguments = binding.arguments();
        let mode = Mode::of(arguments);
        let link = Link { target: binding.target, binding: place };
        if !mode.any && compared(arguments, mode).next().is_none() {
            bindings.get_mut(place).node = NONE;
            bindings.push_link(&mut self.always, place);
            return;
        }
        let mut text = Vec::new();
        let mut conditions: Vec<u32> = Vec::new();
        for (_, name, wanted) in compared(arguments, mode) {
            write_condition(name, of_wanted(wanted), &mut text);
            conditions.push(self.use_condition(&text));
        }
        let rule = Rule { link, mode, slots: Box::default(), conditions: Box::default() };
        let rule = self.rules.insert(rule) as u32;
        let rarest = |condition: &&u32| self.entries(**condition).len();
        let stands_under = match mode.any {
            true => conditions.clone(),
            false => conditions.iter().min_by_key(rarest).copied().into_iter().collect(),
        };
        let slots = stands_under.into_iter().zip(0..).map(|(condition, slot)| {
            let entries = &mut self.conditions[condition as usize].entries;
            entries.push(Entry { rule, slot });
            Slot { condition, position: entries.as_slice().len() as u32 - 1 }
        });
        let slots = slots.collect();
        let found = &mut self.rules[rule as usize];
        found.slots = slots;
        if !mode.any {
            found.conditions = conditions.into();
        }
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
            let Slot { condition, position } = self.rules[rule as usize].slots[slot];
            let entries = &mut self.conditions[condition as usize].entries;
            if let Some(moved) = entries.remove(position) {
                self.rules[moved.rule as usize].slots[moved.slot as usize].position = position;
            }
        }
        let Rule { mode, slots, conditions, .. } = self.rules.remove(rule as usize);
        if mode.any {
            slots.iter().for_each(|slot| self.drop_condition(slot.condition));
        } else {
            conditions.iter().for_each(|&condition| self.drop_condition(condition));
        }
    }

    /// Emits the bindings that fit the message, each once. `scan` has its headers if another exchange
    /// looked at them before. It ends early when the meter has run out.
    pub(super) fn select(
        &self,
        bindings: &Bindings,
        properties: PropertiesRef<'_>,
        scan: &mut Scan,
        meter: &Meter,
        mut emit: impl FnMut(&[Link]),
    ) {
        emit(bindings.links(&self.always));
        if self.conditions.is_empty() || !scan.read(properties, self.state, meter) {
            return;
        }
        if !self.find_met(scan, meter) {
            return;
        }
        for place in 0..scan.list.len() {
            let entries = self.entries(scan.list[place]);
            if !meter.spend(entries.len() as u32) {
                return;
            }
            for &Entry { rule: number, .. } in entries {
                if scan.has_fitted(number) {
                    continue;
                }
                let rule = &self.rules[number as usize];
                let fits = if rule.mode.any {
                    scan.count();
                    true
                } else {
                    scan.meets_all(&rule.conditions, meter)
                };
                if fits {
                    scan.stamps[number as usize] = scan.scan;
                    emit(core::slice::from_ref(&rule.link));
                } else if meter.has_run_out() {
                    return;
                }
            }
        }
    }

    /// Finds out which conditions the message meets: by looking its own up among them, or them up
    /// among its own, whatever is less. False when the meter has run out.
    fn find_met(&self, scan: &mut Scan, meter: &Meter) -> bool {
        scan.compare(self.rules.places(), self.conditions.places());
        // Gaps in the table are passed, too.
        let own = self.conditions.places();
        if own < scan.given.len() / CONDITIONS_RATIO {
            if !scan.index(meter) {
                return false;
            }
            for (condition, found) in self.conditions.iter() {
                if scan.has(found) {
                    scan.meet(condition as u32);
                }
            }
            return meter.spend((own as u32).saturating_mul(LOOK_STEPS));
        }
        for place in 0..scan.given.len() {
            let given = &scan.given[place];
            if let Some(condition) = self.condition(given.hash, scan.text_of(given)) {
                scan.meet(condition);
            }
        }
        meter.spend((scan.given.len() as u32).saturating_mul(LOOK_STEPS))
    }

    /// Bindings that stand under a condition.
    fn entries(&self, condition: u32) -> &[Entry] {
        self.conditions[condition as usize].entries.as_slice()
    }

    /// The condition with this text, if a binding asks for it.
    fn condition(&self, hash: u64, text: &[u8]) -> Option<u32> {
        let is_same = |&condition: &u32| *self.conditions[condition as usize].text == *text;
        self.by_hash.find(hash, is_same).copied()
    }

    /// The same for one more binding that asks for it.
    fn use_condition(&mut self, text: &[u8]) -> u32 {
        let hash = hash(self.state, text);
        if let Some(condition) = self.condition(hash, text) {
            self.conditions[condition as usize].uses += 1;
            return condition;
        }
        let (text, entries) = (text.into(), Entries::None);
        let condition = self.conditions.insert(Condition { hash, text, uses: 1, entries }) as u32;
        let conditions = &self.conditions;
        let hash_of = |&condition: &u32| conditions[condition as usize].hash;
        self.by_hash.insert_unique(hash, condition, hash_of);
        condition
    }

    /// A binding that asked for it is gone.
    fn drop_condition(&mut self, condition: u32) {
        let found = &mut self.conditions[condition as usize];
        found.uses -= 1;
        if found.uses > 0 {
            return;
        }
        self.by_hash.remove(found.hash, |&other| other == condition);
        self.conditions.remove(condition as usize);
    }
}

fn hash(state: HashState, text: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(text);
    hasher.finish()
}

/// Whether a value is equal to itself.
fn is_comparable(value: Option<ValueRef<'_>>) -> bool {
    match value {
        Some(ValueRef::F32(value)) => !value.is_nan(),
        Some(ValueRef::F64(value)) => !value.is_nan(),
        _ => true,
    }
}

/// Writes a condition so that those are written alike that the same headers meet: integers of any
/// width alike, moments as their milliseconds, floats of both widths, text and bytes, everything else
/// with its own type, nested ones byte by byte. Without a value it asks for presence.
fn write_condition(name: &str, value: Option<ValueRef<'_>>, text: &mut Vec<u8>) {
    text.clear();
    text.extend_from_slice(&(name.len() as u32).to_be_bytes());
    text.extend_from_slice(name.as_bytes());
    let mut write = |kind: u8, bytes: &[u8]| {
        text.push(kind);
        text.extend_from_slice(bytes);
    };
    let Some(value) = value else { return write(0, &[]) };
    if let Some(number) = value.as_integer() {
        return write(1, &number.to_be_bytes());
    }
    // Zero has two forms.
    let float = |value: f64| (value + 0.0).to_bits().to_be_bytes();
    match value {
        ValueRef::F32(value) => write(2, &float(value.into())),
        ValueRef::F64(value) => write(2, &float(value)),
        ValueRef::Bool(value) => write(3, &[u8::from(value)]),
        ValueRef::LongString(bytes) | ValueRef::Binary(bytes) => write(4, bytes),
        ValueRef::Timestamp(seconds) => match seconds.checked_mul(1000).map(i64::try_from) {
            Some(Ok(millis)) => write(1, &millis.to_be_bytes()),
            _ => write(6, &seconds.to_be_bytes()),
        },
        ValueRef::U64(number) => write(7, &number.to_be_bytes()),
        ValueRef::Decimal { scale, value } => {
            write(8, &(u64::from(scale) << 32 | u64::from(value)).to_be_bytes());
        }
        ValueRef::Array(array) => write(9, array.bytes()),
        ValueRef::Table(table) => write(10, table.bytes()),
        _ => write(11, &[]),
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
    arguments.places().filter(move |(_, name, _)| match name.starts_with("x-") {
        // A filter is not a header, whatever the mode.
        true => mode.with_x && !["x-match", FILTER, SELECTOR, FORMAT].contains(name),
        false => true,
    })
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
            let meter = Meter::new(0, u32::MAX);
            self.scan.begin();
            self.router.select(&self.bindings, properties, &mut self.scan, &meter, |links| {
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

    /// Whether a header has the value that an argument asks for: nothing asks for presence.
    fn is_met(wanted: ValueRef<'_>, given: ValueRef<'_>) -> bool {
        wanted == ValueRef::Void || is_equal(wanted, given)
    }

    /// Equality of values: integers of any width among each other and moments as their milliseconds,
    /// floats of both widths, text and bytes, everything else with its own type, nested ones byte by
    /// byte.
    fn is_equal(wanted: ValueRef<'_>, given: ValueRef<'_>) -> bool {
        let integer = |value: ValueRef<'_>| match value {
            ValueRef::Timestamp(seconds) => i64::try_from(seconds.checked_mul(1000)?).ok(),
            value => value.as_integer(),
        };
        match (wanted, given) {
            (ValueRef::LongString(one), ValueRef::Binary(two))
            | (ValueRef::Binary(one), ValueRef::LongString(two)) => one == two,
            (ValueRef::F32(one), ValueRef::F64(two)) => f64::from(one) == two,
            (ValueRef::F64(one), ValueRef::F32(two)) => one == f64::from(two),
            _ => match (integer(wanted), integer(given)) {
                (Some(one), Some(two)) => one == two,
                _ => wanted == given,
            },
        }
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
        assert!(same(Value::from("a"), Value::Binary(b"a".to_vec())));
        assert!(same(Value::I64(5_000), Value::Timestamp(5)));
        assert!(same(Value::Timestamp(5), Value::Timestamp(5)));
        assert!(!same(Value::I64(5), Value::Timestamp(5)));
        assert!(same(Value::Timestamp(u64::MAX), Value::Timestamp(u64::MAX)));
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
            assert_eq!(refusal.kind, RefusalKind::PreconditionFailed);
            assert!(refusal.reply().starts_with("Invalid x-match field"));
        }
    }

    #[test]
    fn the_lists_find_what_looking_at_every_binding_finds() {
        let mut rng = Rng::new(17);
        let values = [
            Value::F64(f64::NAN),
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
                (name, values[rng.below(7) as usize].clone())
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
                let mut headers = random_table(&mut rng, 5);
                if rng.chance(1, 2) {
                    // So many that the conditions of the bindings are looked up among them.
                    headers
                        .0
                        .extend((0..200).map(|number| (format!("more{number}"), number.into())));
                }
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
    fn of_two_headers_with_one_name_the_last_counts() {
        let mut fixture = Fixture::new(HashState::new(1));
        let any = fixture.bind(0, &Table::new().with("a", 1i32).with("x-match", "any"));
        let all = fixture.bind(1, &Table::new().with("a", 1i32));
        let field = |value: i32| (String::from("a"), Value::I32(value));
        assert_eq!(fixture.select(&Table([field(2), field(1)].to_vec())), [any, all]);
        assert!(fixture.select(&Table([field(1), field(2)].to_vec())).is_empty());
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
