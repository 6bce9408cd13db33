//! What the runtime and the broker tell, as log lines.

use crate::log::{GATHERING_TIME, Level, Log};
use crate::signal::Wish;
use lepus_broker::outbox::{Event, Severity};
use lepus_shard::{Notice, NoticeReader, Notices};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Events after which the broker cannot keep what it is sent.
const FATAL: [&str; 2] = ["log-stopped", "definitions-stopped"];

/// The end of the thread that [`start`] starts.
#[derive(Debug)]
pub struct Ended(Receiver<()>);

impl Ended {
    /// Waits until all that was told is handed to the log, which is soon after the last sender has gone. Whether it is.
    pub fn wait(&self, patience: Duration) -> bool {
        self.0.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Starts a thread that writes notices to the log, and gives the place to send them to. It ends with
/// the last sender. What the broker cannot live with becomes a wish to stop. Of what comes faster than
/// it is written some is lost, which the log tells.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(log: Log, wishes: Sender<Wish>) -> std::io::Result<(Notices<Event>, Ended)> {
    let (notices, reader) = lepus_shard::notices(must_be_told);
    let (goes, ended) = channel();
    let thread = std::thread::Builder::new().name("notices".to_owned());
    thread.spawn(move || {
        let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
        write_all(&reader, &log, &wishes);
        drop(goes);
    })?;
    Ok((notices, Ended(ended)))
}

/// Whether it is never lost: what the broker cannot do any more, and what the system said about that.
/// Only disks make any of these.
fn must_be_told(notice: &Notice<Event>) -> bool {
    match notice {
        Notice::Core { event, .. } => event.severity == Severity::Error,
        Notice::DiskFailed { .. } => true,
        _ => false,
    }
}

fn write_all(reader: &NoticeReader<Event>, log: &Log, wishes: &Sender<Wish>) {
    let mut failure = None;
    for first in reader.iter() {
        handle(first, reader, log, wishes, &mut failure);
        // While this thread sleeps nobody pays for waking it.
        std::thread::sleep(GATHERING_TIME);
        for notice in reader.try_iter() {
            handle(notice, reader, log, wishes, &mut failure);
        }
    }
}

fn handle(
    notice: Notice<Event>,
    reader: &NoticeReader<Event>,
    log: &Log,
    wishes: &Sender<Wish>,
    failure: &mut Option<String>,
) {
    log.count_lost(reader.take_lost());
    match &notice {
        // What the system said about it comes before what the broker makes of it.
        Notice::DiskFailed { failure: said, .. } => *failure = Some(said.to_string()),
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
    use std::io::Write;
    use std::sync::mpsc::channel;

    #[test]
    fn a_log_that_stopped_is_a_wish_to_stop() {
        let (wish, wishes) = channel();
        let log = Log::start(Level::Info, Format::Text, std::io::sink()).unwrap();
        let (notices, ended) = start(log, wish).unwrap();
        assert!(!ended.wait(Duration::ZERO));
        let shard = ShardId(0);
        let tell = |kind: &'static str| {
            let text = format!("{kind} it is");
            let event = Event { severity: Severity::Error, kind, text };
            notices.tell(Notice::Core { shard, event });
        };
        tell("log-damaged");
        tell("log-stopped");
        let failure = Failure { attempt: "write it".to_owned(), reason: "no".to_owned() };
        notices.tell(Notice::DiskFailed { shard, failure });
        tell("definitions-stopped");
        drop(notices);
        assert!(ended.wait(Duration::from_secs(60)));
        let heard: Vec<Wish> = wishes.iter().collect();
        let reasons = ["log-stopped it is", "cannot write it: no"];
        let wished = |text| Wish::Fail(format!("nothing can be kept any more: {text}"));
        assert_eq!(heard, reasons.map(wished));
    }

    /// Sends on what is written, until the log's thread has ended.
    struct Target(Sender<Vec<u8>>);

    impl Write for Target {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_of_events_is_cut_and_counted_and_does_not_keep_the_end_from_being_heard() {
        let (wish, wishes) = channel();
        let (target, written) = channel();
        let log = Log::start(Level::Info, Format::Json, Target(target)).unwrap();
        let (notices, reader) = lepus_shard::notices(must_be_told);
        let tell = |severity, kind, text: &str| {
            let event = Event { severity, kind, text: text.to_owned() };
            notices.tell(Notice::Core { shard: ShardId(0), event });
        };
        // Nobody reads meanwhile.
        let flood = 100_000;
        (0..flood).for_each(|_| tell(Severity::Warning, "channel-error", "again"));
        tell(Severity::Error, FATAL[0], "the disk is gone");
        drop(notices);
        write_all(&reader, &log, &wish);
        drop(wish);
        let reason = "nothing can be kept any more: the disk is gone".to_owned();
        assert_eq!(wishes.iter().collect::<Vec<_>>(), [Wish::Fail(reason)]);
        drop(log);
        let text = String::from_utf8(written.iter().flatten().collect()).unwrap();
        let (mut counted, mut overflows) = (0, 0);
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let count = line["count"].as_str().map_or(1, |count| count.parse().unwrap());
            counted += count;
            overflows += u64::from(line["event"] == "log-overflow");
        }
        // Every event is written or counted.
        assert_eq!(counted, flood + 1);
        assert!((1..100).contains(&overflows), "{overflows} lines of an overflow");
    }
}
