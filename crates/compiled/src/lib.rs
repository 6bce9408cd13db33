//! Comparisons over values, interpreted and compiled to machine code: for one experiment, which asks what a compiler would
//! bring to content filters. Nothing that serves clients uses this crate.
//!
//! A *condition* is what most filters are: comparisons of fields with constants, all of which have to hold. The compiler
//! is behind the feature `cranelift`, and works on x86-64 alone.

mod condition;

#[cfg(not(feature = "cranelift"))]
mod absent;
#[cfg(feature = "cranelift")]
mod code;
#[cfg(feature = "cranelift")]
mod memory;
#[cfg(feature = "cranelift")]
mod program;

#[cfg(not(feature = "cranelift"))]
pub use absent::{Each, Fused};
pub use condition::{Comparison, Condition, Constant, Operator, Value};
#[cfg(feature = "cranelift")]
pub use program::{Each, Fused};

/// Whether this build has the compiler.
pub const HAS_COMPILER: bool = cfg!(feature = "cranelift");
