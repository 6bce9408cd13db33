//! All that connects shards with each other and with the threads that feed them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use lepus_mesh::{Bell, Endpoint, Inbox, Post, Signal, connect, inbox};

use crate::command::{Command, Commands};
use crate::connection::{Arrival, Parcel};
use crate::core::Core;
use crate::metrics::ShardMetrics;
use crate::notice::Notices;

/// Is told of the directory's changes in their order, on the thread of the shard that makes them: it must not block.
pub type Follower<C> = Arc<dyn Fn(&Arc<<C as Core>::Change>) + Send + Sync>;

/// A shard's ends of everything that comes from and goes to other threads.
pub struct Links<C: Core, K> {
    /// Rings to and from the other shards.
    pub(crate) endpoint: Endpoint<Parcel<C, K>>,
    /// Directory changes by the shard that orders them.
    pub(crate) directory: Inbox<Arc<C::Change>>,
    /// Every shard's directory inbox; the own one is not used.
    pub(crate) directories: Vec<Post<Arc<C::Change>>>,
    /// Is told every change that this shard makes, before anything that shows it leaves the shard.
    pub(crate) follower: Option<Follower<C>>,
    /// Bytes of mail on its way from each shard, and of emptied batches on their way back to it.
    pub(crate) mail_bytes: Vec<Arc<AtomicUsize>>,
    /// Connections from the acceptor.
    pub(crate) arrivals: Inbox<Arrival<K>>,
    /// Commands from the control plane.
    pub(crate) commands: Inbox<Command<C>>,
    /// Events for the log.
    pub(crate) notices: Notices<C::Event>,
    /// Where the shard counts.
    pub(crate) metrics: Arc<ShardMetrics>,
}

/// Everything that is shared between threads, made before any of them starts.
pub struct Wiring<C: Core, K> {
    /// One per shard, in their order.
    pub links: Vec<Links<C, K>>,
    /// Where new connections are put, by shard.
    pub arrivals: Vec<Post<Arrival<K>>>,
    /// Where the control plane puts its commands.
    pub commands: Commands<C>,
    /// The shards' counters.
    pub metrics: Vec<Arc<ShardMetrics>>,
}

impl<C: Core, K: Send> Wiring<C, K> {
    /// Connects as many shards as there are bells, by rings of `ring_capacity` batches.
    #[must_use]
    pub fn new(
        bells: &[Arc<Bell>],
        ring_capacity: usize,
        notices: &Notices<C::Event>,
    ) -> Wiring<C, K> {
        let mut directories = Vec::new();
        let mut arrivals = Vec::new();
        let mut commands = Vec::new();
        let mut metrics = Vec::new();
        let mut ends = Vec::new();
        for bell in bells {
            let (directory, directory_end) = inbox(bell, Signal::Directory);
            let (arrival, arrival_end) = inbox(bell, Signal::Arrival);
            let (command, command_end) = inbox(bell, Signal::Command);
            directories.push(directory);
            arrivals.push(arrival);
            commands.push(command);
            metrics.push(Arc::new(ShardMetrics::default()));
            ends.push((directory_end, arrival_end, command_end));
        }
        let endpoints = connect(bells, ring_capacity);
        let mail_bytes: Vec<Arc<AtomicUsize>> = bells.iter().map(|_| Arc::default()).collect();
        let links = ends
            .into_iter()
            .zip(endpoints)
            .zip(&metrics)
            .map(|(((directory, arrivals, commands), endpoint), metrics)| Links {
                endpoint,
                directory,
                directories: directories.clone(),
                follower: None,
                mail_bytes: mail_bytes.clone(),
                arrivals,
                commands,
                notices: notices.clone(),
                metrics: Arc::clone(metrics),
            })
            .collect();
        Wiring { links, arrivals, commands: Commands::new(commands), metrics }
    }
}
