//! What was done, by whom and with what result: a line in the log, one in the audit file if there is one, and the last
//! ones in memory. Bodies, passwords and their hashes are in none of them.

use crate::log::{Level, Log, timestamp};
use crate::secrets::without_userinfo;
use lepus_management::api::Audited;
use serde_json::json;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Entries that are kept in memory.
const RECENT_MAX: usize = 1_000;
/// Files beside the current one that are kept.
const OLDER_MAX: u32 = 4;
/// Characters of each part of an entry.
const PART_CHARS_MAX: usize = 512;

/// Where what was done is taken down; clones lead to the same place.
#[derive(Clone, Debug)]
pub struct Audit {
    log: Log,
    trail: Arc<Mutex<Trail>>,
}

#[derive(Debug)]
struct Trail {
    /// Oldest first.
    recent: VecDeque<Audited>,
    file: Option<AuditFile>,
}

/// What was done, to be taken down now.
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

impl Audit {
    /// One that writes to the log alone.
    #[must_use]
    pub fn in_log(log: &Log) -> Audit {
        Audit::with(log, None)
    }

    /// One that writes to the file at `path` as well, and begins another one where it would become longer than so many
    /// bytes.
    ///
    /// # Errors
    /// In words, when the file cannot be written.
    pub fn in_file(log: &Log, path: &Path, bytes_max: u64) -> Result<Audit, String> {
        let file = AuditFile::open(path, bytes_max)
            .map_err(|error| format!("cannot write the audit file {}: {error}", path.display()))?;
        Ok(Audit::with(log, Some(file)))
    }

    fn with(log: &Log, file: Option<AuditFile>) -> Audit {
        let trail = Trail { recent: VecDeque::new(), file };
        Audit { log: log.clone(), trail: Arc::new(Mutex::new(trail)) }
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
            self.take_down(deed);
        }
    }

    fn take_down(&self, deed: Deed) {
        let now = SystemTime::now();
        let age = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let part = |text: &str| match text.char_indices().nth(PART_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        let entry = Audited {
            at_millis: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            user: part(&deed.user),
            from: part(&deed.from),
            face: deed.face,
            what: part(&without_userinfo(&deed.what)),
            result: part(&without_userinfo(&deed.result)),
        };
        let mut trail = self.trail.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut trail.file
            && let Err(error) = file.write(&entry)
        {
            let text =
                format!("an entry is not in the audit file {}: {error}", file.path.display());
            self.log.error("audit", text);
        }
        if trail.recent.len() == RECENT_MAX {
            trail.recent.pop_front();
        }
        trail.recent.push_back(entry);
    }

    /// The last entries, newest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Audited> {
        let trail = self.trail.lock().unwrap_or_else(PoisonError::into_inner);
        trail.recent.iter().rev().cloned().collect()
    }
}

/// The current file of entries, one JSON object a line.
#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// The last line was not written to its end.
    is_torn: bool,
}

impl AuditFile {
    fn open(path: &Path, bytes_max: u64) -> io::Result<AuditFile> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let mut is_torn = false;
        if bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            is_torn = last != *b"\n";
        }
        Ok(AuditFile { path: path.to_owned(), file, bytes, bytes_max, is_torn })
    }

    fn write(&mut self, entry: &Audited) -> io::Result<()> {
        let at = UNIX_EPOCH + Duration::from_millis(entry.at_millis);
        let line = json!({
            "time": timestamp(at),
            "user": entry.user,
            "from": entry.from,
            "face": entry.face,
            "what": entry.what,
            "result": entry.result,
        });
        let end = if self.is_torn { "\n" } else { "" };
        let line = format!("{end}{line}\n");
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            self.begin_another()?;
        }
        // Whatever was written of it counts, too.
        self.is_torn = true;
        self.bytes += line.len() as u64;
        self.file.write_all(line.as_bytes())?;
        self.is_torn = false;
        Ok(())
    }

    /// The file becomes the first of the older ones, the oldest goes.
    fn begin_another(&mut self) -> io::Result<()> {
        for number in (1..OLDER_MAX).rev() {
            match std::fs::rename(self.older(number), self.older(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, self.older(1))?;
        *self = AuditFile::open(&self.path, self.bytes_max)?;
        Ok(())
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Format;
    use lepus_probe::Scratch;
    use serde_json::Value;

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

    fn whats(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["what"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn entries_are_lines_that_survive_a_start_and_older_files_go() {
        let root = Scratch::new("audit");
        let path = root.path().join("audit.jsonl");
        let bytes_max = 400;
        for round in 0..3 {
            let audit = Audit::in_file(&log(), &path, bytes_max).unwrap();
            for number in 0..9 {
                audit.take_down(deed(&format!("PUT /api/x/{round}{number}")));
            }
        }
        let name = |number| root.path().join(format!("audit.jsonl.{number}"));
        let files: Vec<Vec<String>> = [path.clone(), name(1), name(2), name(3), name(4)]
            .iter()
            .map(|path| {
                assert!(std::fs::metadata(path).unwrap().len() <= bytes_max);
                whats(path)
            })
            .collect();
        let kept: Vec<String> = files.into_iter().rev().flatten().collect();
        assert_eq!(kept.last().unwrap(), "PUT /api/x/28");
        assert!(kept.is_sorted() && kept.len() >= 9, "{kept:?}");
        assert!(!name(5).exists());
    }

    #[test]
    fn a_line_that_was_cut_is_ended_before_the_next() {
        let root = Scratch::new("audit-torn");
        let path = root.path().join("audit.jsonl");
        std::fs::write(&path, "{\"what\":").unwrap();
        Audit::in_file(&log(), &path, 1 << 20).unwrap().take_down(deed("DELETE /api/x"));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "{\"what\":"));
        let line: Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(line["what"], "DELETE /api/x");
        let time = line["time"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
        let error = Audit::in_file(&log(), root.path(), 1).unwrap_err();
        assert!(error.starts_with("cannot write the audit file"), "{error}");
    }

    #[test]
    fn memory_has_the_last_ones_and_no_part_is_endless() {
        let audit = Audit::in_log(&log());
        for number in 0..RECENT_MAX + 5 {
            audit.take_down(deed(&format!("{number} {}", "x".repeat(5_000))));
        }
        let recent = audit.recent();
        assert_eq!(recent.len(), RECENT_MAX);
        assert!(recent[0].what.starts_with(&format!("{} ", RECENT_MAX + 4)));
        assert_eq!(recent[0].what.chars().count(), PART_CHARS_MAX + 1);
    }
}
