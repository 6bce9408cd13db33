//! Settings that an operator has changed while the broker runs. They are forgotten with it.

use crate::config::{Budget, Config};
use crate::figures::{self, Figures};
use crate::log::{Level, Log};
use lepus_broker::Query;
use lepus_broker::query::{Setting, Shortage};
use lepus_management::api::{Amount, Change, Mirror};
use lepus_management::machine::OwnFigures;
use lepus_shard::FreeLimit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often it is looked whether the disk has room again, while it has less than an operator wants.
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
    /// Whether the disk is said to be short because it has less free than is wanted now. A thread looks at that then.
    is_disk_short: bool,
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
        let state = State { memory, values: Vec::new(), is_disk_short: false };
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
                let bytes = amount.bytes(figures::usable_memory());
                let shards = u64::from(self.figures.commands.shards());
                let share = usize::try_from(bytes / shards).unwrap_or(usize::MAX);
                self.figures.ask_all(&Query::Set(Setting::MemoryShare(share)))?;
                self.figures.set_memory_budget(bytes);
                state.memory = amount;
                ("memory.budget", bytes.to_string())
            }
            Change::DiskFreeLimit(amount) => {
                let bytes = amount.bytes(figures::usable_memory());
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

    /// Has publishers held back where the disk has less free than is wanted, until it has room again. The logs themselves
    /// notice only when they need another segment.
    fn look_at_disk(self: &Arc<Changed>, state: &mut State) -> Result<(), String> {
        let is_short = self.disk_is_short();
        if is_short == state.is_disk_short {
            return Ok(());
        }
        self.order_disk_alarm(is_short)?;
        state.is_disk_short = is_short;
        if is_short {
            let own = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("disk-limit".to_owned());
            // Without a thread the operator has to set it again, or clear the alarm.
            if let Err(error) = thread.spawn(move || wait_for_room(&own)) {
                self.log.warning("disk-limit", format!("nobody looks at the disk: {error}"));
            }
        }
        Ok(())
    }

    fn disk_is_short(&self) -> bool {
        let free = OwnFigures::read(self.figures.data_dir(), &[]).disk_free_bytes;
        free < self.free_limit.bytes()
    }

    fn order_disk_alarm(&self, is_on: bool) -> Result<(), String> {
        self.figures.ask_all(&Query::Alarm { shortage: Shortage::Disk, is_on })?;
        self.figures.forget();
        Ok(())
    }
}

/// Ends the alarm once the disk has room.
fn wait_for_room(changed: &Weak<Changed>) {
    loop {
        std::thread::sleep(LOOK);
        let Some(changed) = changed.upgrade() else { return };
        let mut state = changed.state();
        if !state.is_disk_short {
            return;
        }
        if !changed.disk_is_short() && changed.order_disk_alarm(false).is_ok() {
            state.is_disk_short = false;
            return;
        }
    }
}
