//! The broker under test: a program that is started, killed and started again on the same data.

use crate::link::Link;
use std::fs::OpenOptions;
use std::io;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a start or an orderly stop may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Has the broker killed when this program ends before it.
const SETPRIV: &str = "/usr/bin/setpriv";
const PAUSE: Duration = Duration::from_millis(1);

/// How to start it.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Program and words; in them `{shards}` stands for the number of shards.
    pub words: Vec<String>,
    /// Numbers of shards, in turn from start to start.
    pub shards: Vec<u64>,
    /// Where it listens.
    pub port: u16,
    /// Where its output goes.
    pub log: PathBuf,
}

/// A broker that was started. It is killed when it is dropped.
pub struct Broker {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Recipe {
    /// Sees that nobody else listens there.
    ///
    /// # Errors
    /// When somebody does.
    pub fn check(&self) -> io::Result<()> {
        match TcpStream::connect(("127.0.0.1", self.port)) {
            Ok(_) => Err(io::Error::other(format!("port {} is in use", self.port))),
            Err(_) => Ok(()),
        }
    }
}

impl Broker {
    /// Starts it for the `turn`th time, without waiting for anything.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn start(recipe: &Recipe, turn: usize) -> io::Result<Broker> {
        let log = OpenOptions::new().create(true).append(true).open(&recipe.log)?;
        let (program, words) = recipe.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let shards = recipe.shards.get(turn % recipe.shards.len().max(1)).unwrap_or(&1).to_string();
        let mut command = match Path::new(SETPRIV).exists() {
            true => Command::new(SETPRIV),
            false => Command::new(program),
        };
        if command.get_program() == SETPRIV {
            command.args(["--pdeathsig", "KILL"]).arg(program);
        }
        let child = command
            .args(words.iter().map(|word| word.replace("{shards}", &shards)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        Ok(Broker { child, port: recipe.port, log: recipe.log.clone() })
    }

    /// Waits until a client can log in.
    ///
    /// # Errors
    /// When it ends instead, or takes too long.
    pub fn wait_until_it_serves(&mut self) -> io::Result<Link> {
        let start = Instant::now();
        loop {
            if let Ok(link) = Link::open(self.port, 1) {
                return Ok(link);
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                let log = self.log.display();
                return Err(io::Error::other(format!("the broker did not start: see {log}")));
            }
            sleep(PAUSE);
        }
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills it and all that it started.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal("-KILL", &format!("-{}", self.child.id()))?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> io::Result<()> {
        self.signal("-TERM", &self.child.id().to_string())?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("the broker did not stop"));
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    fn signal(&self, signal: &str, target: &str) -> io::Result<()> {
        let mut command = Command::new("kill");
        command.args([signal, "--", target]).stdout(Stdio::null()).stderr(Stdio::null());
        match command.status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("cannot send {signal} to {target}"))),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.kill();
        }
    }
}
