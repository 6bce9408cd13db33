//! The connection machines of server and client, driven byte by byte.

mod closing;
mod driver;
mod framing;
mod handshake;
mod heartbeat;
mod pair;
mod random;
