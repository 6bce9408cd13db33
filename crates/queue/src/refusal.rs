//! A request that the broker refuses: the reply code and the text that the client sees.

use alloc::string::String;
use lepus_amqp::code::ReplyCode;

/// Why a request is refused. Whether the channel or the connection closes follows from the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The protocol's reply code.
    pub code: ReplyCode,
    /// Human text without the code's name: `no queue 'x' in vhost '/'`.
    pub text: String,
}

impl Refusal {
    /// A refusal with this code and text.
    pub fn new(code: ReplyCode, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into() }
    }
}
