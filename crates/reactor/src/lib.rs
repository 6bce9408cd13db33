//! The I/O port of a shard: sockets by readiness, files by threads of their own.
//!
//! A shard sees sockets only through [`Reactor`] and [`Socket`]; [`Poller`] implements them with
//! `mio`, a simulator may implement them with queues in memory. Readiness is edge-triggered: it is
//! reported once and holds until a read or write would block.
#![forbid(unsafe_code)]

pub mod files;
mod listener;
mod poller;
mod port;

pub use listener::{Bound, bind, resume, suspend};
pub use mio::net::{TcpListener, TcpStream};
pub use poller::{Alarm, Poller};
pub use port::{Reactor, Readiness, Socket, Token};
