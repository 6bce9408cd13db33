//! One message against all filters of a set.

use super::{FilterSet, NONE};
use crate::extract::Extracted;
use crate::message::Message;
use crate::program::{Evaluation, NodeId, Room};
use crate::segment::BranchId;
use crate::steps::Steps;
use crate::value::Sources;
use alloc::vec::Vec;

/// A use of a filter that matches a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The number of the use: those that were made later have higher ones.
    pub number: u64,
    /// What was given with it.
    pub target: u64,
}

/// What matching a message took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps, of some ten nanoseconds each: bytes read by the half dozen, look-ups, branches compared, parts evaluated.
    pub steps: u64,
    /// Of these, the ones of reading the message, which are in proportion to its bytes.
    pub reading_steps: u64,
    /// Whether the body was asked for and could not be read: it is malformed, longer than bodies are read, or has a content
    /// encoding. What a filter wants of it is missing.
    pub is_body_unreadable: bool,
    /// How many steps more it would have taken than it may, at least; 0 where it had enough. See [`Report::has_run_out`].
    pub missing: u64,
}

impl Report {
    /// Whether it would have taken more steps than it may: nothing was found. Steps are those that it took until then.
    #[must_use]
    pub fn has_run_out(&self) -> bool {
        self.missing > 0
    }

    /// The end of a message: what was found of it, which is what is in `out` from `before` on, is put in order, or taken
    /// back where the steps have run out.
    #[inline]
    pub(super) fn of(
        steps: &Steps,
        is_body_unreadable: bool,
        out: &mut Vec<Match>,
        before: usize,
    ) -> Report {
        if steps.has_run_out() {
            out.truncate(before);
        } else if out.len() - before > 1 {
            out[before..].sort_unstable_by_key(|found| found.number);
        }
        Report {
            steps: steps.used(),
            reading_steps: steps.allowed(),
            is_body_unreadable,
            missing: steps.missing(),
        }
    }
}

/// What filters of a set leave each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Those that are evaluated: a bit for each target, which are below 64 then. Of the others nothing is said that means anything.
    pub asked: u64,
    /// Steps that each has for being evaluated, all its branches together, whatever the others take, as long as reading the message
    /// leaves as much for all.
    pub each: u64,
    /// One that takes more for that is told of.
    pub dear: u64,
}

/// A filter that took much for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dear {
    /// What was given with its use.
    pub target: u64,
    /// Steps that evaluating it took.
    pub steps: u64,
    /// What it needs at least, where that is more than the others leave it; 0 otherwise. See [`Dear::has_given_up`].
    pub needs: u64,
}

impl Dear {
    /// Whether it would have taken more than the others leave it: it was not evaluated to the end, and does not match.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.needs > 0
    }
}

/// Filters with shares, and those of them that took much.
struct Sharing<'s> {
    shares: Shares,
    dear: &'s mut Vec<Dear>,
    /// By target, what is known of its filter, if it is one of those that may be evaluated.
    filters: &'s mut [Held],
    present: u64,
    /// What is held for all of them.
    held: u64,
    /// Branches that are to be looked at yet. One that is TRUE takes a step.
    branches: u64,
    /// Steps of those that had not enough.
    in_vain: u64,
    /// Whether all are evaluated again that had not enough.
    is_again: bool,
}

/// What others leave a filter.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Branches that are to be evaluated yet.
    branches: u32,
    /// Whether a branch had not enough.
    has_given_up: bool,
    /// What is left of its share.
    steps: u64,
    /// What those of its branches took that were evaluated to the end: it is given back where another one had not enough.
    used: u64,
}

/// A branch that had not enough steps while others were to come.
#[derive(Clone, Copy, Debug)]
struct Again {
    branch: BranchId,
    /// The place of its filter, and its own one there.
    target: usize,
    place: usize,
    /// What it needs at least, unless something was kept since.
    needs: u64,
    /// What it took in vain.
    steps: u64,
    /// See [`Room::kept`].
    kept: u64,
}

/// Which of those that had not enough come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Of a filter those that are looked up by most.
    LookedUp,
    /// Of a filter those that were written first.
    Written,
    /// Of all those that need least.
    Needed,
}

/// Targets of filters with shares.
const TARGETS: usize = 64;

/// Memory for matching, used again for the next message. Any set may use it.
#[derive(Debug, Default)]
pub struct Scratch {
    extracted: Extracted,
    room: Room,
    candidates: Vec<BranchId>,
    held: Vec<Held>,
    again: Vec<Again>,
    /// By filter, the message that it matched last, for those of several branches.
    matched: Vec<u64>,
    messages: u64,
}

impl FilterSet {
    /// Appends all uses of filters that are TRUE for a message, in the order in which they were made; none where that
    /// takes more than so many steps beside those of reading the message, see [`Report::steps`] and
    /// [`FilterSet::reading_steps`]. What would take more is not begun.
    #[inline]
    pub fn matches(
        &self,
        message: &Message<'_>,
        steps_max: u64,
        scratch: &mut Scratch,
        out: &mut Vec<Match>,
    ) -> Report {
        if let Some(direct) = &self.direct
            && let Some(report) = self.match_directly(direct, message, steps_max, out)
        {
            return report;
        }
        self.match_by_groups(message, steps_max, None, scratch, out)
    }

    /// As [`FilterSet::matches`], but what one filter takes for being evaluated does not end the others, which have their
    /// shares, and those that had not enough are evaluated again with what is left: up to four times as many steps are taken.
    /// Appends to `dear` those that took much; one may be there several times. The steps run out where what is
    /// done for all filters at once takes too many: long numbers of a body, long constants, computing. Decoding and hashing
    /// strings counts as reading.
    pub fn matches_shared(
        &self,
        message: &Message<'_>,
        steps_max: u64,
        shares: Shares,
        scratch: &mut Scratch,
        out: &mut Vec<Match>,
        dear: &mut Vec<Dear>,
    ) -> Report {
        if let Some(direct) = &self.direct
            && let Some(report) = self.match_directly(direct, message, steps_max, out)
            && !report.has_run_out()
        {
            return report;
        }
        self.match_by_groups(message, steps_max, Some((shares, dear)), scratch, out)
    }

    #[inline(never)]
    fn match_by_groups(
        &self,
        message: &Message<'_>,
        steps_max: u64,
        sharing: Option<(Shares, &mut Vec<Dear>)>,
        scratch: &mut Scratch,
        out: &mut Vec<Match>,
    ) -> Report {
        if self.is_empty() {
            return Report::default();
        }
        let before = out.len();
        let steps = match sharing {
            None => Steps::new(steps_max),
            Some(_) => Steps::with_strings(steps_max),
        };
        scratch.room.begin(&self.program, steps);
        let is_body_unreadable = self.find(message, sharing, scratch, out);
        Report::of(&scratch.room.steps, is_body_unreadable, out, before)
    }

    /// What reading a message takes at least, in steps: in proportion to its bytes. What is wanted of it counts beside that.
    #[must_use]
    pub fn reading_steps(&self, message: &Message<'_>) -> u64 {
        let paths = &self.program.paths;
        paths.extraction().steps(message, paths.slots(), self.limits.body_bytes_max)
    }

    /// Appends all uses of filters that are TRUE, unless the steps run out. Whether the body could not be read.
    fn find(
        &self,
        message: &Message<'_>,
        sharing: Option<(Shares, &mut Vec<Dear>)>,
        scratch: &mut Scratch,
        out: &mut Vec<Match>,
    ) -> bool {
        let Scratch { extracted, room, candidates, held, again, matched, messages } = scratch;
        let before = out.len();
        let paths = &self.program.paths;
        // A message is at least one.
        room.steps.spend(1);
        let is_body_unreadable = paths.extraction().extract(
            message,
            paths.slots(),
            self.limits.body_bytes_max,
            extracted,
            &mut room.steps,
        );
        if !self.program.computed().is_empty() {
            let mut evaluation = Evaluation { program: &self.program, message, extracted, room };
            evaluation.fill_computed();
        }
        if room.steps.has_run_out() {
            return is_body_unreadable;
        }
        candidates.clear();
        let sources =
            Sources { message, made: &extracted.made, constants: self.program.constants() };
        let slots = &extracted.slots;
        self.filing.look_up(slots, sources, &mut room.steps, |group, steps| {
            let before = candidates.len();
            group.search(slots, sources, steps, &mut |branch| candidates.push(branch));
            steps.spend((candidates.len() - before) as u64);
        });
        *messages += 1;
        let mut sharing = sharing.map(|(shares, dear)| {
            let mut sharing = Sharing::new(shares, dear, held);
            sharing.begin(self, candidates, &mut room.steps);
            sharing
        });
        again.clear();
        for &at in &*candidates {
            if room.steps.has_run_out() {
                break;
            }
            let branch = self.branches[at as usize];
            let filter = branch.filter as usize;
            // Dead branches name none.
            let Some(Some(entry)) = self.filters.get(filter) else { continue };
            let is_several = entry.branches.len() > 1;
            if let Some(sharing) = &mut sharing {
                sharing.come_to(branch.rest != NONE, &entry.uses);
            }
            if is_several && matched.get(filter) == Some(messages) {
                continue;
            }
            if branch.rest != NONE {
                let mut evaluation =
                    Evaluation { program: &self.program, message, extracted, room };
                let is_true = match &mut sharing {
                    None => evaluation.is_true(branch.rest),
                    Some(sharing) => {
                        let found = sharing.evaluate(&mut evaluation, branch.rest, &entry.uses);
                        found.unwrap_or_else(|tried| {
                            let place = entry.branches.iter().position(|branch| *branch == at);
                            again.push(Again { branch: at, place: place.unwrap_or(0), ..tried });
                            false
                        })
                    }
                };
                if !is_true {
                    continue;
                }
            }
            if is_several {
                if matched.len() <= filter {
                    matched.resize(self.filters.len(), 0);
                }
                matched[filter] = *messages;
                sharing.iter_mut().for_each(|sharing| sharing.is_known(&entry.uses));
            }
            // They are sorted afterwards.
            if !room.steps.spend(entry.uses.len() as u64) {
                break;
            }
            match entry.uses[..] {
                [one] => out.push(one),
                ref uses => out.extend_from_slice(uses),
            }
        }
        if let Some(sharing) = sharing
            && !again.is_empty()
            && !room.steps.has_run_out()
        {
            let evaluation = Evaluation { program: &self.program, message, extracted, room };
            self.evaluate_again(sharing, evaluation, again, (out, before));
        }
        is_body_unreadable
    }

    /// Evaluates branches that had not enough steps while others were to come. They begin anew: what their filters took is not
    /// counted against them. First each filter that may do with its share has that, for one branch after the other, as they
    /// were found and then as they were written; then all that is left is for whoever comes, and those come first that need
    /// little.
    #[cold]
    fn evaluate_again(
        &self,
        mut sharing: Sharing<'_>,
        mut evaluation: Evaluation<'_>,
        again: &mut Vec<Again>,
        (out, before): (&mut Vec<Match>, usize),
    ) {
        let entry_of = |branch: BranchId| {
            let branch = self.branches[branch as usize];
            let entry = self.filters.get(branch.filter as usize).and_then(Option::as_ref);
            entry.map(|entry| (branch.rest, entry))
        };
        for order in [Order::LookedUp, Order::Written, Order::Needed] {
            let is_written =
                |again: &[Again]| again.is_sorted_by_key(|one| (one.target, one.place));
            match order {
                Order::LookedUp => again.sort_by_key(|one| one.target),
                Order::Written if is_written(again) => continue,
                Order::Written => again.sort_unstable_by_key(|one| (one.target, one.place)),
                Order::Needed => again.sort_unstable_by_key(|one| (one.needs, one.branch)),
            }
            let has_shares = order != Order::Needed;
            sharing.begin_again(again, has_shares, evaluation.room);
            again.retain_mut(|tried| {
                let Some((part, entry)) = entry_of(tried.branch) else { return false };
                sharing.come_to(true, &entry.uses);
                if entry.uses.iter().any(|found| out[before..].contains(found)) {
                    sharing.tell(&entry.uses, tried.steps, 0);
                    return false;
                }
                if has_shares && sharing.filters[tried.target].steps == 0 {
                    return true;
                }
                let is_true = sharing.try_again(&mut evaluation, part, &entry.uses, tried);
                if is_true && evaluation.room.steps.spend(entry.uses.len() as u64) {
                    sharing.is_known(&entry.uses);
                    out.extend_from_slice(&entry.uses);
                }
                tried.needs > 0
            });
        }
        for tried in again {
            if let Some((_, entry)) = entry_of(tried.branch) {
                sharing.tell(&entry.uses, tried.steps, tried.needs);
            }
        }
    }
}

/// The place of a filter with shares, by what was given with its use.
fn target_of(uses: &[Match]) -> usize {
    uses.first().map_or(0, |found| found.target as usize % TARGETS)
}

impl<'s> Sharing<'s> {
    fn new(shares: Shares, dear: &'s mut Vec<Dear>, held: &'s mut Vec<Held>) -> Sharing<'s> {
        held.resize(TARGETS, Held::default());
        Sharing {
            shares,
            dear,
            filters: held,
            present: 0,
            held: 0,
            branches: 0,
            in_vain: 0,
            is_again: false,
        }
    }

    /// Counts the branches that may be evaluated, and holds a share for each filter that has some: what was done for all of them is
    /// not what they miss.
    fn begin(&mut self, set: &FilterSet, candidates: &[BranchId], steps: &mut Steps) {
        for &branch in candidates {
            let branch = set.branches[branch as usize];
            let entry = set.filters.get(branch.filter as usize).and_then(Option::as_ref);
            if let Some(entry) = entry.filter(|_| branch.rest != NONE) {
                let target = target_of(&entry.uses);
                if self.present & 1 << target == 0 {
                    self.present |= 1 << target;
                    self.filters[target] = Held::default();
                }
                self.filters[target].branches += 1;
            }
        }
        self.branches = candidates.len() as u64;
        let mut asked = self.present & self.shares.asked;
        self.held = self.shares.each * u64::from(asked.count_ones());
        steps.extend((self.held + self.branches).saturating_sub(steps.left()));
        while asked != 0 {
            self.filters[asked.trailing_zeros() as usize].steps = self.shares.each;
            asked &= asked - 1;
        }
    }

    /// The branches that had not enough are to be evaluated again. A filter has all of its share, unless each of its branches is
    /// known to need more.
    fn begin_again(&mut self, again: &[Again], has_shares: bool, room: &mut Room) {
        let (mut gave_up, mut may_do) = (0_u64, 0_u64);
        for one in again {
            gave_up |= 1 << one.target;
            if one.kept != room.kept || one.needs <= self.shares.each {
                may_do |= 1 << one.target;
            }
        }
        may_do &= if has_shares { u64::MAX } else { 0 };
        self.branches = again.len() as u64;
        let held = self.shares.each * u64::from(may_do.count_ones());
        let mut more = core::mem::take(&mut self.in_vain);
        for (target, own) in self.filters.iter_mut().enumerate() {
            let is_in = |bits: u64| bits & 1 << target != 0;
            if is_in(self.present) {
                more += if is_in(gave_up) { own.used } else { 0 };
                let steps = if is_in(may_do) { self.shares.each } else { 0 };
                *own = Held { steps, ..Held::default() };
            }
        }
        room.steps.extend(more);
        room.steps.extend((held + self.branches).saturating_sub(room.steps.left()));
        (self.is_again, self.held) = (true, held);
        again.iter().for_each(|one| self.filters[one.target].branches += 1);
    }

    /// The next branch is one of a filter, which may have to be evaluated.
    fn come_to(&mut self, is_evaluated: bool, uses: &[Match]) {
        self.branches -= 1;
        if is_evaluated {
            self.filters[target_of(uses)].branches -= 1;
        }
    }

    /// A filter is TRUE, whatever its other branches are: nothing is held for it any more.
    fn is_known(&mut self, uses: &[Match]) {
        let target = target_of(uses);
        if self.present & 1 << target != 0 {
            self.held -= core::mem::take(&mut self.filters[target].steps);
        }
    }

    /// Whether a part is TRUE, for the filter of these uses. What it may take leaves others what is held for them, and the
    /// branches behind it of the same filter their part.
    ///
    /// # Errors
    /// It would have taken too much.
    fn evaluate(
        &mut self,
        evaluation: &mut Evaluation<'_>,
        part: NodeId,
        uses: &[Match],
    ) -> Result<bool, Again> {
        let target = target_of(uses);
        if self.shares.asked & 1 << target == 0 {
            return Ok(false);
        }
        let own = self.filters[target];
        let own = own.steps / u64::from(own.branches + 1);
        let most = self.most(own, &evaluation.room.steps);
        let (is_true, steps, needs) = evaluate_within(evaluation, part, most);
        self.took(target, steps, needs);
        if needs > 0 {
            let kept = evaluation.room.kept;
            return Err(Again { branch: 0, target, place: 0, needs, steps, kept });
        }
        self.tell(uses, steps, 0);
        Ok(is_true)
    }

    /// The same for a branch that had not enough, unless it is known to need more than there is still. What it needs is 0 from then
    /// on if it was evaluated to the end.
    fn try_again(
        &mut self,
        evaluation: &mut Evaluation<'_>,
        part: NodeId,
        uses: &[Match],
        tried: &mut Again,
    ) -> bool {
        let most = self.most(self.filters[tried.target].steps, &evaluation.room.steps);
        let is_known =
            tried.kept == evaluation.room.kept && most.is_none_or(|most| most < tried.needs);
        let (is_true, steps, needs) = match is_known {
            true => (false, 0, tried.needs),
            false => evaluate_within(evaluation, part, most),
        };
        self.took(tried.target, steps, needs);
        (tried.needs, tried.kept) = (needs, evaluation.room.kept);
        tried.steps += steps;
        if needs == 0 {
            self.tell(uses, tried.steps, 0);
        }
        is_true
    }

    /// What a branch may take that has so much of its filter's share, if there is anything. That it is TRUE takes a step, too.
    fn most(&self, own: u64, steps: &Steps) -> Option<u64> {
        steps.left().checked_sub(self.held - own + self.branches + 1)
    }

    /// A branch took so many steps, and needs so many at least if that was not enough.
    fn took(&mut self, target: usize, steps: u64, needs: u64) {
        let own = &mut self.filters[target];
        let mut used = own.steps.min(steps);
        if needs > 0 {
            own.has_given_up = true;
            self.in_vain += steps;
        } else {
            own.used += if self.is_again { steps } else { used };
        }
        if own.branches == 0 && (!own.has_given_up || self.is_again) {
            // It needs nothing any more.
            used = own.steps;
        }
        own.steps -= used;
        self.held -= used;
    }

    /// Tells of a filter that took much, or has given up.
    fn tell(&mut self, uses: &[Match], steps: u64, needs: u64) {
        if needs > 0 || steps > self.shares.dear {
            self.dear.extend(uses.iter().map(|found| Dear { target: found.target, steps, needs }));
        }
    }
}

/// Whether a part is TRUE, the steps that it took, and those that it needs at least where it may not take so many.
fn evaluate_within(
    evaluation: &mut Evaluation<'_>,
    part: NodeId,
    most: Option<u64>,
) -> (bool, u64, u64) {
    let Some(most) = most else { return (false, 0, 1) };
    let left = evaluation.room.steps.left();
    let kept = evaluation.room.steps.narrow(most);
    let is_true = evaluation.is_true(part);
    let missing = evaluation.room.steps.widen(kept);
    let needs = if missing > 0 { most.saturating_add(missing) } else { 0 };
    (is_true && missing == 0, left - evaluation.room.steps.left(), needs)
}
