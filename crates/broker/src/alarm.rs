//! What the log says when a shard holds publishers back, and when they may go on.
//!
//! Both is told at once, but not more often than every ten seconds: a shard at its limit may
//! change its mind a thousand times a second.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use lepus_base::{Instant, Now};

use crate::broker::Broker;
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

impl Alarm {
    /// When something is to be told that was not yet.
    pub(crate) fn next_timeout(&self, shortage: Option<Shortage>) -> Instant {
        if self.told == shortage { Instant::NEVER } else { self.silent_until }
    }
}

impl Broker {
    /// Tells the log when something became short, or has room again.
    pub(crate) fn tell_shortage(&mut self, now: Now, out: &mut Outbox) {
        let shortage = self.edge.backpressure.shortage();
        if self.alarm.told == shortage || now.instant < self.alarm.silent_until {
            return;
        }
        let told = core::mem::replace(&mut self.alarm.told, shortage);
        self.alarm.silent_until = now.instant + SILENCE;
        let seconds = now.instant.since(self.alarm.since).as_secs();
        self.alarm.since = now.instant;
        match (shortage, told) {
            (Some(Shortage::Memory), _) => {
                let text = format!(
                    "memory is short: {}; publishers are held back until a tenth is free. Have the \
                     queues' messages consumed or purged, or raise memory.budget",
                    self.memory_use()
                );
                out.log(Severity::Warning, "memory-alarm", text);
            }
            // The log has said more of one that has stopped.
            (Some(Shortage::Disk), _) if self.journal.figures().is_stopped => {}
            (Some(Shortage::Disk), _) => {
                let text = format!(
                    "the disk is short: {}; publishers are held back. Free space on the disk, have \
                     the queues' messages consumed or purged, or change store.bytes_max or \
                     store.disk_free_limit if one of them is the limit",
                    self.disk_use()
                );
                out.log(Severity::Warning, "disk-alarm", text);
            }
            (None, Some(Shortage::Memory)) => {
                let memory = self.memory_use();
                let text = format!("memory has room after {seconds} s: {memory}; publishers go on");
                out.log(Severity::Info, "memory-alarm-over", text);
            }
            (None, Some(Shortage::Disk)) => {
                let disk = self.disk_use();
                let text = format!("the disk has room after {seconds} s: {disk}; publishers go on");
                out.log(Severity::Info, "disk-alarm-over", text);
            }
            (None, None) => unreachable!("what is told differs from what was"),
        }
    }

    fn memory_use(&self) -> String {
        let (used, limit) = (self.edge.memory(), self.edge.loan.bytes);
        format!("{} of the shard's {} are used", mebibytes(used), mebibytes(limit))
    }

    fn disk_use(&self) -> String {
        let figures = self.journal.figures();
        let segment = self.settings.store.as_ref().map_or(0, |store| store.template.segment_bytes);
        let used = figures.segments * segment as usize;
        format!(
            "the shard's logs take {} and have {} segments left of {}",
            mebibytes(used),
            figures.spare_segments,
            mebibytes(segment as usize)
        )
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
