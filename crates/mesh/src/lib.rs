//! Mail between shards: rings for every ordered pair, inboxes without bound, and bells.
//!
//! A shard is woken only if it sleeps. What is sent is first put in its place, then announced by
//! [`Bell::post`], and at the end of the sender's cycle each peer is rung at most once.
#![forbid(unsafe_code)]

mod bell;
mod inbox;
mod ring;

pub use bell::{Bell, Signal};
pub use inbox::{Inbox, Post, inbox};
pub use ring::{CAPACITY_MIN, Endpoint, connect};
