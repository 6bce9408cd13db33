//! TLS handshakes, on a thread of their own: they cost a shard's time for thousands of messages.
//! Peers come here once they speak.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use lepus_base::{Crowd, Instant, Slab, Ticket};
use lepus_reactor::{Poller, Reactor, Readiness, Socket, TcpStream, Token};
use rustls::ServerConnection;

use crate::acceptor::Gate;
use crate::clock::Clock;
use crate::core::{PeerInfo, TlsPeer};
use crate::distributor::Distributor;
use crate::notice::{Notice, Notices};
use crate::porch::{Admission, Guest};
use crate::tls::{Identity, LoginFrom, Records, Session, parse_subject};

/// Handshakes begun before those in progress have their turn again.
const BEGIN_MAX: usize = 64;
/// How often overdue handshakes are looked for.
const CHECK: Duration = Duration::from_millis(250);

/// A handshake in progress.
struct Greeting {
    guest: Guest,
    connection: ServerConnection,
    records: Records,
    ticket: Ticket,
    /// The client's greeting was answered.
    is_answered: bool,
    begun: Instant,
}

enum Progress {
    Pending,
    Done,
    Failed(String),
}

/// The handshakes in progress. Those that are answered do not give way while others are not.
#[derive(Default)]
struct Greetings {
    list: Slab<Greeting>,
    crowd: Crowd<usize>,
}

impl Greetings {
    fn remove(&mut self, key: usize) -> Greeting {
        let greeting = self.list.remove(key);
        self.crowd.leave(greeting.ticket);
        greeting
    }
}

/// The thread that greets TLS clients and gives them to the shards.
pub(crate) struct Greeter<E> {
    pub(crate) poller: Poller,
    pub(crate) inbox: Receiver<Guest>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) distributor: Arc<Distributor<TcpStream>>,
    pub(crate) notices: Notices<E>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) clock: Clock,
    pub(crate) admission: Admission,
}

impl<E> Greeter<E> {
    /// Works until the gate is closed for good.
    ///
    /// # Panics
    /// When the readiness queue fails.
    pub(crate) fn run(mut self) {
        let mut greetings = Greetings::default();
        let mut ready: Vec<Readiness> = Vec::new();
        let mut more = false;
        while !self.gate.is_stopped() {
            let timeout = match (more, greetings.list.is_empty()) {
                (true, _) => Some(Duration::ZERO),
                (false, true) => None,
                (false, false) => Some(CHECK),
            };
            if let Err(error) = self.poller.poll(timeout, &mut ready) {
                panic!("the readiness queue of the TLS thread fails: {error}");
            }
            for event in ready.drain(..) {
                self.advance(&mut greetings, event.token.0 as usize);
            }
            self.cut_overdue(&mut greetings);
            more = self.begin(&mut greetings);
            self.distributor.ring();
        }
    }

    /// Takes some that wait; whether more may.
    fn begin(&mut self, greetings: &mut Greetings) -> bool {
        for _ in 0..BEGIN_MAX {
            let Ok(mut guest) = self.inbox.try_recv() else {
                return false;
            };
            self.distributor.census().tally.ungreeted.fetch_sub(1, Ordering::AcqRel);
            if greetings.list.len() >= self.admission.handshakes_max() {
                self.make_room(greetings);
            }
            let entry = greetings.list.vacant_entry();
            let key = entry.key();
            let connection = ServerConnection::new(self.identity.current());
            let registered = self.poller.register(&mut guest.socket, Token(key as u32));
            match (connection, registered) {
                (Ok(connection), Ok(())) => {
                    let ticket = greetings.crowd.enter(guest.address.ip(), key);
                    let begun = self.clock.instant();
                    let is_answered = false;
                    let records = Records::default();
                    entry.insert(Greeting {
                        guest,
                        connection,
                        records,
                        ticket,
                        is_answered,
                        begun,
                    });
                    self.advance(greetings, key);
                }
                (Err(error), _) => self.fail(guest.address, error.to_string()),
                (_, Err(error)) => self.fail(guest.address, error.to_string()),
            }
        }
        true
    }

    fn make_room(&mut self, greetings: &mut Greetings) {
        if let Some(key) = greetings.crowd.give_way() {
            let greeting = greetings.remove(key);
            let gave_way = &self.distributor.census().tally.gave_way;
            gave_way.fetch_add(1, Ordering::Relaxed);
            let reason = "it gave way to another one, too many are in progress";
            self.fail(greeting.guest.address, reason.into());
        }
    }

    fn advance(&mut self, greetings: &mut Greetings, key: usize) {
        let Some(greeting) = greetings.list.get_mut(key) else {
            return;
        };
        match greeting.advance() {
            Progress::Pending => {
                greetings.crowd.set_silent(greeting.ticket, !greeting.is_answered);
            }
            Progress::Failed(reason) => {
                let greeting = greetings.remove(key);
                self.fail(greeting.guest.address, reason);
            }
            Progress::Done => {
                let greeting = greetings.remove(key);
                self.give(greeting);
            }
        }
    }

    fn give(&mut self, greeting: Greeting) {
        let mut socket = greeting.guest.socket;
        // It is about to be registered with a shard's poller; failing that shows there.
        let _ = self.poller.deregister(&mut socket);
        let (tls, login_name) = describe(&greeting.connection, self.identity.login_from());
        let session = Box::new(Session::new(greeting.connection, greeting.records));
        let (address, local_address) = (greeting.guest.address, greeting.guest.local_address);
        let peer = PeerInfo { address, local_address, tls: Some(tls), login_name };
        if let Err(full) = self.distributor.give(socket, peer, Some(session)) {
            let connections_max = full.connections_max;
            let notice = Notice::ConnectionRefused { peer: address, connections_max };
            self.notices.tell(notice);
        }
    }

    fn cut_overdue(&mut self, greetings: &mut Greetings) {
        let now = self.clock.instant();
        let Admission { silence_timeout, handshake_timeout, .. } = self.admission;
        let Greetings { list, crowd } = greetings;
        list.retain(|_, greeting| {
            let limit = if greeting.is_answered { handshake_timeout } else { silence_timeout };
            let is_overdue = now.since(greeting.begun) > limit.min(handshake_timeout);
            if is_overdue {
                crowd.leave(greeting.ticket);
                self.fail(greeting.guest.address, "the handshake took too long".into());
            }
            !is_overdue
        });
    }

    fn fail(&self, peer: SocketAddr, reason: String) {
        self.notices.tell(Notice::TlsFailed { peer, reason });
    }
}

impl Greeting {
    fn advance(&mut self) -> Progress {
        let socket = &mut self.guest.socket;
        loop {
            let mut is_full = false;
            while self.connection.wants_write() && !is_full {
                match self.connection.write_tls(socket) {
                    Ok(_) => self.is_answered = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => is_full = true,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Progress::Failed(error.to_string()),
                }
            }
            if !self.connection.is_handshaking() {
                return Progress::Done;
            }
            if is_full {
                return Progress::Pending;
            }
            match self.connection.read_tls(&mut Followed(&mut *socket, &mut self.records)) {
                Ok(0) => return Progress::Failed("the peer closed the connection".into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Pending,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Progress::Failed(error.to_string()),
            }
            if let Err(error) = self.connection.process_new_packets() {
                // The alert says why; whether it arrives is no matter.
                let _ = self.connection.write_tls(socket);
                return Progress::Failed(error.to_string());
            }
            if !self.connection.wants_write() {
                // The peer may hold back the rest until this is acknowledged.
                socket.acknowledge_at_once();
            }
        }
    }
}

/// A socket whose records are followed as they are read.
struct Followed<'a>(&'a mut TcpStream, &'a mut Records);

impl Read for Followed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = Read::read(self.0, buffer)?;
        self.1.take(&buffer[..count]);
        Ok(count)
    }
}

/// What TLS tells about the peer, and the user that its certificate speaks for.
fn describe(connection: &ServerConnection, login_from: LoginFrom) -> (TlsPeer, Option<String>) {
    let version = connection
        .protocol_version()
        .and_then(|version| version.as_str().map(str::to_owned))
        .unwrap_or_default();
    let suite = connection
        .negotiated_cipher_suite()
        .and_then(|suite| suite.suite().as_str())
        .unwrap_or_default();
    let subject = connection.peer_certificates().and_then(|chain| parse_subject(chain.first()?));
    let login_name = subject.as_ref().and_then(|subject| subject.login_name(login_from));
    let peer = TlsPeer {
        protocol: format!("{} {suite}", version.replace("v1_", "v1.")),
        subject: subject.map(|s| s.name).filter(|name| !name.is_empty()),
    };
    (peer, login_name)
}
