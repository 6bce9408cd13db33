//! What Linux says about a running program and about a core, read from `/proc`.

use std::fs;
use std::io;

/// Ticks per second of the times in `/proc`; Linux has shown 100 to user space since 2.6.
const TICKS_PER_SECOND: f64 = 100.0;

/// One reading of a program, all its threads summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Seconds of CPU in user space and in the kernel.
    pub cpu_seconds: f64,
    /// Seconds of them in the kernel.
    pub system_seconds: f64,
    /// How often a thread gave its core away by itself.
    pub switches_voluntary: u64,
    /// How often a thread had to give its core away.
    pub switches_involuntary: u64,
    /// Resident bytes now.
    pub resident_bytes: u64,
}

/// Reads the program `pid`.
///
/// # Errors
/// When it does not run any more.
pub fn read(pid: u32) -> io::Result<Reading> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let (mut switches_voluntary, mut switches_involuntary) = (0, 0);
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end while its siblings are read.
        if let Ok(text) = fs::read_to_string(task?.path().join("status")) {
            switches_voluntary += field(&text, "voluntary_ctxt_switches:").unwrap_or(0);
            switches_involuntary += field(&text, "nonvoluntary_ctxt_switches:").unwrap_or(0);
        }
    }
    let (user, system) = cpu_seconds(&stat).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Reading {
        cpu_seconds: user + system,
        system_seconds: system,
        switches_voluntary,
        switches_involuntary,
        resident_bytes: field(&status, "VmRSS:").unwrap_or(0) * 1024,
    })
}

/// Nanoseconds of CPU that the thread of that name of the program `pid` has had.
///
/// # Errors
/// When the program does not run any more, or has no such thread.
pub fn thread_nanos(pid: u32, name: &str) -> io::Result<u64> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        // A thread may end while its siblings are read.
        let found = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if found.trim_end() == name {
            let text = fs::read_to_string(task.join("schedstat"))?;
            let nanos = text.split(' ').next().and_then(|word| word.parse().ok());
            return nanos.ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
    Err(io::Error::other(format!("no thread is called {name}")))
}

/// Nanoseconds of CPU that the living threads of the program `pid` have had. What threads had that have ended is not in it: the
/// program's own clock, which has that, is told in hundredths of a second only ([`read`]).
///
/// # Errors
/// When it does not run any more.
pub fn cpu_nanos(pid: u32) -> io::Result<u64> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end while its siblings are read.
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(nanos)
}

/// Bytes that a program has moved, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes in pages that it made dirty, so that they reach a device sooner or later.
    pub written: u64,
    /// Bytes that it handed to calls that write, to files and, in some programs, to sockets.
    pub handed: u64,
    /// Bytes that were fetched from a device for it.
    pub read: u64,
}

/// What a program has moved.
///
/// # Errors
/// When it does not run any more, or is not ours.
pub fn moved(pid: u32) -> io::Result<Moved> {
    Ok(parse_moved(&fs::read_to_string(format!("/proc/{pid}/io"))?))
}

fn parse_moved(text: &str) -> Moved {
    let of = |name: &str| field(text, name).unwrap_or(0);
    Moved { written: of("write_bytes:"), handed: of("wchar:"), read: of("read_bytes:") }
}

/// The most bytes that were ever resident.
///
/// # Errors
/// When it does not run any more.
pub fn peak_bytes(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(field(&status, "VmHWM:").unwrap_or(0) * 1024)
}

/// Lets the most that is resident begin anew from what is; where that is not allowed nothing changes.
pub fn reset_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Whether the program ignores a signal, as one that `nohup` started ignores that of a terminal that goes away.
pub fn ignores(pid: u32, signal: i32) -> bool {
    ignored(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), signal)
}

fn ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Whether the program has ended: it is gone, or nobody has asked for its outcome yet.
pub fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, None | Some("Z" | "X"))
}

/// Seconds that a core spent in anything but idling and waiting for disks.
///
/// # Errors
/// When the machine has no such core.
pub fn busy_seconds(core: usize) -> io::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    core_busy_seconds(&text, core).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// utime and stime: fields 14 and 15, counted behind the command's closing parenthesis.
fn cpu_seconds(stat: &str) -> Option<(f64, f64)> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user / TICKS_PER_SECOND, system / TICKS_PER_SECOND))
}

/// Pages of the program's memory by NUMA node, ascending; empty where the system does not tell.
pub fn pages_by_node(pid: u32) -> Vec<(u32, u64)> {
    parse_numa_maps(&fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default())
}

/// Words such as `N0=25` of all mappings, summed.
fn parse_numa_maps(text: &str) -> Vec<(u32, u64)> {
    let mut nodes = std::collections::BTreeMap::new();
    for word in text.split_whitespace() {
        let Some((node, pages)) = word.strip_prefix('N').and_then(|rest| rest.split_once('='))
        else {
            continue;
        };
        if let (Ok(node), Ok(pages)) = (node.parse::<u32>(), pages.parse::<u64>()) {
            *nodes.entry(node).or_default() += pages;
        }
    }
    nodes.into_iter().collect()
}

/// The program that listens on the TCP port `port` of this machine, if it can be seen.
pub fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes: Vec<u64> = tables
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| parse_listening(&table, port))
        .collect();
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let programs = fs::read_dir("/proc").ok()?;
    for entry in programs.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(files) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = |file: fs::DirEntry| {
            let target = fs::read_link(file.path()).unwrap_or_default();
            wanted.iter().any(|socket| target.as_os_str() == socket.as_str())
        };
        if files.flatten().any(holds) {
            return Some(pid);
        }
    }
    None
}

/// The inodes of sockets that listen on `port`: state 0A in the table of TCP sockets.
fn parse_listening(table: &str, port: u16) -> Vec<u64> {
    let rows = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1)?.rsplit_once(':')?.1;
        let is_it = u16::from_str_radix(local, 16) == Ok(port) && *fields.get(3)? == "0A";
        if is_it { fields.get(9)?.parse().ok() } else { None }
    });
    rows.collect()
}

fn core_busy_seconds(stat: &str, core: usize) -> Option<f64> {
    let name = format!("cpu{core}");
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    let times: Vec<f64> =
        line.split_whitespace().skip(1).map(|time| time.parse().unwrap_or(0.0)).collect();
    // user nice system idle iowait irq softirq steal; guest times are contained in user and nice.
    let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| times.get(*index)).sum();
    Some(busy / TICKS_PER_SECOND)
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_command() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_seconds(stat), Some((2.5, 0.5)));
        assert_eq!(cpu_seconds("nonsense"), None);
    }

    #[test]
    fn bytes_are_counted_by_what_was_done_with_them() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 50\nwrite_bytes: 60\n\
                    cancelled_write_bytes: 7\n";
        assert_eq!(parse_moved(text), Moved { written: 60, handed: 2, read: 50 });
    }

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status =
            "SigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0000000180004002\n";
        assert!(ignored(status, 1) && !ignored(status, 2) && !ignored(status, 15));
        assert!(!ignored("", 1) && !ignored("SigIgn:\tx\n", 1));
    }

    #[test]
    fn idle_and_waiting_do_not_count_as_busy() {
        let stat = "cpu 9 9 9 9\ncpu1 100 10 20 7777 888 3 4 5 6 7\n";
        assert_eq!(core_busy_seconds(stat, 1), Some(1.42));
        assert_eq!(core_busy_seconds(stat, 2), None);
    }

    #[test]
    fn pages_are_summed_by_node() {
        let text = "7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n\
                    7f10 default file=/usr/N3=x mapped=4 N0=4\n7f20 default\n";
        assert_eq!(parse_numa_maps(text), [(0, 6), (1, 1)]);
    }

    #[test]
    fn listeners_are_found_by_their_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1628 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1 x\n   \
                     1: 0100007F:1628 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 4712 1 x\n";
        assert_eq!(parse_listening(table, 0x1628), [4711]);
        assert!(parse_listening(table, 5).is_empty());
        let listener_here = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener_here.local_addr().unwrap().port();
        assert_eq!(listener(port), Some(std::process::id()));
    }

    #[test]
    fn this_program_can_be_read() {
        let reading = read(std::process::id()).unwrap();
        assert!(reading.resident_bytes > 0);
        assert!(cpu_nanos(std::process::id()).unwrap() > 0);
    }
}
