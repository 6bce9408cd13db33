//! Settings that an operator changes while the broker runs.

use super::failure::Failure;
use serde_json::{Value, json};

/// Users that may be named at once as those who may only log in from this machine.
const LOOPBACK_USERS_MAX: usize = 1_000;

/// A setting of the running broker, and its value until the broker ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The memory above which publishers are held back.
    MemoryBudget(Amount),
    /// What is to stay free of the disk: with less publishers are held back.
    DiskFreeLimit(Amount),
    /// Channels that are offered to connections from now on; 0 is as many as the protocol has.
    ChannelMax(u16),
    /// Users who may log in from this machine only.
    LoopbackUsers(Vec<String>),
    /// The least important lines that the log has: `error`, `warning`, `info` or `debug`.
    LogLevel(&'static str),
}

/// So many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// As a number.
    Bytes(u64),
    /// As a part of the memory that the process may use; not negative.
    Share(f64),
}

impl Amount {
    /// Bytes, where the process may use so many bytes of memory.
    #[must_use]
    pub fn bytes(self, usable: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            // Where it is more than fits it is the most that does.
            Amount::Share(share) => (usable as f64 * share) as u64,
        }
    }

    /// As the status of a broker shows it.
    pub(crate) fn to_json(self) -> Value {
        match self {
            Amount::Bytes(bytes) => json!({ "absolute": bytes }),
            Amount::Share(share) => json!({ "relative": share }),
        }
    }

    /// Reads `{"absolute": bytes}`, or a part of the memory under a name of its own.
    fn read(value: &Value, relative: &str, share_max: f64) -> Option<Amount> {
        let fields = value.as_object().filter(|fields| fields.len() == 1)?;
        if let Some(bytes) = fields.get("absolute") {
            return bytes.as_u64().map(Amount::Bytes);
        }
        let share = fields.get(relative)?.as_f64()?;
        (0.0..=share_max).contains(&share).then_some(Amount::Share(share))
    }
}

impl Change {
    /// Reads a setting's name and value.
    ///
    /// # Errors
    /// 400 for another name, and for a value that it cannot have.
    pub(crate) fn read(name: &str, value: &Value) -> Result<Change, Failure> {
        let (change, accepted) = match name {
            "vm_memory_high_watermark" => {
                let amount = Amount::read(value, "relative", 1.0);
                (
                    amount.map(Change::MemoryBudget),
                    "{\"absolute\": bytes} or {\"relative\": a part from 0 to 1}",
                )
            }
            "disk_free_limit" => {
                let amount = Amount::read(value, "mem_relative", f64::MAX);
                (
                    amount.map(Change::DiskFreeLimit),
                    "{\"absolute\": bytes} or {\"mem_relative\": a part from 0 on}",
                )
            }
            "channel_max" => {
                let channels = value.as_u64().and_then(|channels| u16::try_from(channels).ok());
                (channels.map(Change::ChannelMax), "a number from 0 to 65535")
            }
            "loopback_users" => {
                let names = value.as_array().filter(|names| names.len() <= LOOPBACK_USERS_MAX);
                let names = names.and_then(|names| {
                    names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
                });
                (names.map(Change::LoopbackUsers), "a list of at most 1,000 users' names")
            }
            "log_level" => {
                let level = match value.as_str() {
                    Some("critical" | "none" | "error") => Some("error"),
                    Some("warning") => Some("warning"),
                    Some("info") => Some("info"),
                    Some("debug") => Some("debug"),
                    _ => None,
                };
                (level.map(Change::LogLevel), "error, warning, info or debug")
            }
            other => return Err(Failure::bad_request(format!("there is no setting {other:?}"))),
        };
        change.ok_or_else(|| Failure::bad_request(format!("{name} is to be {accepted}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_as_its_setting_has_it() {
        let read = |name: &str, value: Value| Change::read(name, &value).ok();
        let share = Change::MemoryBudget(Amount::Share(0.25));
        assert_eq!(read("vm_memory_high_watermark", json!({"relative": 0.25})), Some(share));
        let bytes = Change::DiskFreeLimit(Amount::Bytes(5));
        assert_eq!(read("disk_free_limit", json!({"absolute": 5})), Some(bytes));
        assert_eq!(read("channel_max", json!(0)), Some(Change::ChannelMax(0)));
        let users = Change::LoopbackUsers(vec!["a".to_owned()]);
        assert_eq!(read("loopback_users", json!(["a"])), Some(users));
        assert_eq!(read("log_level", json!("none")), Some(Change::LogLevel("error")));
        for (name, value) in [
            ("vm_memory_high_watermark", json!({"relative": 1.01})),
            ("vm_memory_high_watermark", json!({"relative": -0.1})),
            ("vm_memory_high_watermark", json!({"absolute": -1})),
            ("vm_memory_high_watermark", json!({"absolute": 1, "relative": 1})),
            ("vm_memory_high_watermark", json!(0.4)),
            ("disk_free_limit", json!({"relative": 0.5})),
            ("channel_max", json!(65_536)),
            ("loopback_users", json!([1])),
            ("loopback_users", json!("guest")),
            ("loopback_users", json!(vec!["a"; 1_001])),
            ("log_level", json!("loud")),
            ("frame_max", json!(1)),
        ] {
            assert_eq!(read(name, value.clone()), None, "{name} {value}");
        }
    }

    #[test]
    fn a_part_is_one_of_the_memory_that_may_be_used() {
        assert_eq!(Amount::Share(0.5).bytes(1000), 500);
        assert_eq!(Amount::Share(f64::MAX).bytes(1000), u64::MAX);
        assert_eq!((Amount::Share(0.0).bytes(1000), Amount::Bytes(7).bytes(1000)), (0, 7));
    }
}
