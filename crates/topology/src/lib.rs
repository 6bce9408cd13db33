//! The machine and what this program may use of it: read from the running system or from a
//! description, planned on, bound to, and looked at afterwards.
//!
//! Reading is apart from understanding: every format has a pure parser, and [`plan`] is a function
//! of a [`Machine`] and [`Wishes`].

mod bind;
mod cgroup;
mod contention;
mod cpus;
pub mod description;
mod hwloc;
mod ids;
pub mod kernel;
mod machine;
mod memory;
mod planner;
mod policy;
pub mod report;
pub mod source;

pub use bind::{MemoryPolicy, bind_current_memory, bind_current_thread, bind_thread};
pub use contention::{Contention, CpuTime, Grip, cpu_time, idle_times};
pub use cpus::{Cpus, usable_cpus};
pub use ids::Ids;
pub use machine::{Cache, Cpu, Device, DeviceKind, Interrupt, Limits, Machine, Node};
pub use memory::{Memory, MemorySource, usable_memory};
pub use planner::{
    BUDGET_BYTES_PER_SHARD, Binding, DISK_BYTES_PER_SHARD, Place, Plan, Wishes, plan,
};
pub use policy::{ACCEPTED as POLICIES_ACCEPTED, Nodes, Order, Policy};
