//! The wish to stop: Ctrl-C ends what runs and leaves what there is.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody wants the experiment to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes over SIGINT and SIGTERM. A second one changes nothing: it would leave brokers behind that nobody ends.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn on_signals() -> io::Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// Whether it was wished.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
