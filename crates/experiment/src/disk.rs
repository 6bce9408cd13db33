//! What devices read and write, and the page cache above them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SECTOR_BYTES: u64 = 512;

/// The block device under a directory.
#[derive(Clone, Debug)]
pub struct Device {
    statistics: PathBuf,
}

impl Device {
    /// The device under `directory`.
    ///
    /// # Errors
    /// When there is none that counts.
    pub fn of(directory: &Path) -> io::Result<Device> {
        let number = fs::metadata(directory)?.dev();
        let major = (number >> 8) & 0xfff;
        let minor = (number & 0xff) | ((number >> 12) & 0xfff00);
        let statistics = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        fs::metadata(&statistics)?;
        Ok(Device { statistics })
    }

    /// Bytes written to it since the machine started, by whomever; everything dirty is written first.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn written(&self) -> io::Result<u64> {
        Command::new("sync").status()?;
        self.counted().map(|(_, written)| written)
    }

    /// Bytes read from it and written to it since the machine started, by whomever.
    ///
    /// # Errors
    /// When it does not tell.
    pub fn counted(&self) -> io::Result<(u64, u64)> {
        let text = fs::read_to_string(&self.statistics)?;
        let sectors = sectors(&text).ok_or(io::ErrorKind::InvalidData)?;
        Ok((sectors.0 * SECTOR_BYTES, sectors.1 * SECTOR_BYTES))
    }
}

/// The third and the seventh number: reads, merged, sectors, ticks, writes, merged, sectors …
fn sectors(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    Some((numbers.nth(2)??, numbers.nth(3)??))
}

/// Takes the files below `directory` out of the page cache, and says by which means.
///
/// # Errors
/// When neither way works.
pub fn drop_page_cache(directory: &Path) -> io::Result<&'static str> {
    Command::new("sync").status()?;
    if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok("writing 3 to /proc/sys/vm/drop_caches");
    }
    each_file(directory, &mut |path, _| {
        let input = format!("if={}", path.display());
        let mut command = Command::new("dd");
        command.args([&input, "iflag=nocache", "count=0"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().map(drop)
    })?;
    Ok("posix_fadvise on every file")
}

/// Bytes that the files below `directory` take up.
pub fn used(directory: &Path) -> u64 {
    let mut bytes = 0;
    // Files may go while the directory is read; what is left is counted.
    let _ = each_file(directory, &mut |_, blocks| {
        bytes += blocks * SECTOR_BYTES;
        Ok(())
    });
    bytes
}

fn each_file(
    directory: &Path,
    look: &mut dyn FnMut(&Path, u64) -> io::Result<()>,
) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            each_file(&entry.path(), look)?;
        } else if metadata.is_file() {
            look(&entry.path(), metadata.blocks())?;
        }
    }
    Ok(())
}

/// An error with the path that it is of.
#[must_use]
pub fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_devices_are_read() {
        assert_eq!(sectors("  1 2 30 4 5 6 700 8 9"), Some((30, 700)));
        assert_eq!(sectors("1 2 3"), None);
    }
}
