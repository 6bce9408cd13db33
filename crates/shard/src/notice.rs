//! What the runtime tells the log.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use lepus_base::ShardId;
use lepus_reactor::files::Failure;

/// Notices that may wait to be read, about: shards that tell one at the same time may add one each.
/// Further ones are lost, and counted.
pub const WAITING_NOTICES_MAX: usize = 4096;

/// One event for the log.
#[derive(Debug)]
pub enum Notice<E> {
    /// An event of a shard's core.
    Core {
        /// The shard.
        shard: ShardId,
        /// The event.
        event: E,
    },
    /// A shard is not where it was planned to be.
    Misplaced {
        /// The shard.
        shard: ShardId,
        /// What was planned and what the system said or did.
        reason: String,
    },
    /// An operation on a file failed.
    DiskFailed {
        /// The shard.
        shard: ShardId,
        /// What was tried and what the system said.
        failure: Failure,
    },
    /// Accepting fails (no file descriptors left, for one), or listening again after it was suspended does (another
    /// program took the port), and is tried again soon.
    AcceptFailed {
        /// The listener.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A connection beyond the limit was closed at once.
    ConnectionRefused {
        /// Who.
        peer: SocketAddr,
        /// The limit that is reached.
        connections_max: usize,
    },
    /// A connection could not be taken into service.
    ConnectionFailed {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Connections were closed that had not said anything.
    TurnedAway {
        /// The last of them.
        peer: SocketAddr,
        /// How many had been silent for too long since this was told last.
        expired: u64,
        /// How many gave way to new ones because too many were silent.
        gave_way: u64,
    },
    /// A TLS handshake failed or took too long.
    TlsFailed {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// Makes the way of notices to the log. Those that `must_be_told` are never lost, however many wait:
/// peers must not be able to cause many of them.
#[must_use]
pub fn notices<E>(must_be_told: fn(&Notice<E>) -> bool) -> (Notices<E>, NoticeReader<E>) {
    let (sender, receiver) = channel();
    let counts = Arc::new(Counts::default());
    let reader = NoticeReader { receiver, counts: Arc::clone(&counts) };
    (Notices { sender, counts, must_be_told }, reader)
}

#[derive(Debug, Default)]
struct Counts {
    /// Notices that were told and not read yet.
    waiting: AtomicUsize,
    /// Notices that were lost since this was asked for last.
    lost: AtomicU64,
}

/// Where notices go. Whoever tells one never waits; clones tell the same reader.
pub struct Notices<E> {
    // Without bound by itself, so that what must be told always has room.
    sender: Sender<Notice<E>>,
    counts: Arc<Counts>,
    must_be_told: fn(&Notice<E>) -> bool,
}

impl<E> Notices<E> {
    /// Tells a notice, or loses it if too many wait.
    pub fn tell(&self, notice: Notice<E>) {
        let is_full = self.counts.waiting.load(Ordering::Relaxed) >= WAITING_NOTICES_MAX;
        if is_full && !(self.must_be_told)(&notice) {
            return self.lose(1);
        }
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        // Without a reader there is nobody to tell.
        let _ = self.sender.send(notice);
    }

    /// Counts notices that were lost before they could be told.
    pub fn lose(&self, count: u64) {
        self.counts.lost.fetch_add(count, Ordering::Relaxed);
    }
}

impl<E> Clone for Notices<E> {
    fn clone(&self) -> Notices<E> {
        let (sender, counts) = (self.sender.clone(), Arc::clone(&self.counts));
        Notices { sender, counts, must_be_told: self.must_be_told }
    }
}

impl<E> fmt::Debug for Notices<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Where notices come out, in the order in which they were told.
#[derive(Debug)]
pub struct NoticeReader<E> {
    receiver: Receiver<Notice<E>>,
    counts: Arc<Counts>,
}

impl<E> NoticeReader<E> {
    /// All notices, waiting for them, until nobody can tell any more.
    pub fn iter(&self) -> impl Iterator<Item = Notice<E>> {
        self.receiver.iter().inspect(|_| self.count_read())
    }

    /// Those that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = Notice<E>> {
        self.receiver.try_iter().inspect(|_| self.count_read())
    }

    /// How many were lost since this was asked last.
    #[must_use]
    pub fn take_lost(&self) -> u64 {
        self.counts.lost.swap(0, Ordering::Relaxed)
    }

    fn count_read(&self) {
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: usize = 3 * WAITING_NOTICES_MAX;

    fn numbered(event: usize) -> Notice<usize> {
        Notice::Core { shard: ShardId(0), event }
    }

    #[test]
    fn what_nobody_reads_is_lost_and_counted_but_for_what_must_be_told() {
        let must_be_told = |notice: &Notice<usize>| matches!(notice, Notice::Core { event, .. } if event % 100 == 0);
        let (notices, reader) = notices(must_be_told);
        (1..=SENT).for_each(|number| notices.clone().tell(numbered(number)));
        notices.lose(7);
        let told: Vec<usize> = reader
            .try_iter()
            .map(|notice| match notice {
                Notice::Core { event, .. } => event,
                other => panic!("{other:?}"),
            })
            .collect();
        let in_time = 1..=WAITING_NOTICES_MAX;
        let vital = (WAITING_NOTICES_MAX + 1..=SENT).filter(|number| number % 100 == 0);
        assert!(told.iter().copied().eq(in_time.chain(vital)), "{} of {SENT}", told.len());
        assert_eq!(reader.take_lost(), (SENT - told.len() + 7) as u64);
        assert_eq!(reader.take_lost(), 0);
        // There is room again.
        (0..10).for_each(|_| notices.tell(numbered(1)));
        drop(notices);
        assert_eq!((reader.iter().count(), reader.take_lost()), (10, 0));
    }

    #[test]
    fn telling_goes_on_without_a_reader() {
        let (notices, _) = notices(|_| false);
        (0..SENT).for_each(|number| notices.tell(numbered(number)));
    }
}
