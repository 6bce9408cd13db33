//! The logs in the data directory: which shard drives which, and what is found in them at the start.

use super::progress::Progress;
use crate::config::Config;
use crate::shard_logs::unusable;
use lepus_base::Now;
use lepus_broker::start::{Found, StartDisk, StartError};
use lepus_reactor::files::{Blocking, Files, sync_directory};
use lepus_shard::{Clock, Storage};
use lepus_store::disk::{Completion, File, LogId, Operation};
use lepus_store::{Settings, SyncMode};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Memory of one log for what was written or read, at most.
const CACHE_BYTES_MAX: usize = 16 << 20;
/// And at least.
const CACHE_BYTES_MIN: usize = 1 << 20;
/// The part of a shard's memory that it may take.
const CACHE_PART: usize = 8;

/// Of so many bytes of a shard's memory one entry may be gathered by a start without a checkpoint: nobody is
/// served then, and it takes half of them.
const REBUILD_PART: usize = 256;
/// However little memory there is.
const REBUILD_ENTRIES_MIN: usize = 1 << 16;

/// Segments that a log needs to go on: those prepared, those in reserve, and as many in use.
const SEGMENTS_MIN: u64 = 8;
/// The shortest segments that there are.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// What the directory of a log is called that is being removed, behind its name.
const REMOVED: &str = ".removed";

/// The logs of messages in the data directory.
///
/// # Errors
/// When the directory cannot be read.
pub fn find(data_dir: &Path) -> Result<Vec<LogId>, String> {
    let failed = |error| format!("cannot read {}: {error}", data_dir.display());
    let entries = match std::fs::read_dir(data_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    finish_removals(data_dir);
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let root = format!("{}/root", name.to_string_lossy());
        if let Ok(File::Root(log)) = root.parse::<File>() {
            found.push(log);
        }
    }
    Ok(found)
}

/// What every log is opened with, but for its number.
#[must_use]
pub fn template(config: &Config, shards: u16, shard_bytes: usize) -> Settings {
    Settings {
        sync: match config.store_sync.as_str() {
            "interval" => SyncMode::Interval,
            "never" => SyncMode::Never,
            _ => SyncMode::Always,
        },
        segment_bytes: segment_bytes(config, shards, 1),
        is_kept_ready: false,
        sync_interval: config.store_sync_interval,
        read_retry_limit: config.store_read_retry_limit,
        bytes_max: bytes_max(config, shards),
        rebuild_entries_max: (shard_bytes / REBUILD_PART).max(REBUILD_ENTRIES_MIN),
        cache_bytes: (shard_bytes / CACHE_PART).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX),
        ..Settings::new(LogId(0))
    }
}

/// Bytes that the files of all logs of each of `shards` shards may have together.
fn bytes_max(config: &Config, shards: u16) -> u64 {
    match config.store_bytes_max {
        0 => u64::MAX,
        bytes => bytes / u64::from(shards.max(1)),
    }
}

/// The length of segments where a shard drives so many logs: shorter ones where each could have few.
#[must_use]
pub fn segment_bytes(config: &Config, shards: u16, logs: usize) -> u32 {
    let share = bytes_max(config, shards) / logs.max(1) as u64 / SEGMENTS_MIN;
    let share = 1 << share.max(SEGMENT_BYTES_MIN).ilog2();
    u32::try_from(config.store_segment_bytes.min(share)).unwrap_or(u32::MAX)
}

/// Whether all shards can have a log within what the configuration allows.
///
/// # Errors
/// In words, with what to change.
pub fn check_bytes_max(config: &Config, shards: u16) -> Result<(), String> {
    let least = SEGMENTS_MIN * SEGMENT_BYTES_MIN;
    if bytes_max(config, shards) >= least {
        return Ok(());
    }
    Err(format!(
        "store.bytes_max of {} MiB is too little for {shards} shards: each needs {} MiB; set it to {} MiB \
         or more, or have fewer shards (--shards)",
        config.store_bytes_max >> 20,
        least >> 20,
        (least * u64::from(shards)) >> 20
    ))
}

/// Removes a log that nobody needs. Its directory has another name first: a log is there as a whole or not
/// at all.
fn remove(data_dir: &Path, log: LogId) -> io::Result<()> {
    let name = log.to_string();
    let removed = data_dir.join(format!("{name}{REMOVED}"));
    std::fs::rename(data_dir.join(name), &removed)?;
    sync_directory(data_dir)?;
    std::fs::remove_dir_all(removed)
}

/// Removes what a run before had no time to remove.
fn finish_removals(data_dir: &Path) {
    for entry in std::fs::read_dir(data_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let log = name.strip_suffix(REMOVED).map(|log| format!("{log}/root"));
        if log.is_some_and(|root| root.parse::<File>().is_ok()) {
            // It is tried again at the next start.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// What was found in the logs, in words, for the log.
#[must_use]
pub fn text(found: Found, took: Duration) -> String {
    let count = |number: u64, noun: &str| match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    };
    let end = match (found.unclean, found.messages) {
        (0, _) => "the last run ended in order",
        (_, 0) => "the last run did not end in order",
        (_, _) => "the last run did not end in order, so they are marked as redelivered",
    };
    let queues = count(found.queues, "queue");
    let messages = count(found.messages, "message");
    format!("{queues} with {messages} found in {:.3} s; {end}", took.as_secs_f64())
}

/// The logs that the first start in a data directory makes. When it is dropped they are removed, unless the
/// start succeeded: what a failed one leaves behind could keep the next one, with other settings, from its
/// room. What a later start makes stays: definitions may name it.
#[derive(Debug)]
pub struct NewLogs {
    data_dir: PathBuf,
    /// There was none before.
    is_first: bool,
}

impl NewLogs {
    /// Those that are not there yet.
    ///
    /// # Errors
    /// In words, when the directory cannot be read: logs that were not seen would be taken for new ones.
    pub fn from_now(data_dir: &Path) -> Result<NewLogs, String> {
        let before = names(data_dir)
            .map_err(|error| format!("cannot read {}: {error}", data_dir.display()))?;
        Ok(NewLogs { data_dir: data_dir.to_owned(), is_first: before.is_empty() })
    }

    /// The start has succeeded.
    pub fn keep(mut self) {
        self.is_first = false;
    }
}

impl Drop for NewLogs {
    fn drop(&mut self) {
        // After a panic nobody knows who still writes to them.
        if !self.is_first || std::thread::panicking() {
            return;
        }
        let mut names = names(&self.data_dir).unwrap_or_default();
        // Definitions last: logs of messages without them would keep later starts from running.
        names.sort_unstable_by(|one, other| other.cmp(one));
        for name in names {
            // What is in the way of this was in the way of the start.
            let _ = std::fs::remove_dir_all(self.data_dir.join(name));
        }
    }
}

/// Names of the logs' directories.
fn names(data_dir: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(data_dir)? {
        let name = entry?.file_name();
        if format!("{}/root", name.to_string_lossy()).parse::<File>().is_ok() {
            names.push(name);
        }
    }
    Ok(names)
}

/// The files of a shard's logs while it starts.
pub struct StartFiles<'a> {
    files: Blocking,
    data_dir: &'a Path,
    clock: Clock,
    /// Told what was done.
    progress: &'a Progress,
}

impl<'a> StartFiles<'a> {
    /// What `storage` leaves of the disk stays free.
    #[must_use]
    pub fn new(storage: &'a Storage, clock: Clock, progress: &'a Progress) -> StartFiles<'a> {
        let data_dir = &*storage.directory;
        let files = Files::new(data_dir, 0).with_free_limit(&storage.free_limit);
        let files = Blocking::with(Arc::new(files.with_open_max(storage.open_files_max)));
        StartFiles { files, data_dir, clock, progress }
    }

    /// Why a shard cannot start, in words, with the file and what to do.
    #[must_use]
    pub fn explain(&self, error: &StartError) -> String {
        match error {
            StartError::Refused(refused) => unusable(self.data_dir, refused, &self.files),
            StartError::Unfinished => {
                format!("the logs in {} are not read to their end", self.data_dir.display())
            }
        }
    }
}

impl StartDisk for StartFiles<'_> {
    fn run(&mut self, operation: Operation) -> Completion {
        let completion = self.files.run(operation);
        self.progress.count_operation(completion.bytes.len());
        completion
    }

    fn remove(&mut self, log: LogId) {
        // Where that fails it is there at the next start, as it is now.
        let _ = remove(self.data_dir, log);
    }

    fn now(&self) -> Now {
        self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::{HashState, ShardId};
    use lepus_broker::directory::Directory;
    use lepus_broker::settings::{Limits, Settings as BrokerSettings, StoreSettings};
    use lepus_broker::start::{own_log, start};
    use lepus_broker::{Broker, Outbox};
    use lepus_probe::Scratch;
    use lepus_shard::FreeLimit;

    fn numbers(data_dir: &Path) -> Vec<u32> {
        let mut found: Vec<u32> = find(data_dir).unwrap().iter().map(|log| log.0).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn logs_are_found_by_the_names_of_their_directories() {
        let root = Scratch::new("logs");
        assert_eq!(numbers(root.path()), [0; 0]);
        for name in ["log-00000000", "log-00000001", "log-00000003", "log-00000005", "logs"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        assert_eq!(numbers(root.path()), [0, 1, 3, 5]);
        assert_eq!(numbers(&root.path().join("none")), [0; 0]);
    }

    #[test]
    fn a_first_start_that_fails_leaves_no_logs_and_a_later_one_all() {
        let root = Scratch::new("new-logs");
        let start = |logs: &[&str], succeeds: bool| {
            let new = NewLogs::from_now(root.path()).unwrap();
            for name in logs.iter().chain(&["other"]) {
                std::fs::create_dir_all(root.path().join(name)).unwrap();
            }
            if succeeds {
                new.keep();
            }
            names(root.path()).unwrap().len()
        };
        // When `start` returns, what it made is removed or not.
        start(&["log-00000000", "log-00000001"], false);
        assert_eq!(start(&[], false), 0);
        assert_eq!(start(&["log-00000000"], true), 1);
        start(&["log-00000001"], false);
        assert_eq!(start(&[], false), 2);
        assert!(root.path().join("other").exists());
    }

    /// Segments that are there once a shard with one log has started, of the disk so many bytes staying free.
    fn segments_of_start(data_dir: &Path, free_bytes_min: u64) -> usize {
        let log = own_log(ShardId(0));
        let template = Settings { segment_bytes: SEGMENT_BYTES_MIN as u32, ..Settings::new(log) };
        let settings = BrokerSettings {
            shard: ShardId(0),
            shards: 1,
            nodes: Vec::new(),
            hash: HashState::new(1),
            node: "rabbit@localhost".into(),
            secret: [1; 32],
            server: Default::default(),
            limits: Limits::default(),
            store: Some(StoreSettings { template, logs: vec![log], deleted: [].into() }),
        };
        let directory = Directory::new(settings.hash, 1);
        let (progress, mut out) = (Progress::new(1), Outbox::new(1));
        let free_limit = FreeLimit::new(free_bytes_min);
        let disk =
            &Storage { directory: data_dir.to_owned(), free_limit, open_files_max: usize::MAX };
        let clock = Clock::start();
        let mut files = StartFiles::new(disk, clock, &progress);
        let mut broker = Broker::new(settings);
        start(&mut broker, directory, None, clock.now(), Some(&mut files), &mut out).unwrap();
        let files = std::fs::read_dir(data_dir.join(log.to_string())).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let files = names.filter_map(|name| format!("{log}/{name}").parse().ok());
        files.filter(|file| matches!(file, File::Segment(..))).count()
    }

    #[test]
    fn a_start_takes_nothing_of_the_disk_that_is_to_stay_free() {
        let root = Scratch::new("short");
        assert_eq!(segments_of_start(root.path(), u64::MAX), 0);
        let some = segments_of_start(root.path(), 0);
        assert!(some > 0);
        assert_eq!(segments_of_start(root.path(), u64::MAX), some);
    }

    #[test]
    fn what_was_found_is_said_in_words() {
        let mut found = Found { queues: 1, messages: 0, unclean: 0 };
        let took = Duration::from_millis(12);
        let text = "1 queue with 0 messages found in 0.012 s; the last run ended in order";
        assert_eq!(super::text(found, took), text);
        found.add(Found { queues: 2, messages: 1, unclean: 1 });
        let text = "3 queues with 1 message found in 0.012 s; the last run did not end in order, so they are marked as redelivered";
        assert_eq!(super::text(found, took), text);
    }

    #[test]
    fn a_small_memory_leaves_little_for_the_cache() {
        let config = Config { store_sync: "never".to_owned(), ..Config::preset() };
        let settings = template(&config, 1, 32 << 20);
        assert_eq!((settings.sync, settings.cache_bytes), (SyncMode::Never, 4 << 20));
        assert_eq!(template(&Config::preset(), 1, 1 << 30).cache_bytes, 16 << 20);
    }

    #[test]
    fn the_room_for_messages_is_shared_by_the_logs() {
        let limits = |bytes, shards, logs| {
            let config = Config { store_bytes_max: bytes, ..Config::preset() };
            let template = template(&config, shards, 1 << 30);
            (template.bytes_max, segment_bytes(&config, shards, logs))
        };
        assert_eq!(limits(0, 4, 9), (u64::MAX, 16 << 20));
        assert_eq!(limits(1 << 30, 4, 1), (256 << 20, 16 << 20));
        assert_eq!(limits(1 << 30, 4, 4), (256 << 20, 8 << 20));
        assert_eq!(limits(1 << 28, 4, 100), (64 << 20, 1 << 20));
        let config = Config { store_bytes_max: 31 << 20, ..Config::preset() };
        assert!(check_bytes_max(&config, 3).is_ok());
        let text = check_bytes_max(&config, 4).unwrap_err();
        assert!(text.contains("store.bytes_max of 31 MiB") && text.contains("32 MiB"), "{text}");
    }

    #[test]
    fn a_log_is_removed_as_a_whole_also_when_that_is_cut_off() {
        let root = Scratch::new("removed");
        for name in ["log-00000001", "log-00000007", "log-00000009.removed", "log-x.removed"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            std::fs::write(root.path().join(name).join("root"), "root").unwrap();
        }
        remove(root.path(), LogId(7)).unwrap();
        assert_eq!(numbers(root.path()), [1]);
        let left = std::fs::read_dir(root.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["log-00000001", "log-x.removed"]);
    }
}
