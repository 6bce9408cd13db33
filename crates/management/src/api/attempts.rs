//! How often somebody tried to log in to the API.

use super::request::Caller;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Logins since somebody last set them back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Those that were let in.
    pub(crate) succeeded: u64,
    /// Those that were refused.
    pub(crate) failed: u64,
}

impl Count {
    /// What came after `before` was counted.
    fn since(self, before: Count) -> Count {
        Count {
            succeeded: self.succeeded.saturating_sub(before.succeeded),
            failed: self.failed.saturating_sub(before.failed),
        }
    }
}

/// A count, which several threads keep, and what is left out of it.
#[derive(Debug, Default)]
struct Cell {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Cell {
    fn get(&self) -> Count {
        Count { succeeded: self.succeeded.load(Relaxed), failed: self.failed.load(Relaxed) }
    }

    fn set(&self, count: Count) {
        self.succeeded.store(count.succeeded, Relaxed);
        self.failed.store(count.failed, Relaxed);
    }
}

/// Logins by protocol.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// To the API since the start.
    http: Cell,
    /// What was set back of them.
    http_before: Cell,
    /// What was set back of those over AMQP, which shards count.
    amqp_before: Cell,
}

impl Attempts {
    /// Counts a request, if it came with a login: in its header, or in its body, which only the caller can say.
    pub(crate) fn count(&self, caller: &Caller, is_in_body: bool, is_let_in: bool) {
        // A request of a session was let in before.
        let Caller::Client(client) = caller else { return };
        if client.authorization.is_none() && !is_in_body {
            return;
        }
        let counter = if is_let_in { &self.http.succeeded } else { &self.http.failed };
        counter.fetch_add(1, Relaxed);
    }

    /// By RabbitMQ's names of protocols, where `amqp` is what the shards have counted. Protocols by which nobody came are
    /// left out.
    pub(crate) fn told(&self, amqp: Count) -> Vec<(&'static str, Count)> {
        let counts = [
            ("amqp091", amqp.since(self.amqp_before.get())),
            ("http", self.http.get().since(self.http_before.get())),
        ];
        counts.into_iter().filter(|(_, count)| *count != Count::default()).collect()
    }

    /// Sets all back, where `amqp` is what the shards have counted.
    pub(crate) fn reset(&self, amqp: Count) {
        self.amqp_before.set(amqp);
        self.http_before.set(self.http.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::request::Client;

    #[test]
    fn logins_are_counted_from_when_they_were_set_back() {
        let attempts = Attempts::default();
        let with = |authorization: Option<&str>| {
            Caller::Client(Client {
                peer: ([127, 0, 0, 1], 1).into(),
                is_local: true,
                is_secure: false,
                authorization: authorization.map(str::to_owned),
                session: None,
                is_marked: false,
                path: String::new(),
            })
        };
        for (caller, is_in_body, is_let_in) in [
            (with(Some("Basic eDp5")), false, true),
            (with(None), true, false),
            // Who says nothing, and the operator, do not log in.
            (with(None), false, false),
            (Caller::Operator, true, true),
        ] {
            attempts.count(&caller, is_in_body, is_let_in);
        }
        let one = Count { succeeded: 1, failed: 1 };
        assert_eq!(attempts.told(Count::default()), [("http", one)]);
        let amqp = Count { succeeded: 5, failed: 2 };
        assert_eq!(attempts.told(amqp), [("amqp091", amqp), ("http", one)]);
        attempts.reset(amqp);
        assert_eq!(attempts.told(amqp), []);
        let more = Count { succeeded: 6, failed: 2 };
        assert_eq!(attempts.told(more), [("amqp091", Count { succeeded: 1, failed: 0 })]);
    }
}
