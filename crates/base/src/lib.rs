//! Vocabulary that every other crate shares: ids, time, hashing, randomness and message bodies.
//!
//! Pure: `no_std`, no clock, no I/O. Time comes in as [`Now`], randomness as a seed.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod by_shard;
mod chunked_slab;
#[cfg(debug_assertions)]
mod counted_slab;
mod crowd;
mod hash;
mod id;
mod linear_table;
mod loud;
mod name;
mod places;
pub mod pool;
mod rng;
mod slab_bytes;
mod slices;
mod time;
mod visits;

pub use by_shard::ByShard;
pub use chunked_slab::ChunkedSlab;
#[cfg(debug_assertions)]
pub use counted_slab::Slab;
pub use crowd::{Crowd, Ticket};
pub use hash::{HashMap, HashSet, HashState};
pub use id::{ConnectionId, Position, QueueId, ShardId, VhostId};
pub use linear_table::LinearTable;
#[cfg(any(debug_assertions, feature = "races"))]
#[doc(hidden)]
pub use loud::Race;
pub use loud::{COUNTS_RACES, MetRace, broken, races};
pub use name::is_same;
pub use places::Places;
pub use pool::{Body, Pool};
pub use rng::Rng;
#[cfg(not(debug_assertions))]
pub use slab::Slab;
pub use slab_bytes::{slab_bytes, slab_entry_bytes};
pub use slices::Slices;
pub use time::{Instant, Now};
pub use visits::visits;
