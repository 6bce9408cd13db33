//! The order check: every message of a producer reaches each of its queues once, in order and intact.
//!
//! A *stream* is what one producer sends to one queue. A consumer must see a stream's sequence numbers grow; all
//! consumers of a queue together must see each number once. Messages marked redelivered may repeat and step back.

use crate::body::{Layout, filler};
use crate::to_stderr;
use std::fmt;

/// Producer numbers above this are taken for damage.
const PRODUCER_MAX: u32 = 1_000_000;
/// How far consumers of one queue may be apart, in messages, before what is missing between them counts as lost.
const SPREAD_MESSAGES_MAX: u64 = 1 << 22;

/// What was found wrong, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Messages that never came.
    pub missing: u64,
    /// Messages that came again without being marked as redelivered.
    pub duplicates: u64,
    /// Messages that came after a later one of the same stream.
    pub disordered: u64,
    /// Bodies of the wrong size or with other bytes than were sent.
    pub damaged: u64,
}

impl Faults {
    /// Whether nothing is wrong.
    pub(crate) fn is_none(&self) -> bool {
        *self == Faults::default()
    }
}

impl Faults {
    /// Names the kinds of faults that there are; empty without any.
    pub(crate) fn in_words(&self) -> String {
        let kinds = [
            (self.missing, "lost"),
            (self.duplicates, "delivered twice"),
            (self.disordered, "out of order"),
            (self.damaged, "damaged"),
        ];
        let words = kinds.into_iter().filter(|(count, _)| *count > 0).map(|(count, kind)| {
            let messages = if count == 1 { "message" } else { "messages" };
            format!("{count} {messages} {kind}")
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "missing: {}, duplicates: {}, out of order: {}, damaged: {}",
            self.missing, self.duplicates, self.disordered, self.damaged
        )
    }
}

/// A number that came where another was due: the first such place of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub producer: u32,
    pub expected: u64,
    /// `None`: nothing came any more.
    pub got: Option<u64>,
}

/// Sequence numbers of one producer in one queue.
#[derive(Debug, Default)]
struct Stream {
    /// Lowest number that nobody has seen.
    next: u64,
    /// Numbers from `next` on that were seen, one bit each; bit 0 of word 0 is `base`.
    seen: std::collections::VecDeque<u64>,
    /// Number of bit 0 in `seen`, a multiple of 64, at most `next`.
    base: u64,
    /// One above the highest number seen.
    end: u64,
    /// How many were sent, once that is known.
    sent: u64,
}

enum Mark {
    New,
    Again,
}

impl Stream {
    /// The full number whose low 32 bits are `short` and that lies nearest to the highest one seen.
    fn lengthen(&self, short: u32) -> u64 {
        let distance = short.wrapping_sub(self.end as u32) as i32;
        self.end.saturating_add_signed(i64::from(distance))
    }

    fn mark(&mut self, number: u64) -> Mark {
        if number < self.next {
            return Mark::Again;
        }
        if number == self.next && self.seen.is_empty() {
            self.next += 1;
            self.base = self.next & !63;
            self.end = self.end.max(self.next);
            return Mark::New;
        }
        let (word, bit) = ((number - self.base) / 64, 1u64 << (number % 64));
        let word = word as usize;
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            return Mark::Again;
        }
        self.seen[word] |= bit;
        self.end = self.end.max(number + 1);
        self.advance();
        Mark::New
    }

    /// Moves `next` over what was seen.
    fn advance(&mut self) {
        while let Some(word) = self.seen.front() {
            let above = word >> (self.next - self.base);
            self.next += u64::from((!above).trailing_zeros()).min(64 - (self.next - self.base));
            if self.next - self.base < 64 {
                break;
            }
            self.base += 64;
            self.seen.pop_front();
        }
        if self.next == self.end {
            self.seen.clear();
            self.base = self.next & !63;
        }
    }

    /// Gives up the oldest missing numbers where the window is too long; returns how many.
    fn give_up(&mut self) -> u64 {
        let mut lost = 0;
        while self.end - self.next > SPREAD_MESSAGES_MAX {
            let Some(word) = self.seen.front_mut() else {
                break;
            };
            *word |= 1 << (self.next % 64);
            lost += 1;
            self.advance();
        }
        lost
    }
}

/// What one consumer saw last of one producer's messages from one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// One above the last number; 0 before the first.
    end: u64,
}

#[derive(Debug)]
struct Queue {
    name: String,
    /// By producer number.
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Lane {
    queue: usize,
    /// By producer number.
    last: Vec<Last>,
    /// Whether this lane is its queue's only one: then a step forward of more than one is a fault at once.
    alone: bool,
}

/// Identity of one consumer on one queue, from [`Check::add_lane`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneId(usize);

/// Follows all streams of a run.
#[derive(Debug)]
pub(crate) struct Check {
    layout: Layout,
    /// Bytes of the bodies of each producer, where they differ.
    sizes: Vec<usize>,
    filler: Vec<u8>,
    queues: Vec<Queue>,
    lanes: Vec<Lane>,
    faults: Faults,
    /// The first fault in words.
    first: Option<String>,
    gap: Option<Gap>,
    /// Messages that were as they should be.
    good: u64,
    redelivered: u64,
}

impl Check {
    /// A check of bodies with `layout`, which has sequence and producer numbers.
    pub(crate) fn new(layout: Layout) -> Check {
        Check::with_sizes(layout, Vec::new())
    }

    /// A check where the bodies of producer n have `sizes[n]` bytes, at most those of `layout`, with the same numbers in
    /// the same places; producers beyond have those of `layout`.
    pub(crate) fn with_sizes(layout: Layout, sizes: Vec<usize>) -> Check {
        Check {
            layout,
            sizes,
            filler: filler(layout.size),
            queues: Vec::new(),
            lanes: Vec::new(),
            faults: Faults::default(),
            first: None,
            gap: None,
            good: 0,
            redelivered: 0,
        }
    }

    /// Adds a queue; the result names it in the other calls.
    pub(crate) fn add_queue(&mut self, name: impl Into<String>) -> usize {
        self.queues.push(Queue { name: name.into(), streams: Vec::new() });
        self.queues.len() - 1
    }

    /// Adds a consumer of `queue`.
    pub(crate) fn add_lane(&mut self, queue: usize) -> LaneId {
        let mut alone = true;
        for lane in self.lanes.iter_mut().filter(|lane| lane.queue == queue) {
            lane.alone = false;
            alone = false;
        }
        self.lanes.push(Lane { queue, last: Vec::new(), alone });
        LaneId(self.lanes.len() - 1)
    }

    /// Looks at one message as it arrives.
    pub(crate) fn receive(&mut self, lane: LaneId, body: &[u8], redelivered: bool) {
        let size = match (self.sizes.as_slice(), self.layout.producer(body)) {
            ([], _) | (_, None) => self.layout.size,
            (sizes, Some(producer)) => {
                sizes.get(producer as usize).copied().unwrap_or(self.layout.size)
            }
        };
        let numbers = self.layout.numbers_bytes();
        let intact = body.len() == size && body[numbers..] == self.filler[numbers..size];
        let numbers = (self.layout.producer(body), self.layout.sequence(body));
        let (Some(producer), Some(short), true) = (numbers.0, numbers.1, intact) else {
            self.faults.damaged += 1;
            self.note(lane, None, || {
                format!(
                    "a body of {} bytes arrived that is not the one of {size} bytes that was sent",
                    body.len()
                )
            });
            if let (Some(producer), Some(short)) = numbers {
                self.settle_damaged(lane, producer, short);
            }
            return;
        };
        if producer > PRODUCER_MAX {
            self.faults.damaged += 1;
            self.note(lane, None, || format!("producer number {producer} arrived"));
            return;
        }
        let here = &mut self.lanes[lane.0];
        let at = producer as usize;
        let streams = &mut self.queues[here.queue].streams;
        if at >= streams.len() {
            streams.resize_with(at + 1, Stream::default);
        }
        if at >= here.last.len() {
            here.last.resize_with(at + 1, Last::default);
        }
        let (stream, last, alone) = (&mut streams[at], &mut here.last[at], here.alone);
        let number = stream.lengthen(short);
        let expected = last.end;
        let mark = stream.mark(number);
        if redelivered {
            self.redelivered += 1;
            last.end = last.end.max(number + 1);
            return;
        }
        let lost = stream.give_up();
        last.end = last.end.max(number + 1);
        self.faults.missing += lost;
        if matches!(mark, Mark::Again) || number < expected || (alone && number > expected) {
            self.gap.get_or_insert(Gap { producer, expected, got: Some(number) });
        }
        match mark {
            Mark::Again => {
                self.faults.duplicates += 1;
                self.note(lane, Some(producer), || {
                    format!("sequence number {number} arrived twice")
                });
            }
            Mark::New if number < expected || (alone && number > expected) => {
                // A step forward is a loss or lets the skipped ones come late: both are counted when they show.
                if number < expected {
                    self.faults.disordered += 1;
                } else {
                    self.good += 1;
                }
                self.note(lane, Some(producer), || {
                    format!("sequence number {number} arrived where {expected} was due")
                });
            }
            Mark::New => self.good += 1,
        }
    }

    /// Counts a damaged message whose numbers are just those that were due as having come, so that it is not lost as well.
    fn settle_damaged(&mut self, lane: LaneId, producer: u32, short: u32) {
        let here = &mut self.lanes[lane.0];
        let at = producer as usize;
        let stream = self.queues[here.queue].streams.get_mut(at);
        if let (Some(stream), Some(last)) = (stream, here.last.get_mut(at))
            && stream.lengthen(short) == last.end
        {
            stream.mark(last.end);
            last.end += 1;
        }
    }

    /// Tells at the end that `producer` sent `sent` messages that belong into `queue`, so that what is missing counts.
    pub(crate) fn expect(&mut self, queue: usize, producer: u32, sent: u64) {
        let streams = &mut self.queues[queue].streams;
        let at = producer as usize;
        if at >= streams.len() {
            streams.resize_with(at + 1, Stream::default);
        }
        streams[at].sent = sent;
    }

    /// Counts what never came between the lowest and the highest number of each stream. Once, at the end.
    pub(crate) fn finish(&mut self) {
        for queue in &self.queues {
            for (producer, stream) in queue.streams.iter().enumerate() {
                let seen = stream.seen.iter().enumerate().map(|(at, word)| {
                    let start = stream.base + at as u64 * 64;
                    let below = stream.next.saturating_sub(start).min(64);
                    let mask = u64::MAX.checked_shl(below as u32).unwrap_or(0);
                    u64::from((word & mask).count_ones())
                });
                let missing = stream.end.max(stream.sent) - stream.next - seen.sum::<u64>();
                if missing == 0 {
                    continue;
                }
                self.faults.missing += missing;
                self.gap.get_or_insert(Gap {
                    producer: producer as u32,
                    expected: stream.next,
                    got: None,
                });
                if self.first.is_none() {
                    self.first = Some(format!(
                        "queue '{}', producer {producer}: {missing} messages never came, the first of them number {}",
                        queue.name, stream.next
                    ));
                }
            }
        }
    }

    /// Whether all numbers up to the highest known one have been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.queues
            .iter()
            .flat_map(|queue| &queue.streams)
            .all(|stream| stream.next >= stream.end.max(stream.sent))
    }

    /// What is wrong so far.
    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// The first fault in words.
    pub(crate) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// The first place where another number came than was due, or none any more.
    pub(crate) fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// Messages that came as they should.
    pub(crate) fn good(&self) -> u64 {
        self.good
    }

    /// Messages that came marked as redelivered.
    pub(crate) fn redelivered(&self) -> u64 {
        self.redelivered
    }

    fn note(&mut self, lane: LaneId, producer: Option<u32>, text: impl FnOnce() -> String) {
        if self.first.is_some() {
            return;
        }
        let queue = &self.queues[self.lanes[lane.0].queue].name;
        let from = producer.map_or_else(String::new, |producer| format!(", producer {producer}"));
        let text = format!("queue '{queue}'{from}: {}", text());
        to_stderr(format_args!("check: {text}"));
        self.first = Some(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(producer: u32, sequence: u32) -> Vec<u8> {
        let mut body = Layout::new(20, true).body(producer);
        body[..4].copy_from_slice(&sequence.to_be_bytes());
        body[4..12].fill(9);
        body
    }

    fn check(lanes: usize) -> (Check, Vec<LaneId>) {
        let mut check = Check::new(Layout::new(20, true));
        let queue = check.add_queue("q");
        let lanes = (0..lanes).map(|_| check.add_lane(queue)).collect();
        (check, lanes)
    }

    fn run(numbers: impl IntoIterator<Item = u32>) -> Check {
        let (mut check, lanes) = check(1);
        for number in numbers {
            check.receive(lanes[0], &body(3, number), false);
        }
        check.finish();
        check
    }

    #[test]
    fn an_unbroken_stream_is_good() {
        let check = run(0..1_000);
        assert!(check.faults().is_none());
        assert_eq!(check.good(), 1_000);
        assert!(check.is_complete());
    }

    #[test]
    fn a_drop_is_found_at_once_and_counted_at_the_end() {
        let (mut check, lanes) = check(1);
        for number in (0..100).filter(|number| *number != 40 && *number != 41) {
            check.receive(lanes[0], &body(3, number), false);
            assert_eq!(check.first().is_some(), number >= 42, "{number}");
        }
        check.finish();
        let faults = check.faults();
        assert_eq!((faults.missing, faults.duplicates), (2, 0));
        let first = check.first().unwrap();
        assert!(first.contains("42") && first.contains("40"), "{first}");
        assert!(first.contains("'q'") && first.contains("producer 3"), "{first}");
        assert_eq!(check.gap(), Some(Gap { producer: 3, expected: 40, got: Some(42) }));
    }

    #[test]
    fn a_swap_is_disorder_and_nothing_else() {
        let check = run([0, 1, 3, 2, 4]);
        let faults = check.faults();
        assert_eq!(faults.disordered, 1);
        assert_eq!((faults.missing, faults.duplicates, faults.damaged), (0, 0, 0));
    }

    #[test]
    fn a_duplicate_is_found_near_and_far() {
        for again in [0, 50, 98, 99] {
            let check = run((0..100).chain([again]));
            assert_eq!(check.faults(), Faults { duplicates: 1, ..Faults::default() });
        }
    }

    #[test]
    fn a_duplicate_above_a_gap_is_found() {
        let check = run([0, 2, 3, 3]);
        assert_eq!(check.faults().duplicates, 1);
        assert_eq!(check.faults().missing, 1);
    }

    #[test]
    fn the_first_message_must_be_the_first() {
        let check = run([1, 2]);
        assert_eq!(check.faults().missing, 1);
        assert!(check.first().unwrap().contains("where 0 was due"));
    }

    #[test]
    fn a_lost_tail_counts_once_the_number_sent_is_known() {
        let (mut check, lanes) = check(1);
        check.receive(lanes[0], &body(0, 0), false);
        check.expect(0, 0, 3);
        check.expect(0, 1, 2);
        assert!(!check.is_complete());
        check.finish();
        assert_eq!(check.faults().missing, 4);
        assert_eq!(check.gap(), Some(Gap { producer: 0, expected: 1, got: None }));
    }

    #[test]
    fn damage_is_found() {
        let (mut check, lanes) = check(1);
        let mut bad = body(0, 0);
        bad[19] ^= 1;
        check.receive(lanes[0], &bad, false);
        check.receive(lanes[0], &body(0, 0)[..19], false);
        check.receive(lanes[0], b"", false);
        check.receive(lanes[0], &body(u32::MAX, 0), false);
        assert_eq!(check.faults().damaged, 4);
        assert!(check.first().is_some());
    }

    #[test]
    fn a_damaged_message_is_not_lost_as_well() {
        let (mut check, lanes) = check(1);
        for number in 0..10 {
            let mut body = body(3, number);
            if number == 5 {
                body[19] ^= 1;
            }
            check.receive(lanes[0], &body, false);
        }
        check.finish();
        assert_eq!(check.faults(), Faults { damaged: 1, ..Faults::default() });
        assert_eq!(check.faults().in_words(), "1 message damaged");
    }

    #[test]
    fn consumers_of_one_queue_share_its_stream() {
        let (mut check, lanes) = check(2);
        for number in [0, 3, 1, 2, 4, 5, 7, 6] {
            let lane = lanes[usize::from([3, 4, 7].contains(&number))];
            check.receive(lane, &body(0, number), false);
        }
        check.finish();
        assert!(check.faults().is_none(), "{}", check.faults());
        assert_eq!(check.good(), 8);
    }

    #[test]
    fn a_message_for_two_consumers_of_one_queue_is_a_duplicate() {
        let (mut check, lanes) = check(2);
        check.receive(lanes[0], &body(0, 0), false);
        check.receive(lanes[1], &body(0, 0), false);
        assert_eq!(check.faults().duplicates, 1);
    }

    #[test]
    fn one_of_several_consumers_must_still_see_order() {
        let (mut check, lanes) = check(2);
        check.receive(lanes[0], &body(0, 1), false);
        check.receive(lanes[0], &body(0, 0), false);
        assert_eq!(check.faults().disordered, 1);
    }

    #[test]
    fn redelivered_messages_may_repeat_and_step_back() {
        let (mut check, lanes) = check(1);
        for (number, redelivered) in [(0, false), (1, false), (0, true), (1, true), (2, false)] {
            check.receive(lanes[0], &body(0, number), redelivered);
        }
        check.finish();
        assert!(check.faults().is_none(), "{}", check.faults());
        assert_eq!(check.redelivered(), 2);
    }

    #[test]
    fn numbers_go_on_past_32_bits() {
        let (mut check, lanes) = check(1);
        let start = u64::from(u32::MAX) - 2;
        check.receive(lanes[0], &body(0, 0), false);
        let stream = &mut check.queues[0].streams[0];
        (stream.next, stream.end, stream.base) = (start, start, start & !63);
        check.lanes[0].last[0].end = start;
        for number in start..start + 10 {
            check.receive(lanes[0], &body(0, number as u32), false);
        }
        check.finish();
        assert!(check.faults().is_none(), "{}", check.faults());
        assert_eq!(check.queues[0].streams[0].next, start + 10);
    }

    #[test]
    fn a_window_that_grows_too_long_gives_up_its_gap() {
        let (mut check, lanes) = check(2);
        for number in (1..SPREAD_MESSAGES_MAX as u32 + 200).step_by(1) {
            check.receive(lanes[0], &body(0, number), false);
        }
        assert_eq!(check.faults().missing, 1);
        assert!(check.is_complete());
        check.finish();
        assert_eq!(check.faults().missing, 1);
    }

    #[test]
    fn a_stream_agrees_with_a_plain_set() {
        let mut rng = lepus_base::Rng::new(5);
        for _ in 0..200 {
            let mut stream = Stream::default();
            let mut model = std::collections::BTreeSet::new();
            for _ in 0..300 {
                let number = rng.below(200);
                let again = matches!(stream.mark(number), Mark::Again);
                assert_eq!(again, !model.insert(number));
                let next = (0..).find(|number| !model.contains(number)).unwrap();
                assert_eq!(stream.next, next);
                assert_eq!(stream.end, model.last().map_or(0, |last| last + 1));
            }
        }
    }
}
