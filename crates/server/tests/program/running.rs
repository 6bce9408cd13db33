//! A running `lepus serve` for one test.

pub use lepus_probe::Scratch;
pub use rustix::process::Signal;
use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long to wait for a line of the log before it counts as missing, and for a command that ends by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with these words, without settings from outside.
pub fn lepus(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lepus"));
    command.args(words).stdin(Stdio::null());
    for (name, _) in std::env::vars() {
        if name.starts_with("LEPUS_") {
            command.env_remove(name);
        }
    }
    command
}

/// What a command printed, and how it ended. One that does not end is killed.
pub fn ended(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, output) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(PATIENCE) else {
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        panic!("it does not end: {command:?}");
    };
    output.unwrap()
}

/// A broker on ports of its own, killed when it is dropped.
pub struct Program {
    child: Child,
    /// Where its data is.
    pub data_dir: PathBuf,
    lines: Receiver<String>,
    log: RefCell<String>,
    pub banner: String,
    pub amqp: SocketAddr,
    pub metrics: SocketAddr,
    pub management: SocketAddr,
}

impl Program {
    /// Starts it with its data in `scratch` and waits until it is ready.
    pub fn start(scratch: &Scratch, words: &[&str]) -> Program {
        Program::start_with(scratch, words, Stdio::piped())
    }

    /// The same with a standard error of the caller's; there is no log to wait for then.
    pub fn start_with(scratch: &Scratch, words: &[&str], stderr: impl Into<Stdio>) -> Program {
        let data_dir = scratch.path().join("data");
        let mut command = lepus(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "127.0.0.1:0",
            "--management-listen",
            "127.0.0.1:0",
            "--management-tls-listen",
            "127.0.0.1:0",
        ]);
        command.arg("--data-dir").arg(&data_dir).args(words);
        command.stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || read_all(stderr, &sender));
        }
        let mut banner = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while out.read_line(&mut banner).unwrap() > 0 {
            if banner.lines().last().is_some_and(|line| line.starts_with("try: ")) {
                break;
            }
        }
        let address = |name: &str| {
            let line = banner.lines().find_map(|line| line.trim().strip_prefix(name));
            let line = line.unwrap_or_else(|| panic!("no {name} in {banner:?}"));
            let text = line.trim().trim_start_matches("http://");
            text.split('/').next().unwrap_or_default().parse().unwrap()
        };
        Program {
            amqp: address("amqp "),
            metrics: address("metrics "),
            management: address("API "),
            child,
            data_dir,
            lines,
            log: RefCell::default(),
            banner,
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order; what it printed, or what it complained about.
    pub fn order(&self, words: &[&str]) -> Result<String, String> {
        let output = lepus(words).arg("--data-dir").arg(&self.data_dir).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for a line of the log that contains `text`.
    pub fn wait_for_log(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {text} in {}", self.log.borrow()));
            self.log.borrow_mut().push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Asks it to stop; how it ended and what it logged.
    pub fn stop(self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Waits for the end; how it ended and what it logged.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let mut log = self.log.take();
        log.extend(self.lines.iter());
        (status, log)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(stderr: ChildStderr, sender: &Sender<String>) {
    let mut lines = BufReader::new(stderr);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
        if sender.send(std::mem::take(&mut line)).is_err() {
            return;
        }
    }
}
