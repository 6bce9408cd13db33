//! Structured log lines on standard error, written by a thread of their own.
//!
//! Whoever logs hands a line over through a bounded channel and never waits: when the channel is
//! full the line is counted and dropped, and that count follows, once a second at most. A kind that
//! repeats more than [`LINES_PER_SECOND_MAX`] times within a second is cut short in a similar way.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lines of one kind that are written within a second; further ones are counted.
pub const LINES_PER_SECOND_MAX: u32 = 50;
/// How long a thread that was woken by a line leaves those alone that come next: nobody wakes it for them. A wake costs
/// some ten microseconds on both sides, as much as opening a connection takes besides.
pub(crate) const GATHERING_TIME: Duration = Duration::from_millis(10);
/// Lines that are written together.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// How long the writing thread sleeps when nothing is logged.
const IDLE_SECONDS: u64 = 86_400;
/// Lines that may wait for the writing thread.
const WAITING_LINES_MAX: usize = 4096;

/// Lines that are kept to be shown, and the bytes of all of them.
const RECENT_MAX: usize = 10_000;
const RECENT_BYTES_MAX: usize = 2 << 20;

/// How important a line is, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The broker cannot do what it promised.
    Error,
    /// Something was refused or is odd.
    Warning,
    /// Ordinary life.
    Info,
    /// For looking closely.
    Debug,
}

impl Level {
    /// The level's name, as in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// The level with this name; unknown names give the most talkative one.
    #[must_use]
    pub fn from_name(name: &str) -> Level {
        let levels = [Level::Error, Level::Warning, Level::Info];
        let known = levels.into_iter().find(|level| level.name() == name);
        known.unwrap_or(Level::Debug)
    }
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `time=… level=… event=… key=value text="…"`
    Text,
    /// One JSON object.
    Json,
}

#[derive(Debug)]
struct Line {
    level: Level,
    at: SystemTime,
    kind: &'static str,
    text: String,
    fields: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum Entry {
    Line(Line),
    Flush(SyncSender<()>),
}

/// The last lines that were written, oldest first.
#[derive(Debug, Default)]
struct Recent {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines that there ever were.
    ever: u64,
}

impl Recent {
    fn push(&mut self, line: String) {
        self.ever += 1;
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > RECENT_MAX || self.bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

/// A handle for logging; clones write to the same place.
#[derive(Clone, Debug)]
pub struct Log {
    /// The number of the least important [`Level`] that is written.
    level: Arc<AtomicU8>,
    sender: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
    recent: Arc<Mutex<Recent>>,
}

impl Log {
    /// Starts the writing thread, which ends with the last handle.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        level: Level,
        format: Format,
        target: impl Write + Send + 'static,
    ) -> std::io::Result<Log> {
        let (sender, receiver) = sync_channel(WAITING_LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let recent = Arc::<Mutex<Recent>>::default();
        let writer = Writer {
            format,
            target,
            recent: Arc::clone(&recent),
            dropped: Arc::clone(&dropped),
            lost: 0,
            lost_told: 0,
            limits: HashMap::new(),
            unwritten: Vec::new(),
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            let _enrolled = lepus_profile::enroll(lepus_profile::Group::Service);
            writer.run(&receiver);
        })?;
        let level = Arc::new(AtomicU8::new(level as u8));
        Ok(Log { level, sender, dropped, recent })
    }

    /// From now on lines up to this level are written.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// The last lines that were written, at most `count` and none of the first `after`, oldest first, and how many there
    /// ever were; ten thousand are kept, or what 2 MiB hold.
    #[must_use]
    pub fn recent(&self, after: u64, count: usize) -> (Vec<String>, u64) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let later = usize::try_from(recent.ever.saturating_sub(after)).unwrap_or(usize::MAX);
        let skipped = recent.lines.len().saturating_sub(count.min(later));
        (recent.lines.iter().skip(skipped).cloned().collect(), recent.ever)
    }

    /// Writes a line: `kind` is a fixed, greppable name, `text` says it in plain words.
    pub fn write(
        &self,
        level: Level,
        kind: &'static str,
        text: impl Into<String>,
        fields: Vec<(&'static str, String)>,
    ) {
        if level as u8 > self.level.load(Ordering::Relaxed) {
            return;
        }
        let line = Line { level, at: SystemTime::now(), kind, text: text.into(), fields };
        if self.sender.try_send(Entry::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts lines that were lost before they came here, as if there had been no room for them.
    pub fn count_lost(&self, lines: u64) {
        if lines > 0 {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Writes an error without further fields.
    pub fn error(&self, kind: &'static str, text: impl Into<String>) {
        self.write(Level::Error, kind, text, Vec::new());
    }

    /// Writes a warning without further fields.
    pub fn warning(&self, kind: &'static str, text: impl Into<String>) {
        self.write(Level::Warning, kind, text, Vec::new());
    }

    /// Writes an ordinary line without further fields.
    pub fn info(&self, kind: &'static str, text: impl Into<String>) {
        self.write(Level::Info, kind, text, Vec::new());
    }

    /// Waits until all that was logged before is written, but not longer than `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let (sender, receiver) = sync_channel(1);
        if self.sender.try_send(Entry::Flush(sender)).is_ok() {
            // A timeout means that standard error takes nothing; there is no one to tell.
            let _ = receiver.recv_timeout(timeout);
        }
    }
}

/// Counts one kind within the running second.
#[derive(Debug, Default)]
struct KindLimit {
    second: u64,
    written: u32,
    suppressed: u64,
}

struct Writer<W> {
    format: Format,
    target: W,
    recent: Arc<Mutex<Recent>>,
    dropped: Arc<AtomicU64>,
    /// Dropped lines that are to be told.
    lost: u64,
    /// The second in which some were told last.
    lost_told: u64,
    limits: HashMap<&'static str, KindLimit>,
    /// Lines that are to be written with what comes next.
    unwritten: Vec<u8>,
}

impl<W: Write> Writer<W> {
    fn run(mut self, receiver: &Receiver<Entry>) {
        loop {
            // Without a count to report there is nothing to wake up for.
            let counting = self.lost > 0 || self.limits.values().any(|limit| limit.suppressed > 0);
            let wait = Duration::from_secs(if counting { 1 } else { IDLE_SECONDS });
            match receiver.recv_timeout(wait) {
                Ok(first) => {
                    self.handle(first);
                    self.write_out();
                    std::thread::sleep(GATHERING_TIME);
                    for entry in receiver.try_iter() {
                        self.handle(entry);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.report_suppressed(seconds(SystemTime::now()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.report_suppressed(u64::MAX);
                    self.report_lost(u64::MAX);
                    return self.write_out();
                }
            }
            self.report_lost(seconds(SystemTime::now()));
            self.write_out();
        }
    }

    fn handle(&mut self, entry: Entry) {
        match entry {
            Entry::Line(line) => self.take(&line),
            Entry::Flush(done) => {
                self.report_suppressed(u64::MAX);
                self.report_lost(u64::MAX);
                self.write_out();
                let _ = done.try_send(());
            }
        }
        self.report_lost(seconds(SystemTime::now()));
    }

    /// Tells how many lines were dropped, unless that was told in this second.
    fn report_lost(&mut self, second: u64) {
        self.lost += self.dropped.swap(0, Ordering::Relaxed);
        if self.lost > 0 && self.lost_told != second {
            let lost = std::mem::take(&mut self.lost);
            self.lost_told = seconds(SystemTime::now());
            self.put_count("log-overflow", "lines were lost: the log is too slow", lost);
        }
    }

    fn take(&mut self, line: &Line) {
        let second = seconds(line.at);
        self.report_suppressed(second);
        let limit = self.limits.entry(line.kind).or_default();
        if limit.second != second {
            limit.second = second;
            limit.written = 0;
        }
        if limit.written >= LINES_PER_SECOND_MAX {
            limit.suppressed += 1;
            return;
        }
        limit.written += 1;
        self.put(line);
    }

    /// Tells how many lines were cut in seconds before `now`.
    fn report_suppressed(&mut self, now: u64) {
        let mut due: Vec<(&'static str, u64)> = Vec::new();
        for (kind, limit) in &mut self.limits {
            if limit.suppressed > 0 && limit.second < now {
                due.push((*kind, std::mem::take(&mut limit.suppressed)));
            }
        }
        due.sort_unstable();
        for (kind, count) in due {
            self.put_count(kind, "more of this kind within one second", count);
        }
    }

    fn put_count(&mut self, kind: &'static str, text: &str, count: u64) {
        self.put(&Line {
            level: Level::Warning,
            at: SystemTime::now(),
            kind,
            text: text.to_owned(),
            fields: vec![("count", count.to_string())],
        });
    }

    fn put(&mut self, line: &Line) {
        let mut out = match self.format {
            Format::Text => text_line(line),
            Format::Json => json_line(line),
        };
        out.push('\n');
        self.unwritten.extend_from_slice(out.as_bytes());
        if self.unwritten.len() >= WRITE_BYTES_MAX {
            self.write_out();
        }
        out.pop();
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).push(out);
    }

    fn write_out(&mut self) {
        if !self.unwritten.is_empty() {
            // Standard error may be gone; the broker goes on.
            let _ = self.target.write_all(&self.unwritten);
            self.unwritten.clear();
            self.unwritten.shrink_to(WRITE_BYTES_MAX);
        }
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

fn text_line(line: &Line) -> String {
    let mut out =
        format!("time={} level={} event={}", timestamp(line.at), line.level.name(), line.kind);
    for (key, value) in &line.fields {
        let plain = !value.is_empty()
            && value.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '='));
        if plain {
            out.push_str(&format!(" {key}={value}"));
        } else {
            out.push_str(&format!(" {key}={}", quoted(value)));
        }
    }
    out.push_str(&format!(" text={}", quoted(&line.text)));
    out
}

fn json_line(line: &Line) -> String {
    let string = quoted;
    let mut out = format!(
        "{{\"time\":\"{}\",\"level\":\"{}\",\"event\":{},\"text\":{}",
        timestamp(line.at),
        line.level.name(),
        string(line.kind),
        string(&line.text)
    );
    for (key, value) in &line.fields {
        out.push_str(&format!(",{}:{}", string(key), string(value)));
    }
    out.push('}');
    out
}

/// The text as a JSON string, in which everything is escaped that a terminal obeys or does not show:
/// what clients say comes in here.
fn quoted(text: &str) -> String {
    let string = serde_json::Value::from(text).to_string();
    if string.is_ascii() && !string.contains('\x7f') {
        return string;
    }
    let mut out = String::with_capacity(string.len() + 16);
    for character in string.chars() {
        if is_hidden(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out
}

/// Whether a character is none that one sees: control, direction, separators of lines, tags.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// `2026-01-31T23:59:59.123Z` (RFC 3339, UTC).
pub(crate) fn timestamp(at: SystemTime) -> String {
    let age = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (age.as_secs() / 86_400, age.as_secs() % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
        age.subsec_millis()
    )
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // Whole 400-year periods first, so that the loop below stays short.
    let mut year = 1970 + days / 146_097 * 400;
    let mut left = days % 146_097;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn the_last_lines_are_kept_within_bounds() {
        let mut recent = Recent::default();
        for number in 0..RECENT_MAX + 5 {
            recent.push(number.to_string());
        }
        assert_eq!((recent.lines.len(), recent.lines[0].as_str()), (RECENT_MAX, "5"));
        recent.push("x".repeat(RECENT_BYTES_MAX));
        assert_eq!((recent.lines.len(), recent.bytes), (1, RECENT_BYTES_MAX));
        recent.push("x".repeat(RECENT_BYTES_MAX + 1));
        assert_eq!((recent.lines.len(), recent.bytes), (0, 0));
    }

    #[test]
    fn the_level_may_change_and_what_was_written_is_shown() {
        let log = Log::start(Level::Info, Format::Text, std::io::sink()).unwrap();
        let write = |kind| log.write(Level::Debug, kind, "text", Vec::new());
        write("unseen");
        log.set_level(Level::Debug);
        write("seen");
        log.set_level(Level::Error);
        write("unseen");
        log.flush(Duration::from_secs(60));
        let (lines, end) = log.recent(0, 10);
        assert!(lines.len() == 1 && lines[0].contains("event=seen"), "{lines:?}");
        assert_eq!(end, 1);
        for (after, count) in [(0, 0), (1, 10), (u64::MAX, 10)] {
            assert_eq!(log.recent(after, count), (Vec::new(), 1));
        }
    }

    #[test]
    fn what_a_terminal_obeys_or_hides_is_escaped() {
        let text = "a\u{202e}b\u{2028}c\u{7f}\u{9b}1m\u{e0041}\u{1b}ä\"";
        let expected = "\"a\\u202eb\\u2028c\\u007f\\u009b1m\\udb40\\udc41\\u001bä\\\"\"";
        assert_eq!(quoted(text), expected);
        assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
    }

    /// What was written, and in how many calls.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut memory = self.0.lock().unwrap();
            memory.0.extend_from_slice(bytes);
            memory.1 += 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(format: Format, write: impl Fn(&Log)) -> Vec<String> {
        let memory = Memory::default();
        let log = Log::start(Level::Info, format, memory.clone()).unwrap();
        write(&log);
        log.flush(Duration::from_secs(30));
        let bytes = memory.0.lock().unwrap().0.clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_is_key_value_text_that_cannot_be_forged() {
        let lines = written(Format::Text, |log| {
            let fields = vec![("shard", "1".to_owned()), ("peer", "a b=\"c\"".to_owned())];
            log.write(Level::Info, "opened", "first\ntime=0 forged", fields);
            log.write(Level::Debug, "opened", "below the level", Vec::new());
        });
        assert_eq!(lines.len(), 1);
        let (time, rest) = lines[0].split_once(' ').unwrap();
        assert!(time.starts_with("time=2") && time.ends_with('Z'), "{time}");
        assert_eq!(
            rest,
            r#"level=info event=opened shard=1 peer="a b=\"c\"" text="first\ntime=0 forged""#
        );
    }

    #[test]
    fn lines_that_come_together_are_written_together() {
        const LINES: usize = LINES_PER_SECOND_MAX as usize;
        let memory = Memory::default();
        let log = Log::start(Level::Info, Format::Text, memory.clone()).unwrap();
        for _ in 0..LINES {
            log.info("opened", "again");
        }
        log.flush(Duration::from_secs(30));
        let memory = memory.0.lock().unwrap();
        let lines = memory.0.iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(lines, LINES);
        // The first alone; each further one after a rest, within which the others came.
        assert!(memory.1 < LINES / 4, "{} calls", memory.1);
    }

    #[test]
    fn a_json_line_is_an_object() {
        let lines = written(Format::Json, |log| {
            log.write(Level::Error, "broken", "a \"b\"", vec![("n", "5".to_owned())]);
        });
        let object: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(object["event"], "broken");
        assert_eq!(object["text"], "a \"b\"");
        assert_eq!(object["n"], "5");
        assert_eq!(object["level"], "error");
    }

    #[test]
    fn a_kind_that_repeats_is_cut_and_counted() {
        let sent = 4 * u64::from(LINES_PER_SECOND_MAX);
        let lines = written(Format::Json, |log| {
            for _ in 0..sent {
                log.info("storm", "again");
            }
            log.info("calm", "once");
        });
        let mut counted = 0;
        for line in &lines {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            if object["event"] == "storm" {
                let cut = object["count"].as_str().map(|count| count.parse().unwrap());
                counted += cut.unwrap_or(1);
            }
        }
        assert_eq!(counted, sent);
        // The burst may straddle seconds, yet it stays far below what was sent.
        assert!(lines.len() < sent as usize, "{}", lines.len());
        assert!(lines.iter().any(|line| line.contains("calm")));
    }

    #[test]
    fn dates_follow_the_calendar() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59.000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000Z");
    }
}
