//! The CPUs that this process may run on, and how much of them.

use std::fs;

use crate::cgroup;

/// What the scheduler grants the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpus {
    /// The system's numbers of the CPUs in the process's affinity, ascending, never empty.
    pub ids: Vec<usize>,
    /// CPU time per time that a control group grants, in CPUs.
    pub quota: Option<f64>,
}

impl Cpus {
    /// How many threads can run all the time: the affinity, cut by the quota, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        let ids = self.ids.len().max(1);
        match self.quota {
            // A float beyond the range saturates.
            Some(quota) => ids.min((quota.ceil() as usize).max(1)),
            None => ids,
        }
    }
}

/// The CPUs of the current thread's affinity with the control groups' quota.
#[must_use]
pub fn usable_cpus() -> Cpus {
    Cpus { ids: affinity(), quota: quota() }
}

/// Numbers `0..n` where the system does not tell the affinity.
fn any_cpus() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

#[cfg(target_os = "linux")]
fn affinity() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let ids: Vec<usize> = sched_getaffinity(None).map_or_else(
        |_| Vec::new(),
        |set| (0..CpuSet::MAX_CPU).filter(|&id| set.is_set(id)).collect(),
    );
    if ids.is_empty() { any_cpus() } else { ids }
}

#[cfg(not(target_os = "linux"))]
fn affinity() -> Vec<usize> {
    any_cpus()
}

/// The tightest quota of the groups above this process.
fn quota() -> Option<f64> {
    let unified = cgroup::along_path("", |directory| {
        parse_cpu_max(&fs::read_to_string(directory.join("cpu.max")).ok()?)
    });
    let divided = cgroup::along_path("cpu", |directory| {
        let quota = fs::read_to_string(directory.join("cpu.cfs_quota_us")).ok()?;
        let period = fs::read_to_string(directory.join("cpu.cfs_period_us")).ok()?;
        parse_cfs(&quota, &period)
    });
    unified.into_iter().chain(divided).reduce(f64::min)
}

/// Version 2's `cpu.max`: `max 100000` or `150000 100000`, in microseconds.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace();
    let quota: u64 = fields.next()?.parse().ok()?;
    let period: u64 = fields.next().map_or(Ok(100_000), str::parse).ok()?;
    ratio(quota, period)
}

/// Version 1's pair of files; a quota of -1 is none.
fn parse_cfs(quota: &str, period: &str) -> Option<f64> {
    ratio(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn ratio(quota: u64, period: u64) -> Option<f64> {
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions() {
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("50000"), Some(0.5));
        assert_eq!(parse_cpu_max("1 0"), None);
        assert_eq!(parse_cpu_max(""), None);
        assert_eq!(parse_cfs("-1\n", "100000\n"), None);
        assert_eq!(parse_cfs("400000\n", "100000\n"), Some(4.0));
    }

    #[test]
    fn the_count_is_the_tighter_of_affinity_and_quota() {
        let cpus = |n: usize, quota| Cpus { ids: (0..n).collect(), quota };
        assert_eq!(cpus(8, None).count(), 8);
        assert_eq!(cpus(8, Some(1.5)).count(), 2);
        assert_eq!(cpus(2, Some(16.0)).count(), 2);
        assert_eq!(cpus(2, Some(0.1)).count(), 1);
        assert_eq!(cpus(4, Some(f64::INFINITY)).count(), 4);
    }
}
