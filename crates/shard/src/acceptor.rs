//! Accepts connections, on a housekeeping thread, and gives them away once they speak.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use lepus_base::Instant;
use lepus_reactor::{
    Alarm, Poller, Reactor, Readiness, TcpListener, TcpStream, Token, resume, suspend,
};

use crate::clock::Clock;
use crate::distributor::{Distributor, Full};
use crate::notice::{Notice, Notices};
use crate::porch::{Admission, Conduct, Guest, Porch};

/// Connections accepted from one listener before the others have their turn.
const ACCEPTS_MAX: usize = 64;
/// How soon it looks whether those who have spoken may go on, while they may not.
const LOOK: Duration = Duration::from_millis(5);
/// How long accepting rests when it fails.
const REST: Duration = Duration::from_millis(100);
/// Failures and refusals are told to the log at most this often.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);
/// That a listener cannot hear again is told to the log at most this often.
const DEAF_NOTICE_INTERVAL: Duration = Duration::from_secs(60);

/// Decides whether connections are accepted; shared with the control threads.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    stopped: AtomicBool,
    closed: AtomicBool,
    /// How often it was opened or closed.
    orders: AtomicU64,
    /// How far the accepting thread has followed that.
    followed: Mutex<Followed>,
    news: Condvar,
}

/// What the accepting thread made of an order.
#[derive(Debug, Default)]
struct Followed {
    order: u64,
    /// Listeners that were to hear and do not, and why.
    deaf: Vec<(SocketAddr, String)>,
}

impl Gate {
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// While closed, who connects is refused.
    /// The number of this order.
    pub(crate) fn set_closed(&self, closed: bool) -> u64 {
        self.closed.store(closed, Ordering::Release);
        self.orders.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until an order, or a later one, has been followed: the listeners that were to hear and do not, and why. `None`
    /// where it takes longer than `timeout`.
    pub(crate) fn wait(&self, order: u64, timeout: Duration) -> Option<Vec<(SocketAddr, String)>> {
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |followed: &mut Followed| followed.order < order;
        let waited = self.news.wait_timeout_while(followed, timeout, waits);
        let (followed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (followed.order >= order).then(|| followed.deaf.clone())
    }

    fn has_followed(&self, order: u64, deaf: Vec<(SocketAddr, String)>) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        *followed = Followed { order, deaf };
        self.news.notify_all();
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
    /// Connections that may wait in the system.
    pub(crate) backlog: u32,
    /// It hears nobody.
    pub(crate) is_suspended: bool,
    /// Connections may wait; known from an edge, until accepting says otherwise.
    pub(crate) ready: bool,
    /// It could not hear again. Until then that is not tried once more.
    pub(crate) deaf_until: Instant,
    /// Until then the log is not told again that it cannot.
    pub(crate) quiet_until: Instant,
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
    /// The last order of the gate that was followed.
    pub(crate) followed_order: u64,
    pub(crate) clock: Clock,
    pub(crate) porch: Porch,
    pub(crate) admission: Admission,
    /// Until then it rests: no listener accepts.
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
                    None => self.porch.look(event.token, &mut self.poller),
                }
            }
            self.admit_spoken();
            self.cut_overdue();
            self.follow_gate();
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

    /// Listeners hear nobody while the gate is closed. One that cannot hear again tries once more after a rest of its own;
    /// the others hear meanwhile.
    fn follow_gate(&mut self) {
        // Read first: what is said meanwhile is another order.
        let order = self.gate.orders.load(Ordering::Acquire);
        let is_new = order != self.followed_order;
        let is_closed = self.gate.is_closed() && !self.gate.is_stopped();
        let now = self.clock.instant();
        let mut deaf = Vec::new();
        for listening in &mut self.listeners {
            if is_new {
                listening.deaf_until = Instant::default();
            }
            if listening.is_suspended == is_closed {
                continue;
            }
            if is_closed {
                // Where the system cannot do it, who connects waits until the gate opens.
                listening.is_suspended = suspend(&listening.listener).is_ok();
                continue;
            }
            if listening.deaf_until > now {
                continue;
            }
            // Its edge is lost where nobody hears.
            listening.ready = true;
            let Listening { address, backlog, .. } = *listening;
            match resume(&listening.listener, address, backlog) {
                Ok(()) => {
                    listening.is_suspended = false;
                    listening.quiet_until = Instant::default();
                }
                Err(error) => {
                    listening.deaf_until = now + REST;
                    deaf.push((address, deafness(&error)));
                    if listening.quiet_until <= now {
                        listening.quiet_until = now + DEAF_NOTICE_INTERVAL;
                        let reason = deafness(&error);
                        self.notices.tell(Notice::AcceptFailed { address, reason });
                    }
                }
            }
        }
        if is_new {
            self.followed_order = order;
            self.gate.has_followed(order, deaf);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let mut due = self.porch.next_timeout();
        if !self.gate.is_closed() {
            for listening in self.listeners.iter().filter(|listening| listening.ready) {
                due = due.min(match listening.is_suspended {
                    true => listening.deaf_until,
                    false => self.rest_until,
                });
            }
        }
        if self.turned_away.peer.is_some() {
            due = due.min(self.turned_away.quiet_until);
        }
        if self.porch.has_spoken() {
            due = due.min(self.clock.instant() + LOOK);
        }
        (due != Instant::NEVER).then(|| due.since(self.clock.instant()))
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_MAX {
            let listening = &mut self.listeners[index];
            if !listening.ready || listening.is_suspended {
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
        let has_spoken = match guest.conduct() {
            Conduct::Gone => return,
            Conduct::Speaks => true,
            Conduct::Silent => false,
        };
        if has_spoken && !self.porch.has_spoken() && self.may_admit() {
            return self.admit(guest);
        }
        while self.porch.is_full() {
            self.make_room();
        }
        let now = self.clock.instant();
        if let Err(error) = self.porch.enter(guest, has_spoken, now, &mut self.poller) {
            let reason = error.to_string();
            self.tell(Notice::ConnectionFailed { peer: address, reason });
        }
    }

    /// Whether few enough are on their way from here.
    fn may_admit(&self) -> bool {
        let ungreeted = self.distributor.census().tally.ungreeted.load(Ordering::Acquire);
        let in_transit = ungreeted + self.distributor.census().untaken();
        in_transit < self.admission.in_transit_max() as u64
    }

    /// Those that have spoken go on, as far as they may.
    fn admit_spoken(&mut self) {
        while self.porch.has_spoken() && self.may_admit() {
            if let Some(guest) = self.porch.take_spoken(&mut self.poller) {
                self.admit(guest);
            }
        }
    }

    /// One guest gives way, if there is any.
    fn make_room(&mut self) {
        if let Some((guest, conduct)) = self.porch.give_way(&mut self.poller)
            && let Some(peer) = self.part(guest, conduct)
        {
            self.distributor.census().tally.gave_way.fetch_add(1, Ordering::Relaxed);
            self.turned_away.peer = Some(peer);
            self.turned_away.gave_way += 1;
        }
    }

    fn cut_overdue(&mut self) {
        let now = self.clock.instant();
        while let Some((guest, conduct)) = self.porch.take_overdue(now, &mut self.poller) {
            if let Some(peer) = self.part(guest, conduct) {
                self.distributor.census().tally.expired.fetch_add(1, Ordering::Relaxed);
                self.turned_away.peer = Some(peer);
                self.turned_away.expired += 1;
            }
        }
    }

    /// A guest that has left the porch goes on if it has spoken and may. Whom this turned away.
    fn part(&mut self, guest: Guest, conduct: Conduct) -> Option<SocketAddr> {
        match conduct {
            Conduct::Gone => None,
            Conduct::Speaks if self.may_admit() => {
                self.admit(guest);
                None
            }
            Conduct::Speaks | Conduct::Silent => Some(guest.address),
        }
    }

    fn admit(&mut self, guest: Guest) {
        match &mut self.greeter {
            Some(greeter) if guest.is_tls => {
                let tally = &self.distributor.census().tally;
                tally.ungreeted.fetch_add(1, Ordering::AcqRel);
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
            self.notices.tell(Notice::TurnedAway { peer, expired, gave_way });
            let quiet_until = now + NOTICE_INTERVAL;
            self.turned_away = TurnedAway { quiet_until, ..TurnedAway::default() };
        }
    }

    fn tell(&mut self, notice: Notice<E>) {
        let now = self.clock.instant();
        if self.quiet_until <= now {
            self.quiet_until = now + NOTICE_INTERVAL;
            self.notices.tell(notice);
        }
    }
}

/// What to tell of a listener that cannot hear again.
fn deafness(error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => "end what listens there (`ss -ltnp` shows it)",
        _ => "if that stays so, restart the broker",
    };
    format!("nobody can connect here: listening again fails, and is tried on: {error}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Arrival;
    use crate::distributor::Census;
    use crate::metrics::ShardMetrics;
    use crate::notice::notices;
    use lepus_mesh::{Bell, Inbox, Signal, inbox};
    use std::io::Write;
    use std::sync::mpsc::{Receiver, channel};

    /// An acceptor whose shard and TLS thread are run by the test.
    struct Entrance {
        acceptor: Acceptor<()>,
        shard: Inbox<Arrival<TcpStream>>,
        metrics: Arc<ShardMetrics>,
        handshakes: Receiver<Guest>,
    }

    fn entrance(is_tls: bool) -> Entrance {
        let metrics: Arc<ShardMetrics> = Arc::default();
        let (post, shard) = inbox(&Arc::new(Bell::new(|| ())), Signal::Arrival);
        let census = Census::new(&[Arc::clone(&metrics)]);
        let admission = Admission {
            waiting_max: 16,
            silence_timeout: Duration::from_secs(600),
            handshake_timeout: Duration::from_secs(600),
        };
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let poller = Poller::new().unwrap();
        let alarm = poller.alarm();
        let (sender, handshakes) = channel();
        let tally = Arc::clone(&census.tally);
        let acceptor = Acceptor {
            poller,
            listeners: vec![Listening {
                listener,
                address,
                is_tls,
                backlog: 64,
                is_suspended: false,
                ready: true,
                deaf_until: Instant::default(),
                quiet_until: Instant::default(),
            }],
            distributor: Arc::new(Distributor::new(vec![post], census, 1_000)),
            greeter: Some(ToGreeter { sender, alarm, fresh: false }),
            notices: notices(|_| false).0,
            gate: Arc::default(),
            followed_order: 0,
            clock: Clock::start(),
            porch: Porch::new(16, Duration::from_secs(600), 1, tally),
            admission,
            rest_until: Instant::default(),
            quiet_until: Instant::default(),
            turned_away: TurnedAway::default(),
        };
        Entrance { acceptor, shard, metrics, handshakes }
    }

    #[test]
    fn who_has_spoken_waits_while_as_many_are_on_their_way_as_may_be() {
        for is_tls in [false, true] {
            let mut entrance = entrance(is_tls);
            let address = entrance.acceptor.listeners[0].address;
            let clients: Vec<std::net::TcpStream> = (0..40)
                .map(|_| {
                    let mut client = std::net::TcpStream::connect(address).unwrap();
                    client.write_all(b"AMQP").unwrap();
                    client
                })
                .collect();
            entrance.acceptor.accept(0);
            let mut passed = 0;
            let take = |entrance: &mut Entrance| {
                if is_tls {
                    let taken = entrance.handshakes.try_iter().count() as u64;
                    let tally = &entrance.acceptor.distributor.census().tally;
                    tally.ungreeted.fetch_sub(taken, Ordering::AcqRel);
                    taken
                } else {
                    let taken = std::iter::from_fn(|| entrance.shard.take()).count() as u64;
                    entrance.metrics.accepted.add(taken);
                    taken
                }
            };
            // An eighth may lie where nobody can choose among them. The rest waits, 16 at most.
            let counted = entrance.acceptor.distributor.census().tally.snapshot();
            assert_eq!((counted.silent, counted.gave_way), (0, 22));
            while entrance.acceptor.porch.has_spoken() {
                assert_eq!(take(&mut entrance), 2);
                passed += 2;
                entrance.acceptor.admit_spoken();
            }
            assert_eq!(passed + take(&mut entrance), 18);
            drop(clients);
        }
    }

    #[test]
    fn the_many_of_one_address_keep_nobody_of_another_waiting() {
        let mut entrance = entrance(true);
        let address = entrance.acceptor.listeners[0].address;
        let clients: Vec<std::net::TcpStream> = (0..12)
            .map(|number| {
                let from = if number < 10 { "127.0.0.1" } else { "127.0.0.2" };
                let mut client = connect_from(from, address);
                client.write_all(&[22]).unwrap();
                client
            })
            .collect();
        entrance.acceptor.accept(0);
        let mut order = Vec::new();
        while order.len() < 12 {
            for guest in entrance.handshakes.try_iter() {
                let tally = &entrance.acceptor.distributor.census().tally;
                tally.ungreeted.fetch_sub(1, Ordering::AcqRel);
                order.push(guest.address.ip().to_string());
            }
            entrance.acceptor.admit_spoken();
        }
        let others = |range: &[String]| range.iter().filter(|ip| *ip == "127.0.0.2").count();
        // Two were on their way before anybody had to wait.
        assert_eq!((others(&order[..2]), others(&order[2..6])), (0, 2), "{order:?}");
        drop(clients);
    }

    fn connect_from(from: &str, to: SocketAddr) -> std::net::TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
        connect(&socket, &to).unwrap();
        socket.into()
    }

    /// Another program takes the port of one while nobody is heard.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_listener_whose_port_is_taken_keeps_no_other_from_hearing_again() {
        let mut acceptor = entrance(false).acceptor;
        acceptor.listeners.extend(entrance(false).acceptor.listeners);
        let (told, reader) = notices(|_| false);
        acceptor.notices = told;
        acceptor.register().unwrap();
        let addresses: Vec<SocketAddr> =
            acceptor.listeners.iter().map(|listening| listening.address).collect();
        let hears = |acceptor: &Acceptor<()>| {
            let listeners = acceptor.listeners.iter();
            listeners.map(|listening| !listening.is_suspended).collect::<Vec<_>>()
        };
        acceptor.gate.set_closed(true);
        acceptor.follow_gate();
        assert_eq!(hears(&acceptor), [false, false]);
        let other = TcpListener::bind(addresses[0]).unwrap();
        acceptor.gate.set_closed(false);
        acceptor.follow_gate();
        assert_eq!(hears(&acceptor), [false, true]);
        assert!(acceptor.rest_until <= acceptor.clock.instant(), "the other one accepts");
        // That is told once, with where, and tried on.
        let mut ready = Vec::new();
        acceptor.listeners[1].ready = false;
        let until = acceptor.listeners[0].deaf_until;
        while acceptor.listeners[0].deaf_until == until {
            acceptor.poller.poll(acceptor.timeout(), &mut ready).unwrap();
            acceptor.follow_gate();
        }
        let failures: Vec<SocketAddr> = reader
            .try_iter()
            .map(|notice| match notice {
                Notice::AcceptFailed { address, reason } if reason.contains("ss -ltnp") => address,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(failures, addresses[..1]);
        drop(other);
        while hears(&acceptor) != [true, true] {
            acceptor.poller.poll(acceptor.timeout(), &mut ready).unwrap();
            acceptor.follow_gate();
        }
        assert!(std::net::TcpStream::connect(addresses[0]).is_ok());
    }

    #[test]
    fn all_on_their_way_to_a_login_are_no_more_than_may_wait() {
        for waiting_max in [16, 100, 10_000] {
            let timeout = Duration::from_secs(1);
            let admission =
                Admission { waiting_max, silence_timeout: timeout, handshake_timeout: timeout };
            for (shards, has_tls) in [(1, false), (1, true), (4, true)] {
                let handshakes = if has_tls { admission.handshakes_max() } else { 0 };
                let entering = admission.entering_max(shards, has_tls) * shards;
                let all = admission.in_transit_max() + handshakes + entering;
                assert!(all <= waiting_max && all + shards > waiting_max, "{all}");
            }
        }
    }
}
