//! Counters of messages, and the page on which the null programs show them.
//!
//! The page has the names of the Prometheus metrics that RabbitMQ and lepus have, so that one reader
//! serves all of them; LavinMQ has names of its own.

use crate::metrics::sum;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const RECEIVED: &str = "rabbitmq_global_messages_received_total";
const DELIVERED: &str = "rabbitmq_global_messages_delivered_total";
const ACKNOWLEDGED: &str = "rabbitmq_global_messages_acknowledged_total";
/// As LavinMQ calls them; it does not count what it received.
const LAVINMQ_DELIVERED: &str = "lavinmq_global_messages_delivered_total";
const LAVINMQ_ACKNOWLEDGED: &str = "lavinmq_global_messages_acknowledged_total";
const SHARD_SECONDS: &str = "lepus_shard_seconds_total";

/// What a broker has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages taken from publishers.
    pub received: u64,
    /// Messages given to consumers.
    pub delivered: u64,
    /// Deliveries that consumers have acknowledged.
    pub acknowledged: u64,
    /// Microseconds that shards spent looking around without work, where the broker tells.
    pub spin_micros: u64,
}

impl Counts {
    /// What was counted since `earlier`.
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            received: self.received.saturating_sub(earlier.received),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            acknowledged: self.acknowledged.saturating_sub(earlier.acknowledged),
            spin_micros: self.spin_micros.saturating_sub(earlier.spin_micros),
        }
    }

    /// The counts on a page of metrics, summed over labels.
    pub fn from_metrics(page: &str) -> Counts {
        Counts {
            received: sum(page, RECEIVED, &[]) as u64,
            delivered: (sum(page, DELIVERED, &[]) + sum(page, LAVINMQ_DELIVERED, &[])) as u64,
            acknowledged: (sum(page, ACKNOWLEDGED, &[]) + sum(page, LAVINMQ_ACKNOWLEDGED, &[]))
                as u64,
            spin_micros: (sum(page, SHARD_SECONDS, &["state=\"spin\""]) * 1e6) as u64,
        }
    }
}

/// Counters that one thread raises and the page's thread reads.
#[derive(Debug, Default)]
pub struct Shared {
    received: AtomicU64,
    delivered: AtomicU64,
    acknowledged: AtomicU64,
}

impl Shared {
    /// Publishes the counts; called once per cycle, not per message.
    pub fn set(&self, counts: Counts) {
        self.received.store(counts.received, Ordering::Relaxed);
        self.delivered.store(counts.delivered, Ordering::Relaxed);
        self.acknowledged.store(counts.acknowledged, Ordering::Relaxed);
    }

    fn page(&self) -> String {
        let mut page = String::new();
        for (name, counter) in [
            (RECEIVED, &self.received),
            (DELIVERED, &self.delivered),
            (ACKNOWLEDGED, &self.acknowledged),
        ] {
            let value = counter.load(Ordering::Relaxed);
            page.push_str(&format!("{name} {value}\n"));
        }
        page
    }
}

/// Answers every request on `port` with the counters, on a thread of its own.
///
/// # Errors
/// When the port cannot be listened on.
pub fn serve(port: u16, shared: Arc<Shared>) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that goes away early does not concern the others.
            let _ = stream.and_then(|stream| answer(stream, &shared));
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut request = [0; 1024];
    let _ = stream.read(&mut request)?;
    let page = shared.page();
    let length = page.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{page}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_labels() {
        let page = "# HELP rabbitmq_global_messages_received_total x\n\
                    rabbitmq_global_messages_received_total{protocol=\"amqp091\"} 3\n\
                    rabbitmq_global_messages_received_total{protocol=\"b\"} 4\n\
                    rabbitmq_global_messages_received_total_more 9\n\
                    rabbitmq_global_messages_delivered_total 5\n\
                    lepus_shard_seconds_total{shard=\"0\",state=\"busy\"} 9.5\n\
                    lepus_shard_seconds_total{shard=\"0\",state=\"spin\"} 0.5\n";
        let counts = Counts::from_metrics(page);
        assert_eq!((counts.received, counts.delivered), (7, 5));
        assert_eq!((counts.acknowledged, counts.spin_micros), (0, 500_000));
    }

    #[test]
    fn lavinmq_has_names_of_its_own() {
        let page = "lavinmq_global_messages_delivered_total 5\n\
                    lavinmq_global_messages_acknowledged_total 4\n";
        let counts = Counts::from_metrics(page);
        assert_eq!((counts.received, counts.delivered, counts.acknowledged), (0, 5, 4));
    }

    #[test]
    fn what_is_served_can_be_fetched() {
        let shared = Arc::new(Shared::default());
        let counts = Counts { received: 1, delivered: 2, acknowledged: 3, spin_micros: 0 };
        shared.set(counts);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, &shared).unwrap();
        });
        let page = crate::metrics::fetch(address).unwrap();
        server.join().unwrap();
        assert_eq!(Counts::from_metrics(&page), counts);
    }
}
