//! What exists, and where a message goes: virtual hosts, users and permissions, exchanges and bindings, queues and their
//! homes.
//!
//! Pure, and without knowledge of connections, logs and shards' mail: a [`Directory`] checks a [`Request`], applies the
//! [`Change`] that follows from it, and routes a message to queues. Of these it knows the settings only.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod binding;
mod directory;
pub mod exchange;
mod hash_subject;
mod key;
pub mod permission;
pub mod router;
pub mod routing_keys;
pub mod user;
pub mod vhost;

pub use directory::{
    Anonymous, Applied, BindingInfo, Capacity, Change, Checked, Declared, DestinationRef,
    Directory, Extent, Footprint, QueueInfo, Request, Snapshot, VhostRef, check_not_default,
    clean_name, codec, too_far,
};
pub use exchange::{ExchangeInfo, ExchangeKind};
pub use permission::{Access, Pattern, Permission, Resource, TopicPermission};
pub use router::{Route, Routes};
pub use routing_keys::RoutingKeys;
pub use user::{HashingAlgorithm, LoginFailure, PasswordHash, User, UserLimits};
pub use vhost::{VhostInfo, VhostLimits, VhostMetadata};
