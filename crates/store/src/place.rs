//! Positions taken apart: which segment, and where in it.
//!
//! A [`Position`] is `generation << 32 | offset`. Generations of a log only grow, so positions
//! only grow; whether a file is used again does not matter to them.

use lepus_base::Position;

/// The position of `offset` in the segment `generation`.
#[must_use]
pub fn position(generation: u32, offset: u32) -> Position {
    Position(u64::from(generation) << 32 | u64::from(offset))
}

/// The generation of the segment a position lies in.
#[must_use]
pub fn generation(position: Position) -> u32 {
    (position.0 >> 32) as u32
}

/// The offset of a position in its segment.
#[must_use]
pub fn offset(position: Position) -> u32 {
    position.0 as u32
}
