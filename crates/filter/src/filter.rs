//! A filter that was read: its tree and its normal form.

use crate::atom;
use crate::error::FilterError;
use crate::limits::{Limits, PLACES_MAX, Weight};
use crate::parser::{self, Parsed};
use crate::path::Path;
use crate::print;
use crate::tree::Expr;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// How often a set has a text of a filter at most, with the tables for looking for it.
const TEXT_COPIES: usize = 7;
/// Bytes that a node of a filter takes in a set, about, and more bytes for as many nodes as it can be filed under.
const NODE_BYTES: usize = 64;
const PLACE_BYTES: usize = 512;
/// Bytes that a step of a field takes.
const STEP_BYTES: usize = 256;

/// A filter. Two are equal when their normal forms are.
#[derive(Clone)]
pub struct Filter {
    tree: Expr,
    normal: Box<str>,
    /// Distinct fields that it names, and the steps of these.
    fields: usize,
    steps: usize,
    quantifiers: usize,
    weight: Weight,
}

/// Bytes of a compiled regular expression that take as long to make as a unit of effort.
const REGEXP_BYTES_PER_EFFORT: usize = 256;

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// Where and why it is none, or which limit it passes.
    pub fn parse(text: &str, limits: &Limits) -> Result<Filter, FilterError> {
        let Parsed { tree, fields, steps, quantifiers, weight } = parser::parse(text, limits)?;
        // Mostly as long as the text: programs write it so.
        let mut normal = String::with_capacity(text.len());
        print::write(&tree, &mut normal);
        Ok(Filter { tree, normal: normal.into(), fields, steps, quantifiers, weight })
    }

    /// Whether it names a field of the body, so that bodies are read for it.
    #[must_use]
    pub fn reads_bodies(&self) -> bool {
        self.fields().iter().any(|path| matches!(path, Path::Body(_)))
    }

    /// The fields that it names, each once; found in the whole of what it says.
    pub(crate) fn fields(&self) -> Vec<&Path> {
        let mut all = Vec::new();
        self.tree.add_paths(&mut all);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// How many `ANY` and `ALL` it has.
    pub(crate) fn quantifiers(&self) -> usize {
        self.quantifiers
    }

    /// Distinct fields that it names; arrays of `ANY` and `ALL` count once more.
    #[must_use]
    pub fn field_count(&self) -> usize {
        self.fields + self.quantifiers
    }

    /// Bytes that it takes in a set at most, about.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        let nodes = self.weight.nodes;
        TEXT_COPIES * self.normal.len()
            + NODE_BYTES * nodes
            + PLACE_BYTES * nodes.min(PLACES_MAX)
            + STEP_BYTES * self.steps
            + self.weight.regexp_bytes
    }

    /// What reading it and putting it into a set takes: 1 is some two microseconds.
    #[must_use]
    pub fn effort(&self) -> usize {
        Filter::effort_of_text(self.normal.len())
            + self.weight.nodes / 4
            + 2 * self.weight.regexps
            + self.weight.regexp_bytes / REGEXP_BYTES_PER_EFFORT
    }

    /// What compiling the regular expressions takes at most that a text may have which is no filter, in the same unit.
    #[must_use]
    pub fn effort_of_regexps(text: &[u8]) -> usize {
        let word = b"REGEXP";
        let found = text.windows(word.len()).filter(|found| found.eq_ignore_ascii_case(word));
        let limits = Limits::default();
        let each = limits.regexp_bytes_max / REGEXP_BYTES_PER_EFFORT;
        found.take(limits.regexps_max).count() * each
    }

    /// What reading a text takes that may be a filter, in the same unit.
    #[must_use]
    pub fn effort_of_text(bytes: usize) -> usize {
        4 + bytes / 64
    }

    /// What evaluating it takes, by what it is made of: the sum of the nodes' weights, see [`Limits::cost_max`].
    #[must_use]
    pub fn cost(&self) -> usize {
        self.weight.cost
    }

    /// Whether a set finds it by values of fields, or by what these begin with, and does not ask it otherwise.
    #[must_use]
    pub fn is_looked_up(&self) -> bool {
        atom::are_looked_up(&atom::branches(&self.tree))
    }

    /// What it says.
    #[must_use]
    pub fn tree(&self) -> &Expr {
        &self.tree
    }

    /// Its normal form, which is read as the same tree.
    #[must_use]
    pub fn normal(&self) -> &str {
        &self.normal
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        self.normal == other.normal
    }
}

impl Eq for Filter {}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.normal).finish()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.normal)
    }
}
