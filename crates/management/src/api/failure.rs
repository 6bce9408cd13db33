//! Why a request is not fulfilled, in the words that clients of RabbitMQ's API read.

use super::request::Reply;
use lepus_broker::refusal::{Refusal, RefusalKind};
use lepus_filter::FilterError;
use serde_json::json;

/// A request that is refused: a code, and two texts of which clients compare the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code of HTTP.
    pub status: u16,
    /// A fixed word.
    pub error: String,
    /// What is wrong.
    pub reason: String,
    /// Headers that go with it.
    pub headers: Vec<(&'static str, String)>,
    /// Of a filter: the character at which it went wrong, counted from 1, and what is wrong there.
    pub place: Option<(usize, String)>,
}

impl Failure {
    /// A refusal with this code and these texts.
    #[must_use]
    pub fn new(status: u16, error: &str, reason: impl Into<String>) -> Failure {
        let (error, reason) = (error.to_owned(), reason.into());
        Failure { status, error, reason, headers: Vec::new(), place: None }
    }

    /// The filter of that name is not well-formed.
    #[must_use]
    pub fn filter(name: &str, error: &FilterError) -> Failure {
        let place = Some((error.at, error.reason.reply()));
        Failure {
            place,
            ..Failure::new(400, "filter", format!("invalid {name} {}", error.reply()))
        }
    }

    /// No such path or object. Clients compare both texts.
    #[must_use]
    pub fn not_found() -> Failure {
        Failure::new(404, "Object Not Found", "Not Found")
    }

    /// There is no such virtual host.
    #[must_use]
    pub fn vhost_not_found() -> Failure {
        Failure::new(404, "not_found", "vhost_not_found")
    }

    /// What a change needs is not there: the reason says what.
    #[must_use]
    pub fn missing(reason: impl Into<String>) -> Failure {
        Failure::new(404, "not_found", reason)
    }

    /// The request makes no sense.
    #[must_use]
    pub fn bad_request(reason: impl Into<String>) -> Failure {
        Failure::new(400, "bad_request", reason)
    }

    /// A key is missing in the body.
    #[must_use]
    pub fn key_missing(key: &str) -> Failure {
        Failure::bad_request(format!("[{{key_missing,{key}}}]"))
    }

    /// The user is known and may not.
    #[must_use]
    pub fn not_authorised(reason: impl Into<String>) -> Failure {
        Failure::new(401, "not_authorised", reason)
    }

    /// A shard does not answer, or the broker stops.
    #[must_use]
    pub fn unavailable(reason: impl Into<String>) -> Failure {
        Failure::new(503, "service_unavailable", reason)
    }

    /// Others are in the way for a moment: the client is told to ask again in a second.
    #[must_use]
    pub fn busy(reason: impl Into<String>) -> Failure {
        let mut failure = Failure::unavailable(reason);
        failure.headers.push(("retry-after", "1".to_owned()));
        failure
    }

    /// As an answer.
    #[must_use]
    pub fn into_reply(self) -> Reply {
        let mut body = json!({ "error": self.error, "reason": self.reason });
        if let Some((at, text)) = self.place {
            (body["at"], body["text"]) = (json!(at), json!(text));
        }
        Reply { status: self.status, headers: self.headers, body: Some(body) }
    }
}

impl From<Refusal> for Failure {
    /// What the directory refuses, without the name of an AMQP code.
    fn from(refusal: Refusal) -> Failure {
        match refusal.kind {
            RefusalKind::NotFound if refusal.reply().starts_with("vhost ") => {
                Failure::vhost_not_found()
            }
            RefusalKind::NotFound => Failure::not_found(),
            RefusalKind::AccessRefused => {
                Failure::not_authorised(format!("ACCESS_REFUSED - {}", refusal.reply()))
            }
            RefusalKind::Internal | RefusalKind::Forced => {
                Failure::unavailable(refusal.into_reply())
            }
            _ => Failure::bad_request(refusal.into_reply()),
        }
    }
}
