//! What it takes the broker to make many things of one kind, and what each of them costs it.

use crate::report::json::Json;
use crate::to_stderr;
use lepus_probe::procfs::{self, Reading};
use std::time::{Duration, Instant};

/// Opening that takes longer than this tells how far it is, each time it has passed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// What opening things of one kind took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opening {
    pub kind: &'static str,
    pub count: u64,
    pub seconds: f64,
    /// The broker's, before and after.
    pub readings: Option<(Reading, Reading)>,
}

impl Opening {
    fn per_item(&self, amount: f64) -> f64 {
        if self.count == 0 { 0.0 } else { amount / self.count as f64 }
    }

    /// CPU microseconds and resident bytes that one took the broker.
    pub(crate) fn cost(&self) -> Option<(f64, f64)> {
        let (before, after) = self.readings?;
        let cpu = (after.cpu_seconds - before.cpu_seconds) * 1e6;
        let bytes = after.resident_bytes as f64 - before.resident_bytes as f64;
        Some((self.per_item(cpu), self.per_item(bytes)))
    }

    /// So many of them in a second.
    pub(crate) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.count as f64 / self.seconds } else { 0.0 }
    }

    /// The line about it; `done` says what was done to them.
    pub(crate) fn text(&self, id: &str, done: &str) -> String {
        let mut text = format!(
            "id: {id}, {} {} {done} in {:.3} s, {:.0} a second",
            self.count,
            self.kind,
            self.seconds,
            self.per_second()
        );
        if let Some((micros, bytes)) = self.cost() {
            text.push_str(&format!("; broker: {micros:.1} µs CPU and {bytes:.0} bytes for each"));
        }
        text
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> String {
        let mut json = Json::default();
        json.open(None, '{');
        json.text("kind", "opened");
        json.text("what", self.kind);
        json.number("count", self.count);
        json.float("seconds", self.seconds);
        json.float("per_s", self.per_second());
        match self.cost() {
            Some((micros, bytes)) => {
                json.float("broker_cpu_us_each", micros);
                json.float("broker_bytes_each", bytes);
            }
            None => {
                json.raw("broker_cpu_us_each", "null");
                json.raw("broker_bytes_each", "null");
            }
        }
        json.close('}');
        json.text
    }
}

/// Runs `open`, which opens `count` things; what the process `pid` took for it, where one is named.
///
/// # Errors
/// A text for the user: what `open` says, or there is no such process.
pub(crate) fn measure(
    pid: Option<u32>,
    kind: &'static str,
    count: u64,
    open: impl FnOnce() -> Result<(), String>,
) -> Result<Opening, String> {
    let before = pid.map(read).transpose()?;
    let begun = Instant::now();
    if count > 0 {
        open()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = pid.map(read).transpose()?;
    Ok(Opening { kind, count, seconds, readings: before.zip(after) })
}

/// Tells on standard error how far a long opening is.
pub(crate) struct Progress {
    kind: &'static str,
    all: u64,
    told: Instant,
}

impl Progress {
    /// Nothing of `all` is there yet.
    pub(crate) fn new(kind: &'static str, all: u64) -> Progress {
        Progress { kind, all, told: Instant::now() }
    }

    /// So many are there.
    pub(crate) fn tell(&mut self, done: u64) {
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            to_stderr(format_args!("{done} of {} {} are done", self.all, self.kind));
        }
    }
}

/// Reads process `pid` of this host.
///
/// # Errors
/// A text for the user: no such process, or a system without `/proc`.
pub(crate) fn read(pid: u32) -> Result<Reading, String> {
    let reading =
        procfs::read(pid).map_err(|error| format!("cannot read process {pid} (--pid): {error}"))?;
    match reading.resident_bytes {
        // What has ended and is not asked for its outcome yet has no memory any more.
        0 => Err(format!("process {pid} (--pid) has ended")),
        _ => Ok(reading),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_process_0_is_none() {
        assert!(read(std::process::id()).unwrap().resident_bytes > 0);
        assert!(read(0).unwrap_err().contains("--pid"));
    }

    fn opening(readings: Option<(Reading, Reading)>) -> Opening {
        Opening { kind: "channels", count: 1_000, seconds: 0.5, readings }
    }

    #[test]
    fn costs_are_what_grew_divided_by_the_number() {
        let before = Reading { cpu_seconds: 1.0, resident_bytes: 10_000, ..Reading::default() };
        let after = Reading { cpu_seconds: 1.5, resident_bytes: 510_000, ..Reading::default() };
        let opening = opening(Some((before, after)));
        assert_eq!(opening.cost(), Some((500.0, 500.0)));
        assert_eq!(
            opening.text("me", "opened"),
            "id: me, 1000 channels opened in 0.500 s, 2000 a second; broker: 500.0 µs CPU and 500 bytes for each"
        );
        assert!(opening.json().contains(r#""what":"channels","count":1000,"#));
        assert!(opening.json().ends_with(r#""broker_bytes_each":500.000000}"#));
    }

    #[test]
    fn without_a_process_there_is_no_cost() {
        let opening = opening(None);
        assert_eq!(
            opening.text("me", "opened"),
            "id: me, 1000 channels opened in 0.500 s, 2000 a second"
        );
        assert!(opening.json().contains(r#""broker_cpu_us_each":null"#));
    }
}
