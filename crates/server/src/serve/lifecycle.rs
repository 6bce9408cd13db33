//! The broker between its start and its end, as those see it who ask from outside.

use super::progress::Progress;
use crate::figures::Figures;
use lepus_base::Instant;
use lepus_management::http::Source;
use lepus_management::metrics::objects::Objects;
use lepus_management::snapshot::Snapshot;
use lepus_shard::Clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Whether the broker starts, serves or stops.
#[derive(Debug)]
pub struct Lifecycle {
    /// How far the start is.
    pub progress: Progress,
    clock: Clock,
    begun: Instant,
    /// Set once clients are served.
    figures: OnceLock<Arc<Figures>>,
    /// Set before that.
    objects: OnceLock<Objects>,
    stops: AtomicBool,
}

impl Lifecycle {
    /// A broker of so many shards that starts now.
    #[must_use]
    pub fn new(clock: Clock, shards: u16) -> Lifecycle {
        Lifecycle {
            progress: Progress::new(shards),
            clock,
            begun: clock.instant(),
            figures: OnceLock::new(),
            objects: OnceLock::new(),
            stops: AtomicBool::new(false),
        }
    }

    /// The way to figures of queues, connections and channels one by one, from then on when clients are served.
    pub fn show(&self, objects: Objects) {
        // Told once, by the only one who starts it.
        let _ = self.objects.set(objects);
    }

    /// From now on clients are served.
    pub fn serve(&self, figures: Arc<Figures>) {
        // Told once, by the only one who starts it.
        let _ = self.figures.set(figures);
    }

    /// From now on the broker stops.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Whether it stops.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    /// The figures of a broker that serves.
    ///
    /// # Errors
    /// How far the start is.
    pub fn figures(&self) -> Result<&Arc<Figures>, String> {
        self.figures.get().ok_or_else(|| {
            let seconds = self.clock.instant().since(self.begun).as_secs();
            format!("starting for {seconds} s: it {}", self.progress.text())
        })
    }
}

impl Source for Lifecycle {
    fn collect(&self) -> Result<Snapshot, String> {
        self.figures()?.collect()
    }

    fn health(&self) -> Result<String, String> {
        match self.figures() {
            Ok(figures) => figures.answer().map(|()| "ok".to_owned()),
            Err(start) => Ok(start),
        }
    }

    fn ready(&self) -> Result<(), String> {
        self.figures()?;
        match self.stops() {
            true => Err("the broker stops".to_owned()),
            false => Ok(()),
        }
    }

    fn objects(&self) -> Result<Objects, String> {
        self.figures()?;
        let objects = self.objects.get().cloned();
        objects.ok_or_else(|| "figures are not told one by one here".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use lepus_broker::Broker;
    use lepus_shard::Wiring;
    use std::net::TcpStream;
    use std::path::PathBuf;

    #[test]
    fn a_broker_that_starts_is_healthy_and_not_ready() {
        let lifecycle = Lifecycle::new(Clock::start(), 1);
        let text = "starting for 0 s: it reads the definitions";
        assert_eq!(lifecycle.health(), Ok(text.to_owned()));
        assert_eq!(lifecycle.ready(), Err(text.to_owned()));
        assert_eq!(lifecycle.collect().unwrap_err(), text);
        assert_eq!(lifecycle.objects().unwrap_err(), text);
    }

    /// Who asks for its health again and again costs the shards no survey.
    #[test]
    fn a_broker_that_serves_collects_nothing_to_say_that_it_is_healthy() {
        let clock = Clock::start();
        let lifecycle = Lifecycle::new(clock, 1);
        let (notices, _log) = lepus_shard::notices(|_| false);
        // There are no shards to be asked.
        let commands = Wiring::<Broker, TcpStream>::new(&[], 1, &notices).commands;
        let node = crate::figures::node(&Config::preset(), 1);
        let entrance = Arc::default();
        let figures =
            Figures::new(node, commands, Vec::new(), entrance, clock, PathBuf::new(), Vec::new());
        lifecycle.serve(Arc::new(figures));
        assert_eq!(lifecycle.health(), Ok("ok".to_owned()));
        assert_eq!(lifecycle.ready(), Ok(()));
        assert!(!lifecycle.figures().unwrap().was_collected());
        lifecycle.collect().unwrap();
        assert!(lifecycle.figures().unwrap().was_collected());
    }
}
