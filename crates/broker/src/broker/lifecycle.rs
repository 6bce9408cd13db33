//! Connections end at an operator's word, and all at the end of a run.

use crate::broker::Broker;
use crate::mail::Mail;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing, State};
use lepus_base::ShardId;
use lepus_base::{ConnectionId, Now};

impl Broker {
    /// Closes one connection for a reason of the operator's, here or should it come here: to be
    /// called on every shard, since it may be between two of them. Whether it is here.
    pub fn close_connection(
        &mut self,
        now: Now,
        id: ConnectionId,
        why: &str,
        out: &mut Outbox,
    ) -> bool {
        let Some(&slot) = self.connections.by_id.get(&id) else {
            self.connections.departures.expel(id, why);
            return false;
        };
        let refusal = Refusal::new(RefusalKind::Forced, why);
        self.session().fail_connection(now, slot, Closing::Refused(&refusal, Asked::Nothing), out);
        true
    }

    /// The broker stops: all clients are told, new ones are refused.
    pub fn shut_down(&mut self, now: Now, out: &mut Outbox) {
        self.shard.stopping = true;
        self.let_queues_stay(now, out);
        let early: alloc::vec::Vec<u32> = self
            .connections
            .all
            .iter()
            .filter(|(_, connection)| connection.session.state() != State::Running)
            .map(|(slot, _)| slot as u32)
            .collect();
        out.close.extend(early.into_iter().map(ConnectionSlot));
        self.session().close_connections(
            now,
            |connection| connection.session.state() == State::Running,
            "broker forced connection closure with reason 'shutdown'",
            out,
        );
    }

    /// Closes connections that opened on several shards at once and are too many, the newest first.
    pub(crate) fn close_surplus(&mut self, now: Now, out: &mut Outbox) {
        while let Some((connection, text)) = self.connections.census.next_surplus(&self.directory) {
            // It may be between two shards.
            out.tell_others(ShardId(0), || Mail::CloseConnection {
                connection,
                text: text.as_str().into(),
            });
            self.close_connection(now, connection, &text, out);
        }
    }
}
