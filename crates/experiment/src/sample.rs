//! Samples of the broker's process while a load runs.

use crate::disk::Device;
use lepus_probe::procfs;
use serde_json::{Value, json};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two samples, as the reports have it.
pub const INTERVAL: Duration = Duration::from_millis(400);
/// Reading the NUMA placement walks all the memory of the process: at most this share of the time goes into it.
const PLACEMENT_SHARE: u32 = 20;

/// What is sampled.
#[derive(Clone, Debug)]
pub struct Target {
    /// The broker's process.
    pub pid: u32,
    /// The device under its data.
    pub device: Option<Device>,
}

/// The state of the broker at one moment; counters run since the start of the process or of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the first sample.
    pub at_seconds: f64,
    /// Seconds of CPU in user space.
    pub user_seconds: f64,
    /// Seconds of CPU in the kernel.
    pub system_seconds: f64,
    /// Context switches by the threads' own wish.
    pub switches_voluntary: u64,
    /// Context switches forced on them.
    pub switches_involuntary: u64,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Bytes fetched from devices for the process; none where it may not be read.
    pub read_bytes: Option<u64>,
    /// Bytes of pages that it made dirty.
    pub written_bytes: Option<u64>,
    /// Bytes read from its device, by everybody.
    pub device_read_bytes: Option<u64>,
    /// Bytes written to its device, by everybody.
    pub device_written_bytes: Option<u64>,
    /// Pages by NUMA node; empty where they were not read this time.
    pub node_pages: Vec<(u32, u64)>,
}

impl Sample {
    /// Seconds of CPU.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// The sample for the machine-readable result.
    #[must_use]
    pub fn json(&self) -> Value {
        let nodes: Vec<Value> = self
            .node_pages
            .iter()
            .map(|(node, pages)| json!({"node": node, "pages": pages}))
            .collect();
        json!({
            "at_s": self.at_seconds,
            "user_s": self.user_seconds,
            "system_s": self.system_seconds,
            "switches_voluntary": self.switches_voluntary,
            "switches_involuntary": self.switches_involuntary,
            "resident_bytes": self.resident_bytes,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "device_read_bytes": self.device_read_bytes,
            "device_written_bytes": self.device_written_bytes,
            "node_pages": nodes,
        })
    }
}

/// Takes one sample; none when the process is gone.
#[must_use]
pub fn take(target: &Target, start: Instant, with_placement: bool) -> Option<Sample> {
    let reading = procfs::read(target.pid).ok()?;
    let moved = procfs::moved(target.pid).ok();
    let device = target.device.as_ref().and_then(|device| device.counted().ok());
    Some(Sample {
        at_seconds: start.elapsed().as_secs_f64(),
        user_seconds: reading.cpu_seconds - reading.system_seconds,
        system_seconds: reading.system_seconds,
        switches_voluntary: reading.switches_voluntary,
        switches_involuntary: reading.switches_involuntary,
        resident_bytes: reading.resident_bytes,
        read_bytes: moved.map(|moved| moved.read),
        written_bytes: moved.map(|moved| moved.written),
        device_read_bytes: device.map(|(read, _)| read),
        device_written_bytes: device.map(|(_, written)| written),
        node_pages: if with_placement { procfs::pages_by_node(target.pid) } else { Vec::new() },
    })
}

/// Samples on a thread of its own until it is told to stop.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Begins to sample `target` every `interval`; the first sample is taken at once, the last when it is stopped.
    #[must_use]
    pub fn start(target: Target, interval: Duration) -> Sampler {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut samples = Vec::new();
            let mut due = start;
            let mut placement_due = start;
            loop {
                let now = Instant::now();
                let with_placement = now >= placement_due;
                samples.extend(take(&target, start, with_placement));
                if with_placement {
                    placement_due = now + now.elapsed() * PLACEMENT_SHARE;
                }
                due = (due + interval).max(now);
                match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            samples.extend(take(&target, start, true));
            samples
        });
        Sampler { stop, thread }
    }

    /// Ends sampling and gives the samples in their order.
    #[must_use]
    pub fn finish(self) -> Vec<Sample> {
        // A thread that is gone already needs no message.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampler_tells_of_a_process_from_its_first_to_its_last_moment() {
        let target = Target { pid: std::process::id(), device: None };
        let sampler = Sampler::start(target, Duration::from_secs(3600));
        let samples = sampler.finish();
        assert_eq!(samples.len(), 2, "one at the start, one at the end, none waited for");
        assert!(samples[0].resident_bytes > 0);
        assert!(samples[1].at_seconds >= samples[0].at_seconds);
        assert!(samples[1].cpu_seconds() >= samples[0].cpu_seconds());
        assert_eq!(samples[0].device_read_bytes, None);
        assert_eq!(samples[1].json()["resident_bytes"], samples[1].resident_bytes);
    }

    #[test]
    fn a_process_that_is_gone_gives_no_sample() {
        // Linux gives no process the highest number.
        let target = Target { pid: u32::MAX, device: None };
        assert_eq!(take(&target, Instant::now(), true), None);
    }
}
