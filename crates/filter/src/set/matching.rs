//! One message against all filters of a set.

use super::{FilterSet, NONE};
use crate::extract::Extracted;
use crate::message::Message;
use crate::program::{Evaluation, Room};
use crate::segment::BranchId;
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
    /// Steps, of some ten nanoseconds each: look-ups, branches compared, parts evaluated, bytes read by the dozen.
    pub steps: u64,
    /// Comparisons of values of unlike types in what was evaluated.
    pub mismatches: u64,
    /// Whether the body was to be read and is malformed.
    pub is_malformed: bool,
    /// It would have taken more steps than it may: nothing was found.
    pub has_run_out: bool,
}

/// Memory for matching, used again for the next message. Any set may use it.
#[derive(Debug, Default)]
pub struct Scratch {
    extracted: Extracted,
    room: Room,
    candidates: Vec<BranchId>,
    /// By filter, the message that it matched last, for those of several branches.
    matched: Vec<u64>,
    messages: u64,
}

/// Bytes of a message that are read in one step.
const STEP_BYTES: usize = 16;

impl FilterSet {
    /// Appends all uses of filters that are TRUE for a message, in the order in which they were made; none where that
    /// takes more than so many steps, see [`Report::steps`]. What takes many is not begun then.
    pub fn matches(
        &self,
        message: &Message<'_>,
        steps_max: u64,
        scratch: &mut Scratch,
        out: &mut Vec<Match>,
    ) -> Report {
        if self.is_empty() {
            return Report::default();
        }
        let Scratch { extracted, room, candidates, matched, messages } = scratch;
        let paths = &self.program.paths;
        let body_bytes_max = self.limits.body_bytes_max;
        let is_malformed =
            paths.extraction().extract(message, paths.slots(), body_bytes_max, extracted);
        let body_bytes = if extracted.kind.is_some() { message.body.len() } else { 0 };
        let bytes = body_bytes + message.properties.0.len();
        room.begin(&self.program, steps_max);
        candidates.clear();
        let sources =
            Sources { message, made: &extracted.made, constants: self.program.constants() };
        // A message is at least one.
        let mut steps = 1 + (bytes / STEP_BYTES) as u64;
        let look_ups = self.filing.look_up(&extracted.slots, sources, |group| {
            steps += group.search(&extracted.slots, sources, &mut |branch| candidates.push(branch));
        });
        steps += look_ups + candidates.len() as u64;
        *messages += 1;
        let before = out.len();
        let mut count = 0;
        for &branch in &*candidates {
            let branch = self.branches[branch as usize];
            let filter = branch.filter as usize;
            // Dead branches name none.
            let Some(Some(entry)) = self.filters.get(filter) else { continue };
            let is_several = entry.branches.len() > 1;
            if is_several && matched.get(filter) == Some(messages) {
                continue;
            }
            if branch.rest != NONE {
                let mut evaluation =
                    Evaluation { program: &self.program, message, extracted, room };
                let is_true = evaluation.is_true(branch.rest);
                if room.has_run_out || steps + room.steps > steps_max {
                    break;
                }
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
            count += 1;
            out.extend_from_slice(&entry.uses);
        }
        let steps = steps + room.steps;
        let has_run_out = room.has_run_out || steps > steps_max;
        if has_run_out {
            out.truncate(before);
        } else if count > 1 {
            out[before..].sort_unstable_by_key(|found| found.number);
        }
        Report { steps, mismatches: room.mismatches, is_malformed, has_run_out }
    }
}
