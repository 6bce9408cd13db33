//! The directory in which a run keeps what it needs only while it runs: the brokers' data, the testers' output.

use crate::disk::named;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "bench")]
use std::time::SystemTime;

/// A directory of one run's own, removed with the value. Logs stay in it until all went well.
#[derive(Debug)]
pub struct Ground {
    path: PathBuf,
    is_done: AtomicBool,
}

impl Ground {
    /// The directory of that name, which nobody else has.
    ///
    /// # Errors
    /// When it cannot be made, or nothing can be written there.
    pub fn at(path: &Path) -> io::Result<Ground> {
        fs::create_dir_all(path).map_err(|error| named(path, &error))?;
        check_writable(path)?;
        Ok(Ground { path: path.to_owned(), is_done: AtomicBool::new(false) })
    }

    #[cfg(feature = "bench")]
    /// A directory below `parent` that no other run has.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn below(parent: &Path) -> io::Result<Ground> {
        let now = crate::report::file_time(SystemTime::now());
        Ground::at(&parent.join(format!("scratch-{now}-{}", std::process::id())))
    }

    #[cfg(feature = "bench")]
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(feature = "bench")]
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
        self.leave();
    }
}

impl Ground {
    /// Removes what nobody wants.
    fn leave(&self) {
        // Nobody can be told any more what could not be removed.
        let _ = match self.is_done.load(Ordering::Relaxed) {
            true => fs::remove_dir_all(&self.path),
            false => clear(&self.path).map(drop),
        };
    }
}

/// Where a report will be, and what is needed until then.
#[derive(Debug)]
pub struct Output {
    directory: PathBuf,
    /// The directory of this run.
    pub ground: Ground,
}

impl Output {
    /// Makes both directories.
    ///
    /// # Errors
    /// When they cannot be made, or nothing can be written there.
    pub fn prepare(directory: &Path, scratch: &Path) -> Result<Output, String> {
        let prepare = || {
            fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
            check_writable(directory)?;
            Ground::at(scratch)
        };
        let ground = prepare().map_err(|error| error.to_string())?;
        Ok(Output { directory: directory.to_owned(), ground })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.ground.leave();
        // One in which nothing was written is no report; any other stays.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Whether files can be made in a directory that is there: told before the time that it takes to have something for it.
///
/// # Errors
/// When they cannot, with its name.
pub fn check_writable(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".lepus-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
    made.and_then(|_| fs::remove_file(&path)).map_err(|error| named(directory, &error))
}

fn is_log(entry: &fs::DirEntry) -> io::Result<bool> {
    let is_named = entry.path().extension().is_some_and(|extension| extension == "log");
    Ok(is_named && entry.metadata()?.len() > 0)
}

#[cfg(feature = "bench")]
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
    #[cfg(target_os = "linux")]
    fn what_cannot_be_written_to_is_told_by_its_name() {
        let error = check_writable(Path::new("/proc")).unwrap_err().to_string();
        assert!(error.starts_with("/proc: "), "{error}");
        let scratch = Scratch::new("writable");
        check_writable(scratch.path()).unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        assert!(check_writable(&scratch.path().join("not there")).is_err());
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
    fn an_output_without_a_report_goes_and_one_with_logs_stays() {
        let scratch = Scratch::new("output");
        let directory = scratch.path().join("report");
        let prepare = || Output::prepare(&directory, &directory.join("data")).unwrap();
        let output = prepare();
        fs::write(directory.join("data/segment"), "x").unwrap();
        drop(output);
        assert!(!directory.exists());
        let output = prepare();
        fs::write(directory.join("data/output.log"), "why").unwrap();
        fs::write(directory.join("data/segment"), "x").unwrap();
        drop(output);
        assert!(directory.join("data/output.log").exists());
        assert!(!directory.join("data/segment").exists());
        assert!(Output::prepare(Path::new("/proc/x"), scratch.path()).is_err());
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
