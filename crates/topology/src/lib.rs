//! What the process may use of the machine: CPUs and memory, within affinity and control groups.
//!
//! Reading the machine is apart from understanding it: every format has a pure parser.
#![forbid(unsafe_code)]

mod cgroup;
mod contention;
mod cpus;
mod memory;

pub use contention::RunDelay;
pub use cpus::{Cpus, pin_current_thread, usable_cpus};
pub use memory::{Memory, MemorySource, usable_memory};
