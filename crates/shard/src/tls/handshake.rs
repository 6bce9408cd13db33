//! TLS handshakes, on a thread of their own: they cost a shard's time for thousands of messages.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use lepus_base::{Instant, Slab};
use lepus_reactor::{Poller, Reactor, Readiness, TcpStream, Token};
use rustls::ServerConnection;

use super::{Identity, Session, parse_subject};
use crate::acceptor::Gate;
use crate::clock::Clock;
use crate::core::TlsPeer;
use crate::distributor::Distributor;
use crate::notice::{Notice, Notices};

/// Handshakes in progress at once; others wait for their turn.
const HANDSHAKES_MAX: usize = 256;
/// How long a peer may take from the accept to the end of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often overdue handshakes are looked for.
const CHECK: Duration = Duration::from_millis(250);

/// A connection that is to be encrypted.
pub(crate) struct Handshake {
    pub(crate) socket: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) local_address: SocketAddr,
    pub(crate) accepted: Instant,
}

/// A handshake in progress.
struct Greeting {
    handshake: Handshake,
    connection: ServerConnection,
}

enum Progress {
    Pending,
    Done,
    Failed(String),
}

/// The thread that greets TLS clients and gives them to the shards.
pub(crate) struct Greeter<E> {
    pub(crate) poller: Poller,
    pub(crate) inbox: Receiver<Handshake>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) distributor: Arc<Distributor<TcpStream>>,
    pub(crate) notices: Notices<E>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) clock: Clock,
}

impl<E> Greeter<E> {
    /// Works until the gate is closed for good.
    ///
    /// # Panics
    /// When the readiness queue fails.
    pub(crate) fn run(mut self) {
        let mut greetings: Slab<Greeting> = Slab::new();
        let mut ready: Vec<Readiness> = Vec::new();
        while !self.gate.is_stopped() {
            let timeout = (!greetings.is_empty()).then_some(CHECK);
            if let Err(error) = self.poller.poll(timeout, &mut ready) {
                panic!("the readiness queue of the TLS thread fails: {error}");
            }
            for event in ready.drain(..) {
                self.advance(&mut greetings, event.token.0 as usize);
            }
            self.cut_overdue(&mut greetings);
            self.begin(&mut greetings);
            self.distributor.ring();
        }
    }

    /// Takes waiting connections while there is room.
    fn begin(&mut self, greetings: &mut Slab<Greeting>) {
        while greetings.len() < HANDSHAKES_MAX {
            let Ok(mut handshake) = self.inbox.try_recv() else {
                return;
            };
            let entry = greetings.vacant_entry();
            let key = entry.key();
            let connection = ServerConnection::new(self.identity.current());
            let registered = self.poller.register(&mut handshake.socket, Token(key as u32));
            match (connection, registered) {
                (Ok(connection), Ok(())) => {
                    entry.insert(Greeting { handshake, connection });
                    self.advance(greetings, key);
                }
                (Err(error), _) => self.fail(&handshake, error.to_string()),
                (_, Err(error)) => self.fail(&handshake, error.to_string()),
            }
        }
    }

    fn advance(&mut self, greetings: &mut Slab<Greeting>, key: usize) {
        let Some(greeting) = greetings.get_mut(key) else {
            return;
        };
        match greeting.advance() {
            Progress::Pending => {}
            Progress::Failed(reason) => {
                let greeting = greetings.remove(key);
                self.fail(&greeting.handshake, reason);
            }
            Progress::Done => {
                let mut greeting = greetings.remove(key);
                // It is about to be registered with a shard's poller; failing that shows there.
                let _ = self.poller.deregister(&mut greeting.handshake.socket);
                let peer = describe(&greeting.connection);
                let session = Box::new(Session::new(greeting.connection));
                let handshake = greeting.handshake;
                self.distributor.give(
                    handshake.socket,
                    handshake.address,
                    handshake.local_address,
                    Some((session, peer)),
                );
                self.leave();
            }
        }
    }

    fn cut_overdue(&mut self, greetings: &mut Slab<Greeting>) {
        let now = self.clock.instant();
        greetings.retain(|_, greeting| {
            let is_overdue = now.since(greeting.handshake.accepted) > HANDSHAKE;
            if is_overdue {
                self.fail(&greeting.handshake, "the handshake took too long".into());
            }
            !is_overdue
        });
    }

    fn fail(&self, handshake: &Handshake, reason: String) {
        let peer = handshake.address;
        let _ = self.notices.send(Notice::TlsFailed { peer, reason });
        self.leave();
    }

    fn leave(&self) {
        let greeting = &self.distributor.census().greeting;
        greeting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Greeting {
    fn advance(&mut self) -> Progress {
        let socket = &mut self.handshake.socket;
        loop {
            let mut is_full = false;
            while self.connection.wants_write() && !is_full {
                match self.connection.write_tls(socket) {
                    Ok(_) => {}
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
            match self.connection.read_tls(socket) {
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
        }
    }
}

fn describe(connection: &ServerConnection) -> TlsPeer {
    let version = connection
        .protocol_version()
        .and_then(|version| version.as_str().map(str::to_owned))
        .unwrap_or_default();
    let suite = connection
        .negotiated_cipher_suite()
        .and_then(|suite| suite.suite().as_str())
        .unwrap_or_default();
    let subject = connection.peer_certificates().and_then(|chain| parse_subject(chain.first()?));
    TlsPeer {
        protocol: format!("{} {suite}", version.replace("v1_", "v1.")),
        common_name: subject.as_ref().and_then(|s| s.common_name.clone()),
        subject: subject.map(|s| s.name).filter(|name| !name.is_empty()),
    }
}
