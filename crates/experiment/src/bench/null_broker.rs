//! A broker that does as little as the protocol lets it: the floor under any broker's figures.
//!
//! It answers what clients declare, remembers which queue a key leads to, and copies each publish
//! behind a pre-encoded delivery to the next consumer of every such queue. It stores nothing,
//! checks nothing, drops what has no consumer and ignores prefetch limits. One thread, one read of
//! up to 64 KiB and one write per connection and cycle, as the real broker does it.

pub mod content;
mod routes;
mod session;

use crate::bench::counters::{self, Shared};
use lepus_perf::to_stderr;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use session::{SessionKey, Sessions};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LISTENER: Token = Token(usize::MAX);
const READ_BYTES_MAX: usize = 64 * 1024;
/// Unsent bytes of one connection at which publishers are not read any more.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;

struct Connection {
    stream: TcpStream,
    /// Bytes of an incomplete frame.
    rest: Vec<u8>,
    /// Bytes at the start of the session's output that are sent.
    sent: usize,
    /// Whether there may be more to read; cleared by a short read.
    readable: bool,
    /// Whether the last write took less than it was given.
    blocked: bool,
    /// Whether more is unsent than [`UNSENT_BYTES_MAX`].
    full: bool,
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    connections: HashMap<SessionKey, Connection>,
    sessions: Sessions,
    /// Connections with more to read.
    ready: Vec<SessionKey>,
    /// Number of full connections.
    full: usize,
}

/// Serves AMQP on `port` and counters on `metrics_port`, until the process is ended.
///
/// # Errors
/// When a port cannot be listened on, or the poll fails.
pub fn run(port: u16, metrics_port: u16) -> io::Result<()> {
    let shared = Arc::new(Shared::default());
    counters::serve(metrics_port, Arc::clone(&shared))?;
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut server = Server {
        poll,
        listener,
        connections: HashMap::new(),
        sessions: Sessions::default(),
        ready: Vec::new(),
        full: 0,
    };
    let mut events = Events::with_capacity(1024);
    let mut scratch = vec![0; READ_BYTES_MAX];
    loop {
        server.turn(&mut events, &mut scratch)?;
        shared.set(server.sessions.counts);
    }
}

impl Server {
    fn turn(&mut self, events: &mut Events, scratch: &mut [u8]) -> io::Result<()> {
        let busy = self.ready.iter().any(|key| self.may_read(*key));
        let timeout = busy.then_some(Duration::ZERO);
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in events.iter() {
            if event.token() == LISTENER {
                self.accept()?;
                continue;
            }
            let key = event.token().0;
            let Some(connection) = self.connections.get_mut(&key) else {
                continue;
            };
            if event.is_readable() && !connection.readable {
                connection.readable = true;
                self.ready.push(key);
            }
            if event.is_writable() && connection.blocked {
                self.write(key);
            }
        }
        for key in std::mem::take(&mut self.ready) {
            if !self.may_read(key) || self.read(key, scratch) {
                self.ready.push(key);
            }
        }
        self.sessions.flush();
        for key in std::mem::take(&mut self.sessions.dirty) {
            self.write(key);
        }
        Ok(())
    }

    fn may_read(&self, key: SessionKey) -> bool {
        self.full == 0 || !self.sessions.publishes(key)
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let key = self.sessions.open();
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(key), interest)?;
            let connection = Connection {
                stream,
                rest: Vec::new(),
                sent: 0,
                readable: true,
                blocked: false,
                full: false,
            };
            self.connections.insert(key, connection);
            self.ready.push(key);
        }
    }

    /// One read and what it brought; whether there may be more.
    fn read(&mut self, key: SessionKey, scratch: &mut [u8]) -> bool {
        let Some(connection) = self.connections.get_mut(&key) else {
            return false;
        };
        let count = match connection.stream.read(scratch) {
            Ok(0) => {
                self.close(key);
                return false;
            }
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                connection.readable = false;
                return false;
            }
            Err(_) => {
                self.close(key);
                return false;
            }
        };
        let mut held = std::mem::take(&mut connection.rest);
        let is_first = held.is_empty();
        if !is_first {
            held.extend_from_slice(&scratch[..count]);
        }
        let bytes = if is_first { &scratch[..count] } else { &held[..] };
        match self.sessions.receive(key, bytes) {
            Ok(consumed) if is_first => {
                held.extend_from_slice(&scratch[consumed..count]);
                connection.rest = held;
            }
            // A long message is put together without being copied with each read.
            Ok(consumed) => {
                held.drain(..consumed);
                connection.rest = held;
            }
            Err(reason) => {
                to_stderr(format_args!("null broker: {reason}"));
                self.close(key);
                return false;
            }
        }
        true
    }

    fn write(&mut self, key: SessionKey) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        let out = self.sessions.output(key);
        connection.blocked = false;
        while connection.sent < out.len() {
            match connection.stream.write(&out[connection.sent..]) {
                Ok(count) => connection.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    connection.blocked = true;
                    break;
                }
                Err(_) => return self.close(key),
            }
        }
        // What is sent is thrown away in large pieces: moving the rest costs as much as it is long.
        if connection.sent == out.len() || connection.sent > out.len() / 2 {
            out.drain(..connection.sent);
            connection.sent = 0;
        }
        let unsent = out.len() - connection.sent;
        let was_full = std::mem::replace(&mut connection.full, unsent > UNSENT_BYTES_MAX);
        self.full += usize::from(connection.full);
        self.full -= usize::from(was_full);
        if unsent == 0 && self.sessions.is_closing(key) {
            self.close(key);
        }
    }

    fn close(&mut self, key: SessionKey) {
        if let Some(connection) = self.connections.remove(&key)
            && connection.full
        {
            self.full -= 1;
        }
        self.sessions.close(key);
    }
}
