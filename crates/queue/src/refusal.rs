//! A request that the broker refuses: why, what the client is told, and what a log may have of that.

use alloc::string::String;
use core::fmt::{self, Write};

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
///
/// The client is told [`Refusal::reply`], a log what `Display` writes: a reply may quote what only the client may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why. Whether the channel or the connection closes follows from it.
    pub kind: RefusalKind,
    reply: String,
    /// From this byte on the reply is for the client alone; its length where nothing is.
    private_from: u32,
}

impl Refusal {
    /// A refusal of this kind with this text, which a log may have: human text without a code's name, `no queue 'x' in
    /// vhost '/'`.
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> Refusal {
        Refusal::with_private(kind, text, "")
    }

    /// A refusal whose reply goes on with what no log may have: a part of a filter, say, which may hold card numbers.
    pub fn with_private(
        kind: RefusalKind,
        text: impl Into<String>,
        private: impl fmt::Display,
    ) -> Refusal {
        let mut reply = text.into();
        let private_from = u32::try_from(reply.len()).unwrap_or(0);
        // A string takes all.
        let _ = write!(reply, "{private}");
        Refusal { kind, reply, private_from }
    }

    /// What the client is told, and nobody else.
    #[must_use]
    pub fn reply(&self) -> &str {
        &self.reply
    }

    /// The same, as its own string.
    #[must_use]
    pub fn into_reply(self) -> String {
        self.reply
    }
}

/// What a log may have: the reply, but for what is for the client alone.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (public, private) = self.reply.split_at(self.private_from as usize);
        f.write_str(public)?;
        if private.is_empty() { Ok(()) } else { f.write_str(" (more is not for logs)") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_is_for_the_client_alone_is_not_written_for_a_log() {
        let kind = RefusalKind::PreconditionFailed;
        let plain = Refusal::new(kind, "no queue 'x'");
        assert_eq!((plain.reply(), &*plain.to_string()), ("no queue 'x'", "no queue 'x'"));
        let refusal =
            Refusal::with_private(kind, "at character 17", ": expected a value after '4111'");
        assert_eq!(refusal.reply(), "at character 17: expected a value after '4111'");
        assert_eq!(refusal.to_string(), "at character 17 (more is not for logs)");
    }
}
