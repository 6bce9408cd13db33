//! How connections and channels begin and end.

use lepus_base::{ConnectionId, Now};

use crate::broker::Broker;
use crate::outbox::{ConnectionSlot, Outbox};
use crate::refusal::{Refusal, RefusalKind};
use crate::session::{Asked, Closing, State};

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
}
