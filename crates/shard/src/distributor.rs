//! Which shard takes a new connection, and how many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lepus_base::ConnectionId;
use lepus_mesh::Post;

use crate::connection::Arrival;
use crate::core::PeerInfo;
use crate::metrics::ShardMetrics;
use crate::porch::EntranceMetrics;
use crate::tls::Session;

/// Gives new connections to the shards with the fewest. Shared by the acceptor and the TLS thread.
pub(crate) struct Distributor<K> {
    posts: Vec<Post<Arrival<K>>>,
    census: Census,
    connections_max: usize,
    next_id: AtomicU64,
}

/// There is no room for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// The limit that is reached.
    pub(crate) connections_max: usize,
}

/// The number of connections, out of counters that each have one writer.
#[derive(Clone)]
pub(crate) struct Census {
    metrics: Vec<Arc<ShardMetrics>>,
    /// Connections ever given to each shard.
    assigned: Arc<[AtomicU64]>,
    /// Connections that no shard has yet.
    pub(crate) tally: Arc<EntranceMetrics>,
}

impl Census {
    pub(crate) fn new(metrics: &[Arc<ShardMetrics>]) -> Census {
        Census {
            metrics: metrics.to_vec(),
            assigned: metrics.iter().map(|_| AtomicU64::new(0)).collect(),
            tally: Arc::default(),
        }
    }

    /// Connections in the process: assigned to a shard (or travelling between two) and not ended.
    pub(crate) fn connections(&self) -> u64 {
        let ended: u64 = self.metrics.iter().map(|m| m.closed.get() + m.dropped.get()).sum();
        let assigned: u64 = self.assigned.iter().map(|a| a.load(Ordering::Acquire)).sum();
        assigned.saturating_sub(ended)
    }

    /// Connections that were given to shards and that these have not looked at yet.
    pub(crate) fn untaken(&self) -> u64 {
        let taken: u64 = self.metrics.iter().map(|m| m.accepted.get() + m.dropped.get()).sum();
        let assigned: u64 = self.assigned.iter().map(|a| a.load(Ordering::Acquire)).sum();
        assigned.saturating_sub(taken)
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
    pub(crate) fn new(
        posts: Vec<Post<Arrival<K>>>,
        census: Census,
        connections_max: usize,
    ) -> Distributor<K> {
        Distributor { posts, census, connections_max, next_id: AtomicU64::new(1) }
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

    /// The shard with the most that have not logged in, when there are as many connections as are
    /// allowed: one of them has to go for a new one.
    ///
    /// # Errors
    /// When all have logged in: then there is no room.
    pub(crate) fn crowded(&self) -> Result<Option<usize>, Full> {
        if self.census.connections() < self.connections_max as u64 {
            return Ok(None);
        }
        let waiting = |&shard: &usize| self.census.metrics[shard].entering.get();
        let most = (0..self.posts.len()).max_by_key(waiting).filter(|shard| waiting(shard) > 0);
        most.map(Some).ok_or(Full { connections_max: self.connections_max })
    }

    /// The shard that takes one more, and whether another connection has to go for it.
    fn choose(&self, number: u64) -> Result<(usize, bool), Full> {
        if let Some(shard) = self.crowded()? {
            return Ok((shard, true));
        }
        let shards = self.posts.len();
        // Among equals each in its turn.
        let first = number as usize % shards;
        let shard = (0..shards)
            .map(|step| (first + step) % shards)
            .min_by_key(|&shard| self.census.load(shard))
            .unwrap_or(0);
        Ok((shard, false))
    }

    /// Gives the connection to the shard with the fewest, which may sleep on until
    /// [`Distributor::ring`]. It is dropped when that shard has stopped.
    ///
    /// # Errors
    /// When as many connections as are allowed have logged in; then it is dropped, too.
    pub(crate) fn give(
        &self,
        socket: K,
        peer: PeerInfo,
        tls: Option<Box<Session>>,
    ) -> Result<(), Full> {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (shard, replaces) = self.choose(number)?;
        let arrival = Arrival { id: ConnectionId(number), socket, peer, tls, replaces };
        self.census.assigned[shard].fetch_add(1, Ordering::Release);
        if self.posts[shard].put(arrival).is_err() {
            self.census.assigned[shard].fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_mesh::{Bell, Signal, inbox};

    fn peer() -> PeerInfo {
        let address = "127.0.0.1:1".parse().unwrap();
        PeerInfo { address, local_address: address, tls: None, login_name: None }
    }

    #[test]
    fn the_shard_with_the_fewest_connections_gets_the_next() {
        let metrics: Vec<Arc<ShardMetrics>> = (0..3).map(|_| Arc::default()).collect();
        let (posts, inboxes): (Vec<_>, Vec<_>) =
            (0..3).map(|_| inbox(&Arc::new(Bell::new(|| ())), Signal::Arrival)).unzip();
        let distributor = Distributor::new(posts, Census::new(&metrics), 10);
        let give = || distributor.give((), peer(), None).unwrap();
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
    #[test]
    fn beyond_the_limit_only_those_give_way_that_have_not_logged_in() {
        let metrics: Vec<Arc<ShardMetrics>> = (0..2).map(|_| Arc::default()).collect();
        let (posts, inboxes): (Vec<_>, Vec<_>) =
            (0..2).map(|_| inbox(&Arc::new(Bell::new(|| ())), Signal::Arrival)).unzip();
        let distributor = Distributor::new(posts, Census::new(&metrics), 2);
        let give = || distributor.give((), peer(), None);
        assert_eq!([give(), give()], [Ok(()), Ok(())]);
        let replaces = |inbox: &lepus_mesh::Inbox<Arrival<()>>| inbox.take().map(|a| a.replaces);
        assert_eq!(inboxes.iter().map(replaces).collect::<Vec<_>>(), [Some(false); 2]);
        assert_eq!(give(), Err(Full { connections_max: 2 }));
        metrics[1].entering.set(1);
        assert_eq!(give(), Ok(()));
        assert_eq!(inboxes.iter().map(replaces).collect::<Vec<_>>(), [None, Some(true)]);
    }
}
