//! Which shard takes a new connection, and how many there are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lepus_base::ConnectionId;
use lepus_mesh::Post;

use crate::connection::Arrival;
use crate::core::{PeerInfo, TlsPeer};
use crate::metrics::ShardMetrics;
use crate::tls::Session;

/// Gives new connections to the shards with the fewest. Shared by the acceptor and the TLS thread.
pub(crate) struct Distributor<K> {
    posts: Vec<Post<Arrival<K>>>,
    census: Census,
    next_id: AtomicU64,
}

/// The number of connections, out of counters that each have one writer.
#[derive(Clone)]
pub(crate) struct Census {
    metrics: Vec<Arc<ShardMetrics>>,
    /// Connections ever given to each shard.
    assigned: Arc<[AtomicU64]>,
    /// TLS connections that no shard has yet.
    pub(crate) greeting: Arc<AtomicU64>,
}

impl Census {
    pub(crate) fn new(metrics: &[Arc<ShardMetrics>]) -> Census {
        Census {
            metrics: metrics.to_vec(),
            assigned: metrics.iter().map(|_| AtomicU64::new(0)).collect(),
            greeting: Arc::default(),
        }
    }

    /// Connections in the process: assigned to a shard (or travelling between two) and not ended.
    pub(crate) fn connections(&self) -> u64 {
        let ended: u64 = self.metrics.iter().map(|m| m.closed.get() + m.dropped.get()).sum();
        let assigned: u64 = self.assigned.iter().map(|a| a.load(Ordering::Acquire)).sum();
        assigned.saturating_sub(ended)
    }

    /// Connections of one shard.
    fn load(&self, shard: usize) -> u64 {
        let metrics = &self.metrics[shard];
        let came = self.assigned[shard].load(Ordering::Relaxed) + metrics.adopted.get();
        let went = metrics.closed.get() + metrics.dropped.get() + metrics.handed_over.get();
        came.saturating_sub(went)
    }
}

impl<K> Distributor<K> {
    pub(crate) fn new(posts: Vec<Post<Arrival<K>>>, census: Census) -> Distributor<K> {
        Distributor { posts, census, next_id: AtomicU64::new(1) }
    }

    pub(crate) fn census(&self) -> &Census {
        &self.census
    }

    /// Wakes the shards that sleep over connections given to them.
    pub(crate) fn ring(&self) {
        for post in &self.posts {
            post.ring();
        }
    }

    /// Gives the connection to the shard with the fewest, which may sleep on until
    /// [`Distributor::ring`]. It is dropped when that shard has stopped.
    pub(crate) fn give(
        &self,
        socket: K,
        address: SocketAddr,
        local_address: SocketAddr,
        tls: Option<(Box<Session>, TlsPeer)>,
    ) {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (session, tls) = tls.unzip();
        let arrival = Arrival {
            id: ConnectionId(number),
            socket,
            peer: PeerInfo { address, local_address, tls },
            tls: session,
        };
        let shards = self.posts.len();
        // Among equals each in its turn.
        let first = number as usize % shards;
        let shard = (0..shards)
            .map(|step| (first + step) % shards)
            .min_by_key(|&shard| self.census.load(shard))
            .unwrap_or(0);
        self.census.assigned[shard].fetch_add(1, Ordering::Release);
        if self.posts[shard].put(arrival).is_err() {
            self.census.assigned[shard].fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_mesh::{Bell, Signal, inbox};

    #[test]
    fn the_shard_with_the_fewest_connections_gets_the_next() {
        let metrics: Vec<Arc<ShardMetrics>> = (0..3).map(|_| Arc::default()).collect();
        let (posts, inboxes): (Vec<_>, Vec<_>) =
            (0..3).map(|_| inbox(&Arc::new(Bell::new(|| ())), Signal::Arrival)).unzip();
        let distributor = Distributor::new(posts, Census::new(&metrics));
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let give = || distributor.give((), address, address, None);
        let counts = || {
            let drain = |inbox: &lepus_mesh::Inbox<Arrival<()>>| {
                std::iter::from_fn(|| inbox.take()).count()
            };
            inboxes.iter().map(drain).collect::<Vec<_>>()
        };
        (0..9).for_each(|_| give());
        assert_eq!(counts(), [3, 3, 3]);
        assert_eq!(distributor.census().connections(), 9);
        // Two end on shard 1, one moves from there to shard 2.
        metrics[1].closed.add(2);
        metrics[1].handed_over.add(1);
        metrics[2].adopted.add(1);
        assert_eq!(distributor.census().connections(), 7);
        (0..3).for_each(|_| give());
        assert_eq!(counts(), [0, 3, 0]);
    }
}
