//! Instructions per message in the pure core, counted by callgrind, and the ceiling they may not
//! pass: a figure that does not depend on what else the machine is doing. What two shards cost with traffic that
//! stays on each is held against what one costs: more cores are never slower.

use crate::bench::callgrind::{self, Count};
use crate::bench::core_drive::{DRIVES, Drive};
use crate::disk::named;
use crate::ground::Ground;
use crate::terminal::say_line;
use std::io;
use std::path::Path;

/// Messages of the shorter run; the longer one has twice as many, and their difference leaves out
/// what the start costs.
const MESSAGES: u64 = 50_000;
/// What a new ceiling allows above the count it is made from.
const MARGIN: f64 = 1.05;
/// What several shards may cost for one that one costs, where messages stay on their shard. It is 1.03 to 1.0505: where
/// the compiler inlines what, moves it by half a hundredth.
const SHARDS_MARGIN: f64 = 1.055;

/// Counts, prints, and compares with the ceilings in `file`; with `record` it writes them instead.
/// Whether no ceiling was passed.
///
/// # Errors
/// When valgrind cannot be run or the file cannot be read or written.
pub fn run(file: &Path, scratch: &Path, record: bool) -> io::Result<bool> {
    let ground = Ground::below(scratch)?;
    let text = std::fs::read_to_string(file).map_err(|error| named(file, &error))?;
    let mut kept = true;
    let mut ceilings = String::new();
    let mut counts: Vec<(Drive, Count)> = Vec::new();
    for drive in DRIVES.into_iter().filter(|drive| drive.has_ceiling) {
        let count = callgrind::count(drive.name, MESSAGES / drive.dear, ground.path(), &[])?;
        let each = count.instructions;
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
        say_line(format_args!("{:14} {each:.0} instructions per message, {verdict}", drive.name));
        let one = counts.iter().find(|(one, _)| drive.shards > 1 && one.is_one_shard_of(drive));
        if let Some((one, alone)) = one {
            let (text, is_good) = compare(one.name, alone, &count);
            say_line(format_args!("{:14} {text}", ""));
            kept &= is_good;
        }
        counts.push((drive, count));
    }
    if record {
        let comments = text.lines().filter(|line| line.starts_with('#'));
        let comments: String = comments.map(|line| format!("{line}\n")).collect();
        std::fs::write(file, comments + &ceilings)?;
        say_line(format_args!("recorded in {}", file.display()));
        return Ok(true);
    }
    Ok(kept)
}

/// Whether several shards cost a message no more than one does: in instructions, mail and wake-ups.
fn compare(name: &str, one: &Count, several: &Count) -> (String, bool) {
    let ratio = several.instructions / one.instructions;
    let is_good = ratio <= SHARDS_MARGIN
        && several.mails <= one.mails * SHARDS_MARGIN
        && several.batches <= one.batches * SHARDS_MARGIN;
    let verdict = match is_good {
        true => String::new(),
        false => format!(", ABOVE {SHARDS_MARGIN}: local traffic must not pay for further shards"),
    };
    let text = format!(
        "{ratio:.3} times {name} on one shard, {} mails and at most {} wake-ups per message{verdict}",
        several.mails, several.batches
    );
    (text, is_good)
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

    #[test]
    fn further_shards_may_not_cost_local_traffic_anything() {
        let one = Count { instructions: 1000.0, ..Count::default() };
        let good = Count { instructions: 1054.0, ..one };
        assert!(compare("a", &one, &good).1);
        let (text, is_good) = compare("a", &one, &Count { instructions: 1056.0, ..one });
        assert!(!is_good && text.contains("ABOVE"), "{text}");
        assert!(!compare("a", &one, &Count { mails: 0.01, ..good }).1);
        assert!(!compare("a", &one, &Count { batches: 0.01, ..good }).1);
    }

    #[test]
    fn loads_on_two_shards_know_theirs_on_one() {
        let pairs: Vec<(&str, &str)> = DRIVES
            .iter()
            .filter(|drive| drive.has_ceiling && drive.shards > 1)
            .filter_map(|drive| {
                let one = DRIVES.iter().find(|one| one.is_one_shard_of(*drive))?;
                Some((drive.name, one.name))
            })
            .collect();
        let expected = [("stream-16-two", "stream-16"), ("e4-single-two", "e4-single")];
        assert_eq!(pairs, expected);
    }
}
