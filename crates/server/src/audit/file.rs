//! The file of entries, one JSON object a line, and the older ones beside it.

use crate::log::timestamp;
use lepus_management::api::Audited;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Files beside the current one that are kept.
const OLDER_MAX: u32 = 4;

/// The current file of entries.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    bytes_max: u64,
    /// The last line was not written to its end.
    is_torn: bool,
    /// Why no other file could be begun, once that was told.
    stuck: Option<String>,
}

impl AuditFile {
    /// Goes on with the file at `path`, or begins it.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn open(path: &Path, bytes_max: u64) -> io::Result<AuditFile> {
        let (file, is_torn) = open(path)?;
        Ok(AuditFile { path: path.to_owned(), file, bytes_max, is_torn, stuck: None })
    }

    /// Writes an entry, to another file where this one would become too long. Where no other can be begun it goes on with
    /// this one; `tell` is told why, once.
    ///
    /// # Errors
    /// Those of the system; the entry is not there then, or not to its end.
    pub(super) fn write(&mut self, entry: &Audited, tell: impl FnOnce(String)) -> io::Result<()> {
        let at = UNIX_EPOCH + Duration::from_millis(entry.at_millis);
        let line = format!("{}\n", entry.to_json("time", json!(timestamp(at))));
        let why = self.follow_path().and_then(|()| {
            let bytes = self.file.metadata()?.len();
            match bytes > 0 && bytes.saturating_add(line.len() as u64) > self.bytes_max {
                true => self.begin_another(),
                false => Ok(()),
            }
        });
        let why = why.err().map(|error| error.to_string());
        if why.is_some() && why != self.stuck {
            tell(format!(
                "no other audit file can be begun: {}",
                why.as_deref().unwrap_or_default()
            ));
        }
        self.stuck = why;
        let before = self.file.metadata()?.len();
        let end = if self.is_torn { "\n" } else { "" };
        let written = self.file.write_all(format!("{end}{line}").as_bytes());
        match &written {
            Ok(()) => self.is_torn = false,
            Err(_) => self.is_torn |= self.file.metadata().is_ok_and(|found| found.len() != before),
        }
        written
    }

    /// Begins the file where somebody has taken it away.
    fn follow_path(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (own.dev(), own.ino()) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        (self.file, self.is_torn) = open(&self.path)?;
        Ok(())
    }

    /// The file becomes the first of the older ones, the oldest goes; nothing of that before the next one is there.
    fn begin_another(&mut self) -> io::Result<()> {
        let next = self.beside(".new");
        let (file, is_torn) = open(&next)?;
        if let Err(error) = self.shift(&next) {
            // Empty, and in nobody's way if it stays.
            let _ = std::fs::remove_file(&next);
            return Err(error);
        }
        (self.file, self.is_torn) = (file, is_torn);
        Ok(())
    }

    fn shift(&self, next: &Path) -> io::Result<()> {
        // A gap is filled first: what failed half-way destroys nothing when it is tried again.
        let is_there = |number: &u32| self.older(*number).symlink_metadata().is_ok();
        let taken = (1..OLDER_MAX).take_while(is_there).count() as u32;
        for number in (1..=taken).rev() {
            std::fs::rename(self.older(number), self.older(number + 1))?;
        }
        std::fs::rename(&self.path, self.older(1))?;
        std::fs::rename(next, &self.path)
    }

    fn older(&self, number: u32) -> PathBuf {
        self.beside(&format!(".{number}"))
    }

    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(end);
        PathBuf::from(name)
    }
}

/// Opens a file to go on with, and says whether its last line has no end.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut last = *b"\n";
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok((file, last != *b"\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use serde_json::Value;

    const BYTES_MAX: u64 = 400;

    fn entry(what: &str) -> Audited {
        Audited {
            at_millis: 1_700_000_000_000,
            user: "u".to_owned(),
            from: "127.0.0.1:1".to_owned(),
            face: "http",
            what: what.to_owned(),
            result: "204".to_owned(),
            count: 1,
        }
    }

    fn write(file: &mut AuditFile, what: &str) -> Vec<String> {
        let mut told = Vec::new();
        file.write(&entry(what), |why| told.push(why)).unwrap();
        told
    }

    fn whats(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["what"].as_str().unwrap().to_owned()).collect()
    }

    /// All that is kept in files, oldest first, with the longest of them.
    fn kept(path: &Path) -> (Vec<String>, u64) {
        let name = |number| format!("{}.{number}", path.display());
        let files = (1..=9).rev().map(name).chain([path.display().to_string()]);
        let files: Vec<PathBuf> = files.map(PathBuf::from).filter(|path| path.is_file()).collect();
        let longest = files.iter().map(|path| path.metadata().unwrap().len()).max();
        (files.iter().flat_map(|path| whats(path)).collect(), longest.unwrap())
    }

    #[test]
    fn entries_survive_a_start_and_older_files_go() {
        let root = Scratch::new("audit");
        let path = root.path().join("audit.jsonl");
        for round in 0..3 {
            let mut file = AuditFile::open(&path, BYTES_MAX).unwrap();
            for number in 0..9 {
                assert_eq!(write(&mut file, &format!("PUT {round}{number}")), [""; 0]);
            }
        }
        let (kept, longest) = kept(&path);
        assert_eq!(kept.last().unwrap(), "PUT 28");
        assert!(kept.is_sorted() && kept.len() >= 9 && longest <= BYTES_MAX, "{kept:?}");
        assert!(!root.path().join("audit.jsonl.5").exists());
        assert!(!root.path().join("audit.jsonl.new").exists());
    }

    #[test]
    fn a_line_that_was_cut_is_ended_before_the_next() {
        let root = Scratch::new("audit-torn");
        let path = root.path().join("audit.jsonl");
        std::fs::write(&path, "{\"what\":").unwrap();
        write(&mut AuditFile::open(&path, 1 << 20).unwrap(), "DELETE x");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "{\"what\":"));
        let line: Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!((&line["what"], &line["count"]), (&json!("DELETE x"), &json!(1)));
        assert_eq!(line["time"], "2023-11-14T22:13:20.000Z");
        assert!(AuditFile::open(root.path(), 1).is_err());
    }

    #[test]
    fn a_file_that_was_taken_away_is_begun_again_and_older_ones_stay() {
        let root = Scratch::new("audit-gone");
        let path = root.path().join("audit.jsonl");
        let mut file = AuditFile::open(&path, BYTES_MAX).unwrap();
        for number in 10..40 {
            write(&mut file, &format!("PUT {number}"));
        }
        let name = |number| PathBuf::from(format!("{}.{number}", path.display()));
        let older = || (1..=4).map(|number| whats(&name(number))).collect::<Vec<_>>();
        let before = older();
        assert!(before.iter().all(|file| !file.is_empty()));
        // However often it happens.
        for number in 40..50 {
            std::fs::remove_file(&path).unwrap();
            assert_eq!(write(&mut file, &format!("PUT {number}")), [""; 0]);
            assert_eq!(whats(&path), [format!("PUT {number}")]);
        }
        assert_eq!(older(), before);
    }

    #[test]
    fn where_no_other_file_can_be_begun_it_goes_on_and_destroys_nothing() {
        let root = Scratch::new("audit-stuck");
        let path = root.path().join("audit.jsonl");
        let mut file = AuditFile::open(&path, BYTES_MAX).unwrap();
        // The next one cannot be opened.
        let in_the_way = root.path().join("audit.jsonl.new");
        std::fs::create_dir(&in_the_way).unwrap();
        let told: Vec<String> =
            (10..30).flat_map(|number| write(&mut file, &format!("PUT {number}"))).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(kept(&path).0.len(), 20);
        std::fs::remove_dir(&in_the_way).unwrap();
        write(&mut file, "PUT 30");
        assert_eq!((whats(&path), kept(&path).0.len()), (vec!["PUT 30".to_owned()], 21));
        // An older one cannot be moved on.
        let in_the_way = root.path().join("audit.jsonl.3");
        std::fs::create_dir(root.path().join("audit.jsonl.4")).unwrap();
        std::fs::write(&in_the_way, "").unwrap();
        let told: Vec<String> =
            (31..60).flat_map(|number| write(&mut file, &format!("PUT {number}"))).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let (kept, _) = kept(&path);
        assert_eq!(kept.len(), 50);
        assert!(kept.is_sorted(), "{kept:?}");
    }
}
