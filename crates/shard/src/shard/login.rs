//! Connections on their way in: from the acceptor to an open connection.

use lepus_base::Now;
use lepus_mesh::Signal;
use lepus_reactor::{Reactor, Socket, Token};

use super::{ARRIVALS_MAX, Shard};
use crate::connection::Connection;
use crate::core::Core;
use crate::notice::Notice;

impl<C: Core, R: Reactor> Shard<C, R> {
    /// Takes connections that the acceptor gave.
    pub(super) fn take_arrivals(&mut self, now: Now) {
        if !self.links.arrivals.is_announced() {
            return;
        }
        for _ in 0..ARRIVALS_MAX {
            let Some(arrival) = self.links.arrivals.take() else {
                return;
            };
            self.busy = true;
            if self.stopping {
                self.links.metrics.dropped.add(1);
                continue;
            }
            let is_full = arrival.replaces || self.entering.len() >= self.entering_max;
            if is_full && !self.make_room(now) && arrival.replaces {
                // Those that were to give way have logged in meanwhile.
                self.drop_arrival(arrival.peer.address, "there are as many as may be".into());
                continue;
            }
            let (mut socket, address) = (arrival.socket, arrival.peer.address);
            let entry = self.connections.vacant_entry();
            let token = entry.key() as u32;
            if let Err(error) = self.reactor.register(&mut socket, Token(token)) {
                self.drop_arrival(address, error.to_string());
                continue;
            }
            let slot = self.core.accept(now, arrival.id, arrival.peer, &mut self.out);
            let ip = address.ip();
            let mut connection = Connection::new(arrival.id, slot, ip, socket, arrival.tls);
            connection.ticket = Some(self.entering.enter(ip, token));
            entry.insert(connection);
            self.links.metrics.accepted.add(1);
            self.install(slot, token);
        }
        self.bell().post(Signal::Arrival);
    }

    fn drop_arrival(&mut self, peer: std::net::SocketAddr, reason: String) {
        self.links.notices.tell(Notice::ConnectionFailed { peer, reason });
        self.links.metrics.dropped.add(1);
    }

    /// One that has not logged in, or is at its end, gives way; whether there was one.
    fn make_room(&mut self, now: Now) -> bool {
        while let Some(token) = self.entering.give_way() {
            let connection = &mut self.connections[token as usize];
            connection.ticket = None;
            // It may have been let in without another word of its own.
            if !self.core.is_open(connection.slot) {
                self.links.metrics.gave_way.add(1);
                self.lose(now, token);
                return true;
            }
        }
        false
    }

    /// What was said last to a connection at its end is sent: all that it does is to keep a place, until
    /// its peer ends it.
    #[cold]
    pub(super) fn await_its_end(&mut self, now: Now, token: u32) {
        let connection = &mut self.connections[token as usize];
        connection.is_over = true;
        connection.ticket = Some(self.entering.enter(connection.address, token));
        while self.entering.len() > self.entering_max && self.make_room(now) {}
    }

    /// Those that have not logged in give way, one after the other, while together they hold more
    /// memory than they may.
    pub(super) fn make_room_to_enter(&mut self, now: Now) {
        for _ in 0..ARRIVALS_MAX {
            if self.entering.is_empty() || !self.core.is_crowded() || !self.make_room(now) {
                return;
            }
        }
    }

    /// The core has taken bytes of a connection that had not logged in.
    #[cold]
    pub(super) fn watch_login(&mut self, token: u32, has_spoken: bool) {
        let connection = &mut self.connections[token as usize];
        let Some(ticket) = connection.ticket else {
            return;
        };
        if self.core.bytes_to_send(connection.slot) == 0 {
            // No answer carries the acknowledgement, and the next step of the login may wait for it.
            connection.socket.acknowledge_at_once();
        }
        if self.core.is_open(connection.slot) {
            connection.ticket = None;
            self.entering.leave(ticket);
        } else if has_spoken {
            self.entering.set_silent(ticket, false);
        }
    }
}
