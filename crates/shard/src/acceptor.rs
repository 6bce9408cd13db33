//! Accepts connections, on a housekeeping thread, and gives them away once they speak.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use lepus_base::Instant;
use lepus_reactor::{Alarm, Poller, Reactor, Readiness, TcpListener, TcpStream, Token};

use crate::clock::Clock;
use crate::distributor::{Distributor, Full};
use crate::notice::{Notice, Notices};
use crate::porch::{Conduct, Guest, Porch};

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
    pub(crate) sender: Sender<Guest>,
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
    pub(crate) porch: Porch,
    /// Until then it rests.
    pub(crate) rest_until: Instant,
    /// Until then it keeps quiet about trouble.
    pub(crate) quiet_until: Instant,
    /// Connections turned away that the log has not been told of.
    pub(crate) turned_away: TurnedAway,
}

/// Connections closed before they said anything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnedAway {
    /// The last of them.
    peer: Option<SocketAddr>,
    expired: u64,
    gave_way: u64,
    /// Until then the log is not told again.
    quiet_until: Instant,
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
                match self.listeners.get_mut(event.token.0 as usize) {
                    Some(listening) => listening.ready = true,
                    None => {
                        let found = self.porch.look(event.token, &mut self.poller);
                        self.part(found);
                    }
                }
            }
            self.cut_overdue();
            let is_resting = self.rest_until > self.clock.instant();
            if !(self.gate.is_stopped() || self.gate.is_closed() || is_resting) {
                for index in 0..self.listeners.len() {
                    self.accept(index);
                }
            }
            self.tell_of_turned_away();
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
        let mut due = self.porch.next_timeout();
        if self.listeners.iter().any(|listening| listening.ready) && !self.gate.is_closed() {
            due = due.min(self.rest_until);
        }
        if self.turned_away.peer.is_some() {
            due = due.min(self.turned_away.quiet_until);
        }
        (due != Instant::NEVER).then(|| due.since(self.clock.instant()))
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
                        // What a silent one holds is more than it is worth now.
                        self.make_room();
                        return;
                    }
                },
            }
        }
    }

    fn take(&mut self, socket: TcpStream, address: SocketAddr, index: usize) {
        // Small messages must not wait for an acknowledgement of the ones before.
        let local_address = match socket.set_nodelay(true).and_then(|()| socket.local_addr()) {
            Ok(local_address) => local_address,
            // The client is gone already.
            Err(_) => return,
        };
        if let Err(full) = self.distributor.crowded() {
            return self.refuse(address, full);
        }
        let is_tls = self.listeners[index].is_tls;
        let guest = Guest { socket, address, local_address, is_tls };
        match guest.conduct() {
            Conduct::Gone => {}
            Conduct::Speaks => self.admit(guest),
            Conduct::Silent => {
                while self.porch.is_full() {
                    self.make_room();
                }
                let now = self.clock.instant();
                if let Err(error) = self.porch.enter(guest, now, &mut self.poller) {
                    let reason = error.to_string();
                    self.tell(Notice::ConnectionFailed { peer: address, reason });
                }
            }
        }
    }

    /// One silent guest gives way, if there is any.
    fn make_room(&mut self) {
        let found = self.porch.give_way(&mut self.poller);
        if let Some((guest, Conduct::Silent)) = &found {
            self.distributor.census().tally.gave_way.fetch_add(1, Ordering::Relaxed);
            self.turned_away.peer = Some(guest.address);
            self.turned_away.gave_way += 1;
        }
        self.part(found);
    }

    fn cut_overdue(&mut self) {
        let now = self.clock.instant();
        while let Some(found) = self.porch.take_overdue(now, &mut self.poller) {
            if let (guest, Conduct::Silent) = &found {
                self.distributor.census().tally.expired.fetch_add(1, Ordering::Relaxed);
                self.turned_away.peer = Some(guest.address);
                self.turned_away.expired += 1;
            }
            self.part(Some(found));
        }
    }

    /// A guest has left the porch: it goes on if it speaks, and is closed otherwise.
    fn part(&mut self, found: Option<(Guest, Conduct)>) {
        if let Some((guest, Conduct::Speaks)) = found {
            self.admit(guest);
        }
    }

    fn admit(&mut self, guest: Guest) {
        match &mut self.greeter {
            Some(greeter) if guest.is_tls => {
                // The TLS thread ends only when this one does.
                let _ = greeter.sender.send(guest);
                greeter.fresh = true;
            }
            _ => {
                let peer = guest.address;
                let info = guest.info();
                if let Err(full) = self.distributor.give(guest.socket, info, None) {
                    self.refuse(peer, full);
                }
            }
        }
    }

    fn refuse(&mut self, peer: SocketAddr, full: Full) {
        self.tell(Notice::ConnectionRefused { peer, connections_max: full.connections_max });
    }

    fn tell_of_turned_away(&mut self) {
        let TurnedAway { peer, expired, gave_way, quiet_until } = self.turned_away;
        let now = self.clock.instant();
        if let Some(peer) = peer.filter(|_| quiet_until <= now) {
            let _ = self.notices.send(Notice::TurnedAway { peer, expired, gave_way });
            let quiet_until = now + NOTICE_INTERVAL;
            self.turned_away = TurnedAway { quiet_until, ..TurnedAway::default() };
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
