//! What the disk and the network give without a broker.

use super::Plan;
use super::figures::{Figures, Line};
use crate::affinity::spawn_on;
use crate::bench::measure::pinned;
use crate::subject::free_port;
use crate::terminal::say_line;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 64 * 1024;
const MESSAGE_BYTES: usize = 1024;

/// Appends 64 KiB and syncs, over and over; then the same over what is there. Prints both rates in
/// messages of 1 KiB per second.
///
/// # Errors
/// When the disk fails.
pub fn append(path: &Path, count: usize) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    for pass in ["extending", "overwriting"] {
        file.seek(SeekFrom::Start(0))?;
        let start = Instant::now();
        for _ in 0..count {
            file.write_all(&chunk)?;
            file.sync_data()?;
        }
        let messages = (count * (CHUNK_BYTES / MESSAGE_BYTES)) as f64;
        say_line(format_args!("{pass} {:.0}", messages / start.elapsed().as_secs_f64()));
    }
    std::fs::remove_file(path)
}

/// Takes 1 KiB from one client after the other, writes it over what is there, syncs, and sends a byte back; `count` times for
/// each client, from the beginning of the file. Ends when it is killed.
///
/// # Errors
/// When the disk fails.
pub fn null_persister(port: u16, path: &Path, count: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    for _ in 0..count.div_ceil((CHUNK_BYTES / MESSAGE_BYTES) as u64) {
        file.write_all(&[0; CHUNK_BYTES])?;
    }
    file.sync_all()?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        file.seek(SeekFrom::Start(0))?;
        let mut message = [0; MESSAGE_BYTES];
        while stream.read_exact(&mut message).is_ok() {
            file.write_all(&message)?;
            file.sync_data()?;
            stream.write_all(&message[..1])?;
        }
    }
}

/// Sends 1 KiB and waits for the answer, so many times; prints the rate, and the median and the 99th percentile of what an
/// answer took, in microseconds.
///
/// # Errors
/// When the connection ends.
pub fn echo(port: u16, count: u64) -> io::Result<()> {
    let start = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) if start.elapsed() > Duration::from_secs(10) => return Err(error),
            Err(_) => sleep(Duration::from_millis(10)),
        }
    };
    stream.set_nodelay(true)?;
    let message = [7; MESSAGE_BYTES];
    let mut answer = [0];
    let mut took = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for _ in 0..count {
        let start = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let seconds = took.iter().sum::<f64>() / 1e6;
    took.sort_unstable_by(f64::total_cmp);
    let point = |part: f64| took[((took.len() - 1) as f64 * part).round() as usize];
    if !took.is_empty() {
        let (median, last) = (point(0.5), point(0.99));
        say_line(format_args!("{:.0} {median:.1} {last:.1}", count as f64 / seconds));
    }
    Ok(())
}

/// The rows of the bare loop.
///
/// # Errors
/// When it fails.
pub fn measure_append(plan: &Plan) -> io::Result<Vec<Line>> {
    let count = plan.scaled(20_000);
    let path = plan.place.site.scratch.join("append");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("append").arg(path).arg(count.to_string()).stdout(Stdio::piped());
    let output = spawn_on(&[plan.place.core], &mut command)?.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| {
        let (phase, rate) = line.split_once(' ')?;
        let messages = count * (CHUNK_BYTES / MESSAGE_BYTES) as u64;
        let figures = Figures { messages, rate: rate.parse().ok()?, ..Figures::default() };
        Some(Line::new("bare loop", phase, figures).noting("messages of 1 KiB, 64 in each sync"))
    });
    Ok(lines.collect())
}

/// A null persister that runs, on the broker's core.
pub struct Persister {
    child: Child,
    port: u16,
}

/// What its client has seen.
#[derive(Clone, Copy, Debug)]
pub struct Echoed {
    /// Answers a second.
    pub rate: f64,
    /// Median of what an answer took, in microseconds.
    pub median: f64,
    /// The 99th percentile.
    pub last: f64,
}

impl Persister {
    /// Starts it, with a file for `count` messages of each client.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(plan: &Plan, count: u64) -> io::Result<Persister> {
        let port = free_port()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["null-persister", &port.to_string()]);
        command.arg(plan.place.site.scratch.join("persister")).arg(count.to_string());
        let child = spawn_on(&[plan.place.core], command.stdin(Stdio::null()))?;
        Ok(Persister { child, port })
    }

    /// Asks it so many times, from the tester's core.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn ask(&self, plan: &Plan, count: u64) -> io::Result<Echoed> {
        let mut client = Command::new(std::env::current_exe()?);
        client.args(["echo", &self.port.to_string(), &count.to_string()]);
        let output = pinned(&mut client, &plan.load)?.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
        match figures[..] {
            [rate, median, last] => Ok(Echoed { rate, median, last }),
            _ => Err(io::Error::other("the null persister's client failed")),
        }
    }
}

impl Drop for Persister {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
