//! What the runtime and the broker tell, as log lines.

use crate::log::{Level, Log};
use crate::signal::Wish;
use lepus_broker::outbox::{Event, Severity};
use lepus_shard::Notice;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Events after which the broker cannot keep what it is sent.
const FATAL: [&str; 2] = ["log-stopped", "definitions-stopped"];

/// Starts a thread that writes notices to the log, and gives the place to send them to. It ends with
/// the last sender. What the broker cannot live with becomes a wish to stop.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(log: Log, wishes: Sender<Wish>) -> std::io::Result<Sender<Notice<Event>>> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("notices".to_owned());
    thread.spawn(move || {
        let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
        write_all(&receiver, &log, &wishes);
    })?;
    Ok(sender)
}

fn write_all(receiver: &Receiver<Notice<Event>>, log: &Log, wishes: &Sender<Wish>) {
    let mut failure = None;
    for notice in receiver {
        match &notice {
            // What the system said about it comes before what the broker makes of it.
            Notice::DiskFailed { failure: said, .. } => failure = Some(said.to_string()),
            Notice::Core { event, .. } if FATAL.contains(&event.kind) => {
                let reason = failure.take().unwrap_or_else(|| event.text.clone());
                let reason = format!("nothing can be kept any more: {reason}");
                // A failed send means that the main thread is past listening.
                let _ = wishes.send(Wish::Fail(reason));
            }
            _ => {}
        }
        write(notice, log);
    }
}

fn write(notice: Notice<Event>, log: &Log) {
    match notice {
        Notice::Core { shard, event } => {
            let level = match event.severity {
                Severity::Info => Level::Info,
                Severity::Warning => Level::Warning,
                Severity::Error => Level::Error,
            };
            let fields = vec![("shard", shard.to_string())];
            log.write(level, event.kind, event.text, fields);
        }
        Notice::Misplaced { shard, reason } => {
            let fields = vec![("shard", shard.to_string())];
            log.write(Level::Warning, "misplaced", reason, fields);
        }
        Notice::DiskFailed { shard, failure } => {
            let fields = vec![("shard", shard.to_string())];
            log.write(Level::Error, "disk-failed", failure.to_string(), fields);
        }
        Notice::AcceptFailed { address, reason } => {
            let fields = vec![("address", address.to_string())];
            log.write(Level::Error, "accept-failed", reason, fields);
        }
        Notice::ConnectionRefused { peer, connections_max } => {
            let text = format!(
                "closed at once: {connections_max} connections are open (limits.connections_max)"
            );
            let fields = vec![("peer", peer.to_string())];
            log.write(Level::Warning, "connection-refused", text, fields);
        }
        Notice::ConnectionFailed { peer, reason } => {
            let fields = vec![("peer", peer.to_string())];
            log.write(Level::Warning, "connection-failed", reason, fields);
        }
        Notice::TurnedAway { peer, expired, gave_way } => {
            let text = format!(
                "closed without a word of theirs: {expired} connections after \
                 limits.silence_timeout, {gave_way} to make room (limits.waiting_max)"
            );
            let fields = vec![("peer", peer.to_string())];
            log.write(Level::Warning, "connection-silent", text, fields);
        }
        Notice::TlsFailed { peer, reason } => {
            let fields = vec![("peer", peer.to_string())];
            log.write(Level::Warning, "tls-failed", reason, fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Format;
    use lepus_base::ShardId;
    use lepus_reactor::files::Failure;

    #[test]
    fn a_log_that_stopped_is_a_wish_to_stop() {
        let (wish, wishes) = channel();
        let log = Log::start(Level::Info, Format::Text, std::io::sink()).unwrap();
        let notices = start(log, wish).unwrap();
        let shard = ShardId(0);
        let tell = |kind: &'static str| {
            let text = format!("{kind} it is");
            let event = Event { severity: Severity::Error, kind, text };
            notices.send(Notice::Core { shard, event }).unwrap();
        };
        tell("log-damaged");
        tell("log-stopped");
        let failure = Failure { attempt: "write it".to_owned(), reason: "no".to_owned() };
        notices.send(Notice::DiskFailed { shard, failure }).unwrap();
        tell("definitions-stopped");
        drop(notices);
        let heard: Vec<Wish> = wishes.iter().collect();
        let reasons = ["log-stopped it is", "cannot write it: no"];
        let wished = |text| Wish::Fail(format!("nothing can be kept any more: {text}"));
        assert_eq!(heard, reasons.map(wished));
    }
}
