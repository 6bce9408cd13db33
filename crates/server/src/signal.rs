//! What the operating system's signals ask for.

use crate::last_words;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;

/// Exit code after a second request to stop: the stop was not orderly.
const STOPPED_AT_ONCE: i32 = 130;

/// A request from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// SIGTERM or SIGINT: stop in order.
    Stop,
    /// SIGHUP: read what may change while running.
    Reload,
    /// A part of the broker cannot go on, for this reason: stop, and say so.
    Fail(String),
    /// The start is over, whatever came of it.
    Started,
}

/// Takes over the signals and sends the requests one by one. A second request to stop ends the
/// program at once, on a thread of its own, whatever else may hang.
///
/// # Errors
/// When the handlers or the thread cannot be set up.
pub fn send_wishes(sender: Sender<Wish>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let wish = if signal == SIGHUP { Wish::Reload } else { Wish::Stop };
            if wish == Wish::Stop && std::mem::replace(&mut stopping, true) {
                last_words::say("lepus: told to stop twice: ends at once");
                std::process::exit(STOPPED_AT_ONCE);
            }
            // A failed send means that the main thread is past listening.
            let _ = sender.send(wish);
        }
    })?;
    Ok(())
}
