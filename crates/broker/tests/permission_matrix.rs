//! Every operation against every combination of rights.
//!
//! What an operation needs is written beside it as RabbitMQ documents it. Two things are stricter
//! here: a passive declare needs some right to the name, and the keys in CC and BCC are checked.

use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::properties::Properties;
use lepus_amqp::table::{Table, Value};
use lepus_broker::directory::{Request, VhostRef};
use lepus_sim::{Channel, World};

/// Patterns over names, and whether they find a name.
type Rule = (&'static str, fn(&str) -> bool);

const RULES: [Rule; 4] = [
    ("", |_| false),
    ("^q", |name| name.starts_with('q')),
    ("^x", |name| name.starts_with('x')),
    (".*", |_| true),
];

/// A right to a name.
#[derive(Clone, Debug)]
enum Right {
    Configure(&'static str),
    Write(&'static str),
    Read(&'static str),
    /// Any of the three.
    Some(&'static str),
}

use Right::{Configure, Read, Write};

struct Operation {
    what: String,
    needs: Vec<Right>,
    run: Box<dyn Fn(&Channel)>,
}

/// Queues and exchanges that are there; half of each begin with the letter of the other.
const QUEUES: [&str; 2] = ["q1", "xq"];
const EXCHANGES: [&str; 2] = ["x1", "qx"];
/// Names that are free, by the queue or exchange beside which they stand.
const NEW: [(&str, &str); 4] = [("q1", "q2"), ("xq", "xq2"), ("x1", "x2"), ("qx", "qx2")];

fn new(name: &str) -> &'static str {
    NEW.iter().find(|(old, _)| *old == name).map_or("", |(_, new)| new)
}

fn operation(what: String, needs: &[Right], run: impl Fn(&Channel) + 'static) -> Operation {
    Operation { what, needs: needs.to_vec(), run: Box::new(run) }
}

fn of_queues() -> Vec<Operation> {
    let mut all = Vec::new();
    let mut add = |what: &str, name: &str, needs: &[Right], run: Box<dyn Fn(&Channel)>| {
        all.push(operation(format!("{what} {name}"), needs, run));
    };
    for name in QUEUES {
        let other = new(name);
        let plain = |queue| queue::Declare { queue, ..Default::default() };
        add("declare", name, &[Configure(name)], Box::new(move |ann| ann.send(plain(name))));
        let run = move |ann: &Channel| ann.send(plain(other));
        add("declare", other, &[Configure(other)], Box::new(run));
        let run = move |ann: &Channel| ann.send(queue::Declare { durable: true, ..plain(other) });
        add("declare durable", other, &[Configure(other)], Box::new(run));
        let run = move |ann: &Channel| {
            ann.send(queue::Declare { exclusive: true, ..plain(other) });
            if ann.is_open() {
                ann.send(queue::Delete { queue: other, ..Default::default() });
            }
        };
        add("declare exclusive", other, &[Configure(other)], Box::new(run));
        for dead in EXCHANGES {
            let run = move |ann: &Channel| {
                let arguments = Table::new().with("x-dead-letter-exchange", dead).to_bytes();
                ann.send(queue::Declare { arguments: arguments.as_ref(), ..plain(other) });
            };
            let needs = [Configure(other), Read(other), Write(dead)];
            add(&format!("declare with dead letters to {dead}"), other, &needs, Box::new(run));
        }
        let run = move |ann: &Channel| ann.send(queue::Declare { passive: true, ..plain(name) });
        add("declare passively", name, &[Right::Some(name)], Box::new(run));
        for if_unused in [false, true] {
            let run = move |ann: &Channel| {
                ann.send(queue::Delete { queue: name, if_unused, ..Default::default() });
            };
            add("delete", name, &[Configure(name)], Box::new(run));
        }
        let run = move |ann: &Channel| ann.send(queue::Purge { queue: name, no_wait: false });
        add("purge", name, &[Read(name)], Box::new(run));
        for no_ack in [false, true] {
            let run = move |ann: &Channel| ann.send(basic::Get { queue: name, no_ack });
            add("get", name, &[Read(name)], Box::new(run));
            let run = move |ann: &Channel| {
                ann.send(basic::Consume { queue: name, no_ack, ..Default::default() });
            };
            add("consume", name, &[Read(name)], Box::new(run));
        }
    }
    let run = |ann: &Channel| ann.send(queue::Declare::default());
    add("declare", "a name of the server's", &[Configure("amq.gen-x")], Box::new(run));
    all
}

fn of_exchanges() -> Vec<Operation> {
    let mut all = Vec::new();
    let mut add = |what: &str, name: &str, needs: &[Right], run: Box<dyn Fn(&Channel)>| {
        all.push(operation(format!("{what} exchange {name}"), needs, run));
    };
    for name in EXCHANGES {
        let other = new(name);
        let plain =
            |exchange| exchange::Declare { exchange, r#type: "direct", ..Default::default() };
        add("declare", name, &[Configure(name)], Box::new(move |ann| ann.send(plain(name))));
        let run = move |ann: &Channel| ann.send(plain(other));
        add("declare", other, &[Configure(other)], Box::new(run));
        for alternate in EXCHANGES {
            let run = move |ann: &Channel| {
                let arguments = Table::new().with("alternate-exchange", alternate).to_bytes();
                ann.send(exchange::Declare { arguments: arguments.as_ref(), ..plain(other) });
            };
            let needs = [Configure(other), Read(other), Write(alternate)];
            add(&format!("declare with alternate {alternate}"), other, &needs, Box::new(run));
        }
        let run = move |ann: &Channel| {
            ann.send(exchange::Declare { passive: true, ..plain(name) });
        };
        add("declare passively", name, &[Right::Some(name)], Box::new(run));
        for if_unused in [false, true] {
            let run = move |ann: &Channel| {
                let delete = exchange::Delete { exchange: name, if_unused, ..Default::default() };
                ann.send(delete);
            };
            add("delete", name, &[Configure(name)], Box::new(run));
        }
        let run = move |ann: &Channel| ann.publish_mandatory(name, "nowhere", "x");
        add("publish mandatory to", name, &[Write(name)], Box::new(run));
        let run = move |ann: &Channel| {
            ann.tx_select();
            ann.publish(name, "nowhere", "x");
        };
        add("publish in a transaction to", name, &[Write(name)], Box::new(run));
    }
    for (name, checked) in [
        ("x1", "x1"),
        ("qx", "qx"),
        ("", "amq.default"),
        ("amq.direct", "amq.direct"),
        ("amq.topic", "amq.topic"),
    ] {
        let run = move |ann: &Channel| ann.publish(name, "nowhere", "x");
        add("publish to", name, &[Write(checked)], Box::new(run));
    }
    all
}

fn of_bindings() -> Vec<Operation> {
    let mut all = Vec::new();
    for source in ["x1", "qx", "amq.direct"] {
        for target in QUEUES {
            let needs = [Write(target), Read(source)];
            all.push(operation(format!("bind {target} to {source}"), &needs, move |ann| {
                let bind = queue::Bind { queue: target, exchange: source, ..Default::default() };
                ann.send(bind);
            }));
            all.push(operation(format!("unbind {target} from {source}"), &needs, move |ann| {
                let unbind =
                    queue::Unbind { queue: target, exchange: source, ..Default::default() };
                ann.send(unbind);
            }));
        }
        for target in EXCHANGES {
            let needs = [Write(target), Read(source)];
            all.push(operation(
                format!("bind exchange {target} to {source}"),
                &needs,
                move |ann| {
                    ann.send(exchange::Bind { destination: target, source, ..Default::default() });
                },
            ));
            let what = format!("unbind exchange {target} from {source}");
            all.push(operation(what, &needs, move |ann| {
                ann.send(exchange::Unbind { destination: target, source, ..Default::default() });
            }));
        }
    }
    all
}

/// Everything as it was before an operation.
fn restore(guest: &Channel) {
    for (_, name) in NEW {
        if QUEUES.iter().any(|queue| new(queue) == name) {
            guest.delete(name);
        } else {
            guest.delete_exchange(name);
        }
    }
    QUEUES.iter().for_each(|name| drop(guest.declare(name)));
    EXCHANGES.iter().for_each(|name| guest.exchange(name, "direct"));
}

#[test]
fn an_operation_is_allowed_where_all_rights_that_it_needs_are_given() {
    let world = World::new(2);
    let guest = world.channel(0);
    restore(&guest);
    let operations: Vec<_> =
        of_queues().into_iter().chain(of_exchanges()).chain(of_bindings()).collect();
    assert_eq!(operations.len(), 76);
    world.add_user("ann", "secret");
    let (mut allowed, mut refused) = (0, 0);
    for combination in 0..64 {
        let [configure, write, read] =
            [combination / 16, combination / 4 % 4, combination % 4].map(|rule| RULES[rule]);
        world.permit("ann", "/", configure.0, write.0, read.0);
        let client = world.connect_as(1, "ann", "secret");
        for operation in &operations {
            let is_given = |right: &Right| match right {
                Configure(name) => configure.1(name),
                Write(name) => write.1(name),
                Read(name) => read.1(name),
                Right::Some(name) => configure.1(name) || write.1(name) || read.1(name),
            };
            let expected = operation.needs.iter().all(is_given);
            let ann = client.channel();
            (operation.run)(&ann);
            let what =
                format!("{} with {:?}, {:?}, {:?}", operation.what, configure.0, write.0, read.0);
            assert_eq!(ann.is_open(), expected, "{what}");
            if expected {
                allowed += 1;
                while ann.answer().is_some() {}
                ann.close();
                restore(&guest);
            } else {
                refused += 1;
                assert_eq!(ann.expect_refused().code.0, 403, "{what}");
            }
        }
    }
    assert_eq!(allowed + refused, 64 * 76);
    assert!(allowed > 1000 && refused > 1000, "{allowed} allowed, {refused} refused");
}

/// Patterns over routing keys, and whether they find one.
const KEY_RULES: [Rule; 5] = [
    ("", |_| false),
    ("^a", |key| key.starts_with('a')),
    (".*", |_| true),
    ("^{username}\\.\\d{1,2}$", |key| {
        let digits = key.strip_prefix("a.n.").unwrap_or_default();
        (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    }),
    ("^{client_id}", |key| key.starts_with("{client_id}")),
];

/// How a message goes out or a binding is made, and which of write and read it needs.
fn way(number: usize, ann: &Channel, key: &str) -> Option<bool> {
    let with_header = |name: &str| Properties {
        headers: Some(Table::new().with(name, vec![Value::from(key)])),
        ..Default::default()
    };
    let bind =
        queue::Bind { queue: "q", exchange: "topics", routing_key: key, ..Default::default() };
    let unbind =
        queue::Unbind { queue: "q", exchange: "topics", routing_key: key, ..Default::default() };
    match number {
        0 => ann.publish("topics", key, "x"),
        1 => ann.publish_mandatory("topics", key, "x"),
        2 => ann.publish_with("topics", key, &with_header("CC"), "x"),
        3 => ann.publish_with("topics", key, &with_header("BCC"), "x"),
        4 => {
            ann.tx_select();
            ann.publish("topics", key, "x");
        }
        5 => ann.send(bind),
        6 => ann.send(unbind),
        7 => ann.send(exchange::Bind {
            destination: "to",
            source: "topics",
            routing_key: key,
            ..Default::default()
        }),
        8 => ann.send(exchange::Unbind {
            destination: "to",
            source: "topics",
            routing_key: key,
            ..Default::default()
        }),
        _ => {
            ann.publish("plain", key, "x");
            return None;
        }
    }
    Some(number < 5)
}

#[test]
fn a_topic_permission_holds_in_all_ways_to_use_a_routing_key() {
    let world = World::new(2);
    world.add_user("a.n", "secret");
    world.permit("a.n", "/", ".*", ".*", ".*");
    let guest = world.channel(0);
    guest.exchange("topics", "topic");
    guest.exchange("plain", "direct");
    guest.exchange("to", "topic");
    guest.declare("q");
    let client = world.connect_as(1, "a.n", "secret");
    for (write, read) in KEY_RULES.iter().flat_map(|write| KEY_RULES.map(|read| (*write, read))) {
        world
            .request(Request::SetTopicPermission {
                user: "a.n".into(),
                vhost: VhostRef::Name("/".into()),
                exchange: "topics".into(),
                write: write.0.into(),
                read: read.0.into(),
            })
            .unwrap();
        for key in ["a", "a.b", "b.a", "a.n.1", "a.n.12", "a.n.123", "axn.1", "{client_id}.1"] {
            for number in 0..10 {
                let ann = client.channel();
                let expected = match way(number, &ann, key) {
                    Some(true) => write.1(key),
                    Some(false) => read.1(key),
                    None => true,
                };
                let what = format!("{key} in way {number} with {:?}, {:?}", write.0, read.0);
                assert_eq!(ann.is_open(), expected, "{what}");
                if expected {
                    while ann.answer().is_some() {}
                    ann.close();
                } else {
                    assert_eq!(ann.expect_refused().code.0, 403, "{what}");
                }
            }
        }
    }
}
