//! From samples of a process to a profile that people read.
//!
//! In the sampled process a [`Recorder`] walks each sample's stack by the unwind tables of the loaded
//! files and counts equal stacks. Its [`Recording`] is a value that travels as JSON. Whoever reads
//! it, in another process, names the functions ([`Symbols`]), and makes trees, pictures and tables of
//! them ([`Profile`], [`report`]). Stacks themselves, which hold data of clients, never leave the process.
#![forbid(unsafe_code)]

mod kernel;
mod maps;
mod names;
mod picture;
mod profile;
mod recorder;
mod recording;
pub mod report;
mod symbols;
mod top;
mod tree;
mod unwind;

pub use kernel::kernel_tree;
pub use maps::{FileId, Module};
pub use names::short;
pub use picture::{Direction, Picture};
pub use profile::{Named, Profile, Scope};
pub use recorder::Recorder;
pub use recording::{Recording, Stack, Thread};
pub use symbols::Symbols;
pub use top::{Function, bars, functions};
pub use tree::Tree;
pub use unwind::Unwinder;
