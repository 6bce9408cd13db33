//! The broker under test: a program that is started, killed and started again on the same data.

use crate::disk::{Failure, Watch};
use crate::link::{self, Link};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a start or an orderly stop may take.
pub const PATIENCE: Duration = Duration::from_secs(120);
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
    /// What stands between it and its disk, when the disk is to fail.
    pub watch: Option<Watch>,
}

/// A broker that was started. It is killed when it is dropped.
pub struct Broker {
    child: Child,
    /// A program stands between it and its disk, and is the one that was started.
    is_watched: bool,
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

    /// How often a text stands in the broker's output.
    ///
    /// # Errors
    /// When there is none.
    pub fn count_in_log(&self, text: &str) -> io::Result<usize> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).matches(text).count())
    }
}

impl Broker {
    /// Starts it for the `turn`th time, without waiting for anything. Its disk can fail if it is
    /// `watched`.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn start(recipe: &Recipe, turn: usize, watched: bool) -> io::Result<Broker> {
        let log = OpenOptions::new().create(true).append(true).open(&recipe.log)?;
        let shards = recipe.shards.get(turn % recipe.shards.len().max(1)).unwrap_or(&1).to_string();
        let mut words: Vec<String> = Vec::new();
        if Path::new(SETPRIV).exists() {
            words.extend([SETPRIV, "--pdeathsig", "KILL"].map(str::to_owned));
        }
        let watch = recipe.watch.as_ref().filter(|_| watched);
        words.extend(watch.map(Watch::words).unwrap_or_default());
        words.extend(recipe.words.iter().map(|word| word.replace("{shards}", &shards)));
        let (program, words) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(program)
            .args(words)
            .stdin(if watch.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let is_watched = watch.is_some();
        Ok(Broker { child, is_watched, port: recipe.port, log: recipe.log.clone() })
    }

    /// Waits until a client can log in.
    ///
    /// # Errors
    /// When it ends instead, or takes too long.
    pub fn wait_until_it_serves(&mut self) -> io::Result<Link> {
        let start = Instant::now();
        loop {
            if let Ok(link) = link::open(self.port, 1) {
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

    /// How it has ended by itself, if it has.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits up to `time` for it to end by itself, and returns how.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn wait(&mut self, time: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            let ended = self.ended()?;
            if ended.is_some() || start.elapsed() >= time {
                return Ok(ended);
            }
            sleep(PAUSE);
        }
    }

    /// Has its disk fail from now on; it was started to be watched.
    ///
    /// # Errors
    /// When it was not, or nobody listens any more.
    pub fn fail(&mut self, failure: &Failure) -> io::Result<()> {
        let input = self.child.stdin.as_mut().ok_or(io::ErrorKind::InvalidInput)?;
        writeln!(input, "{failure}")
    }

    /// Kills it and all that it started, unless it has ended.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        let id = self.child.id();
        match self.is_watched {
            // The other one has seen the end of it then.
            true => self.signal("-USR1", &id.to_string())?,
            false => self.signal("-KILL", &format!("-{id}"))?,
        }
        self.child.wait()?;
        Ok(())
    }

    /// Stops it in order, and returns how it ended; `None` when it did not in `patience`.
    ///
    /// # Errors
    /// When it cannot be told to.
    pub fn stop(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        self.signal("-TERM", &self.child.id().to_string())?;
        self.wait(patience)
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
        let _ = self.kill();
    }
}
