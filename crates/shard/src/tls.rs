//! The TLS stage: handshakes on a thread of their own, records on the shard of the connection.

mod handshake;
mod identity;
mod session;
mod subject;

pub(crate) use handshake::Greeter;
pub use identity::{Identity, LoginFrom, RevocationCheck, Revocations, TlsError, TlsFiles};
pub use session::Session;
pub use subject::{Subject, parse_subject};
