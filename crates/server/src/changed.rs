//! Settings that an operator has changed while the broker runs. They are forgotten with it.

use crate::config::{Budget, Config};
use crate::figures::{self, Figures};
use crate::log::{Level, Log};
use lepus_broker::Query;
use lepus_broker::query::{AlarmSource, Setting, Shortage};
use lepus_management::api::{Amount, Change, Mirror};
use lepus_management::machine::disk_free_bytes;
use lepus_shard::FreeLimit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked whether the disk has as much room as is wanted, once an operator has changed that.
const LOOK: Duration = Duration::from_secs(1);

/// The settings that can be changed, and what follows them.
#[derive(Debug)]
pub struct Changed {
    figures: Arc<Figures>,
    mirror: Arc<Mirror>,
    free_limit: FreeLimit,
    log: Log,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    memory: Amount,
    /// Keys of settings with what they are now.
    values: Vec<(&'static str, String)>,
    disk: DiskAlarm,
}

/// What is said of the disk.
#[derive(Debug, Default)]
struct DiskAlarm {
    /// Whether it is said to be short because it has less free than is wanted.
    is_short: bool,
    /// Whether a thread looks at that.
    is_watched: bool,
}

impl Changed {
    /// As it was configured.
    #[must_use]
    pub fn new(
        config: &Config,
        figures: Arc<Figures>,
        mirror: Arc<Mirror>,
        free_limit: FreeLimit,
        log: Log,
    ) -> Changed {
        let memory = match config.memory_budget {
            Budget::Bytes(bytes) => Amount::Bytes(bytes),
            Budget::Percent(share) => Amount::Share(f64::from(share) / 100.0),
        };
        let state = State { memory, values: Vec::new(), disk: DiskAlarm::default() };
        Changed { figures, mirror, free_limit, log, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory above which publishers are held back.
    pub fn memory(&self) -> Amount {
        self.state().memory
    }

    /// A setting's value, if it was changed.
    pub fn value(&self, key: &str) -> Option<String> {
        let state = self.state();
        state.values.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    }

    /// Changes a setting; one after the other.
    ///
    /// # Errors
    /// In words, where a shard does not answer.
    pub fn change(self: &Arc<Changed>, change: Change) -> Result<(), String> {
        let mut state = self.state();
        let (key, value) = match change {
            Change::MemoryBudget(amount) => {
                let bytes = figures::memory_budget_for(amount, figures::usable_memory());
                let shards = u64::from(self.figures.commands.shards());
                let share = usize::try_from(bytes / shards).unwrap_or(usize::MAX);
                self.figures.ask_all(&Query::Set(Setting::MemoryShare(share)))?;
                self.figures.set_memory_budget(bytes);
                state.memory = amount;
                ("memory.budget", bytes.to_string())
            }
            Change::DiskFreeLimit(amount) => {
                let bytes = amount.bytes(figures::usable_memory());
                self.watch_disk(&mut state)?;
                self.free_limit.set(bytes);
                self.figures.set_disk_free_min(bytes);
                self.look_at_disk(&mut state)?;
                ("store.disk_free_limit", bytes.to_string())
            }
            Change::ChannelMax(channels) => {
                self.figures.ask_all(&Query::Set(Setting::ChannelMax(channels)))?;
                ("limits.channel_max", channels.to_string())
            }
            Change::LoopbackUsers(names) => {
                self.figures.ask_all(&Query::Set(Setting::LoopbackUsers(names.clone())))?;
                let value = names.join(",");
                self.mirror.set_loopback_users(names);
                ("login.loopback_users", value)
            }
            Change::LogLevel(level) => {
                self.log.set_level(Level::from_name(level));
                ("log.level", level.to_owned())
            }
        };
        state.values.retain(|(name, _)| *name != key);
        state.values.push((key, value));
        Ok(())
    }

    /// Has somebody look at the disk from now on. The logs themselves notice only when they need another segment.
    fn watch_disk(self: &Arc<Changed>, state: &mut State) -> Result<(), String> {
        if state.disk.is_watched {
            return Ok(());
        }
        let own = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("disk-limit".to_owned());
        let watch = move || {
            let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
            loop {
                std::thread::sleep(LOOK);
                let Some(changed) = own.upgrade() else { return };
                // A shard that does not answer is asked again.
                let _ = changed.look_at_disk(&mut changed.state());
            }
        };
        thread.spawn(watch).map_err(|error| format!("nobody could look at the disk: {error}"))?;
        state.disk.is_watched = true;
        Ok(())
    }

    /// Has publishers held back while the disk has less free than is wanted.
    fn look_at_disk(&self, state: &mut State) -> Result<(), String> {
        // What is not told is as it was.
        let Some(free) = disk_free_bytes(self.figures.data_dir()) else { return Ok(()) };
        let limit = self.free_limit.bytes();
        let is_changed = state.disk.look(free, limit, |is_on| {
            let (shortage, source) = (Shortage::Disk, AlarmSource::Measure);
            self.figures.ask_all(&Query::Alarm { shortage, is_on, source })?;
            self.figures.forget();
            Ok(())
        })?;
        match is_changed {
            true if state.disk.is_short => self.log.warning(
                "disk-limit",
                format!("{free} bytes of the disk are free, of {limit} that are wanted; publishers are held back"),
            ),
            true => self.log.info(
                "disk-limit-over",
                format!("{free} bytes of the disk are free, {limit} are wanted; publishers go on"),
            ),
            false => {}
        }
        Ok(())
    }
}

impl DiskAlarm {
    /// Has the alarm raised or ended where it is time for that. Whether it was; if it could not be, it is tried again at the
    /// next look.
    fn look(
        &mut self,
        free: u64,
        limit: u64,
        order: impl FnOnce(bool) -> Result<(), String>,
    ) -> Result<bool, String> {
        let is_short = free < limit;
        if is_short == self.is_short {
            return Ok(false);
        }
        order(is_short)?;
        self.is_short = is_short;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_follows_what_is_free_both_ways() {
        let mut alarm = DiskAlarm::default();
        let mut orders = Vec::new();
        for free in [100, 200, 99, 50, 99, 100, 5, 300] {
            let before = orders.len();
            let is_changed = alarm.look(free, 100, |is_on| {
                orders.push((free, is_on));
                Ok(())
            });
            assert_eq!(is_changed, Ok(orders.len() > before));
        }
        assert_eq!(orders, [(99, true), (100, false), (5, true), (300, false)]);
    }

    #[test]
    fn what_could_not_be_ordered_is_ordered_again() {
        let mut alarm = DiskAlarm::default();
        let refused = |_| Err("a shard does not answer".to_owned());
        assert!(alarm.look(1, 2, refused).is_err());
        assert_eq!(alarm.look(1, 2, |_| Ok(())), Ok(true));
        assert!(alarm.look(2, 2, refused).is_err());
        assert_eq!(alarm.look(1, 2, refused), Ok(false), "it is as it was");
        assert_eq!(alarm.look(2, 2, |_| Ok(())), Ok(true));
    }
}
