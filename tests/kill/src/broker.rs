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
}

impl Recipe {
    /// The command of the `turn`th start.
    pub fn words(&self, turn: usize) -> Vec<String> {
        let shards = self.shards.get(turn % self.shards.len().max(1)).unwrap_or(&1).to_string();
        self.words.iter().map(|word| word.replace("{shards}", &shards)).collect()
    }

    /// Sees that the program is there and that nobody else listens there.
    ///
    /// # Errors
    /// When it is not, or somebody does.
    pub fn check(&self) -> io::Result<()> {
        let program = self.words.first().map_or("", String::as_str);
        if !is_program(program) {
            return Err(io::Error::other(format!(
                "there is no program {program:?}: build the broker (cargo build --release -p lepus-server), or name \
                 another one with --lepus or --broker"
            )));
        }
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

/// Whether a command may begin with `name`: the path of a file, or the name of one on the search path.
fn is_program(name: &str) -> bool {
    if name.contains('/') {
        return Path::new(name).is_file();
    }
    let places = std::env::var_os("PATH").unwrap_or_default();
    !name.is_empty() && std::env::split_paths(&places).any(|place| place.join(name).is_file())
}

impl Broker {
    /// Starts it for the `turn`th time, without waiting for anything. Its disk can fail if it is
    /// `watched`.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn start(recipe: &Recipe, turn: usize, watched: bool) -> io::Result<Broker> {
        let log = OpenOptions::new().create(true).append(true).open(&recipe.log)?;
        let mut words: Vec<String> = Vec::new();
        if Path::new(SETPRIV).exists() {
            words.extend([SETPRIV, "--pdeathsig", "KILL"].map(str::to_owned));
        }
        let watch = recipe.watch.as_ref().filter(|_| watched);
        words.extend(watch.map(Watch::words).unwrap_or_default());
        words.extend(recipe.words(turn));
        let (program, words) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(program)
            .args(words)
            .stdin(if watch.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let is_watched = watch.is_some();
        Ok(Broker { child, is_watched, port: recipe.port })
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
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!(
                    "the broker ended while it started: {status}"
                )));
            }
            if start.elapsed() > PATIENCE {
                let text =
                    format!("no client could log in {} s after the start", PATIENCE.as_secs());
                return Err(io::Error::other(text));
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
