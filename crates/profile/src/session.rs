//! One profile, from its start to its end.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::phase::Phase;
use crate::registry::members;
use crate::sample::{SAMPLES_MAX, STACK_WORDS_MAX, Sample, Samples};
use crate::signal::{Running, Shared};
use crate::thread::{Group, Member};

/// Interruptions per second of CPU time that may be asked for.
pub const RATE_MAX: u32 = 1000;

/// Why a profile is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// Another one is under way.
    Busy,
    /// No thread has enrolled.
    NoThreads,
    /// The rate is 0 or above [`RATE_MAX`].
    Rate(u32),
    /// The system refuses.
    System(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Busy => f.write_str("a profile is being taken already; one at a time"),
            StartError::NoThreads => f.write_str("no thread of this process can be sampled"),
            StartError::Rate(rate) => {
                write!(f, "a rate of {rate} per second is asked for; 1 to {RATE_MAX} can be had")
            }
            StartError::System(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for StartError {}

/// A thread of a session, or a thread that it did not sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFigures {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub group: Group,
    /// Its CPU time during the session in nanoseconds, as the kernel counts it; `None` where it does
    /// not tell.
    pub cpu_nanos: Option<u64>,
}

/// A thread of the process that was not sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsampled {
    /// Its name, at most 15 bytes of it.
    pub name: String,
    /// Its CPU time during the session in nanoseconds.
    pub cpu_nanos: u64,
}

/// How a session went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The sampled threads, by the index that samples name.
    pub threads: Vec<ThreadFigures>,
    /// Other threads that used CPU time and still live.
    pub unsampled: Vec<Unsampled>,
    /// Ticks for which there was no room.
    pub dropped: u64,
}

/// Whether a session exists.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Given back when it is dropped.
struct Turn;

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// A profile that is being taken. Dropping it ends it.
pub struct Session {
    // First: it must have ended before another session may begin.
    running: Running,
    members: Vec<Arc<Member>>,
    before: HashMap<u32, (String, u64)>,
    _turn: Turn,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("members", &self.members).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins to interrupt every enrolled thread `rate` times per second of its own CPU time. The
    /// system's tick may be slower; samples then weigh more.
    ///
    /// # Errors
    /// When another session runs, no thread has enrolled, the rate is out of bounds or the system
    /// refuses.
    pub fn start(rate: u32) -> Result<Session, StartError> {
        Session::with(rate, SAMPLES_MAX)
    }

    fn with(rate: u32, places: usize) -> Result<Session, StartError> {
        if rate == 0 || rate > RATE_MAX {
            return Err(StartError::Rate(rate));
        }
        if TAKEN.swap(true, Ordering::Acquire) {
            return Err(StartError::Busy);
        }
        let turn = Turn;
        let samples = Samples::new(places, STACK_WORDS_MAX);
        let before = cpu_times();
        // None may end before it has its timer.
        let list = members();
        if list.is_empty() {
            return Err(StartError::NoThreads);
        }
        let members: Vec<Arc<Member>> = list.clone();
        let shared = Shared { members: members.clone(), samples };
        let running = Running::start(shared, rate).map_err(StartError::System)?;
        drop(list);
        Ok(Session { running, members, before, _turn: turn })
    }

    /// The sampled threads: names and groups, by the index that samples name.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = (&str, Group)> {
        self.members.iter().map(|member| (member.name.as_str(), member.group))
    }

    /// Takes the samples that are there. Wanted every few hundredths of a second: there is room for
    /// [`SAMPLES_MAX`].
    pub fn drain(&mut self, visit: impl FnMut(Sample<'_>)) {
        self.running.shared().samples.drain(visit);
    }

    /// Ends it; `visit` gets the last samples.
    pub fn finish(mut self, visit: impl FnMut(Sample<'_>)) -> Summary {
        self.running.stop();
        self.drain(visit);
        let mut after = cpu_times();
        let spent = |id: u32, now: u64| {
            now.saturating_sub(self.before.get(&id).map_or(0, |(_, before)| *before))
        };
        let threads = self.members.iter().map(|member| ThreadFigures {
            name: member.name.clone(),
            group: member.group,
            cpu_nanos: after.remove(&member.thread).map(|(_, now)| spent(member.thread, now)),
        });
        let threads = threads.collect();
        let mut unsampled: Vec<Unsampled> = after
            .into_iter()
            .map(|(id, (name, now))| Unsampled { name, cpu_nanos: spent(id, now) })
            .filter(|thread| thread.cpu_nanos > 0)
            .collect();
        unsampled.sort_by(|a, b| b.cpu_nanos.cmp(&a.cpu_nanos).then_with(|| a.name.cmp(&b.name)));
        Summary { threads, unsampled, dropped: self.running.shared().samples.dropped() }
    }
}

impl Sample<'_> {
    /// The phase that the thread had told.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::from_number(self.phase)
    }
}

/// Names and nanoseconds of CPU time of the process's threads, by their numbers; of those the system
/// tells about.
fn cpu_times() -> HashMap<u32, (String, u64)> {
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return HashMap::new() };
    let time = |entry: std::fs::DirEntry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        let times = std::fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let nanos = times.split(' ').next()?.parse().ok()?;
        Some((id, (name.trim_end().to_owned(), nanos)))
    };
    entries.flatten().filter_map(time).collect()
}

#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
