//! What is measured: the brokers and floors, each started on its core and stopped by its id.

use crate::bench::counters::Counts;
use crate::metrics;
use crate::rabbitmq::Node;
use std::fs::{self, File};
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a broker may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const RABBITMQ_NODE: &str = "lepus-bench@localhost";

/// What can be measured.
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
    /// The relay that does nothing but copy.
    NullRelay,
}

impl Kind {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Kind; 5] =
        [Kind::Lepus, Kind::RabbitMq, Kind::LavinMq, Kind::NullBroker, Kind::NullRelay];

    /// The name on the command line and in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lepus => "lepus",
            Kind::RabbitMq => "rabbitmq",
            Kind::LavinMq => "lavinmq",
            Kind::NullBroker => "null-broker",
            Kind::NullRelay => "null-relay",
        }
    }

    /// Why it cannot be measured here, if so.
    pub fn missing(self, place: &Place) -> Option<String> {
        match self {
            Kind::Lepus if place.lepus.exists() => None,
            Kind::Lepus => Some(format!("{} is not there", place.lepus.display())),
            Kind::RabbitMq => Node::missing(),
            Kind::LavinMq => match &place.lavinmq {
                Some(path) if path.exists() => None,
                Some(path) => Some(format!("{} is not there", path.display())),
                None => Some("neither --lavinmq nor LAVINMQ names its binary".to_owned()),
            },
            Kind::NullBroker | Kind::NullRelay => None,
        }
    }

    /// Ports: AMQP first, the relay's output, the node's traffic or HTTP behind it; metrics at the fifth.
    fn port(self) -> u16 {
        match self {
            Kind::Lepus => 7700,
            Kind::RabbitMq => 7710,
            Kind::NullBroker => 7720,
            Kind::NullRelay => 7730,
            Kind::LavinMq => 7740,
        }
    }
}

/// Where things are, and which core the brokers get.
#[derive(Clone, Debug)]
pub struct Place {
    /// The binary `lepus`.
    pub lepus: PathBuf,
    /// The binary `lavinmq`, where one is named.
    pub lavinmq: Option<PathBuf>,
    /// Further words for `lepus serve`.
    pub lepus_words: Vec<String>,
    /// A directory of this run's own, for data and logs.
    pub scratch: PathBuf,
    /// The core of the broker.
    pub core: usize,
}

/// A broker that runs.
pub struct Subject {
    kind: Kind,
    child: Child,
    pid: u32,
    /// RabbitMQ's port mapper.
    mapper: Option<Child>,
    scratch: PathBuf,
}

impl Subject {
    /// Starts the broker on its core and waits until it takes connections.
    ///
    /// # Errors
    /// When it cannot be started or does not listen in time; its output is in the scratch directory.
    pub fn start(kind: Kind, place: &Place) -> io::Result<Subject> {
        let scratch = place.scratch.join(kind.name());
        if scratch.exists() {
            fs::remove_dir_all(&scratch)?;
        }
        fs::create_dir_all(&scratch)?;
        Subject::resume(kind, place)
    }

    /// Starts the broker on what the last one of its kind left behind.
    ///
    /// # Errors
    /// As for [`Subject::start`].
    pub fn resume(kind: Kind, place: &Place) -> io::Result<Subject> {
        let scratch = place.scratch.join(kind.name());
        let mapper = match kind {
            Kind::RabbitMq => Some(node(&scratch).start_mapper()?),
            _ => None,
        };
        let log = File::create(scratch.join("output.log"))?;
        let mut command = command(kind, place, &scratch)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn()?;
        let pid = child.id();
        let mut subject = Subject { kind, child, pid, mapper, scratch };
        subject.wait_until_it_listens()?;
        if kind == Kind::RabbitMq {
            subject.pid = node(&subject.scratch).pid()?;
        }
        Ok(subject)
    }

    /// The process whose figures count.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The port of AMQP.
    pub fn port(&self) -> u16 {
        self.kind.port()
    }

    /// Where it keeps its data.
    pub fn data(&self) -> PathBuf {
        self.scratch.join(if self.kind == Kind::RabbitMq { "mnesia" } else { "data" })
    }

    /// Asks the broker to end in order, without waiting for it.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn ask_to_end(&self) -> io::Result<()> {
        Command::new("kill").arg(self.pid.to_string()).status().map(drop)
    }

    /// Ends the broker and returns what it printed.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn stop(self) -> io::Result<String> {
        let log = self.scratch.join("output.log");
        drop(self);
        fs::read_to_string(log)
    }

    /// Whether reading the counts costs next to nothing; RabbitMQ is asked by a program that takes
    /// seconds of CPU.
    pub fn counts_cheaply(&self) -> bool {
        self.kind != Kind::RabbitMq
    }

    /// Whether its counts stand when a load is over; LavinMQ's are without those of queues that are gone.
    pub fn keeps_counts(&self) -> bool {
        self.kind != Kind::LavinMq
    }

    /// What the broker has counted.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn counts(&self) -> io::Result<Counts> {
        if self.kind != Kind::RabbitMq {
            let page = metrics::fetch(("127.0.0.1", self.kind.port() + 5))?;
            return Ok(Counts::from_metrics(&page));
        }
        let text = node(&self.scratch).evaluate("rabbit_global_counters:overview().")?;
        Ok(Counts {
            received: overview(&text, "messages_received_total"),
            delivered: overview(&text, "messages_delivered_total"),
            acknowledged: overview(&text, "messages_acknowledged_total"),
            spin_micros: 0,
        })
    }

    fn wait_until_it_listens(&mut self) -> io::Result<()> {
        let start = Instant::now();
        // A connection to the relay would be taken for its input.
        let port = match self.kind {
            Kind::NullRelay => self.kind.port() + 5,
            _ => self.kind.port(),
        };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                let log = self.scratch.join("output.log");
                let name = self.kind.name();
                return Err(io::Error::other(format!(
                    "{name} did not start: see {}",
                    log.display()
                )));
            }
            sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Subject {
    /// Asks the broker to end, and ends it when it does not.
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.pid.to_string()).status();
        let start = Instant::now();
        while asked.is_ok() && start.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            sleep(PAUSE);
        }
        // Both may have ended already; then there is nothing to end.
        let pid = self.pid.to_string();
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
        let children = [Some(&mut self.child), self.mapper.as_mut()];
        for child in children.into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(kind: Kind, place: &Place, scratch: &Path) -> io::Result<Command> {
    let port = kind.port();
    let mut command = Command::new("taskset");
    command.args(["-c", &place.core.to_string()]);
    match kind {
        Kind::Lepus => {
            command.arg(&place.lepus).arg("serve");
            command.arg("--data").arg(scratch.join("data"));
            command.args(["--port", &format!("127.0.0.1:{port}")]);
            command.args(["--metrics-listen", &format!("127.0.0.1:{}", port + 5)]);
            command.args(&place.lepus_words);
        }
        Kind::RabbitMq => {
            command.arg(Node::server());
            node(scratch).set_environment(&mut command);
        }
        Kind::LavinMq => {
            let missing = || io::Error::other("no binary of LavinMQ is named");
            command.arg(place.lavinmq.as_ref().ok_or_else(missing)?);
            command.arg("-D").arg(scratch.join("data"));
            command.args(["-b", "127.0.0.1", "-l", "warn"]);
            command.args([
                format!("--amqp-port={port}"),
                format!("--http-port={}", port + 1),
                format!("--metrics-http-port={}", port + 5),
                format!("--clustering-port={}", port + 2),
                "--mqtt-port=-1".to_owned(),
                format!("--control-unix-path={}", scratch.join("control.sock").display()),
                format!("--pidfile={}", scratch.join("pid").display()),
            ]);
        }
        Kind::NullBroker | Kind::NullRelay => {
            command.arg(std::env::current_exe()?).arg(kind.name());
            command.args([port.to_string(), (port + 5).to_string()]);
        }
    }
    Ok(command)
}

fn node(scratch: &Path) -> Node {
    let name = RABBITMQ_NODE.to_owned();
    Node { name, port: Kind::RabbitMq.port(), scratch: scratch.to_owned() }
}

/// The sum of a counter over all maps of RabbitMQ's overview.
fn overview(text: &str, name: &str) -> u64 {
    let counter = |at: usize| {
        let rest = text[at + name.len()..].trim_start();
        let rest = rest.strip_prefix("=>")?.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        rest[..end].parse::<u64>().ok()
    };
    text.match_indices(name)
        .filter(|(at, _)| !text[..*at].ends_with('_'))
        .filter_map(|(at, _)| counter(at))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_overview_are_summed() {
        let text = "#{[{protocol,amqp091}] =>\n  #{consumers => 301,messages_received_total => 40,\n\
                    x_messages_received_total => 7},\n [{queue_type,q}] =>\n \
                    #{messages_received_total => 2}}";
        assert_eq!(overview(text, "messages_received_total"), 42);
        assert_eq!(overview(text, "messages_delivered_total"), 0);
    }
}
