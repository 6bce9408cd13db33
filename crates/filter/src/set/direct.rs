//! A few filters that compare headers with constants: they are asked in one pass over the headers, which ends with the
//! first one that decides.

use super::{FilterSet, Report};
use crate::atom::mirrored;
use crate::extract::SLOTS_PER_STEP;
use crate::filter::Filter;
use crate::headers;
use crate::limits::Limits;
use crate::message::Message;
use crate::number::Number;
use crate::path::{Path, Step};
use crate::set::Match;
use crate::steps::{self, Steps};
use crate::tree::{Comparison, Expr, Literal, Test};
use crate::trie::print;
use crate::value::{Value, holds};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use lepus_amqp::properties::Property;
use lepus_amqp::{TableRef, ValueRef};

/// Filters of a set that is asked so, at most.
pub(super) const FILTERS_MAX: usize = 4;
/// Distinct headers that they name, and conditions that they have.
const NAMES_MAX: usize = 8;
const CONDITIONS_MAX: usize = 32;
/// Bytes of a table of headers that is gone through so: its fields are not counted. Those of a longer one are, as for any set.
const TABLE_BYTES_MAX: usize = 256;
/// Bytes of the normal form of such a filter: it is read again when others come and go.
const NORMAL_MAX: usize = 512;
/// Places of filters that are looked at for those that are there.
const PLACES_MAX: usize = 64;

/// The filters of a set, by the headers that they name.
#[derive(Clone, Debug, Default)]
pub(super) struct Direct {
    names: Vec<Name>,
    /// By the bit of a filter, its place in the set.
    filters: Vec<u32>,
    /// All bits of names and of filters.
    all_names: u32,
    all_filters: u32,
    /// Number of conditions.
    conditions: usize,
}

#[derive(Clone, Debug)]
struct Name {
    /// What a field of that name begins with in a table: the length and the first seven bytes, and which bits that is of eight
    /// bytes.
    print: u64,
    mask: u64,
    name: Box<[u8]>,
    /// Its bit among the names.
    bit: u32,
    /// The bits of the filters that have it, of those that compare it with numbers, and of those that do with something else.
    filters: u32,
    number_filters: u32,
    other_filters: u32,
    numbers: Vec<Range>,
    others: Vec<Condition>,
}

/// A condition that compares with a number.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// Floats are on the right side from the one to the other; or those that are not, NaN among them.
    low: f64,
    high: f64,
    is_negated: bool,
    /// The bit of the filter that it belongs to.
    filter: u32,
    comparison: Comparison,
    constant: Number,
}

impl Range {
    fn new(filter: u32, comparison: Comparison, constant: Number) -> Range {
        // The nearest float: between it and the constant there is none.
        let near = constant.to_float();
        let order = Number::Float(near).compare(constant);
        let (is_less, is_more) = (order == Some(Ordering::Less), order == Some(Ordering::Greater));
        let from = if is_less { near.next_up() } else { near };
        let up_to = if is_more { near.next_down() } else { near };
        let above = if is_more { near } else { near.next_up() };
        let below = if is_less { near } else { near.next_down() };
        let (low, high) = match comparison {
            Comparison::Equal | Comparison::NotEqual => (from, up_to),
            Comparison::Less => (f64::NEG_INFINITY, below),
            Comparison::LessOrEqual => (f64::NEG_INFINITY, up_to),
            Comparison::Greater => (above, f64::INFINITY),
            Comparison::GreaterOrEqual => (from, f64::INFINITY),
        };
        let is_negated = comparison == Comparison::NotEqual;
        Range { low, high, is_negated, filter, comparison, constant }
    }

    /// Whether it is TRUE of a number that is a float.
    #[inline]
    fn holds(&self, value: f64) -> bool {
        ((self.low <= value) & (value <= self.high)) != self.is_negated
    }
}

/// A condition that compares with something else.
#[derive(Clone, Debug)]
struct Condition {
    filter: u32,
    comparison: Comparison,
    constant: Literal,
}

impl Condition {
    /// Whether it is TRUE of a string, unless `steps` runs out. Of values of unlike types it is not.
    fn is_true_of_text(&self, text: &[u8], steps: &mut Steps) -> bool {
        let Literal::Text(constant) = &self.constant else { return false };
        let more = steps::of_bytes(constant.len().min(text.len()));
        (more == 0 || steps.spend(more))
            && match self.comparison {
                Comparison::Equal => *text == *constant.as_bytes(),
                comparison => holds(comparison, Some(text.cmp(constant.as_bytes()))),
            }
    }

    /// Whether it is TRUE of a boolean.
    fn is_true_of_bool(&self, value: bool) -> bool {
        match (&self.constant, self.comparison) {
            (Literal::Bool(constant), Comparison::Equal) => *constant == value,
            (Literal::Bool(constant), Comparison::NotEqual) => *constant != value,
            // They have no order.
            _ => false,
        }
    }
}

impl Name {
    /// A name without conditions; `None` for one that is too long to stand in a table.
    fn new(name: &[u8], bit: u32) -> Option<Name> {
        let length = u8::try_from(name.len()).ok()?;
        let mut start = Vec::from([length]);
        start.extend_from_slice(name);
        Some(Name {
            print: print(&start, 0, start.len()),
            mask: print(&[0xff; 8], 0, start.len().min(8)),
            name: name.into(),
            bit,
            filters: 0,
            number_filters: 0,
            other_filters: 0,
            numbers: Vec::new(),
            others: Vec::new(),
        })
    }

    fn push(&mut self, filter: u32, comparison: Comparison, constant: Literal) {
        self.filters |= filter;
        match constant {
            Literal::Number(constant) => {
                self.number_filters |= filter;
                self.numbers.push(Range::new(filter, comparison, constant));
            }
            constant => {
                self.other_filters |= filter;
                self.others.push(Condition { filter, comparison, constant });
            }
        }
    }

    /// The bits of the filters that a value is not TRUE for, unless `steps` runs out.
    #[inline]
    fn refused(&self, value: ValueRef<'_>, steps: &mut Steps) -> u32 {
        let number = match value {
            ValueRef::LongString(text) => {
                return self.refused_unless(|condition| condition.is_true_of_text(text, steps));
            }
            ValueRef::Bool(value) => {
                return self.refused_unless(|condition| condition.is_true_of_bool(value));
            }
            other => match headers::of(other, &[]) {
                Value::Number(number) => number,
                // Nothing is TRUE of it.
                _ => return self.filters,
            },
        };
        match number.exact() {
            Some(float) => self.numbers.iter().fold(self.other_filters, |refused, range| {
                if range.holds(float) { refused } else { refused | range.filter }
            }),
            None => self.refused_large(number),
        }
    }

    #[cold]
    fn refused_large(&self, number: Number) -> u32 {
        self.numbers.iter().fold(self.other_filters, |refused, range| {
            match holds(range.comparison, number.compare(range.constant)) {
                true => refused,
                false => refused | range.filter,
            }
        })
    }

    /// Those that compare it with a number, and of the others those of which it is not so.
    #[inline(never)]
    fn refused_unless(&self, mut is_true: impl FnMut(&Condition) -> bool) -> u32 {
        self.others.iter().fold(self.number_filters, |refused, condition| {
            if is_true(condition) { refused } else { refused | condition.filter }
        })
    }

    /// Bytes that it takes beside its place.
    fn bytes(&self) -> usize {
        let of_constant = |condition: &Condition| match &condition.constant {
            Literal::Text(text) => text.len(),
            _ => 0,
        };
        self.name.len()
            + self.numbers.capacity() * size_of::<Range>()
            + self.others.capacity() * size_of::<Condition>()
            + self.others.iter().map(of_constant).sum::<usize>()
    }
}

/// Calls `found` with each header that is compared with a constant, where a filter is nothing but such comparisons that must
/// all be TRUE; whether it is.
fn comparisons<'e>(
    filter: &'e Expr,
    mut found: impl FnMut(&'e str, Comparison, Literal) -> bool,
) -> bool {
    let mut each = |expr: &'e Expr| match expr {
        Expr::Path(path) => {
            name(path).is_some_and(|name| found(name, Comparison::Equal, Literal::Bool(true)))
        }
        Expr::Compare(comparison, left, right) => match (&**left, &**right) {
            (Expr::Path(path), Expr::Literal(literal)) => {
                let constant = constant(literal);
                name(path).zip(constant).is_some_and(|(name, it)| found(name, *comparison, it))
            }
            (Expr::Literal(literal), Expr::Path(path)) => {
                let constant = constant(literal);
                let comparison = mirrored(*comparison);
                name(path).zip(constant).is_some_and(|(name, it)| found(name, comparison, it))
            }
            _ => false,
        },
        Expr::Test(value, Test::Between { low, high, negated: false }) => {
            let (Expr::Path(path), Expr::Literal(low), Expr::Literal(high)) =
                (&**value, &**low, &**high)
            else {
                return false;
            };
            let ends = name(path).zip(constant(low)).zip(constant(high));
            ends.is_some_and(|((name, low), high)| {
                found(name, Comparison::GreaterOrEqual, low)
                    && found(name, Comparison::LessOrEqual, high)
            })
        }
        _ => false,
    };
    match filter {
        Expr::And(list) => list.iter().all(each),
        one => each(one),
    }
}

/// The name of a header, of which nothing inside is meant.
fn name(path: &Path) -> Option<&str> {
    match path {
        Path::Header(steps) => match &steps[..] {
            [Step::Name(name)] => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// A constant that may be equal to something; points of time are numbers.
fn constant(literal: &Literal) -> Option<Literal> {
    match literal {
        Literal::Null => None,
        Literal::Date(milliseconds) => Some(Literal::Number(Number::Signed(*milliseconds))),
        other => Some(other.clone()),
    }
}

/// Whether a filter may be asked so, beside few others.
pub(super) fn suits(filter: &Filter) -> bool {
    let mut count = 0;
    filter.normal().len() <= NORMAL_MAX
        && comparisons(filter.tree(), |_, _, _| {
            count += 1;
            count <= CONDITIONS_MAX
        })
}

impl Direct {
    /// Some filters with their places, all of which are suitable; `None` where they have too much together.
    fn of(filters: &[(u32, Filter)]) -> Option<Direct> {
        let mut direct = Direct::default();
        for (bit, (place, filter)) in filters.iter().enumerate() {
            let is_suitable = comparisons(filter.tree(), |name, comparison, constant| {
                let name = name.as_bytes();
                let found = direct.names.iter().position(|known| *known.name == *name);
                let at = found.unwrap_or(direct.names.len());
                if at == direct.names.len() {
                    let Some(name) = Name::new(name, 1 << at) else { return false };
                    direct.all_names |= name.bit;
                    direct.names.push(name);
                }
                direct.names[at].push(1 << bit, comparison, constant);
                direct.conditions += 1;
                direct.names.len() <= NAMES_MAX && direct.conditions <= CONDITIONS_MAX
            });
            if !is_suitable {
                return None;
            }
            direct.all_filters |= 1 << bit;
            direct.filters.push(*place);
        }
        Some(direct)
    }

    /// The bits of the filters that a message matches, which mean nothing where `steps` has run out; `None` where it has more
    /// headers than are gone through uncounted.
    #[inline]
    fn ask(&self, message: &Message<'_>, steps: &mut Steps) -> Option<u32> {
        // In line, as [`lepus_amqp::PropertiesRef::headers`] is not.
        let table = message.properties.field(Property::Headers).unwrap_or_default();
        if table.len() > TABLE_BYTES_MAX {
            return None;
        }
        let table = TableRef::trusted(table);
        let bytes = table.bytes();
        steps.allow(steps::of_headers(bytes.len()));
        // One for the message.
        if !steps.spend(1 + self.conditions as u64) {
            return Some(0);
        }
        let (mut alive, mut met) = (self.all_filters, 0);
        for field in table.fields() {
            let (start, end) = field.name;
            let place = start - 1;
            let print = match bytes.get(place..).and_then(|bytes| bytes.first_chunk()) {
                Some(chunk) => u64::from_le_bytes(*chunk),
                None => print(bytes, place, end),
            };
            let is_it = |name: &Name| {
                (name.print ^ print) & name.mask == 0
                    && (end - start <= 7 || *name.name == bytes[start..end])
            };
            let Some(name) = self.names.iter().find(|name| is_it(name)) else { continue };
            // Of equal names the first counts.
            if met & name.bit != 0 {
                continue;
            }
            let Some(value) = field.value() else { break };
            met |= name.bit;
            let more = headers::of_decimal(value);
            if more > 0 && !steps.spend(more) {
                return Some(0);
            }
            alive &= !name.refused(value, steps);
            if alive == 0 {
                return Some(0);
            }
            if met == self.all_names {
                return Some(alive);
            }
        }
        // What is missing is equal to nothing.
        for name in &self.names {
            if met & name.bit == 0 {
                alive &= !name.filters;
            }
        }
        Some(alive)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Direct>()
            + self.names.capacity() * size_of::<Name>()
            + self.filters.capacity() * size_of::<u32>()
            + self.names.iter().map(|name| name.bytes() + NORMAL_MAX / 8).sum::<usize>()
    }
}

impl FilterSet {
    /// A filter came or went: finds out anew whether there are few that can be asked directly.
    pub(super) fn renew_direct(&mut self) {
        self.direct = None;
        if self.len() > FILTERS_MAX || self.is_empty() || self.filters.len() > PLACES_MAX {
            return;
        }
        let present = || {
            self.filters.iter().zip(0..).filter_map(|(entry, place)| Some((entry.as_ref()?, place)))
        };
        if !present().all(|(entry, _)| entry.is_direct) {
            return;
        }
        let read = |(entry, place): (&super::Entry, u32)| {
            Some((place, Filter::parse(&entry.normal, &Limits::default()).ok()?))
        };
        let filters: Option<Vec<(u32, Filter)>> = present().map(read).collect();
        self.direct = filters.and_then(|filters| Direct::of(&filters)).map(Box::new);
    }

    /// As [`FilterSet::matches`], for few headers; `None` where there are more.
    #[inline(never)]
    pub(super) fn match_directly(
        &self,
        direct: &Direct,
        message: &Message<'_>,
        steps_max: u64,
        out: &mut Vec<Match>,
    ) -> Option<Report> {
        let before = out.len();
        let mut steps = Steps::new(steps_max);
        steps.allow((self.program.paths.slots() / SLOTS_PER_STEP) as u64);
        let found = direct.ask(message, &mut steps)?;
        if found != 0 {
            self.push_uses(direct, found, &mut steps, out);
        }
        Some(Report::of(&steps, false, out, before))
    }

    /// Appends the uses of filters by their bits, unless `steps` runs out.
    #[inline(never)]
    fn push_uses(&self, direct: &Direct, mut found: u32, steps: &mut Steps, out: &mut Vec<Match>) {
        while found != 0 {
            let place = direct.filters[found.trailing_zeros() as usize];
            found &= found - 1;
            let entry = self.filters[place as usize].as_ref();
            let entry = entry.expect("those that are asked directly are found anew when one goes");
            if !steps.spend(entry.uses.len() as u64) {
                break;
            }
            out.extend_from_slice(&entry.uses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{BodyFormat, Meta};
    use crate::set::{Scratch, SetLimits, Subscription};
    use alloc::borrow::ToOwned;
    use alloc::format;
    use alloc::string::String;
    use lepus_amqp::table::Value as Header;
    use lepus_amqp::{Properties, Table};
    use lepus_base::{HashState, Rng};

    /// Some have all of their bytes in the first eight of a field, some begin as others do.
    const NAMES: [&str; 8] =
        ["a", "b", "price", "a longe", "a longer", "a longes", "a longer name", "a longer nome"];

    fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
        all[rng.below(all.len() as u64) as usize]
    }

    fn literal(rng: &mut Rng) -> String {
        let all = ["0", "1", "2.0", "1.5", "-3", "9007199254740993", "18446744073709551615"];
        let others =
            ["'x'", "''", "'a text that is longer'", "TRUE", "FALSE", "DATE('1970-01-01')"];
        match rng.chance(2, 3) {
            true => pick(rng, &all).to_owned(),
            false => pick(rng, &others).to_owned(),
        }
    }

    fn condition(rng: &mut Rng) -> String {
        let name = format!("[{}]", pick(rng, &NAMES));
        let operator = pick(rng, &["=", "<>", "<", "<=", ">", ">="]);
        match rng.below(8) {
            0 => name,
            1 => format!("{} {operator} {name}", literal(rng)),
            2 => format!("{name} BETWEEN {} AND {}", literal(rng), literal(rng)),
            _ => format!("{name} {operator} {}", literal(rng)),
        }
    }

    fn filter(rng: &mut Rng) -> String {
        let all: Vec<String> = (0..1 + rng.below(3)).map(|_| condition(rng)).collect();
        all.join(" AND ")
    }

    fn header(rng: &mut Rng) -> Header {
        match rng.below(12) {
            0 => Header::Void,
            1 => Header::Bool(rng.chance(1, 2)),
            2 => Header::F64(pick(rng, &[0.0, -0.0, 1.5, 2.0, f64::NAN, f64::INFINITY, 1e300])),
            3 => Header::U64(pick(rng, &[0, 1, u64::MAX])),
            4 => Header::I64(pick(rng, &[i64::MIN, -3, 9_007_199_254_740_993])),
            5 => Header::Decimal { scale: 1, value: 15 },
            6 => Header::Timestamp(pick(rng, &[0, 1])),
            7 => pick(rng, &["", "x", "y", "a text that is longer"]).into(),
            8 => Header::Binary(b"x".to_vec()),
            9 => Header::LongString(b"a text that is longer".to_vec()),
            10 => Header::Array(Vec::from([Header::I32(1)])),
            _ => Header::I32(rng.below(4) as i32 - 1),
        }
    }

    /// Names may come twice.
    fn properties(rng: &mut Rng) -> Vec<u8> {
        let mut fields = Vec::new();
        for _ in 0..rng.below(9) {
            let name = match rng.chance(1, 6) {
                true => "another",
                false => pick(rng, &NAMES),
            };
            fields.push((name.to_owned(), header(rng)));
        }
        let headers = rng.chance(9, 10).then_some(Table(fields));
        Properties { headers, priority: Some(3), ..Properties::default() }.to_bytes()
    }

    fn set() -> FilterSet {
        FilterSet::new(SetLimits::default(), HashState::new(1))
    }

    fn add(set: &mut FilterSet, text: &str, target: u64) -> Subscription {
        let filter = Filter::parse(text, &Limits::default());
        let filter = filter.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        set.add(&filter, target).expect("there is room")
    }

    #[test]
    fn what_is_asked_directly_says_what_groups_say() {
        let mut rng = Rng::new(1);
        let (mut scratch, mut matches, mut asked) = (Scratch::default(), 0, 0);
        for _ in 0..3_000 {
            let mut set = set();
            let texts: Vec<String> = (0..1 + rng.below(4)).map(|_| filter(&mut rng)).collect();
            // One of them comes twice.
            for (text, target) in texts.iter().chain(&texts[..1]).zip(0..) {
                add(&mut set, text, target);
            }
            assert!(set.direct.is_some(), "{texts:?}");
            let mut groups = set.clone();
            groups.direct = None;
            for _ in 0..20 {
                let properties = properties(&mut rng);
                let message = Message::new(&properties, b"", BodyFormat::Auto, Meta::default());
                let (mut one, mut two) = (Vec::new(), Vec::new());
                let report = set.matches(&message, u64::MAX, &mut scratch, &mut one);
                groups.matches(&message, u64::MAX, &mut scratch, &mut two);
                assert_eq!(one, two, "{texts:?} {:?}", message.properties.headers());
                assert_eq!(report.reading_steps, set.reading_steps(&message));
                assert!(!report.has_run_out() && report.steps > report.reading_steps);
                // Too few steps find nothing.
                let left = report.steps - report.reading_steps - 1;
                one.clear();
                let report = set.matches(&message, left, &mut scratch, &mut one);
                assert!(report.has_run_out() && one.is_empty());
                (matches, asked) = (matches + two.len(), asked + 1);
            }
        }
        assert!(matches > 2_000, "{matches} of {asked}");
    }

    /// Steps beside reading of a set of these filters for a message with these headers, and all of them.
    fn steps_of(texts: &[&str], headers: Vec<(String, Header)>) -> (u64, u64) {
        let mut set = set();
        for (text, target) in texts.iter().zip(0..) {
            add(&mut set, text, target);
        }
        assert!(set.direct.is_some(), "{texts:?}");
        let properties = Properties { headers: Some(Table(headers)), ..Properties::default() };
        let properties = properties.to_bytes();
        let message = Message::new(&properties, b"", BodyFormat::Auto, Meta::default());
        let (mut scratch, mut found) = (Scratch::default(), Vec::new());
        let report = set.matches(&message, u64::MAX, &mut scratch, &mut found);
        assert_eq!(found.len(), texts.len());
        (report.steps - report.reading_steps, report.steps)
    }

    fn steps(texts: &[&str], headers: Vec<(String, Header)>) -> u64 {
        steps_of(texts, headers).0
    }

    #[test]
    fn conditions_matches_long_strings_and_fields_of_long_tables_count() {
        let a = || Vec::from([("a".to_owned(), Header::I32(1))]);
        let one = steps(&["a = 1"], a());
        assert_eq!(steps(&["a = 1 AND a < 9 AND a > 0"], a()), one + 2);
        // Equal filters are one with several uses.
        assert_eq!(steps(&["a = 1"; 5], a()), one + 4);
        let text = "x".repeat(192);
        let of_text = |text: &str| {
            steps(&[&format!("a = '{text}'")], Vec::from([("a".to_owned(), text.into())]))
        };
        assert_eq!(of_text(&text) - of_text(""), 3);
        let many = |count: usize| {
            let others = (0..count).map(|_| ("b".to_owned(), Header::Void));
            steps_of(&["a = 1"], others.chain(a()).collect()).1
        };
        assert!((60_000..400_000).contains(&many(60_000)), "{}", many(60_000));
    }

    #[test]
    fn a_float_is_inside_the_ends_of_a_comparison_where_that_is_true_of_it() {
        let large = 9_007_199_254_740_993_i64;
        let mut constants: Vec<Number> =
            [0, 1, -1, large, -large, large - 2, i64::MAX, i64::MIN].map(Number::Signed).into();
        constants.extend([i64::MAX as u64 + 1, u64::MAX].map(Number::Unsigned));
        let floats = [0.0, -0.0, 1.5, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::MIN, 1e300];
        constants.extend(floats.map(Number::Float));
        let of = |constant: &Number| {
            let near = constant.to_float();
            [near.next_down().next_down(), near.next_down(), near, near.next_up()]
        };
        let mut values: Vec<f64> = constants.iter().flat_map(of).collect();
        values.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        let mut checked = 0;
        for constant in constants {
            for comparison in [
                Comparison::Equal,
                Comparison::NotEqual,
                Comparison::Less,
                Comparison::LessOrEqual,
                Comparison::Greater,
                Comparison::GreaterOrEqual,
            ] {
                let range = Range::new(1, comparison, constant);
                for &value in &values {
                    let expected = holds(comparison, Number::Float(value).compare(constant));
                    assert_eq!(range.holds(value), expected, "{value} {comparison:?} {constant:?}");
                    checked += usize::from(expected);
                }
            }
        }
        assert!(checked > 3_000, "{checked}");
    }

    #[test]
    fn a_name_that_no_header_can_have_is_met_by_none() {
        for length in [255, 256, 300] {
            let mut set = set();
            // Its first bytes are those of a header without a name.
            let name = "\0".repeat(length);
            add(&mut set, &format!("[{name}] = 1"), 0);
            assert_eq!(set.direct.is_some(), length == 255);
            let matches = |name: &str| {
                let headers = Table(Vec::from([(name.to_owned(), Header::I32(1))]));
                let properties = Properties { headers: Some(headers), ..Properties::default() };
                let properties = properties.to_bytes();
                let message = Message::new(&properties, b"", BodyFormat::Auto, Meta::default());
                let mut found = Vec::new();
                set.matches(&message, u64::MAX, &mut Scratch::default(), &mut found);
                !found.is_empty()
            };
            assert!(!matches("") && !matches("\0"));
            assert_eq!(matches(&name[..255]), length == 255);
        }
    }

    #[test]
    fn only_few_filters_of_headers_alone_are_asked_directly() {
        let mut set = set();
        let first = add(&mut set, "a = 1", 0);
        assert!(set.direct.is_some());
        for text in [
            "b.x = 1",
            "a LIKE 'x%'",
            "a = b",
            "a.x.y = 1",
            "h.priority = 4",
            "NOT a = 1",
            "a IN (1, 2)",
            "a = NULL",
        ] {
            let other = add(&mut set, text, 1);
            assert!(set.direct.is_none(), "{text}");
            set.remove(other);
            assert!(set.direct.is_some(), "{text}");
        }
        let more: Vec<Subscription> = (0..5)
            .map(|number| {
                let added = add(&mut set, &format!("a > {number} AND b"), number);
                assert_eq!(set.direct.is_some(), number < 3);
                added
            })
            .collect();
        // Equal ones are no further ones.
        add(&mut set, "a > 0 AND b", 9);
        set.remove(first);
        assert!(set.direct.is_none());
        set.remove(more[4]);
        assert!(set.direct.is_some());
        more[..4].iter().for_each(|one| assert!(set.remove(*one)));
        assert_eq!((set.len(), set.direct.is_some()), (1, true));
        // Of very many names there are too many bits.
        let texts: Vec<String> = (0..9).map(|number| format!("x{number} = 1")).collect();
        let mut wide = self::set();
        add(&mut wide, &texts[..8].join(" AND "), 1);
        assert!(wide.direct.is_some() && wide.bytes() > self::set().bytes());
        add(&mut wide, &texts[8], 2);
        assert!(wide.direct.is_none());
    }
}
