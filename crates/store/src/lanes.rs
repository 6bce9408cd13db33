//! All lanes of a store. Those in use are taken apart; idle ones are bytes, as a checkpoint has
//! them.
//!
//! A checkpoint shows lanes as they were at one moment, without stopping for it: lanes are encoded in
//! slices, and one that is about to change before its turn is encoded then. It shows all of them, or
//! those that changed since the last one that became valid: whoever asks for a lane to change it has
//! it put on a list.
//!
//! Each snapshot begins an *epoch*.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use lepus_base::{QueueId, Slab};

use crate::lane::{LaneIndex, PAGE_BYTES, Summary, skip_runs};
use crate::record::Lane;
use crate::varint::{Reader, put};

/// A lane's place in a store, for as long as the lane exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneSlot(pub u32);

/// Bytes of a row without entries, about.
const NEW_ROW_BYTES: usize = 32;
/// Bytes of an entry in a row, at most.
const ENTRY_BYTES: u64 = 6;
/// Bytes of all entries of a row, on average: what fills a page is in the index file.
const ENTRIES_BYTES: u64 = PAGE_BYTES as u64 / 2;
/// Bytes of rows are counted in these, so that a lane needs few of its own for them.
const ROW_UNIT_BYTES: usize = 16;

/// The units of a row; of one of a megabyte and more not all.
fn row_units(bytes: usize) -> u16 {
    u16::try_from(bytes.div_ceil(ROW_UNIT_BYTES)).unwrap_or(u16::MAX)
}

/// Units that rows take in a checkpoint, by what they took in the last one that had them.
#[derive(Debug, Default)]
struct RowUnits {
    /// Those of all lanes of persistent messages.
    all: u64,
    /// Those of lanes on the list of what may change.
    changing: u64,
    /// Entries that have come since the last snapshot began: they are in no row yet.
    entries: u64,
}

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
    /// The last epoch in which it was on the list of those that may change.
    listed: u32,
    /// The last snapshot that has it, need not have it, or is older than it.
    kept: u32,
    /// The last epoch in which it is known to have changed; what its index says of that comes on top.
    changed: u32,
    /// What it takes in a checkpoint; 0 of one of transient messages, which is in none.
    row_units: u16,
    /// Since the clock came by.
    is_used: bool,
}

impl Held {
    /// The lane may change in this epoch: it goes to a list with room for `room` places.
    fn list(
        &mut self,
        (slot, room): (LaneSlot, usize),
        epoch: u32,
        (changing, units): (&mut Option<Vec<u32>>, &mut RowUnits),
    ) {
        self.listed = epoch;
        units.changing += u64::from(self.row_units);
        match changing {
            Some(list) if !self.lane.is_transient() && list.len() < room => list.push(slot.0),
            Some(_) if !self.lane.is_transient() => *changing = None,
            _ => {}
        }
    }

    /// Before it changes in this epoch: it is put into the snapshot under way as it is, if that has to
    /// have it.
    fn keep(
        &mut self,
        (epoch, valid): (u32, u32),
        snapshot: &mut Option<Snapshot>,
        units: &mut RowUnits,
    ) {
        if core::mem::replace(&mut self.kept, epoch) == epoch {
            return;
        }
        if let Form::Hot(index) = &mut self.form
            && index.take_changed()
        {
            self.changed = self.listed;
        }
        let Some(snapshot) = snapshot else { return };
        if self.lane.is_transient() || (!snapshot.is_base && self.changed < valid) {
            return;
        }
        snapshot.rows += 1;
        let before = snapshot.bytes.len();
        match &self.form {
            Form::Hot(index) => index.encode(&mut snapshot.bytes),
            Form::Cold(bytes) => snapshot.bytes.extend_from_slice(bytes),
        }
        put(&mut snapshot.bytes, self.delivered_below);
        self.weigh_row(snapshot.bytes.len() - before, units);
        if snapshot.bytes.len() >= snapshot.block_bytes {
            snapshot.end_block();
        }
    }

    /// It takes so many bytes in a checkpoint.
    fn weigh_row(&mut self, bytes: usize, units: &mut RowUnits) {
        if !self.lane.is_transient() {
            units.all -= u64::from(self.row_units);
            self.row_units = row_units(bytes);
            units.all += u64::from(self.row_units);
        }
    }
}

/// Lanes being encoded, as they were when that began.
#[derive(Debug)]
struct Snapshot {
    /// All lanes belong to it, not only those that changed.
    is_base: bool,
    /// Where those that may have changed are; `None` if every place has to be looked at.
    places: Option<Vec<u32>>,
    /// How many places there are to look at, and the next one.
    end: usize,
    next: usize,
    /// Lanes that were removed, and how many of them were shown.
    removed: Vec<Lane>,
    removed_shown: usize,
    /// Too many were removed to be listed.
    has_forgotten: bool,
    /// What is said before of deliveries does not count.
    is_delivered: bool,
    /// Units of the rows of what may have changed.
    changing_units: u64,
    /// Encoded, and not taken yet: rows and bytes of blocks that are full, and of the one that grows.
    blocks: VecDeque<(u64, Vec<u8>)>,
    /// Memory of those that are full.
    full_bytes: usize,
    /// When it is full: so much is copied and summed in one go.
    block_bytes: usize,
    rows: u64,
    bytes: Vec<u8>,
}

impl Snapshot {
    /// The next place to look at.
    fn place(&mut self) -> Option<u32> {
        let at = self.next;
        if at >= self.end {
            return None;
        }
        self.next += 1;
        match &self.places {
            Some(places) => places.get(at).copied(),
            None => Some(at as u32),
        }
    }

    /// The block that grows is full.
    fn end_block(&mut self) {
        let bytes = core::mem::take(&mut self.bytes);
        self.full_bytes += bytes.capacity();
        self.blocks.push_back((core::mem::take(&mut self.rows), bytes));
    }

    /// The next block, full or not.
    fn take_block(&mut self) -> (u64, Vec<u8>) {
        let Some((rows, bytes)) = self.blocks.pop_front() else {
            return (core::mem::take(&mut self.rows), core::mem::take(&mut self.bytes));
        };
        self.full_bytes -= bytes.capacity();
        (rows, bytes)
    }

    /// Memory of what is encoded and not taken yet.
    fn memory_bytes(&self) -> usize {
        self.full_bytes + self.bytes.capacity()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    slab: Slab<Held>,
    by_lane: BTreeMap<Lane, u32>,
    hot: usize,
    /// Memory of hot lanes, as it was when each was weighed last.
    hot_bytes: usize,
    cold_bytes: usize,
    /// Lanes of which something was damaged and kept.
    damaged: BTreeSet<u32>,
    clock: usize,
    /// How many looks in a row made no lane cold.
    vain_looks: usize,
    /// Lanes that had to stay hot when all were looked at in vain, in this epoch.
    busy: usize,
    epoch: u32,
    /// The epoch that the last valid snapshot began: changes from then on are in no checkpoint.
    valid: u32,
    /// Lanes that may have changed since; `None` when they are too many to be listed.
    changing: Option<Vec<u32>>,
    units: RowUnits,
    /// Lanes of persistent messages removed since.
    removed: Vec<Lane>,
    /// Too many were removed to be listed.
    has_forgotten: bool,
    /// What the valid snapshot says of deliveries does not count.
    is_delivered: bool,
    /// The snapshot that is being encoded, or waits until it is valid.
    snapshot: Option<Snapshot>,
    /// Pages of cold lanes that the checkpoint had in itself.
    inline: Vec<(LaneSlot, u64)>,
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

    fn hold(&mut self, lane: Lane, mut form: Form, (delivered_below, changed): (u64, u32)) -> u32 {
        self.count(&mut form, true);
        let epoch = self.epoch;
        let held = Held {
            lane,
            form,
            fetch_from: 0,
            delivered_below,
            listed: epoch,
            kept: epoch,
            changed,
            row_units: 0,
            is_used: true,
        };
        let slot = self.slab.insert(held) as u32;
        self.by_lane.insert(lane, slot);
        slot
    }

    /// A lane has this form from now on, or has it no more.
    fn count(&mut self, form: &mut Form, is_more: bool) {
        match form {
            Form::Hot(index) if is_more => {
                self.hot += 1;
                index.weigh(&mut self.hot_bytes);
            }
            Form::Hot(index) => {
                self.hot -= 1;
                self.hot_bytes -= index.weighed();
                self.busy = self.busy.min(self.hot);
            }
            Form::Cold(bytes) if is_more => self.cold_bytes += bytes.len(),
            Form::Cold(bytes) => self.cold_bytes -= bytes.len(),
        }
    }

    /// Counts the memory of a lane anew: a page of it came or went.
    pub(crate) fn weigh(&mut self, slot: LaneSlot) {
        let form = self.slab.get_mut(slot.0 as usize).map(|held| &mut held.form);
        if let Some(Form::Hot(index)) = form {
            index.weigh(&mut self.hot_bytes);
        }
    }

    pub(crate) fn insert(&mut self, index: LaneIndex) -> LaneSlot {
        let slot = LaneSlot(self.hold(index.lane, Form::Hot(Box::new(index)), (0, self.epoch)));
        if let Some(held) = self.slab.get_mut(slot.0 as usize) {
            held.weigh_row(NEW_ROW_BYTES, &mut self.units);
            let lists = (&mut self.changing, &mut self.units);
            held.list((slot, self.by_lane.len()), self.epoch, lists);
        }
        slot
    }

    /// The rows that are loaded next are newer than all before.
    pub(crate) fn begin_section(&mut self) {
        self.epoch += 1;
    }

    /// Takes a lane as a checkpoint has it, in the place of what an earlier section said of it. Of two
    /// with one name in one section neither can be trusted. The marks may be missing.
    pub(crate) fn load(&mut self, reader: &mut Reader<'_>, has_marks: bool) -> Option<()> {
        let all = reader.0;
        let summary = Summary::skip_with(reader, |_, _| {})?;
        let mut unmarked = Vec::new();
        let (bytes, delivered_below) = if has_marks {
            skip_runs(reader)?;
            (&all[..all.len() - reader.0.len()], reader.varint()?)
        } else {
            // Anything may have been delivered.
            unmarked.extend_from_slice(&all[..all.len() - reader.0.len()]);
            put(&mut unmarked, 0);
            (&unmarked[..], summary.next)
        };
        if summary.next == 0 && !summary.is_dropped {
            // It was made and never used.
            return Some(());
        }
        let mut form = if summary.has_unaccounted {
            Form::Hot(Box::new(LaneIndex::decode(&mut Reader(bytes))?))
        } else {
            Form::Cold(bytes.into())
        };
        let row_bytes = bytes.len();
        let Some(&slot) = self.by_lane.get(&summary.lane) else {
            let slot = self.hold(summary.lane, form, (delivered_below, 0));
            let held = self.slab.get_mut(slot as usize)?;
            held.weigh_row(row_bytes, &mut self.units);
            return Some(());
        };
        self.count(&mut form, true);
        let held = self.slab.get_mut(slot as usize)?;
        if core::mem::replace(&mut held.kept, self.epoch) == self.epoch {
            return None;
        }
        held.delivered_below = delivered_below;
        held.weigh_row(row_bytes, &mut self.units);
        let mut before = core::mem::replace(&mut held.form, form);
        self.count(&mut before, false);
        Some(())
    }

    /// A lane that an earlier section has is gone.
    pub(crate) fn load_removed(&mut self, lane: Lane) {
        if let Some(slot) = self.by_lane.remove(&lane)
            && let Some(mut held) = self.slab.try_remove(slot as usize)
        {
            held.weigh_row(0, &mut self.units);
            self.count(&mut held.form, false);
        }
    }

    /// All of a checkpoint is loaded: `pages` gets the pages of the index file that lanes have. Those
    /// with something to account for.
    pub(crate) fn end_load(&mut self, pages: &mut Vec<u32>) -> Option<Vec<LaneSlot>> {
        self.epoch += 1;
        self.valid = self.epoch;
        self.changing = Some(Vec::new());
        let mut unaccounted = Vec::new();
        for (slot, held) in &self.slab {
            match &held.form {
                Form::Hot(index) => {
                    pages.extend(index.page_slots());
                    unaccounted.push(LaneSlot(slot as u32));
                }
                Form::Cold(bytes) => {
                    Summary::skip_with(&mut Reader(bytes), |first, place| match place {
                        Some(place) => pages.push(place),
                        None => self.inline.push((LaneSlot(slot as u32), first)),
                    })?;
                }
            }
        }
        Some(unaccounted)
    }

    pub(crate) fn remove(&mut self, slot: LaneSlot) {
        self.keep(slot);
        let Some(mut held) = self.slab.try_remove(slot.0 as usize) else { return };
        self.count(&mut held.form, false);
        if held.listed == self.epoch {
            let units = u64::from(held.row_units);
            self.units.changing = self.units.changing.saturating_sub(units);
        }
        held.weigh_row(0, &mut self.units);
        self.damaged.remove(&slot.0);
        self.by_lane.remove(&held.lane);
        if held.lane.is_transient() || self.has_forgotten {
            return;
        }
        if self.removed.len() < self.slab.capacity() {
            self.removed.push(held.lane);
        } else {
            self.removed = Vec::new();
            self.has_forgotten = true;
        }
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
        if held.listed != self.epoch {
            held.keep((self.epoch, self.valid), &mut self.snapshot, &mut self.units);
            let lists = (&mut self.changing, &mut self.units);
            held.list((slot, self.by_lane.len()), self.epoch, lists);
            // Settles leave gaps that nobody weighs: once an epoch is often enough.
            if let Form::Hot(index) = &mut held.form {
                index.weigh(&mut self.hot_bytes);
            }
        }
        if let Form::Cold(bytes) = &held.form {
            let index = LaneIndex::decode(&mut Reader(bytes));
            let mut index = index.unwrap_or_else(|| LaneIndex::new(held.lane));
            index.resume(held.fetch_from);
            index.weigh(&mut self.hot_bytes);
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

    /// Closed pages of hot lanes that are only in memory, and of those that a checkpoint had in itself.
    pub(crate) fn pages_in_memory(&mut self) -> Vec<(LaneSlot, u64)> {
        let mut pages = core::mem::take(&mut self.inline);
        for (slot, held) in &mut self.slab {
            if let Form::Hot(index) = &mut held.form {
                // The replay made them longer.
                index.weigh(&mut self.hot_bytes);
                let slot = LaneSlot(slot as u32);
                pages.extend(index.pages_in_memory().map(|first| (slot, first)));
            }
        }
        pages
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

    /// Nobody knows which of the entries so far were delivered, and no checkpoint says so yet.
    pub(crate) fn forget_delivered(&mut self) {
        self.is_delivered = true;
        self.mark_all();
    }

    /// Any of the entries so far may have been delivered.
    pub(crate) fn mark_all(&mut self) {
        for (_, held) in &mut self.slab {
            held.delivered_below = match &held.form {
                Form::Hot(index) => index.next(),
                Form::Cold(bytes) => Summary::peek(bytes).map_or(0, |found| found.next),
            };
        }
    }

    /// Whether some of a lane are damaged and kept.
    pub(crate) fn has_damaged(&self, slot: LaneSlot) -> bool {
        let held = self.slab.get(slot.0 as usize);
        matches!(held.map(|held| &held.form), Some(Form::Hot(index)) if index.damaged() > 0)
    }

    /// An entry of a lane cannot be read: it is kept, and not given to anybody.
    pub(crate) fn set_aside(&mut self, slot: LaneSlot, seq: u64, bytes: u32) {
        if let Some(index) = self.get_mut(slot) {
            index.set_aside(seq, bytes);
            self.damaged.insert(slot.0);
        }
    }

    /// Messages of all lanes that are damaged and kept.
    pub(crate) fn damaged(&self) -> u64 {
        let held = self.damaged.iter().filter_map(|slot| self.slab.get(*slot as usize));
        let hot = held.filter_map(|held| match &held.form {
            Form::Hot(index) => Some(index.damaged() as u64),
            Form::Cold(_) => None,
        });
        hot.sum()
    }

    /// Places of lanes there are; some may be empty.
    pub(crate) fn places(&self) -> usize {
        self.slab.capacity()
    }

    /// Memory of all lanes, and of what a snapshot has encoded of them, told without a walk: what settles
    /// and deliveries out of order add to a hot lane counts from its next page or checkpoint on.
    pub(crate) fn memory_bytes(&self) -> usize {
        let places = self.slab.capacity() * size_of::<Held>() + self.by_lane.len() * 32;
        let cold_bytes = self.cold_bytes + (self.slab.len() - self.hot) * 16;
        self.hot_bytes + places + cold_bytes + self.encoded_bytes()
    }

    /// Memory of what is encoded of lanes and not taken yet: while the disk is slow, that may be of all lanes.
    fn encoded_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, Snapshot::memory_bytes)
    }

    /// Whether lanes are hot that may be idle, more than `kept`.
    pub(crate) fn is_warm(&self, kept: usize) -> bool {
        self.hot > self.busy + kept
    }

    /// Makes some of those that are idle cold, if there are more than `kept`.
    pub(crate) fn cool(&mut self, kept: usize, looks: usize) {
        for _ in 0..looks {
            if !self.is_warm(kept) {
                return;
            }
            // The first time round finds out which ones are in use. That does not begin anew with each use:
            // what asks for a lane again and again, even beside this, would keep the shard awake.
            if self.vain_looks >= 2 * self.slab.capacity() {
                (self.busy, self.vain_looks) = (self.hot, 0);
                return;
            }
            if self.clock >= self.slab.capacity() {
                self.clock = 0;
            }
            let at = self.clock;
            self.clock += 1;
            self.vain_looks += 1;
            let Some(held) = self.slab.get_mut(at) else { continue };
            if core::mem::take(&mut held.is_used) {
                continue;
            }
            let Form::Hot(index) = &mut held.form else { continue };
            if !index.is_at_rest() {
                continue;
            }
            if index.take_changed() {
                held.changed = held.listed;
            }
            let mut bytes = Vec::new();
            index.encode(&mut bytes);
            held.fetch_from = index.fetch_from();
            self.cold_bytes += bytes.len();
            self.hot -= 1;
            self.hot_bytes -= index.weighed();
            self.vain_looks = 0;
            self.busy = self.busy.min(self.hot);
            held.form = Form::Cold(bytes.into_boxed_slice());
        }
    }

    /// Bytes of the next snapshot, about, unless it is one of all lanes.
    pub(crate) fn changing_bytes(&self) -> u64 {
        let is_listed = self.changing.is_some();
        let units = if is_listed { self.units.changing } else { self.units.all };
        units * ROW_UNIT_BYTES as u64 + self.new_bytes()
    }

    /// Bytes of a snapshot of all lanes, about.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.units.all * ROW_UNIT_BYTES as u64 + self.new_bytes()
    }

    /// What has come since the last snapshot adds to rows, about.
    fn new_bytes(&self) -> u64 {
        let lanes = self.changing.as_ref().map_or(self.slab.len(), Vec::len) as u64;
        (self.units.entries * ENTRY_BYTES).min(lanes * ENTRIES_BYTES)
    }

    /// So many entries have come.
    pub(crate) fn appended(&mut self, entries: usize) {
        self.units.entries += entries as u64;
    }

    /// Whether the next snapshot has to be one of all lanes.
    pub(crate) fn needs_base(&self) -> bool {
        self.has_forgotten
    }

    /// Begins a snapshot of the lanes of persistent messages: all of them, or those that changed since
    /// the last one that became valid. They are given in blocks of so many bytes, about. Whether what that said of deliveries does not count.
    pub(crate) fn begin_snapshot(&mut self, is_base: bool, block_bytes: usize) -> bool {
        assert!(self.snapshot.is_none(), "one snapshot at a time");
        assert!(is_base || !self.has_forgotten, "what was removed is known");
        self.epoch += 1;
        (self.busy, self.vain_looks) = (0, 0);
        let places = self.changing.replace(Vec::new());
        let places = places.filter(|_| !is_base);
        let end = places.as_ref().map_or(self.slab.capacity(), Vec::len);
        let removed = core::mem::take(&mut self.removed);
        let has_forgotten = core::mem::take(&mut self.has_forgotten);
        let is_delivered = core::mem::take(&mut self.is_delivered);
        let changing_units = core::mem::take(&mut self.units.changing);
        self.units.entries = 0;
        let (next, removed_shown, rows, bytes) = (0, 0, 0, Vec::new());
        self.snapshot = Some(Snapshot {
            is_base,
            places,
            end,
            next,
            removed,
            removed_shown,
            has_forgotten,
            is_delivered,
            changing_units,
            blocks: VecDeque::new(),
            full_bytes: 0,
            block_bytes,
            rows,
            bytes,
        });
        is_delivered && !is_base
    }

    /// A lane that is about to go belongs to the snapshot under way.
    fn keep(&mut self, slot: LaneSlot) {
        if let Some(held) = self.slab.get_mut(slot.0 as usize) {
            held.keep((self.epoch, self.valid), &mut self.snapshot, &mut self.units);
        }
    }

    /// Shows up to `count` further lanes that were removed before the snapshot began. True when all
    /// were shown, as they need not be in a snapshot of all lanes.
    pub(crate) fn show_removed(&mut self, count: usize, each: impl FnMut(Lane)) -> bool {
        let Some(snapshot) = self.snapshot.as_mut().filter(|snapshot| !snapshot.is_base) else {
            return true;
        };
        let shown = snapshot.removed_shown;
        let end = snapshot.removed.len().min(shown + count);
        snapshot.removed[shown..end].iter().copied().for_each(each);
        snapshot.removed_shown = end;
        end == snapshot.removed.len()
    }

    /// Encodes further lanes, until about `bytes_max` more are there or `looks` places were seen.
    /// True when all are encoded.
    pub(crate) fn encode_some(&mut self, bytes_max: usize, looks: usize) -> bool {
        let end = self.growing_bytes() + bytes_max;
        for _ in 0..looks {
            let Some(snapshot) = &mut self.snapshot else { return true };
            if snapshot.bytes.len() >= end || !snapshot.blocks.is_empty() {
                break;
            }
            let Some(place) = snapshot.place() else { return true };
            self.keep(LaneSlot(place));
        }
        self.snapshot.as_ref().is_none_or(|snapshot| snapshot.next >= snapshot.end)
    }

    /// Whether a block of encoded lanes is full. There may be very many, of lanes that changed before their turn.
    pub(crate) fn has_block(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| !snapshot.blocks.is_empty())
    }

    /// Bytes of the block that grows.
    pub(crate) fn growing_bytes(&self) -> usize {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes.len())
    }

    /// The next block, full or not: how many lanes it has, and what they say.
    pub(crate) fn take_block(&mut self) -> (u64, Vec<u8>) {
        self.snapshot.as_mut().map(Snapshot::take_block).unwrap_or_default()
    }

    /// The checkpoint with the snapshot is valid: the next one shows what changes after it.
    pub(crate) fn snapshot_valid(&mut self) {
        let snapshot = self.snapshot.take();
        let is_taken = |snapshot: Snapshot| snapshot.blocks.is_empty() && snapshot.bytes.is_empty();
        assert!(snapshot.is_some_and(is_taken), "all was taken");
        self.valid = self.epoch;
    }

    /// The snapshot is not needed any more: what it would have shown is for the next one to show.
    pub(crate) fn snapshot_failed(&mut self) {
        let Some(snapshot) = self.snapshot.take() else { return };
        self.is_delivered |= snapshot.is_delivered;
        // What changed before and since counts twice, until the next one begins.
        self.units.changing += snapshot.changing_units;
        let lists = (snapshot.places, self.changing.take());
        let room = self.slab.capacity();
        if let (Some(mut places), Some(more)) = lists
            && places.len() + more.len() <= room
        {
            places.extend(more);
            self.changing = Some(places);
        }
        self.has_forgotten |= snapshot.has_forgotten;
        if snapshot.removed.len() + self.removed.len() <= room && !self.has_forgotten {
            self.removed.extend(snapshot.removed);
        } else {
            self.removed = Vec::new();
            self.has_forgotten = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Entry;
    use lepus_base::Position;

    fn walk(lanes: &Lanes) -> (usize, usize) {
        lanes.slab.iter().fold((0, 0), |(hot, cold), (_, held)| match &held.form {
            Form::Hot(index) => (hot + index.memory_bytes(), cold),
            Form::Cold(bytes) => (hot, cold + bytes.len()),
        })
    }

    #[test]
    fn lanes_that_are_asked_for_again_and_again_are_let_be() {
        let mut lanes = Lanes::default();
        let slots: Vec<_> =
            (0..5).map(|queue| lanes.insert(LaneIndex::new(Lane::of(QueueId(queue))))).collect();
        for _ in 0..5 {
            slots.iter().for_each(|slot| assert!(lanes.get_mut(*slot).is_some()));
            lanes.cool(1, 4);
        }
        assert!(!lanes.is_warm(1), "whoever works while lanes are warm comes to rest");
    }

    #[test]
    fn the_sums_of_memory_are_those_of_a_walk_once_every_lane_is_weighed() {
        let mut lanes = Lanes::default();
        let (mut slots, mut freed) = (Vec::new(), Vec::new());
        for round in 0..2_000_u64 {
            let queue = QueueId(round % 61);
            let lane = Lane::of(queue);
            let slot = match lanes.find(lane) {
                Some(slot) => slot,
                None => lanes.insert(LaneIndex::new(lane)),
            };
            slots.push(slot);
            let index = lanes.get_mut(slot).expect("it is there");
            let seq = index.next();
            index.append(Entry { seq, position: Position(round), bytes: 3, deadline_millis: 0 });
            if round % 3 > 0 {
                index.settle(seq, 3, &mut freed);
            }
            index.resume(seq + 1);
            if round % 97 == 0 {
                lanes.remove(slot);
            }
            lanes.cool(8, 4);
        }
        for slot in slots {
            lanes.weigh(slot);
        }
        assert!(lanes.hot > 8 && lanes.hot < lanes.slab.len());
        assert_eq!((lanes.hot_bytes, lanes.cold_bytes), walk(&lanes));
    }

    #[test]
    fn what_a_snapshot_will_take_is_known_by_the_one_before() {
        let mut lanes = Lanes::default();
        let slots: Vec<_> =
            (0..100).map(|queue| lanes.insert(LaneIndex::new(Lane::of(QueueId(queue))))).collect();
        let transient = lanes.insert(LaneIndex::new(Lane {
            queue: QueueId(1),
            level: crate::record::LEVEL_TRANSIENT,
        }));
        assert!(lanes.lane(transient).is_some_and(Lane::is_transient));
        assert_eq!(lanes.changing_bytes(), 100 * NEW_ROW_BYTES as u64);
        let (mut freed, mut written) = (Vec::new(), Vec::new());
        // One of them has many gaps.
        let index = lanes.get_mut(slots[0]).expect("it is there");
        for seq in 0..2_000 {
            index.append(Entry { seq, position: Position(seq), bytes: 3, deadline_millis: 0 });
        }
        (0..2_000).step_by(2).for_each(|seq| assert!(index.settle(seq, 3, &mut freed)));
        for (is_base, changed) in [(true, 0..100), (false, 5..15), (true, 0..0)] {
            changed.for_each(|slot| assert!(lanes.get_mut(slots[slot]).is_some()));
            let expected = if is_base { lanes.all_bytes() } else { lanes.changing_bytes() };
            lanes.begin_snapshot(is_base, usize::MAX);
            assert_eq!(lanes.changing_bytes(), 0);
            while !lanes.encode_some(1 << 20, 1_000) {}
            let bytes = lanes.take_block().1.len() as u64;
            written.push((expected, bytes));
            lanes.snapshot_valid();
        }
        let [_, (few, few_bytes), (all, all_bytes)] = written[..] else {
            panic!("three were written")
        };
        // Units are rounded up, and what only may have changed counts.
        assert!(few >= few_bytes && few <= 10 * 2 * ROW_UNIT_BYTES as u64, "{few} {few_bytes}");
        assert!(
            all >= all_bytes && all - all_bytes <= 100 * ROW_UNIT_BYTES as u64,
            "{all} {all_bytes}"
        );
        for slot in slots {
            lanes.remove(slot);
        }
        assert_eq!((lanes.all_bytes(), lanes.changing_bytes()), (0, 0));
    }

    /// Memory of what a snapshot has encoded and nobody has taken, by a walk.
    fn walk_encoded(lanes: &Lanes) -> usize {
        lanes.snapshot.as_ref().map_or(0, |snapshot| {
            let full = snapshot.blocks.iter().map(|(_, bytes)| bytes.capacity());
            full.sum::<usize>() + snapshot.bytes.capacity()
        })
    }

    #[test]
    fn lanes_that_change_before_their_turn_are_taken_in_blocks_and_count_until_then() {
        let mut lanes = Lanes::default();
        let slots: Vec<LaneSlot> = (0..1_000)
            .map(|queue| {
                let slot = lanes.insert(LaneIndex::new(Lane { queue: QueueId(queue), level: 0 }));
                let index = lanes.get_mut(slot).expect("it is there");
                for seq in 0..400 {
                    // Positions that make no run.
                    let position = Position(seq * seq * 100);
                    index.append(Entry { seq, position, bytes: 3, deadline_millis: 0 });
                }
                lanes.weigh(slot);
                slot
            })
            .collect();
        let before = lanes.memory_bytes();
        // The first one fails.
        for is_valid in [false, true] {
            lanes.begin_snapshot(true, 256 << 10);
            // All of them change while nothing is taken.
            for slot in &slots {
                assert!(lanes.get_mut(*slot).is_some());
                assert_eq!(lanes.memory_bytes() - before, walk_encoded(&lanes));
            }
            assert!(walk_encoded(&lanes) > 512 << 10, "{}", walk_encoded(&lanes));
            let (mut rows, mut blocks) = (0, 0);
            while lanes.has_block() && (is_valid || blocks == 0) {
                let (more, bytes) = lanes.take_block();
                assert!(bytes.len() < 272 << 10, "{} bytes", bytes.len());
                assert_eq!(lanes.memory_bytes() - before, walk_encoded(&lanes));
                (rows, blocks) = (rows + more, blocks + 1);
            }
            if is_valid {
                assert!(blocks > 2, "{blocks}");
                while !lanes.encode_some(1 << 20, 1_000) {}
                assert_eq!(rows + lanes.take_block().0, 1_000);
                lanes.snapshot_valid();
            } else {
                assert!(walk_encoded(&lanes) > 0, "some of it is there");
                lanes.snapshot_failed();
            }
            assert_eq!(lanes.memory_bytes(), before);
        }
    }
}
