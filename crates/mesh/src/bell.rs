//! Tells a shard that something waits for it, and wakes it if it sleeps.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use lepus_base::ShardId;

/// What waits, besides mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Changes of the directory.
    Directory = 1,
    /// Questions and orders of the control plane.
    Command = 2,
    /// New connections.
    Arrival = 4,
    /// A ring that was full has room again.
    Room = 8,
    /// The process stops.
    Stop = 16,
    /// Operations on files have ended.
    Disk = 32,
}

/// One per shard, shared with everyone who sends to it. On cache lines of its own.
///
/// The order of a sender is: put, [`Bell::post`], [`Bell::ring`]. The order of the owner is:
/// [`Bell::take`], then look. Before it blocks it calls [`Bell::fall_asleep`]. Both sides' accesses
/// to the flags are sequentially consistent, so that either the sender sees the sleeper or the
/// sleeper sees the post.
#[repr(align(128))]
pub struct Bell {
    /// Bit `peer % 64`: that peer has put mail into its ring.
    mail: AtomicU64,
    signals: AtomicU32,
    sleeping: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell")
            .field("mail", &self.mail)
            .field("signals", &self.signals)
            .field("sleeping", &self.sleeping)
            .finish_non_exhaustive()
    }
}

impl Bell {
    /// A bell whose owner is awake; `wake` ends its sleep and may cost a system call.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Bell {
        Bell {
            mail: AtomicU64::new(0),
            signals: AtomicU32::new(0),
            sleeping: AtomicBool::new(false),
            wake: Box::new(wake),
        }
    }

    /// Announces something without waking.
    pub fn post(&self, signal: Signal) {
        self.signals.fetch_or(signal as u32, Ordering::SeqCst);
    }

    /// Announces mail of a peer without waking.
    pub(crate) fn post_mail(&self, from: ShardId) {
        self.mail.fetch_or(1 << (from.0 % 64), Ordering::SeqCst);
    }

    /// Wakes the owner if it sleeps and nobody else has woken it; whether it did.
    pub fn ring(&self) -> bool {
        let woken =
            self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst);
        if woken {
            (self.wake)();
        }
        woken
    }

    /// Whether `signal` was posted since the last take. For the owner, before it looks.
    pub fn take(&self, signal: Signal) -> bool {
        let bit = signal as u32;
        self.signals.load(Ordering::Acquire) & bit != 0
            && self.signals.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    pub(crate) fn take_mail(&self) -> u64 {
        match self.mail.load(Ordering::Acquire) {
            0 => 0,
            _ => self.mail.swap(0, Ordering::SeqCst),
        }
    }

    /// Whether anything is posted. Cheap: for spinning.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        self.mail.load(Ordering::SeqCst) != 0 || self.signals.load(Ordering::SeqCst) != 0
    }

    /// The owner is about to block. False when something is posted: then it must not, and counts
    /// as awake.
    pub fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.is_posted() {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// The owner does not block any more.
    pub fn wake_up(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    fn counted() -> (Bell, Arc<AtomicUsize>) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        let bell = Bell::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        (bell, wakes)
    }

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
        let (bell, wakes) = counted();
        bell.post(Signal::Command);
        assert!(!bell.ring());
        assert!(bell.take(Signal::Command));
        assert!(bell.fall_asleep());
        bell.post(Signal::Command);
        assert!(bell.ring());
        assert!(!bell.ring());
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn nobody_falls_asleep_over_a_post() {
        let (bell, wakes) = counted();
        bell.post(Signal::Arrival);
        assert!(!bell.fall_asleep());
        assert!(!bell.ring(), "it counts as awake");
        assert!(bell.take(Signal::Arrival) && !bell.take(Signal::Arrival));
        bell.post_mail(ShardId(65));
        assert!(!bell.fall_asleep());
        assert_eq!(bell.take_mail(), 1 << 1);
        assert!(bell.fall_asleep());
        assert_eq!(wakes.load(Ordering::SeqCst), 0);
    }
}
