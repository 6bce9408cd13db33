//! The broker under test: one that is started here, or one that runs somewhere.

use crate::affinity::spawn_on;
use crate::artemis;
use crate::disk::{Device, named};
use crate::metrics::{self, Counts};
use crate::nats;
use crate::qpid;
use crate::rabbitmq::Node;
use crate::sample::Target;
use crate::stop::Stop;
use crate::surroundings;
use lepus_amqp::client::ClientOptions;
use lepus_amqp::method::queue;
use lepus_perf::Uri;
use lepus_probe::Client;
use lepus_probe::procfs::{self, Reading};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a broker may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(50);
/// How often it is looked whether a broker has started: its start is known no better.
pub const START_LOOK: Duration = PAUSE;
/// Time between two looks at memory that is to stand still, and how many there are at most.
#[cfg(feature = "bench")]
const SETTLE_LOOK: Duration = Duration::from_millis(500);
#[cfg(feature = "bench")]
const SETTLE_LOOKS: usize = 120;
/// How long a remote broker may take to answer a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A broker that can be started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This project's broker.
    Lepus,
    /// RabbitMQ, as installed.
    RabbitMq,
    /// LavinMQ, where a path to its binary is given.
    LavinMq,
    /// The broker that does next to nothing.
    NullBroker,
    /// The NATS server of `bench/nats-peer`, which speaks another protocol.
    Nats,
    /// Apache Qpid Broker-J, as `bench/qpid-peer` starts it: beside content filters alone, since it does not tell its counts.
    Qpid,
    /// Apache Artemis, as `bench/artemis-peer` starts it, which speaks another protocol: beside content filters alone.
    Artemis,
    /// The relay that does nothing but copy publishes from its port to the next one; nobody can log in to it.
    NullRelay,
}

impl Kind {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Kind; 8] = [
        Kind::Lepus,
        Kind::RabbitMq,
        Kind::LavinMq,
        Kind::Qpid,
        Kind::Artemis,
        Kind::Nats,
        Kind::NullBroker,
        Kind::NullRelay,
    ];

    /// The name on command lines and in figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lepus => "lepus",
            Kind::RabbitMq => "rabbitmq",
            Kind::LavinMq => "lavinmq",
            Kind::Qpid => "qpid",
            Kind::Artemis => "artemis",
            Kind::Nats => "nats",
            Kind::NullBroker => "null-broker",
            Kind::NullRelay => "null-relay",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether clients for AMQP can load it.
    #[must_use]
    pub fn speaks_amqp(self) -> bool {
        !matches!(self, Kind::Nats | Kind::Artemis | Kind::NullRelay)
    }

    /// Whether it tells what it has counted.
    #[must_use]
    pub fn counts(self) -> bool {
        !matches!(self, Kind::Qpid | Kind::Artemis)
    }

    /// The one of this name that clients for AMQP can load, and that tells its counts.
    #[must_use]
    pub fn find_for_amqp(name: &str) -> Option<Kind> {
        Kind::find(name).filter(|kind| kind.speaks_amqp() && kind.counts())
    }

    /// Why it cannot be started here, if so.
    #[must_use]
    pub fn missing(self, site: &Site) -> Option<String> {
        let program = match self {
            Kind::RabbitMq => return Node::missing(),
            Kind::Qpid => return qpid::missing(&site.qpid),
            Kind::Artemis => return artemis::missing(&site.artemis),
            Kind::Lepus => &site.lepus,
            Kind::Nats => &site.nats,
            Kind::NullBroker | Kind::NullRelay => &site.bench,
            Kind::LavinMq => match &site.lavinmq {
                Some(path) => path,
                None => return Some("neither --lavinmq nor LAVINMQ names its binary".to_owned()),
            },
        };
        (!program.exists()).then(|| format!("{} is not there", program.display()))
    }
}

/// Which broker is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One that is started here.
    Ours(Kind),
    /// The broker at this address, which runs already, and its process where the caller knows it.
    At(String, Option<u32>),
}

impl Choice {
    /// What the brokers are called in figures.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Choice::Ours(kind) => kind.name().to_owned(),
            Choice::At(uri, _) => match Uri::parse(uri) {
                Ok(uri) => format!("{}:{}", uri.host, uri.port),
                Err(_) => uri.clone(),
            },
        }
    }

    /// Whether it is started and stopped here, so that it can be placed and restarted.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        !matches!(self, Choice::At(..))
    }
}

/// Where programs and data are.
#[derive(Clone, Debug)]
pub struct Site {
    /// The binary `lepus`, for broker and load.
    pub lepus: PathBuf,
    /// LavinMQ's binary, where one is named.
    pub lavinmq: Option<PathBuf>,
    /// The binary `lepus-bench`, which has the null broker and the null relay.
    pub bench: PathBuf,
    /// The binary that `bench/nats-peer` is built to.
    pub nats: PathBuf,
    /// The directory that `bench/qpid-peer` is built to.
    pub qpid: PathBuf,
    /// The directory that `bench/artemis-peer` is built to.
    pub artemis: PathBuf,
    /// Further words for `lepus serve`.
    pub flags: Vec<String>,
    /// A directory for the brokers' data, of this run's own.
    pub scratch: PathBuf,
}

impl Site {
    /// Brokers without further words: `lepus` as named, LavinMQ where the variable `LAVINMQ` names it, `lepus-bench` beside
    /// `lepus`. The directory for data is still to be set.
    #[must_use]
    pub fn new(lepus: PathBuf) -> Site {
        let named = std::env::var_os("LAVINMQ").filter(|path| !path.is_empty());
        Site {
            bench: lepus.with_file_name("lepus-bench"),
            lepus,
            // Brokers are started in directories of their own.
            lavinmq: named.and_then(|path| std::path::absolute(path).ok()),
            nats: PathBuf::from("build/nats-peer"),
            qpid: PathBuf::from("build/qpid-peer"),
            artemis: PathBuf::from("build/artemis-peer"),
            flags: Vec::new(),
            scratch: PathBuf::new(),
        }
    }
}

/// Who runs on which CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What it is called in figures.
    pub name: String,
    /// The broker's CPUs; a `lepus` gets as many shards.
    pub broker: Vec<usize>,
    /// The load's CPUs.
    pub load: Vec<usize>,
}

impl Placement {
    /// The broker on the first half of `cpus`, the load on the rest; both on the only one where there is no more.
    #[must_use]
    pub fn halves(cpus: &[usize]) -> Placement {
        let half = (cpus.len() / 2).max(1);
        Placement::first(cpus, half)
    }

    /// The broker on the first `count` of `cpus` and the load on the rest, or on all where none is left.
    #[must_use]
    pub fn first(cpus: &[usize], count: usize) -> Placement {
        let count = count.clamp(1, cpus.len().max(1)).min(cpus.len());
        let (broker, rest) = cpus.split_at(count);
        let cores = if count == 1 { "1 core".to_owned() } else { format!("{count} cores") };
        match rest.is_empty() {
            true => Placement {
                name: format!("{cores},\nshared with the load"),
                broker: broker.to_vec(),
                load: cpus.to_vec(),
            },
            false => Placement { name: cores, broker: broker.to_vec(), load: rest.to_vec() },
        }
    }

    /// The name in one line.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.replace('\n', " ")
    }
}

/// A broker that can be loaded.
pub struct Subject {
    /// Its address for clients.
    pub uri: String,
    /// Product and version as it tells them.
    pub product: String,
    /// The settings that it was started with, as far as they matter for what is measured; where it runs already, where.
    pub settings: String,
    /// Its process; none when it runs elsewhere or cannot be seen.
    pub pid: Option<u32>,
    /// The port of its metrics, where it is one of ours that shows them.
    pub metrics: Option<u16>,
    /// Which one it is, where it was started here.
    kind: Option<Kind>,
    data: Option<PathBuf>,
    /// RabbitMQ, to be asked by its own tools.
    node: Option<Node>,
    /// Everything that it prints, where it was started here.
    log: PathBuf,
    /// What was started, the broker first.
    children: Vec<Child>,
}

impl Subject {
    /// Starts the broker, or finds it, and waits until it takes connections. With `fresh` one of ours begins with an empty
    /// directory, otherwise with what the last one of this `name` left.
    ///
    /// # Errors
    /// When it cannot be started or reached; what it printed is named.
    pub fn start(
        choice: &Choice,
        name: &str,
        site: &Site,
        placement: &Placement,
        fresh: bool,
        stop: &Stop,
    ) -> io::Result<Subject> {
        if stop.is_wanted() {
            return Err(io::Error::other("nothing is started any more"));
        }
        let scratch = site.scratch.join(name.replace(['/', ':'], "-"));
        if choice.is_ours() {
            if fresh && scratch.exists() {
                fs::remove_dir_all(&scratch)?;
            }
            fs::create_dir_all(&scratch).map_err(|error| named(&scratch, &error))?;
        }
        let mut subject = match choice {
            Choice::Ours(kind) => start_ours(*kind, site, &scratch, placement)?,
            Choice::At(uri, pid) => find(uri, *pid)?,
        };
        subject.wait_until_it_answers(stop)?;
        if subject.node.is_some() {
            subject.pid = procfs::listener(subject.address()?.port);
        }
        Ok(subject)
    }

    /// A broker that runs, as one whose process cannot be seen.
    #[must_use]
    pub fn elsewhere(uri: &str) -> Subject {
        Subject {
            uri: uri.to_owned(),
            product: String::new(),
            settings: String::new(),
            pid: None,
            metrics: None,
            kind: None,
            data: None,
            node: None,
            log: PathBuf::new(),
            children: Vec::new(),
        }
    }

    /// Which one it is, where it was started here.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Its process.
    ///
    /// # Errors
    /// When it cannot be seen.
    pub fn seen_pid(&self) -> io::Result<u32> {
        self.pid.ok_or_else(|| io::Error::other("the broker's process cannot be seen"))
    }

    /// What the system says of its process now.
    ///
    /// # Errors
    /// When it cannot be seen, or has ended.
    pub fn read(&self) -> io::Result<Reading> {
        procfs::read(self.seen_pid()?)
    }

    /// Resident bytes once they stand still for half a second.
    ///
    /// # Errors
    /// As for [`Subject::read`], and when they do not stand still within a minute, or somebody wants the whole to end.
    #[cfg(feature = "bench")]
    pub fn settled_bytes(&self, stop: &Stop) -> io::Result<u64> {
        settled(|| Ok(self.read()?.resident_bytes), || sleep(SETTLE_LOOK), stop)
    }

    /// The port of AMQP; 0 where the address cannot be read.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address().map_or(0, |uri| uri.port)
    }

    /// A client of its own, with channel 1 open.
    ///
    /// # Errors
    /// When it cannot log in.
    pub fn peer(&self) -> io::Result<Client<TcpStream>> {
        let mut peer = self.connect()?;
        peer.open_channel(1)?;
        Ok(peer)
    }

    /// A client of its own, without channels.
    ///
    /// # Errors
    /// When it cannot log in.
    pub fn connect(&self) -> io::Result<Client<TcpStream>> {
        let uri = self.address()?;
        let address = (uri.host.as_str(), uri.port).to_socket_addrs()?.next();
        let address = address.ok_or(io::ErrorKind::NotFound)?;
        let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let options = ClientOptions {
            user: uri.user,
            password: uri.password,
            vhost: uri.vhost,
            ..ClientOptions::default()
        };
        Client::open(stream, options)
    }

    /// Deletes a queue with all that is in it; one that is not there is left so.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn delete_queue(&self, queue: &str) -> io::Result<()> {
        let mut peer = self.peer()?;
        peer.send(1, queue::Delete { queue, ..Default::default() });
        peer.expect("queue.delete-ok")
    }

    /// The directory of its data, where it was started here.
    #[must_use]
    pub fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// What can be sampled of it.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        let device = self.data.as_deref().and_then(|data| Device::of(data).ok());
        self.pid.map(|pid| Target { pid, device })
    }

    /// Whether reading the counts costs next to nothing; RabbitMQ is asked by a program that takes seconds of CPU.
    #[must_use]
    pub fn counts_cheaply(&self) -> bool {
        self.metrics.is_some()
    }

    /// Whether its counts stand when a load is over; LavinMQ's are without those of queues that are gone.
    #[must_use]
    pub fn keeps_counts(&self) -> bool {
        self.kind != Some(Kind::LavinMq)
    }

    /// Its page of metrics.
    ///
    /// # Errors
    /// When it has none, or does not give it.
    pub fn metrics(&self) -> io::Result<String> {
        let port = self.metrics.ok_or_else(|| io::Error::other("this broker has no metrics"))?;
        metrics::fetch(("127.0.0.1", port))
    }

    /// What the broker has counted.
    ///
    /// # Errors
    /// When it does not tell, as one that was not started here.
    pub fn counts(&self) -> io::Result<Counts> {
        match (self.metrics, &self.node) {
            (Some(port), _) => Ok(Counts::from_metrics(&metrics::fetch(("127.0.0.1", port))?)),
            (None, Some(node)) => node.counts(),
            (None, None) => Err(io::Error::other("this broker does not tell its counts")),
        }
    }

    /// Asks the broker to end in order, without waiting for it.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn ask_to_end(&self) -> io::Result<()> {
        signal(self.seen_pid()?, Signal::TERM)
    }

    /// Ends the broker and returns what it printed.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn stop(self) -> io::Result<String> {
        let log = self.log.clone();
        drop(self);
        fs::read_to_string(log)
    }

    /// Whether it answers, or why not.
    fn greet(&mut self) -> io::Result<()> {
        match (self.kind, self.metrics) {
            // A connection to the relay would be taken for its input.
            (Some(Kind::NullRelay), Some(port)) => metrics::fetch(("127.0.0.1", port)).map(drop),
            (Some(Kind::Nats), Some(port)) => {
                // The page of metrics comes after everything else.
                metrics::fetch(("127.0.0.1", port))?;
                self.product = nats::product(self.port())?;
                Ok(())
            }
            (Some(Kind::Artemis), _) => {
                let printed = fs::read_to_string(&self.log)?;
                self.product = artemis::product(&printed).ok_or(io::ErrorKind::NotConnected)?;
                Ok(())
            }
            // It tells the product that clients expect.
            (Some(Kind::NullBroker), _) => self.peer().map(drop),
            _ => self.peer().map(|peer| self.product = peer.product()),
        }
    }

    fn address(&self) -> io::Result<Uri> {
        Uri::parse(&self.uri).map_err(io::Error::other)
    }

    fn wait_until_it_answers(&mut self, stop: &Stop) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let Err(error) = self.greet() else { return Ok(()) };
            if self.children.is_empty() {
                return Err(io::Error::other(format!("{}: {error}", without_password(&self.uri))));
            }
            let ended = self.children[0].try_wait()?.is_some();
            if stop.is_wanted() {
                return Err(io::Error::other("ended before it had started"));
            }
            if ended || start.elapsed() > PATIENCE {
                let text = fs::read_to_string(&self.log).unwrap_or_default();
                let (why, log) = (complaint(&text), self.log.display());
                return Err(io::Error::other(format!("did not start: {why} (all of it: {log})")));
            }
            sleep(PAUSE);
        }
    }
}

impl Drop for Subject {
    /// Ends what was started here: asks first, and does not ask for ever.
    fn drop(&mut self) {
        if self.children.is_empty() {
            return;
        }
        let main = self.children[0].id();
        // What has ended already cannot be told to. A script's broker leaves in better order than the script.
        let _ = signal(self.pid.unwrap_or(main), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < PATIENCE && matches!(self.children[0].try_wait(), Ok(None)) {
            sleep(PAUSE);
        }
        // Nothing that it started may stay.
        if let Some(group) = i32::try_from(main).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What two looks in a row show, with a rest between them.
#[cfg(feature = "bench")]
fn settled(
    mut look: impl FnMut() -> io::Result<u64>,
    rest: impl Fn(),
    stop: &Stop,
) -> io::Result<u64> {
    let mut last = look()?;
    for _ in 0..SETTLE_LOOKS {
        if stop.is_wanted() {
            return Err(io::Error::other("it was ended early"));
        }
        rest();
        let now = look()?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
    Err(io::Error::other("the broker's memory does not stand still"))
}

/// Of what a broker printed that did not start, the line that says why: the first error, or the last line.
fn complaint(printed: &str) -> &str {
    let error = printed.lines().find(|line| line.starts_with("error:"));
    error.or(printed.lines().last()).unwrap_or("it printed nothing")
}

/// Sends a signal to a program that was started here.
///
/// # Errors
/// When it is gone.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    Ok(kill_process(pid.ok_or(io::ErrorKind::InvalidInput)?, signal)?)
}

/// The address as it may be shown.
#[must_use]
pub fn without_password(uri: &str) -> String {
    match Uri::parse(uri) {
        Ok(parts) => {
            format!(
                "amqp://{}@{}:{}/{}",
                parts.user,
                parts.host,
                parts.port,
                parts.vhost.replace('/', "%2f")
            )
        }
        Err(_) => uri.to_owned(),
    }
}

fn start_ours(
    kind: Kind,
    site: &Site,
    scratch: &Path,
    placement: &Placement,
) -> io::Result<Subject> {
    if let Some(reason) = kind.missing(site) {
        return Err(io::Error::other(format!("{} cannot be started: {reason}", kind.name())));
    }
    let ports = Ports::free()?;
    let uri = format!("amqp://guest:guest@127.0.0.1:{}", ports.amqp);
    let mut subject = Subject::elsewhere(&uri);
    subject.kind = Some(kind);
    subject.settings = settings(kind, site, placement);
    let has_metrics = !matches!(kind, Kind::RabbitMq | Kind::Qpid | Kind::Artemis);
    subject.metrics = has_metrics.then_some(ports.metrics);
    subject.data = Some(scratch.join("data"));
    subject.log = scratch.join("output.log");
    let mut command = match kind {
        Kind::Lepus => own_command(site, ports, placement),
        Kind::LavinMq => lavinmq_command(site, ports),
        Kind::Qpid => qpid::command(&site.qpid, ports.amqp, Path::new("data")),
        Kind::Artemis => artemis::command(&site.artemis, ports.amqp, Path::new("data")),
        Kind::Nats => {
            let mut command = Command::new(&site.nats);
            command.args([ports.amqp, ports.metrics].map(|port| port.to_string()));
            command
        }
        Kind::NullBroker | Kind::NullRelay => {
            let mut command = Command::new(&site.bench);
            command.args([kind.name(), &ports.amqp.to_string(), &ports.metrics.to_string()]);
            command
        }
        Kind::RabbitMq => {
            // The same name at every start: its data belongs to it. Other nodes have other port mappers.
            let name = "lepus-experiment@localhost".to_owned();
            let node = Node { name, port: ports.amqp, scratch: scratch.to_owned() };
            let mut command = Command::new(Node::server());
            node.set_environment(&mut command);
            subject.children.push(node.start_mapper()?);
            subject.data = Some(node.data());
            subject.node = Some(node);
            command
        }
    };
    if let Some(data) = &subject.data {
        fs::create_dir_all(data)?;
    }
    if kind != Kind::RabbitMq {
        surroundings::clear(&mut command);
    }
    // Below its own directory, because the path of the control socket in it has to be short.
    command.current_dir(scratch).stdin(Stdio::null());
    let log = File::create(&subject.log)?;
    // In a group of its own, so that Ctrl-C reaches the experiment alone.
    command.stdout(log.try_clone()?).stderr(log).process_group(0);
    let program = command.get_program().display().to_string();
    let child = spawn_on(&placement.broker, &mut command)
        .map_err(|error| io::Error::other(format!("cannot start {program}: {error}")))?;
    subject.pid = Some(child.id());
    subject.children.insert(0, child);
    Ok(subject)
}

/// What is set of a broker that is started here, apart from ports and paths.
fn settings(kind: Kind, site: &Site, placement: &Placement) -> String {
    let cpus: Vec<String> = placement.broker.iter().map(usize::to_string).collect();
    let mut words = match kind {
        Kind::Lepus => format!("--shards {}", placement.broker.len().max(1)),
        Kind::RabbitMq => "no plugins, no configuration file".to_owned(),
        Kind::LavinMq => format!("{LAVINMQ_LOG} {LAVINMQ_MQTT}"),
        Kind::Qpid => qpid::SETTINGS.to_owned(),
        Kind::Artemis => artemis::SETTINGS.to_owned(),
        Kind::Nats => "its own settings, no JetStream".to_owned(),
        Kind::NullBroker | Kind::NullRelay => "no settings".to_owned(),
    };
    if kind == Kind::Lepus && !site.flags.is_empty() {
        words.push_str(&format!(" {}", site.flags.join(" ")));
    }
    if !cpus.is_empty() {
        words.push_str(&format!(", on CPU {}", cpus.join(", ")));
    }
    words
}

/// LavinMQ tells of warnings only, as the others do here.
const LAVINMQ_LOG: &str = "--log-level=warn";
/// It listens for AMQP alone.
const LAVINMQ_MQTT: &str = "--mqtt-port=-1";

fn own_command(site: &Site, ports: Ports, placement: &Placement) -> Command {
    let mut command = Command::new(&site.lepus);
    command.args(["serve", "--data-dir", "data"]);
    command.args(["--port", &format!("127.0.0.1:{}", ports.amqp)]);
    command.args(["--metrics-listen", &format!("127.0.0.1:{}", ports.metrics)]);
    command.args(["--management-listen", "none", "--management-tls-listen", "none"]);
    command.args(["--shards", &placement.broker.len().max(1).to_string()]);
    command.args(&site.flags);
    command
}

fn lavinmq_command(site: &Site, ports: Ports) -> Command {
    let mut command = Command::new(site.lavinmq.as_deref().unwrap_or(Path::new("lavinmq")));
    command.args(["-D", "data", "-b", "127.0.0.1", LAVINMQ_LOG, LAVINMQ_MQTT]);
    command.args([
        format!("--amqp-port={}", ports.amqp),
        format!("--http-port={}", ports.second),
        format!("--clustering-port={}", ports.third),
        format!("--metrics-http-port={}", ports.metrics),
    ]);
    command.args(["--control-unix-path=control.sock", "--pidfile=pid"]);
    command
}

fn find(uri: &str, pid: Option<u32>) -> io::Result<Subject> {
    let parts = Uri::parse(uri).map_err(io::Error::other)?;
    let pid = pid.or_else(|| match is_local(&parts.host) {
        true => procfs::listener(parts.port),
        false => None,
    });
    let mut subject = Subject::elsewhere(uri);
    let unseen = if pid.is_none() { "; no samples, its process cannot be seen" } else { "" };
    subject.settings = format!("settings of its own; it runs at {}{unseen}", without_password(uri));
    subject.pid = pid;
    Ok(subject)
}

/// Whether a host is this machine: an address of its can be bound.
fn is_local(host: &str) -> bool {
    let addresses = (host, 0).to_socket_addrs();
    addresses.is_ok_and(|mut found| found.any(|address| UdpSocket::bind(address).is_ok()))
}

/// Neighbouring ports: of AMQP, of what a broker needs beside it (the relay's output, traffic between nodes, HTTP, a port
/// mapper), and of metrics.
#[derive(Clone, Copy, Debug)]
struct Ports {
    amqp: u16,
    second: u16,
    third: u16,
    metrics: u16,
}

impl Ports {
    /// Ports that nobody listens on at the moment, and that no connection has that is made or ended: there are very many
    /// of these behind a load of connections.
    fn free() -> io::Result<Ports> {
        let chance = RandomState::new();
        for attempt in 0..1000_u32 {
            let amqp = OWN_PORTS.start + (chance.hash_one(attempt) % PLACES) as u16;
            let metrics = amqp + 3;
            if (amqp..=metrics).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
                return Ok(Ports { amqp, second: amqp + 1, third: amqp + 2, metrics });
            }
        }
        let Range { start, end } = OWN_PORTS;
        Err(io::Error::other(format!("no 4 neighbouring ports from {start} to {end} are free")))
    }
}

/// Ports below those that Linux gives to connections (`ip_local_port_range`, from 32,768 on unless somebody changes it).
const OWN_PORTS: Range<u16> = 10_000..32_000;
/// Where four of them may begin.
const PLACES: u64 = (OWN_PORTS.end - OWN_PORTS.start - 3) as u64;

/// A port that nobody listens on at the moment.
///
/// # Errors
/// When there is none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broker_and_load_share_cpus_only_where_there_are_too_few() {
        let four = Placement::halves(&[0, 1, 2, 3]);
        assert_eq!((four.broker, four.load), (vec![0, 1], vec![2, 3]));
        let all = Placement::first(&[4, 5], 2);
        assert_eq!((all.broker.clone(), all.load.clone()), (vec![4, 5], vec![4, 5]));
        assert_eq!(all.label(), "2 cores, shared with the load");
        let one = Placement::halves(&[7]);
        assert_eq!((one.broker, one.load), (vec![7], vec![7]));
        assert_eq!(Placement::first(&[0, 1], 9).broker, [0, 1]);
        assert!(Placement::first(&[], 1).broker.is_empty());
    }

    #[test]
    fn a_broker_that_is_not_there_is_left_out_with_the_reason() {
        let site = Site { lavinmq: None, ..Site::new(PathBuf::from("/no/such/lepus")) };
        assert_eq!(Kind::Lepus.missing(&site), Some("/no/such/lepus is not there".to_owned()));
        let text = Kind::NullBroker.missing(&site).unwrap();
        assert!(text.contains("/no/such/lepus-bench"), "{text}");
        assert!(Kind::LavinMq.missing(&site).unwrap().contains("LAVINMQ"));
        for kind in Kind::ALL {
            assert_eq!(Kind::find(kind.name()), Some(kind));
        }
    }

    #[test]
    fn nothing_is_started_once_the_end_is_wanted() {
        let stop = Stop::default();
        stop.wish();
        let site = Site::new(std::env::current_exe().unwrap());
        let choice = Choice::Ours(Kind::Lepus);
        let started = Subject::start(&choice, "x", &site, &Placement::halves(&[0]), true, &stop);
        assert!(started.err().unwrap().to_string().contains("nothing is started"));
        assert!(!site.scratch.join("x").exists());
    }

    #[test]
    fn this_machine_is_told_from_others() {
        assert!(is_local("127.0.0.1") && is_local("localhost"));
        // Set aside for documentation: nobody has it.
        assert!(!is_local("192.0.2.1"));
    }

    #[test]
    #[cfg(feature = "bench")]
    fn memory_that_never_stands_still_is_waited_for_no_longer() {
        let stop = Stop::default();
        let mut left = [3, 5, 5, 7].into_iter();
        assert_eq!(settled(|| Ok(left.next().unwrap()), || {}, &stop).unwrap(), 5);
        let mut grows = 0;
        let mut look = || {
            grows += 1;
            Ok(grows)
        };
        let text = settled(&mut look, || {}, &stop).unwrap_err().to_string();
        assert!(text.contains("does not stand still"), "{text}");
        stop.wish();
        assert!(settled(look, || {}, &stop).unwrap_err().to_string().contains("ended early"));
    }

    #[test]
    fn the_first_error_says_why_a_broker_did_not_start() {
        let printed = "a line\nerror: unexpected argument '-x' found\n\nUsage: x\n\nFor more information, try '--help'.\n";
        assert_eq!(complaint(printed), "error: unexpected argument '-x' found");
        assert_eq!(complaint("one\ntwo\n"), "two");
        assert_eq!(complaint(""), "it printed nothing");
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_password("amqp://me:secret@broker:5673/shop");
        assert_eq!(shown, "amqp://me@broker:5673/shop");
        assert_eq!(
            Choice::At("amqp://me:secret@broker:5673".to_owned(), None).name(),
            "broker:5673"
        );
    }

    #[test]
    fn a_broker_that_does_not_answer_is_an_error_that_names_it() {
        let port = free_port().unwrap();
        let choice = Choice::At(format!("amqp://u:secret@127.0.0.1:{port}"), None);
        let site = Site::new(PathBuf::new());
        let error =
            Subject::start(&choice, "x", &site, &Placement::halves(&[0]), true, &Stop::default())
                .err();
        let text = error.unwrap().to_string();
        assert!(text.contains(&port.to_string()) && !text.contains("secret"), "{text}");
    }
}
