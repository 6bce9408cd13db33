//! The runtime with a small core of its own: real threads, real sockets, no broker.
//!
//! Nothing here waits for a fixed time; what does not happen shows as a test that does not end
//! (sockets give up after a long timeout).

mod client;
mod core;
mod load;
mod service;
mod stop;
mod tls;
