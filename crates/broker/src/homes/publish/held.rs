//! Publishes that a transaction holds until its commit.

use lepus_amqp::properties::PropertiesRef;
use lepus_base::QueueId;

use crate::channel::{At, HeldPublish};
use crate::directory::{Message, too_far};
use crate::homes::HomeSide;
use crate::journal::LogSet;
use crate::properties::owned_headers;
use crate::publish::{Served, delay_of};
use crate::refusal::Refusal;
use crate::routing_keys::RoutingKeys;

impl HomeSide<'_> {
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
        let message = Message {
            exchange: &held.exchange,
            keys,
            properties: PropertiesRef(&held.properties),
            body: held.view().body,
            millis: self.shard.now.wall_millis,
        };
        if !self.shard.find_routes(self.directory, at.vhost, message) {
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
    pub(crate) fn check_release(&mut self, held: &HeldPublish, id: QueueId) -> Result<(), Refusal> {
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
