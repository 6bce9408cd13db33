//! What was done, by whom and with what result: a line in the log, one in the audit file if there is one, and the last
//! ones in memory. Bodies, passwords and their hashes are in none of them.
//!
//! Nobody waits for it: a thread writes the file, and what finds no room there is counted. Requests to the management API
//! that repeat or fail very often are counted instead of taken down one by one, see [`limits`].

mod file;
mod limits;
mod writer;

pub use limits::Source;

use crate::log::{Level, Log};
use crate::secrets::without_userinfo;
use file::AuditFile;
use lepus_management::api::Audited;
use limits::{Act, Limits, WINDOW};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use writer::Writer;

/// Entries that are kept in memory.
const RECENT_MAX: usize = 1_000;
/// Characters of each part of an entry.
const PART_CHARS_MAX: usize = 512;

/// Where what was done is taken down; clones lead to the same place.
#[derive(Clone, Debug)]
pub struct Audit {
    log: Log,
    trail: Arc<Mutex<Trail>>,
    left_out: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Trail {
    log: Log,
    /// Oldest first.
    recent: VecDeque<Audited>,
    writer: Option<Writer>,
    limits: Limits,
    /// Whether a thread waits for the end of the window.
    is_awaited: bool,
}

/// What was done, to be taken down now.
#[derive(Clone, Debug)]
pub struct Deed {
    /// Who did it; empty where that is not known.
    pub user: String,
    /// From where.
    pub from: String,
    /// By what.
    pub face: &'static str,
    /// What.
    pub what: String,
    /// What came of it.
    pub result: String,
}

/// An entry that says nothing yet, of this moment.
fn entry_of_now() -> Audited {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Audited {
        at_millis: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        user: String::new(),
        from: String::new(),
        face: "audit",
        what: String::new(),
        result: String::new(),
        count: 1,
    }
}

impl Audit {
    /// One that writes to the log alone.
    #[must_use]
    pub fn in_log(log: &Log) -> Audit {
        Audit::with(log, None, Arc::default())
    }

    /// One that writes to the file at `path` as well, and begins another one where it would become longer than so many
    /// bytes. The file is written by a thread, which ends with the last clone.
    ///
    /// # Errors
    /// In words, when the file cannot be written, or the system has no thread.
    pub fn in_file(log: &Log, path: &Path, bytes_max: u64) -> Result<Audit, String> {
        let failed = |error| format!("cannot write the audit file {}: {error}", path.display());
        let mut file = AuditFile::open(path, bytes_max).map_err(failed)?;
        let own = log.clone();
        let write = move |entry: &Audited| file.write(entry, |why| own.error("audit", why));
        let left_out = Arc::default();
        let writer = Writer::start(log, &left_out, write).map_err(failed)?;
        Ok(Audit::with(log, Some(writer), left_out))
    }

    fn with(log: &Log, writer: Option<Writer>, left_out: Arc<AtomicU64>) -> Audit {
        let (recent, limits) = (VecDeque::new(), Limits::default());
        let trail = Trail { log: log.clone(), recent, writer, limits, is_awaited: false };
        Audit { log: log.clone(), trail: Arc::new(Mutex::new(trail)), left_out }
    }

    /// How many requests and orders are not in the file, though there is one: too many waited for it, or it could not be
    /// written.
    #[must_use]
    pub fn left_out(&self) -> &Arc<AtomicU64> {
        &self.left_out
    }

    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line to the log and, with a `deed`, takes that down.
    pub fn note(
        &self,
        (level, kind): (Level, &'static str),
        text: String,
        fields: Vec<(&'static str, String)>,
        deed: Option<Deed>,
    ) {
        self.log.write(level, kind, without_userinfo(&text), fields);
        if let Some(deed) = deed {
            self.trail().take_down(&deed, 1);
        }
    }

    /// Takes down a request to the management API, in the log as well, or counts it: then the count follows within a second
    /// or so. It waits for nobody.
    pub fn note_request(&self, source: Source, deed: Deed, is_failure: bool) {
        let mut trail = self.trail();
        let acts = trail.limits.admit(source, deed, is_failure, Instant::now());
        trail.take_down_all(&acts);
        if trail.limits.has_counts() && !trail.is_awaited {
            let own = Arc::downgrade(&self.trail);
            let thread = std::thread::Builder::new().name("audit-counts".to_owned());
            // Without a thread the next request has the counts told.
            trail.is_awaited = thread.spawn(move || tell_counts(&own)).is_ok();
        }
    }

    /// Takes down what was counted, and waits until the file has all, but not longer than `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let mut trail = self.trail();
        let counts = trail.limits.close();
        trail.take_down_all(&counts);
        let flush = trail.writer.as_ref().map(Writer::flush);
        drop(trail);
        if let Some(flush) = flush {
            flush.wait(timeout);
        }
    }

    /// The last entries, newest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Audited> {
        self.trail().recent.iter().rev().cloned().collect()
    }
}

/// Tells counts as windows end, until one has none.
fn tell_counts(trail: &Weak<Mutex<Trail>>) {
    let mut wait = WINDOW;
    loop {
        std::thread::sleep(wait);
        let Some(trail) = trail.upgrade() else { return };
        let mut trail = trail.lock().unwrap_or_else(PoisonError::into_inner);
        match trail.limits.time_left(Instant::now()) {
            Some(left) if trail.limits.has_counts() => {
                wait = left;
                if left.is_zero() {
                    let counts = trail.limits.close();
                    trail.take_down_all(&counts);
                    wait = WINDOW;
                }
            }
            _ => {
                trail.is_awaited = false;
                return;
            }
        }
    }
}

impl Trail {
    fn take_down_all(&mut self, acts: &[Act]) {
        for Act { deed, is_failure, count } in acts {
            let level = if *is_failure { Level::Warning } else { Level::Info };
            let mut text = format!("{}: {}", without_userinfo(&deed.what), deed.result);
            let mut fields = vec![("user", deed.user.clone()), ("from", deed.from.clone())];
            if *count > 1 {
                text.push_str(&format!(", {count} times"));
                fields.push(("count", count.to_string()));
            }
            self.log.write(level, "management", text, fields);
            self.take_down(deed, *count);
        }
    }

    fn take_down(&mut self, deed: &Deed, count: u64) {
        let part = |text: &str| match text.char_indices().nth(PART_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        let entry = Audited {
            user: part(&deed.user),
            from: part(&deed.from),
            face: deed.face,
            what: part(&without_userinfo(&deed.what)),
            result: part(&without_userinfo(&deed.result)),
            count,
            ..entry_of_now()
        };
        if let Some(writer) = &self.writer {
            writer.write(entry.clone());
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Format;
    use lepus_probe::Scratch;
    use std::io;

    /// How long a test waits at most.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn log() -> Log {
        Log::start(Level::Error, Format::Text, io::sink()).unwrap()
    }

    fn deed(what: &str) -> Deed {
        Deed {
            user: "u".to_owned(),
            from: "127.0.0.1:1".to_owned(),
            face: "http",
            what: what.to_owned(),
            result: "204".to_owned(),
        }
    }

    fn note(audit: &Audit, what: &str) {
        audit.note((Level::Info, "order"), String::new(), Vec::new(), Some(deed(what)));
    }

    #[test]
    fn the_file_has_what_was_taken_down_in_its_order() {
        let root = Scratch::new("audit-order");
        let path = root.path().join("audit.jsonl");
        let audit = Audit::in_file(&log(), &path, 1 << 20).unwrap();
        note(&audit, "first");
        for _ in 0..3 {
            audit.note_request(Source::User("u".to_owned()), deed("PUT x"), false);
        }
        note(&audit, "last");
        audit.flush(PATIENCE);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<(String, u64)> = lines
            .map(|line: serde_json::Value| {
                (line["what"].as_str().unwrap().to_owned(), line["count"].as_u64().unwrap())
            })
            .collect();
        // Where the window did not end in between.
        let sum = |what: &str| {
            lines.iter().filter(|(one, _)| one == what).map(|(_, count)| count).sum::<u64>()
        };
        assert_eq!((lines[0].0.as_str(), sum("PUT x"), sum("last")), ("first", 3, 1));
        let recent: Vec<(String, u64)> =
            audit.recent().into_iter().rev().map(|entry| (entry.what, entry.count)).collect();
        assert_eq!(recent, lines);
        let error = Audit::in_file(&log(), root.path(), 1).unwrap_err();
        assert!(error.starts_with("cannot write the audit file"), "{error}");
    }

    #[test]
    fn counts_are_told_though_nothing_follows() {
        let audit = Audit::in_log(&log());
        for _ in 0..100 {
            audit.note_request(Source::User("u".to_owned()), deed("DELETE x"), true);
        }
        let begun = Instant::now();
        let sum = || audit.recent().iter().map(|entry| entry.count).sum::<u64>();
        while sum() < 100 {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        assert_eq!(sum(), 100);
        assert!(audit.recent().len() < 100);
    }

    #[test]
    fn memory_has_the_last_ones_and_no_part_is_endless() {
        let audit = Audit::in_log(&log());
        for number in 0..RECENT_MAX + 5 {
            note(&audit, &format!("{number} {}", "x".repeat(5_000)));
        }
        let recent = audit.recent();
        assert_eq!(recent.len(), RECENT_MAX);
        assert!(recent[0].what.starts_with(&format!("{} ", RECENT_MAX + 4)));
        assert_eq!(recent[0].what.chars().count(), PART_CHARS_MAX + 1);
    }
}
