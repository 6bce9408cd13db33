//! What is told in the terminal. A reader that went away is no failure: what is measured goes on, and its report is written.

#[cfg(feature = "bench")]
use std::fmt::Display;
use std::io::Write;

/// Prints to standard output, as it is.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a line to standard output.
#[cfg(feature = "bench")]
pub fn say_line(line: impl Display) {
    say(&format!("{line}\n"));
}

/// Prints the beginning of a line to standard error, whose rest comes later.
#[cfg(feature = "bench")]
pub fn hint(text: impl Display) {
    let _ = write!(std::io::stderr(), "{text}");
}
