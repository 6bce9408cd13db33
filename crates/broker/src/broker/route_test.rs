//! Where a message would go, without one.

use alloc::format;

use lepus_amqp::properties::PropertiesRef;
use lepus_base::Now;

use crate::broker::Broker;
use crate::directory::{Message, Routes};
use crate::publish::Checked;
use crate::query::{ROUTED_MAX, Reached, TestMessage};
use crate::refusal::{Refusal, RefusalKind};
use crate::routing_keys::RoutingKeys;

impl Broker {
    /// Finds the queues that a message would reach, as for one that is published. Nothing is counted.
    ///
    /// # Errors
    /// What a publish of it is refused with, but for what the user may.
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
        let found = self.directory.route(test.vhost, message, &mut self.shard.rng, &mut routes);
        self.shard.effort.spend(routes.steps());
        found?;
        let queues = routes.as_slice().iter().take(ROUTED_MAX).map(|route| route.queue).collect();
        Ok(Reached { queues, total: routes.len(), steps: routes.steps() })
    }
}
