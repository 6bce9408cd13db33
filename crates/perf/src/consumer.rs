//! A channel that consumes.

use crate::check::LaneId;
use crate::scene::{Delivery, Scene};
use crate::schedule::{Cycle, Schedule};
use crate::transaction::Transaction;
use lepus_amqp::Method;
use lepus_amqp::method::basic;
use lepus_base::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// With more messages than this waiting for a slow consumer, its connection is not read.
pub(crate) const PENDING_MAX: usize = 1_000;

/// How messages are settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Settling {
    /// The broker takes them as settled when it sends them.
    #[default]
    Auto,
    /// Each by itself.
    Each,
    /// So many at once.
    Every(u64),
}

/// Everything that decides what a consumer does.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConsumerSpec {
    pub channel: u16,
    pub settling: Settling,
    /// Messages are rejected, and requeued or not.
    pub nack_requeue: Option<bool>,
    /// One message in so many is never settled.
    pub kept_every: Option<u64>,
    pub received_max: Option<u64>,
    pub transaction: Option<u64>,
    /// At most so many messages a second.
    pub schedule: Option<Schedule>,
    /// Time that each message takes; may change with time.
    pub service: Option<Cycle<Duration>>,
    /// Messages are asked for one by one (`basic.get`) from these queues in turn, this long after the answer before.
    pub polling: Option<(Vec<String>, Duration)>,
    /// Frames that start the consumer so long after the load began; it starts with its connection otherwise.
    pub deferred: Option<(Duration, Vec<u8>)>,
    /// For the check: one per queue, in the order of the consumer tags "0", "1", …
    pub lanes: Vec<LaneId>,
}

/// One consumer at work.
#[derive(Debug)]
pub(crate) struct Consumer {
    channel: u16,
    settling: Settling,
    nack_requeue: Option<bool>,
    kept_every: Option<u64>,
    received: u64,
    received_max: Option<u64>,
    transaction: Option<Transaction>,
    pace: Option<Pace>,
    polling: Option<Polling>,
    deferred: Option<Deferred>,
    lanes: Vec<LaneId>,
}

/// A start that is yet to come.
#[derive(Debug)]
struct Deferred {
    delay: Duration,
    frames: Vec<u8>,
    /// `None`: the load has not begun.
    due: Option<Instant>,
}

/// Asks for messages instead of being sent them.
#[derive(Debug)]
struct Polling {
    queues: Vec<String>,
    /// Queue that is asked, or was last.
    turn: usize,
    interval: Duration,
    state: Poll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    /// Load has not begun.
    Resting,
    /// The broker's answer is awaited.
    Asked,
    /// The answer has come.
    Answered,
    /// The next question is due then.
    Due(Instant),
}

/// A limit on how fast messages are taken.
#[derive(Debug)]
struct Pace {
    schedule: Option<Schedule>,
    service: Option<Cycle<Duration>>,
    begun: bool,
    /// When the message before is done.
    free_at: Instant,
    pending: VecDeque<Pending>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    delivery_tag: u64,
    time: Option<u64>,
    arrived: Instant,
}

impl Consumer {
    /// A consumer as `spec` says; its rate counts from its first message.
    pub(crate) fn new(spec: ConsumerSpec) -> Consumer {
        let schedule = spec.schedule;
        let paced = schedule.is_some() || spec.service.is_some();
        Consumer {
            channel: spec.channel,
            settling: spec.settling,
            nack_requeue: spec.nack_requeue,
            kept_every: spec.kept_every,
            received: 0,
            received_max: spec.received_max,
            transaction: spec.transaction.map(|size| Transaction::new(spec.channel, size)),
            pace: paced.then(|| Pace {
                schedule,
                service: spec.service,
                free_at: Instant(0),
                begun: false,
                pending: VecDeque::new(),
            }),
            polling: spec.polling.map(|(queues, interval)| Polling {
                turn: queues.len().saturating_sub(1),
                queues,
                interval,
                state: Poll::Resting,
            }),
            deferred: spec.deferred.map(|(delay, frames)| Deferred { delay, frames, due: None }),
            lanes: spec.lanes,
        }
    }

    /// Whether it stops by itself.
    pub(crate) fn is_limited(&self) -> bool {
        self.received_max.is_some()
    }

    /// Whether it has received all it should.
    pub(crate) fn is_done(&self) -> bool {
        self.received_max.is_some_and(|max| self.received >= max)
    }

    /// Whether it has to be resumed: messages may wait here for their time, or are asked for.
    pub(crate) fn is_paced(&self) -> bool {
        self.pace.is_some() || self.polling.is_some() || self.deferred.is_some()
    }

    /// Lets it ask for messages, where it does that.
    pub(crate) fn begin(&mut self, now: Instant) {
        let mut start = now;
        if let Some(deferred) = &mut self.deferred {
            start = now + deferred.delay;
            deferred.due = Some(start);
        }
        if let Some(polling) = &mut self.polling {
            polling.state = Poll::Due(start);
        }
    }

    /// Notes the answer to a question: a message, or that there is none.
    pub(crate) fn answered(&mut self) {
        if let Some(polling) = &mut self.polling {
            polling.state = Poll::Answered;
        }
    }

    /// Whether more messages wait for it than should.
    pub(crate) fn is_behind(&self) -> bool {
        let pace = self.pace.as_ref();
        pace.is_some_and(|pace| pace.pending.len() >= PENDING_MAX)
    }

    /// Takes a message that came at `now`; appends its settlement.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        scene: &mut Scene,
        out: &mut Vec<u8>,
    ) {
        if let Some(check) = &mut scene.check {
            let lane = match (self.lanes.as_slice(), &self.polling) {
                ([lane], _) => Some(lane),
                (lanes, Some(polling)) => lanes.get(polling.turn),
                (lanes, None) => {
                    delivery.consumer_tag.parse().ok().and_then(|at: usize| lanes.get(at))
                }
            };
            if let Some(lane) = lane {
                check.receive(*lane, delivery.body, delivery.redelivered);
            }
        }
        let time = scene.time_of(delivery);
        match &mut self.pace {
            None => self.take(now, delivery.delivery_tag, time, scene, out),
            Some(pace) => {
                if !std::mem::replace(&mut pace.begun, true) {
                    if let Some(schedule) = &mut pace.schedule {
                        schedule.begin(now);
                    }
                    if let Some(service) = &mut pace.service {
                        service.begin(now);
                    }
                }
                pace.pending.push_back(Pending {
                    delivery_tag: delivery.delivery_tag,
                    time,
                    arrived: now,
                });
            }
        }
    }

    /// Takes what waited and is due, asks for the next message; returns when it wants to be called again, if it knows.
    pub(crate) fn resume(
        &mut self,
        now: Instant,
        scene: &mut Scene,
        out: &mut Vec<u8>,
    ) -> Option<Instant> {
        if let Some(due) = self.deferred.as_ref().and_then(|deferred| deferred.due) {
            if now < due {
                return Some(due);
            }
            if let Some(deferred) = self.deferred.take() {
                out.extend_from_slice(&deferred.frames);
            }
        }
        let next = self.take_pending(now, scene, out);
        next.or_else(|| self.poll(now, out))
    }

    /// Asks for a message if it is time; returns when it will be.
    fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Instant> {
        if self.is_done() {
            return None;
        }
        let polling = self.polling.as_mut()?;
        if polling.state == Poll::Answered {
            polling.state = Poll::Due(now + polling.interval);
        }
        let Poll::Due(moment) = polling.state else {
            return None;
        };
        if moment > now {
            return Some(moment);
        }
        polling.turn = (polling.turn + 1) % polling.queues.len().max(1);
        let queue = polling.queues.get(polling.turn).map_or("", String::as_str);
        let no_ack = self.settling == Settling::Auto;
        Method::from(basic::Get { queue, no_ack }).encode_frame(self.channel, out);
        polling.state = Poll::Asked;
        None
    }

    fn take_pending(
        &mut self,
        now: Instant,
        scene: &mut Scene,
        out: &mut Vec<u8>,
    ) -> Option<Instant> {
        loop {
            let received = self.received;
            let pace = self.pace.as_mut()?;
            let first = *pace.pending.front()?;
            let planned =
                pace.schedule.as_ref().map_or(Instant(0), |schedule| schedule.due_at(received));
            let start = planned.max(pace.free_at).max(first.arrived);
            if start > now {
                return Some(start);
            }
            let service = pace.service.as_ref().map_or(Duration::ZERO, |service| service.at(start));
            pace.free_at = start + service;
            pace.pending.pop_front();
            self.take(now, first.delivery_tag, first.time, scene, out);
        }
    }

    #[inline]
    fn take(
        &mut self,
        now: Instant,
        delivery_tag: u64,
        time: Option<u64>,
        scene: &mut Scene,
        out: &mut Vec<u8>,
    ) {
        if self.is_done() {
            return;
        }
        self.received += 1;
        let stamp = scene.clock.stamp(now);
        scene.statistics.now.received += 1;
        if let Some(time) = time {
            let latency = &mut scene.statistics.consumer_latency;
            latency.record(stamp.saturating_sub(time));
            scene.outstanding.received(time);
        }
        let is_kept = self.kept_every.is_some_and(|every| self.received.is_multiple_of(every));
        let multiple = match self.settling {
            Settling::Auto => return,
            Settling::Each if is_kept => return,
            Settling::Each => false,
            Settling::Every(count) if self.received.is_multiple_of(count) => true,
            Settling::Every(_) => return,
        };
        match self.nack_requeue {
            None => append_ack(out, self.channel, delivery_tag, multiple),
            Some(requeue) => Method::from(basic::Nack { delivery_tag, multiple, requeue })
                .encode_frame(self.channel, out),
        }
        if let Some(transaction) = &mut self.transaction {
            let settled = match self.settling {
                Settling::Every(count) => count,
                _ => 1,
            };
            transaction.add(settled, out);
        }
    }

    /// Notes a commit-ok.
    pub(crate) fn committed(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.committed();
        }
    }
}

/// Appends `basic.ack`: the most frequent method of a consumer, hence written in one piece.
#[inline]
pub(crate) fn append_ack(out: &mut Vec<u8>, channel: u16, delivery_tag: u64, multiple: bool) {
    let [c1, c0] = channel.to_be_bytes();
    let mut frame = [1, c1, c0, 0, 0, 0, 13, 0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xCE];
    frame[11..19].copy_from_slice(&delivery_tag.to_be_bytes());
    frame[19] = u8::from(multiple);
    out.extend_from_slice(&frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn deliver(
        consumer: &mut Consumer,
        scene: &mut Scene,
        now: Instant,
        tag: u64,
        out: &mut Vec<u8>,
    ) {
        let mut body = [0; 12];
        body[4..].copy_from_slice(&at(1).0.to_be_bytes());
        let delivery = Delivery {
            consumer_tag: "0",
            delivery_tag: tag,
            redelivered: false,
            properties: &[0, 0],
            body: &body,
        };
        consumer.deliver(now, &delivery, scene, out);
    }

    /// Tags and multiple flags of the acks in `out`.
    fn acks(mut out: &[u8]) -> Vec<(u64, bool)> {
        let mut acks = Vec::new();
        while let Some((frame, used)) = lepus_amqp::frame::decode(out, 4_096).unwrap() {
            assert_eq!(frame.channel, 9);
            if let Method::BasicAck(ack) = Method::decode(frame.payload).unwrap() {
                acks.push((ack.delivery_tag, ack.multiple));
            }
            out = &out[used..];
        }
        acks
    }

    fn run(spec: ConsumerSpec, count: u64) -> (Consumer, Scene, Vec<u8>) {
        let mut consumer = Consumer::new(ConsumerSpec { channel: 9, ..spec });
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        for tag in 1..=count {
            deliver(&mut consumer, &mut scene, at(3), tag, &mut out);
        }
        (consumer, scene, out)
    }

    #[test]
    fn messages_are_settled_as_asked_for() {
        let (_, mut scene, out) = run(ConsumerSpec::default(), 3);
        assert!(out.is_empty());
        let figures = scene.statistics.turn(at(5));
        assert_eq!(figures.counters.received, 3);
        assert_eq!(figures.consumer_latency.median / 10_000, 200);
        let settling = Settling::Each;
        let (.., out) = run(ConsumerSpec { settling, ..ConsumerSpec::default() }, 2);
        assert_eq!(acks(&out), [(1, false), (2, false)]);
        let settling = Settling::Every(2);
        let (.., out) = run(ConsumerSpec { settling, ..ConsumerSpec::default() }, 5);
        assert_eq!(acks(&out), [(2, true), (4, true)]);
    }

    #[test]
    fn one_message_in_so_many_is_kept() {
        let spec = ConsumerSpec {
            settling: Settling::Each,
            kept_every: Some(3),
            ..ConsumerSpec::default()
        };
        let (consumer, _, out) = run(spec, 7);
        assert_eq!(acks(&out), [1, 2, 4, 5, 7].map(|tag| (tag, false)));
        assert_eq!(consumer.received, 7);
    }

    #[test]
    fn beyond_its_limit_a_consumer_neither_counts_nor_acks() {
        let spec = ConsumerSpec {
            settling: Settling::Each,
            received_max: Some(2),
            ..ConsumerSpec::default()
        };
        let (consumer, scene, out) = run(spec, 5);
        assert!(consumer.is_done());
        assert_eq!(scene.statistics.now.received, 2);
        assert_eq!(acks(&out).len(), 2);
    }

    #[test]
    fn rejections_say_whether_to_requeue() {
        let spec = ConsumerSpec {
            settling: Settling::Each,
            nack_requeue: Some(true),
            ..ConsumerSpec::default()
        };
        let (.., out) = run(spec, 1);
        let (frame, _) = lepus_amqp::frame::decode(&out, 4_096).unwrap().unwrap();
        let nack = basic::Nack { delivery_tag: 1, multiple: false, requeue: true };
        assert_eq!(Method::decode(frame.payload), Ok(nack.into()));
    }

    #[test]
    fn acks_are_committed_in_transactions() {
        let spec = ConsumerSpec {
            settling: Settling::Each,
            transaction: Some(2),
            ..ConsumerSpec::default()
        };
        let (.., out) = run(spec, 4);
        let commit = [0, 90, 0, 20];
        assert_eq!(out.windows(4).filter(|window| *window == commit).count(), 2);
    }

    #[test]
    fn a_slow_consumer_takes_one_after_the_other() {
        let spec = ConsumerSpec {
            settling: Settling::Each,
            service: Some(Cycle::new(vec![(Duration::from_millis(10), Duration::from_secs(60))])),
            ..ConsumerSpec::default()
        };
        let (mut consumer, mut scene, mut out) = run(spec, 3);
        assert!(out.is_empty());
        assert_eq!(consumer.resume(at(3), &mut scene, &mut out), Some(at(13)));
        assert_eq!(acks(&out).len(), 1);
        assert_eq!(consumer.resume(at(15), &mut scene, &mut out), Some(at(23)));
        assert_eq!(consumer.resume(at(23), &mut scene, &mut out), None);
        assert_eq!(acks(&out).len(), 3);
        deliver(&mut consumer, &mut scene, at(50), 4, &mut out);
        assert_eq!(consumer.resume(at(50), &mut scene, &mut out), None);
        assert_eq!(acks(&out).len(), 4);
    }

    #[test]
    fn the_time_that_a_message_takes_may_change() {
        let millis = Duration::from_millis;
        let service = Cycle::new(vec![(millis(10), millis(20)), (millis(1), millis(1_000))]);
        let spec = ConsumerSpec { service: Some(service), ..ConsumerSpec::default() };
        let (mut consumer, mut scene, mut out) = run(spec, 5);
        let mut moments = Vec::new();
        let mut now = at(3);
        while let Some(next) = consumer.resume(now, &mut scene, &mut out) {
            moments.push(next);
            now = next;
        }
        assert_eq!(moments, [at(13), at(23), at(24), at(25)]);
    }

    #[test]
    fn a_polling_consumer_asks_its_queues_in_turn_once_each_answer_came() {
        let polling = Some((vec!["a".to_owned(), "b".to_owned()], Duration::from_millis(5)));
        let spec = ConsumerSpec { channel: 9, polling, ..ConsumerSpec::default() };
        let mut consumer = Consumer::new(spec);
        let (mut scene, mut out) = (Scene::for_test(), Vec::new());
        assert_eq!(consumer.resume(at(0), &mut scene, &mut out), None);
        assert!(out.is_empty());
        consumer.begin(at(1));
        let mut asked = Vec::new();
        for (now, next) in [(1, None), (2, None), (3, Some(at(8))), (8, None), (9, Some(at(14)))] {
            if matches!(now, 3 | 9) {
                consumer.answered();
            }
            out.clear();
            assert_eq!(consumer.resume(at(now), &mut scene, &mut out), next, "{now}");
            if let Some((frame, _)) = lepus_amqp::frame::decode(&out, 4_096).unwrap()
                && let Method::BasicGet(get) = Method::decode(frame.payload).unwrap()
            {
                assert!(get.no_ack);
                asked.push((now, get.queue.to_owned()));
            }
        }
        assert_eq!(asked, [(1, "a".to_owned()), (8, "b".to_owned())]);
    }

    #[test]
    fn a_consumer_with_a_rate_keeps_it_and_says_when_it_is_behind() {
        let spec =
            ConsumerSpec { schedule: Some(Schedule::constant(100.0)), ..ConsumerSpec::default() };
        let (mut consumer, mut scene, mut out) = run(spec, PENDING_MAX as u64 + 50);
        assert!(consumer.is_behind());
        assert_eq!(consumer.resume(at(1_003), &mut scene, &mut out), Some(at(1_013)));
        assert_eq!(scene.statistics.now.received, 101);
        assert!(!consumer.is_behind());
    }
}
