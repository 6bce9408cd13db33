//! The start itself, on a thread of its own, so that the broker hears and answers meanwhile.

use super::brokers::Brokers;
use super::lifecycle::Lifecycle;
use super::logs::{self, NewLogs};
use super::plan::{self, Plan, Room};
use super::progress::Step;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::figures::{self, Figures};
use crate::initial::{Initial, initial};
use crate::log::Log;
use crate::notice;
use crate::signal::Wish;
use lepus_broker::Broker;
use lepus_broker::outbox::Event;
use lepus_management::api::Mirror;
use lepus_shard::{Clock, Follower, Notices, Running, Runtime, StartError, Transport};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, sync_channel};

/// What the start needs.
pub(super) struct Start {
    pub(super) config: Arc<Config>,
    pub(super) plan: Arc<Plan>,
    pub(super) log: Log,
    pub(super) clock: Clock,
    /// Told how far it is.
    pub(super) lifecycle: Arc<Lifecycle>,
    /// Held until the process ends: nobody else may have it while a shard can still write.
    pub(super) data_dir: DataDir,
}

/// What the start leads to.
pub(super) struct Started {
    pub(super) running: Running<Broker>,
    pub(super) figures: Arc<Figures>,
    pub(super) initial: Initial,
    /// Of the listeners, in the order of the addresses.
    pub(super) transports: Vec<Transport>,
    /// The management API's copy of the directory.
    pub(super) mirror: Arc<Mirror>,
    pub(super) notices_ended: notice::Ended,
}

/// Says that the start is over, also when it panics.
struct Over(Sender<Wish>);

impl Drop for Over {
    fn drop(&mut self) {
        // A failed send means that the main thread is past listening.
        let _ = self.0.send(Wish::Started);
    }
}

impl Start {
    /// Begins it and returns at once. What comes of it can be received once [`Wish::Started`] is sent
    /// to `wishes`.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(super) fn begin(
        self,
        wishes: Sender<Wish>,
    ) -> Result<Receiver<Result<Started, String>>, String> {
        let (sender, receiver) = sync_channel(1);
        std::thread::Builder::new()
            .name("start".to_owned())
            .spawn(move || {
                let _over = Over(wishes.clone());
                let result = self.carry_out(wishes);
                // Whoever waited may have been told to stop.
                let _ = sender.send(result);
                // Until the end of the process.
                std::mem::forget(self.data_dir);
            })
            .map_err(|error| format!("cannot start the start thread: {error}"))?;
        Ok(receiver)
    }

    fn carry_out(&self, wishes: Sender<Wish>) -> Result<Started, String> {
        let Start { config, plan, log, clock, lifecycle, data_dir } = self;
        // A first start that breaks off here or below leaves no logs.
        let new_logs = NewLogs::from_now(data_dir.path())?;
        let mut initial = initial(config, plan.shards, data_dir.path())?;
        for skipped in &initial.skipped {
            log.warning("definition-skipped", skipped.clone());
        }
        for differing in &initial.differing {
            log.warning("definition-differs", differing.clone());
        }
        for door in &initial.open_doors {
            log.warning("open-door", door.clone());
        }
        let files = raise_file_limit(log);
        let room = Room::new(config, files, plan.shards);
        if let Some(text) = room.complaint(config, files) {
            log.warning("few-files", text);
        }
        lifecycle.progress.enter(Step::Logs);
        let told = Arc::clone(lifecycle);
        let storage = plan.storage(config, room);
        let brokers = Arc::new(Brokers::new(config, plan, &mut initial, storage, *clock, told)?);
        let (notices, notices_ended) = notice::start(log.clone(), wishes)
            .map_err(|error| format!("cannot start the notices thread: {error}"))?;
        let (running, transports) = start_runtime(config, plan, &brokers, room, notices, log)?;
        new_logs.keep();
        let figures = Arc::new(Figures::new(
            figures::node(config, plan.memory_budget_bytes),
            running.commands(),
            running.metrics().to_vec(),
            running.entrance(),
            *clock,
            data_dir.path().to_owned(),
            running.addresses().to_vec(),
        ));
        let mirror = Arc::clone(brokers.mirror());
        Ok(Started { running, figures, initial, transports, mirror, notices_ended })
    }
}

/// Many connections need many file descriptors; systems start programs with few. How many there may
/// be; `None` is any number.
fn raise_file_limit(log: &Log) -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log.warning("file-limit", format!("the limit of open files stays as it is: {error}"));
    }
    getrlimit(Resource::Nofile).current
}

fn start_runtime(
    config: &Config,
    plan: &Plan,
    brokers: &Arc<Brokers>,
    room: Room,
    notices: Notices<Event>,
    log: &Log,
) -> Result<(Running<Broker>, Vec<Transport>), String> {
    let clock = brokers.clock();
    let mut runtime = plan.runtime(config, clock, notices, room);
    loop {
        let of_shards = Arc::clone(brokers);
        let make = move |shard, out: &mut _| of_shards.make(shard, out);
        let listeners: Vec<SocketAddr> = runtime.listeners.iter().map(|one| one.address).collect();
        let before = clock.instant();
        let mirror = Arc::clone(brokers.mirror());
        let follower: Follower<Broker> = Arc::new(move |change| mirror.follow(change));
        match Runtime::start_followed(runtime.clone(), Some(follower), make) {
            Ok(running) => {
                if let Some(found) = brokers.found() {
                    let took = clock.instant().since(before);
                    log.info("recovered", logs::text(found, took));
                }
                let transports = runtime.listeners.iter().map(|one| one.transport);
                return Ok((running, transports.collect()));
            }
            Err(StartError::Listen { address, error })
                if plan::is_missing_ipv6(address, &error, &listeners) =>
            {
                log.info(
                    "no-ipv6",
                    format!("not listening on {address}: this machine has no IPv6"),
                );
                runtime.listeners.retain(|one| one.address != address);
            }
            Err(StartError::Listen { address, error }) => {
                return Err(plan::listen_error(address, &error, "--listen or --tls-listen"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
