//! Room on the disk: blocks allocated ahead of need, and a rest that is left to others.

use std::fs;
use std::io;
use std::path::Path;

use lepus_store::disk::Fill;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Zeros written at once where the system cannot allocate blocks.
const ZEROS_BYTES: usize = 256 * 1024;

/// Makes a file `length` bytes long and allocates them, so that writing them cannot run out of space.
///
/// # Errors
/// When there is no room, or the disk fails.
pub(super) fn allocate(file: &fs::File, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
            Ok(()) => return file.set_len(length),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    write_zeros(file, length)?;
    file.set_len(length)
}

/// Writes `length` zeros.
fn write_zeros(file: &fs::File, length: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let zeros = vec![0; ZEROS_BYTES];
    let mut offset = 0;
    while offset < length {
        let count = (length - offset).min(ZEROS_BYTES as u64);
        file.write_all_at(&zeros[..count as usize], offset)?;
        offset += count;
    }
    Ok(())
}

/// Whether the disk of `directory` has room for `wanted` bytes and keeps `rest` free then. A system
/// that does not tell has room.
pub(super) fn has_room(directory: &Path, wanted: u64, rest: u64) -> bool {
    match rustix::fs::statvfs(directory) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize.max(1));
            free.saturating_sub(wanted) >= rest
        }
        Err(_) => true,
    }
}

/// How much is in use of the disk of `directory`, but for `rest` bytes that stay free.
pub(super) fn fill(directory: &Path, rest: u64) -> Option<Fill> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize.max(1));
    Some(judge(bytes(disk.f_blocks), bytes(disk.f_bfree), bytes(disk.f_bavail), rest))
}

/// How full a disk of `all` bytes is, of which `free` are free and `available` may be used.
fn judge(all: u64, free: u64, available: u64, rest: u64) -> Fill {
    // What is free and may not be used is no part of the disk: it is root's, or above a quota.
    let usable = all.saturating_sub(free).saturating_add(available);
    let is_ample = available.saturating_sub(rest) > usable.saturating_sub(rest) / 4;
    if is_ample { Fill::Ample } else { Fill::Nearly }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_written_where_blocks_cannot_be_allocated() {
        let path = std::env::temp_dir().join(format!("lepus-zeros-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let length = ZEROS_BYTES as u64 * 2 + 17;
        write_zeros(&file, length).unwrap();
        assert_eq!(file.metadata().unwrap().len(), length);
        assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_rest_is_left_to_others() {
        let here = std::env::temp_dir();
        assert!(has_room(&here, 1, 0));
        assert!(!has_room(&here, 1, u64::MAX));
        assert!(has_room(Path::new("/does/not/exist"), u64::MAX, u64::MAX));
    }

    #[test]
    fn what_may_not_be_used_does_not_make_a_disk_full() {
        // All of it may be used: three quarters of it count.
        assert_eq!(judge(100, 26, 26, 0), Fill::Ample);
        assert_eq!(judge(100, 25, 25, 0), Fill::Nearly);
        // A quota leaves 20 of the 85 that are free: 15 are used of 35.
        assert_eq!(judge(100, 85, 20, 0), Fill::Ample);
        assert_eq!(judge(100, 45, 20, 0), Fill::Ample);
        assert_eq!(judge(100, 30, 20, 0), Fill::Nearly);
        // What stays free is no part of it either.
        assert_eq!(judge(100, 45, 20, 10), Fill::Nearly);
        assert_eq!(judge(100, 0, 0, u64::MAX), Fill::Nearly);
    }
}
