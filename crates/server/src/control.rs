//! The control socket: how `lepus user add` and its like reach the running broker.
//!
//! A Unix socket in the data directory that only its owner may open; whoever connects is served if it is
//! the user that the broker runs as, or root. Each line a client sends is one
//! JSON object, `{"order":"user add","name":"shop",…}`; each is answered by one line, `{"ok":…}` or
//! `{"error":"…"}`. An answer that is a table has `columns`, `rows` and, when there are further rows,
//! `next`: the value to send as `from` with the same order. Lines, connections and waiting are bounded.
//! The log tells of every order who gave it, what it was and what came of it.

mod audit;
mod client;
mod server;

pub use client::{ControlError, ask, ask_table, ask_within};
pub use server::{ControlServer, Handler};

/// Bytes of one request line, which may have a file of definitions in it.
pub const REQUEST_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one answer line.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Connections that are served at the same time; further ones wait.
pub const CONNECTIONS_MAX: usize = 8;
/// Seconds that either side waits for the other before it gives up.
pub const PATIENCE_SECONDS: u64 = 60;

#[cfg(test)]
mod tests;
