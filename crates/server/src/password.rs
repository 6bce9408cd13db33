//! Passwords from the operator, and their hashes.

use crate::random;
use lepus_broker::directory::{HashingAlgorithm, PasswordHash};
use lepus_perf::to_stderr;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{IsTerminal, Stdin, Write, stdin};

/// The hash of a password as definitions files hold it (SHA-256 with a random salt, base64). Without
/// a password it is read from standard input.
///
/// # Errors
/// When there is none, or no random salt.
pub fn hash(password: Option<String>) -> Result<String, String> {
    let password = match password {
        Some(password) => password,
        None => read()?,
    };
    if password.is_empty() {
        return Err("the password is empty".to_owned());
    }
    let salt = random::bytes().map_err(|error| format!("no random salt: {error}"))?;
    let hash = PasswordHash::new(HashingAlgorithm::Sha256, password.as_bytes(), salt);
    Ok(hash.to_base64())
}

/// One line of standard input; a terminal is asked and does not show what is typed.
fn read() -> Result<String, String> {
    let input = stdin();
    let hidden = if input.is_terminal() {
        // Who cannot read the question may still answer it.
        let _ = write!(std::io::stderr(), "password: ");
        Hidden::start(&input)
    } else {
        None
    };
    let mut line = String::new();
    let read = input.read_line(&mut line);
    if let Some(hidden) = hidden {
        hidden.end(&input);
    }
    read.map_err(|error| format!("cannot read the password: {error}"))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A terminal that does not show what is typed.
struct Hidden {
    before: Termios,
}

impl Hidden {
    fn start(terminal: &Stdin) -> Option<Hidden> {
        let before = tcgetattr(terminal).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &silent).ok()?;
        Some(Hidden { before })
    }

    fn end(self, terminal: &Stdin) {
        // Should it fail, the shell sets its terminal up again itself.
        let _ = tcsetattr(terminal, OptionalActions::Now, &self.before);
        to_stderr("");
    }
}
