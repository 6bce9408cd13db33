//! A channel that publishes.

use crate::confirm::ConfirmWindow;
use crate::scene::{OUTPUT_BYTES_MAX, Scene};
use crate::schedule::{Cycle, Schedule};
use crate::template::{KEY_BYTES, Message, Template};
use crate::transaction::Transaction;
use lepus_base::{Instant, Rng};
use std::time::Duration;

/// Producers with a rate wake no more often than this; what fell due meanwhile goes out together.
const WAKE_INTERVAL: Duration = Duration::from_micros(100);

/// What a producer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Room in the output: it has more to send now.
    Room,
    /// A moment.
    At(Instant),
    /// The broker: a confirm or a commit.
    Answer,
    /// Nothing: it has sent all it should.
    Done,
}

/// Everything that decides what a producer does.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProducerSpec {
    pub channel: u16,
    /// Number among all producers of the run, from 0.
    pub number: u32,
    /// What is published, in turn.
    pub messages: Vec<Message>,
    pub random_key: bool,
    /// Random keys are taken from so many; 0: each message has a new one.
    pub random_keys_max: usize,
    pub sent_max: Option<u64>,
    pub schedule: Option<Schedule>,
    /// With a schedule: latencies count from when a message was sent, not from when it was to be sent.
    pub from_sending: bool,
    /// `messages` take turns by time, not one by one: which of them holds when.
    pub turns: Option<Cycle<usize>>,
    pub start_delay: Duration,
    pub confirms: Option<u64>,
    pub transaction: Option<u64>,
    /// Decides the random keys.
    pub seed: u64,
}

/// One producer at work.
#[derive(Debug)]
pub(crate) struct Producer {
    number: u32,
    templates: Vec<Template>,
    keys: Option<Keys>,
    sent: u64,
    sent_max: Option<u64>,
    schedule: Option<Schedule>,
    from_sending: bool,
    turns: Option<Cycle<usize>>,
    begin_at: Instant,
    /// The moment that it asked to be woken at last: what fell due up to then was to be sent then.
    woken_for: Instant,
    confirms: Option<ConfirmWindow>,
    transaction: Option<Transaction>,
}

impl Producer {
    /// Prepares `spec` for a connection with this frame size, to begin at `now` or its delay later.
    pub(crate) fn new(spec: ProducerSpec, frame_bytes_max: u32, now: Instant) -> Producer {
        let begin_at = now + spec.start_delay;
        let mut schedule = spec.schedule;
        if let Some(schedule) = &mut schedule {
            schedule.begin(begin_at);
        }
        let mut turns = spec.turns;
        if let Some(turns) = &mut turns {
            turns.begin(begin_at);
        }
        Producer {
            number: spec.number,
            templates: spec
                .messages
                .iter()
                .map(|message| Template::new(spec.channel, frame_bytes_max, message))
                .collect(),
            keys: spec.random_key.then(|| Keys::new(spec.seed, spec.random_keys_max)),
            sent: 0,
            sent_max: spec.sent_max,
            schedule,
            from_sending: spec.from_sending,
            turns,
            begin_at,
            woken_for: begin_at,
            confirms: spec.confirms.map(ConfirmWindow::new),
            transaction: spec.transaction.map(|size| Transaction::new(spec.channel, size)),
        }
    }

    /// Its number among all producers.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Messages published so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether it stops by itself.
    pub(crate) fn is_limited(&self) -> bool {
        self.sent_max.is_some()
    }

    /// Whether it has sent all it should and has the answers to it.
    pub(crate) fn is_done(&self) -> bool {
        self.sent_max.is_some_and(|max| self.sent >= max) && self.is_settled()
    }

    /// Whether no answer is outstanding.
    pub(crate) fn is_settled(&self) -> bool {
        self.unconfirmed() == 0 && self.transaction.as_ref().is_none_or(Transaction::is_settled)
    }

    /// Messages without their confirm.
    pub(crate) fn unconfirmed(&self) -> u64 {
        self.confirms.as_ref().map_or(0, ConfirmWindow::outstanding)
    }

    /// Appends what may go out now, up to [`OUTPUT_BYTES_MAX`], and tells what it waits for then.
    pub(crate) fn produce(&mut self, now: Instant, scene: &mut Scene, out: &mut Vec<u8>) -> Turn {
        if now < self.begin_at {
            return Turn::At(self.begin_at);
        }
        loop {
            let mut count = u64::MAX;
            if let Some(max) = self.sent_max {
                count = max.saturating_sub(self.sent);
                if count == 0 {
                    self.finish(out);
                    return Turn::Done;
                }
            }
            if let Some(window) = &self.confirms {
                count = count.min(window.room());
            }
            if let Some(transaction) = &self.transaction {
                count = count.min(transaction.room());
            }
            if count == 0 {
                return Turn::Answer;
            }
            if let Some(schedule) = &self.schedule {
                let due = schedule.due_count(now);
                if due <= self.sent {
                    self.woken_for = schedule.due_at(self.sent).max(now + WAKE_INTERVAL);
                    return Turn::At(self.woken_for);
                }
                count = count.min(due - self.sent);
            }
            if out.len() >= OUTPUT_BYTES_MAX {
                return Turn::Room;
            }
            self.publish(count, now, scene, out);
        }
    }

    /// Publishes up to `count` messages, at least one, until the output is full.
    fn publish(&mut self, count: u64, now: Instant, scene: &mut Scene, out: &mut Vec<u8>) {
        let stamp = scene.clock.stamp(now);
        let mut published = 0;
        while published < count && (published == 0 || out.len() < OUTPUT_BYTES_MAX) {
            let stamp = match &self.schedule {
                None => stamp,
                Some(_) if self.from_sending => stamp,
                Some(schedule) => {
                    // Late or not, a message counts from the moment it was to be sent.
                    let planned = schedule.due_at(self.sent).max(self.woken_for).min(now);
                    scene.clock.stamp(planned)
                }
            };
            let sequence = self.sent as u32;
            let template = match (self.templates.as_slice(), &self.turns) {
                ([template], _) => template,
                (several, Some(turns)) => &several[turns.at(now).min(several.len() - 1)],
                (several, None) => &several[(self.sent % several.len() as u64) as usize],
            };
            match &mut self.keys {
                None => template.append(out, sequence, stamp),
                Some(keys) => template.append_keyed(out, keys.next(), sequence, stamp),
            }
            if let Some(window) = &mut self.confirms {
                window.published(stamp);
            }
            scene.outstanding.sent(self.number, self.sent, stamp);
            self.sent += 1;
            published += 1;
        }
        scene.statistics.now.sent += published;
        if let Some(transaction) = &mut self.transaction {
            transaction.add(published, out);
        }
    }

    /// Commits what is still open; without transactions nothing.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(transaction) = &mut self.transaction {
            transaction.commit(out);
        }
    }

    /// Notes a confirm (`ack`) or refusal of the broker.
    pub(crate) fn confirmed(
        &mut self,
        tag: u64,
        multiple: bool,
        ack: bool,
        now: Instant,
        scene: &mut Scene,
    ) {
        let Some(window) = &mut self.confirms else {
            return;
        };
        let stamp = scene.clock.stamp(now);
        let statistics = &mut scene.statistics;
        if ack {
            let latency = &mut statistics.confirm_latency;
            statistics.now.confirmed += window.settle(tag, multiple, |time| {
                latency.record(stamp.saturating_sub(time));
            });
        } else {
            statistics.now.nacked += window.settle(tag, multiple, |_| {});
        }
    }

    /// Notes a commit-ok.
    pub(crate) fn committed(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.committed();
        }
    }

    /// Calls `each` with the moment of every message without its confirm, in the unit of stamps.
    pub(crate) fn each_unconfirmed(&self, each: impl FnMut(u64)) {
        if let Some(window) = &self.confirms {
            window.each_outstanding(each);
        }
    }

    /// Calls `each` with number and moment of every message that was due at `now` and is not sent.
    pub(crate) fn each_unsent(&self, now: Instant, mut each: impl FnMut(u64, Instant)) {
        let Some(schedule) = self.schedule.as_ref().filter(|_| !self.from_sending) else { return };
        let due = schedule.due_count(now).min(self.sent_max.unwrap_or(u64::MAX));
        for number in self.sent..due {
            each(number, schedule.due_at(number));
        }
    }

    /// Whether the broker confirms its messages.
    pub(crate) fn has_confirms(&self) -> bool {
        self.confirms.is_some()
    }

    /// Since when its oldest message waits for its confirm, in the unit of stamps.
    pub(crate) fn oldest_unconfirmed(&self) -> Option<u64> {
        self.confirms.as_ref()?.oldest()
    }
}

/// Routing keys that look like random UUIDs.
#[derive(Debug)]
struct Keys {
    rng: Rng,
    cache: Vec<[u8; KEY_BYTES]>,
    last: [u8; KEY_BYTES],
}

impl Keys {
    fn new(seed: u64, cached: usize) -> Keys {
        let mut rng = Rng::new(seed);
        Keys {
            cache: (0..cached).map(|_| random_key(&mut rng)).collect(),
            last: [b'0'; KEY_BYTES],
            rng,
        }
    }

    fn next(&mut self) -> &[u8; KEY_BYTES] {
        if self.cache.is_empty() {
            self.last = random_key(&mut self.rng);
            return &self.last;
        }
        &self.cache[self.rng.below(self.cache.len() as u64) as usize]
    }
}

/// A random key in the form of a UUID.
pub(crate) fn random_key(rng: &mut Rng) -> [u8; KEY_BYTES] {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    bytes[6] = 0x40 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    let mut key = [b'-'; KEY_BYTES];
    let places = (0..KEY_BYTES).filter(|place| ![8, 13, 18, 23].contains(place));
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, digit) in places.zip(digits) {
        key[place] = b"0123456789abcdef"[usize::from(digit)];
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Layout;

    fn spec() -> ProducerSpec {
        let layout = Layout::new(12, false);
        ProducerSpec {
            channel: 1,
            messages: vec![Message {
                exchange: "e".into(),
                routing_key: "k".into(),
                mandatory: false,
                immediate: false,
                properties: vec![0, 0],
                body: layout.body(0),
                layout: Some(layout),
            }],
            ..ProducerSpec::default()
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Sequence numbers and times of the published bodies.
    fn bodies(mut out: &[u8]) -> Vec<(u32, u64)> {
        let layout = Layout::new(12, false);
        let mut bodies = Vec::new();
        while let Some((frame, used)) = lepus_amqp::frame::decode(out, 4_096).unwrap() {
            if frame.kind == lepus_amqp::frame::FrameKind::Body {
                let sequence = layout.sequence(frame.payload).unwrap();
                bodies.push((sequence, layout.time(frame.payload).unwrap()));
            }
            out = &out[used..];
        }
        bodies
    }

    #[test]
    fn without_limits_the_output_is_filled() {
        let mut producer = Producer::new(spec(), 4_096, at(5));
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(5), &mut scene, &mut out), Turn::Room);
        assert!(out.len() >= OUTPUT_BYTES_MAX && out.len() < OUTPUT_BYTES_MAX + 200);
        assert_eq!(scene.statistics.now.sent, producer.sent());
        let numbers: Vec<u32> = bodies(&out).iter().map(|body| body.0).collect();
        assert!(numbers.iter().copied().eq(0..producer.sent() as u32));
    }

    #[test]
    fn the_message_limit_ends_it() {
        let mut producer = Producer::new(ProducerSpec { sent_max: Some(3), ..spec() }, 0, at(0));
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(0), &mut scene, &mut out), Turn::Done);
        assert_eq!(bodies(&out).len(), 3);
        assert!(producer.is_done());
    }

    #[test]
    fn the_confirm_window_holds_it_back() {
        let mut producer = Producer::new(
            ProducerSpec { confirms: Some(2), sent_max: Some(3), ..spec() },
            0,
            at(0),
        );
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(1), &mut scene, &mut out), Turn::Answer);
        assert_eq!(bodies(&out).len(), 2);
        producer.confirmed(2, false, true, at(4), &mut scene);
        assert_eq!(producer.produce(at(5), &mut scene, &mut out), Turn::Done);
        assert!(!producer.is_done());
        producer.confirmed(3, true, false, at(6), &mut scene);
        assert!(producer.is_done());
        assert_eq!((scene.statistics.now.confirmed, scene.statistics.now.nacked), (1, 2));
        let latency = scene.statistics.turn(at(9)).confirm_latency;
        assert_eq!((latency.count, latency.median / 1_000), (1, 3_000));
    }

    #[test]
    fn a_rate_sends_what_is_due_and_names_the_next_moment() {
        let schedule = Some(Schedule::constant(100.0));
        let mut producer = Producer::new(ProducerSpec { schedule, ..spec() }, 0, at(1_000));
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(1_000), &mut scene, &mut out), Turn::At(at(1_010)));
        assert_eq!(producer.produce(at(1_010), &mut scene, &mut out), Turn::At(at(1_020)));
        assert_eq!(bodies(&out), [(0, at(1_000).0), (1, at(1_010).0)]);
    }

    #[test]
    fn a_late_message_carries_its_planned_time() {
        let schedule = Some(Schedule::constant(1_000.0));
        let mut producer = Producer::new(ProducerSpec { schedule, ..spec() }, 0, at(0));
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(5), &mut scene, &mut out), Turn::At(at(6)));
        let times: Vec<u64> = bodies(&out).iter().map(|body| body.1).collect();
        assert_eq!(times, [0, 1, 2, 3, 4, 5].map(|millis| at(millis).0));
    }

    /// Latencies of confirms after a broker that takes nothing for 100 ms, at a thousand messages a second.
    fn confirms_after_a_stall(from_sending: bool) -> crate::statistics::Quantiles {
        let spec = ProducerSpec {
            schedule: Some(Schedule::constant(1_000.0)),
            confirms: Some(1_000),
            from_sending,
            ..spec()
        };
        let mut producer = Producer::new(spec, 0, at(0));
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(0), &mut scene, &mut out), Turn::At(at(1)));
        producer.produce(at(100), &mut scene, &mut out);
        assert_eq!(producer.sent(), 101);
        producer.confirmed(101, true, true, at(100), &mut scene);
        scene.statistics.turn(at(200)).confirm_latency
    }

    #[test]
    fn a_stall_is_charged_to_every_message_that_it_held_up() {
        let millis = |nanos: u64| (nanos + 500_000) / 1_000_000;
        let planned = confirms_after_a_stall(false);
        assert_eq!(planned.count, 101);
        // Message n was to be sent at n ms and confirmed at 100 ms: 0 to 100 ms, evenly.
        assert_eq!(
            (millis(planned.median), millis(planned.p75), millis(planned.p95)),
            (50, 75, 95)
        );
        assert_eq!((millis(planned.max), millis(planned.mean)), (100, 50));
        // The slowest six: 95 to 100 ms.
        assert!(planned.tail_mean.abs_diff(97_500_000) < 100_000, "{}", planned.tail_mean);
        // Counted from sending, all but the first look as if nothing had happened.
        let sent = confirms_after_a_stall(true);
        assert_eq!((millis(sent.p95), millis(sent.max)), (0, 100));
    }

    #[test]
    fn what_is_sent_together_by_plan_is_not_late() {
        // A message each 10 µs, but the tester wakes each 100 µs: ten go out together, none of them late.
        let schedule = Some(Schedule::constant(100_000.0));
        let mut producer = Producer::new(ProducerSpec { schedule, ..spec() }, 0, Instant(0));
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        let wake = Instant(100_000);
        assert_eq!(producer.produce(Instant(0), &mut scene, &mut out), Turn::At(wake));
        out.clear();
        producer.produce(wake, &mut scene, &mut out);
        assert_eq!(bodies(&out).len(), 10);
        assert!(bodies(&out).iter().all(|body| body.1 == wake.0));
        // Woken 30 µs late: what was due by then is late by that, what fell due since by less.
        out.clear();
        producer.produce(Instant(230_000), &mut scene, &mut out);
        let times: Vec<u64> = bodies(&out).iter().map(|body| body.1).collect();
        assert_eq!(times.len(), 13);
        assert!(times[..10].iter().all(|time| *time == 200_000), "{times:?}");
        assert!(
            times[10..].iter().zip([210_000u64, 220_000, 230_000]).all(|(a, b)| a.abs_diff(b) < 2)
        );
    }

    #[test]
    fn sizes_take_turns_by_time() {
        let small = spec().messages.remove(0);
        let layout = Layout::new(40, false);
        let large = Message { body: layout.body(0), layout: Some(layout), ..small.clone() };
        let second = Duration::from_secs(1);
        let turns = Some(Cycle::new(vec![(0, second), (1, second)]));
        let schedule = Some(Schedule::constant(1.0));
        let spec = ProducerSpec { messages: vec![small, large], turns, schedule, ..spec() };
        let mut producer = Producer::new(spec, 0, at(0));
        let (mut scene, mut sizes) = (Scene::for_test(), Vec::new());
        for millis in [0, 1_000, 2_000, 3_000] {
            let mut out = Vec::new();
            producer.produce(at(millis), &mut scene, &mut out);
            sizes.push(out.len());
        }
        assert_eq!(sizes[1] - sizes[0], 40 - 12);
        assert_eq!([sizes[2], sizes[3]], [sizes[0], sizes[1]]);
    }

    #[test]
    fn a_delay_holds_the_start_and_moves_the_plan() {
        let schedule = Some(Schedule::constant(1.0));
        let start_delay = Duration::from_millis(500);
        let mut producer =
            Producer::new(ProducerSpec { schedule, start_delay, ..spec() }, 0, at(100));
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(100), &mut scene, &mut out), Turn::At(at(600)));
        assert_eq!(producer.produce(at(600), &mut scene, &mut out), Turn::At(at(1_600)));
        assert_eq!(bodies(&out).len(), 1);
    }

    #[test]
    fn a_transaction_is_committed_when_full_and_at_the_end() {
        let mut producer = Producer::new(
            ProducerSpec { transaction: Some(2), sent_max: Some(3), ..spec() },
            0,
            at(0),
        );
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(producer.produce(at(0), &mut scene, &mut out), Turn::Answer);
        assert_eq!(bodies(&out).len(), 2);
        producer.committed();
        assert_eq!(producer.produce(at(0), &mut scene, &mut out), Turn::Done);
        assert!(!producer.is_done());
        producer.committed();
        assert!(producer.is_done());
    }

    #[test]
    fn random_keys_are_uuids_and_a_cache_repeats_them() {
        let mut fresh = Keys::new(1, 0);
        let first = *fresh.next();
        assert_ne!(first, *fresh.next());
        assert_eq!(
            (first[8], first[13], first[14], first[18], first[23]),
            (b'-', b'-', b'4', b'-', b'-')
        );
        let mut cached = Keys::new(1, 3);
        let drawn: std::collections::HashSet<[u8; KEY_BYTES]> =
            (0..100).map(|_| *cached.next()).collect();
        assert_eq!(drawn.len(), 3);
    }
}
