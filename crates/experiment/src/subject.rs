//! The broker under test: one that is started here, or one that runs somewhere.

use crate::affinity::spawn_on;
use crate::disk::Device;
use crate::peer::Peer;
use crate::procfs;
use crate::rabbitmq::Node;
use crate::sample::Target;
use crate::stop::Stop;
use lepus_amqp::client::ClientOptions;
use lepus_amqp::method::queue;
use lepus_perf::Uri;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a broker may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(50);
/// How long a remote broker may take to answer a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Which broker is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A `lepus` that is started here.
    Own,
    /// A RabbitMQ that is started here from what is installed.
    RabbitMq,
    /// The broker at this address, which runs already, and its process where the caller knows it.
    At(String, Option<u32>),
}

impl Choice {
    /// What the brokers are called in figures; `number` tells two of a kind apart.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Choice::Own => "lepus".to_owned(),
            Choice::RabbitMq => "rabbitmq".to_owned(),
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
    /// Further words for `lepus serve`.
    pub flags: Vec<String>,
    /// A directory for the brokers' data, of this run's own.
    pub scratch: PathBuf,
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
    /// Its process; none when it runs elsewhere or cannot be seen.
    pub pid: Option<u32>,
    /// The port of its metrics, where it is a `lepus` of ours.
    pub metrics: Option<u16>,
    data: Option<PathBuf>,
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
        let scratch = site.scratch.join(name.replace(['/', ':'], "-"));
        if choice.is_ours() {
            if fresh && scratch.exists() {
                fs::remove_dir_all(&scratch)?;
            }
            fs::create_dir_all(&scratch)?;
        }
        let mut subject = match choice {
            Choice::Own => start_own(site, &scratch, placement)?,
            Choice::RabbitMq => start_rabbitmq(&scratch, placement)?,
            Choice::At(uri, pid) => find(uri, *pid)?,
        };
        subject.wait_until_it_answers(&scratch, stop)?;
        if *choice == Choice::RabbitMq {
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
            pid: None,
            metrics: None,
            data: None,
            children: Vec::new(),
        }
    }

    /// A client of its own.
    ///
    /// # Errors
    /// When it cannot log in.
    pub fn peer(&self) -> io::Result<Peer<TcpStream>> {
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
        let mut peer = Peer::open(stream, options)?;
        peer.open_channel(1)?;
        Ok(peer)
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

    fn address(&self) -> io::Result<Uri> {
        Uri::parse(&self.uri).map_err(io::Error::other)
    }

    fn wait_until_it_answers(&mut self, scratch: &Path, stop: &Stop) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let error = match self.peer() {
                Ok(peer) => {
                    self.product = peer.product();
                    return Ok(());
                }
                Err(error) => error,
            };
            if self.children.is_empty() {
                return Err(io::Error::other(format!("{}: {error}", without_password(&self.uri))));
            }
            let ended = self.children[0].try_wait()?.is_some();
            if stop.is_wanted() {
                return Err(io::Error::other("ended before it had started"));
            }
            if ended || start.elapsed() > PATIENCE {
                let log = scratch.join("output.log");
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last = text.lines().last().unwrap_or("it printed nothing");
                let log = log.display();
                return Err(io::Error::other(format!("did not start: {last} (all of it: {log})")));
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

fn start_own(site: &Site, scratch: &Path, placement: &Placement) -> io::Result<Subject> {
    let (port, metrics) = (free_ports(1)?, free_ports(1)?);
    let data = scratch.join("data");
    let mut command = Command::new(&site.lepus);
    // Below its own directory, because the path of the control socket in it has to be short.
    command.arg("serve").current_dir(scratch).args(["--data-dir", "data"]);
    command.args(["--port", &format!("127.0.0.1:{port}")]);
    command.args(["--metrics-listen", &format!("127.0.0.1:{metrics}")]);
    command.args(["--shards", &placement.broker.len().max(1).to_string()]);
    command.args(&site.flags);
    let child = start(&mut command, scratch, placement)?;
    fs::create_dir_all(&data)?;
    Ok(Subject {
        uri: format!("amqp://guest:guest@127.0.0.1:{port}"),
        product: String::new(),
        pid: Some(child.id()),
        metrics: Some(metrics),
        data: Some(data),
        children: vec![child],
    })
}

fn start_rabbitmq(scratch: &Path, placement: &Placement) -> io::Result<Subject> {
    if let Some(reason) = Node::missing() {
        return Err(io::Error::other(format!("RabbitMQ cannot be started: {reason}")));
    }
    let port = free_ports(3)?;
    // The same at every start: its data belongs to its name. Other nodes have other port mappers.
    let name = "lepus-experiment@localhost".to_owned();
    let node = Node { name, port, scratch: scratch.to_owned() };
    let mapper = node.start_mapper()?;
    let mut command = Command::new(Node::server());
    node.set_environment(&mut command);
    let mut subject = Subject {
        uri: format!("amqp://guest:guest@127.0.0.1:{port}"),
        product: String::new(),
        pid: None,
        metrics: None,
        data: Some(scratch.to_owned()),
        children: vec![mapper],
    };
    let server = start(&mut command, scratch, placement)?;
    subject.children.insert(0, server);
    Ok(subject)
}

/// Starts a broker in a group of its own, so that Ctrl-C reaches the experiment alone.
fn start(command: &mut Command, scratch: &Path, placement: &Placement) -> io::Result<Child> {
    let log = File::create(scratch.join("output.log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let program = command.get_program().display().to_string();
    let child = spawn_on(&placement.broker, command);
    child.map_err(|error| io::Error::other(format!("cannot start {program}: {error}")))
}

fn find(uri: &str, pid: Option<u32>) -> io::Result<Subject> {
    let parts = Uri::parse(uri).map_err(io::Error::other)?;
    let pid = pid.or_else(|| match is_local(&parts.host) {
        true => procfs::listener(parts.port),
        false => None,
    });
    Ok(Subject {
        uri: uri.to_owned(),
        product: String::new(),
        pid,
        metrics: None,
        data: None,
        children: Vec::new(),
    })
}

/// Whether a host is this machine: an address of its can be bound.
fn is_local(host: &str) -> bool {
    let addresses = (host, 0).to_socket_addrs();
    addresses.is_ok_and(|mut found| found.any(|address| UdpSocket::bind(address).is_ok()))
}

/// The first of `count` neighbouring ports that nobody listens on at the moment.
fn free_ports(count: u16) -> io::Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let others = first.checked_add(count - 1).map(|last| first..=last);
        if others.is_some_and(|mut ports| {
            ports.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        }) {
            return Ok(first);
        }
    }
    Err(io::Error::other(format!("no {count} neighbouring ports are free")))
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
    fn this_machine_is_told_from_others() {
        assert!(is_local("127.0.0.1") && is_local("localhost"));
        // Set aside for documentation: nobody has it.
        assert!(!is_local("192.0.2.1"));
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
        let port = free_ports(3).unwrap();
        let choice = Choice::At(format!("amqp://u:secret@127.0.0.1:{port}"), None);
        let site = Site { lepus: PathBuf::new(), flags: Vec::new(), scratch: PathBuf::new() };
        let error =
            Subject::start(&choice, "x", &site, &Placement::halves(&[0]), true, &Stop::default())
                .err();
        let text = error.unwrap().to_string();
        assert!(text.contains(&port.to_string()) && !text.contains("secret"), "{text}");
    }
}
