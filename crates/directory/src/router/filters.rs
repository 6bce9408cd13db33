//! Filters of an exchange's bindings: which of these a message matches.
//!
//! A binding with a filter takes only messages for which its filter is TRUE. An exchange asks all its filters together,
//! once for a message and only if the message comes to a binding that has one.

mod figures;
mod sample;

pub(crate) use figures::Dearest;
pub use figures::{DearFilter, FilterFigures};
pub use sample::{FilterCost, FilterSample};

use super::{Message, Meter};
use crate::binding::Link;
use crate::exchange::ExchangeKind;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use lepus_amqp::table::{Table, TableRef, Value, ValueRef};
use lepus_base::{HashState, LinearTable, ShardId};
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Limits, Match, Meta, Scratch, SetFull, SetLimits, Subscription,
};
use lepus_queue::refusal::{Refusal, RefusalKind};
use sample::Samples;

/// The argument of a binding that holds its filter.
pub const FILTER: &str = "x-filter";
/// The same, as Qpid's clients call it. An empty one is none.
pub const SELECTOR: &str = "x-filter-jms-selector";
/// The argument that says how bodies are read.
pub const FORMAT: &str = "x-filter-format";

/// A step of a filter is as much as so many steps of routing.
const STEPS: u32 = 2;
/// Filters of an exchange that read bodies in one way may take one part in so many of the steps that a message has left,
/// beside those of reading it, which are in proportion to its bytes: of these one part in so many.
const SHARE: u32 = 16;
const READING_SHARE: u32 = 3;

/// A filter as a binding's arguments have it.
#[derive(Debug)]
pub(crate) struct Parsed {
    filter: Filter,
    format: BodyFormat,
}

/// The filter of a binding that was checked, so that it is not read again by those who apply the change. It says
/// nothing that the binding's arguments do not say.
#[derive(Clone, Debug, Default)]
pub struct Prepared(Option<Arc<Parsed>>);

impl Prepared {
    /// Whether there is one: it may take very much more memory than its text.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Whether it is one that a set with very dear filters would not take.
    pub(super) fn is_unanchored(&self) -> bool {
        self.0.as_ref().is_some_and(|parsed| !parsed.filter.is_looked_up())
    }

    /// How much work it is to put it into the exchange's set, beside what every binding is.
    pub(crate) fn effort(&self) -> usize {
        self.0.as_ref().map_or(0, |parsed| parsed.filter.effort())
    }
}

impl Prepared {
    /// Calls `with` with the filter in a binding's arguments, which have one.
    pub(super) fn with<R>(&self, arguments: TableRef<'_>, with: impl FnOnce(&Parsed) -> R) -> R {
        if let Prepared(Some(parsed)) = self {
            return with(parsed);
        }
        // It was checked when it came; by a later version's rules it may be none: then nothing matches it.
        let parsed = parse(arguments).ok().flatten().unwrap_or_else(never_matches);
        with(&parsed)
    }

    /// Whether there is room for it beside others.
    ///
    /// # Errors
    /// What there would be too much of.
    pub(super) fn check(
        &self,
        filters: Option<&Filters>,
        limits: FilterLimits,
    ) -> Result<(), SetFull> {
        match (self, filters) {
            (Prepared(None), _) => Ok(()),
            (Prepared(Some(parsed)), Some(filters)) => filters.check(parsed, limits),
            (Prepared(Some(parsed)), None) => {
                check_alone(parsed, &Filters::new(HashState::default(), 0), limits)
            }
        }
    }
}

impl PartialEq for Prepared {
    fn eq(&self, _: &Prepared) -> bool {
        true
    }
}

/// How much work a request to bind is that is refused, if its arguments have a filter: it may have been read to its end.
pub(crate) fn request_effort(arguments: &Table) -> usize {
    let text = |name| arguments.get(name).and_then(Value::as_text);
    let filter = text(FILTER).or_else(|| text(SELECTOR));
    filter.map_or(0, |filter| refused_effort(filter.as_bytes()))
}

/// How much more it may be to refuse a filter than to read a simple one of its length.
const REFUSED_EFFORT: usize = 16;

/// How much work it is to refuse what may have a filter somewhere.
fn refused_effort(bytes: &[u8]) -> usize {
    REFUSED_EFFORT * Filter::effort_of_text(bytes.len()) + Filter::effort_of_regexps(bytes)
}

fn refuse(text: String) -> Refusal {
    Refusal::new(RefusalKind::PreconditionFailed, text)
}

/// The text of the filter, and under which name it came.
fn text<'a>(arguments: TableRef<'a>) -> Result<Option<(&'static str, &'a str)>, Refusal> {
    let mut found = None;
    for name in [FILTER, SELECTOR] {
        let Some(value) = arguments.get(name) else { continue };
        let ValueRef::LongString(bytes) = value else {
            return Err(refuse(format!("invalid {name}: a filter is a string")));
        };
        let text = str::from_utf8(bytes).map_err(|error| {
            let at = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).chars().count() + 1;
            refuse(format!("invalid {name} at character {at}: it is not UTF-8"))
        })?;
        if name == SELECTOR && text.is_empty() {
            continue;
        }
        if found.is_some() {
            return Err(refuse(format!("{FILTER} and {SELECTOR} mean the same: give one of them")));
        }
        found = Some((name, text));
    }
    Ok(found)
}

fn format_of(arguments: TableRef<'_>) -> Result<BodyFormat, Refusal> {
    let Some(value) = arguments.get(FORMAT) else { return Ok(BodyFormat::Auto) };
    value
        .as_text()
        .and_then(BodyFormat::from_name)
        .ok_or_else(|| refuse(format!("invalid {FORMAT}: it is auto, json, fix, nvfix or none")))
}

/// Whether a binding with these arguments has a filter.
pub(crate) fn is_filtered(arguments: TableRef<'_>) -> bool {
    if arguments.is_empty() {
        return false;
    }
    let selector = arguments.get(SELECTOR).and_then(ValueRef::as_text);
    arguments.get(FILTER).is_some() || selector.is_some_and(|text| !text.is_empty())
}

/// The filter in a binding's arguments, if there is one.
///
/// # Errors
/// 406 for one that is not well-formed, with the place in its text.
fn parse(arguments: TableRef<'_>) -> Result<Option<Parsed>, Refusal> {
    if arguments.is_empty() {
        return Ok(None);
    }
    let format = format_of(arguments)?;
    let Some((name, text)) = text(arguments)? else { return Ok(None) };
    let filter = Filter::parse(text, &Limits::default());
    let filter = filter.map_err(|error| {
        let why = format!(": {}", error.reason.reply());
        let kind = RefusalKind::PreconditionFailed;
        Refusal::with_private(kind, format!("invalid {name} {error}"), why)
    })?;
    Ok(Some(Parsed { filter, format }))
}

/// The filter in a consumer's arguments, if there is one, and how it reads bodies; or why it is refused, as for a
/// binding's. And how much work it was to find that out, as [`Filter::effort`] has it.
pub fn consumer_filter(
    arguments: TableRef<'_>,
) -> (Result<Option<(Filter, BodyFormat)>, Refusal>, usize) {
    let found = parse(arguments).map(|found| found.map(|found| (found.filter, found.format)));
    let effort = match &found {
        Ok(found) => found.as_ref().map_or(0, |(filter, _)| filter.effort()),
        Err(_) => refused_effort(arguments.bytes()),
    };
    (found, effort)
}

/// A filter that nothing matches.
fn never_matches() -> Parsed {
    let filter = Filter::parse("FALSE", &Limits::default()).expect("it is a filter");
    Parsed { filter, format: BodyFormat::None }
}

/// Whether a binding with these arguments makes sense, as far as its filter goes.
///
/// # Errors
/// 406 as for [`parse`], and where an exchange that routes by filters alone gets a binding without one.
pub(crate) fn check(kind: ExchangeKind, arguments: TableRef<'_>) -> Result<Prepared, Refusal> {
    match parse(arguments)? {
        None if kind == ExchangeKind::Filter => Err(refuse(format!(
            "a binding of an exchange of type '{}' needs {FILTER}",
            kind.name()
        ))),
        parsed => Ok(Prepared(parsed.map(Arc::new))),
    }
}

/// What all filters of an exchange may have together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterLimits {
    /// Distinct fields that are named.
    pub(crate) fields_max: usize,
    /// Bytes that they take.
    pub(crate) bytes_max: usize,
}

/// A binding with a filter.
#[derive(Clone, Copy, Debug)]
struct Filtered {
    binding: u32,
    /// The place of its set.
    set: u32,
    subscription: Subscription,
}

/// All filters of an exchange's bindings.
#[derive(Clone, Debug)]
pub(crate) struct Filters {
    hash: HashState,
    /// The place of the exchange.
    exchange: u32,
    /// One for each way to read bodies that there is.
    sets: Vec<(BodyFormat, FilterSet)>,
    by_binding: LinearTable<Filtered>,
    /// What shards say that asking them takes there, where it is much.
    told: Vec<(ShardId, FilterCost)>,
    /// The most distinct filters that were not looked up when a shard said so: so many may come back.
    unanchored_told: u32,
}

impl Filters {
    /// Without any filter, of the exchange at a place.
    pub(crate) fn new(hash: HashState, exchange: u32) -> Filters {
        let (sets, by_binding, told) = (Vec::new(), LinearTable::new(), Vec::new());
        Filters { hash, exchange, sets, by_binding, told, unanchored_told: 0 }
    }

    /// Number of bindings with a filter.
    pub(crate) fn len(&self) -> usize {
        self.by_binding.len()
    }

    /// Fields that they name, of each way to read bodies by itself.
    fn fields(&self) -> usize {
        self.sets.iter().map(|(_, set)| set.fields()).sum()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        let sets: usize = self.sets.iter().map(|(_, set)| set.bytes()).sum();
        size_of::<Filters>() + sets + self.by_binding.len() * size_of::<Filtered>()
    }

    /// Whether there is room for one more filter.
    ///
    /// # Errors
    /// What there would be too much of.
    pub(crate) fn check(&self, parsed: &Parsed, limits: FilterLimits) -> Result<(), SetFull> {
        let Some((_, set)) = self.sets.iter().find(|(other, _)| *other == parsed.format) else {
            return check_alone(parsed, self, limits);
        };
        let others = self.bytes() - set.bytes();
        let fields = self.fields() - set.fields();
        let FilterLimits { fields_max, bytes_max } = limits;
        let paths_max = fields_max.saturating_sub(fields);
        set.check(&parsed.filter, &SetLimits { paths_max, bytes_max, ..UNLIMITED }, others)
    }

    /// Adds the filter of a binding that has none yet.
    pub(crate) fn insert(&mut self, link: Link, parsed: &Parsed) {
        let (Parsed { filter, format }, binding) = (parsed, link.binding);
        let found = self.sets.iter().position(|(other, _)| other == format);
        let set = found.unwrap_or_else(|| {
            self.sets.push((*format, FilterSet::new(UNLIMITED, self.hash)));
            self.sets.len() - 1
        });
        let subscription = self.sets[set].1.add(filter, link.to_bits());
        let subscription = subscription.expect("a set without limits takes any filter");
        let entry = Filtered { binding, set: set as u32, subscription };
        let state = self.hash;
        self.by_binding
            .insert_unique(state.hash_one(binding), entry, |entry| state.hash_one(entry.binding));
    }

    /// Removes the filter of a binding. Whether it had one.
    pub(crate) fn remove(&mut self, binding: u32) -> bool {
        let hash = self.hash.hash_one(binding);
        let Some(entry) = self.by_binding.remove(hash, |entry| entry.binding == binding) else {
            return false;
        };
        let was_there = self.sets[entry.set as usize].1.remove(entry.subscription);
        assert!(was_there, "a binding's filter stays in its set as long as the binding");
        true
    }

    fn contains(&self, binding: u32) -> bool {
        let hash = self.hash.hash_one(binding);
        self.by_binding.find(hash, |entry| entry.binding == binding).is_some()
    }

    /// Tidies up for about so many steps. Returns whether there is more to do.
    pub(crate) fn tidy(&mut self, steps: usize) -> bool {
        self.sets.iter_mut().any(|(_, set)| set.work(steps))
    }

    /// Finds the bindings whose filters a message matches. Those that take more than their share of the steps match
    /// nothing, and take nothing along.
    fn find(&self, message: Message<'_>, scan: &mut FilterScan, meter: &Meter) {
        scan.links.clear();
        let (mut reading, mut matching) = (0, 0);
        let mut is_unreadable = false;
        for (format, set) in &self.sets {
            let asked = lepus_filter::Message {
                properties: message.properties,
                body: message.body,
                format: *format,
                meta: Meta {
                    exchange: Some(message.exchange.as_bytes()),
                    routing_key: Some(message.keys.first.as_bytes()),
                    time: Some(message.millis),
                    ..Meta::default()
                },
            };
            scan.found.clear();
            let reading_max = u64::from(meter.left() / READING_SHARE / STEPS);
            // No byte is more than a step.
            let bytes = asked.body.len() + asked.properties.0.len();
            if bytes as u64 > reading_max && set.reading_steps(&asked) > reading_max {
                scan.given_up = scan.given_up.saturating_add(1);
                continue;
            }
            let steps_max = u64::from(meter.left() / SHARE / STEPS);
            let report = set.matches(&asked, steps_max, &mut scan.scratch, &mut scan.found);
            reading += report.reading_steps;
            matching += report.steps - report.reading_steps;
            let steps = report.steps.saturating_mul(u64::from(STEPS));
            meter.spend(u32::try_from(steps).unwrap_or(u32::MAX));
            scan.given_up = scan.given_up.saturating_add(report.has_run_out().into());
            is_unreadable |= report.is_body_unreadable;
            scan.links.extend(scan.found.iter().map(|found| Link::from_bits(found.target)));
        }
        scan.unreadable = scan.unreadable.saturating_add(is_unreadable.into());
        scan.links.sort_unstable_by_key(|link| link.binding);
        if scan.samples.is_drawn() {
            scan.samples.add(FilterSample::new(
                self.exchange,
                reading,
                matching,
                self.unanchored(),
            ));
        }
    }
}

/// Memory for finding what matches, used again for the next message.
#[derive(Debug, Default)]
pub(crate) struct FilterScan {
    scratch: Scratch,
    found: Vec<Match>,
    /// Those of the bindings whose filters the message matched that was asked last, by place of the binding.
    links: Vec<Link>,
    /// Sets that took more steps than they may, and were not told.
    given_up: u32,
    /// Exchanges whose filters asked for a body that could not be read, and were not told.
    unreadable: u32,
    samples: Samples,
}

impl FilterScan {
    /// Whether there is something to be taken of what is below.
    #[inline]
    pub(super) fn has_notes(&self) -> bool {
        (self.given_up | self.unreadable > 0) | !self.samples.is_empty()
    }

    /// How many sets took more steps than they may, since this was asked last.
    pub(super) fn take_given_up(&mut self) -> u32 {
        core::mem::take(&mut self.given_up)
    }

    /// How often an exchange's filters asked for a body that could not be read, since this was asked last.
    pub(super) fn take_unreadable(&mut self) -> u32 {
        core::mem::take(&mut self.unreadable)
    }

    /// Messages that were drawn since this was asked last.
    pub(super) fn take_samples(&mut self) -> impl Iterator<Item = FilterSample> {
        self.samples.take()
    }
}

/// A set takes what it is given: how much that may be is checked before.
const UNLIMITED: SetLimits = SetLimits {
    filters_max: usize::MAX,
    unindexed_max: usize::MAX,
    paths_max: usize::MAX,
    bytes_max: usize::MAX,
    body_bytes_max: 1 << 20,
};

/// Whether there is room for the first filter of a set, beside so many bytes of others.
fn check_alone(parsed: &Parsed, others: &Filters, limits: FilterLimits) -> Result<(), SetFull> {
    let Parsed { filter, .. } = parsed;
    let allowed = limits.fields_max;
    if others.fields() + filter.field_count() > allowed {
        return Err(SetFull { what: "fields in all filters", allowed });
    }
    let allowed = limits.bytes_max;
    if others.bytes().saturating_add(filter.bytes_max()) > allowed {
        return Err(SetFull { what: "bytes for all filters", allowed });
    }
    Ok(())
}

/// What an exchange's filters say of one message; they are asked when the first binding with one is met.
pub(super) struct Verdicts<'a> {
    filters: Option<&'a Filters>,
    message: Message<'a>,
    scan: &'a mut FilterScan,
    meter: &'a Meter,
    is_known: bool,
}

impl<'a> Verdicts<'a> {
    pub(super) fn new(
        filters: Option<&'a Filters>,
        message: Message<'a>,
        scan: &'a mut FilterScan,
        meter: &'a Meter,
    ) -> Verdicts<'a> {
        Verdicts { filters, message, scan, meter, is_known: false }
    }

    /// Whether the message may take a binding.
    #[inline]
    pub(super) fn pass(&mut self, binding: u32) -> bool {
        match self.filters {
            None => true,
            Some(filters) => self.ask(filters, binding),
        }
    }

    #[inline(never)]
    fn ask(&mut self, filters: &Filters, binding: u32) -> bool {
        if !filters.contains(binding) {
            return true;
        }
        if !core::mem::replace(&mut self.is_known, true) {
            filters.find(self.message, self.scan, self.meter);
        }
        self.scan.links.binary_search_by_key(&binding, |link| link.binding).is_ok()
    }

    /// Links of all bindings whose filters the message matches, in memory that [`Verdicts::end`] takes back.
    pub(super) fn find_all(&mut self) -> Vec<Link> {
        let Some(filters) = self.filters else { return Vec::new() };
        self.is_known = true;
        filters.find(self.message, self.scan, self.meter);
        core::mem::take(&mut self.scan.links)
    }

    /// All links were looked at. Whether a filter had a say.
    pub(super) fn end(self, links: Vec<Link>) -> bool {
        if links.capacity() > 0 {
            self.scan.links = links;
        }
        self.is_known
    }
}
