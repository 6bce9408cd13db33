//! The directory as its users see it.

mod accounts;
mod bindings;
mod declarations;
mod determinism;
mod durable;
mod filters;
mod lists;
mod policies;
mod size;
mod slices;

use super::*;
use crate::binding::Destination;
use crate::user::digests;
use crate::*;
use alloc::format;
use alloc::string::String;
use lepus_amqp::properties::PropertiesRef;
use lepus_amqp::table::Table;
use lepus_base::{Rng, ShardId};
use lepus_queue::refusal::RefusalKind;

/// A directory with the virtual host `/`, and the hand that orders its changes.
struct Fixture {
    directory: Directory,
    routes: Routes,
    rng: Rng,
    changes: Vec<Change>,
}

type Outcome = Result<Option<Applied>, (RefusalKind, String)>;

impl Fixture {
    fn new() -> Fixture {
        Fixture::with_shards(1)
    }

    fn with_shards(shards: u16) -> Fixture {
        let mut fixture = Fixture {
            directory: Directory::new(HashState::new(7), shards),
            routes: Routes::default(),
            rng: Rng::new(1),
            changes: Vec::new(),
        };
        for change in Directory::preset("guest", b"guest", [1, 2, 3, 4], "/") {
            fixture.directory.apply(&change);
            fixture.changes.push(change);
        }
        fixture
    }

    fn vhost(&self) -> VhostId {
        self.directory.vhost("/").unwrap()
    }

    /// `None`: everything was so already.
    fn ask(&mut self, request: &Request) -> Outcome {
        match self.directory.check(request) {
            Ok(Checked::Already(_)) => Ok(None),
            Ok(Checked::Change(change)) => {
                let applied = self.directory.apply(&change);
                self.changes.push(change);
                Ok(Some(applied))
            }
            Err(refusal) => Err((refusal.kind, refusal.into_reply())),
        }
    }

    fn does(&mut self, request: &Request) -> Applied {
        match self.ask(request) {
            Ok(Some(applied)) => applied,
            other => panic!("{request:?} gave {other:?}"),
        }
    }

    fn exchange(&mut self, name: &str, kind: &str) {
        self.does(&declare_exchange(name, kind));
    }

    fn queue(&mut self, name: &str) -> QueueId {
        self.does(&declare_queue(name)).queues_created[0]
    }

    fn bind(&mut self, source: &str, destination: &str, key: &str) {
        self.does(&bind(source, destination, key));
    }

    /// Names of the queues that a message reaches, sorted.
    fn reached(&mut self, exchange: &str, key: &str) -> Vec<String> {
        self.reached_with(exchange, key, &Table::new())
    }

    fn reached_with(&mut self, exchange: &str, key: &str, headers: &Table) -> Vec<String> {
        self.reached_by(exchange, key, headers, b"")
    }

    fn reached_by(
        &mut self,
        exchange: &str,
        key: &str,
        headers: &Table,
        body: &[u8],
    ) -> Vec<String> {
        let properties = lepus_amqp::properties::Properties {
            headers: Some(headers.clone()),
            ..Default::default()
        };
        let properties = properties.to_bytes();
        self.routes.clear();
        let vhost = self.vhost();
        let properties = PropertiesRef(&properties);
        let message = Message { exchange, keys: key.into(), properties, body, millis: 1_000 };
        self.directory.route(vhost, message, &mut self.rng, &mut self.routes).unwrap();
        let routes = self.routes.as_slice();
        assert!(routes.is_sorted_by(|one, two| one.queue < two.queue));
        let name = |route: &Route| self.directory.queue_by_id(route.queue).unwrap().name();
        let mut names: Vec<String> = routes.iter().map(|route| name(route).into()).collect();
        names.sort();
        names
    }
}

fn declare_exchange(name: &str, kind: &str) -> Request {
    Request::DeclareExchange {
        vhost: "/".into(),
        name: name.into(),
        kind: kind.into(),
        durable: false,
        auto_delete: false,
        internal: false,
        arguments: Table::new(),
    }
}

fn declare_queue(name: &str) -> Request {
    Request::DeclareQueue {
        vhost: "/".into(),
        name: name.into(),
        server_named: false,
        durable: false,
        exclusive: None,
        auto_delete: false,
        arguments: Table::new(),
        declared_on: ShardId(0),
        user: "guest".into(),
    }
}

/// Names of exchanges begin with `x` or `amq.` in these tests, those of queues do not.
fn destination(name: &str) -> Destination {
    if name.starts_with('x') || name.starts_with("amq.") {
        Destination::Exchange(name.into())
    } else {
        Destination::Queue(name.into())
    }
}

fn bind(source: &str, to: &str, key: &str) -> Request {
    bind_with(source, to, key, Table::new())
}

fn bind_with(source: &str, to: &str, key: &str, arguments: Table) -> Request {
    Request::Bind {
        vhost: "/".into(),
        source: source.into(),
        destination: destination(to),
        routing_key: key.into(),
        arguments,
        connection: Some(ConnectionId(1)),
    }
}

fn unbind(source: &str, to: &str, key: &str) -> Request {
    unbind_with(source, to, key, Table::new())
}

fn unbind_with(source: &str, to: &str, key: &str, arguments: Table) -> Request {
    Request::Unbind {
        vhost: "/".into(),
        source: source.into(),
        destination: destination(to),
        routing_key: key.into(),
        arguments,
        connection: Some(ConnectionId(1)),
    }
}

fn delete_exchange(name: &str, if_unused: bool) -> Request {
    Request::DeleteExchange { vhost: "/".into(), name: name.into(), if_unused }
}

/// A refusal's code and whole text.
fn refusal(kind: RefusalKind, text: &str) -> Outcome {
    Err((kind, text.into()))
}
