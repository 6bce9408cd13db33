//! A filter that was read: its tree and its normal form.

use crate::error::FilterError;
use crate::limits::Limits;
use crate::parser;
use crate::tree::Expr;
use alloc::boxed::Box;
use alloc::string::ToString;
use core::fmt;

/// A filter. Two are equal when their normal forms are.
#[derive(Clone)]
pub struct Filter {
    tree: Expr,
    normal: Box<str>,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// Where and why it is none, or which limit it passes.
    pub fn parse(text: &str, limits: &Limits) -> Result<Filter, FilterError> {
        let tree = parser::parse(text, limits)?;
        let normal = tree.to_string().into();
        Ok(Filter { tree, normal })
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
