//! What the consumers of a queue want of it: their filters, each distinct one once.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use lepus_base::HashState;
use lepus_filter::{BodyFormat, Dear, Filter, Match, Message, Meta, Report, Scratch, Shares, Way};

use super::filter_sets::{Filed, FilterSets, Pass};
use crate::message::MessageView;

/// Selectors that a queue has at most.
pub const SELECTORS_MAX: usize = 64;
/// Steps that all selectors of a queue together may take for a message, of some ten nanoseconds each. One that takes more
/// matches none of them.
const STEPS_MAX: u64 = 32_768;
/// Steps of filters that count as much as a message.
pub(super) const STEPS_PER_MESSAGE: u64 = 128;

/// Steps that a pass of filters may take before it is asked which of them are dear: as long as eight messages.
const PASS_STEPS: u64 = 8 * STEPS_PER_MESSAGE;
/// A filter that takes more of them alone is dear.
const DEAR_STEPS: u64 = 2 * STEPS_PER_MESSAGE;
/// A filter that takes more of them is told of: where all together just do not take too much.
const TOLD_STEPS: u64 = PASS_STEPS / SELECTORS_MAX as u64;

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
    /// Whether it took much for a message, so that it catches up apart from others.
    pub is_dear: bool,
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
    dear: Vec<Dear>,
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
    /// The answer of those that were asked.
    Matches {
        /// Those that it matches.
        selectors: SelectorBits,
        /// Steps that it took to say so.
        steps: u64,
        /// Those that are found to be dear by this message.
        dear: SelectorBits,
    },
    /// The message is being read; [`crate::command::Wake`] says when to try again.
    Pending,
    /// The message cannot be read any more.
    Lost,
}

/// A distinct filter with its consumers.
struct Selector {
    filter: Option<Arc<ConsumerFilter>>,
    consumers: u32,
    /// Where its filter is; [`EVERYTHING`] has none.
    filed: Option<Filed>,
    /// How often it took more than its share.
    given_up: Cell<u64>,
}

/// What selectors were found to say of a message.
#[derive(Default)]
struct Answer {
    /// Those that it matches.
    matches: SelectorBits,
    steps: u64,
    /// Of these, the ones of reading the message, which have no bound of their own.
    reading_steps: u64,
    /// Those that would have taken more than they may, and what they took.
    given_up: SelectorBits,
    in_vain: u64,
    /// Of that, what is not counted against those who are asked again.
    not_counted: u64,
    /// Those that are dear.
    dear: SelectorBits,
    /// Whether one asked for the body, which could not be read.
    is_unreadable: bool,
}

/// The selectors of a queue with filtered consumers.
pub struct Selectors {
    /// By number.
    all: Vec<Option<Selector>>,
    sets: FilterSets,
    present: SelectorBits,
    /// Those whose filters took much for a message. They catch up apart from the others.
    dear: SelectorBits,
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
        Selectors { all: Vec::new(), sets: FilterSets::default(), present: 0, dear: 0 }
    }

    /// Those that somebody uses.
    pub(super) fn present(&self) -> SelectorBits {
        self.present
    }

    /// Of these, those that are dear.
    pub(super) fn dear(&self) -> SelectorBits {
        self.dear
    }

    /// Some were found to be dear.
    #[cold]
    pub(super) fn make_dear(&mut self, selectors: SelectorBits) {
        let new = selectors & self.present & !self.dear & !bit(EVERYTHING);
        for number in numbers(new) {
            let selector = self.all[usize::from(number)].as_mut();
            let filter_of = |one: &Selector| Some((one.filter.clone()?, one.filed?));
            let Some((filter, filed)) = selector.as_deref().and_then(filter_of) else {
                invariant!("a selector with a filter is filed")
            };
            let filed = self.sets.make_dear(&filter, number, filed);
            self.all[usize::from(number)].iter_mut().for_each(|one| one.filed = Some(filed));
        }
        self.dear |= new;
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
        let number = place as Number;
        let filed = filter.map(|filter| self.sets.file(filter, number)).transpose()?;
        if place == self.all.len() {
            self.all.push(None);
        }
        let given_up = Cell::new(0);
        let filter = filter.cloned();
        self.all[place] = Some(Selector { filter, consumers, filed, given_up });
        self.present |= bit(number);
        Ok((number, true))
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
        let cost = filed.and_then(|filed| self.sets.cost(filed));
        cost.map_or((Way::LookedUp.name(), 0), |(way, cost)| (way.name(), cost))
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
        if let Some(filed) = selector.filed {
            self.sets.remove(number, filed);
        }
        self.all[place] = None;
        self.present &= !bit(number);
        self.dear &= !bit(number);
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
        }
        true
    }

    /// Which of those that are `asked` a message matches, and the steps that it took.
    pub fn ask(
        &self,
        asked: SelectorBits,
        view: &MessageView<'_>,
        scratch: &mut SelectScratch,
    ) -> Selected {
        let filtered = asked & self.present & !bit(EVERYTHING);
        let each = STEPS_MAX / u64::from(filtered.count_ones().max(1));
        let mut answer = Answer { steps: 1, ..Answer::default() };
        let (mut to_come, mut passes) = (filtered, 0);
        for pass in self.sets.passes().filter(|pass| pass.members & filtered != 0) {
            // Those of the passes that follow have their shares as well.
            to_come &= !pass.members;
            let held = each * u64::from(to_come.count_ones());
            self.ask_pass((pass, filtered), (each, held), view, scratch, &mut answer);
            passes += 1;
        }
        if answer.given_up != 0 {
            self.end_with_those_who_gave_up(passes > 1, each, view, scratch, &mut answer);
        }
        scratch.unreadable += u32::from(answer.is_unreadable);
        scratch.steps += answer.steps;
        let selectors = (answer.matches | bit(EVERYTHING)) & self.present & asked;
        Selected::Matches { selectors, steps: answer.steps, dear: answer.dear & !self.dear }
    }

    /// Asks those of a pass that are `asked`, each of which has a share; so many steps are held for others.
    #[inline]
    fn ask_pass(
        &self,
        (pass, asked): (&Pass, SelectorBits),
        (each, held): (u64, u64),
        view: &MessageView<'_>,
        scratch: &mut SelectScratch,
        answer: &mut Answer,
    ) {
        let meta = Meta {
            exchange: Some(view.exchange),
            routing_key: Some(view.routing_key),
            ..Meta::default()
        };
        let message = Message::new(view.properties, view.body, pass.format, meta);
        let SelectScratch { scratch: room, found, dear, .. } = scratch;
        found.clear();
        dear.clear();
        let spent = (answer.steps - answer.reading_steps).saturating_sub(answer.not_counted);
        // Their own shares they have in any case, also where others took more in vain.
        let own = each * u64::from((pass.members & asked).count_ones());
        let left = STEPS_MAX.saturating_sub(spent + held).max(own);
        let shares = Shares { asked, each, dear: TOLD_STEPS };
        let report = pass.filters.matches_shared(&message, left, shares, room, found, dear);
        answer.steps += report.steps;
        answer.reading_steps += report.reading_steps;
        answer.is_unreadable |= report.is_body_unreadable;
        answer.matches |= found.iter().fold(0, |bits, found| bits | 1 << found.target);
        if report.has_run_out || !dear.is_empty() || report.steps > PASS_STEPS {
            self.see_what_took_much((pass, asked), &report, scratch, answer);
        }
    }

    /// Those who had not enough steps have what the passes behind theirs left. Who has not enough again matches not.
    #[cold]
    fn end_with_those_who_gave_up(
        &self,
        are_several: bool,
        each: u64,
        view: &MessageView<'_>,
        scratch: &mut SelectScratch,
        answer: &mut Answer,
    ) {
        if are_several {
            let gave_up = core::mem::take(&mut answer.given_up);
            answer.not_counted = answer.in_vain;
            for pass in self.sets.passes().filter(|pass| pass.members & gave_up != 0) {
                self.ask_pass((pass, gave_up), (each, 0), view, scratch, answer);
            }
        }
        for number in numbers(answer.given_up) {
            scratch.given_up += 1;
            if let Some(Some(selector)) = self.all.get(usize::from(number)) {
                selector.given_up.set(selector.given_up.get() + 1);
            }
        }
    }

    /// A pass took much: looks for those because of whom it did. Where it took more than it may for what is done for all of them
    /// at once, nobody of it matches.
    #[cold]
    fn see_what_took_much(
        &self,
        (pass, asked): (&Pass, SelectorBits),
        report: &Report,
        scratch: &mut SelectScratch,
        answer: &mut Answer,
    ) {
        let mut taken = [0; SELECTORS_MAX];
        let mut given_up = 0;
        for dear in &scratch.dear {
            taken[dear.target as usize] += dear.steps;
            given_up |= if dear.has_given_up { 1 << dear.target } else { 0 };
        }
        let evaluated: u64 = taken.iter().sum();
        let many = |most| (0..).zip(taken).filter(move |(_, taken)| *taken > most);
        answer.dear |= many(DEAR_STEPS).fold(given_up, |bits, (number, _)| bits | bit(number));
        // There may be many that take a little.
        let others = taken.iter().filter(|taken| **taken <= DEAR_STEPS).sum::<u64>();
        if others > PASS_STEPS {
            answer.dear |= many(0).fold(0, |bits, (number, _)| bits | bit(number));
        }
        if report.has_run_out {
            given_up = pass.members & asked;
        }
        given_up &= !answer.matches;
        answer.given_up |= given_up;
        answer.in_vain += numbers(given_up).map(|number| taken[usize::from(number)]).sum::<u64>();
        if pass.is_dear || report.steps.saturating_sub(evaluated) <= PASS_STEPS {
            return;
        }
        // What is left is mostly reading a body. Others need not wait for that.
        let reading = numbers(pass.members).filter(|number| {
            self.filter(*number).is_some_and(|filter| filter.filter.reads_bodies())
        });
        answer.dear |= match reading.fold(0, |bits, number| bits | bit(number)) {
            0 => pass.members,
            reading => reading,
        };
    }

    /// Allocated bytes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let texts = self.all.iter().flatten().filter_map(|selector| selector.filter.as_ref());
        self.all.capacity() * size_of::<Option<Selector>>()
            + texts.map(|filter| filter.text().len()).sum::<usize>()
            + self.sets.memory_bytes()
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
        match selectors.ask(SelectorBits::MAX, &view, &mut SelectScratch::default()) {
            Selected::Matches { selectors, .. } => selectors,
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
        let found = all.ask(SelectorBits::MAX, &view, &mut SelectScratch::default());
        assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
    }

    #[test]
    fn bodies_that_filters_ask_for_and_cannot_read_are_counted() {
        let mut all = Selectors::new();
        let mut scratch = SelectScratch::default();
        let mut counted = |all: &Selectors, body: &[u8]| {
            let view = MessageView { properties: &[0, 0], body, ..MessageView::default() };
            let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
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
        assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
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
        let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
        assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
        assert_eq!((scratch.take_given_up(), scratch.take_bodies_unreadable()), (1, 1));
    }

    #[test]
    fn reading_in_one_way_is_not_what_filters_of_another_way_miss() {
        let mut all = Selectors::new();
        let json = filter("b.x = 1");
        let none = ConsumerFilter { format: BodyFormat::None, ..ConsumerFilter::clone(&json) };
        let fix = ConsumerFilter { format: BodyFormat::Json, ..ConsumerFilter::clone(&json) };
        for filter in [json, Arc::new(none), Arc::new(fix)] {
            let _ = all.join(Some(&filter), 1).unwrap();
        }
        let body = alloc::format!("{{\"x\":1,\"t\":\"{}\"}}", "a".repeat(1_000_000));
        let view =
            MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
        let mut scratch = SelectScratch::default();
        for _ in 0..2 {
            let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
            let Selected::Matches { selectors, dear, .. } = found else { panic!("{found:?}") };
            assert_eq!((selectors, scratch.take_given_up()), (0b1010, 0));
            all.make_dear(dear);
        }
        assert_eq!(all.dear(), 0b1010);
    }

    /// Who says that it matches a message of 40 and 1,200 letters, and how often one gave up.
    fn ask_about_letters(all: &mut Selectors) -> (SelectorBits, u32) {
        let (few, many) = ("a".repeat(40), "a".repeat(1_200));
        let body = alloc::format!("{{\"t\":\"{few}\",\"u\":\"{many}needle\"}}");
        let view =
            MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
        let mut scratch = SelectScratch::default();
        let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
        let Selected::Matches { selectors, dear, steps } = found else { panic!("{found:?}") };
        assert!(steps < 3 * STEPS_MAX, "{steps}");
        all.make_dear(dear);
        (selectors, scratch.take_given_up())
    }

    #[test]
    fn what_filters_of_one_pass_take_is_not_what_those_of_another_miss() {
        // They take all there is, mostly down to less than the last one needs.
        for many in 10..20 {
            let mut all = Selectors::new();
            for number in 0..60 {
                let greedy = alloc::format!("b.t REGEXP '(a?){{{}}}{number}'", many - number / 6);
                assert_eq!(all.join(Some(&filter(&greedy)), 1), Ok((number + 1, true)));
            }
            let victim = ConsumerFilter {
                format: BodyFormat::Json,
                ..ConsumerFilter::clone(&filter("b.u LIKE '%needle%'"))
            };
            assert_eq!(all.join(Some(&Arc::new(victim)), 1), Ok((61, true)));
            // Before anybody is dear, then with one pass for the dear ones, and with two.
            for _ in 0..3 {
                let (found, given_up) = ask_about_letters(&mut all);
                assert_eq!((found, all.given_up(61)), (1 << 61, 0));
                assert!(given_up > 20, "{given_up}");
            }
        }
    }

    #[test]
    fn a_filter_may_take_what_those_of_a_later_pass_leave() {
        let json = |text: &str| ConsumerFilter {
            format: BodyFormat::Json,
            ..ConsumerFilter::clone(&filter(text))
        };
        // More than a half of what there is.
        let mut all = Selectors::new();
        let _ = all.join(Some(&filter("b.t REGEXP '(a?){100}$'")), 1).unwrap();
        let _ = all.join(Some(&Arc::new(json("b.u LIKE '%needle%'"))), 1).unwrap();
        for _ in 0..3 {
            assert_eq!(ask_about_letters(&mut all), (0b110, 0));
        }
        // Two that take as much are too many: the first one has it.
        let _ = all.join(Some(&Arc::new(json("b.t REGEXP '(a?){101}$'"))), 1).unwrap();
        for _ in 0..3 {
            let (found, given_up) = ask_about_letters(&mut all);
            assert_eq!((found & 0b100, given_up), (0b100, 1), "{found:b}");
        }
    }

    /// One goes through many elements until it may no more, whatever it has; the other one needs a little.
    #[test]
    fn what_one_takes_in_vain_is_not_what_those_of_a_later_pass_miss() {
        let elements = |text: &str, count| alloc::vec![text; count].join(",");
        let (many, few) = (elements("\"xaybz\"", 900), elements("\"abc\"", 90));
        let body = alloc::format!("{{\"n\":1,\"e\":[{many}],\"a\":[{few}]}}");
        let view =
            MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
        let branch = |number| alloc::format!("ANY(b.e[*]) LIKE '%x_y%z_{number}%'");
        let greedy = (0..15).map(branch).collect::<Vec<_>>().join(" OR ");
        let victim = "b.n = 1 AND ALL(b.a[*]) NOT LIKE '%q_q%'";
        for format in [BodyFormat::Json, BodyFormat::Auto] {
            let mut all = Selectors::new();
            let victim = ConsumerFilter { format, ..ConsumerFilter::clone(&filter(victim)) };
            let _ = all.join(Some(&filter(&greedy)), 1).unwrap();
            let _ = all.join(Some(&Arc::new(victim)), 1).unwrap();
            for round in 0..3 {
                let mut scratch = SelectScratch::default();
                let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
                let Selected::Matches { selectors, dear, steps } = found else {
                    panic!("{found:?}")
                };
                assert_eq!((selectors, all.given_up(2)), (0b100, 0), "{format:?} {round}");
                assert_eq!(all.given_up(1), round + 1);
                assert!(steps < 5 * STEPS_MAX, "{steps}");
                all.make_dear(dear);
            }
        }
        // Beside dear ones a newcomer is asked first.
        let mut all = Selectors::new();
        let _ = all.join(Some(&filter(victim)), 1).unwrap();
        all.make_dear(0b10);
        let _ = all.join(Some(&filter(&greedy)), 1).unwrap();
        let found = all.ask(SelectorBits::MAX, &view, &mut SelectScratch::default());
        assert!(matches!(found, Selected::Matches { selectors: 0b10, .. }), "{found:?}");
    }

    #[test]
    fn what_was_evaluated_in_vain_is_not_paid_twice() {
        let text = "a".repeat(44_000);
        let body = alloc::format!("{{\"u\":\"{text}needle\",\"v\":\"{text}needle\"}}");
        let view =
            MessageView { properties: &[0, 0], body: body.as_bytes(), ..MessageView::default() };
        let other = ConsumerFilter {
            format: BodyFormat::Json,
            ..ConsumerFilter::clone(&filter("b.z = 5"))
        };
        let long = filter("b.u LIKE '%needle%' AND b.v LIKE '%needle%'");
        let short = filter("b.w LIKE '%noodle'");
        for others in [&[Arc::new(other)][..], &[short], &[filter("b.z IS NOT MISSING")]] {
            let mut all = Selectors::new();
            let _ = all.join(Some(&long), 1).unwrap();
            for other in others {
                let _ = all.join(Some(other), 1).unwrap();
            }
            for _ in 0..3 {
                let mut scratch = SelectScratch::default();
                let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
                let Selected::Matches { selectors, dear, .. } = found else { panic!("{found:?}") };
                assert_eq!((selectors, all.given_up(1)), (0b10, 0));
                all.make_dear(dear);
            }
        }
    }

    #[test]
    fn where_all_that_is_left_is_one_step_nobody_else_misses_anything() {
        let mut all = Selectors::new();
        for text in ["n = 1 AND b.u LIKE '%needle%'", "k = 2 AND b.u LIKE '%needle%'", "b.z = 1"] {
            let _ = all.join(Some(&filter(text)), 1).unwrap();
        }
        let headers = lepus_amqp::table::Table::new().with("n", 1).with("k", 2);
        let properties = Properties { headers: Some(headers), ..Properties::default() };
        let properties = properties.to_bytes();
        for length in (97_500..98_500).chain(130_800..131_100) {
            let text = "a".repeat(length);
            let body = alloc::format!("{{\"z\":1,\"u\":\"{text}needle\"}}");
            let (properties, body) = (&properties[..], body.as_bytes());
            let view = MessageView { properties, body, ..MessageView::default() };
            let found = all.ask(SelectorBits::MAX, &view, &mut SelectScratch::default());
            let Selected::Matches { selectors, .. } = found else { panic!("{found:?}") };
            assert!(selectors & 0b1000 != 0, "{length}: {selectors:b}");
        }
    }

    #[test]
    fn a_filter_may_take_what_those_behind_it_leave() {
        for is_first in [true, false] {
            let mut all = Selectors::new();
            let long = filter("b.t REGEXP '(a?){20}$'");
            if is_first {
                let _ = all.join(Some(&long), 1).unwrap();
            }
            for number in 0..62 {
                let short = alloc::format!("b.t REGEXP 'q{number}'");
                let _ = all.join(Some(&filter(&short)), 1).unwrap();
            }
            let (number, _) = all.join(Some(&long), 1).unwrap();
            for _ in 0..3 {
                assert_eq!(ask_about_letters(&mut all), (bit(number), 0));
            }
        }
    }

    #[test]
    fn the_dear_ones_are_found_once_and_asked_apart() {
        let mut all = Selectors::new();
        for number in 0..4 {
            let cheap = alloc::format!("p.type = '{number}'");
            let _ = all.join(Some(&filter(&cheap)), 1).unwrap();
            let dear = alloc::format!("b.t REGEXP '(a?){{20}}{number}'");
            let _ = all.join(Some(&filter(&dear)), 1).unwrap();
        }
        assert_eq!((all.dear(), all.present()), (0, 0b1_1111_1110));
        let properties = Properties { message_type: Some("2".into()), ..Properties::default() };
        let properties = properties.to_bytes();
        let body = alloc::format!("{{\"t\":\"{}3\"}}", "a".repeat(40));
        let (properties, body) = (&properties[..], body.as_bytes());
        let view = MessageView { properties, body, ..MessageView::default() };
        let mut scratch = SelectScratch::default();
        let mut asked = |all: &Selectors, asked| match all.ask(asked, &view, &mut scratch) {
            Selected::Matches { selectors, steps, dear } => (selectors, steps, dear),
            other => panic!("{other:?}"),
        };
        let (expected, dear) = (0b1_0010_0000, 0b1_0101_0100);
        let (found, _, new) = asked(&all, SelectorBits::MAX);
        assert_eq!((found, new), (expected, dear));
        all.make_dear(new | 1 | 1 << 40);
        assert_eq!(all.dear(), dear);
        // Nobody is found twice, and the cheap ones take little.
        let (found, both, new) = asked(&all, SelectorBits::MAX);
        assert_eq!((found, new), (expected, 0));
        let (found, steps, new) = asked(&all, !dear);
        assert_eq!((found, new), (expected & !dear, 0));
        assert!(steps < STEPS_PER_MESSAGE && both > PASS_STEPS, "{steps} of {both}");
        assert_eq!(asked(&all, dear).0, expected & dear);
        // They go as others do, and their places are anybody's.
        for number in numbers(dear) {
            assert!(all.leave(number));
        }
        assert_eq!((all.dear(), ask(&all, "2")), (0, expected & !dear));
        assert_eq!(all.join(Some(&filter("p.type IN ('2', '9')")), 1), Ok((2, true)));
        assert_eq!(ask(&all, "2"), expected & !dear | 1 << 2);
    }

    #[test]
    fn a_filter_is_kept_once_and_not_anew_where_one_takes_too_much() {
        let mut all = Selectors::new();
        let many = |from: usize| {
            let values: Vec<_> = (from..from + 60).map(|n| alloc::format!("'{n}'")).collect();
            alloc::format!("p.type IN ({})", values.join(", "))
        };
        for number in 0..9 {
            let text = match number {
                // What it takes is not to be had of the others.
                0 => "b.t REGEXP '(a?){300}b'".into(),
                _ => many(100 * number),
            };
            let _ = all.join(Some(&filter(&text)), 1).unwrap();
        }
        let once = all.memory_bytes();
        let texts: usize = (1..10).map(|n| all.filter(n).unwrap().text().len()).sum();
        let places = all.all.capacity() * size_of::<Option<Selector>>();
        assert_eq!(once, all.sets.memory_bytes() + texts + places);
        assert_eq!(all.cost(1).0, "evaluated");
        assert_eq!(
            (all.cost(2).0, all.cost(0), all.cost(40)),
            ("looked_up", all.cost(0), all.cost(0))
        );
        assert_eq!(ask(&all, "830"), 1 << 9);
        assert_eq!(all.memory_bytes(), once);
        let properties = Properties { message_type: Some("120".into()), ..Properties::default() };
        let properties = properties.to_bytes();
        let mut scratch = SelectScratch::default();
        let mut ask_about = |all: &Selectors, body: &str| {
            let (properties, body) = (&properties[..], body.as_bytes());
            let view = MessageView { properties, body, ..MessageView::default() };
            let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
            assert!(matches!(found, Selected::Matches { selectors: 0b100, .. }), "{found:?}");
            scratch.take_given_up()
        };
        // Others need not be asked anew where evaluating one takes too much.
        let long = alloc::format!("{{\"t\":\"{}\"}}", "a".repeat(200_000));
        assert_eq!((ask_about(&all, &long), all.memory_bytes()), (1, once));
        // Nor where it is a string that has to be decoded.
        let escaped = alloc::format!("{{\"t\":\"{}\"}}", "\\n".repeat(100_000));
        assert_eq!((ask_about(&all, &escaped), all.memory_bytes()), (1, once));
        assert_eq!(ask(&all, "830"), 1 << 9);
    }

    #[test]
    fn where_reading_takes_too_much_those_who_read_are_dear_and_others_are_right() {
        let mut all = Selectors::new();
        for text in ["b.n = 1", "p.type = 'gold'", "p.type = 'gold' AND b.x IS MISSING"] {
            let _ = all.join(Some(&filter(text)), 1).unwrap();
        }
        let properties = Properties { message_type: Some("gold".into()), ..Properties::default() };
        let properties = properties.to_bytes();
        let number = alloc::format!("\"n\":{}", "9".repeat(99));
        let body = alloc::format!("{{{}}}", [&number[..]; 600].join(","));
        let (properties, body) = (&properties[..], body.as_bytes());
        let view = MessageView { properties, body, ..MessageView::default() };
        let mut scratch = SelectScratch::default();
        for (expected, given_up, dear) in [(0, 3, 0b1010), (0b100, 2, 0)] {
            let found = all.ask(SelectorBits::MAX, &view, &mut scratch);
            let Selected::Matches { selectors, dear: new, steps } = found else {
                panic!("{found:?}")
            };
            assert_eq!((selectors, scratch.take_given_up(), new), (expected, given_up, dear));
            assert!(steps < 4 * STEPS_MAX, "{steps}");
            all.make_dear(new);
        }
        assert_eq!((all.given_up(1), all.given_up(2), all.given_up(3)), (2, 1, 2));
    }
}
