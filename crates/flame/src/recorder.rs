//! Counts equal stacks while samples come in.

use std::collections::HashMap;

use lepus_profile::{Sample, Summary};

use crate::recording::{Recording, Stack, Thread};
use crate::unwind::Unwinder;

/// Different stacks that are kept apart.
const STACKS_MAX: usize = 50_000;

/// Equal for samples that count as one stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    thread: usize,
    phase: u8,
    is_in_kernel: bool,
    frames: Box<[u32]>,
}

/// Walks the stacks of samples and counts equal ones.
#[derive(Debug)]
pub struct Recorder {
    unwinder: Unwinder,
    counts: HashMap<Key, u64>,
    /// Addresses by their index, and back.
    addresses: Vec<u64>,
    indices: HashMap<u64, u32>,
    frames: Vec<u64>,
    cut: u64,
    overflow: u64,
    samples: u64,
}

impl Recorder {
    /// A recorder for this process as it is.
    ///
    /// # Errors
    /// When the system does not tell what is mapped.
    pub fn new() -> std::io::Result<Recorder> {
        Ok(Recorder {
            unwinder: Unwinder::new()?,
            counts: HashMap::new(),
            addresses: Vec::new(),
            indices: HashMap::new(),
            frames: Vec::new(),
            cut: 0,
            overflow: 0,
            samples: 0,
        })
    }

    /// Takes a sample in.
    pub fn take(&mut self, sample: &Sample<'_>) {
        let weight = u64::from(sample.weight);
        let mut frames = std::mem::take(&mut self.frames);
        let found = self.unwinder.walk(sample, &mut frames);
        self.samples += 1;
        if found.is_cut {
            self.cut += weight;
        }
        let indices: Box<[u32]> = frames.iter().map(|address| self.index(*address)).collect();
        self.frames = frames;
        let key = Key {
            thread: sample.thread,
            phase: sample.phase,
            is_in_kernel: found.is_in_kernel,
            frames: indices,
        };
        if let Some(count) = self.counts.get_mut(&key) {
            *count += weight;
        } else if self.counts.len() < STACKS_MAX {
            self.counts.insert(key, weight);
        } else {
            self.overflow += weight;
        }
    }

    fn index(&mut self, address: u64) -> u32 {
        let next = self.addresses.len() as u32;
        let index = *self.indices.entry(address).or_insert(next);
        if index == next {
            self.addresses.push(address);
        }
        index
    }

    /// What was recorded, in an order that is always the same.
    #[must_use]
    pub fn finish(self, summary: &Summary, rate: u32, seconds: f64) -> Recording {
        let mut stacks: Vec<Stack> = self
            .counts
            .into_iter()
            .map(|(key, ticks)| Stack {
                thread: key.thread,
                phase: key.phase,
                is_in_kernel: key.is_in_kernel,
                ticks,
                frames: key.frames.into_vec(),
            })
            .collect();
        stacks.sort();
        let thread = |figures: &lepus_profile::ThreadFigures| Thread {
            name: figures.name.clone(),
            group: figures.group,
            cpu_nanos: figures.cpu_nanos,
        };
        Recording {
            version: String::new(),
            process: std::process::id(),
            rate,
            seconds,
            threads: summary.threads.iter().map(thread).collect(),
            unsampled: summary
                .unsampled
                .iter()
                .map(|thread| (thread.name.clone(), thread.cpu_nanos))
                .collect(),
            modules: self.unwinder.modules().to_vec(),
            addresses: self.addresses,
            stacks,
            samples: self.samples,
            dropped: summary.dropped,
            cut: self.cut,
            overflow: self.overflow,
        }
    }
}

#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
