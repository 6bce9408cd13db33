//! Clients of a [`World`]: how they connect, and each of them as a test speaks to it.

use std::net::SocketAddr;

use lepus_amqp::Method;
use lepus_amqp::client::{ClientOptions, ClientState};
use lepus_amqp::code::ReplyCode;

use crate::peer::{Closed, Peer};
use crate::world::World;

/// A client. Cheap to clone; clones are the same client.
#[derive(Clone)]
pub struct Client {
    world: World,
    index: usize,
}

/// Connections of new clients.
impl World {
    /// A client without a protocol of its own: for raw bytes.
    #[must_use]
    pub fn dial(&self, shard: u16) -> Client {
        self.add_peer(shard, None, None)
    }

    /// `guest` on vhost `/`, connected to `shard`, without heartbeats.
    ///
    /// # Panics
    /// When the broker does not let it in.
    #[must_use]
    pub fn connect(&self, shard: u16) -> Client {
        self.connect_with(shard, ClientOptions { heartbeat: 0, ..ClientOptions::default() }).open()
    }

    /// A client with these options; [`Client::is_open`] tells whether it was let in.
    #[must_use]
    pub fn connect_with(&self, shard: u16, options: ClientOptions) -> Client {
        self.add_peer(shard, None, Some(options))
    }

    /// The same from another address.
    #[must_use]
    pub fn connect_from(&self, shard: u16, address: &str, options: ClientOptions) -> Client {
        let address: SocketAddr = address.parse().expect("an address and a port");
        self.add_peer(shard, Some(address), Some(options))
    }

    /// A user on vhost `/`, connected to `shard`.
    ///
    /// # Panics
    /// When the broker does not let it in.
    #[must_use]
    pub fn connect_as(&self, shard: u16, user: &str, password: &str) -> Client {
        self.connect_with(shard, World::login(user, password, "/")).open()
    }

    /// Options of a client without heartbeats.
    #[must_use]
    pub fn login(user: &str, password: &str, vhost: &str) -> ClientOptions {
        ClientOptions {
            user: user.into(),
            password: password.into(),
            vhost: vhost.into(),
            heartbeat: 0,
            ..ClientOptions::default()
        }
    }

    fn add_peer(
        &self,
        shard: u16,
        address: Option<SocketAddr>,
        options: Option<ClientOptions>,
    ) -> Client {
        let mut state = self.0.borrow_mut();
        let wire = state.shards.connect(usize::from(shard), address);
        let (id, now) = (state.shards.last_connection(), state.shards.now().instant);
        state.peers.push(Peer::new(id, wire, options, now));
        let index = state.peers.len() - 1;
        if !state.held {
            state.settle();
        }
        Client { world: self.clone(), index }
    }
}

impl Client {
    pub(crate) fn peer<R>(&self, act: impl FnOnce(&mut Peer) -> R) -> R {
        act(&mut self.world.0.borrow_mut().peers[self.index])
    }

    fn settle(&self) {
        self.world.0.borrow_mut().settle_unless_corked(self.index);
    }

    /// The world it lives in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The client, which must have been let in.
    ///
    /// # Panics
    /// When it was not.
    #[must_use]
    pub fn open(self) -> Client {
        if !self.is_open() {
            panic!("the broker does not let the client in: {:?}", self.closed());
        }
        self
    }

    /// Whether the handshake is done and the connection serves.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.peer(|peer| peer.is_open())
    }

    /// How the connection ended, if it was closed by `connection.close`.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        self.peer(|peer| peer.closed.clone())
    }

    /// Whether the server has dropped the socket and all its bytes were read.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.peer(|peer| peer.ended)
    }

    /// Expects that the broker closed the connection with `code`; returns its text.
    ///
    /// # Panics
    /// When it did not.
    pub fn expect_closed(&self, code: ReplyCode) -> String {
        match self.closed() {
            Some(closed) if closed.code == code => closed.text,
            other => panic!("expected a close with {code:?}, found {other:?}"),
        }
    }

    /// Why the broker does not read from this connection, if it said so.
    #[must_use]
    pub fn blocked(&self) -> Option<String> {
        self.peer(|peer| peer.blocked.clone())
    }

    /// Sends a method on a channel.
    pub fn send<'a>(&self, channel: u16, method: impl Into<Method<'a>>) {
        self.world.say(self.index, channel, &method.into());
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&self, bytes: &[u8]) {
        self.peer(|peer| peer.output.extend_from_slice(bytes));
        self.settle();
    }

    /// Sends bytes as they are, the end of the client's side right behind them.
    pub fn send_last(&self, bytes: &[u8]) {
        self.peer(|peer| {
            peer.wire.arrive(bytes);
            peer.wire.end();
        });
        self.settle();
    }

    /// Sends bytes one at a time, everything coming to rest in between.
    pub fn send_bytewise(&self, bytes: &[u8]) {
        for byte in bytes {
            self.send_bytes(&[*byte]);
        }
    }

    /// What a client of raw bytes has received since the last call.
    #[must_use]
    pub fn take_bytes(&self) -> Vec<u8> {
        self.peer(|peer| std::mem::take(&mut peer.input))
    }

    /// Everything said inside goes out in one piece when it is over. What is asked for inside is
    /// not answered yet: only send there.
    pub fn together<R>(&self, talk: impl FnOnce() -> R) -> R {
        self.peer(|peer| peer.corked = true);
        let result = talk();
        self.peer(|peer| peer.corked = false);
        self.settle();
        result
    }

    /// Closes the connection in good order.
    ///
    /// # Panics
    /// When the broker does not agree.
    pub fn close(&self) {
        self.say_close();
        let closed = self.closed();
        let agreed = closed.as_ref().is_some_and(|closed| closed.code == ReplyCode::REPLY_SUCCESS);
        assert!(agreed, "the broker does not answer connection.close: {closed:?}");
    }

    /// Sends `connection.close`; the answer may come later.
    pub fn say_close(&self) {
        let now = self.world.0.borrow().shards.now().instant;
        self.peer(|peer| {
            if let Some(machine) = &mut peer.machine {
                machine.close(now, ReplyCode::REPLY_SUCCESS, "goodbye", &mut peer.output);
            }
        });
        self.settle();
    }

    /// The connection breaks without a word; what was on its way is lost.
    pub fn reset(&self) {
        self.peer(|peer| {
            peer.wire.cut();
            peer.ended = true;
        });
        self.settle();
    }

    /// The client ends its side of the stream without closing the connection.
    pub fn hang_up(&self) {
        self.peer(|peer| peer.wire.end());
        self.settle();
    }

    /// The client does not read from its socket any more.
    pub fn stop_reading(&self) {
        self.peer(|peer| peer.reading = false);
    }

    /// The client reads again.
    pub fn read_again(&self) {
        self.peer(|peer| peer.reading = true);
        self.settle();
    }

    /// Bytes that the broker sent and the client has not read.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.peer(|peer| peer.wire.waiting())
    }

    /// What the server said about itself.
    #[must_use]
    pub fn server_properties(&self) -> lepus_amqp::Table {
        self.peer(|peer| peer.machine.as_ref().map(|machine| machine.server_properties().clone()))
            .unwrap_or_default()
    }

    /// Where the protocol machine stands.
    #[must_use]
    pub fn state(&self) -> Option<ClientState> {
        self.peer(|peer| peer.machine.as_ref().map(|machine| machine.state()))
    }

    /// The balancer sends the connection to another shard.
    pub fn send_to(&self, shard: u16) {
        let id = self.peer(|peer| peer.id);
        self.world.0.borrow().shards.move_connection(id, shard);
        self.settle();
    }

    /// An operator closes the connection.
    pub fn expel(&self) {
        let id = self.peer(|peer| peer.id);
        self.world.0.borrow().shards.close_connection(id);
        self.settle();
    }

    /// The shard on which the connection lives, if any does.
    #[must_use]
    pub fn shard(&self) -> Option<u16> {
        let state = self.world.0.borrow();
        let id = state.peers[self.index].id;
        state
            .shards
            .brokers()
            .find(|broker| broker.connections.slot_of(id).is_some())
            .map(|broker| broker.shard.id.0)
    }
}
