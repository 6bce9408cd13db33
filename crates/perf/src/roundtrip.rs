//! A channel that publishes to its own queue and answers each message it receives with the next one.

use crate::check::LaneId;
use crate::consumer::append_ack;
use crate::scene::{Delivery, Scene};
use crate::template::{Message, Template};
use lepus_base::Instant;
use std::collections::VecDeque;

/// Everything that decides what a round trip does.
#[derive(Clone, Debug)]
pub(crate) struct RoundtripSpec {
    pub channel: u16,
    /// Number among all of the run, from 0.
    pub number: u32,
    pub message: Message,
    /// Messages under way at any time.
    pub in_flight: u32,
    /// Each message is acknowledged.
    pub acks: bool,
    pub lane: Option<LaneId>,
}

/// One round trip at work.
#[derive(Debug)]
pub(crate) struct Roundtrip {
    channel: u16,
    number: u32,
    template: Template,
    in_flight: u32,
    acks: bool,
    lane: Option<LaneId>,
    sent: u64,
    /// Stamps of the messages under way.
    times: VecDeque<u64>,
}

impl Roundtrip {
    /// Prepares `spec` for a connection with this frame size.
    pub(crate) fn new(spec: RoundtripSpec, frame_bytes_max: u32) -> Roundtrip {
        Roundtrip {
            channel: spec.channel,
            number: spec.number,
            template: Template::new(spec.channel, frame_bytes_max, &spec.message),
            in_flight: spec.in_flight,
            acks: spec.acks,
            lane: spec.lane,
            sent: 0,
            times: VecDeque::with_capacity(spec.in_flight as usize),
        }
    }

    /// Its number among all round trips.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Messages published so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Stamps of the messages under way.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = u64> + '_ {
        self.times.iter().copied()
    }

    /// Puts the first messages on their way.
    pub(crate) fn begin(&mut self, now: Instant, scene: &mut Scene, out: &mut Vec<u8>) {
        let stamp = scene.clock.stamp(now);
        for _ in self.times.len()..self.in_flight as usize {
            self.publish(stamp, scene, out);
        }
    }

    /// Takes a message and, while load is produced, sends the next.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        scene: &mut Scene,
        out: &mut Vec<u8>,
    ) {
        let stamp = scene.clock.stamp(now);
        if let (Some(check), Some(lane)) = (&mut scene.check, self.lane) {
            check.receive(lane, delivery.body, delivery.redelivered);
        }
        scene.statistics.now.received += 1;
        if let Some(time) = self.times.pop_front() {
            let latency = &mut scene.statistics.consumer_latency;
            latency.record(stamp.saturating_sub(time));
        }
        if self.acks {
            append_ack(out, self.channel, delivery.delivery_tag, false);
        }
        if scene.producing {
            self.publish(stamp, scene, out);
        }
    }

    fn publish(&mut self, stamp: u64, scene: &mut Scene, out: &mut Vec<u8>) {
        self.template.append(out, self.sent as u32, stamp);
        self.sent += 1;
        self.times.push_back(stamp);
        scene.statistics.now.sent += 1;
    }
}
