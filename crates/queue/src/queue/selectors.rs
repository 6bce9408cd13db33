//! What the consumers of a queue want of it: their filters, each distinct one once.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell};
use core::fmt;

use lepus_base::HashState;
use lepus_filter::{
    BodyFormat, Filter, FilterSet, Match, Message, Meta, Scratch, SetLimits, Subscription, Way,
};

use crate::message::MessageView;

/// Selectors that a queue has at most.
pub const SELECTORS_MAX: usize = 64;
/// Steps that all selectors of a queue together may take for a message, of some ten nanoseconds each. One that takes more
/// matches none of them.
const STEPS_MAX: u64 = 32_768;
/// Steps of filters that count as much as a message.
pub(super) const STEPS_PER_MESSAGE: u64 = 128;
/// Steps that take as long as a filter's unit of effort, some two microseconds.
const EFFORT_STEPS: u64 = 200;

/// Bytes that the filters of a queue take at most, of those that read bodies in the same way.
const SET_BYTES_MAX: usize = 1 << 20;

/// Bounds of what reads bodies in the same way.
const SET_LIMITS: SetLimits = SetLimits {
    filters_max: SELECTORS_MAX,
    unindexed_max: SELECTORS_MAX,
    paths_max: 1000,
    bytes_max: SET_BYTES_MAX,
    body_bytes_max: 1 << 20,
};

/// The filter of a consumer.
#[derive(Clone)]
pub struct ConsumerFilter {
    /// What it says.
    pub filter: Filter,
    /// How it reads bodies.
    pub format: BodyFormat,
    /// With what its values are hashed.
    pub hash: HashState,
}

impl ConsumerFilter {
    /// What it says, in normal form.
    #[must_use]
    pub fn text(&self) -> &str {
        self.filter.normal()
    }
}

impl PartialEq for ConsumerFilter {
    fn eq(&self, other: &ConsumerFilter) -> bool {
        (self.text(), self.format) == (other.text(), other.format)
    }
}

impl Eq for ConsumerFilter {}

impl fmt::Debug for ConsumerFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConsumerFilter").field(&self.text()).field(&self.format).finish()
    }
}

/// A selector, and how it gets on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorFigures {
    /// Its filter; `None` for consumers that want everything.
    pub filter: Option<Arc<ConsumerFilter>>,
    /// How it comes to be asked: `looked_up`, `compared` or `evaluated`.
    pub way: &'static str,
    /// What evaluating it takes, by what it is made of.
    pub cost: u32,
    /// Consumers that have it.
    pub consumers: u32,
    /// Messages that it was asked about.
    pub evaluations: u64,
    /// Messages that its consumers got.
    pub deliveries: u64,
    /// How often it took more than it may for a message, which does not match then.
    pub given_up: u64,
}

/// A selector by its number, which is below [`SELECTORS_MAX`].
pub(super) type Number = u8;
/// Consumers without a filter want everything.
pub(super) const EVERYTHING: Number = 0;

/// A set of selectors, a bit for each.
pub type SelectorBits = u64;

/// The bit of a selector.
pub(super) fn bit(selector: Number) -> SelectorBits {
    1 << selector
}

/// The selectors in a set.
pub(super) fn numbers(mut bits: SelectorBits) -> impl Iterator<Item = Number> {
    core::iter::from_fn(move || {
        let number = (bits != 0).then(|| bits.trailing_zeros() as Number)?;
        bits &= bits - 1;
        Some(number)
    })
}

/// Memory for asking selectors, used again for the next message.
#[derive(Debug, Default)]
pub struct SelectScratch {
    scratch: Scratch,
    found: Vec<Match>,
    given_up: u32,
    unreadable: u32,
    steps: u64,
}

impl SelectScratch {
    /// What asking took since this was asked last, in messages that cheap filters look at.
    pub fn take_looks(&mut self) -> usize {
        usize::try_from(core::mem::take(&mut self.steps) / STEPS_PER_MESSAGE).unwrap_or(usize::MAX)
    }

    /// How often a filter took more than it may, since this was asked last.
    pub fn take_given_up(&mut self) -> u32 {
        core::mem::take(&mut self.given_up)
    }

    /// How often filters asked for a body that could not be read, since this was asked last: one that is malformed, too long
    /// or encoded.
    pub fn take_bodies_unreadable(&mut self) -> u32 {
        core::mem::take(&mut self.unreadable)
    }
}

/// What selectors say of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Selected {
    /// Those that it matches, and how many steps it took to say so.
    Matches(SelectorBits, u64),
    /// The message is being read; [`crate::command::Wake`] says when to try again.
    Pending,
    /// The message cannot be read any more.
    Lost,
}

/// A distinct filter with its consumers.
struct Selector {
    filter: Option<Arc<ConsumerFilter>>,
    consumers: u32,
    /// The set that it is in, and its place there; [`EVERYTHING`] is in none.
    filed: Option<(usize, Subscription)>,
    /// Itself alone, to be asked where all together take too much; made when they do for the first time.
    alone: OnceCell<Box<FilterSet>>,
    /// How often it took more than its share.
    given_up: Cell<u64>,
}

impl Selector {
    /// Itself alone, at a place of all; none for everything. It is made where it is not there, which takes steps.
    fn alone(&self, place: usize, steps: &mut u64) -> Option<&FilterSet> {
        let filter = self.filter.as_ref()?;
        let made = || {
            *steps += EFFORT_STEPS * filter.filter.effort() as u64;
            let mut alone = Box::new(FilterSet::new(SET_LIMITS, filter.hash));
            let added = alone.add(&filter.filter, place as u64);
            assert!(added.is_ok(), "what a set with others takes is taken alone");
            alone
        };
        Some(self.alone.get_or_init(made))
    }
}

/// The selectors of a queue with filtered consumers.
pub struct Selectors {
    /// By number.
    all: Vec<Option<Selector>>,
    /// One for each way to read bodies that there is.
    sets: Vec<(BodyFormat, FilterSet)>,
    present: SelectorBits,
}

impl fmt::Debug for Selectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |selector: &Option<Selector>| {
            selector.as_ref().map(|one| (one.filter.clone(), one.consumers))
        };
        f.debug_list().entries(self.all.iter().map(of)).finish()
    }
}

impl Selectors {
    /// None but the one for everything, which nobody uses.
    pub(super) fn new() -> Selectors {
        Selectors { all: Vec::new(), sets: Vec::new(), present: 0 }
    }

    /// Those that somebody uses.
    pub(super) fn present(&self) -> SelectorBits {
        self.present
    }

    /// Whether a consumer with a filter is there.
    pub(super) fn are_any_filtered(&self) -> bool {
        self.present & !bit(EVERYTHING) != 0
    }

    /// The selector of a filter, if somebody uses it.
    fn find(&self, filter: Option<&Arc<ConsumerFilter>>) -> Option<Number> {
        let is_it = |selector: &&Option<Selector>| {
            selector.as_ref().is_some_and(|one| one.filter.as_ref() == filter)
        };
        let place = self.all.iter().position(|selector| is_it(&selector))?;
        Some(place as Number)
    }

    /// So many further consumers use a filter. Its number, and whether nobody used it before.
    ///
    /// # Errors
    /// In words, when there are too many, or what the filter says is not taken.
    pub(super) fn join(
        &mut self,
        filter: Option<&Arc<ConsumerFilter>>,
        consumers: u32,
    ) -> Result<(Number, bool), Box<str>> {
        if let Some(number) = self.find(filter)
            && let Some(Some(selector)) = self.all.get_mut(usize::from(number))
        {
            selector.consumers += consumers;
            return Ok((number, false));
        }
        if self.all.is_empty() {
            self.all.push(None);
        }
        let place = match filter {
            None => usize::from(EVERYTHING),
            Some(_) => {
                let free = self.all.iter().skip(1).position(Option::is_none);
                free.map_or(self.all.len(), |place| place + 1)
            }
        };
        if place >= SELECTORS_MAX {
            return Err("its consumers have 63 different filters already".into());
        }
        let filed = filter.map(|filter| self.file(filter, place)).transpose()?;
        if place == self.all.len() {
            self.all.push(None);
        }
        let (alone, given_up) = (OnceCell::new(), Cell::new(0));
        let filter = filter.cloned();
        self.all[place] = Some(Selector { filter, consumers, filed, alone, given_up });
        self.present |= bit(place as Number);
        Ok((place as Number, true))
    }

    fn file(
        &mut self,
        filter: &ConsumerFilter,
        place: usize,
    ) -> Result<(usize, Subscription), Box<str>> {
        let found = self.sets.iter().position(|(format, _)| *format == filter.format);
        let set = found.unwrap_or_else(|| {
            self.sets.push((filter.format, FilterSet::new(SET_LIMITS, filter.hash)));
            self.sets.len() - 1
        });
        let added = self.sets[set].1.add(&filter.filter, place as u64);
        let subscription = added.map_err(|full| alloc::format!("x-filter: {full}"))?;
        Ok((set, subscription))
    }

    /// Those that somebody uses: their numbers, filters, and how many consumers have them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Number, Option<&Arc<ConsumerFilter>>, u32)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(place, selector)| {
            let selector = selector.as_ref()?;
            Some((place as Number, selector.filter.as_ref(), selector.consumers))
        })
    }

    /// How a selector comes to be asked, and what evaluating it takes. One for everything takes nothing.
    pub(super) fn cost(&self, number: Number) -> (&'static str, u32) {
        let selector = self.all.get(usize::from(number)).and_then(Option::as_ref);
        let filed = selector.and_then(|selector| selector.filed);
        let listed = filed.and_then(|(set, subscription)| self.sets[set].1.listed(subscription));
        listed.map_or((Way::LookedUp.name(), 0), |listed| (listed.way.name(), listed.cost))
    }

    /// How often a selector took more than it may for a message.
    pub(super) fn given_up(&self, number: Number) -> u64 {
        let selector = self.all.get(usize::from(number)).and_then(Option::as_ref);
        selector.map_or(0, |selector| selector.given_up.get())
    }

    /// The filter of a selector, which its consumers share.
    pub(super) fn filter(&self, number: Number) -> Option<&Arc<ConsumerFilter>> {
        self.all.get(usize::from(number))?.as_ref()?.filter.as_ref()
    }

    /// A consumer of a selector goes. Whether it was the last one.
    pub(super) fn leave(&mut self, number: Number) -> bool {
        let place = usize::from(number);
        let Some(Some(selector)) = self.all.get_mut(place) else {
            invariant!("a consumer's selector is there")
        };
        selector.consumers -= 1;
        if selector.consumers > 0 {
            return false;
        }
        if let Some((set, subscription)) = selector.filed {
            let was_there = self.sets[set].1.remove(subscription);
            assert!(was_there, "a selector stays in its set as long as it is used");
            // One group at a time: selectors are few.
            while self.sets[set].1.work(usize::MAX) {}
        }
        self.all[place] = None;
        self.present &= !bit(number);
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
        }
        true
    }

    /// Which of them a message matches, and the steps that it took.
    pub fn ask(&self, view: &MessageView<'_>, scratch: &mut SelectScratch) -> Selected {
        let mut bits = self.present & bit(EVERYTHING);
        let (mut steps, mut is_unreadable) = (1, false);
        for (format, set) in &self.sets {
            let meta = Meta {
                exchange: Some(view.exchange),
                routing_key: Some(view.routing_key),
                ..Meta::default()
            };
            let message = Message::new(view.properties, view.body, *format, meta);
            scratch.found.clear();
            let left = STEPS_MAX.saturating_sub(steps);
            let report = set.matches(&message, left, &mut scratch.scratch, &mut scratch.found);
            steps += report.steps;
            is_unreadable |= report.is_body_unreadable;
            if report.has_run_out {
                is_unreadable |= self.ask_each(&message, scratch, &mut steps);
            }
            bits |= scratch.found.iter().fold(0, |bits, found| bits | 1 << found.target);
        }
        scratch.unreadable += u32::from(is_unreadable);
        scratch.steps += steps;
        Selected::Matches(bits, steps)
    }

    /// Asks those that read bodies in a way one by one, each with its share: what one takes is not what others miss.
    /// Whether one asked for the body, which could not be read.
    #[cold]
    fn ask_each(
        &self,
        message: &Message<'_>,
        scratch: &mut SelectScratch,
        steps: &mut u64,
    ) -> bool {
        let mut is_unreadable = false;
        let all = self.all.iter().enumerate();
        let all = all.filter_map(|(place, selector)| Some((place, selector.as_ref()?)));
        let alike = all.filter(|(_, selector)| {
            selector.filter.as_ref().is_some_and(|filter| filter.format == message.format)
        });
        let share = STEPS_MAX / (alike.clone().count().max(1) as u64);
        for (place, selector) in alike {
            let Some(alone) = selector.alone(place, steps) else { continue };
            let report = alone.matches(message, share, &mut scratch.scratch, &mut scratch.found);
            *steps += report.steps;
            if report.has_run_out {
                scratch.given_up += 1;
                selector.given_up.set(selector.given_up.get() + 1);
            }
            is_unreadable |= report.is_body_unreadable;
        }
        is_unreadable
    }

    /// Allocated bytes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let texts = self.all.iter().flatten().filter_map(|selector| selector.filter.as_ref());
        let alone = self.all.iter().flatten().filter_map(|selector| selector.alone.get());
        self.all.capacity() * size_of::<Option<Selector>>()
            + texts.map(|filter| filter.text().len()).sum::<usize>()
            + self.sets.iter().map(|(_, set)| set.bytes()).sum::<usize>()
            + alone.map(|alone| alone.bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_amqp::Properties;
    use lepus_filter::Limits;

    fn filter(text: &str) -> Arc<ConsumerFilter> {
        let filter = Filter::parse(text, &Limits::default()).expect("it is a filter");
        let (format, hash) = (BodyFormat::Auto, HashState::default());
        Arc::new(ConsumerFilter { filter, format, hash })
    }

    fn ask(selectors: &Selectors, kind: &str) -> SelectorBits {
        let properties = Properties { message_type: Some(kind.into()), ..Properties::default() };
        let properties = properties.to_bytes();
        let view = MessageView { properties: &properties, body: b"{}", ..MessageView::default() };
        match selectors.ask(&view, &mut SelectScratch::default()) {
            Selected::Matches(bits, _) => bits,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_filters_are_one_selector_which_goes_with_its_last_consumer() {
        let mut all = Selectors::new();
        let (gold, again) = (filter("p.type='gold'"), filter("p.type = 'gold'"));
        assert_eq!(all.join(None, 2), Ok((0, true)));
        assert_eq!(all.join(Some(&gold), 1), Ok((1, true)));
        assert_eq!(all.join(Some(&again), 1), Ok((1, false)));
        assert_eq!(all.join(Some(&filter("p.type='lead'")), 1), Ok((2, true)));
        assert_eq!((ask(&all, "gold"), ask(&all, "lead"), ask(&all, "tin")), (0b11, 0b101, 1));
        assert!(!all.leave(1));
        assert!(all.leave(1));
        assert_eq!((ask(&all, "gold"), all.present()), (1, 0b101));
        assert_eq!(all.join(Some(&filter("p.type='tin'")), 1), Ok((1, true)));
        assert_eq!((ask(&all, "gold"), ask(&all, "tin")), (1, 0b11));
        assert!(!all.leave(0) && all.leave(0) && all.leave(1) && all.leave(2));
        assert_eq!((ask(&all, "gold"), all.are_any_filtered()), (0, false));
    }

    #[test]
    fn there_are_63_different_filters_at_most() {
        let mut all = Selectors::new();
        for number in 1..64 {
            let filter = filter(&alloc::format!("p.type='{number}'"));
            assert_eq!(all.join(Some(&filter), 1), Ok((number, true)));
        }
        assert!(all.join(Some(&filter("p.type='64'")), 1).is_err());
        assert_eq!(all.join(None, 1), Ok((0, true)));
        assert_eq!((ask(&all, "63"), ask(&all, "64")), (1 << 63 | 1, 1));
        assert!(all.leave(7));
        assert_eq!(all.join(Some(&filter("p.type='64'")), 1), Ok((7, true)));
        assert_eq!(ask(&all, "64"), 1 << 7 | 1);
    }

    #[test]
    fn how_bodies_are_read_is_part_of_a_selector() {
        let mut all = Selectors::new();
        let json = filter("b.x IS MISSING");
        let none = ConsumerFilter { format: BodyFormat::None, ..ConsumerFilter::clone(&json) };
        let none = Arc::new(none);
        assert_eq!(all.join(Some(&json), 1), Ok((1, true)));
        assert_eq!(all.join(Some(&none), 1), Ok((2, true)));
        let view =
            MessageView { properties: &[0, 0], body: b"{\"x\":1}", ..MessageView::default() };
        let found = all.ask(&view, &mut SelectScratch::default());
        assert!(matches!(found, Selected::Matches(0b100, _)), "{found:?}");
    }

    #[test]
    fn bodies_that_filters_ask_for_and_cannot_read_are_counted() {
        let mut all = Selectors::new();
        let mut scratch = SelectScratch::default();
        let mut counted = |all: &Selectors, body: &[u8]| {
            let view = MessageView { properties: &[0, 0], body, ..MessageView::default() };
            let found = all.ask(&view, &mut scratch);
            (found, scratch.take_bodies_unreadable())
        };
        let _ = all.join(Some(&filter("p.type = 'gold'")), 1).unwrap();
        assert_eq!(counted(&all, b"{").1, 0);
        // Two that ask for it are one message.
        for text in ["b.x IS MISSING", "b.y = 1"] {
            let _ = all.join(Some(&filter(text)), 1).unwrap();
        }
        assert_eq!(counted(&all, b"{}").1, 0);
        let (found, count) = counted(&all, b"{");
        assert!(matches!(found, Selected::Matches(0b100, _)), "{found:?}");
        assert_eq!(count, 1);
        assert_eq!(counted(&all, b"{\"y\": 1}").1, 0);
        assert_eq!(counted(&all, &[b'['; (1 << 20) + 1]).1, 1);
        // Nor is it more than one where they are asked one by one, which it is that they find.
        let dear = "LENGTH(p.correlation_id) > 0 AND p.correlation_id REGEXP '(a?){300}b'";
        let _ = all.join(Some(&filter(dear)), 1).unwrap();
        let properties =
            Properties { correlation_id: Some("a".repeat(250)), ..Properties::default() };
        let properties = properties.to_bytes();
        let view = MessageView { properties: &properties, body: b"{", ..MessageView::default() };
        let mut scratch = SelectScratch::default();
        let found = all.ask(&view, &mut scratch);
        assert!(matches!(found, Selected::Matches(0b100, _)), "{found:?}");
        assert_eq!((scratch.take_given_up(), scratch.take_bodies_unreadable()), (1, 1));
    }

    #[test]
    fn a_filter_is_kept_once_until_all_together_take_too_much() {
        let mut all = Selectors::new();
        let many = |from: usize| {
            let values: Vec<_> = (from..from + 60).map(|n| alloc::format!("'{n}'")).collect();
            alloc::format!("p.type IN ({})", values.join(", "))
        };
        let mut sets = 0;
        for number in 0..9 {
            let text = match number {
                // What it takes is not to be had of the others.
                0 => "b.t REGEXP '(a?){300}b'".into(),
                _ => many(100 * number),
            };
            let _ = all.join(Some(&filter(&text)), 1).unwrap();
            sets += all.sets[0].1.bytes() / 9;
        }
        let once = all.memory_bytes();
        let texts: usize = (1..10).map(|n| all.filter(n).unwrap().text().len()).sum();
        let places = all.all.capacity() * size_of::<Option<Selector>>();
        assert_eq!(once, all.sets[0].1.bytes() + texts + places);
        assert_eq!(all.cost(1).0, "evaluated");
        assert_eq!(
            (all.cost(2).0, all.cost(0), all.cost(40)),
            ("looked_up", all.cost(0), all.cost(0))
        );
        assert_eq!(ask(&all, "830"), 1 << 9);
        assert_eq!(all.memory_bytes(), once);
        let properties = Properties { message_type: Some("120".into()), ..Properties::default() };
        let properties = properties.to_bytes();
        let body = alloc::format!("{{\"t\":\"{}\"}}", "a".repeat(20_000));
        let (properties, body) = (&properties[..], body.as_bytes());
        let view = MessageView { properties, body, ..MessageView::default() };
        let mut scratch = SelectScratch::default();
        let found = all.ask(&view, &mut scratch);
        assert!(matches!(found, Selected::Matches(0b100, _)), "{found:?}");
        assert_eq!(scratch.take_given_up(), 1, "the others were asked by themselves");
        assert!(all.memory_bytes() > once + sets / 2, "{} of {once}", all.memory_bytes());
        // They say the same.
        assert_eq!(ask(&all, "830"), 1 << 9);
    }
}
