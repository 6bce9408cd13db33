//! Responses of the authentication mechanisms, and how a client makes them.

use crate::table::{Table, TableRef, ValueRef};
use alloc::vec::Vec;

/// What a client claims.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The password as it came.
    pub password: &'a [u8],
}

impl core::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Reads a PLAIN response (RFC 4616): authorization identity, which is ignored, NUL, user, NUL,
/// password. `None` when it has another form or the user's name is not UTF-8.
#[must_use]
pub fn plain(response: &[u8]) -> Option<Credentials<'_>> {
    let mut parts = response.splitn(3, |&byte| byte == 0);
    let _authorization_identity = parts.next()?;
    let user = core::str::from_utf8(parts.next()?).ok()?;
    let password = parts.next()?;
    Some(Credentials { user, password })
}

/// Reads an AMQPLAIN response: the fields of a table, without its length, with LOGIN and PASSWORD.
#[must_use]
pub fn amqplain(response: &[u8]) -> Option<Credentials<'_>> {
    let table = TableRef::decode(response).ok()?;
    let user = table.get("LOGIN")?.as_text()?;
    match table.get("PASSWORD")? {
        ValueRef::LongString(password) => Some(Credentials { user, password }),
        _ => None,
    }
}

/// Makes a response for PLAIN or AMQPLAIN, and an empty one, which EXTERNAL takes, for all others.
#[must_use]
pub fn response(mechanism: &str, user: &str, password: &str) -> Vec<u8> {
    match mechanism {
        "PLAIN" => [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat(),
        "AMQPLAIN" => Table::new()
            .with("LOGIN", user)
            .with("PASSWORD", password)
            .to_bytes()
            .as_ref()
            .bytes()
            .into(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_as_they_are_made() {
        let expected = Some(Credentials { user: "guest", password: b"s\0cret" });
        assert_eq!(plain(&response("PLAIN", "guest", "s\0cret")), expected);
        assert_eq!(amqplain(&response("AMQPLAIN", "guest", "s\0cret")), expected);
        assert_eq!(plain(b"someone\0guest\0s\0cret"), expected);
        assert_eq!(response("EXTERNAL", "guest", "x"), b"");
    }

    #[test]
    fn other_responses_are_refused() {
        for bytes in [&b""[..], b"\0guest", b"\0\xff\0password"] {
            assert_eq!(plain(bytes), None);
        }
        assert_eq!(amqplain(b"\x05LOGINS\0\0\0\x01a"), None);
        assert_eq!(amqplain(b"\x05LOGINS\0\0\0\x01a\x08PASSWORDI\0\0\0\x01"), None);
        assert_eq!(amqplain(b"\x05LOGIN"), None);
    }
}
