//! The page of metrics that a broker shows over HTTP.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// As RabbitMQ and lepus call what they count, and so do the null programs.
pub(crate) const RECEIVED: &str = "rabbitmq_global_messages_received_total";
pub(crate) const DELIVERED: &str = "rabbitmq_global_messages_delivered_total";
pub(crate) const ACKNOWLEDGED: &str = "rabbitmq_global_messages_acknowledged_total";
/// As LavinMQ calls them; it does not count what it received.
const LAVINMQ_DELIVERED: &str = "lavinmq_global_messages_delivered_total";
const LAVINMQ_ACKNOWLEDGED: &str = "lavinmq_global_messages_acknowledged_total";
const SHARD_SECONDS: &str = "lepus_shard_seconds_total";

/// Longest wait for a part of the page.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fetches `/metrics` from `address`.
///
/// # Errors
/// When nothing answers there, or not with success.
pub fn fetch(address: impl ToSocketAddrs) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    if head.split(' ').nth(1) != Some("200") {
        let status = head.lines().next().unwrap_or("");
        return Err(io::Error::other(format!("/metrics answered {status}")));
    }
    Ok(body.to_owned())
}

/// The sum of the samples of `name` on `page` whose labels contain all of `labels`.
#[must_use]
pub fn sum(page: &str, name: &str, labels: &[&str]) -> f64 {
    let matching = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_sample = rest.starts_with('{') || rest.starts_with(' ');
        if !is_sample || !labels.iter().all(|label| rest.contains(label)) {
            return None;
        }
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    matching.sum()
}

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
    #[must_use]
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            received: self.received.saturating_sub(earlier.received),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            acknowledged: self.acknowledged.saturating_sub(earlier.acknowledged),
            spin_micros: self.spin_micros.saturating_sub(earlier.spin_micros),
        }
    }

    /// The counts on a page of metrics, summed over labels.
    #[must_use]
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

/// Messages that came in by one step of their way, and how many of them stayed on their shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Locality {
    /// Enqueued on the shard that they came in on.
    pub enqueue_stayed: f64,
    /// Enqueued on another one.
    pub enqueue_crossed: f64,
    /// Delivered from the shard of their consumer.
    pub deliver_stayed: f64,
    /// Delivered from another one.
    pub deliver_crossed: f64,
}

impl Locality {
    /// What a page of `lepus` says.
    #[must_use]
    pub fn of(page: &str) -> Locality {
        let count = |step: &str, path: &str| {
            let labels = [format!("step=\"{step}\""), format!("path=\"{path}\"")];
            sum(page, "lepus_shard_messages_total", &[&labels[0], &labels[1]])
        };
        Locality {
            enqueue_stayed: count("enqueue", "stayed"),
            enqueue_crossed: count("enqueue", "node") + count("enqueue", "crossed"),
            deliver_stayed: count("deliver", "stayed"),
            deliver_crossed: count("deliver", "node") + count("deliver", "crossed"),
        }
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Locality) -> Locality {
        Locality {
            enqueue_stayed: self.enqueue_stayed - earlier.enqueue_stayed,
            enqueue_crossed: self.enqueue_crossed - earlier.enqueue_crossed,
            deliver_stayed: self.deliver_stayed - earlier.deliver_stayed,
            deliver_crossed: self.deliver_crossed - earlier.deliver_crossed,
        }
    }

    /// The share of steps that stayed on their shard, 0 to 1; none where nothing was counted.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        let stayed = self.enqueue_stayed + self.deliver_stayed;
        let all = stayed + self.enqueue_crossed + self.deliver_crossed;
        (all > 0.0).then(|| stayed / all)
    }
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
    fn samples_are_summed_by_their_labels() {
        let page = "# HELP lepus_shard_messages_total x\n\
            lepus_shard_messages_total{shard=\"0\",step=\"enqueue\",path=\"stayed\"} 30\n\
            lepus_shard_messages_total{shard=\"1\",step=\"enqueue\",path=\"stayed\"} 40\n\
            lepus_shard_messages_total{shard=\"1\",step=\"deliver\",path=\"crossed\"} 30\n\
            lepus_shard_messages_total_more{step=\"enqueue\",path=\"stayed\"} 9\n";
        assert_eq!(sum(page, "lepus_shard_messages_total", &[]), 100.0);
        let locality = Locality::of(page);
        assert_eq!(locality.share(), Some(0.7));
        assert_eq!(locality.since(locality).share(), None);
    }
}
