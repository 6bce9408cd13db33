//! The broker's state and rules on one shard: a function of its inputs.
//!
//! Pure: no clock, no threads, no I/O. A shard's driver feeds a [`Broker`] with what happened and
//! carries out what it finds in the [`Outbox`]. Two sides meet here: the *sessions* (connections and
//! channels, where their sockets are) and the *home* of each queue (where its messages are). They
//! speak by mail, on one shard as between two.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[macro_use(invariant, race)]
extern crate lepus_base;

mod acknowledgement;
mod alarm;
mod awaited;
pub mod backpressure;
pub mod broker;
pub mod channel;
pub mod channels;
pub mod connection;
pub mod connection_counts;
pub mod connections;
pub mod counters;
pub mod dead_letter;
pub mod definitions;
mod delayed;
pub mod delivery;
mod departure;
mod effort;
mod ends;
mod exchange_counts;
mod filter_costs;
mod follow_ups;
pub mod held;
mod home;
pub mod homes;
mod idle_tables;
mod jobs;
pub mod journal;
mod lists;
pub mod loan;
pub mod mail;
mod memory;
mod message_counts;
mod migration;
mod oldest;
pub mod outbox;
mod owner;
mod parked;
mod policy_work;
mod postponed;
mod properties;
mod publish;
pub mod query;
pub mod remote;
mod reply_to;
mod selector_watch;
pub mod send_buffer;
pub mod session;
pub mod sessions;
pub mod settings;
mod settle;
pub mod shard;
pub mod start;
mod tap;
mod timers;
mod token;
mod trace;
mod traffic;
mod turns;
pub mod user_channels;
mod vhost_counts;
pub mod view;
mod working;

pub use broker::{Broker, MovingConnection};
pub use exchange_counts::ExchangeCounts;
pub use journal::Recovery;
pub use lepus_directory as directory;
pub use lepus_directory::{
    binding, exchange, permission, policy, router, routing_keys, user, vhost,
};
pub use lepus_queue as queue;
pub use lepus_queue::{entry, message, refusal};
pub use message_counts::MessageCounts;
pub use outbox::{ConnectionSlot, Outbox};
pub use query::{Answer, Query};
pub use settings::{Limits, Settings, StoreSettings};

pub use traffic::{ConnectionTraffic, Octets, QueueTraffic};
