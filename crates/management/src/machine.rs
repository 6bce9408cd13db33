//! What the operating system says about this process.

use std::net::SocketAddr;
use std::path::Path;

use crate::sockets::SocketBuffers;

/// Figures of the process, read when they are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnFigures {
    /// Bytes of memory that are really held (resident set).
    pub resident_bytes: u64,
    /// Bytes of the program's code.
    pub code_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// Most file descriptors that may be open.
    pub open_files_max: u64,
    /// Bytes free for this user on the disk of the data directory.
    pub disk_free_bytes: u64,
    /// What lies in the system's buffers of connections.
    pub sockets: SocketBuffers,
}

impl OwnFigures {
    /// Reads the figures, of sockets those of connections to these listeners; one that the system does not tell
    /// is 0.
    #[must_use]
    pub fn read(data_dir: &Path, listeners: &[SocketAddr]) -> OwnFigures {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        OwnFigures {
            resident_bytes: memory_bytes(1).unwrap_or(0),
            code_bytes: memory_bytes(3).unwrap_or(0),
            open_files: open_files(limit.current),
            open_files_max: limit.current.unwrap_or(0),
            disk_free_bytes: disk_free_bytes(data_dir).unwrap_or(0),
            sockets: SocketBuffers::read(listeners),
        }
    }
}

/// Bytes free for this user on the disk of a directory, if the system tells them. It costs a system call.
#[must_use]
pub fn disk_free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Open file descriptors. Where there is none left to count them with, as many as there may be.
fn open_files(limit: Option<u64>) -> u64 {
    match std::fs::read_dir("/proc/self/fd") {
        Ok(list) => list.count() as u64,
        Err(error) => open_files_without(error.raw_os_error(), limit),
    }
}

fn open_files_without(error: Option<i32>, limit: Option<u64>) -> u64 {
    match error {
        Some(code) if code == rustix::io::Errno::MFILE.raw_os_error() => limit.unwrap_or(0),
        _ => 0,
    }
}

/// A number of `/proc/self/statm`, in bytes: the second is what is resident, the fourth the code.
fn memory_bytes(place: usize) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(place)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Lets this thread yield to all others of the machine, where the system knows of such a thing.
pub fn lower_priority() {
    // On Linux the priority belongs to the thread; elsewhere to the whole process, which stays as
    // it is. Not being allowed to is no reason to stop.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 10);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_descriptor_to_count_with_all_are_in_use() {
        let none_left = rustix::io::Errno::MFILE.raw_os_error();
        assert_eq!(open_files_without(Some(none_left), Some(200)), 200);
        assert_eq!(open_files_without(None, Some(200)), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells() {
        let figures = OwnFigures::read(Path::new("/"), &[]);
        assert!(figures.resident_bytes > 100_000);
        assert!(figures.open_files >= 3);
        assert!(figures.open_files_max >= figures.open_files);
        assert!(figures.disk_free_bytes > 0);
    }
}
