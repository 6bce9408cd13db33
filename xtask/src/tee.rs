//! A command whose output is shown as it comes, and its end kept.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IsTerminal, PipeReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that are kept of each command.
const KEPT: usize = 24;
/// How long output is waited for when the command has ended: what it left running may hold the pipe.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// Runs `command` in `root`; what it prints goes to standard output.
///
/// # Errors
///
/// If the command does not succeed: the last lines it printed, and how it ended.
pub fn run(root: &Path, command: &[&str]) -> Result<(), Vec<String>> {
    let line = command.join(" ");
    println!("$ {line}");
    let (sender, lines) = mpsc::channel();
    let status = start(root, command, sender);
    let mut kept = VecDeque::new();
    let mut keep = |line| {
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    };
    let end = match status {
        Ok(mut child) => {
            let waiting = thread::spawn(move || child.wait());
            while !waiting.is_finished() {
                match lines.recv_timeout(Duration::from_millis(100)) {
                    Ok(line) => keep(line),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
            let end = Instant::now() + STRAGGLERS;
            let left = || end.saturating_duration_since(Instant::now());
            while let Ok(line) = lines.recv_timeout(left()) {
                keep(line);
            }
            match waiting.join() {
                Ok(Ok(status)) if status.success() => return Ok(()),
                Ok(Ok(status)) => format!("`{line}` ended with {status}"),
                Ok(Err(error)) => format!("`{line}` cannot be waited for: {error}"),
                Err(_) => format!("waiting for `{line}` failed"),
            }
        }
        Err(error) => format!("`{line}` cannot be started: {error}"),
    };
    println!("{end}");
    keep(end);
    Err(kept.into())
}

/// Starts the command; a thread shows its lines and sends each to `kept`.
fn start(
    root: &Path,
    command: &[&str],
    kept: Sender<String>,
) -> std::io::Result<std::process::Child> {
    let (reader, writer) = std::io::pipe()?;
    let mut process = Command::new(command[0]);
    process.args(&command[1..]).current_dir(root).stdout(writer.try_clone()?).stderr(writer);
    if std::io::stdout().is_terminal() {
        process.env("CARGO_TERM_COLOR", "always");
    }
    let child = process.spawn()?;
    thread::spawn(move || show(reader, &kept));
    Ok(child)
}

fn show(reader: PipeReader, kept: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let mut out = std::io::stdout().lock();
        // Who reads no more does not end the check.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        drop(out);
        if kept.send(String::from_utf8_lossy(&line).trim_end().into()).is_err() {
            return;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<(), Vec<String>> {
        run(Path::new("/"), &["sh", "-c", script])
    }

    #[test]
    fn what_succeeds_leaves_nothing() {
        assert_eq!(shell("echo fine"), Ok(()));
    }

    #[test]
    fn what_fails_leaves_its_last_lines_of_both_streams() {
        let lines = shell("seq 100; echo wrong >&2; exit 3").unwrap_err();
        assert_eq!(lines.len(), KEPT);
        assert_eq!(lines[KEPT - 3..KEPT - 1], ["100", "wrong"]);
        assert!(lines[KEPT - 1].ends_with("exit status: 3"), "{}", lines[KEPT - 1]);
    }

    #[test]
    fn what_was_left_running_is_not_waited_for() {
        let lines = shell("sleep 600 & echo $!; exit 1").unwrap_err();
        let left = lines[0].clone();
        // It still runs, and was not waited for.
        assert!(Command::new("kill").arg(left).status().unwrap().success());
    }

    #[test]
    fn what_does_not_exist_is_told() {
        let lines = run(Path::new("/"), &["/no/such/program"]).unwrap_err();
        assert!(lines[0].contains("cannot be started"), "{}", lines[0]);
    }
}
