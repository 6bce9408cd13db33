//! A whole broker on one thread in virtual time: the real broker and the real driver, with sockets
//! in memory and clients that a test speaks to.
//!
//! [`World`] is for behaviour tests: each sentence is said, everything comes to rest, and the
//! answer is there. No time passes unless the test lets it.
//!
//! [`run`] is the simulator: one seed decides shards, limits, clients, what they say, how bytes are
//! cut on their way, who runs when and what breaks; an oracle checks everything that clients hear.
#![forbid(unsafe_code)]

mod actor;
mod channel;
mod client;
mod disk;
mod figures;
mod inbox;
mod oracle;
mod peer;
mod plan;
mod record;
mod restart;
mod routing;
mod run;
mod shards;
mod start;
mod wire;
mod world;

pub use channel::{Channel, Declared};
pub use client::Client;
pub use disk::DiskFigures;
pub use figures::QueueFigures;
pub use inbox::{Answer, Confirm, Message, Refused, Returned};
pub use lepus_broker::Limits;
pub use peer::Closed;
pub use record::{Played, QueueRecord, replay};
pub use run::{Figures, last_words, run, run_on_the_move, run_recorded};
pub use shards::{Options, StoreOptions};
pub use world::World;
