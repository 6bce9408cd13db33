//! JSON read in one pass: the grammar of all of it is checked, wanted fields are kept, and only they are decoded.
//!
//! A document is read as RFC 8259 has it, with these decisions: the last of equal keys counts, integers outside the
//! domain become floats, a half of a surrogate pair alone is malformed, and so is nesting deeper than [`DEPTH_MAX`].
//! Whether a document is valid does not depend on what is wanted of it.

mod scan;
mod text;
mod walk;

pub(crate) use scan::{Scan, scan};
pub(crate) use walk::{elements, size};

/// Objects and arrays inside each other.
pub(crate) const DEPTH_MAX: usize = 127;

/// A body that is no JSON.
#[derive(Debug, PartialEq)]
pub(crate) struct Invalid;

#[cfg(test)]
mod tests;
