//! A NATS server under test, as far as it is asked who it is: it greets each connection with what it is.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for the greeting.
const PATIENCE: Duration = Duration::from_secs(10);
/// A greeting is a line of some hundred bytes.
const GREETING_BYTES_MAX: u64 = 64 * 1024;

/// Product and version of the server on `port` of this machine.
///
/// # Errors
/// When nothing answers there, or not as a NATS server does.
pub fn product(port: u16) -> io::Result<String> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(GREETING_BYTES_MAX)).read_line(&mut line)?;
    version(&line).map(|version| format!("NATS {version}")).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "it does not greet as a NATS server does")
    })
}

fn version(greeting: &str) -> Option<String> {
    let told: Value = serde_json::from_str(greeting.strip_prefix("INFO ")?).ok()?;
    Some(told["version"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_greeting() {
        let line = "INFO {\"server_id\":\"N\",\"version\":\"2.15.2\",\"proto\":1} \r\n";
        assert_eq!(version(line).as_deref(), Some("2.15.2"));
        assert_eq!(version("AMQP\0\0\u{9}\u{1}"), None);
        assert_eq!(version("INFO {}\r\n"), None);
    }
}
