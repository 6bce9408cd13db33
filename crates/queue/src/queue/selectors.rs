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
/// Steps that a pass has beside the shares of its filters for what is done for all of them at once.
const COMMON_STEPS: u64 = 2048;

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
    /// Whether its consumers are served: of a queue with a single active consumer, the active one's alone.
    pub is_counting: bool,
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
    /// By number, what those need at least that have given up a message.
    needs: Vec<u64>,
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

/// Steps that are left for those of a pass that are asked, each of which has a share, where so many are held for others. Their
/// own shares they have in any case, also where others took more in vain.
#[inline]
fn left_for(
    (pass, asked): (&Pass, SelectorBits),
    (each, held): (u64, u64),
    answer: &Answer,
) -> u64 {
    let spent = (answer.steps - answer.reading_steps).saturating_sub(answer.not_counted);
    let own = each * u64::from((pass.members & asked).count_ones());
    STEPS_MAX.saturating_sub(spent + held).max(own + COMMON_STEPS)
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
            let left = left_for((pass, filtered), (each, held), &answer);
            self.ask_pass((pass, filtered), (each, left), view, scratch, &mut answer);
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

    /// Asks those of a pass that are `asked`, each of which has a share; so many steps are left for them.
    #[inline]
    fn ask_pass(
        &self,
        (pass, asked): (&Pass, SelectorBits),
        (each, left): (u64, u64),
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
        let shares = Shares { asked, each, dear: TOLD_STEPS };
        let report = pass.filters.matches_shared(&message, left, shares, room, found, dear);
        answer.steps += report.steps;
        answer.reading_steps += report.reading_steps;
        answer.is_unreadable |= report.is_body_unreadable;
        answer.matches |= found.iter().fold(0, |bits, found| bits | 1 << found.target);
        if report.has_run_out() || !dear.is_empty() || report.steps > PASS_STEPS {
            self.see_what_took_much((pass, asked), (left, &report), scratch, answer);
        }
    }

    /// Those who had not enough steps have what the passes behind theirs left, unless that is too little for each of their pass:
    /// the message is read again for them. Who has not enough again matches not.
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
                let asked = pass.members & gave_up;
                let left = left_for((pass, asked), (each, 0), answer);
                match numbers(asked).any(|number| scratch.needs[usize::from(number)] <= left) {
                    true => self.ask_pass((pass, asked), (each, left), view, scratch, answer),
                    false => answer.given_up |= asked,
                }
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
        (left, report): (u64, &Report),
        scratch: &mut SelectScratch,
        answer: &mut Answer,
    ) {
        let SelectScratch { dear, needs, .. } = scratch;
        needs.resize(SELECTORS_MAX, 0);
        let mut taken = [0; SELECTORS_MAX];
        let mut given_up = 0;
        for dear in dear {
            let selector = dear.target as usize;
            taken[selector] += dear.steps;
            if dear.has_given_up() {
                let is_first = given_up & 1 << selector == 0;
                needs[selector] =
                    if is_first { dear.needs } else { needs[selector].min(dear.needs) };
                given_up |= 1 << selector;
            }
        }
        let evaluated: u64 = taken.iter().sum();
        let many = |most| (0..).zip(taken).filter(move |(_, taken)| *taken > most);
        answer.dear |= many(DEAR_STEPS).fold(given_up, |bits, (number, _)| bits | bit(number));
        // There may be many that take a little.
        let others = taken.iter().filter(|taken| **taken <= DEAR_STEPS).sum::<u64>();
        if others > PASS_STEPS {
            answer.dear |= many(0).fold(0, |bits, (number, _)| bits | bit(number));
        }
        if report.has_run_out() {
            given_up = pass.members & asked;
            numbers(given_up).for_each(|number| needs[usize::from(number)] = left + report.missing);
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
mod tests;
