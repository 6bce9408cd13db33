//! Branches that are looked at together: those that are filed under one value, or under nothing.
//!
//! New ones are in the *tail*, where they are compared one by one. When many of one shape have come together there, they
//! become a segment, and segments of like size become one. So there are few segments, and each branch is moved a
//! logarithmic number of times.

use crate::bound::{Bound, Shape};
use crate::flat::Flat;
use crate::merge::Merge;
use crate::paths::Slot;
use crate::segment::{BranchId, Segment};
use crate::steps::Steps;
use crate::value::{Sources, Value};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Branches of one shape in the tail that are made a segment.
const SEGMENT_MIN: usize = 16;
/// Branches in the tail from which shapes are looked for.
const TAIL_MIN: usize = 48;
/// Shapes that stand by themselves in the tail.
const FLATS_MAX: usize = 8;
/// Segments up to this size together are merged at once: it takes some ten microseconds.
const AT_ONCE_MAX: usize = 512;
/// How much larger a segment may be to be merged with the next one.
const RATIO: usize = 3;

/// Branches in a tail and in segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// Of the tail, branches that compare numbers.
    flats: Vec<Flat>,
    flat_bytes: usize,
    /// The others.
    tail: Vec<Entry>,
    /// Of the tail's entries, one after the other.
    bounds: Vec<Bound>,
    /// Branches in the tail.
    tail_len: usize,
    /// Entries of the tail at which shapes are looked for again.
    seal_at: usize,
    shapes: Vec<Shaped>,
    /// Bytes of the tail's texts, and of all segments.
    text_bytes: usize,
    segment_bytes: usize,
    /// Branches that are here, and those of them that were not removed.
    count: usize,
    alive: usize,
    /// Whether dead branches are to go; then segments born up to a certain one are written anew.
    is_swept: bool,
    sweep_until: u64,
}

/// A branch of the tail.
#[derive(Clone, Copy, Debug)]
struct Entry {
    branch: BranchId,
    /// Where its bounds end.
    end: u32,
}

/// The segments of a shape.
#[derive(Clone, Debug)]
struct Shaped {
    shape: Shape,
    segments: Vec<Arc<Segment>>,
}

impl Group {
    /// Whether all branches that are here are dead and few enough to be looked at in one go.
    pub(crate) fn is_over(&self) -> bool {
        self.alive == 0 && self.shapes.is_empty() && self.tail_len <= TAIL_MIN
    }

    /// Branches of the tail.
    pub(crate) fn tail(&self) -> impl Iterator<Item = BranchId> {
        let of_flats = self.flats.iter().flat_map(Flat::branches).copied();
        self.tail.iter().map(|entry| entry.branch).chain(of_flats)
    }

    /// Adds a branch, its bounds sorted by their sides. Returns whether there is something to merge; `dropped` gets
    /// branches that are not here any more.
    pub(crate) fn add(
        &mut self,
        branch: BranchId,
        bounds: Vec<Bound>,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
    ) -> bool {
        self.push_tail(branch, bounds);
        self.count += 1;
        self.alive += 1;
        if self.tail_len < self.seal_at.max(TAIL_MIN) {
            return false;
        }
        self.seal(born, is_alive, dropped)
    }

    fn push_tail(&mut self, branch: BranchId, bounds: Vec<Bound>) {
        self.tail_len += 1;
        if self.push_flat(branch, &bounds) {
            return;
        }
        self.text_bytes += bounds.iter().map(Bound::text_bytes).sum::<usize>();
        self.bounds.extend(bounds);
        self.tail.push(Entry { branch, end: self.bounds.len() as u32 });
    }

    /// Adds a branch to those of its ends, if all of them compare numbers.
    fn push_flat(&mut self, branch: BranchId, bounds: &[Bound]) -> bool {
        for flat in &mut self.flats {
            let before = flat.bytes();
            if flat.push(branch, bounds) {
                self.flat_bytes += flat.bytes() - before;
                return true;
            }
        }
        if self.flats.len() == FLATS_MAX {
            return false;
        }
        let Some(mut flat) = Flat::new(bounds) else { return false };
        let is_pushed = flat.push(branch, bounds);
        self.flat_bytes += flat.bytes();
        self.flats.push(flat);
        is_pushed
    }

    /// Notes that a branch here died. Returns whether there is something to do.
    pub(crate) fn bury(&mut self, born: u64) -> bool {
        self.alive = self.alive.saturating_sub(1);
        let is_due = self.count >= TAIL_MIN && self.alive * 2 <= self.count;
        if is_due && !self.is_swept {
            self.is_swept = true;
            self.sweep_until = born;
        }
        is_due
    }

    /// Makes segments of what has come together in the tail.
    fn seal(
        &mut self,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
    ) -> bool {
        let mut entries: Vec<(BranchId, Vec<Bound>)> = Vec::with_capacity(self.tail_len);
        self.tail_len = 0;
        self.flat_bytes = 0;
        let flats = core::mem::take(&mut self.flats);
        let of_flats = flats.iter().flat_map(Flat::entries);
        let mut bounds = core::mem::take(&mut self.bounds).into_iter();
        self.text_bytes = 0;
        let mut begin = 0;
        let of_tail = core::mem::take(&mut self.tail).into_iter().map(|entry| {
            let own = bounds.by_ref().take((entry.end - begin) as usize).collect();
            begin = entry.end;
            (entry.branch, own)
        });
        for (branch, own) in of_flats.chain(of_tail) {
            if is_alive(branch) {
                entries.push((branch, own));
            } else {
                dropped.push(branch);
                self.count -= 1;
            }
        }
        let sides = |bounds: &[Bound]| -> Shape { bounds.iter().map(Bound::side).collect() };
        let shaped = entries.into_iter().map(|entry| (sides(&entry.1), entry));
        let mut shaped: Vec<_> = shaped.collect();
        // Stable: entries of a shape stay in their order.
        shaped.sort_by(|one, other| one.0.cmp(&other.0));
        let mut shaped = shaped.into_iter().peekable();
        let mut grown = Vec::new();
        while let Some((shape, first)) = shaped.next() {
            let mut same = alloc::vec![first];
            while let Some((_, next)) = shaped.next_if(|(other, _)| *other == shape) {
                same.push(next);
            }
            if same.len() < SEGMENT_MIN {
                for (branch, bounds) in same {
                    self.push_tail(branch, bounds);
                }
                continue;
            }
            *born += 1;
            let segment = Arc::new(Segment::new(*born, &shape, &same));
            grown.push(self.shaped(shape, segment));
        }
        self.seal_at = 2 * self.tail_len;
        let mut is_more = false;
        for shaped in grown {
            is_more |= self.merge_small(shaped, born, &is_alive, dropped);
        }
        is_more
    }

    /// Files a segment under its shape.
    fn shaped(&mut self, shape: Shape, segment: Arc<Segment>) -> usize {
        self.segment_bytes += segment.bytes();
        match self.shapes.iter().position(|shaped| shaped.shape == shape) {
            Some(at) => {
                self.shapes[at].segments.push(segment);
                at
            }
            None => {
                self.shapes.push(Shaped { shape, segments: Vec::from([segment]) });
                self.shapes.len() - 1
            }
        }
    }

    /// Merges the small segments of a shape at once. Returns whether larger ones are to be merged.
    fn merge_small(
        &mut self,
        at: usize,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
    ) -> bool {
        let shaped = &self.shapes[at];
        let mut small: Vec<Arc<Segment>> = shaped.segments.clone();
        small.sort_by_key(|segment| segment.len());
        let mut sum = 0;
        small.retain(|segment| {
            sum += segment.len();
            sum <= AT_ONCE_MAX
        });
        if small.len() > 1 {
            let mut merge = Merge::new(shaped.shape.clone(), small);
            merge.work(usize::MAX, is_alive);
            *born += 1;
            self.install(&mut merge, *born, dropped);
        }
        self.is_swept || self.pair().is_some()
    }

    /// Puts the result of a merge in the place of its segments. Nothing, if it is not done or they are gone.
    pub(crate) fn install(&mut self, merge: &mut Merge, born: u64, dropped: &mut Vec<BranchId>) {
        let Some((segment, dead)) = merge.output(born) else { return };
        let is_input =
            |known: &Arc<Segment>| merge.inputs().iter().any(|input| Arc::ptr_eq(input, known));
        let at = self.shapes.iter().position(|shaped| shaped.segments.iter().any(is_input));
        let Some(at) = at else { return };
        let shaped = &mut self.shapes[at];
        let gone = shaped.segments.iter().filter(|known| is_input(known));
        self.segment_bytes -= gone.map(|segment| segment.bytes()).sum::<usize>();
        shaped.segments.retain(|known| !is_input(known));
        self.count -= dead.len();
        dropped.extend(dead);
        if segment.len() > 0 {
            self.segment_bytes += segment.bytes();
            shaped.segments.push(Arc::new(segment));
        } else if shaped.segments.is_empty() {
            self.shapes.swap_remove(at);
        }
    }

    /// Takes the dead out of the tail if they are to go.
    pub(crate) fn sweep_tail(
        &mut self,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
    ) {
        if self.is_swept && self.tail().any(|branch| !is_alive(branch)) {
            self.seal(born, is_alive, dropped);
        }
    }

    /// The next merge that is worth it.
    pub(crate) fn due(&mut self) -> Option<Merge> {
        if self.is_swept {
            for Shaped { shape, segments } in &self.shapes {
                if let Some(old) = segments.iter().find(|segment| segment.born <= self.sweep_until)
                {
                    return Some(Merge::new(shape.clone(), Vec::from([old.clone()])));
                }
            }
            self.is_swept = false;
        }
        self.pair().map(|(shape, pair)| Merge::new(shape.clone(), pair.into()))
    }

    /// Two segments of like size.
    fn pair(&self) -> Option<(&Shape, [Arc<Segment>; 2])> {
        self.shapes.iter().find_map(|Shaped { shape, segments }| {
            let mut sizes: Vec<&Arc<Segment>> = segments.iter().collect();
            sizes.sort_by_key(|segment| segment.len());
            let pair = sizes.windows(2).find(|pair| pair[1].len() <= RATIO * pair[0].len())?;
            Some((shape, [pair[0].clone(), pair[1].clone()]))
        })
    }

    /// Calls `hit` with the branches whose bounds all hold, dead ones among them, unless `steps` runs out.
    pub(crate) fn search(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        for flat in &self.flats {
            flat.search(slots, sources, steps, hit);
        }
        if !self.tail.is_empty() {
            self.search_tail(slots, sources, steps, hit);
        }
        for shaped in &self.shapes {
            for segment in &shaped.segments {
                segment.search(slots, sources, steps, hit);
            }
        }
    }

    fn search_tail(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        let mut begin = 0;
        if !steps.spend(self.tail.len() as u64) {
            return;
        }
        for entry in &self.tail {
            let end = entry.end as usize;
            let holds = self.bounds[begin..end].iter().all(|bound| {
                let value = value_of(slots, bound.slot);
                let more = bound.steps(value);
                (more == 0 || steps.spend(more)) && bound.holds(value, sources)
            });
            if holds {
                hit(entry.branch);
            }
            begin = end;
        }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Group>()
            + self.flats.capacity() * size_of::<Flat>()
            + self.flat_bytes
            + self.tail.capacity() * size_of::<Entry>()
            + self.bounds.capacity() * size_of::<Bound>()
            + self.shapes.capacity() * size_of::<Shaped>()
            + self.text_bytes
            + self.segment_bytes
    }
}

#[inline]
fn value_of(slots: &[Value], slot: Slot) -> Value {
    slots.get(slot as usize).copied().unwrap_or(Value::Missing)
}
