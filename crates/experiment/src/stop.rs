//! The wish to stop: Ctrl-C, or a terminal that goes away, ends what runs and leaves what there is.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody wants the experiment to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes over SIGINT and SIGTERM, and SIGHUP unless the process was started to ignore it, as by `nohup`. A second one
    /// changes nothing: it would leave brokers behind that nobody ends.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn on_signals() -> io::Result<Stop> {
        let stop = Stop::default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hang_up = (!is_ignored(SIGHUP, &status)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Wishes it.
    #[cfg(test)]
    pub fn wish(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was wished.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a process of this `/proc/PID/status` ignores a signal.
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status =
            "SigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0000000180004002\n";
        assert!(is_ignored(SIGHUP, status));
        assert!(!is_ignored(SIGINT, status) && !is_ignored(SIGTERM, status));
        assert!(!is_ignored(SIGHUP, "") && !is_ignored(SIGHUP, "SigIgn:\tx\n"));
    }
}
