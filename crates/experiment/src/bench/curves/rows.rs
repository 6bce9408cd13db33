//! The curves: what is there, and what is done with it.

use super::load::{Load, Message};
use lepus_amqp::method::{basic, exchange, queue};
use lepus_amqp::{Method, Table};
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// One curve.
pub struct Curve {
    /// The name on the command line.
    pub name: &'static str,
    /// What an operation is, in a line.
    pub title: &'static str,
    /// What the sizes count.
    pub unit: &'static str,
    /// From small to large.
    pub sizes: &'static [u64],
    /// Whether all of them are measured, whatever the largest is that was asked for.
    pub is_whole: bool,
    /// Whether a broker that keeps nothing can do it: the null broker shows then what the protocol and the system cost.
    pub has_floor: bool,
    /// Prepares that size, calls [`Load::begin`], and says how many operations it did then.
    pub run: fn(&mut Load, u64) -> io::Result<u64>,
}

const HUNDREDS: &[u64] = &[100, 1_000, 10_000, 100_000];
const THOUSANDS: &[u64] = &[1_000, 10_000, 100_000, 1_000_000];
const BODY: [u8; 16] = [b'x'; 16];
/// Messages of a load whose size is something else.
const MESSAGES: u64 = 500_000;
const QUEUE: &str = "curve";
/// Of a queue with priorities.
const PRIORITIES: u8 = 5;
/// Transient, as encoded: the flag of the delivery mode, then 1.
const TRANSIENT: [u8; 3] = [0x10, 0, 1];

/// All curves.
pub const CURVES: [Curve; 14] = [
    Curve {
        name: "keys",
        title: "publish to the default exchange, the queues in turn",
        unit: "queues",
        sizes: HUNDREDS,
        is_whole: false,
        has_floor: false,
        run: keys,
    },
    Curve {
        name: "priority",
        title: "publish with a priority to a plain queue",
        unit: "messages",
        sizes: THOUSANDS,
        is_whole: false,
        has_floor: false,
        run: |load, size| publishes(load, size, &Table::new(), with_priority),
    },
    Curve {
        name: "header",
        title: "publish with a header to a plain queue",
        unit: "messages",
        sizes: THOUSANDS,
        is_whole: false,
        has_floor: false,
        run: |load, size| publishes(load, size, &Table::new(), with_header),
    },
    Curve {
        name: "priority-queue",
        title: "publish to a queue with priorities",
        unit: "messages",
        sizes: THOUSANDS,
        is_whole: false,
        has_floor: false,
        run: |load, size| publishes(load, size, &priorities(), with_priority),
    },
    Curve {
        name: "priority-drain",
        title: "deliver from a queue with priorities, without acknowledgements",
        unit: "messages",
        sizes: THOUSANDS,
        is_whole: false,
        has_floor: false,
        run: priority_drain,
    },
    Curve {
        name: "headers-any",
        title: "publish to a headers exchange with `any` bindings of which one fits",
        unit: "bindings",
        sizes: &[100, 1_000, 10_000],
        is_whole: false,
        has_floor: false,
        run: |load, size| headers(load, size, "any"),
    },
    Curve {
        name: "headers-all",
        title: "publish to a headers exchange with `all` bindings of which one fits",
        unit: "bindings",
        sizes: &[100, 1_000, 10_000],
        is_whole: false,
        has_floor: false,
        run: |load, size| headers(load, size, "all"),
    },
    Curve {
        name: "topic",
        title: "publish to a topic exchange with bindings of which one fits",
        unit: "bindings",
        sizes: &[1_000, 10_000, 100_000, 1_000_000],
        is_whole: false,
        has_floor: false,
        run: topic,
    },
    Curve {
        name: "expiry",
        title: "messages that expire together and are dead-lettered",
        unit: "messages",
        sizes: &[10_000, 100_000],
        is_whole: false,
        has_floor: false,
        run: expiry,
    },
    Curve {
        name: "large",
        title: "a message published and delivered",
        unit: "bytes",
        sizes: &[16_384, 262_144, 1 << 20, 4 << 20, 16 << 20, 64 << 20],
        is_whole: true,
        has_floor: true,
        run: large,
    },
    Curve {
        name: "connect",
        title: "connect, open a channel, close",
        unit: "connections",
        sizes: &[2_000],
        is_whole: true,
        has_floor: true,
        run: connects,
    },
    Curve {
        name: "get",
        title: "basic.get, one at a time",
        unit: "messages",
        sizes: &[20_000],
        is_whole: true,
        has_floor: false,
        run: gets,
    },
    Curve {
        name: "redeclare",
        title: "declare a queue that is there, one at a time",
        unit: "declares",
        sizes: &[20_000],
        is_whole: true,
        has_floor: true,
        run: redeclares,
    },
    Curve {
        name: "backlog",
        title: "publish to a plain queue that nobody reads",
        unit: "messages",
        sizes: &[10_000, 100_000, 1_000_000, 10_000_000],
        is_whole: false,
        has_floor: false,
        run: |load, size| publishes(load, size, &Table::new(), |_| TRANSIENT.to_vec()),
    },
];

fn priorities() -> Table {
    Table::new().with("x-max-priority", PRIORITIES)
}

fn with_priority(number: u64) -> Vec<u8> {
    vec![0x18, 0, 1, (number % u64::from(PRIORITIES)) as u8]
}

fn with_header(number: u64) -> Vec<u8> {
    with_headers(&Table::new().with("number", number as i64))
}

fn with_headers(headers: &Table) -> Vec<u8> {
    let mut properties = vec![0x30, 0];
    headers.encode(&mut properties);
    properties.push(1);
    properties
}

fn to_queue<'a>(key: &'a str, properties: &'a [u8]) -> Message<'a> {
    Message { exchange: "", key, properties, body: &BODY }
}

fn names(count: u64) -> Vec<String> {
    (0..count).map(|number| format!("{QUEUE}-{number}")).collect()
}

fn keys(load: &mut Load, size: u64) -> io::Result<u64> {
    let names = names(size);
    load.ask_each(size, "queue.declare-ok", |peer, channel, number| {
        let queue = &names[number as usize];
        peer.send(channel, queue::Declare { queue, ..Default::default() });
    })?;
    let rounds = MESSAGES.div_ceil(size);
    load.begin()?;
    for _ in 0..rounds {
        for name in &names {
            load.publish(to_queue(name, &TRANSIENT))?;
        }
    }
    load.await_count(&names[names.len() - 1], rounds)?;
    Ok(rounds * size)
}

/// Fills queues with so many messages each: as many queues as make a load that can be measured.
fn publishes(
    load: &mut Load,
    size: u64,
    arguments: &Table,
    properties: fn(u64) -> Vec<u8>,
) -> io::Result<u64> {
    let queues = names(MESSAGES.div_ceil(size));
    for queue in &queues {
        load.declare(queue, arguments)?;
    }
    load.begin()?;
    for queue in &queues {
        for number in 0..size {
            load.publish(to_queue(queue, &properties(number)))?;
        }
    }
    load.await_count(&queues[queues.len() - 1], size)?;
    Ok(size * queues.len() as u64)
}

fn priority_drain(load: &mut Load, size: u64) -> io::Result<u64> {
    let queues = names(MESSAGES.div_ceil(size));
    for queue in &queues {
        load.declare(queue, &priorities())?;
        for number in 0..size {
            load.publish(to_queue(queue, &with_priority(number)))?;
        }
        load.await_count(queue, size)?;
    }
    load.begin()?;
    for queue in &queues {
        load.consume(queue, size)?;
    }
    Ok(size * queues.len() as u64)
}

/// Declares an exchange and binds one queue to it so many times.
fn bindings(
    load: &mut Load,
    size: u64,
    kind: &str,
    binding: impl Fn(u64) -> (String, Table),
) -> io::Result<()> {
    load.declare(QUEUE, &Table::new())?;
    let declare = exchange::Declare { exchange: QUEUE, r#type: kind, ..Default::default() };
    load.ask(declare, "exchange.declare-ok")?;
    load.ask_each(size, "queue.bind-ok", |peer, channel, number| {
        let (key, arguments) = binding(number);
        let encoded = arguments.to_bytes();
        let bind = queue::Bind {
            queue: QUEUE,
            exchange: QUEUE,
            routing_key: &key,
            arguments: encoded.as_ref(),
            ..Default::default()
        };
        peer.send(channel, bind);
    })
}

/// Publishes of a load whose brokers may look at each binding: fewer for more of them.
fn fewer(size: u64) -> u64 {
    (100_000_000 / size).clamp(1_000, 100_000)
}

fn headers(load: &mut Load, size: u64, matching: &str) -> io::Result<u64> {
    bindings(load, size, "headers", |number| {
        let arguments = Table::new().with("x-match", matching).with("number", number as i64);
        (String::new(), arguments)
    })?;
    let count = fewer(size);
    load.begin()?;
    for number in 0..count {
        let properties = with_header(number % size);
        let message = Message { exchange: QUEUE, key: "", properties: &properties, body: &BODY };
        load.publish(message)?;
    }
    load.await_count(QUEUE, count)?;
    Ok(count)
}

fn topic(load: &mut Load, size: u64) -> io::Result<u64> {
    bindings(load, size, "topic", |number| (format!("a{number}.*.c"), Table::new()))?;
    let count = fewer(size).max(10_000);
    load.begin()?;
    for number in 0..count {
        // A large odd step: neighbours are not asked for one behind the other.
        let key = format!("a{}.b.c", number * 7_919 % size);
        let message = Message { exchange: QUEUE, key: &key, properties: &TRANSIENT, body: &BODY };
        load.publish(message)?;
    }
    load.await_count(QUEUE, count)?;
    Ok(count)
}

fn expiry(load: &mut Load, size: u64) -> io::Result<u64> {
    const DEAD: &str = "curve-dead";
    let lives = Duration::from_secs(8);
    load.declare(DEAD, &Table::new())?;
    let arguments = Table::new()
        .with("x-message-ttl", lives.as_millis() as i64)
        .with("x-dead-letter-exchange", "")
        .with("x-dead-letter-routing-key", DEAD);
    load.declare(QUEUE, &arguments)?;
    let start = Instant::now();
    for number in 0..size {
        load.publish(to_queue(QUEUE, &with_header(number)))?;
    }
    load.await_count(QUEUE, size)?;
    load.begin()?;
    if start.elapsed() > lives {
        return Err(io::Error::other("some expired before all were there"));
    }
    // Asking costs the broker something, too.
    sleep(lives.saturating_sub(start.elapsed()));
    load.await_count(DEAD, size)?;
    Ok(size)
}

fn large(load: &mut Load, size: u64) -> io::Result<u64> {
    let count = ((512 << 20) / size).clamp(4, 1_000);
    let body = vec![b'x'; size as usize];
    load.declare(QUEUE, &Table::new())?;
    let consume = basic::Consume { queue: QUEUE, no_ack: true, ..Default::default() };
    load.ask(consume, "basic.consume-ok")?;
    load.begin()?;
    for _ in 0..count {
        load.publish(Message { exchange: "", key: QUEUE, properties: &TRANSIENT, body: &body })?;
        load.peer().flush()?;
        load.await_message()?;
    }
    Ok(count)
}

fn connects(load: &mut Load, size: u64) -> io::Result<u64> {
    load.begin()?;
    for _ in 0..size {
        load.connect()?.close()?;
    }
    Ok(size)
}

fn gets(load: &mut Load, size: u64) -> io::Result<u64> {
    load.declare(QUEUE, &Table::new())?;
    for _ in 0..size {
        load.publish(to_queue(QUEUE, &TRANSIENT))?;
    }
    load.await_count(QUEUE, size)?;
    load.begin()?;
    for _ in 0..size {
        load.peer().send(1, basic::Get { queue: QUEUE, no_ack: true });
        load.peer().flush()?;
        load.await_message()?;
    }
    Ok(size)
}

fn redeclares(load: &mut Load, size: u64) -> io::Result<u64> {
    load.declare(QUEUE, &Table::new())?;
    load.begin()?;
    for _ in 0..size {
        let declare = queue::Declare { queue: QUEUE, ..Default::default() };
        load.ask(Method::from(declare), "queue.declare-ok")?;
    }
    Ok(size)
}
