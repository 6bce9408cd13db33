//! Passwords from the operator, and their hashes.

use crate::random;
use lepus_broker::directory::{HashingAlgorithm, PasswordHash};
use lepus_console::to_stderr;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::{flag, low_level};
use std::io::{self, BufRead, IsTerminal, Read, Write, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Bytes of a password from standard input at most, without the end of its line.
const PASSWORD_BYTES_MAX: usize = 64 << 10;

/// What ends or stops a program that waits at a terminal.
const ENDS: [i32; 5] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP];

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
        let hidden = Hidden::start().map_err(|error| {
            format!("cannot read the password without showing it: {error}; give it by a pipe")
        })?;
        ask();
        Some(hidden)
    } else {
        None
    };
    let read = first_line(&mut input.lock());
    if let Some(hidden) = hidden {
        hidden.end();
    }
    read
}

/// Who cannot read the question may still answer it.
fn ask() {
    let _ = write!(io::stderr(), "password: ");
}

/// The first line of `input` without its end.
fn first_line(input: &mut impl BufRead) -> Result<String, String> {
    let mut line = Vec::new();
    // Room for both letters of the line's end.
    let mut bounded = input.take(PASSWORD_BYTES_MAX as u64 + 2);
    bounded
        .read_until(b'\n', &mut line)
        .map_err(|error| format!("cannot read the password: {error}"))?;
    while let Some(b'\n' | b'\r') = line.last() {
        line.pop();
    }
    if line.len() > PASSWORD_BYTES_MAX {
        return Err(format!("the password is longer than {PASSWORD_BYTES_MAX} bytes"));
    }
    String::from_utf8(line).map_err(|_| "the password is not UTF-8".to_owned())
}

/// The terminal at standard input while it does not show what is typed. What ends the program meanwhile has it show that
/// again first.
struct Hidden {
    before: Termios,
    is_over: Arc<AtomicBool>,
    handle: Handle,
    watch: JoinHandle<()>,
}

impl Hidden {
    fn start() -> io::Result<Hidden> {
        let before = tcgetattr(stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        let mut signals = Signals::new(ENDS)?;
        let handle = signals.handle();
        let is_over = Arc::new(AtomicBool::new(false));
        for signal in ENDS {
            // A handler stays. Afterwards it does what the signal did before.
            flag::register_conditional_default(signal, Arc::clone(&is_over))?;
        }
        let (shown, hidden) = (before.clone(), silent.clone());
        let watch = std::thread::Builder::new().name("password".to_owned()).spawn(move || {
            for signal in signals.forever() {
                show(&shown);
                // Only a stop comes back, once the program is told to go on.
                let _ = low_level::emulate_default_handler(signal);
                let _ = tcsetattr(stdin(), OptionalActions::Flush, &hidden);
                ask();
            }
        })?;
        tcsetattr(stdin(), OptionalActions::Flush, &silent)?;
        Ok(Hidden { before, is_over, handle, watch })
    }

    fn end(self) {
        self.handle.close();
        // The watch has no way to panic; without it there is nothing to wait for.
        let _ = self.watch.join();
        self.is_over.store(true, Ordering::SeqCst);
        show(&self.before);
    }
}

/// Ends the line of the question and has the terminal be as it was.
fn show(before: &Termios) {
    // Should it fail, the shell sets its terminal up again itself.
    let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    to_stderr("");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_a_line_of_bounded_length() {
        let line = |bytes: &[u8]| first_line(&mut &*bytes.to_vec());
        assert_eq!(line(b"secret\r\nmore"), Ok("secret".to_owned()));
        assert_eq!(line(b"secret"), Ok("secret".to_owned()));
        assert_eq!(line(b""), Ok(String::new()));
        let longest = "x".repeat(PASSWORD_BYTES_MAX);
        assert_eq!(line(format!("{longest}\r\n").as_bytes()), Ok(longest.clone()));
        let error = line(format!("{longest}x\n").as_bytes()).unwrap_err();
        assert_eq!(error, "the password is longer than 65536 bytes");
        assert!(line(b"\xff\n").unwrap_err().contains("not UTF-8"));
    }

    #[test]
    fn input_without_an_end_is_not_read_to_it() {
        let mut zeros = io::BufReader::new(io::repeat(0).take(1 << 30));
        assert!(first_line(&mut zeros).unwrap_err().contains("longer than"));
        assert!(zeros.get_ref().limit() > (1 << 30) - (1 << 20));
    }
}
