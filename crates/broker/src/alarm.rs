//! What the log says when a shard holds publishers back, and when they may go on.
//!
//! Both is told at once, but not more often than every ten seconds: a shard at its limit may
//! change its mind a thousand times a second.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use lepus_base::{Instant, Now};

use crate::journal::Journal;
use crate::mail::Shortage;
use crate::outbox::{Outbox, Severity};

/// How long the log hears nothing after a line.
const SILENCE: Duration = Duration::from_secs(10);

/// What the log knows.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    /// What is short, as it was told last.
    told: Option<Shortage>,
    /// When that began.
    since: Instant,
    /// Nothing is told until then.
    silent_until: Instant,
}

/// What of the shard's memory and disk is used.
pub(crate) struct Usage<'a> {
    /// Bytes of memory that are.
    pub(crate) used: usize,
    /// Bytes of memory that may be.
    pub(crate) limit: usize,
    /// The logs.
    pub(crate) journal: &'a Journal,
    /// Bytes of a segment of them.
    pub(crate) segment_bytes: usize,
}

impl Usage<'_> {
    fn memory(&self) -> String {
        let (used, limit) = (mebibytes(self.used), mebibytes(self.limit));
        format!("{used} of the shard's {limit} are used")
    }

    fn disk(&self) -> String {
        let figures = self.journal.figures();
        format!(
            "the shard's logs take {} and have {} segments left of {}",
            mebibytes(figures.segments * self.segment_bytes),
            figures.spare_segments,
            mebibytes(self.segment_bytes)
        )
    }
}

impl Alarm {
    /// When something is to be told that was not yet.
    pub(crate) fn next_timeout(&self, shortage: Option<Shortage>) -> Instant {
        if self.told == shortage { Instant::NEVER } else { self.silent_until }
    }

    /// Whether something is to be told now: it became short, or has room again.
    pub(crate) fn must_tell(&self, now: Now, shortage: Option<Shortage>) -> bool {
        self.told != shortage && now.instant >= self.silent_until
    }

    /// Tells what is short now, or has room again, where it is not what was told last.
    pub(crate) fn tell(
        &mut self,
        now: Now,
        shortage: Option<Shortage>,
        usage: &Usage<'_>,
        out: &mut Outbox,
    ) {
        let told = core::mem::replace(&mut self.told, shortage);
        self.silent_until = now.instant + SILENCE;
        let seconds = now.instant.since(self.since).as_secs();
        self.since = now.instant;
        match (shortage, told) {
            (Some(Shortage::Memory), _) => {
                let text = format!(
                    "memory is short: {}; publishers are held back until a tenth is free. Have the \
                     queues' messages consumed or purged, or raise memory.budget",
                    usage.memory()
                );
                out.log(Severity::Warning, "memory-alarm", text);
            }
            // The log has said more of one that has stopped.
            (Some(Shortage::Disk), _) if usage.journal.troubles().is_stopped => {}
            (Some(Shortage::Disk), _) => {
                let text = format!(
                    "the disk is short: {}; publishers are held back. Free space on the disk, have \
                     the queues' messages consumed or purged, or change store.bytes_max or \
                     store.disk_free_limit if one of them is the limit",
                    usage.disk()
                );
                out.log(Severity::Warning, "disk-alarm", text);
            }
            (None, Some(Shortage::Memory)) => {
                let memory = usage.memory();
                let text = format!("memory has room after {seconds} s: {memory}; publishers go on");
                out.log(Severity::Info, "memory-alarm-over", text);
            }
            (None, Some(Shortage::Disk)) => {
                let disk = usage.disk();
                let text = format!("the disk has room after {seconds} s: {disk}; publishers go on");
                out.log(Severity::Info, "disk-alarm-over", text);
            }
            (None, None) => unreachable!("what is told differs from what was"),
        }
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
