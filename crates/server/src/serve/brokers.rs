//! The broker of each shard, made on the shard's thread.

use super::lifecycle::Lifecycle;
use super::logs::{self, StartFiles};
use super::plan::Plan;
use crate::config::Config;
use crate::initial::{Initial, is_reachable};
use crate::random;
use lepus_base::ShardId;
use lepus_broker::definitions::DefinitionsLog;
use lepus_broker::directory::{Anonymous, Directory};
use lepus_broker::start::{Found, share_logs, start};
use lepus_broker::{Broker, Outbox, Settings};
use lepus_management::api::Mirror;
use lepus_shard::{Clock, Storage};
use lepus_store::disk::LogId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the brokers are made of, and what they found in their logs.
#[derive(Debug)]
pub struct Brokers {
    settings: Settings,
    /// What exists: one for each shard that is not made yet.
    directories: Mutex<Vec<Arc<Directory>>>,
    /// Whether each shard has its memory near it, and so makes its own copy.
    binds_memory: bool,
    loopback_users: Vec<Box<str>>,
    anonymous: Option<Anonymous>,
    is_reachable: bool,
    /// For shard 0.
    definitions: Mutex<Option<DefinitionsLog>>,
    /// By shard.
    logs: Vec<Vec<LogId>>,
    storage: Storage,
    clock: Clock,
    is_first_start: bool,
    found: Mutex<Found>,
    /// Told how far the logs are read.
    lifecycle: Arc<Lifecycle>,
    /// What exists, for the management API.
    mirror: Arc<Mirror>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Brokers {
    /// Takes directory and log out of `initial`.
    ///
    /// # Errors
    /// When the system has no random numbers, or the data directory cannot be read.
    pub fn new(
        config: &Config,
        plan: &Plan,
        initial: &mut Initial,
        storage: Storage,
        clock: Clock,
        lifecycle: Arc<Lifecycle>,
    ) -> Result<Brokers, String> {
        let secret = random::bytes().map_err(random::unavailable)?;
        let hash = random::hash_state()?;
        let mut settings = plan.broker_settings(config, hash, secret);
        if let Some(store) = &mut settings.store {
            store.deleted = Arc::clone(&initial.deleted);
        }
        let logs = share_logs(logs::find(&storage.directory)?, plan.shards);
        // One length for all: what is to be in one segment of several shards is measured by one of them.
        let most = logs.iter().map(Vec::len).max().unwrap_or(1);
        if let Some(store) = &mut settings.store {
            store.template.key = random::log_key()?;
            store.template.segment_bytes = logs::segment_bytes(config, plan.shards, most);
            // The logs of a shard are read side by side.
            store.template.rebuild_entries_max /= most.max(1);
        }
        let directory = Arc::new(initial.directory.take().ok_or("the definitions are in use")?);
        let mut copy = Directory::clone(&directory);
        copy.settle(settings.limits.capacity, settings.limits.bindings_at_once);
        copy.accounts_mut().set_loopback_users(initial.loopback_users.clone());
        let mirror = Mirror::start(copy)
            .map_err(|error| format!("cannot start the thread of the directory's copy: {error}"))?;
        Ok(Brokers {
            settings,
            directories: Mutex::new(vec![directory; usize::from(plan.shards)]),
            binds_memory: plan.placement.binds_memory(),
            loopback_users: initial.loopback_users.clone(),
            is_reachable: is_reachable(config),
            anonymous: (!config.anonymous_user.is_empty())
                .then(|| Anonymous::new(&config.anonymous_user, &config.anonymous_password)),
            definitions: Mutex::new(initial.log.take()),
            logs,
            clock,
            is_first_start: initial.is_first,
            found: Mutex::default(),
            lifecycle,
            storage,
            mirror: Arc::new(mirror),
        })
    }

    /// The process's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The copy of the directory for the management API.
    pub fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// Makes the broker of a shard and opens its logs, which may take a while.
    ///
    /// # Errors
    /// In words, with the file and what to do, for a log that cannot be used.
    pub fn make(&self, shard: ShardId, out: &mut Outbox) -> Result<Broker, String> {
        let mut settings = Settings { shard, ..self.settings.clone() };
        if let Some(store) = &mut settings.store {
            store.logs.clone_from(&self.logs[shard.index()]);
        }
        let directory = locked(&self.directories).pop().ok_or("each shard is made once")?;
        let directory = match self.binds_memory {
            true => Directory::clone(&directory),
            false => Arc::unwrap_or_clone(directory),
        };
        let definitions = match shard {
            ShardId(0) => {
                Some(locked(&self.definitions).take().ok_or("the definitions log is in use")?)
            }
            _ => None,
        };
        let mut broker = Broker::new(settings);
        let (now, progress) = (self.clock.now(), &self.lifecycle.progress);
        let mut files = StartFiles::new(&self.storage, self.clock, progress);
        let started = start(&mut broker, directory, definitions, now, Some(&mut files), out);
        let found = started.map_err(|error| files.explain(&error))?;
        broker.directory.accounts_mut().set_loopback_users(self.loopback_users.clone());
        broker.directory.accounts_mut().set_anonymous(self.anonymous.clone());
        broker.directory.accounts_mut().set_reachable(self.is_reachable);
        progress.count_shard();
        locked(&self.found).add(found);
        Ok(broker)
    }

    /// What all of them found, unless there was nothing before this start.
    pub fn found(&self) -> Option<Found> {
        (!self.is_first_start).then(|| *locked(&self.found))
    }
}
