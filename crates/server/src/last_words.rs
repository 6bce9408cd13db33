//! What is said on standard output at the start and on standard error right before the end: whoever does
//! not read it can keep the program neither from serving nor from ending.

use std::backtrace::Backtrace;
use std::io::Write;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long the start and the end wait for an output that takes nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// Writes a line to standard error, and gives up soon if that takes nothing.
pub fn say(text: &str) {
    let line = format!("{text}\n");
    within(PATIENCE, move || {
        // It may be gone; there is no other place to say it.
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
}

/// Writes to standard output, and gives up soon if that takes nothing.
pub fn greet(text: String) {
    within(PATIENCE, move || {
        // Without a standard output there is nobody to greet.
        let _ = std::io::stdout().write_all(text.as_bytes());
    });
}

/// Carries `write` out on a thread of its own and waits for it, but not longer than `patience`.
fn within(patience: Duration, write: impl FnOnce() + Send + 'static) {
    let (done, over) = sync_channel(1);
    let thread = std::thread::Builder::new().name("last-words".to_owned());
    let spawned = thread.spawn(move || {
        write();
        // Whoever waited may have given up.
        let _ = done.try_send(());
    });
    if spawned.is_ok() {
        let _ = over.recv_timeout(patience);
    }
}

/// From now on a panic says so without waiting for whoever reads standard error, and that of a thread
/// that the broker cannot go on without ends the program at once.
pub fn take_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        say(&format!("lepus: thread {name}: {panic}\n{}", Backtrace::capture()));
        if lepus_shard::is_vital_thread() {
            std::process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let (never, read) = channel::<()>();
        within(Duration::from_millis(1), move || {
            let _ = read.recv();
        });
        // It is still being written when the wait is over.
        assert_eq!(never.send(()), Ok(()));
    }

    #[test]
    fn what_is_taken_is_waited_for() {
        let (sender, receiver) = channel();
        within(Duration::from_secs(60), move || sender.send("said").unwrap());
        assert_eq!(receiver.try_recv(), Ok("said"));
    }
}
