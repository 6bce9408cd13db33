//! What the kernel says about where threads run and where memory lies (Linux, `/proc`).

use crate::ids::Ids;
use std::collections::BTreeMap;
use std::fs;

/// A thread of this process as the kernel sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadState {
    /// The kernel's number of the thread.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The CPUs it may run on.
    pub allowed: Ids,
    /// The CPU it ran on last.
    pub last_cpu: Option<u32>,
    /// How often it was moved to another CPU since it began; none where the kernel does not count.
    pub migrations: Option<u64>,
}

/// Pages of one mapping, or of several, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Bytes by node.
    pub bytes: BTreeMap<u32, u64>,
}

impl Pages {
    /// Bytes on all nodes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// The share of bytes on `node`, 0 to 1; none without any pages.
    #[must_use]
    pub fn share(&self, node: u32) -> Option<f64> {
        let total = self.total();
        (total > 0).then(|| *self.bytes.get(&node).unwrap_or(&0) as f64 / total as f64)
    }

    fn add(&mut self, other: &Pages) {
        for (node, bytes) in &other.bytes {
            *self.bytes.entry(*node).or_default() += bytes;
        }
    }
}

/// One line of `numa_maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where it begins.
    pub start: u64,
    /// The policy of its memory: `default`, `prefer:1`, `bind:0`, `interleave:0-1`.
    pub policy: String,
    /// Whether it is memory of the program alone, not of a file.
    pub is_anonymous: bool,
    /// Its pages.
    pub pages: Pages,
}

/// The value of a field of a `status` file, without the blanks around it.
#[must_use]
pub fn status_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let find = |line: &'a str| line.strip_prefix(key)?.strip_prefix(':');
    text.lines().find_map(find).map(str::trim)
}

/// The kernel's number of the calling thread; none where the system does not tell.
#[must_use]
pub fn current_thread_id() -> Option<u32> {
    let text = fs::read_to_string("/proc/thread-self/status").ok()?;
    status_field(&text, "Pid")?.parse().ok()
}

/// The state of a thread of this process.
#[must_use]
pub fn thread(id: u32) -> Option<ThreadState> {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/task/{id}/{name}")).ok();
    let status = read("status")?;
    Some(ThreadState {
        id,
        name: status_field(&status, "Name")?.to_owned(),
        allowed: status_field(&status, "Cpus_allowed_list")?.parse().ok()?,
        last_cpu: read("stat").and_then(|text| parse_stat_cpu(&text)),
        migrations: read("sched").and_then(|text| parse_migrations(&text)),
    })
}

/// The states of all threads of this process, by number.
#[must_use]
pub fn threads() -> Vec<ThreadState> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut ids: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    ids.sort_unstable();
    ids.into_iter().filter_map(thread).collect()
}

/// The mappings of this process with their pages by node, ascending by address; empty on kernels
/// without NUMA.
#[must_use]
pub fn mappings() -> Vec<Mapping> {
    fs::read_to_string("/proc/self/numa_maps").map_or_else(|_| Vec::new(), |t| parse_numa_maps(&t))
}

/// The memory policy of the calling thread as the kernel writes it; none where it does not tell.
#[must_use]
pub fn memory_policy() -> Option<String> {
    first_policy(&fs::read_to_string("/proc/thread-self/numa_maps").ok()?)
}

/// The memory policy of a thread of this process.
#[must_use]
pub fn thread_memory_policy(id: u32) -> Option<String> {
    first_policy(&fs::read_to_string(format!("/proc/self/task/{id}/numa_maps")).ok()?)
}

fn first_policy(text: &str) -> Option<String> {
    let policies = parse_numa_maps(text).into_iter().filter(|one| one.is_anonymous);
    policies.map(|one| one.policy).next()
}

/// The pages of the mappings in which the addresses lie, each mapping counted once.
#[must_use]
pub fn pages_at(mappings: &[Mapping], addresses: &[u64]) -> Pages {
    let mut pages = Pages::default();
    let mut seen = Ids::new();
    for address in addresses {
        let index = mappings.partition_point(|mapping| mapping.start <= *address);
        let Some(index) = index.checked_sub(1) else { continue };
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        if !seen.contains(number) {
            seen.insert(number);
            pages.add(&mappings[index].pages);
        }
    }
    pages
}

/// All memory of the program alone, by node.
#[must_use]
pub fn anonymous_pages(mappings: &[Mapping]) -> Pages {
    let mut pages = Pages::default();
    for mapping in mappings.iter().filter(|mapping| mapping.is_anonymous) {
        pages.add(&mapping.pages);
    }
    pages
}

/// Lines such as `7f1c00000000 prefer:1 anon=16 dirty=16 N0=1 N1=15 kernelpagesize_kB=4`.
fn parse_numa_maps(text: &str) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let start = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let Some((start, policy)) = start.zip(words.next()) else { continue };
        let mut mapping = Mapping {
            start,
            policy: policy.to_owned(),
            is_anonymous: false,
            pages: Pages::default(),
        };
        let mut page_bytes = 4096;
        for word in words {
            let Some((key, value)) = word.split_once('=') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            if key == "kernelpagesize_kB" {
                page_bytes = value.saturating_mul(1024);
            } else if key == "anon" {
                mapping.is_anonymous = true;
            } else if let Some(node) = key.strip_prefix('N').and_then(|node| node.parse().ok()) {
                mapping.pages.bytes.insert(node, value);
            }
        }
        for pages in mapping.pages.bytes.values_mut() {
            *pages = pages.saturating_mul(page_bytes);
        }
        mappings.push(mapping);
    }
    mappings.sort_by_key(|mapping| mapping.start);
    mappings
}

/// Field 39 of `stat`, counted behind the name in brackets, which may hold anything.
fn parse_stat_cpu(text: &str) -> Option<u32> {
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(36)?.parse().ok()
}

/// `se.nr_migrations   :   3`.
fn parse_migrations(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_by_node() {
        let text = "7f00 prefer:1 anon=20 dirty=20 N0=5 N1=15 kernelpagesize_kB=4\n\
                    5500 default file=/bin/x mapped=3 N0=3 kernelpagesize_kB=4\n\
                    7fff default stack anon=1 N1=1 kernelpagesize_kB=2048\nbroken\n";
        let mappings = parse_numa_maps(text);
        assert_eq!(mappings.len(), 3);
        assert_eq!(mappings[1].policy, "prefer:1");
        let pages = pages_at(&mappings, &[0x7f00, 0x7f80]);
        assert_eq!(pages.total(), 20 * 4096);
        assert_eq!(pages.share(1), Some(0.75));
        assert_eq!(pages_at(&mappings, &[0x5000]).share(0), None);
        let own = anonymous_pages(&mappings);
        assert_eq!(own.bytes[&0], 5 * 4096);
        assert_eq!(own.bytes[&1], 15 * 4096 + (2 << 20));
    }

    #[test]
    fn a_threads_files_are_read() {
        let mut stat = String::from("12 (a b) c) S");
        for field in 4..=52 {
            stat.push_str(&format!(" {field}"));
        }
        assert_eq!(parse_stat_cpu(&stat), Some(39));
        assert_eq!(parse_stat_cpu("12 (a) S 1"), None);
        let sched =
            "lepus (1, #threads: 2)\nse.exec_start : 1.5\nse.nr_migrations      :        7\n";
        assert_eq!(parse_migrations(sched), Some(7));
        assert_eq!(parse_migrations(""), None);
        let status = "Name:\tshard-0\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(status_field(status, "Cpus_allowed_list"), Some("0-1"));
        assert_eq!(status_field(status, "Cpus"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_running_thread_is_found() {
        let id = current_thread_id().unwrap();
        let state = thread(id).unwrap();
        assert!(!state.allowed.is_empty());
        assert!(threads().iter().any(|thread| thread.id == id));
    }
}
