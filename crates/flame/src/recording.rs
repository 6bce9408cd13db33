//! What travels from the sampled process to whoever reads the profile.

use lepus_profile::Group;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::maps::Module;

/// A sampled thread.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(flatten, with = "GroupForm")]
    pub group: Group,
    /// Its CPU time while the profile was taken, in nanoseconds.
    pub cpu_nanos: Option<u64>,
}

/// Equal stacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(from = "StackForm", into = "StackForm")]
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
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
        // Nothing of it is a map whose keys are no texts.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Reads what [`Recording::to_json`] wrote.
    ///
    /// # Errors
    /// Where it is wrong, and what was expected there.
    pub fn from_json(value: &Value) -> Result<Recording, String> {
        serde_path_to_error::deserialize(value)
            .map_err(|error| format!("the recording cannot be read: {error}"))
    }
}

/// [`Group`] beside the name of its thread: `"group": "shard", "shard": 3`.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Group", tag = "group", content = "shard", rename_all = "lowercase")]
enum GroupForm {
    Shard(u16),
    Files,
    Service,
}

/// A stack as a list: there are very many of them.
type StackForm = (usize, u8, bool, u64, Vec<u32>);

impl From<StackForm> for Stack {
    fn from((thread, phase, is_in_kernel, ticks, frames): StackForm) -> Stack {
        Stack { thread, phase, is_in_kernel, frames, ticks }
    }
}

impl From<Stack> for StackForm {
    fn from(stack: Stack) -> StackForm {
        (stack.thread, stack.phase, stack.is_in_kernel, stack.ticks, stack.frames)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::maps::FileId;
    use serde_json::json;

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
            "the recording cannot be read: stacks[1][4][0]: invalid type: string \"x\", expected u32"
        );
        assert!(Recording::from_json(&json!({})).unwrap_err().contains("version"));
    }
}
