//! Content filters: an SQL expression over a message's body, headers and properties.
//!
//! Pure: `no_std`, no clock, no I/O. A filter is text from a client: whatever it says and whatever a message holds, there
//! is a bound on what it costs, and nothing panics.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod atom;
mod bound;
mod columns;
mod date;
mod error;
mod extract;
mod filter;
mod fix;
mod form;
mod group;
mod headers;
mod json;
mod lexer;
mod like;
mod limits;
mod merge;
pub mod message;
mod number;
mod parser;
pub mod path;
mod paths;
mod print;
mod program;
mod regexp;
mod segment;
mod set;
mod shape;
mod small;
mod steps;
mod text;
pub mod tree;
mod trie;
mod value;
mod word;

pub use error::{FilterError, Reason};
pub use filter::Filter;
pub use limits::Limits;
pub use message::{BodyFormat, Message, Meta};
pub use number::Number;
pub use regexp::Regexp;
pub use set::{
    Dear, FilterSet, Listed, Match, Report, Scratch, SetFull, SetLimits, Shares, Subscription, Way,
};
