//! Where the broker is: `amqp://user:password@host:port/vhost`.

/// The parts of a connection URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The virtual host.
    pub vhost: String,
}

impl Uri {
    /// Reads a URI. What is left out is `guest`, `guest`, `localhost`, 5672 and `/`; `%2f` and the like are decoded.
    ///
    /// # Errors
    /// A text for the user.
    pub fn parse(text: &str) -> Result<Uri, String> {
        let shown = without_login(text);
        let wrong =
            |what: &str| Err(format!("{what} in '{shown}' (amqp://user:password@host:port/vhost)"));
        let rest = match text.split_once("://") {
            Some(("amqp", rest)) => rest,
            Some(("amqps", _)) => {
                return Err(format!(
                    "'{shown}' asks for TLS, which the load tester does not speak; use the plain port"
                ));
            }
            Some(_) => return wrong("no amqp:// at the start"),
            None => text,
        };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, vhost) = match rest.split_once('/') {
            Some((authority, vhost)) => (authority, Some(vhost)),
            None => (rest, None),
        };
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => match v6.split_once(']') {
                Some((host, port)) => (host, port.strip_prefix(':')),
                None => return wrong("an unclosed '['"),
            },
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let port = match port {
            None | Some("") => 5672,
            Some(port) => match port.parse() {
                Ok(port) => port,
                Err(_) => return wrong("a port that is no number up to 65535"),
            },
        };
        let (user, password) = match login {
            None => ("guest", "guest"),
            Some(login) => login.split_once(':').unwrap_or((login, "")),
        };
        let decoded = [user, password, host, vhost.unwrap_or("%2f")].map(decode);
        let [Some(user), Some(password), Some(host), Some(vhost)] = decoded else {
            return wrong("a '%' that is no character");
        };
        Ok(Uri {
            user,
            password,
            host: if host.is_empty() { "localhost".to_owned() } else { host },
            port,
            vhost: if vhost.is_empty() { "/".to_owned() } else { vhost },
        })
    }
}

/// The text for people: what stands in front of the last `@` may be a password, wherever it is wrong.
fn without_login(text: &str) -> String {
    let Some((before, place)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = match before.split_once("://") {
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => scheme,
        _ => return format!("…@{place}"),
    };
    format!("{scheme}://…@{place}")
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?].map(|digit| (digit as char).to_digit(16));
            let [Some(high), Some(low)] = digits else {
                return None;
            };
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, String, u16, String) {
        let uri = Uri::parse(text).unwrap();
        (uri.user, uri.password, uri.host, uri.port, uri.vhost)
    }

    fn strings(
        user: &str,
        password: &str,
        host: &str,
        port: u16,
        vhost: &str,
    ) -> (String, String, String, u16, String) {
        (user.into(), password.into(), host.into(), port, vhost.into())
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let defaults = strings("guest", "guest", "localhost", 5672, "/");
        for text in ["amqp://", "amqp://localhost", "amqp://localhost:5672/", "localhost", ""] {
            assert_eq!(parts(text), defaults, "{text}");
        }
    }

    #[test]
    fn every_part_is_read_and_decoded() {
        assert_eq!(
            parts("amqp://us%40er:p%3ass:w@example.org:1234/a%2fb?heartbeat=5"),
            strings("us@er", "p:ss:w", "example.org", 1234, "a/b")
        );
        assert_eq!(parts("amqp://[::1]:99/%2F"), strings("guest", "guest", "::1", 99, "/"));
        assert_eq!(parts("amqp://me@h").1, "");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in [
            "http://localhost",
            "amqps://localhost",
            "amqp://h:99999",
            "amqp://h:x",
            "amqp://[::1",
            "amqp://a%zz@h",
            "amqp://a%f",
            "amqp://%ff@h",
        ] {
            assert!(Uri::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_refusal_repeats_a_password() {
        for (text, shown) in [
            ("amqp://boss:S3cret%word@h:1/", "'amqp://…@h:1/'"),
            ("amqp://boss:S3cret@h:1/%zz", "'amqp://…@h:1/%zz'"),
            ("amqp://boss:S3cret@h:99999/", "'amqp://…@h:99999/'"),
            ("amq://boss:S3cret@h/", "'amq://…@h/'"),
            ("amqps://boss:S3cret@h/", "'amqps://…@h/'"),
            ("amqp://boss:S3/cr:et@h/", "'amqp://…@h/'"),
            ("boss:S3cret%@h", "'…@h'"),
            ("S3cret:x://y%zz@h", "'…@h'"),
        ] {
            let error = Uri::parse(text).unwrap_err();
            assert!(error.contains(shown) && !error.contains("S3"), "{text}: {error}");
        }
    }
}
