//! Starts everything and stops it.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use lepus_base::{Instant, ShardId};
use lepus_mesh::{Bell, Signal};
use lepus_profile::{Group, Mark, enroll, enroll_with};
use lepus_reactor::files::{FilePort, Files, FreeLimit};
use lepus_reactor::{Alarm, Bound, Poller, TcpStream, bind};
use lepus_topology::{Ids, Plan};

use crate::acceptor::{Acceptor, Gate, Listening, ToGreeter, TurnedAway};
use crate::clock::Clock;
use crate::command::Commands;
use crate::core::Core;
use crate::distributor::{Census, Distributor};
use crate::duty::{self, Duty, End, Talking};
use crate::handshake::Greeter;
use crate::idle::IdlePreset;
use crate::inside::Inside;
use crate::metrics::ShardMetrics;
use crate::notice::Notices;
use crate::placement::{self, Borrowed};
use crate::porch::{Admission, EntranceMetrics, Porch};
use crate::shard::Shard;
use crate::tls::{Identity, TlsError, TlsFiles};
use crate::wiring::{Follower, Links, Wiring};

/// How a listener's connections speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Plain TCP.
    Plain,
    /// TLS from the first byte.
    Tls,
}

/// One address to listen on. An IPv6 wildcard does not include IPv4: name both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// How its connections speak.
    pub transport: Transport,
    /// Connections that may wait to be accepted; the system may allow fewer.
    pub backlog: u32,
}

/// Where the shards' files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The directory below which each log has one of its own. It exists.
    pub directory: PathBuf,
    /// A log that would leave less of the disk free does not grow.
    pub free_limit: FreeLimit,
    /// Files that each shard keeps open at once that it writes, and as many that it only reads.
    pub open_files_max: usize,
}

/// What [`Runtime::start`] needs to know.
#[derive(Clone, Debug)]
pub struct Config<E> {
    /// The number of shards, and where they and the threads that serve them are to be.
    pub plan: Plan,
    /// What a shard without work does.
    pub idle: IdlePreset,
    /// Mail batches in flight per ordered pair of shards, at least 2.
    pub ring_capacity: usize,
    /// Connections in the process that shards serve; those beyond are closed at once.
    pub connections_max: usize,
    /// What connections may take before they have logged in.
    pub admission: Admission,
    /// Where clients connect.
    pub listeners: Vec<Listener>,
    /// Needed for listeners with TLS.
    pub tls: Option<TlsFiles>,
    /// Files, for a core that keeps any.
    pub storage: Option<Storage>,
    /// How long connections may take to end when the server stops; bringing everything to the disk
    /// may take as long again, and five seconds at least.
    pub stop_timeout: Duration,
    /// What the log prints.
    pub notices: Notices<E>,
    /// The process's clock.
    pub clock: Clock,
}

/// Why the runtime cannot start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The TLS identity cannot be used, or a listener needs one and none is named.
    Tls(TlsError),
    /// A shard's core cannot be made.
    Core {
        /// The shard.
        shard: ShardId,
        /// Why.
        reason: String,
    },
    /// The system refuses threads or readiness queues.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
            StartError::Tls(error) => write!(f, "TLS: {error}"),
            StartError::Core { shard, reason } => write!(f, "shard {shard}: {reason}"),
            StartError::System(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError::System(error)
    }
}

/// Starts the shards and the threads that feed them.
#[derive(Debug)]
pub struct Runtime;

/// What the control threads hold of a running server.
pub struct Running<C: Core> {
    addresses: Vec<SocketAddr>,
    commands: Commands<C>,
    metrics: Vec<Arc<ShardMetrics>>,
    census: Census,
    identity: Option<Arc<Identity>>,
    inside: Inside,
    stopper: Stopper,
    threads: Vec<JoinHandle<()>>,
    talking: Talking,
    closing: Talking,
    ends: Arc<Mutex<Vec<End>>>,
}

/// Stops the server from any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper {
    gate: Arc<Gate>,
    alarms: Vec<Alarm>,
    bells: Vec<Arc<Bell>>,
}

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// Connections that did not end in order: they were cut, or did not answer the broker's close.
    pub cut: usize,
    /// Shards that have not brought everything to the disk.
    pub unclosed: usize,
}

impl Stopper {
    /// As [`Running::set_accepting`].
    pub fn set_accepting(&self, accepting: bool) {
        self.order(!accepting);
    }

    /// The same, once the accepting thread has followed.
    ///
    /// # Errors
    /// In words, when addresses cannot be listened at again, which is tried on, or the thread does not follow within
    /// `timeout`.
    pub fn await_accepting(&self, accepting: bool, timeout: Duration) -> Result<(), String> {
        let order = self.order(!accepting);
        let Some(deaf) = self.gate.wait(order, timeout) else {
            return Err("the thread that accepts connections does not answer".to_owned());
        };
        let deaf = deaf.into_iter().map(|(address, why)| format!("{address}: {why}"));
        let deaf: Vec<String> = deaf.collect();
        if deaf.is_empty() { Ok(()) } else { Err(deaf.join("; ")) }
    }

    fn order(&self, closed: bool) -> u64 {
        let order = self.gate.set_closed(closed);
        for alarm in &self.alarms {
            alarm.ring();
        }
        order
    }

    /// Begins the end and returns at once: listeners close, clients are told, connections end.
    pub fn stop(&self) {
        self.gate.stop();
        for alarm in &self.alarms {
            alarm.ring();
        }
        for bell in &self.bells {
            bell.post(Signal::Stop);
            bell.ring();
        }
    }
}

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Whether the process cannot go on without the calling thread: its panic ends the process once it is
/// unwound. A panic hook may do so before that.
#[must_use]
pub fn is_vital_thread() -> bool {
    IS_VITAL.get()
}

/// Ends the process when its thread panics: a dead shard must not be lived with.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(move || {
        IS_VITAL.set(true);
        let _abort = Abort;
        body();
    })
}

/// A thread on some CPUs; on any where there is none. Where the system refuses it runs anywhere, which
/// costs a little time and nothing else.
fn spawn_at(
    cpus: &Ids,
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let cpus = cpus.clone();
    spawn(name.into(), move || {
        let _enrolled = enroll(Group::Service);
        if !cpus.is_empty() {
            let _ = lepus_topology::bind_current_thread(&cpus);
        }
        body();
    })
}

/// What the accepting side is made of, before its threads start: addresses that are taken, so that a
/// start that is in vain ends before long work, and at which nobody is heard before the work is done.
struct Entrance {
    listeners: Vec<(Bound, Listener)>,
    addresses: Vec<SocketAddr>,
    identity: Option<Arc<Identity>>,
}

impl Entrance {
    fn open<E>(config: &Config<E>) -> Result<Entrance, StartError> {
        let identity = match &config.tls {
            Some(files) => Some(Arc::new(Identity::load(files.clone()).map_err(StartError::Tls)?)),
            None => None,
        };
        let mut entrance = Entrance { listeners: Vec::new(), addresses: Vec::new(), identity };
        for wanted in &config.listeners {
            let is_tls = wanted.transport == Transport::Tls;
            if is_tls && entrance.identity.is_none() {
                return Err(StartError::Tls(TlsError::new(format_args!(
                    "the listener {} needs a certificate",
                    wanted.address
                ))));
            }
            let bound = bind(wanted.address).and_then(|bound| Ok((bound.local_addr()?, bound)));
            let (address, bound) =
                bound.map_err(|error| StartError::Listen { address: wanted.address, error })?;
            entrance.addresses.push(address);
            entrance.listeners.push((bound, Listener { address, ..wanted.clone() }));
        }
        Ok(entrance)
    }

    /// Hears who connects from now on.
    fn listen(listeners: Vec<(Bound, Listener)>) -> Result<Vec<Listening>, StartError> {
        let listen = |(bound, wanted): (Bound, Listener)| {
            let Listener { address, transport, backlog } = wanted;
            let listener =
                bound.listen(backlog).map_err(|error| StartError::Listen { address, error })?;
            let is_tls = transport == Transport::Tls;
            Ok(Listening {
                listener,
                address,
                is_tls,
                backlog,
                is_suspended: false,
                ready: true,
                deaf_until: Instant::default(),
                quiet_until: Instant::default(),
            })
        };
        listeners.into_iter().map(listen).collect()
    }
}

impl Runtime {
    /// Takes the listeners' addresses, starts one thread per shard, each with the core that `make`
    /// returns on that thread, and listens once all of them are made: until then who connects is
    /// refused. What `make` puts into the outbox is carried out.
    ///
    /// # Errors
    /// When an address cannot be listened on, the TLS files are of no use, a core cannot be made, or
    /// the system refuses. Nothing keeps running then.
    pub fn start<C, F>(config: Config<C::Event>, make: F) -> Result<Running<C>, StartError>
    where
        C: Core,
        F: Fn(ShardId, &mut C::Outbox) -> Result<C, String> + Send + Sync + 'static,
    {
        Runtime::start_followed(config, None, make)
    }

    /// The same; `follower` is told every change of the directory that is made from the start on.
    ///
    /// # Errors
    /// As with [`Runtime::start`].
    pub fn start_followed<C, F>(
        config: Config<C::Event>,
        follower: Option<Follower<C>>,
        make: F,
    ) -> Result<Running<C>, StartError>
    where
        C: Core,
        F: Fn(ShardId, &mut C::Outbox) -> Result<C, String> + Send + Sync + 'static,
    {
        let entrance = Entrance::open(&config)?;
        // What is made here belongs to all shards.
        let _shared = Borrowed::shared(&config.plan);
        let mut pollers = Vec::new();
        let mut bells = Vec::new();
        for _ in 0..config.plan.shards.max(1) {
            let poller = Poller::new()?;
            let alarm = poller.alarm();
            bells.push(Arc::new(Bell::new(move || alarm.ring())));
            pollers.push(poller);
        }
        let mut wiring: Wiring<C, TcpStream> =
            Wiring::new(&bells, config.ring_capacity, &config.notices);
        for links in &mut wiring.links {
            links.follower.clone_from(&follower);
        }
        let census = Census::new(&wiring.metrics);
        let connections_max = config.connections_max;
        let distributor =
            Arc::new(Distributor::new(wiring.arrivals, census.clone(), connections_max));
        let mut running = Running {
            addresses: entrance.addresses.clone(),
            commands: wiring.commands,
            metrics: wiring.metrics,
            census: census.clone(),
            identity: entrance.identity.clone(),
            inside: Inside::new(&distributor),
            stopper: Stopper { gate: Arc::default(), alarms: Vec::new(), bells },
            threads: Vec::new(),
            talking: Talking::new(pollers.len()),
            closing: Talking::new(pollers.len()),
            ends: Arc::default(),
        };
        let started = running
            .start_shards(&config, &census, pollers, wiring.links, &Arc::new(make))
            .and_then(|()| running.start_entrance(&config, entrance, &distributor));
        if let Err(error) = started {
            // Those that were not started say nothing.
            running.talking.give_up();
            running.closing.give_up();
            running.stop();
            running.join();
            return Err(error);
        }
        Ok(running)
    }
}

impl<C: Core> Running<C> {
    fn start_shards<F>(
        &mut self,
        config: &Config<C::Event>,
        census: &Census,
        pollers: Vec<Poller>,
        links: Vec<Links<C, TcpStream>>,
        make: &Arc<F>,
    ) -> Result<(), StartError>
    where
        F: Fn(ShardId, &mut C::Outbox) -> Result<C, String> + Send + Sync + 'static,
    {
        let shards = pollers.len();
        let (made, ready) = mpsc::channel();
        for (index, (poller, links)) in pollers.into_iter().zip(links).enumerate() {
            let id = ShardId(index as u16);
            let place = config.plan.places.get(index).cloned();
            let is_numa = config.plan.is_numa;
            let (idle, may_nap) = config.idle.where_it_may_spin(config.plan.may_spin);
            let duty = Duty {
                clock: config.clock,
                idle,
                may_nap,
                stop_timeout: config.stop_timeout,
                census: census.clone(),
                talking: self.talking.clone(),
                closing: self.closing.clone(),
            };
            let entering_max = config.admission.entering_max(shards, config.tls.is_some());
            let notices = config.notices.clone();
            let make = Arc::clone(make);
            let ends = Arc::clone(&self.ends);
            let made = made.clone();
            // Not on the shard's thread: its threads would be bound to its CPU.
            let disk = match &config.storage {
                Some(storage) => {
                    let _near = Borrowed::near(&config.plan, index);
                    Some(self.start_disk(storage, id)?)
                }
                None => None,
            };
            let _there = Borrowed::at(&config.plan, index);
            self.threads.push(spawn(format!("shard-{id}"), move || {
                placement::settle(id, place.as_ref(), is_numa, &links.metrics, &notices);
                let mark = Mark::default();
                let _enrolled = enroll_with(Group::Shard(id.0), mark.clone());
                // Made here, so that its memory lies near the CPU that uses it.
                let mut out = C::outbox(shards as u16);
                let core = match make(id, &mut out) {
                    Ok(core) => core,
                    Err(reason) => {
                        let _ = made.send(Err(StartError::Core { shard: id, reason }));
                        return;
                    }
                };
                // Whoever waits has given up when it does not hear this any more.
                let _ = made.send(Ok(()));
                // What it holds to make cores of is not needed any more.
                drop((made, make));
                let mut shard = Shard::new(core, poller, links)
                    .with_outbox(out)
                    .with_mark(mark)
                    .with_entering_max(entering_max);
                if let Some(disk) = disk {
                    shard = shard.with_disk(Box::new(disk));
                }
                let end = duty::run(shard, &duty);
                ends.lock().unwrap_or_else(PoisonError::into_inner).push(end);
            })?);
        }
        drop(made);
        ready.iter().take(shards).collect()
    }

    fn start_disk(&self, storage: &Storage, shard: ShardId) -> io::Result<FilePort> {
        let files = Files::new(&storage.directory, 0).with_free_limit(&storage.free_limit);
        let files = Arc::new(files.with_open_max(storage.open_files_max));
        let bell = Arc::clone(&self.stopper.bells[shard.index()]);
        FilePort::start(&format!("shard-{shard}"), &files, move || {
            bell.post(Signal::Disk);
            bell.ring();
        })
    }

    fn start_entrance(
        &mut self,
        config: &Config<C::Event>,
        entrance: Entrance,
        distributor: &Arc<Distributor<TcpStream>>,
    ) -> Result<(), StartError> {
        let heard = Entrance::listen(entrance.listeners)?;
        let gate = Arc::clone(&self.stopper.gate);
        let everywhere = Ids::new();
        let binds = config.plan.binds_memory();
        let listeners = if binds { &config.plan.listeners } else { &everywhere };
        let needs_tls = heard.iter().any(|l| l.is_tls);
        let mut to_greeter = None;
        if let Some(identity) = entrance.identity.filter(|_| needs_tls) {
            let poller = Poller::new()?;
            let alarm = poller.alarm();
            let (sender, inbox) = mpsc::channel();
            self.stopper.alarms.push(alarm.clone());
            to_greeter = Some(ToGreeter { sender, alarm, fresh: false });
            let greeter = Greeter {
                poller,
                inbox,
                identity,
                distributor: Arc::clone(distributor),
                notices: config.notices.clone(),
                gate: Arc::clone(&gate),
                clock: config.clock,
                admission: config.admission,
            };
            self.threads.push(spawn_at(listeners, "tls", move || greeter.run())?);
        }
        let poller = Poller::new()?;
        self.stopper.alarms.push(poller.alarm());
        let Admission { waiting_max, silence_timeout, handshake_timeout } = config.admission;
        let porch = Porch::new(
            waiting_max.min(config.connections_max),
            silence_timeout.min(handshake_timeout),
            heard.len() as u32,
            Arc::clone(&distributor.census().tally),
        );
        let mut acceptor = Acceptor {
            poller,
            listeners: heard,
            distributor: Arc::clone(distributor),
            greeter: to_greeter,
            notices: config.notices.clone(),
            gate,
            followed_order: 0,
            clock: config.clock,
            porch,
            admission: config.admission,
            rest_until: Instant::default(),
            quiet_until: Instant::default(),
            turned_away: TurnedAway::default(),
        };
        acceptor.register()?;
        self.threads.push(spawn_at(listeners, "acceptor", move || acceptor.run())?);
        Ok(())
    }

    /// The addresses listened on, in the order of the configured listeners.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The shards' counters, in the order of the shards.
    #[must_use]
    pub fn metrics(&self) -> &[Arc<ShardMetrics>] {
        &self.metrics
    }

    /// The entrance's counters.
    #[must_use]
    pub fn entrance(&self) -> Arc<EntranceMetrics> {
        Arc::clone(&self.census.tally)
    }

    /// Sends commands to the shards.
    #[must_use]
    pub fn commands(&self) -> Commands<C> {
        self.commands.clone()
    }

    /// Opens connections from inside the process.
    #[must_use]
    pub fn inside(&self) -> Inside {
        self.inside.clone()
    }

    /// Stops the server from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What new connections with TLS use, to be read again; `None` where no TLS files are named.
    #[must_use]
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.clone()
    }

    /// Has new connections refused, or takes them again. The accepting thread follows a moment later.
    pub fn set_accepting(&self, accepting: bool) {
        self.stopper.set_accepting(accepting);
    }

    /// Begins the end; see [`Stopper::stop`].
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits until all threads have ended. Without [`Running::stop`] this waits for ever.
    pub fn join(self) -> StopReport {
        for thread in self.threads {
            // A panic would have ended the process.
            let _ = thread.join();
        }
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        StopReport {
            cut: ends.iter().map(|end| end.cut).sum(),
            unclosed: ends.iter().filter(|end| !end.is_closed).count(),
        }
    }
}
