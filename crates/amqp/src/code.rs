//! Reply codes (AMQP 0-9-1, section 1.2, with RabbitMQ's use of them).

/// A reply code as it travels in `close` and `return` methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyCode(pub u16);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal),* $(,)?) => {
        impl ReplyCode {
            $($(#[$doc])* pub const $name: ReplyCode = ReplyCode($code);)*

            /// The code's name as it stands at the start of a reply text, `NOT_FOUND`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self.0 {
                    $($code => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

codes! {
    /// Everything went well.
    REPLY_SUCCESS = 200,
    /// The content is larger than the peer takes.
    CONTENT_TOO_LARGE = 311,
    /// A mandatory message reached no queue.
    NO_ROUTE = 312,
    /// An immediate message found no consumer.
    NO_CONSUMERS = 313,
    /// An operator or the server's end closes the connection.
    CONNECTION_FORCED = 320,
    /// The path or vhost is not known.
    INVALID_PATH = 402,
    /// The user may not do that.
    ACCESS_REFUSED = 403,
    /// No such thing.
    NOT_FOUND = 404,
    /// Another connection holds the thing exclusively.
    RESOURCE_LOCKED = 405,
    /// A precondition failed.
    PRECONDITION_FAILED = 406,
    /// A frame is malformed.
    FRAME_ERROR = 501,
    /// A field is malformed.
    SYNTAX_ERROR = 502,
    /// The method is not valid here.
    COMMAND_INVALID = 503,
    /// The channel is not open, or open already.
    CHANNEL_ERROR = 504,
    /// A frame that does not belong here.
    UNEXPECTED_FRAME = 505,
    /// A limit of the server is reached.
    RESOURCE_ERROR = 506,
    /// Not allowed.
    NOT_ALLOWED = 530,
    /// Not implemented.
    NOT_IMPLEMENTED = 540,
    /// The server failed.
    INTERNAL_ERROR = 541,
}

impl ReplyCode {
    /// Whether the code closes the connection (hard error) and not just the channel.
    #[must_use]
    pub fn is_hard(self) -> bool {
        !matches!(self.0, 200 | 311 | 312 | 313 | 403 | 404 | 405 | 406)
    }
}
