//! What somebody asks of the API, and what is answered.

use serde_json::Value;
use std::net::SocketAddr;

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub enum Caller {
    /// A client of the HTTP listener.
    Client {
        /// Where it comes from.
        peer: SocketAddr,
        /// The header `Authorization`, if it sent one.
        authorization: Option<String>,
    },
    /// Whoever may use the control socket: the owner of the process, who may do everything.
    Operator,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the credentials.
        match self {
            Caller::Client { peer, .. } => f.debug_tuple("Client").field(peer).finish(),
            Caller::Operator => f.write_str("Operator"),
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `PUT` and so on.
    pub method: String,
    /// The path as it came, without the query: `/api/queues/%2F`.
    pub path: String,
    /// What stands behind the question mark; empty where there is none.
    pub query: String,
    /// The body.
    pub body: Vec<u8>,
    /// Who asks.
    pub caller: Caller,
    /// The header `X-Reason`: why a connection is closed.
    pub reason: Option<String>,
    /// The header `X-Vhost`: the only virtual host whose objects are listed.
    pub vhost: Option<String>,
    /// The header `If-None-Match`.
    pub known_tag: Option<String>,
}

impl Request {
    /// A request of the operator.
    #[must_use]
    pub fn of_operator(method: &str, path: &str, body: Vec<u8>) -> Request {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            body,
            caller: Caller::Operator,
            reason: None,
            vhost: None,
            known_tag: None,
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The code of HTTP.
    pub status: u16,
    /// Headers beside those that every answer has.
    pub headers: Vec<(&'static str, String)>,
    /// The body; `None` for none.
    pub body: Option<Value>,
}

impl Reply {
    /// 200 with this body.
    #[must_use]
    pub fn json(body: Value) -> Reply {
        Reply { status: 200, headers: Vec::new(), body: Some(body) }
    }

    /// A code without a body.
    #[must_use]
    pub fn empty(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: None }
    }

    /// 201 for something new, 204 for what was there.
    #[must_use]
    pub fn put(is_new: bool) -> Reply {
        Reply::empty(if is_new { 201 } else { 204 })
    }

    /// 204.
    #[must_use]
    pub fn done() -> Reply {
        Reply::empty(204)
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: String) -> Reply {
        self.headers.push((name, value));
        self
    }
}
