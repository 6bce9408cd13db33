//! What exists, and where a message goes: virtual hosts, users and permissions, exchanges and bindings, queues and their
//! homes.
//!
//! Pure, and without knowledge of connections, logs and shards' mail: a [`Directory`] checks a [`Request`], applies the
//! [`Change`] that follows from it, and routes a message to queues. Of these it knows the settings only.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[macro_use(invariant, race)]
extern crate lepus_base;

mod accounts;
pub mod binding;
mod capacity;
mod change;
mod check;
pub mod codec;
mod directory;
pub mod exchange;
mod footprint;
mod hash_subject;
mod key;
mod parameters;
pub mod permission;
mod policies;
pub mod policy;
mod queue_info;
mod request;
pub mod router;
pub mod routing_keys;
mod size;
mod topology;
pub mod user;
pub mod vhost;

pub use accounts::{Accounts, Anonymous};
pub use capacity::Capacity;
pub use change::{Applied, BindingChange, Change, Checked};
pub use check::check_not_default;
pub use directory::{Directory, Extent, Snapshot};
pub use exchange::{ExchangeInfo, ExchangeKind};
pub use footprint::Footprint;
pub use parameters::ParameterInfo;
pub use permission::{Access, Pattern, Permission, Resource, TopicPermission};
pub use policy::{ApplyTo, Policy, PolicyMatch, PolicyScope};
pub use queue_info::{Declared, QueueInfo};
pub use request::{Request, VhostRef, clean_name};
pub use router::{DearFilter, FilterCost, FilterFigures, FilterSample, Message, Route, Routes};
pub use routing_keys::RoutingKeys;
pub use topology::{BindingInfo, DestinationRef, too_far};
pub use user::{HashingAlgorithm, LoginFailure, PasswordHash, User, UserLimits};
pub use vhost::{VhostInfo, VhostLimits, VhostMetadata};
