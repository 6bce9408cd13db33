//! What is gathered from the log when no checkpoint says where to begin: the entries of a range of lanes
//! and numbers in each pass over it, as many as memory has.
//!
//! A pass begins with everything from where the one before ended. When more is gathered than there may
//! be, what has the highest lane and number is forgotten, and all from there on is left to the next
//! pass. So each pass knows all of its range when it ends, and the passes together make what a single
//! one would have made, in the same order.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use lepus_base::{Position, QueueId};

use crate::lanes::LaneSlot;
use crate::page::Entry;
use crate::place::generation;
use crate::record::{Lane, Reference};
use crate::runs::RunSet;
use crate::state::{Segments, State};

/// A number in a lane.
type Key = (Lane, u64);

/// See the module.
#[derive(Debug)]
pub(super) struct Rebuild {
    from: Key,
    /// What is here or behind is for the next pass.
    until: Option<Key>,
    /// Entries, where each message lies now and the segment it ends in.
    entries: BTreeMap<Key, (Entry, Position, u32)>,
    /// Entries of messages that several queues have, by where each was written first.
    shared: BTreeSet<(Position, Key)>,
    settled: BTreeMap<Lane, RunSet>,
    /// Runs of all of them.
    runs: usize,
    dropped: BTreeSet<QueueId>,
    /// By lane, the number behind the last one of a message whose rest is missing.
    incomplete: BTreeMap<Lane, u64>,
    /// Entries, runs and queues at most.
    gathered_max: usize,
    /// The most that there were.
    pub gathered: usize,
    pub passes: u64,
}

impl Rebuild {
    pub(super) fn new(gathered_max: usize) -> Rebuild {
        Rebuild {
            from: (Lane { queue: QueueId(0), level: 0 }, 0),
            until: None,
            entries: BTreeMap::new(),
            shared: BTreeSet::new(),
            settled: BTreeMap::new(),
            runs: 0,
            dropped: BTreeSet::new(),
            incomplete: BTreeMap::new(),
            gathered_max: gathered_max.max(1),
            gathered: 0,
            passes: 0,
        }
    }

    fn has(&self, key: Key) -> bool {
        self.from <= key && self.until.is_none_or(|until| key < until)
    }

    /// Whether some number of the lane may be in the range.
    fn has_lane(&self, lane: Lane) -> bool {
        self.from.0 <= lane && self.until.is_none_or(|until| lane <= until.0)
    }

    /// A message was found: where it was written first, where it begins now and the segment in which it
    /// ends. A later one written first at the same place is a copy, which names all that lived of it then;
    /// what is gone of it does not count where the copy is doubted.
    pub(super) fn message(
        &mut self,
        references: &[Reference],
        found: (Position, Position, u32),
        bytes: u32,
        is_doubted: bool,
    ) {
        let (position, start, _) = found;
        if position != start && !is_doubted {
            self.settle_unnamed(position, references);
        }
        let is_shared = references.len() > 1;
        for &reference in references {
            self.refer(reference, found, bytes, is_shared);
        }
    }

    /// What a copy does not name of its message was settled before, whether or not that is in the log yet.
    fn settle_unnamed(&mut self, position: Position, references: &[Reference]) {
        let first = (position, (Lane { queue: QueueId(0), level: 0 }, 0));
        let known = self.shared.range(first..).take_while(|(of, _)| *of == position);
        let mut known: Vec<Key> = known.map(|(_, key)| *key).collect();
        if known.is_empty() {
            return;
        }
        let named: BTreeSet<Key> = references.iter().map(|found| (found.lane, found.seq)).collect();
        known.retain(|key| !named.contains(key));
        for (lane, seq) in known {
            self.settle(lane, seq, seq.saturating_add(1));
        }
    }

    fn refer(
        &mut self,
        reference: Reference,
        found: (Position, Position, u32),
        bytes: u32,
        is_shared: bool,
    ) {
        let Reference { lane, seq, deadline_millis } = reference;
        let is_settled = self.settled.get(&lane).is_some_and(|runs| runs.contains(seq));
        if !self.has((lane, seq)) || is_settled || self.dropped.contains(&lane.queue) {
            return;
        }
        let (position, start, generation_last) = found;
        let entry = Entry { seq, position, bytes, deadline_millis };
        let key = (lane, seq);
        let before = self.entries.insert(key, (entry, start, generation_last));
        if let Some((before, ..)) = before.filter(|before| before.0.position != position) {
            self.shared.remove(&(before.position, key));
        }
        if is_shared {
            self.shared.insert((position, key));
        }
        self.keep_within();
    }

    /// Numbers of a lane are settled, whether they were found before or will be.
    pub(super) fn settle(&mut self, lane: Lane, mut first: u64, mut end: u64) {
        if !self.has_lane(lane) {
            return;
        }
        if lane == self.from.0 {
            first = first.max(self.from.1);
        }
        if let Some(until) = self.until.filter(|until| until.0 == lane) {
            end = end.min(until.1);
        }
        if first >= end {
            return;
        }
        let runs = self.settled.entry(lane).or_default();
        self.runs -= runs.runs();
        runs.insert(first, end);
        self.runs += runs.runs();
        self.forget_entries((lane, first), (lane, end));
        self.keep_within();
    }

    fn forget_entries(&mut self, first: Key, end: Key) {
        while let Some((&key, (entry, ..))) = self.entries.range(first..end).next() {
            self.shared.remove(&(entry.position, key));
            self.entries.remove(&key);
        }
    }

    /// A queue is gone with everything in it.
    pub(super) fn drop_queue(&mut self, queue: QueueId) {
        let until = self.until.map_or(QueueId(u64::MAX), |until| until.0.queue);
        if queue < self.from.0.queue || queue > until {
            return;
        }
        let [first, end] = [0, u16::MAX].map(|level| Lane { queue, level });
        self.forget_entries((first, 0), (end, u64::MAX));
        self.dropped.insert(queue);
        self.keep_within();
    }

    /// The rest of a message is missing: lanes refuse what is below their next number, and get that when
    /// they have all entries.
    pub(super) fn abandon(&mut self, lane: Lane, seq: u64) {
        if self.has_lane(lane) {
            let next = self.incomplete.entry(lane).or_default();
            *next = (*next).max(seq + 1);
        }
    }

    /// Forgets what is last, until it is no more than there may be.
    fn keep_within(&mut self) {
        loop {
            let entries = self.entries.len() + self.shared.len();
            let gathered = entries + self.runs + self.dropped.len();
            if gathered <= self.gathered_max {
                self.gathered = self.gathered.max(gathered);
                return;
            }
            let entry = self.entries.last_key_value().map(|(key, _)| *key);
            let settled = self.settled.last_key_value();
            let run = settled.and_then(|(lane, runs)| Some((*lane, runs.last()?.0)));
            let queue = self.dropped.last().map(|queue| (Lane { queue: *queue, level: 0 }, 0));
            let last = [entry, run, queue].into_iter().flatten().max();
            let Some(last) = last.filter(|last| *last > self.from) else {
                // One is enough to get on.
                self.gathered = self.gathered.max(gathered);
                return;
            };
            self.until = Some(last);
            if entry == Some(last)
                && let Some((key, (entry, ..))) = self.entries.pop_last()
            {
                self.shared.remove(&(entry.position, key));
            }
            if run == Some(last) {
                self.forget_last_run();
            }
            if queue == Some(last) {
                self.dropped.pop_last();
            }
        }
    }

    fn forget_last_run(&mut self) {
        let Some(mut lane) = self.settled.last_entry() else { return };
        let runs = lane.get_mut();
        if let Some((first, end)) = runs.last() {
            runs.remove(first, end);
            self.runs -= 1;
        }
        if runs.is_empty() {
            lane.remove();
        }
    }

    /// The log was read to its end: what was gathered becomes lanes, which are named in `lanes`. Whether
    /// there is to be another pass.
    pub(super) fn end_pass(
        &mut self,
        state: &mut State,
        segments: &mut Segments,
        lanes: &mut Vec<LaneSlot>,
    ) -> bool {
        self.passes += 1;
        self.shared.clear();
        for ((lane, seq), found) in core::mem::take(&mut self.entries) {
            let slot = state.slot(lane);
            add(slot, seq, found, state, segments);
            if lanes.last() != Some(&slot) {
                lanes.push(slot);
            }
        }
        let dropped = core::mem::take(&mut self.dropped);
        for (lane, runs) in core::mem::take(&mut self.settled) {
            if dropped.contains(&lane.queue) {
                continue;
            }
            // Also where nothing lives: what is settled in the log must not be given to others.
            let slot = state.slot(lane);
            let Some(found) = state.lane_mut(slot) else { continue };
            for (first, end) in runs.iter() {
                found.settle_absent(first, end);
            }
        }
        for (lane, next) in core::mem::take(&mut self.incomplete) {
            let is_done = self.until.is_none_or(|until| lane < until.0);
            if !is_done || dropped.contains(&lane.queue) {
                continue;
            }
            let slot = state.slot(lane);
            if let Some(found) = state.lane_mut(slot) {
                found.skip_to(next);
            }
        }
        self.runs = 0;
        match self.until.take() {
            Some(until) => {
                self.from = until;
                true
            }
            None => false,
        }
    }
}

/// Adds an entry to its lane.
fn add(
    slot: LaneSlot,
    seq: u64,
    (entry, start, generation_last): (Entry, Position, u32),
    state: &mut State,
    segments: &mut Segments,
) {
    let Entry { mut position, bytes, deadline_millis, .. } = entry;
    if !segments.contains_key(&generation(position)) {
        // Nothing is left of where it was first, so nobody has to remember that it moved.
        position = start;
    }
    let Some(lane) = state.lanes.lane(slot) else { return };
    if !state.refer(slot, &Reference { lane, seq, deadline_millis }, position, bytes) {
        return;
    }
    // References of one message come in any order: the first one makes the span.
    let is_known = state.tables.spans.contains(start);
    let last = if is_known { generation(start) } else { generation_last };
    state.count(segments, start, last, 1, bytes, false);
    if is_known {
        state.tables.spans.refer(start);
    }
    if start != position {
        state.tables.relocations.add(position, start, 1);
    }
}
