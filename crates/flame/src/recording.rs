//! What travels from the sampled process to whoever reads the profile.

use lepus_profile::Group;
use serde_json::{Value, json};

use crate::maps::{FileId, Module};

/// A sampled thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub group: Group,
    /// Its CPU time while the profile was taken, in nanoseconds.
    pub cpu_nanos: Option<u64>,
}

/// Equal stacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stack {
    /// Index of the thread.
    pub thread: usize,
    /// The number of the phase it was in.
    pub phase: u8,
    /// It was in a system call.
    pub is_in_kernel: bool,
    /// Indices of addresses, innermost first.
    pub frames: Vec<u32>,
    /// How many ticks of the timer they stand for.
    pub ticks: u64,
}

/// A profile in addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The version of the sampled program.
    pub version: String,
    /// The number of its process.
    pub process: u32,
    /// Ticks asked for per second of a thread's CPU time.
    pub rate: u32,
    /// How long it took.
    pub seconds: f64,
    /// The sampled threads.
    pub threads: Vec<Thread>,
    /// Names and nanoseconds of CPU time of threads that were not.
    pub unsampled: Vec<(String, u64)>,
    /// Files with code.
    pub modules: Vec<Module>,
    /// Addresses that stacks name by their index.
    pub addresses: Vec<u64>,
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// Interruptions that were recorded; each stands for one tick or more.
    pub samples: u64,
    /// Ticks for which there was no room.
    pub dropped: u64,
    /// Ticks whose stacks were not seen down to their outermost function.
    pub cut: u64,
    /// Ticks of stacks beyond the number that is kept.
    pub overflow: u64,
}

impl Recording {
    /// As JSON: [`Recording::from_json`] reads it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let thread = |thread: &Thread| {
            let (group, shard) = match thread.group {
                Group::Shard(shard) => ("shard", json!(shard)),
                Group::Files => ("files", Value::Null),
                Group::Service => ("service", Value::Null),
            };
            json!({"name": thread.name, "group": group, "shard": shard, "cpu_nanos": thread.cpu_nanos})
        };
        let module = |module: &Module| {
            let file = module.file.map(|file| json!([file.device, file.inode, file.length]));
            json!({
                "path": module.path,
                "start": module.range.start,
                "end": module.range.end,
                "bias": module.bias,
                "file": file,
            })
        };
        let stack = |stack: &Stack| {
            json!([stack.thread, stack.phase, stack.is_in_kernel, stack.ticks, stack.frames])
        };
        json!({
            "version": self.version,
            "process": self.process,
            "rate": self.rate,
            "seconds": self.seconds,
            "threads": self.threads.iter().map(thread).collect::<Vec<_>>(),
            "unsampled": self.unsampled,
            "modules": self.modules.iter().map(module).collect::<Vec<_>>(),
            "addresses": self.addresses,
            "stacks": self.stacks.iter().map(stack).collect::<Vec<_>>(),
            "samples": self.samples,
            "dropped": self.dropped,
            "cut": self.cut,
            "overflow": self.overflow,
        })
    }

    /// Reads what [`Recording::to_json`] wrote.
    ///
    /// # Errors
    /// The name of what is missing or wrong.
    pub fn from_json(value: &Value) -> Result<Recording, String> {
        let number = |key: &'static str| value[key].as_u64().ok_or_else(|| wrong(key));
        Ok(Recording {
            version: value["version"].as_str().ok_or_else(|| wrong("version"))?.to_owned(),
            process: u32::try_from(number("process")?).map_err(|_| wrong("process"))?,
            rate: u32::try_from(number("rate")?).map_err(|_| wrong("rate"))?,
            seconds: value["seconds"].as_f64().ok_or_else(|| wrong("seconds"))?,
            threads: list(value, "threads", read_thread)?,
            unsampled: list(value, "unsampled", |value| {
                Some((value[0].as_str()?.to_owned(), value[1].as_u64()?))
            })?,
            modules: list(value, "modules", read_module)?,
            addresses: list(value, "addresses", Value::as_u64)?,
            stacks: list(value, "stacks", read_stack)?,
            samples: number("samples")?,
            dropped: number("dropped")?,
            cut: number("cut")?,
            overflow: number("overflow")?,
        })
    }
}

fn wrong(key: &str) -> String {
    format!("the recording's {key} cannot be read")
}

fn list<T>(
    value: &Value,
    key: &'static str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, String> {
    let items = value[key].as_array().ok_or_else(|| wrong(key))?;
    items.iter().map(|item| read(item).ok_or_else(|| wrong(key))).collect()
}

fn read_thread(value: &Value) -> Option<Thread> {
    let group = match value["group"].as_str()? {
        "shard" => Group::Shard(u16::try_from(value["shard"].as_u64()?).ok()?),
        "files" => Group::Files,
        _ => Group::Service,
    };
    let name = value["name"].as_str()?.to_owned();
    Some(Thread { name, group, cpu_nanos: value["cpu_nanos"].as_u64() })
}

fn read_module(value: &Value) -> Option<Module> {
    let file = &value["file"];
    let file = (!file.is_null()).then(|| {
        Some(FileId {
            device: file[0].as_u64()?,
            inode: file[1].as_u64()?,
            length: file[2].as_u64()?,
        })
    });
    Some(Module {
        path: value["path"].as_str()?.to_owned(),
        range: value["start"].as_u64()?..value["end"].as_u64()?,
        bias: value["bias"].as_u64()?,
        file: file.flatten(),
    })
}

fn read_stack(value: &Value) -> Option<Stack> {
    let frames = value[4].as_array()?.iter();
    Some(Stack {
        thread: usize::try_from(value[0].as_u64()?).ok()?,
        phase: u8::try_from(value[1].as_u64()?).ok()?,
        is_in_kernel: value[2].as_bool()?,
        ticks: value[3].as_u64()?,
        frames: frames.map(|frame| u32::try_from(frame.as_u64()?).ok()).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two shards and a thread of files; the addresses are made up.
    pub(crate) fn example() -> Recording {
        let thread = |name: &str, group| Thread {
            name: name.to_owned(),
            group,
            cpu_nanos: Some(1_000_000_000),
        };
        let stack = |thread, phase, is_in_kernel, frames: &[u32], ticks| Stack {
            thread,
            phase,
            is_in_kernel,
            frames: frames.to_vec(),
            ticks,
        };
        Recording {
            version: "0.1.0".to_owned(),
            process: 77,
            rate: 200,
            seconds: 2.0,
            threads: vec![
                thread("shard-0", Group::Shard(0)),
                thread("shard-1", Group::Shard(1)),
                thread("shard-0-log", Group::Files),
            ],
            unsampled: vec![("management".to_owned(), 5_000_000)],
            modules: vec![Module {
                path: "/opt/lepus".to_owned(),
                range: 0x1000..0x9000,
                bias: 0x1000,
                file: Some(FileId { device: 1, inode: 2, length: 3 }),
            }],
            addresses: vec![0x1100, 0x1200, 0x1300, 0x1400],
            stacks: vec![
                stack(0, 2, false, &[1, 0], 60),
                stack(0, 2, false, &[2, 1, 0], 20),
                stack(0, 5, true, &[3, 0], 20),
                stack(1, 1, true, &[3, 0], 50),
                stack(2, 0, true, &[3], 10),
            ],
            samples: 150,
            dropped: 1,
            cut: 2,
            overflow: 0,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = example();
        let text = recording.to_json().to_string();
        let read = Recording::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read, recording);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut value = example().to_json();
        value["stacks"][1][4][0] = json!("x");
        assert_eq!(
            Recording::from_json(&value).unwrap_err(),
            "the recording's stacks cannot be read"
        );
        assert!(Recording::from_json(&json!({})).unwrap_err().contains("version"));
    }
}
