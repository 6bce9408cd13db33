//! A request that the broker refuses: why, and the text that the client sees.

use alloc::string::String;

/// Why a request is refused. What a client is told by it is its protocol's matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The user may not, or the object is not for clients to change.
    AccessRefused,
    /// There is no such object.
    NotFound,
    /// The object is another connection's.
    Locked,
    /// What is asked does not fit what is there, or a limit.
    PreconditionFailed,
    /// Nobody may do so, or there are enough of them.
    NotAllowed,
    /// The protocol knows it, the broker does not.
    NotImplemented,
    /// It makes no sense where it came.
    CommandInvalid,
    /// The channel is not open, or is open already.
    ChannelError,
    /// There is no room for it.
    ResourceError,
    /// An operator ends the connection.
    Forced,
    /// The broker could not, and the client is not to blame.
    Internal,
}

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why. Whether the channel or the connection closes follows from it.
    pub kind: RefusalKind,
    /// Human text without a code's name: `no queue 'x' in vhost '/'`.
    pub text: String,
}

impl Refusal {
    /// A refusal of this kind with this text.
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> Refusal {
        Refusal { kind, text: text.into() }
    }
}
