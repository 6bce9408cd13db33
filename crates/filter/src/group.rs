//! Branches that are looked at together: those that are filed under one value, or under nothing.
//!
//! They are kept by their shapes. New ones are among the few that are compared one by one. When many have come together
//! there, they become a segment, and segments of like size become one. So there are few segments, and each branch is moved
//! a logarithmic number of times. All of that is done a little at a time: whoever adds a branch is told where there is
//! something to do, and does it when there is time.

use crate::bound::{Bound, Side};
use crate::form::Form;
use crate::merge::Merge;
use crate::segment::{BranchId, Segment};
use crate::shape::Shape;
use crate::small::Small;
use crate::steps::Steps;
use crate::value::{Sources, Value};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Branches of one shape from which they are made a segment.
const SMALL_MAX: usize = 48;
/// Branches that a segment is made of at least.
const SEGMENT_MIN: usize = 16;
/// Constants of the branches that are made a segment in one go, and branches at most.
const CONSTANTS_AT_ONCE: usize = 512;
const BRANCHES_AT_ONCE: usize = 256;
/// What it takes to put a constant or a branch into a segment, in the steps of a merge.
const CONSTANT_STEPS: usize = 8;
const BRANCH_STEPS: usize = 4;
/// What it takes to begin and to end a merge, and to take a shape away.
const MERGE_STEPS: usize = 100;
const SHAPE_STEPS: usize = 40;
/// Branches from which the dead are looked for.
const SWEEP_MIN: usize = 48;
/// Shapes that are taken away in one go.
const SHAPES_AT_ONCE: usize = 8;
/// Branches up to which segments become one, however small one of them is: each costs a message a look.
const TOGETHER_MIN: usize = 512;
/// How much larger a segment may be to be merged with the next one.
const RATIO: usize = 3;

/// Branches by their shapes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    shapes: Vec<Shaped>,
    /// Places of shapes, in the order of these.
    order: Vec<u32>,
    /// Branches that are here, and those of them that were not removed.
    count: usize,
    alive: usize,
    sweep: Option<Sweep>,
    /// Bytes of what shapes have beside their place.
    bytes: usize,
}

/// Dead branches are on their way out.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    /// Segments born up to this one are written anew.
    until: u64,
    /// Places below this one are to be looked at.
    left: usize,
}

/// The branches of a shape.
#[derive(Clone, Debug)]
struct Shaped {
    shape: Shape,
    small: Small,
    /// From the shortest to the longest.
    segments: Vec<Arc<Segment>>,
    segment_bytes: usize,
    /// Whether somebody was told to look at it.
    is_due: bool,
}

/// Where in a group there is something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The shape at this place.
    Shape(u32),
    /// Dead branches are to go.
    Dead,
}

/// What came of looking at a place.
pub(crate) enum Looked {
    /// There is nothing to do any more.
    Done,
    /// There is more to do.
    Again,
    /// This is to be done, then there may be more.
    Merge(Box<Merge>),
}

impl Shaped {
    fn is_empty(&self) -> bool {
        self.small.len() == 0 && self.segments.is_empty()
    }

    /// Bytes of what it has beside its place.
    fn bytes(&self) -> usize {
        self.shape.bytes()
            + self.small.bytes()
            + self.segments.capacity() * size_of::<Arc<Segment>>()
            + self.segment_bytes
    }

    fn push_segment(&mut self, segment: Segment) {
        self.segment_bytes += segment.bytes();
        let at = self.segments.partition_point(|known| known.len() < segment.len());
        self.segments.insert(at, Arc::new(segment));
    }

    fn push_small(&mut self, branch: BranchId, bounds: Vec<Bound>) {
        match self.shape.form {
            Some(_) => self.small.push_formed(branch, bounds),
            None => self.small.push(branch, bounds),
        }
    }

    /// Makes a segment of branches that are compared one by one, as many as may be in one go. Returns what that took.
    fn seal(
        &mut self,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
    ) -> usize {
        let count = (CONSTANTS_AT_ONCE / self.shape.len().max(1)).min(BRANCHES_AT_ONCE);
        let mut taken = self.small.take(&self.shape.sides, count);
        let looked_at = taken.len();
        taken.retain(|(branch, _)| {
            let stays = is_alive(*branch);
            if !stays {
                dropped.push(*branch);
            }
            stays
        });
        if taken.len() < SEGMENT_MIN {
            for (branch, bounds) in taken {
                self.push_small(branch, bounds);
            }
        } else {
            *born += 1;
            self.push_segment(Segment::new(*born, &self.shape.sides, &taken));
        }
        looked_at * (BRANCH_STEPS + CONSTANT_STEPS * self.shape.len())
    }

    /// Two segments of like size, or small ones.
    fn pair(&self) -> Option<[&Arc<Segment>; 2]> {
        let is_due = |pair: &&[Arc<Segment>]| {
            let (one, two) = (pair[0].len(), pair[1].len());
            two <= RATIO * one || one + two <= TOGETHER_MIN
        };
        let pair = self.segments.windows(2).find(is_due)?;
        Some([&pair[0], &pair[1]])
    }
}

impl Group {
    /// Whether all branches that are here are dead and few enough, as their shapes, to be looked at in one go.
    pub(crate) fn is_over(&self) -> bool {
        self.alive == 0 && self.count <= SWEEP_MIN && self.shapes.len() <= SHAPES_AT_ONCE
    }

    /// All branches that are here.
    pub(crate) fn branches(&self) -> impl Iterator<Item = BranchId> {
        self.shapes.iter().flat_map(|shaped| {
            let of_segments = shaped.segments.iter().flat_map(|segment| &segment.branches);
            shaped.small.branches().chain(of_segments.copied())
        })
    }

    /// Adds a branch, its bounds sorted by their sides, all of which must hold where no form says otherwise. Returns where
    /// there is something to do that nobody was told of.
    pub(crate) fn add(
        &mut self,
        branch: BranchId,
        bounds: Vec<Bound>,
        form: Option<&Arc<Form>>,
    ) -> Option<Place> {
        self.count += 1;
        self.alive += 1;
        let sides = bounds.iter().map(Bound::side);
        let place = match self.find(sides.clone(), form.map(|form| &**form)) {
            Ok(at) => self.order[at],
            Err(at) => self.insert(at, Shape { sides: sides.collect(), form: form.cloned() }),
        };
        self.change(place as usize, |shaped| {
            shaped.push_small(branch, bounds);
            let is_due = shaped.small.len() >= SMALL_MAX && !shaped.is_due;
            shaped.is_due |= is_due;
            is_due.then_some(Place::Shape(place))
        })
    }

    /// Where in the order a shape is, or would be.
    fn find(
        &self,
        sides: impl Iterator<Item = Side> + Clone,
        form: Option<&Form>,
    ) -> Result<usize, usize> {
        self.order.binary_search_by(|place| -> Ordering {
            let shape = &self.shapes[*place as usize].shape;
            let of_sides = shape.sides.iter().copied().cmp(sides.clone());
            of_sides.then_with(|| shape.form.as_deref().cmp(&form))
        })
    }

    fn find_shape(&self, shape: &Shape) -> Result<usize, usize> {
        self.find(shape.sides.iter().copied(), shape.form.as_deref())
    }

    fn insert(&mut self, at: usize, shape: Shape) -> u32 {
        let place = self.shapes.len() as u32;
        let shaped = Shaped {
            shape,
            small: Small::default(),
            segments: Vec::new(),
            segment_bytes: 0,
            is_due: false,
        };
        self.bytes += shaped.bytes();
        if self.shapes.is_empty() {
            // Mostly there is one shape.
            self.shapes.reserve_exact(1);
            self.order.reserve_exact(1);
        }
        self.shapes.push(shaped);
        self.order.insert(at, place);
        place
    }

    fn change<R>(&mut self, place: usize, change: impl FnOnce(&mut Shaped) -> R) -> R {
        let shaped = &mut self.shapes[place];
        let before = shaped.bytes();
        let result = change(shaped);
        self.bytes = self.bytes + shaped.bytes() - before;
        result
    }

    /// Takes a shape away if nothing is left of it. Another one may have its place then, which is returned where
    /// somebody was told to look at that one.
    fn remove_if_empty(&mut self, place: usize) -> Option<Place> {
        if !self.shapes[place].is_empty() {
            return None;
        }
        if let Ok(at) = self.find_shape(&self.shapes[place].shape) {
            self.order.remove(at);
        }
        let last = self.shapes.len() - 1;
        if place < last
            && let Ok(at) = self.find_shape(&self.shapes[last].shape)
        {
            self.order[at] = place as u32;
        }
        self.bytes -= self.shapes.swap_remove(place).bytes();
        if self.shapes.is_empty() {
            (self.shapes, self.order) = (Vec::new(), Vec::new());
        }
        let moved = self.shapes.get(place)?;
        moved.is_due.then_some(Place::Shape(place as u32))
    }

    /// Notes that a branch here died. Returns where there is something to do that nobody was told of.
    pub(crate) fn bury(&mut self, born: u64) -> Option<Place> {
        self.alive = self.alive.saturating_sub(1);
        if self.sweep.is_some() || !self.has_many_dead() {
            return None;
        }
        self.sweep = Some(Sweep { until: born, left: self.shapes.len() });
        Some(Place::Dead)
    }

    fn has_many_dead(&self) -> bool {
        match self.alive {
            0 => self.count > 0 && !self.is_over(),
            alive => self.count >= SWEEP_MIN && alive * 2 <= self.count,
        }
    }

    /// Looks at a place, which takes some of `steps`. `more` gets another place that is to be looked at, and `dropped`
    /// branches that are not here any more.
    pub(crate) fn look(
        &mut self,
        place: Place,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
        more: &mut Option<Place>,
    ) -> (Looked, usize) {
        let before = dropped.len();
        let result = match place {
            Place::Shape(place) => {
                self.look_at_shape(place as usize, born, is_alive, dropped, more)
            }
            Place::Dead => self.look_at_dead(born, is_alive, dropped, more),
        };
        self.count -= dropped.len() - before;
        result
    }

    fn look_at_shape(
        &mut self,
        place: usize,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
        more: &mut Option<Place>,
    ) -> (Looked, usize) {
        let Some(shaped) = self.shapes.get_mut(place).filter(|shaped| shaped.is_due) else {
            return (Looked::Done, 1);
        };
        if shaped.small.len() >= SMALL_MAX {
            let steps = self.change(place, |shaped| shaped.seal(born, is_alive, dropped));
            return (Looked::Again, 1 + steps);
        }
        let steps = 1 + shaped.segments.len() / 8;
        if let Some(pair) = shaped.pair() {
            let merge = Merge::new(shaped.shape.clone(), pair.map(Arc::clone).into());
            return (Looked::Merge(Box::new(merge)), steps + MERGE_STEPS);
        }
        shaped.is_due = false;
        *more = self.remove_if_empty(place);
        (Looked::Done, steps + SHAPE_STEPS)
    }

    fn look_at_dead(
        &mut self,
        born: &mut u64,
        is_alive: impl Fn(BranchId) -> bool,
        dropped: &mut Vec<BranchId>,
        more: &mut Option<Place>,
    ) -> (Looked, usize) {
        let Some(Sweep { until, left }) = self.sweep else { return (Looked::Done, 1) };
        // From the last one on: what comes to the place of one that goes was looked at.
        let Some(place) = left.min(self.shapes.len()).checked_sub(1) else {
            self.sweep = None;
            // Others may have died meanwhile.
            if self.has_many_dead() {
                self.sweep = Some(Sweep { until: *born, left: self.shapes.len() });
                return (Looked::Again, 1);
            }
            return (Looked::Done, 1);
        };
        if self.shapes[place].small.len() >= SMALL_MAX {
            let steps = self.change(place, |shaped| shaped.seal(born, is_alive, dropped));
            return (Looked::Again, 1 + steps);
        }
        let looked_at = self.shapes[place].small.len();
        self.change(place, |shaped| shaped.small.sweep(shaped.shape.len(), is_alive, dropped));
        let shaped = &self.shapes[place];
        let steps = 1 + looked_at + shaped.segments.len() / 8;
        if let Some(old) = shaped.segments.iter().find(|segment| segment.born <= until) {
            let merge = Merge::new(shaped.shape.clone(), Vec::from([old.clone()]));
            return (Looked::Merge(Box::new(merge)), steps + MERGE_STEPS);
        }
        self.sweep = Some(Sweep { until, left: place });
        *more = self.remove_if_empty(place);
        (Looked::Again, steps + SHAPE_STEPS)
    }

    /// Puts the result of a merge in the place of its segments. Returns where there is something to do that nobody was
    /// told of. Nothing, if it is not done or they are gone.
    pub(crate) fn install(
        &mut self,
        merge: &mut Merge,
        born: u64,
        dropped: &mut Vec<BranchId>,
    ) -> Option<Place> {
        let (segment, dead) = merge.output(born)?;
        let place = self.order[self.find_shape(merge.shape()).ok()?];
        let is_input =
            |known: &Arc<Segment>| merge.inputs().iter().any(|input| Arc::ptr_eq(input, known));
        self.count -= dead.len();
        dropped.extend(dead);
        self.change(place as usize, |shaped| {
            let gone = shaped.segments.iter().filter(|known| is_input(known));
            shaped.segment_bytes -= gone.map(|segment| segment.bytes()).sum::<usize>();
            shaped.segments.retain(|known| !is_input(known));
            if segment.len() > 0 {
                shaped.push_segment(segment);
            }
            let was_due = core::mem::replace(&mut shaped.is_due, true);
            (!was_due).then_some(Place::Shape(place))
        })
    }

    /// Calls `hit` with the branches whose bounds all hold, dead ones among them, unless `steps` runs out.
    #[inline]
    pub(crate) fn search(
        &self,
        slots: &[Value],
        sources: Sources<'_>,
        steps: &mut Steps,
        hit: &mut impl FnMut(BranchId),
    ) {
        for shaped in &self.shapes {
            let sides = &*shaped.shape.sides;
            if let Some(form) = &shaped.shape.form {
                let shape = (sides, &**form);
                shaped.small.search_form(shape, slots, sources, steps, hit);
                for segment in &shaped.segments {
                    segment.search_form(shape, slots, sources, steps, hit);
                }
                continue;
            }
            shaped.small.search(sides, slots, sources, steps, hit);
            for segment in &shaped.segments {
                segment.search(slots, sources, steps, hit);
            }
        }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Group>()
            + self.shapes.capacity() * size_of::<Shaped>()
            + self.order.capacity() * size_of::<u32>()
            + self.bytes
    }
}
