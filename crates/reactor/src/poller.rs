//! The port over `mio`: epoll on Linux, kqueue on macOS.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Waker};

use crate::port::{Reactor, Readiness, Socket, Token};

/// Events taken per poll; what is left is reported by the next one.
const EVENTS_MAX: usize = 1024;
/// How long the system keeps what the peer of a socket that was dropped does not take.
#[cfg(target_os = "linux")]
const UNSENT_MILLIS_MAX: u32 = 5_000;
const ALARM: mio::Token = mio::Token(usize::MAX);

/// Readiness of sockets from the operating system.
#[derive(Debug)]
pub struct Poller {
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
}

/// Ends a poll from another thread.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<Waker>);

impl Alarm {
    /// Makes the poller's current or next poll return. One system call.
    pub fn ring(&self) {
        // It can only fail on a full counter, which means that the alarm rings already, or on a
        // poller that is gone.
        let _ = self.0.wake();
    }
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> io::Result<Poller> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), ALARM)?);
        Ok(Poller { poll, events: Events::with_capacity(EVENTS_MAX), waker })
    }

    /// A handle that ends this poller's polls.
    #[must_use]
    pub fn alarm(&self) -> Alarm {
        Alarm(Arc::clone(&self.waker))
    }

    /// Starts to report connections that wait on `listener` as readable under `token`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn register_listener(
        &mut self,
        listener: &mut mio::net::TcpListener,
        token: Token,
    ) -> io::Result<()> {
        let token = mio::Token(token.0 as usize);
        self.poll.registry().register(listener, token, Interest::READABLE)
    }
}

impl Reactor for Poller {
    type Socket = TcpStream;

    fn register(&mut self, socket: &mut TcpStream, token: Token) -> io::Result<()> {
        let token = mio::Token(token.0 as usize);
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(socket, token, interest)
    }

    fn deregister(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        self.poll.registry().deregister(socket)
    }

    fn poll(&mut self, timeout: Option<Duration>, ready: &mut Vec<Readiness>) -> io::Result<bool> {
        if let Err(error) = self.poll.poll(&mut self.events, timeout) {
            if error.kind() == io::ErrorKind::Interrupted {
                return Ok(false);
            }
            return Err(error);
        }
        let mut rang = false;
        for event in &self.events {
            if event.token() == ALARM {
                rang = true;
                continue;
            }
            let ending = event.is_read_closed();
            let dead = event.is_error() || (ending && event.is_write_closed());
            ready.push(Readiness {
                token: Token(event.token().0 as u32),
                readable: event.is_readable() || ending || dead,
                writable: event.is_writable() || dead,
                ending: ending || dead,
                dead,
            });
        }
        Ok(rang)
    }
}

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Socket for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| Read::read(self, buffer))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(|| Write::write(self, bytes))
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        uninterrupted(|| Write::write_vectored(self, slices))
    }

    fn acknowledge_at_once(&mut self) {
        // A peer that waits a little longer is all that can come of a refusal.
        #[cfg(target_os = "linux")]
        let _ = rustix::net::sockopt::set_tcp_quickack(self, true);
    }

    fn forget_unsent_soon(&mut self) {
        // Memory that is kept longer is all that can come of a refusal.
        #[cfg(target_os = "linux")]
        let _ = rustix::net::sockopt::set_tcp_user_timeout(self, UNSENT_MILLIS_MAX);
    }

    fn shut_down_writing(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}
