//! The wish to stop: Ctrl-C, or a terminal that goes away, ends what runs and leaves what there is.

use lepus_probe::procfs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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
        let hang_up = (!procfs::ignores(std::process::id(), SIGHUP)).then_some(SIGHUP);
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
