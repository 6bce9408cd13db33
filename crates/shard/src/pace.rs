//! Whether a shard naps for a moment after a turn, so that the next turn finds more to do.
//!
//! A shard that is always there when a message comes makes a turn of each: a look for readiness, a read and
//! a write, which cost more than the message. Where messages come one after the other it is better to let some
//! gather. Where each of them is waited for, by somebody who sends the next one only then, a nap does nothing
//! but delay. What is the case is found out by a trial: what comes with naps is compared with what comes without,
//! in all and from each connection that said something often enough. Who waits for answers sends less when these
//! come later; who does not sends as much. Of what other shards wait for nothing is known: there are no naps then.

use std::collections::HashMap;
use std::time::Duration;

use lepus_base::Instant;

/// How long a nap takes.
pub(crate) const NAP: Duration = Duration::from_micros(50);
/// Fewer turns in a millisecond leave time enough between two of them: they are not many messages either.
const TURNS_MANY: u128 = 30;
/// For so long turns are counted, and twice in a row they have to be many.
const WINDOW: Duration = Duration::from_millis(1);
/// After so many parts, without naps and with them in turn, a trial may end. Where they show too little for an
/// answer it goes on, up to `PARTS_MAX`. They are short, so that a client that sends for some milliseconds and
/// pauses for some is in as many parts of both kinds.
const PARTS: u16 = 32;
const PARTS_MAX: u16 = 128;
const PART: Duration = Duration::from_micros(500);
/// A trial that takes longer, for all the pauses in between, tells nothing.
const TRIAL_MAX: Duration = Duration::from_millis(500);
/// A longer pause is the clients' own: where turns are many, whoever waits for an answer asks again sooner. What is
/// above this does not count.
const PAUSE_MAX: Duration = Duration::from_micros(100);
/// With naps no less than this share of the flow may come, in percent. Of those who wait for each answer there comes
/// less than half: where turns are many a nap takes longer than turn and question. What others do makes a fifth of
/// difference from one part to the next.
const FLOW_PERCENT: u128 = 70;
const FLOW_PERCENT_CLEAR: u128 = 50;
/// A connection is compared that was read so often in the parts without naps. In the parts with naps no less than this
/// share of its bytes may come: of one whose reads bring no more than before, as of one who waits for each answer, and
/// of any other, which may wait for one of several. Of these there come 54 % and less.
const READS_MIN: u32 = 8;
const ASKER_PERCENT: u128 = 88;
const STREAM_PERCENT: u128 = 65;
/// Its reads bring no more than before if it is less than this, in percent.
const MORE_PERCENT: u128 = 125;
/// More connections than these, or parcels of other shards, are too many to know who waits.
const SAMPLES_MAX: usize = 4096;
const PARCELS_MAX: u64 = 8;
/// How often a shard that naps looks whether there is still as much to do.
const LOOK: Duration = Duration::from_millis(50);
/// How often it tries again whether naps hold nobody up.
const TRIAL_INTERVAL: Duration = Duration::from_secs(1);
/// How long there is no other trial after one that failed: twice as long after each further one.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// What came in, in which time, and in how many turns.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    bytes: u64,
    turns: u64,
    nanos: u64,
}

impl Flow {
    fn add(&mut self, other: Flow) {
        self.bytes += other.bytes;
        self.turns += other.turns;
        self.nanos += other.nanos;
    }

    /// Whether it is at least so many percent of another.
    fn is_at_least(self, percent: u128, of: Flow) -> bool {
        u128::from(self.bytes) * u128::from(of.nanos) * 100
            >= u128::from(of.bytes) * u128::from(self.nanos) * percent
    }

    /// Whether there are so many turns that some could be one.
    fn has_many_turns(self) -> bool {
        u128::from(self.turns) * WINDOW.as_nanos() >= TURNS_MANY * u128::from(self.nanos)
    }
}

/// What a connection said in the parts of a trial, without naps and with them.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    reads: [u32; 2],
    bytes: [u64; 2],
}

impl Sample {
    /// Whether it is held up by naps; `nanos` is how long the parts took.
    fn is_held_up(&self, nanos: [u64; 2]) -> bool {
        if self.reads[0] < READS_MIN {
            return false;
        }
        let [without, with] =
            [0, 1].map(|at| Flow { bytes: self.bytes[at], turns: 0, nanos: nanos[at] });
        let [each, each_with] =
            [0, 1].map(|at| u128::from(self.bytes[at]) * u128::from(self.reads[1 - at]));
        let asks = each_with * 100 < each * MORE_PERCENT;
        !with.is_at_least(if asks { ASKER_PERCENT } else { STREAM_PERCENT }, without)
    }
}

/// What connections, by their token, and other shards said in the trial under way.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// Which of the parts it is, if there is a trial: without naps or with them.
    part: Option<usize>,
    list: HashMap<u32, Sample>,
    is_full: bool,
    /// Parcels of other shards since the last look.
    parcels: u64,
}

impl Samples {
    /// A connection was read, and so many bytes came.
    #[inline]
    pub(crate) fn note(&mut self, token: u32, bytes: usize) {
        if let Some(part) = self.part {
            self.add(part, token, bytes);
        }
    }

    #[cold]
    fn add(&mut self, part: usize, token: u32, bytes: usize) {
        if self.list.len() >= SAMPLES_MAX && !self.list.contains_key(&token) {
            self.is_full = true;
            return;
        }
        let sample = self.list.entry(token).or_default();
        sample.reads[part] += 1;
        sample.bytes[part] += bytes as u64;
    }

    /// So many parcels of other shards came.
    pub(crate) fn note_parcels(&mut self, count: usize) {
        self.parcels += count as u64;
    }

    /// Whether somebody is held up by naps, as far as is known; `nanos` is how long the parts took.
    fn shows_somebody_held_up(&self, nanos: [u64; 2]) -> bool {
        self.is_full
            || self.parcels > PARCELS_MAX
            || self.list.values().any(|sample| sample.is_held_up(nanos))
    }

    fn forget(&mut self) {
        *self = Samples::default();
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Counts turns.
    Watching { had_many: bool },
    /// Compares.
    Trying { part: u16, flows: [Flow; 2], began_at: Instant },
    /// Naps, as long as the flow is not much less than it was.
    Napping { tried_at: Instant, flow: Flow },
    /// A trial failed.
    Resting { until: Instant },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    is_on: bool,
    stage: Stage,
    /// When the window, the part or the time between two looks began, and what had come in by then.
    since: Instant,
    bytes: u64,
    /// Turns since then.
    turns: u64,
    rest: Duration,
}

impl Pace {
    /// With `is_on` false there are no naps.
    pub(crate) fn new(is_on: bool) -> Pace {
        let stage = Stage::Watching { had_many: false };
        Pace { is_on, stage, since: Instant(0), bytes: 0, turns: 0, rest: REST_MIN }
    }

    /// A turn ended and left nothing to do; `bytes` came in since the shard began, and `samples` have of whom. Whether
    /// to nap now.
    pub(crate) fn naps(&mut self, now: Instant, bytes: u64, samples: &mut Samples) -> bool {
        if !self.is_on {
            return false;
        }
        self.turns += 1;
        let time = now.since(self.since);
        let is_over = match self.stage {
            Stage::Watching { .. } => time >= WINDOW,
            Stage::Trying { .. } => time >= PART,
            // The clients' pauses do not count, but nobody waits for long who begins to in one.
            Stage::Napping { tried_at, .. } => {
                time >= LOOK || now.since(tried_at) >= TRIAL_INTERVAL
            }
            Stage::Resting { until } => now >= until,
        };
        if is_over {
            let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let flow = Flow { bytes: bytes - self.bytes, turns: self.turns, nanos };
            self.stage = self.next(now, flow, samples);
            (self.since, self.bytes, self.turns) = (now, bytes, 0);
            match self.stage {
                Stage::Trying { part, .. } => samples.part = Some(usize::from(part % 2)),
                _ => samples.forget(),
            }
        }
        match self.stage {
            Stage::Trying { part, .. } => part % 2 == 1,
            Stage::Napping { .. } => true,
            Stage::Watching { .. } | Stage::Resting { .. } => false,
        }
    }

    /// So long nothing came, beside naps.
    pub(crate) fn paused(&mut self, time: Duration) {
        if matches!(self.stage, Stage::Trying { .. } | Stage::Napping { .. }) {
            self.since = self.since + time.saturating_sub(PAUSE_MAX);
        }
    }

    /// Whether it lets something gather as a rule.
    pub(crate) fn is_napping(&self) -> bool {
        matches!(self.stage, Stage::Napping { .. })
    }

    /// What follows when the time of a stage is over in which this came in.
    fn next(&mut self, now: Instant, found: Flow, samples: &Samples) -> Stage {
        let trial = Stage::Trying { part: 0, flows: [Flow::default(); 2], began_at: now };
        match self.stage {
            Stage::Watching { had_many } => match found.has_many_turns() {
                true if had_many => trial,
                has_many => Stage::Watching { had_many: has_many },
            },
            Stage::Trying { began_at, .. } if now.since(began_at) > TRIAL_MAX => self.rest(now),
            Stage::Trying { part, mut flows, began_at } => {
                flows[usize::from(part % 2)].add(found);
                let (part, answer) = (part + 1, Self::answer(part + 1, flows, samples));
                match answer {
                    None => Stage::Trying { part, flows, began_at },
                    Some(Answer::Nap) => {
                        self.rest = REST_MIN;
                        Stage::Napping { tried_at: now, flow: flows[1] }
                    }
                    Some(Answer::Rest) => self.rest(now),
                }
            }
            // Others may wait now.
            Stage::Napping { .. } if samples.parcels > PARCELS_MAX => {
                Stage::Watching { had_many: false }
            }
            Stage::Napping { flow, .. } if !found.is_at_least(50, flow) => {
                Stage::Watching { had_many: false }
            }
            Stage::Napping { tried_at, .. } if now.since(tried_at) >= TRIAL_INTERVAL => trial,
            Stage::Napping { .. } => self.stage,
            Stage::Resting { .. } => Stage::Watching { had_many: false },
        }
    }

    /// A trial failed, or told nothing: those who send in bursts would be tried again and again.
    fn rest(&mut self, now: Instant) -> Stage {
        let until = now + self.rest;
        self.rest = (self.rest * 2).min(REST_MAX);
        Stage::Resting { until }
    }

    /// What so many parts of a trial came to; none if that is not known yet.
    fn answer(parts: u16, flows: [Flow; 2], samples: &Samples) -> Option<Answer> {
        if !parts.is_multiple_of(PARTS) {
            return None;
        }
        let [without, with] = flows;
        if !without.has_many_turns() || without.bytes == 0 {
            return Some(Answer::Rest);
        }
        let holds_up = samples.shows_somebody_held_up(flows.map(|flow| flow.nanos));
        if !holds_up && with.is_at_least(FLOW_PERCENT, without) {
            return Some(Answer::Nap);
        }
        let is_clear = !with.is_at_least(FLOW_PERCENT_CLEAR, without);
        (is_clear || parts >= PARTS_MAX).then_some(Answer::Rest)
    }
}

/// What comes of a trial.
enum Answer {
    Nap,
    /// Somebody is held up, or turns are not many.
    Rest,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn takes this, and as much more for each message.
    const TURN: Duration = Duration::from_micros(5);
    const MESSAGE: Duration = Duration::from_micros(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A shard in virtual time.
    struct Load {
        pace: Pace,
        samples: Samples,
        now: Instant,
        bytes: u64,
        /// Questions that a client has under way.
        window: usize,
    }

    /// What some time came to.
    #[derive(Clone, Copy, Debug, Default)]
    struct Found {
        turns: u64,
        naps: u64,
        messages: u64,
    }

    impl Load {
        fn new(is_on: bool) -> Load {
            Load {
                pace: Pace::new(is_on),
                samples: Samples::default(),
                now: Instant(1),
                bytes: 0,
                window: 1,
            }
        }

        /// Nothing comes until then.
        fn wait_until(&mut self, at: Instant) {
            let time = at.since(self.now);
            self.now = self.now.max(at);
            self.pace.paused(time);
        }

        /// One turn that reads so many messages of so many bytes of each connection.
        fn turn(&mut self, reads: &[(u32, u64, usize)], found: &mut Found) {
            self.now = self.now + TURN;
            for &(token, messages, bytes) in reads.iter().filter(|(_, messages, _)| *messages > 0) {
                self.now = self.now + MESSAGE * u32::try_from(messages).unwrap();
                self.bytes += messages * bytes as u64;
                self.samples.note(token, messages as usize * bytes);
                found.messages += messages;
            }
            found.turns += 1;
            if self.pace.naps(self.now, self.bytes, &mut self.samples) {
                found.naps += 1;
                self.now = self.now + NAP;
            }
        }

        /// Messages that come every so often, whatever the shard does.
        fn stream(&mut self, every: Duration, time: Duration) -> Found {
            self.mix(Some((every, 100)), 0, Duration::ZERO, time).0
        }

        /// So many clients that send the next request a little after they have the answer.
        fn questions(&mut self, clients: usize, after: Duration, time: Duration) -> Found {
            self.mix(None, clients, after, time).1
        }

        /// Both beside each other: messages of so many bytes, and questions of 100. What came of the one and of the
        /// others.
        fn mix(
            &mut self,
            stream: Option<(Duration, usize)>,
            clients: usize,
            after: Duration,
            time: Duration,
        ) -> (Found, Found) {
            let (start, mut all) = (self.now, Found::default());
            let (mut streamed, mut asked) = (0, 0);
            let mut due = vec![start; clients];
            while self.now < start + time {
                let next =
                    stream.map(|(every, _)| start + every * u32::try_from(streamed + 1).unwrap());
                let first = due.iter().copied().chain(next).min().unwrap();
                self.wait_until(first);
                let new = stream.map_or(0, |(every, _)| {
                    let there = self.now.since(start).as_nanos() / every.as_nanos();
                    u64::try_from(there).unwrap() - streamed
                });
                let there: Vec<usize> = (0..clients).filter(|&at| due[at] <= self.now).collect();
                // They have their answers before the nap.
                let answered =
                    self.now + TURN + MESSAGE * u32::try_from(there.len() as u64 + new).unwrap();
                there.iter().for_each(|&at| due[at] = answered + after);
                let mut reads = vec![(0, new, stream.map_or(0, |(_, bytes)| bytes))];
                for &at in &there {
                    let token = 10 + (at / self.window) as u32;
                    match reads.last_mut().filter(|(last, ..)| *last == token) {
                        Some((_, count, _)) => *count += 1,
                        None => reads.push((token, 1, 100)),
                    }
                }
                self.turn(&reads, &mut all);
                (streamed, asked) = (streamed + new, asked + there.len() as u64);
            }
            (Found { messages: streamed, ..all }, Found { messages: asked, ..all })
        }
    }

    #[test]
    fn messages_that_come_one_after_the_other_share_turns() {
        let every = Duration::from_micros(20);
        let before = Load::new(false).stream(every, SECOND);
        let found = Load::new(true).stream(every, SECOND);
        assert!(found.messages.abs_diff(before.messages) < 10);
        assert!(found.turns * 5 < before.turns * 2, "{found:?}, without naps {before:?}");
    }

    #[test]
    fn who_waits_for_each_answer_is_not_held_up() {
        for clients in [1, 2, 5] {
            let after = Duration::from_micros(15);
            let before = Load::new(false).questions(clients, after, 20 * SECOND);
            let found = Load::new(true).questions(clients, after, 20 * SECOND);
            // The trials take a thousandth of the time.
            assert!(found.messages * 1000 > before.messages * 997, "{found:?}, {before:?}");
            assert!(found.naps > 0, "it was tried");
        }
    }

    #[test]
    fn few_messages_are_taken_at_once() {
        for every in [40, 100, 1000].map(Duration::from_micros) {
            let found = Load::new(true).stream(every, SECOND);
            assert_eq!(found.naps, 0, "{every:?}");
        }
    }

    #[test]
    fn naps_end_with_the_messages_and_when_they_hold_somebody_up() {
        let mut load = Load::new(true);
        load.stream(Duration::from_micros(20), SECOND);
        assert!(matches!(load.pace.stage, Stage::Napping { .. }), "{:?}", load.pace);
        let found = load.stream(Duration::from_micros(500), SECOND);
        assert!(found.naps < 500, "{found:?}");
        let mut load = Load::new(true);
        load.stream(Duration::from_micros(20), SECOND);
        let after = Duration::from_micros(15);
        let found = load.questions(1, after, 5 * SECOND);
        let most = Load::new(false).questions(1, after, 5 * SECOND);
        assert!(found.messages * 10 > most.messages * 7, "{found:?}, {most:?}");
        assert!(matches!(load.pace.stage, Stage::Resting { .. }), "{:?}", load.pace);
    }

    #[test]
    fn a_stream_does_not_speak_for_one_who_waits_beside_it() {
        let after = Duration::from_micros(10);
        for (every, bytes) in [(100, 1_000), (140, 4_000), (30, 100_000)] {
            let stream = Some((Duration::from_micros(every), bytes));
            let (_, before) = Load::new(false).mix(stream, 1, after, 5 * SECOND);
            let (_, found) = Load::new(true).mix(stream, 1, after, 5 * SECOND);
            assert!(found.messages * 100 > before.messages * 98, "{found:?}, {before:?}");
        }
    }

    /// A client that gets a CPU for a few milliseconds and waits for it for a few, as one does that shares it with
    /// others: it sends one message after the other while it has it.
    #[test]
    fn a_client_that_waits_for_its_cpu_is_not_taken_for_one_that_waits_for_answers() {
        let every = Duration::from_micros(10);
        let mut load = Load::new(true);
        let (mut state, mut found) = (1_u64, Found::default());
        let mut draw = |from: u32, to: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            Duration::from_micros(u64::from(from) + (state >> 33) % u64::from(to - from))
        };
        let start = load.now;
        while load.now < start + 10 * SECOND {
            let some = load.stream(every, draw(500, 6000));
            (found.messages, found.turns) =
                (found.messages + some.messages, found.turns + some.turns);
            found.naps += some.naps;
            load.wait_until(load.now + draw(500, 6000));
        }
        assert!(found.turns * 3 < found.messages, "{found:?}");
        // Now and then it is looked whether that is still so.
        assert!(found.naps * 10 > found.turns * 6 && found.naps < found.turns, "{found:?}");
    }

    #[test]
    fn a_stream_does_not_speak_for_one_who_waits_for_one_of_several_answers() {
        for (window, after) in [(2, 15), (3, 10), (4, 25), (10, 20)] {
            let stream = Some((Duration::from_micros(60), 4_000));
            let after = Duration::from_micros(after);
            let count = |is_on| {
                let mut load = Load { window, ..Load::new(is_on) };
                load.mix(stream, window, after, 5 * SECOND).1.messages
            };
            let (before, found) = (count(false), count(true));
            assert!(found * 100 > before * 97, "{window}: {found}, without naps {before}");
        }
    }

    #[test]
    fn who_thinks_before_the_next_question_is_not_held_up_by_a_stream() {
        // One that thinks longer loses little of its flow by a nap, which it may not be told from.
        for (micros, percent) in [(40, 97), (100, 97), (200, 90)] {
            let (stream, after) =
                (Some((Duration::from_micros(20), 100)), Duration::from_micros(micros));
            let (_, before) = Load::new(false).mix(stream, 1, after, 5 * SECOND);
            let (_, found) = Load::new(true).mix(stream, 1, after, 5 * SECOND);
            assert!(
                found.messages * 100 > before.messages * percent,
                "{micros}: {found:?}, {before:?}"
            );
        }
    }

    #[test]
    fn what_follows_a_stream_slowly_is_taken_at_once() {
        for interval in
            [Duration::from_millis(40), Duration::from_millis(333), Duration::from_secs(30)]
        {
            let mut load = Load::new(true);
            load.stream(Duration::from_micros(20), SECOND);
            assert!(matches!(load.pace.stage, Stage::Napping { .. }), "{:?}", load.pace);
            let mut found = Found::default();
            let begin = load.now;
            while load.now < begin + interval.max(SECOND) * 100 {
                load.wait_until(load.now + interval);
                if load.now > begin + 3 * interval.max(SECOND) && found.naps > 0 {
                    panic!("{interval:?}: still {found:?}");
                }
                if load.now > begin + 2 * interval.max(SECOND) {
                    found = Found::default();
                }
                load.turn(&[(10, 1, 100)], &mut found);
            }
        }
    }

    #[test]
    fn who_asks_in_bursts_is_not_tried_again_and_again() {
        let mut load = Load::new(true);
        let (mut naps, end) = (0, load.now + 60 * SECOND);
        while load.now < end {
            naps += load.questions(1, Duration::from_micros(15), Duration::from_millis(7)).naps;
            load.wait_until(load.now + Duration::from_millis(600));
        }
        // A hundred bursts of 300.
        assert!((1..600).contains(&naps), "{naps}");
    }

    #[test]
    fn nobody_naps_while_other_shards_may_wait() {
        let mut load = Load::new(true);
        let mut found = Found::default();
        for round in 0..200_000_u64 {
            if round % 20 == 0 {
                load.samples.note_parcels(1);
            }
            load.now = load.now + Duration::from_micros(10);
            load.turn(&[(0, 1, 100)], &mut found);
        }
        // The trials alone.
        assert!(found.naps < 2_000, "{found:?}");
    }
}
