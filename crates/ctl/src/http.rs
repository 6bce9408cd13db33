//! A way to the API over plain HTTP/1.1: one connection per request, answers bounded, no TLS yet.

use crate::api::{Api, Reply, Unreachable};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Bytes of the head of an answer at most.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the body of an answer at most.
const BODY_BYTES_MAX: u64 = 512 << 20;

/// Where the API is, and who asks.
#[derive(Clone, Default)]
pub struct Http {
    /// Name or address of the host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What stands before `/api`.
    pub prefix: String,
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
    /// Whether TLS is asked for; then nothing is sent.
    pub tls: bool,
    /// How long a connection, and each part of an answer, may take.
    pub patience: Duration,
}

impl Api for Http {
    fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, Unreachable> {
        if self.tls {
            let text = "TLS is not supported yet: name a port of plain HTTP".to_owned();
            return Err(Unreachable { text, timed_out: false });
        }
        let answer = self.exchange(method, path, body);
        answer.map_err(|error| Unreachable {
            timed_out: matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            text: format!("{}:{}: {error}", self.host, self.port),
        })
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

impl Http {
    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply, Error> {
        let patience = self.patience.max(Duration::from_millis(1));
        let mut stream = self.connect(patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(&self.request(method, path, body))?;
        read_answer(&mut BufReader::new(stream))
    }

    fn connect(&self, patience: Duration) -> Result<TcpStream, Error> {
        let mut last = Error::new(ErrorKind::NotFound, "the host has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Vec<u8> {
        let login = STANDARD.encode(format!("{}:{}", self.user, self.password));
        let body = body.map(Value::to_string).unwrap_or_default();
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        // Spaces and line ends in words of the command line must not begin another line of the head.
        let target: String = format!("{}{path}", self.prefix)
            .chars()
            .map(|c| {
                if c.is_ascii_graphic() {
                    c.to_string()
                } else {
                    crate::api::escape(&c.to_string())
                }
            })
            .collect();
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}:{}\r\nAuthorization: Basic {login}\r\nAccept: */*\r\nConnection: close\r\n",
            host.replace(|c: char| !c.is_ascii_graphic(), "_"),
            self.port
        );
        if !body.is_empty() {
            head.push_str("Content-Type: application/json\r\n");
        }
        if !body.is_empty() || method != "GET" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        format!("{head}\r\n{body}").into_bytes()
    }
}

fn broken(text: &str) -> Error {
    Error::new(ErrorKind::InvalidData, text)
}

/// How the body of an answer ends.
#[derive(Clone, Copy)]
enum Length {
    Known(u64),
    Chunked,
    UntilClosed,
}

/// Reads one answer.
fn read_answer(reader: &mut impl BufRead) -> Result<Reply, Error> {
    let mut left = HEAD_BYTES_MAX;
    loop {
        let status = read_line(reader, &mut left)?;
        let status: u16 = status
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1))
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| broken("the answer is not HTTP"))?;
        let mut length = Length::UntilClosed;
        loop {
            let line = read_line(reader, &mut left)?;
            if line.is_empty() {
                break;
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| broken("a header without a colon"))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" if !matches!(length, Length::Chunked) => {
                    let bytes = value.parse().map_err(|_| broken("a wrong Content-Length"))?;
                    length = Length::Known(bytes);
                }
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                    length = Length::Chunked;
                }
                _ => {}
            }
        }
        if (100..200).contains(&status) {
            continue;
        }
        let body = match (status, length) {
            (204 | 304, _) => Vec::new(),
            (_, Length::Chunked) => read_chunks(reader)?,
            (_, Length::Known(bytes)) if bytes > BODY_BYTES_MAX => {
                return Err(broken("the answer is too long"));
            }
            (_, Length::Known(bytes)) => read_some(reader, bytes)?,
            (_, Length::UntilClosed) => {
                let mut body = Vec::new();
                reader.take(BODY_BYTES_MAX).read_to_end(&mut body)?;
                body
            }
        };
        return Ok(Reply { status, body: value_of(status, &body)? });
    }
}

fn value_of(status: u16, body: &[u8]) -> Result<Value, Error> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(_) if status >= 400 => Ok(Value::String(String::from_utf8_lossy(body).into_owned())),
        Err(error) => Err(broken(&format!("the answer is not JSON: {error}"))),
    }
}

fn read_line(reader: &mut impl BufRead, left: &mut u64) -> Result<String, Error> {
    let mut line = Vec::new();
    let read = reader.take(*left).read_until(b'\n', &mut line)?;
    *left -= read as u64;
    if line.pop() != Some(b'\n') {
        let text = if *left == 0 { "the head is too long" } else { "the answer ended early" };
        return Err(broken(text));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| broken("a header is not UTF-8"))
}

fn read_some(reader: &mut impl BufRead, bytes: u64) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    reader.take(bytes).read_to_end(&mut body)?;
    match body.len() as u64 == bytes {
        true => Ok(body),
        false => Err(broken("the answer ended early")),
    }
}

fn read_chunks(reader: &mut impl BufRead) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    loop {
        let mut left = HEAD_BYTES_MAX;
        let line = read_line(reader, &mut left)?;
        let size = line.split(';').next().unwrap_or("").trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| broken("a wrong chunk size"))?;
        if size == 0 {
            // Trailers end with an empty line.
            while !read_line(reader, &mut left)?.is_empty() {}
            return Ok(body);
        }
        if size > BODY_BYTES_MAX - body.len() as u64 {
            return Err(broken("the answer is too long"));
        }
        body.append(&mut read_some(reader, size)?);
        if !read_line(reader, &mut left)?.is_empty() {
            return Err(broken("a chunk is longer than it says"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Reply, Error> {
        read_answer(&mut text.as_bytes())
    }

    #[test]
    fn answers_have_a_length_chunks_or_an_end() {
        let reply = read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]rest").unwrap();
        assert_eq!((reply.status, reply.body), (200, serde_json::json!([1])));
        let reply = read(
            "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n1;x=y\r\n]\r\n0\r\nT: t\r\n\r\n",
        );
        assert_eq!(reply.unwrap().body, serde_json::json!([1]));
        let reply = read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\n{}").unwrap();
        assert_eq!(reply.body, serde_json::json!({}));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n").unwrap().body, Value::Null);
        assert_eq!(read("HTTP/1.1 502 Bad\r\nContent-Length: 2\r\n\r\n<>").unwrap().body, "<>");
    }

    #[test]
    fn no_answer_is_longer_than_allowed_or_read_half() {
        for broken in [
            "",
            "SSH-2.0\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1]",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[]\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n[",
        ] {
            assert!(read(broken).is_err(), "{broken}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000));
        assert!(read(&long).is_err());
    }

    #[test]
    fn a_request_is_one_request_whatever_is_in_its_words() {
        let http =
            Http { host: "::1".to_owned(), port: 1, user: "u".to_owned(), ..Http::default() };
        let request = http.request("DELETE", "/api/x?columns=a b\r\nX: y", None);
        let request = String::from_utf8(request).unwrap();
        assert!(
            request.starts_with(
                "DELETE /api/x?columns=a%20b%0D%0AX:%20y HTTP/1.1\r\nHost: [::1]:1\r\n"
            )
        );
        assert!(request.ends_with("Content-Length: 0\r\n\r\n"));
    }
}
