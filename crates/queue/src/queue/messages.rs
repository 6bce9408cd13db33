//! What a queue has once it had a message.

use alloc::boxed::Box;

use lepus_base::{Instant, Now, Position};
use lepus_store::LaneSlot;

use super::consumers::ConsumerHandle;
use super::ready::{Left, Ready};
use super::trash::Trash;
use super::unacked::UnackedList;
use super::{DROPS_AT_ONCE_MAX, Queue, Sink, Totals};
use crate::entry::{Delivery, Entry, Got, NO_SLOT, Place, Ticket};
use crate::log::{Found, QueueLog};
use crate::message::{Incoming, MessageView};

/// How a message is handed out. What it has is whether nobody acknowledges it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Handing {
    /// To a consumer.
    Delivered(bool),
    /// By `basic.get`.
    Got(bool),
}

impl Handing {
    /// Its place among the totals: deliveries that are acknowledged, those that are not, the same of `basic.get`.
    #[inline]
    const fn place(self) -> usize {
        match self {
            Handing::Delivered(no_ack) => no_ack as usize,
            Handing::Got(no_ack) => 2 + no_ack as usize,
        }
    }
}

/// The messages of a queue, and its totals.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) ready: Ready,
    pub(super) unacked: UnackedList,
    pub(super) trash: Option<Box<Trash>>,
    /// Sequence number of the next message.
    pub(super) next_seq: u64,
    /// The first one of this run.
    pub(super) first_seq: u64,
    /// Messages handed out, at [`Handing::place`].
    pub(super) handed_out: [u64; 4],
    pub(super) redelivered: u64,
    /// `basic.get` that found none, but for those before the first message.
    pub(super) got_empty: u64,
    pub(super) acknowledged: u64,
    /// More messages are to be dropped to satisfy the length limits.
    pub(super) is_over_limit: bool,
    /// Something has to be read before the queue can go on.
    pub(super) waits: bool,
    /// Whether one that lies in memory has a deadline, or had one since there was none there.
    has_deadlines: bool,
}

impl Messages {
    /// None yet; numbers begin at `seq`.
    pub(super) fn beginning_at(seq: u64) -> Box<Messages> {
        Box::new(Messages { next_seq: seq, first_seq: seq, ..Messages::default() })
    }

    /// One with this deadline comes into memory.
    pub(super) fn note_deadline(&mut self, deadline: Instant) {
        let has_others = self.has_deadlines && !self.ready.is_empty();
        self.has_deadlines = has_others || deadline != Instant::NEVER;
    }

    /// When the message that leaves next expires, if it is known. Mostly none does, and it is not looked at.
    pub(super) fn head_deadline(&self) -> Instant {
        if !self.has_deadlines && self.ready.is_plain() {
            return Instant::NEVER;
        }
        self.ready.head().map_or(Instant::NEVER, |head| head.deadline)
    }

    pub(super) fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    #[inline]
    pub(super) fn count_handed_out(&mut self, how: Handing, redelivered: bool) {
        self.handed_out[how.place()] += 1;
        self.redelivered += u64::from(redelivered);
    }

    /// `basic.get` found none; where there never was one that is counted in `unused`, up to what fits there.
    pub(super) fn count_got_empty(messages: &mut Option<Box<Messages>>, unused: &mut u32) {
        match messages {
            Some(messages) => messages.got_empty += 1,
            None => *unused = unused.saturating_add(1),
        }
    }

    /// Totals since the first message.
    pub(super) fn totals(&self) -> Totals {
        let [delivered_manual_ack, delivered_auto_ack, got_manual_ack, got_auto_ack] =
            self.handed_out;
        Totals {
            published: self.next_seq - self.first_seq,
            delivered_manual_ack,
            delivered_auto_ack,
            got_manual_ack,
            got_auto_ack,
            got_empty: self.got_empty,
            redelivered: self.redelivered,
            acknowledged: self.acknowledged,
        }
    }

    /// Takes all ready messages out, to be released later. How many they are.
    pub(super) fn empty(&mut self) -> u64 {
        self.is_over_limit = false;
        let count = self.ready.len();
        if count > 0 {
            let gone = self.ready.take_all();
            if !gone.is_empty() {
                self.trash.get_or_insert_default().ready.push(gone);
            }
        }
        count
    }

    /// Keeps a message that is not to be logged: in memory, or where that is short, in the log nevertheless.
    fn keep(&mut self, ticket: &Ticket, incoming: &mut Incoming<'_>, sink: &mut impl Sink) {
        let spilled = if sink.spills(self.ready.taken_bytes()) {
            self.spill(ticket, incoming, sink)
        } else {
            None
        };
        if let Some(position) = spilled {
            let place = Place::logged(position, true);
            self.push_logged(ticket.entry(place, incoming.bytes()), sink);
        } else {
            let place = Place::pooled(incoming.keep(sink.pool()));
            self.note_deadline(ticket.deadline);
            self.ready.push(ticket.entry(place, incoming.bytes()));
        }
    }

    /// Hands a message out that `basic.get` took; `counts` says whether it is told how often it came back.
    pub(super) fn hand_out(&mut self, entry: Entry, no_ack: bool, counts: bool) -> Got {
        self.count_handed_out(Handing::Got(no_ack), entry.redelivered);
        let mut delivery = Delivery {
            slot: NO_SLOT,
            seq: entry.seq,
            redelivered: entry.redelivered,
            delivery_count: if counts { entry.delivery_count } else { 0 },
        };
        let (place, remaining) = (entry.place, self.ready.len());
        let taken = if no_ack {
            Some(entry)
        } else {
            delivery.slot = self.unacked.insert(entry, ConsumerHandle::NONE);
            None
        };
        Got { delivery, place, remaining, taken }
    }

    /// The lane for messages of a priority; `None` where nothing is logged.
    pub(super) fn lane(
        &mut self,
        priority: u8,
        spilled: bool,
        sink: &mut impl Sink,
    ) -> Option<LaneSlot> {
        let known = self.ready.lane(priority, spilled);
        if known.is_some() {
            return known;
        }
        let lane = sink.backlog()?.lane(priority, spilled);
        self.ready.add_lane(priority, spilled, lane);
        Some(lane)
    }

    /// The lane of a message, if there is one.
    pub(super) fn lane_of(&self, entry: &Entry) -> Option<LaneSlot> {
        self.ready.lane(entry.priority, entry.place.is_spilled())
    }

    /// Logs a message only to spare memory; `None` where the log does not take it.
    fn spill(
        &mut self,
        ticket: &Ticket,
        incoming: &Incoming<'_>,
        sink: &mut impl Sink,
    ) -> Option<Position> {
        let lane = self.lane(ticket.priority, true, sink)?;
        if let Some(view) = incoming.view() {
            return sink.backlog()?.append(view, lane, ticket).ok();
        }
        let packed = sink.pool().get(incoming.stored()?).to_vec();
        sink.backlog()?.append(&MessageView::unpack(&packed), lane, ticket).ok()
    }

    /// Appends a message that was just logged.
    pub(super) fn push_logged(&mut self, entry: Entry, sink: &mut impl Sink) {
        let lane = self.lane(entry.priority, entry.place.is_spilled(), sink);
        let (Some(lane), Some(mut backlog)) = (lane, sink.backlog()) else {
            invariant!("what was logged has a lane in a log");
        };
        self.ready.push_logged(entry, lane, &mut backlog);
    }

    /// What was just logged is delivered: should it come back, it is not to be fetched, too.
    pub(super) fn pass(&mut self, ticket: Ticket, sink: &mut impl Sink) {
        let lane = self.lane(ticket.priority, false, sink);
        let (Some(lane), Some(mut backlog)) = (lane, sink.backlog()) else {
            invariant!("what was logged has a lane in a log");
        };
        backlog.pass(lane);
    }

    /// Makes the head known. False when something has to be read for that.
    fn prepare(&mut self, sink: &mut impl Sink) -> bool {
        if !self.ready.is_unknown() {
            return true;
        }
        if self.waits {
            return false;
        }
        let Some(mut backlog) = sink.backlog() else {
            invariant!("messages that are to be fetched are in a log")
        };
        self.waits = !self.ready.prepare(&mut backlog);
        !self.waits
    }

    /// Takes the head, which is known. `is_wanted` says whether others will be taken for their messages.
    pub(super) fn pop(&mut self, is_wanted: bool, sink: &mut impl Sink) -> Option<Entry> {
        let (entry, left) = self.ready.pop()?;
        self.left_window(left, is_wanted, sink);
        Some(entry)
    }

    /// An entry left from where `left` says.
    #[inline]
    pub(super) fn left_window(&mut self, left: Left, is_wanted: bool, sink: &mut impl Sink) {
        if left != Left::Memory {
            let Some(mut backlog) = sink.backlog() else {
                invariant!("what was in a window is in a log");
            };
            backlog.forget(1);
            if left == Left::LowWindow && is_wanted {
                self.ready.announce(&mut backlog);
            }
        }
    }

    /// The front, which lay where `left` says, was laid aside, where so many entries `more` of messages in the log are now:
    /// such an entry counts as one in a window.
    pub(super) fn laid(&mut self, left: Left, more: isize, sink: &mut impl Sink) {
        self.left_window(left, true, sink);
        if more != 0
            && let Some(mut backlog) = sink.backlog()
        {
            match more > 0 {
                true => backlog.add_to_windows(more.unsigned_abs()),
                false => backlog.forget(more.unsigned_abs()),
            }
        }
    }

    /// Puts a message back to its place.
    pub(super) fn put_back(&mut self, entry: Entry, sink: &mut impl Sink) {
        self.note_deadline(entry.deadline);
        let windowed = self.ready.put_back(entry);
        if windowed > 0 {
            let Some(mut backlog) = sink.backlog() else {
                invariant!("what comes to a window is in a log");
            };
            backlog.add_to_windows(windowed);
        }
    }

    /// Whether the head's message is in memory; `None` without a head.
    pub(super) fn look_up_head(&self, sink: &mut impl Sink) -> Option<Found> {
        let head = self.ready.head()?;
        let Some(position) = head.place.position() else { return Some(Found::Ready) };
        let bytes = head.bytes;
        Some(sink.backlog().map_or(Found::Lost, |mut backlog| backlog.lookup(position, bytes)))
    }

    /// Lets the log remember that a message was delivered.
    pub(super) fn mark_delivered(&self, entry: &Entry, sink: &mut impl Sink) {
        if entry.place.body().is_none()
            && !entry.place.is_spilled()
            && let Some(lane) = self.lane_of(entry)
            && let Some(mut backlog) = sink.backlog()
        {
            backlog.mark_delivered(lane, entry.seq);
        }
    }

    /// Lets the log remember what is delivered and not settled.
    pub(super) fn mark_unacked(&self, backlog: &mut impl QueueLog) {
        for (priority, spilled, seq) in self.unacked.logged() {
            if let Some(lane) = self.ready.lane(priority, spilled).filter(|_| !spilled) {
                backlog.mark_delivered(lane, seq);
            }
        }
    }

    /// A message that was taken is damaged: the log keeps it, and it counts no more here.
    pub(super) fn set_aside(&self, entry: &Entry, sink: &mut impl Sink) {
        let (Some(lane), Some(mut backlog)) = (self.lane_of(entry), sink.backlog()) else {
            invariant!("what was logged has a lane in a log");
        };
        backlog.set_aside(lane, entry);
    }

    /// Is done with a message.
    #[inline]
    pub(super) fn release(&self, entry: Entry, sink: &mut impl Sink) {
        if entry.place.body().is_some() {
            return sink.discard(entry);
        }
        let (Some(lane), Some(mut backlog)) = (self.lane_of(&entry), sink.backlog()) else {
            invariant!("what was logged has a lane in a log");
        };
        backlog.settle(lane, &entry);
    }

    /// Allocated bytes, this value included.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Messages>()
            + self.ready.memory_bytes()
            + self.unacked.memory_bytes()
            + self.trash.as_ref().map_or(0, |trash| trash.memory_bytes())
    }
}

impl Ticket {
    /// The entry of the message that got this ticket.
    #[inline(always)]
    pub(super) fn entry(self, place: Place, bytes: u32) -> Entry {
        Entry {
            seq: self.seq,
            deadline: self.deadline,
            place,
            bytes,
            delivery_count: 0,
            priority: self.priority,
            redelivered: false,
        }
    }
}

impl Queue {
    /// The messages, which begin with the first.
    #[cold]
    pub(super) fn open(&mut self, sink: &mut impl Sink) -> &mut Messages {
        self.messages.get_or_insert_with(|| {
            Messages::beginning_at(sink.backlog().map_or(0, |backlog| backlog.next_seq()))
        })
    }

    /// The messages of a queue that had one.
    #[inline]
    pub(super) fn opened(&mut self) -> &mut Messages {
        let Some(messages) = &mut self.messages else {
            invariant!("a queue that had a message has been opened")
        };
        messages
    }

    pub(super) fn wait(&mut self) {
        if let Some(messages) = &mut self.messages {
            messages.waits = true;
        }
    }

    /// Keeps a message that is not to be logged: in memory, or where that is short, in the log
    /// nevertheless.
    pub(super) fn keep(
        &mut self,
        now: Now,
        ticket: Ticket,
        incoming: &mut Incoming<'_>,
        sink: &mut impl Sink,
    ) {
        self.opened().keep(&ticket, incoming, sink);
        self.pushed(now, ticket.deadline, sink);
    }

    /// After a new message: what has no time or no room goes.
    pub(super) fn pushed(&mut self, now: Now, deadline: Instant, sink: &mut impl Sink) {
        if deadline <= now.instant && self.prepare(sink) {
            self.expire(now, &mut { DROPS_AT_ONCE_MAX }, sink);
        }
        self.drop_excess(sink);
    }

    /// Makes the head known. False when something has to be read for that.
    pub(super) fn prepare(&mut self, sink: &mut impl Sink) -> bool {
        self.messages.as_mut().is_none_or(|messages| messages.prepare(sink))
    }

    /// Takes the head, which is known.
    pub(super) fn pop(&mut self, sink: &mut impl Sink) -> Option<Entry> {
        let is_wanted = self.consumers.is_some() || self.dead_letters();
        self.messages.as_mut()?.pop(is_wanted, sink)
    }

    /// Steps over the head, whose message is damaged.
    pub(super) fn step_over(&mut self, sink: &mut impl Sink) {
        let Some(entry) = self.pop(sink) else { invariant!("the head was found to be lost") };
        self.opened().set_aside(&entry, sink);
    }

    /// Is done with a message.
    #[inline]
    pub(crate) fn release(&mut self, entry: Entry, sink: &mut impl Sink) {
        match &self.messages {
            Some(messages) => messages.release(entry, sink),
            None if entry.place.body().is_some() => sink.discard(entry),
            None => invariant!("what was logged is of a queue with messages"),
        }
    }
}
