//! Samples on their way from a signal handler to whoever walks the stacks.
//!
//! A fixed number of places, each empty, being filled or full. A handler takes an empty one without
//! waiting, or counts the sample as dropped; the reader empties full ones. Nothing is allocated after
//! the start and nothing is locked.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Words of a stack that one sample holds, counted from its top: 32 KiB.
pub const STACK_WORDS_MAX: usize = 4096;
/// Samples that may wait for the reader: with their stacks 16 MiB.
pub const SAMPLES_MAX: usize = 512;

/// The registers that unwinding begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The next instruction.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, if the code uses it as one.
    pub fp: u64,
    /// The link register; 0 on machines that have none.
    pub lr: u64,
}

/// One interruption of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Index of the thread in [`crate::Session::threads`].
    pub thread: usize,
    /// The number of its phase.
    pub phase: u8,
    /// How many ticks of the timer it stands for: more than 1 where the system's own tick is slower.
    pub weight: u32,
    /// Where the thread was.
    pub registers: Registers,
    /// The words of its stack from `registers.sp` upwards.
    pub stack: &'a [u64],
    /// The stack was deeper than what was copied.
    pub is_cut: bool,
}

const EMPTY: u32 = 0;
const FILLING: u32 = 1;
const FULL: u32 = 2;

/// Words of a place before the stack.
const HEAD_WORDS: usize = 8;

struct Place {
    state: AtomicU32,
    words: Box<[AtomicU64]>,
}

/// The places.
pub(crate) struct Samples {
    places: Box<[Place]>,
    next: AtomicUsize,
    dropped: AtomicU64,
}

/// What a handler knows besides the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) thread: usize,
    pub(crate) phase: u8,
    pub(crate) weight: u32,
    pub(crate) registers: Registers,
    pub(crate) is_cut: bool,
}

impl Samples {
    pub(crate) fn new(places: usize, stack_words: usize) -> Samples {
        let place = |_| Place {
            state: AtomicU32::new(EMPTY),
            words: (0..HEAD_WORDS + stack_words).map(|_| AtomicU64::new(0)).collect(),
        };
        Samples {
            places: (0..places).map(place).collect(),
            next: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Words of a stack that a place holds.
    pub(crate) fn stack_words(&self) -> usize {
        self.places.first().map_or(0, |place| place.words.len() - HEAD_WORDS)
    }

    /// Ticks for which there was no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Puts a sample in, or counts it as dropped: called by signal handlers. `words` words of the
    /// stack are asked for one by one.
    pub(crate) fn put(&self, head: Head, words: usize, mut word: impl FnMut(usize) -> u64) {
        let count = self.places.len();
        let place = &self.places[self.next.fetch_add(1, Ordering::Relaxed) % count];
        let taken =
            place.state.compare_exchange(EMPTY, FILLING, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.dropped.fetch_add(u64::from(head.weight), Ordering::Relaxed);
            return;
        }
        let words = words.min(place.words.len() - HEAD_WORDS);
        let Registers { pc, sp, fp, lr } = head.registers;
        let rest = u64::from(head.phase) | u64::from(head.is_cut) << 8;
        let numbers = [head.thread as u64, u64::from(head.weight), rest, words as u64];
        for (place, value) in place.words.iter().zip(numbers.into_iter().chain([pc, sp, fp, lr])) {
            place.store(value, Ordering::Relaxed);
        }
        for (index, place) in place.words[HEAD_WORDS..].iter().take(words).enumerate() {
            place.store(word(index), Ordering::Relaxed);
        }
        place.state.store(FULL, Ordering::Release);
    }

    /// Gives every sample that is there to `visit` and empties its place. One reader at a time.
    pub(crate) fn drain(&self, mut visit: impl FnMut(Sample<'_>)) {
        let mut stack = Vec::new();
        for place in &self.places {
            if place.state.load(Ordering::Acquire) != FULL {
                continue;
            }
            let value = |index: usize| place.words[index].load(Ordering::Relaxed);
            let words = &place.words[HEAD_WORDS..][..value(3) as usize];
            stack.clear();
            stack.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
            visit(Sample {
                thread: value(0) as usize,
                weight: value(1) as u32,
                phase: value(2) as u8,
                is_cut: value(2) & 1 << 8 != 0,
                registers: Registers { pc: value(4), sp: value(5), fp: value(6), lr: value(7) },
                stack: &stack,
            });
            place.state.store(EMPTY, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(thread: usize, weight: u32) -> Head {
        let registers = Registers { pc: 1, sp: 2, fp: 3, lr: 4 };
        Head { thread, phase: 5, weight, registers, is_cut: true }
    }

    #[test]
    fn what_was_put_comes_out_once() {
        let samples = Samples::new(3, 4);
        samples.put(head(7, 2), 3, |index| 100 + index as u64);
        let mut seen = 0;
        samples.drain(|sample| {
            seen += 1;
            assert_eq!((sample.thread, sample.weight, sample.phase), (7, 2, 5));
            assert_eq!(sample.registers, Registers { pc: 1, sp: 2, fp: 3, lr: 4 });
            assert_eq!(sample.stack, [100, 101, 102]);
            assert!(sample.is_cut);
        });
        assert_eq!(seen, 1);
        samples.drain(|_| panic!("nothing is left"));
    }

    #[test]
    fn no_room_is_counted_and_room_comes_back() {
        let samples = Samples::new(2, 1);
        for thread in 0..5 {
            samples.put(head(thread, 3), 9, |_| 0);
        }
        assert_eq!(samples.dropped(), 9, "three samples of three ticks");
        let mut threads = Vec::new();
        samples.drain(|sample| {
            assert_eq!(sample.stack.len(), 1, "never more than a place holds");
            threads.push(sample.thread);
        });
        assert_eq!(threads, [0, 1]);
        samples.put(head(9, 1), 0, |_| 0);
        samples.drain(|sample| threads.push(sample.thread));
        assert_eq!((threads, samples.dropped()), (vec![0, 1, 9], 9));
    }

    #[test]
    fn writers_on_many_threads_lose_nothing_uncounted() {
        let samples = Samples::new(4, 2);
        let seen = std::sync::atomic::AtomicU64::new(0);
        let count = |sample: Sample<'_>| {
            assert_eq!(sample.stack, [sample.thread as u64, sample.thread as u64]);
            seen.fetch_add(1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let samples = &samples;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        samples.put(head(thread, 1), 2, |_| thread as u64);
                    }
                });
            }
            for _ in 0..500 {
                samples.drain(count);
            }
        });
        samples.drain(count);
        assert_eq!(seen.into_inner() + samples.dropped(), 6000);
    }
}
