//! Content filters: an SQL expression over a message's body, headers and properties.
//!
//! Pure: `no_std`, no clock, no I/O. A filter is text from a client: whatever it says and whatever a message holds, there
//! is a bound on what it costs, and nothing panics.
#![no_std]
#![forbid(unsafe_code)]
#![expect(dead_code, reason = "what matches texts and bodies comes with the engine")]
extern crate alloc;

mod date;
mod error;
mod filter;
mod lexer;
mod like;
mod limits;
pub mod message;
mod number;
mod parser;
pub mod path;
mod print;
mod regexp;
mod text;
pub mod tree;
mod word;

pub use error::{FilterError, Reason};
pub use filter::Filter;
pub use limits::Limits;
pub use message::{BodyFormat, Message, Meta};
pub use number::Number;
