//! What somebody asks of the API, and what is answered.

use serde_json::Value;
use std::net::SocketAddr;

/// What the cookie of a session is called.
pub const COOKIE: &str = "lepus_session";

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub enum Caller {
    /// A client of the HTTP listeners.
    Client(Client),
    /// Whoever may use the control socket: the owner of the process, who may do everything.
    Operator,
}

/// A client of the HTTP listeners.
#[derive(Clone, PartialEq, Eq)]
pub struct Client {
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Whether it comes from this machine and asked for it by a name of its own: a page of another web site that has its
    /// name lead here does not, nor does who comes through a proxy.
    pub is_local: bool,
    /// Whether it speaks TLS.
    pub is_secure: bool,
    /// The header `Authorization`, if it sent one.
    pub authorization: Option<String>,
    /// The secret of a session that its cookie has.
    pub session: Option<String>,
    /// Whether it sent the header `X-Lepus-Request`, which no page of another web site can do unasked.
    pub is_marked: bool,
    /// The path to which cookies are to be sent; empty for all.
    pub path: String,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the credentials.
        match self {
            Caller::Client(client) => f.debug_tuple("Client").field(&client.peer).finish(),
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
