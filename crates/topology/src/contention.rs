//! Whether a thread has its CPU for itself, and the process the time that it wants.

use std::collections::BTreeMap;
use std::fs::File;

use crate::cgroup;

/// What the system counts of a thread, in nanoseconds since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// On a CPU.
    pub ran: u64,
    /// Able to run, without a CPU.
    pub waited: u64,
}

impl CpuTime {
    /// What came to it since `before`.
    #[must_use]
    pub fn since(&self, before: CpuTime) -> CpuTime {
        CpuTime {
            ran: self.ran.saturating_sub(before.ran),
            waited: self.waited.saturating_sub(before.waited),
        }
    }
}

/// The times of a thread of this process by the system's number; none where the system does not count
/// or there is no such thread.
#[must_use]
pub fn cpu_time(thread: u32) -> Option<CpuTime> {
    parse_schedstat(&std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?)
}

/// How long the thread that made it has waited for a CPU although it could have run, and how often a
/// control group has stopped its process because its quota was used up.
#[derive(Debug)]
pub struct Contention {
    thread: File,
    /// `cpu.stat` of the groups with a quota.
    groups: Vec<File>,
}

impl Contention {
    /// Follows the current thread. `None` where the system does not count.
    #[must_use]
    pub fn of_current_thread() -> Option<Contention> {
        let thread = File::open("/proc/thread-self/schedstat").ok()?;
        let groups =
            if crate::cpus::usable_cpus().quota.is_some() { stat_files() } else { Vec::new() };
        let contention = Contention { thread, groups };
        contention.waited().map(|_| contention)
    }

    /// Nanoseconds that it has waited since it began. Costs a system call.
    #[must_use]
    pub fn waited(&self) -> Option<u64> {
        read(&self.thread, |text| parse_schedstat(text).map(|time| time.waited))
    }

    /// How often its groups were stopped since they began. Costs a system call for each group with a
    /// quota.
    #[must_use]
    pub fn stops(&self) -> u64 {
        self.groups.iter().filter_map(|file| read(file, parse_throttled)).sum()
    }
}

fn stat_files() -> Vec<File> {
    let open = |directory: &std::path::Path| File::open(directory.join("cpu.stat")).ok();
    let mut files = cgroup::along_path("", open);
    files.extend(cgroup::along_path("cpu", open));
    files
}

fn read<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut buffer = [0; 512];
    let count = read_from_start(file, &mut buffer)?;
    parse(std::str::from_utf8(&buffer[..count]).ok()?)
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
fn parse_schedstat(text: &str) -> Option<CpuTime> {
    let mut fields = text.split_whitespace();
    let ran = fields.next()?.parse().ok()?;
    Some(CpuTime { ran, waited: fields.next()?.parse().ok()? })
}

/// `nr_throttled 12` of `cpu.stat`.
fn parse_throttled(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled"))?;
    line.trim().parse().ok()
}

/// Of each CPU that is switched on how long it had nothing to do since the machine began, in
/// hundredths of a second; empty where the system does not tell.
#[must_use]
pub fn idle_times() -> BTreeMap<u32, u64> {
    std::fs::read_to_string("/proc/stat").map_or_else(|_| BTreeMap::new(), |text| parse_idle(&text))
}

/// Lines such as `cpu3 user nice system idle iowait …`.
fn parse_idle(text: &str) -> BTreeMap<u32, u64> {
    let line = |line: &str| {
        let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
        let mut idle = fields.split_whitespace().skip(3).take(2).map(str::parse::<u64>);
        let sum = idle.next()?.ok()? + idle.next()?.ok()?;
        Some((cpu.parse().ok()?, sum))
    };
    text.lines().filter_map(line).collect()
}

/// Looks in a row in which others had its CPU while another one had nothing to do, after which a
/// thread is let go.
const PATIENCE: u32 = 5;

/// Whether a thread is to be kept on its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grip {
    looks: u32,
}

impl Grip {
    /// Takes what came to the thread since the last look, and the greatest share of that time, in
    /// thousandths, that another CPU which it might use had nothing to do. True when the thread has
    /// waited for a quarter of the time that it wanted, for so many looks in a row, while there was
    /// another CPU: then it is better off anywhere else.
    pub fn is_lost(&mut self, time: CpuTime, idle_elsewhere: u32) -> bool {
        let wanted = u128::from(time.ran) + u128::from(time.waited);
        let waits = u128::from(time.waited) * 4 >= wanted && time.waited >= WAITED_MIN;
        self.looks = if waits && idle_elsewhere >= IDLE_MIN { self.looks + 1 } else { 0 };
        self.looks >= PATIENCE
    }
}

/// Less than that between two looks, in nanoseconds, is no reason to do anything.
const WAITED_MIN: u64 = 100_000_000;
/// From here on, in thousandths, a CPU has room for a thread.
const IDLE_MIN: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_numbers_are_the_times() {
        let time = CpuTime { ran: 14820, waited: 2_958_622 };
        assert_eq!(parse_schedstat("14820 2958622 1\n"), Some(time));
        assert_eq!(time.since(CpuTime { ran: 20, waited: 3_000_000 }).ran, 14800);
        assert_eq!(parse_schedstat("14820"), None);
        assert_eq!(parse_schedstat("1 x 2"), None);
    }

    #[test]
    fn stops_are_read_from_both_versions() {
        assert_eq!(parse_throttled("nr_periods 9\nnr_throttled 4\nthrottled_time 7\n"), Some(4));
        let unified = "usage_usec 1\nuser_usec 1\nnr_periods 0\nnr_throttled 11\nnr_bursts 0\n";
        assert_eq!(parse_throttled(unified), Some(11));
        assert_eq!(parse_throttled("usage_usec 1\n"), None);
    }

    #[test]
    fn the_idle_time_of_a_cpu_is_what_it_had_nothing_to_do() {
        let text = "cpu  9 9 9 99 9 0\ncpu0 1 2 3 40 5 6 7\ncpu12 1 1 1 7 0 0\nintr 5\ncpu3 1\n";
        let idle = parse_idle(text);
        assert_eq!(idle.into_iter().collect::<Vec<_>>(), [(0, 45), (12, 7)]);
    }

    #[test]
    fn a_thread_is_let_go_when_others_have_had_its_cpu_for_seconds_and_another_one_is_free() {
        const SECOND: u64 = 1_000_000_000;
        let half = CpuTime { ran: SECOND / 2, waited: SECOND / 2 };
        let alone = CpuTime { ran: SECOND, waited: SECOND / 10 };
        let asleep = CpuTime { ran: 1000, waited: 5000 };
        let looks = |all: &[(CpuTime, u32)]| {
            let mut grip = Grip::default();
            all.iter().filter(|(time, idle)| grip.is_lost(*time, *idle)).count()
        };
        assert_eq!(looks(&[(half, 900); 4]), 0, "not for a moment's sake");
        assert_eq!(looks(&[(half, 900); 5]), 1);
        assert_eq!(looks(&[(half, 100); 50]), 0, "there is no better place");
        assert_eq!(looks(&[(alone, 900); 50]), 0);
        assert_eq!(looks(&[(asleep, 900); 50]), 0, "it wants nothing");
        let mut in_turns = [(half, 900); 50];
        in_turns.iter_mut().step_by(4).for_each(|look| look.0 = alone);
        assert_eq!(looks(&in_turns), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn it_never_shrinks() {
        // Systems without the counter have nothing to test.
        let Some(contention) = Contention::of_current_thread() else { return };
        let before = contention.waited().unwrap();
        std::thread::yield_now();
        assert!(contention.waited().unwrap() >= before);
        let own = crate::kernel::current_thread_id().unwrap();
        assert!(cpu_time(own).unwrap().ran > 0);
        assert!(!idle_times().is_empty());
        let _ = contention.stops();
    }
}
