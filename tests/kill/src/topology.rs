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
const EXPIRY_MILLIS: i32 = 30;

/// Of the queue that takes commits.
pub const COMMITTED: usize = SPREAD + FANNED;
/// Of the queue in which messages expire; nobody consumes from it.
pub const EXPIRING: usize = COMMITTED + 1;
/// Of the queue to which expired messages go.
pub const DEAD: usize = COMMITTED + 2;
/// All queues.
pub const QUEUES: usize = COMMITTED + 3;

/// What a publisher publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trade {
    /// Persistent messages with confirms, one queue each.
    Spread,
    /// Persistent messages with confirms to all queues of the fan-out exchange.
    Fanout,
    /// Persistent messages in transactions.
    Commits,
    /// Transient messages with confirms, to the same queues as the persistent ones.
    Transient,
    /// Persistent messages with confirms that reach their queue by expiring in another one.
    Expiring,
}

/// Every publisher, by number.
pub const PUBLISHERS: [Trade; 8] = [
    Trade::Spread,
    Trade::Spread,
    Trade::Spread,
    Trade::Spread,
    Trade::Fanout,
    Trade::Commits,
    Trade::Transient,
    Trade::Expiring,
];

impl Trade {
    /// Queues that each of its messages arrives in.
    pub fn copies(self) -> usize {
        if self == Trade::Fanout { FANNED } else { 1 }
    }

    /// The queue of one copy of a message.
    pub fn queue(self, publisher: usize, number: u64, copy: usize) -> usize {
        match self {
            Trade::Spread | Trade::Transient => {
                Rng::new(number << 8 ^ publisher as u64).below(SPREAD as u64) as usize
            }
            Trade::Fanout => SPREAD + copy,
            Trade::Commits => COMMITTED,
            Trade::Expiring => DEAD,
        }
    }

    /// Exchange and routing key to publish with.
    pub fn address(self, publisher: usize, number: u64) -> (&'static str, String) {
        match self {
            Trade::Fanout => (FANOUT, String::new()),
            Trade::Expiring => ("", name(EXPIRING)),
            Trade::Spread | Trade::Commits | Trade::Transient => {
                ("", name(self.queue(publisher, number, 0)))
            }
        }
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
    let declare = exchange::Declare {
        exchange: FANOUT,
        r#type: "fanout",
        durable: true,
        ..Default::default()
    };
    link.call(1, declare, "exchange.declare-ok")?;
    for queue in SPREAD..SPREAD + FANNED {
        let bind = queue::Bind { queue: &name(queue), exchange: FANOUT, ..Default::default() };
        link.call(1, bind, "queue.bind-ok")?;
    }
    Ok(())
}

/// Messages that stand ready in a queue, which must be there, and so must the exchange.
///
/// # Errors
/// When either is not there, or the connection ends.
pub fn count(link: &mut Link, queue: usize) -> io::Result<u64> {
    let declare = queue::Declare { queue: &name(queue), passive: true, ..Default::default() };
    link.count(1, declare)
}

/// Asks for the exchange.
///
/// # Errors
/// When it is not there, or the connection ends.
pub fn find_exchange(link: &mut Link) -> io::Result<()> {
    let declare = exchange::Declare { exchange: FANOUT, passive: true, ..Default::default() };
    link.call(1, declare, "exchange.declare-ok")
}
