//! What the driver says of the sockets of connections: accepted, bytes sent, gone.

use alloc::boxed::Box;

use lepus_base::{ConnectionId, Now};

use crate::backpressure::Cause;
use crate::connection::{Connection, ConnectionEnd, PeerInfo};
use crate::mail::Mail;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::session::amqp::Amqp;
use crate::session::{Session, Speaker};
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// A connection was accepted, whose client speaks AMQP 0-9-1 unless `other` says so.
    pub(crate) fn accept(
        &mut self,
        now: Now,
        id: ConnectionId,
        peer: PeerInfo,
        other: Option<Box<dyn Session>>,
        out: &mut Outbox,
    ) -> ConnectionSlot {
        let session = match other {
            Some(session) => Speaker::Other(session),
            None => {
                let mut options = self.shard.settings.server.clone();
                if self.directory.anonymous().is_some() {
                    options.mechanisms.push_str(" ANONYMOUS");
                }
                if peer.login_name.is_some() {
                    options.mechanisms.push_str(" EXTERNAL");
                }
                Speaker::Amqp(Box::new(Amqp::new(&options, now.instant)))
            }
        };
        let connection = Box::new(Connection::new(id, peer, session, now.wall_millis));
        let slot = ConnectionSlot(self.connections.insert(self.shard, connection));
        self.sessions.looks.arm(now, &mut self.shard.timers);
        if self.shard.stopping {
            out.close.push(slot);
        }
        slot
    }

    /// The socket took some of what was to be sent. Whether consumers that waited for that got something.
    pub(crate) fn sent(
        &mut self,
        now: Now,
        slot: ConnectionSlot,
        bytes: usize,
        out: &mut Outbox,
    ) -> bool {
        let window = self.shard.limits.send_window_bytes;
        let Some(connection) = self.connections.get_mut(slot.0) else {
            invariant!("the driver names connections that are there")
        };
        let was_streaming = connection.send.is_streaming();
        if was_streaming {
            connection.send.advance_streams(bytes, &mut self.shard.pool, &connection.session);
        } else {
            connection.send.advance(bytes);
        }
        connection.dirty = !connection.send.is_empty();
        if bytes > 0 {
            connection.octets.sent += bytes as u64;
            connection.octets.writes += 1;
            connection.session.sent(now.instant);
        }
        if was_streaming && connection.dirty && out.dirty.last() != Some(&slot) {
            // The driver was given a part and does not know that there is more.
            out.dirty.push(slot);
        }
        let is_unread = connection.paused.has(Cause::Unread);
        let has_room = connection.send.len() <= window / 2;
        self.note_trimmable(slot.0, now);
        self.connections.recount(self.shard, slot.0);
        if is_unread {
            self.connections.resume_unread(self.shard, slot.0, out);
        }
        if !has_room {
            return false;
        }
        let Some(connection) = self.connections.get_mut(slot.0) else {
            invariant!("a connection stays while its bytes are sent")
        };
        for (home, bytes) in connection.debts.drain(..) {
            let mail = Mail::Window { connection: connection.id, bytes };
            out.mail[home.index()].items.push(mail);
        }
        let has_stalled = !connection.stalled.is_empty();
        if has_stalled {
            self.resume_stalled(now, slot.0, out);
        }
        has_stalled
    }

    /// The socket is gone.
    pub(crate) fn closed(&mut self, now: Now, slot: ConnectionSlot, out: &mut Outbox) {
        let Some(connection) = self.connections.get_mut(slot.0) else {
            invariant!("the driver names connections that are there")
        };
        connection.gone = true;
        connection.send.clear(&mut self.shard.pool);
        connection.leftover_bytes = 0;
        connection.apart_bytes = 0;
        self.connections.recount(self.shard, slot.0);
        self.end_connection(now, slot.0, ConnectionEnd::Lost, out);
    }
}
