//! Which queue a key leads to, and who consumes from it.

use std::collections::HashMap;

/// Index of a queue.
pub type QueueIndex = usize;

/// Who gets a message: the place of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerKey {
    /// The consumer's session.
    pub session: usize,
    /// Its place among the session's consumers.
    pub consumer: usize,
}

#[derive(Debug, Default)]
struct Queue {
    consumers: Vec<ConsumerKey>,
    /// The place of the consumer whose turn it is.
    turn: usize,
}

/// Exchanges, queues and bindings; nothing is ever forgotten but consumers.
#[derive(Debug, Default)]
pub struct Routes {
    queues: Vec<Queue>,
    names: HashMap<String, QueueIndex>,
    /// Whether an exchange looks at the key; missing exchanges do.
    fanouts: HashMap<String, bool>,
    /// Queues by exchange, then by key; a fanout has all of them under the empty key.
    bindings: HashMap<String, HashMap<String, Vec<QueueIndex>>>,
    /// Raised with every change, for caches of routes.
    version: u64,
}

impl Routes {
    /// Raised with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Remembers what kind of exchange this is.
    pub fn declare_exchange(&mut self, name: &str, kind: &str) {
        self.fanouts.insert(name.to_owned(), kind == "fanout");
        self.version += 1;
    }

    /// The queue of that name, made when it is new.
    pub fn queue(&mut self, name: &str) -> QueueIndex {
        if let Some(index) = self.names.get(name) {
            return *index;
        }
        let index = self.queues.len();
        self.queues.push(Queue::default());
        self.names.insert(name.to_owned(), index);
        self.version += 1;
        index
    }

    /// Number of queues so far.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Lets the key of the exchange lead to the queue, once.
    pub fn bind(&mut self, exchange: &str, key: &str, queue: &str) {
        let queue = self.queue(queue);
        let key = if self.is_fanout(exchange) { "" } else { key };
        let keys = self.bindings.entry(exchange.to_owned()).or_default();
        let queues = keys.entry(key.to_owned()).or_default();
        if !queues.contains(&queue) {
            queues.push(queue);
        }
        self.version += 1;
    }

    /// Writes the queues that the key of the exchange leads to into `found`.
    pub fn route(&self, exchange: &str, key: &str, found: &mut Vec<QueueIndex>) {
        found.clear();
        if exchange.is_empty() {
            found.extend(self.names.get(key));
            return;
        }
        let key = if self.is_fanout(exchange) { "" } else { key };
        if let Some(queues) = self.bindings.get(exchange).and_then(|keys| keys.get(key)) {
            found.extend(queues);
        }
    }

    fn is_fanout(&self, exchange: &str) -> bool {
        self.fanouts.get(exchange).copied().unwrap_or(false)
    }

    /// Adds a consumer to the queue.
    pub fn consume(&mut self, queue: &str, consumer: ConsumerKey) {
        let queue = self.queue(queue);
        self.queues[queue].consumers.push(consumer);
    }

    /// The consumer whose turn it is.
    #[inline]
    pub fn next_consumer(&mut self, queue: QueueIndex) -> Option<ConsumerKey> {
        let queue = &mut self.queues[queue];
        if queue.turn >= queue.consumers.len() {
            queue.turn = 0;
        }
        let consumer = queue.consumers.get(queue.turn).copied();
        queue.turn += 1;
        consumer
    }

    /// Takes away all consumers that `gone` names.
    pub fn remove_consumers(&mut self, gone: impl Fn(ConsumerKey) -> bool) {
        for queue in &mut self.queues {
            queue.consumers.retain(|consumer| !gone(*consumer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumers_take_turns() {
        let mut routes = Routes::default();
        let keys = [1, 2].map(|session| ConsumerKey { session, consumer: 0 });
        for key in keys {
            routes.consume("q", key);
        }
        let queue = routes.queue("q");
        let turns: Vec<_> = (0..4).map(|_| routes.next_consumer(queue)).collect();
        assert_eq!(turns, [keys[0], keys[1], keys[0], keys[1]].map(Some));
        routes.remove_consumers(|key| key == keys[0]);
        assert_eq!(routes.next_consumer(queue), Some(keys[1]));
    }

    #[test]
    fn keys_lead_to_queues() {
        let mut routes = Routes::default();
        routes.declare_exchange("all", "fanout");
        routes.bind("all", "a", "one");
        routes.bind("all", "b", "two");
        routes.bind("direct", "a", "one");
        let mut found = Vec::new();
        routes.route("all", "whatever", &mut found);
        assert_eq!(found, [0, 1]);
        routes.route("direct", "a", &mut found);
        assert_eq!(found, [0]);
        routes.route("direct", "b", &mut found);
        assert!(found.is_empty());
        routes.route("", "two", &mut found);
        assert_eq!(found, [1]);
    }
}
