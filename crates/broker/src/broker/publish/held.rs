//! Publishes that a transaction holds until its commit.

use alloc::format;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::{Now, QueueId};

use crate::broker::Broker;
use crate::channel::{At, HeldPublish};
use crate::directory::too_far;
use crate::journal::LogSet;
use crate::outbox::Outbox;
use crate::properties::owned_headers;
use crate::publish::{Checked, Served, delay_of};
use crate::refusal::{Refusal, RefusalKind};
use crate::routing_keys::RoutingKeys;
use crate::session::Publish;

/// The part of the memory that a connection's transactions may hold while it is short.
const TX_PART: usize = 16;

impl Broker {
    /// Keeps a publish for the commit. While memory is short its client is held back as others are,
    /// unless its transactions are a good part of what takes it: nobody else could give that back.
    pub(super) fn hold_publish(
        &mut self,
        at: At,
        publish: &Publish<'_>,
        checked: Checked<'_>,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let limit = self.shard.limits.tx_bytes_max;
        let memory_max = self.shard.loan.bytes;
        let is_short = self.shard.memory() > memory_max && self.shard.loan.is_all();
        let connection = &mut self.sessions.connections[at.slot as usize];
        let held_bytes = connection.tx_bytes;
        let Some(tx) = connection.incarnation(at.channel.channel).and_then(|c| c.tx.as_mut())
        else {
            return Ok(());
        };
        let persistent = checked.persistent;
        let held = checked.hold(publish);
        let bytes = held.memory_bytes();
        if tx.bytes + bytes > limit {
            let text = format!("transaction holds more than {limit} bytes; commit more often");
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        if is_short && held_bytes > memory_max / TX_PART {
            let text = format!(
                "transactions of this connection hold {held_bytes} bytes and memory is short; commit more often"
            );
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        tx.publish(held, persistent);
        connection.tx_bytes += bytes;
        self.press_back(at.slot, out);
        Ok(())
    }

    /// Publishes what a transaction held; with `has_room` in one go, since the logs have room for
    /// it. How far it is, and how many queues get it.
    pub(crate) fn publish_held(
        &mut self,
        now: Now,
        at: At,
        held: &HeldPublish,
        has_room: bool,
        out: &mut Outbox,
    ) -> (Served, usize) {
        let publish = Publish {
            exchange: &held.exchange,
            routing_key: &held.routing_key,
            mandatory: held.mandatory,
            immediate: false,
            properties: &held.properties,
            body: &held.body,
        };
        self.route_and_publish(now, at, &publish, Checked::held(held, has_room), out)
    }

    /// Logs of this shard that may have something of a message that reaches the queues that were counted
    /// last.
    pub(crate) fn logs_of_routes(&self) -> LogSet {
        let own = self.shard.id;
        if self.journal.len() == 1 || !self.shard.routes.is_cacheable() {
            // Chance may decide anew, or it is held back here.
            return LogSet::ALL;
        }
        let mut logs = LogSet::default();
        for route in self.shard.routes.as_slice().iter().filter(|route| route.home == own) {
            self.log_of(route.queue).into_iter().for_each(|log| logs.add(log));
        }
        logs
    }

    /// Counts the queues that a held publish reaches, by shard. Whether another one with the same
    /// exchange and key reaches the same ones.
    ///
    /// # Errors
    /// 406 where routing it takes more steps than a message may.
    pub(crate) fn count_queues(
        &mut self,
        at: At,
        held: &HeldPublish,
        queues: &mut [usize],
    ) -> Result<bool, Refusal> {
        queues.fill(0);
        let keys = RoutingKeys { first: &held.routing_key, further: &held.extra_keys };
        if !self.find_routes(at.vhost, &held.exchange, keys, &held.properties) {
            return Err(too_far(&held.exchange, self.shard.routes.steps_max()));
        }
        for route in self.shard.routes.as_slice() {
            queues[route.home.index()] += 1;
        }
        let exchange = self.directory.exchange(at.vhost, &held.exchange);
        if let Some(id) = exchange.and_then(|exchange| exchange.holding) {
            self.check_release(held, id)?;
            // It is logged here if it is held back, and there if not.
            queues[self.shard.id.index()] += 1;
            return Ok(false);
        }
        Ok(self.shard.routes.is_cacheable() && held.extra_keys.is_empty())
    }

    /// Whether a held publish that was routed last can be passed on when the delayed exchange that it names has held it
    /// back, if that is to do so.
    ///
    /// # Errors
    /// 406 where it never could.
    fn check_release(&mut self, held: &HeldPublish, id: QueueId) -> Result<(), Refusal> {
        let properties = PropertiesRef(&held.properties);
        let is_delayed = delay_of(&owned_headers(properties)).is_ok_and(|delay| delay.is_some());
        if !is_delayed {
            return Ok(());
        }
        match self.segments_to_hold_back(id, &held.view(), properties.is_persistent()) {
            Err(bytes) => Served::NeverReleased(bytes).check(&held.exchange),
            Ok(_) => Ok(()),
        }
    }
}
