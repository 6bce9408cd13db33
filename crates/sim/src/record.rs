//! What happened to the queues of a run, written down and played again.
//!
//! A record is a list of entries: a letter, the queue's number in 8 bytes, the length of a line in 4, the line. The letter
//! `b` begins a queue, `c` is a command, `e` ends a queue with the digest of its last state. A queue that goes to another
//! shard goes on in the same record.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lepus_queue::{Recorder, Replay};

const BEGINS: u8 = b'b';
const COMMAND: u8 = b'c';
const ENDS: u8 = b'e';

/// A record that is being written.
///
/// Whatever a [`Recorder`] is told panics when it cannot be written.
pub struct QueueRecord<W>(Mutex<Inner<W>>);

struct Inner<W> {
    queues: u64,
    out: W,
}

impl<W: Write> QueueRecord<W> {
    /// A record that goes there. Queues are numbered from 0 on.
    pub fn new(out: W) -> QueueRecord<W> {
        QueueRecord(Mutex::new(Inner { queues: 0, out }))
    }

    /// Ends the record.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn finish(&self) -> io::Result<()> {
        self.inner().out.flush()
    }

    /// Looks at what was written.
    pub fn look<R>(&self, look: impl FnOnce(&W) -> R) -> R {
        look(&self.inner().out)
    }

    fn inner(&self) -> MutexGuard<'_, Inner<W>> {
        // A queue may end while a failed run unwinds.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> Inner<W> {
    fn write(&mut self, letter: u8, queue: u64, line: &[u8]) {
        let length = u32::try_from(line.len()).expect("a line is shorter than 4 GiB");
        let parts = [&[letter][..], &queue.to_le_bytes(), &length.to_le_bytes(), line];
        let written = parts.into_iter().try_for_each(|part| self.out.write_all(part));
        written.expect("the record of queues can be written");
    }
}

impl<W> fmt::Debug for QueueRecord<W> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("QueueRecord")
    }
}

impl<W: Write + Send> Recorder for QueueRecord<W> {
    fn begin(&self, line: &[u8]) -> u64 {
        let mut inner = self.inner();
        let queue = inner.queues;
        inner.queues += 1;
        inner.write(BEGINS, queue, line);
        queue
    }

    fn applied(&self, queue: u64, line: &[u8]) {
        self.inner().write(COMMAND, queue, line);
    }

    fn end(&self, queue: u64, digest: u64) {
        self.inner().write(ENDS, queue, &digest.to_le_bytes());
    }
}

/// What a record had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Queues, each of which ended as it did then.
    pub queues: u64,
    /// Commands of all of them.
    pub commands: u64,
}

/// Plays a record: each queue is made of nothing by its commands, and has to end in the state it had.
///
/// # Errors
/// When it is no record, ends early, or a queue has another state in the end.
///
/// # Panics
/// When a queue asks its shard for something else than it did then.
pub fn replay(mut input: impl Read) -> Result<Played, String> {
    let mut queues: BTreeMap<u64, Replay> = BTreeMap::new();
    let mut played = Played::default();
    let mut line = Vec::new();
    while let Some((letter, number)) = take(&mut input, &mut line)? {
        let wrong = |what: &str| Err(format!("queue {number}: {what}"));
        match letter {
            BEGINS => {
                let Some(queue) = Replay::begin(&line) else { return wrong("no beginning") };
                if queues.insert(number, queue).is_some() {
                    return wrong("begins twice");
                }
            }
            COMMAND => {
                let Some(queue) = queues.get_mut(&number) else { return wrong("did not begin") };
                queue.apply(&line).map_err(|what| format!("queue {number}: {what}"))?;
                played.commands += 1;
            }
            ENDS => {
                let Some(queue) = queues.remove(&number) else { return wrong("did not begin") };
                if queue.digest().to_le_bytes() != line[..] {
                    return wrong(&format!("another state in the end: {:#?}", queue.queue()));
                }
                played.queues += 1;
            }
            _ => return Err("this is no record of queues".into()),
        }
    }
    match queues.keys().next() {
        Some(number) => Err(format!("queue {number} has no end")),
        None => Ok(played),
    }
}

/// The next entry: its letter, its queue, its line; `None` at the end.
fn take(input: &mut impl Read, line: &mut Vec<u8>) -> Result<Option<(u8, u64)>, String> {
    let mut letter = [0];
    let mut read = |bytes: &mut [u8]| input.read_exact(bytes);
    match read(&mut letter) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.to_string()),
    }
    let (mut queue, mut length) = ([0; 8], [0; 4]);
    let early = |error: io::Error| format!("the record ends within an entry: {error}");
    read(&mut queue).map_err(early)?;
    read(&mut length).map_err(early)?;
    line.clear();
    let length = u64::from(u32::from_le_bytes(length));
    let found = input.take(length).read_to_end(line).map_err(early)?;
    if (found as u64) < length {
        return Err("the record ends within a line".into());
    }
    Ok(Some((letter[0], u64::from_le_bytes(queue))))
}
