//! The logs that shards keep in the data directory: their numbers, what they take of the disk, and why
//! one cannot be used.

use lepus_broker::journal::RefusedLog;
use lepus_reactor::files::Blocking;
use lepus_store::Refusal;
use lepus_store::disk::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes on disk that all logs in the data directory take; those that cannot be looked at count for
/// nothing.
#[must_use]
pub(crate) fn disk_bytes(data_dir: &Path) -> u64 {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_log = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}/root").parse::<File>().is_ok()
    };
    let logs = entries(data_dir).map(|entry| entry.path()).filter(|path| is_log(path));
    let files = logs.flat_map(|log| entries(&log).filter_map(|file| file.metadata().ok()));
    // The system counts in blocks of 512 bytes, whatever the disk has.
    files.map(|file| file.blocks().saturating_mul(512)).sum()
}

/// Why a log cannot be used, and what to do.
#[must_use]
pub(crate) fn unusable(data_dir: &Path, refused: &RefusedLog, files: &Blocking) -> String {
    let path = |file: File| data_dir.join(file.to_string()).display().to_string();
    match refused.refusal {
        Refusal::Disk(file, error) => {
            let said = match files.failures().last() {
                Some(failure) => failure.to_string(),
                None => format!("cannot use {}: {error:?}", path(file)),
            };
            format!("{said}; nothing was changed: see to the disk, its rights and its room")
        }
        Refusal::Version(file, version) => format!(
            "{} is of format version {version}, which this lepus cannot read; nothing was changed: \
             start the version of lepus that wrote it, or another data directory with --data-dir",
            path(file)
        ),
        Refusal::Foreign(file) => format!(
            "{} belongs to another log; nothing was changed: put the file back where it was, or \
             restore {} from a backup",
            path(file),
            data_dir.join(refused.log.to_string()).display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;
    use lepus_store::disk::LogId;

    #[test]
    fn a_log_that_is_no_use_names_file_and_remedy() {
        let root = Scratch::new("unusable");
        let files = Blocking::new(root.path());
        let log = LogId(2);
        for (refusal, words) in [
            (Refusal::Version(File::Root(log), 7), ["format version 7", "--data-dir"]),
            (Refusal::Foreign(File::Index(log)), ["log-00000002/index", "backup"]),
            (
                Refusal::Disk(File::Root(log), lepus_store::disk::DiskError::Failed),
                ["log-00000002/root", "see to the disk"],
            ),
        ] {
            let text = unusable(root.path(), &RefusedLog { log, refusal }, &files);
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            assert!(text.contains(&root.path().display().to_string()), "{text}");
        }
    }
}
