//! Where new connections wait for their first bytes. Whoever says nothing takes nothing from those who
//! do: no shard, no handshake, only a place here for a short time. Who has spoken waits here as well
//! while as many are on their way from here as may be.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lepus_base::{Crowd, Instant, Slab, Ticket};
use lepus_reactor::{Poller, Reactor, TcpStream, Token};

use crate::core::PeerInfo;

/// Handshakes in progress at once: each may take some ten kilobytes.
const HANDSHAKES_MAX: usize = 1024;

/// What connections may take before they have logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Connections that may wait at once, silent ones, those on their way to a login and those that are
    /// closed each for themselves. For one more somebody gives way, silent ones and those of the address
    /// with the most first; of those that are closed the one that has waited longest for its peer's end.
    pub waiting_max: usize,
    /// How long a peer may take to say its first bytes, and to finish the first thing it says.
    pub silence_timeout: Duration,
    /// How long a peer may take from there to the end of a TLS handshake.
    pub handshake_timeout: Duration,
}

impl Admission {
    /// Connections that neither the TLS thread nor a shard has taken yet: nobody can say which of them
    /// is to give way, so there are few.
    pub(crate) fn in_transit_max(&self) -> usize {
        (self.waiting_max / 8).max(1)
    }

    /// TLS handshakes in progress.
    pub(crate) fn handshakes_max(&self) -> usize {
        HANDSHAKES_MAX.min(self.waiting_max / 4).max(1)
    }

    /// Connections of one shard that have not logged in: the rest.
    pub(crate) fn entering_max(&self, shards: usize, has_tls: bool) -> usize {
        let handshakes = if has_tls { self.handshakes_max() } else { 0 };
        let rest = self.waiting_max.saturating_sub(self.in_transit_max() + handshakes);
        (rest / shards).max(1)
    }
}

/// The entrance's counters: what became of connections that did not get as far as a shard.
#[derive(Debug, Default)]
pub struct EntranceMetrics {
    pub(crate) silent: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) gave_way: AtomicU64,
    /// Connections that the TLS thread was given and has not taken yet.
    pub(crate) ungreeted: AtomicU64,
}

/// The values of [`EntranceMetrics`], each read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntranceSnapshot {
    /// Connections that have said nothing yet.
    pub silent: u64,
    /// Connections that were closed because they said nothing for too long.
    pub expired: u64,
    /// Connections that gave way to new ones before a shard had them.
    pub gave_way: u64,
}

impl EntranceMetrics {
    /// The values as they are now.
    #[must_use]
    pub fn snapshot(&self) -> EntranceSnapshot {
        EntranceSnapshot {
            silent: self.silent.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            gave_way: self.gave_way.load(Ordering::Relaxed),
        }
    }
}

/// A connection that was just accepted.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) socket: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) local_address: SocketAddr,
    pub(crate) is_tls: bool,
}

/// What a guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Its first bytes are there.
    Speaks,
    /// Nothing came yet.
    Silent,
    /// It has gone.
    Gone,
}

impl Guest {
    /// What is known of it before any handshake.
    pub(crate) fn info(&self) -> PeerInfo {
        let Guest { address, local_address, .. } = *self;
        PeerInfo { address, local_address, tls: None, login_name: None }
    }

    pub(crate) fn conduct(&self) -> Conduct {
        loop {
            return match self.socket.peek(&mut [0]) {
                Ok(0) => Conduct::Gone,
                Ok(_) => Conduct::Speaks,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Conduct::Silent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => Conduct::Gone,
            };
        }
    }
}

struct Place {
    guest: Guest,
    ticket: Ticket,
    deadline: Instant,
    /// It has spoken, and waits until it may go on.
    has_spoken: bool,
}

/// The guests that are silent, and those that wait to go on.
pub(crate) struct Porch {
    places: Slab<Place>,
    crowd: Crowd<usize>,
    /// How many are silent.
    silent: u64,
    places_max: usize,
    patience: Duration,
    /// The first of the tokens that it uses.
    first_token: u32,
    tally: Arc<EntranceMetrics>,
}

impl Porch {
    pub(crate) fn new(
        places_max: usize,
        patience: Duration,
        first_token: u32,
        tally: Arc<EntranceMetrics>,
    ) -> Porch {
        Porch {
            places: Slab::new(),
            crowd: Crowd::default(),
            silent: 0,
            places_max: places_max.max(1),
            patience,
            first_token,
            tally,
        }
    }

    /// Whether somebody has to give way before one more may enter.
    pub(crate) fn is_full(&self) -> bool {
        self.places.len() >= self.places_max
    }

    /// A guest that is silent yet, or that has spoken and may not go on yet.
    ///
    /// # Errors
    /// When the system refuses; then the guest is gone.
    pub(crate) fn enter(
        &mut self,
        mut guest: Guest,
        has_spoken: bool,
        now: Instant,
        poller: &mut Poller,
    ) -> io::Result<()> {
        let entry = self.places.vacant_entry();
        let token = Token(self.first_token + entry.key() as u32);
        poller.register(&mut guest.socket, token)?;
        let (key, deadline) = (entry.key(), now + self.patience);
        let ticket = self.crowd.enter(guest.address.ip(), key);
        entry.insert(Place { guest, ticket, deadline, has_spoken: false });
        self.count(self.silent + 1);
        if has_spoken {
            self.hear(key);
        }
        Ok(())
    }

    /// A guest has spoken.
    fn hear(&mut self, key: usize) {
        let place = &mut self.places[key];
        if !core::mem::replace(&mut place.has_spoken, true) {
            self.crowd.set_silent(place.ticket, false);
            self.count(self.silent - 1);
        }
    }

    /// Whether somebody waits who has spoken.
    pub(crate) fn has_spoken(&self) -> bool {
        self.crowd.speaks()
    }

    /// Looks after the guest of this token: one that has gone leaves, one that speaks is heard.
    pub(crate) fn look(&mut self, token: Token, poller: &mut Poller) {
        let Some(key) = token.0.checked_sub(self.first_token).map(|key| key as usize) else {
            return;
        };
        match self.places.get(key).map(|place| place.guest.conduct()) {
            None | Some(Conduct::Silent) => {}
            Some(Conduct::Speaks) => self.hear(key),
            Some(Conduct::Gone) => drop(self.remove(key, poller)),
        }
    }

    /// The next guest that has spoken, on its way from here. The addresses take turns: the many of one keep
    /// nobody else waiting.
    pub(crate) fn take_spoken(&mut self, poller: &mut Poller) -> Option<Guest> {
        let key = self.crowd.take_turn()?;
        Some(self.remove(key, poller))
    }

    /// Whoever is to give way, with what it did last: it may have spoken this moment.
    pub(crate) fn give_way(&mut self, poller: &mut Poller) -> Option<(Guest, Conduct)> {
        let key = self.crowd.give_way()?;
        let guest = self.remove(key, poller);
        let conduct = guest.conduct();
        Some((guest, conduct))
    }

    /// A guest whose time is over, the same way.
    pub(crate) fn take_overdue(
        &mut self,
        now: Instant,
        poller: &mut Poller,
    ) -> Option<(Guest, Conduct)> {
        let key = self.crowd.oldest().filter(|&key| self.places[key].deadline <= now)?;
        let guest = self.remove(key, poller);
        let conduct = guest.conduct();
        Some((guest, conduct))
    }

    /// When the next guest's time is over.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.crowd.oldest().map_or(Instant::NEVER, |key| self.places[key].deadline)
    }

    fn remove(&mut self, key: usize, poller: &mut Poller) -> Guest {
        let mut place = self.places.remove(key);
        self.crowd.leave(place.ticket);
        // Should that fail, its next owner finds the socket broken.
        let _ = poller.deregister(&mut place.guest.socket);
        if !place.has_spoken {
            self.count(self.silent - 1);
        }
        place.guest
    }

    fn count(&mut self, silent: u64) {
        self.silent = silent;
        self.tally.silent.store(silent, Ordering::Relaxed);
    }
}
