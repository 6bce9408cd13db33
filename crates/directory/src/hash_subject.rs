//! What of a message an exchange of type `x-consistent-hash` hashes, as its arguments say.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use lepus_amqp::table::Table;

use lepus_queue::refusal::{Refusal, RefusalKind};

/// What of a message its queue is chosen by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HashSubject {
    RoutingKey,
    Header(Box<str>),
    MessageId,
    CorrelationId,
    Timestamp,
}

impl HashSubject {
    /// What the arguments of such an exchange say: the routing key where they name nothing.
    ///
    /// # Errors
    /// 406 where both `hash-header` and `hash-property` are given or the property cannot be used.
    pub(crate) fn of(arguments: &Table) -> Result<HashSubject, Refusal> {
        let text = |name: &str| match arguments.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_text()
                .map(Some)
                .ok_or_else(|| refuse(format!("Unsupported {name}: it must be text"))),
        };
        match (text("hash-header")?, text("hash-property")?) {
            (None, None) => Ok(HashSubject::RoutingKey),
            (Some(_), Some(_)) => {
                Err(refuse("hash-property and hash-header are mutually exclusive"))
            }
            (Some(header), None) => Ok(HashSubject::Header(header.into())),
            (None, Some("message_id")) => Ok(HashSubject::MessageId),
            (None, Some("correlation_id")) => Ok(HashSubject::CorrelationId),
            (None, Some("timestamp")) => Ok(HashSubject::Timestamp),
            (None, Some(other)) => Err(refuse(format!("Unsupported property: {other}"))),
        }
    }
}

fn refuse(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::PreconditionFailed, text)
}
