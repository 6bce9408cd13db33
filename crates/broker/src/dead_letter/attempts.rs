//! Attempts to bring a letter that must arrive to its queues: which queues were asked and have yet to
//! report, and what the others said.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lepus_base::QueueId;

use super::{DeadLetter, Destination, Source};

/// Reports of one letter above which no further queue of it is asked.
const MISSING_MAX: usize = 512;

/// One attempt of one letter.
#[derive(Debug, Default)]
struct Attempt {
    /// Reports that are missing.
    missing: usize,
    /// Queues that have it, and that the letter does not know of yet.
    done: Vec<QueueId>,
    /// A queue did not take it.
    is_refused: bool,
    /// The letter, while it waits for reports.
    letter: Option<DeadLetter>,
}

impl Attempt {
    /// Hands over what it knows when the letter may go on: it waits, and reports are not missing any
    /// more, or for one that has further queues to ask not many.
    fn go_on(&mut self) -> Option<DeadLetter> {
        let progress = self.letter.as_ref()?.progress.as_ref()?;
        let limit = if progress.has_rest() { MISSING_MAX / 2 } else { 0 };
        if self.missing > limit {
            return None;
        }
        let mut letter = self.letter.take()?;
        if let Some(progress) = &mut letter.progress {
            progress.learn(core::mem::take(&mut self.done), self.is_refused);
        }
        Some(letter)
    }
}

/// All attempts that are under way.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    by_number: BTreeMap<u64, Attempt>,
    /// By the number of the report that is missing: the attempt, and the queue that was asked.
    asked: BTreeMap<u64, (u64, QueueId)>,
    /// Bytes of lists of queues.
    list_bytes: usize,
}

impl Attempts {
    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// How many reports are missing.
    pub(super) fn missing(&self) -> usize {
        self.asked.len()
    }

    /// Where the letters are that wait for reports.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.by_number.values().filter_map(|attempt| Some(&attempt.letter.as_ref()?.source))
    }

    /// Where the letter is about which a report under this number is missing, while it waits for that.
    pub(super) fn asked_of(&self, number: u64) -> Option<&Source> {
        let (attempt, _) = self.asked.get(&number)?;
        Some(&self.by_number.get(attempt)?.letter.as_ref()?.source)
    }

    /// Bytes that they take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.by_number.len() * size_of::<(u64, Attempt)>()
            + self.asked.len() * (size_of::<(u64, u64, QueueId)>() + size_of::<QueueId>())
            + self.list_bytes
    }

    /// A queue was asked, and is to report under this number.
    pub(super) fn ask(&mut self, attempt: u64, number: u64, queue: QueueId) {
        self.asked.insert(number, (attempt, queue));
        self.by_number.entry(attempt).or_default().missing += 1;
    }

    /// Whether so many reports of an attempt are missing that no further queue is to be asked.
    pub(super) fn is_crowded(&self, attempt: u64) -> bool {
        self.by_number.get(&attempt).is_some_and(|attempt| attempt.missing >= MISSING_MAX)
    }

    /// Keeps a letter until enough queues have reported. Gives it back if it need not wait.
    pub(super) fn wait(&mut self, number: u64, mut letter: DeadLetter) -> Option<DeadLetter> {
        let Some(attempt) = self.by_number.get_mut(&number) else { return Some(letter) };
        self.list_bytes += letter.progress.as_mut().map_or(0, |progress| progress.count());
        attempt.letter = Some(letter);
        self.go_on(number)
    }

    /// A queue has reported. The letter, if it goes on.
    pub(super) fn report(&mut self, number: u64, is_refused: bool) -> Option<DeadLetter> {
        let (at, queue) = self.asked.remove(&number)?;
        let attempt = self.by_number.get_mut(&at)?;
        attempt.missing -= 1;
        attempt.is_refused |= is_refused;
        if !is_refused {
            attempt.done.push(queue);
        }
        self.go_on(at)
    }

    fn go_on(&mut self, number: u64) -> Option<DeadLetter> {
        let attempt = self.by_number.get_mut(&number)?;
        let mut letter = attempt.go_on()?;
        if attempt.missing == 0 {
            self.by_number.remove(&number);
        }
        self.list_bytes -= letter.progress.as_mut().map_or(0, |progress| progress.discount());
        Some(letter)
    }

    /// A letter has left before the end of its attempt: reports that come yet mean nothing.
    pub(super) fn forget(&mut self, number: u64) {
        self.by_number.remove(&number);
    }

    /// The letters of a queue that wait for reports go where they were to go before a change. How many were looked at.
    pub(super) fn keep_destination(&mut self, queue: QueueId, before: &Arc<Destination>) -> usize {
        let letters = self.by_number.values_mut().filter_map(|attempt| attempt.letter.as_mut());
        for letter in letters.filter(|letter| letter.source.queue == queue) {
            letter.keep_destination(before);
        }
        self.by_number.len()
    }

    /// A queue has another id now.
    pub(super) fn redirect(&mut self, old: QueueId, new: QueueId) {
        for (_, queue) in self.asked.values_mut().filter(|(_, queue)| *queue == old) {
            *queue = new;
        }
        for attempt in self.by_number.values_mut() {
            for queue in attempt.done.iter_mut().filter(|queue| **queue == old) {
                *queue = new;
            }
            if let Some(progress) = attempt.letter.as_mut().and_then(|it| it.progress.as_mut()) {
                progress.redirect(old, new);
            }
        }
    }
}
