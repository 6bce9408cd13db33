//! Counts per message of a drive through the core, by callgrind.

use std::io;
use std::path::Path;
use std::process::Command;

/// What one message costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Instructions.
    pub instructions: f64,
    /// Reads and writes that miss the caches whose sizes were given, instructions fetched included; 0 without sizes.
    pub misses: f64,
    /// Items of mail between shards.
    pub mails: f64,
    /// Batches of mail.
    pub batches: f64,
    /// Bytes of mail.
    pub mail_bytes: f64,
}

/// Totals of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    messages: f64,
    count: Count,
}

/// Counts per message: the difference of a run with `messages` and one with twice as many, which leaves out what the
/// start costs. `words` are further ones for callgrind, such as `--cache-sim=yes`.
///
/// # Errors
/// When valgrind cannot be run or does not count.
pub fn count(drive: &str, messages: u64, scratch: &Path, words: &[String]) -> io::Result<Count> {
    let once = run(drive, messages, scratch, words)?;
    let twice = run(drive, 2 * messages, scratch, words)?;
    let messages = twice.messages - once.messages;
    let each = |of: fn(&Count) -> f64| (of(&twice.count) - of(&once.count)) / messages;
    Ok(Count {
        instructions: each(|count| count.instructions),
        misses: each(|count| count.misses),
        mails: each(|count| count.mails),
        batches: each(|count| count.batches),
        mail_bytes: each(|count| count.mail_bytes),
    })
}

fn run(drive: &str, messages: u64, scratch: &Path, words: &[String]) -> io::Result<Totals> {
    let output = scratch.join(format!("callgrind.{drive}"));
    let mut command = Command::new("valgrind");
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", output.display()))
        .args(words)
        .arg(std::env::current_exe()?)
        .args(["drive", drive, &messages.to_string()]);
    let ran = command.output()?;
    let said = read_said(&String::from_utf8_lossy(&ran.stdout));
    let profile = std::fs::read_to_string(&output)?;
    let counted = said.zip(read_profile(&profile));
    let Some((said, (instructions, misses))) = counted else {
        return Err(io::Error::other(format!(
            "valgrind did not count: {}",
            String::from_utf8_lossy(&ran.stderr)
        )));
    };
    Ok(Totals { count: Count { instructions, misses, ..said.count }, ..said })
}

/// `N messages, … ns each, N mails in N batches of N bytes`.
fn read_said(text: &str) -> Option<Totals> {
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [messages, _, mails, batches, mail_bytes] = numbers[..] else { return None };
    Some(Totals { messages, count: Count { mails, batches, mail_bytes, ..Count::default() } })
}

/// Instructions, and misses of the last of the caches: `totals:` by the names in `events:`.
fn read_profile(text: &str) -> Option<(f64, f64)> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let names = line("events:")?.split_whitespace();
    let totals = line("totals:")?.split_whitespace().map(|total| total.parse::<f64>().ok());
    let of: Vec<(&str, f64)> =
        names.zip(totals).filter_map(|(name, total)| Some((name, total?))).collect();
    let sum = |wanted: &[&str]| -> f64 {
        of.iter().filter(|(name, _)| wanted.contains(name)).map(|(_, total)| total).sum()
    };
    of.iter().any(|(name, _)| *name == "Ir").then(|| (sum(&["Ir"]), sum(&["ILmr", "DLmr", "DLmw"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_is_understood() {
        let said =
            read_said("819 messages, 912 ns each, 4 mails in 2 batches of 96 bytes\n").unwrap();
        assert_eq!((said.messages, said.count.mails, said.count.mail_bytes), (819.0, 4.0, 96.0));
        assert_eq!(read_said("no such load"), None);
        let profile = "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=x\n\
                       totals: 1000 300 200 9 8 7 1 2 4\n";
        assert_eq!(read_profile(profile), Some((1000.0, 7.0)));
        assert_eq!(read_profile("events: Ir\ntotals: 12\n"), Some((12.0, 0.0)));
        assert_eq!(read_profile("events: Dr\ntotals: 12\n"), None);
    }
}
