//! The queues, who publishes to them, and where each message must arrive.

use crate::link::Link;
use lepus_amqp::Table;
use lepus_amqp::method::{exchange, queue};
use lepus_base::Rng;
use std::io;

/// Queues that messages are spread over, one for each message.
const SPREAD: usize = 6;
/// Queues behind the fan-out exchange.
const FANNED: usize = 3;
const FANOUT: &str = "kill.fanout";
/// The exchange behind which are the wide queues, and those that lead to the spread ones.
const WIDE: &str = "kill.wide";
const TOPIC: &str = "kill.topic";
const HEADERS: &str = "kill.headers";
/// The header that the headers exchange looks at.
const PLACE: &str = "place";
/// Exchanges, with their types.
const EXCHANGES: [(&str, &str); 4] =
    [(FANOUT, "fanout"), (WIDE, "fanout"), (TOPIC, "topic"), (HEADERS, "headers")];
/// Queues behind the wide exchange: more than a broker serves in one go.
const WIDE_QUEUES: usize = 600;
const EXPIRY_MILLIS: i32 = 30;

/// Of the queue that takes commits.
pub const COMMITTED: usize = SPREAD + FANNED;
/// Of the queue in which messages expire; nobody consumes from it.
pub const EXPIRING: usize = COMMITTED + 1;
/// Of the queue to which expired messages go.
pub const DEAD: usize = COMMITTED + 2;
/// All queues.
pub const QUEUES: usize = WIDE_FIRST + WIDE_QUEUES;
/// The first of the queues behind the wide exchange.
const WIDE_FIRST: usize = COMMITTED + 3;

/// What a publisher publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trade {
    /// Persistent messages with confirms, one queue each.
    Spread,
    /// Persistent messages with confirms to all queues of the fan-out exchange.
    Fanout,
    /// The same to very many queues.
    Wide,
    /// Persistent messages with confirms, one queue each, by the topic exchange.
    Topic,
    /// The same by the headers exchange.
    Headers,
    /// Persistent messages in transactions.
    Commits,
    /// Persistent messages in large transactions to all queues of the fan-out exchange.
    Batches,
    /// Transient messages with confirms, to the same queues as the persistent ones.
    Transient,
    /// Persistent messages with confirms that reach their queue by expiring in another one.
    Expiring,
}

/// Every publisher, by number.
pub const PUBLISHERS: [Trade; 12] = [
    Trade::Spread,
    Trade::Spread,
    Trade::Spread,
    Trade::Spread,
    Trade::Fanout,
    Trade::Commits,
    Trade::Transient,
    Trade::Expiring,
    Trade::Wide,
    Trade::Topic,
    Trade::Headers,
    Trade::Batches,
];

impl Trade {
    /// Queues that each of its messages arrives in.
    pub fn copies(self) -> usize {
        match self {
            Trade::Fanout | Trade::Batches => FANNED,
            Trade::Wide => WIDE_QUEUES,
            _ => 1,
        }
    }

    /// The queue of one copy of a message.
    pub fn queue(self, publisher: usize, number: u64, copy: usize) -> usize {
        match self {
            Trade::Spread | Trade::Transient | Trade::Topic | Trade::Headers => {
                Rng::new(number << 8 ^ publisher as u64).below(SPREAD as u64) as usize
            }
            Trade::Fanout | Trade::Batches => SPREAD + copy,
            Trade::Wide => WIDE_FIRST + copy,
            Trade::Commits => COMMITTED,
            Trade::Expiring => DEAD,
        }
    }

    /// Exchange and routing key to publish with.
    pub fn address(self, publisher: usize, number: u64) -> (&'static str, String) {
        match self {
            Trade::Fanout | Trade::Batches => (FANOUT, String::new()),
            Trade::Wide => (WIDE, String::new()),
            Trade::Topic => (TOPIC, format!("{}.some.more", self.queue(publisher, number, 0))),
            Trade::Headers => (HEADERS, String::new()),
            Trade::Expiring => ("", name(EXPIRING)),
            Trade::Spread | Trade::Commits | Trade::Transient => {
                ("", name(self.queue(publisher, number, 0)))
            }
        }
    }

    /// Headers to publish with.
    pub fn headers(self, publisher: usize, number: u64) -> Option<Table> {
        let place = || self.queue(publisher, number, 0) as i32;
        (self == Trade::Headers).then(|| Table::new().with("other", 1i32).with(PLACE, place()))
    }

    /// Whether it publishes in transactions.
    pub fn is_transactional(self) -> bool {
        matches!(self, Trade::Commits | Trade::Batches)
    }

    /// Whether its messages survive a restart.
    pub fn is_persistent(self) -> bool {
        self != Trade::Transient
    }

    /// Whether a restart may bring a message twice without the mark, and order may change.
    pub fn is_moved(self) -> bool {
        self == Trade::Expiring
    }
}

/// The name of a queue.
pub fn name(queue: usize) -> String {
    format!("kill.{queue}")
}

/// Declares everything; what is there already must be as it was declared.
///
/// # Errors
/// When the broker refuses, or the connection ends.
pub fn declare(link: &mut Link) -> io::Result<()> {
    for queue in 0..QUEUES {
        let mut arguments = Table::new();
        if queue == EXPIRING {
            arguments = arguments
                .with("x-message-ttl", EXPIRY_MILLIS)
                .with("x-dead-letter-exchange", "")
                .with("x-dead-letter-routing-key", name(DEAD).as_str());
        }
        let bytes = arguments.to_bytes();
        let declare = queue::Declare {
            queue: &name(queue),
            durable: true,
            arguments: bytes.as_ref(),
            ..Default::default()
        };
        link.call(1, declare, "queue.declare-ok")?;
    }
    for (exchange, kind) in EXCHANGES {
        let declare =
            exchange::Declare { exchange, r#type: kind, durable: true, ..Default::default() };
        link.call(1, declare, "exchange.declare-ok")?;
    }
    for queue in SPREAD..SPREAD + FANNED {
        bind(link, queue, FANOUT, "", &Table::new())?;
    }
    for queue in WIDE_FIRST..QUEUES {
        bind(link, queue, WIDE, "", &Table::new())?;
    }
    for queue in 0..SPREAD {
        bind(link, queue, TOPIC, &format!("{queue}.#"), &Table::new())?;
        let arguments = Table::new().with("x-match", "all").with(PLACE, queue as i32);
        bind(link, queue, HEADERS, "", &arguments)?;
    }
    Ok(())
}

fn bind(
    link: &mut Link,
    queue: usize,
    exchange: &str,
    key: &str,
    arguments: &Table,
) -> io::Result<()> {
    let (queue, arguments) = (name(queue), arguments.to_bytes());
    let bind = queue::Bind {
        queue: &queue,
        exchange,
        routing_key: key,
        no_wait: false,
        arguments: arguments.as_ref(),
    };
    link.call(1, bind, "queue.bind-ok")
}

/// Messages that stand ready in a queue, which must be there, and so must the exchange.
///
/// # Errors
/// When either is not there, or the connection ends.
pub fn count(link: &mut Link, queue: usize) -> io::Result<u64> {
    let declare = queue::Declare { queue: &name(queue), passive: true, ..Default::default() };
    link.count(1, declare)
}

/// Asks for the exchanges.
///
/// # Errors
/// When one is not there, or the connection ends.
pub fn find_exchanges(link: &mut Link) -> io::Result<()> {
    for (exchange, _) in EXCHANGES {
        let declare = exchange::Declare { exchange, passive: true, ..Default::default() };
        link.call(1, declare, "exchange.declare-ok")?;
    }
    Ok(())
}
