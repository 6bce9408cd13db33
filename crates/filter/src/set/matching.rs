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
    /// It would have taken more steps than it may: nothing was found. Steps are those that it took until then.
    pub has_run_out: bool,
}

impl Report {
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
            has_run_out: steps.has_run_out(),
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
    /// Whether it would have taken more than the others leave it: it was not evaluated to the end, and does not match.
    pub has_given_up: bool,
}

/// Filters with shares, and those of them that took much.
struct Sharing<'s> {
    shares: Shares,
    dear: &'s mut Vec<Dear>,
    /// By target, what is known of its filter.
    filters: [Held; TARGETS],
    /// What is held for all of them.
    held: u64,
    /// Branches that are to be looked at yet. One that is TRUE takes a step.
    branches: u64,
    /// Steps of those that had not enough.
    in_vain: u64,
}

/// What others leave a filter.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Branches that are to be evaluated yet.
    branches: u32,
    /// What is left of its share.
    steps: u64,
}

/// Targets of filters with shares.
const TARGETS: usize = 64;

/// Memory for matching, used again for the next message. Any set may use it.
#[derive(Debug, Default)]
pub struct Scratch {
    extracted: Extracted,
    room: Room,
    candidates: Vec<BranchId>,
    /// Those that had not enough steps while others were to come.
    again: Vec<BranchId>,
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
    /// shares, and those that had not enough are evaluated again with what is left: up to twice as many steps are taken. Appends to
    /// `dear` those that took much; one may be there several times. The steps run out where what is done for all filters at
    /// once takes too many: long numbers of a body, looking long values up, computing. Decoding strings counts as reading.
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
            && !report.has_run_out
        {
            return report;
        }
        self.match_by_groups(message, steps_max, Some(Sharing::new(shares, dear)), scratch, out)
    }

    #[inline(never)]
    fn match_by_groups(
        &self,
        message: &Message<'_>,
        steps_max: u64,
        sharing: Option<Sharing<'_>>,
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
        mut sharing: Option<Sharing<'_>>,
        scratch: &mut Scratch,
        out: &mut Vec<Match>,
    ) -> bool {
        let Scratch { extracted, room, candidates, again, matched, messages } = scratch;
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
        if let Some(sharing) = &mut sharing {
            sharing.begin(self, candidates, &room.steps);
        }
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
                        let (is_true, has_given_up) =
                            sharing.evaluate(&mut evaluation, branch.rest, &entry.uses);
                        if has_given_up {
                            again.push(at);
                        }
                        is_true
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
        {
            let evaluation = Evaluation { program: &self.program, message, extracted, room };
            self.evaluate_again(sharing, evaluation, again, out);
        }
        is_body_unreadable
    }

    /// Evaluates branches that had not enough steps while others were to come, with what these have left. They begin anew: what
    /// they took in vain is not counted against them.
    #[cold]
    fn evaluate_again(
        &self,
        mut sharing: Sharing<'_>,
        mut evaluation: Evaluation<'_>,
        branches: &[BranchId],
        out: &mut Vec<Match>,
    ) {
        evaluation.room.steps.extend(sharing.in_vain);
        for &at in branches {
            let branch = self.branches[at as usize];
            let Some(Some(entry)) = self.filters.get(branch.filter as usize) else { continue };
            let is_known = entry.uses.iter().any(|found| out.contains(found));
            if evaluation.room.steps.has_run_out() {
                return;
            }
            if !is_known
                && sharing.evaluate_alone(&mut evaluation, branch.rest, &entry.uses)
                && evaluation.room.steps.spend(entry.uses.len() as u64)
            {
                out.extend_from_slice(&entry.uses);
            }
        }
    }
}

/// The place of a filter with shares, by what was given with its use.
fn target_of(uses: &[Match]) -> usize {
    uses.first().map_or(0, |found| found.target as usize % TARGETS)
}

impl<'s> Sharing<'s> {
    fn new(shares: Shares, dear: &'s mut Vec<Dear>) -> Sharing<'s> {
        Sharing {
            shares,
            dear,
            filters: [Held::default(); TARGETS],
            held: 0,
            branches: 0,
            in_vain: 0,
        }
    }

    /// Counts the branches that may be evaluated, and holds a share for each filter that has some. Where there are not enough
    /// steps for all shares these are smaller.
    fn begin(&mut self, set: &FilterSet, candidates: &[BranchId], steps: &Steps) {
        let mut present = 0_u64;
        for &branch in candidates {
            let branch = set.branches[branch as usize];
            let entry = set.filters.get(branch.filter as usize).and_then(Option::as_ref);
            if let Some(entry) = entry.filter(|_| branch.rest != NONE) {
                let target = target_of(&entry.uses);
                self.filters[target].branches += 1;
                present |= 1 << target;
            }
        }
        self.branches = candidates.len() as u64;
        present &= self.shares.asked;
        let count = u64::from(present.count_ones());
        let all = steps.left().saturating_sub(self.branches);
        let share = self.shares.each.min(all / count.max(1));
        self.held = share * count;
        while present != 0 {
            self.filters[present.trailing_zeros() as usize].steps = share;
            present &= present - 1;
        }
    }

    /// The next branch is one of a filter, which may have to be evaluated.
    fn come_to(&mut self, is_evaluated: bool, uses: &[Match]) {
        self.branches -= 1;
        if is_evaluated {
            self.filters[target_of(uses)].branches -= 1;
        }
    }

    /// Whether a part is TRUE, for the filter of these uses, and whether it would have taken too much. What it may take leaves
    /// others what is held for them.
    fn evaluate(
        &mut self,
        evaluation: &mut Evaluation<'_>,
        part: NodeId,
        uses: &[Match],
    ) -> (bool, bool) {
        let target = target_of(uses);
        if self.shares.asked & 1 << target == 0 {
            return (false, false);
        }
        let left = evaluation.room.steps.left();
        let own = self.filters[target];
        // That it is TRUE takes one, too.
        let kept_back = self.held - own.steps + self.branches + 1;
        let kept = evaluation.room.steps.narrow(left.saturating_sub(kept_back));
        let is_true = evaluation.is_true(part);
        let has_given_up = evaluation.room.steps.widen(kept);
        let steps = left - evaluation.room.steps.left();
        // Without further branches it needs nothing any more.
        let used = if own.branches == 0 { own.steps } else { own.steps.min(steps) };
        self.held -= used;
        self.filters[target].steps -= used;
        self.in_vain += if has_given_up { steps } else { 0 };
        if has_given_up || steps > self.shares.dear {
            let of = |found: &Match| Dear { target: found.target, steps, has_given_up };
            self.dear.extend(uses.iter().map(of));
        }
        (is_true && !has_given_up, has_given_up)
    }

    /// The same for one that would have taken too much, with all that is left.
    fn evaluate_alone(
        &mut self,
        evaluation: &mut Evaluation<'_>,
        part: NodeId,
        uses: &[Match],
    ) -> bool {
        let left = evaluation.room.steps.left();
        // That it is TRUE takes a step, also where all of it is known.
        let Some(most) = left.checked_sub(uses.len() as u64) else { return false };
        let kept = evaluation.room.steps.narrow(most);
        let is_true = evaluation.is_true(part);
        let has_given_up = evaluation.room.steps.widen(kept);
        let steps = left - evaluation.room.steps.left();
        let of_filter = |dear: &&mut Dear| {
            dear.has_given_up && uses.iter().any(|found| found.target == dear.target)
        };
        // One for each branch that is evaluated again, in their order.
        if let Some(dear) = self.dear.iter_mut().find(of_filter) {
            dear.steps += steps;
            dear.has_given_up = has_given_up;
        }
        is_true && !has_given_up
    }
}
