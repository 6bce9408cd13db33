//! Files of the store: its operations carried out, on threads of their own while a shard runs.
//!
//! [`FilePort`] is what a running shard uses: it hands operations to threads and never waits.
//! [`Blocking`] carries them out at once, for the start. Both report a failure to the store by its
//! kind alone; what the system said is kept as a [`Failure`] for the log.

mod blocking;
mod carry;
mod lane;
mod open;
mod port;
mod space;

pub use blocking::Blocking;
pub use carry::{Failure, Files, FreeLimit, sync_directory};
pub use port::FilePort;

use lepus_store::disk::{Completion, LogId, Operation};

/// Carries a shard's disk operations out, without making it wait.
pub trait Disk: 'static {
    /// Takes all operations; each is answered once by [`Disk::take`], in any order.
    fn submit(&mut self, operations: &mut Vec<Operation>);

    /// Adds what has ended since the last call.
    fn take(&mut self, into: &mut Vec<(LogId, Completion)>);

    /// Operations submitted and not yet taken.
    fn in_flight(&self) -> usize;

    /// Adds what failed in a way that an operator has to know.
    fn take_failures(&mut self, into: &mut Vec<Failure>);
}
