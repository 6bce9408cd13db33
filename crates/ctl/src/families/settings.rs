//! Settings of the running broker.

use crate::command::{CHECKING, Call, Command, Group, LOOKING};
use crate::failure::{DATA, Failure, UNAVAILABLE};
use crate::output::Output;
use serde_json::{Value, json};

const CALLS: &str = "PUT /api/lepus/ctl/settings/{name}";
const LEVELS: [&str; 6] = ["debug", "info", "warning", "error", "critical", "none"];

/// The family.
pub const COMMANDS: &[Command] = &[
    Command::new("environment", Group::Configuration, (0, 0), environment)
        .told("", "Displays the settings that are in force")
        .of(LOOKING)
        .banner("Application environment of node {node} ...")
        .calls("GET /api/config/effective"),
    Command::new("rotate_logs", Group::Nodes, (0, 0), rotate).told("", "Does nothing [deprecated]"),
    Command::new("set_disk_free_limit", Group::Configuration, (1, 2), set_disk)
        .told("<disk_limit> | mem_relative <fraction>", "Sets the disk_free_limit setting")
        .calls(CALLS),
    Command::new("set_log_level", Group::Configuration, (1, 1), set_log_level)
        .told("<log_level>", "Sets log level in the running node")
        .calls(CALLS),
    Command::new("set_vm_memory_high_watermark", Group::Configuration, (1, 2), set_memory)
        .told("<fraction> | absolute <value>", "Sets the vm_memory_high_watermark setting")
        .calls(CALLS),
    Command::new("enable_auth_attempt_source_tracking", Group::Configuration, (0, 0), track)
        .told("", "Enables the tracking of peer IP address and username of authentication attempts")
        .of(CHECKING)
        .banner("Enabling authentication attempt source tracking ...")
        .calls(CALLS),
    Command::new("disable_auth_attempt_source_tracking", Group::Configuration, (0, 0), track)
        .told(
            "",
            "Disables the tracking of peer IP address and username of authentication attempts",
        )
        .of(CHECKING)
        .banner("Disabling authentication attempt source tracking ...")
        .calls(CALLS),
];

/// Changes a setting of the running broker.
///
/// # Errors
/// When it refuses.
pub fn set(call: &mut Call<'_>, name: &str, value: &Value) -> Result<(), Failure> {
    let segments = ["lepus", "ctl", "settings", name];
    call.send("PUT", &segments, Some(&json!({ "value": value }))).map(|_| ())
}

fn bad(text: &str) -> Failure {
    Failure::argument(DATA, format!("Bad argument{text}"))
}

/// Bytes of a number with a unit: `100MB` is 100,000,000, `1GiB` is 1,073,741,824.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "k" | "K" | "kiB" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn fraction(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|fraction| fraction.is_finite() && *fraction >= 0.0)
}

fn set_memory(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (first, second) = (call.word(0), call.words.get(1).cloned());
    let value = match (first.as_str(), second) {
        ("absolute", Some(limit)) => {
            let limit_bytes = bytes(&limit).ok_or_else(|| bad("."))?;
            call.say(&format!("Setting memory threshold on {} to {limit} bytes ...", call.node));
            json!({ "absolute": limit_bytes })
        }
        (_, Some(_)) => return Err(bad(".")),
        (text, None) => match fraction(text) {
            Some(part) if part <= 1.0 => {
                call.say(&format!("Setting memory threshold on {} to {text} ...", call.node));
                json!({ "relative": part })
            }
            Some(_) => return Err(bad(": The threshold should be a fraction between 0.0 and 1.0")),
            None => return Err(bad(".")),
        },
    };
    set(call, "vm_memory_high_watermark", &value)?;
    Ok(Output::Nothing)
}

fn set_disk(call: &mut Call<'_>) -> Result<Output, Failure> {
    let (first, second) = (call.word(0), call.words.get(1).cloned());
    let value = match (first.as_str(), second) {
        ("mem_relative", Some(text)) => {
            let part = fraction(&text).ok_or_else(|| bad("."))?;
            call.say(&format!(
                "Setting disk free limit on {} to {text} times the total RAM ...",
                call.node
            ));
            json!({ "mem_relative": part })
        }
        (_, Some(_)) => return Err(bad(".")),
        (limit, None) => {
            let limit_bytes = bytes(limit).ok_or_else(|| bad("."))?;
            call.say(&format!("Setting disk free limit on {} to {limit} bytes ...", call.node));
            json!({ "absolute": limit_bytes })
        }
    };
    set(call, "disk_free_limit", &value)?;
    Ok(Output::Nothing)
}

fn set_log_level(call: &mut Call<'_>) -> Result<Output, Failure> {
    let level = call.word(0);
    if !LEVELS.contains(&level.as_str()) {
        let text = format!("level {level} is not supported. Try one of {}", LEVELS.join(", "));
        return Err(Failure::new(UNAVAILABLE, text));
    }
    call.say(&format!("Setting log level to \"{level}\" ..."));
    set(call, "log_level", &json!(level))?;
    Ok(Output::Nothing)
}

fn track(call: &mut Call<'_>) -> Result<Output, Failure> {
    let is_on = call.command.name.starts_with("enable");
    set(call, "auth_attempt_source_tracking", &json!(is_on))?;
    Ok(Output::Nothing)
}

fn rotate(_: &mut Call<'_>) -> Result<Output, Failure> {
    let text = "This command does not rotate logs anymore [deprecated]";
    Err(Failure::new(UNAVAILABLE, text))
}

fn environment(call: &mut Call<'_>) -> Result<Output, Failure> {
    let settings = call.get(&["config", "effective"])?;
    let text = match serde_json::to_string_pretty(&settings) {
        Ok(text) => text,
        Err(_) => settings.to_string(),
    };
    Ok(Output::Object(settings, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_thousand_or_of_1024() {
        assert_eq!(bytes("100MB"), Some(100_000_000));
        assert_eq!(bytes("1GiB"), Some(1 << 30));
        assert_eq!(bytes("2G"), Some(2 << 30));
        assert_eq!(bytes("512"), Some(512));
        for wrong in ["", "MB", "1.5GB", "-1", "1 parsec", "99999999999999TB", "ü"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
