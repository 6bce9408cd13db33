//! Whether a thread has its CPU for itself.

use std::fs::File;

/// How long the thread that made it has waited for a CPU although it could have run.
#[derive(Debug)]
pub struct RunDelay(File);

impl RunDelay {
    /// Follows the current thread. `None` where the system does not count.
    #[must_use]
    pub fn of_current_thread() -> Option<RunDelay> {
        let delay = RunDelay(File::open("/proc/thread-self/schedstat").ok()?);
        delay.nanos().map(|_| delay)
    }

    /// Nanoseconds since the thread began. Costs a system call.
    #[must_use]
    pub fn nanos(&self) -> Option<u64> {
        let mut buffer = [0; 96];
        let count = read_from_start(&self.0, &mut buffer)?;
        parse_schedstat(std::str::from_utf8(&buffer[..count]).ok()?)
    }
}

#[cfg(unix)]
fn read_from_start(file: &File, buffer: &mut [u8]) -> Option<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, 0).ok()
}

#[cfg(not(unix))]
fn read_from_start(_file: &File, _buffer: &mut [u8]) -> Option<usize> {
    None
}

/// `running waiting slices`, the first two in nanoseconds.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_waited() {
        assert_eq!(parse_schedstat("14820 2958622 1\n"), Some(2_958_622));
        assert_eq!(parse_schedstat("14820"), None);
        assert_eq!(parse_schedstat("1 x 2"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn it_never_shrinks() {
        // Systems without the counter have nothing to test.
        let Some(delay) = RunDelay::of_current_thread() else { return };
        let before = delay.nanos().unwrap();
        std::thread::yield_now();
        assert!(delay.nanos().unwrap() >= before);
    }
}
