//! Where a message would go, without one.

use alloc::format;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;

use crate::broker::Broker;
use crate::directory::{Message, Routes, too_far};
use crate::publish::Checked;
use crate::query::{ROUTED_MAX, Reached, TestMessage};
use crate::refusal::{Refusal, RefusalKind};
use crate::routing_keys::RoutingKeys;

impl Broker {
    /// Finds the queues that a message would reach. Nothing is counted.
    ///
    /// # Errors
    /// 404 where there is no such exchange, 406 for headers by which no message is routed, and for one whose way takes too long.
    pub(super) fn test_route(&mut self, now: Now, test: &TestMessage) -> Result<Reached, Refusal> {
        let properties = PropertiesRef(&test.properties);
        let mut checked = Checked::plain(&test.properties, 0);
        checked.read_headers(properties, true)?;
        let (keys, keys_max) = (checked.extra_keys.len(), self.shard.limits.copy_keys_max);
        if keys > keys_max {
            let text = format!("{keys} further routing keys in headers; {keys_max} are allowed");
            return Err(Refusal::new(RefusalKind::PreconditionFailed, text));
        }
        let message = Message {
            exchange: &test.exchange,
            keys: RoutingKeys { first: &test.routing_key, further: &checked.extra_keys },
            properties,
            body: &test.body,
            millis: now.wall_millis,
        };
        let mut routes = Routes::new(self.shard.routes.steps_max());
        // Also through an exchange that takes messages from other exchanges only: that is asked, too.
        let rng = &mut self.shard.rng;
        let is_there = self.directory.route_dead_letter(test.vhost, message, rng, &mut routes);
        self.shard.effort.spend(routes.steps());
        if !is_there {
            let text = format!("no exchange '{}'", test.exchange);
            return Err(Refusal::new(RefusalKind::NotFound, text));
        }
        if routes.are_too_far() {
            return Err(too_far(&test.exchange, routes.steps_max()));
        }
        let queues = routes.as_slice().iter().take(ROUTED_MAX).map(|route| route.queue).collect();
        Ok(Reached { queues, total: routes.len(), given_up: routes.take_filters_given_up() })
    }
}
