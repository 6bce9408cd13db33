//! What a test does with the disk of a [`World`], and its processes that end and start again.

use std::time::Duration;

use lepus_store::disk::LogId;
use lepus_store::simulation::Disk;

use crate::disk::{DiskFigures, SimDisk};
use crate::world::World;

impl World {
    fn sim_disk<R>(&self, act: impl FnOnce(&mut SimDisk) -> R) -> R {
        let mut state = self.0.borrow_mut();
        act(state.shards.disk.as_mut().expect("the world has a disk"))
    }

    /// The disk: its files, its space, its faults.
    ///
    /// # Panics
    /// When the world has none, as everything here.
    pub fn disk<R>(&self, act: impl FnOnce(&mut Disk) -> R) -> R {
        self.sim_disk(|disk| act(&mut disk.disk))
    }

    /// Disk operations wait from now on.
    pub fn hold_disk(&self) {
        self.sim_disk(|disk| disk.held = true);
    }

    /// Disk operations of one log wait from now on.
    pub fn hold_log(&self, log: LogId) {
        self.sim_disk(|disk| disk.held_logs.insert(log));
    }

    /// Disk operations are carried out again, those that wait first.
    pub fn release_disk(&self) {
        self.sim_disk(|disk| {
            disk.held = false;
            disk.held_logs.clear();
        });
        self.settle();
    }

    /// Disk operations asked for from now on take so many milliseconds; 0 for no time.
    pub fn slow_disk(&self, millis: u64) {
        let time = Duration::from_millis(millis);
        self.sim_disk(|disk| disk.takes = (time, time));
    }

    /// Disk operations that were asked for and not carried out.
    #[must_use]
    pub fn disk_waiting(&self) -> usize {
        self.sim_disk(|disk| disk.waiting())
    }

    /// What the disk was asked for since the world began.
    #[must_use]
    pub fn disk_figures(&self) -> DiskFigures {
        self.sim_disk(|disk| disk.figures(None))
    }

    /// The same for one log.
    #[must_use]
    pub fn log_figures(&self, log: LogId) -> DiskFigures {
        self.sim_disk(|disk| disk.figures(Some(log)))
    }

    /// The process ends in order: clients are told, connections end, logs are closed.
    ///
    /// # Panics
    /// When the logs do not close.
    pub fn stop(&self) {
        self.0.borrow_mut().stop();
    }

    /// The process is killed; what it had written is kept by the system.
    pub fn kill(&self) {
        self.0.borrow_mut().end(false);
    }

    /// The power fails: what was not synced is kept or lost by chance, sector by sector.
    pub fn crash(&self) {
        self.0.borrow_mut().end(true);
    }

    /// A new process starts on the same disk. Clients have to connect anew.
    ///
    /// # Panics
    /// When it refuses to.
    pub fn start_again(&self, shards: u16) {
        if let Err(reason) = self.try_start_again(shards) {
            panic!("the broker does not start again: {reason}");
        }
    }

    /// The same.
    ///
    /// # Errors
    /// Why it refuses to start; another try may follow.
    pub fn try_start_again(&self, shards: u16) -> Result<(), String> {
        let mut state = self.0.borrow_mut();
        state.shards.start(shards)?;
        state.settle();
        Ok(())
    }
}
