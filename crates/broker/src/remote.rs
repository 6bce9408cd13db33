//! Consumers on other shards of queues on this one, as the homes of these queues see them.

use alloc::vec::Vec;

use lepus_base::{ConnectionId, HashMap, HashState, QueueId, ShardId};

use crate::backpressure::{Backpressure, WaitingConsumer};
use crate::queue::{ConsumerHandle, ConsumerKey};

/// A consumer on another shard, as the home of its queue sees it.
#[derive(Debug)]
pub struct RemoteConsumer {
    /// Its queue.
    pub queue: QueueId,
    /// Its name within the queue.
    pub handle: ConsumerHandle,
    /// The shard of its connection.
    pub shard: ShardId,
    /// Whether a channel-wide prefetch limit governs it.
    pub governed: bool,
    /// Deliveries granted under that limit.
    pub credit: u32,
    /// Whether credit was asked for and not granted yet.
    pub wanted: bool,
    /// Its place among those who wait for room on a connection or for mail to be sent, if it does.
    pub place: Option<u64>,
}

/// Room for deliveries to a connection on another shard.
#[derive(Debug)]
pub struct RemoteWindow {
    /// Bytes that may still be sent to it.
    pub room: i64,
}

/// Consumers on other shards and the room that there is for them.
#[derive(Debug)]
pub struct Remote {
    /// The consumers by name.
    pub consumers: HashMap<ConsumerKey, RemoteConsumer>,
    /// Room for deliveries to their connections.
    pub windows: HashMap<ConnectionId, RemoteWindow>,
    /// Connections of other shards that are about to come here: their consumers get nothing.
    pub detached: Vec<ConnectionId>,
}

impl Remote {
    /// None.
    #[must_use]
    pub(crate) fn new(hash: HashState) -> Remote {
        Remote {
            consumers: HashMap::with_hasher(hash),
            windows: HashMap::with_hasher(hash),
            detached: Vec::new(),
        }
    }

    /// Bytes of its tables.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.consumers.allocation_size() + self.windows.allocation_size()
    }

    /// A consumer on another shard waits until mail has room, behind those that do so, too.
    pub(crate) fn wait_for_mail(
        &mut self,
        backpressure: &mut Backpressure,
        (queue, key): WaitingConsumer,
    ) {
        self.end_wait(backpressure, key);
        let Some(remote) = self.consumers.get_mut(&key) else {
            invariant!("a consumer that waits for mail is known");
        };
        remote.place = Some(backpressure.wait_for_mail((queue, key)));
    }

    /// A consumer on another shard waits until its connection has room, behind those that do so, too.
    pub(crate) fn wait_for_connection(
        &mut self,
        backpressure: &mut Backpressure,
        (queue, key): WaitingConsumer,
    ) {
        self.end_wait(backpressure, key);
        let Some(remote) = self.consumers.get_mut(&key) else {
            invariant!("a consumer that waits for its connection is known");
        };
        remote.place = Some(backpressure.wait_for_connection((queue, key)));
    }

    /// A consumer on another shard waits for nothing any more.
    pub(crate) fn end_wait(&mut self, backpressure: &mut Backpressure, key: ConsumerKey) {
        let remote = self.consumers.get_mut(&key);
        if let Some(place) = remote.and_then(|remote| remote.place.take()) {
            backpressure.end_wait(key, place);
        }
    }

    /// The consumer that has waited longest for mail to have room. It waits no longer.
    pub(crate) fn take_first_behind_mail(
        &mut self,
        backpressure: &mut Backpressure,
    ) -> Option<WaitingConsumer> {
        let waiting = backpressure.first_behind_mail()?;
        self.end_wait(backpressure, waiting.1);
        Some(waiting)
    }

    /// The same of those that wait for room on this connection of another shard.
    pub(crate) fn take_first_behind(
        &mut self,
        backpressure: &mut Backpressure,
        connection: ConnectionId,
    ) -> Option<WaitingConsumer> {
        let waiting = backpressure.first_behind(connection)?;
        self.end_wait(backpressure, waiting.1);
        Some(waiting)
    }
}
