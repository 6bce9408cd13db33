//! The thread that writes entries, so that nobody who does something waits for a disk.

use super::entry_of_now;
use crate::log::Log;
use lepus_management::api::Audited;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Entries that may wait for the thread.
pub(super) const WAITING_MAX: usize = 4096;

/// Something for the thread.
enum Order {
    Write(Audited),
    /// Answered when all before it is written.
    Flush(SyncSender<()>),
}

/// The way to the thread, which ends with it.
#[derive(Debug)]
pub(super) struct Writer {
    log: Log,
    orders: SyncSender<Order>,
    /// What is in entries for which there was no room, by their counts, and is not told yet.
    left_out: Arc<AtomicU64>,
    /// The same, told or not.
    left_out_ever: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the thread; `write` writes an entry to where it belongs. What is left out is counted in `left_out_ever`.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(super) fn start(
        log: &Log,
        left_out_ever: &Arc<AtomicU64>,
        write: impl FnMut(&Audited) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Writer> {
        let (orders, waiting) = sync_channel(WAITING_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let thread = Thread {
            log: log.clone(),
            write,
            left_out: Arc::clone(&left_out),
            left_out_ever: Arc::clone(left_out_ever),
        };
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
            let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
            thread.run(&waiting);
        })?;
        Ok(Writer { log: log.clone(), orders, left_out, left_out_ever: Arc::clone(left_out_ever) })
    }

    /// Has an entry written, or counts it where too many wait. It never waits itself.
    pub(super) fn write(&self, entry: Audited) {
        let count = entry.count;
        if self.orders.try_send(Order::Write(entry)).is_ok() {
            return;
        }
        self.left_out_ever.fetch_add(count, Ordering::Relaxed);
        if self.left_out.fetch_add(count, Ordering::Relaxed) == 0 {
            let text = format!(
                "the disk is behind by {WAITING_MAX} entries: further ones are left out of the audit file and counted"
            );
            self.log.error("audit", text);
        }
    }

    /// What is to be waited for, with [`Flush::wait`], until all that came before is written.
    pub(super) fn flush(&self) -> Flush {
        Flush(self.orders.clone())
    }
}

/// A wish to wait.
pub(super) struct Flush(SyncSender<Order>);

impl Flush {
    /// Waits, but not longer than `timeout`.
    pub(super) fn wait(self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let (done, answer) = sync_channel(1);
        while self.0.try_send(Order::Flush(done.clone())).is_err() {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A timeout means that the disk takes nothing.
        let _ = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

struct Thread<W> {
    log: Log,
    write: W,
    left_out: Arc<AtomicU64>,
    left_out_ever: Arc<AtomicU64>,
}

impl<W: FnMut(&Audited) -> io::Result<()>> Thread<W> {
    fn run(mut self, orders: &Receiver<Order>) {
        for order in orders {
            match order {
                Order::Write(entry) => {
                    self.write(&entry);
                    self.tell_left_out();
                }
                Order::Flush(done) => {
                    self.tell_left_out();
                    // Who asks may be gone.
                    let _ = done.try_send(());
                }
            }
        }
    }

    fn write(&mut self, entry: &Audited) {
        if let Err(error) = (self.write)(entry) {
            self.log.error("audit", format!("an entry is not in the audit file: {error}"));
            self.left_out.fetch_add(entry.count, Ordering::Relaxed);
            self.left_out_ever.fetch_add(entry.count, Ordering::Relaxed);
        }
    }

    /// Puts a line near where entries are missing.
    fn tell_left_out(&mut self) {
        let count = self.left_out.load(Ordering::Relaxed);
        if count == 0 {
            return;
        }
        let mut entry = entry_of_now();
        "requests and orders that are missing near here".clone_into(&mut entry.what);
        "not written".clone_into(&mut entry.result);
        entry.count = count;
        // If that does not work either, with the next one.
        if (self.write)(&entry).is_ok() {
            self.left_out.fetch_sub(count, Ordering::Relaxed);
            self.log.warning(
                "audit",
                format!("{count} requests and orders are missing in the audit file"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Format, Level};
    use std::sync::mpsc::channel;

    fn log() -> Log {
        Log::start(Level::Error, Format::Text, io::sink()).unwrap()
    }

    fn entry(number: usize) -> Audited {
        Audited { what: number.to_string(), ..entry_of_now() }
    }

    #[test]
    fn nobody_waits_for_a_disk_that_hangs_and_what_finds_no_room_is_counted() {
        let (release, released) = channel::<()>();
        let (begin, begun) = channel();
        let (written, all) = channel();
        let left_out = Arc::default();
        let writer = Writer::start(&log(), &left_out, move |entry| {
            // Nobody hears it but for the first.
            let _ = begin.send(());
            // It hangs until this is dropped.
            let _ = released.recv();
            written.send(entry.clone()).unwrap();
            Ok(())
        });
        let writer = writer.unwrap();
        let count = WAITING_MAX + 100;
        writer.write(entry(0));
        // The first one is in the thread's hands.
        begun.recv().unwrap();
        for number in 1..count {
            writer.write(entry(number));
        }
        writer.write(Audited { count: 7, ..entry(count) });
        assert!(all.try_recv().is_err());
        drop(release);
        writer.flush().wait(Duration::from_secs(60));
        drop(writer);
        let all: Vec<Audited> = all.iter().collect();
        assert_eq!(all.iter().map(|entry| entry.count).sum::<u64>(), count as u64 + 7);
        let (told, kept): (Vec<_>, Vec<_>) =
            all.iter().partition(|entry| entry.result == "not written");
        assert_eq!(kept.len(), WAITING_MAX + 1);
        assert_eq!(told.len(), 1);
        assert_eq!(left_out.load(Ordering::Relaxed), told[0].count);
        assert!(kept.iter().enumerate().all(|(place, entry)| entry.what == place.to_string()));
    }

    #[test]
    fn what_could_not_be_written_is_told_when_something_can() {
        let (written, all) = channel();
        let mut calls = 0;
        let left_out = Arc::default();
        let writer = Writer::start(&log(), &left_out, move |entry| {
            calls += 1;
            // The first entry, the line about it, and the second entry.
            if calls <= 3 {
                return Err(io::Error::other("full"));
            }
            written.send((entry.what.clone(), entry.count)).unwrap();
            Ok(())
        });
        let writer = writer.unwrap();
        for number in 0..3 {
            writer.write(entry(number));
        }
        drop(writer);
        let all: Vec<(String, u64)> = all.iter().collect();
        let missing = "requests and orders that are missing near here".to_owned();
        assert_eq!(all, [(missing, 2), ("2".to_owned(), 1)]);
        // What was told is still missing.
        assert_eq!(left_out.load(Ordering::Relaxed), 2);
    }
}
