//! Sockets in memory, and the reactor that reports their readiness.
//!
//! A wire has two ends. The server's end is a [`Socket`] that a shard reads and writes without
//! blocking; the client's end is moved by the simulation. Readiness is reported by edges, as the
//! real reactor does: once when bytes come, once when room comes after a write found none.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lepus_reactor::{Reactor, Readiness, Socket, Token};

/// Readiness that waits for a shard's next poll.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyList(Arc<Mutex<Vec<Readiness>>>);

impl ReadyList {
    fn lock(&self) -> MutexGuard<'_, Vec<Readiness>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a poll would find nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

#[derive(Debug, Default)]
struct Both {
    /// From the client to the server.
    up: VecDeque<u8>,
    /// From the server to the client.
    down: VecDeque<u8>,
    /// Bytes that `down` holds at most.
    down_bytes_max: usize,
    /// A write found no room.
    down_full: bool,
    /// The client has ended its side.
    client_ended: bool,
    /// The server has ended its side, or dropped the socket.
    server_ended: bool,
    /// The server has dropped the socket.
    server_gone: bool,
    /// The connection is broken in both directions.
    broken: bool,
    watch: Option<(Token, ReadyList)>,
}

impl Both {
    fn notify(&self, event: impl FnOnce(Token) -> Readiness) {
        if let Some((token, list)) = &self.watch {
            list.lock().push(event(*token));
        }
    }

    fn notify_readable(&self) {
        let (ending, dead) = (self.client_ended, self.broken);
        self.notify(|token| Readiness {
            token,
            readable: true,
            writable: dead,
            ending: ending || dead,
            dead,
        });
    }
}

/// One connection's two streams of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Wire(Arc<Mutex<Both>>);

impl Wire {
    /// A fresh wire whose stream to the client holds at most `down_bytes_max`.
    pub(crate) fn new(down_bytes_max: usize) -> Wire {
        Wire(Arc::new(Mutex::new(Both { down_bytes_max, ..Both::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's end; there is to be only one.
    pub(crate) fn server_end(&self) -> SimSocket {
        SimSocket(self.clone())
    }

    /// The client's bytes arrive. False when nobody is there to take them.
    pub(crate) fn arrive(&self, bytes: &[u8]) -> bool {
        let mut both = self.lock();
        if both.server_gone || both.broken {
            return false;
        }
        both.up.extend(bytes);
        both.notify_readable();
        true
    }

    /// Takes at most `limit` bytes that the server wrote.
    pub(crate) fn take(&self, limit: usize, into: &mut Vec<u8>) -> usize {
        let mut both = self.lock();
        let count = both.down.len().min(limit);
        into.extend(both.down.drain(..count));
        if count > 0 && both.down_full {
            both.down_full = false;
            both.notify(|token| Readiness {
                token,
                readable: false,
                writable: true,
                ending: false,
                dead: false,
            });
        }
        count
    }

    /// Bytes of the server that the client has not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().down.len()
    }

    /// Whether the server has nothing more to say and all of it was taken.
    pub(crate) fn is_ended(&self) -> bool {
        let both = self.lock();
        both.broken || (both.server_ended && both.down.is_empty())
    }

    /// Whether the server has dropped its end.
    pub(crate) fn is_server_gone(&self) -> bool {
        self.lock().server_gone
    }

    /// The client ends its side; what it said before still arrives.
    pub(crate) fn end(&self) {
        let mut both = self.lock();
        both.client_ended = true;
        both.notify_readable();
    }

    /// The connection breaks: both sides lose what is on its way.
    pub(crate) fn cut(&self) {
        let mut both = self.lock();
        both.broken = true;
        both.up.clear();
        both.down.clear();
        both.notify_readable();
    }
}

/// The server's end of a [`Wire`].
#[derive(Debug)]
pub struct SimSocket(Wire);

impl Socket for SimSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut both = self.0.lock();
        if both.broken {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let count = both.up.len().min(buffer.len());
        if count == 0 {
            return if both.client_ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        for (place, byte) in buffer.iter_mut().zip(both.up.drain(..count)) {
            *place = byte;
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut both = self.0.lock();
        if both.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let room = both.down_bytes_max.saturating_sub(both.down.len());
        let count = bytes.len().min(room);
        both.down.extend(&bytes[..count]);
        both.down_full = count < bytes.len();
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    fn shut_down_writing(&mut self) {
        self.0.lock().server_ended = true;
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let mut both = self.0.lock();
        both.server_ended = true;
        both.server_gone = true;
        both.watch = None;
    }
}

/// Reports the readiness of one shard's sockets. It never waits: the simulation decides who runs.
#[derive(Debug, Default)]
pub struct SimReactor {
    list: ReadyList,
}

impl SimReactor {
    /// A reactor and the list that tells whether polling it would find something.
    pub(crate) fn new() -> (SimReactor, ReadyList) {
        let reactor = SimReactor::default();
        let list = reactor.list.clone();
        (reactor, list)
    }
}

impl Reactor for SimReactor {
    type Socket = SimSocket;

    fn register(&mut self, socket: &mut SimSocket, token: Token) -> io::Result<()> {
        let mut both = socket.0.lock();
        let readable = !both.up.is_empty() || both.client_ended || both.broken;
        both.watch = Some((token, self.list.clone()));
        both.notify(|token| Readiness {
            token,
            readable,
            writable: true,
            ending: both.client_ended,
            dead: both.broken,
        });
        Ok(())
    }

    fn deregister(&mut self, socket: &mut SimSocket) -> io::Result<()> {
        if let Some((token, list)) = socket.0.lock().watch.take() {
            list.lock().retain(|event| event.token != token);
        }
        Ok(())
    }

    fn poll(&mut self, _: Option<Duration>, ready: &mut Vec<Readiness>) -> io::Result<bool> {
        ready.append(&mut self.list.lock());
        Ok(false)
    }
}
