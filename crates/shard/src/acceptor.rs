//! Accepts connections, on a housekeeping thread, and gives them away.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use lepus_base::Instant;
use lepus_reactor::{Alarm, Poller, Reactor, Readiness, TcpListener, TcpStream, Token};

use crate::clock::Clock;
use crate::distributor::Distributor;
use crate::notice::{Notice, Notices};
use crate::tls::Handshake;

/// Connections accepted from one listener before the others have their turn.
const ACCEPTS_MAX: usize = 64;
/// How long accepting rests when it fails.
const REST: Duration = Duration::from_millis(100);
/// Failures and refusals are told to the log at most this often.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

/// Decides whether connections are accepted; shared with the control threads.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    stopped: AtomicBool,
    closed: AtomicBool,
}

impl Gate {
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// While closed, new connections wait in the system's backlog.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// One listening socket.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
    /// Connections may wait; known from an edge, until accepting says otherwise.
    pub(crate) ready: bool,
}

/// The way to the TLS thread.
pub(crate) struct ToGreeter {
    pub(crate) sender: Sender<Handshake>,
    pub(crate) alarm: Alarm,
    /// Something was sent since the last ring.
    pub(crate) fresh: bool,
}

/// The accepting thread.
pub(crate) struct Acceptor<E> {
    pub(crate) poller: Poller,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) distributor: Arc<Distributor<TcpStream>>,
    pub(crate) greeter: Option<ToGreeter>,
    pub(crate) notices: Notices<E>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) clock: Clock,
    pub(crate) connections_max: usize,
    /// Until then it rests.
    pub(crate) rest_until: Instant,
    /// Until then it keeps quiet about trouble.
    pub(crate) quiet_until: Instant,
}

impl<E> Acceptor<E> {
    /// Works until the gate is closed for good, then closes the listeners.
    ///
    /// # Panics
    /// When the readiness queue fails.
    pub(crate) fn run(mut self) {
        let mut ready: Vec<Readiness> = Vec::new();
        while !self.gate.is_stopped() {
            let timeout = self.timeout();
            if let Err(error) = self.poller.poll(timeout, &mut ready) {
                panic!("the readiness queue of the acceptor fails: {error}");
            }
            for event in ready.drain(..) {
                if let Some(listening) = self.listeners.get_mut(event.token.0 as usize) {
                    listening.ready = true;
                }
            }
            let is_resting = self.rest_until > self.clock.instant();
            if self.gate.is_stopped() || self.gate.is_closed() || is_resting {
                continue;
            }
            for index in 0..self.listeners.len() {
                self.accept(index);
            }
            // Once for all that were accepted.
            self.distributor.ring();
            if let Some(greeter) = self.greeter.as_mut().filter(|greeter| greeter.fresh) {
                greeter.fresh = false;
                greeter.alarm.ring();
            }
        }
    }

    /// Registers the listeners.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn register(&mut self) -> std::io::Result<()> {
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            self.poller.register_listener(&mut listening.listener, Token(index as u32))?;
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        let is_ready = self.listeners.iter().any(|listening| listening.ready);
        if !is_ready || self.gate.is_closed() {
            return None;
        }
        Some(self.rest_until.since(self.clock.instant()))
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_MAX {
            let listening = &mut self.listeners[index];
            if !listening.ready {
                return;
            }
            match listening.listener.accept() {
                Ok((socket, address)) => self.take(socket, address, index),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => listening.ready = false,
                    // The client gave up, or a signal came.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    // No descriptors or no memory, mostly: it gets better by waiting.
                    _ => {
                        let address = listening.address;
                        let reason = error.to_string();
                        self.rest_until = self.clock.instant() + REST;
                        self.tell(Notice::AcceptFailed { address, reason });
                        return;
                    }
                },
            }
        }
    }

    fn take(&mut self, socket: TcpStream, address: SocketAddr, index: usize) {
        let census = self.distributor.census();
        let greeting = census.greeting.load(Ordering::Relaxed);
        let connections_max = self.connections_max;
        if census.connections() + greeting >= connections_max as u64 {
            self.tell(Notice::ConnectionRefused { peer: address, connections_max });
            return;
        }
        // Small messages must not wait for an acknowledgement of the ones before.
        let local_address = match socket.set_nodelay(true).and_then(|()| socket.local_addr()) {
            Ok(local_address) => local_address,
            // The client is gone already.
            Err(_) => return,
        };
        match &mut self.greeter {
            Some(greeter) if self.listeners[index].is_tls => {
                let handshake =
                    Handshake { socket, address, local_address, accepted: self.clock.instant() };
                census.greeting.fetch_add(1, Ordering::Relaxed);
                // The TLS thread ends only when this one does.
                let _ = greeter.sender.send(handshake);
                greeter.fresh = true;
            }
            _ => self.distributor.give(socket, address, local_address, None),
        }
    }

    fn tell(&mut self, notice: Notice<E>) {
        let now = self.clock.instant();
        if self.quiet_until <= now {
            self.quiet_until = now + NOTICE_INTERVAL;
            let _ = self.notices.send(notice);
        }
    }
}
