//! The directory in which a run keeps what it needs only while it runs: the brokers' data, the testers' output.

use crate::call::named;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use std::{fs, io};

/// A directory of one run's own, removed with the value. Logs stay in it until all went well.
#[derive(Debug)]
pub struct Ground {
    path: PathBuf,
    is_done: AtomicBool,
}

impl Ground {
    /// A directory below `parent` that no other run has.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn below(parent: &Path) -> io::Result<Ground> {
        let now = crate::report::file_time(SystemTime::now());
        let path = parent.join(format!("scratch-{now}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| named(&path, &error))?;
        Ok(Ground { path, is_done: AtomicBool::new(false) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a log says something, so that the directory stays when the value goes.
    pub fn has_logs(&self) -> bool {
        has_logs(&self.path).unwrap_or(true)
    }

    /// Says that nothing in it is of interest to anybody.
    pub fn done(&self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Nobody can be told any more what could not be removed.
        let _ = match self.is_done.load(Ordering::Relaxed) {
            true => fs::remove_dir_all(&self.path),
            false => clear(&self.path).map(drop),
        };
    }
}

fn is_log(entry: &fs::DirEntry) -> io::Result<bool> {
    let is_named = entry.path().extension().is_some_and(|extension| extension == "log");
    Ok(is_named && entry.metadata()?.len() > 0)
}

fn has_logs(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = match entry.file_type()?.is_dir() {
            true => has_logs(&entry.path())?,
            false => is_log(&entry)?,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes everything but logs that say something; whether nothing is left.
fn clear(directory: &Path) -> io::Result<bool> {
    let mut is_empty = true;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            is_empty &= clear(&path)?;
        } else if is_log(&entry)? {
            is_empty = false;
        } else {
            fs::remove_file(&path)?;
        }
    }
    if is_empty {
        fs::remove_dir(directory)?;
    }
    Ok(is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    fn filled(parent: &Path) -> (Ground, PathBuf) {
        let ground = Ground::below(parent).unwrap();
        let broker = ground.path().join("lepus");
        fs::create_dir_all(broker.join("data")).unwrap();
        fs::write(broker.join("data/segment"), "x").unwrap();
        fs::write(broker.join("output.log"), "why").unwrap();
        fs::write(ground.path().join("tester.log"), "").unwrap();
        (ground, broker)
    }

    #[test]
    fn nothing_stays_of_a_run_that_went_well() {
        let scratch = Scratch::new("ground");
        let (ground, _) = filled(scratch.path());
        fs::write(ground.path().join("lepus/output.log"), "").unwrap();
        assert!(!ground.has_logs());
        ground.done();
        drop(ground);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn logs_stay_of_one_that_failed_and_no_data() {
        let scratch = Scratch::new("ground-failed");
        let (ground, broker) = filled(scratch.path());
        let tester = ground.path().join("tester.log");
        assert!(ground.has_logs());
        drop(ground);
        assert!(broker.join("output.log").exists());
        assert!(!broker.join("data").exists() && !tester.exists());
    }
}
