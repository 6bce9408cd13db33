//! What is taken out of texts before they are logged: what stands before the host of a URI, and passwords in paths.

use std::fmt::Write;

/// Characters of one value that are shown.
pub const VALUE_CHARS_MAX: usize = 256;

/// How a URI's scheme ends, as it is and as in a path.
const MARKS: [&str; 2] = ["://", "%3a%2f%2f"];

/// A text of at most [`VALUE_CHARS_MAX`] characters without what stands before the host of each URI in it. A URI that is
/// cut before its host is told is cut behind its scheme.
#[must_use]
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", hidden(&text[..end], true)),
        None => hidden(text, false),
    }
}

/// A path of the management API as the log has it: [`shortened`], and without what stands behind `auth`, where a password
/// may be. Parts are compared as the API reads them: without escapes.
#[must_use]
pub fn of_path(path: &str) -> String {
    let mut end = 0;
    for part in path.split_inclusive('/') {
        end += part.len();
        let plain = unescaped(part).to_ascii_lowercase();
        if end < path.len() && plain == "auth/" {
            return shortened(&path[..end]);
        }
        // It is no part of that name, but somebody may have meant one.
        if plain.starts_with("auth/") && plain != "auth/" {
            let before = &path[..end - part.len()];
            return shortened(&format!("{before}auth/"));
        }
    }
    shortened(path)
}

/// A text without its escapes; what is none stays.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let digit = |place: usize| (*behind.get(place)? as char).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text with what stands before the host of each URI in it taken out, also where the URI is escaped as in a path.
#[must_use]
pub fn without_userinfo(text: &str) -> String {
    hidden(text, false)
}

/// The same, where more of the text may have followed if it `is_cut`.
fn hidden(text: &str, is_cut: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, is_escaped)) = next_authority(rest) {
        out.push_str(&rest[..start]);
        let behind = &rest[start..];
        // As far as any part of the URI may reach: its userinfo is not always escaped where it should be.
        let end = behind.find(|one: char| matches!(one, '"' | '\'' | ',') || one.is_whitespace());
        let whole = &behind[..end.unwrap_or(behind.len())];
        let whole = next_authority(whole).map_or(whole, |(next, _)| &whole[..next]);
        let end = whole.find(['/', '?', '#']).unwrap_or(whole.len());
        let authority = &whole[..end];
        let has_password =
            authority.contains(':') || is_escaped && small(authority).contains("%3a");
        let host = match host_in(authority, is_escaped) {
            None if has_password => host_in(whole, is_escaped),
            host => host,
        };
        let may_go_on = is_cut && whole.len() == behind.len();
        rest = match host {
            Some(host) => {
                // To a `String` this cannot fail.
                let _ = write!(out, "***@");
                &behind[host..]
            }
            None if may_go_on && (has_password || authority.len() == whole.len()) => {
                out.push_str("***");
                ""
            }
            None => {
                out.push_str(authority);
                &behind[end..]
            }
        };
    }
    out.push_str(rest);
    out
}

fn small(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// Where the host begins behind the userinfo, if there is one. The last one counts: a password may hold others.
fn host_in(text: &str, is_escaped: bool) -> Option<usize> {
    let plain = text.rfind('@').map(|at| at + 1);
    let escaped = is_escaped.then(|| small(text).rfind("%40").map(|at| at + 3)).flatten();
    plain.max(escaped)
}

/// Where the authority of the next URI begins, and whether the URI is escaped.
fn next_authority(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let mut places = (0..bytes.len()).filter(|at| matches!(bytes[*at], b':' | b'%'));
    places.find_map(|at| {
        let is_here = |mark: &&str| {
            let found = bytes.get(at..at + mark.len());
            found.is_some_and(|found| found.eq_ignore_ascii_case(mark.as_bytes()))
        };
        let mark = MARKS.into_iter().find(is_here)?;
        Some((at + mark.len(), mark == MARKS[1]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_host_of_a_uri_is_told_nobody() {
        for (text, shown) in [
            (
                "uri=\"amqp://me:pa@ss@host:1/v\" next=amqps://h",
                "uri=\"amqp://***@host:1/v\" next=amqps://h",
            ),
            ("PUT /api/x/amqp%3A%2F%2Fme%3Apass%40host", "PUT /api/x/amqp%3A%2F%2F***@host"),
            ("PUT /api/x/amqp%3A%2F%2Fme%3Apa%2Fss%40host", "PUT /api/x/amqp%3A%2F%2F***@host"),
            ("PUT /api/x/amqp%3a%2f%2fhost/me@home", "PUT /api/x/amqp%3a%2f%2fhost/me@home"),
            ("no uri, me@home", "no uri, me@home"),
            ("http://a/b?c=http://u:p@d", "http://a/b?c=http://***@d"),
            ("http://a:1/b?c=http://u:p@d", "http://a:1/b?c=http://***@d"),
            // A password that should have been escaped.
            ("amqp://me:pa/ss@host/v x", "amqp://***@host/v x"),
            ("amqp://me:pa?s#s/@host", "amqp://***@host"),
            ("[\"amqp://me:pa/ss@host\",\"amqp://h:1\"]", "[\"amqp://***@host\",\"amqp://h:1\"]"),
            ("amqp://h:5672/v", "amqp://h:5672/v"),
        ] {
            assert_eq!(without_userinfo(text), shown);
        }
    }

    #[test]
    fn a_uri_that_is_cut_before_its_host_is_told_nobody() {
        for begin in ["amqp://me:", "amqp://me", "amqp%3A%2F%2Fme%3A", "amqp://me:a/"] {
            let text = format!("{begin}{}@host", "x".repeat(VALUE_CHARS_MAX));
            let shown = shortened(&text);
            assert!(["amqp://***…", "amqp%3A%2F%2F***…"].contains(&&*shown), "{shown}");
        }
        let text = format!("amqp://me:pass@host/{}", "x".repeat(VALUE_CHARS_MAX));
        assert!(shortened(&text).starts_with("amqp://***@host/xxx"));
        let text = format!("amqp://host/{}", "x".repeat(VALUE_CHARS_MAX));
        assert_eq!(shortened(&text), format!("{}…", &text[..VALUE_CHARS_MAX]));
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn a_password_in_a_path_is_told_nobody() {
        for (path, shown) in [
            ("/api/auth/hash_password/secret", "/api/auth/"),
            ("/api/AUTH/hash_password/secret", "/api/AUTH/"),
            ("/api/%61uth/hash_password/secret", "/api/%61uth/"),
            ("/api/aut%68/h%61sh_password/sec%72et", "/api/aut%68/"),
            ("/api/auth%2Fhash_password%2fsecret", "/api/auth/"),
            ("//api//auth//hash_password/secret", "//api//auth/"),
            ("auth/hash_password/secret", "auth/"),
            ("/api/queues/%2F/author", "/api/queues/%2F/author"),
            ("/api/auth", "/api/auth"),
            ("/api/x/%zz%", "/api/x/%zz%"),
        ] {
            assert_eq!(of_path(path), shown);
        }
        let long = format!("/api/{}/auth/secret", "x".repeat(VALUE_CHARS_MAX));
        assert!(!of_path(&long).contains("secret"));
    }
}
