//! What is there in place of the compiler in a build without it.

use crate::condition::{Condition, Value};

const ABSENT: &str = "this build has no compiler: it is behind the feature `cranelift`";

/// Conditions each of which is a function of its own; there are none in this build.
#[derive(Debug)]
pub enum Each {}

/// Conditions of which all of a shape are one function; there are none in this build.
#[derive(Debug)]
pub enum Fused {}

impl Each {
    /// # Errors
    /// A text that says so.
    pub fn compile(_conditions: &[Condition]) -> Result<Each, String> {
        Err(ABSENT.to_owned())
    }

    /// Nothing to ask.
    pub fn matches(&self, _values: &[Value], _found: &mut Vec<u32>) {
        match *self {}
    }
}

impl Fused {
    /// # Errors
    /// A text that says so.
    pub fn compile(_conditions: &[Condition]) -> Result<Fused, String> {
        Err(ABSENT.to_owned())
    }

    /// Nothing to ask.
    pub fn matches(&self, _values: &[Value], _found: &mut Vec<u32>) {
        match *self {}
    }
}
