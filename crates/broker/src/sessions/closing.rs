//! Connections that the broker closes by itself: what they use is gone, an operator says so, or all end.

use alloc::vec::Vec;

use lepus_base::{ConnectionId, Now, ShardId};

use crate::connection::Connection;
use crate::directory::{Applied, Change};
use crate::mail::Mail;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing, State};
use crate::sessions::SessionSide;

impl SessionSide<'_> {
    /// The directory has changed: connections to what is gone are closed.
    pub(crate) fn follow_change(
        &mut self,
        now: Now,
        change: &Change,
        applied: &Applied,
        out: &mut Outbox,
    ) {
        if let Change::UserLimited { name, .. } = change {
            self.connections.user_channels().note(name);
        }
        if let Some(vhost) = applied.vhost_deleted {
            let is_in = |connection: &Connection| connection.vhost == vhost;
            self.close_connections(now, is_in, "vhost is deleted", out);
            self.connections.forget_vhost(vhost);
        }
        if let Some(user) = &applied.user_deleted {
            let is_of = |connection: &Connection| connection.user == *user;
            self.close_connections(now, is_of, "user is deleted", out);
        }
    }

    /// Closes connections for a reason of the operator's.
    pub(crate) fn close_connections(
        &mut self,
        now: Now,
        which: impl Fn(&Connection) -> bool,
        why: &str,
        out: &mut Outbox,
    ) {
        let slots: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, connection)| which(connection) && connection.end.is_none())
            .map(|(slot, _)| slot)
            .collect();
        for slot in slots {
            let refusal = Refusal::new(RefusalKind::Forced, why);
            self.fail_connection(now, slot, Closing::Refused(&refusal, Asked::Nothing), out);
        }
    }

    /// Closes one connection for a reason of the operator's, here or should it come here: to be
    /// called on every shard, since it may be between two of them. Whether it is here.
    pub(crate) fn close_connection(
        &mut self,
        now: Now,
        id: ConnectionId,
        why: &str,
        out: &mut Outbox,
    ) -> bool {
        let Some(slot) = self.connections.slot_of(id) else {
            self.sessions.departures.expel(id, why);
            return false;
        };
        let refusal = Refusal::new(RefusalKind::Forced, why);
        self.fail_connection(now, slot, Closing::Refused(&refusal, Asked::Nothing), out);
        true
    }

    /// The broker stops: all clients are told, and who has not logged in is not waited for.
    pub(crate) fn tell_shut_down(&mut self, now: Now, out: &mut Outbox) {
        let is_early =
            |(_, connection): &(u32, &Connection)| connection.session.state() != State::Running;
        let early = self.connections.iter().filter(is_early);
        out.close.extend(early.map(|(slot, _)| ConnectionSlot(slot)));
        self.close_connections(
            now,
            |connection| connection.session.state() == State::Running,
            "broker forced connection closure with reason 'shutdown'",
            out,
        );
    }

    /// Closes connections that opened on several shards at once and are too many, the newest first.
    pub(crate) fn close_surplus(&mut self, now: Now, out: &mut Outbox) {
        while let Some((connection, text)) =
            self.sessions.connection_counts.next_surplus(self.directory)
        {
            // It may be between two shards.
            out.tell_others(ShardId(0), || Mail::CloseConnection {
                connection,
                text: text.as_str().into(),
            });
            self.close_connection(now, connection, &text, out);
        }
    }
}
