//! All lanes of a store. Those in use are taken apart; idle ones are bytes, as a checkpoint has
//! them.
//!
//! A checkpoint shows all lanes as they were at one moment, without stopping for it: lanes are
//! encoded in slices, and one that is about to change before its turn is encoded then.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lepus_base::{QueueId, Slab};

use crate::lane::{LaneIndex, Summary};
use crate::record::Lane;
use crate::state::LaneSlot;
use crate::varint::{Reader, put};

/// The index of one lane.
#[derive(Debug)]
enum Form {
    Hot(Box<LaneIndex>),
    /// Encoded; nothing in it is to be accounted for.
    Cold(Box<[u8]>),
}

#[derive(Debug)]
struct Held {
    lane: Lane,
    form: Form,
    /// Where fetching goes on, of a cold one.
    fetch_from: u64,
    /// Any entry below may have been delivered by an earlier run.
    delivered_below: u64,
    /// The last snapshot that has it, or is older than it.
    epoch: u32,
    /// Since the clock came by.
    is_used: bool,
}

/// Lanes being encoded, as they were when that began.
#[derive(Debug, Default)]
struct Snapshot {
    /// The next place to look at.
    next: usize,
    bytes: Vec<u8>,
    /// Lanes not encoded yet.
    left: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    slab: Slab<Held>,
    by_lane: BTreeMap<Lane, u32>,
    persistent: usize,
    hot: usize,
    cold_bytes: usize,
    clock: usize,
    epoch: u32,
    snapshot: Option<Snapshot>,
}

impl Lanes {
    pub(crate) fn find(&self, lane: Lane) -> Option<LaneSlot> {
        self.by_lane.get(&lane).copied().map(LaneSlot)
    }

    /// All lanes in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Lane, LaneSlot)> + Clone {
        self.by_lane.iter().map(|(&lane, &slot)| (lane, LaneSlot(slot)))
    }

    /// All lanes of a queue, ordered by level.
    pub(crate) fn all_of(&self, queue: QueueId) -> impl Iterator<Item = (Lane, LaneSlot)> {
        let range = Lane { queue, level: 0 }..=Lane { queue, level: u16::MAX };
        self.by_lane.range(range).map(|(&lane, &slot)| (lane, LaneSlot(slot)))
    }

    /// Their slots.
    pub(crate) fn of(&self, queue: QueueId) -> Vec<LaneSlot> {
        self.all_of(queue).map(|(_, slot)| slot).collect()
    }

    fn hold(&mut self, lane: Lane, form: Form, delivered_below: u64) -> LaneSlot {
        match &form {
            Form::Hot(_) => self.hot += 1,
            Form::Cold(bytes) => self.cold_bytes += bytes.len(),
        }
        self.persistent += usize::from(!lane.is_transient());
        let epoch = self.epoch;
        let held = Held { lane, form, fetch_from: 0, delivered_below, epoch, is_used: true };
        let slot = self.slab.insert(held) as u32;
        self.by_lane.insert(lane, slot);
        LaneSlot(slot)
    }

    pub(crate) fn insert(&mut self, index: LaneIndex) -> LaneSlot {
        self.hold(index.lane, Form::Hot(Box::new(index)), 0)
    }

    /// Takes a lane as a checkpoint has it; `None` if there is one of that name.
    pub(crate) fn insert_encoded(&mut self, summary: &Summary, bytes: &[u8]) -> Option<LaneSlot> {
        let form = if summary.has_unaccounted {
            Form::Hot(Box::new(LaneIndex::decode(&mut Reader(bytes))?))
        } else {
            Form::Cold(bytes.into())
        };
        let slot = self.hold(summary.lane, form, summary.delivered_below);
        (self.by_lane.len() == self.slab.len()).then_some(slot)
    }

    pub(crate) fn remove(&mut self, slot: LaneSlot) {
        self.keep(slot);
        let Some(held) = self.slab.try_remove(slot.0 as usize) else { return };
        match held.form {
            Form::Hot(_) => self.hot -= 1,
            Form::Cold(bytes) => self.cold_bytes -= bytes.len(),
        }
        self.persistent -= usize::from(!held.lane.is_transient());
        self.by_lane.remove(&held.lane);
    }

    /// Which lane it is.
    pub(crate) fn lane(&self, slot: LaneSlot) -> Option<Lane> {
        self.slab.get(slot.0 as usize).map(|held| held.lane)
    }

    /// Shows the index of a lane, which stays as it is.
    pub(crate) fn look(&self, slot: LaneSlot, look: impl FnOnce(&LaneIndex)) {
        match self.slab.get(slot.0 as usize).map(|held| &held.form) {
            Some(Form::Hot(index)) => look(index),
            Some(Form::Cold(bytes)) => {
                if let Some(index) = LaneIndex::decode(&mut Reader(bytes)) {
                    look(&index);
                }
            }
            None => {}
        }
    }

    /// The index of a lane, to be changed.
    pub(crate) fn get_mut(&mut self, slot: LaneSlot) -> Option<&mut LaneIndex> {
        let held = self.slab.get_mut(slot.0 as usize)?;
        if held.epoch != self.epoch {
            encode(held, self.epoch, &mut self.snapshot);
        }
        if let Form::Cold(bytes) = &held.form {
            let index = LaneIndex::decode(&mut Reader(bytes));
            let mut index = index.unwrap_or_else(|| LaneIndex::new(held.lane));
            index.resume(held.fetch_from);
            self.cold_bytes -= bytes.len();
            self.hot += 1;
            held.form = Form::Hot(Box::new(index));
        }
        held.is_used = true;
        match &mut held.form {
            Form::Hot(index) => Some(index),
            Form::Cold(_) => None,
        }
    }

    /// What one wants to know of a lane without taking it apart.
    pub(crate) fn summary(&self, slot: LaneSlot) -> Option<Summary> {
        match &self.slab.get(slot.0 as usize)?.form {
            Form::Hot(index) => Some(index.summary()),
            Form::Cold(bytes) => Summary::peek(bytes),
        }
    }

    /// Whether all entries so far were fetched.
    pub(crate) fn is_fetched(&self, slot: LaneSlot) -> bool {
        let Some(held) = self.slab.get(slot.0 as usize) else { return true };
        match &held.form {
            Form::Hot(index) => index.is_fetched(),
            Form::Cold(bytes) => Summary::peek(bytes)
                .is_none_or(|found| found.is_dropped || held.fetch_from >= found.next),
        }
    }

    /// Whether an entry was or may have been delivered before: it came back in this run, or an
    /// earlier one left it so.
    pub(crate) fn is_marked(&self, slot: LaneSlot, seq: u64) -> bool {
        let Some(held) = self.slab.get(slot.0 as usize) else { return false };
        if seq < held.delivered_below {
            return true;
        }
        match &held.form {
            Form::Hot(index) => index.is_marked(seq),
            Form::Cold(bytes) => {
                LaneIndex::decode(&mut Reader(bytes)).is_some_and(|index| index.is_marked(seq))
            }
        }
    }

    /// Nobody knows which of the entries so far were delivered.
    pub(crate) fn mark_all(&mut self) {
        for (_, held) in &mut self.slab {
            held.delivered_below = match &held.form {
                Form::Hot(index) => index.next(),
                Form::Cold(bytes) => Summary::peek(bytes).map_or(0, |found| found.next),
            };
        }
    }

    /// Places of lanes there are; some may be empty.
    pub(crate) fn places(&self) -> usize {
        self.slab.capacity()
    }

    /// Memory of all lanes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let hot = self.slab.iter().filter_map(|(_, held)| match &held.form {
            Form::Hot(index) => Some(index.memory_bytes()),
            Form::Cold(_) => None,
        });
        let places = self.slab.capacity() * size_of::<Held>() + self.by_lane.len() * 32;
        hot.sum::<usize>() + places + self.cold_bytes + (self.slab.len() - self.hot) * 16
    }

    /// Makes some of those that are idle cold, if there are more than `kept`.
    pub(crate) fn cool(&mut self, kept: usize, looks: usize) {
        for _ in 0..looks {
            if self.hot <= kept {
                return;
            }
            if self.clock >= self.slab.capacity() {
                self.clock = 0;
            }
            let at = self.clock;
            self.clock += 1;
            let Some(held) = self.slab.get_mut(at) else { continue };
            if core::mem::take(&mut held.is_used) {
                continue;
            }
            let Form::Hot(index) = &held.form else { continue };
            if !index.is_at_rest() {
                continue;
            }
            let mut bytes = Vec::new();
            index.encode(&mut bytes);
            held.fetch_from = index.fetch_from();
            self.cold_bytes += bytes.len();
            self.hot -= 1;
            held.form = Form::Cold(bytes.into_boxed_slice());
        }
    }

    /// Begins a snapshot of all lanes of persistent messages. How many there are.
    pub(crate) fn begin_snapshot(&mut self) -> usize {
        self.epoch = self.epoch.wrapping_add(1);
        self.snapshot = Some(Snapshot { left: self.persistent, ..Snapshot::default() });
        self.persistent
    }

    /// A lane that is about to go belongs to the snapshot under way.
    fn keep(&mut self, slot: LaneSlot) {
        if let Some(held) = self.slab.get_mut(slot.0 as usize)
            && held.epoch != self.epoch
        {
            encode(held, self.epoch, &mut self.snapshot);
        }
    }

    /// Encodes further lanes, until about `bytes_max` more are there or `looks` places were seen.
    /// True when all are encoded.
    pub(crate) fn encode_some(&mut self, bytes_max: usize, looks: usize) -> bool {
        let Some(snapshot) = &self.snapshot else { return true };
        let end = snapshot.bytes.len() + bytes_max;
        for _ in 0..looks {
            let Some(snapshot) = &mut self.snapshot else { return true };
            if snapshot.left == 0 || snapshot.bytes.len() >= end {
                break;
            }
            let at = snapshot.next;
            assert!(at < self.slab.capacity(), "every lane is in the snapshot");
            snapshot.next += 1;
            self.keep(LaneSlot(at as u32));
        }
        self.snapshot.as_ref().is_none_or(|snapshot| snapshot.left == 0)
    }

    /// Bytes that [`Lanes::take_encoded`] would give.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes.len())
    }

    /// What was encoded since it was taken last.
    pub(crate) fn take_encoded(&mut self) -> Vec<u8> {
        self.snapshot.as_mut().map(|found| core::mem::take(&mut found.bytes)).unwrap_or_default()
    }

    /// The snapshot is complete, or not needed any more.
    pub(crate) fn end_snapshot(&mut self) {
        self.snapshot = None;
    }
}

/// Puts a lane into the snapshot under way, if there is one.
fn encode(held: &mut Held, epoch: u32, snapshot: &mut Option<Snapshot>) {
    held.epoch = epoch;
    let Some(snapshot) = snapshot else { return };
    if held.lane.is_transient() {
        return;
    }
    snapshot.left -= 1;
    match &held.form {
        Form::Hot(index) => index.encode(&mut snapshot.bytes),
        Form::Cold(bytes) => snapshot.bytes.extend_from_slice(bytes),
    }
    put(&mut snapshot.bytes, held.delivered_below);
}
