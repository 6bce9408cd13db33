//! The management API as this crate sees it: one request at a time, its answer as JSON.

use serde_json::Value;
use std::time::Duration;

/// What the API answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The HTTP status code.
    pub status: u16,
    /// The body; null when there was none.
    pub body: Value,
}

/// Why no answer came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// For people.
    pub text: String,
    /// Somebody was there, but the answer took longer than allowed.
    pub timed_out: bool,
}

/// A way to the management API: the control socket, HTTP, or a test's own.
pub trait Api {
    /// Sends one request and waits for its answer. `path` begins with `/api/` and is escaped.
    ///
    /// # Errors
    /// When no answer comes; an answer that refuses is a [`Reply`].
    fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Unreachable>;

    /// From now on answers may take that long.
    fn set_patience(&mut self, patience: Duration) {
        let _ = patience;
    }

    /// Waits before something is asked again. A test waits for nothing.
    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl Reply {
    /// Whether the request was carried out.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The API's own words about a refusal.
    #[must_use]
    pub fn reason(&self) -> String {
        let text = |key: &str| self.body.get(key).and_then(Value::as_str).map(str::to_owned);
        text("reason")
            .or_else(|| text("error"))
            .unwrap_or_else(|| format!("the broker answered with status {}", self.status))
    }
}

/// A path of its segments, each of them escaped: `path(&["queues", "/", "a b"])` is `/api/queues/%2F/a%20b`.
#[must_use]
pub fn path(segments: &[&str]) -> String {
    let mut path = String::from("/api");
    for segment in segments {
        path.push('/');
        path.push_str(&escape(segment));
    }
    path
}

/// Escapes all but letters, digits and `-._~`.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(byte as char);
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_once_whatever_is_in_them() {
        assert_eq!(path(&["queues", "/", "a b"]), "/api/queues/%2F/a%20b");
        assert_eq!(path(&["vhosts", "a/b%2Fc?d#e+ü"]), "/api/vhosts/a%2Fb%252Fc%3Fd%23e%2B%C3%BC");
    }
}
