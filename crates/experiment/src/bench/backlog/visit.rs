//! One life of a broker on a data directory, and the loads in it.

use super::Plan;
use super::disk::{self, Device};
use super::figures::Figures;
use crate::bench::measure;
use crate::bench::workload::confirm_latency;
use crate::statistics::median;
use crate::subject::{Kind, START_LOOK, Subject, signal};
use lepus_probe::Client;
use lepus_probe::procfs;
use lepus_probe::procfs::Moved;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io;
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);
/// Samples between two looks at the size of the directory.
const SIZE_EVERY: u64 = 20;

/// A broker that runs, with what had been written before it was started.
pub struct Visit {
    subject: Subject,
    device: Device,
    device_before: u64,
    /// Milliseconds from its start until it listened, in steps in which that is looked for.
    pub start_millis: f64,
    /// Resident bytes before any load.
    pub resident_empty: u64,
}

/// What a load has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loaded {
    /// Seconds from the tester's start to its end.
    pub seconds: f64,
    /// Seconds of the broker's CPU in them.
    pub cpu_seconds: f64,
    /// Messages per second, as the tester says.
    pub said: Option<f64>,
    /// Median and 99th percentile of what confirms took in microseconds, as the tester says.
    pub confirms: Option<(f64, f64)>,
    /// Most resident bytes.
    pub peak: u64,
    /// Resident bytes at the end.
    pub end: u64,
    /// Bytes moved by the broker in it.
    pub moved: Moved,
    /// Most bytes of the data directory, and at the end.
    pub disk: (u64, u64),
    /// The tester's share of its core.
    pub tester_share: f64,
}

impl Loaded {
    /// Of several loads one after the other: times and bytes together, of what the tester says the medians.
    #[must_use]
    pub fn together(all: &[Loaded]) -> Loaded {
        let sum = |of: fn(&Loaded) -> f64| all.iter().map(of).sum::<f64>();
        let most = |of: fn(&Loaded) -> u64| all.iter().map(of).max().unwrap_or(0);
        let bytes = |of: fn(&Moved) -> u64| all.iter().map(|one| of(&one.moved)).sum::<u64>();
        let last = all.last().copied().unwrap_or_default();
        let confirms = |of: fn((f64, f64)) -> f64| {
            let each: Option<Vec<f64>> = all.iter().map(|one| one.confirms.map(of)).collect();
            each.filter(|each| !each.is_empty()).map(median)
        };
        let rates: Option<Vec<f64>> = all.iter().map(|one| one.said).collect();
        Loaded {
            seconds: sum(|one| one.seconds),
            cpu_seconds: sum(|one| one.cpu_seconds),
            said: rates.filter(|rates| !rates.is_empty()).map(median),
            confirms: confirms(|points| points.0).zip(confirms(|points| points.1)),
            peak: most(|one| one.peak),
            end: last.end,
            moved: Moved {
                written: bytes(|moved| moved.written),
                handed: bytes(|moved| moved.handed),
                read: bytes(|moved| moved.read),
            },
            disk: (all.iter().map(|one| one.disk.0).max().unwrap_or(0), last.disk.1),
            tester_share: median(all.iter().map(|one| one.tester_share)),
        }
    }
}

impl Visit {
    /// Starts a broker: on an empty directory, or on what the last visit left.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(plan: &Plan, kind: Kind, flags: &[&str], fresh: bool) -> io::Result<Visit> {
        fs::create_dir_all(&plan.place.site.scratch)?;
        let device = Device::of(&plan.place.site.scratch)?;
        if !fresh {
            disk::drop_page_cache(&plan.place.site.scratch)?;
        }
        let device_before = device.written()?;
        let place = plan.place.with_flags(flags.iter().copied());
        let start = Instant::now();
        let subject = match fresh {
            true => place.start(kind)?,
            false => place.resume(kind)?,
        };
        let start_millis = started_millis(start.elapsed());
        let resident_empty = subject.read()?.resident_bytes;
        Ok(Visit { subject, device, device_before, start_millis, resident_empty })
    }

    /// The port of AMQP.
    pub fn port(&self) -> u16 {
        self.subject.port()
    }

    /// A client of its own.
    ///
    /// # Errors
    /// When it cannot log in.
    pub fn peer(&self) -> io::Result<Client<TcpStream>> {
        self.subject.peer()
    }

    /// Runs a load to its end.
    ///
    /// # Errors
    /// When it fails, or takes longer than it may, or somebody wants the whole to end.
    pub fn load(&self, plan: &Plan, tester: Command) -> io::Result<Loaded> {
        let loaded = self.load_while_wanted(plan, tester)?;
        plan.place.goes_on()?;
        Ok(loaded)
    }

    /// The same, where a wish to stop leaves what there is until then.
    ///
    /// # Errors
    /// When it fails, or takes longer than it may.
    pub fn load_while_wanted(&self, plan: &Plan, mut tester: Command) -> io::Result<Loaded> {
        let pid = self.pid()?;
        let output = plan.tester_output();
        let before = procfs::read(pid)?;
        let moved_before = procfs::moved(pid)?;
        procfs::reset_peak(pid);
        let start = Instant::now();
        let mut child = measure::pinned(&mut tester, &plan.load)?;
        let mut stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let copy = output.clone();
        let copier = std::thread::spawn(move || -> io::Result<u64> {
            io::copy(&mut stdout, &mut File::create(copy)?)
        });
        let mut loaded = Loaded::default();
        let mut last = before;
        let mut tester_seconds = 0.0;
        let mut samples = 0;
        let mut look = |child: &mut Child| -> io::Result<Option<ExitStatus>> {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            last = procfs::read(pid)?;
            loaded.moved = procfs::moved(pid)?;
            loaded.peak = loaded.peak.max(last.resident_bytes);
            loaded.end = last.resident_bytes;
            if let Ok(reading) = procfs::read(child.id()) {
                tester_seconds = reading.cpu_seconds.max(tester_seconds);
            }
            if samples % SIZE_EVERY == 0 {
                loaded.disk.1 = self.subject.data().map_or(0, disk::used);
                loaded.disk.0 = loaded.disk.0.max(loaded.disk.1);
            }
            samples += 1;
            if start.elapsed() > plan.patience {
                let seconds = plan.patience.as_secs();
                return Err(io::Error::other(format!("the load was given up after {seconds} s")));
            }
            Ok(None)
        };
        let outcome = loop {
            match look(&mut child) {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if plan.place.stop.is_wanted() => break end(&mut child),
                Ok(None) => sleep(PAUSE),
                // A tester without a broker would go on beside what is measured next.
                Err(error) => {
                    end(&mut child)?;
                    break Err(error);
                }
            }
        };
        loaded.seconds = start.elapsed().as_secs_f64();
        copier.join().map_err(|_| io::ErrorKind::BrokenPipe)??;
        let status = outcome?;
        if !status.success() && !plan.place.stop.is_wanted() {
            let log = plan.load.errors.display();
            return Err(io::Error::other(format!("the tester ended with {status}: see {log}")));
        }
        let after = procfs::read(pid)?;
        if procfs::peak_bytes(pid)? > 0 {
            loaded.peak = loaded.peak.max(procfs::peak_bytes(pid)?);
        }
        loaded.cpu_seconds = after.cpu_seconds.max(last.cpu_seconds) - before.cpu_seconds;
        let moved = procfs::moved(pid)?;
        loaded.moved.written = moved.written - moved_before.written;
        loaded.moved.read = moved.read - moved_before.read;
        let text = fs::read_to_string(output)?;
        loaded.said = said(&text);
        loaded.confirms = text.lines().find_map(confirm_latency);
        loaded.tester_share = tester_seconds / loaded.seconds;
        Ok(loaded)
    }

    /// Stops the broker in order. The figures of the load get what was moved in the whole visit.
    ///
    /// # Errors
    /// When it does not end, or a figure cannot be read.
    pub fn end(self, loaded: &Loaded, messages: u64, payload: u64) -> io::Result<Figures> {
        let pid = self.pid()?;
        self.subject.ask_to_end()?;
        let mut moved = Moved::default();
        let start = Instant::now();
        // The counters can be read until the program is gone.
        while let Ok(now) = procfs::moved(pid) {
            moved = now;
            if procfs::has_ended(pid) || start.elapsed() > Duration::from_secs(120) {
                break;
            }
            sleep(Duration::from_millis(2));
        }
        drop(self.subject);
        let device = self.device.written()?.saturating_sub(self.device_before);
        let payload = payload as f64;
        let seconds = loaded.seconds;
        Ok(Figures {
            messages,
            rate: loaded.said.filter(|rate| *rate > 0.0).unwrap_or(messages as f64 / seconds),
            cpu_micros: loaded.cpu_seconds * 1e6 / messages as f64,
            written: moved.written as f64 / payload,
            handed: moved.handed as f64 / payload,
            device_written: device as f64 / payload,
            read: moved.read as f64 / payload,
            peak_mb: loaded.peak as f64 / 1e6,
            end_mb: loaded.end as f64 / 1e6,
            tester_share: loaded.tester_share,
        })
    }

    /// Kills the broker.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn kill(self) -> io::Result<()> {
        signal(self.pid()?, Signal::KILL)?;
        drop(self.subject);
        Ok(())
    }

    /// The program.
    ///
    /// # Errors
    /// When it cannot be seen.
    pub fn pid(&self) -> io::Result<u32> {
        self.subject.seen_pid()
    }
}

/// Whole steps until it was seen that a broker had started.
fn started_millis(elapsed: Duration) -> f64 {
    elapsed.as_millis().div_ceil(START_LOOK.as_millis()) as f64 * START_LOOK.as_millis() as f64
}

fn end(child: &mut Child) -> io::Result<ExitStatus> {
    child.kill()?;
    child.wait()
}

/// The rate that a tester sums up with: the higher one of sending and receiving.
fn said(output: &str) -> Option<f64> {
    let rates = output.lines().filter_map(|line| {
        let (_, rest) = line.split_once("ing rate avg: ")?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    });
    rates.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_told_in_the_steps_in_which_it_is_seen() {
        let told = |millis| started_millis(Duration::from_millis(millis));
        assert_eq!([told(1), told(50), told(204)], [50.0, 50.0, 250.0]);
    }

    #[test]
    fn the_rate_is_the_one_of_the_side_that_worked() {
        let text = "test stopped (Reached message limit)\nid: x, sending rate avg: 1000 msg/s\n\
                    id: x, receiving rate avg: 0 msg/s\n";
        assert_eq!(said(text), Some(1_000.0));
        assert_eq!(said("nothing"), None);
    }
}
