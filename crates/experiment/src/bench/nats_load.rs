//! The load of a NATS server: one connection publishes to a subject as fast as it may, others are subscribed to it and count.
//!
//! NATS has no flow control: it ends a subscription whose reader is slower than its publishers. So at most [`WINDOW_BYTES`]
//! are on the way to any subscriber; all that was sent has to arrive.

use crate::terminal::say_line;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// What may be on its way to a subscriber, a small part of what the server holds for one before it ends it (64 MiB).
pub const WINDOW_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that one write hands over, and one read takes.
const PIECE_BYTES: usize = 64 * 1024;
/// How often time is looked at when nothing happens.
const LOOK: Duration = Duration::from_millis(100);
/// How long what was sent may take to arrive after the load.
const PATIENCE: Duration = Duration::from_secs(30);

const CONNECT: &str = "CONNECT {\"verbose\":false,\"pedantic\":false,\"name\":\"lepus-bench\"}\r\n";
const SUBSCRIBE: &str = "SUB lepus 1\r\n";

/// Publishes bodies of `body_bytes` for so many seconds to the server on `port`, reads them as so many subscribers on
/// connections of their own, and prints a line each second as the load testers do.
///
/// # Errors
/// When a connection fails, the server says that something is wrong, or not all arrives.
pub fn run(port: u16, body_bytes: usize, subscribers: usize, seconds: u64) -> io::Result<()> {
    let publish =
        [format!("PUB lepus {body_bytes}\r\n").as_bytes(), &vec![b'x'; body_bytes], b"\r\n"]
            .concat();
    let batch_count = (PIECE_BYTES / publish.len()).max(1);
    let window = (WINDOW_BYTES / publish.len()).max(batch_count) as u64;
    let batch = publish.repeat(batch_count);
    let mut poll = Poll::new()?;
    let mut links = vec![Link::open(port, "", &poll, 0)?];
    for at in 1..=subscribers {
        links.push(Link::open(port, SUBSCRIBE, &poll, at)?);
    }
    let mut events = Events::with_capacity(links.len());
    let mut scratch = vec![0; PIECE_BYTES];
    let (mut sent, mut clock) = (0, Clock::start());
    let end = Duration::from_secs(seconds);
    loop {
        let slowest = links[1..].iter().map(|link| link.received).min().unwrap_or(sent);
        let elapsed = clock.start.elapsed();
        let is_room = links[0].unsent.is_empty() && sent - slowest + batch_count as u64 <= window;
        if is_room && (elapsed < end || sent == 0) {
            links[0].unsent.extend_from_slice(&batch);
            sent += batch_count as u64;
        }
        for link in &mut links {
            link.send()?;
            link.receive(&mut scratch)?;
        }
        let received = links.iter().map(|link| link.received).sum();
        let is_over = elapsed >= end && received == sent * subscribers as u64;
        clock.tell(sent, received, is_over);
        if is_over {
            return Ok(());
        }
        if elapsed >= end + PATIENCE {
            let missing = sent * subscribers as u64 - received;
            return Err(io::Error::other(format!("{missing} messages did not arrive")));
        }
        let is_busy = links.iter().any(Link::is_ready) || (is_room && elapsed < end);
        match poll.poll(&mut events, Some(if is_busy { Duration::ZERO } else { LOOK })) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => other?,
        }
        for event in &events {
            let link = &mut links[event.token().0];
            link.is_readable |= event.is_readable() || event.is_read_closed();
            link.is_writable |= event.is_writable();
        }
    }
}

/// What was told when.
struct Clock {
    start: Instant,
    told_seconds: f64,
    told: (u64, u64),
}

impl Clock {
    fn start() -> Clock {
        Clock { start: Instant::now(), told_seconds: 0.0, told: (0, 0) }
    }

    /// Prints a line where a second has passed, or at the end.
    fn tell(&mut self, sent: u64, received: u64, is_over: bool) {
        let now = self.start.elapsed().as_secs_f64();
        let seconds = now - self.told_seconds;
        if seconds >= 1.0 || is_over {
            let rate = |count: u64, told: u64| (count - told) as f64 / seconds;
            let (sent_rate, received_rate) = (rate(sent, self.told.0), rate(received, self.told.1));
            say_line(format_args!(
                "id: nats, time {now:.3} s, sent: {sent_rate:.0} msg/s, received: {received_rate:.0} msg/s"
            ));
            (self.told_seconds, self.told) = (now, (sent, received));
        }
    }
}

/// A connection of a client.
struct Link {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// An incomplete message.
    held: Vec<u8>,
    received: u64,
    is_readable: bool,
    is_writable: bool,
}

impl Link {
    /// Connects, says `words`, and waits until the server has taken them.
    fn open(port: u16, words: &str, poll: &Poll, number: usize) -> io::Result<Link> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{CONNECT}{words}PING\r\n").as_bytes())?;
        let mut held = Vec::new();
        let mut scratch = [0; 1024];
        while !take(&mut held)?.has_pong {
            match stream.read(&mut scratch)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => held.extend_from_slice(&scratch[..count]),
            }
        }
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(number), interest)?;
        let unsent = Vec::new();
        Ok(Link { stream, unsent, held, received: 0, is_readable: true, is_writable: true })
    }

    /// Whether something can be done without waiting.
    fn is_ready(&self) -> bool {
        self.is_readable || (self.is_writable && !self.unsent.is_empty())
    }

    fn send(&mut self) -> io::Result<()> {
        let mut at = 0;
        while self.is_writable && at < self.unsent.len() {
            match self.stream.write(&self.unsent[at..]) {
                Ok(count) => at += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..at);
        Ok(())
    }

    /// Reads once.
    fn receive(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        if !self.is_readable {
            return Ok(());
        }
        match self.stream.read(scratch) {
            Ok(0) => return Err(io::Error::other("the server has ended a connection")),
            Ok(count) => self.held.extend_from_slice(&scratch[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
            Err(error) => return Err(error),
        }
        let taken = take(&mut self.held)?;
        self.received += taken.messages;
        if taken.has_ping {
            self.unsent.extend_from_slice(b"PONG\r\n");
        }
        Ok(())
    }
}

/// What a server has said.
#[derive(Debug, Default, PartialEq)]
struct Taken {
    messages: u64,
    has_ping: bool,
    has_pong: bool,
}

/// Takes all that is whole off the bytes.
fn take(bytes: &mut Vec<u8>) -> io::Result<Taken> {
    let mut taken = Taken::default();
    let mut at = 0;
    while let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        let line = bytes[at..at + length].trim_ascii_end();
        let mut next = at + length + 1;
        match line {
            [b'M', b'S', b'G', b' ', ..] => {
                next += body_bytes(line).ok_or(ErrorKind::InvalidData)? + 2;
                if next > bytes.len() {
                    break;
                }
                taken.messages += 1;
            }
            b"PING" => taken.has_ping = true,
            b"PONG" => taken.has_pong = true,
            [b'-', ..] => return Err(io::Error::other(String::from_utf8_lossy(line).into_owned())),
            // What it is, in the beginning and where that changes.
            _ => {}
        }
        at = next;
    }
    bytes.drain(..at);
    Ok(taken)
}

/// The last word of `MSG subject id bytes`.
fn body_bytes(line: &[u8]) -> Option<usize> {
    let word = line.rsplit(|byte| *byte == b' ').next()?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    #[test]
    fn only_whole_messages_are_taken() {
        let mut bytes = b"PING\r\nMSG lepus 1 3\r\na\nb\r\nMSG lepus 1 2\r\nab\r".to_vec();
        let taken = take(&mut bytes).unwrap();
        assert_eq!(taken, Taken { messages: 1, has_ping: true, has_pong: false });
        assert_eq!(bytes, b"MSG lepus 1 2\r\nab\r");
        bytes.push(b'\n');
        assert_eq!((take(&mut bytes).unwrap().messages, bytes.len()), (1, 0));
        assert!(take(&mut b"-ERR 'Slow Consumer'\r\n".to_vec()).is_err());
        assert!(take(&mut b"MSG lepus 1 x\r\n".to_vec()).is_err());
    }

    /// A server that has one publisher and one subscriber, and hands over what it gets.
    fn serve(listener: TcpListener) -> io::Result<()> {
        let greet = || -> io::Result<_> {
            let (mut stream, _) = listener.accept()?;
            stream.write_all(b"INFO {}\r\n")?;
            let mut lines = BufReader::new(stream.try_clone()?);
            let mut line = String::new();
            while line != "PING\r\n" {
                line.clear();
                lines.read_line(&mut line)?;
            }
            stream.write_all(b"PONG\r\n")?;
            Ok((lines, stream))
        };
        let (mut publisher, _held_open) = greet()?;
        let (_held_open_too, mut subscriber) = greet()?;
        let (mut head, mut body) = (String::new(), Vec::new());
        while publisher.read_line(&mut head)? > 0 {
            let size: usize = head.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
            body.resize(size + 2, 0);
            publisher.read_exact(&mut body)?;
            subscriber.write_all(format!("MSG lepus 1 {size}\r\n").as_bytes())?;
            subscriber.write_all(&body)?;
            head.clear();
        }
        Ok(())
    }

    #[test]
    fn all_that_is_published_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || serve(listener));
        // Something is sent, however short the time.
        run(port, 16, 1, 0).unwrap();
        server.join().unwrap().unwrap();
    }
}
