//! TLS: the server's identity, what a client's certificate says, and the records of a connection after its
//! handshake, which are read and written on its shard.

mod identity;
mod session;
mod subject;

pub use identity::{Identity, LoginFrom, RevocationCheck, Revocations, TlsError, TlsFiles};
pub(crate) use session::Records;
pub use session::Session;
pub use subject::{Subject, parse_subject};
