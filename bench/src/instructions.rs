//! Instructions per message in the pure core, counted by callgrind, and the ceiling they may not
//! pass: a figure that does not depend on what else the machine is doing.

use crate::core_drive::DRIVES;
use std::io;
use std::path::Path;
use std::process::Command;

/// Messages of the shorter run; the longer one has twice as many, and their difference leaves out
/// what the start costs.
const MESSAGES: u64 = 50_000;
/// What a new ceiling allows above the count it is made from.
const MARGIN: f64 = 1.05;

/// Counts, prints, and compares with the ceilings in `file`; with `record` it writes them instead.
/// Whether no ceiling was passed.
///
/// # Errors
/// When valgrind cannot be run or the file cannot be read or written.
pub fn run(file: &Path, scratch: &Path, record: bool) -> io::Result<bool> {
    std::fs::create_dir_all(scratch)?;
    let text = std::fs::read_to_string(file)?;
    let mut kept = true;
    let mut ceilings = String::new();
    for drive in DRIVES {
        let once = count(drive.name, MESSAGES, scratch)?;
        let twice = count(drive.name, 2 * MESSAGES, scratch)?;
        let messages = (twice.messages - once.messages) as f64;
        let each = (twice.instructions - once.instructions) as f64 / messages;
        let new = (each * MARGIN).ceil();
        ceilings.push_str(&format!("{} {new}\n", drive.name));
        let verdict = match ceiling(&text, drive.name) {
            Some(ceiling) if each <= ceiling => format!("ceiling {ceiling}"),
            Some(ceiling) => {
                kept = false;
                format!(
                    "ABOVE the ceiling of {ceiling}: make it shorter, or raise the ceiling with \
                     `lepus-bench instructions --record yes` and say why in the commit"
                )
            }
            None => "no ceiling".to_owned(),
        };
        println!("{:10} {each:.0} instructions per message, {verdict}", drive.name);
    }
    if record {
        let comments = text.lines().filter(|line| line.starts_with('#'));
        let comments: String = comments.map(|line| format!("{line}\n")).collect();
        std::fs::write(file, comments + &ceilings)?;
        println!("recorded in {}", file.display());
        return Ok(true);
    }
    Ok(kept)
}

struct Count {
    messages: u64,
    instructions: u64,
}

fn count(drive: &str, messages: u64, scratch: &Path) -> io::Result<Count> {
    let output = scratch.join(format!("callgrind.{drive}"));
    let mut command = Command::new("valgrind");
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe()?)
        .args(["drive", drive, &messages.to_string()]);
    let ran = command.output()?;
    let printed = String::from_utf8_lossy(&ran.stdout);
    let messages = printed.split_whitespace().next();
    let profile = std::fs::read_to_string(&output)?;
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
    match (number(messages), number(totals)) {
        (Some(messages), Some(instructions)) => Ok(Count { messages, instructions }),
        _ => Err(io::Error::other(format!(
            "valgrind did not count: {}",
            String::from_utf8_lossy(&ran.stderr)
        ))),
    }
}

/// The number behind `name` in the file of ceilings.
fn ceiling(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_found_by_name() {
        let text = "# a comment\na 12\nb 7\n";
        assert_eq!(ceiling(text, "b"), Some(7.0));
        assert_eq!(ceiling(text, "c"), None);
        assert_eq!(ceiling(text, "#"), None);
    }
}
